/* SPDX-License-Identifier: MIT */
/* How every function that can fail says so: it returns a plumb_status and writes one line of text.
 * The values are the exit statuses of the program. */
#ifndef PLUMB_CORE_STATUS_H
#define PLUMB_CORE_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_status {
	PLUMB_OK = 0,        /* done, or within tolerance */
	PLUMB_MISMATCH = 1,  /* compared and found wrong */
	PLUMB_BAD_INPUT = 2, /* wrong usage, bad file, or a resource that could not be had */
	PLUMB_NO_DEVICE = 3, /* the asked device is not there */
};

struct plumb_error {
	char text[768]; /* one line: the thing, the value it had, what was expected */
};

/* Write a message (err may be NULL) and return status, so that a caller can say `return plumb_fail(...)`.
 * Control characters of the formatted text, and bytes that are no UTF-8, are shown as '?': file contents never reach the
 * terminal or a report raw. */
__attribute__((format(printf, 3, 4))) int plumb_fail(
	struct plumb_error *err, enum plumb_status status, const char *format, ...);

/* Bytes of the UTF-8 character at text, which ends in a NUL: 1 to 4; 0: what stands there is none (longer than need be,
 * half of a surrogate pair, beyond U+10FFFF, cut short). */
size_t plumb_utf8_length(const char *text);

/* Replace every byte that is no part of well-formed UTF-8 by '?'. */
void plumb_utf8(char *text);

#ifdef __cplusplus
}
#endif
#endif
