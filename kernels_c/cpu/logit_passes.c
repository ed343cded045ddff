/* logit_passes.c: passes over a row of logits; see include/logit_passes.h. */
#include "cpu.h"
#include "../include/logit_passes.h"

#define BLOCK IE_LOGIT_BLOCK
#define LANES 16
#define INF __builtin_inff()

IE_MATH ie_vf greater(ie_vf a, ie_vf b) { return a > b ? a : b; } /* b where either is NaN */

IE_MATH float largest_of(const float *x, int32_t n, ie_vi *bad)
{
    ie_vf best = ie_splat(-INF), second = best;
    ie_vi wrong = *bad;
    int32_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const ie_vf a = ie_load_f(x + i), b = ie_load_f(x + i + LANES);
        best = greater(a, best);
        second = greater(b, second);
        wrong |= ~(a < INF) | ~(b < INF);
    }
    for (; i < n; i++) {
        best[i % LANES] = x[i] > best[i % LANES] ? x[i] : best[i % LANES];
        wrong[i % LANES] |= x[i] < INF ? 0 : -1;
    }
    best = greater(best, second);
    float lane[LANES];
    ie_store_f(lane, best);
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
    *bad = wrong;
    return lane[0];
}

static int32_t largest(const float *const *block, int32_t n, float *largest)
{
    ie_vi bad = 0;
    int32_t b = 0;
    for (; (b + 1) * BLOCK <= n; b++)
        largest[b] = largest_of(block[b], BLOCK, &bad);
    if (b * BLOCK < n)
        largest[b] = largest_of(block[b], n - b * BLOCK, &bad);
    int32_t any = 0;
    for (int j = 0; j < LANES; j++)
        any |= bad[j];
    return any;
}

typedef double ie_d16 __attribute__((ext_vector_type(16)));
typedef int64_t ie_l16 __attribute__((ext_vector_type(16)));

IE_MATH double tree(ie_d16 v)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            v[j] += v[j + half];
    return v[0];
}

/* 16 logits from x[i] on; past the end -inf, which adds nothing to any sum */
IE_MATH ie_vf lanes_at(const float *x, int32_t i, int32_t n)
{
    if (i + LANES <= n)
        return ie_load_f(x + i);
    float part[LANES];
    for (int j = 0; j < LANES; j++)
        part[j] = i + j < n ? x[i + j] : -INF;
    return ie_load_f(part);
}

static double weigh(const float *x, int32_t n, float max, float temp, float *w)
{
    if (temp == 1.0f) {
        IE_VECTORIZE
        for (int32_t i = 0; i < n; i++)
            w[i] = ie_exp(x[i] - max);
    } else {
        IE_VECTORIZE
        for (int32_t i = 0; i < n; i++)
            w[i] = ie_exp((x[i] - max) / temp);
    }
    ie_d16 total = 0;
    for (int32_t i = 0; i < n; i += LANES) {
        const ie_vf v = lanes_at(w, i, n);
        total += __builtin_convertvector(v > 0 ? v : (ie_vf)0, ie_d16);
    }
    return tree(total);
}

static void moments(const float *x, int32_t n, float max, double *sums)
{
    ie_d16 total = 0, squares = 0;
    ie_vi count = 0;
    for (int32_t i = 0; i < n; i += LANES) {
        const ie_vf v = lanes_at(x, i, n);
        const ie_vi finite = v > -INF;
        const ie_d16 d = (double)max - __builtin_convertvector(finite ? v : (ie_vf)max, ie_d16);
        count -= finite;
        total += d;
        squares += d * d;
    }
    for (int j = 0; j < LANES; j++)
        sums[0] += (double)count[j];
    sums[1] += tree(total);
    sums[2] += tree(squares);
}

extern const ie_logit_kernels IE_NAME(ie_logit_kernels);
const ie_logit_kernels IE_NAME(ie_logit_kernels) = {largest, weigh, moments};
