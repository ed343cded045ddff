/* candidates.c: see candidates.h.
 *
 * Selecting the k largest of n: the largest of each block is known (the one pass over the row). The k-th largest of
 * these, t, is a lower bound of the k-th largest logit, since k blocks each hold one at least as large. Only blocks
 * that reach t are looked into: about k of them. Where k is not small against the number of blocks, everything is
 * sorted instead.
 */
#include "candidates.h"

#include <string.h>

float *ie_own_block(candidates *c, int32_t b)
{
    float *own = c->own + (int64_t)b * BLOCK;
    if (c->block[b] != own) {
        memcpy(own, c->block[b], (size_t)block_length(c, b) * sizeof *own);
        c->block[b] = own;
    }
    return own;
}

/* Why the row cannot be sampled, and the first id that shows it. */
static void refuse(candidates *c)
{
    c->error = IE_SAMPLE_MASKED;
    c->bad_token = -1;
    for (int32_t i = 0; i < c->n; i++)
        if (!(c->row[i] < INF)) {
            c->error = c->row[i] != c->row[i] ? IE_SAMPLE_NAN : IE_SAMPLE_INF;
            c->bad_token = i;
            return;
        }
}

void ie_scan(candidates *c)
{
    if (c->scanned || c->error)
        return;
    c->scanned = 1;
    c->max = -INF;
    int32_t bad = 0;
    if (c->count < 0) {
        bad = c->kernels->largest(c->block, c->n, c->block_max);
        for (int32_t b = 0; b < c->n_blocks; b++)
            c->max = c->block_max[b] > c->max ? c->block_max[b] : c->max;
    } else {
        for (int32_t i = 0; i < c->count; i++)
            c->max = logit_of(c->list[i]) > c->max ? logit_of(c->list[i]) : c->max;
    }
    if (bad || c->max == -INF)
        refuse(c);
}

void ie_make_list(candidates *c)
{
    if (c->count >= 0)
        return;
    for (int32_t b = 0; b < c->n_blocks; b++) {
        IE_VECTORIZE
        for (int32_t i = 0; i < block_length(c, b); i++)
            c->list[b * BLOCK + i] = key_of(c->block[b][i], b * BLOCK + i);
    }
    c->count = c->n;
    c->order = ORDER_ID;
}

/* ---- sorting ---- */

/* Max-heap of keys: restore the order below position i. */
static void sift(uint64_t *heap, int32_t count, int32_t i)
{
    uint64_t moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < count; i = child) {
        child += child + 1 < count && heap[child + 1] > heap[child];
        if (heap[child] <= moved)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* A step near 0.38 n without a common factor with n: visits 0 ... n-1 out of order. */
static int32_t stride_of(int32_t n)
{
    for (int32_t step = n / 8 * 3 + 1;; step++) {
        int32_t a = n, b = step;
        while (b) {
            int32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

/* The `keep` smallest of `count` keys into a heap at the front; the largest of them is first.
 * The rest is visited out of order: rising logits would replace the largest at every step. */
static void heap_smallest(uint64_t *keys, int32_t count, int32_t keep)
{
    for (int32_t i = keep / 2 - 1; i >= 0; i--)
        sift(keys, keep, i);
    int32_t rest = count - keep, step = rest > 1 ? stride_of(rest) : 1;
    for (int32_t i = 0, at = 0; i < rest; i++) {
        if (keys[keep + at] < keys[0]) {
            keys[0] = keys[keep + at];
            sift(keys, keep, 0);
        }
        at += step;
        at -= at >= rest ? rest : 0;
    }
}

static void heap_sort(uint64_t *keys, int32_t count, int32_t keep)
{
    heap_smallest(keys, count, keep);
    for (int32_t last = keep - 1; last > 0; last--) {
        uint64_t largest = keys[0];
        keys[0] = keys[last];
        keys[last] = largest;
        sift(keys, last, 0);
    }
}

#define DIGIT 11 /* bits of a key sorted by in one pass: three passes for a logit */

/* c->list by stable passes over the digits from `first_bit` on; passes that would move nothing are left out. */
static void radix_sort(candidates *c, int32_t count, int first_bit)
{
    int32_t counts[6][1 << DIGIT];
    const int passes = (64 - first_bit + DIGIT - 1) / DIGIT;
    const uint64_t digit = (1 << DIGIT) - 1;
    memset(counts, 0, (size_t)passes * sizeof counts[0]);
    for (int32_t i = 0; i < count; i++)
        for (int pass = 0; pass < passes; pass++)
            counts[pass][c->list[i] >> (first_bit + DIGIT * pass) & digit]++;
    for (int pass = 0; pass < passes; pass++) {
        const int shift = first_bit + DIGIT * pass;
        if (counts[pass][c->list[0] >> shift & digit] == count)
            continue;
        for (int32_t d = 0, place = 0; d <= (int32_t)digit; d++) {
            int32_t here = counts[pass][d];
            counts[pass][d] = place;
            place += here;
        }
        for (int32_t i = 0; i < count; i++)
            c->spare[counts[pass][c->list[i] >> shift & digit]++] = c->list[i];
        uint64_t *swap = c->list;
        c->list = c->spare;
        c->spare = swap;
    }
}

void ie_sort_keys(candidates *c, int32_t count, int32_t keep, ie_order order)
{
    if (order == ORDER_LOGIT || !count)
        return;
    if (count <= 512 || keep <= 64)
        heap_sort(c->list, count, keep);
    else
        radix_sort(c, count, order == ORDER_ID ? 32 : 0);
}

/* ---- selecting ---- */

void ie_select_largest(candidates *c, int32_t k)
{
    IE_VECTORIZE
    for (int32_t b = 0; b < c->n_blocks; b++)
        c->spare[b] = key_of(c->block_max[b], b);
    heap_smallest(c->spare, c->n_blocks, k);
    const float bound = logit_of(c->spare[0]);

    /* Of the logits equal to the bound only the first k can be needed: all equal must not collect everything. */
    uint64_t *ties = c->spare;
    int32_t above = 0, equal = 0;
    for (int32_t b = 0; b < c->n_blocks; b++) {
        const float m = c->block_max[b], *x = c->block[b];
        if (m < bound || (m == bound && equal == k))
            continue;
        for (int32_t i = 0, end = block_length(c, b); i < end; i++) {
            if (x[i] > bound)
                c->list[above++] = key_of(x[i], b * BLOCK + i);
            else if (x[i] == bound && equal < k)
                ties[equal++] = key_of(bound, b * BLOCK + i);
        }
    }
    if (above)
        heap_sort(c->list, above, above < k ? above : k);
    IE_VECTORIZE
    for (int32_t i = 0; above + i < k; i++)
        c->list[above + i] = ties[i];
}

void ie_keep_largest(candidates *c, int32_t k)
{
    if (c->count < 0 && k <= c->n_blocks / 2) {
        ie_select_largest(c, k);
    } else {
        ie_make_list(c);
        ie_sort_keys(c, c->count, k, c->order);
    }
    c->count = k;
    c->order = ORDER_LOGIT;
}

double ie_weigh(candidates *c, float temp)
{
    const int32_t n = size_of(c);
    if (c->count >= 0) {
        IE_VECTORIZE
        for (int32_t i = 0; i < n; i++)
            c->weight[i] = logit_of(c->list[i]);
    }
    double total = 0;
    for (int32_t b = 0; b * BLOCK < n; b++) {
        float *w = c->weight + (int64_t)b * BLOCK;
        const int32_t length = n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK;
        c->block_sum[b] = c->kernels->weigh(c->count < 0 ? c->block[b] : w, length, c->max, temp, w);
        total += c->block_sum[b];
    }
    return total;
}
