/* SPDX-License-Identifier: MIT */
/* Two traces, tensor by tensor: what one of them lacks, shapes, values. Both are read in row blocks, so neither needs
 * to fit into memory. Printing is tools/golden_report.c's business. */
#ifndef PLUMB_TOOLS_GOLDEN_DIFF_H
#define PLUMB_TOOLS_GOLDEN_DIFF_H

#include "core/compare.h"
#include "core/tolerance.h"
#include "golden/h5.h"

enum diff_state {
	DIFF_EQUAL,  /* every bit */
	DIFF_WITHIN, /* not every bit, but what was asked */
	DIFF_BEYOND,
	DIFF_SHAPE, /* shapes or types differ: values not looked at */
	DIFF_ONLY_A,
	DIFF_ONLY_B,
};

enum diff_kind {
	DIFF_FLOATS,
	DIFF_INTEGERS,
	DIFF_EXPERTS, /* integers whose rows are choices: compared as sets too */
	DIFF_MASK,    /* floats whose rows are choices, 0 where selected; or integers (golden/mask.h) */
	DIFF_NOTHING, /* not numbers */
};

enum diff_rule {
	DIFF_BITS,       /* floats: every bit; integers: equal, in order */
	DIFF_ULP,        /* floats: at most so many steps of binary32; choices: equal as sets */
	DIFF_REL_L2,     /* floats: relative L2; choices: equal as sets */
	DIFF_TOLERANCES, /* floats: the propagated rules of a tolerance file; choices: equal as sets */
};

struct diff_options {
	const char *group; /* "fp32": its tensors only; NULL: all */
	enum diff_rule rule;
	int64_t ulp;
	double rel_l2;
	const struct plumb_tolerances *tolerances;
	bool progress;
};

/* Rows of a choice. */
struct diff_rows {
	int64_t rows, equal; /* equal: as sets; other order only: equal - same */
	int64_t same;        /* equal in order too */
	int64_t first;       /* first row that differs as a set, -1: none */
	char text[160];      /* what it has in A only and in B only */
};

struct diff_item {
	const char *name;                   /* as in the file: for people through diff_printable */
	const struct plumb_h5_entry *a, *b; /* NULL: not there */
	enum diff_state state;
	enum diff_kind kind;
	struct plumb_compare cmp; /* floats: A is the candidate, B the reference */
	struct plumb_compare_int ints;
	struct diff_rows rows;
	struct plumb_verdict verdict;
};

struct diff {
	struct diff_item *item; /* in the order of a forward pass: run, layer, op */
	int64_t items;
	int64_t count[DIFF_ONLY_B + 1]; /* of each state */
};

/* Compare. *out is released by diff_free. Returns PLUMB_OK when it could be done, whatever it found, else
 * PLUMB_BAD_INPUT (a file that cannot be decoded, checksums that do not fit, a group that neither has). */
int diff_run(struct plumb_h5 *a, struct plumb_h5 *b, const struct diff_options *options, struct diff *out,
	struct plumb_error *err);
void diff_free(struct diff *diff);

/* PLUMB_OK when at least one tensor was compared and none is beyond, misshapen or missing. */
int diff_status(const struct diff *diff);

/* A name as it may be printed: ASCII. size: of out. */
void diff_printable(const char *name, char *out, size_t size);

/* "[3,17]" of a flat index. Returns text. */
const char *diff_coordinates(const struct plumb_h5_entry *entry, int64_t index, char text[160]);

#endif
