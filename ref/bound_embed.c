/* SPDX-License-Identifier: MIT */
/* Copies: no error is allowed. */
#include "core/ops/embed.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"
#include "ref/linear.h"

int embed_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_embed *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;
	struct plumb_ball *residual = plumb_bound_of(set, "residual");
	float *row = scratch_ref(env, D, sizeof *row);

	(void)before;
	for (int64_t t = 0; row && t < a->T; t++) {
		plumb_weight_row(a->table, a->token[t], 0, D, row);
		for (int64_t s = 0; s < S; s++)
			bound_exact_copy(row, D, residual + (t * S + s) * D);
	}
	int status = row ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(row);
	return status;
}
