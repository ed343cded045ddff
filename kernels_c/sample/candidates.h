/* candidates.h: the tokens that may still be drawn, and selecting among them.
 *
 * Owns: the two forms that a set of candidates takes, changing a logit, finding the largest, sorting. Does not own
 * what a sampler keeps (sample.c) or how it changes logits (edits.c).
 *
 * At first every token is a candidate, in order of ids, and its logit is read through a pointer per block of 128. A
 * block is copied when one of its logits is changed, so that the caller's row stays as it was and a few changes cost
 * a few blocks. A sampler that leaves out candidates turns them into a list. An entry of the list is a 64-bit key:
 * ascending keys are descending logits, then ascending ids; the logit can be got back from it.
 */
#ifndef IE_CANDIDATES_H
#define IE_CANDIDATES_H

#include "../include/formula.h"
#include "../include/vectorize.h"
#include "../include/logit_passes.h"
#include "sample.h"

#include <stddef.h>

#define BLOCK IE_LOGIT_BLOCK
#define INF __builtin_inff()
#define FLT_LARGEST 0x1.fffffep127f

typedef enum { ORDER_ID, ORDER_LOGIT, ORDER_OTHER } ie_order;

typedef struct {
    const ie_sample_params *params;
    const ie_logit_kernels *kernels;
    int32_t n, n_blocks;
    int32_t count;       /* entries of the list; -1: every token */
    ie_order order;      /* of the list */
    int32_t scanned;     /* block_max and max hold for what the blocks hold now */
    int32_t error;       /* first failure; *token of the row that shows it */
    int32_t bad_token;
    float max;           /* largest logit of the candidates, set by scan */
    const float *row;    /* as the caller gave it */
    const float **block; /* n_blocks, into row or own */
    float *own;          /* n_blocks * BLOCK: changed blocks */
    float *block_max;    /* n_blocks */
    float *weight;       /* n_blocks * BLOCK */
    double *block_sum;   /* n_blocks */
    uint64_t *list;      /* n */
    uint64_t *spare;     /* n */
    int32_t *mark;       /* n: by id, set before it is read */
    int32_t *match;      /* as many as the history that is looked at: for DRY */
} candidates;

static inline uint64_t key_of(float logit, int32_t id)
{
    uint32_t bits = ie_bits(logit + 0.0f); /* -0 becomes +0 */
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)~ascending << 32 | (uint32_t)id;
}
static inline int32_t id_of(uint64_t key) { return (int32_t)(uint32_t)key; }
static inline float logit_of(uint64_t key)
{
    uint32_t ascending = ~(uint32_t)(key >> 32);
    return ie_from_bits(ascending & 0x80000000u ? ascending & 0x7FFFFFFFu : ~ascending);
}
static inline int32_t block_length(const candidates *c, int32_t b)
{
    return c->n - b * BLOCK < BLOCK ? c->n - b * BLOCK : BLOCK;
}
/* While every token is a candidate. */
static inline float logit_at(const candidates *c, int32_t id) { return c->block[id / BLOCK][id % BLOCK]; }
static inline int32_t size_of(const candidates *c) { return c->count < 0 ? c->n : c->count; }

/* Block b as one that may be written to. */
float *ie_own_block(candidates *c, int32_t b);
/* Sets max, and while every token is a candidate block_max. Sets error when a logit is NaN or +inf, or all are -inf. */
void ie_scan(candidates *c);
/* From every token to a list in order of ids. */
void ie_make_list(candidates *c);
/* The first `keep` smallest of `count` keys to the front, in order. Order says what order they are in now. */
void ie_sort_keys(candidates *c, int32_t count, int32_t keep, ie_order order);
/* The k largest of every token into the front of the list, in order, which it leaves without effect until count is
 * set; 0 < k <= n_blocks / 2. Needs ie_scan. */
void ie_select_largest(candidates *c, int32_t k);
/* Keeps the k largest, sorted; 0 < k < size. Needs ie_scan. */
void ie_keep_largest(candidates *c, int32_t k);
/* e^((logit - max) / temp) of every candidate into weight, in their order; returns the sum. Needs ie_scan. */
double ie_weigh(candidates *c, float temp);

#endif
