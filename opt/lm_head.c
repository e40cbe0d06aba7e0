/* SPDX-License-Identifier: MIT */
/* Logits and the greedy token. Contracts: core/ops/lm_head.h. */
#include "core/ops/lm_head.h"

#include "kernels/lm_head.h"
#include "opt/device.h"
#include "opt/linear.h"
#include "opt/opt.h"

int lm_head_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	const struct linear_part part = {a->w, a->logits, "lm_head: w"};
	return linear_opt(env, a->x, a->T, &part, 1);
}

int argmax_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_argmax *a = args;
	int64_t V = env->cfg->vocab;
	uint64_t *key = plumb_device_scratch(env, 0, (size_t)a->T * sizeof *key); /* (T) */
	int status = key ? PLUMB_RUN(env, argmax_clear, key, a->T) : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++)
		status = PLUMB_RUN(env, argmax, a->logits + t * V, V, key + t);
	if (status == PLUMB_OK)
		status = PLUMB_RUN(env, argmax_token, key, a->T, a->token);
	return status;
}
