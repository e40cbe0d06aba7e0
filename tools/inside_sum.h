/* SPDX-License-Identifier: MIT */
/* Wrong results of a projection, y = w . x: which part of the sum over K is missing or there twice. */
#ifndef PLUMB_TOOLS_INSIDE_SUM_H
#define PLUMB_TOOLS_INSIDE_SUM_H

#include "tools/inside.h"

/* True when the errors of the wrong elements are minus (or plus) the same part of their sums: a tail, a chunk, a lane.
 * what: says which. Only for operands that are a plain projection of an input (inside_sum.c has the list). */
bool inside_sum(const struct plumb_call *call, const struct plumb_operand *o, const double *got, const double *want,
	const unsigned char *wrong, int64_t count, enum inside_pattern *pattern, char *what, size_t size);

#endif
