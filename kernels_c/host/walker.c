/* walker.c: runs a program. Stages in order, a barrier between them; inside a stage the tiles of its commands
 * are handed out by a counter, so a thread that was held up delays only the tiles it took.
 *
 * Which instruction set runs is chosen once (ie_pool_create); results do not depend on it. */
#include "../cpu/cpu.h"
#include "pool.h"

#include <stdatomic.h>
#include <time.h>

#define DECLARE(isa) extern const ie_kernel ie_kernels_##isa[IE_OP_COUNT];
DECLARE(portable)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
#endif

static const ie_kernel *kernels_of(int isa)
{
#if defined(__x86_64__)
    if (isa == IE_ISA_AVX512)
        return ie_kernels_avx512;
    if (isa == IE_ISA_AVX2)
        return ie_kernels_avx2;
#endif
    (void)isa;
    return ie_kernels_portable;
}

typedef struct {
    ie_pool *pool;
    const ie_kernel *kernels;
    const ie_cmd *cmds;
    const int32_t *stage_start;
    const ie_step *step;
    int n_stages;
    _Atomic int64_t *clock; /* NULL, or when each stage was done with, from [1] on */
    /* Tiles taken of a stage. Two counters in turn: thread 0 clears one after the barrier behind its stage, and
     * the stage after next, which uses it again, cannot begin before thread 0 reaches the next barrier. */
    _Alignas(64) _Atomic int64_t taken[2];
} walk;

static void run_stage(walk *w, int s, _Atomic int64_t *taken)
{
    const int threads = ie_pool_threads(w->pool);
    int64_t next = -1, grain = 0, base = 0;
    for (int c = w->stage_start[s]; c < w->stage_start[s + 1]; c++) {
        const ie_cmd *cmd = &w->cmds[c];
        const int64_t tiles = ie_command_tiles(cmd, ie_domain_rows(cmd, w->step));
        const int skip = (cmd->flags & IE_CMD_SKIPPABLE) && w->step->skip;
        /* Tiles of the stage are numbered through its commands: this one has [base, base + tiles). */
        while (!skip && tiles > 0) {
            if (next < base) {
                grain = ie_max(1, tiles / (8 * threads));
                next = atomic_fetch_add_explicit(taken, grain, memory_order_relaxed);
            }
            if (next >= base + tiles)
                break;
            const int64_t end = ie_min(next + grain, base + tiles);
            w->kernels[cmd->op](cmd, w->step, next - base, end - base);
            grain -= end - next; /* what reaches into the next command stays ours */
            next = grain > 0 ? end : -1;
        }
        base += skip ? 0 : tiles;
    }
}

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The last thread to be done with a stage says when. Nobody waits here, and a thread that wakes up late from the
 * barrier does not lengthen the stage that it missed. */
static void stamp(_Atomic int64_t *at)
{
    const int64_t now = nanoseconds();
    int64_t seen = atomic_load(at);
    while (seen < now && !atomic_compare_exchange_weak(at, &seen, now))
        ;
}

static void walk_thread(void *arg, int thread)
{
    walk *w = arg;
    const int threads = ie_pool_threads(w->pool);
    for (int s = 0; s < w->n_stages; s++) {
        run_stage(w, s, &w->taken[s % 2]);
        if (w->clock)
            stamp(&w->clock[s + 1]);
        if (s + 1 == w->n_stages)
            break; /* ie_pool_run waits for everybody; the counter may still be in use */
        if (threads > 1)
            ie_pool_barrier(w->pool);
        if (thread == 0)
            atomic_store_explicit(&w->taken[s % 2], 0, memory_order_relaxed);
    }
}

int ie_run_timed(ie_pool *pool, const ie_program *program, uint64_t step, int64_t *clock)
{
    walk w = {.pool = pool, .kernels = kernels_of(ie_pool_isa(pool)), .n_stages = program->n_stages};
    w.clock = (_Atomic int64_t *)clock;
    w.cmds = (const ie_cmd *)(uintptr_t)program->cmds;
    w.stage_start = (const int32_t *)(uintptr_t)program->stage_start;
    w.step = (const ie_step *)(uintptr_t)step;
    for (int s = 0; clock && s <= program->n_stages; s++)
        clock[s] = nanoseconds();
    ie_pool_run(pool, walk_thread, &w);
    return 0;
}

int ie_run(ie_pool *pool, const ie_program *program, uint64_t step) { return ie_run_timed(pool, program, step, NULL); }
