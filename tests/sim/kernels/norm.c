// Row-wise normalisations with reductions through LDS.
#include "gfx.h"

INLINE f32 group_sum(f32 x, __attribute__((address_space(3))) f32 *parts) {
    x = wave_sum(x);
    if (lane() == 0) parts[wave()] = x;
    barrier();
    f32 total = 0;
    for (i32 i = 0; i < 8; i++) total += parts[i];
    barrier();
    return total;
}

KERNEL(256) rmsnorm(const f32 *x, const f32 *w, f32 *y, i32 n, f32 eps) {
    LDS f32 parts[8];
    const f32 *in = x + (u64)group() * (u32)n;
    f32 *out = y + (u64)group() * (u32)n;
    f32 sum = 0;
    for (i32 i = (i32)thread(); i < n; i += 256) sum = __builtin_fmaf(in[i], in[i], sum);
    f32 scale = 1.0f / __builtin_sqrtf(group_sum(sum, parts) / (f32)n + eps);
    for (i32 i = (i32)thread(); i < n; i += 256) out[i] = in[i] * scale * w[i];
}

KERNEL(256) layernorm_f16(const f16 *x, f16 *y, i32 n) {
    LDS f32 parts[8];
    const f16 *in = x + (u64)group() * (u32)n;
    f32 sum = 0, square = 0;
    for (i32 i = (i32)thread(); i < n; i += 256) sum += (f32)in[i];
    f32 mean = group_sum(sum, parts) / (f32)n;
    for (i32 i = (i32)thread(); i < n; i += 256) square += ((f32)in[i] - mean) * ((f32)in[i] - mean);
    f32 inverse = __builtin_amdgcn_rsqf(group_sum(square, parts) / (f32)n + 1e-5f);
    for (i32 i = (i32)thread(); i < n; i += 256) y[(u64)group() * (u32)n + (u32)i] = (f16)(((f32)in[i] - mean) * inverse);
}

KERNEL(256) softmax(const f32 *x, f32 *y, i32 n) {
    LDS f32 parts[8];
    LDS f32 peaks[8];
    const f32 *in = x + (u64)group() * (u32)n;
    f32 *out = y + (u64)group() * (u32)n;
    f32 peak = -__builtin_inff();
    for (i32 i = (i32)thread(); i < n; i += 256) peak = __builtin_fmaxf(peak, in[i]);
    peak = wave_max(peak);
    if (lane() == 0) peaks[wave()] = peak;
    barrier();
    for (i32 i = 0; i < 8; i++) peak = __builtin_fmaxf(peak, peaks[i]);
    f32 sum = 0;
    for (i32 i = (i32)thread(); i < n; i += 256) sum += exp2_fast((in[i] - peak) * 1.44269504f);
    sum = group_sum(sum, parts);
    for (i32 i = (i32)thread(); i < n; i += 256) out[i] = exp2_fast((in[i] - peak) * 1.44269504f) / sum;
}

// Quantises blocks of 32 values to int8 with an F32 scale; one lane a value. Exact: nearest even, ties included.
KERNEL(128) quantize_q8(const f32 *x, i8 *q, f32 *d, i32 blocks) {
    i32 block = (i32)(group() * 4 + wave());
    if (block >= blocks) return;
    u64 at = (u64)(u32)block * 32 + lane();
    f32 v = x[at], amax = wave_max(__builtin_fabsf(v));
    f32 inverse = amax == 0 ? 0 : 127.0f / amax;
    q[at] = (i8)(i32)__builtin_rintf(v * inverse);
    if (lane() == 0) d[block] = amax / 127.0f;
}
