/* SPDX-License-Identifier: MIT */
#include "tools/golden_scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "golden/h5_write.h"

/* The files that a make leaves in a scratch folder, ready for a signal handler. */
enum { FILES = 4, PATH_BYTES = 4096 };
static char file[FILES][PATH_BYTES];
static char folder_of_files[PATH_BYTES];
static volatile sig_atomic_t there;

int golden_scratch_make(char **out, struct plumb_error *err)
{
	static const char *const name[FILES] = {
		"again.h5", "again.h5.part", "again.h5.part-state", "again.h5.part-state.new"};
	const char *tmp = getenv("TMPDIR");
	char *folder = NULL;

	*out = NULL;
	if (asprintf(&folder, "%s/plumb-golden-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a temporary folder");
	if (strlen(folder) > PATH_BYTES - 64 || !mkdtemp(folder)) {
		plumb_fail(err, PLUMB_BAD_INPUT, "%.512s: cannot make a temporary folder: %s", folder, strerror(errno));
		free(folder);
		return PLUMB_BAD_INPUT;
	}
	for (int i = 0; i < FILES; i++)
		snprintf(file[i], sizeof file[i], "%.4000s/%s", folder, name[i]);
	snprintf(folder_of_files, sizeof folder_of_files, "%s", folder);
	there = 1;
	*out = folder;
	return PLUMB_OK;
}

static void remove_files(void)
{
	if (!there)
		return;
	for (int i = 0; i < FILES; i++)
		unlink(file[i]);
	rmdir(folder_of_files);
}

void golden_scratch_remove(char *folder)
{
	if (!folder)
		return;
	remove_files();
	there = 0;
	free(folder);
}

static void stop(int number)
{
	plumb_h5_abandon();
	remove_files();
	signal(number, SIG_DFL);
	raise(number);
}

void golden_catch_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = stop};

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		struct sigaction before;
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}
