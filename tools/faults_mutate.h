/* SPDX-License-Identifier: MIT */
/* Mechanical mutants of C and CUDA source: every place where an operator applies, in the order of the text. The same text
 * gives the same mutants. */
#ifndef PLUMB_TOOLS_FAULTS_MUTATE_H
#define PLUMB_TOOLS_FAULTS_MUTATE_H

#include "tools/faults_lexer.h"

enum mutation {
	MUTATE_ARITHMETIC, /* + - * / % and their assignments */
	MUTATE_RELATION,   /* a bound that takes one more or one less; == and != */
	MUTATE_LOGIC,      /* && and || */
	MUTATE_BITS,       /* & | ^ << >> */
	MUTATE_CONSTANT,   /* +1, -1; 0 for 1 and 1 for 0; true for false */
	MUTATE_INDEX,      /* the next element */
	MUTATE_DROP,       /* a statement left out */
	MUTATE_NEGATE,     /* the other branch */
	MUTATE_SWAP,       /* two neighbouring arguments of a call in each other's place */
	MUTATE_ROUND,      /* a rounding, fmaf as two operations */
	MUTATE_SIGN,       /* unary minus, not, complement, absolute value left out */
	MUTATE_EXTREME,    /* min for max */
	MUTATION_COUNT,
};

struct mutant {
	enum mutation mutation;
	size_t at, length; /* what is replaced */
	char *replacement;
	int line, column; /* from 1, of `at` */
	bool orders;      /* a barrier, a fence or an atomic was left out: for the race check too */
};

struct mutants {
	struct mutant *mutant;
	size_t count, room;
};

/* "arithmetic", ... */
const char *mutation_name(enum mutation mutation);

/* All mutants of a text. Released by mutants_free, also after false: out of memory. */
bool mutants_find(const char *text, size_t size, struct mutants *out);
void mutants_free(struct mutants *m);

#endif
