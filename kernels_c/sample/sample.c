/* sample.c: see sample.h for what is computed. Owns what each sampler keeps, the chain, and the draw.
 *
 * A share of the probability that lies below a limit by less than one part in a million counts as reaching it:
 * logits are rounded that coarsely, and a limit of 0.2 should keep a token of probability 0.2.
 */
#include "candidates.h"
#include "edits.h"
#include "../host/isa.h"

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif

#define NEARLY (1 - 1e-6)

/* ---- random numbers ---- */

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

/* ---- logarithm and power, without libm ---- */

typedef union {
    double f;
    uint64_t u;
} bits64;
#define LN_2 0x1.62e42fefa39efp-1

/* ln x of a normal x > 0: x = 2^e m with m near 1, ln m = 2 atanh((m - 1) / (m + 1)) by its series. */
static double logarithm(double x)
{
    bits64 v = {x};
    double e = (double)((int64_t)(v.u >> 52) - 1023);
    v.u = (v.u & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u;
    if (v.f > 0x1.6a09e667f3bcdp+0) {
        v.f *= 0.5;
        e += 1;
    }
    const double z = (v.f - 1) / (v.f + 1), s = z * z;
    double sum = 0;
    for (int k = 25; k >= 1; k -= 2)
        sum = sum * s + 1.0 / k;
    return e * LN_2 + 2 * z * sum;
}

/* x^y for 0 <= x <= 1 and y >= 0: e^(y ln x), by halving the exponent until its series is short. */
static double power(double x, double y)
{
    if (y == 1 || x == 1)
        return x;
    if (y == 0)
        return 1;
    if (x < 0x1p-1000)
        return 0;
    const double t = y * logarithm(x);
    if (t < -700)
        return 0;
    const double n = (double)(int32_t)(t / LN_2 - 0.5), r = t - n * LN_2;
    double sum = 1;
    for (int k = 18; k >= 1; k--)
        sum = 1 + sum * r / k;
    bits64 scale = {.u = (uint64_t)(int64_t)(n + 1023) << 52};
    return sum * scale.f;
}

/* ---- what the samplers keep ---- */

/* Top-n-sigma: logits below max - n * (standard deviation) become -inf. The variance comes from one pass over
 * d = max - x as E(d^2) - E(d)^2: the largest itself, at 0, is among them, so that what cancels is at most n times
 * what is left. */
static void top_n_sigma(candidates *c)
{
    const int32_t n = size_of(c);
    float *x = c->weight; /* a list's logits in a row */
    IE_VECTORIZE
    for (int32_t i = 0; i < c->count; i++)
        x[i] = logit_of(c->list[i]);
    double sums[3] = {0};
    for (int32_t b = 0; b * BLOCK < n; b++)
        c->kernels->moments(c->count < 0 ? c->block[b] : x + (int64_t)b * BLOCK,
                            n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK, c->max, sums);
    const double mean = sums[1] / sums[0], variance = sums[2] / sums[0] - mean * mean;
    const float bound = (float)((double)c->max - c->params->top_n_sigma * __builtin_sqrt(variance));
    for (int32_t i = 0; i < c->count; i++)
        if (x[i] < bound)
            c->list[i] = key_of(-INF, id_of(c->list[i]));
    static const float masked[BLOCK] = {[0 ... BLOCK - 1] = -INF};
    for (int32_t b = 0; c->count < 0 && b < c->n_blocks; b++) {
        if (c->block_max[b] < bound) { /* most blocks: no copy, they all share one */
            c->block[b] = masked;
            c->block_max[b] = -INF;
            continue;
        }
        float *own = ie_own_block(c, b);
        IE_VECTORIZE
        for (int32_t i = 0; i < BLOCK; i++) /* whole blocks vectorise; what lies behind the row's end is nobody's */
            own[i] = own[i] < bound ? -INF : own[i];
    }
}

/* How many of the list's first `count` are needed for their weights to reach the goal, and at least min_keep; 0 if all
 * are not enough. Weights stand in the order of the list, or where the index says for an id. */
static int32_t prefix(const candidates *c, int32_t count, const int32_t *index, double goal)
{
    double sum = 0;
    for (int32_t i = 0; i < count; i++) {
        sum += (double)c->weight[index ? index[id_of(c->list[i])] : i];
        if (sum >= goal && i + 1 >= c->params->min_keep)
            return i + 1;
    }
    return 0;
}

#define BUCKETS 2048
static int32_t bucket_of(float rank) { return rank < 32.0f ? (int32_t)(rank * (BUCKETS / 32)) : BUCKETS - 1; }
static float rank_of(const candidates *c, uint64_t key, double centre)
{
    return (float)__builtin_fabs((double)(c->max - logit_of(key)) - centre);
}

/* Orders a list by |(max - logit) - centre|, then ids, and keeps the shortest prefix whose weights reach the goal. A
 * centre of 0 is the order of logits. The weights are in c->weight, in the order of the list.
 * Only as many as will be kept are sorted: the weights are summed by bucket first. */
static void keep_nearest(candidates *c, double centre, double goal)
{
    double sums[BUCKETS] = {0}, sum = 0;
    for (int32_t i = 0; i < c->count; i++)
        sums[bucket_of(rank_of(c, c->list[i], centre))] += (double)c->weight[i];
    int32_t last = 0;
    for (; last < BUCKETS - 1 && sum + sums[last] <= goal * (1 + 1e-9); last++)
        sum += sums[last];
    last = c->params->min_keep > 1 ? BUCKETS - 1 : last;

    float *logit = c->own; /* of what is a list by now, the blocks are no longer used */
    int32_t count = 0;
    for (int32_t i = 0; i < c->count; i++) {
        const uint64_t key = c->list[i];
        const int32_t id = id_of(key);
        const float rank = rank_of(c, key, centre);
        if (bucket_of(rank) > last)
            continue;
        c->mark[id] = i;
        logit[id] = logit_of(key);
        c->list[count++] = centre > 0 ? (uint64_t)ie_bits(rank) << 32 | (uint32_t)id : key;
    }
    ie_sort_keys(c, count, count, c->order == ORDER_ID ? ORDER_ID : ORDER_OTHER);
    const int32_t kept = prefix(c, count, c->mark, goal);
    c->count = kept ? kept : count;
    for (int32_t i = 0; i < c->count; i++)
        c->list[i] = key_of(logit[id_of(c->list[i])], id_of(c->list[i]));
    c->order = centre > 0 ? ORDER_OTHER : ORDER_LOGIT;
    c->scanned = 0; /* the largest may be gone */
}

/* Typical: the distance of a candidate's information -ln p from the entropy is |(max - logit) - mean of the same|:
 * both contain ln of the sum of the weights, which cancels. A sum that nearly equals the limit is not greater yet. */
static void typical(candidates *c)
{
    ie_make_list(c);
    const double total = ie_weigh(c, 1);
    double mean = 0;
    for (int32_t i = 0; i < c->count; i++)
        if (c->weight[i] > 0)
            mean += (double)c->weight[i] * (double)(c->max - logit_of(c->list[i]));
    keep_nearest(c, mean / total, c->params->typical_p * total / NEARLY);
}

static void top_p(candidates *c)
{
    const double share = c->params->top_p * NEARLY;
    if (c->count >= 0) {
        ie_sort_keys(c, c->count, c->count, c->order);
        c->order = ORDER_LOGIT;
        const double total = ie_weigh(c, 1);
        const int32_t kept = prefix(c, c->count, NULL, share * total);
        c->count = kept ? kept : c->count;
        return;
    }
    const double total = ie_weigh(c, 1);
    const int32_t few = 64; /* nearly always enough */
    if (few <= c->n_blocks / 2 && c->params->min_keep <= few) {
        ie_select_largest(c, few);
        double sum = 0;
        for (int32_t i = 0; i < few; i++) {
            sum += (double)c->weight[id_of(c->list[i])];
            if (sum >= share * total && i + 1 >= c->params->min_keep) {
                c->count = i + 1;
                c->order = ORDER_LOGIT;
                return;
            }
        }
    }
    ie_make_list(c);
    keep_nearest(c, 0, share * total);
}

static void min_p(candidates *c)
{
    const double bound = (double)c->max + logarithm(c->params->min_p) - 1e-6;
    const int32_t size = size_of(c), keep = c->params->min_keep < size ? c->params->min_keep : size;
    int32_t count = 0;
    if (c->count < 0) {
        for (int32_t b = 0; b < c->n_blocks; b++)
            for (int32_t i = 0; (double)c->block_max[b] >= bound && i < block_length(c, b); i++)
                if ((double)c->block[b][i] >= bound)
                    c->list[count++] = key_of(c->block[b][i], b * BLOCK + i);
        if (count < keep) {
            if (keep < size)
                ie_keep_largest(c, keep);
            return;
        }
        c->count = count;
        c->order = ORDER_ID;
        return;
    }
    IE_VECTORIZE
    for (int32_t i = 0; i < c->count; i++)
        count += (double)logit_of(c->list[i]) >= bound;
    if (count < keep) {
        if (keep < size)
            ie_keep_largest(c, keep);
        return;
    }
    count = 0;
    for (int32_t i = 0; i < c->count; i++)
        if ((double)logit_of(c->list[i]) >= bound)
            c->list[count++] = c->list[i];
    c->count = count;
}

/* XTC: of the candidates whose probability reaches the threshold, all but the least likely are left out. */
static void xtc(candidates *c, uint64_t seed, uint64_t index)
{
    if (size_of(c) < 2 || ie_uniform(seed, index, 1) > c->params->xtc_probability)
        return;
    const double least = c->params->xtc_threshold * NEARLY * ie_weigh(c, 1);
    int32_t reach = 0;
    for (int32_t i = 0; i < size_of(c); i++)
        reach += (double)c->weight[i] >= least;
    const int32_t left = size_of(c) - reach + 1, keep = c->params->min_keep;
    if (reach < 2 || left < keep)
        return;
    ie_make_list(c); /* of every token in order of ids: the weights stay where they belong */
    uint64_t stays = 0;
    for (int32_t i = 0; i < c->count; i++)
        if ((double)c->weight[i] >= least && c->list[i] > stays && logit_of(c->list[i]) > -INF)
            stays = c->list[i];
    int32_t count = 0;
    for (int32_t i = 0; i < c->count; i++)
        if (!((double)c->weight[i] >= least) || c->list[i] == stays)
            c->list[count++] = c->list[i];
    c->count = count;
    c->scanned = 0;
}

/* ---- temperature ---- */

/* The temperature for these candidates: from the entropy where it is dynamic. 0: only the first largest is left. */
static float temperature_of(candidates *c)
{
    const ie_sample_params *p = c->params;
    const int32_t n = size_of(c);
    if (!(p->dynatemp_range > 0) || n < 2)
        return p->temp;
    const double total = ie_weigh(c, 1), low = (double)p->temp - p->dynatemp_range;
    double mean = 0;
    for (int32_t i = 0; i < n; i++)
        if (c->weight[i] > 0)
            mean += (double)c->weight[i] * (double)(c->max - (c->count < 0 ? logit_at(c, i) : logit_of(c->list[i])));
    double even = (logarithm(total) + mean / total) / logarithm((double)n);
    even = even < 0 ? 0 : even > 1 ? 1 : even;
    const double from = low > 0 ? low : 0, to = (double)p->temp + p->dynatemp_range;
    return (float)(from + (to - from) * power(even, p->dynatemp_exponent));
}

static int32_t first_largest(candidates *c)
{
    if (c->count < 0) {
        int32_t b = 0, i = 0;
        while (c->block_max[b] != c->max)
            b++;
        while (c->block[b][i] != c->max)
            i++;
        return b * BLOCK + i;
    }
    uint64_t best = c->list[0];
    IE_VECTORIZE
    for (int32_t i = 1; i < c->count; i++)
        best = c->list[i] < best ? c->list[i] : best;
    return id_of(best);
}

/* Divides the logits where samplers follow. A temperature so small that a quotient would be infinite counts as 0. */
static void temperature(candidates *c)
{
    const float temp = temperature_of(c);
    const int greedy = !(temp > 0) || c->max / temp == INF || c->max / temp == -INF;
    const int32_t best = greedy ? first_largest(c) : -1;
    for (int32_t i = 0; i < c->count; i++) {
        const float x = logit_of(c->list[i]);
        const int32_t id = id_of(c->list[i]);
        c->list[i] = key_of(greedy ? (id == best ? x : -INF) : x / temp, id);
    }
    for (int32_t b = 0; c->count < 0 && b < c->n_blocks; b++) {
        float *own = ie_own_block(c, b);
        for (int32_t i = 0; i < BLOCK; i++)
            own[i] = greedy ? (b * BLOCK + i == best ? own[i] : -INF) : own[i] / temp;
    }
    c->scanned = 0;
}

/* ---- the chain ---- */

/* The first candidate, in their order, at which the sum of the weights reaches the share u of all. */
static int32_t draw(candidates *c, float temp, double u)
{
    const int32_t n = size_of(c);
    const double goal = u * ie_weigh(c, temp);
    double sum = 0;
    int32_t last = 0;
    for (int32_t b = 0; b * BLOCK < n && (sum < goal || !sum); b++) {
        const double before = sum;
        sum += c->block_sum[b];
        if (!(c->block_sum[b] > 0))
            continue;
        const int32_t end = n - b * BLOCK < BLOCK ? n : (b + 1) * BLOCK;
        double within = before;
        for (int32_t i = b * BLOCK; sum >= goal && i < end; i++) {
            within += (double)c->weight[i];
            if (c->weight[i] > 0) {
                last = i;
                if (within >= goal)
                    break;
            }
        }
    }
    return c->count < 0 ? last : id_of(c->list[last]);
}

static void sampler(candidates *c, int step, const int32_t *history, int32_t n_history, uint64_t seed, uint64_t index)
{
    if (step == IE_SAMPLER_PENALTIES) {
        ie_edit_penalties(c, history, n_history);
        return;
    }
    if (step == IE_SAMPLER_DRY) {
        ie_edit_dry(c, history, n_history);
        return;
    }
    ie_scan(c);
    if (c->error)
        return;
    switch (step) {
    case IE_SAMPLER_TOP_N_SIGMA: top_n_sigma(c); break;
    case IE_SAMPLER_TOP_K:
        if (c->params->top_k < size_of(c))
            ie_keep_largest(c, c->params->top_k);
        break;
    case IE_SAMPLER_TYPICAL: typical(c); break;
    case IE_SAMPLER_TOP_P: top_p(c); break;
    case IE_SAMPLER_MIN_P: min_p(c); break;
    case IE_SAMPLER_XTC: xtc(c, seed, index); break;
    case IE_SAMPLER_TEMPERATURE: temperature(c); break;
    default: c->error = IE_SAMPLE_ARGS;
    }
}

#define DECLARE(isa, id) extern const ie_logit_kernels ie_logit_kernels_##isa;
IE_EACH_ISA(DECLARE)
#define ENTRY(isa, id) [IE_ISA_##id] = &ie_logit_kernels_##isa,
static const ie_logit_kernels *const kernels[IE_ISA_COUNT] = {IE_EACH_ISA(ENTRY)};

/* Portable code where there is no such instruction set. */
static const ie_logit_kernels *kernels_of(int isa)
{
    return kernels[isa >= 0 && isa < IE_ISA_COUNT && kernels[isa] ? isa : IE_ISA_PORTABLE];
}

void ie_logit_passes(int32_t isa, const float *x, int32_t n, float max, float temp, float *w, double *results)
{
    const ie_logit_kernels *kernels = kernels_of(isa);
    results[0] = kernels->weigh(x, n, max, temp, w);
    kernels->moments(x, n, max, results + 1);
}

/* Where the part after one of `bytes` begins. Under AddressSanitizer parts lie apart, and what is between them is
 * forbidden. */
static int64_t next_part(int64_t at, int64_t bytes, int used)
{
    int64_t next = (at + bytes + 63) / 64 * 64;
#if __has_feature(address_sanitizer)
    next += 64;
    if (used)
        __asan_poison_memory_region((void *)(uintptr_t)(at + bytes), (size_t)(next - at - bytes));
#endif
    (void)used;
    return next;
}

/* Hands out the work buffer; returns how much of it is used. `at` may be 0 to find out. */
static int64_t divide(candidates *c, int64_t at, int32_t n_history)
{
    const int64_t start = at, n = c->n, padded = (int64_t)c->n_blocks * BLOCK;
#define PART(field, count) \
    c->field = (void *)(uintptr_t)at; \
    at = next_part(at, (int64_t)sizeof *c->field * (count), start != 0)
    PART(block, c->n_blocks);
    PART(block_max, c->n_blocks);
    PART(block_sum, c->n_blocks);
    PART(list, n);
    PART(spare, n);
    PART(own, padded);
    PART(weight, padded);
    PART(mark, n);
    PART(match, n_history);
#undef PART
    return at - start;
}

int64_t ie_sample_work_bytes(int32_t n, int32_t n_history)
{
    candidates c = {.n = n, .n_blocks = (n - 1) / BLOCK + 1};
    return divide(&c, 0, n_history);
}

/* The chain and the draw, from every token on. */
static int32_t choose(candidates *c, const int32_t *history, int32_t n_history, uint64_t seed, uint64_t index,
                      int32_t *token)
{
    const ie_sample_params *p = c->params;
    ie_edit_bias(c);
    float temp = 1;
    for (int32_t i = 0; i < p->n_steps && !c->error; i++) {
        if (p->steps[i] != IE_SAMPLER_TEMPERATURE || i + 1 < p->n_steps) {
            sampler(c, p->steps[i], history, n_history, seed, index);
            continue;
        }
        ie_scan(c); /* nothing follows but the draw, which divides more exactly by itself */
        temp = c->error ? temp : temperature_of(c);
    }
    ie_scan(c);
    if (c->error) {
        *token = c->error == IE_SAMPLE_ARGS ? -1 : c->bad_token;
        return c->error;
    }
    *token = p->greedy || !(temp > 0) ? first_largest(c) : draw(c, temp, ie_uniform(seed, index, 0));
    return IE_SAMPLE_OK;
}

int32_t ie_sample(const float *logits, int32_t n, const ie_sample_params *p, const int32_t *history, int32_t n_history,
                  uint64_t seed, uint64_t index, void *work, int64_t work_bytes, int32_t *token)
{
    *token = -1;
    if (n < 1 || n > 1 << 30 || n_history < 0 || p->n_steps < 0 || p->n_steps > (int32_t)sizeof p->steps ||
        work_bytes < ie_sample_work_bytes(n, n_history))
        return IE_SAMPLE_ARGS;
    candidates c = {.params = p, .kernels = kernels_of(p->isa), .n = n, .n_blocks = (n - 1) / BLOCK + 1, .count = -1};
    divide(&c, (int64_t)(uintptr_t)work, n_history);
    c.row = logits;
    IE_VECTORIZE
    for (int32_t b = 0; b < c.n_blocks; b++)
        c.block[b] = logits + (int64_t)b * BLOCK;
    const int32_t status = choose(&c, history, n_history, seed, index, token);
#if __has_feature(address_sanitizer)
    __asan_unpoison_memory_region(work, (size_t)work_bytes); /* it is the caller's again */
#endif
    return status;
}
