/* matmul: y = x W^T (+ bias) (+ res). One tile a group of 16 weight rows, all live rows of the step.
 *
 * Order of operations for one output, whatever the number of rows, threads or the instruction set:
 *   quantised: acc = fma(float(integer dot of a block), dw * da, acc), then acc = fma(m, da * sum(a), acc) for
 *   formats with a minimum, blocks in ascending K;  float: acc = fma(w, x, acc), k ascending.
 * Weight rows stand in lanes (ie_core.h); an inline loader per layout, kernels generic over it. Weights stream
 * once from memory; rows go through in groups of up to 8 while the tile is in cache.
 * Bytes: the matrix. Flops: 2 rows m k. */
#include "cpu.h"

typedef struct { ie_u16 w[8]; ie_f16 d, m; } q_tile; /* 32 values of 16 rows as bytes, scales, minima */

IE_MATH void load_nibbles(q_tile *t, const uint8_t *q)
{
    for (int i = 0; i < 4; i++) {
        ie_u16 w = ie_load_w(q + ie_word_offset(i, 0));
        t->w[i] = w & 0x0F0F0F0Fu;
        t->w[i + 4] = (w >> 4) & 0x0F0F0F0Fu;
    }
}
IE_MATH void load_q4_1(q_tile *t, const uint8_t *p)
{
    t->d = ie_load_h(p + IE_L_Q4_1X16_D);
    t->m = ie_load_h(p + IE_L_Q4_1X16_M);
    load_nibbles(t, p + IE_L_Q4_1X16_Q);
}
IE_MATH void load_q8_0(q_tile *t, const uint8_t *p)
{
    t->d = ie_load_h(p + IE_L_Q8_0X16_D);
    for (int i = 0; i < 8; i++)
        t->w[i] = ie_load_w(p + IE_L_Q8_0X16_Q + ie_word_offset(i, 0));
}

IE_MATH uint32_t word_at(const int8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* `n` rows from row r0 against group g. n, min and biased are compile-time constants where it is inlined. */
IE_MATH void quant_rows(const ie_args_matmul *a, int64_t g, int64_t r0, int n, void (*load)(q_tile *, const uint8_t *), int has_min,
                        int biased, ie_f16 *acc)
{
    const int64_t k = a->x.cols, blocks = a->w.blocks, tile = a->w.tile;
    const uint8_t *w = (const uint8_t *)(uintptr_t)a->w.p + ie_tile_offset(g, 0, blocks, tile);
    const uint8_t *x = ie_row_b(a->x, r0);
    const int64_t stride = a->x.stride, scale_at = ie_q8_scale_offset(k), dsum_at = ie_q8_dsum_offset(k), isum_at = ie_q8_isum_offset(k);
    for (int i = 0; i < n; i++)
        acc[i] = ie_splat(0.0f);
    for (int64_t b = 0; b < blocks; b++, w += tile) {
        q_tile t;
        load(&t, w);
        for (int i = 0; i < n; i++) {
            const uint8_t *row = x + i * stride;
            const int8_t *q = (const int8_t *)row + b * IE_BLOCK;
            ie_i16 even = biased ? ie_dot_start(*(const int32_t *)(const void *)(row + isum_at + 4 * b)) : (ie_i16)(0);
            ie_i16 odd = (ie_i16)(0); /* two chains: integer sums are exact, so their order is free */
            for (int j = 0; j < 8; j += 2) {
                if (biased) {
                    even = ie_dot_biased(even, t.w[j], word_at(q + 4 * j));
                    odd = ie_dot_biased(odd, t.w[j + 1], word_at(q + 4 * j + 4));
                } else {
                    even = ie_dot_small(even, t.w[j], word_at(q + 4 * j));
                    odd = ie_dot_small(odd, t.w[j + 1], word_at(q + 4 * j + 4));
                }
            }
            const float da = *(const float *)(const void *)(row + scale_at + 4 * b);
            acc[i] = ie_fma16(__builtin_convertvector(even + odd, ie_f16), t.d * da, acc[i]);
            if (has_min)
                acc[i] = ie_fma16(t.m, ie_splat(*(const float *)(const void *)(row + dsum_at + 4 * b)), acc[i]);
        }
    }
}

IE_MATH void float_rows(const ie_args_matmul *a, int64_t g, int64_t r0, int n, int half, ie_f16 *acc)
{
    const int64_t k = a->x.cols, tile = a->w.tile;
    const uint8_t *w = (const uint8_t *)(uintptr_t)a->w.p + ie_tile_offset(g, 0, a->w.blocks, tile);
    for (int i = 0; i < n; i++)
        acc[i] = ie_splat(0.0f);
    for (int64_t j = 0; j < k; j++, w += tile) {
        ie_f16 v = half ? ie_load_h(w) : ie_load_f((const float *)(const void *)w);
        for (int i = 0; i < n; i++)
            acc[i] = ie_fma16(v, ie_splat(ie_row_f(a->x, r0 + i)[j]), acc[i]);
    }
}

static void finish(const ie_args_matmul *a, int64_t g, int64_t r0, int n, const ie_f16 *acc)
{
    const int64_t m0 = g * IE_LANES, lanes = ie_min(IE_LANES, a->y.cols - m0);
    const float *bias = (const float *)(uintptr_t)a->bias;
    for (int i = 0; i < n; i++) {
        float out[IE_LANES];
        ie_store_f(out, acc[i]);
        float *y = ie_row_f(a->y, r0 + i) + m0;
        const float *res = a->res.p ? ie_row_f(a->res, r0 + i) + m0 : 0;
        for (int64_t l = 0; l < lanes; l++) {
            float v = out[l];
            v = bias ? v + bias[m0 + l] : v;
            y[l] = res ? v + res[l] : v;
        }
    }
}

#define IE_ROWS_CASES(body) \
    switch (n) { \
    case 1: body(1); break; \
    case 2: body(2); break; \
    case 3: body(3); break; \
    case 4: body(4); break; \
    case 5: body(5); break; \
    case 6: body(6); break; \
    case 7: body(7); break; \
    default: body(8); break; \
    }

static void rows_q4_1(const ie_args_matmul *a, int64_t g, int64_t r0, int n, ie_f16 *acc)
{
#define IE_BODY(N) quant_rows(a, g, r0, N, load_q4_1, 1, 0, acc)
    IE_ROWS_CASES(IE_BODY)
#undef IE_BODY
}
static void rows_q8_0(const ie_args_matmul *a, int64_t g, int64_t r0, int n, ie_f16 *acc)
{
#define IE_BODY(N) quant_rows(a, g, r0, N, load_q8_0, 0, 1, acc)
    IE_ROWS_CASES(IE_BODY)
#undef IE_BODY
}
static void rows_f32(const ie_args_matmul *a, int64_t g, int64_t r0, int n, ie_f16 *acc)
{
#define IE_BODY(N) float_rows(a, g, r0, N, 0, acc)
    IE_ROWS_CASES(IE_BODY)
#undef IE_BODY
}
static void rows_f16(const ie_args_matmul *a, int64_t g, int64_t r0, int n, ie_f16 *acc)
{
#define IE_BODY(N) float_rows(a, g, r0, N, 1, acc)
    IE_ROWS_CASES(IE_BODY)
#undef IE_BODY
}

IE_KERNEL(matmul)
{
    IE_ARGS(matmul);
    const int64_t rows = ie_domain_rows(cmd, step);
    for (int64_t g = begin; g < end; g++)
        for (int64_t r = 0; r < rows; r += 8) {
            ie_f16 acc[8];
            const int n = (int)ie_min(8, rows - r);
            switch (a->w.layout) {
            case IE_L_Q4_1X16: rows_q4_1(a, g, r, n, acc); break;
            case IE_L_Q8_0X16: rows_q8_0(a, g, r, n, acc); break;
            case IE_L_F32X16: rows_f32(a, g, r, n, acc); break;
            default: rows_f16(a, g, r, n, acc); break;
            }
            finish(a, g, r, n, acc);
        }
}
