/* SPDX-License-Identifier: MIT */
#include "opt/opt.h"

#define ENTRY(id, name) [PLUMB_##id] = name##_opt,
const struct plumb_set plumb_opt_set = {
	.name = "opt",
	.op = {PLUMB_EACH_OP(ENTRY)},
};
