/* combine: weighted sum of the experts' outputs in slot order, then the shared expert by its gate. A tile is up to
 * 1024 columns of a row. */
#include "cpu.h"

IE_KERNEL(combine)
{
    (void)step;
    IE_ARGS(combine);
    const int64_t n = a->y.cols, used = a->route.cols / 2, per_row = ie_div_up(n, IE_COLS_PER_TILE);
    for (int64_t t = begin; t < end; t++) {
        const int64_t r = t / per_row, c = t % per_row * IE_COLS_PER_TILE, m = ie_min(IE_COLS_PER_TILE, n - c);
        const float *weight = ie_row_f(a->route, r) + used;
        float *y = ie_row_f(a->y, r) + c;
        memset(y, 0, (size_t)m * 4);
        for (int64_t s = 0; s < used; s++) {
            const float *x = ie_row_f(a->x, r) + s * n + c;
            IE_VECTORIZE
            for (int64_t i = 0; i < m; i++)
                y[i] = ie_fma(weight[s], x[i], y[i]);
        }
        if (a->shared.p) {
            const float *x = ie_row_f(a->shared, r) + c, gate = ie_sigmoid(ie_row_f(a->gate, r)[0]);
            IE_VECTORIZE
            for (int64_t i = 0; i < m; i++)
                y[i] = ie_fma(gate, x[i], y[i]);
        }
    }
}
