/* SPDX-License-Identifier: MIT */
/* The local view: each op is fed the recorded inputs. After an op has been compared, what it wrote is replaced by what
 * the golden holds, so that the next op starts from there; and where the recorded tensor is not the last thing that the op
 * computed, the rest is computed from it again. */
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/attention.h"
#include "core/ops/ple.h"
#include "ref/rotate.h"
#include "ref/round.h"
#include "tools/check_internal.h"

/* Recorded rows into an output (T, width). */
static void force_rows(struct check_run *run, const struct plumb_call *call, const struct check_item *item)
{
	float *ours = check_operand(call, item->source->operand);
	int64_t width = item->golden.count / plumb_golden_tokens(run->options->golden);
	if (ours)
		memcpy(ours, item->golden.f32 + call->position * width, (size_t)(call->T * width) * sizeof *ours);
}

static void force_experts(const struct plumb_call *call, const struct check_item *item)
{
	int32_t *ours = check_operand(call, item->source->operand);
	int64_t A = call->env->cfg->experts_per_token, E = call->env->cfg->experts;
	for (int64_t i = 0; i < call->T * A; i++) {
		int64_t e = item->golden.i64[call->position * A + i];
		if (e >= 0 && e < E)
			ours[i] = (int32_t)e;
	}
}

static int force_cache(struct check_run *run, const struct plumb_call *call, const struct check_item *item)
{
	const struct plumb_cache *cache = check_operand(call, item->source->operand);
	int64_t T = plumb_golden_tokens(run->options->golden);
	int64_t heads = item->source->form == PLUMB_GOLDEN_CACHE_HEADS ? call->env->cfg->kv_heads : 1;
	int64_t width = cache->width / heads;
	float *row = malloc((size_t)cache->width * sizeof *row);

	if (!row)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a cache row");
	for (int64_t p = call->position; p < call->position + call->T; p++) {
		for (int64_t h = 0; h < heads; h++)
			memcpy(row + h * width, item->golden.f32 + (h * T + p) * width, (size_t)width * sizeof *row);
		plumb_cache_put(cache, p, row);
	}
	free(row);
	return PLUMB_OK;
}

/* The residual that goes on from a recorded PLE output. */
static void after_ple(const struct plumb_call *call)
{
	const struct plumb_ple_conv *a = call->args;
	int64_t n = a->T * call->env->cfg->streams * call->env->cfg->hidden;
	for (int64_t i = 0; i < n; i++)
		a->residual_out[i] = store(call->env, (double)a->residual[i] + (double)a->output[i]);
}

/* The rotated query from a recorded normed one. */
static int after_q_norm(struct check_run *run, const struct plumb_call *call)
{
	const struct plumb_attn_qk_rope *a = call->args;
	int64_t Hq = call->env->cfg->q_heads, Dh = call->env->cfg->head_dim;
	double *x = malloc((size_t)Dh * sizeof *x);

	if (!x)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a query");
	for (int64_t th = 0; th < a->T * Hq; th++) {
		for (int64_t i = 0; i < Dh; i++)
			x[i] = (double)a->q_normed[th * Dh + i];
		rope_ref(call->env, x, a->rope + (call->position + th / Hq) * call->env->cfg->rotary_dim);
		for (int64_t i = 0; i < Dh; i++)
			a->q[th * Dh + i] = store(call->env, x[i]);
	}
	free(x);
	return PLUMB_OK;
}

int check_force(struct check_run *run, const struct plumb_call *call)
{
	int status = PLUMB_OK;

	for (int i = 0; i < plumb_golden_source_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		if (s->op != call->op || (s->site != PLUMB_SITE_NONE && s->site != call->site))
			continue;
		struct check_item *item = check_find(run, s, call->layer);
		if (!item)
			continue;
		switch (s->form) {
		case PLUMB_GOLDEN_ROWS:
			if (item->golden.f32)
				force_rows(run, call, item);
			break;
		case PLUMB_GOLDEN_EXPERTS:
			if (item->golden.i64)
				force_experts(call, item);
			break;
		case PLUMB_GOLDEN_CACHE_HEADS:
			if (item->golden.f32)
				status = force_cache(run, call, item);
			break;
		case PLUMB_GOLDEN_MASK:         /* done where it is compared */
		case PLUMB_GOLDEN_CACHE_ROWS:   /* raw index keys: their block keys came out of the same call */
		case PLUMB_GOLDEN_FIRST_STREAM: /* layer00/input holds all streams */
		case PLUMB_GOLDEN_STATE:
			break;
		}
		if (status == PLUMB_OK && item->golden.f32 && strcmp(s->dataset, "ple/output") == 0)
			after_ple(call);
		if (status == PLUMB_OK && item->golden.f32 && strcmp(s->dataset, "attention/q_norm/output") == 0)
			status = after_q_norm(run, call);
	}
	return status;
}
