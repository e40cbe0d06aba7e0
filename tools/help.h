/* SPDX-License-Identifier: MIT */
/* The help of a command, and words that help, manual page and completion share. */
#ifndef PLUMB_TOOLS_HELP_H
#define PLUMB_TOOLS_HELP_H

#include <stdio.h>

#include "tools/options.h"

void help_print(const struct command *command, const struct option *table, int options);

/* Whether the table of a command has an option of that name, which then stands for the common one. */
bool help_has(const struct option *table, int options, const char *name);

/* What an option does, for a command: --verbose has words of its own there. */
const char *help_words(const struct command *command, const struct option *option);

/* "-q" of "--quiet", "-v" of "--verbose", "-h" of "--help"; NULL: none. */
const char *help_short(const char *name);

/* Exit statuses 0 to 3 in words; and their section of a help text, behind an empty line. */
extern const char *const help_exit[4];
void help_print_exit(FILE *f);

#endif
