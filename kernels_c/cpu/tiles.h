/* tiles.h: one inline loader per interleaved layout: 32 values of 16 rows as dot4 operands.
 *
 * A tile covers `subs` runs of 32 values along K (1, or 8 for the formats of 256). `open_X` decodes what a tile's
 * runs share, `load_X` gives run s. Codes are unsigned bytes; the true code is code - bias. Run s contributes
 *   sum over j of d_j * da * (integer dot of half j), j = 0, 1 for formats with a scale per 16 values, else whole,
 *   plus m * da * sum(a) where the format has a minimum (m carries its sign). Value formulas: ie/formats.py. */
#ifndef IE_TILES_H
#define IE_TILES_H

#include "cpu.h"

typedef struct { ie_u16 w[8]; ie_f16 d, d1, m; } ie_run32;
/* Scales of a tile of 256 values: bytes of sub-scales and sub-minima, four a word, and the two super-scales. */
typedef struct { ie_u16 sc[2], mn[2]; ie_f16 d, m; const uint8_t *p; } ie_tile_state;

IE_MATH ie_u16 ie_field_word(const uint8_t *field, int element) { return ie_load_w(field + ie_field_offset(element, 0, 4)); }

IE_MATH void ie_nibbles32(ie_run32 *r, const uint8_t *q)
{
    for (int i = 0; i < 4; i++) {
        ie_u16 w = ie_field_word(q, i);
        r->w[i] = w & 0x0F0F0F0Fu;
        r->w[i + 4] = (w >> 4) & 0x0F0F0F0Fu;
    }
}
IE_MATH void ie_fifth_bits(ie_run32 *r, ie_u16 spread)
{
    for (int i = 0; i < 8; i++)
        r->w[i] |= ((spread >> (uint32_t)i) & 0x01010101u) << 4;
}
IE_MATH void ie_open_plain(ie_tile_state *t, const uint8_t *p) { t->p = p; }

IE_MATH void ie_load_q4_0(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    r->d = ie_load_h(t->p + IE_L_Q4_0X16_D);
    ie_nibbles32(r, t->p + IE_L_Q4_0X16_Q);
}
IE_MATH void ie_load_q4_1(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    r->d = ie_load_h(t->p + IE_L_Q4_1X16_D);
    r->m = ie_load_h(t->p + IE_L_Q4_1X16_M);
    ie_nibbles32(r, t->p + IE_L_Q4_1X16_Q);
}
IE_MATH void ie_load_q5_0(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    r->d = ie_load_h(t->p + IE_L_Q5_0X16_D);
    ie_nibbles32(r, t->p + IE_L_Q5_0X16_Q);
    ie_fifth_bits(r, ie_field_word(t->p + IE_L_Q5_0X16_H, 0));
}
IE_MATH void ie_load_q5_1(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    r->d = ie_load_h(t->p + IE_L_Q5_1X16_D);
    r->m = ie_load_h(t->p + IE_L_Q5_1X16_M);
    ie_nibbles32(r, t->p + IE_L_Q5_1X16_Q);
    ie_fifth_bits(r, ie_field_word(t->p + IE_L_Q5_1X16_H, 0));
}
IE_MATH void ie_load_q8_0(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    r->d = ie_load_h(t->p + IE_L_Q8_0X16_D);
    for (int i = 0; i < 8; i++)
        r->w[i] = ie_field_word(t->p + IE_L_Q8_0X16_Q, i);
}

/* 6-bit scales and minima of Q4_K and Q5_K: 12 bytes a lane, as three words. */
IE_MATH void ie_open_k45(ie_tile_state *t, const uint8_t *p, int d, int m, int scales)
{
    const ie_u16 a = ie_field_word(p + scales, 0), b = ie_field_word(p + scales, 1), c = ie_field_word(p + scales, 2);
    t->p = p;
    t->d = ie_load_h(p + d);
    t->m = -ie_load_h(p + m);
    t->sc[0] = a & 0x3F3F3F3Fu;
    t->mn[0] = b & 0x3F3F3F3Fu;
    t->sc[1] = (c & 0x0F0F0F0Fu) | ((a >> 2) & 0x30303030u);
    t->mn[1] = ((c >> 4) & 0x0F0F0F0Fu) | ((b >> 2) & 0x30303030u);
}
IE_MATH void ie_scales_k45(ie_run32 *r, const ie_tile_state *t, int s)
{
    const uint32_t shift = 8u * (uint32_t)(s & 3);
    r->d = t->d * __builtin_convertvector((ie_i16)((t->sc[s >> 2] >> shift) & 255u), ie_f16);
    r->m = t->m * __builtin_convertvector((ie_i16)((t->mn[s >> 2] >> shift) & 255u), ie_f16);
}
IE_MATH void ie_nibbles_k45(ie_run32 *r, const uint8_t *q, int s)
{
    for (int i = 0; i < 8; i++)
        r->w[i] = (ie_field_word(q, 8 * (s >> 1) + i) >> (4u * (uint32_t)(s & 1))) & 0x0F0F0F0Fu;
}
IE_MATH void ie_open_q4_k(ie_tile_state *t, const uint8_t *p) { ie_open_k45(t, p, IE_L_Q4_KX16_D, IE_L_Q4_KX16_M, IE_L_Q4_KX16_S); }
IE_MATH void ie_load_q4_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    ie_scales_k45(r, t, s);
    ie_nibbles_k45(r, t->p + IE_L_Q4_KX16_Q, s);
}
IE_MATH void ie_open_q5_k(ie_tile_state *t, const uint8_t *p) { ie_open_k45(t, p, IE_L_Q5_KX16_D, IE_L_Q5_KX16_M, IE_L_Q5_KX16_S); }
IE_MATH void ie_load_q5_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    ie_scales_k45(r, t, s);
    ie_nibbles_k45(r, t->p + IE_L_Q5_KX16_Q, s);
    for (int i = 0; i < 8; i++)
        r->w[i] |= ((ie_field_word(t->p + IE_L_Q5_KX16_H, i) >> (uint32_t)s) & 0x01010101u) << 4;
}

IE_MATH void ie_open_q6_k(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_Q6_KX16_D);
}
IE_MATH ie_f16 ie_signed_bytes(const uint8_t *p)
{
    typedef int8_t bytes16 __attribute__((ext_vector_type(16), aligned(1)));
    return __builtin_convertvector(*(const bytes16 *)(const void *)p, ie_f16);
}
IE_MATH void ie_load_q6_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    const int half = s >> 2, quarter = s & 3; /* run s is quarter s mod 4 of half s / 4 of the 256 values */
    const uint8_t *q = t->p + IE_L_Q6_KX16_Q, *h = t->p + IE_L_Q6_KX16_H, *sc = t->p + IE_L_Q6_KX16_S;
    r->d = t->d * ie_signed_bytes(sc + ie_field_offset(2 * s, 0, 1));
    r->d1 = t->d * ie_signed_bytes(sc + ie_field_offset(2 * s + 1, 0, 1));
    for (int i = 0; i < 8; i++) {
        ie_u16 low = (ie_field_word(q, 16 * half + 8 * (quarter & 1) + i) >> (4u * (uint32_t)(quarter >> 1))) & 0x0F0F0F0Fu;
        ie_u16 high = (ie_field_word(h, 8 * half + i) >> (2u * (uint32_t)quarter)) & 0x03030303u;
        r->w[i] = low | (high << 4);
    }
}

#endif
