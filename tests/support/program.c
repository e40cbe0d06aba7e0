/* SPDX-License-Identifier: MIT */
#include "tests/support/program.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/scratch.h"

static void slurp(const char *dir, const char *name, char *text, size_t size)
{
	char path[SCRATCH_PATH];
	FILE *f = fopen(scratch_path(path, dir, name), "rb");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;
	text[n] = '\0';
	if (f)
		fclose(f);
}

static void start(struct program_result *r, const char *dir, const char *environment, const char *format, va_list ap)
{
	static char args[1 << 15], line[1 << 16];

	vsnprintf(args, sizeof args, format, ap);
	snprintf(line, sizeof line, "%s '%s' %s >'%s/out' 2>'%s/err' </dev/null", environment, PLUMB_PROGRAM, args, dir,
		dir);
	int status = system(line);
	ck_assert_msg(WIFEXITED(status), "killed: %s", args);
	r->status = WEXITSTATUS(status);
	slurp(dir, "out", r->out, sizeof r->out);
	slurp(dir, "err", r->err, sizeof r->err);
}

void program(struct program_result *r, const char *dir, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	start(r, dir, "", format, ap);
	va_end(ap);
}

void program_with(struct program_result *r, const char *dir, const char *environment, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	start(r, dir, environment, format, ap);
	va_end(ap);
}

void program_expect(const struct program_result *r, int status)
{
	ck_assert_msg(r->status == status, "exit status %d, expected %d\nstdout: %.2000s\nstderr: %s", r->status, status,
		r->out, r->err);
}

void program_expect_failure(const struct program_result *r, int status, const char *first, const char *second)
{
	const char *end = strchr(r->err, '\n');

	program_expect(r, status);
	ck_assert_msg(end && end[1] == '\0', "not one line: '%s'", r->err);
	ck_assert_msg(
		strstr(r->err, first) && strstr(r->err, second), "'%s' does not name '%s' and '%s'", r->err, first, second);
}

void program_expect_line(const struct program_result *r, const char *first, const char *second)
{
	program_expect_failure(r, 2, first, second);
}

void program_expect_bad(const struct program_result *r, const char *first, const char *second)
{
	program_expect_line(r, first, second);
	ck_assert_msg(r->out[0] == '\0', "on standard output: %s", r->out);
}
