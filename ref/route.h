/* SPDX-License-Identifier: MIT */
/* The parts of routing that a comparison needs by themselves: when it goes on with another choice of experts, their
 * weights follow from the same probabilities. */
#ifndef PLUMB_REF_ROUTE_H
#define PLUMB_REF_ROUTE_H

#include "core/op.h"

/* prob = softmax(logits), stored as binary32: what the choice is made on. logits, prob: (E). */
void route_prob_ref(const float *logits, int64_t E, float *prob);

/* weight of the chosen experts: prob / sum of the chosen, or prob itself without norm_topk_prob. expert, weight: (A). */
void route_weight_ref(const struct plumb_env *env, const float *prob, const int32_t *expert, float *weight);

#endif
