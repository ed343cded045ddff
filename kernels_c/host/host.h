/* host.h: the C side of the CPU executor, as Python sees it through cffi.
 *
 * The part between the CDEF marks is the cffi declaration; ie/native.py reads it from the installed copy, so
 * there is one declaration only. Functions return 0 or a non-negative result; negative means refused. */
#ifndef IE_HOST_H
#define IE_HOST_H

#include <stdint.h>

#pragma GCC visibility push(default)

/* CDEF BEGIN */

/* ---- memory: zeroed pages, taken from the system when first touched; NULL when refused ---- */
void *ie_alloc(int64_t bytes);
void ie_huge_pages(void *p, int64_t bytes); /* a hint, for memory that is streamed: fewer address translations */
void ie_free(void *p, int64_t bytes);
int64_t ie_alloc_count(void); /* calls of ie_alloc since the library was loaded */

/* ---- mapped files: when one of them loses pages that are read, the process writes its line to stderr, removes the
 * unfinished files and ends with status 1. Only after ie_on_lost_pages(), which takes SIGBUS for the whole process.
 * Entries are NULL where there is no memory for one. One thread at a time. ---- */
void ie_on_lost_pages(void);
void *ie_watch_pages(uint64_t start, int64_t bytes, const char *line);
void *ie_watch_unfinished(const char *path);
void ie_unwatch(void *entry);

/* ---- instruction sets, worst to best within an architecture; those of another one are never available ---- */
enum { IE_ISA_PORTABLE, IE_ISA_AVX2, IE_ISA_AVXVNNI, IE_ISA_AVX512, IE_ISA_NEON, IE_ISA_I8MM, IE_ISA_COUNT };
int ie_isa_available(int isa); /* 1: compiled in and supported by this processor */
int ie_isa_best(void);

/* ---- thread pool: `threads` workers, the caller being one; idle workers sleep ---- */
typedef struct ie_pool ie_pool;
ie_pool *ie_pool_create(int threads, int isa);
void ie_pool_destroy(ie_pool *pool);
int64_t ie_stack_bytes(void); /* stack of a worker; the caller's must be as large, which it sees to itself */

/* ---- what step inputs must keep to: the capacities that a program was bound to, and the numbers that are
 * indices ---- */
typedef struct {
    int32_t rows, outs, seqs, n_vocab, n_ctx, n_blocks;
    int32_t slots; /* of recurrent state; 0: none */
} ie_limits;
enum {
    IE_STEP_ROWS = 1,
    IE_STEP_OUTS,
    IE_STEP_SEQUENCE,
    IE_STEP_POSITION,
    IE_STEP_TOKEN,
    IE_STEP_SEGMENT,
    IE_STEP_STATE,
    IE_STEP_BLOCK,
    IE_STEP_OUT_ROW
};
/* 0, or the rule that is broken and where: a row, a segment, an output, or the count itself. */
int ie_step_check(uint64_t step, const ie_limits *limits, int64_t *at);

/* ---- programs: addresses of `n_cmds` commands (256 bytes each) and of n_stages + 1 int32 stage starts. Steps are
 * checked against the limits at that address, if it is not 0; one that is refused runs no command. ---- */
typedef struct {
    uint64_t cmds;
    uint64_t stage_start;
    int32_t n_cmds;
    int32_t n_stages;
    uint64_t limits;
} ie_program;
int ie_run(ie_pool *pool, const ie_program *program, uint64_t step);
/* The same, with a clock: nanoseconds at the start and when each stage was done with, n_stages + 1 values. */
int ie_run_timed(ie_pool *pool, const ie_program *program, uint64_t step, int64_t *clock);

/* ---- weights: GGUF rows of k values to the interleaved layout, split over the pool. 1: done, but a number is NaN or
 * infinite; < 0: refused ---- */
int ie_repack(ie_pool *pool, int layout, const uint8_t *src, uint8_t *dst, int64_t rows, int64_t k);
/* n elements of a format, a whole number of blocks, from src (any alignment) to dst. 0, or -1 for an unknown format, an
 * n that is not a whole number of blocks, or a negative n. */
int ie_dequant(int32_t format, const uint8_t *src, float *dst, int64_t n);

/* ---- measured read bandwidth of all threads, bytes per second, best of `rounds` over `bytes` of memory ---- */
double ie_read_bandwidth(ie_pool *pool, int64_t bytes, int rounds);
/* Seconds that the threads take to read `bytes` at p, a share each, and to do nothing else. */
double ie_read_seconds(ie_pool *pool, const void *p, int64_t bytes);

/* ---- core functions (core_laws/ie_core.h), exported for Python ---- */
int64_t ie_core_constant(const char *name); /* by the names in core_export.c; -1 where it has none of that name */
int64_t ie_core_q8_row_bytes(int64_t k);
int64_t ie_core_q8_scale_offset(int64_t k);
int64_t ie_core_q8_dsum_offset(int64_t k);
int64_t ie_core_q8_sums_offset(int64_t k);
int64_t ie_core_f32_row_bytes(int64_t n);
int64_t ie_core_matrix_bytes(int64_t rows, int64_t blocks_per_row, int64_t tile_bytes);
int64_t ie_core_kv_chunk_elems(int64_t heads, int64_t dim);
int64_t ie_core_attn_parts_bytes(int64_t heads, int64_t dim, int64_t segments);
int64_t ie_core_k_index(int64_t chunk, int64_t block, int64_t dim, int64_t head, int64_t d, int64_t slot);
int64_t ie_core_v_index(int64_t chunk, int64_t block, int64_t dim, int64_t head, int64_t slot, int64_t d);
int64_t ie_core_plan_check(int64_t n, const int64_t *offset, const int64_t *size, const int64_t *first,
                           const int64_t *last, int64_t arena);
int64_t ie_core_stage_check(int64_t n_cmds, const int64_t *stage, int64_t n, const int64_t *cmd, const int64_t *space,
                            const int64_t *lo, const int64_t *hi, const int64_t *write);
/* Work of a command in the step at that address; 0 where the step leaves it out. Nothing that they point to is read but
 * the arrays of the step inputs. */
int64_t ie_core_command_tiles(const void *cmd, uint64_t step);
int64_t ie_core_command_bytes(const void *cmd, uint64_t step);
int64_t ie_core_command_flops(const void *cmd, uint64_t step);

/* ---- formulas, for tests ---- */
void ie_formula_exp(const float *x, float *y, int64_t n);
void ie_formula_silu(const float *x, float *y, int64_t n);
void ie_formula_gelu(const float *x, float *y, int64_t n);
void ie_formula_fma_soft(const float *a, const float *b, const float *c, float *y, int64_t n);

/* CDEF END */

#pragma GCC visibility pop

#endif
