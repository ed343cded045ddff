/* Launches: a coroutine for each wave, workgroups in turn, barriers, faults. */
#define _GNU_SOURCE
#include "host.h"
#include <stdlib.h>
#include <string.h>

Launch *running;
enum { ACTIVE_GROUPS = 64, SLICE = 1 << 16, FEW_ROUNDS = 8, PATIENCE = 1000, IDLE_ROUNDS = 100, SLEEPS = 20000 };
#define SCRATCH_AT_ONCE (4ull << 30)

int fault_error(u32 kind) {
    if (kind == FAULT_LIMIT || kind == FAULT_NO_PROGRESS) return hipErrorLaunchTimeOut;
    return kind <= FAULT_SCALAR_READ || kind == FAULT_GLOBAL || kind == FAULT_SPAN ? hipErrorIllegalAddress : hipErrorLaunchFailure;
}
/* The function that holds an address: its number, or that of functions if there is none. */
static u32 function_of(const SimModule *t, u32 pc) {
    for (u32 i = 0; i < t->functions; i++)
        if (pc >= t->function[i].address && pc - t->function[i].address < t->function[i].size) return i;
    return t->functions;
}
void report_fault(HostWave *h, u32 kind, u32 pc, u32 lane, u64 address, u32 bytes) {
    static const char *const what[] = {"global read", "global write", "global atomic", "scalar read", "LDS read", "LDS write",
        "read of LDS that nobody wrote", "scratch access", "jump", "limit of instructions", "wait without progress",
        "register read before its wait", "misaligned access", "global access", "access whose lanes lie more than 4 GiB apart, which is not modelled",
        "index beyond the kernel's registers", "end of the code without s_endpgm", "s_trap",
        "atomic on scratch, which is not modelled,"};
    const SimKernel *k = h->launch->function->kernel;
    char place[64] = "";
    if (kind == FAULT_PC) snprintf(place, sizeof place, " to %#llx, which is no instruction's place", address);
    else if (kind == FAULT_TRAP || kind == FAULT_INDEX) snprintf(place, sizeof place, " %llu", address);
    else if (kind == FAULT_SCRATCH) snprintf(place, sizeof place, " of %u bytes at %#llx of %#x that a lane has", bytes, address, k->scratch_bytes);
    else if (bytes) snprintf(place, sizeof place, " of %u bytes at %#llx", bytes, address);
    const Module *m = h->launch->function->module;
    const char *name = h->launch->function->name, *in = name;
    u32 start = k->entry, number = function_of(m->table, pc);
    if (number < m->table->functions) in = m->function[number], start = (u32)m->table->function[number].address;
    report_line("rdna4sim: kernel %.*s, pc %#x (%.*s+%#x), workgroup %u, wave %u, lane %u: %s%s\n", NAME_SHOWN, name, pc, NAME_SHOWN, in,
                pc - start, h->group->index, h->number, lane, what[kind], place);
    const Block *b = kind <= FAULT_SCALAR_READ || kind == FAULT_GLOBAL ? memory_near(address) : 0;
    if (b) report_line("  nearest allocation: %#llx to %#llx\n", b->address, b->address + b->bytes);
}
u64 random_next(u64 *s) {
    *s += 0x9e3779b97f4a7c15ull;
    u64 z = (*s ^ *s >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}
u32 random_below(u64 *s, u32 n) { return (u32)(random_next(s) % n); }

static void leave(HostWave *h) { coroutine_switch(&h->coroutine.sp, h->launch->host_sp); }
static void on_yield(Wave *w, u32 why) {
    HostWave *h = w->host;
    if (why != YIELD_BARRIER || h->group->phase < h->target_phase) {
        h->state = why == YIELD_BARRIER ? WAVE_BARRIER : why == YIELD_SLEEP ? WAVE_SLEEP : WAVE_SLICE;
        if (why == YIELD_SLEEP) {
            if (h->quiet != h->launch->quiet) h->quiet = h->launch->quiet, h->sleeps = 0;
            h->sleeps++;
        }
        leave(h);
    }
    if (why == YIELD_BARRIER && h->weak) weak_barrier(h);
}
__attribute__((noreturn)) static void on_fault(Wave *w, u32 kind, u32 pc, u32 lane, u64 address, u32 bytes) {
    HostWave *h = w->host;
    report_fault(h, kind, pc, lane, address, bytes);
    h->launch->fault = kind;
    h->launch->stop = 1;
    for (;;) leave(h);
}
static int on_locate(Wave *w, Site *site, u64 address, u64 bytes) {
    (void)w;
    const Block *b = memory_find(address);
    if (!b || bytes > b->address + b->bytes - address) return 0;
    *site = (Site){b->address, b->address + b->bytes};
    return 1;
}
static void barrier_passes(Group *g) {
    if (g->members && g->arrived >= g->members) { g->arrived = 0; g->phase++; running->progress++; }
    if (g->phase > running->phases) running->phases = g->phase;
}
static void on_signal(Wave *w) {
    HostWave *h = w->host;
    w->barrier_first = !h->group->arrived++;
    h->target_phase = h->group->phase + 1;
    barrier_passes(h->group);
}
/* Who reads the time may wait for it to pass. */
static u64 on_clock(Wave *w) { ++*w->progress; return w->instructions; }
static u32 on_barrier_state(Wave *w) {
    const Group *g = ((HostWave *)w->host)->group;
    return 1u | (g->members & 127) << 4 | (g->arrived & 127) << 16;
}
const Runtime runtime = {.yield = on_yield, .fault = on_fault, .locate = on_locate, .signal = on_signal, .clock = on_clock,
    .barrier_state = on_barrier_state,
    .weak_load = weak_load, .weak_store = weak_store, .weak_atomic = weak_atomic, .weak_after_atomic = weak_after_atomic,
    .weak_defer = weak_defer, .weak_lds_defer = weak_lds_defer, .weak_lds_note = weak_lds_note,
    .weak_lds_store = weak_lds_store, .weak_lds_drain = weak_lds_drain, .weak_pending = weak_pending, .weak_wait = weak_wait,
    .weak_inv = weak_inv, .weak_wb = weak_wb};

static void wave_counted(Launch *l, u64 n) {
    if (!l->ended++ || n < l->least) l->least = n;
    if (n > l->most) l->most = n;
}
static void wave_main(void *argument) {
    HostWave *h = argument;
    h->launch->function->kernel->run(&h->w);
    if (h->weak) weak_wave_end(h);
    h->state = WAVE_DONE;
    wave_counted(h->launch, h->w.instructions);
    h->group->members--;
    h->group->alive--;
    h->launch->progress++;
    barrier_passes(h->group);
    for (;;) leave(h);
}
/* 0: no memory. */
static int wave_start(Launch *l, Group *g, u32 n) {
    HostWave *h = &g->wave[n];
    const SimKernel *k = l->function->kernel;
    const u32 *b = l->shape.block, *d = l->shape.grid, threads = b[0] * b[1] * b[2];
    u32 x = g->index % d[0], y = g->index / d[0] % d[1], z = g->index / d[0] / d[1];
    h->group = g, h->launch = l, h->number = n;
    h->w = (Wave){.rt = &runtime, .progress = &l->progress, .lds = g->lds, .lds_defined = g->lds_defined, .lds_bytes = l->lds_bytes,
                  .scratch_bytes = k->scratch_bytes, .sites = l->sites, .code = l->code, .kernarg = l->kernarg,
                  .dispatch = l->kernarg + (k->kernarg_bytes + 63u & ~63u), .group_x = x, .group_yz = y | z << 16,
                  .seed = settings.seed, .id = n, .counters = l->counters, .host = h, .slice_end = SLICE};
    counters_wave(&h->w);
    h->w.scratch = k->scratch_bytes ? malloc((u64)k->scratch_bytes * LANES) : 0;
    if (k->scratch_bytes && !h->w.scratch) return 0;
    if (k->scratch_bytes) memset(h->w.scratch, 0xcb ^ (int)(settings.seed & 31), (u64)k->scratch_bytes * LANES);
    for (u32 i = 0; i < LANES; i++) {
        u32 t = n * LANES + i;
        if (t >= threads) break;
        h->w.exec |= 1u << i;
        h->w.vid[i] = t % b[0] | t / b[0] % b[1] << 10 | t / b[0] / b[1] << 20;
    }
    if (settings.weak) weak_wave_start(h);
    if (!(h->coroutine.stack = stack_take())) return 0;
    coroutine_start(&h->coroutine, wave_main, h);
    return 1;
}
/* 0: no memory; group_end gives back what there is. */
static int group_start(Launch *l, Group *g, u32 index) {
    g->index = index, g->waves = g->alive = g->members = l->waves;
    g->arrived = 0, g->phase = 0;
    g->lds = malloc(l->lds_bytes + 8192u);
    g->lds_defined = malloc(l->lds_bytes + 8192u);
    g->wave = aligned_alloc(128, l->waves * sizeof *g->wave);
    if (!g->wave) g->waves = 0; else memset(g->wave, 0, l->waves * sizeof *g->wave);
    if (!g->lds || !g->lds_defined || !g->wave) return 0;
    memset(g->lds, 0xcb ^ (int)(settings.seed & 31), l->lds_bytes + 8192u);
    memset(g->lds_defined, settings.check_undefined ? 0 : 255, l->lds_bytes + 8192u);
    if (settings.weak) weak_group_start(l, g);
    for (u32 i = 0; i < l->waves; i++)
        if (!wave_start(l, g, i)) return 0;
    return 1;
}
static void group_end(Launch *l, Group *g) {
    weak_group_end(l, g);
    for (u32 i = 0; i < g->waves; i++) {
        weak_wave_free(&g->wave[i]);
        if (g->wave[i].coroutine.stack) stack_give(g->wave[i].coroutine.stack);
        free(g->wave[i].w.scratch);
    }
    free(g->lds), free(g->lds_defined), free(g->wave);
    g->waves = 0;
}
static u64 digest(const u64 *words, u64 count, u64 skip, u64 start) {
    u64 h = start ^ 0xcbf29ce484222325ull;
    for (u64 i = 0; i < count; i++) h = (h ^ (words[i] - (skip - 64) < 128 ? 0 : words[i])) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    return h;
}
/* Whether a wave that ran for its whole slice stands where it stood a few rounds ago, with the same values in all registers:
 * they are on its stack. The count of instructions, which goes on, is there too, now and as of the last turn of a loop, and
 * is passed over. In weak memory mode waves stop at too many places for this. */
static int goes_in_circles(HostWave *h) {
    const u64 *from = h->coroutine.sp, *to = (const u64 *)(h->coroutine.stack + STACK_BYTES);
    u64 now = digest(from, (u64)(to - from), h->w.instructions, h->w.pc | (u64)h->state << 32);
    int same = 0;
    for (u32 i = 0; i < 4; i++) same |= h->seen[i] == now;
    h->seen[h->round++ & 3] = now;
    return same;
}
/* Whether nothing can happen any more, as far as this round tells: all waves wait at barriers, sleep, or go in circles. */
static int all_idle(Launch *l) {
    int idle = 1;
    for (u32 i = 0; i < l->active; i++)
        for (u32 n = 0; n < l->group[i].waves; n++) {
            HostWave *h = &l->group[i].wave[n];
            if (h->state == WAVE_DONE || (h->state == WAVE_BARRIER && h->group->phase < h->target_phase)) continue;
            /* Who sleeps, waits: for memory that nobody changes any more. */
            if (h->quiet == l->quiet && h->sleeps >= SLEEPS) continue;
            if (h->weak || h->state != WAVE_SLICE || !goes_in_circles(h)) idle = 0;
        }
    return idle;
}
static int step(Launch *l, HostWave *h) {
    if (h->state == WAVE_DONE || (h->state == WAVE_BARRIER && h->group->phase < h->target_phase)) return 0;
    if (h->nap) { h->nap--; return 0; }
    u64 before = h->w.instructions;
    if (h->weak) weak_step(h);
    h->state = WAVE_READY;
    h->w.slice_end = before + SLICE;
    coroutine_switch(&l->host_sp, h->coroutine.sp);
    l->total += h->w.instructions - before;
    return 1;
}
static void stuck(Launch *l, u32 kind) {
    l->stop = 1, l->fault = kind;
    for (u32 i = 0; i < l->active; i++)
        for (u32 n = 0; n < l->group[i].waves; n++)
            if (l->group[i].wave[n].state != WAVE_DONE) {
                report_fault(&l->group[i].wave[n], kind, l->group[i].wave[n].w.pc, 0, 0, 0);
                if (n > 7) break;
            }
    if (!l->active)
        report_line("rdna4sim: kernel %.*s: limit of instructions after %u of %u workgroups\n", NAME_SHOWN, l->function->name, l->next, l->groups);
}
static u32 least_of(u32 a, u32 b) { return a < b ? a : b; }
/* Workgroups in an order by seed; 0: as they are numbered. */
static u32 *order_of(Launch *l) {
    u32 *order = settings.seed ? malloc(l->groups * sizeof *order) : 0;
    for (u32 i = 0; order && i < l->groups; i++) order[i] = i;
    for (u32 i = l->groups; order && i > 1; i--) {
        u32 j = random_below(&l->random, i), t = order[j];
        order[j] = order[i - 1], order[i - 1] = t;
    }
    return order;
}
static void round_of(Launch *l, u32 slot) {
    Group *g = &l->group[slot];
    u32 first = settings.seed ? random_below(&l->random, g->waves) : 0, back = settings.seed && random_next(&l->random) & 1;
    for (u32 i = 0; i < g->waves && !l->stop; i++) step(l, &g->wave[(first + (back ? g->waves - i : i)) % g->waves]);
}
/* Workgroups that may be under way at once, for the scratch that they need: at least one. */
static u32 groups_of_scratch(const Launch *l) {
    u64 each = (u64)l->function->kernel->scratch_bytes * LANES * l->waves, most = each ? SCRATCH_AT_ONCE / each : ~0u;
    return most > ~0u ? ~0u : most ? (u32)most : 1;
}
static int no_memory(Launch *l, const char *what) {
    report_line("rdna4sim: kernel %.*s: no memory for %s\n", NAME_SHOWN, l->function->name, what);
    l->stop = 1;
    return hipErrorOutOfMemory;
}
int launch_run(Function *f, const Shape *shape, const void *arguments) {
    const SimKernel *k = f->kernel;
    Launch launch = {.function = f, .shape = *shape, .random = settings.seed}, *l = &launch;
    running = l;
    counters_start();
    l->groups = shape->grid[0] * shape->grid[1] * shape->grid[2];
    l->waves = (shape->block[0] * shape->block[1] * shape->block[2] + LANES - 1) / LANES;
    l->lds_bytes = k->lds_bytes + shape->dynamic_lds;
    l->code = (u64)f->module->code, l->kernarg = (u64)arguments;
    l->sites = calloc(k->sites + 1, sizeof *l->sites);
    /* A few workgroups at a time, all that the card holds if those wait for others. */
    const u32 fit = occupancy(k, shape->block[0] * shape->block[1] * shape->block[2], shape->dynamic_lds) * PROCESSORS;
    const u32 lent = groups_of_scratch(l), most = least_of(least_of(l->groups, fit > ACTIVE_GROUPS ? fit : ACTIVE_GROUPS), lent);
    l->limit_active = shape->cooperative ? l->groups : least_of(most, ACTIVE_GROUPS);
    l->group = calloc(most, sizeof *l->group);
    l->order = order_of(l);
    u64 seen = 0, quiet = 0, idle = 0;
    int error = hipSuccess;
    if (!l->sites || !l->group) error = no_memory(l, "the launch");
    else if (l->limit_active > most) error = no_memory(l, "the scratch of all workgroups at once");
    if (settings.weak) weak_launch_start(l);
    while (!l->stop) {
        while (l->active < l->limit_active && l->next < l->groups) {
            if (!group_start(l, &l->group[l->active++], l->order ? l->order[l->next] : l->next)) error = no_memory(l, "a workgroup");
            l->next++;
            if (error) break;
        }
        if (error) break;
        if (!l->active) break;
        for (u32 i = 0; i < l->active && !l->stop; i++) round_of(l, i);
        for (u32 i = 0; i < l->active && !l->stop;)
            if (!l->group[i].alive) { group_end(l, &l->group[i]); l->group[i] = l->group[--l->active]; for (u32 n = 0; n < l->group[i].waves; n++) l->group[i].wave[n].group = &l->group[i]; }
            else i++;
        quiet = l->progress == seen ? quiet + 1 : 0;
        l->quiet += !quiet;
        seen = l->progress;
        if (quiet > FEW_ROUNDS && l->limit_active < most) l->limit_active = least_of(2 * l->limit_active, most);
        idle = quiet < PATIENCE || !all_idle(l) ? 0 : idle + 1;
        if (!l->active && l->next == l->groups) break;
        if (settings.limit && l->total > settings.limit) stuck(l, FAULT_LIMIT);
        else if (idle > IDLE_ROUNDS) stuck(l, FAULT_NO_PROGRESS);
    }
    counters_add(l);
    for (u32 i = 0; i < l->active; i++) group_end(l, &l->group[i]);
    free(l->group), free(l->order), free(l->sites);
    if (settings.weak) weak_launch_end(l);
    running = 0;
    return error ? error : l->stop ? fault_error(l->fault) : hipSuccess;
}
