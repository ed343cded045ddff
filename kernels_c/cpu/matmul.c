/* matmul: y = x W^T (+ bias) (+ res). One tile a group of 16 weight rows, all live rows of the step.
 *
 * Order of operations for one output, whatever the number of rows, threads or the instruction set, runs of 32 values in
 * ascending K: acc = fma(float(integer dot), d * da, acc), twice for formats with a scale per 16 values, then acc =
 * fma(m, da * sum(a), acc) for formats with a minimum. Float weights: acc = fma(w, x, acc), k ascending. Weight rows
 * stand in lanes (ie_core.h); include/tiles.h has an inline loader per layout, the kernel is generic over it.
 *
 * Few rows (decode): weights stream once from memory and are unpacked in registers, up to 8 rows go through at once.
 * Many rows (prefill): 8 rows at a time go through all row groups of the tile, so that their activations stay in the
 * first-level cache and weights come from the second in one stream. Formats of 256 values, whose scales cost more to
 * unpack, are unpacked once into a panel of 2 groups and 1024 values along K that all rows go through.
 * Measured: benchmarks/op_matmul.json (scripts/op_bench.py). Tried and slower: groups outside and rows inside (Q4_1 at
 * little more than half the speed: activations came from the second-level cache in many streams); a panel for the
 * formats of 32 values, whose codes cost less to unpack than to load again.
 * Bytes: the matrix. Flops: 2 rows m k. */
#include "lanes.h"
#include "../host/host.h"

/* Where run b stands inside a Q8 row. The rows of a group differ in their base alone, so that a row costs one
 * register. */
typedef struct {
    int64_t q, d, dsum, sums;
} q8_place;

IE_MATH q8_place place_of(int64_t k, int64_t b)
{
    return (q8_place){b * IE_BLOCK, ie_q8_scale_offset(k) + 4 * b, ie_q8_dsum_offset(k) + 4 * b,
                      ie_q8_sums_offset(k) + 8 * b};
}
IE_MATH float float_at(const uint8_t *p) { return *(const float *)(const void *)p; }
IE_MATH int32_t int_at(const uint8_t *p) { return *(const int32_t *)(const void *)p; }

typedef struct {
    int subs, has_min, halves, bias;
} kind; /* compile-time constants where they are used */

#if !defined(__aarch64__)

IE_MATH uint32_t word_at(const int8_t *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

/* acc + the contribution of the run at place `at` of one Q8 row. */
IE_MATH ie_vf add_run(ie_vf acc, const ie_run32 *r, const uint8_t *x, q8_place at, kind k)
{
    const int8_t *q = (const int8_t *)x + at.q;
    ie_vi first, second; /* one chain a half, from minus the bias times the half's sum */
    if (k.bias == IE_CODE_BIAS)
        first = ie_dot_start(int_at(x + at.sums)), second = ie_dot_start(int_at(x + at.sums + 4));
    else if (k.bias)
        first = ie_start(int_at(x + at.sums), k.bias), second = ie_start(int_at(x + at.sums + 4), k.bias);
    else
        first = second = (ie_vi)(0);
    for (int j = 0; j < 4; j++)
        if (k.bias == IE_CODE_BIAS) {
            first = ie_dot_biased(first, r->w[j], word_at(q + 4 * j));
            second = ie_dot_biased(second, r->w[j + 4], word_at(q + 4 * j + 16));
        } else {
            first = ie_dot_small(first, r->w[j], word_at(q + 4 * j));
            second = ie_dot_small(second, r->w[j + 4], word_at(q + 4 * j + 16));
        }
    const float da = float_at(x + at.d);
    if (k.halves) {
        acc = ie_fma16(__builtin_convertvector(first, ie_vf), r->d * da, acc);
        acc = ie_fma16(__builtin_convertvector(second, ie_vf), r->d1 * da, acc);
    } else {
        acc = ie_fma16(__builtin_convertvector(first + second, ie_vf), r->d * da, acc);
    }
    if (k.has_min && k.halves) { /* d * sum of each half */
        acc = ie_fma16(r->m, ie_splat(da * (float)-int_at(x + at.sums)), acc);
        return ie_fma16(r->m1, ie_splat(da * (float)-int_at(x + at.sums + 4)), acc);
    }
    return k.has_min ? ie_fma16(r->m, ie_splat(float_at(x + at.dsum)), acc) : acc;
}

#else

/* sum + the contribution of the run at place `at` of up to 4 Q8 rows together: a word of 16 weight rows fills four
 * registers, so that it is loaded for all rows at once and the eight words need not stay. Integer sums are exact in any
 * order. */
IE_MATH void add_run_4(ie_vf *sum, const ie_run32 *r, const uint8_t *const *x, q8_place at, int n, kind k)
{
    ie_vi dot[4];
#pragma clang loop unroll(full)
    for (int h = 0; h < 2; h++) {
        typedef uint32_t words4 __attribute__((ext_vector_type(4), aligned(4)));
        words4 q[4];
#pragma clang loop unroll(full)
        for (int i = 0; i < n; i++) {
            q[i] = *(const words4 *)(const void *)(x[i] + at.q + 16 * h);
            if (h && !k.halves)
                continue;
            const int32_t s = int_at(x[i] + at.sums + 4 * h) + (k.halves ? 0 : int_at(x[i] + at.sums + 4));
            dot[i] = k.bias == IE_CODE_BIAS ? ie_dot_start(s) : k.bias ? ie_start(s, k.bias) : (ie_vi)(0);
        }
#pragma clang loop unroll(full)
        for (int j = 0; j < 4; j++)
#pragma clang loop unroll(full)
            for (int i = 0; i < n; i++)
                dot[i] = k.bias == IE_CODE_BIAS ? ie_dot_biased(dot[i], r->w[4 * h + j], q[i][j])
                                                : ie_dot_small(dot[i], r->w[4 * h + j], q[i][j]);
#pragma clang loop unroll(full)
        for (int i = 0; i < n && (h || k.halves); i++)
            sum[i] = ie_fma16(__builtin_convertvector(dot[i], ie_vf),
                              (k.halves && h ? r->d1 : r->d) * float_at(x[i] + at.d), sum[i]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < n && k.has_min; i++) {
        const float da = float_at(x[i] + at.d);
        if (k.halves) {
            sum[i] = ie_fma16(r->m, ie_splat(da * (float)-int_at(x[i] + at.sums)), sum[i]);
            sum[i] = ie_fma16(r->m1, ie_splat(da * (float)-int_at(x[i] + at.sums + 4)), sum[i]);
        } else {
            sum[i] = ie_fma16(r->m, ie_splat(float_at(x[i] + at.dsum)), sum[i]);
        }
    }
}

#endif

/* One run for n rows. */
IE_MATH void add_runs(ie_vf *sum, const ie_run32 *r, const uint8_t *const *x, q8_place at, int n, kind k)
{
#if defined(__aarch64__)
#pragma clang loop unroll(full)
    for (int i = 0; i < n; i += 4)
        add_run_4(sum + i, r, x + i, at, n - i < 4 ? n - i : 4, k);
#else
#pragma clang loop unroll(full)
    for (int i = 0; i < n; i++)
        sum[i] = add_run(sum[i], r, x[i], at, k);
#endif
}

/* Run s of tile b for n rows. */
IE_MATH void run_rows(const ie_product *a, const uint8_t *const *x, ie_vf *sum, const ie_tile_state *t,
                      void (*load)(ie_run32 *, const ie_tile_state *, int), int64_t k, int64_t b, int s, int n, kind kd)
{
    ie_run32 r;
    load(&r, t, s);
    add_runs(sum, &r, x, place_of(k, a->first / IE_BLOCK + b * kd.subs + s), n, kd);
}

#define AHEAD 8192 /* bytes; see docs/performance.md for what was tried */

/* Part s of `parts` of what comes AHEAD bytes after this tile: further ahead than the hardware looks, and not all at
 * once, which would fill the queue of lines under way and stall. */
IE_MATH void fetch_part(const uint8_t *w, int64_t tile, int s, int parts)
{
    const int64_t lines = ie_div_up(tile, 64);
    for (int64_t i = lines * s / parts; i < lines * (s + 1) / parts; i++)
        __builtin_prefetch(w + AHEAD + 64 * i, 0, 3);
}

/* `n` rows from row r0 against group g. */
IE_MATH void quant_rows(const ie_product *a, int64_t g, int64_t r0, int n,
                        void (*open)(ie_tile_state *, const uint8_t *),
                        void (*load)(ie_run32 *, const ie_tile_state *, int), kind kd, ie_vf *acc)
{
    const int64_t k = a->x.cols, blocks = a->blocks, tile = a->tile;
    const uint8_t *w = a->w + ie_tile_offset(g, 0, blocks, tile);
    const uint8_t *x[8];
    ie_vf sum[8]; /* not acc: stores to it could change x for all the compiler knows */
    for (int i = 0; i < n; i++) {
        x[i] = ie_row_b(a->x, r0 + i);
        sum[i] = ie_splat(0.0f);
    }
    for (int64_t b = 0; b < blocks; b++, w += tile) {
        ie_tile_state t;
        open(&t, w);
        if (n <= 2) { /* unpacking dominates: shifts and places of scales should be constants */
#pragma clang loop unroll(full)
            for (int s = 0; s < kd.subs; s++) {
                fetch_part(w, tile, s, kd.subs);
                run_rows(a, x, sum, &t, load, k, b, s, n, kd);
            }
        } else {
#pragma clang loop unroll(disable)
            for (int s = 0; s < kd.subs; s++) {
                if (n <= 4)
                    fetch_part(w, tile, s, kd.subs);
                run_rows(a, x, sum, &t, load, k, b, s, n, kd);
            }
        }
    }
    for (int i = 0; i < n; i++)
        acc[i] = sum[i];
}

/* ---- many rows ---- */

#define PANEL_GROUPS 2
#define PANEL_RUNS 32   /* runs of 32 values: 1024 along K */
#define PANEL_ROWS 256  /* rows whose accumulators are kept at a time */

/* Runs [b0, b0 + n) of a row group, unpacked. */
IE_MATH void unpack_runs(const ie_product *a, int64_t g, int64_t b0, int64_t n,
                         void (*open)(ie_tile_state *, const uint8_t *),
                         void (*load)(ie_run32 *, const ie_tile_state *, int), kind kd, ie_run32 *out)
{
    for (int64_t b = b0; b < b0 + n; b += kd.subs) {
        ie_tile_state t;
        open(&t, a->w + ie_tile_offset(g, b / kd.subs, a->blocks, a->tile));
        for (int s = 0; s < kd.subs; s++)
            load(out++, &t, s);
    }
}

/* Eight rows through n unpacked runs from run b0 on. */
IE_MATH void panel_rows(const uint8_t *const *x, const ie_run32 *r, int64_t k, int64_t b0, int64_t n, kind kd,
                        ie_vf *acc)
{
    ie_vf sum[8];
    for (int i = 0; i < 8; i++)
        sum[i] = acc[i];
    for (int64_t b = 0; b < n; b++)
        add_runs(sum, &r[b], x, place_of(k, b0 + b), 8, kd);
    for (int i = 0; i < 8; i++)
        acc[i] = sum[i];
}

/* Groups [g0, g0 + groups) times rows [r0, r0 + rows): acc[group][row]. */
IE_MATH void quant_panel(const ie_product *a, int64_t g0, int64_t groups, int64_t r0, int64_t rows,
                         void (*open)(ie_tile_state *, const uint8_t *),
                         void (*load)(ie_run32 *, const ie_tile_state *, int), kind kd, ie_vf (*acc)[PANEL_ROWS])
{
    _Alignas(64) ie_run32 panel[PANEL_GROUPS][PANEL_RUNS];
    const int64_t runs = a->blocks * kd.subs, k = a->x.cols;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t r = 0; r < ie_align_up(rows, 8); r++)
            acc[g][r] = ie_splat(0.0f);
    for (int64_t b = 0; b < runs; b += PANEL_RUNS) {
        const int64_t n = ie_min(PANEL_RUNS, runs - b);
        for (int64_t g = 0; g < groups; g++)
            unpack_runs(a, g0 + g, b, n, open, load, kd, panel[g]);
        for (int64_t r = 0; r < rows; r += 8) {
            const uint8_t *x[8];
            for (int64_t i = 0; i < 8; i++) /* the last row stands in for rows that are not there */
                x[i] = ie_row_b(a->x, r0 + ie_min(r + i, rows - 1));
            for (int64_t g = 0; g < groups; g++)
                panel_rows(x, panel[g], k, b, n, kd, &acc[g][r]);
        }
    }
}

typedef void (*rows_fn)(const ie_product *a, int64_t g, int64_t r0, int n, ie_vf *acc);
typedef void (*panel_fn)(const ie_product *a, int64_t g0, int64_t groups, int64_t r0, int64_t rows,
                         ie_vf (*acc)[PANEL_ROWS]);

/* For each layout of IE_FOR_EACH_QUANT: rows_X, few rows; panel_X, many. */
#define IE_QUANT(NAME, name, runs, has_min, halves, bias, lookup) \
    IE_MATH void body_##name(const ie_product *a, int64_t g, int64_t r0, int n, ie_vf *acc) \
    { \
        quant_rows(a, g, r0, n, ie_open_##name, ie_load_##name, (kind){runs, has_min, halves, bias}, acc); \
    } \
    IE_ROWS(name) \
    static void panel_##name(const ie_product *a, int64_t g0, int64_t groups, int64_t r0, int64_t rows, \
                             ie_vf (*acc)[PANEL_ROWS]) \
    { \
        quant_panel(a, g0, groups, r0, rows, ie_open_##name, ie_load_##name, (kind){runs, has_min, halves, bias}, \
                    acc); \
    }
/* Codes of 32 values that need no look-up cost less to unpack than to load again. */
#define IE_HAS_PANEL(runs, lookup) ((runs) > 1 || (lookup))

/* rows_X: body_X with the number of rows as a constant. */
#define IE_ROWS(name) \
    static void rows_##name(const ie_product *a, int64_t g, int64_t r0, int n, ie_vf *acc) \
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

IE_FOR_EACH_QUANT(IE_QUANT)

IE_MATH void float_rows(const ie_product *a, int64_t g, int64_t r0, int n, ie_vf (*load)(const uint8_t *), ie_vf *acc)
{
    const int64_t k = a->blocks, tile = a->tile;
    const uint8_t *w = a->w + ie_tile_offset(g, 0, a->blocks, tile);
    const float *x[8];
    ie_vf sum[8];
    for (int i = 0; i < n; i++) {
        x[i] = ie_row_f(a->x, r0 + i) + a->first;
        sum[i] = ie_splat(0.0f);
    }
    for (int64_t j = 0; j < k; j++, w += tile) {
        const ie_vf v = load(w);
        for (int i = 0; i < n; i++)
            sum[i] = ie_fma16(v, ie_splat(x[i][j]), sum[i]);
    }
    for (int i = 0; i < n; i++)
        acc[i] = sum[i];
}

#define IE_FLOAT(name) \
    IE_MATH void body_##name(const ie_product *a, int64_t g, int64_t r0, int n, ie_vf *acc) \
    { \
        float_rows(a, g, r0, n, ie_value_##name, acc); \
    } \
    IE_ROWS(name)
IE_FLOAT(f32)
IE_FLOAT(f16)
IE_FLOAT(bf16)

/* File rows: 16 rows' blocks are decoded to F32 lanes, then as float weights. Right for every format, not fast. */
static void rows_decoded(const ie_product *a, int64_t g, int64_t r0, int n, ie_vf *acc)
{
    const int format = a->layout - IE_L_ROWS, block = ie_formats[format].block;
    const int64_t row_bytes = a->blocks * a->tile, lanes = ie_min(IE_LANES, a->m - ie_row_of(g, 0));
    const uint8_t *w = a->w + ie_row_of(g, 0) * row_bytes;
    float values[256], lane_values[256 * IE_LANES];
    memset(lane_values, 0, sizeof lane_values);
    for (int i = 0; i < n; i++)
        acc[i] = ie_splat(0.0f);
    for (int64_t b = 0; b < a->blocks; b++) {
        for (int64_t l = 0; l < lanes; l++) {
            ie_dequant(format, w + l * row_bytes + b * a->tile, values, block);
            IE_VECTORIZE
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
    const int64_t m0 = ie_row_of(g, 0), lanes = ie_min(IE_LANES, a->y.cols - m0);
    const float *bias = (const float *)(uintptr_t)a->bias;
    for (int i = 0; i < n; i++, out += IE_LANES) {
        float *y = ie_row_f(a->y, r0 + i) + m0;
        const float *res = a->res.p ? ie_row_f(a->res, r0 + i) + m0 : 0;
        IE_VECTORIZE
        for (int64_t l = 0; l < lanes; l++) {
            float v = out[l];
            v = bias ? v + bias[m0 + l] : v;
            y[l] = res ? v + res[l] : v;
        }
    }
}

#define ROWS_ENTRY(NAME, name, ...) [IE_L_##NAME##X16] = rows_##name,
static const rows_fn table[IE_L_COUNT] = {
    [IE_L_F32X16] = rows_f32, [IE_L_F16X16] = rows_f16, [IE_L_BF16X16] = rows_bf16, IE_FOR_EACH_QUANT(ROWS_ENTRY)};

void IE_NAME(ie_group_product)(const ie_product *p, int64_t g, int64_t r0, int n, float *out)
{
    ie_vf acc[8];
    (p->layout >= IE_L_ROWS ? rows_decoded : table[p->layout])(p, g, r0, n, acc);
    for (int i = 0; i < n; i++)
        ie_store_f(out + i * IE_LANES, acc[i]);
}

#define PANEL_ENTRY(NAME, name, runs, has_min, halves, bias, lookup) \
    [IE_L_##NAME##X16] = IE_HAS_PANEL(runs, lookup) ? panel_##name : NULL,
static const panel_fn panels[IE_L_COUNT] = {IE_FOR_EACH_QUANT(PANEL_ENTRY)};

static void many_rows(const ie_args_matmul *a, const ie_product *p, int64_t rows, int64_t begin, int64_t end)
{
    _Alignas(64) ie_vf acc[PANEL_GROUPS][PANEL_ROWS];
    for (int64_t g = begin; g < end; g += PANEL_GROUPS)
        for (int64_t r = 0; r < rows; r += PANEL_ROWS) {
            const int64_t groups = ie_min(PANEL_GROUPS, end - g), n = ie_min(PANEL_ROWS, rows - r);
            panels[p->layout](p, g, groups, r, n, acc);
            for (int64_t i = 0; i < groups; i++)
                finish(a, g + i, r, (int)n, (const float *)acc[i]);
        }
}

IE_KERNEL(matmul)
{
    IE_ARGS(matmul);
    const int64_t rows = ie_domain_rows(cmd, step);
    const ie_product p = {a->x, 0, (const uint8_t *)(uintptr_t)a->w.p, a->w.blocks, a->w.tile, a->y.cols, a->w.layout};
    if (rows > 16 && a->w.layout < IE_L_ROWS && panels[a->w.layout]) {
        many_rows(a, &p, rows, begin, end);
        return;
    }
    for (int64_t r = 0; r < rows; r += 8)
        for (int64_t g = begin; g < end; g++) {
            float out[8 * IE_LANES];
            const int n = (int)ie_min(8, rows - r);
            IE_NAME(ie_group_product)(&p, g, r, n, out);
            finish(a, g, r, n, out);
        }
}
