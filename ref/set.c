/* SPDX-License-Identifier: MIT */
#include "ref/ref.h"

#define ENTRY(id, name) [PLUMB_##id] = name##_ref,
const struct plumb_set plumb_ref_oracle = {
	.name = "ref",
	.op = {PLUMB_EACH_OP(ENTRY)},
};
