/* SPDX-License-Identifier: MIT */
#include "core/cache.h"

#include <stddef.h>

int64_t plumb_cache_pages(const struct plumb_cache *cache)
{
	return (cache->rows + cache->page_rows - 1) / cache->page_rows;
}

size_t plumb_cache_bytes(const struct plumb_cache *cache)
{
	int64_t last = -1;
	for (int64_t i = 0; i < plumb_cache_pages(cache); i++)
		if (cache->page[i] > last)
			last = cache->page[i];
	return (size_t)((last + 1) * cache->page_rows) * plumb_format_row_bytes(cache->format, cache->width);
}

void *plumb_cache_row(const struct plumb_cache *cache, int64_t r)
{
	size_t row = (size_t)cache->page[r / cache->page_rows] * (size_t)cache->page_rows + (size_t)(r % cache->page_rows);
	return (unsigned char *)cache->data + row * plumb_format_row_bytes(cache->format, cache->width);
}

void plumb_cache_decode(const struct plumb_cache *cache, const void *in, int64_t count, float *out)
{
	const uint8_t *code = in;

	if (cache->format != PLUMB_CACHE_FP8) {
		plumb_decode(cache->format, in, count, out);
		return;
	}
	for (int64_t i = 0; i < count; i++)
		out[i] = plumb_cache_value(code[i], cache->scale);
}

void plumb_cache_encode(const struct plumb_cache *cache, const float *in, int64_t count, void *out)
{
	uint8_t *code = out;

	if (cache->format != PLUMB_CACHE_FP8) {
		plumb_encode(cache->format, in, count, out);
		return;
	}
	for (int64_t i = 0; i < count; i++)
		code[i] = plumb_cache_code(in[i], cache->scale);
}

void plumb_cache_get(const struct plumb_cache *cache, int64_t r, float *values)
{
	plumb_cache_decode(cache, plumb_cache_row(cache, r), cache->width, values);
}

void plumb_cache_put(const struct plumb_cache *cache, int64_t r, const float *values)
{
	plumb_cache_encode(cache, values, cache->width, plumb_cache_row(cache, r));
}
