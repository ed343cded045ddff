/* rmsnorm: y = x / sqrt(mean(x^2) + eps) * w over each `width` values of a row, as F32, Q8 or both.
 * One tile a row. Squares are summed in 16 lanes (lane i takes i, i + 16, …) and the fixed tree. */
#include "cpu.h"

static float sum_squares(const float *x, int64_t n)
{
    ie_vf acc = ie_splat(0.0f);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        ie_vf v = ie_load_f(x + i);
        acc = ie_fma16(v, v, acc);
    }
    if (i < n) {
        float tail[16] = {0};
        memcpy(tail, x + i, (size_t)(n - i) * 4);
        ie_vf v = ie_load_f(tail);
        acc = ie_fma16(v, v, acc);
    }
    return ie_sum16(acc);
}

IE_KERNEL(rmsnorm)
{
    (void)step;
    IE_ARGS(rmsnorm);
    const float *w = (const float *)(uintptr_t)a->w;
    const int64_t n = a->x.cols, width = a->width;
    for (int64_t r = begin; r < end; r++) {
        const float *x = ie_row_f(a->x, r);
        float block[IE_BLOCK]; /* Q8 alone needs no F32 row: 32 values at a time */
        for (int64_t g = 0; g < n; g += width) {
            float scale = 1.0f / __builtin_sqrtf(sum_squares(x + g, width) / (float)width + a->eps);
            if (a->y.p) {
                float *y = ie_row_f(a->y, r) + g;
                IE_VECTORIZE
                for (int64_t i = 0; i < width; i++)
                    y[i] = x[g + i] * scale * w[i];
                if (a->yq.p)
                    ie_quantize_row(y, width, ie_row_b(a->yq, r), n, g / IE_BLOCK);
            } else {
                for (int64_t b = 0; b < width; b += IE_BLOCK) {
                    IE_VECTORIZE
                    for (int64_t i = 0; i < IE_BLOCK; i++)
                        block[i] = x[g + b + i] * scale * w[b + i];
                    ie_quantize_row(block, IE_BLOCK, ie_row_b(a->yq, r), n, (g + b) / IE_BLOCK);
                }
            }
        }
    }
}
