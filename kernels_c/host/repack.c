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

static uint32_t word_at(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}
static void put_word(uint8_t *p, uint32_t w) { memcpy(p, &w, 4); }

static void pack_lane(int layout, const uint8_t *block, uint8_t *tile, int64_t lane)
{
    switch (layout) {
    case IE_L_Q4_1X16:
        memcpy(tile + IE_L_Q4_1X16_D + ie_half_offset(lane), block, 2);
        memcpy(tile + IE_L_Q4_1X16_M + ie_half_offset(lane), block + 2, 2);
        for (int w = 0; w < 4; w++)
            put_word(tile + IE_L_Q4_1X16_Q + ie_word_offset(w, lane), word_at(block + 4 + 4 * w));
        break;
    case IE_L_Q8_0X16:
        memcpy(tile + IE_L_Q8_0X16_D + ie_half_offset(lane), block, 2);
        for (int w = 0; w < 8; w++)
            put_word(tile + IE_L_Q8_0X16_Q + ie_word_offset(w, lane), ie_bias_codes(word_at(block + 2 + 4 * w)));
        break;
    case IE_L_F32X16: memcpy(tile + 4 * lane, block, 4); break;
    case IE_L_F16X16: memcpy(tile + 2 * lane, block, 2); break;
    }
}

static const struct { int block, bytes; } layouts[] = {
    [IE_L_Q4_1X16] = {IE_L_Q4_1X16_BLOCK, IE_L_Q4_1X16_SIZE},
    [IE_L_Q8_0X16] = {IE_L_Q8_0X16_BLOCK, IE_L_Q8_0X16_SIZE},
    [IE_L_F32X16] = {IE_L_F32X16_BLOCK, IE_L_F32X16_SIZE},
    [IE_L_F16X16] = {IE_L_F16X16_BLOCK, IE_L_F16X16_SIZE},
};

static void repack_thread(void *arg, int thread)
{
    const job *j = arg;
    const int64_t tile = layouts[j->layout].bytes, size = tile / IE_LANES, blocks = j->k / layouts[j->layout].block;
    const int64_t groups = ie_groups(j->rows);
    for (int64_t g = ie_split(groups, j->threads, thread); g < ie_split(groups, j->threads, thread + 1); g++)
        for (int64_t lane = 0; lane < IE_LANES && g * IE_LANES + lane < j->rows; lane++)
            for (int64_t b = 0; b < blocks; b++)
                pack_lane(j->layout, j->src + ((g * IE_LANES + lane) * blocks + b) * size,
                          j->dst + ie_tile_offset(g, b, blocks, tile), lane);
}

/* dst must be zero where rows do not fill the last group. */
int ie_repack(ie_pool *pool, int layout, const uint8_t *src, uint8_t *dst, int64_t rows, int64_t k)
{
    if (layout < 1 || layout >= IE_L_COUNT || rows < 1 || k < 1 || k % layouts[layout].block != 0)
        return -1;
    job j = {layout, src, dst, rows, k, ie_pool_threads(pool)};
    ie_pool_run(pool, repack_thread, &j);
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

double ie_read_bandwidth(ie_pool *pool, int64_t bytes, int rounds)
{
    uint64_t *data = ie_alloc(bytes);
    if (!data)
        return -1.0;
    memset(data, 1, (size_t)bytes);
    double best = 0.0;
    for (int i = 0; i < rounds; i++) {
        reading r = {.data = data, .words = bytes / 8, .threads = ie_pool_threads(pool)};
        double t = seconds();
        ie_pool_run(pool, read_thread, &r);
        t = seconds() - t;
        best = bytes / t > best ? bytes / t : best;
    }
    ie_free(data, bytes);
    return best;
}
