/* SPDX-License-Identifier: MIT */
/* Embedding rows, repeated over the residual streams. Contract: core/ops/embed.h. */
#include "core/ops/embed.h"

#include "ref/ref.h"

int embed_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_embed *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;

	for (int64_t t = 0; t < a->T; t++)
		for (int64_t s = 0; s < S; s++)
			plumb_weight_row(a->table, a->token[t], 0, D, a->residual + (t * S + s) * D);
	return PLUMB_OK;
}
