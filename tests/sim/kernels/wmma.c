// Matrix steps of 16 x 16 x 16: one wave a tile.
#include "gfx.h"

// D = A B + C with A [16][16], B stored by columns [16][16], C and D [16][16] row by row.
#define TILE_LOOP(d, expr) \
    for (i32 j = 0; j < 8; j++) d[(u32)((j + 8 * (i32)(lane() / 16)) * 16) + lane() % 16] = expr

KERNEL(32) wmma_i8(const i32x2 *a, const i32x2 *b, const i32 *c, i32 *d, i32 tiles) {
    u32 row = lane() % 16, half = lane() / 16, column = lane() % 16;
    i32x8 acc;
    for (i32 j = 0; j < 8; j++) acc[j] = c[(u32)(j + 8 * (i32)half) * 16 + column];
    for (i32 t = 0; t < tiles; t++) {
        i32x2 x = a[(row * (u32)tiles + (u32)t) * 2 + half], y = b[(row * (u32)tiles + (u32)t) * 2 + half];
        acc = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, acc, false);
    }
    TILE_LOOP(d, acc[j]);
}

KERNEL(32) wmma_signs(const i32x2 *a, const i32x2 *b, i32 *d) {
    i32x2 x = a[lane() % 16 * 2 + lane() / 16], y = b[lane() % 16 * 2 + lane() / 16];
    i32x8 big = {0x7fffff00, 0x7fffff00, -0x7fffff00, -0x7fffff00, 0x7fffff00, 0x7fffff00, -0x7fffff00, 0};
    i32x8 zero = {0};
    i32x8 uu = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(false, x, false, y, zero, false);
    i32x8 su = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, false, y, zero, false);
    i32x8 us = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(false, x, true, y, zero, false);
    i32x8 clamped = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, big, true);
    i32x8 small = __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32_gfx12(true, x.x, false, y.x, zero, false);
    i32x8 longer = __builtin_amdgcn_wmma_i32_16x16x32_iu4_w32_gfx12(true, x, true, y, zero, false);
    TILE_LOOP(d, uu[j]);
    TILE_LOOP((d + 256), su[j]);
    TILE_LOOP((d + 512), us[j]);
    TILE_LOOP((d + 768), clamped[j]);
    TILE_LOOP((d + 1024), small[j]);
    TILE_LOOP((d + 1280), longer[j]);
}

KERNEL(32) wmma_f16(const f16x8 *a, const f16x8 *b, const f32 *c, f32 *d, i32 tiles) {
    u32 row = lane() % 16, half = lane() / 16, column = lane() % 16;
    f32x8 acc;
    for (i32 j = 0; j < 8; j++) acc[j] = c[(u32)(j + 8 * (i32)half) * 16 + column];
    for (i32 t = 0; t < tiles; t++)
        acc = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a[(row * (u32)tiles + (u32)t) * 2 + half],
                                                               b[(row * (u32)tiles + (u32)t) * 2 + half], acc);
    TILE_LOOP(d, acc[j]);
}

KERNEL(32) wmma_f16_acc(const f16x8 *a, const f16x8 *b, f16 *d) {
    f16x8 zero = {0};
    f16x8 acc = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32_gfx12(a[lane() % 16 * 2 + lane() / 16],
                                                                 b[lane() % 16 * 2 + lane() / 16], zero);
    TILE_LOOP(d, acc[j]);
}

KERNEL(32) wmma_bf16(const i16x8 *a, const i16x8 *b, f32 *d) {
    typedef VECTOR(__bf16, 8) bf16x8;
    f32x8 zero = {0};
    bf16x8 x = __builtin_bit_cast(bf16x8, a[lane() % 16 * 2 + lane() / 16]);
    bf16x8 y = __builtin_bit_cast(bf16x8, b[lane() % 16 * 2 + lane() / 16]);
    f32x8 acc = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, zero);
    TILE_LOOP(d, acc[j]);
}

KERNEL(32) wmma_fp8(const i32x2 *a, const i32x2 *b, f32 *d) {
    f32x8 zero = {0};
    i32x2 x = a[lane() % 16 * 2 + lane() / 16], y = b[lane() % 16 * 2 + lane() / 16];
    f32x8 ff = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x, y, zero);
    f32x8 bf = __builtin_amdgcn_wmma_f32_16x16x16_bf8_fp8_w32_gfx12(x, y, zero);
    TILE_LOOP(d, ff[j]);
    TILE_LOOP((d + 256), bf[j]);
}

// C [m][n] = A [m][k] B^T [n][k] in int8, a workgroup of 4 waves a 32 x 32 tile, A and B staged in LDS.
KERNEL(128) matmul_i8(const u32x4 *a, const u32x4 *b, i32 *c, i32 n, i32 k) {
    LDS u32x4 ta[32 * 4], tb[32 * 4];
    u32 row0 = __builtin_amdgcn_workgroup_id_y() * 32, col0 = group() * 32;
    u32 my_row = wave() / 2 * 16, my_col = wave() % 2 * 16;
    i32x8 acc = {0};
    for (i32 at = 0; at < k; at += 64) {
        u32 r = thread() / 4, part = thread() % 4;
        ta[thread()] = a[((row0 + r) * (u32)k + (u32)at) / 16 + part];
        tb[thread()] = b[((col0 + r) * (u32)k + (u32)at) / 16 + part];
        barrier();
        for (u32 s = 0; s < 4; s++) {
            const __attribute__((address_space(3))) i32x2 *pa = (const __attribute__((address_space(3))) i32x2 *)ta;
            const __attribute__((address_space(3))) i32x2 *pb = (const __attribute__((address_space(3))) i32x2 *)tb;
            i32x2 x = pa[(my_row + lane() % 16) * 8 + s * 2 + lane() / 16];
            i32x2 y = pb[(my_col + lane() % 16) * 8 + s * 2 + lane() / 16];
            acc = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x, true, y, acc, false);
        }
        barrier();
    }
    for (u32 j = 0; j < 8; j++)
        c[(u64)(row0 + my_row + j + 8 * (lane() / 16)) * (u32)n + col0 + my_col + lane() % 16] = acc[j];
}
