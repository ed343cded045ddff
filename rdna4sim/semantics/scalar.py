"""SOP1, SOP2, SOPC, SOPK and the SOPP instructions that are no branches.

Owns: the tables below. An entry is (result type, source types, C statements); the statements read a, b and old (the
destination before), set d, and set scc where the instruction does.
"""

from __future__ import annotations

from ..decode import Inst
from ..emit import SCALAR, Body

NONZERO = " scc = d != 0;"

SOP2: dict[str, tuple[str, str, str]] = {
    "s_add_co_u32": ("u", "uu", "d = a + b; scc = d < a;"),
    "s_sub_co_u32": ("u", "uu", "d = a - b; scc = a < b;"),
    "s_add_co_i32": ("i", "ii", "scc = __builtin_sadd_overflow(a, b, &d);"),
    "s_sub_co_i32": ("i", "ii", "scc = __builtin_ssub_overflow(a, b, &d);"),
    "s_add_co_ci_u32": ("u", "uu", "u64 t = (u64)a + b + scc; d = (u32)t; scc = (u32)(t >> 32);"),
    "s_sub_co_ci_u32": ("u", "uu", "d = a - b - scc; scc = (u64)b + scc > a;"),
    "s_absdiff_i32": ("u", "ii", "i32 t = (i32)((u32)a - (u32)b); d = t < 0 ? -(u32)t : (u32)t;" + NONZERO),
    "s_lshl_b32": ("u", "uu", "d = a << (b & 31);" + NONZERO),
    "s_lshl_b64": ("q", "qu", "d = a << (b & 63);" + NONZERO),
    "s_lshr_b32": ("u", "uu", "d = a >> (b & 31);" + NONZERO),
    "s_lshr_b64": ("q", "qu", "d = a >> (b & 63);" + NONZERO),
    "s_ashr_i32": ("i", "iu", "d = a >> (b & 31);" + NONZERO),
    "s_ashr_i64": ("l", "lu", "d = a >> (b & 63);" + NONZERO),
    "s_min_i32": ("i", "ii", "scc = a < b; d = scc ? a : b;"),
    "s_min_u32": ("u", "uu", "scc = a < b; d = scc ? a : b;"),
    "s_max_i32": ("i", "ii", "scc = a >= b; d = scc ? a : b;"),
    "s_max_u32": ("u", "uu", "scc = a >= b; d = scc ? a : b;"),
    "s_bfe_u32": ("u", "uu", "u32 n = b >> 16 & 127; d = a >> (b & 31); if (n < 32) d &= (1u << n) - 1;" + NONZERO),
    "s_bfe_i32": (
        "i",
        "iu",
        "u32 n = b >> 16 & 127; i64 t = (i64)(a >> (b & 31)); d = n == 0 ? 0 : n >= 32 ? (i32)t"
        " : (i32)((u32)t << (32 - n)) >> (32 - n);" + NONZERO,
    ),
    "s_bfe_u64": ("q", "qu", "u32 n = b >> 16 & 127; d = a >> (b & 63); if (n < 64) d &= (1ull << n) - 1;" + NONZERO),
    "s_bfe_i64": (
        "l",
        "lu",
        "u32 n = b >> 16 & 127;"
        " d = a >> (b & 63); d = n == 0 ? 0 : n >= 64 ? d : (i64)((u64)d << (64 - n)) >> (64 - n);" + NONZERO,
    ),
    "s_bfm_b32": ("u", "uu", "d = ((1u << (a & 31)) - 1) << (b & 31);"),
    "s_bfm_b64": ("q", "uu", "d = ((1ull << (a & 63)) - 1) << (b & 63);"),
    "s_mul_i32": ("u", "uu", "d = a * b;"),
    "s_mul_hi_u32": ("u", "uu", "d = (u32)((u64)a * b >> 32);"),
    "s_mul_hi_i32": ("u", "ii", "d = (u32)((u64)((i64)a * b) >> 32);"),
    "s_mul_u64": ("q", "qq", "d = a * b;"),
    "s_add_nc_u64": ("q", "qq", "d = a + b;"),
    "s_sub_nc_u64": ("q", "qq", "d = a - b;"),
    "s_cselect_b32": ("u", "uu", "d = scc ? a : b;"),
    "s_cselect_b64": ("q", "qq", "d = scc ? a : b;"),
    "s_pack_ll_b32_b16": ("u", "uu", "d = (a & 0xffff) | b << 16;"),
    "s_pack_lh_b32_b16": ("u", "uu", "d = (a & 0xffff) | (b & 0xffff0000u);"),
    "s_pack_hh_b32_b16": ("u", "uu", "d = a >> 16 | (b & 0xffff0000u);"),
    "s_pack_hl_b32_b16": ("u", "uu", "d = a >> 16 | b << 16;"),
    "s_fmac_f32": ("f", "ff", "d = __builtin_fmaf(a, b, old);"),
    "s_fmaak_f32": ("f", "ff", "d = __builtin_fmaf(a, b, k);"),
    "s_fmamk_f32": ("f", "ff", "d = __builtin_fmaf(a, k, b);"),
    "s_cvt_pk_rtz_f16_f32": ("u", "ff", "d = f16_rtz(of_f(a)) | (u32)f16_rtz(of_f(b)) << 16;"),
    "s_fmac_f16": ("h", "hh", "d = (_Float16)((double)a * (double)b + (double)old);"),
}
for _n in (1, 2, 3, 4):
    SOP2[f"s_lshl{_n}_add_u32"] = ("u", "uu", f"u64 t = ((u64)a << {_n}) + b; d = (u32)t; scc = t >> 32 != 0;")
for _name, _op in {
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "nand": "~(a & b)",
    "nor": "~(a | b)",
    "xnor": "~(a ^ b)",
    "and_not1": "a & ~b",
    "or_not1": "a | ~b",
}.items():
    SOP2[f"s_{_name}_b32"] = ("u", "uu", f"d = {_op};" + NONZERO)
    SOP2[f"s_{_name}_b64"] = ("q", "qq", f"d = {_op};" + NONZERO)
for _t in "fh":
    _w = {"f": "f32", "h": "f16"}[_t]
    for _name, _op in {"add": "a + b", "sub": "a - b", "mul": "a * b"}.items():
        SOP2[f"s_{_name}_{_w}"] = (_t, _t * 2, f"d = {_op};")
    for _name in ("min", "max"):
        SOP2[f"s_{_name}_num_{_w}"] = (_t, _t * 2, f"d = {_name}_{_t}((V{_t.upper()})a, (V{_t.upper()})b)[0];")
        SOP2[f"s_{_name}imum_{_w}"] = (_t, _t * 2, f"d = {_name}imum_{_t}((V{_t.upper()})a, (V{_t.upper()})b)[0];")

SOP1: dict[str, tuple[str, str, str]] = {
    "s_mov_b32": ("u", "u", "d = a;"),
    "s_mov_b64": ("q", "q", "d = a;"),
    "s_cmov_b32": ("u", "u", "d = scc ? a : old;"),
    "s_cmov_b64": ("q", "q", "d = scc ? a : old;"),
    "s_brev_b32": ("u", "u", "d = rev_bits(a);"),
    "s_brev_b64": ("q", "q", "d = __builtin_bitreverse64(a);"),
    "s_ctz_i32_b32": ("u", "u", "d = a ? (u32)__builtin_ctz(a) : ~0u;"),
    "s_ctz_i32_b64": ("u", "q", "d = a ? (u32)__builtin_ctzll(a) : ~0u;"),
    "s_clz_i32_u32": ("u", "u", "d = a ? (u32)__builtin_clz(a) : ~0u;"),
    "s_clz_i32_u64": ("u", "q", "d = a ? (u32)__builtin_clzll(a) : ~0u;"),
    "s_cls_i32": ("u", "i", "u32 t = (u32)(a < 0 ? ~a : a); d = t ? (u32)__builtin_clz(t) : ~0u;"),
    "s_cls_i32_i64": ("u", "l", "u64 t = (u64)(a < 0 ? ~a : a); d = t ? (u32)__builtin_clzll(t) : ~0u;"),
    "s_sext_i32_i8": ("i", "i", "d = (i8)a;"),
    "s_sext_i32_i16": ("i", "i", "d = (i16)a;"),
    "s_bitset0_b32": ("u", "u", "d = old & ~(1u << (a & 31));"),
    "s_bitset1_b32": ("u", "u", "d = old | 1u << (a & 31);"),
    "s_bitset0_b64": ("q", "u", "d = old & ~(1ull << (a & 63));"),
    "s_bitset1_b64": ("q", "u", "d = old | 1ull << (a & 63);"),
    "s_bitreplicate_b64_b32": ("q", "u", "d = 0; for (int i = 0; i < 32; i++) d |= (u64)(a >> i & 1) * 3 << 2 * i;"),
    "s_abs_i32": ("u", "i", "d = a < 0 ? -(u32)a : (u32)a;" + NONZERO),
    "s_bcnt0_i32_b32": ("u", "u", "d = (u32)__builtin_popcount(~a);" + NONZERO),
    "s_bcnt0_i32_b64": ("u", "q", "d = (u32)__builtin_popcountll(~a);" + NONZERO),
    "s_bcnt1_i32_b32": ("u", "u", "d = (u32)__builtin_popcount(a);" + NONZERO),
    "s_bcnt1_i32_b64": ("u", "q", "d = (u32)__builtin_popcountll(a);" + NONZERO),
    "s_not_b32": ("u", "u", "d = ~a;" + NONZERO),
    "s_not_b64": ("q", "q", "d = ~a;" + NONZERO),
    "s_wqm_b32": ("u", "u", "d = 0; for (int i = 0; i < 32; i += 4) if (a >> i & 15) d |= 15u << i;" + NONZERO),
    "s_quadmask_b32": ("u", "u", "d = 0; for (int i = 0; i < 8; i++) if (a >> 4 * i & 15) d |= 1u << i;" + NONZERO),
    "s_wqm_b64": ("q", "q", "d = 0; for (int i = 0; i < 64; i += 4) if (a >> i & 15) d |= 15ull << i;" + NONZERO),
    "s_quadmask_b64": ("q", "q", "d = 0; for (int i = 0; i < 16; i++) if (a >> 4 * i & 15) d |= 1ull << i;" + NONZERO),
    "s_cvt_f32_i32": ("f", "i", "d = (float)a;"),
    "s_cvt_f32_u32": ("f", "u", "d = (float)a;"),
    "s_cvt_i32_f32": ("i", "f", "d = cvt_i_f((VF)a)[0];"),
    "s_cvt_u32_f32": ("u", "f", "d = cvt_u_f((VF)a)[0];"),
    "s_cvt_f16_f32": ("h", "f", "d = (_Float16)a;"),
    "s_cvt_f32_f16": ("f", "h", "d = (float)a;"),
    "s_cvt_hi_f32_f16": ("f", "u", "d = (float)as_h(a >> 16);"),
}
for _name, _op in {"ceil": "ceil", "floor": "floor", "trunc": "trunc", "rndne": "roundeven"}.items():
    SOP1[f"s_{_name}_f32"] = ("f", "f", f"d = __builtin_{_op}f(a);")
    SOP1[f"s_{_name}_f16"] = ("h", "h", f"d = (_Float16)__builtin_{_op}f((float)a);")
# EXEC is replaced, its old value kept.
SAVEEXEC = {
    "and": "a & exec", "or": "a | exec", "xor": "a ^ exec", "nand": "~(a & exec)", "nor": "~(a | exec)",
    "xnor": "~(a ^ exec)",
    "and_not0": "~a & exec", "or_not0": "~a | exec", "and_not1": "a & ~exec", "or_not1": "a | ~exec",
}  # fmt: skip

COMPARE = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
SOPC: dict[str, tuple[str, str]] = {
    "s_bitcmp0_b32": ("uu", "!(a >> (b & 31) & 1)"),
    "s_bitcmp1_b32": ("uu", "a >> (b & 31) & 1"),
    "s_bitcmp0_b64": ("qu", "!(a >> (b & 63) & 1)"),
    "s_bitcmp1_b64": ("qu", "a >> (b & 63) & 1"),
}
for _name, _op in COMPARE.items():
    SOPC[f"s_cmp_{_name}_i32"] = ("ii", f"a {_op} b")
    SOPC[f"s_cmp_{_name}_u32"] = ("uu", f"a {_op} b")
    SOPC[f"s_cmp_{_name}_u64"] = ("qq", f"a {_op} b")
    for _t, _w in (("f", "f32"), ("h", "f16")):
        _test = "a < b || a > b" if _name == "lg" else f"a {_op} b"
        SOPC[f"s_cmp_{_name}_{_w}"] = (_t * 2, _test)
        SOPC[f"s_cmp_n{'eq' if _name == 'eq' else _name}_{_w}"] = (_t * 2, f"!({_test})")
for _t, _w in (("f", "f32"), ("h", "f16")):
    SOPC[f"s_cmp_o_{_w}"] = (_t * 2, "a == a && b == b")
    SOPC[f"s_cmp_u_{_w}"] = (_t * 2, "a != a || b != b")

# Without effect on values: scheduling hints, waits in the immediate memory model, messages to the graphics front end.
NO_EFFECT = {
    "s_nop", "s_clause", "s_delay_alu", "s_wait_alu", "s_wait_event", "s_wait_expcnt",
    "s_wait_samplecnt",
    "s_wait_bvhcnt", "s_setprio", "s_icache_inv", "s_ttracedata", "s_ttracedata_imm", "s_incperflevel",
    "s_decperflevel",
    "s_sethalt", "s_barrier_leave", "s_wakeup", "s_version", "s_prefetch_inst", "s_prefetch_inst_pc_rel",
    "s_prefetch_data",
    "s_prefetch_data_pc_rel",
}  # fmt: skip


# Hardware registers that s_getreg reads. Of STATE_PRIV (4) SCC, bit 9, is modelled; STATUS (2), allocations (5, 6),
# exceptions (17, 18), trap control (19), the scratch base (20, 21) and places on the card (24) are 0. HW_ID1 (23) has
# the wave's number.
HARDWARE = {1: "0xf0u", 2: "0u", 4: "(scc << 9)", 23: "w->id", 29: "(u32)w->rt->clock(w)",
            30: "(u32)(w->rt->clock(w) >> 32)"}  # fmt: skip
HARDWARE |= dict.fromkeys((5, 6, 17, 18, 19, 20, 21, 24), "0u")
CLOCKS = (29, 30)


def table_entry(body: Body, inst: Inst, entry: tuple[str, str, str]) -> None:
    """One instruction of SOP1 or SOP2 from its table entry."""
    result, sources, code = entry
    body.line("{")
    for name, kind, field in zip("ab", sources, ("src0", "src1"), strict=False):
        body.line(f"{SCALAR[kind]} {name} = {body.scalar(inst.f[field], kind)};")
    if "old" in code:
        body.line(f"{SCALAR[result]} old = {body.scalar(inst.f['sdst'], result)};")
    if inst.literal is not None and ("k)" in code or " k," in code):
        body.line(f"float k = as_f({inst.literal:#x}u);")
    body.line(f"{SCALAR[result]} d; {code}")
    body.write_scalar(inst.f["sdst"], result, "d")
    body.line("}")


def special1(body: Body, inst: Inst) -> bool:
    """SOP1 instructions that are more than a function of their source."""
    name, f = inst.name, inst.f
    if name.endswith(("_saveexec_b32", "_wrexec_b32")):
        kind = name.removeprefix("s_").rsplit("_", 2)[0]
        body.line(f"{{ u32 a = {body.scalar(f['src0'])}, old = exec; exec = {SAVEEXEC[kind]}; scc = exec != 0;")
        body.write_scalar(f["sdst"], "u", "old" if "saveexec" in name else "exec")
        body.line("}")
    elif name == "s_getpc_b64":
        body.write_scalar(f["sdst"], "q", f"w->code + {inst.address + inst.size:#x}")
    elif name in ("s_movrels_b32", "s_movreld_b32"):
        raise body.refuse("scalar registers by index are not translated")
    elif name == "s_sendmsg_rtn_b64":
        body.line("w->instructions = ic;")
        body.write_scalar(f["sdst"], "q", "w->rt->clock(w)")
    elif name == "s_sendmsg_rtn_b32":
        body.line("w->instructions = ic;")
        body.write_scalar(f["sdst"], "u", "(u32)w->rt->clock(w)")
    elif name in ("s_barrier_signal", "s_barrier_signal_isfirst"):
        if f["src0"] != 193:
            raise body.refuse("only the workgroup's barrier (-1) is translated")
        body.line(f"w->instructions = ic; w->pc = {inst.address:#x}; w->rt->signal(w);")
        if name.endswith("isfirst"):
            body.line("scc = w->barrier_first;")
    elif name == "s_get_barrier_state":
        if f["src0"] != 193:
            raise body.refuse("only the workgroup's barrier (-1) is translated")
        body.write_scalar(f["sdst"], "u", "w->rt->barrier_state(w)")
    elif name == "s_sleep_var":
        body.line(f"YIELD(YIELD_SLEEP, {inst.address:#x});")
    else:
        return False
    return True


def sopk(body: Body, inst: Inst) -> bool:
    f, name = inst.f, inst.name
    value = (f["simm16"] ^ 0x8000) - 0x8000
    if name == "s_movk_i32":
        body.write_scalar(f["sdst"], "u", f"(u32)({value})")
    elif name == "s_cmovk_i32":
        body.line("if (scc) {")
        body.write_scalar(f["sdst"], "u", f"(u32)({value})")
        body.line("}")
    elif name == "s_addk_co_i32":
        register = body.s(f["sdst"])
        body.line(f"{{ i32 d; scc = __builtin_sadd_overflow((i32){register}, {value}, &d); {register} = (u32)d; }}")
    elif name == "s_mulk_i32":
        body.line(f"{body.s(f['sdst'])} *= (u32)({value});")
    elif name == "s_getreg_b32":
        number, low, width = f["simm16"] & 63, f["simm16"] >> 6 & 31, (f["simm16"] >> 11) + 1
        if number not in HARDWARE:
            raise body.refuse(f"hardware register {number} is not modelled")
        if number in CLOCKS:
            body.line("w->instructions = ic;")
        body.write_scalar(f["sdst"], "u", f"({HARDWARE[number]} >> {low}) & {(1 << width) - 1:#x}u")
    elif name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        if f["simm16"] & 63 != 1 or inst.literal is None or not _keeps_mode(f["simm16"], inst.literal):
            raise body.refuse("the floating-point mode stays: round to nearest even, denormals on")
    else:
        return False
    return True


def _keeps_mode(field: int, value: int) -> bool:
    """Whether setting these bits of MODE leaves rounding and denormals as they are."""
    low, width = field >> 6 & 31, (field >> 11) + 1
    mask = ((1 << width) - 1 << low) & 0xFF
    return value << low & mask == 0xF0 & mask


def sopp(body: Body, inst: Inst) -> bool:
    name, simm = inst.name, inst.f["simm16"]
    if name == "s_sleep":
        body.line(f"YIELD(YIELD_SLEEP, {inst.address:#x});")
    elif name == "s_barrier_wait":
        if simm != 0xFFFF:
            raise body.refuse("only the workgroup's barrier (-1) is translated")
        body.line(f"YIELD(YIELD_BARRIER, {inst.address:#x});")
    elif name in ("s_round_mode", "s_denorm_mode"):
        if simm != (0 if name == "s_round_mode" else 15):
            raise body.refuse("the floating-point mode stays: round to nearest even, denormals on")
    elif name == "s_sendmsg":
        if simm != 3:
            raise body.refuse(f"message {simm} is not modelled")
    elif name == "s_trap":
        body.line(f"w->rt->fault(w, FAULT_TRAP, {inst.address:#x}, 0, {simm}, 0);")
    elif name.startswith("s_wait_"):
        return wait(body, name, simm)
    else:
        return False
    return True


def wait(body: Body, name: str, count: int) -> bool:
    """Waits matter in weak memory mode only."""
    kinds = {
        "loadcnt": ("PENDING_LOAD",),
        "dscnt": ("PENDING_DS",),
        "kmcnt": ("PENDING_SCALAR",),
        "storecnt": ("PENDING_STORE",),
    }
    what = name.removeprefix("s_wait_")
    if what in kinds:
        counts = [(kinds[what][0], count)]
    elif what in ("loadcnt_dscnt", "storecnt_dscnt"):
        first, _ = what.split("_")
        counts = [(kinds[first][0], count >> 8 & 63), ("PENDING_DS", count & 63)]
    elif what == "idle":
        counts = [(kind, 0) for found in kinds.values() for kind in found]
    else:
        return False
    if body.weak:
        for kind, left in counts:
            body.line(f"w->rt->weak_wait(w, {kind}, {left});")
    return True


def emit(body: Body, inst: Inst) -> bool:
    """Translate a scalar instruction; False if this module does not know it."""
    name = inst.name
    if name in NO_EFFECT:
        return True
    if inst.fmt == "SOP2" and name in SOP2:
        table_entry(body, inst, SOP2[name])
    elif inst.fmt == "SOP1":
        if name in SOP1:
            table_entry(body, inst, SOP1[name])
        else:
            return special1(body, inst)
    elif inst.fmt == "SOPC" and name in SOPC:
        kinds, test = SOPC[name]
        a, b = (body.scalar(inst.f[key], kind) for key, kind in zip(("src0", "src1"), kinds, strict=True))
        body.line(f"{{ {SCALAR[kinds[0]]} a = {a}; {SCALAR[kinds[1]]} b = {b}; scc = ({test}) != 0; }}")
    elif inst.fmt == "SOPK":
        return sopk(body, inst)
    elif inst.fmt == "SOPP":
        return sopp(body, inst)
    else:
        return False
    return True
