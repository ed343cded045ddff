/* grids.h: loaders of the formats whose codes index a grid of magnitudes (IQ2, IQ3); included by tiles.h.
 *
 * A run of 32 values has an index for each 8 (IQ2, magnitudes 8, 25, 43) or 4 of them (IQ3), a sign for each value and
 * a scale of 4 bits for 32 or 16. Codes are kept + 128: negated where the sign says so, modulo 256, they are 128 -
 * magnitude. Signs stand in planes (ie_core.h): 8 bytes have the four sign bits of one word of all 16 rows, in the
 * order of the word's bytes. Where a file has 7 bits for 8 signs, the eighth is the parity, found once a tile for all
 * runs. An index has no more bits than its grid has rows: no bytes of a file lead outside a table. *
 * Signs of all lanes lie side by side, four bits each: eight planes, one a run, are 64 bytes. The target takes them as
 * it finds them best, as long as each lane gets its own bits:
 *   ie_load_planes(p)            eight planes, in any order of bits that keeps a nibble's bits together and in order
 *   ie_planes_nibble(planes, s)  the lane's nibble of plane s, as a number
 *   ie_negated(v, p)             byte i of v negated where the lane's bit i of the plane at p is set
 *   ie_negated_by(v, planes, s)  the same with plane s of loaded ones
 *   ie_pair_bit(plane, i)        bit i of the lane's two in a plane of two bits a lane
 *   ie_gather(table, index)      word `index` of a table of words */
#ifndef IE_GRIDS_H
#define IE_GRIDS_H

#include "iq_codes.h"
#include "iq_grids.h"

/* A grid: its words (one a row for IQ3, two for IQ2), its codes and its rows; constants where they are used. */
typedef struct {
    const int8_t *words;
    const uint16_t *codes;
    int rows;
} ie_grid;
/* Two indices a lane: bits 0 … 7 in the low bytes of the half-words of `low` (what stands above does not count), bits 8
 * and 9 in planes of two bits a lane. */
typedef struct {
    ie_vu low;
    uint32_t bit8, bit9;
} ie_indices;

/* Words of codes + 128: out[0], out[1] for the indices in the low and high half-words. */
IE_MATH void ie_grid_words(ie_vu *out, ie_indices i, ie_grid g);
/* The same for grids of 8 values a row: out[0], out[1] for the low index, out[2], out[3] for the high one. */
IE_MATH void ie_grid_pairs(ie_vu *out, ie_indices i, ie_grid g);

#if !defined(IE_OWN_GRIDS)

/* The low (half 0) or high index of each lane. */
IE_MATH ie_vu ie_index_of(ie_indices i, int half, int rows)
{
    ie_vu index = (i.low >> (16u * (uint32_t)half)) & 255u;
    if (rows > 256)
        index |= ie_pair_bit(i.bit8, half) << 8;
    if (rows > 512)
        index |= ie_pair_bit(i.bit9, half) << 9;
    return index;
}
IE_MATH void ie_grid_words(ie_vu *out, ie_indices i, ie_grid g)
{
    for (int half = 0; half < 2; half++)
        out[half] = IE_BIAS_CODES(ie_gather(g.words, ie_index_of(i, half, g.rows)));
}
IE_MATH void ie_grid_pairs(ie_vu *out, ie_indices i, ie_grid g)
{
    for (int half = 0; half < 2; half++) {
        const ie_vu at = ie_index_of(i, half, g.rows) << 1;
        out[2 * half] = IE_BIAS_CODES(ie_gather(g.words, at));
        out[2 * half + 1] = IE_BIAS_CODES(ie_gather(g.words, at + 1u));
    }
}

#endif

/* ---- signs and scales ---- */

#define IE_SIGN_HIGH 256 /* bytes from the planes of even words to those of odd ones */

/* Signs of run s: the planes of even words, then IE_SIGN_HIGH bytes on those of odd ones. */
IE_MATH void ie_signed_words(ie_run32 *r, const uint8_t *signs, int s)
{
    for (int l = 0; l < 4; l++) {
        r->w[2 * l] = ie_negated(r->w[2 * l], signs + 8 * (8 * l + s));
        r->w[2 * l + 1] = ie_negated(r->w[2 * l + 1], signs + IE_SIGN_HIGH + 8 * (8 * l + s));
    }
}
/* The same where the planes of odd words were completed in the state. */
IE_MATH void ie_signed_words_of(ie_run32 *r, const uint8_t *signs, const ie_tile_state *t, int s)
{
    for (int l = 0; l < 4; l++) {
        r->w[2 * l] = ie_negated(r->w[2 * l], signs + 8 * (8 * l + s));
        r->w[2 * l + 1] = ie_negated_by(r->w[2 * l + 1], &t->sc[l], s);
    }
}
/* The eighth sign of each run of 8 into t->sc, and the bits that stood in its place into t->mn[0]: 4 for each run,
 * row. */
IE_MATH void ie_open_parity(ie_tile_state *t, const uint8_t *signs)
{
    t->mn[0] = (ie_vu)(0u);
    for (int l = 0; l < 4; l++) {
        const ie_vu low = ie_load_planes(signs + 64 * l), raw = ie_load_planes(signs + IE_SIGN_HIGH + 64 * l);
        const ie_vu high = raw & 0x77777777u;
        ie_vu x = low ^ high;
        x ^= x << 2;
        x ^= x << 1; /* bit 3 of a nibble: the parity of the nibble */
        t->sc[l] = high | (x & 0x88888888u);
        t->mn[0] |= (raw & 0x88888888u) >> (uint32_t)(3 - l);
    }
}
/* d times 1 + 2 s. */
IE_MATH ie_vf ie_odd_scale(ie_vf d, ie_vu s) { return d * ie_to_float((ie_vi)(s + s + 1u)); }
/* The scale that stood among the signs of run s. */
IE_MATH ie_vu ie_sign_scale(const ie_tile_state *t, int s) { return ie_planes_nibble(&t->mn[0], s); }
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
    const ie_vu q = ie_field_word(t->p + IE_L_IQ2_XXSX16_Q, s);
    r->d = ie_odd_scale(t->d, ie_sign_scale(t, s));
    for (int i = 0; i < 2; i++)
        ie_grid_pairs(r->w + 4 * i, (ie_indices){q >> (8u * (uint32_t)i), 0, 0}, IE_GRID(iq2_xxs, 256));
    ie_signed_words_of(r, t->p + IE_L_IQ2_XXSX16_G, t, s);
}

IE_MATH void ie_open_iq2_xs(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ2_XSX16_D) * 0.125f;
    t->mn[1] = ie_field_word(p + IE_L_IQ2_XSX16_S, 0); /* 8 scales of 4 bits, as they are */
    ie_open_parity(t, p + IE_L_IQ2_XSX16_G);
}
IE_MATH void ie_load_iq2_xs(ie_run32 *r, const ie_tile_state *t, int s)
{
    const ie_vu q = ie_field_word(t->p + IE_L_IQ2_XSX16_Q, s);
    const uint8_t *h = t->p + IE_L_IQ2_XSX16_H + 8 * s;
    r->d = ie_odd_scale(t->d, ie_sign_scale(t, s));
    r->d1 = ie_odd_scale(t->d, (t->mn[1] >> (4u * (uint32_t)s)) & 15u);
    for (int i = 0; i < 2; i++)
        ie_grid_pairs(r->w + 4 * i, (ie_indices){q >> (8u * (uint32_t)i), ie_plane32(h + 4 * i), 0},
                      IE_GRID(iq2_xs, 512));
    ie_signed_words_of(r, t->p + IE_L_IQ2_XSX16_G, t, s);
}

IE_MATH void ie_open_iq2_s(ie_tile_state *t, const uint8_t *p)
{
    t->p = p;
    t->d = ie_load_h(p + IE_L_IQ2_SX16_D) * 0.125f;
}
IE_MATH void ie_load_iq2_s(ie_run32 *r, const ie_tile_state *t, int s)
{
    const ie_vu q = ie_field_word(t->p + IE_L_IQ2_SX16_Q, s);
    const ie_vu scales = ie_field_word(t->p + IE_L_IQ2_SX16_S, s >> 2) >> (8u * (uint32_t)(s & 3));
    const uint8_t *h = t->p + IE_L_IQ2_SX16_H + 16 * s, *signs = t->p + IE_L_IQ2_SX16_G;
    r->d = ie_odd_scale(t->d, scales & 15u);
    r->d1 = ie_odd_scale(t->d, (scales >> 4) & 15u);
    for (int i = 0; i < 2; i++)
        ie_grid_pairs(r->w + 4 * i,
                      (ie_indices){q >> (8u * (uint32_t)i), ie_plane32(h + 8 * i), ie_plane32(h + 8 * i + 4)},
                      IE_GRID(iq2_s, 1024));
    ie_signed_words(r, signs, s);
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
        const ie_vu q = ie_field_word(t->p + IE_L_IQ3_XXSX16_Q, 2 * s + (i >> 1));
        ie_grid_words(r->w + 2 * i, (ie_indices){q >> (8u * (uint32_t)(i & 1)), 0, 0}, IE_GRID(iq3_xxs, 256));
    }
    ie_signed_words_of(r, t->p + IE_L_IQ3_XXSX16_G, t, s);
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
        const ie_vu q = ie_field_word(t->p + IE_L_IQ3_SX16_Q, 2 * s + (i >> 1));
        ie_grid_words(r->w + 2 * i, (ie_indices){q >> (8u * (uint32_t)(i & 1)), ie_plane32(h + 4 * i), 0},
                      IE_GRID(iq3_s, 512));
    }
    ie_signed_words(r, signs, s);
}

#endif
