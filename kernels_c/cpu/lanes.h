/* lanes.h: what include/tiles.h asks of a target, where a value is a vector of 16 lanes; and the loaders made of it.
 *
 * Grids: AVX-512 looks 32 indices up at a time by permuting 16-bit codes (iq_codes.h), 64 rows of the grid an
 * instruction, and widens nibbles to bytes; others read the grid's words, AVX2 by gathering. Measured on Zen 5, 32
 * indices in a grid of 256: 0.8 ns, against 6.6 (words of 4) and 3.5 ns (8) for gathers. */
#ifndef IE_LANES_H
#define IE_LANES_H

#include "cpu.h"

IE_MATH ie_vu ie_load_u16(const uint8_t *p)
{
    typedef uint16_t words16 __attribute__((ext_vector_type(16), aligned(2)));
    return __builtin_convertvector(*(const words16 *)(const void *)p, ie_vu);
}
IE_MATH ie_vu ie_load_u8(const uint8_t *p)
{
    typedef uint8_t bytes16 __attribute__((ext_vector_type(16), aligned(1)));
    return __builtin_convertvector(*(const bytes16 *)(const void *)p, ie_vu);
}
IE_MATH ie_vi ie_load_i8(const uint8_t *p)
{
    typedef int8_t bytes16 __attribute__((ext_vector_type(16), aligned(1)));
    return __builtin_convertvector(*(const bytes16 *)(const void *)p, ie_vi);
}
IE_MATH ie_vf ie_to_float(ie_vi v) { return __builtin_convertvector(v, ie_vf); }
IE_MATH ie_vf ie_from_word(ie_vu v) { return (ie_vf)v; }

/* Each of the 64 bytes of idx (0 … 15) replaced by table[byte]. */
IE_MATH ie_vu ie_lookup(ie_vu idx, const uint8_t table[16])
{
#if defined(__AVX512BW__)
    return (ie_vu)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)),
                                      (__m512i)idx);
#elif defined(__AVX2__)
    union {
        ie_vu u;
        __m256i h[2];
    } v = {.u = idx};
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    for (int i = 0; i < 2; i++)
        v.h[i] = _mm256_shuffle_epi8(t, v.h[i]);
    return v.u;
#elif defined(__aarch64__)
    union {
        ie_vu u;
        uint8x16_t q[4];
    } v = {.u = idx};
    const uint8x16_t t = vld1q_u8(table);
    for (int i = 0; i < 4; i++)
        v.q[i] = vqtbl1q_u8(t, v.q[i]);
    return v.u;
#else
    union {
        ie_vu u;
        uint8_t b[64];
    } v = {.u = idx};
    for (int i = 0; i < 64; i++)
        v.b[i] = table[v.b[i]];
    return v.u;
#endif
}

/* ---- planes: a vector has them as they lie in memory, plane s in bytes 8 s … 8 s + 7 ---- */

IE_MATH ie_vu ie_load_planes(const uint8_t *p) { return ie_load_w(p); }
IE_MATH ie_vu ie_planes_nibble(const ie_vu *planes, int s)
{
    typedef uint32_t u8 __attribute__((ext_vector_type(8)));
    const uint32_t *w = (const uint32_t *)(const void *)planes + 2 * s;
    const u8 own = {0, 4, 8, 12, 16, 20, 24, 28};
    const u8 a = (u8)(w[0]) >> own, b = (u8)(w[1]) >> own;
    return (ie_vu)__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) & 15u;
}
IE_MATH ie_vu ie_pair_bit(uint32_t plane, int i)
{
    const ie_vu own = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    return ((ie_vu)(plane) >> (own + (uint32_t)i)) & 1u;
}
IE_MATH ie_vu ie_negated(ie_vu v, const uint8_t *plane);
IE_MATH ie_vu ie_negated_by(ie_vu v, const ie_vu *planes, int s)
{
    return ie_negated(v, (const uint8_t *)(const void *)planes + 8 * s);
}

#if defined(__AVX512BW__)

IE_MATH ie_vu ie_negated(ie_vu v, const uint8_t *plane)
{
    uint64_t mask;
    memcpy(&mask, plane, 8);
    return (ie_vu)_mm512_mask_sub_epi8((__m512i)v, mask, _mm512_setzero_si512(), (__m512i)v);
}

#elif defined(__AVX2__)

IE_MATH ie_vu ie_negated(ie_vu v, const uint8_t *plane)
{
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    const __m256i from = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                          3, 3, 3, 3, 3, 3);
    union {
        ie_vu u;
        __m256i h[2];
    } r = {.u = v};
    for (int i = 0; i < 2; i++) {
        int32_t mask;
        memcpy(&mask, plane + 4 * i, 4);
        const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), from), bits),
                      on = _mm256_cmpeq_epi8(own, bits);
        r.h[i] = _mm256_sub_epi8(_mm256_xor_si256(r.h[i], on), on);
    }
    return r.u;
}
/* 32-bit words table[index]. */
IE_MATH ie_vu ie_gather(const int8_t *table, ie_vu index)
{
    union {
        ie_vu u;
        __m256i h[2];
    } r = {.u = index};
    for (int i = 0; i < 2; i++)
        r.h[i] = _mm256_i32gather_epi32((const int *)(const void *)table, r.h[i], 4);
    return r.u;
}

#else

IE_MATH ie_vu ie_negated(ie_vu v, const uint8_t *plane)
{
    union {
        ie_vu u;
        uint8_t b[64];
    } r = {.u = v};
    IE_VECTORIZE
    for (int i = 0; i < 64; i++)
        r.b[i] = (uint8_t)(plane[i / 8] >> i % 8 & 1 ? -r.b[i] : r.b[i]);
    return r.u;
}
IE_MATH ie_vu ie_gather(const int8_t *table, ie_vu index)
{
    union {
        ie_vu u;
        uint32_t w[16];
    } r = {.u = index};
    for (int i = 0; i < 16; i++)
        memcpy(&r.w[i], table + 4 * r.w[i], 4);
    return r.u;
}

#endif

#if defined(__AVX512BW__)
#define IE_OWN_GRIDS
#endif

#include "../include/tiles.h"

#if defined(IE_OWN_GRIDS)

/* 256 rows; k6, k7: where bits 6 and 7 of an index are set. */
IE_MATH __m512i ie_codes256(const uint16_t *codes, __m512i index, __mmask32 k6, __mmask32 k7)
{
    __m512i part[4];
    for (int i = 0; i < 4; i++)
        part[i] = _mm512_permutex2var_epi16(_mm512_loadu_si512(codes + 64 * i), index,
                                            _mm512_loadu_si512(codes + 64 * i + 32));
    return _mm512_mask_blend_epi16(k7, _mm512_mask_blend_epi16(k6, part[0], part[1]),
                                   _mm512_mask_blend_epi16(k6, part[2], part[3]));
}
/* Codes of both indices of each lane. */
IE_MATH __m512i ie_codes512(ie_indices i, ie_grid g)
{
    const __m512i index = (__m512i)i.low;
    const __mmask32 k6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)),
                    k7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    __m512i c = ie_codes256(g.codes, index, k6, k7);
    if (g.rows > 256)
        c = _mm512_mask_blend_epi16(i.bit8, c, ie_codes256(g.codes + 256, index, k6, k7));
    if (g.rows > 512) {
        const __m512i d = ie_codes256(g.codes + 512, index, k6, k7), e = ie_codes256(g.codes + 768, index, k6, k7);
        c = _mm512_mask_blend_epi16(i.bit9, c, _mm512_mask_blend_epi16(i.bit8, d, e));
    }
    return c;
}
/* Nibbles of one index of each lane at the bottom of four bytes: its 16 bits, and beside them the same shifted by 4. */
IE_MATH __m512i ie_code_bytes(__m512i codes, int high)
{
    const __m128i low = _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
    const __m512i from = _mm512_broadcast_i32x4(high ? _mm_add_epi8(low, _mm_set1_epi8(2)) : low);
    return _mm512_srlv_epi16(_mm512_shuffle_epi8(codes, from), _mm512_set1_epi32(4 << 16));
}

IE_MATH void ie_grid_words(ie_vu *out, ie_indices i, ie_grid g)
{
    static const uint8_t values[16] = {132, 140, 148, 156, 164, 172, 180, 190},
                         odd[16] = {129, 131, 133, 135, 137, 139, 141, 143};
    const __m512i codes = ie_codes512(i, g);
    for (int j = 0; j < 2; j++) /* nibbles are below 8, so that the bytes' top bits are clear */
        out[j] = ie_lookup((ie_vu)ie_code_bytes(codes, j), g.rows > 256 ? odd : values);
}
IE_MATH void ie_grid_pairs(ie_vu *out, ie_indices i, ie_grid g)
{
    static const uint8_t first[16] = {136, 153, 171, 136, 153, 171, 136, 153, 171},
                         then[16] = {136, 136, 136, 153, 153, 153, 171, 171, 171};
    const __m512i codes = ie_codes512(i, g);
    for (int j = 0; j < 2; j++) {
        const ie_vu nibbles = IE_NIBBLES_LOW((ie_vu)ie_code_bytes(codes, j));
        out[2 * j] = ie_lookup(nibbles, first);
        out[2 * j + 1] = ie_lookup(nibbles, then);
    }
}

#endif

#endif
