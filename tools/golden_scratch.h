/* SPDX-License-Identifier: MIT */
/* What a stopped `plumb golden` takes with it. */
#ifndef PLUMB_TOOLS_GOLDEN_SCRATCH_H
#define PLUMB_TOOLS_GOLDEN_SCRATCH_H

#include "core/status.h"

/* A folder for files nobody keeps, under $TMPDIR or /tmp. *out: free() it. */
int golden_scratch_make(char **out, struct plumb_error *err);
/* Remove it with the files of a make that are in it. NULL is fine. */
void golden_scratch_remove(char *folder);

/* From now on SIGINT, SIGTERM and SIGHUP, unless ignored, remove half-written golden files of this process and the
 * scratch folder, and then end the process as they would have. Parts stay, to go on from. */
void golden_catch_signals(void);

#endif
