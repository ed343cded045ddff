/* sample.c: see sample.h for what is computed.
 *
 * Selecting the k largest of n: the logits are cut into blocks of 128 and each block's maximum is noted (the one pass
 * over the data, vectorised). The k-th largest of these maxima, t, is a lower bound of the k-th largest logit, since k
 * blocks each hold one at least as large. Only blocks that reach t are looked into: about k of them.
 * Where k is not small against the number of blocks, everything is sorted instead (radix, four passes).
 */
#include "sample.h"
#include "../include/formula.h"

#define BLOCK 128
#define LANES 8 /* two SSE registers: more would cost more to reduce than they hide */
#define INF __builtin_inff()

typedef struct {
    const float *logits;
    int32_t n, n_blocks;
    float max;
    float *block_max; /* n_blocks */
    uint64_t *list;   /* n: the candidates in descending order, as keys */
    uint64_t *spare;  /* n */
} selection;

static uint64_t finalise(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double ie_uniform(uint64_t seed, uint64_t index, uint64_t stream)
{
    uint64_t key = stream ? finalise(seed + stream * 0xD1342543DE82EF95u) : seed;
    return (double)(finalise(key + (index + 1) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

/* Ascending order of keys is descending order of logits, then ascending order of ids. */
static uint64_t key_of(float logit, int32_t id)
{
    uint32_t bits = ie_bits(logit + 0.0f); /* -0 becomes +0 */
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)~ascending << 32 | (uint32_t)id;
}
static int32_t id_of(uint64_t key) { return (int32_t)(uint32_t)key; }

/* Largest of a block; sets *bad if any is NaN or +inf. */
static float max_of_block(const float *x, int32_t count, uint32_t *bad)
{
    float best[LANES];
    uint32_t flag[LANES];
    for (int j = 0; j < LANES; j++) {
        best[j] = -INF;
        flag[j] = 0;
    }
    int32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float v = x[i + j];
            best[j] = v > best[j] ? v : best[j];
            flag[j] |= v < INF ? 0u : ~0u;
        }
    for (int j = 0; i < count; i++, j++) {
        best[j] = x[i] > best[j] ? x[i] : best[j];
        flag[j] |= x[i] < INF ? 0u : ~0u;
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) {
            best[j] = best[j + half] > best[j] ? best[j + half] : best[j];
            flag[j] |= flag[j + half];
        }
    *bad |= flag[0];
    return best[0];
}

/* Why the row cannot be sampled, and the first id that shows it. */
static int32_t refuse(const float *x, int32_t n, int32_t *token)
{
    for (int32_t i = 0; i < n; i++)
        if (!(x[i] < INF)) {
            *token = i;
            return x[i] != x[i] ? IE_SAMPLE_NAN : IE_SAMPLE_INF;
        }
    *token = -1;
    return IE_SAMPLE_MASKED;
}

int32_t ie_argmax(const float *logits, int32_t n, int32_t *token)
{
    *token = -1;
    if (n < 1)
        return IE_SAMPLE_ARGS;
    uint32_t bad = 0;
    float best = -INF;
    int32_t at = 0;
    for (int32_t start = 0; start < n; start += BLOCK) {
        float m = max_of_block(logits + start, n - start < BLOCK ? n - start : BLOCK, &bad);
        at = m > best ? start : at;
        best = m > best ? m : best;
    }
    if (bad || best == -INF)
        return refuse(logits, n, token);
    while (logits[at] != best)
        at++;
    *token = at;
    return IE_SAMPLE_OK;
}

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

/* The `keep` smallest of `count` keys to the front, in ascending order. */
static void sort_smallest(uint64_t *keys, int32_t count, int32_t keep)
{
    heap_smallest(keys, count, keep);
    for (int32_t last = keep - 1; last > 0; last--) {
        uint64_t largest = keys[0];
        keys[0] = keys[last];
        keys[last] = largest;
        sift(keys, last, 0);
    }
}

/* All candidates into s->list, sorted. Stable passes over keys that start in order of ids. */
static void sort_all(selection *s)
{
    int32_t counts[4][256] = {{0}};
    for (int32_t i = 0; i < s->n; i++) {
        uint64_t key = key_of(s->logits[i], i);
        s->list[i] = key;
        for (int pass = 0; pass < 4; pass++)
            counts[pass][key >> (32 + 8 * pass) & 255]++;
    }
    for (int pass = 0; pass < 4; pass++) {
        int32_t place = 0;
        for (int digit = 0; digit < 256; digit++) {
            int32_t count = counts[pass][digit];
            counts[pass][digit] = place;
            place += count;
        }
        for (int32_t i = 0; i < s->n; i++)
            s->spare[counts[pass][s->list[i] >> (32 + 8 * pass) & 255]++] = s->list[i];
        uint64_t *swap = s->list;
        s->list = s->spare;
        s->spare = swap;
    }
}

/* The k largest logits into the front of s->list, in order; 0 < k <= n. */
static void select_top(selection *s, int32_t k)
{
    if (k > s->n_blocks / 2) {
        sort_all(s);
        return;
    }
    for (int32_t b = 0; b < s->n_blocks; b++)
        s->spare[b] = key_of(s->block_max[b], b);
    heap_smallest(s->spare, s->n_blocks, k);
    float bound = s->block_max[id_of(s->spare[0])];

    /* Of the logits equal to the bound only the first k can be needed: all equal must not collect everything. */
    uint64_t *ties = s->spare;
    int32_t above = 0, equal = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        float m = s->block_max[b];
        if (m < bound || (m == bound && equal == k))
            continue;
        int32_t end = (b + 1) * BLOCK < s->n ? (b + 1) * BLOCK : s->n;
        for (int32_t i = b * BLOCK; i < end; i++) {
            if (s->logits[i] > bound)
                s->list[above++] = key_of(s->logits[i], i);
            else if (s->logits[i] == bound && equal < k)
                ties[equal++] = key_of(bound, i);
        }
    }
    sort_smallest(s->list, above, above < k ? above : k);
    for (int32_t i = 0; above + i < k; i++)
        s->list[above + i] = ties[i];
}

/* e^(logit - largest) of the i-th in the list. */
static float share(const selection *s, int32_t i) { return ie_exp(s->logits[id_of(s->list[i])] - s->max); }

/* Length of the shortest prefix of the list's first `count` whose sum reaches `goal`; 0 if none does. */
static int32_t prefix(const selection *s, int32_t count, double goal)
{
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        sum += (double)share(s, i);
        if (sum >= goal)
            return i + 1;
    }
    return 0;
}

/* Top-p over everything, without sorting more than needed: the list is selected in growing lengths. */
static int32_t top_p_of_all(selection *s, double top_p)
{
    float *weight = (float *)s->spare;
    for (int32_t i = 0; i < s->n; i++) /* apart from the sum, whose order is fixed, this vectorises */
        weight[i] = ie_exp(s->logits[i] - s->max);
    double total = 0;
    for (int32_t i = 0; i < s->n; i++)
        total += (double)weight[i];
    for (int32_t count = 64; count <= s->n_blocks / 2; count *= 8) {
        select_top(s, count);
        int32_t kept = prefix(s, count, top_p * total);
        if (kept)
            return kept;
    }
    sort_all(s);
    int32_t kept = prefix(s, s->n, top_p * total);
    return kept ? kept : s->n; /* the same terms in another order may fall short of their sum by rounding */
}

/* Top-k and top-p. Returns how many are left in s->list, in order; 0: all are left and the list is not made. */
static int32_t truncate_list(selection *s, const ie_sample_params *p)
{
    int32_t count = 0;
    if (p->top_k > 0 && p->top_k < s->n) {
        count = p->top_k;
        select_top(s, count);
    }
    if (!(p->top_p < 1))
        return count;
    if (!count)
        return top_p_of_all(s, p->top_p);
    double total = 0;
    for (int32_t i = 0; i < count; i++)
        total += (double)share(s, i);
    return prefix(s, count, p->top_p * total); /* the same sum in the same order: some prefix reaches it */
}

/* Min-p, temperature, draw: in list order where there is a list, else in order of ids. */
static int32_t draw(const selection *s, const ie_sample_params *p, int32_t count, double u)
{
    int32_t n = count ? count : s->n;
    float *weight = (float *)s->spare;
    for (int32_t i = 0; i < n; i++)
        weight[i] = s->logits[count ? id_of(s->list[i]) : i] - s->max;
    for (int32_t i = 0; i < n; i++)
        weight[i] = p->min_p > 0 && ie_exp(weight[i]) < p->min_p ? 0.0f : ie_exp(weight[i] / p->temp);
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double)weight[i];
    int32_t last = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)weight[i];
        if (weight[i] > 0) {
            last = i;
            if (sum >= u * total)
                break;
        }
    }
    return count ? id_of(s->list[last]) : last;
}

int64_t ie_sample_work_bytes(int32_t n)
{
    int64_t blocks = ((int64_t)n + BLOCK - 1) / BLOCK;
    return 16 * (int64_t)n + 4 * (blocks + blocks % 2);
}

int32_t ie_sample(const float *logits, int32_t n, const ie_sample_params *p, uint64_t seed, uint64_t index,
                  void *work, int64_t work_bytes, int32_t *token)
{
    if (!(p->temp > 0))
        return ie_argmax(logits, n, token);
    *token = -1;
    if (n < 1 || work_bytes < ie_sample_work_bytes(n))
        return IE_SAMPLE_ARGS;
    uint64_t *keys = work;
    selection s = {logits, n, (n - 1) / BLOCK + 1, -INF, (float *)(keys + 2 * (int64_t)n), keys, keys + n};
    uint32_t bad = 0;
    for (int32_t b = 0; b < s.n_blocks; b++) {
        int32_t start = b * BLOCK;
        s.block_max[b] = max_of_block(logits + start, n - start < BLOCK ? n - start : BLOCK, &bad);
        s.max = s.block_max[b] > s.max ? s.block_max[b] : s.max;
    }
    if (bad || s.max == -INF)
        return refuse(logits, n, token);
    int32_t count = truncate_list(&s, p);
    *token = draw(&s, p, count, ie_uniform(seed, index, 0));
    return IE_SAMPLE_OK;
}
