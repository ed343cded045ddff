/* One decoder for each tensor format: a block of file bytes to F32.
 *
 * Owns: the C meaning of the bytes of a block. ie/formats/ is the definition; results are equal to it bit for
 * bit, which needs -ffp-contract=off. Does not own: block sizes (formats.h), grids (iq_grids.h), any layout.
 *
 * void ie_decode_<name>(const uint8_t *block, float *out): reads the block's bytes, writes its elements.
 * The block need not be aligned. Every bit pattern decodes; no table is read out of range.
 * Only <stdint.h> is needed, so that the same text serves x86-64, aarch64, amdgcn and nvptx64.
 * Names as in formats.py: d scale, m minimum, q code, s sub-scale. One rounding for each written operation. */
#ifndef IE_DECODE_H
#define IE_DECODE_H
#include <stdint.h>

#include "iq_grids.h"
#include "vectorize.h"

static inline uint32_t ie_dec_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }

static inline uint32_t ie_dec_u32(const uint8_t *p) { return ie_dec_u16(p) | ie_dec_u16(p + 2) << 16; }

static inline uint64_t ie_dec_u64(const uint8_t *p)
{
    return (uint64_t)ie_dec_u32(p) | (uint64_t)ie_dec_u32(p + 4) << 32;
}

static inline float ie_dec_float(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } pun = {bits};
    return pun.f;
}

/* IEEE binary16 to F32, exact; NaN keeps its payload. */
static inline float ie_half_to_float(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, magnitude = h & 0x7FFFu;
    if (magnitude >= 0x7C00u)
        return ie_dec_float(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
    if (magnitude >= 0x0400u)
        return ie_dec_float(sign | ((magnitude << 13) + (112u << 23)));
    /* subnormal: a 10-bit integer times 2^-24, which F32 holds exactly */
    const float value = (float)(int32_t)magnitude * 0x1p-24f;
    return sign ? -value : value;
}

static inline float ie_dec_half(const uint8_t *p) { return ie_half_to_float(ie_dec_u16(p)); }

/* --- unblocked ------------------------------------------------------------------------------------------------ */

static inline void ie_decode_f32(const uint8_t *b, float *out) { out[0] = ie_dec_float(ie_dec_u32(b)); }

static inline void ie_decode_f16(const uint8_t *b, float *out) { out[0] = ie_dec_half(b); }

static inline void ie_decode_bf16(const uint8_t *b, float *out) { out[0] = ie_dec_float(ie_dec_u16(b) << 16); }

static inline void ie_decode_i8(const uint8_t *b, float *out) { out[0] = (float)(int8_t)b[0]; }

static inline void ie_decode_i16(const uint8_t *b, float *out) { out[0] = (float)(int16_t)ie_dec_u16(b); }

static inline void ie_decode_i32(const uint8_t *b, float *out) { out[0] = (float)(int32_t)ie_dec_u32(b); }

static inline void ie_decode_i64(const uint8_t *b, float *out) { out[0] = (float)(int64_t)ie_dec_u64(b); }

static inline void ie_decode_f64(const uint8_t *b, float *out)
{
    union {
        uint64_t u;
        double f;
    } pun = {ie_dec_u64(b)};
    out[0] = (float)pun.f;
}

/* --- 32 elements; nibbles: low ones are elements 0..15, high ones 16..31 ----------------------------------------- */

static inline int32_t ie_dec_nibble(const uint8_t *qs, int i) { return qs[i & 15] >> (i & 16 ? 4 : 0) & 15; }

static inline void ie_decode_q4_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(ie_dec_nibble(b + 2, i) - 8);
}

static inline void ie_decode_q4_1(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b), m = ie_dec_half(b + 2);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)ie_dec_nibble(b + 4, i) + m;
}

static inline void ie_decode_q5_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    const uint32_t high = ie_dec_u32(b + 2);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(ie_dec_nibble(b + 6, i) + (int32_t)(high >> i & 1) * 16 - 16);
}

static inline void ie_decode_q5_1(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b), m = ie_dec_half(b + 2);
    const uint32_t high = ie_dec_u32(b + 4);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(ie_dec_nibble(b + 8, i) + (int32_t)(high >> i & 1) * 16) + m;
}

static inline void ie_decode_q8_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    IE_VECTORIZE
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)b[2 + i];
}

static inline void ie_decode_q8_1(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    IE_VECTORIZE
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)b[4 + i];
}

static const int8_t ie_dec_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* E2M1, doubled */
static const int8_t ie_dec_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void ie_decode_iq4_nl(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)ie_dec_nl[ie_dec_nibble(b + 2, i)];
}

static inline void ie_decode_mxfp4(const uint8_t *b, float *out)
{
    const uint32_t e = b[0];
    /* 2^(e - 128): the two smallest are subnormal */
    const float d = ie_dec_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)ie_dec_fp4[ie_dec_nibble(b + 1, i)];
}

/* UE4M3 with the factor 1/2 that the doubled FP4 values need; bit 7 does not count, except that 0xFF is no zero. */
static inline float ie_dec_ue4m3(uint32_t x)
{
    const uint32_t e = x >> 3 & 15, m = x & 7;
    if (x == 0x7F)
        return 0.0f;
    if (e == 0)
        return (float)(int32_t)m * 0x1p-10f;
    return ie_dec_float((e + 119) << 23 | m << 20);
}

static inline void ie_decode_nvfp4(const uint8_t *b, float *out)
{
    for (int s = 0; s < 4; s++) {
        const float d = ie_dec_ue4m3(b[s]);
        for (int r = 0; r < 16; r++)
            out[16 * s + r] = d * (float)ie_dec_fp4[b[4 + 8 * s + (r & 7)] >> (r & 8 ? 4 : 0) & 15];
    }
}

static inline void ie_decode_q1_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int i = 0; i < 128; i++)
        out[i] = b[2 + i / 8] >> (i & 7) & 1 ? d : -d;
}

static inline void ie_decode_q2_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int i = 0; i < 64; i++)
        out[i] = (float)((b[2 + i / 4] >> 2 * (i & 3) & 3) - 1) * d;
}

/* --- K formats: 256 elements; half = i / 128, quarter = i / 32 % 4, lane = i % 32 -------------------------------- */

static inline void ie_decode_q2_k(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b + 80), dm = ie_dec_half(b + 82);
    for (int g = 0; g < 16; g++) {
        const float scale = d * (float)(b[g] & 15), minimum = dm * (float)(b[g] >> 4);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int q = b[16 + 32 * (i / 128) + (i & 31)] >> 2 * (i / 32 & 3) & 3;
            out[i] = scale * (float)q - minimum;
        }
    }
}

static inline void ie_decode_q3_k(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b + 108);
    for (int g = 0; g < 16; g++) {
        const int low = b[96 + (g & 7)] >> (g & 8 ? 4 : 0) & 15, high = b[104 + (g & 3)] >> 2 * (g / 4) & 3;
        const float scale = d * (float)(low + 16 * high - 32);
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int q = b[32 + 32 * (i / 128) + (i & 31)] >> 2 * (i / 32 & 3) & 3;
            out[i] = scale * (float)(q + 4 * (b[i & 31] >> i / 32 & 1) - 4);
        }
    }
}

/* The 6-bit scale and minimum of sub-block k from the 12 bytes that Q4_K and Q5_K share. */
static inline void ie_dec_k_scale(const uint8_t *p, int k, int32_t *scale, int32_t *minimum)
{
    if (k < 4) {
        *scale = p[k] & 63;
        *minimum = p[k + 4] & 63;
    } else {
        *scale = (p[k + 4] & 15) | p[k - 4] >> 6 << 4;
        *minimum = p[k + 4] >> 4 | p[k] >> 6 << 4;
    }
}

static inline void ie_decode_q4_k(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b), dm = ie_dec_half(b + 2);
    for (int k = 0; k < 8; k++) {
        int32_t s, m;
        ie_dec_k_scale(b + 4, k, &s, &m);
        const float scale = d * (float)s, minimum = dm * (float)m;
        IE_VECTORIZE
        for (int l = 0; l < 32; l++)
            out[32 * k + l] = scale * (float)(b[16 + 32 * (k / 2) + l] >> 4 * (k & 1) & 15) - minimum;
    }
}

static inline void ie_decode_q5_k(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b), dm = ie_dec_half(b + 2);
    for (int k = 0; k < 8; k++) {
        int32_t s, m;
        ie_dec_k_scale(b + 4, k, &s, &m);
        const float scale = d * (float)s, minimum = dm * (float)m;
        IE_VECTORIZE
        for (int l = 0; l < 32; l++) {
            const int q = (b[48 + 32 * (k / 2) + l] >> 4 * (k & 1) & 15) + 16 * (b[16 + l] >> k & 1);
            out[32 * k + l] = scale * (float)q - minimum;
        }
    }
}

static inline void ie_decode_q6_k(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b + 208);
    for (int g = 0; g < 16; g++) {
        const float scale = d * (float)(int8_t)b[192 + g];
        for (int i = 16 * g; i < 16 * g + 16; i++) {
            const int n = i / 128, j = i / 32 & 3, l = i & 31;
            const int low = b[64 * n + 32 * (j & 1) + l] >> 4 * (j / 2) & 15, high = b[128 + 32 * n + l] >> 2 * j & 3;
            out[i] = scale * (float)(low + 16 * high - 32);
        }
    }
}

static inline void ie_decode_q8_k(const uint8_t *b, float *out)
{
    const float d = ie_dec_float(ie_dec_u32(b));
    IE_VECTORIZE
    for (int i = 0; i < 256; i++)
        out[i] = d * (float)(int8_t)b[4 + i];
}

/* --- IQ formats: 256 elements; k = group of 32, l = run of 8 in it, j = element of the run ----------------------- */

/* The sign mask of a 7-bit code: bit 7 makes the number of ones even. */
static inline uint32_t ie_dec_signs(uint32_t code)
{
    uint32_t parity = code ^ code >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return code | (parity & 1) << 7;
}

static inline float ie_dec_signed(float value, uint32_t signs, int j)
{
    return value * (signs >> j & 1 ? -1.0f : 1.0f);
}

static inline void ie_decode_iq2_xxs(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int k = 0; k < 8; k++) {
        const uint8_t *group = b + 2 + 8 * k;
        const uint32_t a = ie_dec_u32(group + 4);
        const float scale = d * (0.5f + (float)(int32_t)(a >> 28)) * 0.25f;
        for (int l = 0; l < 4; l++) {
            const int8_t *grid = ie_grid_iq2_xxs[group[l]];
            const uint32_t signs = ie_dec_signs(a >> 7 * l & 127);
            for (int j = 0; j < 8; j++)
                out[32 * k + 8 * l + j] = ie_dec_signed(scale * (float)grid[j], signs, j);
        }
    }
}

/* The scale of run r of 32 in IQ2_XS and IQ2_S: 4 bits for two runs. */
static inline float ie_dec_iq2_scale(float d, const uint8_t *scales, int r)
{
    return d * (0.5f + (float)(scales[r / 4] >> 4 * (r / 2 & 1) & 15)) * 0.25f;
}

static inline void ie_decode_iq2_xs(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int r = 0; r < 32; r++) {
        const uint32_t w = ie_dec_u16(b + 2 + 2 * r), signs = ie_dec_signs(w >> 9);
        const float scale = ie_dec_iq2_scale(d, b + 66, r);
        const int8_t *grid = ie_grid_iq2_xs[w & 511];
        for (int j = 0; j < 8; j++)
            out[8 * r + j] = ie_dec_signed(scale * (float)grid[j], signs, j);
    }
}

static inline void ie_decode_iq2_s(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int r = 0; r < 32; r++) {
        const float scale = ie_dec_iq2_scale(d, b + 74, r);
        const int8_t *grid = ie_grid_iq2_s[b[2 + r] + 256 * (b[66 + r / 4] >> 2 * (r & 3) & 3)];
        for (int j = 0; j < 8; j++)
            out[8 * r + j] = ie_dec_signed(scale * (float)grid[j], b[34 + r], j);
    }
}

static inline void ie_decode_iq3_xxs(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int r = 0; r < 32; r++) {
        const uint32_t a = ie_dec_u32(b + 66 + 4 * (r / 4)), signs = ie_dec_signs(a >> 7 * (r & 3) & 127);
        const float scale = d * (0.5f + (float)(int32_t)(a >> 28)) * 0.5f;
        for (int j = 0; j < 8; j++) {
            const int8_t *grid = ie_grid_iq3_xxs[b[2 + 2 * r + j / 4]];
            out[8 * r + j] = ie_dec_signed(scale * (float)grid[j & 3], signs, j);
        }
    }
}

static inline void ie_decode_iq3_s(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int r = 0; r < 32; r++) {
        const int k = r / 4;
        const float scale = d * (1.0f + 2.0f * (float)(b[106 + k / 2] >> 4 * (k & 1) & 15));
        for (int j = 0; j < 8; j++) {
            const int t = 2 * (r & 3) + j / 4;
            const int8_t *grid = ie_grid_iq3_s[b[2 + 8 * k + t] + 256 * (b[66 + k] >> t & 1)];
            out[8 * r + j] = ie_dec_signed(scale * (float)grid[j & 3], b[74 + r], j);
        }
    }
}

static inline void ie_decode_iq1_s(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    for (int r = 0; r < 32; r++) {
        const uint32_t w = ie_dec_u16(b + 34 + 2 * (r / 4));
        const float scale = d * (float)(int32_t)(2 * (w >> 12 & 7) + 1), delta = w & 0x8000u ? -0.125f : 0.125f;
        const int8_t *grid = ie_grid_iq1_s[b[2 + r] + 256 * (w >> 3 * (r & 3) & 7)];
        for (int j = 0; j < 8; j++)
            out[8 * r + j] = scale * ((float)grid[j] + delta);
    }
}

static inline void ie_decode_iq1_m(const uint8_t *b, float *out)
{
    uint32_t bits = 0;
    for (int t = 0; t < 4; t++)
        bits |= ie_dec_u16(b + 48 + 2 * t) >> 12 << 4 * t;
    const float d = ie_half_to_float(bits);
    for (int r = 0; r < 32; r++) {
        const int g = r / 2;
        const uint32_t s = ie_dec_u16(b + 48 + 2 * (g / 4)) >> 3 * (g & 3) & 7, v = b[32 + r / 2] >> 4 * (r & 1) & 15;
        const float scale = d * (float)(int32_t)(2 * s + 1), delta = v & 8 ? -0.125f : 0.125f;
        const int8_t *grid = ie_grid_iq1_s[b[r] + 256 * (v & 7)];
        for (int j = 0; j < 8; j++)
            out[8 * r + j] = scale * ((float)grid[j] + delta);
    }
}

static inline void ie_decode_iq4_xs(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b);
    const uint32_t high = ie_dec_u16(b + 2);
    for (int k = 0; k < 8; k++) {
        const int32_t s = (b[4 + k / 2] >> 4 * (k & 1) & 15) + (int32_t)(high >> 2 * k & 3) * 16;
        const float scale = d * (float)(s - 32);
        for (int r = 0; r < 32; r++)
            out[32 * k + r] = scale * (float)ie_dec_nl[ie_dec_nibble(b + 8 + 16 * k, r)];
    }
}

/* --- ternary formats: 256 elements -------------------------------------------------------------------------------- */

/* Digit n, the most significant first, of the base-3 number that a byte holds as a fraction of 256. */
static inline float ie_dec_trit(uint32_t byte, int n)
{
    uint32_t shifted = byte;
    for (int i = 0; i < n; i++)
        shifted = shifted * 3 & 255;
    return (float)((int32_t)(shifted * 3 >> 8) - 1);
}

static inline void ie_decode_tq1_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b + 52);
    for (int i = 0; i < 160; i++)
        out[i] = ie_dec_trit(b[i & 31], i / 32) * d;
    for (int i = 0; i < 80; i++)
        out[160 + i] = ie_dec_trit(b[32 + (i & 15)], i / 16) * d;
    for (int i = 0; i < 16; i++)
        out[240 + i] = ie_dec_trit(b[48 + (i & 3)], i / 4) * d;
}

static inline void ie_decode_tq2_0(const uint8_t *b, float *out)
{
    const float d = ie_dec_half(b + 64);
    for (int i = 0; i < 256; i++)
        out[i] = (float)((b[32 * (i / 128) + (i & 31)] >> 2 * (i / 32 & 3) & 3) - 1) * d;
}

#endif
