/* quantize: F32 row to Q8 row. One tile a row. */
#include "cpu.h"

IE_KERNEL(quantize)
{
    (void)step;
    IE_ARGS(quantize);
    for (int64_t r = begin; r < end; r++)
        ie_quantize_row(ie_row_f(a->x, r), a->x.cols, ie_row_b(a->yq, r), a->x.cols, 0);
}
