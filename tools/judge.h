/* SPDX-License-Identifier: MIT */
/* The verdict on one call: what an implementation wrote, against what was expected, by the criterion of a case. */
#ifndef PLUMB_TOOLS_JUDGE_H
#define PLUMB_TOOLS_JUDGE_H

#include "core/compare.h"
#include "golden/case.h"
#include "ref/bound.h"
#include "tools/axes.h"

/* One operand that the call wrote. */
struct judge_operand {
	bool judged;
	int64_t count, differ; /* elements; those that are not equal (bits: other bits; bound: integers that differ) */
	int64_t first, worst;  /* element: first that differs, and largest difference (or ratio); -1: none */
	double got, want;      /* at worst */
	double ratio;          /* bound: largest |error| / bound */
	bool pass;
	char gates[160]; /* bound: what the sums over all elements say, where they and no element fail */
};

struct judge {
	bool pass;
	int operand; /* first one that fails, in the order of the table; -1: none */
	struct judge_operand at[PLUMB_CASE_OPERANDS];
	char text[400]; /* "pass: ..." or what is wrong, with the worst element by name */
};

/* Values of what a call wrote or had to write, as binary64: an array, or rows of a cache. Freed by the caller; NULL:
 * out of memory. count: of elements. */
double *judge_values(const struct plumb_call *call, const struct plumb_operand *o, const void *data, int64_t *count);

/* The same bits, or a NaN each: a zero is not the negative one. */
bool judge_same(double x, double y);

/* A copy of what a call left in an operand that it writes: the array, or its rows of the cache one behind the other.
 * Freed by the caller; NULL: not there (*bytes is then 0), or out of memory. */
void *judge_copy(const struct plumb_call *call, const struct plumb_operand *o, size_t *bytes);

/* Which elements of an operand are beyond their bound: (count) bytes, freed by the caller. NULL: none is, no bound, or
 * no memory. */
unsigned char *judge_beyond(const struct plumb_call *call, const void *before, int operand, int64_t count);

/* A result that went through several ops at once: no bound of a single op holds for it. Outputs and states are held to
 * a tolerance, integers must be equal. */
int judge_fused(const struct plumb_call *call, const struct plumb_case_expected expected[PLUMB_CASE_OPERANDS],
	const struct plumb_tolerance *tolerance, struct judge *out, struct plumb_error *err);

/* call: as it was made, with args as the candidate left them (caches in place); before: the arguments with states from
 * before the call (bound); expected: of a case. bound: measurements to add to (criterion bound); NULL: none.
 * Errors: PLUMB_BAD_INPUT for memory; else PLUMB_OK, whatever the verdict says. */
int judge_call(const struct plumb_call *call, const void *before,
	const struct plumb_case_expected expected[PLUMB_CASE_OPERANDS], enum plumb_case_criterion criterion,
	struct plumb_bound_result *bound, struct judge *out, struct plumb_error *err);

#endif
