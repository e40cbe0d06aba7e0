/* SPDX-License-Identifier: MIT */
/* The program: picks a subcommand. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/help.h"
#include "tools/output.h"
#include "tools/text.h"

#ifndef PLUMB_VERSION
#define PLUMB_VERSION "unknown"
#endif

enum { THREADS = 1024 }; /* as --threads */

const struct command *const commands[] = {
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
	&command_merge,
	&command_completion,
	&command_man,
	NULL,
};

static void usage(FILE *f)
{
	fprintf(f, "plumb " PLUMB_VERSION ": reference against optimised decode kernels of Qwen3.8-Flash-Next\n\n"
		   "usage: plumb COMMAND ...\n\n");
	for (int i = 0; commands[i]; i++)
		fprintf(f, "  %-11s %s\n", commands[i]->name, commands[i]->brief);
	fprintf(f, "\n'plumb COMMAND --help' explains one, with examples; 'plumb list' shows what is compiled in.\n\n"
		   "examples:\n"
		   "  plumb check golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint\n"
		   "  plumb check golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint --op attn_gate=./mine.so\n"
		   "  plumb bisect golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint --op all=./mine.so --case "
		   "wrong.h5\n");
	help_print_exit(f);
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
	static char help[] = "--help";
	struct text_nearest near = {.word = ""};
	char meant[TEXT_NEAREST];
	struct plumb_error err;

	if (!cpu_serves()) {
		fprintf(stderr, "plumb: this CPU has no AVX2 and FMA, which this build needs\n");
		return PLUMB_BAD_INPUT;
	}
	if (argc > 2 && strcmp(argv[1], "help") == 0) { /* plumb help golden make: plumb golden make --help */
		memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof *argv);
		argv[argc - 1] = help;
	}
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? PLUMB_BAD_INPUT : PLUMB_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("plumb " PLUMB_VERSION "\n");
		return PLUMB_OK;
	}
	near.word = argv[1];
	for (int i = 0; commands[i]; i++) {
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(argc - 1, argv + 1);
		text_nearest(&near, commands[i]->name);
	}
	plumb_fail(&err, PLUMB_BAD_INPUT, "unknown command '%.200s'%s; 'plumb --help' lists them", argv[1],
		text_did_you_mean(&near, meant));
	fprintf(stderr, "plumb: %s\n", err.text); /* without the control characters of a word */
	return PLUMB_BAD_INPUT;
}

/* OpenBLAS starts threads when it is loaded, which we do not use. Each asks for 128 MiB, and where a limit of the address
 * space refuses them asks again for ever (0.3.21): the exit of the program, which waits for the thread, then never comes.
 * So under such a limit start again, without threads. */
static void without_blas_threads(char **argv)
{
	const char *threads = getenv("OPENBLAS_NUM_THREADS");
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || (threads && strcmp(threads, "1") == 0))
		return;
	if (setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0)
		execv("/proc/self/exe", argv); /* comes back when it cannot: as before, then */
}

int main(int argc, char **argv)
{
	without_blas_threads(argv);
	output_begin();
	if (omp_get_max_threads() > THREADS) /* OMP_NUM_THREADS=100000 takes the stack of OpenMP's own code */
		omp_set_num_threads(THREADS);
	return output_end(dispatch(argc, argv));
}
