/* SPDX-License-Identifier: MIT */
/* Logits and the greedy token. Contracts: core/ops/lm_head.h. */
#include "core/ops/lm_head.h"

#include <math.h>

#include "ref/linear.h"
#include "ref/ref.h"

int lm_head_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	return linear_ref(env, a->w, a->x, a->T, a->logits);
}

int argmax_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_argmax *a = args;
	int64_t V = env->cfg->vocab;

	for (int64_t t = 0; t < a->T; t++) {
		const float *row = a->logits + t * V;
		int64_t best = -1;
		for (int64_t i = 0; i < V; i++)
			if (!isnan(row[i]) && (best < 0 || row[i] > row[best]))
				best = i;
		a->token[t] = (int32_t)best;
	}
	return PLUMB_OK;
}
