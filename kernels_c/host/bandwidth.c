/* bandwidth.c: how fast the threads of a pool read memory, when they do nothing else. */
#include "pool.h"
#include "../../core_laws/ie_core.h"
#include "../include/vectorize.h"

#include <string.h>

typedef struct {
    const uint64_t *data;
    int64_t words;
    int threads;
    _Atomic uint64_t sum;
} reading;

static void read_thread(void *arg, int thread)
{
    reading *r = arg;
    const int64_t lo = ie_split(r->words / 32, r->threads, thread) * 32,
                  hi = ie_split(r->words / 32, r->threads, thread + 1) * 32;
    uint64_t s[32] = {0}; /* independent chains: the loop must wait for memory only */
    for (int64_t i = lo; i < hi; i += 32) {
        IE_VECTORIZE
        for (int j = 0; j < 32; j++)
            s[j] += r->data[i + j];
    }
    uint64_t sum = 0;
    for (int j = 0; j < 32; j++)
        sum += s[j];
    atomic_fetch_add(&r->sum, sum);
}

double ie_read_seconds(ie_pool *pool, const void *p, int64_t bytes)
{
    reading r = {.data = p, .words = bytes / 8, .threads = ie_pool_threads(pool)};
    const int64_t begin = ie_nanoseconds();
    ie_pool_run(pool, read_thread, &r, 1);
    return 1e-9 * (double)(ie_nanoseconds() - begin);
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
