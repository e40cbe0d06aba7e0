/* SPDX-License-Identifier: MIT */
/* The subcommands, one file each. */
#ifndef PLUMB_TOOLS_COMMANDS_H
#define PLUMB_TOOLS_COMMANDS_H

#include "tools/options.h"

extern const struct command command_bench, command_bisect, command_check, command_drift, command_faults, command_golden,
	command_list, command_new_kernel, command_replay, command_run, command_test;

#endif
