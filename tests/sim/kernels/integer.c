// Integer arithmetic of 16, 32 and 64 bits.
#include "gfx.h"

KERNEL(64) div32(const u32 *a, const u32 *b, u32 *out, u32 n) {
    u32 at = group() * 64 + thread(), x = a[at], y = b[at];
    out[0 * n + at] = x / y;
    out[1 * n + at] = x % y;
    out[2 * n + at] = (u32)((i32)x / (i32)(y | 1 << 20));
    out[3 * n + at] = (u32)((i32)x % (i32)(y | 1 << 20));
    out[4 * n + at] = x / 7;
    out[5 * n + at] = (u32)((i32)x / 10);
    out[6 * n + at] = (u32)((u16)x / (u16)(y | 1));
}

KERNEL(64) div64(const u64 *a, const u64 *b, u64 *out, u32 n) {
    u32 at = group() * 64 + thread();
    u64 x = a[at], y = b[at];
    out[0 * n + at] = x / y;
    out[1 * n + at] = x % y;
    out[2 * n + at] = (u64)((i64)x / (i64)(y | 1l << 40));
    out[3 * n + at] = (u64)((i64)x % (i64)(y | 1l << 40));
}

KERNEL(64) wide64(const u64 *a, const u64 *b, u64 *out, u32 n) {
    u32 at = group() * 64 + thread();
    u64 x = a[at], y = b[at];
    out[0 * n + at] = x + y;
    out[1 * n + at] = x - y;
    out[2 * n + at] = x * y;
    out[3 * n + at] = x << (y & 63);
    out[4 * n + at] = x >> (y & 63);
    out[5 * n + at] = (u64)((i64)x >> (y & 63));
    out[6 * n + at] = (x < y) + 2 * ((i64)x < (i64)y) + 4 * (x == y) + 8 * (x >= y);
    out[7 * n + at] = (u64)(((unsigned __int128)x * y) >> 64);
    out[8 * n + at] = (u64)(u32)x * (u32)y + (x >> 32);
    out[9 * n + at] = (u64)((i64)(i32)x * (i32)y + (i64)y);
    out[10 * n + at] = (x & y) | (~x & (y >> 1));
    out[11 * n + at] = (u64)(__builtin_popcountl(x) + 100 * __builtin_clzl(x | 1) + 10000 * __builtin_ctzl(y | 1l << 63));
    out[12 * n + at] = x > y ? x : y;
}

KERNEL(64) bits(const u32 *a, const u32 *b, u32 *out, u32 n) {
    u32 at = group() * 64 + thread(), x = a[at], y = b[at];
    out[0 * n + at] = (u32)__builtin_popcount(x) + y;
    out[1 * n + at] = x ? (u32)__builtin_clz(x) : 32;
    out[2 * n + at] = x ? (u32)__builtin_ctz(x) : 32;
    out[3 * n + at] = __builtin_bitreverse32(x);
    out[4 * n + at] = __builtin_amdgcn_ubfe(x, y & 31, 7);
    out[5 * n + at] = (u32)__builtin_amdgcn_sbfe((i32)x, y & 31, 9);
    out[6 * n + at] = (u32)(((u64)x * y) >> 32);
    out[7 * n + at] = (u32)((i32)(((i64)(i32)x * (i32)y) >> 32));
    out[8 * n + at] = __builtin_amdgcn_perm(x, y, 0x0c050107);
    out[9 * n + at] = __builtin_amdgcn_alignbit(x, y, x & 31);
    out[10 * n + at] = __builtin_amdgcn_alignbyte(x, y, y & 3);
    out[11 * n + at] = __builtin_bswap32(x);
    out[12 * n + at] = (x & y) | (~x & 0x12345678);
    out[13 * n + at] = __builtin_amdgcn_sad_u8(x, y, 5);
    out[14 * n + at] = (x << 5) + y;
    out[15 * n + at] = ((x + y) << 3) ^ (x | y);
    out[16 * n + at] = __builtin_elementwise_add_sat(x, y);
    out[17 * n + at] = (u32)__builtin_elementwise_sub_sat((i32)x, (i32)y);
    i32 lo = (i32)x < (i32)y ? (i32)x : (i32)y, hi = (i32)x < (i32)y ? (i32)y : (i32)x;
    out[18 * n + at] = (u32)(lo > 1000 ? lo : hi < 1000 ? hi : 1000);
    out[19 * n + at] = (x << (y & 31)) | ((u32)((i32)x >> (y & 31)));
    out[20 * n + at] = __builtin_rotateleft32(x, y & 31);
    out[21 * n + at] = (x & 0xffffff) * (y & 0xffffff) + (u32)(((i32)(x << 8) >> 8) * ((i32)(y << 8) >> 8));
    out[22 * n + at] = __builtin_amdgcn_msad_u8(x, y, 9);
    out[23 * n + at] = __builtin_amdgcn_lerp(x, y, 0x01000100);
}

KERNEL(64) packed16(const u16x2 *a, const u16x2 *b, u16x2 *out, u32 n) {
    u32 at = group() * 64 + thread();
    u16x2 x = a[at], y = b[at];
    i16x2 sx = __builtin_bit_cast(i16x2, x), sy = __builtin_bit_cast(i16x2, y);
    out[0 * n + at] = x + y;
    out[1 * n + at] = x - y;
    out[2 * n + at] = x * y + x;
    out[3 * n + at] = __builtin_elementwise_min(x, y);
    out[4 * n + at] = __builtin_elementwise_max(x, y);
    out[5 * n + at] = __builtin_bit_cast(u16x2, __builtin_elementwise_min(sx, sy));
    out[6 * n + at] = __builtin_bit_cast(u16x2, __builtin_elementwise_max(sx, sy));
    out[7 * n + at] = x << (y & (u16)15);
    out[8 * n + at] = x >> (y & (u16)15);
    out[9 * n + at] = __builtin_bit_cast(u16x2, sx >> (sy & (i16)15));
    out[10 * n + at] = __builtin_elementwise_add_sat(x, y);
    out[11 * n + at] = __builtin_bit_cast(u16x2, __builtin_elementwise_sub_sat(sx, sy));
    out[12 * n + at] = (u16x2){x.y, y.x};
}

// Uniform values: the scalar unit does it. SALU arithmetic of integers and of floats.
KERNEL(32) uniform(const u32 *in, u32 *out, u32 n, f32 scale) {
    u32 hash = n, small = ~0u;
    u64 wide = n;
    f32 sum = 0, peak = 0;
    for (u32 i = 0; i < n; i++) {
        u32 x = in[i];
        hash = (hash ^ x) * 16777619u + (hash >> 7);
        small = x < small ? x : small;
        wide = wide * 6364136223846793005ul + x;
        if (x & 1) wide ^= wide >> 29;
        f32 f = (f32)(i32)x * scale;
        sum = __builtin_fmaf(f, 0.5f, sum) + (f > 1.0f ? 1.0f : f);
        peak = __builtin_fmaxf(peak, __builtin_fabsf(f));
        hash += (u32)__builtin_popcount(x) + (x > 5 ? (u32)__builtin_clz(x) : 0);
    }
    if (lane()) return;
    out[0] = hash;
    out[1] = small;
    out[2] = (u32)wide;
    out[3] = (u32)(wide >> 32);
    out[4] = as_u32(sum);
    out[5] = as_u32(peak);
    out[6] = (u32)(i32)(sum * 4.0f);
    out[7] = as_u32(__builtin_floorf(sum) + __builtin_ceilf(peak) - __builtin_truncf(scale));
}
