/* SPDX-License-Identifier: MIT */
#include "tools/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "tools/axes.h"
#include "tools/inside_sum.h"
#include "tools/judge.h"

enum { MAX_SHIFT = 64 };

const char *inside_pattern_name(enum inside_pattern pattern)
{
	static const char *const names[INSIDE_PATTERNS] = {"unknown", "unwritten", "nan", "zero", "sign", "factor",
		"offset", "shifted", "row", "permuted", "dropped", "doubled", "bias", "rounding", "tie", "choice"};
	return pattern < INSIDE_PATTERNS ? names[pattern] : names[0];
}

/* What is looked at. */
struct look {
	const struct plumb_call *call;
	const struct plumb_operand *o;
	const double *got, *want, *other;
	int64_t n;
	struct axes axes;
	unsigned char *wrong; /* (n) */
	int64_t differ;
	bool integer;
};

/* Equal up to some rounding. */
static bool near(double x, double y)
{
	return fabs(x - y) <= 1e-5 * fabs(y) + 1e-300;
}

/* ---- where ---- */

/* Words for the set of indices along an axis that have something wrong; false: all of them have. */
static bool describe_axis(const struct look *l, int axis, char *text, size_t size)
{
	static const int modulus[] = {2, 4, 8, 16, 32, 64, 128, 256};
	const struct axis *a = &l->axes.axis[axis];
	unsigned char *hit = calloc(1, (size_t)a->size + 1);
	int64_t hits = 0, low = -1, high = -1;

	text[0] = '\0';
	if (!hit)
		return false;
	for (int64_t i = 0; i < l->n; i++)
		if (l->wrong[i])
			hit[axes_at(&l->axes, axis, i)] = 1;
	for (int64_t i = 0; i < a->size; i++) {
		hits += hit[i];
		low = hit[i] && low < 0 ? i : low;
		high = hit[i] ? i : high;
	}
	if (hits == a->size || hits == 0) {
		free(hit);
		return false;
	}
	if (hits == 1)
		snprintf(text, size, "only %s %lld", a->name, (long long)(a->first + low));
	else if (hits == high - low + 1 && high == a->size - 1)
		snprintf(text, size, "%ss from %lld on", a->name, (long long)(a->first + low));
	else if (hits == high - low + 1)
		snprintf(
			text, size, "%ss %lld to %lld", a->name, (long long)(a->first + low), (long long)(a->first + high));
	for (size_t m = sizeof modulus / sizeof modulus[0]; !text[0] && m-- > 0;) {
		int64_t members = 0;
		if (modulus[m] >= a->size || hits < 2)
			continue;
		for (int64_t i = low % modulus[m]; i < a->size; i += modulus[m])
			members += hit[i];
		int64_t all = (a->size - low % modulus[m] + modulus[m] - 1) / modulus[m];
		if (members == hits && 4 * hits >= 3 * all)
			snprintf(text, size, "only %ss that are %lld mod %d", a->name, (long long)(low % modulus[m]),
				modulus[m]);
	}
	if (!text[0] && hits <= 4) {
		size_t at = (size_t)snprintf(text, size, "only %ss", a->name);
		for (int64_t i = low; i <= high && at < size; i++)
			if (hit[i])
				at += (size_t)snprintf(
					text + at, size - at, "%s %lld", i == low ? "" : ",", (long long)(a->first + i));
	}
	if (!text[0])
		snprintf(text, size, "%lld of %lld %ss", (long long)hits, (long long)a->size, a->name);
	free(hit);
	return true;
}

static void describe_where(const struct look *l, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (int axis = 0; axis < l->axes.count && n < size; axis++) {
		char part[128];
		if (l->axes.axis[axis].size > 1 && describe_axis(l, axis, part, sizeof part))
			n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", part);
	}
	if (!text[0])
		snprintf(text, size, l->differ == l->n ? "every element" : "elements all over it");
}

/* ---- what ---- */

/* Whether all wrong elements satisfy something; share: the part that must (NaN in want are left out). */
typedef bool element_test(const struct look *l, int64_t i, double parameter);

static bool most(const struct look *l, element_test *test, double parameter, double share)
{
	int64_t yes = 0;
	for (int64_t i = 0; i < l->n; i++)
		yes += l->wrong[i] && test(l, i, parameter);
	return l->differ > 0 && (double)yes >= share * (double)l->differ;
}

static bool is_unwritten(const struct look *l, int64_t i, double unused)
{
	(void)unused;
	return l->other && !judge_same(l->got[i], l->other[i]) && !isfinite(l->got[i]) && fabs(l->other[i]) > 1e4;
}
static bool is_not_finite(const struct look *l, int64_t i, double unused)
{
	(void)unused;
	return !isfinite(l->got[i]) && isfinite(l->want[i]);
}
static bool is_zero(const struct look *l, int64_t i, double unused)
{
	(void)unused;
	return l->got[i] == 0.0 && l->want[i] != 0.0;
}
static bool is_negated(const struct look *l, int64_t i, double unused)
{
	(void)unused;
	return l->want[i] != 0.0 && near(-l->got[i], l->want[i]);
}
static bool is_scaled(const struct look *l, int64_t i, double factor)
{
	return fabs(l->got[i] - factor * l->want[i]) <= 1e-4 * fabs(factor * l->want[i]) + 1e-30;
}
static bool is_offset(const struct look *l, int64_t i, double offset)
{
	return fabs(l->got[i] - l->want[i] - offset) <= 1e-3 * fabs(offset) + 2e-7 * fabs(l->want[i]);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Middle of got / want, or of got - want, of the wrong elements; NAN: none. */
static double middle(const struct look *l, bool ratio)
{
	double *v = malloc(((size_t)l->differ + 1) * sizeof *v), result = (double)NAN;
	int64_t n = 0;

	for (int64_t i = 0; v && i < l->n; i++)
		if (l->wrong[i] && isfinite(l->got[i]) && isfinite(l->want[i]) && (!ratio || l->want[i] != 0.0))
			v[n++] = ratio ? l->got[i] / l->want[i] : l->got[i] - l->want[i];
	if (n > 0) {
		qsort(v, (size_t)n, sizeof *v, ascending);
		result = v[n / 2];
	}
	free(v);
	return result;
}

/* Names a factor by the sizes it may come from. */
static const char *factor_name(const struct look *l, double factor, char *text, size_t size)
{
	const struct plumb_config *c = l->call->env->cfg;
	const struct {
		const char *name;
		double value;
	} known[] = {
		{"sqrt(Dh)", sqrt((double)c->head_dim)},
		{"sqrt(Di)", sqrt((double)c->index_dim)},
		{"sqrt(Dk)", sqrt((double)c->gdn_key_dim)},
		{"sqrt(D)", sqrt((double)c->hidden)},
		{"D", (double)c->hidden},
		{"S", (double)c->streams},
		{"Dk", (double)c->gdn_key_dim},
		{"log2(e)", 1.4426950408889634},
		{"2", 2.0},
	};
	text[0] = '\0';
	for (size_t i = 0; i < sizeof known / sizeof known[0] && !text[0]; i++) {
		if (near(fabs(factor), known[i].value))
			snprintf(text, size, " (%s)", known[i].name);
		else if (near(fabs(factor) * known[i].value, 1.0))
			snprintf(text, size, " (1 / %s)", known[i].name);
	}
	return text;
}

/* The scale of a weight that the factor equals; empty: none. */
static const char *scale_name(const struct look *l, double factor, char *text, size_t size)
{
	const struct plumb_op_info *info = &plumb_ops[l->call->op];

	text[0] = '\0';
	for (int i = 0; i < info->operands && !text[0]; i++) {
		const struct plumb_weight *w = plumb_operand_get(l->call->args, &info->operand[i]);
		if (info->operand[i].kind != PLUMB_KIND_WEIGHT || !w)
			continue;
		double global = (double)w->global;
		if ((w->format == PLUMB_NVFP4 || w->format == PLUMB_FP8_TABLE) && global > 0 &&
			(near(factor * global, 1.0) || near(factor, global)))
			snprintf(text, size, ": the global scale of %s is %s", info->operand[i].name,
				near(factor, global) ? "applied twice" : "missing");
	}
	return text;
}

/* got[i] is want[i + s] along an axis. */
static bool is_shifted_by(const struct look *l, int axis, int64_t s)
{
	int64_t stride = 1, size = l->axes.axis[axis].size, seen = 0, fit = 0;

	for (int a = l->axes.count - 1; a > axis; a--)
		stride *= l->axes.axis[a].size;
	for (int64_t i = 0; i < l->n; i++) {
		int64_t at = axes_at(&l->axes, axis, i) % (size ? size : 1) + s;
		if (!l->wrong[i])
			continue;
		if (at < 0 || at >= size)
			continue;
		seen++;
		fit += judge_same(l->got[i], l->want[i + s * stride]);
	}
	return seen >= 3 && 2 * seen >= l->differ && 10 * fit >= 9 * seen;
}

static bool find_shift(const struct look *l, int *axis, int64_t *shift)
{
	for (int a = l->axes.count - 1; a >= 0; a--)
		for (int64_t s = 1; s <= MAX_SHIFT && s < l->axes.axis[a].size; s++)
			for (int sign = 0; sign < 2; sign++)
				if (is_shifted_by(l, a, sign ? -s : s)) {
					*axis = a;
					*shift = sign ? -s : s;
					return true;
				}
	return false;
}

/* Each row (along the last axis) that is wrong holds its own values in another order. */
static bool is_permuted(const struct look *l)
{
	int64_t size = l->axes.count ? l->axes.axis[l->axes.count - 1].size : 0, rows = 0;
	double *x = malloc(((size_t)size + 1) * sizeof *x), *y = malloc(((size_t)size + 1) * sizeof *y);
	bool all = x && y && size > 2;

	for (int64_t r = 0; all && r < l->n / size; r++) {
		bool any = false;
		for (int64_t i = 0; i < size; i++)
			any = any || l->wrong[r * size + i];
		if (!any)
			continue;
		rows++;
		memcpy(x, l->got + r * size, (size_t)size * sizeof *x);
		memcpy(y, l->want + r * size, (size_t)size * sizeof *y);
		qsort(x, (size_t)size, sizeof *x, ascending);
		qsort(y, (size_t)size, sizeof *y, ascending);
		all = memcmp(x, y, (size_t)size * sizeof *x) == 0;
	}
	free(x);
	free(y);
	return all && rows > 0;
}

/* Steps of binary32 (or of bf16, for values that are bf16) between two numbers. */
static double steps(const struct look *l, int64_t i)
{
	uint32_t a, b;
	float x = (float)l->got[i], y = (float)l->want[i];
	int64_t p, q;

	memcpy(&a, &x, sizeof a);
	memcpy(&b, &y, sizeof b);
	p = a & 0x80000000u ? -(int64_t)(a & 0x7fffffffu) : (int64_t)a;
	q = b & 0x80000000u ? -(int64_t)(b & 0x7fffffffu) : (int64_t)b;
	return (double)(p - q) / ((a | b) & 0xffffu ? 1.0 : 65536.0);
}

/* Off by few steps: *up: share of the wrong ones that are above, or farther from zero. */
static bool is_rounding(const struct look *l, double *above, double *outward, double *largest)
{
	int64_t up = 0, out = 0;

	*largest = 0.0;
	for (int64_t i = 0; i < l->n; i++) {
		if (!l->wrong[i])
			continue;
		if (!isfinite(l->got[i]) || !isfinite(l->want[i]))
			return false;
		double s = steps(l, i);
		*largest = fmax(*largest, fabs(s));
		up += l->got[i] > l->want[i];
		out += fabs(l->got[i]) > fabs(l->want[i]);
	}
	*above = (double)up / (double)l->differ;
	*outward = (double)out / (double)l->differ;
	return *largest <= 8.0;
}

static void find_pattern(struct look *l, struct inside *out, char *what, size_t size)
{
	double factor, offset, above, outward, largest;
	char name[160], scale[160];
	int axis;

	if (l->integer) {
		out->pattern = INSIDE_CHOICE;
		snprintf(what, size, "another choice than the truth's");
	} else if (l->other && most(l, is_unwritten, 0, 0.9)) {
		out->pattern = INSIDE_UNWRITTEN;
		snprintf(what, size, "never written: they hold what the buffer held before the call");
	} else if (most(l, is_not_finite, 0, 0.9)) {
		out->pattern = INSIDE_NAN;
		snprintf(what, size, "NaN or Inf where numbers are expected");
	} else if (most(l, is_zero, 0, 0.95)) {
		out->pattern = INSIDE_ZERO;
		snprintf(what, size, "zero: the result of these is never added, or masked away");
	} else if (most(l, is_negated, 0, 0.95)) {
		out->pattern = INSIDE_SIGN;
		snprintf(what, size, "of the other sign");
	} else if (find_shift(l, &axis, &out->shift)) {
		bool inner = axis == l->axes.count - 1;
		out->pattern = inner ? INSIDE_SHIFTED : INSIDE_ROW;
		snprintf(what, size, "each the value that belongs %lld %s%s %s: an index is off",
			(long long)llabs(out->shift), l->axes.axis[axis].name, llabs(out->shift) == 1 ? "" : "s",
			out->shift > 0 ? "further on" : "before");
	} else if (is_rounding(l, &above, &outward, &largest)) {
		bool one_side = above < 0.05 || above > 0.95, by_sign = outward < 0.05 || outward > 0.95;
		out->pattern = l->differ >= 8 && (one_side || by_sign) ? INSIDE_BIAS : INSIDE_ROUNDING;
		if (out->pattern == INSIDE_BIAS)
			snprintf(what, size,
				"off by at most %.0f step%s, %s: a bias, as truncation or a constant of the wrong "
				"rounding makes",
				largest, largest == 1.0 ? "" : "s",
				one_side        ? above > 0.5 ? "all upwards" : "all downwards"
				: outward > 0.5 ? "all away from zero"
						: "all towards zero");
		else
			snprintf(what, size,
				"off by at most %.0f step%s, up as often as down: another order of summation, or a "
				"rounding point more or less",
				largest, largest == 1.0 ? "" : "s");
	} else if (factor = middle(l, true),
		isfinite(factor) && fabs(factor - 1.0) > 1e-4 && l->differ > 1 && most(l, is_scaled, factor, 0.95)) {
		out->pattern = INSIDE_FACTOR;
		out->factor = factor;
		snprintf(what, size, "%.6g%s times what is expected%s", factor, factor_name(l, factor, name, sizeof name),
			scale_name(l, factor, scale, sizeof scale));
	} else if (inside_sum(l->call, l->o, l->got, l->want, l->wrong, l->n, &out->pattern, what, size)) {
		;
	} else if (offset = middle(l, false), isfinite(offset) && l->differ > 1 && most(l, is_offset, offset, 0.95)) {
		out->pattern = INSIDE_OFFSET;
		out->factor = offset;
		snprintf(what, size, "%.6g above what is expected", offset);
	} else if (is_permuted(l)) {
		out->pattern = INSIDE_PERMUTED;
		snprintf(what, size, "the right values in another order");
	} else {
		double error2 = 0.0, want2 = 0.0;
		for (int64_t i = 0; i < l->n; i++)
			if (l->wrong[i] && isfinite(l->got[i]) && isfinite(l->want[i])) {
				error2 += (l->got[i] - l->want[i]) * (l->got[i] - l->want[i]);
				want2 += l->want[i] * l->want[i];
			}
		if (want2 > 0)
			snprintf(what, size, "off by %.3g of their size, with no common factor, sum or shift",
				sqrt(error2 / want2));
		else
			snprintf(what, size, "off by %.3g where zeros are expected", sqrt(error2));
	}
}

/* Choices that differ among equal scores: of an op whose scores are an input or another output of it. */
static bool is_tie(const struct look *l)
{
	const struct plumb_op_info *info = &plumb_ops[l->call->op];
	const char *scores = l->call->op == PLUMB_QSA_SELECT                                  ? "score"
	                     : l->call->op == PLUMB_MOE_ROUTER || l->call->op == PLUMB_ARGMAX ? "logits"
	                                                                                      : NULL;
	const struct plumb_extent extent = {.T = l->call->T, .capacity = l->call->env->capacity};
	int64_t per_row = l->n / l->call->T, width = 0;
	const float *s = NULL;

	if (scores) {
		const struct plumb_operand *o = plumb_operand_find(info, scores);
		s = plumb_operand_get(l->call->args, o);
		width = plumb_shape_count(o->shape, l->call->env->cfg, &extent) / l->call->T;
	}
	if (!s || width == 0 || strcmp(l->o->name, "count") == 0)
		return false;
	for (int64_t t = 0; t < l->call->T; t++) {
		double got_sum = 0.0, want_sum = 0.0;
		for (int64_t i = t * per_row; i < (t + 1) * per_row; i++) {
			if (l->got[i] >= (double)width || l->want[i] >= (double)width)
				return false;
			got_sum += l->got[i] >= 0 ? (double)s[t * width + (int64_t)l->got[i]] : 0.0;
			want_sum += l->want[i] >= 0 ? (double)s[t * width + (int64_t)l->want[i]] : 0.0;
		}
		if (got_sum != want_sum)
			return false;
	}
	return true;
}

void inside_look(const struct plumb_call *call, const struct plumb_operand *o, const double *got, const double *other,
	const double *want, const unsigned char *wrong, int64_t count, struct inside *out)
{
	struct look l = {.call = call, .o = o, .got = got, .want = want, .other = other, .n = count};
	char what[400] = "";

	memset(out, 0, sizeof *out);
	out->count = count;
	l.integer = o->kind == PLUMB_KIND_I32 || o->kind == PLUMB_KIND_I64;
	l.wrong = calloc(1, (size_t)count + 1);
	if (!l.wrong)
		return;
	axes_make(call, o, &l.axes);
	for (int64_t i = 0; i < count; i++)
		l.differ += l.wrong[i] = wrong ? wrong[i] : !judge_same(got[i], want[i]);
	out->differ = l.differ;
	if (l.differ > 0) {
		describe_where(&l, out->where, sizeof out->where);
		find_pattern(&l, out, what, sizeof what);
		if (l.integer && is_tie(&l)) {
			out->pattern = INSIDE_TIE;
			snprintf(what, sizeof what, "another choice among equal scores: the tie goes to the lower index");
		}
		snprintf(out->text, sizeof out->text, "%lld of %lld values of %s are wrong: %s. They are %s.",
			(long long)l.differ, (long long)count, o->name, out->where, what);
	}
	free(l.wrong);
}
