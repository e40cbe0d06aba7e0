/* SPDX-License-Identifier: MIT */
#include "core/cache.h"

#include <stddef.h>

void *plumb_cache_row(const struct plumb_cache *cache, int64_t r)
{
	size_t row =
		(size_t)cache->page[r / cache->page_rows] * (size_t)cache->page_rows + (size_t)(r % cache->page_rows);
	return (unsigned char *)cache->data + row * plumb_format_row_bytes(cache->format, cache->width);
}

void plumb_cache_get(const struct plumb_cache *cache, int64_t r, float *values)
{
	plumb_decode(cache->format, plumb_cache_row(cache, r), cache->width, values);
}

void plumb_cache_put(const struct plumb_cache *cache, int64_t r, const float *values)
{
	plumb_encode(cache->format, values, cache->width, plumb_cache_row(cache, r));
}
