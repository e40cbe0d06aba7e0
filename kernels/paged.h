/* SPDX-License-Identifier: MIT */
/* Rows of a paged cache of any format that a cache may have, and the dot products of four of them with one vector: the inner loop of attention scores and
 * of the QSA indexer. Device code only.
 *
 * A group of Lanes lanes takes 8 neighbouring columns each, 8*Lanes a step, so a lane owns 8 neighbouring accumulators
 * of strided(8*Lanes): 32 lanes for strided(256), 16 for strided(128). The tree's first three levels lie inside the
 * lane. */
#ifndef PLUMB_KERNELS_PAGED_H
#define PLUMB_KERNELS_PAGED_H

#include "core/cache.h"
#include "kernels/row.h"

enum { PLUMB_KEYS = 4, PLUMB_KEY_COLUMNS = 8 };

/* Address of column `column` of row r. */
static __device__ __forceinline__ unsigned char *plumb_paged_row(const struct plumb_cache &cache, int32_t r, int64_t column)
{
	const int32_t logical = r / cache.page_rows;
	const int64_t row = static_cast<int64_t>(cache.page[logical]) * cache.page_rows + (r - logical * cache.page_rows);
	return static_cast<unsigned char *>(cache.data) +
	       (row * cache.width + column) * plumb_columns_bytes(cache.format) / PLUMB_COLUMNS;
}

/* Where values are stored: f32, f16, bf16, or fp8 with a scale. */
struct plumb_sink {
	int format;
	float scale; /* of fp8 */
	void *data;
};

static __device__ __forceinline__ struct plumb_sink plumb_paged_sink(
	const struct plumb_cache &cache, int32_t r, int64_t column)
{
	return {cache.format, cache.scale, plumb_paged_row(cache, r, column)};
}

/* Round to the format and store element i. */
static __device__ __forceinline__ void plumb_sink_put(const struct plumb_sink &sink, int64_t i, float x)
{
	switch (sink.format) {
	case PLUMB_F32:
		static_cast<float *>(sink.data)[i] = x;
		break;
	case PLUMB_F16:
		static_cast<uint16_t *>(sink.data)[i] = plumb_f32_to_f16(x);
		break;
	case PLUMB_CACHE_FP8:
		static_cast<uint8_t *>(sink.data)[i] = plumb_cache_code(x, sink.scale);
		break;
	default:
		static_cast<uint16_t *>(sink.data)[i] = plumb_f32_to_bf16(x);
		break;
	}
}

/* Element i of a row of the cache. */
static __device__ __forceinline__ float plumb_paged_value(const struct plumb_cache &cache, const void *row, int64_t i)
{
	if (cache.format == PLUMB_CACHE_FP8)
		return plumb_e4m3_value(static_cast<const uint8_t *>(row)[i]) * cache.scale;
	return plumb_stored_value(cache.format, row, i);
}

/* Whether heads of n columns can be read 8 columns at a time in every row. */
static __device__ __forceinline__ bool plumb_paged_aligned(const struct plumb_cache &cache, int64_t n)
{
	return plumb_rows_aligned(cache.format, cache.data, cache.width) && plumb_rows_aligned(cache.format, cache.data, n);
}

/* 8 neighbouring stored values as they lie in memory: what is under way before anything is decoded. Format: of a cache,
 * rows aligned. */
struct plumb_raw {
	uint4 lo, hi; /* hi: f32 */
};

template <int Format> static __device__ __forceinline__ struct plumb_raw plumb_raw_load(const void *row, int64_t k)
{
	struct plumb_raw raw = {{0, 0, 0, 0}, {0, 0, 0, 0}};
	if (Format == PLUMB_F32) {
		const float *p = static_cast<const float *>(row) + k;
		raw.lo = plumb_load_once(PLUMB_AS(const uint4, p));
		raw.hi = plumb_load_once(PLUMB_AS(const uint4, p + 4));
	} else if (Format == PLUMB_CACHE_FP8) {
		const uint2 codes = plumb_load_once(PLUMB_AS(const uint2, static_cast<const unsigned char *>(row) + k));
		raw.lo.x = codes.x, raw.lo.y = codes.y;
	} else {
		raw.lo = plumb_load_once(PLUMB_AS(const uint4, static_cast<const uint16_t *>(row) + k));
	}
	return raw;
}

template <int Format>
static __device__ __forceinline__ void plumb_raw_values(
	const struct plumb_raw &raw, float scale, float (&w)[PLUMB_KEY_COLUMNS])
{
	const uint32_t word[8] = {raw.lo.x, raw.lo.y, raw.lo.z, raw.lo.w, raw.hi.x, raw.hi.y, raw.hi.z, raw.hi.w};
	if (Format == PLUMB_CACHE_FP8) {
		plumb_e4m3_values(word[0], w);
		plumb_e4m3_values(word[1], w + 4);
	}
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_KEY_COLUMNS; j++) {
		if (Format == PLUMB_F32)
			w[j] = __uint_as_float(word[j]);
		else if (Format == PLUMB_CACHE_FP8)
			w[j] = w[j] * scale;
		else if (Format == PLUMB_F16)
			w[j] = plumb_f16_value(static_cast<uint16_t>(word[j / 2] >> j % 2 * 16));
		else
			w[j] = __uint_as_float(j % 2 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
	}
}

/* Stored values k .. k + count - 1 of a row, count <= 8; the rest of w is 0 and takes part in nothing. */
static __device__ __forceinline__ void plumb_load_columns(
	const struct plumb_cache &cache, const void *row, int64_t k, int count, bool aligned, float (&w)[PLUMB_KEY_COLUMNS])
{
	if (aligned && count == PLUMB_KEY_COLUMNS) {
		switch (cache.format) {
		case PLUMB_F32:
			return plumb_raw_values<PLUMB_F32>(plumb_raw_load<PLUMB_F32>(row, k), cache.scale, w);
		case PLUMB_F16:
			return plumb_raw_values<PLUMB_F16>(plumb_raw_load<PLUMB_F16>(row, k), cache.scale, w);
		case PLUMB_BF16:
			return plumb_raw_values<PLUMB_BF16>(plumb_raw_load<PLUMB_BF16>(row, k), cache.scale, w);
		default:
			return plumb_raw_values<PLUMB_CACHE_FP8>(plumb_raw_load<PLUMB_CACHE_FP8>(row, k), cache.scale, w);
		}
	}
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
		w[j] = j < count ? plumb_paged_value(cache, row, k + j) : 0.0f;
}

/* The same of a binary32 vector that many warps read: it stays in L1. */
static __device__ __forceinline__ void plumb_load_vector(
	const float *x, int64_t k, int count, bool aligned, float (&v)[PLUMB_KEY_COLUMNS])
{
	if (aligned && count == PLUMB_KEY_COLUMNS) {
		const float4 lo = *PLUMB_AS(const float4, x + k), hi = *PLUMB_AS(const float4, x + k + 4);
		v[0] = lo.x, v[1] = lo.y, v[2] = lo.z, v[3] = lo.w;
		v[4] = hi.x, v[5] = hi.y, v[6] = hi.z, v[7] = hi.w;
		return;
	}
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
		v[j] = j < count ? x[k + j] : 0.0f;
}

/* How many of the 8 columns from k on exist. */
static __device__ __forceinline__ int plumb_columns_left(int64_t n, int64_t k)
{
	return n - k >= PLUMB_KEY_COLUMNS ? PLUMB_KEY_COLUMNS : n > k ? static_cast<int>(n - k) : 0;
}

/* First column of this lane. */
template <int Lanes> static __device__ __forceinline__ int plumb_key_column(void)
{
	return static_cast<int>(threadIdx.x) % Lanes * PLUMB_KEY_COLUMNS;
}

/* Which of the four keys' sums this lane gets from plumb_key_dots; lanes 0..3 of a group get all four. */
static __device__ __forceinline__ int plumb_key_of_lane(void)
{
	return static_cast<int>((threadIdx.x & 1) * 2 + (threadIdx.x >> 1 & 1));
}

/* The lane's first 8 columns of each key: all four loads are under way before any is needed, and they serve every
 * query. */
template <int Lanes>
static __device__ __forceinline__ void plumb_keys_load(const struct plumb_cache &cache,
	const void *const (&key)[PLUMB_KEYS], int64_t n, bool aligned, float (&w)[PLUMB_KEYS][PLUMB_KEY_COLUMNS])
{
	const int k = plumb_key_column<Lanes>(), count = plumb_columns_left(n, k);
	PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++)
		plumb_load_columns(cache, key[r], k, count, aligned, w[r]);
}

static __device__ __forceinline__ void plumb_key_products(const float (&w)[PLUMB_KEY_COLUMNS],
	const float (&x)[PLUMB_KEY_COLUMNS], int count, float (&acc)[PLUMB_KEY_COLUMNS])
{
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
		if (j < count)
			acc[j] = fmaf(w[j], x[j], acc[j]);
}

/* strided(8*Lanes) dot products of four keys with x; first: from plumb_keys_load. The four trees share their shuffles:
 * at distance 1 a lane keeps two keys and hands over the other two, at distance 2 it keeps one. Addition commutes, so
 * each sum is that of the declared tree. Returns the sum of key plumb_key_of_lane(). */
template <int Lanes>
static __device__ __forceinline__ float plumb_key_dots(const struct plumb_cache &cache,
	const void *const (&key)[PLUMB_KEYS], int64_t n, bool aligned, const float (&first)[PLUMB_KEYS][PLUMB_KEY_COLUMNS],
	const float *x, bool x_aligned)
{
	const int column = plumb_key_column<Lanes>();
	float acc[PLUMB_KEYS][PLUMB_KEY_COLUMNS] = {};
	float v[PLUMB_KEY_COLUMNS], sum[PLUMB_KEYS];

	plumb_load_vector(x, column, plumb_columns_left(n, column), x_aligned, v);
	PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++)
		plumb_key_products(first[r], v, plumb_columns_left(n, column), acc[r]);
	for (int64_t k = column + Lanes * PLUMB_KEY_COLUMNS; k < n; k += Lanes * PLUMB_KEY_COLUMNS) {
		const int count = plumb_columns_left(n, k);
		plumb_load_vector(x, k, count, x_aligned, v);
		PLUMB_UNROLL
		for (int r = 0; r < PLUMB_KEYS; r++) {
			float w[PLUMB_KEY_COLUMNS];
			plumb_load_columns(cache, key[r], k, count, aligned, w);
			plumb_key_products(w, v, count, acc[r]);
		}
	}
	PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++)
		sum[r] = ((acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3])) +
		         ((acc[r][4] + acc[r][5]) + (acc[r][6] + acc[r][7]));

	const bool upper = threadIdx.x & 1, second = threadIdx.x & 2;
	const float a = (upper ? sum[2] : sum[0]) + __shfl_xor_sync(PLUMB_FULL_WARP, upper ? sum[0] : sum[2], 1);
	const float b = (upper ? sum[3] : sum[1]) + __shfl_xor_sync(PLUMB_FULL_WARP, upper ? sum[1] : sum[3], 1);
	float dot = (second ? b : a) + __shfl_xor_sync(PLUMB_FULL_WARP, second ? a : b, 2);
	PLUMB_UNROLL
	for (int offset = 4; offset < Lanes; offset *= 2)
		dot = dot + __shfl_xor_sync(PLUMB_FULL_WARP, dot, offset);
	return dot;
}

#endif
