/* SPDX-License-Identifier: MIT */
/* Launcher of a kernel that brings memory near (into the L2 cache) for kernels to come, and does nothing else. */
#ifndef PLUMB_KERNELS_WARM_H
#define PLUMB_KERNELS_WARM_H

#include <stdint.h>

#include "kernels/launcher.h"

enum { PLUMB_WARM_RANGES = 8 };

/* Of every `period` bytes of a range the first `chunk`, from its begin on. All are multiples of 16, data too; 0 < chunk <=
 * period; what goes beyond the end is left out. */
struct plumb_warm_range {
	const void *data;
	int64_t bytes, chunk, period;
};

struct plumb_warm_launch {
	int ranges, blocks;
	struct plumb_warm_range range[PLUMB_WARM_RANGES];
};

PLUMB_DECLARE_LAUNCHER(warm, const struct plumb_warm_launch *launch, void *stream);

#endif
