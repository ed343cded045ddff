/* attention: y = softmax(scale q K^T) V for the query heads of one KV head. One tile a (row, KV head).
 *
 * Keys lie in segments of 256 at absolute positions. Within a segment: online softmax over KV blocks of 32
 * (keys in lanes: scores need no horizontal sums); segments are merged in ascending order. Bits depend
 * only on the query and the cache, not on other rows or threads. Bytes: K and V of the sequence, F16. */
#include "cpu.h"

typedef struct { float m, l; float acc[IE_MAX_HEAD_DIM]; } softmax_state;

static void state_reset(softmax_state *s, int64_t dim)
{
    s->m = -__builtin_inff();
    s->l = 0.0f;
    memset(s->acc, 0, (size_t)dim * 4);
}

/* One KV block: keys slots [lo, hi) visible. */
static void block_update(softmax_state *s, const float *q, const _Float16 *k, const _Float16 *v, int64_t dim, float scale,
                         int64_t lo, int64_t hi)
{
    ie_f16 s0 = ie_splat(0.0f), s1 = s0;
    for (int64_t d = 0; d < dim; d++) {
        ie_f16 qd = ie_splat(q[d]);
        s0 = ie_fma16(qd, ie_load_h(k + d * IE_KV_BLOCK), s0);
        s1 = ie_fma16(qd, ie_load_h(k + d * IE_KV_BLOCK + 16), s1);
    }
    float p[IE_KV_BLOCK];
    ie_store_f(p, s0 * scale);
    ie_store_f(p + 16, s1 * scale);
    float m = s->m;
    for (int64_t i = 0; i < IE_KV_BLOCK; i++) { /* slots outside [lo, hi) may hold anything, NaN included */
        p[i] = i >= lo && i < hi ? p[i] : -__builtin_inff();
        m = p[i] > m ? p[i] : m;
    }
    for (int64_t i = 0; i < IE_KV_BLOCK; i++)
        p[i] = ie_exp(p[i] - m);
    const float keep = ie_exp(s->m - m);
    s->l = ie_fma(s->l, keep, ie_sum16(ie_load_f(p) + ie_load_f(p + 16)));
    s->m = m;
    for (int64_t d = 0; d < dim; d++)
        s->acc[d] *= keep;
    for (int64_t i = lo; i < hi; i++) {
        const _Float16 *vi = v + i * dim;
        const float w = p[i];
        for (int64_t d = 0; d < dim; d++)
            s->acc[d] = ie_fma(w, (float)vi[d], s->acc[d]);
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

IE_KERNEL(attention)
{
    IE_ARGS(attention);
    const int64_t dim = a->head_dim, kv_heads = a->kv_heads, group = a->heads / kv_heads;
    const _Float16 *kc = (const _Float16 *)(uintptr_t)a->k_cache, *vc = (const _Float16 *)(uintptr_t)a->v_cache;
    for (int64_t t = begin; t < end; t++) {
        const int64_t r = t / kv_heads, g = t % kv_heads;
        const int64_t at = r + ie_step_row(cmd), pos = ie_ints(step->pos)[at], seq = ie_ints(step->seq)[at];
        const int32_t *table = ie_ints(step->tables) + seq * step->max_blocks;
        const int64_t start = ie_window_start(pos, a->window);
        for (int64_t h = g * group; h < (g + 1) * group; h++) {
            const float *q = ie_row_f(a->q, r) + h * dim;
            softmax_state total, part;
            state_reset(&total, dim);
            for (int64_t seg = start / IE_ATTN_SEGMENT; seg * IE_ATTN_SEGMENT <= pos; seg++) {
                state_reset(&part, dim);
                const int64_t from = ie_max(seg * IE_ATTN_SEGMENT, start), to = ie_min((seg + 1) * IE_ATTN_SEGMENT, pos + 1);
                for (int64_t b = ie_kv_block_of(from); b <= ie_kv_block_of(to - 1); b++) {
                    const int64_t base = b * IE_KV_BLOCK, block = table[b];
                    block_update(&part, q, kc + ie_k_index(block, kv_heads, dim, g, 0, 0),
                                 vc + ie_v_index(block, kv_heads, dim, g, 0, 0), dim, a->scale, ie_max(from - base, 0),
                                 ie_min(to - base, IE_KV_BLOCK));
                }
                merge(&total, &part, dim);
            }
            const float inv = 1.0f / total.l;
            for (int64_t d = 0; d < dim; d++)
                total.acc[d] *= inv;
            if (a->y.p)
                memcpy(ie_row_f(a->y, r) + h * dim, total.acc, (size_t)dim * 4);
            if (a->yq.p) /* head_dim is a multiple of 32 here: a head fills whole Q8 blocks */
                ie_quantize_row(total.acc, dim, ie_row_b(a->yq, r), a->yq.cols, h * dim / IE_BLOCK);
        }
    }
}
