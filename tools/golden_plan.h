/* SPDX-License-Identifier: MIT */
/* What a golden file in the making will hold: its runs, their tensors, and where each lies in the part file. */
#ifndef PLUMB_TOOLS_GOLDEN_PLAN_H
#define PLUMB_TOOLS_GOLDEN_PLAN_H

#include "core/decoder.h"
#include "core/sha256.h"
#include "golden/h5.h"
#include "golden/layout.h"
#include "golden/seal.h"
#include "tools/golden_origin.h"

enum golden_fill {
	GOLDEN_FILL_PROMPT, /* row by row, by the ops, while the prompt runs */
	GOLDEN_FILL_STATE,  /* after the last token of the prompt */
	GOLDEN_FILL_DECODE, /* decode_logits */
	GOLDEN_FILL_GREEDY,
};

struct golden_tensor {
	char name[96];                            /* within the run */
	const struct plumb_golden_source *source; /* NULL: decode_logits, greedy */
	int layer;                                /* that it belongs to; L outside the layers */
	enum golden_fill fill;
	enum plumb_h5_type type;
	int rank;
	int64_t dim[PLUMB_H5_RANK];
	int64_t count;
	int value_bytes; /* in the part file: 4 f32, 8 i64, 1 of a mask (1 = selected) */
	int64_t offset;  /* there */
};

struct golden_run {
	enum plumb_policy policy;
	int64_t steps;                /* greedy tokens; 0: none */
	int64_t prefill;              /* of decode_logits; -1: none */
	struct golden_tensor *tensor; /* by name in byte order */
	int tensors;
	int *of_source; /* (sources, L + 1): tensor that a source fills when the op runs in this layer, or -1 */
};

enum { GOLDEN_RUNS = 2, GOLDEN_GLOBS = 64 };

/* Which tensors. */
struct golden_choice {
	int first_layer, last_layer;    /* inclusive; L: what lies outside the layers */
	const char *glob[GOLDEN_GLOBS]; /* of names within a run; none: all */
	int globs;
	const struct plumb_golden *like; /* not NULL: only those that this file has */
};

struct golden_plan {
	const struct plumb_config *cfg;
	const struct golden_origin *origin;
	const int32_t *token; /* (T) */
	int64_t T;
	struct golden_run run[GOLDEN_RUNS];
	int runs;
	int64_t bytes; /* of the part file */
};

/* Fill in tensors of the runs, whose policy, steps and prefill are set, and whose cfg, origin, token and T are.
 * Errors: PLUMB_BAD_INPUT for a glob that matches nothing, nothing chosen at all, sizes beyond what can be stored.
 * Released by golden_plan_free also after an error. */
int golden_plan_make(struct golden_plan *plan, const struct golden_choice *choice, struct plumb_error *err);
void golden_plan_free(struct golden_plan *plan);

/* The tensor that a source fills in this layer's call, or NULL. */
const struct golden_tensor *golden_plan_of(
	const struct golden_plan *plan, const struct golden_run *run, const struct plumb_golden_source *source, int layer);
const struct golden_tensor *golden_plan_find(const struct golden_run *run, const char *name);

/* What a file has of a run: greedy tokens (0: none), and the prefill of its decode_logits (-1: it has none). */
int64_t golden_plan_greedy_of(const struct plumb_golden *golden, enum plumb_policy policy);
int64_t golden_plan_prefill_of(const struct plumb_golden *golden, enum plumb_policy policy);

/* The attributes of the format, in the order of plumb_golden_sealed: what is said of one, if anything. */
bool golden_plan_attribute(
	const struct golden_plan *plan, const struct plumb_golden_sealed *what, const char **text, int64_t *integer);

/* One number for everything that decides the bytes of the file: two makes with the same may go on with each other's
 * part. */
const char *golden_plan_fingerprint(const struct golden_plan *plan, char text[65]);

#endif
