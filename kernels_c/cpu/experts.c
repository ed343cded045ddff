/* experts: each row times the matrices of the experts that were chosen for it. A tile is a group of 16 output rows of
 * one (row, slot). Order of operations as in matmul. Bytes: at most rows * used matrices. */
#include "cpu.h"

IE_KERNEL(experts)
{
    (void)step;
    IE_ARGS(experts);
    const int64_t used = a->route.cols / 2, m = a->y.cols / used, k = a->k, groups = ie_groups(m);
    for (int64_t t = begin; t < end; t++) {
        const int64_t g = t % groups, slot = t / groups % used, r = t / groups / used;
        const int64_t expert = (int64_t)ie_row_f(a->route, r)[slot];
        const uint8_t *w = (const uint8_t *)(uintptr_t)a->w.p + expert * a->w.stride;
        const ie_product p = {a->x, a->per_slot ? slot * k : 0, w, a->w.blocks, a->w.tile, m, a->w.layout};
        float out[IE_LANES];
        IE_NAME(ie_group_product)(&p, g, r, 1, out);
        float *y = ie_row_f(a->y, r) + slot * m + ie_row_of(g, 0);
        memcpy(y, out, (size_t)ie_min(IE_LANES, m - ie_row_of(g, 0)) * 4);
    }
}
