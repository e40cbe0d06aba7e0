/* SPDX-License-Identifier: MIT */
#include "ref/bound_parts.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/linear.h"

/* Sums over the terms of a reduction. */
struct terms {
	double value, size, error, spread, drift; /* size: of the magnitudes that an implementation can have */
};

/* A reduction of that depth; n products that may each lose half a smallest step. */
static struct plumb_ball reduced(const struct terms *s, int64_t n, int depth)
{
	return ball_classed((struct plumb_ball){s->value, s->error + plumb_gamma(depth) * s->size + (double)n * 0x1p-150,
		root_of_squares(s->spread, sqrt((double)depth) * 0x1p-24 * s->size) + sqrt((double)n) * 0x1p-150,
		s->drift});
}

struct plumb_ball bound_dot(const struct plumb_ball *a, const struct plumb_ball *b, int64_t n, int depth)
{
	struct terms s = {0.0, 0.0, 0.0, 0.0, 0.0};
	for (int64_t k = 0; k < n; k++) {
		double x = fabs(a[k].value), y = fabs(b[k].value);
		s.value += a[k].value * b[k].value;
		s.size += (x + a[k].error) * (y + b[k].error);
		s.error += x * b[k].error + y * a[k].error + a[k].error * b[k].error;
		s.spread += x * b[k].spread + y * a[k].spread;
		s.drift += a[k].value * b[k].drift + b[k].value * a[k].drift;
	}
	return reduced(&s, n, depth);
}

struct plumb_ball bound_sum(const struct plumb_ball *a, int64_t n, int depth)
{
	struct terms s = {0.0, 0.0, 0.0, 0.0, 0.0};
	for (int64_t k = 0; k < n; k++) {
		s.value += a[k].value;
		s.size += fabs(a[k].value) + a[k].error;
		s.error += a[k].error;
		s.spread += a[k].spread;
		s.drift += a[k].drift;
	}
	return reduced(&s, 0, depth);
}

/* One row of one token. */
static struct plumb_ball row_dot(const double *w, const struct plumb_ball *x, int64_t K, int depth, bool exact)
{
	struct terms s = {0.0, 0.0, 0.0, 0.0, 0.0};
	for (int64_t k = 0; exact && k < K; k++) {
		double p = w[k] * x[k].value;
		s.value += p;
		s.size += fabs(p);
	}
	for (int64_t k = 0; !exact && k < K; k++) {
		double y = fabs(w[k]);
		s.value += w[k] * x[k].value;
		s.size += y * (fabs(x[k].value) + x[k].error);
		s.error += y * x[k].error;
		s.spread += y * x[k].spread;
		s.drift += w[k] * x[k].drift;
	}
	return reduced(&s, K, depth);
}

int bound_linear(const struct plumb_env *env, const struct plumb_weight *w, const struct plumb_ball *x, int64_t T,
	int64_t call_rows, struct plumb_ball *y)
{
	int64_t N = w->rows, K = w->cols;
	int depth = plumb_split_depth(K, plumb_split_count(call_rows, K)), failed = 0;
	bool exact = true;

	for (int64_t i = 0; i < T * K; i++)
		exact = exact && x[i].error == 0.0;
#pragma omp parallel if (N * K * T > 65536)
	{
		float *narrow = malloc((size_t)K * sizeof *narrow);
		double *row = malloc((size_t)K * sizeof *row);
		if (!narrow || !row) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t n = 0; n < N; n++) {
			if (failed)
				continue;
			plumb_weight_row(w, n, 0, K, narrow);
			for (int64_t k = 0; k < K; k++)
				row[k] = (double)narrow[k];
			for (int64_t t = 0; t < T; t++)
				y[t * N + n] = row_dot(row, x + t * K, K, depth, exact);
		}
		free(narrow);
		free(row);
	}
	return failed ? plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a row of %lld values", (long long)K)
	              : PLUMB_OK;
}

int bound_linear_of(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows,
	struct plumb_ball *y)
{
	struct plumb_ball *balls = bound_balls(env, x, T * w->cols);
	int status = balls ? bound_linear(env, w, balls, T, call_rows, y) : PLUMB_BAD_INPUT;
	free(balls);
	return status;
}

int bound_projection(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T,
	int64_t call_rows, struct plumb_ball *y)
{
	int status = bound_linear_of(env, w, x, T, call_rows, y);
	for (int64_t i = 0; i < T * w->rows && status == PLUMB_OK; i++)
		y[i] = ball_out(env, y[i]);
	return status;
}

struct plumb_ball bound_inverse_rms(const struct plumb_env *env, const struct plumb_ball *x, int64_t n, int width)
{
	struct plumb_ball squares = bound_dot(x, x, n, plumb_strided_depth(n, width));
	struct plumb_ball mean = ball_div(squares, ball_exact((double)n));
	return ball_rsqrt(ball_add_eps(mean, (double)env->cfg->rms_norm_eps));
}

void bound_norm(
	const struct plumb_env *env, const struct plumb_ball *x, const float *w, int64_t n, int width, struct plumb_ball *y)
{
	struct plumb_ball r = bound_inverse_rms(env, x, n, width);
	for (int64_t i = 0; i < n; i++)
		y[i] = ball_mul(ball_mul(x[i], r), ball_fl(ball_exact(1.0 + (double)w[i])));
}

void bound_rope(const struct plumb_env *env, const struct plumb_ball *x, const float *rope, int64_t n,
	const struct plumb_cache *cache, struct plumb_ball *y)
{
	int64_t half = env->cfg->rotary_dim / 2;

	for (int64_t i = 0; i < half; i++) {
		struct plumb_ball a = x[i], b = x[i + half];
		struct plumb_ball c = ball_exact((double)rope[i]), s = ball_exact((double)rope[half + i]);
		struct plumb_ball ac = ball_rne(env, ball_mul(a, c)), bs = ball_rne(env, ball_mul(ball_negate(b), s));
		struct plumb_ball bc = ball_rne(env, ball_mul(b, c)), as = ball_rne(env, ball_mul(a, s));
		y[i] = ball_add(ac, bs);
		y[i + half] = ball_add(bc, as);
	}
	for (int64_t i = 0; i < n; i++) { /* from 2 * half on already rounded: stored as they are */
		if (cache && !bound_cache_is_policy(env, cache))
			y[i] = bound_kept(cache, i < 2 * half ? ball_rne(env, y[i]) : x[i]);
		else
			y[i] = i < 2 * half ? ball_out(env, y[i]) : x[i];
	}
}

struct plumb_ball bound_exponentials(struct plumb_ball *s, int64_t n)
{
	double max = -HUGE_VAL, error = 0.0;

	for (int64_t i = 0; i < n; i++) {
		if (s[i].value > max || isnan(s[i].value))
			max = s[i].value;
		error = greater(error, s[i].error);
	}
	for (int64_t i = 0; i < n; i++) {
		struct plumb_ball x = {s[i].value - max, s[i].error, s[i].spread, 0.0};
		double b = half_ulp(fabs(x.value) + s[i].error + error);
		if (isinf(x.value)) /* exp(-Inf) is 0 */
			b = 0.0;
		if (x.value == 0.0 && s[i].error == 0.0 && error == 0.0)
			b = 0.0; /* the maximum less itself */
		x.error += b;
		x.spread = root_of_squares(x.spread, b);
		s[i] = ball_exp(x);
		/* the implementation's maximum may lie elsewhere in its ball: its exponentials then lie in other
		 * binades, where an ulp is up to twice as large a part of them */
		if (error > 0.0)
			s[i].error += 2.0 * half_ulp(s[i].value) * ULP_EXP;
	}
	return bound_sum(s, n, plumb_strided_depth(n, PLUMB_ROW_LANES));
}

struct plumb_ball bound_tiled_sum(const struct plumb_ball *e, double argument, int64_t n, int tile, struct plumb_ball *term)
{
	int64_t tiles = (n + tile - 1) / tile;
	int depth = plumb_strided_depth(n < tile ? n : tile, tile) + plumb_strided_depth(tiles, tile);

	for (int64_t i = 0; i < n; i++) {
		double more = e[i].value * expm1(argument) + 2.0 * half_ulp(e[i].value) * ULP_EXP + 0x1p-149;
		term[i] = e[i];
		if (tiles > 1) {
			term[i].error += more;
			term[i].spread = root_of_squares(term[i].spread, more);
		}
	}
	return bound_sum(term, n, depth);
}

float bound_cached(const struct plumb_cache *cache, float value)
{
	float stored; /* no format is wider */
	plumb_cache_encode(cache, &value, 1, &stored);
	plumb_cache_decode(cache, &stored, 1, &value);
	return value;
}

static double kept(const struct plumb_cache *cache, double x)
{
	return (double)bound_cached(cache, (float)x);
}

struct plumb_ball bound_kept(const struct plumb_cache *cache, struct plumb_ball x)
{
	double value = kept(cache, x.value);

	if (x.error == 0.0)
		return ball_exact(value);
	double low = kept(cache, x.value - x.error), high = kept(cache, x.value + x.error);
	if (!isfinite(x.value) || (isinf(low) && low == high)) /* Inf at both ends */
		return ball_exact(value);
	if (!isfinite(low) || !isfinite(high)) /* anything is right: see plumb_bound_add */
		return (struct plumb_ball){x.value, 0x1p128, 0x1p128, 0.0};
	double error = greater(high - value, value - low);
	return (struct plumb_ball){value, error, error, 0.0};
}

struct plumb_ball bound_stored(enum plumb_format format, struct plumb_ball x)
{
	const struct plumb_cache like = {.format = format};
	return bound_kept(&like, x);
}

bool bound_cache_is_policy(const struct plumb_env *env, const struct plumb_cache *cache)
{
	return cache->format == PLUMB_F32 || (cache->format == PLUMB_BF16 && env->policy == PLUMB_POLICY_BF16);
}

void bound_exact_copy(const float *x, int64_t n, struct plumb_ball *y)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = ball_exact((double)x[i]);
}

struct plumb_ball *bound_scratch(const struct plumb_env *env, int64_t n)
{
	return scratch_ref(env, n, sizeof(struct plumb_ball));
}

struct plumb_ball *bound_balls(const struct plumb_env *env, const float *x, int64_t n)
{
	struct plumb_ball *y = bound_scratch(env, n);
	if (y)
		bound_exact_copy(x, n, y);
	return y;
}

float *bound_matrix(const struct plumb_env *env, const struct plumb_weight *w)
{
	float *m = scratch_ref(env, w->rows * w->cols, sizeof *m);
	for (int64_t n = 0; m && n < w->rows; n++)
		plumb_weight_row(w, n, 0, w->cols, m + n * w->cols);
	return m;
}
