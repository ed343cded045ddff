/* sample.h: one token id from one row of logits and the tokens before it.
 *
 * Owns: the samplers, their chain, the draw, and the random numbers it draws with. Does not own memory: the caller
 * gives the work buffer. Which samplers are off, and what options mean, is decided before (ie/sample).
 *
 * A pure function of its arguments: no state, no libm, one written order of every sum, the same bits on every
 * instruction set. Equal logits stand in order of their ids, -0 equals +0, and -inf is a mask that is never drawn.
 * Formulas: docs/sampling.md.
 */
#ifndef IE_SAMPLE_H
#define IE_SAMPLE_H

#include <stdint.h>

#pragma GCC visibility push(default)

/* CDEF BEGIN */

/* ---- sampling ---- */
enum {
    IE_SAMPLE_OK = 0,
    IE_SAMPLE_NAN = -1,    /* *token is the first id whose logit is NaN or +inf */
    IE_SAMPLE_INF = -2,
    IE_SAMPLE_MASKED = -3, /* every logit is -inf */
    IE_SAMPLE_ARGS = -4,   /* n < 1, a step that does not exist, or the work buffer is too small */
};
enum {
    IE_SAMPLER_PENALTIES,
    IE_SAMPLER_DRY,
    IE_SAMPLER_TOP_N_SIGMA,
    IE_SAMPLER_TOP_K,
    IE_SAMPLER_TYPICAL,
    IE_SAMPLER_TOP_P,
    IE_SAMPLER_MIN_P,
    IE_SAMPLER_XTC,
    IE_SAMPLER_TEMPERATURE,
};
typedef struct {
    double repeat_penalty, frequency_penalty, presence_penalty;
    double dry_multiplier, dry_base;
    double top_n_sigma, top_p, typical_p, min_p, xtc_probability, xtc_threshold;
    double dynatemp_range, dynatemp_exponent;
    float temp;                /* > 0 */
    int32_t greedy;            /* non-zero: the first largest of what the chain leaves, nothing is drawn */
    int32_t repeat_last_n;     /* tokens; < 0: the whole history, as for dry_last_n */
    int32_t dry_last_n, dry_allowed_length;
    int32_t top_k, min_keep;
    int32_t isa;               /* of the passes over the row; the result does not depend on it */
    int32_t n_steps;           /* the samplers that are on, in order */
    uint8_t steps[64];
    int32_t n_bias;            /* added to the logits of these ids before the chain; -inf: never drawn */
    int32_t n_breakers;
    const int32_t *bias_ids;
    const float *bias;
    /* A breaker is a first token and a tail, tokens [tail_start[i], tail_start[i + 1]) of tails; none if the token
     * alone breaks. In ascending order of the first token, then longest tail first. */
    const int32_t *breaker_heads;
    const int32_t *tail_start;
    const int32_t *tails;
} ie_sample_params;

/* A number in [0, 1) with 53 bits, keyed by the request's seed, the index of the generated token, and a stream:
 * 0 for the draw, 1 for XTC. SplitMix64: the finaliser of key + (index + 1) * 0x9E3779B97F4A7C15, where key is the
 * seed for stream 0. */
double ie_uniform(uint64_t seed, uint64_t index, uint64_t stream);

/* Bytes of work, 64-byte aligned, that ie_sample needs for n logits and a history: about 28 a logit. */
int64_t ie_sample_work_bytes(int32_t n, int32_t n_history);

/* Samples from n logits into *token after n_history tokens (the last ones of the text; as many as the longest window
 * needs). Returns a code above.
 * Cost: with 0 < top_k <= n / 256 one read of the logits and little more; without, n exponentials where a sampler or
 * the draw needs the probability of every token. */
int32_t ie_sample(const float *logits, int32_t n, const ie_sample_params *params, const int32_t *history,
                  int32_t n_history, uint64_t seed, uint64_t index, void *work, int64_t work_bytes, int32_t *token);

/* The passes over one block of n <= 128 logits by an instruction set: w as in logit_passes.h; results: the sum of w,
 * and the three sums of `moments` there, added to what they hold. For tests. */
void ie_logit_passes(int32_t isa, const float *x, int32_t n, float max, float temp, float *w, double *results);

/* CDEF END */

#pragma GCC visibility pop

#endif
