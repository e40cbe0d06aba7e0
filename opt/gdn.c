/* SPDX-License-Identifier: MIT */
/* Host side of the GDN kernels. Contracts: core/ops/gdn.h. */
#include "core/ops/gdn.h"

#include <math.h>

#include "kernels/gdn.h"
#include "opt/fuse.h"
#include "opt/linear.h"
#include "opt/matrix.h"
#include "opt/opt.h"

int gdn_in_proj_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_in_proj *a = args;
	const struct linear_part part[] = {
		{a->w_qkv, a->qkv, "gdn_in_proj: w_qkv"},
		{a->w_z, a->z, "gdn_in_proj: w_z"},
		{a->w_b, a->b, "gdn_in_proj: w_b"},
		{a->w_a, a->a, "gdn_in_proj: w_a"},
	};
	return linear_opt(env, a->x, a->T, part, 4);
}

int gdn_conv_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_conv *a = args;
	int64_t C = plumb_gdn_channels(env->cfg);
	struct plumb_gdn_conv_launch launch = {
		.position = a->position,
		.conv = a->conv->data,
		.format = (int)a->conv->format,
		.window = a->window,
		.channels = C,
		.taps = env->cfg->gdn_conv_taps,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = plumb_vector_check(env, "gdn_conv: conv", a->conv);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.row = (int)t;
		launch.qkv = a->qkv + t * C;
		launch.y = a->y + t * C;
		status = plumb_fuse_gdn_conv(env, &launch);
	}
	return status;
}

int gdn_recurrence_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_recurrence *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t C = plumb_gdn_channels(cfg), Hv = cfg->gdn_value_heads;
	struct plumb_gdn_recurrence_launch launch = {
		.a_log = a->a_log->data,
		.dt_bias = a->dt_bias->data,
		.a_log_format = (int)a->a_log->format,
		.dt_bias_format = (int)a->dt_bias->format,
		.state = a->state,
		.state_format = (int)a->state_format,
		.key_heads = cfg->gdn_key_heads,
		.value_heads = Hv,
		.key_dim = cfg->gdn_key_dim,
		.value_dim = cfg->gdn_value_dim,
		.root = (float)sqrt((double)cfg->gdn_key_dim),
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = plumb_vector_check(env, "gdn_recurrence: a_log", a->a_log);

	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "gdn_recurrence: dt_bias", a->dt_bias);
	if (status == PLUMB_OK)
		status = plumb_gdn_recurrence_check(env, a);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.y = a->y + t * C;
		launch.b = a->b + t * Hv;
		launch.a = a->a + t * Hv;
		launch.o = a->o + t * Hv * cfg->gdn_value_dim;
		status = plumb_fuse_gdn_recurrence(env, &launch);
	}
	return status;
}

int gdn_norm_gate_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_norm_gate *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t width = cfg->gdn_value_heads * cfg->gdn_value_dim;
	struct plumb_gdn_norm_gate_launch launch = {
		.norm = a->norm->data,
		.format = (int)a->norm->format,
		.heads = cfg->gdn_value_heads,
		.head_dim = cfg->gdn_value_dim,
		.eps = cfg->rms_norm_eps,
		.silu = cfg->gdn_gate == PLUMB_GATE_SILU,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = plumb_vector_check(env, "gdn_norm_gate: norm", a->norm);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.o = a->o + t * width;
		launch.z = a->z + t * width;
		launch.out = a->out + t * width;
		status = plumb_fuse_gdn_norm_gate(env, &launch);
	}
	return status;
}

int gdn_out_proj_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_out_proj *a = args;
	const struct linear_part part[] = {{a->w, a->y, "gdn_out_proj: w"}};
	return linear_opt(env, a->x, a->T, part, 1);
}
