/* SPDX-License-Identifier: MIT */
/* A tolerance file for a run, in which every rule has a tensor to be for. */
#ifndef PLUMB_TOOLS_TOLERANCES_H
#define PLUMB_TOOLS_TOLERANCES_H

#include "core/tolerance.h"
#include "golden/h5.h"

/* Read a file, or with path NULL the built-in tolerances, for the tensors of some golden files (count 0: of any).
 * Refused: a rule whose suffix ends the name of no float tensor, be it of golden format 1 or of these files: with a letter wrong
 * it would ask for nothing, and the general rule would stand in for it. A rule for tensors that these files do not have is told
 * on standard error, in the voice of label ("check"): one file may serve several models.
 * Errors: those of plumb_tolerances_read, and that; *out is then NULL. */
int tolerances_open(const char *path, struct plumb_h5 *const *file, int files, const char *label,
	struct plumb_tolerances **out, struct plumb_error *err);

#endif
