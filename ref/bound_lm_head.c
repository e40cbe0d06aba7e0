/* SPDX-License-Identifier: MIT */
/* Bounds of the head. argmax chooses: no bound. */
#include "core/ops/lm_head.h"

#include "ref/bound_parts.h"

int lm_head_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_lm_head *a = args;

	(void)before;
	return bound_projection(env, a->w, a->x, a->T, a->w->rows, plumb_bound_of(set, "logits"));
}

int argmax_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	(void)env;
	(void)before;
	(void)args;
	(void)set;
	return PLUMB_OK;
}
