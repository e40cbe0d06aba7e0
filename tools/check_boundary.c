/* SPDX-License-Identifier: MIT */
/* Under policy bf16 two right implementations may differ where a sum lies next to a rounding boundary. So when elements
 * differ in the local view, the reference computes the op once more without the last rounding, and each such element is
 * judged by how near that value lies to the boundary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "ref/ref.h"
#include "tools/check_internal.h"

static bool active(const struct check_run *run)
{
	return run->options->policy == PLUMB_POLICY_BF16 && run->view->view == PLUMB_VIEW_LOCAL;
}

static int64_t operand_count(const struct plumb_call *call, const struct plumb_operand *o)
{
	struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	return plumb_shape_count(o->shape, call->env->cfg, &extent);
}

static void *operand_pointer(const void *args, const struct plumb_operand *o)
{
	void *p;
	memcpy(&p, (const char *)args + o->offset, sizeof p);
	return p;
}

int check_boundary_before(struct check_run *run, const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int n = 0;

	if (!active(run))
		return PLUMB_OK;
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		if (o->role != PLUMB_STATE || o->kind != PLUMB_KIND_F32 || n == CHECK_MAX_STATES)
			continue;
		size_t bytes = (size_t)operand_count(call, o) * sizeof(float);
		float *copy = realloc(run->before[n], bytes);
		if (!copy)
			return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a copy of %s", o->name);
		run->before[n++] = memcpy(copy, operand_pointer(call->args, o), bytes);
	}
	return PLUMB_OK;
}

static int replace(void *args, const struct plumb_operand *o, void *pointer)
{
	memcpy((char *)args + o->offset, &pointer, sizeof pointer);
	return pointer ? PLUMB_OK : PLUMB_BAD_INPUT;
}

/* The output `name` of the call, computed by the oracle from the same inputs without its last rounding: malloc'ed, or NULL
 * with run->err set. Rows appended to caches are written again with the same values. */
static float *unrounded(struct check_run *run, const struct plumb_call *call, const char *name)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_env env = *call->env;
	void *scratch[16] = {0};
	void *args = malloc(info->args_size);
	float *result = NULL;
	int n = 0, states = 0, status = args ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (args)
		memcpy(args, call->args, info->args_size);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		if (!operand_pointer(call->args, o))
			continue;
		if (o->role == PLUMB_OUT) {
			scratch[n] = calloc((size_t)operand_count(call, o), sizeof(int64_t));
			status = replace(args, o, scratch[n]);
			if (strcmp(o->name, name) == 0)
				result = scratch[n];
			n++;
		} else if (o->role == PLUMB_STATE && o->kind == PLUMB_KIND_F32) {
			size_t bytes = (size_t)operand_count(call, o) * sizeof(float);
			scratch[n] = malloc(bytes);
			if (scratch[n])
				memcpy(scratch[n], run->before[states++], bytes);
			status = replace(args, o, scratch[n]);
			n++;
		}
	}
	env.unrounded = true;
	env.device = NULL;
	env.err = run->err;
	if (status == PLUMB_OK)
		status = plumb_ref_oracle.op[call->op](&env, args);
	else
		plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a second evaluation of %s", info->name);
	for (int i = 0; i < n; i++)
		if (scratch[i] != result || status != PLUMB_OK)
			free(scratch[i]);
	free(args);
	return status == PLUMB_OK ? result : NULL;
}

/* The bf16 neighbour of x in the direction of y; both are bf16 values, x != y. */
static float next_bf16(float x, float y)
{
	uint32_t bits = plumb_f32_bits(x), step = 0x10000;
	if (x == 0.0f)
		return plumb_bits_f32(y > 0.0f ? step : 0x80000000u | step);
	return plumb_bits_f32((x > 0.0f) == (y > x) ? bits + step : bits - step);
}

static double rms(const float *x, int64_t n)
{
	double sum = 0.0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return n ? sqrt(sum / (double)n) : 0.0;
}

/* Whether golden is the rounding of something within slack of exact: rounding is monotone, so two roundings tell. */
static bool reachable(double exact, double slack, float golden)
{
	return plumb_round_bf16((float)(exact - slack)) <= golden && golden <= plumb_round_bf16((float)(exact + slack));
}

static void judge(struct check_boundary *b, int64_t index, float ours, float golden, double exact)
{
	/* half way between the two values lies the boundary that separates them, when they are neighbours */
	double distance = fabs(exact - 0.5 * ((double)golden + (double)ours));
	b->differ++;
	if (reachable(exact, b->slack, golden)) {
		b->explained++;
		b->worst = distance / b->slack > b->worst ? distance / b->slack : b->worst;
	} else if (b->unexplained < 0) {
		b->unexplained = index;
		b->ours = ours;
		b->golden = golden;
		b->exact = exact;
	}
}

int check_boundary_rows(struct check_run *run, const struct plumb_call *call, struct check_item *item, const float *ours,
	const float *golden, int64_t first, int64_t count)
{
	float *exact = NULL;

	/* ids have no rounding; a second gather would advance the history */
	if (!active(run) || call->op == PLUMB_PLE_EMBED || call->op == PLUMB_EMBED)
		return PLUMB_OK;
	item->boundary.slack = CHECK_SLACK * rms(item->golden.f32, item->golden.count);
	for (int64_t i = 0; i < count; i++) {
		if (ours[i] == golden[i])
			continue;
		if (!exact && !(exact = unrounded(run, call, item->source->operand)))
			return PLUMB_BAD_INPUT;
		judge(&item->boundary, first + i, ours[i], golden[i], (double)exact[i]);
	}
	free(exact);
	return PLUMB_OK;
}

void check_boundary_cache(
	struct check_run *run, struct check_item *item, const float *ours, const float *golden, int64_t first, int64_t count)
{
	if (!active(run))
		return;
	item->boundary.slack = CHECK_SLACK * rms(item->golden.f32, item->golden.count);
	/* a cache shows rounded values only; the unrounded one lies at most half a step away, on golden's side if it is next
	 * to the boundary */
	for (int64_t i = 0; i < count; i++)
		if (ours[i] != golden[i]) {
			float toward = next_bf16(ours[i], golden[i]);
			judge(&item->boundary, first + i, ours[i], golden[i], 0.5 * ((double)ours[i] + (double)toward));
		}
}
