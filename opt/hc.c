/* SPDX-License-Identifier: MIT */
/* Hyper-connection. Contracts: core/ops/hc.h. */
#include "core/ops/hc.h"

#include "core/order.h"
#include "kernels/hc.h"
#include "opt/device.h"
#include "opt/fuse.h"
#include "opt/matrix.h"
#include "opt/opt.h"

int hc_norm_down_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_norm_down *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden, R = a->down->rows;
	struct plumb_hc_norm norm = {
		.norm = a->norm->data,
		.format = (int)a->norm->format,
		.streams = (int)S,
		.hidden = D,
		.eps = env->cfg->rms_norm_eps,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	struct plumb_hc_down down = {
		.down = plumb_matrix_of(a->down),
		.inject = plumb_matrix_of(a->inject),
		.streams = (int)S,
		.low_rank = R,
		.cols = S * D,
		.pieces = plumb_split_count(R + S, S * D),
		.bf16 = norm.bf16,
	};
	int status = plumb_vector_check(env, "hc_norm_down: norm", a->norm);

	if (status == PLUMB_OK)
		status = plumb_matrix_check(env, "hc_norm_down: down", a->down);
	if (status == PLUMB_OK && a->inject)
		status = plumb_matrix_check(env, "hc_norm_down: inject", a->inject);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		norm.residual = a->residual + t * S * D;
		norm.normed = a->normed + t * S * D;
		down.normed = norm.normed;
		down.low = a->low + t * R;
		down.inject_logits = a->inject ? a->inject_logits + t * S : NULL;
		status = plumb_fuse_hc_norm_down(env, &norm, &down);
	}
	return status;
}

int hc_up_mix_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_up_mix *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden, R = a->up->cols;
	struct plumb_hc_up up = {
		.up = plumb_matrix_of(a->up),
		.streams = (int)S,
		.hidden = D,
		.low_rank = R,
		.pieces = plumb_split_count(S * D, R),
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = plumb_matrix_check(env, "hc_up_mix: up", a->up);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		up.normed = a->normed + t * S * D;
		up.low = a->low + t * R;
		up.inject_logits = a->inject_logits ? a->inject_logits + t * S : NULL;
		up.mixed = a->mixed + t * D;
		up.injection = a->injection ? a->injection + t * S : NULL;
		status = PLUMB_RUN(env, hc_up_mix, &up);
	}
	return status;
}

int hc_inject_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_inject *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;
	struct plumb_hc_inject_launch launch = {
		.streams = (int)S,
		.hidden = D,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = PLUMB_OK;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.residual = a->residual + t * S * D;
		launch.branch = a->branch + t * D;
		launch.injection = a->injection + t * S;
		launch.residual_out = a->residual_out + t * S * D;
		status = plumb_fuse_hc_inject(env, &launch);
	}
	return status;
}
