/* SPDX-License-Identifier: MIT */
/* The digest files of golden/synthetic/, inside the program. */
#ifndef PLUMB_TOOLS_BENCH_GOLDEN_H
#define PLUMB_TOOLS_BENCH_GOLDEN_H

#include <stddef.h>

extern const char synthetic_full_release_nvfp4[], synthetic_full_served[], synthetic_full_served_8192[],
	synthetic_small_bf16[], synthetic_small_f32[];
extern const size_t synthetic_full_release_nvfp4_size, synthetic_full_served_size, synthetic_full_served_8192_size,
	synthetic_small_bf16_size, synthetic_small_f32_size;

struct bench_golden {
	const char *name, *text;
	const size_t *size;
};
enum { BENCH_GOLDENS = 5 };
extern const struct bench_golden bench_goldens[BENCH_GOLDENS];

#endif
