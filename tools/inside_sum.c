/* SPDX-License-Identifier: MIT */
#include "tools/inside_sum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plain projections: output, weight, input. */
static const struct {
	enum plumb_op op;
	const char *output, *weight, *input;
} projections[] = {
	{PLUMB_GDN_IN_PROJ, "qkv", "w_qkv", "x"},
	{PLUMB_GDN_IN_PROJ, "z", "w_z", "x"},
	{PLUMB_GDN_IN_PROJ, "b", "w_b", "x"},
	{PLUMB_GDN_IN_PROJ, "a", "w_a", "x"},
	{PLUMB_GDN_OUT_PROJ, "y", "w", "x"},
	{PLUMB_ATTN_IN_PROJ, "qg", "w_q", "x"},
	{PLUMB_ATTN_IN_PROJ, "k", "w_k", "x"},
	{PLUMB_ATTN_IN_PROJ, "v", "w_v", "x"},
	{PLUMB_ATTN_OUT_PROJ, "y", "w", "x"},
	{PLUMB_MOE_ROUTER, "logits", "gate", "x"},
	{PLUMB_LM_HEAD, "logits", "w", "x"},
};

enum { SAMPLES = 8, MAX_COLUMNS = 8192 }; /* wrong elements whose sums are taken apart; K of the largest */

/* Wrong elements: the terms of their sums, the sum of their magnitudes, and how far off they are. */
struct samples {
	double *term[SAMPLES]; /* (K) */
	double size[SAMPLES], error[SAMPLES];
	int count;
};

/* A part of 0 .. K-1: first .. last - 1, or all that are first mod step. */
struct part {
	int64_t first, last, step;
};

static double sum_of(const double *term, const struct part *p)
{
	double sum = 0.0;
	for (int64_t k = p->first; k < p->last; k += p->step)
		sum += term[k];
	return sum;
}

/* Whether the part explains the error of every sample, with one sign. 1: missing, -1: there twice, 0: neither. */
static int explains(const struct samples *x, const struct part *p)
{
	int sign = 0;
	for (int s = 0; s < x->count; s++) {
		double sum = sum_of(x->term[s], p), slack = 1e-6 * x->size[s] + 0.01 * fabs(x->error[s]);
		int now = fabs(x->error[s] + sum) <= slack ? 1 : fabs(x->error[s] - sum) <= slack ? -1 : 0;
		if (fabs(sum) < 4.0 * slack || now == 0 || (sign && now != sign))
			return 0;
		sign = now;
	}
	return sign;
}

static int find_part(const struct samples *x, int64_t K, struct part *p, char *name, size_t size)
{
	static const int64_t chunks[] = {256, 128, 64, 32, 16, 8, 4, 2, 1};
	int sign;

	for (int64_t first = K - 1; first > 0; first--) { /* a tail */
		*p = (struct part){first, K, 1};
		if ((sign = explains(x, p))) {
			snprintf(name, size, "the last %lld of %lld terms of each sum (from column %lld on) ",
				(long long)(K - first), (long long)K, (long long)first);
			return sign;
		}
	}
	for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++)
		for (int64_t first = 0; first < K && chunks[c] < K; first += chunks[c]) {
			*p = (struct part){first, first + chunks[c] < K ? first + chunks[c] : K, 1};
			if ((sign = explains(x, p))) {
				snprintf(name, size, "columns %lld to %lld of each sum (chunk %lld of %lld) ",
					(long long)p->first, (long long)p->last - 1, (long long)(first / chunks[c]),
					(long long)chunks[c]);
				return sign;
			}
		}
	for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++)
		for (int64_t lane = 0; lane < chunks[c] && chunks[c] < K; lane++) {
			*p = (struct part){lane, K, chunks[c]};
			if ((sign = explains(x, p))) {
				snprintf(name, size, "the columns that are %lld mod %lld of each sum (one lane) ",
					(long long)lane, (long long)chunks[c]);
				return sign;
			}
		}
	return 0;
}

bool inside_sum(const struct plumb_call *call, const struct plumb_operand *o, const double *got, const double *want,
	const unsigned char *wrong, int64_t count, enum inside_pattern *pattern, char *what, size_t size)
{
	const struct plumb_weight *w = NULL;
	const float *x = NULL;
	struct samples of = {.count = 0};
	float *row = NULL;
	int sign = 0;
	struct part part;
	char name[160];

	for (size_t i = 0; i < sizeof projections / sizeof projections[0]; i++)
		if (projections[i].op == call->op && strcmp(projections[i].output, o->name) == 0) {
			w = plumb_operand_get(call->args, plumb_operand_find(&plumb_ops[call->op], projections[i].weight));
			x = plumb_operand_get(call->args, plumb_operand_find(&plumb_ops[call->op], projections[i].input));
		}
	/* LIMIT: 8 of the wrong elements, sums of up to 8192 terms */
	if (!w || !x || w->cols > MAX_COLUMNS || !(row = malloc((size_t)w->cols * sizeof *row)))
		return false;
	for (int64_t i = 0; i < count && of.count < SAMPLES; i++) {
		double *term;
		if (!wrong[i] || !isfinite(got[i]) || !isfinite(want[i]) ||
			!(term = malloc((size_t)w->cols * sizeof *term)))
			continue;
		plumb_weight_row(w, i % w->rows, 0, w->cols, row);
		for (int64_t k = 0; k < w->cols; k++) {
			term[k] = (double)row[k] * (double)x[i / w->rows * w->cols + k];
			of.size[of.count] += fabs(term[k]);
		}
		of.term[of.count] = term;
		of.error[of.count++] = got[i] - want[i];
	}
	if (of.count > 0)
		sign = find_part(&of, w->cols, &part, name, sizeof name);
	if (sign) {
		*pattern = sign > 0 ? INSIDE_DROPPED : INSIDE_DOUBLED;
		snprintf(what, size, "wrong because %s%s", name, sign > 0 ? "are missing" : "are there twice");
	}
	for (int s = 0; s < of.count; s++)
		free(of.term[s]);
	free(row);
	return sign != 0;
}
