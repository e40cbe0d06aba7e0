/* SPDX-License-Identifier: MIT */
/* Running the program as a user does, and what is asked of every refusal. */
#ifndef PLUMB_TESTS_SUPPORT_PROGRAM_H
#define PLUMB_TESTS_SUPPORT_PROGRAM_H

struct program_result {
	int status;
	char out[1 << 16]; /* the first of it */
	char err[4096];
};

/* Run `plumb` with a formatted command line; dir: a scratch folder, which its outputs go through. */
__attribute__((format(printf, 3, 4))) void program(struct program_result *r, const char *dir, const char *format, ...);

/* The same with assignments to environment variables in front of it: "GATE_FAULT=crash". */
__attribute__((format(printf, 4, 5))) void program_with(
	struct program_result *r, const char *dir, const char *environment, const char *format, ...);

/* Fails the test, with what the program said, unless it ended with this status. */
void program_expect(const struct program_result *r, int status);

/* The status, and one line on standard error that names both words. */
void program_expect_failure(const struct program_result *r, int status, const char *first, const char *second);

/* Bad input: exit status 2, one line that names both words. Standard output is left alone: a decode that fails on the way has
 * ended its line of tokens. */
void program_expect_line(const struct program_result *r, const char *first, const char *second);

/* The same, and nothing on standard output. */
void program_expect_bad(const struct program_result *r, const char *first, const char *second);

#endif
