/* SPDX-License-Identifier: MIT */
/* Mixture of experts: which launches, with what. Contracts: core/ops/moe.h. */
#include "core/ops/moe.h"

#include "core/order.h"
#include "kernels/moe.h"
#include "opt/device.h"
#include "opt/fuse.h"
#include "opt/matrix.h"
#include "opt/opt.h"

static int bank(const struct plumb_env *env, const struct plumb_weight *w, struct plumb_matrix_bank *out)
{
	struct plumb_device_bank b;
	int status = plumb_device_bank(env, w, env->cfg->experts, &b);
	if (status == PLUMB_OK)
		*out = b.matrices;
	return status;
}

int moe_router_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_router *a = args;
	const struct plumb_config *c = env->cfg;
	int64_t E = c->experts, A = c->experts_per_token, D = c->hidden;
	struct plumb_moe_router_launch m = {
		.gate = plumb_matrix_of(a->gate),
		.shared_gate = plumb_matrix_of(a->shared_gate),
		.cols = D,
		.experts = (int32_t)E,
		.chosen = (int32_t)A,
		.pieces = plumb_split_count(E + 1, D),
		.norm_topk = c->norm_topk,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = plumb_matrix_check(env, "moe_router: gate", a->gate);

	if (status == PLUMB_OK)
		status = plumb_matrix_check(env, "moe_router: shared_gate", a->shared_gate);
	if (status != PLUMB_OK)
		return status;
	if (E > PLUMB_MOE_MAX_EXPERTS)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "moe_router: num_experts %lld, expected at most %d",
			(long long)E, PLUMB_MOE_MAX_EXPERTS);
	if (E > PLUMB_MOE_SHARED_EXPERTS) {
		size_t ranks = 1;
		while (ranks < (size_t)E)
			ranks *= 2;
		m.rank = plumb_device_scratch(env, 0, ranks * sizeof *m.rank);
		if (!m.rank)
			return PLUMB_BAD_INPUT;
	}
	m.arrived = plumb_device_counters(env, 1);
	if (!m.arrived)
		return PLUMB_BAD_INPUT;
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		m.x = a->x + t * D;
		m.logits = a->logits + t * E;
		m.expert = a->expert + t * A;
		m.weight = a->weight + t * A;
		m.shared_weight = a->shared_weight + t;
		status = plumb_fuse_moe_router(env, &m);
	}
	return status;
}

int moe_gate_up_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_gate_up *a = args;
	const struct plumb_config *c = env->cfg;
	int64_t A = c->experts_per_token, D = c->hidden, F = c->expert_inner, Fs = c->shared_inner, units = A * F + Fs;
	struct plumb_moe_gate_up_launch m = {
		.shared_gate = plumb_matrix_of(a->shared_gate),
		.shared_up = plumb_matrix_of(a->shared_up),
		.cols = D,
		.inner = F,
		.shared_inner = Fs,
		.experts = (int32_t)c->experts,
		.chosen = (int32_t)A,
		.pieces = plumb_split_count(2 * units, D),
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = bank(env, a->gate, &m.gate);

	if (status == PLUMB_OK)
		status = bank(env, a->up, &m.up);
	if (status == PLUMB_OK)
		status = plumb_matrix_check(env, "moe_gate_up: shared_gate", a->shared_gate);
	if (status == PLUMB_OK)
		status = plumb_matrix_check(env, "moe_gate_up: shared_up", a->shared_up);
	if (status == PLUMB_OK && units > INT32_MAX) /* a block, at least, each */
		status = plumb_fail(env->err, PLUMB_BAD_INPUT,
			"moe_gate_up: inner sizes of all chosen experts %lld, expected at most %d", (long long)units,
			INT32_MAX);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		m.x = a->x + t * D;
		m.expert = a->expert + t * A;
		m.hidden = a->hidden + t * A * F;
		m.shared_hidden = a->shared_hidden + t * Fs;
		status = plumb_fuse_moe_gate_up(env, &m);
	}
	return status;
}

int moe_down_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	const struct plumb_config *c = env->cfg;
	int64_t A = c->experts_per_token, D = c->hidden, F = c->expert_inner, Fs = c->shared_inner, rows = D * (A + 1);
	struct plumb_moe_down_launch m = {
		.shared_down = plumb_matrix_of(a->shared_down),
		.rows = D,
		.inner = F,
		.shared_inner = Fs,
		.experts = (int32_t)c->experts,
		.chosen = (int32_t)A,
		.pieces = plumb_split_count(rows, F),
		.shared_pieces = plumb_split_count(rows, Fs),
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = bank(env, a->down, &m.down);

	if (status == PLUMB_OK)
		status = plumb_matrix_check(env, "moe_down: shared_down", a->shared_down);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		m.hidden = a->hidden + t * A * F;
		m.shared_hidden = a->shared_hidden + t * Fs;
		m.expert = a->expert + t * A;
		m.weight = a->weight + t * A;
		m.shared_weight = a->shared_weight + t;
		m.y = a->y + t * D;
		m.routed = a->routed ? a->routed + t * D : NULL;
		m.shared = a->shared ? a->shared + t * D : NULL;
		status = plumb_fuse_moe_down(env, &m);
	}
	return status;
}
