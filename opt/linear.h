/* SPDX-License-Identifier: MIT */
/* Projections as the stages use them. */
#ifndef PLUMB_OPT_LINEAR_H
#define PLUMB_OPT_LINEAR_H

#include "core/op.h"
#include "core/weight.h"

/* One matrix of a call and where its rows go: y (T, rows). what: op and operand, for messages. */
struct linear_part {
	const struct plumb_weight *w;
	float *y;
	const char *what;
};

/* y[t] = rne(w . x[t]) of up to four matrices of the same columns and of any formats; x (T, K). One launch a token.
 * Rows split(pieces, 256) with the rows of all parts. */
int linear_opt(const struct plumb_env *env, const float *x, int64_t T, const struct linear_part *part, int parts);

#endif
