/* SPDX-License-Identifier: MIT */
/* Bounds of the head. argmax chooses: no bound. */
#include "core/ops/lm_head.h"

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"

int lm_head_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_lm_head *a = args;
	struct plumb_ball *logits = plumb_bound_of(set, "logits");
	int status = bound_linear_of(env, a->w, a->x, a->T, a->w->rows, logits);

	(void)before;
	for (int64_t i = 0; i < a->T * a->w->rows && status == PLUMB_OK; i++)
		logits[i] = ball_out(env, logits[i]);
	return status;
}

int argmax_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	(void)env;
	(void)before;
	(void)args;
	(void)set;
	return PLUMB_OK;
}
