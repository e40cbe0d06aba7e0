/* SPDX-License-Identifier: MIT */
/* plumb check --bounds: every call of a run is judged by the error bounds of ref/bound.h, from the very inputs it had.
 * No golden is needed for this, so cached decode and the greedy continuation are judged too. */
#ifndef PLUMB_TOOLS_CHECK_BOUNDS_H
#define PLUMB_TOOLS_CHECK_BOUNDS_H

#include <cJSON.h>
#include <stdio.h>

#include "core/decoder.h"
#include "ref/bound.h"
#include "tools/check_second.h"

/* Where the largest ratio of an operand was met. */
struct check_bounds_place {
	int layer;
	int64_t position; /* of row 0 of the call */
	int64_t dim[8];   /* of the operand in that call */
	int rank;
};

/* The largest ratio of an op in one layer. */
struct check_bounds_cell {
	int operand; /* -1: nothing was judged there */
	int64_t index, calls, values;
	double ratio;
	float candidate;
	struct plumb_ball ball;
	struct check_bounds_place place;
};

struct check_bounds_op {
	int64_t calls;
	struct plumb_bound_result result;
	struct check_bounds_place place[PLUMB_BOUND_OPERANDS];
	struct check_bounds_cell *cell; /* (layers + 1) */
	double oracle;                  /* largest ratio of the oracle itself: above 1, bound and oracle are two truths */
};

struct check_bounds {
	struct check_bounds_op op[PLUMB_OP_COUNT];
	int layers; /* L */
};

struct check_bounds *check_bounds_create(int layers, struct plumb_error *err);

void check_bounds_free(struct check_bounds *b); /* NULL: nothing */

/* After a call whose states were kept by check_second_keep, before anything that it wrote is changed. */
int check_bounds_call(
	struct check_bounds *b, struct check_second *second, const struct plumb_call *call, struct plumb_error *err);

/* PLUMB_OK when at least one value was judged and all gates hold. */
int check_bounds_status(const struct check_bounds *b);

void check_bounds_print(const struct check_bounds *b);
void check_bounds_print_line(const struct check_bounds *b);
void check_bounds_json(const struct check_bounds *b, cJSON *view);
void check_bounds_junit(const struct check_bounds *b, const char *view, FILE *f);

#endif
