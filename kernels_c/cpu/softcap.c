/* softcap: x = c tanh(x / c), in place. A tile is up to 1024 columns of a row. */
#include "cpu.h"

IE_KERNEL(softcap)
{
    (void)step;
    IE_ARGS(softcap);
    const int64_t n = a->x.cols, per_row = ie_div_up(n, IE_COLS_PER_TILE);
    for (int64_t t = begin; t < end; t++) {
        const int64_t r = t / per_row, c = t % per_row * IE_COLS_PER_TILE, m = ie_min(IE_COLS_PER_TILE, n - c);
        float *x = ie_row_f(a->x, r) + c;
        IE_VECTORIZE
        for (int64_t i = 0; i < m; i++)
            x[i] = a->cap * ie_tanh(x[i] / a->cap);
    }
}
