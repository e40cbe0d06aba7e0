/* SPDX-License-Identifier: MIT */
/* What a wrong result looks like to a kernel engineer: which elements differ and what they share, and which known fault
 * the pattern fits. Reads values only; it never decides whether a result is wrong. */
#ifndef PLUMB_TOOLS_INSIDE_H
#define PLUMB_TOOLS_INSIDE_H

#include "core/decoder.h"

enum inside_pattern {
	INSIDE_UNKNOWN,
	INSIDE_UNWRITTEN, /* elements hold what memory held before */
	INSIDE_NAN,       /* NaN or Inf where numbers are expected */
	INSIDE_ZERO,      /* zeros where numbers are expected */
	INSIDE_SIGN,      /* the sign is the other one */
	INSIDE_FACTOR,    /* all off by one factor */
	INSIDE_OFFSET,    /* all off by one sum */
	INSIDE_SHIFTED,   /* an element's value is its neighbour's */
	INSIDE_ROW,       /* a row has another row's values */
	INSIDE_PERMUTED,  /* a row has its own values in another order */
	INSIDE_DROPPED,   /* part of the reduction is missing */
	INSIDE_DOUBLED,   /* part of the reduction is there twice */
	INSIDE_BIAS,      /* off by a step or few, all to one side */
	INSIDE_ROUNDING,  /* off by a step or few, to both sides */
	INSIDE_TIE,       /* another choice among equals */
	INSIDE_CHOICE,    /* another choice */
	INSIDE_PATTERNS,
};

struct inside {
	enum inside_pattern pattern;
	int64_t count, differ;
	double factor;   /* FACTOR, OFFSET */
	int64_t shift;   /* SHIFTED, ROW */
	char where[256]; /* "only head 2", "columns 2052 to 2559" */
	char text[900];  /* the paragraph */
};

/* call: as it was made (inputs are looked at for parts of reductions); o: the operand; got, want: (count) values of it.
 * other: (count) values of a second run over other poison, or NULL. wrong: (count) which elements are; NULL: those that
 * differ. */
void inside_look(const struct plumb_call *call, const struct plumb_operand *o, const double *got, const double *other,
	const double *want, const unsigned char *wrong, int64_t count, struct inside *out);

const char *inside_pattern_name(enum inside_pattern pattern); /* "factor" */

#endif
