/* SPDX-License-Identifier: MIT */
#include "tools/bench_golden.h"

#define GOLDEN(name, symbol)                                                                                               \
	{                                                                                                                  \
		"golden/synthetic/" name ".json", synthetic_##symbol, &synthetic_##symbol##_size                           \
	}

const struct bench_golden bench_goldens[BENCH_GOLDENS] = {
	GOLDEN("full-release-nvfp4", full_release_nvfp4),
	GOLDEN("full-served", full_served),
	GOLDEN("full-served-8192", full_served_8192),
	GOLDEN("small-bf16", small_bf16),
	GOLDEN("small-f32", small_f32),
};
