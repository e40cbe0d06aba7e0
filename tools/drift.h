/* SPDX-License-Identifier: MIT */
/* How far the GDN state drifts from exact arithmetic over many tokens, by the format it is stored in (fault class F11).
 *
 * One head a decay class, from forgetting at once to hardly at all, random keys, queries, values and gates of a seed. The
 * op runs as it is bound, in its declared arithmetic; beside it the same recurrence runs in binary64. */
#ifndef PLUMB_TOOLS_DRIFT_H
#define PLUMB_TOOLS_DRIFT_H

#include "core/decoder.h"

enum { DRIFT_FORMATS = 3, DRIFT_CLASSES = 8, DRIFT_POINTS = 16 };

struct drift_options {
	struct plumb_binding binding; /* a set that has gdn_recurrence */
	int64_t steps;                /* 1 .. 65536 */
	int64_t key_dim, value_dim;   /* Dk, Dv, 1 .. 512; 0: 128, as released */
	uint64_t seed;
	bool without[DRIFT_FORMATS];                               /* leave a format out */
	void (*progress)(void *self, int64_t done, int64_t total); /* NULL: nobody is told */
	void *self;
};

/* After a step, of one head. Relative: as a part of the same of the exact state or output. */
struct drift_figure {
	double state, output; /* 2-norm of the error, relative */
	double largest;       /* error of one element, as a part of the largest element */
	double bound;         /* what the 2-norm of the state's error cannot exceed, relative: see tools/drift.c */
};

struct drift_point {
	int64_t step; /* tokens done */
	struct drift_figure figure[DRIFT_FORMATS][DRIFT_CLASSES];
};

struct drift {
	struct drift_point point[DRIFT_POINTS]; /* after 1, 4, 16, ... tokens, and after the last */
	int points;
	double decay[DRIFT_CLASSES]; /* what the state is multiplied with for a token, in the geometric mean over the run */
};

extern const enum plumb_format drift_formats[DRIFT_FORMATS]; /* f32, f16, bf16 */

/* Errors: PLUMB_BAD_INPUT for sizes out of range or memory; else the status of the op. */
int drift_run(const struct drift_options *options, struct drift *out, struct plumb_error *err);

#endif
