/* SPDX-License-Identifier: MIT */
/* Which blocks and tokens attention reads: integers only, so oracle, twin and bounds share it. */
#ifndef PLUMB_REF_SELECTED_H
#define PLUMB_REF_SELECTED_H

#include <stdint.h>
#include <stdlib.h>

static inline int selected_ascending(const void *x, const void *y)
{
	int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
	return (a > b) - (a < b);
}

/* Selected blocks, in any order, into ascending order. */
static inline void selected_sort(int32_t *block, int64_t count)
{
	if (count > 0)
		qsort(block, (size_t)count, sizeof *block, selected_ascending);
}

/* A(p) of model-spec 2.8: tokens of the selected blocks (count of B tokens, ascending) and the tail of position p,
 * ascending. list: (count*B + B). Returns their number. */
static inline int64_t selected_tokens(int64_t B, int64_t p, const int32_t *block, int32_t count, int64_t *list)
{
	int64_t n = 0;
	for (int32_t i = 0; i < count; i++)
		for (int64_t j = 0; j < B; j++)
			list[n++] = block[i] * B + j;
	for (int64_t j = (p + 1) / B * B; j <= p; j++)
		list[n++] = j;
	return n;
}

#endif
