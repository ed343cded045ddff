// Sixteen-bit arithmetic: packed, scalar, mixed with F32, dot products, conversions of eight-bit floats.
#include "gfx.h"

KERNEL(64) f16_packed(const f16x2 *a, const f16x2 *b, const f16x2 *c, f16x2 *out, u32 n) {
    u32 at = group() * 64 + thread();
    f16x2 x = a[at], y = b[at], z = c[at];
    out[0 * n + at] = x + y;
    out[1 * n + at] = x * y;
    out[2 * n + at] = __builtin_elementwise_fma(x, y, z);
    out[3 * n + at] = __builtin_elementwise_min(x, y);
    out[4 * n + at] = __builtin_elementwise_max(x, y);
    out[5 * n + at] = x - y.yx;
    out[6 * n + at] = -x * y.xx;
    out[7 * n + at] = (f16x2){x.x, y.y} + __builtin_elementwise_abs(z);
}

KERNEL(64) f16_scalar(const f16 *a, const f16 *b, f16 *out, u32 n) {
    u32 at = group() * 64 + thread();
    f16 x = a[at], y = b[at];
    out[0 * n + at] = x + y;
    out[1 * n + at] = x * y;
    out[2 * n + at] = __builtin_fmaf16(x, y, (f16)1);
    out[3 * n + at] = x > y ? x : (f16)-y;
    out[4 * n + at] = __builtin_floorf16(x);
    out[5 * n + at] = __builtin_rintf16(x);
    out[6 * n + at] = __builtin_fabsf16(x) - y;
    out[7 * n + at] = __builtin_truncf16(y);
    out[8 * n + at] = __builtin_ceilf16(y);
    out[9 * n + at] = (f16)(i16)(__builtin_fabsf16(x) < (f16)1000 ? x : (f16)3);
    out[10 * n + at] = (f16)(u16)__builtin_bit_cast(u16, x);
    out[11 * n + at] = __builtin_amdgcn_fmed3h(x, y, (f16)0.5);
}

// Products of f16 in F32: v_fma_mix with either half.
KERNEL(64) f16_mixed(const f16x2 *a, const f16x2 *b, f32 *out, f16x2 *narrow, u32 n) {
    u32 at = group() * 64 + thread();
    f16x2 x = a[at], y = b[at];
    f32 s = out[at];
    out[at] = __builtin_fmaf((f32)x.x, (f32)y.x, s);
    out[n + at] = __builtin_fmaf((f32)x.y, (f32)y.y, (f32)x.x);
    out[2 * n + at] = __builtin_fmaf(-(f32)x.y, s, __builtin_fabsf((f32)y.x));
    narrow[at] = (f16x2){(f16)__builtin_fmaf((f32)x.x, (f32)y.y, s), (f16)__builtin_fmaf((f32)x.y, s, (f32)y.x)};
}

KERNEL(64) dots(const u32 *a, const u32 *b, const i32 *c, i32 *out, u32 n) {
    u32 at = group() * 64 + thread();
    i32 x = (i32)a[at], y = (i32)b[at], z = c[at];
    out[0 * n + at] = __builtin_amdgcn_sudot4(true, x, true, y, z, false);
    out[1 * n + at] = __builtin_amdgcn_sudot4(true, x, false, y, z, false);
    out[2 * n + at] = __builtin_amdgcn_sudot4(false, x, true, y, z, true);
    out[3 * n + at] = (i32)__builtin_amdgcn_udot4((u32)x, (u32)y, (u32)z, false);
    out[4 * n + at] = (i32)__builtin_amdgcn_udot4((u32)x, (u32)y, (u32)z, true);
    out[5 * n + at] = __builtin_amdgcn_sudot8(true, x, true, y, z, false);
    out[6 * n + at] = __builtin_amdgcn_sudot8(false, x, true, y, z, true);
    out[7 * n + at] = (i32)__builtin_amdgcn_udot8((u32)x, (u32)y, (u32)z, false);
}

KERNEL(64) dot_halves(const f16x2 *a, const f16x2 *b, const f32 *c, f32 *out) {
    u32 at = group() * 64 + thread();
    out[at] = __builtin_amdgcn_fdot2(a[at], b[at], c[at], false);
}

// Sums of products of eight-bit floats and of bfloat16.
KERNEL(64) dot_small(const u32 *a, const u32 *b, const f32 *c, f32 *out, u32 n) {
    typedef VECTOR(__bf16, 2) bf16x2;
    u32 at = group() * 64 + thread();
    out[0 * n + at] = __builtin_amdgcn_dot4_f32_fp8_fp8(a[at], b[at], c[at]);
    out[1 * n + at] = __builtin_amdgcn_dot4_f32_fp8_bf8(a[at], b[at], c[at]);
    out[2 * n + at] = __builtin_amdgcn_dot4_f32_bf8_fp8(a[at], b[at], c[at]);
    out[3 * n + at] = __builtin_amdgcn_dot4_f32_bf8_bf8(a[at], b[at], c[at]);
    bf16x2 x = __builtin_bit_cast(bf16x2, a[at]), y = __builtin_bit_cast(bf16x2, b[at]);
    out[4 * n + at] = __builtin_amdgcn_fdot2_f32_bf16(x, y, c[at], false);
}

KERNEL(64) fp8(const u32 *in, const f32 *x, f32 *out, u32 *packed, u32 n) {
    u32 at = group() * 64 + thread();
    i32 v = (i32)in[at];
    out[0 * n + at] = __builtin_amdgcn_cvt_f32_fp8(v, 0);
    out[1 * n + at] = __builtin_amdgcn_cvt_f32_fp8(v, 3);
    out[2 * n + at] = __builtin_amdgcn_cvt_f32_bf8(v, 1);
    f32x2 pair = __builtin_amdgcn_cvt_pk_f32_fp8(v, true);
    out[3 * n + at] = pair.x;
    out[4 * n + at] = pair.y;
    pair = __builtin_amdgcn_cvt_pk_f32_bf8(v, false);
    out[5 * n + at] = pair.x;
    out[6 * n + at] = pair.y;
    packed[at] = (u32)__builtin_amdgcn_cvt_pk_fp8_f32(x[at], -x[at], 0, false);
    packed[n + at] = (u32)__builtin_amdgcn_cvt_pk_bf8_f32(x[at], x[at] * 0.5f, v, true);
}
