/* cpu.h: what every CPU kernel file includes.
 *
 * A kernel runs tiles [begin, end) of one command; tiles are independent and any thread may run any of
 * them. The file is compiled once per instruction set, IE_ISA names it, IE_NAME(x) is x for that set.
 */
#ifndef IE_CPU_H
#define IE_CPU_H

#include "../include/command.h"
#include "../include/formats.h"
#include "../include/vectorize.h"
#include "simd.h"

#define IE_PASTE2(a, b) a##_##b
#define IE_PASTE(a, b) IE_PASTE2(a, b)
#define IE_NAME(x) IE_PASTE(x, IE_ISA)

#define IE_MAX_HEAD_DIM 512 /* attention keeps one head's accumulator on the stack */

typedef void (*ie_kernel)(const ie_cmd *cmd, const ie_step *step, int64_t begin, int64_t end);

#define IE_KERNEL(x) void IE_NAME(ie_##x)(const ie_cmd *cmd, const ie_step *step, int64_t begin, int64_t end)
#define IE_ARGS(x) const ie_args_##x *a = (const ie_args_##x *)cmd->args

#define IE_DECLARE_KERNEL(NAME, name) IE_KERNEL(name);
IE_FOR_EACH_OP(IE_DECLARE_KERNEL)

/* Rows of x, from column `first` on, times a matrix of m rows; see matmul.c. */
typedef struct {
    ie_view x;
    int64_t first;
    const uint8_t *w;
    int64_t blocks, tile, m;
    int layout;
} ie_product;
/* Rows [r0, r0 + n), n <= 8, against row group g: out[i * 16 + lane]. */
void IE_NAME(ie_group_product)(const ie_product *p, int64_t g, int64_t r0, int n, float *out);

/* A block that holds a NaN or an infinity gets a NaN scale: what is wrong must not come out as a plausible number.
 * Q8 of x[0..n) into blocks [first, first + n / 32) of a row of k values; n is a multiple of 32. */
IE_FN void ie_quantize_row(const float *x, int64_t n, uint8_t *row, int64_t k, int64_t first)
{
    int8_t *codes = (int8_t *)row + first * IE_BLOCK;
    float *scale = (float *)(void *)(row + ie_q8_scale_offset(k)) + first;
    float *dsum = (float *)(void *)(row + ie_q8_dsum_offset(k)) + first;
    int32_t *sums = (int32_t *)(void *)(row + ie_q8_sums_offset(k)) + 2 * first;
    for (int64_t b = 0; b < n / IE_BLOCK; b++) {
        const ie_vf x0 = ie_load_f(x + b * IE_BLOCK), x1 = ie_load_f(x + b * IE_BLOCK + 16);
        const ie_vf a0 = ie_abs16(x0), a1 = ie_abs16(x1);
        const float amax = ie_max16(a0 > a1 ? a0 : a1);
        const float bad = ie_sum16(x0 * 0.0f + x1 * 0.0f); /* NaN where the maximum would pass over one */
        const float d = ie_q8_scale(amax) + bad, m = ie_q8_multiplier(amax);
        const ie_vi q0 = ie_codes16(x0, m), q1 = ie_codes16(x1, m);
        ie_store_bytes(codes + b * IE_BLOCK, q0);
        ie_store_bytes(codes + b * IE_BLOCK + 16, q1);
        sums[2 * b] = -ie_isum16(q0);
        sums[2 * b + 1] = -ie_isum16(q1);
        scale[b] = d;
        dsum[b] = d * (float)-(sums[2 * b] + sums[2 * b + 1]);
    }
}

#endif
