/* embed: y[r] = table[id[r]] * scale. One tile a row; the row is decoded from the file's own format.
 * Bytes: one table row read, one F32 row written. */
#include "cpu.h"
#include "../host/host.h"

IE_KERNEL(embed)
{
    IE_ARGS(embed);
    const int32_t *token = ie_step_ints(step, step->token) + ie_step_row(cmd);
    for (int64_t r = begin; r < end; r++) {
        float *y = ie_row_f(a->y, r);
        const int32_t id = a->ids.p ? *(const int32_t *)(const void *)ie_row_b(a->ids, r) : token[r];
        const uint8_t *src = (const uint8_t *)(uintptr_t)a->table.p + (int64_t)id * a->table.row_bytes;
        ie_dequant(a->table.format, src, y, a->y.cols);
        if (a->scale != 1.0f) {
            IE_VECTORIZE
            for (int64_t i = 0; i < a->y.cols; i++)
                y[i] *= a->scale;
        }
    }
}
