/* pages.c: memory from the system, in zeroed pages.
 *
 * Owns: taking and giving back pages, and the count of how often they were taken, by which a test sees that steps take
 * none. What is behind them for kernels that load whole vectors: IE_READ_PAST. */
#define _GNU_SOURCE
#include "../../core_laws/ie_core.h"
#include "host.h"

#include <stdatomic.h>
#include <sys/mman.h>

static _Atomic int64_t allocations;

void *ie_alloc(int64_t bytes)
{
    if (bytes <= 0)
        return NULL;
    void *p = mmap(NULL, (size_t)(bytes + IE_READ_PAST), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    atomic_fetch_add(&allocations, 1);
    return p;
}

void ie_huge_pages(void *p, int64_t bytes) { madvise(p, (size_t)bytes, MADV_HUGEPAGE); }

void ie_free(void *p, int64_t bytes)
{
    if (p)
        munmap(p, (size_t)(bytes + IE_READ_PAST));
}

int64_t ie_alloc_count(void) { return atomic_load(&allocations); }
