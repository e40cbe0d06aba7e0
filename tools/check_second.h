/* SPDX-License-Identifier: MIT */
/* A second evaluation of a call, by the oracle or any other implementation, from the same inputs and the state before
 * the call, without a trace left behind in what anybody has written: outputs and states go to scratch memory, and rows
 * that it appends to caches are put back. */
#ifndef PLUMB_TOOLS_CHECK_SECOND_H
#define PLUMB_TOOLS_CHECK_SECOND_H

#include "core/decoder.h"
#include "opt/poison.h"

enum { CHECK_SECOND_OPERANDS = 16 };

/* Zero it to start. Memory is kept from call to call. */
struct check_second {
	void *before[CHECK_SECOND_OPERANDS];  /* contents of array states before the call, by operand */
	void *scratch[CHECK_SECOND_OPERANDS]; /* outputs and states of the oracle */
	void *rows[CHECK_SECOND_OPERANDS];    /* cache rows as the call left them */
	void *args;                           /* argument struct of the second evaluation */
	void *args_before;                    /* the call's, with states as they were before it */
};

/* Before the call: keep copies of its states. */
int check_second_keep(struct check_second *s, const struct plumb_call *call, struct plumb_error *err);

/* After the call: s->args_before. */
int check_second_before(struct check_second *s, const struct plumb_call *call, struct plumb_error *err);

/* After the call: evaluate again; s->args then holds the oracle's outputs, and caches its rows. unrounded: without the
 * last rounding of outputs. */
int check_second_run(struct check_second *s, const struct plumb_call *call, bool unrounded, struct plumb_error *err);

/* The same by any implementation. */
struct check_second_way {
	struct plumb_binding by;           /* set NULL: the oracle */
	const struct plumb_runner *runner; /* what it runs through; NULL: called directly */
	bool unrounded;
	/* of outputs, of cache rows that it writes and of some that nobody wrote, before it runs */
	enum plumb_poison poison;
};
int check_second_run_by(
	struct check_second *s, const struct plumb_call *call, const struct check_second_way *way, struct plumb_error *err);

/* After the call: keep the cache rows that it left in s->rows (a run does so by itself). */
int check_second_hold(struct check_second *s, const struct plumb_call *call, struct plumb_error *err);

/* Put the rows back. Outputs in s->args stay until the next call. */
void check_second_undo(struct check_second *s, const struct plumb_call *call);

void check_second_free(struct check_second *s);

#endif
