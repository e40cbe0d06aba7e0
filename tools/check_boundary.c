/* SPDX-License-Identifier: MIT */
/* Under policy bf16 two right implementations may differ where a sum lies next to a rounding boundary. So when elements
 * differ in the local view, the reference computes the op once more without the last rounding, and each such element is
 * judged by how near that value lies to the boundary. */
#include <math.h>
#include <string.h>

#include "core/numeric.h"
#include "tools/check_internal.h"

static bool active(const struct check_run *run)
{
	return run->options->policy == PLUMB_POLICY_BF16 && run->view->view == PLUMB_VIEW_LOCAL && !run->fused;
}

int check_boundary_before(struct check_run *run, const struct plumb_call *call)
{
	return active(run) ? check_second_keep(&run->second, call, run->err) : PLUMB_OK;
}

/* The output `name` of the call, computed by the oracle from the same inputs without its last rounding: valid until the
 * next call, or NULL with run->err set. */
static const float *unrounded(struct check_run *run, const struct plumb_call *call, const char *name)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];

	if (check_second_run(&run->second, call, true, run->err) != PLUMB_OK)
		return NULL;
	check_second_undo(&run->second, call);
	const struct plumb_operand *o = plumb_operand_find(info, name);
	return o ? run->second.scratch[o - info->operand] : NULL;
}

/* The bf16 neighbour of x in the direction of y; both are bf16 values, x != y. */
static float next_bf16(float x, float y)
{
	uint32_t bits = plumb_f32_bits(x), step = 0x10000;
	if (x == 0.0f)
		return plumb_bits_f32(y > 0.0f ? step : 0x80000000u | step);
	return plumb_bits_f32((x > 0.0f) == (y > x) ? bits + step : bits - step);
}

void check_boundary_begin(const struct check_run *run, struct check_item *item)
{
	const struct plumb_golden_tensor *g = &item->golden;
	double sum = 0.0;
	if (!active(run) || !item->fed || !g->f32)
		return;
	for (int64_t i = 0; i < g->count; i++)
		sum += (double)g->f32[i] * (double)g->f32[i];
	item->boundary.slack = g->count ? CHECK_SLACK * sqrt(sum / (double)g->count) : 0.0;
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
	const float *exact = NULL;

	/* ids have no rounding; a second gather would advance the history */
	if (!active(run) || !item->fed || call->op == PLUMB_PLE_EMBED || call->op == PLUMB_EMBED)
		return PLUMB_OK;
	for (int64_t i = 0; i < count; i++) {
		if (ours[i] == golden[i])
			continue;
		if (!exact && !(exact = unrounded(run, call, item->source->operand)))
			return PLUMB_BAD_INPUT;
		judge(&item->boundary, first + i, ours[i], golden[i], (double)exact[i]);
	}
	return PLUMB_OK;
}

void check_boundary_cache(struct check_run *run, struct check_item *item, const float *ours, const float *golden,
	int64_t first, int64_t count)
{
	if (!active(run) || !item->fed)
		return;
	/* a cache shows rounded values only; the unrounded one lies at most half a step away, on golden's side if it is next
	 * to the boundary */
	for (int64_t i = 0; i < count; i++)
		if (ours[i] != golden[i]) {
			float toward = next_bf16(ours[i], golden[i]);
			judge(&item->boundary, first + i, ours[i], golden[i], 0.5 * ((double)ours[i] + (double)toward));
		}
}
