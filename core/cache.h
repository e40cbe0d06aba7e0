/* SPDX-License-Identifier: MIT */
/* A paged cache of rows: keys, values, raw index keys, block keys.
 * Row r lives in physical page page[r / page_rows], at row r % page_rows of it. */
#ifndef PLUMB_CORE_CACHE_H
#define PLUMB_CORE_CACHE_H

#include <stdint.h>

#include "core/math32.h"
#include "core/numeric.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLUMB_CACHE_FP8 PLUMB_FP8_ROW /* E4M3; every row has the scale of the cache */

struct plumb_cache {
	enum plumb_format format; /* how a value is stored: f32, f16, bf16 or PLUMB_CACHE_FP8 */
	void *data;               /* (pages, page_rows, width) of format */
	const int32_t *page;      /* (rows / page_rows rounded up) logical page -> physical page */
	int32_t page_rows;
	int32_t width;
	int64_t rows; /* capacity */
	float scale;  /* of PLUMB_CACHE_FP8: above 0, and 448 times it is finite; else of no meaning */
};

/* A value of a PLUMB_CACHE_FP8: code -> e4m3(code) * scale, and back. x / scale rounds once, and then to the nearest code,
 * ties to even; beyond +-448, Inf too, it is +-448, so a large key stays a large key; -0 and subnormal codes are kept.
 * Every NaN becomes code 0x7F, because the sign of a computed NaN is not the same on every machine. */
PLUMB_FN float plumb_cache_value(uint8_t code, float scale)
{
	return plumb_e4m3_to_f32(code) * scale;
}
PLUMB_FN uint8_t plumb_cache_code(float x, float scale)
{
	return x == x ? plumb_f32_to_e4m3(plumb_divf(x, scale)) : (uint8_t)0x7F;
}

/* Logical pages of a cache, and bytes of its data up to the end of the last physical page that one of them is mapped to. */
int64_t plumb_cache_pages(const struct plumb_cache *cache);
size_t plumb_cache_bytes(const struct plumb_cache *cache);

/* Address of row r (0 <= r < rows). */
void *plumb_cache_row(const struct plumb_cache *cache, int64_t r);

/* Decode count stored values of a cache to binary32, or encode (nearest even): bits as of its rows, any address. */
void plumb_cache_decode(const struct plumb_cache *cache, const void *in, int64_t count, float *out);
void plumb_cache_encode(const struct plumb_cache *cache, const float *in, int64_t count, void *out);

/* Read or write row r as binary32; values: (width) f32. Writing rounds to the cache's format. */
void plumb_cache_get(const struct plumb_cache *cache, int64_t r, float *values);
void plumb_cache_put(const struct plumb_cache *cache, int64_t r, const float *values);

#ifdef __cplusplus
}
#endif
#endif
