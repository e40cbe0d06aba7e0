/* SPDX-License-Identifier: MIT */
/* Logits in the order of core/ops/lm_head.h. argmax compares and computes nothing: the oracle is its own twin. */
#include "core/ops/lm_head.h"

#include "ref/ref.h"
#include "ref/twin/twin.h"

int lm_head_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	return twin_linear(env, a->w, a->x, a->T, a->w->rows, a->logits);
}

int argmax_twin(const struct plumb_env *env, const void *args)
{
	return argmax_ref(env, args);
}
