/* one_lane.c: the loaders of include/tiles.h where a value is a number and the row is the thread's lane, as on a GPU.
 *
 * Owns: a target of one lane in plain C, and the decoding of a matrix through it. What is decoded is compared with the
 * numpy decoders: tests/cpu/test_one_lane.py. */
#include <stdint.h>
#include <string.h>

#include "../../kernels_c/include/formula.h"

typedef float ie_vf;
typedef int32_t ie_vi;
typedef uint32_t ie_vu;

static int lane; /* of the thread: row of its group */

#define LOAD(name, type, result) \
    IE_MATH result name(const uint8_t *p) \
    { \
        type v; \
        memcpy(&v, p + lane * (int)sizeof v, sizeof v); \
        return (result)v; \
    }
LOAD(ie_load_w, uint32_t, ie_vu)
LOAD(ie_load_h, _Float16, ie_vf)
LOAD(ie_load_u16, uint16_t, ie_vu)
LOAD(ie_load_u8, uint8_t, ie_vu)
LOAD(ie_load_i8, int8_t, ie_vi)
IE_MATH ie_vf ie_to_float(ie_vi v) { return (float)v; }
IE_MATH ie_vf ie_from_word(ie_vu v) { return ie_from_bits(v); }

/* f(byte i) of each byte of v */
#define BYTES(v, f) \
    ie_vu out = 0; \
    for (int i = 0; i < 4; i++) \
        out |= (ie_vu)(uint8_t)(f((v) >> 8 * i & 255u)) << 8 * i; \
    return out

IE_MATH ie_vu ie_lookup(ie_vu v, const uint8_t table[16])
{
#define FROM_TABLE(byte) table[byte]
    BYTES(v, FROM_TABLE);
}
IE_MATH ie_vu negated_where(ie_vu v, ie_vu bits)
{
#define SIGNED(byte) (bits >> i & 1 ? 0u - (byte) : (byte))
    BYTES(v, SIGNED);
}

/* The lane's own eight nibbles of eight planes in a word: nibble s is that of plane s. */
IE_MATH ie_vu own_nibble(const uint8_t *plane) { return plane[lane / 2] >> 4 * (lane % 2) & 15u; }
IE_MATH ie_vu ie_load_planes(const uint8_t *p)
{
    ie_vu out = 0;
    for (int s = 0; s < 8; s++)
        out |= own_nibble(p + 8 * s) << 4 * s;
    return out;
}
IE_MATH ie_vu ie_planes_nibble(const ie_vu *planes, int s) { return *planes >> 4 * s & 15u; }
IE_MATH ie_vu ie_negated(ie_vu v, const uint8_t *plane) { return negated_where(v, own_nibble(plane)); }
IE_MATH ie_vu ie_negated_by(ie_vu v, const ie_vu *planes, int s)
{
    return negated_where(v, ie_planes_nibble(planes, s));
}
IE_MATH ie_vu ie_pair_bit(uint32_t plane, int i) { return plane >> (2 * lane + i) & 1u; }
IE_MATH ie_vu ie_gather(const int8_t *table, ie_vu index)
{
    ie_vu v;
    memcpy(&v, table + 4 * index, 4);
    return v;
}

#include "../../kernels_c/include/tiles.h"

/* Words of run r to its 32 values: (code - bias) * d + m. */
static void values_of(const ie_run32 *r, int has_min, int halves, int bias, float *out)
{
    for (int i = 0; i < 32; i++) {
        const int second = halves && i >= 16;
        const float code = (float)((int)(r->w[i / 4] >> 8 * (i % 4) & 255u) - bias);
        out[i] = code * (second ? r->d1 : r->d) + (has_min ? (second ? r->m1 : r->m) : 0.0f);
    }
}

#define QUANT(NAME, name, runs, has_min, halves, bias, lookup) \
    case IE_L_##NAME##X16: { \
        ie_tile_state t; \
        ie_open_##name(&t, tile); \
        for (int s = 0; s < runs; s++) { \
            ie_run32 r; \
            ie_load_##name(&r, &t, s); \
            values_of(&r, has_min, halves, bias, out + 32 * s); \
        } \
        return 0; \
    }
#define FLOAT(NAME, name) \
    case IE_L_##NAME##X16: *out = ie_value_##name(tile); return 0;

/* The block of a tile that belongs to row `row` of the group. -1: no such layout. */
int one_lane_decode(int layout, const uint8_t *tile, int row, float *out)
{
    lane = row;
    switch (layout) {
        IE_FOR_EACH_QUANT(QUANT)
        FLOAT(F32, f32)
        FLOAT(F16, f16)
        FLOAT(BF16, bf16)
    default: return -1;
    }
}
