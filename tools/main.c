/* SPDX-License-Identifier: MIT */
/* The program: picks a subcommand. */
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/output.h"

#ifndef PLUMB_VERSION
#define PLUMB_VERSION "unknown"
#endif

static const struct command *const commands[] = {
	&command_check,
	&command_bisect,
	&command_replay,
	&command_test,
	&command_run,
	&command_bench,
	&command_golden,
	&command_drift,
	&command_faults,
	&command_list,
	&command_new_kernel,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void usage(FILE *f)
{
	fprintf(f, "plumb " PLUMB_VERSION ": reference against optimised decode kernels of Qwen3.8-Flash-Next\n\n"
		   "usage: plumb COMMAND ...\n\n");
	for (int i = 0; i < COMMANDS; i++)
		fprintf(f, "  %-10s %s\n", commands[i]->name, commands[i]->brief);
	fprintf(f, "\n'plumb COMMAND --help' explains one, with examples.\n"
		   "exit status: 0 within tolerance, 1 a mismatch, 2 wrong usage or bad input, 3 no such device\n");
}

/* The library is built for CPUs with AVX2 and FMA; say so instead of dying of an illegal instruction. */
static int cpu_serves(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
	return 1;
#endif
}

static int dispatch(int argc, char **argv)
{
	if (!cpu_serves()) {
		fprintf(stderr, "plumb: this CPU has no AVX2 and FMA, which this build needs\n");
		return PLUMB_BAD_INPUT;
	}
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? PLUMB_BAD_INPUT : PLUMB_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("plumb " PLUMB_VERSION "\n");
		return PLUMB_OK;
	}
	for (int i = 0; i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(argc - 1, argv + 1);
	fprintf(stderr, "plumb: unknown command '%s'; 'plumb --help' lists them\n", argv[1]);
	return PLUMB_BAD_INPUT;
}

int main(int argc, char **argv)
{
	output_begin();
	return output_end(dispatch(argc, argv));
}
