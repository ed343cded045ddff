"""VOP1, VOP2, VOP3, VOP3SD, VOPC and VOPD: modifiers, DPP, masks and the instructions that cross lanes.

Owns: how a table entry of vector_tables.py becomes C for one instruction: sources with neg, abs and halves, DPP
sources, output
modifiers, the lanes written.
"""

from __future__ import annotations

from ..decode import VCC, Inst
from ..emit import HALF, VECTOR, Body
from .vector_tables import CLAMPED, COMPARES, DUAL, DUAL_DOT2, OPS, OPS_SD, PSEUDO_SCALAR

BITS = {"u": "bits_v", "i": "bits_v", "f": "bits_v", "q": "bits_q", "l": "bits_q", "d": "bits_q", "h": "bits_s",
    "w": "bits_s",
        "s": "bits_s"}  # fmt: skip
OMOD = {1: "2", 2: "4", 3: "0.5"}
FLOAT = "fhd"
E32 = ("VOP1", "VOP2", "VOPC")


def halves(inst: Inst, index: int, number: int, kind: str) -> tuple[int, bool]:
    """(operand number, whether its upper half is meant) of source `index`."""
    if kind not in HALF:
        return number, False
    if inst.fmt in E32:
        return (number - 128, True) if number >= 256 + 128 else (number, False)
    return number, bool(inst.f.get("opsel", 0) >> index & 1)


def operand(inst: Inst, index: int) -> int:
    """Operand number of source `index`; the E32 forms have VGPRs there from the second on."""
    number = inst.f[f"src{index}"]
    return number + 256 if index == 1 and inst.fmt in E32 + ("VOPD",) else number


def source(body: Body, inst: Inst, index: int, kind: str) -> str:
    """Source `index` as a C expression, with DPP and modifiers applied."""
    if kind == "m":
        return body.scalar(inst.f["src2"]) if inst.fmt.startswith("VOP3") else body.s(VCC)
    number, high = halves(inst, index, operand(inst, index), kind)
    if index == 0 and inst.dpp is not None:
        text = {"u": "x0", "w": f"{'hi' if high else 'lo'}16(x0)"}.get(kind)
        if text is None:
            if kind in "qld":
                raise body.refuse("DPP on 64-bit operands is not translated")
            text = f"({VECTOR[kind]}){'hi16(x0)' if high else 'lo16(x0)' if kind in HALF else 'x0'}"
    else:
        text = body.vector(number, kind, high)
    if kind in FLOAT:
        if inst.f.get("abs", 0) >> index & 1:
            text = f"abs_{kind}({text})"
        if inst.f.get("neg", 0) >> index & 1:
            text = f"neg_{kind}({text})"
    elif (inst.f.get("abs", 0) | inst.f.get("neg", 0)) >> index & 1:
        if inst.name not in ("v_cndmask_b32", "v_mov_b32"):
            raise body.refuse("sign modifiers on an integer operand")
        if inst.f.get("abs", 0) >> index & 1:
            text = f"({text} & 0x7fffffffu)"
        if inst.f.get("neg", 0) >> index & 1:
            text = f"({text} ^ 0x80000000u)"
    return text


def open_dpp(body: Body, inst: Inst) -> str:
    """Declare x0, the moved source, and return the mask of lanes that are written."""
    dpp = inst.dpp
    if dpp is None:
        return "exec"
    name = body.v(operand(inst, 0) - 256)
    lanes = ", ".join(str(max(lane, 0)) for lane in dpp.lanes)
    valid = sum(1 << i for i, lane in enumerate(dpp.lanes) if lane >= 0)
    body.line(f"V x0 = __builtin_shufflevector({name}, {name}, {lanes});")
    if dpp.fetch_inactive:
        body.line(f"u32 ok = {valid:#x}u;")
    else:
        body.line(f"u32 ok = {valid:#x}u & (exec == ~0u ? ~0u : permute_bits(exec, {body.table(dpp.lanes)}));")
    if dpp.bound_ctrl:
        body.line("x0 = sel(ok, x0, SP(0));")
        body.line(f"u32 wm = exec & {dpp.write:#x}u;")
    else:
        body.line(f"u32 wm = exec & ok & {dpp.write:#x}u;")
    return "wm"


def modified(body: Body, inst: Inst, kind: str, code: str) -> str:
    """The statements with output modifiers appended."""
    f = inst.f
    if f.get("omod"):
        if kind not in FLOAT:
            raise body.refuse("output modifier on an integer")
        factor = {
            "f": f"{float(OMOD[f['omod']])}f",
            "d": str(float(OMOD[f["omod"]])),
            "h": f"(_Float16){OMOD[f['omod']]}",
        }[kind]
        code += f" d = d * {factor};"
    if f.get("clamp"):
        if kind in FLOAT:
            code += f" d = clamp_{kind}(d);"
        elif inst.name in CLAMPED:
            code = CLAMPED[inst.name]
        else:
            raise body.refuse("clamp on this instruction is not translated")
    return code


def destination(inst: Inst, kind: str) -> tuple[int, bool]:
    number = inst.f["vdst"]
    if kind not in HALF:
        return number, False
    if inst.fmt in E32:
        return number & 127, number >= 128
    return number, bool(inst.f.get("opsel", 0) >> 3 & 1)


def compute(body: Body, inst: Inst, entry: tuple[str, str, str], carry: bool = False) -> None:
    """A table entry's instruction. With `carry` its statements also set a lane mask, which goes to sdst."""
    kind, sources, code = entry
    number, high = destination(inst, kind)
    body.line("{")
    mask = open_dpp(body, inst)
    for name, i, source_kind in zip("abc", range(3), sources, strict=False):
        text = source(body, inst, i, source_kind)
        body.line(f"{'u32' if source_kind == 'm' else VECTOR[source_kind]} {name} = {text};")
    if "old" in code:
        body.line(f"{VECTOR[kind]} old = {body.vgpr(number, kind, high)};")
    if inst.name.startswith(("v_fmaak", "v_fmamk")):
        if inst.literal is None:
            raise body.refuse("a DPP word stands where the constant belongs")
        body.line(f"{VECTOR[kind]} k = ({VECTOR[kind]}){'SPS' if kind == 'h' else 'SP'}({inst.literal:#x});")
    if "vcc" in code:
        body.line(f"u32 vcc = {body.s(VCC)};")
    if carry:
        body.line("u32 mask;")
    body.line(f"{VECTOR[kind]} d; {modified(body, inst, kind, code)}")
    body.write_vector(number, kind, "d", mask, high)
    if carry:
        target = inst.f["sdst"] if inst.fmt == "VOP3SD" else VCC
        body.write_scalar(target, "u", f"mask & {mask}")
    body.line("}")


def compare(body: Body, inst: Inst) -> bool:
    """v_cmp writes a mask, 0 for lanes that are not active; v_cmpx writes EXEC."""
    stem = "v_cmpx_" if inst.name.startswith("v_cmpx_") else "v_cmp_"
    what = inst.name.removeprefix(stem)
    body.line("{")
    mask = open_dpp(body, inst)
    if what.startswith("class_"):
        kind = {"f32": "f", "f16": "h", "f64": "d"}[what.removeprefix("class_")]
        second = source(body, inst, 1, "w" if kind == "h" else "u")
        second = f"CVT({second}, V)" if kind == "h" else second
        text = f"bits_v((VI)((class_{kind}({source(body, inst, 0, kind)}) & {second}) != 0))"
    elif what in COMPARES:
        kind, condition = COMPARES[what]
        for i, name in enumerate("ab"):
            body.line(f"{VECTOR[kind]} {name} = {source(body, inst, i, kind)};")
        text = f"{BITS[kind]}({condition})"
    else:
        return False
    body.line(f"u32 r = {text} & {mask};")
    if stem == "v_cmpx_":
        body.line("exec = r;")
    else:
        body.write_scalar(VCC if inst.fmt == "VOPC" else inst.f["vdst"], "u", "r")
    body.line("}")
    return True


def dual(body: Body, inst: Inst) -> None:
    """VOPD: both halves read before either writes."""
    f = inst.f
    body.line("{")
    writes = []
    halves_of = (
        ("x", inst.name, f["src0"], f["src1"], f["vdst"]),
        ("y", inst.opy_name, f["srcy0"], f["srcy1"], f["vdsty"]),
    )
    for tag, name, src0, src1, vdst in halves_of:
        if name in DUAL_DOT2:
            body.line(
                f"V d{tag} = (V)dot2_{DUAL_DOT2[name]}({body.vector(src0)}, {body.vgpr(src1)}, {body.vgpr(vdst, 'f')});"
            )
            writes.append((vdst, f"d{tag}"))
            continue
        if name not in DUAL:
            raise body.refuse(f"{name} is not translated")
        kind, sources, code = OPS[DUAL[name]]
        body.line(f"{VECTOR[kind]} d{tag}; {{")
        body.line(f"{VECTOR[sources[0]]} a = {body.vector(src0, sources[0])};")
        if len(sources) > 1:
            body.line(f"{VECTOR[sources[1]]} b = {body.vgpr(src1, sources[1])};")
        if sources.endswith("m"):
            body.line(f"u32 c = {body.s(VCC)};")
        if "old" in code:
            body.line(f"{VECTOR[kind]} old = {body.vgpr(vdst, kind)};")
        if "fmaak" in name or "fmamk" in name:
            if inst.literal is None:
                raise body.refuse("the constant is missing")
            body.line(f"VF k = (VF)SP({inst.literal:#x}u);")
        body.line(f"{VECTOR[kind]} d; {code} d{tag} = d; }}")
        writes.append((vdst, f"d{tag}"))
    for vdst, text in writes:
        body.write_vector(vdst, "u", text)
    body.line("}")


def indexed(body: Body, inst: Inst) -> None:
    """v_movrel*: a VGPR chosen by M0. The registers a kernel may reach are those of its metadata."""
    src, dst, name = inst.f["src0"], inst.f["vdst"], inst.name
    source_index, target_index = "", ""
    if name in ("v_movrels_b32", "v_movrelsd_b32"):
        source_index = f"m0 + {src - 256}"
    if name in ("v_movreld_b32", "v_movrelsd_b32"):
        target_index = f"m0 + {dst}"
    if name == "v_movrelsd_2_b32":
        source_index, target_index = f"(m0 & 1023) + {src - 256}", f"(m0 >> 16 & 1023) + {dst}"
    body.line("{ V x;")
    body.line(f"GET_INDEXED(x, {source_index}, {inst.address:#x});" if source_index else f"x = {body.vector(src)};")
    if target_index:
        body.line(f"SET_INDEXED({target_index}, x, {inst.address:#x});")
    else:
        body.write_vector(dst, "u", "x")
    body.line("}")


def permlane16(body: Body, inst: Inst) -> None:
    """v_permlane16 and v_permlanex16: selectors of 4 bits in two scalars, or in a VGPR (var)."""
    f = inst.f
    cross = "x16" in inst.name
    data = body.v(f["src0"] - 256)
    fetch_inactive, bound = f["opsel"] & 1, f["opsel"] >> 1 & 1
    body.line("{ V index;")
    if "_var_" in inst.name:
        body.line(f"index = {body.vector(f['src1'])} & 15;")
    else:
        body.line(f"u64 sel64 = pair({body.scalar(f['src1'])}, {body.scalar(f['src2'])});")
        body.line("for (int l = 0; l < LANES; l++) index[l] = sel64 >> 4 * (l & 15) & 15;")
    body.line(f"index |= (IOTA & 16){' ^ 16' if cross else ''};")
    body.line(
        f"V x; u32 ok = 0; for (int l = 0; l < LANES; l++) x[l] = {data}[index[l]], ok |= (exec >> index[l] & 1) << l;"
    )
    if fetch_inactive:
        body.line("ok = ~0u;")
    body.write_vector(f["vdst"], "u", "sel(ok, x, SP(0))" if bound else "x", "exec" if bound else "exec & ok")
    body.line("}")


def lanes(body: Body, inst: Inst) -> bool:
    """Instructions that move data between lanes or between vector and scalar registers."""
    name, f = inst.name, inst.f
    if name == "v_readfirstlane_b32":
        source0 = f["src0"]
        text = f"first_lane({body.v(source0 - 256)}, exec)" if source0 >= 256 else body.scalar(source0)
        body.write_scalar(f["vdst"], "u", text)
    elif name == "v_readlane_b32":
        index = body.constant(f["src1"], "u")
        at = str(index & 31) if index is not None else f"{body.scalar(f['src1'])} & 31"
        body.write_scalar(f["vdst"], "u", f"{body.v(f['src0'] - 256)}[{at}]")
    elif name == "v_writelane_b32":
        index = body.constant(f["src1"], "u")
        at = str(index & 31) if index is not None else f"{body.scalar(f['src1'])} & 31"
        body.line(f"{body.v(f['vdst'])}[{at}] = {body.scalar(f['src0'])};")
    elif name.startswith(("v_permlane16", "v_permlanex16")):
        permlane16(body, inst)
    elif name == "v_permlane64_b32":
        pass
    elif name in ("v_swap_b32", "v_swap_b16"):
        if name == "v_swap_b16":
            (a, high_a), (b, high_b) = destination(inst, "w"), halves(inst, 0, f["src0"], "w")
            body.line(f"{{ VS x = {body.vgpr(a, 'w', high_a)}, y = {body.vgpr(b - 256, 'w', high_b)};")
            body.write_vector(a, "w", "y", "exec", high_a)
            body.write_vector(b - 256, "w", "x", "exec", high_b)
        else:
            body.line(f"{{ V x = {body.v(f['vdst'])}, y = {body.v(f['src0'] - 256)};")
            body.write_vector(f["vdst"], "u", "y")
            body.write_vector(f["src0"] - 256, "u", "x")
        body.line("}")
    elif name.startswith("v_movrel"):
        indexed(body, inst)
    elif name == "v_mbcnt_lo_u32_b32":
        if f["src0"] >= 256:
            mask = f"mbcnt({body.vector(f['src0'])}, {body.vector(f['src1'])})"
        else:
            mask = f"mbcnt_s({body.scalar(f['src0'])}, {body.vector(f['src1'])})"
        body.write_vector(f["vdst"], "u", mask)
    elif name == "v_mbcnt_hi_u32_b32":
        body.write_vector(f["vdst"], "u", body.vector(f["src1"]))
    else:
        return False
    return True


def small_floats(body: Body, inst: Inst) -> bool:
    """Conversions to and from fp8 and bf8 that write parts of registers."""
    name, f = inst.name, inst.f
    if name in ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32"):
        text = f"CVT(pack_small({source(body, inst, 0, 'f')}, {source(body, inst, 1, 'f')}, {int('bf8' in name)}), VS)"
        body.write_vector(f["vdst"], "w", text, "exec", bool(f["opsel"] >> 3 & 1))
    elif name in ("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"):
        number, high = halves(inst, 0, f["src0"], "w")
        body.line(f"{{ V x = CVT({body.vector(number, 'w', high)}, V); VF lo = unpack_small(x, {int('bf8' in name)});")
        body.line(f"VF hi = unpack_small(x >> 8, {int('bf8' in name)});")
        body.write_vector(f["vdst"], "u", "lo")
        body.write_vector(f["vdst"] + 1, "u", "hi")
        body.line("}")
    elif name in ("v_cvt_f32_fp8", "v_cvt_f32_bf8") and inst.fmt == "VOP3":
        byte = (f["opsel"] & 1) * 2 | f["opsel"] >> 1 & 1
        body.write_vector(f["vdst"], "f", f"unpack_small({body.vector(f['src0'])} >> {8 * byte}, {int('bf8' in name)})")
    elif name in ("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"):
        if f["clamp"] or f["omod"] or f["opsel"] & 3 or inst.dpp is not None:
            raise body.refuse("these modifiers are not translated")
        shift, old = 8 * (f["opsel"] >> 2 & 3), body.v(f["vdst"])
        text = f"cvt_sr_small({source(body, inst, 0, 'f')}, {source(body, inst, 1, 'u')}, {int('bf8' in name)})"
        body.write_vector(f["vdst"], "u", f"({old} & {~(255 << shift) & 0xFFFFFFFF:#x}u) | {text} << {shift}")
    else:
        return False
    return True


def four_sums(body: Body, inst: Inst) -> None:
    """v_mqsad_u32_u8: as v_mqsad_pk_u16_u8, with sums in four registers."""
    f = inst.f
    if f["clamp"]:
        raise body.refuse("clamp on this instruction is not translated")
    body.line(f"{{ VQ a = {source(body, inst, 0, 'q')}; V b = {source(body, inst, 1, 'u')}, d[4];")
    for i in range(4):
        c = body.v(f["src2"] - 256 + i) if f["src2"] >= 256 else body.vector(f["src2"])
        if f["src2"] < 128:
            raise body.refuse("the addend stands in VGPRs or is a constant")
        body.line(f"d[{i}] = {c} + sad_bytes(low_v(a >> {8 * i}), b, 1);")
    for i in range(4):
        body.write_vector(f["vdst"] + i, "u", f"d[{i}]")
    body.line("}")


def emit(body: Body, inst: Inst) -> bool:
    """Translate a vector instruction; False if this module does not know it."""
    name = inst.name
    if inst.fmt == "VOPD":
        dual(body, inst)
    elif name in ("v_nop", "v_pipeflush"):
        pass
    elif name.startswith("v_cmp"):
        return compare(body, inst)
    elif lanes(body, inst) or small_floats(body, inst):
        pass
    elif name == "v_mqsad_u32_u8":
        four_sums(body, inst)
    elif name in OPS_SD:
        compute(body, inst, OPS_SD[name], carry=True)
    elif name in PSEUDO_SCALAR:
        kind, _, code = OPS[PSEUDO_SCALAR[name]]

        body.line(f"{{ {VECTOR[kind]} a = {source(body, inst, 0, kind)}, d; {modified(body, inst, kind, code)}")
        body.write_scalar(inst.f["vdst"], kind, "d[0]")
        body.line("}")
    elif name in OPS:
        compute(body, inst, OPS[name])
    else:
        return False
    return True
