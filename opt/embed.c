/* SPDX-License-Identifier: MIT */
/* Embedding rows. Contract: core/ops/embed.h. */
#include "core/ops/embed.h"

#include "kernels/embed.h"
#include "opt/device.h"
#include "opt/matrix.h"
#include "opt/opt.h"

int embed_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_embed *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;
	struct plumb_matrix table = plumb_matrix_of(a->table);
	int status = plumb_matrix_check(env, "embed: table", a->table);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++)
		status = PLUMB_RUN(env, embed, a->token + t, &table, (int)S, D, a->residual + t * S * D);
	return status;
}
