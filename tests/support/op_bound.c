/* SPDX-License-Identifier: MIT */
/* How near the twin must be to the oracle, for random data of any op. Coarse on purpose: the stage tests hold the
 * derived bounds of each op; here a wrong term, factor, row or mask must show in every op, present and future. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compare.h"
#include "tests/support/op_case.h"

struct bound {
	double rel_l2, peak; /* ||error|| / ||oracle||; largest error / rms of the oracle */
};

/* f32: the longest sum here has 8192 terms, depth 43: gamma is 2.6e-6 of the sum of magnitudes, which is some times the
 * rms of the outputs, more where an output of one element cancels; 5000 cases showed 3.5e-6. bf16: a value near a
 * rounding boundary goes the other way, 2^-8 of itself (peak: of a value up to four rms high, carried through a product
 * or two); it is rare, so the norm sees little of it. */
static struct bound bound_of(enum plumb_op op, enum plumb_policy policy)
{
	bool bf16 = policy == PLUMB_POLICY_BF16;

	switch (op) {
	case PLUMB_PLE_GATE: /* the root of a gate near zero multiplies a small error: sqrt(1e-7) is 3e-4 */
		return bf16 ? (struct bound){0.06, 0.25} : (struct bound){2e-4, 1e-3};
	default:
		return bf16 ? (struct bound){0.008, 0.06} : (struct bound){2e-5, 4e-5};
	}
}

static double largest(double a, double b)
{
	return a > b ? a : b;
}

/* Part of a row (or all) of an operand against the oracle's. */
static bool near_rows(struct op_case *c, const struct op_operand *o, const float *oracle, const float *value,
	int64_t count, struct bound b, const char *what, char text[OP_CASE_TEXT])
{
	struct plumb_tolerance tolerance = {
		.set = PLUMB_BOUND_REL_L2 | PLUMB_BOUND_PEAK,
		.max_rel_l2 = b.rel_l2,
		.max_peak = b.peak,
		.allow_zero = true,
		.allow_constant = true,
		.allow_nan = true,
	};
	struct plumb_compare cmp;
	struct plumb_verdict verdict;

	plumb_compare_f32(&cmp, value, oracle, count);
	plumb_verdict(&cmp, &tolerance, &verdict);
	c->worst = largest(c->worst, plumb_compare_rel_l2(&cmp) / b.rel_l2);
	c->worst = largest(c->worst, plumb_compare_peak(&cmp) / b.peak);
	if (!verdict.pass)
		snprintf(text, OP_CASE_TEXT, "%s: %s: %.700s", what, o->info->name, verdict.text);
	return verdict.pass;
}

static const float *values(const struct op_result *r, int operand)
{
	return (const float *)(const void *)r->bytes[operand];
}

/* The experts of a token may differ where rounding explains it; its weights are then others. */
static bool router_near(struct op_case *c, const struct op_result *oracle, const struct op_result *result,
	struct bound b, const char *what, char text[OP_CASE_TEXT])
{
	enum { LOGITS = 3, EXPERT, WEIGHT };
	int64_t E = c->cfg.experts, A = c->cfg.experts_per_token;
	const float *l = values(oracle, LOGITS), *m = values(result, LOGITS);
	const float *w = values(oracle, WEIGHT), *v = values(result, WEIGHT);
	const int32_t *e = (const int32_t *)(const void *)oracle->bytes[EXPERT];
	const int32_t *f = (const int32_t *)(const void *)result->bytes[EXPERT];

	for (int64_t t = 0; t < c->T; t++) {
		struct plumb_selection s;
		double error = 0.0;
		for (int64_t i = t * E; i < (t + 1) * E; i++)
			error = largest(error, fabs((double)l[i] - (double)m[i]));
		/* two probabilities are equal up to an ulp when the logits are 2^-23 apart; twice that for each exp */
		double bound = 2.0 * error + 0x1p-21;
		if (plumb_compare_order(l + t * E, E, A, f + t * A, A, e + t * A, A, bound, &s) != PLUMB_OK) {
			snprintf(text, OP_CASE_TEXT, "%s: expert of row %lld: %.255s", what, (long long)t, s.text);
			return false;
		}
		if (memcmp(e + t * A, f + t * A, (size_t)A * sizeof *e) == 0 &&
			!near_rows(c, op_case_operand(c, "weight"), w + t * A, v + t * A, A, b, what, text))
			return false;
	}
	return true;
}

bool op_case_near(struct op_case *c, const struct op_result *oracle, const struct op_result *result, const char *what,
	char text[OP_CASE_TEXT])
{
	struct bound b = bound_of(c->op, c->env.policy);

	for (int i = 0; i < c->operands; i++) {
		const struct op_operand *o = &c->operand[i];
		const char *name = o->info->name;
		bool routed = c->op == PLUMB_MOE_ROUTER && (!strcmp(name, "expert") || !strcmp(name, "weight"));
		if (!oracle->bytes[i] || o->memory.bytes == 0 || routed)
			continue;
		if (o->info->kind == PLUMB_KIND_I32 || o->info->kind == PLUMB_KIND_I64) {
			if (memcmp(oracle->bytes[i], result->bytes[i], o->memory.bytes) != 0) {
				snprintf(text, OP_CASE_TEXT, "%s: %s differs", what, o->info->name);
				return false;
			}
			continue;
		}
		float *x = op_values(o, oracle->bytes[i]), *y = op_values(o, result->bytes[i]);
		bool ok = near_rows(c, o, x, y, o->count, b, what, text);
		free(x);
		free(y);
		if (!ok)
			return false;
	}
	return c->op != PLUMB_MOE_ROUTER || router_near(c, oracle, result, b, what, text);
}
