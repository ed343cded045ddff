/* attention: y = softmax(scale q K^T) V. A tile is a few rows of the step and the query heads of one KV head; in a step of
 * few rows also a share of the keys, so that one row keeps several threads busy.
 *
 * Keys lie in segments of 256 at absolute positions. Within a segment: online softmax over KV blocks of 32 (keys in
 * lanes: scores need no horizontal sums); segments are merged in ascending order. Every block that a query sees is
 * summed over all its 32 slots, those it must not see with weight 0 (the cache holds finite numbers only, see rope.c),
 * so bits depend on the query and the cache alone, not on which queries share a tile nor on who did which segment.
 *
 * With few queries a segment is gone through three times, for scores, weights and values, each over all its blocks: what
 * one block needs of the block before is then a few numbers, and nothing waits for them. Up to eight queries go at once: the
 * chains of one query's sums are too short to fill the pipeline. With more than eight in the tile the block is widened to
 * F32 once for all of them.
 * What comes some KB later is fetched a line at a time, along with the work: a block's place is known from the table
 * only, and a hundred fetches at once stall the core that issues them.
 * Bytes: K and V of the sequence, F16, once a tile. */
#include "cpu.h"

#include <stdatomic.h>

#define MAX_QUERIES IE_ATTN_QUERIES
#define AT_ONCE 8 /* queries: all that a tile of few rows mostly has */
#define DIM_STEP 64
#define SEGMENT IE_ATTN_SEGMENT
#define BLOCKS (IE_ATTN_SEGMENT / IE_KV_BLOCK) /* of a segment */
#define AHEAD 24576 /* bytes */

typedef struct { float m, l; float *acc; } softmax_state;

typedef struct {
    const float *q;
    int64_t start, pos; /* visible positions [start, pos] */
    softmax_state part, total; /* of the current segment; of those before */
    float *parts; /* where results of segments are kept until all are there, from the query's first on; or NULL */
} query;

/* Blocks of one segment, or a single one that was widened. later[i]: what to fetch while block i is at work, first of K,
 * then of V. */
typedef struct { const void *k[BLOCKS], *v[BLOCKS], *later[2 * BLOCKS]; int count, half; int64_t base; } block_run;

static void state_reset(softmax_state *s, int64_t dim)
{
    s->m = -__builtin_inff();
    s->l = 0.0f;
    memset(s->acc, 0, (size_t)dim * 4);
}

static void widen(const _Float16 *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        ie_store_f(to + i, ie_load_h(from + i));
}

/* 16 values at element i of a block that is still F16, or already widened. */
IE_MATH ie_f16 at_element(const void *block, int half, int64_t i)
{
    return half ? ie_load_h((const _Float16 *)block + i) : ie_load_f((const float *)block + i);
}

/* A line of what comes later, with `at` the number of bytes since the start of that block. */
IE_MATH void fetch_line(const void *later, int64_t at) { __builtin_prefetch((const char *)later + at, 0, 3); }

/* Scores of n queries against the 32 keys of each of `pair` blocks from b on: s[i][slot] = scale * sum over d of
 * q[d] K[d][slot], d ascending. */
IE_MATH void scores(query *const *at, int n, const block_run *r, int b, int pair, int half, int64_t dim, float scale, float s[][SEGMENT])
{
    ie_f16 sum[AT_ONCE][4];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2 * pair; j++)
            sum[i][j] = ie_splat(0.0f);
    for (int64_t d = 0; d < dim; d++) {
        ie_f16 k[4];
        for (int j = 0; j < 2 * pair; j++)
            k[j] = at_element(r->k[b + j / 2], half, d * IE_KV_BLOCK + j % 2 * 16);
        for (int j = 0; half && j < pair; j++)
            fetch_line(r->later[b + j], d * 2 * IE_KV_BLOCK);
        for (int i = 0; i < n; i++) {
            const ie_f16 q = ie_splat(at[i]->q[d]);
            for (int j = 0; j < 2 * pair; j++)
                sum[i][j] = ie_fma16(q, k[j], sum[i][j]);
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2 * pair; j++)
            ie_store_f(s[i] + b * IE_KV_BLOCK + 16 * j, sum[i][j] * scale);
}

/* One query's scores against `count` blocks to weights; slots outside [lo, hi) get 0. keep[b]: the factor for what was
 * summed before block b. A loop for each thing, so that only the maxima and the sums of 32 wait for one another. */
IE_MATH void weights(softmax_state *st, float *s, int count, int64_t lo, int64_t hi, float *keep)
{
    float m[BLOCKS + 1], sum[BLOCKS];
    if (lo > 0 || hi < count * IE_KV_BLOCK)
        for (int64_t i = 0; i < count * IE_KV_BLOCK; i++)
            s[i] = i >= lo && i < hi ? s[i] : -__builtin_inff();
    m[0] = st->m;
    for (int b = 0; b < count; b++) {
        const ie_f16 s0 = ie_load_f(s + b * IE_KV_BLOCK), s1 = ie_load_f(s + b * IE_KV_BLOCK + 16);
        sum[b] = ie_max16(s0 > s1 ? s0 : s1);
    }
    for (int b = 0; b < count; b++)
        m[b + 1] = sum[b] > m[b] ? sum[b] : m[b];
    for (int b = 0; b < count; b++) {
        float *w = s + b * IE_KV_BLOCK;
        for (int i = 0; i < IE_KV_BLOCK; i++)
            w[i] = ie_exp(w[i] - m[b + 1]);
        sum[b] = ie_sum16(ie_load_f(w) + ie_load_f(w + 16));
    }
    for (int b = 0; b < BLOCKS; b++) /* all, so that they are one vector; but a single one is not worth it */
        keep[b] = b < count ? m[b] - m[b + 1] : 0.0f;
    for (int b = 0; b < (count == 1 ? 1 : BLOCKS); b++)
        keep[b] = ie_exp(keep[b]);
    for (int b = 0; b < count; b++)
        st->l = ie_fma(st->l, keep[b], sum[b]);
    st->m = m[count];
}

/* For each block: acc = acc * keep, then + weight[slot] * V[slot], slots ascending, for columns [d0, d0 + 16 w). */
IE_MATH void add_values(query *const *at, int n, int w, float s[][SEGMENT], float keep[][BLOCKS], const block_run *r, int count,
                        int half, int64_t dim, int64_t d0)
{
    ie_f16 acc[AT_ONCE][DIM_STEP / 16];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w; j++)
            acc[i][j] = ie_load_f(at[i]->part.acc + d0 + 16 * j);
    for (int b = 0; b < count; b++) {
        const void *v = r->v[b], *later = r->later[count + b];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < w; j++)
                acc[i][j] *= keep[i][b];
        for (int slot = 0; slot < IE_KV_BLOCK; slot++) {
            ie_f16 row[DIM_STEP / 16];
            for (int j = 0; j < w; j++)
                row[j] = at_element(v, half, slot * dim + d0 + 16 * j);
            for (int j = 0; half && j < w; j += 2)
                fetch_line(later, (slot * dim + d0 + 16 * j) * 2);
            for (int i = 0; i < n; i++) {
                const ie_f16 p = ie_splat(s[i][b * IE_KV_BLOCK + slot]);
                for (int j = 0; j < w; j++)
                    acc[i][j] = ie_fma16(p, row[j], acc[i][j]);
            }
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w; j++)
            ie_store_f(at[i]->part.acc + d0 + 16 * j, acc[i][j]);
}

/* Up to AT_ONCE queries through blocks that all of them see, the number a constant where this is inlined. */
IE_MATH void blocks_update_n(query *const *at, int n, const block_run *r, int half, int64_t dim, float scale)
{
    float s[AT_ONCE][SEGMENT], keep[AT_ONCE][BLOCKS];
    const int pair = n > 4 ? 1 : 2, step = n > 4 ? DIM_STEP / 2 : DIM_STEP; /* sums that registers hold */
    const int count = half ? r->count : 1; /* a constant where a block was widened */
    int b = 0;
    for (; b + pair <= count; b += pair)
        scores(at, n, r, b, pair, half, dim, scale, s);
    if (b < count)
        scores(at, n, r, b, 1, half, dim, scale, s);
    for (int i = 0; i < n; i++)
        weights(&at[i]->part, s[i], count, at[i]->start - r->base, at[i]->pos + 1 - r->base, keep[i]);
    int64_t d = 0;
    for (; d + step <= dim; d += step)
        add_values(at, n, step / 16, s, keep, r, count, half, dim, d);
    for (; d < dim; d += 16)
        add_values(at, n, 1, s, keep, r, count, half, dim, d);
}

static void blocks_update(query *const *at, int n, const block_run *r, int64_t dim, float scale)
{
#define CASES(k) \
    case 2 * k: blocks_update_n(at, k, r, 0, dim, scale); break; \
    case 2 * k + 1: blocks_update_n(at, k, r, 1, dim, scale); break;
    switch (2 * n + r->half) {
        CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) CASES(6) CASES(7) CASES(8)
    }
}

static void merge(softmax_state *total, const softmax_state *part, int64_t dim)
{
    const float m = part->m > total->m ? part->m : total->m;
    const float old = ie_exp(total->m - m), new = ie_exp(part->m - m);
    total->l = ie_fma(part->l, new, total->l * old);
    total->m = m;
    for (int64_t d = 0; d < dim; d++)
        total->acc[d] = ie_fma(part->acc[d], new, total->acc[d] * old);
}

static void fetch(const _Float16 *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 32)
        __builtin_prefetch(p + i, 0, 3);
}

/* Where the blocks of one KV head of one sequence are. */
typedef struct { const _Float16 *k, *v; const int32_t *table; int64_t blocks, dim, head, last; } cache_view;

IE_MATH const _Float16 *k_block(const cache_view *c, int64_t b) { return c->k + ie_k_index(c->blocks, c->table[b], c->dim, c->head, 0, 0); }
IE_MATH const _Float16 *v_block(const cache_view *c, int64_t b) { return c->v + ie_v_index(c->blocks, c->table[b], c->dim, c->head, 0, 0); }

static uint32_t seeing(const query *qs, int n, int64_t b)
{
    uint32_t mask = 0;
    for (int i = 0; i < n; i++)
        mask |= (uint32_t)(qs[i].pos >= b * IE_KV_BLOCK && qs[i].start < (b + 1) * IE_KV_BLOCK) << i;
    return mask;
}

/* Blocks [b, e) as they lie in the cache, each with what comes AHEAD bytes later: all K, all V, then K of the next segment.
 * Two blocks at least: so many may be at work at once, and what is fetched along with the work on it comes too late. */
static block_run run_of(const cache_view *c, int64_t b, int64_t e)
{
    block_run r = {.count = (int)(e - b), .half = 1, .base = b * IE_KV_BLOCK};
    const int n = r.count, ahead = (int)ie_max(2, AHEAD / (2 * c->dim * IE_KV_BLOCK));
    for (int i = 0; i < n; i++) {
        r.k[i] = k_block(c, b + i);
        r.v[i] = v_block(c, b + i);
    }
    for (int i = 0; i < 2 * n; i++) {
        const int later = i + ahead;
        r.later[i] = later < n ? r.k[later] : later < 2 * n ? r.v[later - n] : k_block(c, ie_min(e + later - 2 * n, c->last));
    }
    return r;
}

/* Many queries through block b, widened for all of them. Not inlined: few queries need no such place on the stack. */
__attribute__((noinline)) static void widened_block(const cache_view *c, query *const *at, int held, int64_t b, float scale)
{
    const int64_t n = c->dim * IE_KV_BLOCK;
    float k[IE_MAX_HEAD_DIM * IE_KV_BLOCK], v[IE_MAX_HEAD_DIM * IE_KV_BLOCK];
    if (b < c->last) {
        fetch(k_block(c, b + 1), n);
        fetch(v_block(c, b + 1), n);
    }
    widen(k_block(c, b), k, n);
    widen(v_block(c, b), v, n);
    const block_run r = {.k = {k}, .v = {v}, .count = 1, .base = b * IE_KV_BLOCK};
    for (int i = 0; i < held; i += AT_ONCE)
        blocks_update(at + i, (int)ie_min(AT_ONCE, held - i), &r, c->dim, scale);
}

/* The blocks of segment seg into the queries' `part`. */
static void segment(const cache_view *c, query *qs, int n, int64_t first, int64_t seg, float scale)
{
    const int64_t e = ie_min((seg + 1) * BLOCKS, c->last + 1);
    for (int64_t b = ie_max(seg * BLOCKS, first), next; b < e; b = next) {
        const uint32_t mask = seeing(qs, n, b);
        query *at[MAX_QUERIES];
        int held = 0;
        for (int i = 0; i < n; i++)
            if (mask >> i & 1)
                at[held++] = &qs[i];
        next = b + 1;
        if (n > AT_ONCE) {
            widened_block(c, at, held, b, scale);
            continue;
        }
        while (next < e && seeing(qs, n, next) == mask)
            next++;
        const block_run r = run_of(c, b, next);
        blocks_update(at, held, &r, c->dim, scale);
    }
}

/* n queries of one sequence over segments [s0, s1) of those that they see. */
static void attend(const cache_view *c, query *qs, int n, int64_t first, int64_t s0, int64_t s1, float scale)
{
    const int64_t dim = c->dim, slot = ie_attn_part_floats(dim);
    for (int64_t seg = s0; seg < s1; seg++) {
        for (int i = 0; i < n; i++) {
            query *q = &qs[i];
            if (seg < q->start / SEGMENT || seg > q->pos / SEGMENT)
                continue;
            if (q->parts)
                q->part.acc = q->parts + (seg - q->start / SEGMENT) * slot;
            state_reset(&q->part, dim);
        }
        segment(c, qs, n, first, seg, scale);
        for (int i = 0; i < n; i++) {
            query *q = &qs[i];
            if (seg < q->start / SEGMENT || seg > q->pos / SEGMENT)
                continue;
            if (q->parts) {
                q->part.acc[slot - 2] = q->part.m;
                q->part.acc[slot - 1] = q->part.l;
            } else {
                merge(&q->total, &q->part, dim);
            }
        }
    }
}

#define PARTS 16 /* at a time: their factors are made in vectors, not one after the other */

/* What `merge` does with each part in turn: the maxima first, then all factors, then the sums. */
static void merge_parts(query *q, int64_t dim)
{
    const int64_t slot = ie_attn_part_floats(dim), count = q->pos / SEGMENT - q->start / SEGMENT + 1;
    softmax_state *t = &q->total;
    for (int64_t first = 0; first < count; first += PARTS) {
        const int n = (int)ie_min(PARTS, count - first);
        const float *part = q->parts + first * slot;
        float old[PARTS], new[PARTS];
        for (int i = 0; i < PARTS; i++) {
            const float pm = part[ie_min(i, n - 1) * slot + slot - 2], m = pm > t->m ? pm : t->m;
            old[i] = t->m - m;
            new[i] = pm - m;
            t->m = m;
        }
        for (int i = 0; i < PARTS; i++)
            old[i] = ie_exp(old[i]);
        for (int i = 0; i < PARTS; i++)
            new[i] = ie_exp(new[i]);
        for (int i = 0; i < n; i++)
            t->l = ie_fma(part[i * slot + slot - 1], new[i], t->l * old[i]);
        for (int64_t d = 0; d < dim; d += 16) {
            ie_f16 acc = ie_load_f(t->acc + d);
            for (int i = 0; i < n; i++)
                acc = ie_fma16(ie_load_f(part + i * slot + d), ie_splat(new[i]), acc * old[i]);
            ie_store_f(t->acc + d, acc);
        }
    }
}

static void emit(const ie_args_attention *a, query *q, int64_t r, int64_t h)
{
    const int64_t dim = a->head_dim;
    const float inv = 1.0f / q->total.l;
    float *acc = q->total.acc;
    for (int64_t d = 0; d < dim; d++)
        acc[d] *= inv;
    if (a->y.p)
        memcpy(ie_row_f(a->y, r) + h * dim, acc, (size_t)dim * 4);
    if (a->yq.p) /* head_dim is a multiple of 32 here: a head fills whole Q8 blocks */
        ie_quantize_row(acc, dim, ie_row_b(a->yq, r), a->yq.cols, h * dim / IE_BLOCK);
}

/* The rows [r, e) of a tile that belong to one sequence. */
typedef struct { int64_t r, e, first, last; } row_run; /* first, last: positions that any of them sees */

static row_run next_run(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, int64_t r, int64_t r1)
{
    const int32_t *seq = ie_ints(step->seq) + ie_step_row(cmd), *pos = ie_ints(step->pos) + ie_step_row(cmd);
    row_run run = {r, r, ie_window_start(pos[r], a->window), pos[r]};
    for (; run.e < r1 && seq[run.e] == seq[r]; run.e++) {
        run.first = ie_min(run.first, ie_window_start(pos[run.e], a->window));
        run.last = ie_max(run.last, pos[run.e]);
    }
    return run;
}
static int64_t segments_of(const row_run *run) { return run->last / SEGMENT - run->first / SEGMENT + 1; }

typedef struct { int64_t g, h0, heads, r0, r1, share, shares; } attention_tile;

/* What is done with a run: compute a share of it, all of it with its results, or the results of shares that are there. */
enum { PART, WHOLE, RESULT };

static void run_queries(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, const attention_tile *t, const row_run *run, int what)
{
    const int64_t dim = a->head_dim, stride = ie_align_up(dim, 16), group = a->heads / a->kv_heads;
    float memory[2 * MAX_QUERIES * IE_MAX_HEAD_DIM];
    query qs[MAX_QUERIES];
    int n = 0;
    for (int64_t row = run->r; row < run->e; row++)
        for (int64_t h = t->g * group + t->h0; h < t->g * group + t->h0 + t->heads; h++, n++) {
            query *q = &qs[n];
            q->q = ie_row_f(a->q, row) + h * dim;
            q->pos = ie_ints(step->pos)[row + ie_step_row(cmd)];
            q->start = ie_window_start(q->pos, a->window);
            q->part.acc = memory + 2 * n * stride;
            q->total.acc = q->part.acc + stride;
            q->parts = what == WHOLE ? NULL : (float *)(uintptr_t)a->parts.p + ie_attn_part_offset(row, h, a->heads, dim, a->parts.segments);
            state_reset(&q->total, dim);
        }
    const int32_t seq = ie_ints(step->seq)[run->r + ie_step_row(cmd)];
    const cache_view c = {(const _Float16 *)(uintptr_t)a->k_cache, (const _Float16 *)(uintptr_t)a->v_cache,
                          ie_ints(step->tables) + (int64_t)seq * step->max_blocks, step->pool_blocks, dim, t->g, ie_kv_block_of(run->last)};
    const int64_t s0 = run->first / SEGMENT, count = segments_of(run);
    if (what != RESULT)
        attend(&c, qs, n, ie_kv_block_of(run->first), s0 + ie_split(count, t->shares, t->share), s0 + ie_split(count, t->shares, t->share + 1), a->scale);
    for (int i = 0; i < n && what != PART; i++) {
        if (what == RESULT)
            merge_parts(&qs[i], dim);
        emit(a, &qs[i], run->r + i / t->heads, t->g * group + t->h0 + i % t->heads);
    }
}

static void all_runs(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, const attention_tile *t, int what)
{
    for (row_run run = {.e = t->r0}; run.e < t->r1;) {
        run = next_run(a, cmd, step, run.e, t->r1);
        run_queries(a, cmd, step, t, &run, what);
    }
}

/* One share of the keys of a few rows. Where all lie in one segment there is nothing to share but the query heads. */
static void shared_tile(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, attention_tile t, int64_t place)
{
    int64_t most = 1;
    for (row_run run = {.e = t.r0}; run.e < t.r1;) {
        run = next_run(a, cmd, step, run.e, t.r1);
        most = ie_max(most, segments_of(&run));
    }
    if (most == 1 || !a->parts.p) {
        const int64_t ways = ie_attn_ways(t.heads, a->kv_heads);
        if (t.share >= ways)
            return;
        const int64_t h0 = ie_split(t.heads, ways, t.share);
        t.heads = ie_split(t.heads, ways, t.share + 1) - h0;
        t.h0 += h0;
        t.share = 0;
        t.shares = 1;
        all_runs(a, cmd, step, &t, WHOLE);
        return;
    }
    t.shares = ie_min(IE_ATTN_SHARES, most);
    if (t.share >= t.shares)
        return;
    all_runs(a, cmd, step, &t, PART);
    _Atomic int32_t *done = (_Atomic int32_t *)(uintptr_t)(a->parts.p + (uint64_t)(place * 64));
    if (atomic_fetch_add(done, 1) + 1 == t.shares) { /* the last one; counters are zero between steps */
        atomic_store(done, 0);
        all_runs(a, cmd, step, &t, RESULT);
    }
}

IE_KERNEL(attention)
{
    IE_ARGS(attention);
    const int64_t kv_heads = a->kv_heads, group = a->heads / kv_heads, rows = ie_domain_rows(cmd, step);
    const int64_t some = ie_attn_heads(group, kv_heads, rows), parts = ie_div_up(group, some);
    const int64_t per_tile = ie_attn_rows(some), shares = ie_attn_shares(rows);
    for (int64_t i = begin; i < end; i++) {
        const int64_t place = i / shares, r0 = place / parts / kv_heads * per_tile, h0 = place % parts * some;
        attention_tile t = {place / parts % kv_heads, h0, ie_min(some, group - h0), r0, ie_min(r0 + per_tile, rows), i % shares, shares};
        if (shares > 1) {
            shared_tile(a, cmd, step, t, place);
        } else {
            all_runs(a, cmd, step, &t, WHOLE);
        }
    }
}
