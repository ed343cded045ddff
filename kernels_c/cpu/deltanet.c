/* deltanet: the gated delta rule. One tile a (segment, value head); tokens in order, so a head's state stays in cache.
 *
 * State [key][value], values in lanes: every sum runs over keys in ascending order, one fma each, so there is no
 * horizontal sum but those of the two norms. Row t leaves its state in ie_state_slot when it is among the last
 * `keep` of its segment; the others pass it on in a local copy. Bytes: the state, read and written. */
#include "cpu.h"

#define MAX_DIM 256

static float inverse_length(const float *x, int64_t n, float eps)
{
    ie_vf acc = ie_splat(0.0f);
    for (int64_t i = 0; i < n; i += 16) {
        ie_vf v = ie_load_f(x + i);
        acc = ie_fma16(v, v, acc);
    }
    return 1.0f / __builtin_sqrtf(ie_sum16(acc) + eps);
}

/* One token: from state `s` to state `out` (may be the same memory). */
static void token(const ie_args_deltanet *a, int64_t r, int64_t h, const float *s, float *out)
{
    const int64_t dim = a->dim, j = h % a->key_heads;
    const float *qkv = ie_row_f(a->qkv, r), *q = qkv + j * dim, *k = qkv + (a->key_heads + j) * dim;
    const float *v = qkv + (2 * (int64_t)a->key_heads + h) * dim;
    const float *decay = (const float *)(uintptr_t)a->decay, *dt = (const float *)(uintptr_t)a->dt;
    const float gamma = ie_exp(decay[h] * ie_softplus(ie_row_f(a->alpha, r)[h] + dt[h]));
    const float beta = ie_sigmoid(ie_row_f(a->beta, r)[h]);
    const float qn = inverse_length(q, dim, a->eps), kn = inverse_length(k, dim, a->eps);
    float delta[MAX_DIM], y[MAX_DIM];
    memset(delta, 0, (size_t)dim * 4);
    memset(y, 0, (size_t)dim * 4);
    for (int64_t i = 0; i < dim; i++) {
        const float ki = k[i] * kn;
        IE_VECTORIZE
        for (int64_t c = 0; c < dim; c++)
            delta[c] = ie_fma(gamma * s[i * dim + c], ki, delta[c]);
    }
    IE_VECTORIZE
    for (int64_t c = 0; c < dim; c++)
        delta[c] = beta * (v[c] - delta[c]);
    for (int64_t i = 0; i < dim; i++) {
        const float ki = k[i] * kn, qi = q[i] * qn;
        IE_VECTORIZE
        for (int64_t c = 0; c < dim; c++) {
            const float next = ie_fma(ki, delta[c], gamma * s[i * dim + c]);
            out[i * dim + c] = next;
            y[c] = ie_fma(next, qi, y[c]);
        }
    }
    float *to = ie_row_f(a->y, r) + h * dim;
    IE_VECTORIZE
    for (int64_t c = 0; c < dim; c++)
        to[c] = y[c] * a->scale;
}

IE_KERNEL(deltanet)
{
    IE_ARGS(deltanet);
    const int64_t dim = a->dim, heads = a->value_heads, size = dim * dim, slots = a->slots;
    for (int64_t t = begin; t < end; t++) {
        const ie_segment *seg = ie_segments(step) + t / heads;
        const int64_t h = t % heads;
        float *pool = (float *)(uintptr_t)a->state +
                      ((int64_t)ie_step_ints(step, step->seq)[seg->first] * slots * heads + h) * size;
        float local[MAX_DIM * MAX_DIM];
        const float *from = local;
        if (seg->slot >= 0)
            from = pool + seg->slot * heads * size;
        else
            memset(local, 0, (size_t)size * 4);
        for (int64_t i = 0; i < seg->count; i++) {
            const int kept = i >= seg->count - seg->keep;
            float *to = kept ? pool + ie_state_slot(seg->slot, seg->count, seg->keep, i, slots) * heads * size : local;
            token(a, seg->first + i, h, from, to);
            from = to;
        }
    }
}
