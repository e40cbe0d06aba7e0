/* SPDX-License-Identifier: MIT */
#include "ref/twin/twin.h"

#define ENTRY(id, name) [PLUMB_##id] = name##_twin,
const struct plumb_set plumb_ref_twin = {
	.name = "ref",
	.op = {PLUMB_EACH_OP(ENTRY)},
};
