/* attention: y = softmax(scale q K^T) V. A tile is a few rows of the step and the query heads of one KV head.
 *
 * Keys lie in segments of 256 at absolute positions. Within a segment: online softmax over KV blocks of 32 (keys in
 * lanes: scores need no horizontal sums); segments are merged in ascending order. Every block that a query sees is
 * summed over all its 32 slots, those it must not see with weight 0 (the cache holds finite numbers only, see rope.c),
 * so bits depend on the query and the cache alone, not on which queries share a tile.
 * Queries go through a block four at a time: the chains of one query's sums are too short to fill the pipeline. With
 * more than four in the tile the block is widened to F32 once for all of them. Bytes: K and V of the sequence, F16, once a tile. */
#include "cpu.h"

#define MAX_QUERIES IE_ATTN_QUERIES
#define AT_ONCE 4
#define DIM_STEP 64

typedef struct { float m, l; float *acc; } softmax_state;

typedef struct {
    const float *q;
    int64_t start, pos; /* visible positions [start, pos] */
    softmax_state part, total;
    int used; /* the current segment has a visible block */
} query;

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

/* Scores of n queries against 32 keys: s[i][slot] = scale * sum over d of q[d] K[d][slot], d ascending. */
IE_MATH void scores(query *const *at, int n, const void *k, int half, int64_t dim, float scale, float s[][IE_KV_BLOCK])
{
    ie_f16 lo[AT_ONCE], hi[AT_ONCE];
    for (int i = 0; i < n; i++)
        lo[i] = hi[i] = ie_splat(0.0f);
    for (int64_t d = 0; d < dim; d++) {
        const ie_f16 k0 = at_element(k, half, d * IE_KV_BLOCK), k1 = at_element(k, half, d * IE_KV_BLOCK + 16);
        for (int i = 0; i < n; i++) {
            const ie_f16 q = ie_splat(at[i]->q[d]);
            lo[i] = ie_fma16(q, k0, lo[i]);
            hi[i] = ie_fma16(q, k1, hi[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        ie_store_f(s[i], lo[i] * scale);
        ie_store_f(s[i] + 16, hi[i] * scale);
    }
}

/* Scores to weights; slots outside [lo, hi) get 0. Returns the factor for what was summed before. */
static float weights(softmax_state *st, float *s, int64_t lo, int64_t hi)
{
    if (lo > 0 || hi < IE_KV_BLOCK)
        for (int64_t i = 0; i < IE_KV_BLOCK; i++)
            s[i] = i >= lo && i < hi ? s[i] : -__builtin_inff();
    const ie_f16 s0 = ie_load_f(s), s1 = ie_load_f(s + 16);
    const float top = ie_max16(s0 > s1 ? s0 : s1), m = top > st->m ? top : st->m;
    for (int64_t i = 0; i < IE_KV_BLOCK; i++)
        s[i] = ie_exp(s[i] - m);
    const float keep = ie_exp(st->m - m);
    st->l = ie_fma(st->l, keep, ie_sum16(ie_load_f(s) + ie_load_f(s + 16)));
    st->m = m;
    return keep;
}

/* acc = acc * keep, then + weight[slot] * V[slot], slots ascending, for columns [d0, d0 + 16 w). */
IE_MATH void add_values(query *const *at, int n, int w, float s[][IE_KV_BLOCK], const float *keep, const void *v, int half, int64_t dim,
                        int64_t d0)
{
    ie_f16 acc[AT_ONCE][DIM_STEP / 16];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w; j++)
            acc[i][j] = ie_load_f(at[i]->part.acc + d0 + 16 * j) * keep[i];
    for (int slot = 0; slot < IE_KV_BLOCK; slot++) {
        ie_f16 row[DIM_STEP / 16];
        for (int j = 0; j < w; j++)
            row[j] = at_element(v, half, slot * dim + d0 + 16 * j);
        for (int i = 0; i < n; i++) {
            const ie_f16 p = ie_splat(s[i][slot]);
            for (int j = 0; j < w; j++)
                acc[i][j] = ie_fma16(p, row[j], acc[i][j]);
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w; j++)
            ie_store_f(at[i]->part.acc + d0 + 16 * j, acc[i][j]);
}

/* Up to four queries through one block, the number a constant where this is inlined. */
IE_MATH void block_update_n(query *const *at, int n, const void *k, const void *v, int half, int64_t dim, float scale, int64_t base)
{
    float s[AT_ONCE][IE_KV_BLOCK], keep[AT_ONCE];
    scores(at, n, k, half, dim, scale, s);
    for (int i = 0; i < n; i++)
        keep[i] = weights(&at[i]->part, s[i], at[i]->start - base, at[i]->pos + 1 - base);
    int64_t d = 0;
    for (; d + DIM_STEP <= dim; d += DIM_STEP)
        add_values(at, n, DIM_STEP / 16, s, keep, v, half, dim, d);
    for (; d < dim; d += 16)
        add_values(at, n, 1, s, keep, v, half, dim, d);
}

static void block_update(query *const *at, int n, const void *k, const void *v, int half, int64_t dim, float scale, int64_t base)
{
    switch (2 * n + half) {
    case 2: block_update_n(at, 1, k, v, 0, dim, scale, base); break;
    case 3: block_update_n(at, 1, k, v, 1, dim, scale, base); break;
    case 4: block_update_n(at, 2, k, v, 0, dim, scale, base); break;
    case 5: block_update_n(at, 2, k, v, 1, dim, scale, base); break;
    case 6: block_update_n(at, 3, k, v, 0, dim, scale, base); break;
    case 7: block_update_n(at, 3, k, v, 1, dim, scale, base); break;
    case 8: block_update_n(at, 4, k, v, 0, dim, scale, base); break;
    default: block_update_n(at, 4, k, v, 1, dim, scale, base); break;
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

/* n queries of one sequence over the blocks of its table. */
static void attend(const ie_args_attention *a, query *qs, int n, const int32_t *table, int64_t g)
{
    const int64_t dim = a->head_dim, kv_heads = a->kv_heads;
    const _Float16 *kc = (const _Float16 *)(uintptr_t)a->k_cache, *vc = (const _Float16 *)(uintptr_t)a->v_cache;
    float k[IE_MAX_HEAD_DIM * IE_KV_BLOCK], v[IE_MAX_HEAD_DIM * IE_KV_BLOCK];
    int64_t first = qs[0].start, last = qs[0].pos;
    for (int i = 1; i < n; i++) {
        first = ie_min(first, qs[i].start);
        last = ie_max(last, qs[i].pos);
    }
    for (int64_t seg = first / IE_ATTN_SEGMENT; seg * IE_ATTN_SEGMENT <= last; seg++) {
        for (int i = 0; i < n; i++)
            qs[i].used = 0;
        const int64_t per = IE_ATTN_SEGMENT / IE_KV_BLOCK;
        for (int64_t b = ie_max(seg * per, ie_kv_block_of(first)); b < (seg + 1) * per && b <= ie_kv_block_of(last); b++) {
            const int64_t base = b * IE_KV_BLOCK;
            if (b < ie_kv_block_of(last)) { /* the next block lies pages away, where the hardware does not look ahead */
                fetch(kc + ie_k_index(table[b + 1], kv_heads, dim, g, 0, 0), dim * IE_KV_BLOCK);
                fetch(vc + ie_v_index(table[b + 1], kv_heads, dim, g, 0, 0), dim * IE_KV_BLOCK);
            }
            int widened = 0, held = 0;
            query *at[AT_ONCE];
            for (int i = 0; i < n; i++) {
                query *q = &qs[i];
                if (q->pos >= base && q->start < base + IE_KV_BLOCK) {
                    if (!q->used)
                        state_reset(&q->part, dim);
                    q->used = 1;
                    at[held++] = q;
                }
                if (held < AT_ONCE && !(held && i == n - 1))
                    continue;
                const _Float16 *kb = kc + ie_k_index(table[b], kv_heads, dim, g, 0, 0), *vb = vc + ie_v_index(table[b], kv_heads, dim, g, 0, 0);
                if (n <= AT_ONCE) {
                    block_update(at, held, kb, vb, 1, dim, a->scale, base);
                } else {
                    if (!widened) {
                        widen(kb, k, dim * IE_KV_BLOCK);
                        widen(vb, v, dim * IE_KV_BLOCK);
                        widened = 1;
                    }
                    block_update(at, held, k, v, 0, dim, a->scale, base);
                }
                held = 0;
            }
        }
        for (int i = 0; i < n; i++)
            if (qs[i].used)
                merge(&qs[i].total, &qs[i].part, dim);
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

IE_KERNEL(attention)
{
    IE_ARGS(attention);
    const int64_t dim = a->head_dim, kv_heads = a->kv_heads, group = a->heads / kv_heads, live = ie_domain_rows(cmd, step);
    const int64_t some = ie_attn_heads(group, kv_heads), parts = ie_div_up(group, some);
    const int64_t per_tile = ie_attn_rows(some), stride = ie_align_up(dim, 16);
    float memory[2 * MAX_QUERIES * IE_MAX_HEAD_DIM];
    query qs[MAX_QUERIES];
    for (int64_t t = begin; t < end; t++) {
        const int64_t g = t / parts % kv_heads, h0 = t % parts * some, heads = ie_min(some, group - h0);
        const int64_t r0 = t / parts / kv_heads * per_tile, r1 = ie_min(r0 + per_tile, live);
        for (int64_t r = r0; r < r1;) { /* runs of rows of one sequence */
            const int32_t seq = ie_ints(step->seq)[r + ie_step_row(cmd)];
            int64_t e = r + 1;
            while (e < r1 && ie_ints(step->seq)[e + ie_step_row(cmd)] == seq)
                e++;
            int n = 0;
            for (int64_t row = r; row < e; row++)
                for (int64_t h = 0; h < heads; h++, n++) {
                    query *q = &qs[n];
                    q->q = ie_row_f(a->q, row) + (g * group + h0 + h) * dim;
                    q->pos = ie_ints(step->pos)[row + ie_step_row(cmd)];
                    q->start = ie_window_start(q->pos, a->window);
                    q->part.acc = memory + 2 * n * stride;
                    q->total.acc = q->part.acc + stride;
                    state_reset(&q->total, dim);
                }
            attend(a, qs, n, ie_ints(step->tables) + (int64_t)seq * step->max_blocks, g);
            for (int i = 0; i < n; i++)
                emit(a, &qs[i], r + i / heads, g * group + h0 + i % heads);
            r = e;
        }
    }
}
