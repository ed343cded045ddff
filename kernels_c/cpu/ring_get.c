/* ring_get: what ring_put kept for the position before each row's; zero at position 0. One tile a row. */
#include "cpu.h"

IE_KERNEL(ring_get)
{
    IE_ARGS(ring_get);
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r + ie_step_row(cmd), pos = ie_step_ints(step, step->pos)[at],
                      seq = ie_step_ints(step, step->seq)[at];
        const float *ring = (const float *)(uintptr_t)a->ring + seq * a->size * a->y.cols;
        float *y = ie_row_f(a->y, r);
        if (pos == 0)
            memset(y, 0, (size_t)a->y.cols * 4);
        else
            memcpy(y, ring + (pos - 1) % a->size * a->y.cols, (size_t)a->y.cols * 4);
    }
}
