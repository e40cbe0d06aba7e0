/* SPDX-License-Identifier: MIT */
/* Between the parts of the harness of trials. */
#ifndef PLUMB_TOOLS_TRIAL_PRIVATE_H
#define PLUMB_TOOLS_TRIAL_PRIVATE_H

#include "tools/trial.h"

/* Bytes beside a buffer, where it does not touch a trap, all ones: a NaN in binary32, bf16, f16 and E4M3, and -1. */
enum { TRIAL_ZONE = 256, TRIAL_ZONE_BYTE = 0xff };

bool trial_memory_intact(const struct trial_memory *m); /* the zones */
/* A copy of what counts, and whether memory still is like it; trial_memory_scatter puts it back. */
unsigned char *trial_memory_keep(const struct trial_memory *m);
bool trial_memory_is(const struct trial_memory *m, const unsigned char *kept);

/* The same bits, or NaN for NaN. False with text. a, b: as results hold them; b NULL: it is not there. */
bool trial_operand_same(const struct trial_operand *o, const unsigned char *a, const unsigned char *b, const char *what,
	char text[TRIAL_TEXT]);

/* Caches that hold the call's tokens, in whole pages, and a position from which on they fit. */
void trial_place(struct trial *c);

/* Whether the op writes the operand, and it is there. */
bool trial_written(const struct trial_operand *o);

#endif
