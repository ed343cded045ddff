/* conv: causal depth-wise convolution and SiLU. A tile is up to 1024 channels of one segment, its rows in order.
 * Inputs before the segment come from the ring of the last 32 positions; taps are summed oldest first. */
#include "cpu.h"

IE_KERNEL(conv)
{
    IE_ARGS(conv);
    const int64_t n = a->x.cols, per_seg = ie_div_up(n, IE_COLS_PER_TILE), taps = a->taps;
    const float *w = (const float *)(uintptr_t)a->w;
    for (int64_t t = begin; t < end; t++) {
        const ie_segment *seg = ie_segments(step) + t / per_seg;
        const int64_t c0 = t % per_seg * IE_COLS_PER_TILE, m = ie_min(IE_COLS_PER_TILE, n - c0);
        float *ring =
            (float *)(uintptr_t)a->ring + (int64_t)ie_step_ints(step, step->seq)[seg->first] * IE_CONV_RING * n + c0;
        for (int64_t i = 0; i < seg->count; i++) {
            const int64_t r = seg->first + i, pos = ie_step_ints(step, step->pos)[r];
            float sum[IE_COLS_PER_TILE];
            memset(sum, 0, sizeof sum);
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t back = taps - 1 - tap;
                if (pos - back < 0)
                    continue;
                const float *x = back <= i ? ie_row_f(a->x, r - back) + c0 : ring + ie_conv_slot(pos - back) * n;
                IE_VECTORIZE
                for (int64_t c = 0; c < m; c++)
                    sum[c] = ie_fma(w[(c0 + c) * taps + tap], x[c], sum[c]);
            }
            float *y = ie_row_f(a->y, r) + c0;
            IE_VECTORIZE
            for (int64_t c = 0; c < m; c++)
                y[c] = ie_silu(sum[c]);
            /* Row i reads at most taps - 1 positions back, which later rows of the ring's length do not reach. */
            memcpy(ring + ie_conv_slot(pos) * n, ie_row_f(a->x, r) + c0, (size_t)m * 4);
        }
    }
}
