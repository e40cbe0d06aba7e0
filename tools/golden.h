/* SPDX-License-Identifier: MIT */
/* The three commands of `plumb golden`, one file each: tools/golden_make.c, golden_verify.c, cmd_golden_diff.c. */
#ifndef PLUMB_TOOLS_GOLDEN_H
#define PLUMB_TOOLS_GOLDEN_H

#include "tools/options.h"

extern const struct command command_golden_make, command_golden_verify, command_golden_diff;

#endif
