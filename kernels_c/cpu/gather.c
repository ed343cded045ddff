/* gather: y[o] = x[out_row[o]]. One tile an output row. */
#include "cpu.h"

IE_KERNEL(gather)
{
    IE_ARGS(gather);
    const int32_t *row = ie_step_ints(step, step->out_row);
    for (int64_t o = begin; o < end; o++)
        memcpy(ie_row_f(a->y, o), ie_row_f(a->x, row[o]), (size_t)a->y.cols * 4);
}
