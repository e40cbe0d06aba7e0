/* SPDX-License-Identifier: MIT */
/* Text: put together piece by piece in memory of the caller's; how it ends. */
#ifndef PLUMB_CORE_TEXT_H
#define PLUMB_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_text {
	char *text;  /* (size) bytes; ends in a NUL once something was added */
	size_t size; /* at least 1 */
	size_t used; /* without the NUL */
};

/* Append; what does not fit is cut off. */
__attribute__((format(printf, 2, 3))) void plumb_text_add(struct plumb_text *text, const char *format, ...);

/* Whether text ends in `ending`, with something before it. */
bool plumb_text_ends(const char *text, const char *ending);

#ifdef __cplusplus
}
#endif
#endif
