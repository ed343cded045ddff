/* logit_passes.h: passes over a row of logits, compiled once per instruction set (cpu/logit_passes.c).
 *
 * The row is cut into blocks of IE_LOGIT_BLOCK. Every sum over a block has one written order: element i is added to
 * lane i mod 16 in double, then the upper half of the lanes to the lower one until one is left. So bits do not
 * depend on the instruction set. */
#ifndef IE_LOGIT_PASSES_H
#define IE_LOGIT_PASSES_H

#include <stdint.h>

#define IE_LOGIT_BLOCK 128

typedef struct {
    /* The largest logit of each block, from n logits given as a pointer per block. -inf is legal and never the
     * largest but in a block of nothing else. Returns non-zero when a logit is NaN or +inf. */
    int32_t (*largest)(const float *const *block, int32_t n, float *largest);
    /* w = e^((x - max) / temp) of n <= IE_LOGIT_BLOCK logits; returns their sum. x and w may be the same. */
    double (*weigh)(const float *x, int32_t n, float max, float temp, float *w);
    /* Of the n <= IE_LOGIT_BLOCK logits above -inf: how many they are is added to sums[0], the sum of max - x to
     * sums[1], the sum of its squares to sums[2]. */
    void (*moments)(const float *x, int32_t n, float max, double *sums);
} ie_logit_kernels;

#endif
