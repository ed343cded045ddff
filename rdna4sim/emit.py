"""The text of one translated kernel while it grows: registers used, operands as C expressions, lines.

Owns: how operand numbers become C (registers, constants, literals), in scalar and in vector form, and how results
are written
under EXEC. What an instruction computes is in semantics/.
"""

from __future__ import annotations

import struct

from .decode import EXEC, LITERAL, M0, NULL, SCC, Inst
from .errors import Unsupported

# Types of operands: one letter each. Scalar C type, vector C type, registers.
SCALAR = {
    "u": "u32",
    "i": "i32",
    "f": "float",
    "q": "u64",
    "l": "i64",
    "d": "double",
    "h": "_Float16",
    "w": "u16",
    "s": "i16",
}
VECTOR = {"u": "V", "i": "VI", "f": "VF", "q": "VQ", "l": "VL", "d": "VD", "h": "VH", "w": "VS", "s": "VSI"}
WIDE, HALF = "qld", "hws"
FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494309189532}
APERTURES = {235: (0, 0x10000), 236: (0xFFFFFFFF, 0x10000), 237: (0, 0x20000), 238: (0xFFFFFFFF, 0x20000)}


def float_bits(value: float, kind: str) -> int:
    """Bits of a constant as f16 (h), f32 (f) or f64 (d)."""
    if kind == "h":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    if kind == "d":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


class Body:
    """Lines of C and the registers they name."""

    def __init__(self, weak: bool = False, counters: bool = False) -> None:
        self.weak, self.counters = weak, counters
        self.lines: list[str] = []
        self.vgprs: set[int] = set()
        self.sgprs: set[int] = set()
        # What the current instruction reads or writes: in weak memory mode it must have landed.
        self.touched_v: set[int] = set()
        self.touched_s: set[int] = set()
        self.sites = 0
        self.functions: dict[str, str] = {}
        self.tables: dict[tuple[int, ...], str] = {}
        self.inst: Inst | None = None

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def refuse(self, why: str) -> Unsupported:
        assert self.inst is not None
        return Unsupported(f"{self.inst.name} at {self.inst.address:#x}: {why}")

    def site(self) -> str:
        """A place that remembers the allocation last touched."""
        self.sites += 1
        return f"&w->sites[{self.sites - 1}]"

    def table(self, lanes: tuple[int, ...]) -> str:
        """Name of a constant table of 32 lane numbers."""
        return self.tables.setdefault(lanes, f"lanes_{len(self.tables)}")

    # Registers.

    def v(self, number: int) -> str:
        if not 0 <= number < 256:
            raise self.refuse(f"VGPR {number} does not exist")
        self.vgprs.add(number)
        self.touched_v.add(number)
        return f"v{number}"

    def reach_v(self, first: int, count: int) -> None:
        """VGPRs that something else than this text will write."""
        if first + count > 256:
            raise self.refuse(f"VGPR {first + count - 1} does not exist")
        self.vgprs.update(range(first, first + count))

    def reach_s(self, first: int, count: int) -> None:
        """Scalar registers that something else than this text will write: SGPRs, VCC, TTMPs."""
        if first + count > NULL:
            raise self.refuse(f"scalar operand {first + count - 1} cannot be loaded in weak memory mode")
        self.sgprs.update(range(first, first + count))

    def s(self, number: int) -> str:
        """A scalar register that can be assigned to (or read): SGPR, VCC, TTMP, M0, EXEC."""
        if number == EXEC:
            return "exec"
        if number == M0:
            return "m0"
        if number < 124 or number == EXEC + 1:
            self.sgprs.add(number)
            self.touched_s.add(number)
            return f"s{number}"
        raise self.refuse(f"scalar operand {number} cannot be written")

    def constant(self, number: int, kind: str) -> int | None:
        """Value of an inline constant or literal in the bits of an operand of this type; None for registers."""
        assert self.inst is not None
        mask = (1 << 64) - 1 if kind in WIDE else 0xFFFF if kind in HALF else 0xFFFFFFFF
        if 128 <= number <= 208:
            return (number - 128 if number <= 192 else 192 - number) & mask
        if number in FLOATS:
            return float_bits(FLOATS[number], "d" if kind in WIDE else "h" if kind in HALF else "f")
        if number == LITERAL:
            literal = self.inst.literal or 0
            if kind == "d":
                return literal << 32
            if kind == "l":
                return ((literal ^ 1 << 31) - (1 << 31)) & mask
            return literal & mask
        return None

    def scalar(self, number: int, kind: str = "u", high: bool = False) -> str:
        """A scalar operand as a C expression of a type's scalar C type."""
        value = self.constant(number, kind)
        if value is not None:
            suffix = "ull" if kind in WIDE else "u"
            return self._view(f"{value:#x}{suffix}", kind)
        if kind in WIDE:
            if number in (235, 236, 237, 238):
                return self._view(f"pair({APERTURES[number][0]:#x}u, {APERTURES[number][1]:#x}u)", kind)
            if number == NULL:
                return self._view("0ull", kind)
            return self._view(f"pair({self.scalar(number)}, {self.scalar(number + 1)})", kind)
        if number == NULL:
            text = "0u"
        elif number == SCC:
            text = "scc"
        elif number in APERTURES:
            text = f"{APERTURES[number][0]:#x}u"
        elif number < 128:
            text = self.s(number)
        else:
            raise self.refuse(f"operand {number} is not known")
        if kind in HALF:
            text = f"({text} >> 16)" if high else text
        return self._view(text, kind)

    def _view(self, text: str, kind: str) -> str:
        if kind in "fdh":
            return f"as_{kind}({text})"
        return f"({SCALAR[kind]})({text})"

    def vector(self, number: int, kind: str = "u", high: bool = False) -> str:
        """A source operand of a vector instruction (256 and more: VGPRs) as a C expression of the type's vector."""
        if number < 256:
            if kind in HALF:
                value = self.constant(number, kind)
                if value is None:
                    return f"({VECTOR[kind]})SPS({self.scalar(number, 'u')}{' >> 16' if high else ''})"
                return f"({VECTOR[kind]})SPS({value:#x})"
            if kind in WIDE:
                return f"({VECTOR[kind]})SPQ({self.scalar(number, 'd' if kind == 'd' else kind).removeprefix('as_d')})"
            constant = self.constant(number, kind)
            return f"({VECTOR[kind]})SP({self.scalar(number) if constant is None else f'{constant:#x}u'})"
        return self.vgpr(number - 256, kind, high)

    def vgpr(self, n: int, kind: str = "u", high: bool = False) -> str:
        if kind in WIDE:
            return f"({VECTOR[kind]})pair_v({self.v(n)}, {self.v(n + 1)})"
        if kind in HALF:
            return f"({VECTOR[kind]}){'hi16' if high else 'lo16'}({self.v(n)})"
        return self.v(n) if kind == "u" else f"({VECTOR[kind]}){self.v(n)}"

    # Results.

    def write_scalar(self, number: int, kind: str, text: str) -> None:
        if number == NULL:
            return
        if kind in WIDE:
            bits = f"of_d({text})" if kind == "d" else f"(u64)({text})"
            self.line(f"{{ u64 r = {bits}; {self.s(number)} = (u32)r; {self.s(number + 1)} = (u32)(r >> 32); }}")
        elif kind in "fh":
            self.line(f"{self.s(number)} = of_{kind}({text});")
        else:
            self.line(f"{self.s(number)} = (u32)({text});")

    def write_vector(self, number: int, kind: str, text: str, mask: str = "exec", high: bool = False) -> None:
        """Write lanes of a VGPR (pair); of a 16-bit result only the addressed half."""
        if kind in WIDE:
            lo, hi = self.v(number), self.v(number + 1)
            self.line(
                f"{{ VQ r = (VQ)({text}); {lo} = sel({mask}, low_v(r), {lo}); {hi} = sel({mask}, high_v(r), {hi}); }}"
            )
        elif kind in HALF:
            name = self.v(number)
            self.line(f"{name} = sel({mask}, set_{'hi' if high else 'lo'}16({name}, (VS)({text})), {name});")
        else:
            name = self.v(number)
            self.line(f"{name} = sel({mask}, (V)({text}), {name});")
