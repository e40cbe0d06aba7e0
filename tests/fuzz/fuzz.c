/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[128], last[192];
static pid_t owner;

_Noreturn void fuzz_fail(const char *file, int line, const char *condition)
{
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
	abort();
}

static void leave(void)
{
	if (getpid() != owner) /* a child that ends */
		return;
	unlink(last);
	rmdir(folder);
}

const char *fuzz_folder(void)
{
	if (!folder[0]) {
		const char *base = getenv("TMPDIR");

		snprintf(folder, sizeof folder, "%.100s/plumb-fuzz-XXXXXX", base && base[0] ? base : "/tmp");
		FUZZ_CHECK(mkdtemp(folder) != NULL);
		owner = getpid();
		atexit(leave);
	}
	return folder;
}

const char *fuzz_file_in_folder(const char *name, const uint8_t *data, size_t size)
{
	snprintf(last, sizeof last, "%s/%.60s", fuzz_folder(), name);
	int fd = open(last, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	FUZZ_CHECK(fd >= 0);
	for (size_t at = 0; at < size;) {
		ssize_t n = write(fd, data + at, size - at);

		FUZZ_CHECK(n > 0);
		at += (size_t)n;
	}
	FUZZ_CHECK(close(fd) == 0);
	return last;
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
	return fuzz_file_in_folder("input", data, size);
}

void fuzz_judge(int status, const struct plumb_error *err)
{
	if (status == PLUMB_OK)
		return;
	FUZZ_CHECK(status == PLUMB_BAD_INPUT);
	FUZZ_CHECK(memchr(err->text, '\0', sizeof err->text) != NULL);
	FUZZ_CHECK(err->text[0] != '\0');
	for (const char *p = err->text; *p; p++)
		FUZZ_CHECK((unsigned char)*p >= 0x20 && *p != 0x7f);
}

void fuzz_judge_h5(int status, const struct plumb_error *err)
{
	fuzz_judge(status, err);
#ifndef FUZZ_NO_CHILD /* an input that says so itself */
	FUZZ_CHECK(status == PLUMB_OK || !strstr(err->text, "gave up on it (exit status 1)"));
#endif
}
