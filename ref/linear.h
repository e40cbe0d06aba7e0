/* SPDX-License-Identifier: MIT */
/* Matrix times rows, the sum every projection is made of, and the norms. */
#ifndef PLUMB_REF_LINEAR_H
#define PLUMB_REF_LINEAR_H

#include "core/op.h"
#include "core/weight.h"

/* How products of many rows are computed. */
enum linear_method {
	LINEAR_AUTO,  /* OpenBLAS from LINEAR_BLAS_ROWS rows on, else plain */
	LINEAR_PLAIN, /* plain loops: the truth */
	LINEAR_BLAS,  /* OpenBLAS dgemm on blocks of decoded rows */
};
enum { LINEAR_BLAS_ROWS = 16 };

/* For tests and --gemm: the method of all later calls in the process. */
void linear_method_set(enum linear_method method);

/* sum[t, n] = sum_k w[n0 + n, k] * x[t, k], in binary64, for n < count.
 * x: (T, K) f32, w: (N, K), sum: (T, count) f64.
 * Plain: the products are exact; 8 accumulators, k mod 8, added pairwise. OpenBLAS adds in its own order, which moves a
 * sum by at most gamma_K of binary64: seven digits below what storing it as binary32 loses.
 * Errors: PLUMB_BAD_INPUT for memory. */
int linear_sum_ref(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t n0,
	int64_t count, double *sum);

/* y[t, n] = rne(sum_k w[n, k] * x[t, k]), all rows. y: (T, N) f32. lin(W, x) of model-spec. */
int linear_ref(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, float *y);

/* sum x^2 of (n) f64. */
double squares_ref(const struct plumb_env *env, const double *x, int64_t n);

/* Norm of model-spec 2.1 on one vector, before its rne: y = (x*r)*(1 + w), r = 1/sqrt(mean(x^2) + eps), eps the config's.
 * x, w, y: (n) f64. y may be x. */
void norm_ref(const struct plumb_env *env, const double *x, const double *w, int64_t n, double *y);

/* A vector weight as binary64: out (cols). */
int vector_ref(const struct plumb_env *env, const struct plumb_weight *w, double *out);

/* Memory of an op: count elements of size bytes, or NULL with env->err set. Freed with free(). */
void *scratch_ref(const struct plumb_env *env, int64_t count, size_t size);

#endif
