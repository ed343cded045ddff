/* Weak memory mode: what the memory model of gfx12 allows, chosen to hurt.
 *
 * Device memory is where all workgroups meet (the L2 of the card). In front of it stand, for each workgroup, a copy that
 * instructions of SCOPE_SE and narrower may use (`shared`), and before that one L0 for each half of a workgroup processor
 * (`near`; a single one if the kernel runs in CU mode). Scalar loads have a cache of their own. A line that is missing is
 * filled with what stood one level up at any moment since the cache was last invalidated, for an earlier access may have
 * brought it in then: `History` keeps those old contents. Stores wait in a queue of their wave until s_wait_storecnt,
 * the wave's end or chance lets them out, in any order that keeps overlapping ones apart.
 *
 * What guarantees what (LLVM's memory model for gfx12): a store that s_wait_storecnt waited for is in device memory, or, if
 * it has SCOPE_SE, in the workgroup's copy; global_inv of SCOPE_SE empties the L0, of SCOPE_DEV also the workgroup's copy;
 * loads and atomics of SCOPE_DEV and SCOPE_SYS act on device memory; what a workgroup wrote with SCOPE_SE is there before
 * its next access of SCOPE_DEV. A wave always sees its own stores and what it has seen before.
 */
#include "host.h"
#include <stdlib.h>
#include <string.h>

enum { LINE = 128, MOST_LINES = 1 << 15, MOST_VERSIONS = 8, QUEUE = 63, LDS_QUEUE = 1 << 16, SCOPE_SE = 1, SCOPE_DEV = 2 };

/* Line address → index, open addressing. 0 is no address of a line. */
typedef struct { u64 key; u32 value; } Slot;
typedef struct { Slot *slot; u32 slots, used; } Map;

static u64 hash(u64 key) { return (key >> 7) * 0x9e3779b97f4a7c15ull >> 20; }
static void *grown(void *p, size_t bytes) {
    void *q = realloc(p, bytes);
    if (!q) { report_line("rdna4sim: no memory left for weak memory mode (%zu bytes wanted)\n", bytes); abort(); }
    return q;
}
static u32 *map_find(Map *m, u64 key) {
    for (u64 i = hash(key); m->slots; i++) {
        Slot *s = &m->slot[i & (m->slots - 1)];
        if (s->key == key) return &s->value;
        if (!s->key) break;
    }
    return 0;
}
static void map_put(Map *m, u64 key, u32 value) {
    if (2 * m->used >= m->slots) {
        Map more = {calloc(m->slots ? 2 * m->slots : 64, sizeof(Slot)), m->slots ? 2 * m->slots : 64, 0};
        if (!more.slot) more.slot = grown(0, ~0ull >> 1);
        for (u32 i = 0; i < m->slots; i++) if (m->slot[i].key) map_put(&more, m->slot[i].key, m->slot[i].value);
        free(m->slot);
        *m = more;
    }
    u64 i = hash(key);
    while (m->slot[i & (m->slots - 1)].key) i++;
    m->slot[i & (m->slots - 1)] = (Slot){key, value};
    m->used++;
}
static void map_clear(Map *m) {
    if (m->used) memset(m->slot, 0, m->slots * sizeof *m->slot);
    m->used = 0;
}

/* Old contents of lines. A version holds what stood in the line when its epoch began; a new epoch begins when something
 * is invalidated, so that all that any cache can ask for is kept. */
typedef struct { u32 epoch; u8 data[LINE]; } Version;
typedef struct { u32 count, room; Version *version; } Versions;
typedef struct { Map map; Versions *lines; u32 count, room; } History;

static u32 epoch;
static int written;   /* since the epoch began */

static u32 epoch_now(void) {
    if (written) epoch++, written = 0;
    return epoch;
}
static void history_note(History *h, u64 line, const u8 *contents) {
    written = 1;
    u32 *at = map_find(&h->map, line);
    if (!at) {
        if (h->count == h->room) h->lines = grown(h->lines, (h->room = 2 * h->room + 64) * sizeof *h->lines);
        h->lines[h->count] = (Versions){0, 0, 0};
        map_put(&h->map, line, h->count++);
        at = map_find(&h->map, line);
    }
    Versions *v = &h->lines[*at];
    if (v->count && v->version[v->count - 1].epoch == epoch) return;
    if (v->count == MOST_VERSIONS) {
        /* The oldest serves whoever has invalidated nothing since the launch; the next one may be forgotten. */
        memmove(v->version + 1, v->version + 2, (--v->count - 1) * sizeof *v->version);
    }
    if (v->count == v->room) v->version = grown(v->version, (v->room = v->room ? MOST_VERSIONS : 1) * sizeof *v->version);
    v->version[v->count].epoch = epoch;
    memcpy(v->version[v->count++].data, contents, LINE);
}
/* What stood in the line when epoch `since` began: the oldest version that is not older, else what stands there now. */
static const u8 *history_at(History *h, u64 line, u32 since, const u8 *now) {
    u32 *at = map_find(&h->map, line);
    for (u32 i = 0; at && i < h->lines[*at].count; i++)
        if (h->lines[*at].version[i].epoch >= since) return h->lines[*at].version[i].data;
    return now;
}
static void history_clear(History *h) {
    for (u32 i = 0; i < h->count; i++) free(h->lines[i].version);
    h->count = 0;
    map_clear(&h->map);
}
static void history_free(History *h) {
    history_clear(h);
    free(h->lines), free(h->map.slot);
    *h = (History){0};
}

typedef struct { u64 address; u32 dirty[LINE / 32]; u8 data[LINE]; } Line;
typedef struct { Map map; Line *lines; u32 count, room, since; } Cache;

static void cache_clear(Cache *c) {
    c->count = 0;
    map_clear(&c->map);
    c->since = epoch_now();
}
static void cache_free(Cache *c) {
    free(c->lines), free(c->map.slot);
    *c = (Cache){0};
}
static Line *cache_find(Cache *c, u64 line) {
    u32 *at = map_find(&c->map, line);
    return at ? &c->lines[*at] : 0;
}
static Line *cache_add(Cache *c, u64 line, const u8 *contents) {
    if (c->count == c->room) c->lines = grown(c->lines, (c->room = 2 * c->room + 16) * sizeof *c->lines);
    Line *l = &c->lines[c->count];
    *l = (Line){.address = line};
    memcpy(l->data, contents, LINE);
    map_put(&c->map, line, c->count++);
    return l;
}

/* A store that has not left its wave. */
typedef struct { u64 number, lo, hi; u32 exec, bytes, scope; WeakOp *op; u64 address[LANES]; u8 data[LANES * 16]; } Store;
typedef struct { u64 number; u32 address, bytes; WeakOp *op; u8 data[16]; } LdsStore;
/* What a load reads. Its result may be read at any time until it lands; a late load keeps this. */
typedef struct { u64 lo, hi; u32 exec, bytes, scope, is_signed; u64 address[LANES]; } Source;
enum { NOT_LATE, LATE_MEMORY, LATE_LDS };
typedef struct { u32 land, first, count, exec, late, sources; Source source[2]; u32 data[4 * LANES]; } Pending;

typedef struct {
    V v[256];
    u32 s[128];
    u8 v_count[256], v_kind[256], s_count[128];
    Store *store;
    LdsStore *lds;
    u32 stores, lds_stores, lds_room;
    u64 issued[PENDING_KINDS];
    Pending *pending[PENDING_KINDS];
    u32 waiting[PENDING_KINDS], oldest[PENDING_KINDS];
    Source source[2]; /* of the instruction under way */
    u32 sources, late; /* late: results of memory or LDS that are still to be read */
    int after_atomic;
} WaveState;

typedef struct {
    Cache near[2], shared, scalar;
    History history;   /* of `shared` */
    u32 dirty;         /* lines of `shared` with bytes that device memory lacks */
} GroupState;

static History device;
static Launch *launch;

static GroupState *group_of(HostWave *h) { return h->group->weak; }
static WaveState *wave_of(Wave *w) { return ((HostWave *)w->host)->weak; }
static u32 chance(u32 n) { return random_below(&launch->random, n); }
static void perhaps_yield(Wave *w, u32 one_in) {
    if (!chance(one_in)) w->rt->yield(w, YIELD_SLICE);
}
/* After what others may wait for: now and then the wave stands still for so long that all others can act on it, while its
 * older stores are still under way. */
static void perhaps_linger(Wave *w) {
    if (chance(2)) ((HostWave *)w->host)->nap = 1u << chance(8);
    w->rt->yield(w, YIELD_SLICE);
}

void weak_launch_start(Launch *l) { launch = l, epoch = 1, written = 0; history_clear(&device); }
void weak_launch_end(Launch *l) { (void)l; history_free(&device); launch = 0; }
void weak_group_start(Launch *l, Group *g) {
    (void)l;
    /* Caches were empty when the launch began: an earlier workgroup on the same processor may have filled them since. */
    g->weak = grown(0, sizeof(GroupState));
    memset(g->weak, 0, sizeof(GroupState));
}
static void write_memory(u64 address, u32 bytes, const u8 *data) {
    u64 line = address & ~(u64)(LINE - 1);
    history_note(&device, line, (const u8 *)line);
    memcpy((void *)address, data, bytes);
}
/* What was written with SCOPE_SE goes to device memory. */
static void flush(GroupState *g) {
    if (!g->dirty) return;
    for (u32 i = 0; i < g->shared.count; i++) {
        Line *l = &g->shared.lines[i];
        for (u32 b = 0; b < LINE; b++)
            if (l->dirty[b / 32] >> b % 32 & 1) write_memory(l->address + b, 1, l->data + b);
        memset(l->dirty, 0, sizeof l->dirty);
    }
    g->dirty = 0;
}
void weak_group_end(Launch *l, Group *g) {
    GroupState *s = g->weak;
    if (!s) return;
    if (!l->stop) flush(s);
    cache_free(&s->near[0]), cache_free(&s->near[1]), cache_free(&s->shared), cache_free(&s->scalar);
    history_free(&s->history);
    free(s);
    g->weak = 0;
}

/* An epoch between the cache's last invalidation and now: mostly the oldest, which is what a missing acquire shows in. */
static u32 some_epoch(u32 since) {
    if (since >= epoch + (u32)written) return since;
    u32 kind = settings.seed ? chance(4) : 0;
    return kind < 2 ? since : kind == 2 ? epoch + 1 : since + chance(epoch + 1 - since);
}
/* Empties the workgroup's copy. What stood in it an L0 that was not emptied may still hold. */
static void shared_clear(GroupState *g) {
    flush(g);
    if (g->history.count > MOST_LINES) history_clear(&g->history);
    for (u32 i = 0; i < g->shared.count; i++) history_note(&g->history, g->shared.lines[i].address, g->shared.lines[i].data);
    cache_clear(&g->shared);
}
static Line *shared_line(GroupState *g, u64 line) {
    Line *l = cache_find(&g->shared, line);
    if (l) return l;
    if (g->shared.count >= MOST_LINES) shared_clear(g);
    return cache_add(&g->shared, line, history_at(&device, line, some_epoch(g->shared.since), (const u8 *)line));
}
static Line *near_line(GroupState *g, u32 half, u64 line) {
    Cache *c = &g->near[half];
    Line *l = cache_find(c, line);
    if (l) return l;
    if (c->count >= MOST_LINES) cache_clear(c);
    const u32 then = some_epoch(c->since);
    const Line *from = shared_line(g, line);
    /* From before the copy was emptied: what stood in the copy then, or else in device memory. */
    const u8 *old = then < g->shared.since ? history_at(&device, line, then, from->data) : from->data;
    return cache_add(c, line, history_at(&g->history, line, then, old));
}
static Line *scalar_line(GroupState *g, u64 line) {
    Line *l = cache_find(&g->scalar, line);
    if (l) return l;
    if (g->scalar.count >= MOST_LINES) cache_clear(&g->scalar);
    return cache_add(&g->scalar, line, history_at(&device, line, some_epoch(g->scalar.since), (const u8 *)line));
}
static void put_near(HostWave *h, u64 address, u32 bytes, const u8 *data) {
    Line *l = near_line(group_of(h), h->half, address & ~(u64)(LINE - 1));
    memcpy(l->data + (address & (LINE - 1)), data, bytes);
}
static void put_shared(GroupState *g, u64 address, u32 bytes, const u8 *data, int dirty) {
    Line *l = shared_line(g, address & ~(u64)(LINE - 1));
    u32 at = (u32)(address & (LINE - 1));
    history_note(&g->history, l->address, l->data);
    memmove(l->data + at, data, bytes);
    for (u32 b = at; b < at + bytes; b++)
        if (dirty) l->dirty[b / 32] |= 1u << b % 32; else l->dirty[b / 32] &= ~(1u << b % 32);
    g->dirty += (u32)dirty;
}
/* One lane's bytes that lie in one line, written as the scope says. */
static void put(HostWave *h, u64 address, u32 bytes, const u8 *data, u32 scope) {
    GroupState *g = group_of(h);
    if (scope >= SCOPE_DEV) flush(g);
    if (scope != SCOPE_SE) write_memory(address, bytes, data);
    put_shared(g, address, bytes, data, scope == SCOPE_SE);
    put_near(h, address, bytes, data);
}
static u32 within(u64 address, u32 bytes) {
    u32 left = (u32)(LINE - (address & (LINE - 1)));
    return bytes < left ? bytes : left;
}
/* Where a read-modify-write of this scope acts. Aligned, so that it lies in one line. */
static u8 *target(GroupState *g, u64 address, u32 scope) {
    u64 line = address & ~(u64)(LINE - 1);
    if (scope >= SCOPE_DEV) {
        flush(g);
        history_note(&device, line, (const u8 *)line);
        return (u8 *)address;
    }
    Line *l = shared_line(g, line);
    history_note(&g->history, l->address, l->data);
    return l->data + (address & (LINE - 1));
}
/* After it: the workgroup and the wave have seen the value. */
static void publish(HostWave *h, u64 address, u32 bytes, u32 scope) {
    GroupState *g = group_of(h);
    u8 now[8];
    if (scope >= SCOPE_DEV) memcpy(now, (const void *)address, bytes);
    else memcpy(now, shared_line(g, address & ~(u64)(LINE - 1))->data + (address & (LINE - 1)), bytes);
    put_shared(g, address, bytes, now, scope < SCOPE_DEV);
    put_near(h, address, bytes, now);
}
static void read_late(HostWave *h, u32 what, u64 lo, u64 hi);
static void let_out(HostWave *h, u32 at) {
    WaveState *s = h->weak;
    Store e = s->store[at];
    memmove(&s->store[at], &s->store[at + 1], (--s->stores - at) * sizeof e);
    /* Loads of the same bytes that are under way were issued before. */
    if (s->late) read_late(h, LATE_MEMORY, e.lo, e.hi);
    for (u32 m = e.exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m), part;
        if (e.op) {
            u64 old = 0, x, y, r;
            u8 *p = target(group_of(h), e.address[l], e.scope);
            memcpy(&old, p, e.bytes), memcpy(&x, e.data + 16 * l, 8), memcpy(&y, e.data + 16 * l + 8, 8);
            r = e.op(old, x, y);
            memcpy(p, &r, e.bytes);
            publish(h, e.address[l], e.bytes, e.scope);
            continue;
        }
        for (u32 i = 0; i < e.bytes; i += part) {
            part = within(e.address[l] + i, e.bytes - i);
            put(h, e.address[l] + i, part, e.data + 16 * l + i, e.scope);
        }
    }
    ++*h->w.progress;
}
static int overlap(const Store *a, const Store *b) { return a->exec && b->exec && a->lo < b->hi && b->lo < a->hi; }
/* Lets a store out, or the first older one that it overlaps. Returns its scope. */
static u32 let_one_out(HostWave *h, u32 at) {
    WaveState *s = h->weak;
    for (u32 i = 0; i < at; i++) if (overlap(&s->store[i], &s->store[at])) at = i, i = ~0u;
    u32 scope = s->store[at].scope;
    let_out(h, at);
    return scope;
}
/* All stores numbered below `number`; other waves may run in between. */
static void let_out_below(Wave *w, u64 number) {
    WaveState *s = wave_of(w);
    for (;;) {
        u32 n = 0;
        while (n < s->stores && s->store[n].number < number) n++;
        if (!n) return;
        if (let_one_out(w->host, settings.seed ? chance(n) : n - 1) >= SCOPE_SE && chance(2)) perhaps_linger(w);
        else perhaps_yield(w, 4);
    }
}
/* A wave's access comes after its own stores to the same bytes. */
static void let_out_overlapping(HostWave *h, u64 lo, u64 hi) {
    WaveState *s = h->weak;
    u32 last = 0;
    for (u32 i = 0; i < s->stores; i++) if (s->store[i].exec && s->store[i].lo < hi && lo < s->store[i].hi) last = i + 1;
    while (last--) let_out(h, 0);
}

static void get(HostWave *h, u64 address, u32 bytes, u32 scope, u8 *out) {
    GroupState *g = group_of(h);
    u64 line = address & ~(u64)(LINE - 1), at = address & (LINE - 1);
    if (scope >= SCOPE_DEV) {
        memcpy(out, (const void *)address, bytes);
        put_shared(g, address, bytes, out, 0);
    } else if (scope == SCOPE_SE) memcpy(out, shared_line(g, line)->data + at, bytes);
    else { memcpy(out, near_line(g, h->half, line)->data + at, bytes); return; }
    put_near(h, address, bytes, out);
}
/* All lanes of a source, 16 bytes apart. */
static void get_all(HostWave *h, const Source *from, u8 *out) {
    if (from->scope >= SCOPE_DEV) flush(group_of(h));
    for (u32 m = from->exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        for (u32 i = 0, part; i < from->bytes; i += part) {
            part = within(from->address[l] + i, from->bytes - i);
            get(h, from->address[l] + i, part, from->scope, out + 16 * l + i);
        }
    }
}
/* Reads what a late load was going to read, now: from device memory, for the lines may have left the caches since. */
static void read_now(HostWave *h, Pending *p) {
    u8 bytes[LANES * 16];
    u32 first = 0;
    for (u32 n = 0; n < p->sources; n++) {
        Source *from = &p->source[n];
        from->scope = SCOPE_DEV;
        if (p->late == LATE_MEMORY) get_all(h, from, bytes);
        for (u32 m = from->exec; m; m &= m - 1) {
            u32 l = (u32)__builtin_ctz(m);
            u8 *at = bytes + 16 * l;
            if (p->late == LATE_LDS) memcpy(at, h->w.lds + from->address[l], from->bytes);
            if (from->bytes == 1) p->data[l] = from->is_signed ? (u32)(i8)*at : *at;
            else if (from->bytes == 2) p->data[l] = from->is_signed ? (u32)(i16)(at[0] | at[1] << 8) : (u32)(at[0] | at[1] << 8);
            else for (u32 i = 0; i < from->bytes / 4; i++) memcpy(&p->data[(first + i) * LANES + l], at + 4 * i, 4);
        }
        first += (from->bytes + 3) / 4;
    }
    p->late = NOT_LATE;
    ((WaveState *)h->weak)->late--;
}
/* Reads the late loads of one kind that overlap [lo, hi), in the order of their issue. */
static void read_late(HostWave *h, u32 what, u64 lo, u64 hi) {
    WaveState *s = h->weak;
    u32 kind = what == LATE_LDS ? PENDING_DS : PENDING_LOAD;
    for (u32 i = 0; i < s->waiting[kind]; i++) {
        Pending *p = &s->pending[kind][(s->oldest[kind] + i) & QUEUE];
        if (p->late == what && p->source[0].lo < hi && lo < p->source[0].hi) read_now(h, p);
    }
}
void weak_load(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, u8 *out) {
    HostWave *h = w->host;
    GroupState *g = group_of(h);
    w->pc = pc;
    if (scope & WEAK_SCALAR) {
        for (u32 i = 0, part; i < bytes; i += part) {
            part = within(*address + i, bytes - i);
            memcpy(out + i, scalar_line(g, (*address + i) & ~(u64)(LINE - 1))->data + ((*address + i) & (LINE - 1)), part);
        }
        return;
    }
    Source *from = &wave_of(w)->source[0];
    *from = (Source){.lo = ~0ull, .exec = exec, .bytes = bytes, .scope = scope & 3, .is_signed = scope & WEAK_SIGNED};
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        from->address[l] = address[l];
        if (address[l] < from->lo) from->lo = address[l];
        if (address[l] + bytes > from->hi) from->hi = address[l] + bytes;
        if (wave_of(w)->stores) let_out_overlapping(h, address[l], address[l] + bytes);
    }
    wave_of(w)->sources = exec ? 1 : 0;
    /* Two loads of the same bytes: the first must not see more than the second. */
    if (exec && wave_of(w)->late) read_late(h, LATE_MEMORY, from->lo, from->hi);
    get_all(h, from, out);
}
static Store *queued(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, WeakOp *op) {
    WaveState *s = wave_of(w);
    w->pc = pc;
    if (s->stores == QUEUE) let_out(w->host, 0);
    Store *e = &s->store[s->stores++];
    *e = (Store){.number = s->issued[PENDING_STORE]++, .lo = ~0ull, .exec = exec, .bytes = bytes, .scope = scope, .op = op};
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        e->address[l] = address[l];
        if (address[l] < e->lo) e->lo = address[l];
        if (address[l] + bytes > e->hi) e->hi = address[l] + bytes;
    }
    return e;
}
static void after_store(Wave *w, u32 scope) {
    /* Seen at once, before anything that was under way: older stores, and loads that are still to be read. */
    if (scope >= SCOPE_SE && !chance(3)) let_one_out(w->host, wave_of(w)->stores - 1);
    if (scope >= SCOPE_SE && chance(2)) perhaps_linger(w);
    else perhaps_yield(w, 16);
}
void weak_store(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, const u8 *data) {
    Store *e = queued(w, exec, address, bytes, scope, pc, 0);
    memcpy(e->data, data, sizeof e->data);
    after_store(w, scope);
}
void weak_defer(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, WeakOp *op, const u64 *x, const u64 *y) {
    Store *e = queued(w, exec, address, bytes, scope, pc, op);
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        memcpy(e->data + 16 * l, x + l, 8), memcpy(e->data + 16 * l + 8, y + l, 8);
    }
    after_store(w, scope);
}
u8 *weak_atomic(Wave *w, u64 address, u32 bytes, u32 scope) {
    HostWave *h = w->host;
    let_out_overlapping(h, address, address + bytes);
    if (wave_of(w)->late) read_late(h, LATE_MEMORY, address, address + bytes);
    return target(group_of(h), address, scope);
}
void weak_after_atomic(Wave *w, u64 address, u32 bytes, u32 scope) {
    publish(w->host, address, bytes, scope);
    wave_of(w)->after_atomic = 1;
}

static void lds_out(HostWave *h, u32 n) {
    WaveState *s = h->weak;
    *h->w.progress += n;
    if (n && s->late) read_late(h, LATE_LDS, 0, ~0ull);
    for (u32 i = 0; i < n; i++) {
        LdsStore *e = &s->lds[i];
        if (e->op) {
            u64 old = 0, x, y, r;
            memcpy(&old, h->w.lds + e->address, e->bytes), memcpy(&x, e->data, 8), memcpy(&y, e->data + 8, 8);
            r = e->op(old, x, y);
            memcpy(e->data, &r, e->bytes);
        }
        memcpy(h->w.lds + e->address, e->data, e->bytes);
        memset(h->w.lds_defined + e->address, 255, e->bytes);
    }
    memmove(s->lds, s->lds + n, (s->lds_stores -= n) * sizeof *s->lds);
}
static LdsStore *lds_queued(WaveState *s, u32 address, u32 bytes, WeakOp *op) {
    if (s->lds_stores == s->lds_room) s->lds = grown(s->lds, (s->lds_room = 2 * s->lds_room + 64) * sizeof *s->lds);
    LdsStore *e = &s->lds[s->lds_stores++];
    *e = (LdsStore){s->issued[PENDING_DS], address, bytes, op, {0}};
    return e;
}
/* A wave that never waits must not fill the host's memory. */
static void lds_room(Wave *w) {
    if (wave_of(w)->lds_stores >= LDS_QUEUE) lds_out(w->host, LDS_QUEUE / 2);
}
void weak_lds_store(Wave *w, u32 address, u32 bytes, const u8 *data) {
    lds_room(w);
    memcpy(lds_queued(wave_of(w), address, bytes, 0)->data, data, bytes);
}
void weak_lds_defer(Wave *w, u32 address, u32 bytes, WeakOp *op, u64 x, u64 y) {
    lds_room(w);
    LdsStore *e = lds_queued(wave_of(w), address, bytes, op);
    memcpy(e->data, &x, 8), memcpy(e->data + 8, &y, 8);
}
void weak_lds_note(Wave *w, u32 exec, const u32 *at, u32 bytes, u32 is_signed) {
    WaveState *s = wave_of(w);
    Source *from = &s->source[s->sources++ & 1];
    *from = (Source){.hi = ~0ull, .exec = exec, .bytes = bytes, .is_signed = is_signed};
    for (u32 l = 0; l < LANES; l++) from->address[l] = at[l];
}
/* LDS works on one wave's instructions in order: a read comes after the stores before it. */
void weak_lds_drain(Wave *w) {
    if (wave_of(w)->late) read_late(w->host, LATE_LDS, 0, ~0ull);
    lds_out(w->host, wave_of(w)->lds_stores);
}

static void land(Wave *w, Pending *p, u32 kind) {
    WaveState *s = wave_of(w);
    if (p->late) read_now(w->host, p);
    for (u32 i = 0; p->land != LAND_NOTHING && i < p->count; i++) {
        u32 r = p->first + i;
        if (p->land == LAND_S) {
            s->s[r] = p->data[i];
            if (!--s->s_count[r]) w->s_pending[r >> 5] &= ~(1u << (r & 31));
            continue;
        }
        for (u32 m = p->land == LAND_HOLD ? 0 : p->exec; m; m &= m - 1) {
            u32 l = (u32)__builtin_ctz(m), x = p->data[i * LANES + l], old = s->v[r][l];
            s->v[r][l] = p->land == LAND_LOW ? (old & 0xffff0000u) | (x & 0xffff) : p->land == LAND_HIGH ? (old & 0xffff) | x << 16 : x;
        }
        if (!--s->v_count[r]) w->v_pending[r >> 5] &= ~(1u << (r & 31));
    }
    s->oldest[kind] = (s->oldest[kind] + 1) & QUEUE;
    s->waiting[kind]--;
}
/* A result on its way: it lands at the wait. The oldest lands when the counter is full, as the card would stall. */
void weak_pending(Wave *w, u32 kind, u32 what, u32 first, u32 count, u32 exec, const u32 *data, u32 pc) {
    WaveState *s = wave_of(w);
    u32 sources = s->sources;
    int atomic = s->after_atomic;
    s->after_atomic = 0, s->sources = 0;
    w->pc = pc;
    s->issued[kind]++;
    if (kind != PENDING_STORE) {
        if (s->waiting[kind] == QUEUE) land(w, &s->pending[kind][s->oldest[kind]], kind);
        Pending *p = &s->pending[kind][(s->oldest[kind] + s->waiting[kind]++) & QUEUE];
        *p = (Pending){.land = what, .first = first, .count = count, .exec = exec};
        if (what != LAND_NOTHING && what != LAND_HOLD) memcpy(p->data, data, count * (what == LAND_S ? 4 : 4 * LANES));
        if (sources && (kind == PENDING_LOAD || kind == PENDING_DS) && what != LAND_NOTHING && what != LAND_HOLD && !chance(2)) {
            memcpy(p->source, s->source, sizeof p->source);
            p->sources = sources, p->late = kind == PENDING_DS ? LATE_LDS : LATE_MEMORY, s->late++;
        }
        for (u32 i = first; what != LAND_NOTHING && i < first + count; i++) {
            if (what == LAND_S) { w->s_pending[i >> 5] |= 1u << (i & 31), s->s_count[i]++; continue; }
            /* Results of different kinds come in any order: which of two would stay in the register is not known. */
            if (what == LAND_HOLD) { w->v_pending[i >> 5] |= 1u << (i & 31), s->v_count[i]++; continue; }
            if (s->v_count[i] && s->v_kind[i] != kind) w->rt->fault(w, FAULT_REGISTER_PENDING, pc, 0, 0, 0);
            w->v_pending[i >> 5] |= 1u << (i & 31), s->v_count[i]++, s->v_kind[i] = (u8)kind;
        }
    }
    if (atomic && chance(2)) perhaps_linger(w);
    else perhaps_yield(w, 32);
}
void weak_wait(Wave *w, u32 kind, u32 left) {
    WaveState *s = wave_of(w);
    u64 number = s->issued[kind] > left ? s->issued[kind] - left : 0;
    if (kind == PENDING_STORE) { let_out_below(w, number); return; }
    if (kind == PENDING_DS) {
        u32 n = 0;
        while (n < s->lds_stores && s->lds[n].number < number) n++;
        lds_out(w->host, n);
    }
    /* Scalar loads return in any order, so that only waiting for all of them promises anything. */
    if (kind == PENDING_SCALAR && left) return;
    while (s->waiting[kind] > left) land(w, &s->pending[kind][s->oldest[kind]], kind);
    perhaps_yield(w, 8);
}
/* Who passed a barrier may be the last to go on, long after the others. */
void weak_barrier(HostWave *h) {
    if (chance(4)) return;
    h->nap = 1u << chance(7), h->state = WAVE_SLICE;
    h->w.rt->yield(&h->w, YIELD_SLICE);
}
void weak_inv(Wave *w, u32 scope) {
    HostWave *h = w->host;
    GroupState *g = group_of(h);
    if (scope == WEAK_SCALAR) { cache_clear(&g->scalar); return; }
    if (scope >= SCOPE_DEV) shared_clear(g);
    if (scope >= SCOPE_SE) cache_clear(&g->near[h->half]);
}
void weak_wb(Wave *w, u32 scope) {
    if (scope >= SCOPE_DEV) flush(group_of(w->host));
}

/* Before a wave runs on: time passes, so that what it stored gets out at last, whether it waits or not. */
void weak_step(HostWave *h) {
    WaveState *s = h->weak;
    if (s->stores && !chance(8)) let_one_out(h, chance(s->stores));
    if (s->lds_stores && !chance(8)) lds_out(h, 1 + chance(s->lds_stores));
}
void weak_wave_start(HostWave *h) {
    WaveState *s = aligned_alloc(128, (sizeof(WaveState) + 127) / 128 * 128);
    if (!s) s = grown(0, ~0ull >> 1);
    memset(s, 0, sizeof *s);
    s->store = grown(0, (QUEUE + 1) * sizeof *s->store);
    for (u32 k = 0; k < PENDING_KINDS; k++) s->pending[k] = k == PENDING_STORE ? 0 : grown(0, (QUEUE + 1) * sizeof(Pending));
    h->weak = s;
    h->half = h->launch->function->kernel->wgp_mode ? h->number & 1 : 0;
    h->w.v = s->v, h->w.s = s->s;
}
/* At the end all stores get out, in any order. */
void weak_wave_end(HostWave *h) {
    lds_out(h, ((WaveState *)h->weak)->lds_stores);
    let_out_below(&h->w, ~0ull);
}
void weak_wave_free(HostWave *h) {
    WaveState *s = h->weak;
    if (!s) return;
    for (u32 k = 0; k < PENDING_KINDS; k++) free(s->pending[k]);
    free(s->store), free(s->lds), free(s);
    h->weak = 0;
}
