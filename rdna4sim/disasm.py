"""Instructions as text, in the syntax of LLVM's assembler and the line format of llvm-objdump.

Owns: which operands an instruction has, in which order they stand, and how registers, constants and modifiers are
written. Words of immediates are in `immediates`. Widths and kinds of operands come from AMD's machine-readable tables,
which the `tinygrad` wheel carries. A word that is no instruction becomes a `.long` line.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from . import immediates
from .decode import ENUMS, Inst, decode, opcodes
from .elf import STT_FUNC, CodeObject, Symbol
from .errors import SimError, Unsupported

FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
INVERSE_2PI = {16: "0.15915494", 32: "0.15915494", 64: "0.15915494309189532"}
# Bit patterns that LLVM writes as a number.
AS_FLOAT = {
    16: {struct.unpack("<H", struct.pack("<e", float(x)))[0]: x for x in FLOATS} | {0x3118: "0.15915494"},
    32: {struct.unpack("<I", struct.pack("<f", float(x)))[0]: x for x in FLOATS} | {0x3E22F983: "0.15915494"},
}
NAMED = {
    106: "vcc_lo", 107: "vcc_hi", 124: "null", 125: "m0", 126: "exec_lo", 127: "exec_hi",
    235: "src_shared_base", 236: "src_shared_limit", 237: "src_private_base", 238: "src_private_limit",
    239: "src_pops_exiting_wave_id", 251: "src_vccz", 252: "src_execz", 253: "src_scc",
}  # fmt: skip
WIDE = {106: "vcc", 126: "exec", 124: "null"}
# Where LLVM departs from the rule of an encoding.
HEXADECIMAL = {"s_clause", "s_round_mode", "s_singleuse_vdst", "s_ttracedata_imm"}
HALF_REGISTERS = {"v_mov_b16", "v_swap_b16"}
BYTE_SELECT = {"v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"}
SIGN_EXTENDED = {"v_ldexp_f32", "v_ldexp_f64", "v_trig_preop_f64", "v_cvt_pk_u8_f32", "v_cvt_sr_fp8_f32",
                 "v_cvt_sr_bf8_f32"}  # fmt: skip
BARRIERS = {"s_barrier_init", "s_barrier_join", "s_get_barrier_state"}
ONE_ENCODING = {"v_readfirstlane_b32", "v_nop", "v_pipeflush"}
# Encodings that are not decoded, by their highest bits: (bits, value, words).
OTHER = ((26, 0b110001, 3), (26, 0b110100, 3), (26, 0b111001, 3), (24, 0xCD, 2), (26, 0b111110, 2))


@cache
def operands(fmt: str) -> dict[int, dict[str, tuple[str, int, str]]]:
    """Opcode number → field → (number format, bits, kind), of one format; fields as in `decode`."""
    try:
        from tinygrad.runtime.autogen.amd.rdna4 import operands as tables
    except ImportError as e:
        raise SimError(f"the operand tables are missing ({e}): pip install 'ie[sim]'") from e
    found: dict[int, dict[str, tuple[str, int, str]]] = {}
    for op, fields in tables.OPERANDS.items():
        if type(op).__name__ == ENUMS[fmt]:
            found[op.value] = {
                re.sub("^[sv](?=src[xy]?[0-9])", "", name): (
                    number.name.removeprefix("FMT_").removeprefix("NUM_"), bits, kind.name.removeprefix("OPR_"),
                )
                for name, (number, bits, kind) in fields.items()
            }  # fmt: skip
    return found


def registers(letter: str, first: int, bits: int) -> str:
    count = max(1, bits + 31 >> 5)
    return f"{letter}{first}" if count == 1 else f"{letter}[{first}:{first + count - 1}]"


def scalar(n: int, bits: int = 32) -> str:
    """A scalar register or special register by its operand number. Raises Unsupported."""
    aligned = n & ~1 if bits > 32 else n
    if bits > 64:
        aligned = n & ~3
    if n < 106:
        return registers("s", aligned, bits)
    if 108 <= n < 124:
        return registers("ttmp", aligned - 108, bits)
    if bits > 32 and n in WIDE:
        return WIDE[n]
    if n in NAMED and (bits <= 32 or n >= 235):
        return NAMED[n]
    raise Unsupported(f"operand {n} of {bits} bits")


def literal_text(value: int, number: str, bits: int) -> str:
    """A 32-bit literal as LLVM writes it for an operand of this format: by value where it equals an inline constant."""
    if bits == 64:
        return str(value) if value <= 64 and number != "F64" else f"{value:#x}"
    if number in ("F16", "BF16", "PK2_F16", "PK2_BF16"):
        low = value if bits == 32 else value & 0xFFFF
        signed = (low ^ 1 << bits - 1) - (1 << bits - 1)
        known = AS_FLOAT[16].get(low) if number.endswith("_F16") or number == "F16" else AS_FLOAT[32].get(low << 16)
        return str(signed) if -16 <= signed <= 64 else known or f"{low if number == 'F16' else value:#x}"
    signed = (value ^ 1 << 31) - (1 << 31)
    if -16 <= signed <= 64:
        return str(signed)
    return AS_FLOAT[32].get(value) or f"{value & (0xFFFF if bits == 16 else 0xFFFFFFFF):#x}"


def source(n: int, number: str, bits: int, literal: int | None) -> str:
    """A source operand by its 9-bit number. Raises Unsupported for a number that stands for nothing."""
    if n >= 256:
        return registers("v", n - 256, bits)
    if n == 255:
        if literal is None:
            raise Unsupported("a literal where none may stand")
        return literal_text(literal, number, bits)
    if 128 <= n <= 192:
        return str(n - 128)
    if 193 <= n <= 208:
        return str(192 - n)
    if 240 <= n <= 248 and bits == 16 and number not in ("F16", "BF16"):
        return f"{list(AS_FLOAT[16])[n - 240]:#x}"
    if 240 <= n <= 247:
        return FLOATS[n - 240]
    if n == 248:
        return INVERSE_2PI.get(bits, INVERSE_2PI[32])
    return scalar(n, bits)


class Text:
    """Assembles the operands of one instruction."""

    def __init__(self, inst: Inst) -> None:
        self.inst, self.f, self.name = inst, inst.f, inst.name
        self.table = operands(inst.fmt).get(inst.f["op"], {})
        self.row = dict(self.table)
        self.adjust()
        self.suffix = ""
        self.tail = ""

    def adjust(self) -> None:
        """Where LLVM sees other operands than AMD's tables: their number, or how a constant in them is written."""
        row, fmt, name = self.row, self.inst.fmt, self.name
        if name in BARRIERS:
            row["src0"] = ("B32", 32, "SSRC")
            if name == "s_get_barrier_state":
                row["sdst"] = ("B32", 32, "SDST")
        for field, (number, bits, kind) in row.items():
            if "src" not in field:
                continue
            if bits < 32 and (fmt == "SOP1" or "pack" in name and fmt == "SOP2"):
                row[field] = ("B32", 32, kind)
            elif bits < 32 and number.startswith("PK"):
                row[field] = ("B32", 32, kind)
            elif name.startswith("v_align") or "_class_" in name and field == "src1":
                row[field] = ("B32", 32, kind)
            elif fmt == "SOPC" and bits == 16:
                row[field] = ("B16", 16, kind)
            elif name.startswith("v_fma_mix"):
                row[field] = ("F16", 16, kind)

    def has(self, field: str) -> bool:
        return field in self.row

    def bits(self, field: str) -> int:
        number, bits, _ = self.row[field]
        return 32 if number == "M64" else bits  # lane masks: 32 lanes a wave

    def source(self, field: str) -> str:
        n = self.f[field]
        if n >= 256 and self.name in HALF_REGISTERS and self.inst.fmt == "VOP1":
            return f"v{n & 127}.{'lh'[n >> 7 & 1]}"
        return source(n, self.row[field][0], self.bits(field), self.inst.literal)

    def vgpr(self, field: str) -> str:
        n = self.f[field]
        if self.name in HALF_REGISTERS and self.inst.fmt == "VOP1":
            return f"v{n & 127}.{'lh'[n >> 7]}"
        return registers("v", n, self.bits(field))

    def sgpr(self, field: str) -> str:
        return scalar(self.f[field], self.bits(field))

    def build(self) -> str:
        method = {"SOP1": self.sop, "SOP2": self.sop, "SOPC": self.sop, "SOPK": self.sopk, "SOPP": self.sopp,
                  "SMEM": self.smem, "VOP1": self.vop, "VOP2": self.vop, "VOPC": self.vop, "VOP3": self.vop3,
                  "VOP3SD": self.vop3, "VOP3P": self.vop3p, "VOPD": self.vopd, "DS": self.ds}  # fmt: skip
        parts = method.get(self.inst.fmt, self.flat)()
        text = self.name + self.suffix
        if parts:
            text += " " + ", ".join(parts)
        return text + self.tail

    # Scalar.

    def sop(self) -> list[str]:
        parts = [self.sgpr("sdst")] if self.has("sdst") else []
        for field in ("src0", "src1"):
            if not self.has(field):
                continue
            if self.row[field][2] == "SENDMSG_RTN":
                parts.append(immediates.message(self.f[field]))
            else:
                parts.append(self.source(field))
        return self.with_constant(parts)

    def with_constant(self, parts: list[str]) -> list[str]:
        """The constant of fmaak (last) and fmamk (before the addend)."""
        if "fmaak" in self.name or "fmamk" in self.name:
            parts.insert(len(parts) if "fmaak" in self.name else 2, f"{self.inst.literal or 0:#x}")
        return parts

    def sopk(self) -> list[str]:
        value = self.f["simm16"]
        if "getreg" in self.name or "setreg" in self.name:
            first = immediates.hwreg(value)
            if "imm32" in self.name:
                return [first, literal_text(self.inst.literal or 0, "B32", 32)]
            return [self.sgpr("sdst"), first] if "getreg" in self.name else [first, self.sgpr("sdst")]
        if self.name == "s_call_b64":
            return [self.sgpr("sdst"), str(value)]
        text = f"{value:#x}"
        return [self.sgpr("sdst"), text] if self.has("sdst") else [text]

    def sopp(self) -> list[str]:
        value = self.f["simm16"]
        words = {"DELAY": immediates.delay, "WAIT_ALU": immediates.wait_alu, "SENDMSG": immediates.message}
        if self.name == "s_waitcnt":
            return [immediates.waitcnt(value)]
        if not self.has("simm16"):
            return [str(value)] if value and self.name == "s_endpgm" else []
        kind = self.row["simm16"][2]
        if kind in words:
            return [words[kind](value)]
        if kind == "LABEL" or self.name == "s_endpgm":
            return [str(value)]
        hexadecimal = self.name in HEXADECIMAL or self.name.startswith("s_wait") or value > 64
        return [f"{value:#x}" if hexadecimal else str(value)]

    def smem(self) -> list[str]:
        if not self.row:
            return []
        offset = self.f["ioffset"]
        shown = f"{offset:#x}" if offset >= 0 else f"-{-offset:#x}"
        prefetch = "prefetch" in self.name
        parts = [] if prefetch else [str(self.f["sdata"])] if "probe" in self.name else [self.sgpr("sdata")]
        if self.has("sbase"):
            parts.append(scalar(2 * self.f["sbase"], self.bits("sbase")))
        if prefetch:
            return [*parts, shown, scalar(self.f["soffset"]), str(self.f["sdata"] & 31)]
        if self.f["soffset"] == 124:
            parts.append(shown)
        else:
            parts.append(scalar(self.f["soffset"]) + f" offset:{shown}")
        if "probe" not in self.name:
            self.tail = immediates.cache_policy("load", self.f["th"], self.f["scope"])
        return parts

    # Vector.

    def dpp(self) -> str:
        """The modifiers of a third word; empty without one."""
        if self.inst.dpp is None:
            return ""
        word = struct.unpack("<I", self.inst.raw[-4:])[0]
        first = self.inst.raw[4 if self.inst.size == 12 else 0]
        if first == 250:
            return " " + immediates.dpp16(word)
        return " " + immediates.dpp8(word, first == 234)

    def modified(self, index: int, text: str, magnitude: str = "abs") -> str:
        """Source operand with its sign and magnitude bits, which mean something for floating-point operands."""
        number = self.table[f"src{index}"][0]
        if not re.match("F|BF|PK._F|PK._BF", number) and not self.name.startswith(("v_cndmask", "v_fma_mix")):
            return f"sext({text})" if self.f.get("neg", 0) >> index & 1 and self.name in SIGN_EXTENDED else text
        if self.f.get(magnitude, 0) >> index & 1:
            text = f"|{text}|"
        if self.f.get("neg", 0) >> index & 1:
            plain = text[0].isdigit() or text[0] == "-"
            text = f"neg({text})" if plain else f"-{text}"
        return text

    def vop(self) -> list[str]:
        """VOP1, VOP2, VOPC in 32 bits, with DPP perhaps."""
        name, fmt = self.name, self.inst.fmt
        if self.inst.dpp:
            self.suffix = "" if fmt == "VOPC" else "_dpp"
        elif name not in ONE_ENCODING and (name in opcodes_by_name("VOP3") or name in opcodes_by_name("VOP3SD")):
            self.suffix = "_e32"
        parts = []
        if fmt == "VOPC":
            parts += [] if name.startswith("v_cmpx") else ["vcc_lo"]
        elif self.has("vdst"):
            scalar_result = self.row["vdst"][2] == "SREG"
            parts.append(scalar(self.f["vdst"]) if scalar_result else self.vgpr("vdst"))
        carries = "_co_" in name
        parts += ["vcc_lo"] if carries else []
        if self.has("src0"):
            parts.append(self.modified(0, self.source("src0")))
        if self.has("src1"):
            parts.append(self.modified(1, self.vgpr("src1")))
        if carries or name == "v_cndmask_b32":
            parts.append("vcc_lo")
        self.tail = self.dpp()
        return self.with_constant(parts)

    def vop3(self) -> list[str]:
        name, fmt = self.name, self.inst.fmt
        short = any(name in opcodes_by_name(f) for f in ("VOP1", "VOP2", "VOPC"))
        self.suffix = ("_e64" if short or self.inst.dpp else "") + ("_dpp" if self.inst.dpp else "")
        parts = []
        if self.has("vdst") and self.row["vdst"][2] != "EXEC":
            lane_mask = self.row["vdst"][2] == "SREG"
            parts.append(scalar(self.f["vdst"], self.bits("vdst")) if lane_mask else self.vgpr("vdst"))
        if fmt == "VOP3SD":
            parts.append(self.sgpr("sdst"))
        count = 0
        for i, field in enumerate(("src0", "src1", "src2")):
            if self.has(field):
                parts.append(self.modified(i, self.source(field)))
                count += 1
        self.tail = self.op_sel(count) + (" clamp" if self.f["clamp"] else "")
        self.tail += ("", " mul:2", " mul:4", " div:2")[self.f["omod"]] + self.dpp()
        return parts

    def op_sel(self, count: int) -> str:
        """Which half of 16-bit operands is meant: of the sources, then of the result."""
        bits = self.f.get("opsel", 0)
        if self.name in BYTE_SELECT:
            byte = bits >> 1 & 1 | bits << 1 & 2 if self.name.startswith("v_cvt_f32") else bits >> 2
            return f" byte_sel:{byte}" if byte else ""
        halves = any(width <= 16 for _, width, _ in self.table.values())
        if self.name.startswith("v_dot2"):
            bits &= 12
        if not bits or not halves and "permlane" not in self.name:
            return ""
        if "permlane" in self.name:
            return f" op_sel:[{bits & 1},{bits >> 1 & 1}]"
        shown = [str(bits >> i & 1) for i in (*range(count), 3)]
        return f" op_sel:[{','.join(shown)}]"

    def vop3p(self) -> list[str]:
        f, mix = self.f, "fma_mix" in self.name
        self.suffix = "_e64_dpp" if self.inst.dpp else ""
        fields = [field for field in ("src0", "src1", "src2") if self.has(field)]
        parts = [self.vgpr("vdst")]
        matrix = "wmma" in self.name or "swmmac" in self.name
        high = f["opsel_hi"] | f["opsel_hi2"] << 2
        for i, field in enumerate(fields):
            text = self.source(field)
            parts.append(self.modified(i, text, "neg_hi") if mix else text)

        def bits(value: int) -> str:
            return f"[{','.join(str(value >> i & 1) for i in range(len(fields)))}]"

        full = (1 << len(fields)) - 1
        if "swmmac" in self.name:
            self.tail += f" index_key:{f['opsel']}" if f["opsel"] else ""
        elif not matrix and "dot4_f32" not in self.name:
            self.tail += f" op_sel:{bits(f['opsel'])}" if f["opsel"] & full else ""
            self.tail += f" op_sel_hi:{bits(high)}" if high & full != (0 if mix else full) else ""
        if not mix:
            self.tail += f" neg_lo:{bits(f['neg'])}" if f["neg"] & full else ""
            self.tail += f" neg_hi:{bits(f['neg_hi'])}" if f["neg_hi"] & full else ""
        self.tail += (" clamp" if f["clamp"] else "") + self.dpp()
        return parts

    def vopd(self) -> list[str]:
        f = self.f
        rows = operands("VOPD")
        halves = []
        for name, row, result, first, second in (
            (self.name, rows[f["op"]], f["vdst"], f["src0"], f["src1"]),
            (self.inst.opy_name, rows[f["opy"]], f["vdsty"], f["srcy0"], f["srcy1"]),
        ):
            number = row["srcy0"][0]
            parts = [f"v{result}", source(first, number, 32, self.inst.literal)]
            if "srcy1" in row:
                parts.append(f"v{second}")
            if "fmaak" in name or "fmamk" in name:
                parts.insert(3 if "fmaak" in name else 2, f"{self.inst.literal or 0:#x}")
            halves.append(f"{name} {', '.join(parts)}")
        self.name, self.tail = " :: ".join(halves), ""
        return []

    # Memory.

    def ds(self) -> list[str]:
        f = self.f
        offset = f["offset0"] | f["offset1"] << 8
        parts = [self.vgpr("vdst")] if self.has("vdst") else []
        parts += [self.vgpr(field) for field in ("addr", "data0", "data1") if self.has(field)]
        if self.name == "ds_swizzle_b32":
            self.tail = immediates.swizzle(offset)
        elif "2addr" in self.name:
            self.tail = "".join(f" {field}:{f[field]}" for field in ("offset0", "offset1") if f[field])
        else:
            self.tail = f" offset:{offset}" if offset else ""
        return parts

    def flat(self) -> list[str]:
        f, fmt, name = self.f, self.inst.fmt, self.name
        kind = next((k for k in ("atomic", "load", "store") if k in name), "load")
        parts = []
        if self.has("vdst") and (kind != "atomic" or f["th"] & 1):
            parts.append(self.vgpr("vdst"))
        base = f["saddr"]
        if self.has("vaddr"):
            if fmt == "SCRATCH":
                parts.append(self.vgpr("vaddr") if f["sve"] else "off")
            else:
                parts.append(registers("v", f["vaddr"], 32 if fmt == "GLOBAL" and base != 124 else 64))
        if self.has("vsrc"):
            parts.append(self.vgpr("vsrc"))
        if self.has("saddr"):
            parts.append("off" if base == 124 else scalar(base, self.bits("saddr")))
        self.tail = f" offset:{f['ioffset']}" if f["ioffset"] and parts else ""
        self.tail += immediates.cache_policy(kind, f["th"], f["scope"])
        return parts


@cache
def opcodes_by_name(fmt: str) -> frozenset[str]:
    return frozenset(opcodes(fmt).values())


def scan(code: bytes, address: int) -> Iterator[tuple[int, Inst | None, int]]:
    """(offset, instruction or None, bytes) of a function's bytes, in order; what is no instruction has 4 bytes."""
    at = 0
    while at + 4 <= len(code):
        word = struct.unpack_from("<I", code, at)[0]
        known = next((words for bits, value, words in OTHER if word >> bits == value), 0)
        if known:
            for _ in range(min(known, len(code) - at >> 2)):
                yield at, None, 4
                at += 4
            continue
        try:
            inst = decode(code, at, address + at)
        except Unsupported:
            yield at, None, 4
            at += 4
            continue
        yield at, inst, inst.size
        at += inst.size


def text_of(inst: Inst) -> str:
    """One instruction. Raises Unsupported for an operand that stands for nothing."""
    return Text(inst).build()


def functions(code: CodeObject) -> list[Symbol]:
    """The functions of a file by address, without doubles. One without a size reaches to the next, or to the end."""
    found: dict[int, Symbol] = {}
    for symbol in code.symbols:
        if symbol.kind == STT_FUNC and symbol.section:
            # An empty function stands where the next one does: that one is meant.
            if symbol.address not in found or (symbol.size and not found[symbol.address].size):
                found[symbol.address] = symbol
    ordered = [found[address] for address in sorted(found)]
    for i, symbol in enumerate(ordered):
        if not symbol.size:
            end = ordered[i + 1].address if i + 1 < len(ordered) else code.end_of_segment(symbol.address)
            ordered[i] = replace(symbol, size=end - symbol.address)
    return ordered


def listing(code: CodeObject, chosen: Symbol, known: list[Symbol]) -> Iterator[str]:
    """The lines of one function, heading first, as llvm-objdump prints them. known: what branches may lead to."""
    data = code.code(chosen.address, chosen.size)
    yield f"{chosen.address:016x} <{printable(chosen.name)}>:"
    for at, inst, size in scan(data, chosen.address):
        words = struct.unpack_from(f"<{size // 4}I", data, at)
        text, target = f".long {words[0]:#x}", ""
        if inst is not None:
            try:
                text = text_of(inst)
            except Unsupported:
                text = f".long {', '.join(f'{word:#x}' for word in words)}"
            else:
                target = branch_target(inst, known)
        yield f"\t{text:<59}// {chosen.address + at:012X}: {' '.join(f'{word:08X}' for word in words)}{target}"


def branch_target(inst: Inst, known: list[Symbol]) -> str:
    """` <name+0x10>` for a branch; empty for anything else."""
    if inst.fmt != "SOPP" or not inst.name.startswith(("s_branch", "s_cbranch")):
        return ""
    count = bisect_right(known, inst.target, key=lambda symbol: symbol.address)
    if not count:
        return ""
    offset = inst.target - known[count - 1].address
    return f" <{printable(known[count - 1].name)}{f'+{offset:#x}' if offset else ''}>"


def printable(text: str) -> str:
    """Text from outside, on one line: what a terminal would obey, or what is no UTF-8, is written as \\x1b or \\u202e.

    Everything that a command prints of a file goes through here; hip/report.c is the same for the stand-in.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escaped(c) for c in text)


def escaped(c: str) -> str:
    """One character as an escape; a byte that was no UTF-8 (`elf.decoded`) as that byte."""
    if 0xDC80 <= ord(c) <= 0xDCFF:
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape", "backslashreplace").decode()
