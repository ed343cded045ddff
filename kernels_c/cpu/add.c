/* add: y = a + b. A tile is up to 1024 columns of a row. */
#include "cpu.h"

IE_KERNEL(add)
{
    (void)step;
    IE_ARGS(add);
    const int64_t n = a->y.cols, per_row = ie_div_up(n, IE_COLS_PER_TILE);
    for (int64_t t = begin; t < end; t++) {
        const int64_t r = t / per_row, c = t % per_row * IE_COLS_PER_TILE, m = ie_min(IE_COLS_PER_TILE, n - c);
        const float *p = ie_row_f(a->a, r) + c, *q = ie_row_f(a->b, r) + c;
        float *y = ie_row_f(a->y, r) + c;
        IE_VECTORIZE
        for (int64_t i = 0; i < m; i++)
            y[i] = p[i] + q[i];
    }
}
