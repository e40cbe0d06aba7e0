/* SPDX-License-Identifier: MIT */
/* Coordinates of an element by name: "token 3, head 2, column 17". */
#ifndef PLUMB_TOOLS_AXES_H
#define PLUMB_TOOLS_AXES_H

#include "core/decoder.h"

enum { AXES_MAX = 8 };

struct axis {
	const char *name; /* "token", "head", "column" */
	int64_t size;
	int64_t first; /* what the first index is called: the position of a token, the row of a cache */
};

/* The axes of an operand, outermost first; a flattened one ("Hq*Dh") is two. */
struct axes {
	struct axis axis[AXES_MAX];
	int count;
};

/* Axes of what a call writes: an array, or the rows of a cache that are the call's. */
void axes_make(const struct plumb_call *call, const struct plumb_operand *operand, struct axes *out);

/* Index of an element along an axis. */
int64_t axes_at(const struct axes *axes, int axis, int64_t element);

/* "token 3, head 2, column 17". Returns text. */
const char *axes_show(const struct axes *axes, int64_t element, char *text, size_t size);

#endif
