/* edits.c: see edits.h.
 *
 * Only tokens in the window are touched: what is noted about a token stands in c->mark[id], which is set to 0 for
 * every token of the window first, so that nobody has to clear it for the whole vocabulary. In a list, whose tokens
 * need not be in the window, the entries of its ids are cleared too.
 */
#include "edits.h"

/* After an edit as a float. An edit never makes a logit infinite upwards: that would be taken for a broken row. */
static float edited(float before, double after)
{
    return after > (double)FLT_LARGEST && before <= FLT_LARGEST ? FLT_LARGEST : (float)after;
}

static void set_logit(candidates *c, int32_t id, double after)
{
    float *x = ie_own_block(c, id / BLOCK) + id % BLOCK;
    *x = edited(*x, after);
    c->scanned = 0;
}

static void set_entry(candidates *c, int32_t at, double after)
{
    const float before = logit_of(c->list[at]);
    c->list[at] = key_of(edited(before, after), id_of(c->list[at]));
    c->scanned = 0;
    c->order = c->order == ORDER_LOGIT ? ORDER_OTHER : c->order;
}

void ie_edit_bias(candidates *c)
{
    const ie_sample_params *p = c->params;
    for (int32_t i = 0; i < p->n_bias; i++)
        if (p->bias_ids[i] >= 0 && p->bias_ids[i] < c->n)
            set_logit(c, p->bias_ids[i], (double)logit_at(c, p->bias_ids[i]) + (double)p->bias[i]);
}

static int is_token(const candidates *c, int32_t id) { return id >= 0 && id < c->n; }

static void clear_marks(candidates *c, const int32_t *tokens, int32_t count)
{
    for (int32_t i = 0; i < c->count; i++)
        c->mark[id_of(c->list[i])] = 0;
    for (int32_t i = 0; i < count; i++)
        if (is_token(c, tokens[i]))
            c->mark[tokens[i]] = 0;
}

/* The candidates with a mark get the logit that `apply` makes of their logit and mark. */
static void apply_marks(candidates *c, const int32_t *tokens, int32_t count,
                        double (*apply)(const ie_sample_params *p, double logit, int32_t mark))
{
    for (int32_t i = 0; i < c->count; i++)
        if (c->mark[id_of(c->list[i])])
            set_entry(c, i, apply(c->params, (double)logit_of(c->list[i]), c->mark[id_of(c->list[i])]));
    if (c->count >= 0)
        return;
    for (int32_t i = 0; i < count; i++)
        if (is_token(c, tokens[i]) && c->mark[tokens[i]]) {
            set_logit(c, tokens[i], apply(c->params, (double)logit_at(c, tokens[i]), c->mark[tokens[i]]));
            c->mark[tokens[i]] = 0; /* once, however often the token occurs */
        }
}

static double penalised(const ie_sample_params *p, double logit, int32_t count)
{
    const double scaled = logit <= 0 ? logit * p->repeat_penalty : logit / p->repeat_penalty;
    return scaled - (double)count * p->frequency_penalty - p->presence_penalty;
}

static int32_t window_of(int32_t n_history, int32_t last) { return last < 0 || last > n_history ? n_history : last; }

void ie_edit_penalties(candidates *c, const int32_t *history, int32_t n_history)
{
    const int32_t count = window_of(n_history, c->params->repeat_last_n);
    const int32_t *tokens = history + (n_history - count);
    clear_marks(c, tokens, count);
    for (int32_t i = 0; i < count; i++)
        if (is_token(c, tokens[i]))
            c->mark[tokens[i]]++;
    apply_marks(c, tokens, count, penalised);
}

/* ---- DRY ---- */

/* The breakers that begin with a token: the first of them, and how many. */
static int32_t breakers_of(const ie_sample_params *p, int32_t token, int32_t *count)
{
    int32_t low = 0, high = p->n_breakers;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (p->breaker_heads[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < p->n_breakers && p->breaker_heads[low + *count] == token;)
        ++*count;
    return low;
}

/* How many of the last n tokens follow the last breaker: the head nearest to the end whose tail follows it, with the
 * longest such tail. n if there is none. */
static int32_t since_breaker(const ie_sample_params *p, const int32_t *tokens, int32_t n)
{
    for (int32_t at = n - 1; at >= 0; at--) {
        int32_t count;
        const int32_t first = breakers_of(p, tokens[at], &count), after = n - 1 - at;
        for (int32_t b = first; b < first + count; b++) {
            const int32_t *tail = p->tails + p->tail_start[b], length = p->tail_start[b + 1] - p->tail_start[b];
            int32_t same = 0;
            while (same < length && same < after && tail[same] == tokens[at + 1 + same])
                same++;
            if (same == length)
                return after - length;
        }
    }
    return n;
}

static int breaks_alone(const ie_sample_params *p, int32_t token)
{
    int32_t count;
    const int32_t first = breakers_of(p, token, &count), last = first + count - 1;
    return count && p->tail_start[last] == p->tail_start[last + 1];
}

/* match[k], 1 <= k < n: how many tokens, going backwards, are the same from the end and from k before the end. The
 * Z-function of the reversed tokens: [left, right) is the match found so far that reaches furthest. */
static void match_backwards(const int32_t *tokens, int32_t n, int32_t *match)
{
    const int32_t *last = tokens + n - 1;
    int32_t left = 0, right = 0;
    for (int32_t k = 1; k < n; k++) {
        int32_t same = 0;
        if (k < right)
            same = match[k - left] < right - k ? match[k - left] : right - k;
        while (k + same < n && last[-same] == last[-k - same])
            same++;
        if (k + same > right) {
            left = k;
            right = k + same;
        }
        match[k] = same;
    }
}

static double dry_penalised(const ie_sample_params *p, double logit, int32_t mark)
{
    double power = 1.0;
    for (int32_t e = mark - 1 - p->dry_allowed_length; e > 0 && power * p->dry_base <= (double)FLT_LARGEST; e--)
        power *= p->dry_base;
    return logit - p->dry_multiplier * power;
}

void ie_edit_dry(candidates *c, const int32_t *history, int32_t n_history)
{
    const ie_sample_params *p = c->params;
    const int32_t n = window_of(n_history, p->dry_last_n), allowed = p->dry_allowed_length;
    const int32_t *tokens = history + (n_history - n);
    if (n <= allowed || n < 2)
        return;
    const int32_t limit = since_breaker(p, tokens, n);
    if (limit < allowed)
        return;
    match_backwards(tokens, n, c->match);
    clear_marks(c, tokens, n);
    for (int32_t k = 1; k < n; k++) {
        const int32_t same = c->match[k] < limit ? c->match[k] : limit, next = tokens[n - k];
        if (same >= allowed && is_token(c, next) && same + 1 > c->mark[next] && !breaks_alone(p, next))
            c->mark[next] = same + 1;
    }
    apply_marks(c, tokens, n, dry_penalised);
}
