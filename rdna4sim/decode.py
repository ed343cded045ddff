"""Machine code to instructions: formats, fields, literals, DPP.

Owns: the bit layout of the RDNA4 encodings. Opcode numbers and names come from AMD's machine-readable tables, which the
`tinygrad` wheel carries (Opcodes). A word that is no known instruction raises Unsupported with its address.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .errors import SimError, Unsupported

LITERAL, DPP8, DPP8_FI, DPP16 = 255, 233, 234, 250
NULL, M0, EXEC, VCC, SCC = 124, 125, 126, 106, 253

# Fields as name: (lowest bit, width), counted over the whole instruction.
LAYOUTS: dict[str, dict[str, tuple[int, int]]] = {
    "SOP1": {"op": (8, 8), "sdst": (16, 7), "src0": (0, 8)},
    "SOP2": {"op": (23, 7), "sdst": (16, 7), "src0": (0, 8), "src1": (8, 8)},
    "SOPC": {"op": (16, 7), "src0": (0, 8), "src1": (8, 8)},
    "SOPK": {"op": (23, 5), "sdst": (16, 7), "simm16": (0, 16)},
    "SOPP": {"op": (16, 7), "simm16": (0, 16)},
    "SMEM": {
        "op": (13, 6),
        "sdata": (6, 7),
        "sbase": (0, 6),
        "soffset": (57, 7),
        "scope": (21, 2),
        "th": (23, 2),
        "ioffset": (32, 24),
    },
    "VOP1": {"op": (9, 7), "vdst": (17, 8), "src0": (0, 9)},
    "VOP2": {"op": (25, 6), "vdst": (17, 8), "src0": (0, 9), "src1": (9, 8)},
    "VOPC": {"op": (17, 8), "src0": (0, 9), "src1": (9, 8)},
    "VOP3": {
        "op": (16, 10),
        "vdst": (0, 8),
        "abs": (8, 3),
        "opsel": (11, 4),
        "clamp": (15, 1),
        "src0": (32, 9),
        "src1": (41, 9),
        "src2": (50, 9),
        "omod": (59, 2),
        "neg": (61, 3),
    },
    "VOP3P": {
        "op": (16, 7),
        "vdst": (0, 8),
        "neg_hi": (8, 3),
        "opsel": (11, 3),
        "opsel_hi2": (14, 1),
        "clamp": (15, 1),
        "src0": (32, 9),
        "src1": (41, 9),
        "src2": (50, 9),
        "opsel_hi": (59, 2),
        "neg": (61, 3),
    },
    "VOPD": {
        "op": (22, 4),
        "opy": (17, 5),
        "vdst": (56, 8),
        "vdsty": (49, 7),
        "src0": (0, 9),
        "srcy0": (32, 9),
        "src1": (9, 8),
        "srcy1": (41, 8),
    },
    "DS": {
        "op": (18, 8),
        "vdst": (56, 8),
        "addr": (32, 8),
        "data0": (40, 8),
        "data1": (48, 8),
        "offset0": (0, 8),
        "offset1": (8, 8),
    },
    "FLAT": {
        "op": (14, 8),
        "vdst": (32, 8),
        "vaddr": (64, 8),
        "saddr": (0, 7),
        "sve": (49, 1),
        "scope": (50, 2),
        "th": (52, 3),
        "vsrc": (55, 8),
        "ioffset": (72, 24),
    },
}
# A scalar destination where VOP3 has abs and opsel.
LAYOUTS["VOP3SD"] = {k: v for k, v in LAYOUTS["VOP3"].items() if k not in ("abs", "opsel")} | {"sdst": (8, 7)}
LAYOUTS["GLOBAL"] = LAYOUTS["SCRATCH"] = LAYOUTS["FLAT"]
# Literals that are always there.
ALWAYS_LITERAL = ("fmaak", "fmamk")
# Their source field is no operand, so 255 in it is no literal.
NO_SOURCE = ("s_getpc_b64", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64", "v_nop", "v_pipeflush")
ENUMS = {
    "SOP1": "SOP1Op", "SOP2": "SOP2Op", "SOPC": "SOPCOp", "SOPK": "SOPKOp", "SOPP": "SOPPOp", "SMEM": "SMEMOp",
    "VOP1": "VOP1Op", "VOP2": "VOP2Op", "VOPC": "VOPCOp", "VOP3": "VOP3Op", "VOP3SD": "VOP3SDOp", "VOP3P": "VOP3POp",
    "VOPD": "VOPDOp", "DS": "DSOp", "FLAT": "VFLATOp", "GLOBAL": "VGLOBALOp", "SCRATCH": "VSCRATCHOp",
}  # fmt: skip
SIGNED24 = 1 << 23


@dataclass(frozen=True)
class Dpp:
    """Where each lane of source 0 comes from (-1: nowhere), and which lanes are written."""

    lanes: tuple[int, ...]
    fetch_inactive: bool
    bound_ctrl: bool
    write: int


@dataclass(frozen=True)
class Inst:
    """One instruction. `f` holds the raw fields; `opy_name` is the second half of a VOPD."""

    address: int
    size: int
    fmt: str
    name: str
    f: dict[str, int]
    literal: int | None = None
    dpp: Dpp | None = None
    opy_name: str = ""
    raw: bytes = field(default=b"", repr=False)

    @property
    def target(self) -> int:
        """Where a branch goes."""
        return self.address + 4 + 4 * ((self.f["simm16"] ^ 0x8000) - 0x8000)


@cache
def opcodes(fmt: str) -> dict[int, str]:
    """Opcode number → mnemonic in lower case, of one format."""
    try:
        from tinygrad.runtime.autogen.amd.rdna4 import enum as tables
    except ImportError as e:
        raise SimError(f"the opcode tables are missing ({e}): pip install 'ie[sim]'") from e
    names: dict[int, str] = {}
    members: Any = getattr(tables, ENUMS[fmt])
    for member in members:
        name = member.name.lower()
        names[member.value] = name.removesuffix("_e32").removesuffix("_e64")
    return names


def format_of(word: int) -> str:
    """The encoding that a first word belongs to; empty if none."""
    if not word >> 31:
        return {0b0111111: "VOP1", 0b0111110: "VOPC"}.get(word >> 25, "VOP2")
    if word >> 30 == 0b10:
        special = {0b101111101: "SOP1", 0b101111110: "SOPC", 0b101111111: "SOPP"}.get(word >> 23)
        return special or ("SOPK" if word >> 28 == 0b1011 else "SOP2")
    if word >> 26 == 0b110101:
        return "VOP3SD" if word >> 16 & 0x3FF in opcodes("VOP3SD") else "VOP3"
    wide = {0b110010: "VOPD", 0b110110: "DS", 0b111101: "SMEM"}.get(word >> 26)
    return wide or {0xCC: "VOP3P", 0xEC: "FLAT", 0xED: "SCRATCH", 0xEE: "GLOBAL"}.get(word >> 24, "")


def dpp16(word: int) -> tuple[Dpp, int, int]:
    """(Dpp, number of the source VGPR, modifier bits neg0 abs0 neg1 abs1) of a DPP16 word."""
    control = word >> 8 & 0x1FF
    lanes = []
    for lane in range(32):
        row, at = lane & ~15, lane & 15
        if control < 0x100:
            source = lane & ~3 | control >> 2 * (lane & 3) & 3
        elif 0x101 <= control <= 0x10F:
            source = row + at + (control & 15) if at + (control & 15) < 16 else -1
        elif 0x111 <= control <= 0x11F:
            source = row + at - (control & 15) if at >= control & 15 else -1
        elif 0x121 <= control <= 0x12F:
            source = row + ((at - (control & 15)) & 15)
        elif control == 0x140:
            source = row + 15 - at
        elif control == 0x141:
            source = lane ^ 7
        elif 0x150 <= control <= 0x15F:
            source = row + (control & 15)
        elif 0x160 <= control <= 0x16F:
            source = row + (at ^ (control & 15))
        else:
            raise Unsupported(f"DPP control {control:#x}")
        lanes.append(source)
    rows, banks = word >> 28, word >> 24 & 15
    write = sum(1 << lane for lane in range(32) if rows >> (lane >> 4) & 1 and banks >> (lane >> 2 & 3) & 1)
    return Dpp(tuple(lanes), bool(word >> 18 & 1), bool(word >> 19 & 1), write), word & 255, word >> 20 & 15


def dpp8(word: int, fetch_inactive: bool) -> tuple[Dpp, int, int]:
    lanes = tuple(lane & ~7 | word >> (8 + 3 * (lane & 7)) & 7 for lane in range(32))
    return Dpp(lanes, fetch_inactive, True, 0xFFFFFFFF), word & 255, 0


def _extend(fmt: str, name: str, f: dict[str, int]) -> str:
    """Which third word follows: "literal", "dpp16", "dpp8", "dpp8fi" or nothing."""
    sources = [f[k] for k in ("src0", "src1", "src2", "srcy0") if k in f]
    if fmt in ("VOP2", "VOPC", "VOPD"):
        sources = [f[k] for k in ("src0", "srcy0") if k in f]
    if name in NO_SOURCE:
        return ""
    first = f.get("src0")
    if fmt.startswith("VOP") and fmt != "VOPD" and first in (DPP8, DPP8_FI, DPP16):
        return {DPP8: "dpp8", DPP8_FI: "dpp8fi", DPP16: "dpp16"}[first]
    always = any(word in name for word in ALWAYS_LITERAL) or name == "s_setreg_imm32_b32"
    return "literal" if always or LITERAL in sources else ""


def decode(code: bytes, offset: int, address: int) -> Inst:
    """The instruction at `offset` of `code`, which stands at `address`. Raises Unsupported for what is none."""
    if offset + 4 > len(code):
        raise Unsupported(f"code ends inside an instruction at {address:#x}")
    word = struct.unpack_from("<I", code, offset)[0]
    fmt = format_of(word)
    if not fmt:
        raise Unsupported(f"unknown instruction word {word:#010x} at {address:#x}")
    layout = LAYOUTS[fmt]
    size = 4 * (max(low + width for low, width in layout.values()) + 31 >> 5)
    bits = int.from_bytes(code[offset : offset + size], "little")
    f = {key: bits >> low & (1 << width) - 1 for key, (low, width) in layout.items()}
    name = opcodes(fmt).get(f["op"])
    if name is None:
        raise Unsupported(f"unknown {fmt} opcode {f['op']} (word {word:#010x}) at {address:#x}")
    opy = ""
    if fmt == "VOPD":
        opy = opcodes("VOPD").get(f["opy"], "")
        f["vdsty"] = f["vdsty"] << 1 | (f["vdst"] & 1 ^ 1)
        if not opy:
            raise Unsupported(f"unknown VOPD opcode {f['opy']} at {address:#x}")
    if "ioffset" in f:
        f["ioffset"] = (f["ioffset"] ^ SIGNED24) - SIGNED24
    extension = _extend(fmt, name + opy, f)
    literal, dpp = None, None
    if extension:
        if offset + size + 4 > len(code):
            raise Unsupported(f"code ends inside {name} at {address:#x}")
        extra = struct.unpack_from("<I", code, offset + size)[0]
        size += 4
        if extension == "literal":
            literal = extra
        else:
            try:
                dpp, f["src0"], modifiers = dpp16(extra) if extension == "dpp16" else dpp8(extra, extension == "dpp8fi")
            except Unsupported as e:
                raise Unsupported(f"{name} at {address:#x}: {e}") from None
            f["src0"] += 256
            if fmt in ("VOP1", "VOP2", "VOPC"):
                f["neg"] = modifiers & 1 | modifiers >> 1 & 2
                f["abs"] = modifiers >> 1 & 1 | modifiers >> 2 & 2
    if len(code) < offset + size:
        raise Unsupported(f"code ends inside {name} at {address:#x}")
    return Inst(address, size, fmt, name, f, literal, dpp, opy, code[offset : offset + size])


def decode_range(code: bytes, address: int) -> list[Inst]:
    """All instructions of a function's bytes, up to the padding that the assembler puts behind the end."""
    found, at = [], 0
    while at < len(code):
        inst = decode(code, at, address + at)
        if inst.name == "s_code_end":
            break
        found.append(inst)
        at += inst.size
    return found
