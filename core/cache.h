/* SPDX-License-Identifier: MIT */
/* A paged cache of rows: keys, values, raw index keys, block keys.
 * Row r lives in physical page page[r / page_rows], at row r % page_rows of it. */
#ifndef PLUMB_CORE_CACHE_H
#define PLUMB_CORE_CACHE_H

#include <stdint.h>

#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_cache {
	enum plumb_format format; /* how a value is stored: f32 under policy f32, bf16 under policy bf16 */
	void *data;               /* (pages, page_rows, width) of format */
	const int32_t *page;      /* (rows / page_rows rounded up) logical page -> physical page */
	int32_t page_rows;
	int32_t width;
	int64_t rows;             /* capacity */
};

/* Address of row r (0 <= r < rows). */
void *plumb_cache_row(const struct plumb_cache *cache, int64_t r);

/* Read or write row r as binary32; values: (width) f32. Writing rounds to the cache's format (nearest even). */
void plumb_cache_get(const struct plumb_cache *cache, int64_t r, float *values);
void plumb_cache_put(const struct plumb_cache *cache, int64_t r, const float *values);

#ifdef __cplusplus
}
#endif
#endif
