/* SPDX-License-Identifier: MIT */
#include "ref/twin/rank.h"

#include <math.h>
#include <stdlib.h>

static int best_first(const void *x, const void *y)
{
	const struct twin_ranked *a = x, *b = y;
	if (isnan(a->value) != isnan(b->value))
		return isnan(a->value) ? 1 : -1;
	if (a->value > b->value || a->value < b->value) /* neither if both are NaN */
		return a->value > b->value ? -1 : 1;
	return (a->index > b->index) - (a->index < b->index);
}

void twin_rank(struct twin_ranked *item, int64_t n)
{
	if (n > 0)
		qsort(item, (size_t)n, sizeof *item, best_first);
}
