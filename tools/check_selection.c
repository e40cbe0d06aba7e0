/* SPDX-License-Identifier: MIT */
/* Choices: router experts and QSA blocks, compared as sets and order with their margins (model-spec 2.12). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/moe.h"
#include "core/ops/qsa.h"
#include "ref/ref.h"
#include "ref/route.h"
#include "tools/check_internal.h"

/* How far two scores may be apart for rounding to have ordered them differently, as a share of the row's largest score.
 * Each producer's score is off by at most `share` of it, and the cut by as much. f32, recorded inputs: sums of a few
 * hundred terms in binary32, 2^-18. f32, from the tokens on: the propagated gate, 1e-5. bf16: inputs that differ by bf16
 * steps, 2^-8 each; from the tokens on several of them add up, 2^-5. The report shows every margin that was needed. */
static double score_share(enum plumb_view view, enum plumb_policy policy)
{
	if (policy == PLUMB_POLICY_F32)
		return view == PLUMB_VIEW_LOCAL ? 0x1p-18 : 1e-5;
	return view == PLUMB_VIEW_LOCAL ? 0x1p-8 : 0x1p-5;
}

static double score_bound(struct check_run *run, const struct check_item *item, const float *score, int64_t n)
{
	double largest = 0.0;
	for (int64_t i = 0; i < n; i++)
		if (fabs((double)score[i]) > largest && isfinite(score[i]))
			largest = fabs((double)score[i]);
	return 2.0 * score_share(item->fed ? run->view->view : PLUMB_VIEW_PROPAGATED, run->options->policy) * largest;
}

/* A NaN among the scores makes the choice wrong: NaN compares equal to NaN, and everything would be a tie. Rows whose
 * scores are all equal are counted: if most are, the scores say nothing and the comparison is vacuous. */
static void look_at_scores(struct check_item *item, const float *score, int64_t n, int64_t k, struct plumb_selection *s)
{
	bool flat = true;
	for (int64_t i = 0; i < n; i++) {
		flat = flat && score[i] == score[0];
		if (isnan(score[i]) && s->choice != PLUMB_CHOICE_WRONG) {
			s->choice = PLUMB_CHOICE_WRONG;
			snprintf(s->text, sizeof s->text, "score %lld is NaN", (long long)i);
		}
	}
	item->choices.cut_rows += n > k;
	item->choices.flat_rows += n > k && flat;
}

static void record(struct check_item *item, int64_t row, double bound, const struct plumb_selection *s)
{
	struct check_choices *c = &item->choices;
	c->rows++;
	c->equal += s->choice == PLUMB_CHOICE_EQUAL;
	c->tie += s->choice == PLUMB_CHOICE_TIE;
	c->margin += s->choice == PLUMB_CHOICE_MARGIN;
	c->wrong += s->choice == PLUMB_CHOICE_WRONG;
	c->tied_rows += s->tied > 0;
	if (s->choice == PLUMB_CHOICE_MARGIN && s->margin > c->worst_margin) {
		c->worst_margin = s->margin;
		c->worst_bound = bound;
	}
	/* the first wrong row is worth more than the first explained one */
	if (s->choice != PLUMB_CHOICE_EQUAL && (c->first_row < 0 || (s->choice == PLUMB_CHOICE_WRONG && c->wrong == 1))) {
		c->first_row = row;
		snprintf(c->first_text, sizeof c->first_text, "row %lld: %.200s", (long long)row, s->text);
	}
}

int check_experts(struct check_run *run, const struct plumb_call *call, struct check_item *item)
{
	const struct plumb_moe_router *a = call->args;
	const struct plumb_config *cfg = call->env->cfg;
	int64_t E = cfg->experts, A = cfg->experts_per_token;
	float *prob = malloc((size_t)E * sizeof *prob);
	int32_t *golden = malloc((size_t)A * sizeof *golden);
	int status = prob && golden ? PLUMB_OK : plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a router row");

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t row = call->position + t;
		const int64_t *recorded = item->golden.i64 + row * A;
		int32_t *ours = a->expert + t * A;
		struct plumb_selection s;
		for (int64_t k = 0; k < A; k++)
			golden[k] = recorded[k] < 0 || recorded[k] >= E ? -1 : (int32_t)recorded[k];
		route_prob_ref(a->logits + t * E, E, prob);
		double bound = score_bound(run, item, prob, E);
		plumb_compare_order(prob, E, A, ours, A, golden, A, bound, &s);
		look_at_scores(item, prob, E, A, &s);
		record(item, row, bound, &s);
		if (s.choice == PLUMB_CHOICE_TIE || s.choice == PLUMB_CHOICE_MARGIN) {
			memcpy(ours, golden, (size_t)A * sizeof *ours);
			route_weight_ref(call->env, prob, ours, a->weight + t * A);
		}
	}
	free(prob);
	free(golden);
	return status;
}

/* Blocks of a mask row: those whose first token is selected, among the complete ones. Returns their number, or -1 with a
 * text when the row is no choice of blocks: a block in part, a tail token or its own position left out, a future token. */
static int64_t mask_blocks(const float *mask, int64_t T, int64_t p, int64_t B, int32_t *block, char *text, size_t size)
{
	int64_t nb = (p + 1) / B, n = 0;
	for (int64_t j = 0; j < T; j++) {
		if (!(mask[j] == 0.0f || mask[j] <= -1e30f)) {
			snprintf(text, size, "golden mask: token %lld has %g, expected 0 (selected) or the lowest number",
				(long long)j, (double)mask[j]);
			return -1;
		}
		bool selected = mask[j] == 0.0f, first = j < nb * B && mask[j / B * B] == 0.0f;
		bool wanted = j < nb * B ? first : j <= p;
		if (selected != wanted) {
			snprintf(text, size, "golden mask: token %lld is %sselected, which no choice of blocks gives",
				(long long)j, selected ? "" : "not ");
			return -1;
		}
	}
	for (int64_t b = 0; b < nb; b++)
		if (mask[b * B] == 0.0f)
			block[n++] = (int32_t)b;
	return n;
}

/* The recorded choice is judged by what the scores should be, not by what the op under test made of them. */
int check_scores(struct check_run *run, const struct plumb_call *call)
{
	struct plumb_qsa_score a = *(const struct plumb_qsa_score *)call->args;
	struct plumb_env env = *call->env;
	int64_t NB = env.capacity / env.cfg->block_tokens;
	float *score = realloc(run->score, (size_t)(a.T * NB + 1) * sizeof *score);

	if (!score)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for %lld block scores", (long long)(a.T * NB));
	run->score = a.score = score;
	env.device = NULL;
	return plumb_ref_oracle.op[PLUMB_QSA_SCORE](&env, &a);
}

int check_mask(struct check_run *run, const struct plumb_call *call, struct check_item *item)
{
	const struct plumb_qsa_select *a = call->args;
	const struct plumb_config *cfg = call->env->cfg;
	int64_t T = plumb_golden_tokens(run->options->golden), B = cfg->block_tokens, N = cfg->block_budget;
	int64_t NB = call->env->capacity / B;
	int32_t *golden = malloc((size_t)(NB + 1) * sizeof *golden);

	if (!golden)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a mask row");
	for (int64_t t = 0; t < a->T; t++) {
		int64_t p = call->position + t, nb = (p + 1) / B, k = nb < N ? nb : N;
		const float *score = run->score + t * NB;
		int32_t *ours = a->block + t * N;
		struct plumb_selection s = {.choice = PLUMB_CHOICE_WRONG};
		int64_t n = mask_blocks(item->golden.f32 + p * T, T, p, B, golden, s.text, sizeof s.text);
		double bound = score_bound(run, item, score, nb);
		if (n == 0 && k == 0 && a->count[t] == 0)
			s = (struct plumb_selection){.choice = PLUMB_CHOICE_EQUAL}; /* no complete block yet */
		else if (n >= 0)
			plumb_compare_topk(score, nb, k, ours, a->count[t], golden, n, bound, &s);
		look_at_scores(item, score, nb, k, &s);
		record(item, p, bound, &s);
		/* right either way (or fed with the recorded inputs): go on with the golden's choice, so that what follows
		 * can be compared */
		if (s.choice == PLUMB_CHOICE_TIE || s.choice == PLUMB_CHOICE_MARGIN ||
			(run->view->view == PLUMB_VIEW_LOCAL && n == k))
			memcpy(ours, golden, (size_t)k * sizeof *ours);
	}
	free(golden);
	return PLUMB_OK;
}
