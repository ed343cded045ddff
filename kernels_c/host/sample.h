/* sample.h: one token id from one row of logits.
 *
 * Owns: argmax, the selection of the largest, the chain top-k, top-p, min-p, temperature, draw, and the random
 * numbers it draws with. Does not own: penalties and biases (they change logits before), or memory: the caller gives
 * the work buffer. ie/sample.py repeats the declarations below for cffi.
 *
 * A pure function of its arguments: no state, no libm, one written order of every sum. Equal logits stand in order of
 * their ids, -0 equals +0, and -inf is a mask that is never drawn.
 */
#ifndef IE_SAMPLE_H
#define IE_SAMPLE_H

#include <stdint.h>

#pragma GCC visibility push(default)

enum {
    IE_SAMPLE_OK = 0,
    IE_SAMPLE_NAN = -1,    /* *token is the first id whose logit is NaN */
    IE_SAMPLE_INF = -2,    /* *token is the first id whose logit is +inf */
    IE_SAMPLE_MASKED = -3, /* every logit is -inf */
    IE_SAMPLE_ARGS = -4,   /* n < 1, or the work buffer is too small */
};

typedef struct {
    double top_p;  /* keep the shortest prefix of the descending list whose share is at least this; >= 1: off */
    float min_p;   /* keep what is at least this much as likely as the likeliest; <= 0: off */
    float temp;    /* divides the logits of what is left; <= 0: the first largest logit, nothing is drawn */
    int32_t top_k; /* keep this many; <= 0 or >= n: off */
    int32_t reserved;
} ie_sample_params;

/* A number in [0, 1) with 53 bits, keyed by the request's seed, the index of the generated token, and a stream:
 * 0 for the draw, others for samplers that need numbers of their own. SplitMix64: the finaliser of
 * key + (index + 1) * 0x9E3779B97F4A7C15, where key is the seed for stream 0. */
double ie_uniform(uint64_t seed, uint64_t index, uint64_t stream);

/* Bytes of work that ie_sample needs for n logits: 16.1 a logit. */
int64_t ie_sample_work_bytes(int32_t n);

/* The lowest id with the largest of n logits, into *token. Returns a code above. Reads each logit once. */
int32_t ie_argmax(const float *logits, int32_t n, int32_t *token);

/* Samples from n logits into *token; `work` is 8-byte aligned. Returns a code above.
 * Cost: with 0 < top_k <= n / 128 one read of the logits and little more; with top_k off, n exponentials, and a sort
 * of as many as top_p keeps. */
int32_t ie_sample(const float *logits, int32_t n, const ie_sample_params *params, uint64_t seed, uint64_t index,
                  void *work, int64_t work_bytes, int32_t *token);

#pragma GCC visibility pop

#endif
