/* ring_put: keeps each row at its position modulo the ring's size. One tile a row; a step has fewer rows than the
 * ring. */
#include "cpu.h"

IE_KERNEL(ring_put)
{
    IE_ARGS(ring_put);
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r + ie_step_row(cmd), pos = ie_step_ints(step, step->pos)[at],
                      seq = ie_step_ints(step, step->seq)[at];
        float *ring = (float *)(uintptr_t)a->ring + (seq * a->size + pos % a->size) * a->x.cols;
        memcpy(ring, ie_row_f(a->x, r), (size_t)a->x.cols * 4);
    }
}
