// Matrix x vector on blocks of 32 int8 values with an F32 scale, as an engine's decode step does it.
#include "gfx.h"

typedef struct {
    f32 scale;
    u32 q[8];
} Block;

// One wave a row; lane l takes blocks l, l + 32, ...
KERNEL(128) matvec_q8(const Block *w, const Block *x, f32 *y, i32 rows, i32 blocks) {
    i32 row = (i32)(group() * 4 + wave());
    if (row >= rows) return;
    const Block *mine = w + (u64)(u32)row * (u32)blocks;
    f32 acc = 0;
    for (i32 b = (i32)lane(); b < blocks; b += 32) {
        i32 dot = 0;
        for (i32 i = 0; i < 8; i++) dot = dot4(mine[b].q[i], x[b].q[i], dot);
        acc = __builtin_fmaf((f32)dot, mine[b].scale * x[b].scale, acc);
    }
    acc = wave_sum(acc);
    if (lane() == 0) y[row] = acc;
}

// Same rows, quants apart from scales so that loads are 16 bytes wide, activations in LDS.
KERNEL(256) matvec_lds(const u32x4 *q, const f32 *d, const u32x4 *xq, const f32 *xd, f32 *y, i32 rows, i32 blocks,
                       i32 groups) {
    LDS u32x4 act[2 * 256];
    LDS f32 scale[256];
    for (i32 i = (i32)thread(); i < 2 * blocks; i += 256) act[i] = xq[i];
    for (i32 i = (i32)thread(); i < blocks; i += 256) scale[i] = xd[i];
    barrier();
    for (i32 row = (i32)(group() * 8 + wave()); row < rows; row += 8 * groups) {
        f32 acc = 0;
        for (i32 b = (i32)lane(); b < blocks; b += 32) {
            u64 at = (u64)(u32)row * (u32)blocks + (u32)b;
            u32x4 a0 = __builtin_nontemporal_load(q + 2 * at), a1 = __builtin_nontemporal_load(q + 2 * at + 1);
            u32x4 b0 = act[2 * b], b1 = act[2 * b + 1];
            i32 dot = 0;
            for (i32 i = 0; i < 4; i++) dot = dot4(a0[i], b0[i], dot4(a1[i], b1[i], dot));
            acc = __builtin_fmaf((f32)dot, d[at] * scale[b], acc);
        }
        acc = wave_sum(acc);
        if (lane() == 0) y[row] = acc;
    }
}

// Nothing but dot4 in a long loop: what the speed of the simulator is measured with.
KERNEL(256) dot4_loop(const u32 *a, const u32 *b, i32 *out, i32 steps) {
    u32 at = group() * 256 + thread();
    i32 s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    u32 x = a[at], y = b[at];
    for (i32 i = 0; i < steps; i++) {
        s0 = dot4(x, y, s0);
        s1 = dot4(x ^ 0x01010101, y, s1);
        s2 = dot4(x, y ^ 0x02020202, s2);
        s3 = dot4(x ^ (u32)s0, y ^ (u32)s1, s3);
        x = (x << 3) | (x >> 29);
        y += 0x01020304;
    }
    out[at] = s0 ^ s1 ^ s2 ^ s3;
}
