/* edits.h: samplers that change logits by what was said before. Their formulas: docs/sampling.md. */
#ifndef IE_EDITS_H
#define IE_EDITS_H

#include "candidates.h"

/* The biases of the parameters; while every token is a candidate. */
void ie_edit_bias(candidates *c);
/* Repetition, frequency and presence penalties. */
void ie_edit_penalties(candidates *c, const int32_t *history, int32_t n_history);
/* DRY: a penalty for going on with a repetition. Linear in its window. */
void ie_edit_dry(candidates *c, const int32_t *history, int32_t n_history);

#endif
