"""What VOP1, VOP2, VOP3 and VOP3SD instructions compute, lane by lane.

Owns: OPS (result type, source types, C statements over a, b, c and old, which set d) and CLAMPED (the statements of
integer
instructions when the clamp bit is set). Types are those of emit.py; source type "m" is a lane mask in a scalar
register.
"""

from __future__ import annotations

OPS: dict[str, tuple[str, str, str]] = {
    "v_mov_b32": ("u", "u", "d = a;"),
    "v_mov_b16": ("w", "w", "d = a;"),
    "v_not_b32": ("u", "u", "d = ~a;"),
    "v_not_b16": ("w", "w", "d = ~a;"),
    "v_bfrev_b32": ("u", "u", "d = __builtin_elementwise_bitreverse(a);"),
    "v_clz_i32_u32": ("u", "u", "d = clz_v(a);"),
    "v_ctz_i32_b32": ("u", "u", "d = ctz_v(a);"),
    "v_cls_i32": ("u", "i", "d = clz_v((V)(a ^ (a >> 31)));"),
    "v_cvt_f32_i32": ("f", "i", "d = CVT(a, VF);"),
    "v_cvt_f32_u32": ("f", "u", "d = CVT(a, VF);"),
    "v_cvt_u32_f32": ("u", "f", "d = cvt_u_f(a);"),
    "v_cvt_i32_f32": ("i", "f", "d = cvt_i_f(a);"),
    "v_cvt_nearest_i32_f32": ("i", "f", "d = cvt_i_f(__builtin_elementwise_floor(a + 0.5f));"),
    "v_cvt_floor_i32_f32": ("i", "f", "d = cvt_i_f(__builtin_elementwise_floor(a));"),
    "v_cvt_f16_f32": ("h", "f", "d = CVT(a, VH);"),
    "v_cvt_f32_f16": ("f", "h", "d = CVT(a, VF);"),
    "v_cvt_f64_f32": ("d", "f", "d = CVT(a, VD);"),
    "v_cvt_f32_f64": ("f", "d", "d = CVT(a, VF);"),
    "v_cvt_f64_i32": ("d", "i", "d = CVT(a, VD);"),
    "v_cvt_f64_u32": ("d", "u", "d = CVT(a, VD);"),
    "v_cvt_i32_f64": ("i", "d", "d = cvt_i_d(a);"),
    "v_cvt_u32_f64": ("u", "d", "d = cvt_u_d(a);"),
    "v_cvt_i32_i16": ("i", "s", "d = CVT(a, VI);"),
    "v_cvt_u32_u16": ("u", "w", "d = CVT(a, V);"),
    "v_cvt_f16_u16": ("h", "w", "d = CVT(a, VH);"),
    "v_cvt_f16_i16": ("h", "s", "d = CVT(a, VH);"),
    "v_cvt_u16_f16": ("w", "h", "d = cvt_w_h(a);"),
    "v_cvt_i16_f16": ("s", "h", "d = cvt_s_h(a);"),
    "v_cvt_off_f32_i4": ("f", "u", "d = CVT((VI)(a << 28) >> 28, VF) * 0.0625f;"),
    "v_cvt_f32_fp8": ("f", "u", "d = unpack_small(a, 0);"),
    "v_cvt_f32_bf8": ("f", "u", "d = unpack_small(a, 1);"),
    "v_fract_f32": ("f", "f", "d = fract_f(a);"),
    "v_fract_f64": ("d", "d",
    "VD r = a - __builtin_elementwise_floor(a); d = pick_d(isnan_d(r), r, min_d(r, (VD)0.99999999999999988898));"),
    "v_fract_f16": ("h", "h", "VF x = CVT(a, VF), r = x - __builtin_elementwise_floor(x);"
    " d = CVT(pick_f((VI)(r > 0.99951171875f), (VF)0.99951171875f, r), VH);"),
    "v_exp_f32": ("f", "f", "d = exp2_f(a);"),
    "v_exp_f16": ("h", "h", "d = exp2_h(a);"),
    "v_log_f32": ("f", "f", "d = log2_f(a);"),
    "v_log_f16": ("h", "h", "d = log2_h(a);"),
    "v_rcp_f32": ("f", "f", "d = 1.0f / a;"),
    "v_rcp_iflag_f32": ("f", "f", "d = 1.0f / a;"),
    "v_rcp_f64": ("d", "d", "d = 1.0 / a;"),
    "v_rcp_f16": ("h", "h", "d = CVT(1.0f / CVT(a, VF), VH);"),
    "v_rsq_f32": ("f", "f", "d = rsq_f(a);"),
    "v_rsq_f64": ("d", "d", "d = 1.0 / __builtin_elementwise_sqrt(a);"),
    "v_rsq_f16": ("h", "h", "d = CVT(rsq_f(CVT(a, VF)), VH);"),
    "v_sqrt_f32": ("f", "f", "d = __builtin_elementwise_sqrt(a);"),
    "v_sqrt_f64": ("d", "d", "d = __builtin_elementwise_sqrt(a);"),
    "v_sqrt_f16": ("h", "h", "d = CVT(__builtin_elementwise_sqrt(CVT(a, VF)), VH);"),
    "v_sin_f32": ("f", "f", "d = sin_f(a);"),
    "v_cos_f32": ("f", "f", "d = cos_f(a);"),
    "v_sin_f16": ("h", "h", "d = CVT(sin_f(CVT(a, VF)), VH);"),
    "v_cos_f16": ("h", "h", "d = CVT(cos_f(CVT(a, VF)), VH);"),
    "v_frexp_exp_i32_f32": ("i", "f", "d = frexp_exp_f(a);"),
    "v_frexp_mant_f32": ("f", "f", "d = frexp_mant_f(a);"),
    "v_frexp_exp_i32_f64": ("i", "d", "d = frexp_exp_d(a);"),
    "v_frexp_mant_f64": ("d", "d", "d = frexp_mant_d(a);"),
    "v_frexp_exp_i16_f16": ("s", "h", "d = CVT(frexp_exp_f(CVT(a, VF)), VSI);"),
    "v_frexp_mant_f16": ("h", "h", "d = CVT(frexp_mant_f(CVT(a, VF)), VH);"),
    "v_sat_pk_u8_i16": (
        "w",
        "u",
        "VI x = (VI)(a << 16) >> 16, y = (VI)a >> 16; x = MIN_V(MAX_V(x, (VI)0), (VI)255);"
        " y = MIN_V(MAX_V(y, (VI)0), (VI)255); d = CVT((V)(x | y << 8), VS);",
    ),
    # VOP2
    "v_cndmask_b32": ("u", "uum", "d = sel(c, b, a);"),
    "v_cndmask_b16": ("w", "wwm", "d = sel_s(c, b, a);"),
    "v_mul_dx9_zero_f32": ("f", "ff", "d = pick_f((VI)(a == 0.0f) | (VI)(b == 0.0f), (VF)0.0f, a * b);"),
    "v_fma_dx9_zero_f32": ("f", "fff", "d = pick_f((VI)(a == 0.0f) | (VI)(b == 0.0f), c, fma_f(a, b, c));"),
    "v_mul_i32_i24": ("u", "uu", "d = (V)(sext24(a) * sext24(b));"),
    "v_mul_hi_i32_i24": ("u", "uu", "d = mulhi_i((V)sext24(a), (V)sext24(b));"),
    "v_mul_u32_u24": ("u", "uu", "d = (a & 0xffffff) * (b & 0xffffff);"),
    "v_mul_hi_u32_u24": ("u", "uu", "d = mulhi_u(a & 0xffffff, b & 0xffffff);"),
    "v_mul_lo_u32": ("u", "uu", "d = a * b;"),
    "v_mul_hi_u32": ("u", "uu", "d = mulhi_u(a, b);"),
    "v_mul_hi_i32": ("u", "uu", "d = mulhi_i(a, b);"),
    "v_lshlrev_b32": ("u", "uu", "d = shl_v(b, a);"),
    "v_lshrrev_b32": ("u", "uu", "d = shr_v(b, a);"),
    "v_ashrrev_i32": ("u", "uu", "d = sar_v(b, a);"),
    "v_lshlrev_b64": ("q", "uq", "d = b << CVT(a & 63, VQ);"),
    "v_lshrrev_b64": ("q", "uq", "d = b >> CVT(a & 63, VQ);"),
    "v_ashrrev_i64": ("l", "ul", "d = b >> CVT((VI)(a & 63), VL);"),
    "v_lshlrev_b16": ("w", "ww", "d = b << (a & (VS)(u16)15);"),
    "v_lshrrev_b16": ("w", "ww", "d = b >> (a & (VS)(u16)15);"),
    "v_ashrrev_i16": ("s", "ss", "d = b >> (a & (VSI)(i16)15);"),
    "v_add_nc_u32": ("u", "uu", "d = a + b;"),
    "v_sub_nc_u32": ("u", "uu", "d = a - b;"),
    "v_subrev_nc_u32": ("u", "uu", "d = b - a;"),
    "v_add_nc_i32": ("u", "uu", "d = a + b;"),
    "v_sub_nc_i32": ("u", "uu", "d = a - b;"),
    "v_xnor_b32": ("u", "uu", "d = ~(a ^ b);"),
    "v_fmac_f32": ("f", "ff", "d = fma_f(a, b, old);"),
    "v_fmamk_f32": ("f", "ff", "d = fma_f(a, k, b);"),
    "v_fmaak_f32": ("f", "ff", "d = fma_f(a, b, k);"),
    "v_fmac_f16": ("h", "hh", "d = fma_h(a, b, old);"),
    "v_fmamk_f16": ("h", "hh", "d = fma_h(a, k, b);"),
    "v_fmaak_f16": ("h", "hh", "d = fma_h(a, b, k);"),
    "v_pk_fmac_f16": ("u", "uu", "d = pack16((VS)fma_h((VH)lo16(a), (VH)lo16(b), (VH)lo16(old)),"
                                  " (VS)fma_h((VH)hi16(a), (VH)hi16(b), (VH)hi16(old)));"),
    "v_cvt_pk_rtz_f16_f32": ("u", "ff", "d = pack16(f16_rtz_v(a), f16_rtz_v(b));"),
    "v_ldexp_f16": ("h", "hs", "d = ldexp_h(a, CVT(b, VI));"),
    "v_ldexp_f32": ("f", "fi", "d = ldexp_f(a, b);"),
    "v_ldexp_f64": ("d", "di", "d = ldexp_d(a, b);"),
    # VOP3
    "v_fma_f32": ("f", "fff", "d = fma_f(a, b, c);"),
    "v_fma_f64": ("d", "ddd", "d = fma_d(a, b, c);"),
    "v_fma_f16": ("h", "hhh", "d = fma_h(a, b, c);"),
    "v_mad_i32_i24": ("u", "uuu", "d = (V)(sext24(a) * sext24(b)) + c;"),
    "v_mad_u32_u24": ("u", "uuu", "d = (a & 0xffffff) * (b & 0xffffff) + c;"),
    "v_mad_u16": ("w", "www", "d = a * b + c;"),
    "v_mad_i16": ("s", "sss", "d = a * b + c;"),
    "v_mad_u32_u16": ("u", "wwu", "d = CVT(a, V) * CVT(b, V) + c;"),
    "v_mad_i32_i16": ("i", "ssi", "d = CVT(a, VI) * CVT(b, VI) + c;"),
    "v_bfe_u32": ("u", "uuu", "d = bfe_u(a, b & 31, c);"),
    "v_bfe_i32": ("u", "uuu", "d = bfe_i(a, b, c);"),
    "v_bfi_b32": ("u", "uuu", "d = (a & b) | (~a & c);"),
    "v_bfm_b32": ("u", "uu", "d = ((SP(1) << (a & 31)) - 1) << (b & 31);"),
    "v_alignbit_b32": ("u", "uuu", "d = align_bit(a, b, c);"),
    "v_alignbyte_b32": ("u", "uuu", "d = align_bit(a, b, (c & 3) * 8);"),
    "v_perm_b32": ("u", "uuu", "d = byte_perm(a, b, c);"),
    "v_xad_u32": ("u", "uuu", "d = (a ^ b) + c;"),
    "v_xor3_b32": ("u", "uuu", "d = a ^ b ^ c;"),
    "v_or3_b32": ("u", "uuu", "d = a | b | c;"),
    "v_and_or_b32": ("u", "uuu", "d = (a & b) | c;"),
    "v_lshl_or_b32": ("u", "uuu", "d = shl_v(a, b) | c;"),
    "v_lshl_add_u32": ("u", "uuu", "d = shl_v(a, b) + c;"),
    "v_add_lshl_u32": ("u", "uuu", "d = shl_v(a + b, c);"),
    "v_add3_u32": ("u", "uuu", "d = a + b + c;"),
    "v_sad_u8": ("u", "uuu", "d = c; for (int i = 0; i < 32; i += 8) { V x = a >> i & 255, y = b >> i & 255;"
                             " d += MAX_V(x, y) - MIN_V(x, y); }"),
    "v_msad_u8": ("u", "uuu", "d = c; for (int i = 0; i < 32; i += 8) { V x = a >> i & 255, y = b >> i & 255;"
                              " d += (MAX_V(x, y) - MIN_V(x, y)) & (V)(VI)(y != 0); }"),
    "v_sad_u16": ("u", "uuu", "d = c; for (int i = 0; i < 32; i += 16) { V x = a >> i & 65535, y = b >> i & 65535;"
                              " d += MAX_V(x, y) - MIN_V(x, y); }"),
    "v_sad_u32": ("u", "uuu", "d = MAX_V(a, b) - MIN_V(a, b) + c;"),
    "v_sad_hi_u8": ("u", "uuu", "d = c; for (int i = 0; i < 32; i += 8) { V x = a >> i & 255, y = b >> i & 255;"
                                " d += (MAX_V(x, y) - MIN_V(x, y)) << 16; }"),
    "v_lerp_u8": ("u", "uuu", "d = SP(0); for (int i = 0; i < 32; i += 8)"
                              " d |= (((a >> i & 255) + (b >> i & 255) + (c >> i & 1)) >> 1) << i;"),
    "v_cvt_pk_u8_f32": ("u", "fuu", "V x = cvt_u_f(__builtin_elementwise_roundeven(a)), n = (b & 3) * 8;"
                                    " d = (c & ~(SP(255) << n)) | MIN_V(x, SP(255)) << n;"),
    "v_div_fixup_f32": ("f", "fff", "d = div_fixup_f(a, b, c);"),
    "v_div_fixup_f64": ("d", "ddd", "d = div_fixup_d(a, b, c);"),
    "v_div_fixup_f16": ("h", "hhh", "d = div_fixup_h(a, b, c);"),
    "v_div_fmas_f32": ("f", "fff", "d = div_fmas_f(a, b, c, vcc);"),
    "v_div_fmas_f64": ("d", "ddd", "d = div_fmas_d(a, b, c, vcc);"),
    "v_bcnt_u32_b32": ("u", "uu", "d = __builtin_elementwise_popcount(a) + b;"),
    "v_cvt_pk_i16_f32": ("u", "ff", "VI x = cvt_i_f(a), y = cvt_i_f(b); x = MIN_V(MAX_V(x, (VI)-32768), (VI)32767);"
                                    " y = MIN_V(MAX_V(y, (VI)-32768), (VI)32767); d = ((V)x & 0xffff) | (V)y << 16;"),
    "v_cvt_pk_u16_f32": ("u", "ff", "d = MIN_V(cvt_u_f(a), SP(65535)) | MIN_V(cvt_u_f(b), SP(65535)) << 16;"),
    "v_cvt_pk_norm_i16_f32": ("u", "ff", "VF x = med3_f(pick_f(isnan_f(a), (VF)0.0f, a), (VF)-1.0f, (VF)1.0f);"
                              " VF y = med3_f(pick_f(isnan_f(b), (VF)0.0f, b), (VF)-1.0f, (VF)1.0f);"
                              " d = ((V)cvt_i_f(__builtin_elementwise_roundeven(x * 32767.0f)) & 0xffff)"
                              " | (V)cvt_i_f(__builtin_elementwise_roundeven(y * 32767.0f)) << 16;"),
    "v_cvt_pk_norm_u16_f32": ("u", "ff", "d = cvt_u_f(__builtin_elementwise_roundeven(clamp_f(a) * 65535.0f))"
                                         " | cvt_u_f(__builtin_elementwise_roundeven(clamp_f(b) * 65535.0f)) << 16;"),
    "v_cvt_pk_u16_u32": ("u", "uu", "d = MIN_V(a, SP(65535)) | MIN_V(b, SP(65535)) << 16;"),
    "v_cvt_pk_i16_i32": ("u", "ii",
    "VI x = MIN_V(MAX_V(a, (VI)-32768), (VI)32767), y = MIN_V(MAX_V(b, (VI)-32768), (VI)32767);"
                                    " d = ((V)x & 0xffff) | (V)y << 16;"),
    "v_pack_b32_f16": ("u", "hh", "d = pack16((VS)a, (VS)b);"),
    "v_qsad_pk_u16_u8": ("q", "quq", "d = qsad_pk(a, b, c, 0);"),
    "v_mqsad_pk_u16_u8": ("q", "quq", "d = qsad_pk(a, b, c, 1);"),
    "v_cubeid_f32": ("f", "fff", "d = cube_id(a, b, c);"),
    "v_cubesc_f32": ("f", "fff", "d = cube_sc(a, b, c);"),
    "v_cubetc_f32": ("f", "fff", "d = cube_tc(a, b, c);"),
    "v_cubema_f32": ("f", "fff", "d = cube_ma(a, b, c);"),
    "v_med3_num_f32": ("f", "fff", "d = med3_f(a, b, c);"),
    "v_med3_num_f16": ("h", "hhh", "d = med3_h(a, b, c);"),
    "v_add_nc_u16": ("w", "ww", "d = a + b;"),
    "v_sub_nc_u16": ("w", "ww", "d = a - b;"),
    "v_add_nc_i16": ("s", "ss", "d = a + b;"),
    "v_sub_nc_i16": ("s", "ss", "d = a - b;"),
    "v_mul_lo_u16": ("w", "ww", "d = a * b;"),
}  # fmt: skip

for _i in range(4):
    OPS[f"v_cvt_f32_ubyte{_i}"] = ("f", "u", f"d = CVT(a >> {8 * _i} & 255, VF);")
for _t, _w in (("f", "f32"), ("h", "f16"), ("d", "f64")):
    for _name, _code in {"add": "a + b", "sub": "a - b", "subrev": "b - a", "mul": "a * b"}.items():
        OPS[f"v_{_name}_{_w}"] = (_t, _t * 2, f"d = {_code};")
    for _name in ("min", "max"):
        OPS[f"v_{_name}_num_{_w}"] = (_t, _t * 2, f"d = {_name}_{_t}(a, b);")
        OPS[f"v_{_name}imum_{_w}"] = (_t, _t * 2, f"d = {_name}imum_{_t}(a, b);")
        OPS[f"v_{_name}3_num_{_w}"] = (_t, _t * 3, f"d = {_name}_{_t}({_name}_{_t}(a, b), c);")
        OPS[f"v_{_name}imum3_{_w}"] = (_t, _t * 3, f"d = {_name}imum_{_t}({_name}imum_{_t}(a, b), c);")
    for _one, _two in (("min", "max"), ("max", "min")):
        OPS[f"v_{_one}{_two}_num_{_w}"] = (_t, _t * 3, f"d = {_two}_{_t}({_one}_{_t}(a, b), c);")
        OPS[f"v_{_one}imum{_two}imum_{_w}"] = (_t, _t * 3, f"d = {_two}imum_{_t}({_one}imum_{_t}(a, b), c);")
for _name, _c in {"trunc": "trunc", "ceil": "ceil", "floor": "floor", "rndne": "roundeven"}.items():
    for _t, _w in (("f", "f32"), ("d", "f64")):
        OPS[f"v_{_name}_{_w}"] = (_t, _t, f"d = __builtin_elementwise_{_c}(a);")
    OPS[f"v_{_name}_f16"] = ("h", "h", f"d = CVT(__builtin_elementwise_{_c}(CVT(a, VF)), VH);")
for _t, _w in (("i", "i32"), ("u", "u32"), ("s", "i16"), ("w", "u16")):
    for _name in ("min", "max"):
        OPS[f"v_{_name}_{_w}"] = (_t, _t * 2, f"d = {_name.upper()}_V(a, b);")
        OPS[f"v_{_name}3_{_w}"] = (_t, _t * 3, f"d = {_name.upper()}_V({_name.upper()}_V(a, b), c);")
    OPS[f"v_med3_{_w}"] = (_t, _t * 3, "d = MED_V(a, b, c);")
    OPS[f"v_minmax_{_w}"] = (_t, _t * 3, "d = MAX_V(MIN_V(a, b), c);")
    OPS[f"v_maxmin_{_w}"] = (_t, _t * 3, "d = MIN_V(MAX_V(a, b), c);")
for _name, _op in {"and": "&", "or": "|", "xor": "^"}.items():
    OPS[f"v_{_name}_b32"] = ("u", "uu", f"d = a {_op} b;")
    OPS[f"v_{_name}_b16"] = ("w", "ww", f"d = a {_op} b;")
# Scalar results of one float operation: the same functions, on the scalar unit's registers.
PSEUDO_SCALAR = {
    f"v_s_{_n}_{_w}": f"v_{_n}_{_w}" for _n in ("exp", "log", "rcp", "rsq", "sqrt") for _w in ("f32", "f16")
}

CLAMPED: dict[str, str] = {
    "v_add_nc_u32": "d = __builtin_elementwise_add_sat(a, b);",
    "v_sub_nc_u32": "d = __builtin_elementwise_sub_sat(a, b);",
    "v_subrev_nc_u32": "d = __builtin_elementwise_sub_sat(b, a);",
    "v_add_nc_i32": "d = (V)__builtin_elementwise_add_sat((VI)a, (VI)b);",
    "v_sub_nc_i32": "d = (V)__builtin_elementwise_sub_sat((VI)a, (VI)b);",
    "v_add_nc_u16": "d = __builtin_elementwise_add_sat(a, b);",
    "v_sub_nc_u16": "d = __builtin_elementwise_sub_sat(a, b);",
    "v_add_nc_i16": "d = __builtin_elementwise_add_sat(a, b);",
    "v_sub_nc_i16": "d = __builtin_elementwise_sub_sat(a, b);",
}

# VOP3SD: as above; the statements also set the lane mask `mask` that goes to sdst.
OPS_SD: dict[str, tuple[str, str, str]] = {
    "v_add_co_u32": ("u", "uu", "d = a + b; mask = bits_v((VI)(d < a));"),
    "v_sub_co_u32": ("u", "uu", "d = a - b; mask = bits_v((VI)(a < b));"),
    "v_subrev_co_u32": ("u", "uu", "d = b - a; mask = bits_v((VI)(b < a));"),
    "v_add_co_ci_u32": ("u", "uum", "V ci = lanes_v(c) & 1, t = a + b; d = t + ci;"
                                    " mask = bits_v((VI)(t < a) | (VI)(d < t));"),
    "v_sub_co_ci_u32": ("u", "uum", "V ci = lanes_v(c) & 1; d = a - b - ci;"
                                    " mask = bits_v((VI)(a < b) | ((VI)(a == b) & (VI)(ci != 0)));"),
    "v_subrev_co_ci_u32": ("u", "uum", "V ci = lanes_v(c) & 1; d = b - a - ci;"
                                       " mask = bits_v((VI)(b < a) | ((VI)(a == b) & (VI)(ci != 0)));"),
    "v_mad_co_u64_u32": ("q", "uuq", "d = CVT(a, VQ) * CVT(b, VQ) + c; mask = bits_q(d < c);"),
    "v_mad_co_i64_i32": ("l", "iil", "VL p = CVT(a, VL) * CVT(b, VL); d = p + c;"
                                     " VL over = (p ^ d) & (c ^ d); mask = bits_q((over < 0) ^ (d < 0));"),
    "v_div_scale_f32": ("f", "fff", "d = div_scale_f(a, b, c, &mask);"),
    "v_div_scale_f64": ("d", "ddd", "d = div_scale_d(a, b, c, &mask);"),
}  # fmt: skip

# The halves of a VOPD: the VOP2 or VOP1 instruction of the same name.
DUAL = {
    f"v_dual_{_n}": f"v_{_n}"
    for _n in ("fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32",
               "mov_b32", "cndmask_b32", "max_num_f32", "min_num_f32", "add_nc_u32", "lshlrev_b32", "and_b32")
}  # fmt: skip
DUAL_DOT2 = {"v_dual_dot2acc_f32_f16": "f16", "v_dual_dot2acc_f32_bf16": "bf16"}

_COMPARE = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">="}
# Suffix of v_cmp and v_cmpx → (source type, condition as a vector of 0 and -1).
COMPARES: dict[str, tuple[str, str]] = {}
for _t, _w in (("s", "i16"), ("w", "u16"), ("i", "i32"), ("u", "u32"), ("l", "i64"), ("q", "u64")):
    for _name, _op in _COMPARE.items():
        COMPARES[f"{_name}_{_w}"] = (_t, f"a {_op} b")
for _t, _w in (("f", "f32"), ("h", "f16"), ("d", "f64")):
    for _name, _op in _COMPARE.items():
        if _name == "ne":
            continue
        COMPARES[f"{_name}_{_w}"] = (_t, f"a {_op} b")
        COMPARES[f"n{_name}_{_w}"] = (_t, f"~(a {_op} b)")
    COMPARES[f"lg_{_w}"] = (_t, "(a < b) | (a > b)")
    COMPARES[f"nlg_{_w}"] = (_t, "~((a < b) | (a > b))")
    COMPARES[f"o_{_w}"] = (_t, "(a == a) & (b == b)")
    COMPARES[f"u_{_w}"] = (_t, "(a != a) | (b != b)")
