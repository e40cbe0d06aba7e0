/* SPDX-License-Identifier: MIT */
/* Text for people: lines that fit, and the word that was meant. */
#ifndef PLUMB_TOOLS_TEXT_H
#define PLUMB_TOOLS_TEXT_H

#include <stdio.h>

#include "core/op.h"
#include "core/status.h"

/* Print text filled to width columns (0: no limit). The cursor stands in column `at`; further lines begin at `indent`. A single
 * newline of the text is a space, an empty line stays one. Ends with a newline. */
void text_fill(FILE *f, const char *text, int at, int indent, int width);

/* The nearest of some words to one that was typed: call text_nearest for each of them, then text_did_you_mean. Near are words
 * that a third of the letters, at most, must be changed for (insert, drop, replace, swap two neighbours); the first of equals. */
struct text_nearest {
	const char *word;
	char best[64];
	int distance; /* of best, where it is not empty */
};
void text_nearest(struct text_nearest *n, const char *candidate);

/* ", did you mean 'gdn_conv'?" or "". Returns text. */
enum { TEXT_NEAREST = 96 };
const char *text_did_you_mean(const struct text_nearest *n, char text[TEXT_NEAREST]);

/* The same for the name of an op. */
const char *text_op_meant(const char *word, char text[TEXT_NEAREST]);

/* The op that an option names. Errors: PLUMB_BAD_INPUT, with the op that was meant. */
int text_op(const char *option, const char *name, enum plumb_op *out, struct plumb_error *err);

#endif
