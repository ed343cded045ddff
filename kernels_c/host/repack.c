/* repack.c: GGUF rows to the interleaved layouts of formats.h.
 *
 * Pure data movement: every bit of the file's blocks lands at the place that ie_core.h names (signed codes with their
 * sign bit flipped), so nothing is widened and nothing is rounded. Blocks that hold NaN or an infinity are noticed. */
#include "pool.h"
#include "../include/formats.h"
#include "../include/ops.h"

#include <stdatomic.h>
#include <string.h>

typedef struct {
    int layout;
    const uint8_t *src;
    uint8_t *dst;
    int64_t rows, k;
    int threads;
    _Atomic int bad; /* a block holds NaN or an infinity */
} job;

static uint32_t word_of(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}
static void put_word(uint8_t *p, uint32_t w) { memcpy(p, &w, 4); }

/* The signs of group k of 32, a byte a run of 8: one to each run's place. */
static void arrange_signs(uint8_t *out, int k, uint32_t w)
{
    for (int l = 0; l < 4; l++)
        out[8 * l + k] = (uint8_t)(w >> (8 * l));
}
static void arrange_indices(uint8_t *out, const uint8_t *in, int words)
{
    for (int i = 0; i < 4 * words; i += 4)
        put_word(out + i, ie_pair_bytes(word_of(in + i)));
}

/* Group k of IQ2_XS: 8 index bits, a ninth, and 7 signs a run, and two scales. */
static void arrange_iq2_xs(const uint8_t *b, uint8_t *out, int k)
{
    uint32_t index = 0, ninth = 0, a = (uint32_t)(b[66 + k] & 15) << 28;
    for (int l = 0; l < 4; l++) {
        const uint32_t w = (uint32_t)(b[2 + 8 * k + 2 * l] | b[3 + 8 * k + 2 * l] << 8);
        index |= (w & 255u) << (8 * l);
        ninth |= (w >> 8 & 1u) << l;
        a |= (w >> 9) << (7 * l);
    }
    put_word(out + 2 + 4 * k, ie_pair_bytes(index));
    arrange_signs(out + 34, k, ie_sign_bytes(a));
    out[66 + k / 2] = (uint8_t)((k & 1 ? out[66 + k / 2] : 0) | (b[66 + k] >> 4) << 4 * (k & 1));
    out[70 + k / 2] = (uint8_t)((k & 1 ? out[70 + k / 2] : 0) | ninth << 4 * (k & 1));
}

/* A block whose codes index a grid, in the order that its layout's fields are taken from; see ie/devices/repack.py. */
static void arrange(int layout, const uint8_t *b, uint8_t *out)
{
    const int three = layout == IE_L_IQ3_XXSX16 || layout == IE_L_IQ3_SX16;
    uint8_t *signs = out + (three ? 66 : 34);
    memcpy(out, b, 2);
    if (three || layout == IE_L_IQ2_SX16)
        arrange_indices(out + 2, b + 2, three ? 16 : 8);
    for (int k = 0; k < 8; k++)
        switch (layout) {
        case IE_L_IQ2_XXSX16:
            arrange_indices(out + 2 + 4 * k, b + 2 + 8 * k, 1);
            arrange_signs(signs, k, ie_sign_bytes(word_of(b + 6 + 8 * k)));
            break;
        case IE_L_IQ2_XSX16: arrange_iq2_xs(b, out, k); break;
        case IE_L_IQ2_SX16:
            arrange_signs(signs, k, word_of(b + 34 + 4 * k));
            out[66 + k] = b[74 + k];
            out[74 + k] = (uint8_t)ie_pair_bits(b[66 + k]);
            break;
        case IE_L_IQ3_XXSX16: arrange_signs(signs, k, ie_sign_bytes(word_of(b + 66 + 4 * k))); break;
        case IE_L_IQ3_SX16: arrange_signs(signs, k, word_of(b + 74 + 4 * k)); break;
        }
    if (layout == IE_L_IQ3_SX16) {
        memcpy(out + 98, b + 106, 4);
        memcpy(out + 102, b + 66, 8);
    }
}

static void put_bits(uint8_t *field, int64_t plane, int64_t lane, int width, uint32_t bits)
{
    const int64_t at = ie_plane_bit(plane, lane, width);
    field[at / 8] = (uint8_t)((field[at / 8] & ~(((1u << width) - 1u) << at % 8)) | bits << at % 8);
}

static void pack_planes(const ie_field *f, const uint8_t *block, uint8_t *tile, int64_t lane)
{
    for (int e = 0; e < f->count; e++) {
        const uint32_t byte = block[f->source + e];
        if (f->transform == IE_FIELD_NIBBLES) {
            put_bits(tile + f->offset, e, lane, 4, byte & 15u);
            put_bits(tile + f->offset, f->count + e, lane, 4, byte >> 4);
        } else {
            for (int i = 0; i < 4; i++)
                put_bits(tile + f->offset, 4 * e + i, lane, 2, byte >> 2 * i & 3u);
        }
    }
}

static void pack_field(const ie_field *f, const uint8_t *block, uint8_t *tile, int64_t lane)
{
    if (f->transform == IE_FIELD_NIBBLES || f->transform == IE_FIELD_PAIRS) {
        pack_planes(f, block, tile, lane);
        return;
    }
    for (int e = 0; e < f->count; e++) {
        const uint8_t *from = block + f->source + e * f->unit;
        uint8_t *to = tile + f->offset + ie_field_offset(e, lane, f->unit);
        if (f->unit == 4) {
            uint32_t w;
            memcpy(&w, from, 4);
            w = f->transform == IE_FIELD_BIAS     ? IE_BIAS_CODES(w)
                : f->transform == IE_FIELD_SPREAD ? ie_spread_bits(w)
                                                  : w;
            memcpy(to, &w, 4);
        } else if (f->unit == 2) {
            memcpy(to, from, 2);
        } else {
            *to = *from;
        }
    }
}

/* ---- numbers that are none ---- */

/* Byte offsets of the F16 numbers in a format's blocks; how many there are. */
static int half_fields(int format, int at[2])
{
    at[0] = 0;
    at[1] = 2;
    switch (format) {
    case IE_FMT_Q4_1:
    case IE_FMT_Q5_1:
    case IE_FMT_Q4_K:
    case IE_FMT_Q5_K: return 2;
    case IE_FMT_Q2_K:
        at[0] = 80;
        at[1] = 82;
        return 2;
    case IE_FMT_Q3_K: at[0] = 108; return 1;
    case IE_FMT_Q6_K: at[0] = 208; return 1;
    case IE_FMT_TQ1_0: at[0] = 52; return 1;
    case IE_FMT_TQ2_0: at[0] = 64; return 1;
    case IE_FMT_F32:
    case IE_FMT_F64:
    case IE_FMT_F16:
    case IE_FMT_BF16:
    case IE_FMT_NVFP4:
    case IE_FMT_MXFP4:
    case IE_FMT_IQ1_M: return 0;
    default: return 1;
    }
}

/* Nonzero when one of n F16 or BF16 numbers, `step` bytes apart, has this whole exponent: NaN or an infinity. */
static uint32_t bad_16(const uint8_t *p, int64_t n, int64_t step, uint32_t exponent)
{
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + step * i, 2);
        bad |= (h & exponent) == exponent;
    }
    return bad;
}

/* Whether any of the n blocks at p decodes to NaN or an infinity, where no F16 fields tell. */
static uint32_t bad_others(int format, const uint8_t *p, int64_t n)
{
    const int64_t size = ie_formats[format].size;
    uint32_t bad = 0;
    switch (format) {
    case IE_FMT_F16: return bad_16(p, n, 2, 0x7C00u);
    case IE_FMT_BF16: return bad_16(p, n, 2, 0x7F80u);
    case IE_FMT_F32:
        for (int64_t i = 0; i < n; i++)
            bad |= (word_of(p + 4 * i) & 0x7F800000u) == 0x7F800000u;
        return bad;
    case IE_FMT_F64: /* which becomes F32 */
        for (int64_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, p + 8 * i, 8);
            const float f = (float)d;
            bad |= !(f - f == 0.0f);
        }
        return bad;
    case IE_FMT_MXFP4: /* 2^(e - 128) times up to 12 */
        for (int64_t i = 0; i < n; i++)
            bad |= p[i * size] > 252;
        return bad;
    case IE_FMT_IQ1_M: /* the scale's bits stand in four places, its exponent in the last two */
        for (int64_t i = 0; i < n; i++)
            bad |= (p[i * size + 55] & 0x70) == 0x70 && (p[i * size + 53] & 0xC0) == 0xC0;
        return bad;
    default: return 0; /* the scales of NVFP4 have no such values */
    }
}

static void repack_thread(void *arg, int thread)
{
    job *j = arg;
    const ie_layout_row *l = &ie_layouts[j->layout];
    const int64_t tile = l->size, size = tile / IE_LANES, blocks = j->k / l->block, groups = ie_groups(j->rows);
    int at[2];
    const int halves = half_fields(l->format, at);
    uint32_t bad = 0;
    for (int64_t g = ie_split(groups, j->threads, thread); g < ie_split(groups, j->threads, thread + 1); g++) {
        for (int64_t lane = 0; lane < IE_LANES && ie_row_of(g, lane) < j->rows; lane++)
            for (int64_t b = 0; b < blocks; b++) {
                const uint8_t *block = j->src + (ie_row_of(g, lane) * blocks + b) * size;
                for (int i = 0; i < halves; i++)
                    bad |= bad_16(block + at[i], 1, 0, 0x7C00u);
                uint8_t arranged[128]; /* more than a block of any format that is arranged */
                if (l->arranged)
                    arrange(j->layout, block, arranged);
                for (const ie_field *f = l->field; f->unit; f++)
                    pack_field(f, l->arranged ? arranged : block, j->dst + ie_tile_offset(g, b, blocks, tile), lane);
            }
        /* now, while caches hold the rows */
        bad |= bad_others(l->format, j->src + ie_row_of(g, 0) * blocks * size,
                          ie_min(IE_LANES, j->rows - ie_row_of(g, 0)) * blocks);
    }
    if (bad)
        atomic_store(&j->bad, 1);
}

static void copy_thread(void *arg, int thread)
{
    job *j = arg;
    const int format = j->layout - IE_L_ROWS;
    const int64_t lo = ie_split(j->rows, j->threads, thread), hi = ie_split(j->rows, j->threads, thread + 1);
    int at[2];
    const int halves = half_fields(format, at);
    const int64_t size = ie_formats[format].size, n = j->k / size;
    uint32_t bad = 0;
    for (int64_t r = lo; r < hi; r++) {
        const uint8_t *row = j->src + r * j->k;
        memcpy(j->dst + r * j->k, row, (size_t)j->k);
        for (int i = 0; i < halves; i++)
            bad |= bad_16(row + at[i], n, size, 0x7C00u);
        bad |= bad_others(format, row, n);
    }
    if (bad)
        atomic_store(&j->bad, 1);
}

/* dst must be zero where rows do not fill the last group. 1 when some of the numbers are none, < 0 when refused. */
int ie_repack(ie_pool *pool, int layout, const uint8_t *src, uint8_t *dst, int64_t rows, int64_t k)
{
    job j = {layout, src, dst, rows, k, ie_pool_threads(pool), 0};
    if (rows < 1 || k < 1)
        return -1;
    if (layout >= IE_L_ROWS && layout < IE_L_ROWS + IE_FMT_COUNT && ie_formats[layout - IE_L_ROWS].block) {
        const ie_format_row f = ie_formats[layout - IE_L_ROWS];
        if (k % f.block != 0)
            return -1;
        j.k = k / f.block * f.size; /* bytes of a row: they stay as they are */
        ie_pool_run(pool, copy_thread, &j, 1);
        return j.bad;
    }
    if (layout < 1 || layout >= IE_L_COUNT || k % ie_layouts[layout].block != 0)
        return -1;
    ie_pool_run(pool, repack_thread, &j, 1);
    return j.bad;
}
