/* SPDX-License-Identifier: MIT */
/* What the bounds of several stages are made of: reductions of a declared depth, projections, norms, rope, softmax. */
#ifndef PLUMB_REF_BOUND_PARTS_H
#define PLUMB_REF_BOUND_PARTS_H

#include "core/cache.h"
#include "core/op.h"
#include "core/order.h"
#include "core/weight.h"
#include "ref/bound.h"

/* sum_k a[k]*b[k] by fmaf, an element passing depth roundings: gamma_depth * sum |a||b|, the errors of a and b, and one
 * smallest step a product, for products that underflow. */
struct plumb_ball bound_dot(const struct plumb_ball *a, const struct plumb_ball *b, int64_t n, int depth);

/* sum_k a[k] by plain additions. */
struct plumb_ball bound_sum(const struct plumb_ball *a, int64_t n, int depth);

/* y[t, n] = row n of w . x[t] before its rne, split(pieces, 256) with call_rows rows. x: (T, K), y: (T, N). */
int bound_linear(const struct plumb_env *env, const struct plumb_weight *w, const struct plumb_ball *x, int64_t T,
	int64_t call_rows, struct plumb_ball *y);

/* The same of stored values: x (T, K) f32. */
int bound_linear_of(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows,
	struct plumb_ball *y);

/* The same as a whole output: y is what the op stores. */
int bound_projection(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T,
	int64_t call_rows, struct plumb_ball *y);

/* 1/sqrt(mean x^2 + eps), the squares strided(width). */
struct plumb_ball bound_inverse_rms(const struct plumb_env *env, const struct plumb_ball *x, int64_t n, int width);

/* y = (x*r)*(1 + w) of model-spec 2.1 before its rne; y may be x. */
void bound_norm(const struct plumb_env *env, const struct plumb_ball *x, const float *w, int64_t n, int width,
	struct plumb_ball *y);

/* x (n), already rounded, rotated by a row of the rope table; y is what is stored: an output (ball_out), or in cache,
 * unless that is NULL; y may be x. */
void bound_rope(const struct plumb_env *env, const struct plumb_ball *x, const float *rope, int64_t n,
	const struct plumb_cache *cache, struct plumb_ball *y);

/* exp(s[i] - max) in place and their sum, strided(256). An error of the maximum itself drops out of every quotient of
 * two of these, so only what it does to the rounding of s[i] - max is counted. */
struct plumb_ball bound_exponentials(struct plumb_ball *s, int64_t n);

/* The same exponentials summed in tiles, each relative to its own maximum: strided(tile) in a tile, and strided(tile) over
 * the tiles' sums by fmaf with exp(maximum of the tile - max). Against e, which bound_exponentials made, a term has passed
 * one exponential and one rounding of a difference more; argument: the most that rounding can be. With one tile the factor
 * is exp(0), 1. term: (n) scratch. */
struct plumb_ball bound_tiled_sum(
	const struct plumb_ball *e, double argument, int64_t n, int tile, struct plumb_ball *term);

/* Stored values as balls, a small weight decoded, memory: malloc'ed, or NULL with env->err set. */
struct plumb_ball *bound_balls(const struct plumb_env *env, const float *x, int64_t n);
struct plumb_ball *bound_scratch(const struct plumb_env *env, int64_t n);
float *bound_matrix(const struct plumb_env *env, const struct plumb_weight *w);

/* What a cache gives back of a value that was put into it. */
float bound_cached(const struct plumb_cache *cache, float value);

/* A value stored in the cache, or as an array of format has it. The stored value of the exact one is the centre, and since
 * rounding (and saturating) keeps the order, the stored values of the two ends tell how far an implementation can be away:
 * nothing, unless a boundary lies within its reach. An exact value that is within reach of +-Inf is not judged. */
struct plumb_ball bound_kept(const struct plumb_cache *cache, struct plumb_ball x);
struct plumb_ball bound_stored(enum plumb_format format, struct plumb_ball x);

/* Whether the cache holds every value of the policy as it is: then the rounding to it is the policy's. */
bool bound_cache_is_policy(const struct plumb_env *env, const struct plumb_cache *cache);

void bound_exact_copy(const float *x, int64_t n, struct plumb_ball *y);

/* embed_bound, ... of every op. */
#define BOUND_FUNCTION(id, name) plumb_bound_fn name##_bound;
PLUMB_EACH_OP(BOUND_FUNCTION)

#endif
