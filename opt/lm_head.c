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
	/* counters are as aligned as any memory of the device */
	struct plumb_argmax_cell *cell = (void *)plumb_device_counters(env, sizeof *cell / sizeof(uint32_t));
	int status = cell ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++)
		status = PLUMB_RUN(env, argmax, a->logits + t * V, V, cell, a->token + t);
	return status;
}
