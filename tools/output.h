/* SPDX-License-Identifier: MIT */
/* What commands print and write. */
#ifndef PLUMB_TOOLS_OUTPUT_H
#define PLUMB_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

/* Write a file in one piece: a temporary file beside it, then a rename, so that a reader sees the old file or the new one.
 * path "-" is standard output. Errors: PLUMB_BAD_INPUT naming the path and the system's reason; nothing is left behind. */
int output_file(const char *path, const char *text, size_t size, struct plumb_error *err);

/* Colours: only on a terminal, and not with NO_COLOR or --no-color. */
void output_colour(bool allowed);
const char *output_good(void); /* escape sequences, or "" */
const char *output_bad(void);
const char *output_dim(void);
const char *output_plain(void);

#endif
