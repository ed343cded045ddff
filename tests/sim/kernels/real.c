// Floats: element-wise F32 with divergence, F64, conversions, the less usual instructions.
#include "gfx.h"

INLINE f32 exp_poly(f32 x) {
    f32 k = __builtin_rintf(x * 1.44269504f);
    f32 r = __builtin_fmaf(k, -1.42860677e-6f, __builtin_fmaf(k, -0.693145752f, x));
    f32 p = 1.98756915e-4f;
    p = __builtin_fmaf(p, r, 1.39819994e-3f);
    p = __builtin_fmaf(p, r, 8.33345205e-3f);
    p = __builtin_fmaf(p, r, 4.16657962e-2f);
    p = __builtin_fmaf(p, r, 1.66666657e-1f);
    p = __builtin_fmaf(p, r, 0.5f);
    p = __builtin_fmaf(p, r * r, r) + 1.0f;
    return as_f32((u32)((i32)k + 127) << 23) * p;
}

// silu(gate) * up for a ragged length: exact, since only basic operations decide it.
KERNEL(128) swiglu(const f32 *gate, const f32 *up, f32 *out, i32 n) {
    i32 at = (i32)(group() * 128 + thread());
    if (at >= n) return;
    f32 g = gate[at];
    f32 e = g < -80.0f ? 0.0f : g > 80.0f ? 1e30f : exp_poly(g);
    out[at] = g * (e / (1.0f + e)) * up[at];
}

KERNEL(64) f32_forms(const f32 *a, const f32 *b, f32 *out, u32 n) {
    u32 at = group() * 64 + thread();
    f32 x = a[at], y = b[at];
    out[0 * n + at] = x / y;
    out[1 * n + at] = __builtin_sqrtf(__builtin_fabsf(x));
    out[2 * n + at] = __builtin_floorf(x) + __builtin_ceilf(y);
    out[3 * n + at] = __builtin_truncf(x) - __builtin_rintf(y);
    out[4 * n + at] = __builtin_copysignf(x, y);
    out[5 * n + at] = __builtin_fmaf(-x, y, -1.0f);
    out[6 * n + at] = __builtin_fminf(x, y);
    out[7 * n + at] = __builtin_fmaxf(__builtin_fabsf(x), -y);
    out[8 * n + at] = __builtin_amdgcn_fmed3f(x, y, 1.0f);
    out[9 * n + at] = __builtin_amdgcn_ldexpf(x, (i32)as_u32(y) & 15);
    out[10 * n + at] = x < y ? x : x == y ? 7.0f : x != x ? 8.0f : y;
    f32 c = x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x;
    out[11 * n + at] = c;
    out[12 * n + at] = (x + y) * 2.0f;
    out[13 * n + at] = __builtin_amdgcn_frexp_mantf(x);
    out[14 * n + at] = (f32)__builtin_amdgcn_frexp_expf(x);
    out[15 * n + at] = __builtin_amdgcn_classf(x, 0x3) ? 1.0f : __builtin_amdgcn_classf(x, 0x90) ? 2.0f : 0.0f;
    out[16 * n + at] = __builtin_amdgcn_fractf(x);
}

KERNEL(64) f32_approx(const f32 *a, f32 *out, u32 n) {
    u32 at = group() * 64 + thread();
    f32 x = a[at];
    out[0 * n + at] = __builtin_amdgcn_rcpf(x);
    out[1 * n + at] = __builtin_amdgcn_rsqf(x);
    out[2 * n + at] = __builtin_amdgcn_sqrtf(x);
    out[3 * n + at] = __builtin_amdgcn_exp2f(x * 0.125f);
    out[4 * n + at] = __builtin_amdgcn_logf(x);
    out[5 * n + at] = __builtin_amdgcn_sinf(x * 0.0625f);
    out[6 * n + at] = __builtin_amdgcn_cosf(x * 0.0625f);
}

KERNEL(64) f64_forms(const f64 *a, const f64 *b, f64 *out, u32 n) {
    u32 at = group() * 64 + thread();
    f64 x = a[at], y = b[at];
    out[0 * n + at] = x + y;
    out[1 * n + at] = x * y;
    out[2 * n + at] = __builtin_fma(x, y, 1.0);
    out[3 * n + at] = x / y;
    out[4 * n + at] = __builtin_sqrt(__builtin_fabs(x));
    out[5 * n + at] = __builtin_floor(x) - __builtin_trunc(y);
    out[6 * n + at] = x > y ? -x : __builtin_fmin(y, 3.0);
    out[7 * n + at] = (f64)(i32)(x < 1e9 && x > -1e9 ? x : 5.0) + (f64)(u32)at;
    out[8 * n + at] = (f64)(f32)x;
    out[9 * n + at] = (f64)(i64)(x < 1e15 && x > -1e15 ? x : 4.0);
    out[10 * n + at] = __builtin_rint(y) + __builtin_ceil(x);
}

KERNEL(64) conversions(const u32 *in, u32 *out, u32 n) {
    u32 at = group() * 64 + thread(), x = in[at];
    f32 f = as_f32(x);
    f32 tame = __builtin_fabsf(f) < 2e9f ? f : 12.5f;
    out[0 * n + at] = as_u32((f32)x);
    out[1 * n + at] = as_u32((f32)(i32)x);
    out[2 * n + at] = (u32)(i32)tame;
    out[3 * n + at] = (u32)(__builtin_fabsf(tame));
    out[4 * n + at] = as_u32((f32)(u8)x + (f32)(u8)(x >> 8));
    out[5 * n + at] = as_u32((f32)(u8)(x >> 16) - (f32)(u8)(x >> 24));
    out[6 * n + at] = __builtin_bit_cast(u16, (f16)f);
    out[7 * n + at] = as_u32((f32)__builtin_bit_cast(f16, (u16)x));
    out[8 * n + at] = (u32)(i32)(i8)x + (u32)(i32)(i16)(x >> 8);
    out[9 * n + at] = as_u32((f32)((u64)x << 13));
    out[10 * n + at] = as_u32((f32)((i64)(i32)x << 17));
    out[11 * n + at] = as_u32((f32)(f64)f);
    typedef VECTOR(__bf16, 2) bf16x2;
    bf16x2 narrow = {(__bf16)f, (__bf16)tame};
    out[12 * n + at] = __builtin_bit_cast(u32, narrow);
    out[13 * n + at] = as_u32((f32)narrow.x);
}

// f32 tile product through LDS, ragged edges.
KERNEL(256) matmul_f32(const f32 *a, const f32 *b, f32 *c, i32 m, i32 n, i32 k) {
    LDS f32 ta[16][17], tb[16][17];
    i32 x = (i32)thread() % 16, y = (i32)thread() / 16;
    i32 row = (i32)__builtin_amdgcn_workgroup_id_y() * 16 + y, col = (i32)group() * 16 + x;
    f32 acc = 0;
    for (i32 k0 = 0; k0 < k; k0 += 16) {
        ta[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0;
        tb[y][x] = col < n && k0 + y < k ? b[(k0 + y) * n + col] : 0;
        barrier();
        for (i32 i = 0; i < 16; i++) acc = __builtin_fmaf(ta[y][i], tb[i][x], acc);
        barrier();
    }
    if (row < m && col < n) c[row * n + col] = acc;
}
