/* pick: the likeliest token of a draft step and its probability. One tile; the next row of the chain
 * reads the id. When the probability is below p_min, or the chain has run its rows, the skip
 * flag is set, and the commands after this one are left out. The sum of exponentials runs in 16 lanes. */
#include "cpu.h"

IE_KERNEL(pick)
{
    IE_ARGS(pick);
    for (int64_t t = begin; t < end; t++) {
        const float *x = ie_row_f(a->x, t);
        const int64_t n = a->x.cols;
        float top[16], lanes[16] = {0};
        for (int l = 0; l < 16; l++)
            top[l] = -__builtin_inff();
        for (int64_t i = 0; i + 16 <= n; i += 16)
            for (int l = 0; l < 16; l++)
                top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
        float most = -__builtin_inff();
        for (int l = 0; l < 16; l++)
            most = top[l] > most ? top[l] : most;
        for (int64_t i = n / 16 * 16; i < n; i++)
            most = x[i] > most ? x[i] : most;
        int64_t best = 0;
        while (best + 1 < n && !(x[best] == most))
            best++;
        for (int64_t i = 0; i + 16 <= n; i += 16) {
            IE_VECTORIZE
            for (int l = 0; l < 16; l++)
                lanes[l] += ie_exp(x[i + l] - most);
        }
        for (int64_t i = n / 16 * 16; i < n; i++)
            lanes[i % 16] += ie_exp(x[i] - most);
        const float prob = 1.0f / ie_sum16(ie_load_f(lanes));
        const int64_t token = best < a->split ? best : best + a->shift;
        *(int32_t *)(void *)ie_row_b(a->id, t) = (int32_t)token;
        *ie_row_f(a->prob, t) = prob;
        ie_step *s = (ie_step *)(uintptr_t)step; /* the one op that writes step inputs */
        if (!(prob >= a->p_min) || ie_step_row(cmd) + 1 >= s->n_rows)
            s->skip = 1;
    }
}
