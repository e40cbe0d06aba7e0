/* SPDX-License-Identifier: MIT */
/* A synthetic matrix in memory of its own, for tests of the generator. */
#ifndef PLUMB_TESTS_SUPPORT_MADE_TENSOR_H
#define PLUMB_TESTS_SUPPORT_MADE_TENSOR_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/synthetic.h"
#include "core/synthetic_fill.h"

struct made_tensor {
	struct plumb_synthetic_tensor tensor;
	struct plumb_weight w;
	unsigned char *data, *scale; /* followed by ZONE bytes of 0xA5 */
	size_t data_bytes, scale_bytes;
};
enum { MADE_ZONE = 64 };

/* The memory is there, and nothing made yet. */
static inline void made_create(struct made_tensor *m, const char *name, enum plumb_format format,
	enum plumb_format scale_format, int64_t rows, int64_t cols, int64_t first, uint64_t seed)
{
	double rms, centre;

	memset(m, 0, sizeof *m);
	plumb_synthetic_scaling(name, cols, &rms, &centre);
	m->tensor = (struct plumb_synthetic_tensor){.key = plumb_synthetic_key(name, seed),
		.first = first,
		.step = plumb_synthetic_step(format, rms),
		.centre = (float)centre};
	m->w = (struct plumb_weight){.format = format,
		.rows = rows,
		.cols = cols,
		.scale_format = scale_format,
		.made = &m->tensor,
		.global = plumb_synthetic_global_of(format, m->tensor.key, m->tensor.step)};
	m->data_bytes = plumb_weight_data_bytes(&m->w);
	m->scale_bytes = plumb_weight_scale_bytes(&m->w);
	m->data = malloc(m->data_bytes + MADE_ZONE);
	m->scale = malloc(m->scale_bytes + MADE_ZONE);
	ck_assert(m->data && m->scale);
	memset(m->data, 0xA5, m->data_bytes + MADE_ZONE);
	memset(m->scale, 0xA5, m->scale_bytes + MADE_ZONE);
	m->w.data = m->data;
	m->w.scale = m->scale_bytes ? m->scale : NULL;
}

static inline void made_check_zones(const struct made_tensor *m)
{
	for (int i = 0; i < MADE_ZONE; i++) {
		ck_assert_int_eq(m->data[m->data_bytes + (size_t)i], 0xA5);
		ck_assert_int_eq(m->scale[m->scale_bytes + (size_t)i], 0xA5);
	}
}

static inline void made_free(struct made_tensor *m)
{
	free(m->data);
	free(m->scale);
}

/* Formats and scale formats of all tests, with odd shapes. */
static const struct made_case {
	enum plumb_format format, scale_format;
	int64_t rows, cols;
} made_cases[] = {
	{PLUMB_F32, PLUMB_F32, 5, 37},
	{PLUMB_F16, PLUMB_F32, 7, 33},
	{PLUMB_BF16, PLUMB_F32, 131, 203},
	{PLUMB_FP8_ROW, PLUMB_F32, 131, 45},
	{PLUMB_FP8_ROW, PLUMB_BF16, 6, 129},
	{PLUMB_FP8_BLOCK, PLUMB_BF16, 259, 131},
	{PLUMB_FP8_BLOCK, PLUMB_F32, 130, 257},
	{PLUMB_FP8_TABLE, PLUMB_F32, 19, 22},
	{PLUMB_NVFP4, PLUMB_F32, 133, 75},
	{PLUMB_NVFP4, PLUMB_F32, 64, 256},
};
enum { MADE_CASES = sizeof made_cases / sizeof made_cases[0] };

#endif
