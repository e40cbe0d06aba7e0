/* SPDX-License-Identifier: MIT */
/* The subcommands, one file each. */
#ifndef PLUMB_TOOLS_COMMANDS_H
#define PLUMB_TOOLS_COMMANDS_H

#include "tools/options.h"

extern const struct command command_bench, command_bisect, command_check, command_completion, command_drift, command_faults,
	command_golden, command_list, command_man, command_merge, command_new_kernel, command_replay, command_run,
	command_test;

/* All of them, in the order that help shows; NULL at the end. */
extern const struct command *const commands[];

#endif
