/* matmul: y = x W^T (+ bias) (+ res). One tile a group of 16 weight rows, all live rows of the step.
 *
 * Order of operations for one output, whatever the number of rows, threads or the instruction set, runs of 32 values
 * in ascending K: acc = fma(float(integer dot), d * da, acc), twice for formats with a scale per 16 values, then
 * acc = fma(m, da * sum(a), acc) for formats with a minimum. Float weights: acc = fma(w, x, acc), k ascending.
 * Weight rows stand in lanes (ie_core.h); tiles.h has an inline loader per layout, the kernel is generic over it.
 * Weights stream once from memory; rows go through in groups of up to 8 while the tile is in cache.
 * Bytes: the matrix. Flops: 2 rows m k. */
#include "tiles.h"
#include "../host/host.h"

IE_MATH uint32_t word_at(const int8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* One Q8 row: its codes, scales, d * sum and half sums. */
typedef struct { const int8_t *q; const float *d, *dsum; const int32_t *sums; } q8_row;

typedef struct { int subs, has_min, halves, bias; } kind; /* compile-time constants where they are used */

/* acc + the contribution of run b (32 values) of one Q8 row. */
IE_MATH ie_f16 add_run(ie_f16 acc, const ie_run32 *r, const q8_row *x, int64_t b, kind k)
{
    const int8_t *q = x->q + b * IE_BLOCK;
    const int32_t s0 = x->sums[2 * b], s1 = x->sums[2 * b + 1];
    ie_i16 first, second; /* two chains: integer sums are exact, so their order is free */
    if (k.bias == IE_CODE_BIAS)
        first = ie_dot_start(s0 + s1), second = (ie_i16)(0);
    else if (k.halves)
        first = (ie_i16)(-k.bias * s0), second = (ie_i16)(-k.bias * s1);
    else
        first = (ie_i16)(-k.bias * (s0 + s1)), second = (ie_i16)(0);
    for (int j = 0; j < 4; j++)
        if (k.bias == IE_CODE_BIAS) {
            first = ie_dot_biased(first, r->w[j], word_at(q + 4 * j));
            second = ie_dot_biased(second, r->w[j + 4], word_at(q + 4 * j + 16));
        } else {
            first = ie_dot_small(first, r->w[j], word_at(q + 4 * j));
            second = ie_dot_small(second, r->w[j + 4], word_at(q + 4 * j + 16));
        }
    const float da = x->d[b];
    if (k.halves) {
        acc = ie_fma16(__builtin_convertvector(first, ie_f16), r->d * da, acc);
        acc = ie_fma16(__builtin_convertvector(second, ie_f16), r->d1 * da, acc);
    } else {
        acc = ie_fma16(__builtin_convertvector(first + second, ie_f16), r->d * da, acc);
    }
    return k.has_min ? ie_fma16(r->m, ie_splat(x->dsum[b]), acc) : acc;
}

/* `n` rows from row r0 against group g. */
IE_MATH void quant_rows(const ie_product *a, int64_t g, int64_t r0, int n, void (*open)(ie_tile_state *, const uint8_t *),
                        void (*load)(ie_run32 *, const ie_tile_state *, int), kind kd, ie_f16 *acc)
{
    const int64_t k = a->x.cols, blocks = a->blocks, tile = a->tile;
    const uint8_t *w = a->w + ie_tile_offset(g, 0, blocks, tile);
    q8_row x[8];
    for (int i = 0; i < n; i++) {
        const uint8_t *row = ie_row_b(a->x, r0 + i);
        const int64_t b = a->first / IE_BLOCK;
        x[i].q = (const int8_t *)row + a->first;
        x[i].d = (const float *)(const void *)(row + ie_q8_scale_offset(k)) + b;
        x[i].dsum = (const float *)(const void *)(row + ie_q8_dsum_offset(k)) + b;
        x[i].sums = (const int32_t *)(const void *)(row + ie_q8_sums_offset(k)) + 2 * b;
        acc[i] = ie_splat(0.0f);
    }
    for (int64_t b = 0; b < blocks; b++, w += tile) {
        ie_tile_state t;
        open(&t, w);
        for (int s = 0; s < kd.subs; s++) {
            ie_run32 r;
            load(&r, &t, s);
            for (int i = 0; i < n; i++)
                acc[i] = add_run(acc[i], &r, &x[i], b * kd.subs + s, kd);
        }
    }
}

typedef void (*rows_fn)(const ie_product *a, int64_t g, int64_t r0, int n, ie_f16 *acc);

/* name, loader and opener, runs a tile, whether there is a minimum, a scale per 16, and the bias of the codes */
#define IE_QUANT(name, opener, subs, has_min, halves, bias) \
    IE_MATH void body_##name(const ie_product *a, int64_t g, int64_t r0, int n, ie_f16 *acc) \
    { \
        quant_rows(a, g, r0, n, ie_open_##opener, ie_load_##name, (kind){subs, has_min, halves, bias}, acc); \
    } \
    IE_ROWS(name)

/* rows_X: body_X with the number of rows as a constant. */
#define IE_ROWS(name) \
    static void rows_##name(const ie_product *a, int64_t g, int64_t r0, int n, ie_f16 *acc) \
    { \
        switch (n) { \
        case 1: body_##name(a, g, r0, 1, acc); break; \
        case 2: body_##name(a, g, r0, 2, acc); break; \
        case 3: body_##name(a, g, r0, 3, acc); break; \
        case 4: body_##name(a, g, r0, 4, acc); break; \
        case 5: body_##name(a, g, r0, 5, acc); break; \
        case 6: body_##name(a, g, r0, 6, acc); break; \
        case 7: body_##name(a, g, r0, 7, acc); break; \
        default: body_##name(a, g, r0, 8, acc); break; \
        } \
    }

IE_QUANT(q4_0, plain, 1, 0, 0, 8)
IE_QUANT(q4_1, plain, 1, 1, 0, 0)
IE_QUANT(q5_0, plain, 1, 0, 0, 16)
IE_QUANT(q5_1, plain, 1, 1, 0, 0)
IE_QUANT(q8_0, plain, 1, 0, 0, IE_CODE_BIAS)
IE_QUANT(q4_k, q4_k, 8, 1, 0, 0)
IE_QUANT(q5_k, q5_k, 8, 1, 0, 0)
IE_QUANT(q6_k, q6_k, 8, 0, 1, 32)

IE_MATH ie_f16 load_f32(const uint8_t *w) { return ie_load_f((const float *)(const void *)w); }
IE_MATH ie_f16 load_f16(const uint8_t *w) { return ie_load_h(w); }
IE_MATH ie_f16 load_bf16(const uint8_t *w)
{
    typedef uint16_t words16 __attribute__((ext_vector_type(16), aligned(2)));
    return (ie_f16)(__builtin_convertvector(*(const words16 *)(const void *)w, ie_u16) << 16);
}

IE_MATH void float_rows(const ie_product *a, int64_t g, int64_t r0, int n, ie_f16 (*load)(const uint8_t *), ie_f16 *acc)
{
    const int64_t k = a->blocks, tile = a->tile;
    const uint8_t *w = a->w + ie_tile_offset(g, 0, a->blocks, tile);
    const float *x[8];
    for (int i = 0; i < n; i++) {
        x[i] = ie_row_f(a->x, r0 + i) + a->first;
        acc[i] = ie_splat(0.0f);
    }
    for (int64_t j = 0; j < k; j++, w += tile) {
        const ie_f16 v = load(w);
        for (int i = 0; i < n; i++)
            acc[i] = ie_fma16(v, ie_splat(x[i][j]), acc[i]);
    }
}

#define IE_FLOAT(name) \
    IE_MATH void body_##name(const ie_product *a, int64_t g, int64_t r0, int n, ie_f16 *acc) \
    { \
        float_rows(a, g, r0, n, load_##name, acc); \
    } \
    IE_ROWS(name)
IE_FLOAT(f32)
IE_FLOAT(f16)
IE_FLOAT(bf16)

/* File rows: 16 rows' blocks are decoded to F32 lanes, then as float weights. Right for every format, not fast. */
static void rows_decoded(const ie_product *a, int64_t g, int64_t r0, int n, ie_f16 *acc)
{
    const int format = a->layout - IE_L_ROWS, block = ie_formats[format].block;
    const int64_t row_bytes = a->blocks * a->tile, lanes = ie_min(IE_LANES, a->m - g * IE_LANES);
    const uint8_t *w = a->w + g * IE_LANES * row_bytes;
    float values[256], lane_values[256 * IE_LANES];
    memset(lane_values, 0, sizeof lane_values);
    for (int i = 0; i < n; i++)
        acc[i] = ie_splat(0.0f);
    for (int64_t b = 0; b < a->blocks; b++) {
        for (int64_t l = 0; l < lanes; l++) {
            ie_dequant(format, w + l * row_bytes + b * a->tile, values, block);
            for (int j = 0; j < block; j++)
                lane_values[j * IE_LANES + l] = values[j];
        }
        for (int i = 0; i < n; i++) {
            const float *x = ie_row_f(a->x, r0 + i) + a->first + b * block;
            for (int j = 0; j < block; j++)
                acc[i] = ie_fma16(ie_load_f(lane_values + j * IE_LANES), ie_splat(x[j]), acc[i]);
        }
    }
}

static void finish(const ie_args_matmul *a, int64_t g, int64_t r0, int n, const float *out)
{
    const int64_t m0 = g * IE_LANES, lanes = ie_min(IE_LANES, a->y.cols - m0);
    const float *bias = (const float *)(uintptr_t)a->bias;
    for (int i = 0; i < n; i++, out += IE_LANES) {
        float *y = ie_row_f(a->y, r0 + i) + m0;
        const float *res = a->res.p ? ie_row_f(a->res, r0 + i) + m0 : 0;
        for (int64_t l = 0; l < lanes; l++) {
            float v = out[l];
            v = bias ? v + bias[m0 + l] : v;
            y[l] = res ? v + res[l] : v;
        }
    }
}

static const rows_fn table[IE_L_COUNT] = {
    [IE_L_Q4_0X16] = rows_q4_0, [IE_L_Q4_1X16] = rows_q4_1, [IE_L_Q5_0X16] = rows_q5_0, [IE_L_Q5_1X16] = rows_q5_1,
    [IE_L_Q8_0X16] = rows_q8_0, [IE_L_Q4_KX16] = rows_q4_k, [IE_L_Q5_KX16] = rows_q5_k, [IE_L_Q6_KX16] = rows_q6_k,
    [IE_L_F32X16] = rows_f32,   [IE_L_F16X16] = rows_f16,   [IE_L_BF16X16] = rows_bf16,
};

void IE_NAME(ie_group_product)(const ie_product *p, int64_t g, int64_t r0, int n, float *out)
{
    ie_f16 acc[8];
    (p->layout >= IE_L_ROWS ? rows_decoded : table[p->layout])(p, g, r0, n, acc);
    for (int i = 0; i < n; i++)
        ie_store_f(out + i * IE_LANES, acc[i]);
}

IE_KERNEL(matmul)
{
    IE_ARGS(matmul);
    const int64_t rows = ie_domain_rows(cmd, step);
    const ie_product p = {a->x, 0, (const uint8_t *)(uintptr_t)a->w.p, a->w.blocks, a->w.tile, a->y.cols, a->w.layout};
    for (int64_t g = begin; g < end; g++)
        for (int64_t r = 0; r < rows; r += 8) {
            float out[8 * IE_LANES];
            const int n = (int)ie_min(8, rows - r);
            IE_NAME(ie_group_product)(&p, g, r, n, out);
            finish(a, g, r, n, out);
        }
}
