/* tiles.h: one inline loader per interleaved layout: 32 values of a weight row, or of several, as dot4 operands.
 *
 * A tile covers `runs` runs of 32 values along K (1, or 8 for the formats of 256). ie_open_X decodes what a tile's
 * runs share, ie_load_X gives run s. Codes are unsigned bytes; the true code is code - bias. Run s contributes
 *   sum over j of d_j * da * (integer dot of half j), j = 0, 1 for formats with a scale per 16 values, else whole,
 *   plus m * da * sum(a) where the format has a minimum (m carries its sign), by halves (m, m1) where scales are.
 * Which layouts there are and what holds for their codes: IE_FOR_EACH_QUANT. Value formulas: ie/formats/.
 *
 * Rows stand in lanes, and the target says how many lanes a value has: on a CPU a value is a vector of all 16
 * (cpu/lanes.h); on a GPU it is a number, and the thread's lane is its row; so it is in tests/cpu/one_lane.c. Before
 * this file the target defines
 *   ie_vf, ie_vi, ie_vu   float, int32_t and uint32_t in each lane, with C's operators on them and on numbers;
 *   ie_load_w, ie_load_h, ie_load_u16, ie_load_u8, ie_load_i8 (p)   number `lane` from p on: a word as it is, a half as
 *   float, integers widened;
 *   ie_to_float(ie_vi), ie_from_word(ie_vu)   as a number; the same bits;
 *   ie_lookup(words, table)   each byte (0 ... 15) replaced by table[byte];
 *   and what grids.h names: ie_load_planes and the like, or IE_OWN_GRIDS where a processor has something better than a
 *   gather, with ie_grid_words and ie_grid_pairs behind this file. */
#ifndef IE_TILES_H
#define IE_TILES_H

#include <string.h>

#include "../../core_laws/ie_core.h"
#include "formats.h"
#include "formula.h"

typedef struct {
    ie_vu w[8];
    ie_vf d, d1, m, m1;
} ie_run32;
/* Scales of a tile of 256 values: bytes of sub-scales and sub-minima, four a word, and the two super-scales. */
typedef struct {
    ie_vu sc[4], mn[4];
    ie_vf d, m;
    const uint8_t *p;
} ie_tile_state;

IE_MATH ie_vu ie_field_word(const uint8_t *field, int element)
{
    return ie_load_w(field + ie_field_offset(element, 0, 4));
}

/* Byte k of words, as a number in each lane. */
IE_MATH ie_vi ie_byte_of(const ie_vu *words, int k) { return (ie_vi)IE_BYTE(words[k >> 2], (uint32_t)(k & 3)); }

IE_MATH void ie_nibbles32(ie_run32 *r, const uint8_t *q)
{
    for (int i = 0; i < 4; i++) {
        const ie_vu w = ie_field_word(q, i);
        r->w[i] = IE_NIBBLES_LOW(w);
        r->w[i + 4] = IE_NIBBLES_HIGH(w);
    }
}
IE_MATH void ie_fifth_bits(ie_run32 *r, ie_vu spread)
{
    for (int i = 0; i < 8; i++)
        r->w[i] |= ((spread >> (uint32_t)i) & 0x01010101u) << 4;
}
/* Tiles of one run share nothing. */
IE_MATH void ie_open_plain(ie_tile_state *t, const uint8_t *p) { t->p = p; }
#define ie_open_q4_0 ie_open_plain
#define ie_open_q4_1 ie_open_plain
#define ie_open_q5_0 ie_open_plain
#define ie_open_q5_1 ie_open_plain
#define ie_open_q8_0 ie_open_plain
#define ie_open_iq4_nl ie_open_plain
#define ie_open_mxfp4 ie_open_plain

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
    const ie_vu a = ie_field_word(p + scales, 0), b = ie_field_word(p + scales, 1), c = ie_field_word(p + scales, 2);
    t->p = p;
    t->d = ie_load_h(p + d);
    t->m = -ie_load_h(p + m);
    t->sc[0] = a & 0x3F3F3F3Fu;
    t->mn[0] = b & 0x3F3F3F3Fu;
    t->sc[1] = IE_NIBBLES_LOW(c) | ((a >> 2) & 0x30303030u);
    t->mn[1] = IE_NIBBLES_HIGH(c) | ((b >> 2) & 0x30303030u);
}
IE_MATH void ie_scales_k45(ie_run32 *r, const ie_tile_state *t, int s)
{
    r->d = t->d * ie_to_float(ie_byte_of(t->sc, s));
    r->m = t->m * ie_to_float(ie_byte_of(t->mn, s));
}
IE_MATH void ie_nibbles_k45(ie_run32 *r, const uint8_t *q, int s)
{
    for (int i = 0; i < 8; i++)
        r->w[i] = IE_NIBBLES_LOW(ie_field_word(q, 8 * (s >> 1) + i) >> (4u * (uint32_t)(s & 1)));
}
IE_MATH void ie_open_q4_k(ie_tile_state *t, const uint8_t *p)
{
    ie_open_k45(t, p, IE_L_Q4_KX16_D, IE_L_Q4_KX16_M, IE_L_Q4_KX16_S);
}
IE_MATH void ie_load_q4_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    ie_scales_k45(r, t, s);
    ie_nibbles_k45(r, t->p + IE_L_Q4_KX16_Q, s);
}
IE_MATH void ie_open_q5_k(ie_tile_state *t, const uint8_t *p)
{
    ie_open_k45(t, p, IE_L_Q5_KX16_D, IE_L_Q5_KX16_M, IE_L_Q5_KX16_S);
}
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
IE_MATH void ie_load_q6_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    const int half = s >> 2, quarter = s & 3; /* run s is quarter s mod 4 of half s / 4 of the 256 values */
    const uint8_t *q = t->p + IE_L_Q6_KX16_Q, *h = t->p + IE_L_Q6_KX16_H, *sc = t->p + IE_L_Q6_KX16_S;
    r->d = t->d * ie_to_float(ie_load_i8(sc + ie_field_offset(2 * s, 0, 1)));
    r->d1 = t->d * ie_to_float(ie_load_i8(sc + ie_field_offset(2 * s + 1, 0, 1)));
    for (int i = 0; i < 8; i++) {
        const ie_vu low =
            IE_NIBBLES_LOW(ie_field_word(q, 16 * half + 8 * (quarter & 1) + i) >> (4u * (uint32_t)(quarter >> 1)));
        const ie_vu high = (ie_field_word(h, 8 * half + i) >> (2u * (uint32_t)quarter)) & 0x03030303u;
        r->w[i] = low | (high << 4);
    }
}

/* ---- nibbles that index a table of signed values; kept + 128 ---- */

static const uint8_t ie_values_nl[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t ie_values_fp4[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                          128, 127, 126, 125, 124, 122, 120, 116};

IE_MATH void ie_looked_up(ie_run32 *r, const uint8_t *q, const uint8_t *values)
{
    ie_nibbles32(r, q);
    for (int i = 0; i < 8; i++)
        r->w[i] = ie_lookup(r->w[i], values);
}
IE_MATH void ie_load_iq4_nl(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    r->d = ie_load_h(t->p + IE_L_IQ4_NLX16_D);
    ie_looked_up(r, t->p + IE_L_IQ4_NLX16_Q, ie_values_nl);
}
IE_MATH void ie_load_mxfp4(ie_run32 *r, const ie_tile_state *t, int s)
{
    (void)s;
    const ie_vu e = ie_load_u8(t->p + IE_L_MXFP4X16_E);
    /* 2^(e - 128): below e = 2 a subnormal number */
    r->d = ie_from_word(e >= 2u ? (e - 1u) << 23 : (ie_vu)(0x00200000u) << e);
    ie_looked_up(r, t->p + IE_L_MXFP4X16_Q, ie_values_fp4);
}
IE_MATH void ie_open_iq4_xs(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ4_XSX16_D);
    t->sc[0] = ie_field_word(p + IE_L_IQ4_XSX16_S, 0); /* low 4 bits of the 8 scales */
    t->sc[1] = ie_load_u16(p + IE_L_IQ4_XSX16_H);      /* high 2 bits */
}
IE_MATH void ie_load_iq4_xs(ie_run32 *r, const ie_tile_state *t, int s)
{
    const ie_vu scale = ((t->sc[0] >> (4u * (uint32_t)s)) & 15u) | (((t->sc[1] >> (2u * (uint32_t)s)) & 3u) << 4);
    r->d = t->d * ie_to_float((ie_vi)scale - 32);
    ie_looked_up(r, t->p + IE_L_IQ4_XSX16_Q + ie_field_offset(4 * s, 0, 4), ie_values_nl);
}

/* ---- two and three bits, a scale per 16 values ---- */

/* Run s: quarter s mod 4 of half s / 4, two bits at a time. */
IE_MATH void ie_pairs(ie_run32 *r, const uint8_t *q, int s)
{
    for (int i = 0; i < 8; i++)
        r->w[i] = (ie_field_word(q, 8 * (s >> 2) + i) >> (2u * (uint32_t)(s & 3))) & 0x03030303u;
}
IE_MATH void ie_open_q2_k(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_Q2_KX16_D);
    t->m = -ie_load_h(p + IE_L_Q2_KX16_M);
    for (int i = 0; i < 4; i++) {
        const ie_vu w = ie_field_word(p + IE_L_Q2_KX16_S, i);
        t->sc[i] = IE_NIBBLES_LOW(w);
        t->mn[i] = IE_NIBBLES_HIGH(w);
    }
}
IE_MATH void ie_load_q2_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    r->d = t->d * ie_to_float(ie_byte_of(t->sc, 2 * s));
    r->d1 = t->d * ie_to_float(ie_byte_of(t->sc, 2 * s + 1));
    r->m = t->m * ie_to_float(ie_byte_of(t->mn, 2 * s));
    r->m1 = t->m * ie_to_float(ie_byte_of(t->mn, 2 * s + 1));
    ie_pairs(r, t->p + IE_L_Q2_KX16_Q, s);
}
IE_MATH void ie_open_q3_k(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_Q3_KX16_D);
    const ie_vu a = ie_field_word(p + IE_L_Q3_KX16_S, 0), b = ie_field_word(p + IE_L_Q3_KX16_S, 1);
    const ie_vu high = ie_field_word(p + IE_L_Q3_KX16_S, 2);
    for (int i = 0; i < 4; i++) { /* scales 4i … 4i + 3: four low bits from a or b, two high ones */
        const ie_vu low = IE_NIBBLES_LOW((i & 1 ? b : a) >> (4u * (uint32_t)(i >> 1)));
        t->sc[i] = low | (((high >> (2u * (uint32_t)i)) & 0x03030303u) << 4);
    }
}
IE_MATH void ie_load_q3_k(ie_run32 *r, const ie_tile_state *t, int s)
{
    r->d = t->d * ie_to_float(ie_byte_of(t->sc, 2 * s) - 32);
    r->d1 = t->d * ie_to_float(ie_byte_of(t->sc, 2 * s + 1) - 32);
    ie_pairs(r, t->p + IE_L_Q3_KX16_Q, s);
    for (int i = 0; i < 8; i++) /* a third bit, which stands for 4; its absence subtracts 4: the bias */
        r->w[i] |= ((ie_field_word(t->p + IE_L_Q3_KX16_H, i) >> (uint32_t)s) & 0x01010101u) << 2;
}

/* ---- float weights: one value of each row ---- */

IE_MATH ie_vf ie_value_f32(const uint8_t *p) { return ie_from_word(ie_load_w(p)); }
IE_MATH ie_vf ie_value_f16(const uint8_t *p) { return ie_load_h(p); }
IE_MATH ie_vf ie_value_bf16(const uint8_t *p) { return ie_from_word(ie_load_u16(p) << 16); }

#include "grids.h"

#endif
