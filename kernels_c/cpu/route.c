/* route: the experts of each row and their weights. One tile a row. Softmax over all experts; the `used` likeliest,
 * equal ones by lower index; their probabilities divided by their sum (at least 2^-14). Sums in ascending order. */
#include "cpu.h"

#define MAX_EXPERTS 1024

IE_KERNEL(route)
{
    (void)step;
    IE_ARGS(route);
    const int64_t n = a->x.cols, used = a->y.cols / 2;
    for (int64_t r = begin; r < end; r++) {
        const float *x = ie_row_f(a->x, r);
        float *y = ie_row_f(a->y, r), p[MAX_EXPERTS];
        float most = x[0], total = 0.0f, kept = 0.0f;
        for (int64_t i = 1; i < n; i++)
            most = x[i] > most ? x[i] : most;
        for (int64_t i = 0; i < n; i++) {
            p[i] = ie_exp(x[i] - most);
            total += p[i];
        }
        for (int64_t s = 0; s < used; s++) {
            int64_t best = 0;
            for (int64_t i = 1; i < n; i++)
                best = p[i] > p[best] ? i : best;
            y[s] = (float)best;
            y[used + s] = p[best] / total;
            kept += y[used + s];
            p[best] = -1.0f;
        }
        const float scale = 1.0f / (kept > 0x1p-14f ? kept : 0x1p-14f);
        IE_VECTORIZE
        for (int64_t s = 0; s < used; s++)
            y[used + s] *= scale;
    }
}
