/* SPDX-License-Identifier: MIT */
/* The declared orders of core/order.h in plain C. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/twin/twin.h"

/* Neighbour-first pairwise tree over width accumulators, in place. Each level is packed into the front of the array: a sum
 * is written no earlier than its two terms are read, so a level is a vector loop. */
static float tree(float *acc, int width)
{
	for (int sums = width / 2; sums >= 1; sums /= 2) {
#pragma omp simd
		for (int i = 0; i < sums; i++)
			acc[i] = acc[2 * i] + acc[2 * i + 1];
	}
	return acc[0];
}

/* A full round of the accumulators is a plain vector loop: the compiler takes 8 or 16 of them at a time. */
static void accumulate(const float *a, const float *b, int64_t n, int width, float *acc)
{
	int64_t k = 0;
	for (; k + width <= n; k += width)
		for (int j = 0; j < width; j++)
			acc[j] = fmaf(a[k + j], b[k + j], acc[j]);
	for (int j = 0; k + j < n; j++)
		acc[j] = fmaf(a[k + j], b[k + j], acc[j]);
}

float twin_dot(const float *a, const float *b, int64_t n, int width)
{
	float acc[PLUMB_ROW_LANES] = {0};
	accumulate(a, b, n, width, acc);
	return tree(acc, width);
}

float twin_sum(const float *a, int64_t n, int width)
{
	float acc[PLUMB_ROW_LANES] = {0};
	for (int64_t k = 0; k < n; k++)
		acc[k % width] = acc[k % width] + a[k];
	return tree(acc, width);
}

float twin_split_dot(const float *a, const float *b, int64_t n, int pieces)
{
	int64_t length = plumb_split_length(n, pieces);
	float sum = 0.0f;
	for (int s = 0; s < pieces; s++) {
		int64_t k0 = s * length, count = n - k0 < length ? n - k0 : length;
		float part = twin_dot(
			a + (count > 0 ? k0 : 0), b + (count > 0 ? k0 : 0), count > 0 ? count : 0, PLUMB_ROW_LANES);
		sum = s == 0 ? part : sum + part;
	}
	return sum;
}

float *twin_scratch(const struct plumb_env *env, int64_t count)
{
	float *m = malloc((size_t)(count > 0 ? count : 1) * sizeof *m);
	if (!m)
		plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for %lld values of scratch", (long long)count);
	return m;
}

int twin_linear_sum(
	const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows, float *sum)
{
	int64_t N = w->rows, K = w->cols;
	int pieces = plumb_split_count(call_rows, K), failed = 0;

#pragma omp parallel if (N * K > 65536)
	{
		float *row = malloc((size_t)K * sizeof *row);
		if (!row) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp for schedule(static)
		for (int64_t n = 0; n < N; n++) {
			if (!row)
				continue;
			plumb_weight_row(w, n, 0, K, row);
			for (int64_t t = 0; t < T; t++)
				sum[t * N + n] = twin_split_dot(row, x + t * K, K, pieces);
		}
		free(row);
	}
	if (failed)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a row of %lld values", (long long)K);
	return PLUMB_OK;
}

int twin_linear(
	const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows, float *y)
{
	int status = twin_linear_sum(env, w, x, T, call_rows, y);
	for (int64_t i = 0; i < T * w->rows && status == PLUMB_OK; i++)
		y[i] = twin_rne(env, y[i]);
	return status;
}

float *twin_matrix(const struct plumb_env *env, const struct plumb_weight *w)
{
	float *m = twin_scratch(env, w->rows * w->cols);
	for (int64_t n = 0; m && n < w->rows; n++)
		plumb_weight_row(w, n, 0, w->cols, m + n * w->cols);
	return m;
}
