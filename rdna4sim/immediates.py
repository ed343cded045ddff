"""Immediate operands that LLVM's assembler writes in words: waits, delays, messages, hardware registers, swizzles, DPP.

Owns: the names of their fields and values. Each function takes the number in the instruction and returns its text.
"""

from __future__ import annotations

DEPENDENCIES = ("NO_DEP", *(f"VALU_DEP_{i}" for i in range(1, 5)), *(f"TRANS32_DEP_{i}" for i in range(1, 4)),
                "FMA_ACCUM_CYCLE_1", *(f"SALU_CYCLE_{i}" for i in range(1, 4)))  # fmt: skip
SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")
# s_wait_alu: name, lowest bit, width; all ones in a field is no wait for it.
COUNTERS = (("hold_cnt", 7, 1), ("sa_sdst", 0, 1), ("va_vdst", 12, 4), ("va_sdst", 9, 3), ("va_ssrc", 8, 1),
            ("va_vcc", 1, 1), ("vm_vsrc", 2, 3))  # fmt: skip
NO_WAIT = 0xFF9F
MESSAGES = {
    1: "INTERRUPT", 2: "HS_TESSFACTOR", 3: "DEALLOC_VGPRS", 9: "GS_ALLOC_REQ", 128: "RTN_GET_DOORBELL",
    129: "RTN_GET_DDID", 130: "RTN_GET_TMA", 131: "RTN_GET_REALTIME", 132: "RTN_SAVE_WAVE", 133: "RTN_GET_TBA",
    134: "RTN_GET_TBA_TO_PC", 135: "RTN_GET_SE_AID_ID",
}  # fmt: skip
REGISTERS = {
    1: "MODE", 2: "STATUS", 4: "STATE_PRIV", 5: "GPR_ALLOC", 6: "LDS_ALLOC", 7: "IB_STS", 10: "PERF_SNAPSHOT_DATA",
    11: "PERF_SNAPSHOT_PC_LO", 12: "PERF_SNAPSHOT_PC_HI", 15: "PERF_SNAPSHOT_DATA1", 16: "PERF_SNAPSHOT_DATA2",
    17: "EXCP_FLAG_PRIV", 18: "EXCP_FLAG_USER", 19: "TRAP_CTRL", 20: "SCRATCH_BASE_LO", 21: "SCRATCH_BASE_HI",
    23: "HW_ID1", 24: "HW_ID2", 29: "SHADER_CYCLES_LO", 30: "SHADER_CYCLES_HI", 31: "DVGPR_ALLOC_LO",
    32: "DVGPR_ALLOC_HI",
}  # fmt: skip
LOAD_HINTS = ("RT", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT")
STORE_HINTS = ("RT", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB")
SCOPES = ("CU", "SE", "DEV", "SYS")


def delay(value: int) -> str:
    """s_delay_alu."""
    parts = []
    fields = (("instid0", 0, 4, DEPENDENCIES), ("instskip", 4, 3, SKIPS), ("instid1", 7, 4, DEPENDENCIES))
    for name, low, width, words in fields:
        n = value >> low & (1 << width) - 1
        word = words[n] if n < len(words) else f"/* invalid {name.rstrip('01')} value */"
        if n:
            parts.append(f"{name}({word})")
    return " | ".join(parts) or "0"


def wait_alu(value: int) -> str:
    """s_wait_alu: the counters that are waited for."""
    if value & ~NO_WAIT & 0xFFFF:
        return f"{value:#x}"
    fields = [(name, value >> low & (1 << width) - 1, (1 << width) - 1) for name, low, width in COUNTERS]
    shown = [f"depctr_{name}({n})" for name, n, most in fields if n != most or value == NO_WAIT]
    return " ".join(shown)


def waitcnt(value: int) -> str:
    """The older s_waitcnt: counters below their highest value; all of them if none is."""
    fields = (("vmcnt", value >> 10 & 63, 63), ("expcnt", value & 7, 7), ("lgkmcnt", value >> 4 & 63, 63))
    idle = all(n == most for _, n, most in fields)
    return " ".join(f"{name}({n})" for name, n, most in fields if n != most or idle)


def message(value: int) -> str:
    """s_sendmsg and s_sendmsg_rtn."""
    number = value & 0xFF
    if number in MESSAGES:
        return f"sendmsg(MSG_{MESSAGES[number]})"
    return f"sendmsg({number}, 0, 0)" if number == value else str(value)


def hwreg(value: int) -> str:
    """s_getreg and s_setreg: register, and first bit and width unless all 32 bits are meant."""
    number, low, width = value & 63, value >> 6 & 31, (value >> 11) + 1
    name = f"HW_REG_{REGISTERS[number]}" if number in REGISTERS else str(number)
    return f"hwreg({name})" if (low, width) == (0, 32) else f"hwreg({name}, {low}, {width})"


def swizzle(value: int) -> str:
    """The offset of ds_swizzle_b32, with its blank; empty for 0."""
    if not value:
        return ""
    if value & 0xFF00 == 0x8000:
        return f" offset:swizzle(QUAD_PERM,{','.join(str(value >> 2 * i & 3) for i in range(4))})"
    if value & 0x8000:
        return f" offset:{value}"
    keep, put, flip = value & 31, value >> 5 & 31, value >> 10 & 31
    if keep == 31 and not put and flip and not flip & (flip - 1):
        return f" offset:swizzle(SWAP,{flip})"
    if keep == 31 and not put and flip and not flip & (flip + 1):
        return f" offset:swizzle(REVERSE,{flip + 1})"
    group = 32 - keep
    if not flip and group > 1 and not group & (group - 1) and put < group:
        return f" offset:swizzle(BROADCAST,{group},{put})"
    bits = "".join(
        ("i" if f else "p") if k and not p else ("1" if p != f else "0") if not k else ("0" if f else "1")
        for k, p, f in ((keep >> i & 1, put >> i & 1, flip >> i & 1) for i in range(4, -1, -1))
    )
    return f' offset:swizzle(BITMASK_PERM,"{bits}")'


def dpp16(word: int) -> str:
    """The modifiers of a DPP16 word."""
    control = word >> 8 & 0x1FF
    n = control & 15
    if control < 0x100:
        text = f"quad_perm:[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"
    else:
        kinds = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_share", 0x160: "row_xmask"}
        single = {0x140: "row_mirror", 0x141: "row_half_mirror"}
        text = single.get(control) or f"{kinds[control & 0x1F0]}:{n}"
    text += f" row_mask:{word >> 28:#x} bank_mask:{word >> 24 & 15:#x}"
    return text + (" bound_ctrl:1" if word >> 19 & 1 else "") + (" fi:1" if word >> 18 & 1 else "")


def dpp8(word: int, fetch_inactive: bool) -> str:
    """The modifiers of a DPP8 word."""
    lanes = ",".join(str(word >> (8 + 3 * i) & 7) for i in range(8))
    return f"dpp8:[{lanes}]" + (" fi:1" if fetch_inactive else "")


def cache_policy(kind: str, hint: int, scope: int) -> str:
    """Temporal hint and scope of a memory access, each with its blank. kind: load, store, atomic or nothing."""
    text = ""
    if kind == "atomic" and hint > 3:
        cascade = f"CASCADE_{'NT' if hint & 2 else 'RT'}" if scope > 1 else f"{hint:#x}"
        text = f" th:TH_ATOMIC_{cascade}"
    elif kind == "atomic" and hint:
        text = f" th:TH_ATOMIC_{('', 'RETURN', 'NT', 'NT_RETURN')[hint]}"
    elif hint == 3 and scope == 3:
        text = f" th:TH_{kind.upper()}_BYPASS"
    elif kind == "load" and hint == 7:
        text = " th:0x7"
    elif hint:
        text = f" th:TH_{kind.upper()}_{(LOAD_HINTS if kind == 'load' else STORE_HINTS)[hint]}"
    return text + (f" scope:SCOPE_{SCOPES[scope]}" if scope else "")
