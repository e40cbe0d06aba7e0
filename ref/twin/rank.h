/* SPDX-License-Identifier: MIT */
/* Order by value, of experts and of blocks: a sort of all, which shares nothing with the heaps of ref/topk.c. */
#ifndef PLUMB_REF_TWIN_RANK_H
#define PLUMB_REF_TWIN_RANK_H

#include <stdint.h>

struct twin_ranked {
	float value;
	int32_t index;
};

/* Sort n items: larger values first, then lower indices (-0 equals +0); NaN last, by index too. */
void twin_rank(struct twin_ranked *item, int64_t n);

#endif
