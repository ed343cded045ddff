/* pool.c: worker threads that spin briefly, then sleep on a futex; and page allocation.
 *
 * A waiting thread spins for some tens of microseconds, which covers the gap between two stages of a step,
 * and sleeps after that: an idle process uses no processor, and a thread whose core is taken by another
 * process does not make the others burn theirs. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 4000
#define CACHE_LINE 64

typedef struct { _Alignas(CACHE_LINE) _Atomic uint32_t value; _Atomic uint32_t sleepers; } event;

struct ie_pool {
    event start;   /* value: number of tasks begun */
    event phase;   /* value: barriers passed */
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived;
    int threads, isa, started;
    int quit;
    ie_task fn;
    void *arg;
    pthread_t *handle;
};

typedef struct { ie_pool *pool; int index; } worker_arg;

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until e->value differs from seen; returns the new value. */
static uint32_t wait_change(event *e, uint32_t seen)
{
    uint32_t now;
    for (int i = 0; i < SPINS; i++) {
        now = atomic_load_explicit(&e->value, memory_order_acquire);
        if (now != seen)
            return now;
        relax();
    }
    atomic_fetch_add(&e->sleepers, 1);
    while ((now = atomic_load(&e->value)) == seen)
        syscall(SYS_futex, &e->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); /* rechecks the value itself */
    atomic_fetch_sub(&e->sleepers, 1);
    return now;
}

static void advance(event *e)
{
    atomic_fetch_add(&e->value, 1);
    if (atomic_load(&e->sleepers))
        syscall(SYS_futex, &e->value, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

void ie_pool_barrier(ie_pool *pool)
{
    uint32_t seen = atomic_load(&pool->phase.value);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == (uint32_t)pool->threads) {
        atomic_store(&pool->arrived, 0);
        advance(&pool->phase);
    } else {
        wait_change(&pool->phase, seen);
    }
}

static void *worker(void *p)
{
    worker_arg arg = *(worker_arg *)p;
    free(p);
    uint32_t seen = 0;
    for (;;) {
        seen = wait_change(&arg.pool->start, seen);
        if (arg.pool->quit)
            return NULL;
        arg.pool->fn(arg.pool->arg, arg.index);
        ie_pool_barrier(arg.pool);
    }
}

void ie_pool_run(ie_pool *pool, ie_task fn, void *arg)
{
    pool->fn = fn;
    pool->arg = arg;
    if (pool->threads > 1)
        advance(&pool->start);
    fn(arg, 0);
    if (pool->threads > 1)
        ie_pool_barrier(pool);
}

ie_pool *ie_pool_create(int threads, int isa)
{
    if (threads < 1 || threads > 1024 || !ie_isa_available(isa))
        return NULL;
    ie_pool *pool = aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool)
        return NULL;
    *pool = (ie_pool){.threads = threads, .isa = isa};
    pool->handle = calloc((size_t)threads, sizeof *pool->handle);
    sigset_t all, old;
    sigfillset(&all); /* signals belong to the caller's thread, where Python handles them */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int ok = pool->handle != NULL;
    for (int i = 1; ok && i < threads; i++) {
        worker_arg *arg = malloc(sizeof *arg);
        ok = arg != NULL;
        if (!ok)
            break;
        *arg = (worker_arg){pool, i};
        ok = pthread_create(&pool->handle[i], NULL, worker, arg) == 0;
        if (ok)
            pool->started++;
        else
            free(arg);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!ok) {
        ie_pool_destroy(pool);
        return NULL;
    }
    return pool;
}

void ie_pool_destroy(ie_pool *pool)
{
    if (!pool)
        return;
    pool->quit = 1;
    advance(&pool->start);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->handle[i], NULL);
    free(pool->handle);
    free(pool);
}

int ie_pool_threads(const ie_pool *pool) { return pool->threads; }
int ie_pool_isa(const ie_pool *pool) { return pool->isa; }

static _Atomic int64_t allocations;

void *ie_alloc(int64_t bytes)
{
    if (bytes <= 0)
        return NULL;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a hint; fewer TLB misses while streaming weights */
    atomic_fetch_add(&allocations, 1);
    return p;
}

void ie_free(void *p, int64_t bytes)
{
    if (p)
        munmap(p, (size_t)bytes);
}

int64_t ie_alloc_count(void) { return atomic_load(&allocations); }
