/* SPDX-License-Identifier: MIT */
/* Top-k with both tie rules (model-spec 2.12). */
#ifndef PLUMB_REF_TOPK_H
#define PLUMB_REF_TOPK_H

#include <stdint.h>

#include "core/op.h"

struct topk_item {
	float value;
	int32_t index;
};

/* The k largest of value (n), best first, as indices out (k); 0 <= k <= n. item: scratch (n).
 * PLUMB_TIES_LOWER: larger value, then lower index; -0 equals +0; NaN below every number.
 * PLUMB_TIES_TORCH: what torch.topk(sorted=True) on the CPU returns, built on libstdc++: partial_sort when 64k <= n,
 * else nth_element and a sort of the first k-1; NaN above every number, as torch has it. */
void topk_ref(enum plumb_ties ties, const float *value, int32_t n, int32_t k, struct topk_item *item, int32_t *out);

#endif
