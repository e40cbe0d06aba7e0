/* SPDX-License-Identifier: MIT */
/* Cases: one call of one op in one HDF5 file, with everything it reads and what it has to write. A case needs no
 * checkpoint, replays in milliseconds, and doubles as a regression test (golden/cases/).
 *
 * Held: inputs; state as it was before the call; of the weights the parts that the call reads (core/reads.h), as they
 * are stored; of the caches the rows that it reads; the page table; expected outputs and state; config, policy, ties.
 * Not held, since the config gives them: rope tables and hash constants. docs/bisect.md has the layout.
 *
 * A case that is read is somebody else's file: nothing of it reaches a kernel before shapes, formats, ids, page tables
 * and block lists are what the op's contract and the config demand. */
#ifndef PLUMB_GOLDEN_CASE_H
#define PLUMB_GOLDEN_CASE_H

#include "core/decoder.h"
#include "golden/h5.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLUMB_CASE_OPERANDS = 16, PLUMB_CASE_VERSION = 1 };

/* How a result is compared with what is expected. */
enum plumb_case_criterion {
	PLUMB_CASE_BITS,  /* every bit, one NaN as good as another */
	PLUMB_CASE_BOUND, /* within the bound derived from the declared order (ref/bound.h); integers as choices */
};

/* What an operand that is written must hold after the call. */
struct plumb_case_expected {
	const void *data;    /* an array: like the operand; a cache: rows first .. first + rows - 1; NULL: not compared */
	int64_t first, rows; /* of a cache */
};

/* Where a case comes from. NULL: not said. */
struct plumb_case_origin {
	const char *suspect;  /* which implementation was suspected: "opt on simt, seed 0" */
	const char *truth;    /* which gave the expected values: "ref, mode twin" */
	const char *producer; /* "plumb 0.1.0" */
	const char *command;
	const char *golden;  /* the file that was bisected */
	const char *date;    /* passed in; cases without are the same bytes on every day */
	const char *finding; /* what was found, a line */
};

/* Write a case: whole or not at all (golden/h5_write.h), the same bytes when written twice.
 * call: with state from before the call (arrays: in args; caches: rows of this call are not read), host pointers.
 * Outputs of args are not read. expected: one for each operand of the op. Errors: PLUMB_BAD_INPUT: the file cannot be
 * written. */
int plumb_case_write(const char *path, const struct plumb_call *call,
	const struct plumb_case_expected expected[PLUMB_CASE_OPERANDS], enum plumb_case_criterion criterion,
	const struct plumb_case_origin *origin, struct plumb_error *err);

/* Rows of a cache that a call of T rows at a position writes: first .. last - 1. */
void plumb_case_written_rows(const struct plumb_call *call, const struct plumb_operand *o, int64_t *first, int64_t *last);

/* A case in memory. */
struct plumb_case {
	struct plumb_config cfg;
	struct plumb_env env;   /* cfg above; device NULL */
	struct plumb_call call; /* env above; binding NULL; args: inputs, weights, and state from before the call, in memory
	                 of this case. Outputs point to memory of the right size whose contents mean nothing */
	struct plumb_case_expected expected[PLUMB_CASE_OPERANDS];
	enum plumb_case_criterion criterion;
	struct plumb_case_origin origin; /* texts of the file: do not print them raw */
	void *args;
	void **memory;  /* of all that, released together */
	size_t *mapped; /* bytes of what came from mmap, else 0 */
	int memories, room;
};

/* Read a case; *out is released by plumb_case_free.
 * Memory of a matrix that is not held is NaN in every format; rows of a table and of a cache that are not held are
 * zero. Errors: PLUMB_BAD_INPUT naming file, object, what it has and what was expected. */
int plumb_case_read(const char *path, struct plumb_case **out, struct plumb_error *err);
void plumb_case_free(struct plumb_case *c);

/* "attn", "mlp", "final" or "none". */
const char *plumb_site_name(enum plumb_site site);

#ifdef __cplusplus
}
#endif
#endif
