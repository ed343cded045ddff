/* attention: y = softmax(scale q K^T) V. A tile is a few rows of the step and the query heads of one KV head; in a step
 * of few rows also a share of the keys, so that one row keeps several threads busy.
 *
 * Keys lie in segments of 256 at absolute positions. Within a segment: online softmax over KV blocks of 32 (keys in
 * lanes: scores need no horizontal sums); segments are merged in ascending order. Every block that a query sees is
 * summed over all its 32 slots, those it must not see with weight 0 (the cache holds finite numbers only, see rope.c),
 * so bits depend on the query and the cache alone, not on which queries share a tile nor on who did which segment.
 *
 * With few queries a segment is gone through three times, for scores, weights and values, each over all its blocks:
 * what one block needs of the block before is then a few numbers, and nothing waits for them. Up to eight queries go at
 * once: the chains of one query's sums are too short to fill the pipeline. With more than eight in the tile the block
 * is widened to F32 once for all of them.
 * What comes some KB later is fetched a line at a time, along with the work: a block's place is known from the table
 * only, and of a hundred fetches at once most are dropped. Work and fetches go through memory from one end of a block
 * to the other: two places at once, or every other line, are read a fifth to a half slower.
 * Bytes: K and V of the sequence, F16, once a tile. */
#include "cpu.h"

#include <stdatomic.h>

#define MAX_QUERIES IE_ATTN_QUERIES
#define AT_ONCE 8 /* queries: all that a tile of few rows mostly has */
#define DIM_STEP 64
#define SEGMENT IE_ATTN_SEGMENT
#define BLOCKS (IE_ATTN_SEGMENT / IE_KV_BLOCK) /* of a segment */
#define AHEAD 32768 /* bytes */

typedef struct {
    float m, l;
    float *acc;
} softmax_state;

typedef struct {
    const float *q;
    int64_t start, pos; /* visible positions [start, pos] */
    softmax_state part, total; /* of the current segment; of those before */
    float *parts; /* where results of segments are kept until all are there, from the query's first on; or NULL */
} query;

#define LARGER(a, b) (a > b ? a : b)

/* Blocks of one segment, or a single one that was widened. later[i]: what to fetch while block i is at work, first of
 * K, then of V. */
typedef struct {
    const void *k[BLOCKS], *v[BLOCKS], *later[2 * BLOCKS];
    int count, half;
    int64_t base;
} block_run;

static void state_reset(softmax_state *s, int64_t dim)
{
    s->m = -__builtin_inff();
    s->l = 0.0f;
    for (int64_t d = 0; d < dim; d += 16)
        ie_store_f(s->acc + d, ie_splat(0.0f));
}

static void widen(const _Float16 *from, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        ie_store_f(to + i, ie_load_h(from + i));
}

/* 16 values at element i of a block that is still F16, or already widened. */
IE_MATH ie_vf at_element(const void *block, int half, int64_t i)
{
    return half ? ie_load_h((const _Float16 *)block + i) : ie_load_f((const float *)block + i);
}

/* A line of what comes later, with `at` the number of bytes since the start of that block. */
IE_MATH void fetch_line(const void *later, int64_t at) { __builtin_prefetch((const char *)later + at, 0, 3); }

/* Scores of n queries against the 32 keys of block b: s[i][slot] = scale * sum over d of q[d] K[d][slot], d ascending.
 * One block at a time even where its sums are too few to keep the units busy: two are two places that memory is read
 * at. */
IE_MATH void scores(query *const *at, int n, const block_run *r, int b, int half, int64_t dim, float scale,
                    float s[][SEGMENT])
{
    ie_vf sum[AT_ONCE][2];
    for (int i = 0; i < n; i++)
        sum[i][0] = sum[i][1] = ie_splat(0.0f);
    for (int64_t d = 0; d < dim; d++) {
        const ie_vf k0 = at_element(r->k[b], half, d * IE_KV_BLOCK),
                    k1 = at_element(r->k[b], half, d * IE_KV_BLOCK + 16);
        if (half)
            fetch_line(r->later[b], d * 2 * IE_KV_BLOCK);
        for (int i = 0; i < n; i++) {
            const ie_vf q = ie_splat(at[i]->q[d]);
            sum[i][0] = ie_fma16(q, k0, sum[i][0]);
            sum[i][1] = ie_fma16(q, k1, sum[i][1]);
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 2; j++)
            ie_store_f(s[i] + b * IE_KV_BLOCK + 16 * j, sum[i][j] * scale);
}

/* The sum, or the maximum, over the lanes of each of 8 vectors: pairs are combined in the order of ie_sum16 and
 * ie_max16. */
#define OVER_LANES(name, combine) \
    IE_MATH ie_f8 name(const ie_vf *v) \
    { \
        ie_vf a[4], b[2]; \
        for (int i = 0; i < 4; i++) \
            a[i] = \
                combine(LANES(v[2 * i], v[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), \
                        LANES(v[2 * i], v[2 * i + 1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)); \
        for (int i = 0; i < 2; i++) \
            b[i] = combine(LANES(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27), \
                           LANES(a[2 * i], a[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)); \
        const ie_vf c = combine(LANES(b[0], b[1], 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29), \
                                LANES(b[0], b[1], 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31)); \
        return combine(c.even, c.odd); \
    }
#define LANES __builtin_shufflevector
IE_STATIC_ASSERT(BLOCKS == 8 && AT_ONCE == 8);
#define SUM(a, b) (a + b)
OVER_LANES(sums8, SUM)
OVER_LANES(maxima8, LARGER)

/* Slots of one block, or of all of a segment, that a query must not see. */
IE_MATH void hide(const query *q, int64_t base, float *s, int64_t slots)
{
    const int64_t lo = q->start - base, hi = q->pos + 1 - base;
    if (lo > 0 || hi < slots) {
        IE_VECTORIZE
        for (int64_t i = 0; i < slots; i++)
            s[i] = i >= lo && i < hi ? s[i] : -__builtin_inff();
    }
}

/* One query's scores against one block to weights; returns the factor for what was summed before. */
IE_MATH float block_weights(softmax_state *st, float *s)
{
    const ie_vf s0 = ie_load_f(s), s1 = ie_load_f(s + 16);
    const float old = st->m, most = ie_max16(LARGER(s0, s1)), m = LARGER(most, old);
    IE_VECTORIZE
    for (int i = 0; i < IE_KV_BLOCK; i++)
        s[i] = ie_exp(s[i] - m);
    const float keep = ie_exp(old - m);
    st->l = ie_fma(st->l, keep, ie_sum16(ie_load_f(s) + ie_load_f(s + 16)));
    st->m = m;
    return keep;
}

/* The same for n queries and a segment. keep[i][b]: query i's factor for what was summed before block b. Blocks from
 * `count` on, at a sequence's end, are as if hidden. A loop for each thing, so that nothing waits for long. */
IE_MATH void segment_weights(query *const *at, int n, const block_run *r, float s[][SEGMENT], float keep[][BLOCKS])
{
    const ie_f8 none = -__builtin_inff();
    float m[AT_ONCE][BLOCKS], sum[AT_ONCE][BLOCKS];
    ie_vf v[BLOCKS];
    for (int i = 0; i < n; i++) {
        IE_VECTORIZE
        for (int64_t j = r->count * IE_KV_BLOCK; j < SEGMENT; j++)
            s[i][j] = -__builtin_inff();
        hide(at[i], r->base, s[i], r->count * IE_KV_BLOCK);
        for (int b = 0; b < BLOCKS; b++) {
            const ie_vf s0 = ie_load_f(s[i] + b * IE_KV_BLOCK), s1 = ie_load_f(s[i] + b * IE_KV_BLOCK + 16);
            v[b] = LARGER(s0, s1);
        }
        ie_f8 x = maxima8(v), y; /* of one block, then of it and all before */
        y = LANES(x, none, 8, 0, 1, 2, 3, 4, 5, 6);
        x = LARGER(x, y);
        y = LANES(x, none, 8, 9, 0, 1, 2, 3, 4, 5);
        x = LARGER(x, y);
        y = LANES(x, none, 8, 9, 10, 11, 0, 1, 2, 3);
        x = LARGER(x, y);
        const ie_f8 before = at[i]->part.m;
        x = LARGER(x, before);
        y = LANES(x, before, 8, 0, 1, 2, 3, 4, 5, 6) - x;
        memcpy(m[i], &x, sizeof x);
        memcpy(keep[i], &y, sizeof y);
        at[i]->part.m = x[BLOCKS - 1];
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < SEGMENT; j += 16)
            ie_store_f(s[i] + j, ie_load_f(s[i] + j) - ie_splat(m[i][j / IE_KV_BLOCK]));
        IE_VECTORIZE_BY_4
        for (int j = 0; j < SEGMENT; j++)
            s[i][j] = ie_exp(s[i][j]);
        for (int b = 0; b < BLOCKS; b++)
            v[b] = ie_load_f(s[i] + b * IE_KV_BLOCK) + ie_load_f(s[i] + b * IE_KV_BLOCK + 16);
        const ie_f8 x = sums8(v);
        memcpy(sum[i], &x, sizeof x);
    }
    for (int i = 0; i < n; i++) {
        IE_VECTORIZE
        for (int b = 0; b < BLOCKS; b++)
            keep[i][b] = ie_exp(keep[i][b]);
    }
    for (int i = 0; i < n; i++)
        for (int b = 0; b < BLOCKS; b++)
            at[i]->part.l = ie_fma(at[i]->part.l, keep[i][b], sum[i][b]);
}

/* acc = acc * keep + weight[slot] * V[slot] of block b, slots ascending, for columns [d0, d0 + 16 w), of which the last
 * may not exist: what is read past a slot (IE_READ_PAST) ends in lanes that nobody looks at. What comes later is
 * fetched from one end of its block to the other, whichever columns are at work. */
IE_MATH void add_values(query *const *at, int n, int w, float s[][SEGMENT], float keep[][BLOCKS], const block_run *r,
                        int b, int half, int64_t dim, int64_t d0)
{
    ie_vf acc[AT_ONCE][DIM_STEP / 16];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w; j++)
            acc[i][j] = ie_load_f(at[i]->part.acc + d0 + 16 * j) * keep[i][b];
    for (int slot = 0; slot < IE_KV_BLOCK; slot++) {
        ie_vf row[DIM_STEP / 16];
        for (int j = 0; j < w; j++)
            row[j] = at_element(r->v[b], half, slot * dim + d0 + 16 * j);
        for (int j = 0; half && j < w; j += 2)
            fetch_line(r->later[r->count + b], (d0 * IE_KV_BLOCK + (slot * w + j) * 16) * 2);
        for (int i = 0; i < n; i++) {
            const ie_vf p = ie_splat(s[i][b * IE_KV_BLOCK + slot]);
            for (int j = 0; j < w; j++)
                acc[i][j] = ie_fma16(p, row[j], acc[i][j]);
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
    const int step = n > 4 ? DIM_STEP / 2 : DIM_STEP; /* sums that registers hold */
    const int count = half ? r->count : 1; /* a constant where a block was widened */
    for (int b = 0; b < count; b++)
        scores(at, n, r, b, half, dim, scale, s);
    if (half)
        segment_weights(at, n, r, s, keep);
    for (int i = 0; i < n && !half; i++) {
        hide(at[i], r->base, s[i], IE_KV_BLOCK);
        keep[i][0] = block_weights(&at[i]->part, s[i]);
    }
    for (int b = 0; b < count; b++) {
        int64_t d = 0;
        for (; d + step <= dim; d += step)
            add_values(at, n, step / 16, s, keep, r, b, half, dim, d);
        for (; d < dim; d += 16)
            add_values(at, n, 1, s, keep, r, b, half, dim, d);
    }
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
    IE_VECTORIZE
    for (int64_t d = 0; d < dim; d++)
        total->acc[d] = ie_fma(part->acc[d], new, total->acc[d] * old);
}

static void fetch(const _Float16 *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 32)
        __builtin_prefetch(p + i, 0, 3);
}

/* Where the blocks of one KV head of one sequence are. */
typedef struct {
    const _Float16 *k, *v;
    const int32_t *table;
    int64_t chunk, dim, head, last;
} cache_view;

IE_MATH const _Float16 *k_block(const cache_view *c, int64_t b)
{
    return c->k + ie_k_index(c->chunk, c->table[b], c->dim, c->head, 0, 0);
}
IE_MATH const _Float16 *v_block(const cache_view *c, int64_t b)
{
    return c->v + ie_v_index(c->chunk, c->table[b], c->dim, c->head, 0, 0);
}

/* Blocks [b, e) as they lie in the cache, each with what comes AHEAD bytes later: all K, all V, then K of the next
 * segment. Two blocks at least: what is fetched while the block before it is at work comes too late. */
static block_run run_of(const cache_view *c, int64_t b, int64_t e)
{
    block_run r = {.count = (int)(e - b), .half = 1, .base = b * IE_KV_BLOCK};
    const int n = r.count, ahead = (int)ie_max(2, AHEAD / (2 * c->dim * IE_KV_BLOCK));
    IE_VECTORIZE
    for (int i = 0; i < n; i++) {
        r.k[i] = k_block(c, b + i);
        r.v[i] = v_block(c, b + i);
    }
    for (int i = 0; i < 2 * n; i++) {
        const int later = i + ahead;
        r.later[i] = later < n       ? r.k[later]
                     : later < 2 * n ? r.v[later - n]
                                     : k_block(c, ie_min(e + later - 2 * n, c->last));
    }
    return r;
}

/* Many queries through block b, widened for all of them. Not inlined: few queries need no such place on the stack. */
__attribute__((noinline)) static void widened_block(const cache_view *c, query *const *at, int held, int64_t b,
                                                    float scale)
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
        query *at[MAX_QUERIES]; /* those that see block b, and all blocks before `next` */
        int held = 0;
        next = n > AT_ONCE ? b + 1 : e;
        for (int i = 0; i < n; i++) {
            const int64_t from = ie_kv_block_of(qs[i].start), to = ie_kv_block_of(qs[i].pos) + 1;
            if (from <= b && b < to) {
                at[held++] = &qs[i];
                next = ie_min(next, to);
            } else if (b < from) {
                next = ie_min(next, from);
            }
        }
        if (n > AT_ONCE) {
            widened_block(c, at, held, b, scale);
        } else {
            const block_run r = run_of(c, b, next);
            blocks_update(at, held, &r, c->dim, scale);
        }
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
        IE_VECTORIZE
        for (int i = 0; i < PARTS; i++)
            old[i] = ie_exp(old[i]);
        IE_VECTORIZE
        for (int i = 0; i < PARTS; i++)
            new[i] = ie_exp(new[i]);
        for (int i = 0; i < n; i++)
            t->l = ie_fma(part[i * slot + slot - 1], new[i], t->l * old[i]);
        for (int64_t d = 0; d < dim; d += 16) {
            ie_vf acc = ie_load_f(t->acc + d);
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
    IE_VECTORIZE
    for (int64_t d = 0; d < dim; d++)
        acc[d] *= inv;
    if (a->y.p)
        memcpy(ie_row_f(a->y, r) + h * dim, acc, (size_t)dim * 4);
    if (a->yq.p) /* head_dim is a multiple of 32 here: a head fills whole Q8 blocks */
        ie_quantize_row(acc, dim, ie_row_b(a->yq, r), a->yq.cols, h * dim / IE_BLOCK);
}

/* The next rows of a tile that belong to one sequence. */
static ie_row_run next_run(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, int64_t r, int64_t r1)
{
    const int32_t *seq = ie_step_ints(step, step->seq) + ie_step_row(cmd),
                  *pos = ie_step_ints(step, step->pos) + ie_step_row(cmd);
    return ie_next_run(pos, seq, a->window, r, r1);
}
static int64_t segments_of(const ie_row_run *run) { return run->last / SEGMENT - run->first / SEGMENT + 1; }

typedef struct {
    int64_t g, h0, heads, r0, r1, share, shares;
} attention_tile;

/* What is done with a run: compute a share of it, all of it with its results, or the results of shares that are
 * there. */
enum { PART, WHOLE, RESULT };

static void run_queries(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, const attention_tile *t,
                        const ie_row_run *run, int what)
{
    const int64_t dim = a->head_dim, stride = ie_align_up(dim, 16), group = a->heads / a->kv_heads;
    float memory[2 * MAX_QUERIES * IE_MAX_HEAD_DIM];
    query qs[MAX_QUERIES];
    int n = 0;
    for (int64_t row = run->r; row < run->e; row++)
        for (int64_t h = ie_query_head(t->g, group, t->h0); h < ie_query_head(t->g, group, t->h0) + t->heads;
             h++, n++) {
            query *q = &qs[n];
            q->q = ie_row_f(a->q, row) + h * dim;
            q->pos = ie_step_ints(step, step->pos)[row + ie_step_row(cmd)];
            q->start = ie_window_start(q->pos, a->window);
            q->part.acc = memory + 2 * n * stride;
            q->total.acc = q->part.acc + stride;
            q->parts = what == WHOLE ? NULL
                                     : (float *)(uintptr_t)a->parts.p +
                                           ie_attn_part_offset(row, h, a->heads, dim, a->parts.segments);
            state_reset(&q->total, dim);
        }
    const int32_t seq = ie_step_ints(step, step->seq)[run->r + ie_step_row(cmd)];
    const cache_view c = {(const _Float16 *)(uintptr_t)a->k_cache.p,
                          (const _Float16 *)(uintptr_t)a->v_cache.p,
                          ie_step_ints(step, step->tables) + (int64_t)seq * step->max_blocks,
                          ie_cache_stride(a->k_cache),
                          dim,
                          t->g,
                          ie_kv_block_of(run->last)};
    const int64_t s0 = run->first / SEGMENT, count = segments_of(run);
    if (what != RESULT)
        attend(&c, qs, n, ie_kv_block_of(run->first), s0 + ie_split(count, t->shares, t->share),
               s0 + ie_split(count, t->shares, t->share + 1), a->scale);
    for (int i = 0; i < n && what != PART; i++) {
        if (what == RESULT)
            merge_parts(&qs[i], dim);
        emit(a, &qs[i], run->r + i / t->heads, ie_query_head(t->g, group, t->h0) + i % t->heads);
    }
}

static void all_runs(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, const attention_tile *t,
                     int what)
{
    for (ie_row_run run = {.e = t->r0}; run.e < t->r1;) {
        run = next_run(a, cmd, step, run.e, t->r1);
        run_queries(a, cmd, step, t, &run, what);
    }
}

/* One share of the keys of a few rows. Where all lie in one segment there is nothing to share but the query heads. */
static void shared_tile(const ie_args_attention *a, const ie_cmd *cmd, const ie_step *step, attention_tile t,
                        int64_t place)
{
    int64_t most = 1;
    for (ie_row_run run = {.e = t.r0}; run.e < t.r1;) {
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
        attention_tile t = {place / parts % kv_heads,
                            h0,
                            ie_min(some, group - h0),
                            r0,
                            ie_min(r0 + per_tile, rows),
                            i % shares,
                            shares};
        if (shares > 1) {
            shared_tile(a, cmd, step, t, place);
        } else {
            all_runs(a, cmd, step, &t, WHOLE);
        }
    }
}
