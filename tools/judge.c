/* SPDX-License-Identifier: MIT */
#include "tools/judge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compare.h"
#include "core/ops/moe.h"

static bool is_integer(const struct plumb_operand *o)
{
	return o->kind == PLUMB_KIND_I32 || o->kind == PLUMB_KIND_I64;
}

static int64_t element_count(const struct plumb_call *call, const struct plumb_operand *o)
{
	const struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	int64_t first, last;

	if (o->kind != PLUMB_KIND_CACHE)
		return plumb_shape_count(o->shape, call->env->cfg, &extent);
	plumb_case_written_rows(call, o, &first, &last);
	return (last - first) * ((const struct plumb_cache *)plumb_operand_get(call->args, o))->width;
}

bool judge_same(double x, double y)
{
	uint64_t a, b;

	memcpy(&a, &x, sizeof a);
	memcpy(&b, &y, sizeof b);
	return a == b || (isnan(x) && isnan(y));
}

double *judge_values(const struct plumb_call *call, const struct plumb_operand *o, const void *data, int64_t *count)
{
	int64_t n = *count = element_count(call, o);
	double *out = calloc((size_t)n + 1, sizeof *out);
	float *row = NULL;

	if (!out)
		return NULL;
	if (o->kind == PLUMB_KIND_CACHE) {
		const struct plumb_cache *cache = plumb_operand_get(call->args, o);
		row = malloc(((size_t)n + 1) * sizeof *row);
		if (!row) {
			free(out);
			return NULL;
		}
		plumb_cache_decode(cache, data, n, row);
	} else if (plumb_operand_is_real(o)) {
		row = malloc(((size_t)n + 1) * sizeof *row);
		if (!row) {
			free(out);
			return NULL;
		}
		plumb_decode(plumb_operand_format(o, call->args), data, n, row);
	}
	for (int64_t i = 0; i < n; i++)
		out[i] = row                         ? (double)row[i]
		         : o->kind == PLUMB_KIND_I32 ? (double)((const int32_t *)data)[i]
		                                     : (double)((const int64_t *)data)[i];
	free(row);
	return out;
}

/* Rows of a cache as the candidate left them, one behind the other. */
static void *gather_rows(const struct plumb_call *call, const struct plumb_operand *o)
{
	const struct plumb_cache *cache = plumb_operand_get(call->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	int64_t first, last;
	char *out;

	plumb_case_written_rows(call, o, &first, &last);
	out = malloc((size_t)(last - first) * bytes + 1);
	for (int64_t r = first; out && r < last; r++)
		memcpy(out + (size_t)(r - first) * bytes, plumb_cache_row(cache, r), bytes);
	return out;
}

static size_t element_bytes(const struct plumb_call *call, const struct plumb_operand *o)
{
	if (o->kind == PLUMB_KIND_CACHE)
		return plumb_format_row_bytes(((const struct plumb_cache *)plumb_operand_get(call->args, o))->format, 1);
	return plumb_operand_element(o, call->args);
}

void *judge_copy(const struct plumb_call *call, const struct plumb_operand *o, size_t *bytes)
{
	const void *data = plumb_operand_get(call->args, o);
	void *copy;

	*bytes = 0;
	if (!data)
		return NULL;
	*bytes = (size_t)element_count(call, o) * element_bytes(call, o);
	if (o->kind == PLUMB_KIND_CACHE)
		return gather_rows(call, o);
	copy = malloc(*bytes + 1);
	if (copy)
		memcpy(copy, data, *bytes);
	return copy;
}

/* Every bit, NaN as NaN. The worst element is one of another class, else the one with the largest difference. */
static int judge_bits(const struct plumb_call *call, const struct plumb_operand *o, const void *got, const void *want,
	struct judge_operand *at, struct plumb_error *err)
{
	size_t bytes = element_bytes(call, o);
	double *x, *y, worst = -1.0;

	at->count = element_count(call, o);
	if (memcmp(got, want, (size_t)at->count * bytes) == 0)
		return PLUMB_OK;
	x = judge_values(call, o, got, &at->count);
	y = judge_values(call, o, want, &at->count);
	for (int64_t i = 0; x && y && i < at->count; i++) {
		double apart;
		if (memcmp((const char *)got + (size_t)i * bytes, (const char *)want + (size_t)i * bytes, bytes) == 0 ||
			(isnan(x[i]) && isnan(y[i])))
			continue;
		apart = isfinite(x[i]) && isfinite(y[i]) ? fabs(x[i] - y[i]) : HUGE_VAL;
		at->differ++;
		at->first = at->first < 0 ? i : at->first;
		if (apart > worst) {
			worst = apart;
			at->worst = i;
			at->got = x[i];
			at->want = y[i];
		}
	}
	at->pass = at->differ == 0;
	free(x);
	free(y);
	return x && y ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the values of %s", o->name);
}

/* The experts of a row may differ where the difference of the logits explains it, but for those whose logits came out equal. */
static int64_t wrong_router_row(const struct plumb_call *call, const struct plumb_case_expected *expected)
{
	const struct plumb_moe_router *a = call->args;
	const struct plumb_operand *o = plumb_ops[PLUMB_MOE_ROUTER].operand;
	int64_t E = call->env->cfg->experts, A = call->env->cfg->experts_per_token;
	const float *l = NULL;
	const int32_t *e = NULL;

	for (int i = 0; i < plumb_ops[PLUMB_MOE_ROUTER].operands; i++) {
		if (strcmp(o[i].name, "logits") == 0)
			l = expected[i].data;
		if (strcmp(o[i].name, "expert") == 0)
			e = expected[i].data;
	}
	for (int64_t t = 0; l && e && t < a->T; t++) {
		struct plumb_selection s;
		double error = 0.0;
		char text[256];
		for (int64_t i = t * E; i < (t + 1) * E; i++)
			error = fmax(error, fabs((double)l[i] - (double)a->logits[i]));
		/* two probabilities are equal up to an ulp when the logits are 2^-23 apart; twice that for each exp */
		if (!(error < HUGE_VAL) ||
			plumb_compare_order(l + t * E, E, (int64_t)A, a->expert + t * A, A, e + t * A, A,
				2.0 * error + 0x1p-21, &s) != PLUMB_OK ||
			(call->env->ties == PLUMB_TIES_LOWER &&
				!plumb_compare_ties(a->logits + t * E, a->expert + t * A, A, text, sizeof text)))
			return t;
	}
	return -1;
}

static int judge_bounds(const struct plumb_call *call, const void *before, const struct plumb_case_expected *expected,
	struct plumb_bound_result *sum, struct judge *out, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_env env = *call->env;
	struct plumb_bound_set set = {0};
	struct plumb_bound_result one;
	int status;

	env.err = err;
	env.device = NULL;
	plumb_bound_begin(&one, call->op);
	status = plumb_bound_make(&env, call->op, call->position, before, call->args, &set);
	if (status == PLUMB_OK)
		status = plumb_bound_add(&one, &env, call->args, &set);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		struct plumb_bound_stat *s = &one.operand[i];
		struct judge_operand *at = &out->at[i];
		if (s->values == 0 || !expected[i].data)
			continue;
		if (sum)
			plumb_bound_merge(&sum->operand[i], s);
		at->judged = true;
		at->count = s->values;
		at->ratio = s->max_ratio;
		at->worst = s->index;
		at->got = (double)s->candidate;
		at->want = s->ball.value;
		at->pass = plumb_bound_stat_passes(s, NULL, 0);
		at->differ = at->pass ? 0 : s->apart > 0 ? s->apart : 1;
		if (!at->pass && s->max_ratio <= 1.0)
			plumb_bound_stat_passes(s, at->gates, sizeof at->gates);
		if (info->operand[i].kind == PLUMB_KIND_CACHE) /* the index counts from row 0 of the cache */
			at->worst -= set.first[i] *
			             ((const struct plumb_cache *)plumb_operand_get(call->args, &info->operand[i]))->width;
		at->first = at->pass ? -1 : at->worst;
	}
	plumb_bound_free(&set);
	return status;
}

unsigned char *judge_beyond(const struct plumb_call *call, const void *before, int operand, int64_t count)
{
	const struct plumb_operand *o = &plumb_ops[call->op].operand[operand];
	struct plumb_bound_set set = {0};
	struct plumb_env env = *call->env;
	unsigned char *wrong = calloc(1, (size_t)count + 1);
	size_t bytes = 0;
	int64_t n, beyond = 0;
	void *data = NULL;
	double *got = NULL;

	env.err = NULL;
	env.device = NULL;
	if (wrong && plumb_bounds[call->op] && (data = judge_copy(call, o, &bytes)) &&
		(got = judge_values(call, o, data, &n)) &&
		plumb_bound_make(&env, call->op, call->position, before, call->args, &set) == PLUMB_OK &&
		set.ball[operand] && set.count[operand] == count)
		for (int64_t i = 0; i < count; i++) {
			const struct plumb_ball *b = &set.ball[operand][i];
			float rounded = (float)b->value; /* beyond binary32: the Inf that must come */
			if (isnan(rounded) ? isnan(got[i]) : got[i] == (double)rounded)
				continue;
			wrong[i] = !(fabs(got[i] - b->value) <= b->error * (1.0 + 0x1p-20) + 0x1p-48 * fabs(b->value));
			beyond += wrong[i];
		}
	plumb_bound_free(&set);
	free(got);
	free(data);
	if (beyond == 0) {
		free(wrong);
		wrong = NULL;
	}
	return wrong;
}

static void say(const struct plumb_call *call, enum plumb_case_criterion criterion, struct judge *out)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int64_t values = 0;
	int operands = 0;
	double ratio = 0.0;
	char place[160];
	struct axes axes;

	for (int i = 0; i < info->operands; i++) {
		const struct judge_operand *at = &out->at[i];
		if (!at->judged)
			continue;
		operands++;
		values += at->count;
		ratio = at->ratio > ratio ? at->ratio : ratio;
		if (!at->pass && out->operand < 0)
			out->operand = i;
	}
	out->pass = out->operand < 0 && operands > 0;
	if (out->pass) {
		if (criterion == PLUMB_CASE_BOUND)
			snprintf(out->text, sizeof out->text,
				"pass: %" PRId64 " values of %d operands, at most %.3g of the bound", values, operands,
				ratio);
		else
			snprintf(out->text, sizeof out->text, "pass: %" PRId64 " values of %d operands, every bit", values,
				operands);
		return;
	}
	if (out->operand < 0) {
		snprintf(out->text, sizeof out->text, "FAIL: nothing was compared");
		return;
	}
	const struct judge_operand *at = &out->at[out->operand];
	axes_make(call, &info->operand[out->operand], &axes);
	axes_show(&axes, at->worst, place, sizeof place);
	if (at->gates[0])
		snprintf(out->text, sizeof out->text,
			"FAIL: %s: every value is within its bound, all of them together are not: %s",
			info->operand[out->operand].name, at->gates + strlen("FAIL: "));
	else if (criterion == PLUMB_CASE_BOUND && at->ratio > 0.0)
		snprintf(out->text, sizeof out->text, "FAIL: %s: %s is %.9g, exact %.9g: %.3g times the bound",
			info->operand[out->operand].name, place, at->got, at->want, at->ratio);
	else
		snprintf(out->text, sizeof out->text,
			"FAIL: %s: %" PRId64 " of %" PRId64 " values differ; worst at %s: %.9g, expected %.9g",
			info->operand[out->operand].name, at->differ, at->count, place, at->got, at->want);
}

static void start(struct judge *out)
{
	memset(out, 0, sizeof *out);
	out->operand = -1;
	for (int i = 0; i < PLUMB_CASE_OPERANDS; i++)
		out->at[i] = (struct judge_operand){.first = -1, .worst = -1, .pass = true};
}

/* Values of a tensor against a tolerance. */
static int judge_near(const struct plumb_call *call, const struct plumb_operand *o, const void *got, const void *want,
	const struct plumb_tolerance *tolerance, struct judge_operand *at, struct plumb_error *err)
{
	double *x = judge_values(call, o, got, &at->count), *y = judge_values(call, o, want, &at->count);
	struct plumb_tolerance allowed = *tolerance;
	struct plumb_verdict verdict;
	struct plumb_compare cmp;

	allowed.allow_zero = allowed.allow_constant = allowed.allow_nan = true; /* of any call, not of a chosen file */
	plumb_compare_begin(&cmp, at->count);
	for (int64_t i = 0; x && y && i < at->count; i++) {
		float a = (float)x[i], b = (float)y[i];
		plumb_compare_add(&cmp, &a, &b, 1);
	}
	at->pass = x && y && plumb_verdict(&cmp, &allowed, &verdict) == PLUMB_OK;
	at->differ = at->pass ? 0 : cmp.count - cmp.equal;
	at->first = cmp.first_differ.index;
	at->worst = cmp.class_mismatch.index >= 0 ? cmp.class_mismatch.index : cmp.max_abs_at.index;
	if (!at->pass && at->worst >= 0 && x && y) {
		at->got = x[at->worst];
		at->want = y[at->worst];
	}
	free(x);
	free(y);
	return x && y ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the values of %s", o->name);
}

int judge_fused(const struct plumb_call *call, const struct plumb_case_expected expected[PLUMB_CASE_OPERANDS],
	const struct plumb_tolerance *tolerance, struct judge *out, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = PLUMB_OK;

	start(out);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		size_t bytes;
		if (!expected[i].data || element_count(call, o) == 0)
			continue;
		void *got = judge_copy(call, o, &bytes);
		if (!got)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a copy of %s", o->name);
		out->at[i].judged = true;
		status = is_integer(o) ? judge_bits(call, o, got, expected[i].data, &out->at[i], err)
		                       : judge_near(call, o, got, expected[i].data, tolerance, &out->at[i], err);
		free(got);
	}
	if (status == PLUMB_OK)
		say(call, PLUMB_CASE_BITS, out);
	if (out->pass)
		snprintf(out->text, sizeof out->text, "pass: within the tolerance of a fused entry");
	else if (out->operand < 0 && status == PLUMB_OK) /* nothing of this op leaves the entry */
		out->pass = true;
	return status;
}

int judge_call(const struct plumb_call *call, const void *before,
	const struct plumb_case_expected expected[PLUMB_CASE_OPERANDS], enum plumb_case_criterion criterion,
	struct plumb_bound_result *bound, struct judge *out, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = PLUMB_OK;

	start(out);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const void *got = plumb_operand_get(call->args, o);
		void *rows = NULL;
		if ((o->role != PLUMB_OUT && o->role != PLUMB_STATE) || !got || !expected[i].data)
			continue;
		if (criterion == PLUMB_CASE_BOUND && !is_integer(o) && plumb_bounds[call->op])
			continue;
		if (o->kind == PLUMB_KIND_CACHE && !(got = rows = gather_rows(call, o)))
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the rows of %s", o->name);
		out->at[i].judged = true;
		status = judge_bits(call, o, got, expected[i].data, &out->at[i], err);
		free(rows);
		if (criterion == PLUMB_CASE_BOUND && call->op == PLUMB_MOE_ROUTER && !out->at[i].pass) {
			int64_t t = wrong_router_row(call, expected);
			out->at[i].pass = t < 0;
			if (t >= 0 && t != out->at[i].worst / call->env->cfg->experts_per_token)
				out->at[i].worst = t * call->env->cfg->experts_per_token;
		}
	}
	if (status == PLUMB_OK && criterion == PLUMB_CASE_BOUND && plumb_bounds[call->op])
		status = judge_bounds(call, before, expected, bound, out, err);
	if (status == PLUMB_OK)
		say(call, criterion, out);
	return status;
}
