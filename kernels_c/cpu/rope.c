/* rope: rotates q in place and k on its way into the cache; v goes there as it is. One tile a row.
 * Cache layout: ie_k_index, ie_v_index (ie_core.h); F16, rounded half to even, always finite. */
#include "cpu.h"

static void rotate(const float *x, float *y, const float *table, int64_t dim, int64_t n_rot, int neox)
{
    const int64_t half = n_rot / 2, second = neox ? half : 1, step = neox ? 1 : 2;
    for (int64_t i = 0; i < half; i++) {
        float p = x[i * step], q = x[i * step + second], c = table[2 * i], s = table[2 * i + 1];
        y[i * step] = ie_rope_first(p, q, c, s);
        y[i * step + second] = ie_rope_second(p, q, c, s);
    }
    for (int64_t i = n_rot; i < dim; i++)
        y[i] = x[i];
}

/* F16 that attention may multiply by 0: what does not fit becomes the largest number, NaN becomes 0. */
static _Float16 stored(float x)
{
    x = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
    return (_Float16)(x == x ? x : 0.0f);
}

IE_KERNEL(rope)
{
    IE_ARGS(rope);
    const int64_t dim = a->head_dim, heads = a->q.p ? a->q.cols / dim : 0, kv_heads = a->k.cols / dim, n_rot = a->n_rot;
    const int64_t chunk = ie_cache_stride(a->k_cache);
    _Float16 *kc = (_Float16 *)(uintptr_t)a->k_cache.p, *vc = (_Float16 *)(uintptr_t)a->v_cache.p;
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r + ie_step_row(cmd), pos = ie_step_ints(step, step->pos)[at],
                      seq = ie_step_ints(step, step->seq)[at];
        const int64_t block = ie_step_ints(step, step->tables)[seq * step->max_blocks + ie_kv_block_of(pos)];
        const int64_t slot = ie_kv_slot_of(pos);
        const float *table = n_rot ? (const float *)(uintptr_t)a->rope + pos * n_rot : NULL;
        const float *k = ie_row_f(a->k, r), *v = ie_row_f(a->v, r);
        float turned[IE_MAX_HEAD_DIM], bad = 0.0f;
        for (int64_t i = 0; i < kv_heads * dim; i++)
            bad += (k[i] + v[i]) * 0.0f;
        if (bad != bad && heads) /* the cache will hold a plausible 0 for it: the row's own output must tell */
            for (int64_t i = 0; i < a->q.cols; i++)
                ie_row_f(a->q, r)[i] = bad;
        for (int64_t h = 0; h < heads && n_rot; h++) {
            float *q = ie_row_f(a->q, r) + h * dim;
            rotate(q, q, table, dim, n_rot, a->neox);
        }
        for (int64_t h = 0; h < kv_heads; h++) {
            rotate(k + h * dim, turned, table, dim, n_rot, a->neox);
            IE_VECTORIZE
            for (int64_t d = 0; d < dim; d++) {
                kc[ie_k_index(chunk, block, dim, h, d, slot)] = stored(turned[d]);
                vc[ie_v_index(chunk, block, dim, h, slot, d)] = stored(v[h * dim + d]);
            }
        }
    }
}
