// Private memory: arrays with a dynamic index, large and small, of several widths.
#include "gfx.h"

KERNEL(64) private_large(const u32 *in, u32 *out) {
    u32 buffer[200], at = group() * 64 + thread(), x = in[at];
    for (u32 i = 0; i < 200; i++) buffer[i] = x + i * i;
    for (u32 i = 0; i < 200; i++) buffer[(x + i * 7) % 200] ^= buffer[(x * 3 + i) % 200] + i;
    u32 sum = 0;
    for (u32 i = 0; i < 200; i++) sum = sum * 31 + buffer[i];
    out[at] = sum;
}

KERNEL(64) private_small(const u32 *in, u32 *out) {
    u32 at = group() * 64 + thread(), x = in[at], r[8];
    for (u32 i = 0; i < 8; i++) r[i] = x * (i + 1);
    r[x & 7] = 5;
    out[at] = r[(x >> 3) & 7] + r[(x >> 6) & 7];
}

// A uniform dynamic index.
KERNEL(64) private_uniform(const u32 *in, u32 *out, u32 which) {
    u32 at = group() * 64 + thread(), x = in[at], r[8];
    for (u32 i = 0; i < 8; i++) r[i] = x * (i + 1);
    r[which & 7] += 9;
    out[at] = r[(which >> 3) & 7] ^ r[(which >> 6) & 7];
}

KERNEL(64) private_bytes(const u8 *in, u8 *out) {
    u8 bytes[64];
    u16 words[32];
    u32 at = group() * 64 + thread();
    for (u32 i = 0; i < 64; i++) bytes[i] = in[(at + i) % 64];
    for (u32 i = 0; i < 32; i++) words[i] = (u16)(bytes[(i * in[at % 64]) % 64] * 3);
    u32 pick = in[(at + 1) % 64];
    volatile u32x4 wide[2];
    wide[pick & 1] = (u32x4){pick, pick + 1, pick + 2, pick + 3};
    wide[~pick & 1] = (u32x4){pick + 4, pick + 5, pick + 6, pick + 7};
    u32x4 w = wide[(pick >> 1) & 1];
    out[at] = (u8)(bytes[pick % 64] + words[pick % 32] + w.x + w.w);
}
