/* grids.h: loaders of the formats whose codes index a grid of magnitudes (IQ2, IQ3); included by tiles.h.
 *
 * A run of 32 values has an index for each 8 (IQ2, magnitudes 8, 25, 43) or 4 of them (IQ3), a sign for each value and a
 * scale of 4 bits for 32 or 16. Codes are kept + 128: negated where the sign says so, modulo 256, they are 128 - magnitude.
 * Signs stand in planes (ie_core.h): 8 bytes have the four sign bits of one word of all 16 rows, in the order of the
 * word's bytes. Where a file has 7 bits for 8 signs, the eighth is the parity, found once a tile for all runs.
 * An index has no more bits than its grid has rows: no bytes of a file lead outside a table.
 *
 * Grids: AVX-512 looks 32 indices up at a time by permuting 16-bit codes (iq_codes.h), 64 rows of the grid an instruction,
 * and widens nibbles to bytes; others read the grid's words, AVX2 by gathering. Measured on Zen 5, 32 indices in a grid of
 * 256: 0.8 ns, against 6.6 (words of 4) and 3.5 ns (8) for gathers. */
#ifndef IE_GRIDS_H
#define IE_GRIDS_H

#include "../include/iq_codes.h"
#include "../include/iq_grids.h"

/* A grid: its words (one a row for IQ3, two for IQ2), its codes and its rows; constants where they are used. */
typedef struct { const int8_t *words; const uint16_t *codes; int rows; } ie_grid;
/* Two indices a lane: bits 0 … 7 in the low bytes of the half-words of `low` (what stands above does not count), bits 8
 * and 9 in planes of two bits a lane. */
typedef struct { ie_u16 low; uint32_t bit8, bit9; } ie_indices;

/* Bytes of v negated where the mask, a bit each, says so. */
IE_MATH ie_u16 ie_negated(ie_u16 v, const uint8_t *plane);
/* Words of codes + 128: out[0], out[1] for the indices in the low and high half-words. */
IE_MATH void ie_grid_words(ie_u16 *out, ie_indices i, ie_grid g);
/* The same for grids of 8 values a row: out[0], out[1] for the low index, out[2], out[3] for the high one. */
IE_MATH void ie_grid_pairs(ie_u16 *out, ie_indices i, ie_grid g);

#if defined(__AVX512BW__)

IE_MATH ie_u16 ie_negated(ie_u16 v, const uint8_t *plane)
{
    uint64_t mask;
    memcpy(&mask, plane, 8);
    return (ie_u16)_mm512_mask_sub_epi8((__m512i)v, mask, _mm512_setzero_si512(), (__m512i)v);
}

/* 256 rows; k6, k7: where bits 6 and 7 of an index are set. */
IE_MATH __m512i ie_codes256(const uint16_t *codes, __m512i index, __mmask32 k6, __mmask32 k7)
{
    __m512i part[4];
    for (int i = 0; i < 4; i++)
        part[i] = _mm512_permutex2var_epi16(_mm512_loadu_si512(codes + 64 * i), index, _mm512_loadu_si512(codes + 64 * i + 32));
    return _mm512_mask_blend_epi16(k7, _mm512_mask_blend_epi16(k6, part[0], part[1]), _mm512_mask_blend_epi16(k6, part[2], part[3]));
}
/* Codes of both indices of each lane. */
IE_MATH __m512i ie_codes512(ie_indices i, ie_grid g)
{
    const __m512i index = (__m512i)i.low;
    const __mmask32 k6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)), k7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
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

IE_MATH void ie_grid_words(ie_u16 *out, ie_indices i, ie_grid g)
{
    static const uint8_t values[16] = {132, 140, 148, 156, 164, 172, 180, 190}, odd[16] = {129, 131, 133, 135, 137, 139, 141, 143};
    const __m512i codes = ie_codes512(i, g);
    for (int j = 0; j < 2; j++) /* nibbles are below 8, so that the bytes' top bits are clear */
        out[j] = ie_lookup((ie_u16)ie_code_bytes(codes, j), g.rows > 256 ? odd : values);
}
IE_MATH void ie_grid_pairs(ie_u16 *out, ie_indices i, ie_grid g)
{
    static const uint8_t first[16] = {136, 153, 171, 136, 153, 171, 136, 153, 171}, then[16] = {136, 136, 136, 153, 153, 153, 171, 171, 171};
    const __m512i codes = ie_codes512(i, g);
    for (int j = 0; j < 2; j++) {
        const ie_u16 nibbles = (ie_u16)ie_code_bytes(codes, j) & 0x0F0F0F0Fu;
        out[2 * j] = ie_lookup(nibbles, first);
        out[2 * j + 1] = ie_lookup(nibbles, then);
    }
}

#else

#if defined(__AVX2__)

IE_MATH ie_u16 ie_negated(ie_u16 v, const uint8_t *plane)
{
    const __m256i bits = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    const __m256i from = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    union { ie_u16 u; __m256i h[2]; } r = {.u = v};
    for (int i = 0; i < 2; i++) {
        int32_t mask;
        memcpy(&mask, plane + 4 * i, 4);
        const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(mask), from), bits), on = _mm256_cmpeq_epi8(own, bits);
        r.h[i] = _mm256_sub_epi8(_mm256_xor_si256(r.h[i], on), on);
    }
    return r.u;
}
/* 32-bit words table[index]. */
IE_MATH ie_u16 ie_gather(const int8_t *table, ie_u16 index)
{
    union { ie_u16 u; __m256i h[2]; } r = {.u = index};
    for (int i = 0; i < 2; i++)
        r.h[i] = _mm256_i32gather_epi32((const int *)(const void *)table, r.h[i], 4);
    return r.u;
}

#else

IE_MATH ie_u16 ie_negated(ie_u16 v, const uint8_t *plane)
{
    union { ie_u16 u; uint8_t b[64]; } r = {.u = v};
    IE_VECTORIZE
    for (int i = 0; i < 64; i++)
        r.b[i] = (uint8_t)(plane[i / 8] >> i % 8 & 1 ? -r.b[i] : r.b[i]);
    return r.u;
}
IE_MATH ie_u16 ie_gather(const int8_t *table, ie_u16 index)
{
    union { ie_u16 u; uint32_t w[16]; } r = {.u = index};
    for (int i = 0; i < 16; i++)
        memcpy(&r.w[i], table + 4 * r.w[i], 4);
    return r.u;
}

#endif

/* The low (half 0) or high index of each lane. */
IE_MATH ie_u16 ie_index_of(ie_indices i, int half, int rows)
{
    const ie_u16 own = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    ie_u16 index = (i.low >> (16u * (uint32_t)half)) & 255u;
    if (rows > 256)
        index |= (((ie_u16)(i.bit8) >> (own + (uint32_t)half)) & 1u) << 8;
    if (rows > 512)
        index |= (((ie_u16)(i.bit9) >> (own + (uint32_t)half)) & 1u) << 9;
    return index;
}
IE_MATH void ie_grid_words(ie_u16 *out, ie_indices i, ie_grid g)
{
    for (int half = 0; half < 2; half++)
        out[half] = ie_gather(g.words, ie_index_of(i, half, g.rows)) | 0x80808080u;
}
IE_MATH void ie_grid_pairs(ie_u16 *out, ie_indices i, ie_grid g)
{
    for (int half = 0; half < 2; half++) {
        const ie_u16 at = ie_index_of(i, half, g.rows) << 1;
        out[2 * half] = ie_gather(g.words, at) | 0x80808080u;
        out[2 * half + 1] = ie_gather(g.words, at + 1u) | 0x80808080u;
    }
}

#endif

/* ---- signs and scales ---- */

#define IE_SIGN_HIGH 256 /* bytes from the planes of even words to those of odd ones */

/* Signs of run s; `high`: the planes of odd words, after those of even ones in the tile or completed in the state. */
IE_MATH void ie_signed_words(ie_run32 *r, const uint8_t *low, const uint8_t *high, int s)
{
    for (int l = 0; l < 4; l++) {
        r->w[2 * l] = ie_negated(r->w[2 * l], low + 8 * (8 * l + s));
        r->w[2 * l + 1] = ie_negated(r->w[2 * l + 1], high + 8 * (8 * l + s));
    }
}
/* The eighth sign of each run of 8 into t->sc, and the bits that stood in its place into t->mn[0]: 4 for each run, row. */
IE_MATH void ie_open_parity(ie_tile_state *t, const uint8_t *signs)
{
    t->mn[0] = (ie_u16)(0u);
    for (int l = 0; l < 4; l++) {
        const ie_u16 low = ie_load_w(signs + 64 * l), raw = ie_load_w(signs + IE_SIGN_HIGH + 64 * l), high = raw & 0x77777777u;
        ie_u16 x = low ^ high;
        x ^= x << 2;
        x ^= x << 1; /* bit 3 of a nibble: the parity of the nibble */
        t->sc[l] = high | (x & 0x88888888u);
        t->mn[0] |= (raw & 0x88888888u) >> (uint32_t)(3 - l);
    }
}
/* d times 1 + 2 s. */
IE_MATH ie_f16 ie_odd_scale(ie_f16 d, ie_u16 s) { return d * ie_to_float((ie_i16)(s + s + 1u)); }
/* The scale that stood among the signs of run s. */
IE_MATH ie_u16 ie_sign_scale(const ie_tile_state *t, int s)
{
    typedef uint32_t u8 __attribute__((ext_vector_type(8)));
    const uint32_t *w = (const uint32_t *)(const void *)&t->mn[0] + 2 * s;
    const u8 own = {0, 4, 8, 12, 16, 20, 24, 28};
    const u8 a = (u8)(w[0]) >> own, b = (u8)(w[1]) >> own;
    return (ie_u16)__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) & 15u;
}
IE_MATH const uint8_t *ie_high_signs(const ie_tile_state *t) { return (const uint8_t *)(const void *)t->sc; }
IE_MATH uint32_t ie_plane32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* ---- formats ---- */

#define IE_GRID(name, rows) ((ie_grid){(const int8_t *)ie_grid_##name, ie_codes_##name, rows})

/* (d (1/2 + s)) / 4 is (d / 8) (1 + 2 s): powers of two do not round. */
IE_MATH void ie_open_iq2_xxs(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ2_XXSX16_D) * 0.125f;
    ie_open_parity(t, p + IE_L_IQ2_XXSX16_G);
}
IE_MATH void ie_load_iq2_xxs(ie_run32 *r, const ie_tile_state *t, int s)
{
    const ie_u16 q = ie_field_word(t->p + IE_L_IQ2_XXSX16_Q, s);
    r->d = ie_odd_scale(t->d, ie_sign_scale(t, s));
    for (int i = 0; i < 2; i++)
        ie_grid_pairs(r->w + 4 * i, (ie_indices){q >> (8u * (uint32_t)i), 0, 0}, IE_GRID(iq2_xxs, 256));
    ie_signed_words(r, t->p + IE_L_IQ2_XXSX16_G, ie_high_signs(t), s);
}

IE_MATH void ie_open_iq2_xs(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ2_XSX16_D) * 0.125f;
    t->m = (ie_f16)ie_field_word(p + IE_L_IQ2_XSX16_S, 0); /* 8 scales of 4 bits, as they are */
    ie_open_parity(t, p + IE_L_IQ2_XSX16_G);
}
IE_MATH void ie_load_iq2_xs(ie_run32 *r, const ie_tile_state *t, int s)
{
    const ie_u16 q = ie_field_word(t->p + IE_L_IQ2_XSX16_Q, s);
    const uint8_t *h = t->p + IE_L_IQ2_XSX16_H + 8 * s;
    r->d = ie_odd_scale(t->d, ie_sign_scale(t, s));
    r->d1 = ie_odd_scale(t->d, ((ie_u16)t->m >> (4u * (uint32_t)s)) & 15u);
    for (int i = 0; i < 2; i++)
        ie_grid_pairs(r->w + 4 * i, (ie_indices){q >> (8u * (uint32_t)i), ie_plane32(h + 4 * i), 0}, IE_GRID(iq2_xs, 512));
    ie_signed_words(r, t->p + IE_L_IQ2_XSX16_G, ie_high_signs(t), s);
}

IE_MATH void ie_open_iq2_s(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ2_SX16_D) * 0.125f;
}
IE_MATH void ie_load_iq2_s(ie_run32 *r, const ie_tile_state *t, int s)
{
    const ie_u16 q = ie_field_word(t->p + IE_L_IQ2_SX16_Q, s);
    const ie_u16 scales = ie_field_word(t->p + IE_L_IQ2_SX16_S, s >> 2) >> (8u * (uint32_t)(s & 3));
    const uint8_t *h = t->p + IE_L_IQ2_SX16_H + 16 * s, *signs = t->p + IE_L_IQ2_SX16_G;
    r->d = ie_odd_scale(t->d, scales & 15u);
    r->d1 = ie_odd_scale(t->d, (scales >> 4) & 15u);
    for (int i = 0; i < 2; i++)
        ie_grid_pairs(r->w + 4 * i, (ie_indices){q >> (8u * (uint32_t)i), ie_plane32(h + 8 * i), ie_plane32(h + 8 * i + 4)},
                      IE_GRID(iq2_s, 1024));
    ie_signed_words(r, signs, signs + IE_SIGN_HIGH, s);
}

IE_MATH void ie_open_iq3_xxs(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ3_XXSX16_D) * 0.25f; /* (d (1/2 + s)) / 2 */
    ie_open_parity(t, p + IE_L_IQ3_XXSX16_G);
}
IE_MATH void ie_load_iq3_xxs(ie_run32 *r, const ie_tile_state *t, int s)
{
    r->d = ie_odd_scale(t->d, ie_sign_scale(t, s));
    for (int i = 0; i < 4; i++) {
        const ie_u16 q = ie_field_word(t->p + IE_L_IQ3_XXSX16_Q, 2 * s + (i >> 1));
        ie_grid_words(r->w + 2 * i, (ie_indices){q >> (8u * (uint32_t)(i & 1)), 0, 0}, IE_GRID(iq3_xxs, 256));
    }
    ie_signed_words(r, t->p + IE_L_IQ3_XXSX16_G, ie_high_signs(t), s);
}

IE_MATH void ie_open_iq3_s(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ3_SX16_D);
    t->sc[0] = ie_field_word(p + IE_L_IQ3_SX16_S, 0);
}
IE_MATH void ie_load_iq3_s(ie_run32 *r, const ie_tile_state *t, int s)
{
    const uint8_t *h = t->p + IE_L_IQ3_SX16_H + 16 * s, *signs = t->p + IE_L_IQ3_SX16_G;
    r->d = ie_odd_scale(t->d, (t->sc[0] >> (4u * (uint32_t)s)) & 15u);
    for (int i = 0; i < 4; i++) {
        const ie_u16 q = ie_field_word(t->p + IE_L_IQ3_SX16_Q, 2 * s + (i >> 1));
        ie_grid_words(r->w + 2 * i, (ie_indices){q >> (8u * (uint32_t)(i & 1)), ie_plane32(h + 4 * i), 0}, IE_GRID(iq3_s, 512));
    }
    ie_signed_words(r, signs, signs + IE_SIGN_HIGH, s);
}

#endif
