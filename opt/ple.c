/* SPDX-License-Identifier: MIT */
/* Host side of the PLE kernels. Contracts: core/ops/ple.h. */
#include "core/ops/ple.h"

#include <math.h>

#include "core/numeric.h"
#include "kernels/ple.h"
#include "opt/device.h"
#include "opt/linear.h"
#include "opt/matrix.h"
#include "opt/opt.h"

/* Scratch slots of plumb_device_scratch. */
enum { PROJECTED = 0 }; /* (S*D + D) key, value of one token */

int ple_embed_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_embed *a = args;
	const struct plumb_config *cfg = env->cfg;
	struct plumb_device_bank table;
	int Hg = plumb_ngram_heads(cfg);
	int status = plumb_device_bank(env, a->table, a->shards, &table);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		struct plumb_ple_embed_launch launch = {
			.token = a->token + t,
			.history = a->history,
			.ngram = a->ngram,
			.table = table.matrices,
			.shard_rows = a->shard_rows,
			.width = table.cols,
			.ngram_size = cfg->ngram,
			.heads = Hg,
			.heads_per_ngram = cfg->heads_per_ngram,
			.eos = cfg->eos,
			.row = a->row + t * Hg,
			.embedding = a->embedding + t * cfg->ple_dim,
		};
		status = PLUMB_RUN(env, ple_embed, &launch);
	}
	return status;
}

int ple_gate_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_gate *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t S = cfg->streams, D = cfg->hidden, SD = S * D;
	float *projected = plumb_device_scratch(env, PROJECTED, (size_t)(SD + D) * sizeof *projected);
	const struct linear_part part[] = {
		{a->key_proj, projected, "ple_gate: key_proj"},
		{a->value_proj, projected + SD, "ple_gate: value_proj"},
	};
	struct plumb_ple_gate_launch launch = {
		.key = projected,
		.value = projected + SD,
		.norm_key = {a->norm_key->data, (int)a->norm_key->format},
		.norm_query = {a->norm_query->data, (int)a->norm_query->format},
		.norm_conv = {a->norm_conv->data, (int)a->norm_conv->format},
		.streams = S,
		.hidden = D,
		.eps = cfg->rms_norm_eps,
		.root = (float)sqrt((double)D),
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = projected ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "ple_gate: norm_key", a->norm_key);
	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "ple_gate: norm_query", a->norm_query);
	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "ple_gate: norm_conv", a->norm_conv);
	launch.least = launch.bf16 ? plumb_round_bf16(1e-6f) : 1e-6f;
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.residual = a->residual + t * SD;
		launch.gated = a->gated + t * SD;
		launch.conv_in = a->conv_in + t * SD;
		status = linear_opt(env, a->embedding + t * cfg->ple_dim, 1, part, 2);
		if (status == PLUMB_OK)
			status = PLUMB_RUN(env, ple_gate, &launch);
	}
	return status;
}

int ple_conv_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_conv *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t SD = cfg->streams * cfg->hidden;
	struct plumb_ple_conv_launch launch = {
		.position = a->position,
		.conv = a->conv->data,
		.format = (int)a->conv->format,
		.window = a->window,
		.channels = SD,
		.taps = cfg->ple_conv_taps,
		.dilation = cfg->ngram,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = plumb_vector_check(env, "ple_conv: conv", a->conv);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.row = (int)t;
		launch.gated = a->gated + t * SD;
		launch.conv_in = a->conv_in + t * SD;
		launch.residual = a->residual + t * SD;
		launch.output = a->output + t * SD;
		launch.residual_out = a->residual_out + t * SD;
		status = PLUMB_RUN(env, ple_conv, &launch);
	}
	return status;
}
