/* step_check.c: whether step inputs are what kernels take for granted. A kernel turns ids, positions, block table
 * entries and state slots into addresses without a look; whoever wrote them, a step that breaks a rule is refused
 * before its first command. A few comparisons a row, and one for each entry of the block tables that the rows see. */
#include "../include/command.h"
#include "host.h"

static int outside(int64_t x, int64_t n) { return x < 0 || x >= n; }

static int rows_refused(const ie_step *s, const ie_limits *limits, int64_t *at)
{
    for (int64_t r = 0; r < s->n_rows; r++) {
        *at = r;
        if (outside(ie_step_ints(s, s->seq)[r], limits->seqs))
            return IE_STEP_SEQUENCE;
        if (outside(ie_step_ints(s, s->pos)[r], limits->n_ctx) ||
            ie_kv_block_of(ie_step_ints(s, s->pos)[r]) >= s->max_blocks)
            return IE_STEP_POSITION;
        if (outside(ie_step_ints(s, s->token)[r], limits->n_vocab))
            return IE_STEP_TOKEN;
    }
    return 0;
}

/* Segments cover the rows one after the other, each of one sequence; slots are ones that there are. */
static int segments_refused(const ie_step *s, const ie_limits *limits, int64_t *at)
{
    int64_t row = 0;
    for (int64_t i = 0; i < s->n_segs; i++) {
        const int32_t *seg = ie_step_ints(s, s->seg) + 4 * i;
        *at = i;
        if (seg[0] != row || seg[1] < 1 || seg[1] > s->n_rows - row)
            return IE_STEP_SEGMENT;
        if (limits->slots &&
            (seg[2] < -1 || seg[2] >= limits->slots || seg[3] < 0 || seg[3] > ie_min(seg[1], limits->slots)))
            return IE_STEP_STATE;
        const int32_t seq = ie_step_ints(s, s->seq)[row];
        int64_t last = 0;
        for (int64_t end = row + seg[1]; row < end; row++) {
            if (ie_step_ints(s, s->seq)[row] != seq)
                return IE_STEP_SEGMENT;
            last = ie_max(last, ie_step_ints(s, s->pos)[row]);
        }
        const int32_t *table = ie_step_ints(s, s->tables) + (int64_t)seq * s->max_blocks;
        for (int64_t b = 0; b <= ie_kv_block_of(last); b++)
            if (outside(table[b], limits->n_blocks))
                return IE_STEP_BLOCK;
    }
    *at = row;
    return row == s->n_rows ? 0 : IE_STEP_SEGMENT;
}

int ie_step_check(uint64_t step, const ie_limits *limits, int64_t *at)
{
    const ie_step *s = (const ie_step *)(uintptr_t)step;
    *at = s->n_rows;
    if (s->n_rows < 1 || s->n_rows > limits->rows)
        return IE_STEP_ROWS;
    *at = s->n_outs;
    if (s->n_outs < 0 || s->n_outs > limits->outs || s->n_outs > s->n_rows)
        return IE_STEP_OUTS;
    *at = s->n_segs;
    if (s->n_segs < 1 || s->n_segs > limits->seqs)
        return IE_STEP_SEGMENT;
    int refused = rows_refused(s, limits, at);
    if (!refused)
        refused = segments_refused(s, limits, at);
    if (refused)
        return refused;
    for (int64_t o = 0; o < s->n_outs; o++) {
        *at = o;
        if (outside(ie_step_ints(s, s->out_row)[o], s->n_rows) ||
            (o > 0 && ie_step_ints(s, s->out_row)[o] <= ie_step_ints(s, s->out_row)[o - 1]))
            return IE_STEP_OUT_ROW;
    }
    return 0;
}
