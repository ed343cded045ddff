"""VOP3P: packed 16-bit arithmetic, dot products, mixed-precision fma, matrix steps.

Owns: the selection of halves (opsel, opsel_hi) and the meaning of neg and neg_hi for each group. Packed operations
use them as
signs of the low and high half; dot products and integer matrix steps use neg as signedness; v_fma_mix uses neg_hi as
absolute.
"""

from __future__ import annotations

from ..decode import LITERAL, Inst
from ..emit import FLOATS, VECTOR, Body, float_bits

# (element type, sources, statements)
PACKED: dict[str, tuple[str, int, str]] = {
    "v_pk_fma_f16": ("h", 3, "d = fma_h(a, b, c);"),
    "v_pk_add_f16": ("h", 2, "d = a + b;"),
    "v_pk_mul_f16": ("h", 2, "d = a * b;"),
    "v_pk_min_num_f16": ("h", 2, "d = min_h(a, b);"),
    "v_pk_max_num_f16": ("h", 2, "d = max_h(a, b);"),
    "v_pk_minimum_f16": ("h", 2, "d = minimum_h(a, b);"),
    "v_pk_maximum_f16": ("h", 2, "d = maximum_h(a, b);"),
    "v_pk_mad_i16": ("s", 3, "d = a * b + c;"),
    "v_pk_mad_u16": ("w", 3, "d = a * b + c;"),
    "v_pk_mul_lo_u16": ("w", 2, "d = a * b;"),
    "v_pk_add_i16": ("s", 2, "d = a + b;"),
    "v_pk_sub_i16": ("s", 2, "d = a - b;"),
    "v_pk_add_u16": ("w", 2, "d = a + b;"),
    "v_pk_sub_u16": ("w", 2, "d = a - b;"),
    "v_pk_lshlrev_b16": ("w", 2, "d = b << (a & (VS)(u16)15);"),
    "v_pk_lshrrev_b16": ("w", 2, "d = b >> (a & (VS)(u16)15);"),
    "v_pk_ashrrev_i16": ("s", 2, "d = b >> (a & (VSI)(i16)15);"),
    "v_pk_max_i16": ("s", 2, "d = MAX_V(a, b);"),
    "v_pk_min_i16": ("s", 2, "d = MIN_V(a, b);"),
    "v_pk_max_u16": ("w", 2, "d = MAX_V(a, b);"),
    "v_pk_min_u16": ("w", 2, "d = MIN_V(a, b);"),
}
CLAMPED = {
    "v_pk_add_i16": "d = __builtin_elementwise_add_sat(a, b);",
    "v_pk_sub_i16": "d = __builtin_elementwise_sub_sat(a, b);",
    "v_pk_add_u16": "d = __builtin_elementwise_add_sat(a, b);",
    "v_pk_sub_u16": "d = __builtin_elementwise_sub_sat(a, b);",
}
SMALL_DOT = {
    "v_dot4_f32_fp8_bf8": (0, 1),
    "v_dot4_f32_bf8_fp8": (1, 0),
    "v_dot4_f32_fp8_fp8": (0, 0),
    "v_dot4_f32_bf8_bf8": (1, 1),
}
# Registers of (A, B, C and D) and the call's own arguments.
WMMA_F32 = {
    "v_wmma_f32_16x16x16_f16": (4, "WMMA_F16, WMMA_F16"),
    "v_wmma_f32_16x16x16_bf16": (4, "WMMA_BF16, WMMA_BF16"),
    "v_wmma_f32_16x16x16_fp8_fp8": (2, "WMMA_FP8, WMMA_FP8"),
    "v_wmma_f32_16x16x16_fp8_bf8": (2, "WMMA_FP8, WMMA_BF8"),
    "v_wmma_f32_16x16x16_bf8_fp8": (2, "WMMA_BF8, WMMA_FP8"),
    "v_wmma_f32_16x16x16_bf8_bf8": (2, "WMMA_BF8, WMMA_BF8"),
}
WMMA_16 = {"v_wmma_f16_16x16x16_f16": "WMMA_F16", "v_wmma_bf16_16x16x16_bf16": "WMMA_BF16"}
# Registers of A and B, bits of an element, k.
WMMA_INT = {
    "v_wmma_i32_16x16x16_iu8": (2, 8, 16),
    "v_wmma_i32_16x16x16_iu4": (1, 4, 16),
    "v_wmma_i32_16x16x32_iu4": (2, 4, 32),
}


def packed_source(body: Body, number: int, kind: str) -> str:
    """A 32-bit operand that holds two halves. A float constant stands in the lower one."""
    if number in FLOATS and kind == "h":
        return f"SP({float_bits(FLOATS[number], 'h'):#x}u)"
    return body.vector(number)


def packed(body: Body, inst: Inst) -> None:
    kind, count, code = PACKED[inst.name]
    f = inst.f
    if f["clamp"]:
        if kind != "h" and inst.name not in CLAMPED:
            raise body.refuse("clamp on this instruction is not translated")
        code = CLAMPED.get(inst.name, code + " d = clamp_h(d);")
    high_bits = f["opsel_hi"] | f["opsel_hi2"] << 2
    body.line("{")
    for i in range(count):
        body.line(f"V s{i}_ = {packed_source(body, f[f'src{i}'], kind)};")
    for tag, select, flip in (("lo", f["opsel"], f["neg"]), ("hi", high_bits, f["neg_hi"])):
        body.line(f"{VECTOR[kind]} r_{tag}; {{")
        for i, name in zip(range(count), "abc", strict=False):
            text = f"({VECTOR[kind]}){'hi16' if select >> i & 1 else 'lo16'}(s{i}_)"
            if flip >> i & 1:
                if kind != "h":
                    raise body.refuse("sign modifiers on an integer operand")
                text = f"neg_h({text})"
            body.line(f"{VECTOR[kind]} {name} = {text};")
        body.line(f"{VECTOR[kind]} d; {code} r_{tag} = d; }}")
    body.write_vector(f["vdst"], "u", "pack16((VS)r_lo, (VS)r_hi)")
    body.line("}")


def mixed(body: Body, inst: Inst) -> None:
    """v_fma_mix: each source is f32, or the low or high f16 of its register."""
    f = inst.f
    high_bits = f["opsel_hi"] | f["opsel_hi2"] << 2
    body.line("{")
    for i, name in enumerate("abc"):
        number = f[f"src{i}"]
        if high_bits >> i & 1:
            text = f"CVT((VH){'hi16' if f['opsel'] >> i & 1 else 'lo16'}({packed_source(body, number, 'h')}), VF)"
        else:
            text = body.vector(number, "f")
        if f["neg_hi"] >> i & 1:
            text = f"abs_f({text})"
        if f["neg"] >> i & 1:
            text = f"neg_f({text})"
        body.line(f"VF {name} = {text};")
    body.line("VF d = fma_f(a, b, c);")
    if inst.name == "v_fma_mix_f32":
        body.line("d = clamp_f(d);" if f["clamp"] else "")
        body.write_vector(f["vdst"], "f", "d")
    else:
        # Two roundings, as published: the fma to f32, its result to f16.
        body.line("VH h = CVT(d, VH);")
        body.line("h = clamp_h(h);" if f["clamp"] else "")
        body.write_vector(f["vdst"], "h", "h", "exec", inst.name == "v_fma_mixhi_f16")
    body.line("}")


def pair_source(body: Body, number: int, bf16: bool) -> str:
    """A 32-bit operand that holds two f16 or bf16. A float constant stands in the lower one."""
    if bf16 and number in FLOATS:
        return f"SP({float_bits(FLOATS[number], 'f') >> 16:#x}u)"
    return packed_source(body, number, "h")


def dot2_wide(body: Body, inst: Inst) -> None:
    """v_dot2_f32_*: the products take the halves that opsel (first) and opsel_hi (second) name; neg, neg_hi: signs."""
    f = inst.f
    bf16 = inst.name.endswith("bf16")
    # The compiler negates an f32 addend with both bits; what neg_hi alone does to it is not published.
    if f["opsel"] & 4 or (f["neg_hi"] & 4 and not f["neg"] & 4):
        raise body.refuse("these modifiers of the addend are not translated")
    high_bits = f["opsel_hi"] | f["opsel_hi2"] << 2
    body.line("{")
    for i, name in enumerate("ab"):
        body.line(f"V {name} = {pair_source(body, f[f'src{i}'], bf16)};")
        lo, hi = (f"{'hi' if select >> i & 1 else 'lo'}16({name})" for select in (f["opsel"], high_bits))
        signs = (f["neg"] >> i & 1) << 15 | (f["neg_hi"] >> i & 1) << 31
        body.line(f"{name} = pack16({lo}, {hi}) ^ {signs:#x}u;")
    c = body.vector(f["src2"], "f")
    body.line(f"VF d = dot2_{'bf16' if bf16 else 'f16'}(a, b, {f'neg_f({c})' if f['neg'] & 4 else c});")
    body.write_vector(f["vdst"], "f", "clamp_f(d)" if f["clamp"] else "d")
    body.line("}")


def dot2_narrow(body: Body, inst: Inst) -> None:
    """v_dot2_f16_f16 and v_dot2_bf16_bf16 (VOP3): opsel says which half of src2 is added and which half is written."""
    f = inst.f
    bf16 = inst.name.endswith("bf16")
    if f["opsel"] & 3 or (f["neg"] | f["abs"]) & (7 if bf16 else 3) or f["omod"] or f["clamp"] or inst.dpp is not None:
        raise body.refuse("these modifiers are not translated")
    a, b = (pair_source(body, f[key], bf16) for key in ("src0", "src1"))
    number, high = f["src2"], bool(f["opsel"] & 4)
    if bf16 and number in FLOATS:
        c = f"SPS({float_bits(FLOATS[number], 'f') >> 16:#x})"
    else:
        c = body.vector(number, "w" if bf16 else "h", high)
    c = f"abs_h({c})" if f["abs"] & 4 else c
    c = f"neg_h({c})" if f["neg"] & 4 else c
    text = f"dot2_{'bf16_bf16' if bf16 else 'f16_f16'}({a}, {b}, {c})"
    body.write_vector(f["vdst"], "w" if bf16 else "h", text, "exec", bool(f["opsel"] & 8))


def dot(body: Body, inst: Inst) -> bool:
    f, name = inst.f, inst.name
    a, b = body.vector(f["src0"]), body.vector(f["src1"])
    if name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4"):
        signs = f"{f['neg'] & 1}, {f['neg'] >> 1 & 1}"
        text = f"{name[2:6]}({a}, {b}, {signs})"
        c = body.vector(f["src2"], "i")
        body.write_vector(
            f["vdst"], "i", f"__builtin_elementwise_add_sat({text}, {c})" if f["clamp"] else f"{text} + {c}"
        )
    elif name in ("v_dot4_u32_u8", "v_dot8_u32_u4"):
        text, c = f"(V){name[2:6]}({a}, {b}, 0, 0)", body.vector(f["src2"])
        body.write_vector(
            f["vdst"], "u", f"__builtin_elementwise_add_sat({text}, {c})" if f["clamp"] else f"{text} + {c}"
        )
    elif name in ("v_dot2_f32_f16", "v_dot2_f32_bf16"):
        dot2_wide(body, inst)
    elif name in SMALL_DOT:
        kinds = SMALL_DOT[name]
        body.write_vector(
            f["vdst"], "f", f"dot4_small({a}, {b}, {body.vector(f['src2'], 'f')}, {kinds[0]}, {kinds[1]})"
        )
    else:
        return False
    return True


def splat(body: Body, number: int, bf16: bool) -> str:
    """A constant matrix of f16 or bf16: both halves of each register hold it."""
    if number in FLOATS:
        bits = float_bits(FLOATS[number], "f") >> 16 if bf16 else float_bits(FLOATS[number], "h")
    elif number == 128:
        bits = 0
    else:
        raise body.refuse("matrix operands stand in VGPRs or are float constants")
    return f"SP({bits << 16 | bits:#x}u)"


def matrix(body: Body, inst: Inst) -> bool:
    f, name = inst.f, inst.name
    if name in WMMA_F32:
        registers, kinds = WMMA_F32[name]
        result, call = 8, f"wmma_f32(a, b, c, d, {kinds}, {f['neg'] >> 2}, {f['neg_hi'] >> 2});"
        if (f["neg"] | f["neg_hi"]) & 3 and registers == 2:
            raise body.refuse("sign modifiers of 8-bit A and B mean nothing")
    elif name in WMMA_16:
        registers, result, call = 4, 4, f"wmma_16(a, b, c, d, {WMMA_16[name]}, {f['neg'] >> 2}, {f['neg_hi'] >> 2});"
    elif name in WMMA_INT:
        registers, bits, k = WMMA_INT[name]
        result = 8
        call = f"wmma_int(a, b, c, d, {bits}, {k}, {f['neg'] & 1}, {f['neg'] >> 1 & 1}, {f['clamp']});"
    else:
        return False
    flips = {"a": "", "b": "", "c": ""}
    if name not in WMMA_INT:
        # Of A and B neg is the sign of the even elements and neg_hi that of the odd ones; of C negative and absolute.
        for i, letter in enumerate("ab"):
            signs = (f["neg"] >> i & 1) << 15 | (f["neg_hi"] >> i & 1) << 31
            flips[letter] = f" ^ {signs:#x}u" if signs else ""
    body.line(f"{{ V a[{registers}], b[{registers}], c[{result}], d[{result}];")
    for letter, key, count in (("a", "src0", registers), ("b", "src1", registers), ("c", "src2", result)):
        number = f[key]
        for i in range(count):
            text = body.v(number - 256 + i) if number >= 256 else body.vector(number, "f" if number in FLOATS else "u")
            if name in WMMA_16 and number < 256:
                text = splat(body, number, "bf16" in name)
            if number == LITERAL or 0 <= number < 128:
                raise body.refuse("matrix operands stand in VGPRs or are inline constants")
            body.line(f"{letter}[{i}] = (V){text}{flips[letter]};")
    body.line(call)
    for i in range(result):
        body.line(f"{body.v(f['vdst'] + i)} = d[{i}];")
    body.line("}")
    return True


def emit(body: Body, inst: Inst) -> bool:
    """Translate a VOP3P instruction or a dot product of pairs in VOP3; False if this module does not know it."""
    if inst.name in ("v_dot2_f16_f16", "v_dot2_bf16_bf16"):
        dot2_narrow(body, inst)
        return True
    if inst.fmt != "VOP3P":
        return False
    if inst.dpp is not None:
        raise body.refuse("DPP on packed instructions is not translated")
    if inst.name in PACKED:
        packed(body, inst)
    elif inst.name.startswith("v_fma_mix"):
        mixed(body, inst)
    else:
        return dot(body, inst) or matrix(body, inst)
    return True
