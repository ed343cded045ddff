// Attention for one query, one workgroup a head, online softmax over segments of the keys; and RoPE.
#include "gfx.h"

#define DIM 64
#define WAVES 8

// q [heads][DIM], k and v f16 [keys][kv_heads][DIM], y [heads][DIM]. Each wave takes keys wave, wave + 8, ...; a lane
// holds two of the 64 values.
KERNEL(256) attention(const f32 *q, const f16 *k, const f16 *v, f32 *y, i32 keys, i32 kv_heads, i32 ratio, f32 scale) {
    LDS f32 peaks[WAVES], sums[WAVES], parts[WAVES][DIM];
    u32 head = group(), at = head / (u32)ratio * DIM + 2 * lane();
    f32 q0 = q[head * DIM + 2 * lane()] * scale, q1 = q[head * DIM + 2 * lane() + 1] * scale;
    f32 peak = -__builtin_inff(), sum = 0, a0 = 0, a1 = 0;
    for (i32 i = (i32)wave(); i < keys; i += WAVES) {
        u64 row = (u64)(u32)i * (u32)kv_heads * DIM + at;
        f16x2 key = *(const f16x2 *)(k + row), val = *(const f16x2 *)(v + row);
        f32 score = wave_sum(__builtin_fmaf(q0, (f32)key.x, q1 * (f32)key.y));
        f32 top = __builtin_fmaxf(peak, score);
        f32 old = exp2_fast((peak - top) * 1.44269504f), p = exp2_fast((score - top) * 1.44269504f);
        sum = __builtin_fmaf(sum, old, p);
        a0 = __builtin_fmaf(a0, old, p * (f32)val.x);
        a1 = __builtin_fmaf(a1, old, p * (f32)val.y);
        peak = top;
    }
    if (lane() == 0) {
        peaks[wave()] = peak;
        sums[wave()] = sum;
    }
    parts[wave()][2 * lane()] = a0;
    parts[wave()][2 * lane() + 1] = a1;
    barrier();
    if (thread() >= DIM) return;
    f32 top = peaks[0], total = 0, acc = 0;
    for (i32 w = 1; w < WAVES; w++) top = __builtin_fmaxf(top, peaks[w]);
    for (i32 w = 0; w < WAVES; w++) {
        f32 factor = peaks[w] == -__builtin_inff() ? 0 : exp2_fast((peaks[w] - top) * 1.44269504f);
        total = __builtin_fmaf(sums[w], factor, total);
        acc = __builtin_fmaf(parts[w][thread()], factor, acc);
    }
    y[head * DIM + thread()] = acc / total;
}

// Rotates pairs (i, i + half) of each head by a table of (cos, sin); one workgroup a head.
KERNEL(32) rope_table(f32 *x, const f32x2 *table, const i32 *pos, i32 half) {
    f32 *head = x + (u64)group() * 2 * (u32)half;
    const f32x2 *row = table + (u64)(u32)pos[group()] * (u32)half;
    for (i32 i = (i32)lane(); i < half; i += 32) {
        f32x2 cs = row[i];
        f32 a = head[i], b = head[i + half];
        head[i] = a * cs.x - b * cs.y;
        head[i + half] = a * cs.y + b * cs.x;
    }
}

// The same with the device's own sine and cosine, whose argument is in revolutions.
KERNEL(32) rope_sincos(f32 *x, const f32 *freq, f32 pos, i32 half) {
    f32 *head = x + (u64)group() * 2 * (u32)half;
    for (i32 i = (i32)lane(); i < half; i += 32) {
        f32 turns = __builtin_amdgcn_fractf(pos * freq[i] * 0.15915494f);
        f32 c = __builtin_amdgcn_cosf(turns), s = __builtin_amdgcn_sinf(turns);
        f32 a = head[i], b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = a * s + b * c;
    }
}
