/* core_export.c: ie_core.h and formula.h as exported functions, so that Python calls the very same code. */
#include "../include/formula.h"
#include "../include/work.h"
#include "host.h"

#include <string.h>

int64_t ie_core_constant(const char *name)
{
    static const struct {
        const char *name;
        int64_t value;
    } constants[] = {
        {"lanes", IE_LANES},
        {"q8_block", IE_BLOCK},
        {"kv_block", IE_KV_BLOCK},
        {"kv_chunk", IE_KV_CHUNK},
        {"attn_segment", IE_ATTN_SEGMENT},
        {"align", IE_ALIGN},
        {"decode_rows", IE_MAX_DECODE_ROWS},
        {"read_past", IE_READ_PAST},
    };
    for (unsigned i = 0; i < sizeof constants / sizeof *constants; i++)
        if (strcmp(name, constants[i].name) == 0)
            return constants[i].value;
    return -1;
}
int64_t ie_core_q8_row_bytes(int64_t k) { return ie_q8_row_bytes(k); }
int64_t ie_core_q8_scale_offset(int64_t k) { return ie_q8_scale_offset(k); }
int64_t ie_core_q8_dsum_offset(int64_t k) { return ie_q8_dsum_offset(k); }
int64_t ie_core_q8_sums_offset(int64_t k) { return ie_q8_sums_offset(k); }
int64_t ie_core_f32_row_bytes(int64_t n) { return ie_f32_row_bytes(n); }
int64_t ie_core_matrix_bytes(int64_t rows, int64_t blocks, int64_t tile) { return ie_matrix_bytes(rows, blocks, tile); }
int64_t ie_core_attn_parts_bytes(int64_t heads, int64_t dim, int64_t segments)
{
    return ie_attn_parts_bytes(heads, dim, segments);
}
int64_t ie_core_kv_chunk_elems(int64_t heads, int64_t dim) { return ie_kv_chunk_elems(heads, dim); }
int64_t ie_core_k_index(int64_t chunk, int64_t block, int64_t dim, int64_t head, int64_t d, int64_t slot)
{
    return ie_k_index(chunk, block, dim, head, d, slot);
}
int64_t ie_core_v_index(int64_t chunk, int64_t block, int64_t dim, int64_t head, int64_t slot, int64_t d)
{
    return ie_v_index(chunk, block, dim, head, slot, d);
}
int64_t ie_core_plan_check(int64_t n, const int64_t *offset, const int64_t *size, const int64_t *first,
                           const int64_t *last, int64_t arena)
{
    return ie_plan_check(n, offset, size, first, last, arena);
}
int64_t ie_core_stage_check(int64_t n_cmds, const int64_t *stage, int64_t n, const int64_t *cmd, const int64_t *space,
                            const int64_t *lo, const int64_t *hi, const int64_t *write)
{
    return ie_stage_check(n_cmds, stage, n, cmd, space, lo, hi, write);
}
int64_t ie_core_command_tiles(const void *cmd, uint64_t step)
{
    const ie_step *s = (const ie_step *)(uintptr_t)step;
    return ie_command_tiles(cmd, ie_rows_to_run(cmd, s));
}
int64_t ie_core_command_bytes(const void *cmd, uint64_t step)
{
    return ie_command_bytes(cmd, (const ie_step *)(uintptr_t)step);
}
int64_t ie_core_command_flops(const void *cmd, uint64_t step)
{
    return ie_command_flops(cmd, (const ie_step *)(uintptr_t)step);
}

void ie_formula_exp(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ie_exp(x[i]);
}
void ie_formula_silu(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ie_silu(x[i]);
}
void ie_formula_gelu(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ie_gelu(x[i]);
}
void ie_formula_fma_soft(const float *a, const float *b, const float *c, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ie_fma_soft(a[i], b[i], c[i]);
}
