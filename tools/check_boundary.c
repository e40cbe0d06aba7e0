/* SPDX-License-Identifier: MIT */
/* Under policy bf16 two right implementations may differ where a sum lies next to a rounding boundary. So when elements
 * differ in the local view, the reference computes the op once more without the last rounding, and each such element is
 * judged by how near that value lies to the boundary. What that does not explain is kept for tools/check_jury.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool within(const struct check_apart *a)
{
	return a->low <= a->ours && a->ours <= a->high && a->low <= a->golden && a->golden <= a->high;
}

/* Keep an element for perturbed passes; with too many of them there is nothing to explain. */
static int keep(struct check_run *run, struct check_item *item, const struct check_apart *a)
{
	struct check_boundary *b = &item->boundary;

	if (b->unexplained.index < 0)
		b->unexplained = *a;
	int64_t row = item->golden.count / plumb_golden_tokens(run->options->golden);
	b->crowded = b->crowded || b->aparts > item->golden.count / CHECK_APART_SHARE + row;
	if (b->crowded)
		return PLUMB_OK;
	if ((b->aparts & (b->aparts - 1)) == 0) { /* a power of two, or none: the room is used up */
		size_t room = b->aparts ? 2 * (size_t)b->aparts : 1;
		struct check_apart *more = realloc(b->apart, room * sizeof *more);
		if (!more)
			return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for %zu elements that differ", room);
		b->apart = more;
	}
	b->apart[b->aparts++] = *a;
	return PLUMB_OK;
}

/* Steps between two values that the last rounding explains: the tolerance is asked about them. */
static void count_steps(struct check_boundary *b, float ours, float golden)
{
	struct plumb_compare one;
	plumb_compare_begin(&one, 1);
	plumb_compare_add(&one, &ours, &golden, 1);
	b->bf16_ulp = one.max_bf16_ulp > b->bf16_ulp ? one.max_bf16_ulp : b->bf16_ulp;
	for (int k = 0; k < PLUMB_BF16_STEPS; k++)
		b->beyond[k] = one.beyond[k] > b->beyond[k] ? one.beyond[k] : b->beyond[k];
}

static int judge(struct check_run *run, struct check_item *item, int64_t index, float ours, float golden, double exact)
{
	struct check_boundary *b = &item->boundary;
	/* exactly half way (ref/round.h) there is one answer: a sum or product of two bf16 numbers often lies there */
	double slack = (plumb_f32_bits((float)exact) & 0xFFFF) == 0x8000 ? 0.0 : b->slack;
	/* rounding is monotone, so two roundings tell what is the rounding of something within slack of exact */
	struct check_apart a = {.index = index,
		.ours = ours,
		.golden = golden,
		.low = plumb_round_bf16((float)(exact - slack)),
		.high = plumb_round_bf16((float)(exact + slack))};
	/* half way between the two values lies the boundary that separates them, when they are neighbours */
	double distance = fabs(exact - 0.5 * ((double)golden + (double)ours));

	b->differ++;
	if (!within(&a))
		return keep(run, item, &a);
	b->explained++;
	b->worst = distance / b->slack > b->worst ? distance / b->slack : b->worst;
	count_steps(b, ours, golden);
	return PLUMB_OK;
}

int check_boundary_rows(struct check_run *run, const struct plumb_call *call, struct check_item *item, const float *ours,
	const float *golden, int64_t first, int64_t count)
{
	const float *exact = NULL;
	int status = PLUMB_OK;

	/* ids have no rounding; a second gather would advance the history */
	if (!active(run) || !item->fed || call->op == PLUMB_PLE_EMBED || call->op == PLUMB_EMBED)
		return PLUMB_OK;
	for (int64_t i = 0; i < count && status == PLUMB_OK; i++) {
		if (ours[i] == golden[i])
			continue;
		if (!exact && !(exact = unrounded(run, call, item->source->operand)))
			return PLUMB_BAD_INPUT;
		status = judge(run, item, first + i, ours[i], golden[i], (double)exact[i]);
	}
	return status;
}

int check_boundary_shown(struct check_run *run, struct check_item *item, const float *ours, const float *golden,
	int64_t first, int64_t count)
{
	int status = PLUMB_OK;

	if (!active(run) || !item->fed)
		return PLUMB_OK;
	for (int64_t i = 0; i < count && status == PLUMB_OK; i++)
		if (ours[i] != golden[i]) {
			struct check_apart a = {first + i, ours[i], golden[i], HUGE_VALF, -HUGE_VALF};
			item->boundary.differ++;
			status = keep(run, item, &a);
		}
	return status;
}

void check_boundary_span(struct check_item *item, const float *values, int64_t first, int64_t count)
{
	struct check_boundary *b = &item->boundary;
	for (int64_t i = 0; i < b->aparts; i++) {
		struct check_apart *a = &b->apart[i];
		if (a->index < first || a->index >= first + count)
			continue;
		float v = values[a->index - first];
		a->low = v < a->low ? v : a->low;
		a->high = v > a->high ? v : a->high;
	}
}

void check_boundary_end(struct check_item *item)
{
	struct check_boundary *b = &item->boundary;
	b->earlier = 0;
	b->unexplained.index = -1;
	for (int64_t i = 0; i < b->aparts; i++)
		if (within(&b->apart[i]))
			b->earlier++;
		else if (b->unexplained.index < 0)
			b->unexplained = b->apart[i];
}

bool check_view_rounding(const struct check_view *v, char *text, size_t size)
{
	int64_t differ = 0, last = 0, earlier = 0;
	double worst = 0.0;
	size_t n;

	text[0] = '\0';
	for (int i = 0; i < v->items; i++) {
		const struct check_boundary *b = &v->item[i].boundary;
		if (!v->item[i].expected)
			continue;
		differ += b->differ;
		last += b->explained;
		earlier += b->earlier;
		worst = b->worst > worst ? b->worst : worst;
	}
	if (!differ)
		return false;
	n = (size_t)snprintf(text, size,
		"%lld elements differ: %lld by their last rounding (largest distance %.2g of the slack)", (long long)differ,
		(long long)last, worst);
	if (v->passes && n < size)
		n += (size_t)snprintf(text + n, size - n, ", %lld by an earlier one (%d perturbed pass%s of the reference)",
			(long long)earlier, v->passes, v->passes == 1 ? "" : "es");
	if (differ > last + earlier && n < size)
		snprintf(text + n, size - n, ", %lld by none", (long long)(differ - last - earlier));
	return true;
}
