// Moving data: transposes through LDS in all widths, copies, gathers, flat addresses.
#include "gfx.h"

KERNEL(256) transpose_b32(const u32 *in, u32 *out, i32 rows, i32 columns) {
    LDS u32 tile[32][33];
    u32 x = thread() % 32, y = thread() / 32, row0 = __builtin_amdgcn_workgroup_id_y() * 32, col0 = group() * 32;
    for (u32 i = y; i < 32; i += 8)
        if (row0 + i < (u32)rows && col0 + x < (u32)columns) tile[i][x] = in[(row0 + i) * (u32)columns + col0 + x];
    barrier();
    for (u32 i = y; i < 32; i += 8)
        if (col0 + i < (u32)columns && row0 + x < (u32)rows) out[(col0 + i) * (u32)rows + row0 + x] = tile[x][i];
}

// A 16 x 16 tile of 8- and 16-byte elements.
KERNEL(256) transpose_wide(const u64 *in64, u64 *out64, const u32x4 *in128, u32x4 *out128) {
    LDS u64 a[256];
    LDS u32x4 b[256];
    u32 t = thread(), back = t % 16 * 16 + t / 16;
    a[t] = in64[t];
    b[t] = in128[t];
    barrier();
    out64[t] = a[back];
    out128[t] = b[back];
}

// Two elements an instruction, near ones and ones 64 elements apart; bytes and halves too.
KERNEL(64) lds_pairs(const u32 *in, u32 *out, u8 *bytes, u16 *halves) {
    LDS u32 word[512];
    LDS u64 pair[256];
    LDS u8 byte[256];
    LDS u16 half[128];
    LDS u32x3 triple[64];
    u32 t = thread(), x = in[t];
    word[t] = x, word[t + 64] = x + 1;
    word[t + 128] = x + 2, word[t + 320] = x + 3;
    pair[2 * t] = x, pair[2 * t + 1] = (u64)x << 9;
    pair[t + 128] = x * 5ul, pair[t + 192] = x * 7ul;
    byte[t * 4 + 1] = (u8)x, byte[t * 4 + 3] = (u8)(x >> 8);
    half[t * 2 + 1] = (u16)x;
    half[t * 2] = (u16)(x >> 16);
    triple[t] = (u32x3){x, x * 2, x * 3};
    barrier();
    u32 r = 63 - t;
    u32x3 three = triple[r];
    out[t] = word[r] + 3 * word[r + 64] + 5 * word[r + 128] + 7 * word[r + 320];
    out[64 + t] = (u32)((pair[2 * r] + pair[2 * r + 1]) >> 3) + (u32)(pair[r + 128] ^ pair[r + 192]);
    out[128 + t] = three.x + three.y * 3 + three.z * 5;
    bytes[t] = (u8)(byte[r * 4 + 1] + 2 * byte[r * 4 + 3]);
    halves[t] = (u16)(half[r * 2 + 1] ^ half[r * 2]);
    out[192 + t] = (u32)(i32)(i8)byte[r * 4 + 1] + (u32)(i32)(i16)half[r * 2];
}

KERNEL(64) copy_widths(const u8 *in, u8 *out, u32 n) {
    u32 at = group() * 64 + thread();
    out[at] = in[at];
    ((u16 *)(out + n))[at] = (u16)(((const i16 *)(in + n))[at] + 1);
    ((u32 *)(out + 4 * n))[at] = (u32)((const i8 *)in)[at];
    ((u64 *)(out + 8 * n))[at] = ((const u64 *)(in + 8 * n))[at];
    typedef struct { u32 a, b, c; } Three;
    Three t = ((const Three *)(in + 16 * n))[at];
    ((Three *)(out + 16 * n))[at] = (Three){t.c, t.a, t.b};
    __builtin_nontemporal_store(__builtin_nontemporal_load((const u32x4 *)(in + 32 * n) + at), (u32x4 *)(out + 32 * n) + at);
    typedef u32 __attribute__((aligned(1))) loose;
    *(loose *)(out + 48 * n + 5 * at) = *(const loose *)(in + 48 * n + 5 * at) ^ 0x01020304;
    out[48 * n + 5 * at + 4] = 9;
}

// d16 loads: two bytes or halves land in the two halves of a register.
KERNEL(64) d16_loads(const u8 *b, const u16 *h, u16 *back, u16x2 *out, u32 n) {
    u32 at = group() * 64 + thread();
    out[at] = (u16x2){h[2 * at + 1], h[2 * at]};
    out[n + at] = (u16x2){b[at], b[n - 1 - at]};
    out[2 * n + at] = (u16x2){(u16)(i16)((const i8 *)b)[at], (u16)(i16)((const i8 *)b)[at + n]};
    u16x2 v = out[3 * n + at];
    back[2 * at] = v.y;
    back[2 * at + 1] = v.x;
}

// Pointers whose address space is known at run time only: LDS, scratch and global memory through flat instructions.
NOINLINE u32 sum4(const u32 *p) { return p[0] + 3 * p[1] + 5 * p[2] + 7 * p[3]; }
NOINLINE void put(u32 *p, u32 x) { *p = x; }

KERNEL(64) flat(const u32 *in, u32 *out) {
    LDS u32 shared[68];
    u32 own[8], t = thread();
    for (u32 i = 0; i < 8; i++) own[i] = in[t] * (i + 1);
    put(&own[in[t] & 3], 11);
    put((u32 *)&shared[t], in[t] + 1);
    if (t < 4) put((u32 *)&shared[64 + t], t);
    barrier();
    const u32 *p = t % 3 == 0 ? (const u32 *)&shared[t] : t % 3 == 1 ? own : in + t % 32;
    out[t] = sum4(p);
    barrier();
    __scoped_atomic_fetch_add(t % 2 ? (u32 *)&shared[0] : out + 64, 1, __ATOMIC_RELAXED, DEVICE);
    barrier();
    if (t == 0) out[65] = shared[0];
}

// Rows of 32 four-bit weights picked by index, scale in f16.
KERNEL(32) gather_q4(const u8 *table, const i32 *ids, f32 *out, i32 width) {
    typedef struct { f16 scale; u8 q[16]; } Block;
    const Block *row = (const Block *)table + (u64)(u32)ids[group()] * (u32)(width / 32);
    for (i32 b = 0; b < width / 32; b++) {
        u32 q = row[b].q[lane() % 16];
        i32 v = (i32)(lane() < 16 ? q & 15 : q >> 4) - 8;
        out[(u64)group() * (u32)width + (u32)b * 32 + lane()] = (f32)v * (f32)row[b].scale;
    }
}

KERNEL(256) bitonic_sort(u32 *x) {
    LDS u32 s[512];
    s[thread()] = x[group() * 512 + thread()];
    s[thread() + 256] = x[group() * 512 + thread() + 256];
    for (u32 k = 2; k <= 512; k *= 2)
        for (u32 j = k / 2; j; j /= 2) {
            barrier();
            u32 i = 2 * j * (thread() / j) + thread() % j, a = s[i], b = s[i + j];
            if ((a > b) == !(i & k)) s[i] = b, s[i + j] = a;
        }
    barrier();
    x[group() * 512 + thread()] = s[thread()];
    x[group() * 512 + thread() + 256] = s[thread() + 256];
}
