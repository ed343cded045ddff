/* repack.c: GGUF rows to the interleaved layouts of formats.h; and the bandwidth measurement.
 *
 * Pure data movement: every byte of the file's blocks lands at the place ie_core.h names (signed codes with
 * their sign bit flipped), so nothing is widened and nothing is rounded. */
#define _GNU_SOURCE
#include "pool.h"
#include "../include/formats.h"
#include "../include/ops.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

typedef struct { int layout; const uint8_t *src; uint8_t *dst; int64_t rows, k; int threads; } job;

static void pack_field(const ie_field *f, const uint8_t *block, uint8_t *tile, int64_t lane)
{
    for (int e = 0; e < f->count; e++) {
        const uint8_t *from = block + f->source + e * f->unit;
        uint8_t *to = tile + f->offset + ie_field_offset(e, lane, f->unit);
        if (f->unit == 4) {
            uint32_t w;
            memcpy(&w, from, 4);
            w = f->transform == IE_FIELD_BIAS ? ie_bias_codes(w) : f->transform == IE_FIELD_SPREAD ? ie_spread_bits(w) : w;
            memcpy(to, &w, 4);
        } else if (f->unit == 2) {
            memcpy(to, from, 2);
        } else {
            *to = *from;
        }
    }
}

static void repack_thread(void *arg, int thread)
{
    const job *j = arg;
    const ie_layout_row *l = &ie_layouts[j->layout];
    const int64_t tile = l->size, size = tile / IE_LANES, blocks = j->k / l->block, groups = ie_groups(j->rows);
    for (int64_t g = ie_split(groups, j->threads, thread); g < ie_split(groups, j->threads, thread + 1); g++)
        for (int64_t lane = 0; lane < IE_LANES && g * IE_LANES + lane < j->rows; lane++)
            for (int64_t b = 0; b < blocks; b++)
                for (const ie_field *f = l->field; f->unit; f++)
                    pack_field(f, j->src + ((g * IE_LANES + lane) * blocks + b) * size,
                               j->dst + ie_tile_offset(g, b, blocks, tile), lane);
}

static void copy_thread(void *arg, int thread)
{
    const job *j = arg;
    const int64_t lo = ie_split(j->rows, j->threads, thread), hi = ie_split(j->rows, j->threads, thread + 1);
    memcpy(j->dst + lo * j->k, j->src + lo * j->k, (size_t)((hi - lo) * j->k));
}

/* dst must be zero where rows do not fill the last group. */
int ie_repack(ie_pool *pool, int layout, const uint8_t *src, uint8_t *dst, int64_t rows, int64_t k)
{
    job j = {layout, src, dst, rows, k, ie_pool_threads(pool)};
    if (rows < 1 || k < 1)
        return -1;
    if (layout >= IE_L_ROWS && layout < IE_L_ROWS + IE_FMT_COUNT && ie_formats[layout - IE_L_ROWS].block) {
        const ie_format_row f = ie_formats[layout - IE_L_ROWS];
        if (k % f.block != 0)
            return -1;
        j.k = k / f.block * f.size; /* bytes of a row: they stay as they are */
        ie_pool_run(pool, copy_thread, &j, 1);
        return 0;
    }
    if (layout < 1 || layout >= IE_L_COUNT || k % ie_layouts[layout].block != 0)
        return -1;
    ie_pool_run(pool, repack_thread, &j, 1);
    return 0;
}

typedef struct { const uint64_t *data; int64_t words; int threads; _Atomic uint64_t sum; } reading;

static void read_thread(void *arg, int thread)
{
    reading *r = arg;
    const int64_t lo = ie_split(r->words / 32, r->threads, thread) * 32, hi = ie_split(r->words / 32, r->threads, thread + 1) * 32;
    uint64_t s[32] = {0}; /* independent chains: the loop must wait for memory only */
    for (int64_t i = lo; i < hi; i += 32)
        for (int j = 0; j < 32; j++)
            s[j] += r->data[i + j];
    uint64_t sum = 0;
    for (int j = 0; j < 32; j++)
        sum += s[j];
    atomic_fetch_add(&r->sum, sum);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double ie_read_seconds(ie_pool *pool, const void *p, int64_t bytes)
{
    reading r = {.data = p, .words = bytes / 8, .threads = ie_pool_threads(pool)};
    const double t = seconds();
    ie_pool_run(pool, read_thread, &r, 1);
    return seconds() - t;
}

double ie_read_bandwidth(ie_pool *pool, int64_t bytes, int rounds)
{
    uint64_t *data = ie_alloc(bytes);
    if (!data)
        return -1.0;
    ie_huge_pages(data, bytes);
    memset(data, 1, (size_t)bytes);
    double best = 0.0;
    for (int i = 0; i < rounds; i++) {
        const double t = ie_read_seconds(pool, data, bytes);
        best = bytes / t > best ? bytes / t : best;
    }
    ie_free(data, bytes);
    return best;
}
