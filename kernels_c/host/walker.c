/* walker.c: runs a program. Stages in order, a barrier between them; inside a stage the tiles of its commands
 * are handed out by a counter, so a thread that was held up delays only the tiles it took.
 *
 * Which instruction set runs is chosen once (ie_pool_create); results do not depend on it. */
#include "../cpu/cpu.h"
#include "isa.h"
#include "pool.h"

#include <stdatomic.h>
#include <time.h>

#define DECLARE(isa, id) extern const ie_kernel ie_kernels_##isa[IE_OP_COUNT];
IE_EACH_ISA(DECLARE)
#define ENTRY(isa, id) [IE_ISA_##id] = ie_kernels_##isa,
static const ie_kernel *const kernels_of[IE_ISA_COUNT] = {IE_EACH_ISA(ENTRY)};

/* A stage as the threads share it. total and skip are fixed by whoever finished the stage before, so that a kernel
 * that writes step inputs cannot change them under a thread at work. */
typedef struct { _Alignas(64) _Atomic int64_t taken, done; int64_t total; int skip; } stage_state;

#define MAX_LOCAL_STAGES 64

typedef struct {
    ie_pool *pool;
    const ie_kernel *kernels;
    const ie_cmd *cmds;
    const int32_t *stage_start;
    const ie_step *step;
    stage_state *stages;
    int n_stages;
    int64_t *clock;     /* NULL, or when each stage was done with, from [1] on */
    ie_event progress;  /* the stage at work; all before it are done */
} walk;

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t tiles_of(const walk *w, const ie_cmd *cmd, int skip)
{
    return skip && (cmd->flags & IE_CMD_SKIPPABLE) ? 0 : ie_command_tiles(cmd, ie_domain_rows(cmd, w->step));
}

/* Stage s is done: prepare the next one that has tiles, and let everybody go on to it. */
static void advance(walk *w, int s)
{
    for (;;) {
        if (w->clock && s >= 0)
            w->clock[s + 1] = nanoseconds();
        if (++s >= w->n_stages)
            break;
        stage_state *next = &w->stages[s];
        next->skip = w->step->skip;
        next->total = 0;
        for (int c = w->stage_start[s]; c < w->stage_start[s + 1]; c++)
            next->total += tiles_of(w, &w->cmds[c], next->skip);
        atomic_store_explicit(&next->taken, 0, memory_order_relaxed);
        atomic_store_explicit(&next->done, 0, memory_order_relaxed);
        if (next->total > 0)
            break;
    }
    ie_event_set(&w->progress, (uint32_t)s);
}

/* Take tiles of stage s and run them until none are left; returns whether this thread finished the stage. */
static int run_stage(walk *w, int s)
{
    stage_state *st = &w->stages[s];
    const int threads = ie_pool_threads(w->pool);
    int64_t next = -1, grain = 0, base = 0, mine = 0;
    for (int c = w->stage_start[s]; c < w->stage_start[s + 1]; c++) {
        const ie_cmd *cmd = &w->cmds[c];
        const int64_t tiles = tiles_of(w, cmd, st->skip);
        /* Tiles of the stage are numbered through its commands: this one has [base, base + tiles). */
        while (tiles > 0) {
            if (next < base) {
                grain = ie_max(1, tiles / (8 * threads));
                next = atomic_fetch_add_explicit(&st->taken, grain, memory_order_relaxed);
            }
            if (next >= base + tiles)
                break;
            const int64_t end = ie_min(next + grain, base + tiles);
            w->kernels[cmd->op](cmd, w->step, next - base, end - base);
            mine += end - next;
            grain -= end - next; /* what reaches into the next command stays ours */
            next = grain > 0 ? end : -1;
        }
        base += tiles;
    }
    return mine > 0 && atomic_fetch_add(&st->done, mine) + mine == st->total;
}

/* Nobody waits for a thread, only for tiles that one has taken: a thread that the system keeps from running while it
 * holds none delays nobody, and joins in later at the stage that is then at work. */
static void walk_thread(void *arg, int thread)
{
    (void)thread;
    walk *w = arg;
    uint32_t s = atomic_load(&w->progress.value);
    while (s < (uint32_t)w->n_stages) {
        if (run_stage(w, (int)s))
            advance(w, (int)s);
        s = ie_event_wait(&w->progress, s);
    }
}

int ie_run_timed(ie_pool *pool, const ie_program *program, uint64_t step, int64_t *clock)
{
    stage_state local[MAX_LOCAL_STAGES];
    walk w = {.pool = pool, .kernels = kernels_of[ie_pool_isa(pool)], .n_stages = program->n_stages, .clock = clock};
    w.cmds = (const ie_cmd *)(uintptr_t)program->cmds;
    w.stage_start = (const int32_t *)(uintptr_t)program->stage_start;
    w.step = (const ie_step *)(uintptr_t)step;
    w.stages = program->n_stages <= MAX_LOCAL_STAGES ? local : ie_pool_scratch(pool, (int64_t)sizeof local[0] * program->n_stages);
    if (!w.stages)
        return -1;
    if (clock)
        clock[0] = nanoseconds();
    advance(&w, -1);
    ie_pool_run(pool, walk_thread, &w, 0);
    return 0;
}

int ie_run(ie_pool *pool, const ie_program *program, uint64_t step) { return ie_run_timed(pool, program, step, NULL); }
