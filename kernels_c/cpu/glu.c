/* glu: y = act(gate) * up, as F32, Q8 or both. A tile is up to 1024 columns of a row. */
#include "cpu.h"

static void activate(const float *gate, const float *up, float *y, int64_t n, int act)
{
    if (act == IE_ACT_SILU) {
        IE_VECTORIZE
        for (int64_t i = 0; i < n; i++)
            y[i] = ie_silu(gate[i]) * up[i];
    } else if (act == IE_ACT_GELU) {
        IE_VECTORIZE
        for (int64_t i = 0; i < n; i++)
            y[i] = ie_gelu(gate[i]) * up[i];
    } else {
        IE_VECTORIZE
        for (int64_t i = 0; i < n; i++)
            y[i] = ie_sigmoid(gate[i]) * up[i];
    }
}

IE_KERNEL(glu)
{
    (void)step;
    IE_ARGS(glu);
    const int64_t n = a->gate.cols, per_row = ie_div_up(n, IE_COLS_PER_TILE);
    for (int64_t t = begin; t < end; t++) {
        const int64_t r = t / per_row, c = t % per_row * IE_COLS_PER_TILE, m = ie_min(IE_COLS_PER_TILE, n - c);
        float local[IE_COLS_PER_TILE];
        float *y = a->y.p ? ie_row_f(a->y, r) + c : local;
        activate(ie_row_f(a->gate, r) + c, ie_row_f(a->up, r) + c, y, m, a->act);
        if (a->yq.p)
            ie_quantize_row(y, m, ie_row_b(a->yq, r), n, c / IE_BLOCK);
    }
}
