/* command.h: what an op body, and whoever counts its work, reads from a command and the step inputs.
 *
 * Owns: the way from a command's arguments to rows, and from step inputs to their arrays, for every target. Does not
 * own the structs (ops.h). */
#ifndef IE_COMMAND_H
#define IE_COMMAND_H

#include "ops.h"

/* Live rows of the command's domain. */
IE_FN int64_t ie_domain_rows(const ie_cmd *c, const ie_step *s)
{
    switch (c->domain) {
    case IE_DOMAIN_ROWS: return s->n_rows;
    case IE_DOMAIN_OUTS: return s->n_outs;
    case IE_DOMAIN_SEGS: return s->n_segs;
    default: return 1;
    }
}
/* The same, or 0 where the step leaves the command out. */
IE_FN int64_t ie_rows_to_run(const ie_cmd *c, const ie_step *s)
{
    return s->skip && (c->flags & IE_CMD_SKIPPABLE) ? 0 : ie_domain_rows(c, s);
}
/* Row of the step inputs that row 0 of the command's buffers stands for. */
IE_FN int64_t ie_step_row(const ie_cmd *c) { return c->domain == IE_DOMAIN_ROW ? c->row : 0; }
/* Elements from one chunk of the KV cache to the next. */
IE_FN int64_t ie_cache_stride(ie_cache c) { return (int64_t)c.stride * (1024 / (int64_t)sizeof(_Float16)); }
IE_FN float *ie_row_f(ie_view v, int64_t r) { return (float *)(uintptr_t)(v.p + (uint64_t)(r * v.stride)); }
IE_FN uint8_t *ie_row_b(ie_view v, int64_t r) { return (uint8_t *)(uintptr_t)(v.p + (uint64_t)(r * v.stride)); }
/* An array of the step inputs, which say where it begins counted from their own first byte. */
IE_FN const int32_t *ie_step_ints(const ie_step *s, uint64_t at)
{
    return (const int32_t *)(const void *)((const char *)s + at);
}

/* A segment: rows [first, first + count) of one sequence; state slot to start from (-1: zero state); how many of its
 * last rows leave a state behind, in the slots after it (ie_state_slot). */
typedef struct {
    int32_t first, count, slot, keep;
} ie_segment;
IE_FN const ie_segment *ie_segments(const ie_step *s)
{
    return (const ie_segment *)(const void *)ie_step_ints(s, s->seg);
}

#endif
