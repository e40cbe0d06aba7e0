/* SPDX-License-Identifier: MIT */
#include "tools/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool colour;

static int fail(const char *path, const char *temporary, FILE *f, struct plumb_error *err)
{
	int reason = errno;
	if (f)
		fclose(f);
	if (temporary)
		unlink(temporary);
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: %s", path, strerror(reason));
}

int output_file(const char *path, const char *text, size_t size, struct plumb_error *err)
{
	char temporary[4096];
	FILE *f;

	if (strcmp(path, "-") == 0)
		return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0 ? PLUMB_OK
										    : fail("standard output", NULL, NULL, err);
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid()) >= sizeof temporary) {
		errno = ENAMETOOLONG;
		return fail(path, NULL, NULL, err);
	}
	f = fopen(temporary, "wb");
	if (!f)
		return fail(path, NULL, NULL, err);
	if (fwrite(text, 1, size, f) != size || fflush(f) != 0 || fsync(fileno(f)) != 0)
		return fail(path, temporary, f, err);
	if (fclose(f) != 0)
		return fail(path, temporary, NULL, err);
	if (rename(temporary, path) != 0)
		return fail(path, temporary, NULL, err);
	return PLUMB_OK;
}

void output_colour(bool allowed)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	colour = allowed && isatty(STDOUT_FILENO) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

const char *output_good(void)
{
	return colour ? "\033[32m" : "";
}
const char *output_bad(void)
{
	return colour ? "\033[1;31m" : "";
}
const char *output_dim(void)
{
	return colour ? "\033[2m" : "";
}
const char *output_plain(void)
{
	return colour ? "\033[0m" : "";
}
