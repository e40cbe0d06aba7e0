/* SPDX-License-Identifier: MIT */
/* What may stand for a value: the words that completion offers, from the pattern that help shows. */
#ifndef PLUMB_TOOLS_WORDS_H
#define PLUMB_TOOLS_WORDS_H

#include <stdbool.h>
#include <stdio.h>

enum { WORDS_TEXT = 4096 };

/* Of a pattern such as "ref|opt", "DIR", "NAME[@A-B]=ref|opt|FILE.so", "a|b|OP". */
struct words {
	char list
		[WORDS_TEXT]; /* words with a blank between: "ref opt"; ops, profiles, presets where the pattern names those */
	bool equals;          /* the words end with '=': a set or a shared object comes next ("gdn_conv=") */
	bool files, folders; /* paths are offered */
	char ending[8];      /* of the files: "h5", "so", "json"; "": any */
};

/* pattern NULL: an operand that is not described, so files. */
void words_of(const char *pattern, struct words *out);

#endif
