/* SPDX-License-Identifier: MIT */
/* How near a result must be to the truth: values by the derived bounds of ref/bound.h, choices by their scores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compare.h"
#include "tools/axes.h"
#include "tools/trial_private.h"

void trial_arguments_before(const struct trial *c, void *args)
{
	memcpy(args, c->args, plumb_ops[c->op].args_size);
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		if (o->info->role != PLUMB_STATE || o->info->kind == PLUMB_KIND_CACHE || o->absent)
			continue;
		void *data = o->before;
		memcpy((unsigned char *)args + o->info->offset, &data, sizeof data);
	}
}

/* As text; the sign of a NaN is nobody's promise. */
static const char *number(double v, char text[32])
{
	if (isfinite(v))
		snprintf(text, 32, "%.9g", v);
	else
		snprintf(text, 32, "%s", isnan(v) ? "NaN" : v > 0.0 ? "Inf" : "-Inf");
	return text;
}

/* The first gate that does not hold, with the element of the largest ratio. */
static bool holds(const struct trial *c, const struct plumb_bound_result *r, const char *what, char text[TRIAL_TEXT])
{
	for (int i = 0; i < c->operands; i++) {
		const struct plumb_bound_stat *s = &r->operand[i];
		const struct plumb_call call = trial_call(c);
		struct axes axes;
		char line[256], where[128], is[32], exact[32];
		/* one call has few tokens, and those often of few values: rms and bias are for the sum of many; and inputs
		 * of a hostile class may leave an element without a finite bound (a softmax of scores of 2^40) */
		bool bounded = s->unbounded == 0 || c->class;
		if (s->max_ratio <= c->within && s->apart == 0 && bounded)
			continue;
		plumb_bound_stat_passes(s, line, sizeof line);
		axes_make(&call, c->operand[i].info, &axes);
		axes_show(&axes, s->index, where, sizeof where);
		if (s->apart) { /* nothing to measure */
			snprintf(text, TRIAL_TEXT,
				"%s: %s[%lld] (%s) is %s, exact %s (%lld of %lld values NaN or Inf on one side)", what,
				c->operand[i].info->name, (long long)s->index, where, number(s->candidate, is),
				number(s->ball.value, exact), (long long)s->apart, (long long)s->values);
			return false;
		}
		snprintf(text, TRIAL_TEXT, "%s: %s[%lld] (%s) is %.9g, exact %.12g +- %.3g: %s", what,
			c->operand[i].info->name, (long long)s->index, where, (double)s->candidate, s->ball.value,
			s->ball.error, line);
		return false;
	}
	return true;
}

bool trial_bounded(struct trial *c, const char *what, struct plumb_bound_result *sum, char text[TRIAL_TEXT])
{
	struct plumb_bound_set set;
	struct plumb_bound_result one;
	void *before = malloc(plumb_ops[c->op].args_size);

	if (!before)
		abort();
	trial_arguments_before(c, before);
	plumb_bound_begin(&one, c->op);
	int status = plumb_bound_make(&c->env, c->op, c->position, before, c->args, &set);
	if (status == PLUMB_OK)
		status = plumb_bound_add(&one, &c->env, c->args, &set);
	plumb_bound_free(&set);
	free(before);
	if (status != PLUMB_OK) {
		snprintf(text, TRIAL_TEXT, "%s: no bound: %s", what, c->error.text);
		return false;
	}
	for (int i = 0; sum && i < c->operands; i++)
		plumb_bound_merge(&sum->operand[i], &one.operand[i]);
	return holds(c, &one, what, text);
}

/* What experts are ranked by, their probability, as binary32 can tell it: log(exp(l - largest) + 2^-126). Below 2^-126 it has
 * steps of 2^-149, which here are less than 2^-22 each; far below, all are 0. Without a finite largest logit: the logits. */
static void rank_scores(const float *l, int64_t E, double largest, float *score)
{
	for (int64_t i = 0; i < E; i++)
		score[i] = isfinite(largest) ? (float)log(exp((double)l[i] - largest) + 0x1p-126) : l[i];
}

/* The experts of a token may differ where rounding explains it, but for those whose logits came out equal; the bound
 * of weights goes by the experts chosen. */
static bool router_near(struct trial *c, const struct trial_result *oracle, const struct trial_result *result,
	const char *what, char text[TRIAL_TEXT])
{
	enum { LOGITS = 3, EXPERT };
	int64_t E = c->cfg.experts, A = c->cfg.experts_per_token;
	const float *l = (const float *)(const void *)oracle->bytes[LOGITS];
	const float *m = (const float *)(const void *)result->bytes[LOGITS];
	const int32_t *e = (const int32_t *)(const void *)oracle->bytes[EXPERT];
	const int32_t *f = (const int32_t *)(const void *)result->bytes[EXPERT];
	float *score = malloc((size_t)E * sizeof *score);
	bool near = true;

	if (!score)
		abort();
	for (int64_t t = 0; t < c->T && near; t++, l += E, m += E, e += A, f += A) {
		struct plumb_selection s;
		double error = 0.0, largest = -HUGE_VAL, lowest = HUGE_VAL;
		for (int64_t i = 0; i < E; i++) {
			error = fmax(error, fabs((double)l[i] - (double)m[i]));
			largest = fmax(largest, (double)l[i]);
		}
		rank_scores(l, E, largest, score);
		for (int64_t i = 0; i < A; i++) /* of those that are chosen, or in a place of theirs */
			lowest = fmin(
				lowest, fmin((double)score[e[i]], f[i] >= 0 && f[i] < E ? (double)score[f[i]] : HUGE_VAL));
		/* two probabilities are equal up to an ulp when the logits are 2^-23 apart; twice that for each exp, and the steps
		 * of small ones. The argument of exp is rounded first: half an ulp of it, for each of the two; and the
		 * scores here are rounded as well */
		double range = isfinite(largest) ? -lowest : 104.0;
		double bound = 2.0 * error + 0x1p-21 + 0x1p-22 + 0x1p-22 * range;
		near = plumb_compare_order(score, E, A, f, A, e, A, bound, &s) == PLUMB_OK &&
		       plumb_compare_ties(m, f, A, s.text, sizeof s.text);
		if (!near)
			snprintf(text, TRIAL_TEXT, "%s: expert of row %lld: %.255s", what, (long long)t, s.text);
	}
	free(score);
	return near;
}

bool trial_near(struct trial *c, const struct trial_result *oracle, const struct trial_result *result, const char *what,
	char text[TRIAL_TEXT])
{
	trial_restore(c, result);
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		bool integer = o->info->kind == PLUMB_KIND_I32 || o->info->kind == PLUMB_KIND_I64;
		if (!oracle->bytes[i] || !integer || c->op == PLUMB_MOE_ROUTER)
			continue;
		if (!trial_operand_same(o, result->bytes[i], oracle->bytes[i], what, text))
			return false;
	}
	return trial_bounded(c, what, c->bounds, text) &&
	       (c->op != PLUMB_MOE_ROUTER || router_near(c, oracle, result, what, text));
}
