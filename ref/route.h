/* SPDX-License-Identifier: MIT */
/* Parts of routing. Those with weights a comparison needs by themselves: when it goes on with another choice of experts,
 * their weights follow from the same probabilities. */
#ifndef PLUMB_REF_ROUTE_H
#define PLUMB_REF_ROUTE_H

#include "core/op.h"

/* An id that no router may give must show, and must read nothing: hidden and y are NaN for it. */
static inline bool route_is_expert(const struct plumb_env *env, int32_t expert)
{
	return expert >= 0 && expert < env->cfg->experts;
}

/* prob = softmax(logits), stored as binary32: what the choice is made on. logits, prob: (E). */
void route_prob_ref(const float *logits, int64_t E, float *prob);

/* weight of the chosen experts: prob / sum of the chosen, or prob itself without norm_topk_prob. expert, weight: (A). */
void route_weight_ref(const struct plumb_env *env, const float *prob, const int32_t *expert, float *weight);

#endif
