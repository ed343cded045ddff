/* walker.c: runs a program. Stages in order, a barrier between them. Inside a stage each thread has a range of the
 * tiles for its own, so that it reads weights from one end to the other; it takes them a few at a time, and when it is
 * through helps the others with theirs, so a thread that was held up delays only the tiles it took.
 * Whoever waits fetches the beginning of its range of the next matrix: weights do not depend on what is waited for.
 *
 * Which instruction set runs is chosen once (ie_pool_create); results do not depend on it. */
#include "../cpu/cpu.h"
#include "../include/work.h"
#include "isa.h"
#include "pool.h"

#include <stdatomic.h>

#define DECLARE(isa, id) extern const ie_kernel ie_kernels_##isa[IE_OP_COUNT];
IE_EACH_ISA(DECLARE)
#define ENTRY(isa, id) [IE_ISA_##id] = ie_kernels_##isa,
static const ie_kernel *const kernels_of[IE_ISA_COUNT] = {IE_EACH_ISA(ENTRY)};

/* A stage as the threads share it: this line, and one for each thread with how many tiles of its range are taken. total
 * and skip are fixed by whoever finished the stage before, so that a kernel that writes step inputs cannot change them
 * under a thread at work. */
typedef struct {
    _Alignas(64) _Atomic int64_t count;
    int64_t total;
    int skip;
} stage_line;

#define MAX_LOCAL_LINES 192
#define LOOK_AHEAD_STAGES 4
#define LOOK_AHEAD_BYTES (128 << 10) /* of a second-level cache of 512 KB or more */

typedef struct {
    const ie_kernel *kernels;
    const ie_cmd *cmds;
    const int32_t *stage_start;
    const ie_step *step;
    stage_line *lines;
    int n_stages, threads;
    int64_t *clock;     /* NULL, or when each stage was done with, from [1] on */
    ie_event progress;  /* the stage at work; all before it are done */
} walk;

static stage_line *line_of(const walk *w, int s) { return &w->lines[(int64_t)s * (w->threads + 1)]; }

static int64_t tiles_of(const walk *w, const ie_cmd *cmd, int skip)
{
    return skip && (cmd->flags & IE_CMD_SKIPPABLE) ? 0 : ie_command_tiles(cmd, ie_domain_rows(cmd, w->step));
}

/* Stage s is done: prepare the next one that has tiles, and let everybody go on to it. */
static void advance(walk *w, int s)
{
    for (;;) {
        if (w->clock && s >= 0)
            w->clock[s + 1] = ie_nanoseconds();
        if (++s >= w->n_stages)
            break;
        stage_line *next = line_of(w, s);
        next->skip = w->step->skip;
        next->total = 0;
        for (int c = w->stage_start[s]; c < w->stage_start[s + 1]; c++)
            next->total += tiles_of(w, &w->cmds[c], next->skip);
        for (int t = 0; t <= w->threads; t++) /* done, and taken of each range */
            atomic_store_explicit(&next[t].count, 0, memory_order_relaxed);
        if (next->total > 0)
            break;
    }
    ie_event_set(&w->progress, (uint32_t)s);
}

/* Run tiles [begin, end) of stage s, whose tiles are numbered through its commands. */
static void run_tiles(walk *w, int s, int64_t begin, int64_t end)
{
    const int skip = line_of(w, s)->skip;
    int64_t base = 0;
    for (int c = w->stage_start[s]; base < end; c++) {
        const ie_cmd *cmd = &w->cmds[c];
        const int64_t tiles = tiles_of(w, cmd, skip), lo = ie_max(begin - base, 0), hi = ie_min(end - base, tiles);
        if (lo < hi)
            w->kernels[cmd->op](cmd, w->step, lo, hi);
        base += tiles;
    }
}

/* Take tiles of stage s and run them until none are left; returns whether this thread finished the stage. */
static int run_stage(walk *w, int s, int thread)
{
    stage_line *st = line_of(w, s);
    const int64_t total = st->total, grain = ie_max(1, total / (8 * w->threads));
    int64_t mine = 0;
    for (int i = 0; i < w->threads; i++) {
        const int owner = (thread + i) % w->threads;
        const int64_t lo = ie_split(total, w->threads, owner), hi = ie_split(total, w->threads, owner + 1);
        _Atomic int64_t *taken = &st[1 + owner].count;
        for (;;) {
            if (i && atomic_load_explicit(taken, memory_order_relaxed) >= hi - lo) /* a look disturbs its owner less */
                break;
            const int64_t begin = lo + atomic_fetch_add_explicit(taken, grain, memory_order_relaxed);
            if (begin >= hi)
                break;
            const int64_t end = ie_min(begin + grain, hi);
            run_tiles(w, s, begin, end);
            mine += end - begin;
        }
    }
    return mine > 0 && atomic_fetch_add(&st->count, mine) + mine == total;
}

/* While stage s is not done: fetch the weights that this thread will read first, of the next stage that has a
 * matrix. */
static void look_ahead(const walk *w, int s, int thread)
{
    for (int next = s + 1; next < w->n_stages && next <= s + LOOK_AHEAD_STAGES; next++) {
        const ie_cmd *cmd = &w->cmds[w->stage_start[next]];
        if (cmd->op != IE_OP_MATMUL)
            continue;
        const ie_args_matmul *a = (const ie_args_matmul *)cmd->args;
        const int64_t rows = ie_domain_rows(cmd, w->step), tiles = ie_command_tiles(cmd, rows);
        if (rows > IE_MAX_DECODE_ROWS || a->w.layout >= IE_L_ROWS)
            return;
        const int64_t lo = ie_split(tiles, w->threads, thread), hi = ie_split(tiles, w->threads, thread + 1);
        const int64_t group = (int64_t)a->w.blocks * a->w.tile;
        const uint8_t *p = (const uint8_t *)(uintptr_t)a->w.p + lo * group;
        const int64_t bytes = ie_min(LOOK_AHEAD_BYTES, (hi - lo) * group);
        for (int64_t i = 0; i < bytes; i += 512) {
            if (atomic_load_explicit(&w->progress.value, memory_order_relaxed) != (uint32_t)s)
                return;
            for (int64_t j = i; j < ie_min(i + 512, bytes); j += 64)
                __builtin_prefetch(p + j, 0, 2);
        }
        return;
    }
}

/* Nobody waits for a thread, only for tiles that one has taken: a thread that the system keeps from running while it
 * holds none delays nobody, and joins in later at the stage that is then at work. */
static void walk_thread(void *arg, int thread)
{
    walk *w = arg;
    uint32_t s = atomic_load(&w->progress.value);
    while (s < (uint32_t)w->n_stages) {
        if (run_stage(w, (int)s, thread))
            advance(w, (int)s);
        else
            look_ahead(w, (int)s, thread);
        s = ie_event_wait(&w->progress, s);
    }
}

int ie_run_timed(ie_pool *pool, const ie_program *program, uint64_t step, int64_t *clock)
{
    stage_line local[MAX_LOCAL_LINES];
    int64_t at;
    if (program->limits && ie_step_check(step, (const ie_limits *)(uintptr_t)program->limits, &at))
        return -1;
    walk w = {.kernels = kernels_of[ie_pool_isa(pool)], .n_stages = program->n_stages, .clock = clock};
    w.threads = ie_pool_threads(pool);
    w.cmds = (const ie_cmd *)(uintptr_t)program->cmds;
    w.stage_start = (const int32_t *)(uintptr_t)program->stage_start;
    w.step = (const ie_step *)(uintptr_t)step;
    const int64_t lines = (int64_t)program->n_stages * (w.threads + 1);
    w.lines = lines <= MAX_LOCAL_LINES ? local : ie_pool_scratch(pool, (int64_t)sizeof local[0] * lines);
    if (!w.lines)
        return -1;
    if (clock)
        clock[0] = ie_nanoseconds();
    advance(&w, -1);
    ie_pool_run(pool, walk_thread, &w, 0);
    return 0;
}

int ie_run(ie_pool *pool, const ie_program *program, uint64_t step) { return ie_run_timed(pool, program, step, NULL); }
