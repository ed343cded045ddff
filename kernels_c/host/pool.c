/* pool.c: worker threads that spin briefly, then sleep on a futex.
 *
 * A waiting thread spins for a fifth of a millisecond, which covers the gaps between two stages of a step and between
 * two steps (waking a sleeper costs some 50 us), and sleeps after that: an idle process uses no processor, and a thread
 * whose core is taken by another process does not make the others burn theirs. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 200000
#define SPINS 32 /* between two looks at the clock */
#define CACHE_LINE 64
#define STACK (1 << 20) /* bytes for each worker; up to 320 KB are used, Python's part of the caller's included */

/* Gate of the current task: its number, whether workers may still enter, how many are inside. */
#define OPEN (UINT64_C(1) << 31)
#define INSIDE (OPEN - 1)

typedef struct {
    ie_pool *pool;
    pthread_t handle;
    int index;
} worker;

struct ie_pool {
    ie_event start;  /* number of the newest task */
    ie_event left;   /* changes whenever a worker leaves */
    _Alignas(CACHE_LINE) _Atomic uint64_t gate;
    _Atomic uint32_t finished; /* workers that have run the current task */
    int threads, isa, started;
    int quit;
    ie_task fn;
    void *arg;
    worker *workers; /* [threads]; the first is the caller and has no handle */
    void *scratch;
    int64_t scratch_bytes;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int64_t ie_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint32_t ie_event_wait(ie_event *e, uint32_t seen)
{
    uint32_t now;
    int64_t until = 0;
    do {
        for (int i = 0; i < SPINS; i++) {
            now = atomic_load_explicit(&e->value, memory_order_acquire);
            if (now != seen)
                return now;
            relax();
        }
        until = until ? until : ie_nanoseconds() + SPIN_NS;
    } while (ie_nanoseconds() < until);
    atomic_fetch_add(&e->sleepers, 1);
    while ((now = atomic_load(&e->value)) == seen)
        syscall(SYS_futex, &e->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); /* rechecks the value itself */
    atomic_fetch_sub(&e->sleepers, 1);
    return now;
}

void ie_event_set(ie_event *e, uint32_t value)
{
    atomic_store(&e->value, value);
    if (atomic_load(&e->sleepers))
        syscall(SYS_futex, &e->value, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* Like ie_event_set to the next value, when several threads may do so. */
static void event_bump(ie_event *e)
{
    atomic_fetch_add(&e->value, 1);
    if (atomic_load(&e->sleepers))
        syscall(SYS_futex, &e->value, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* Enter the task whose gate is open; returns its number, or 0 when there is none. */
static uint32_t enter(ie_pool *pool)
{
    uint64_t gate = atomic_load(&pool->gate);
    while (gate & OPEN)
        if (atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1))
            return (uint32_t)(gate >> 32);
    return 0;
}

/* It neither allocates nor frees: the C library would set 64 MB of addresses aside for each thread that does. */
static void *work(void *p)
{
    const worker *self = p;
    ie_pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = ie_event_wait(&pool->start, seen);
        if (pool->quit)
            return NULL;
        const uint32_t task = enter(pool);
        if (!task)
            continue; /* came too late; the others have done it */
        seen = task;  /* maybe a newer one than we were woken for: not to be run twice */
        pool->fn(pool->arg, self->index);
        atomic_fetch_add(&pool->finished, 1);
        atomic_fetch_sub(&pool->gate, 1);
        event_bump(&pool->left);
    }
}

void ie_pool_run(ie_pool *pool, ie_task fn, void *arg, int everyone)
{
    if (pool->threads == 1) {
        fn(arg, 0);
        return;
    }
    uint32_t task = atomic_load(&pool->start.value) + 1;
    task += task == 0; /* 0 means none */
    pool->fn = fn;
    pool->arg = arg;
    atomic_store(&pool->finished, 0);
    atomic_store(&pool->gate, (uint64_t)task << 32 | OPEN);
    ie_event_set(&pool->start, task);
    fn(arg, 0);
    for (uint32_t seen; seen = atomic_load(&pool->left.value),
                        everyone && atomic_load(&pool->finished) != (uint32_t)pool->threads - 1;)
        ie_event_wait(&pool->left, seen);
    atomic_fetch_and(&pool->gate, ~OPEN);
    for (uint32_t seen; seen = atomic_load(&pool->left.value), atomic_load(&pool->gate) & INSIDE;)
        ie_event_wait(&pool->left, seen);
}

int64_t ie_stack_bytes(void) { return STACK; }

ie_pool *ie_pool_create(int threads, int isa)
{
    if (threads < 1 || threads > 1024 || !ie_isa_available(isa))
        return NULL;
    ie_pool *pool = aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool)
        return NULL;
    *pool = (ie_pool){.threads = threads, .isa = isa};
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    sigset_t all, old;
    sigfillset(&all); /* signals belong to the caller's thread, where Python handles them; but not a fault of our own */
    for (int i = 0; i < 4; i++)
        sigdelset(&all, (int[]){SIGBUS, SIGSEGV, SIGFPE, SIGILL}[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_t attr;
    int ok = pool->workers != NULL && pthread_attr_init(&attr) == 0;
    if (ok) {
        ok = pthread_attr_setstacksize(&attr, STACK) == 0;
        for (int i = 1; ok && i < threads; i++) {
            pool->workers[i] = (worker){.pool = pool, .index = i};
            ok = pthread_create(&pool->workers[i].handle, &attr, work, &pool->workers[i]) == 0;
            pool->started += ok;
        }
        pthread_attr_destroy(&attr);
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
    event_bump(&pool->start);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    free(pool->workers);
    free(pool->scratch);
    free(pool);
}

void *ie_pool_scratch(ie_pool *pool, int64_t bytes)
{
    if (bytes > pool->scratch_bytes) {
        free(pool->scratch);
        pool->scratch_bytes = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
        pool->scratch = aligned_alloc(CACHE_LINE, (size_t)pool->scratch_bytes);
        if (!pool->scratch)
            pool->scratch_bytes = 0;
    }
    return pool->scratch;
}

int ie_pool_threads(const ie_pool *pool) { return pool->threads; }
int ie_pool_isa(const ie_pool *pool) { return pool->isa; }
