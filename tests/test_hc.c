/* SPDX-License-Identifier: MIT */
/* Hyper-connection. The oracle and the twin are held against model-spec 2.3 written down once more, in matrices
 * (OpenBLAS) and intervals: each rounding point widens the interval by what it may lose and then rounds its ends. The
 * kernels on simt are held against the twin, every bit. */
#include <cblas.h>
#include <stdio.h>

#include "core/math32.h"
#include "core/ops/hc.h"
#include "core/order.h"
#include "opt/opt.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/stage_test.h"
#include "tests/support/suite.h"

#define U 0x1p-24 /* half an ulp, relative */

/* What the residual streams hold. */
enum kind {
	KIND_NORMAL,
	KIND_TINY,      /* 1e-4: eps counts */
	KIND_SUBNORMAL, /* squares vanish: r = 1/sqrt(eps) */
	KIND_LARGE,     /* 1e15 */
	KIND_MIXED,     /* one large value a stream, the rest small */
	KIND_ZERO,      /* zeros of both signs */
	KINDS,
};

/* A site: all operands of the three ops, and what each computes. */
struct site {
	int64_t T, S, D, R;
	enum plumb_policy policy;
	struct st_weight norm, down, inject, up;
	float *residual, *branch; /* (T, S, D), (T, D) */
	bool injects;
};

struct outputs {
	struct st_buffer normed, low, logits, mixed, injection, residual;
};

static struct plumb_config config;
static struct plumb_error error;

/* largest |twin - exact| / bound of the sums, where it is known exactly (policy f32) */
static double worst_norm, worst_down, worst_mix;

static float value_of(enum kind kind, int64_t i, uint64_t *random)
{
	switch (kind) {
	case KIND_TINY:
		return st_full(random, 1e-4);
	case KIND_SUBNORMAL:
		return st_full(random, 1e-41);
	case KIND_LARGE:
		return st_full(random, 1e15);
	case KIND_MIXED:
		return st_full(random, i % 97 == 13 ? 3e3 : 1e-2);
	case KIND_ZERO:
		return st_below(random, 2) ? 0.0f : -0.0f;
	default:
		return st_full(random, 1.0);
	}
}

static struct site site_new(int64_t T, int64_t S, int64_t D, int64_t R, enum kind kind, enum plumb_policy policy,
	enum plumb_format format, int shift, uint64_t seed)
{
	struct site s = {.T = T, .S = S, .D = D, .R = R, .policy = policy, .injects = seed % 4 != 3};
	double spread = 3.0 / sqrt((double)(S * D));

	s.norm = st_weight_new(&seed, 1, S * D, 0.3, format, shift);
	s.down = st_weight_new(&seed, R, S * D, spread * (double)S, format, shift);
	s.inject = st_weight_new(&seed, S, S * D, spread * (double)S, (enum plumb_format)((format + seed % 2) % 3), 0);
	s.up = st_weight_new(&seed, S * D, R, 6.0 / sqrt((double)R), format, shift);
	s.residual = malloc((size_t)(T * S * D) * sizeof *s.residual);
	s.branch = malloc((size_t)(T * D) * sizeof *s.branch);
	ck_assert(s.residual && s.branch);
	for (int64_t i = 0; i < T * S * D; i++)
		s.residual[i] = value_of(kind, i, &seed);
	for (int64_t i = 0; i < T * D; i++)
		s.branch[i] = value_of(kind, i, &seed);
	return s;
}

static void site_free(struct site *s)
{
	st_weight_free(s->norm);
	st_weight_free(s->down);
	st_weight_free(s->inject);
	st_weight_free(s->up);
	free(s->residual);
	free(s->branch);
}

static struct outputs outputs_new(const struct site *s)
{
	int64_t T = s->T, S = s->S, D = s->D;
	struct outputs o = {st_floats_new(T * S * D), st_floats_new(T * s->R), st_floats_new(T * S), st_floats_new(T * D),
		st_floats_new(T * S), st_floats_new(T * S * D)};
	return o;
}

static void outputs_free(struct outputs *o)
{
	st_buffer_free(o->normed);
	st_buffer_free(o->low);
	st_buffer_free(o->logits);
	st_buffer_free(o->mixed);
	st_buffer_free(o->injection);
	st_buffer_free(o->residual);
}

static struct plumb_env env_of(const struct site *s)
{
	struct plumb_env env = {.cfg = &config, .policy = s->policy, .err = &error};

	config.streams = (int)s->S;
	config.hidden = s->D;
	config.low_rank = s->R;
	config.rms_norm_eps = 1e-6f;
	return env;
}

/* The three ops, each on the inputs that `from` holds (o itself, if NULL), into o. */
static void site_run(const struct site *s, const struct plumb_env *env, plumb_op_fn *norm_down, plumb_op_fn *up_mix,
	plumb_op_fn *inject, const struct outputs *from, struct outputs *o, int run)
{
	const struct outputs *in = from ? from : o;
	struct plumb_hc_norm_down a = {s->T, s->residual, &s->norm.w, &s->down.w, s->injects ? &s->inject.w : NULL,
		st_floats(o->normed), st_floats(o->low), s->injects ? st_floats(o->logits) : NULL};
	struct plumb_hc_up_mix b = {s->T, st_floats(in->normed), st_floats(in->low),
		s->injects ? st_floats(in->logits) : NULL, &s->up.w, st_floats(o->mixed),
		s->injects ? st_floats(o->injection) : NULL};
	struct plumb_hc_inject c = {s->T, s->residual, s->branch, st_floats(in->injection), st_floats(o->residual)};
	const struct st_buffer all[] = {o->normed, o->low, o->logits, o->mixed, o->injection, o->residual};

	for (int i = 0; i < 6; i++)
		st_buffer_poison(all[i], run);
	st_call(norm_down, env, &a);
	st_call(up_mix, env, &b);
	if (s->injects)
		st_call(inject, env, &c);
	for (int i = 0; i < 6; i++)
		st_buffer_check(all[i], "an output");
}

/* 0, or which output differs. */
static const char *outputs_differ(const struct site *s, const struct outputs *a, const struct outputs *b)
{
	int64_t T = s->T, S = s->S, D = s->D;

	if (st_difference(st_floats(a->normed), st_floats(b->normed), T * S * D) >= 0)
		return "normed";
	if (st_difference(st_floats(a->low), st_floats(b->low), T * s->R) >= 0)
		return "low";
	if (st_difference(st_floats(a->mixed), st_floats(b->mixed), T * D) >= 0)
		return "mixed";
	if (s->injects && st_difference(st_floats(a->logits), st_floats(b->logits), T * S) >= 0)
		return "inject_logits";
	if (s->injects && st_difference(st_floats(a->injection), st_floats(b->injection), T * S) >= 0)
		return "injection";
	if (s->injects && st_difference(st_floats(a->residual), st_floats(b->residual), T * S * D) >= 0)
		return "residual_out";
	return NULL;
}

/* ---- the stage once more, in intervals ---- */

/* Errors that a computation is allowed: the oracle's own arithmetic is binary64, so nearly none. */
struct allowance {
	double mean, row,
		stream;  /* relative to the sum of magnitudes: square sums, matrix rows, the sum over the streams */
	double u;        /* of one operation */
	double function; /* of sigmoid and silu; core/math32.h: 0.6135 ulp */
};

static const struct allowance of_oracle = {0x1p-40, 0x1p-40, 0x1p-40, 0x1p-45, 0x1p-45};

static struct allowance of_twin(int64_t rows, int64_t cols, const struct site *s)
{
	struct allowance a = {st_gamma(plumb_strided_depth(s->D, PLUMB_ROW_LANES)),
		st_gamma(plumb_split_depth(cols, plumb_split_count(rows, cols))), st_gamma((int)s->S), U, 1.3 * U};
	return a;
}

/* sum[n] = w . x and mass[n] = |w| . |x| */
static void witness(const struct plumb_weight *w, const float *x, double *sum, double *mass)
{
	int N = (int)w->rows, K = (int)w->cols;
	double *wide = st_decoded(w), *xd = malloc((size_t)K * sizeof *xd);

	for (int k = 0; k < K; k++)
		xd[k] = (double)x[k];
	cblas_dgemv(CblasRowMajor, CblasNoTrans, N, K, 1.0, wide, K, xd, 1, 0.0, sum, 1);
	for (int k = 0; k < K; k++)
		xd[k] = fabs(xd[k]);
	for (int64_t i = 0; i < w->rows * w->cols; i++)
		wide[i] = fabs(wide[i]);
	cblas_dgemv(CblasRowMajor, CblasNoTrans, N, K, 1.0, wide, K, xd, 1, 0.0, mass, 1);
	free(wide);
	free(xd);
}

static struct st_range silu_of(struct st_range r, double relative)
{
	double a = r.lo / (1.0 + exp(-r.lo)), b = r.hi / (1.0 + exp(-r.hi));
	struct st_range out = {fmin(a, b), fmax(a, b)};

	if (r.lo < -1.2784645427610738 && r.hi > -1.2784645427610738)
		out.lo = -0.27846454276107379511;
	return st_widened(out, relative);
}

static struct st_range sigmoid_of(struct st_range r, double relative)
{
	struct st_range out = {1.0 / (1.0 + exp(-r.lo)), 1.0 / (1.0 + exp(-r.hi))};
	return st_widened(out, relative);
}

static struct st_range scaled(struct st_range r, double factor)
{
	struct st_range out = {fmin(r.lo * factor, r.hi * factor), fmax(r.lo * factor, r.hi * factor)};
	return out;
}

/* The last step: what is stored is binary32. */
static struct st_range stored(const struct site *s, struct st_range r)
{
	return st_rounded(s->policy, st_widened(r, U));
}

/* Each check takes the inputs that o was computed from and gives the number of elements outside. */

static int64_t normed_outside(const struct site *s, const struct outputs *o, struct allowance a, double *worst)
{
	double *w = st_decoded(&s->norm.w);
	int64_t outside = 0;

	for (int64_t ts = 0; ts < s->T * s->S; ts++) {
		const float *x = s->residual + ts * s->D;
		double sum = 0.0;
		for (int64_t c = 0; c < s->D; c++)
			sum += (double)x[c] * (double)x[c];
		double r = 1.0 / sqrt(sum / (double)s->D + (double)1e-6f);
		for (int64_t c = 0; c < s->D; c++) {
			double n = (double)x[c] * r * (1.0 + w[ts % s->S * s->D + c]);
			/* half the error of mean + eps (the sum, a division, an addition), square root and division,
			 * and three more; a squared subnormal is off by up to 2^-150 and eps covers that */
			double relative = 0.5 * (a.mean + 2.1 * a.u) + 5.1 * a.u;
			float y = st_floats(o->normed)[ts * s->D + c];
			outside += !st_inside(y, stored(s, st_widened(st_around(n, relative * fabs(n)), 0)));
			if (worst && s->policy == PLUMB_POLICY_F32 && fabs(n) > 0x1p-100)
				*worst = fmax(*worst, fabs((double)y - n) / ((relative + U) * fabs(n)));
		}
	}
	free(w);
	return outside;
}

static int64_t rows_outside(const struct site *s, const struct outputs *o, bool is_down, struct allowance a, double *worst)
{
	const struct plumb_weight *w = is_down ? &s->down.w : &s->inject.w;
	int64_t N = w->rows, outside = 0;
	double *sum = malloc((size_t)N * sizeof *sum), *mass = malloc((size_t)N * sizeof *mass);

	for (int64_t t = 0; t < s->T; t++) {
		witness(w, st_floats(o->normed) + t * s->S * s->D, sum, mass);
		for (int64_t n = 0; n < N; n++) {
			struct st_range r = st_widened(st_around(sum[n], a.row * mass[n]), 0);
			r = st_rounded(s->policy, r);
			r = st_widened(scaled(r, 1.0 / (double)s->S), 2 * a.u);
			if (is_down)
				r = silu_of(st_rounded(s->policy, r), a.function);
			float y = st_floats(is_down ? o->low : o->logits)[t * N + n];
			outside += !st_inside(y, stored(s, r));
			if (worst && !is_down && s->policy == PLUMB_POLICY_F32 && mass[n] > 0x1p-60)
				*worst = fmax(*worst,
					fabs((double)y * (double)s->S - sum[n]) / (a.row * mass[n] + 2 * U * fabs(sum[n])));
		}
	}
	free(sum);
	free(mass);
	return outside;
}

static int64_t mixed_outside(
	const struct site *s, const struct outputs *from, const struct outputs *o, struct allowance a, double *worst)
{
	int64_t S = s->S, D = s->D, outside = 0;
	double *sum = malloc((size_t)(S * D) * sizeof *sum), *mass = malloc((size_t)(S * D) * sizeof *mass);

	for (int64_t t = 0; t < s->T; t++) {
		witness(&s->up.w, st_floats(from->low) + t * s->R, sum, mass);
		for (int64_t c = 0; c < D; c++) {
			struct st_range total = {0, 0};
			double size = 0.0;
			for (int64_t i = c; i < S * D; i += D) {
				double n = (double)st_floats(from->normed)[t * S * D + i];
				struct st_range g = st_rounded(s->policy, st_around(sum[i], a.row * mass[i] + 0x1p-149));
				g = st_rounded(s->policy, sigmoid_of(g, a.function));
				struct st_range p = st_rounded(s->policy, st_widened(scaled(g, n), a.u));
				total.lo += p.lo;
				total.hi += p.hi;
				size += fmax(fabs(p.lo), fabs(p.hi));
			}
			total.lo -= a.stream * size;
			total.hi += a.stream * size;
			struct st_range mean = st_widened(scaled(total, 1.0 / (double)S), 2 * a.u);
			float y = st_floats(o->mixed)[t * D + c];
			outside += !st_inside(y, stored(s, mean));
			if (worst && s->policy == PLUMB_POLICY_F32 && mean.hi - mean.lo > 0x1p-100)
				*worst =
					fmax(*worst, fabs((double)y - (mean.lo + mean.hi) / 2) / ((mean.hi - mean.lo) / 2));
		}
		for (int64_t i = t * S; i < (t + 1) * S && s->injects; i++) {
			double logit = (double)st_floats(from->logits)[i];
			struct st_range r = stored(s, sigmoid_of(st_around(logit, 0), a.function));
			outside += !st_inside(st_floats(o->injection)[i], scaled(r, 2.0));
		}
	}
	free(sum);
	free(mass);
	return outside;
}

static int64_t injected_outside(
	const struct site *s, const struct outputs *from, const struct outputs *o, struct allowance a)
{
	int64_t outside = 0;

	for (int64_t i = 0; i < s->T * s->S * s->D; i++) {
		int64_t ts = i / s->D, t = ts / s->S;
		double y = (double)s->branch[t * s->D + i % s->D] * (double)st_floats(from->injection)[ts];
		struct st_range r = st_rounded(s->policy, st_widened(st_around(y, 0), a.u));
		r.lo += (double)s->residual[i];
		r.hi += (double)s->residual[i];
		outside += !st_inside(st_floats(o->residual)[i], stored(s, st_widened(r, a.u)));
	}
	return outside;
}

/* All of a site; the ops of `o` had `from` for inputs (NULL: o). */
static int64_t site_outside(const struct site *s, const struct outputs *from, const struct outputs *o, bool is_twin)
{
	const struct outputs *in = from ? from : o;
	struct allowance down = is_twin ? of_twin(s->R + s->S, s->S * s->D, s) : of_oracle;
	struct allowance up = is_twin ? of_twin(s->S * s->D, s->R, s) : of_oracle;
	int64_t outside = normed_outside(s, o, down, is_twin ? &worst_norm : NULL);

	outside += rows_outside(s, o, true, down, NULL);
	if (s->injects)
		outside += rows_outside(s, o, false, down, is_twin ? &worst_down : NULL);
	outside += mixed_outside(s, in, o, up, is_twin ? &worst_mix : NULL);
	if (s->injects)
		outside += injected_outside(s, in, o, up);
	return outside;
}

/* ---- tests ---- */

static const struct {
	int64_t T, S, D, R;
} shapes[] = {
	{1, 2, 1, 1},
	{3, 3, 7, 5},
	{1, 4, 8, 40},
	{2, 5, 31, 16},
	{1, 64, 9, 3},
	{1, 4, 64, 33},
	{2, 4, 100, 8},
	{1, 2, 255, 7},
	{1, 4, 256, 17},
	{1, 3, 257, 60},
	{1, 2, 640, 24},
	{1, 7, 512, 9},
	{1, 4, 1030, 12},
	{1, 2, 5, 1200},
	{1, 6, 3, 2056},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(random_sites)
{
	for (int variant = 0; variant < KINDS; variant++) {
		struct site s = site_new(shapes[_i].T, shapes[_i].S, shapes[_i].D, shapes[_i].R, (enum kind)variant,
			(_i + variant) % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32,
			(enum plumb_format)((_i + variant / 2) % 3), variant / 2 % 2, (uint64_t)(10 * _i + variant));
		struct outputs oracle = outputs_new(&s), twin = outputs_new(&s), opt = outputs_new(&s);
		struct plumb_env env = env_of(&s);

		site_run(&s, &env, hc_norm_down_ref, hc_up_mix_ref, hc_inject_ref, NULL, &oracle, 0);
		ck_assert_msg(
			site_outside(&s, NULL, &oracle, false) == 0, "the oracle leaves the witness, variant %d", variant);
		site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &twin, 0);
		ck_assert_msg(site_outside(&s, NULL, &twin, true) == 0, "the twin leaves its bound, variant %d", variant);
		/* and on the oracle's inputs, as a local comparison runs it */
		site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, &oracle, &opt, 1);
		ck_assert_int_eq(site_outside(&s, &oracle, &opt, true), 0);
		for (int i = 0; i < ST_SEEDS; i++) {
			if (variant != KIND_NORMAL && i != variant % ST_SEEDS)
				continue; /* schedules do not depend on values */
			env.device = st_device(i);
			site_run(&s, &env, hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt, NULL, &opt, i);
			const char *name = outputs_differ(&s, &twin, &opt);
			ck_assert_msg(!name, "variant %d, seed %llu: %s differs from the twin", variant,
				(unsigned long long)st_seeds[i], name);
		}
		outputs_free(&oracle);
		outputs_free(&twin);
		outputs_free(&opt);
		site_free(&s);
	}
}
END_TEST

START_TEST(no_races)
{
	struct site s = site_new(2, 5, 300, 20, KIND_NORMAL, PLUMB_POLICY_BF16, PLUMB_BF16, 0, 4);
	struct outputs twin = outputs_new(&s), opt = outputs_new(&s);
	struct plumb_env env = env_of(&s);

	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &twin, 0);
	env.device = st_race_device();
	if (env.device) {
		site_run(&s, &env, hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt, NULL, &opt, 1);
		ck_assert_ptr_null(outputs_differ(&s, &twin, &opt));
		plumb_device_close(env.device);
	}
	outputs_free(&twin);
	outputs_free(&opt);
	site_free(&s);
}
END_TEST

/* The released size, once. */
START_TEST(released_size)
{
	struct site s = site_new(1, 4, 2560, 320, KIND_NORMAL, PLUMB_POLICY_BF16, PLUMB_BF16, 0, 4);
	struct outputs twin = outputs_new(&s), opt = outputs_new(&s);
	struct plumb_env env = env_of(&s);

	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &twin, 0);
	ck_assert_int_eq(site_outside(&s, NULL, &twin, true), 0);
	env.device = st_device(0);
	site_run(&s, &env, hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt, NULL, &opt, 1);
	ck_assert_msg(!outputs_differ(&s, &twin, &opt), "%s differs", outputs_differ(&s, &twin, &opt));
	outputs_free(&twin);
	outputs_free(&opt);
	site_free(&s);
}
END_TEST

/* The order of the square sum moves 1/sqrt rarely: it takes many streams to see it. */
START_TEST(norm_order)
{
	struct site s = site_new(2, 64, 1500, 1, KIND_NORMAL, PLUMB_POLICY_F32, PLUMB_BF16, 0, 3);
	struct outputs twin = outputs_new(&s), opt = outputs_new(&s);
	struct plumb_env env = env_of(&s);
	int not_fused = 0, serial = 0;

	for (int i = 0; i < 2; i++) {
		const struct outputs *o = i ? &opt : &twin;
		struct plumb_hc_norm_down a = {
			s.T, s.residual, &s.norm.w, &s.down.w, NULL, st_floats(o->normed), st_floats(o->low), NULL};
		env.device = st_device(i);
		st_call(i ? hc_norm_down_opt : hc_norm_down_twin, &env, &a);
	}
	ck_assert_int_eq(st_difference(st_floats(twin.normed), st_floats(opt.normed), s.T * s.S * s.D), -1);
	for (int64_t ts = 0; ts < s.T * s.S; ts++) { /* sensitivity */
		const float *x = s.residual + ts * s.D;
		float square[1500], line = 0.0f;
		for (int c = 0; c < 1500; c++) {
			square[c] = x[c] * x[c];
			line = fmaf(x[c], x[c], line);
		}
		float right = twin_dot(x, x, s.D, PLUMB_ROW_LANES), wrong = twin_sum(square, s.D, PLUMB_ROW_LANES);
		not_fused += plumb_rsqrtf(right / 1500.0f + 1e-6f) != plumb_rsqrtf(wrong / 1500.0f + 1e-6f);
		serial += plumb_rsqrtf(right / 1500.0f + 1e-6f) != plumb_rsqrtf(line / 1500.0f + 1e-6f);
	}
	ck_assert_int_gt(not_fused, 0);
	ck_assert_int_gt(serial, 0);
	outputs_free(&twin);
	outputs_free(&opt);
	site_free(&s);
}
END_TEST

/* T rows at once are T calls of one row. */
START_TEST(rows_alone)
{
	struct site s = site_new(3, 3, 300, 20, KIND_NORMAL, PLUMB_POLICY_BF16, PLUMB_BF16, 0, 8);
	struct outputs all = outputs_new(&s), one = outputs_new(&s);
	struct plumb_env env = env_of(&s);
	struct site row = s;

	env.device = st_device(1);
	row.T = 1;
	site_run(&s, &env, hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt, NULL, &all, 0);
	for (int64_t t = 0; t < s.T; t++) {
		row.residual = s.residual + t * s.S * s.D;
		row.branch = s.branch + t * s.D;
		site_run(&row, &env, hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt, NULL, &one, 1);
		ck_assert_mem_eq(st_floats(one.mixed), st_floats(all.mixed) + t * s.D, (size_t)s.D * 4);
		ck_assert_mem_eq(st_floats(one.low), st_floats(all.low) + t * s.R, (size_t)s.R * 4);
		ck_assert_mem_eq(st_floats(one.residual), st_floats(all.residual) + t * s.S * s.D, (size_t)(s.S * s.D) * 4);
	}
	outputs_free(&all);
	outputs_free(&one);
	site_free(&s);
}
END_TEST

/* The last site has no inject: its low is what it would be with one. Sized so that R rows and R + S rows would be split
 * differently, were they counted so. */
START_TEST(low_without_inject)
{
	struct site s = site_new(1, 4, 2048, 1022, KIND_NORMAL, PLUMB_POLICY_F32, PLUMB_BF16, 0, 0);
	struct outputs with = outputs_new(&s), without = outputs_new(&s);
	struct plumb_env env = env_of(&s);

	ck_assert_int_ne(plumb_split_count(1022, 8192), plumb_split_count(1026, 8192));
	env.device = st_device(0);
	for (int i = 0; i < 2; i++) {
		struct plumb_hc_norm_down a = {1, s.residual, &s.norm.w, &s.down.w, &s.inject.w, st_floats(with.normed),
			st_floats(with.low), st_floats(with.logits)};
		plumb_op_fn *op = i ? hc_norm_down_opt : hc_norm_down_twin;
		st_call(op, &env, &a);
		a.inject = NULL, a.inject_logits = NULL, a.low = st_floats(without.low);
		st_buffer_poison(without.low, i);
		st_call(op, &env, &a);
		ck_assert_int_eq(st_difference(st_floats(with.low), st_floats(without.low), s.R), -1);
	}
	outputs_free(&with);
	outputs_free(&without);
	site_free(&s);
}
END_TEST

/* Twin and opt on what is in s, compared; the twin's outputs are left in o. */
static void twin_and_opt(const struct site *s, const struct outputs *from, struct outputs *o)
{
	struct outputs opt = outputs_new(s);
	struct plumb_env env = env_of(s);

	site_run(s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, from, o, 0);
	for (int i = 0; i < 2; i++) {
		env.device = st_device(i);
		site_run(s, &env, hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt, from, &opt, i);
		ck_assert_msg(!outputs_differ(s, o, &opt), "%s differs", outputs_differ(s, o, &opt));
	}
	outputs_free(&opt);
}

START_TEST(not_finite)
{
	enum { S = 3, D = 270, R = 6 };
	static const int places[] = {0, D / 2, D - 1};
	static const float values[] = {NAN, INFINITY, -INFINITY};
	struct site s = site_new(1, S, D, R, KIND_NORMAL, _i % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32, PLUMB_F32, 0, 4);
	struct outputs o = outputs_new(&s), oracle = outputs_new(&s), from = outputs_new(&s);
	struct plumb_env env = env_of(&s);
	int place = places[_i / 2 % 3], stream = _i % S;
	float value = values[_i / 6];

	/* in the residual: its stream, all rows, nothing of the other streams */
	float kept = s.residual[stream * D + place];
	s.residual[stream * D + place] = value;
	twin_and_opt(&s, NULL, &o);
	site_run(&s, &env, hc_norm_down_ref, hc_up_mix_ref, hc_inject_ref, NULL, &oracle, 0);
	for (int i = 0; i < S * D; i++) {
		float n = st_floats(o.normed)[i];
		bool nan = i / D == stream && (isnan(value) || i % D == place);
		ck_assert_int_eq(isnan(n) != 0, nan);
		ck_assert_int_eq(isnan(st_floats(oracle.normed)[i]) != 0, nan);
		if (i / D == stream && !nan)
			ck_assert(n == 0.0f);
	}
	for (int n = 0; n < R; n++)
		ck_assert(isnan(st_floats(o.low)[n]) && isnan(st_floats(oracle.low)[n]));
	s.residual[stream * D + place] = kept;

	/* in normed and in the logits: one column, one stream */
	site_run(&s, &env, hc_norm_down_ref, hc_up_mix_ref, hc_inject_ref, NULL, &from, 0);
	st_floats(from.normed)[stream * D + place] = value;
	st_floats(from.logits)[stream] = value;
	twin_and_opt(&s, &from, &o);
	for (int c = 0; c < D; c++)
		ck_assert_int_eq(isfinite(st_floats(o.mixed)[c]) != 0, c != place);
	for (int i = 0; i < S; i++) {
		float w = st_floats(o.injection)[i];
		ck_assert(i != stream    ? w > 0.0f && w < 2.0f
			  : isnan(value) ? isnan(w) != 0
					 : w == (value > 0 ? 2.0f : 0.0f));
	}
	/* in the branch and in the injection */
	st_floats(from.injection)[stream] = value;
	s.branch[place] = value;
	twin_and_opt(&s, &from, &o);
	for (int i = 0; i < S * D; i++)
		if (i / D != stream && i % D != place)
			ck_assert(isfinite(st_floats(o.residual)[i]));
	outputs_free(&o);
	outputs_free(&oracle);
	outputs_free(&from);
	site_free(&s);
}
END_TEST

/* Closed gates, open gates, and what zeros must give. */
START_TEST(edges)
{
	static const float gates[] = {-1e30f, -200.0f, -104.0f, -103.5f, -88.0f, -20.0f, -0.0f, 0.0f, 17.5f, 89.0f, 200.0f};
	enum { S = 4, D = 33, R = 1, GATES = sizeof gates / sizeof *gates };
	struct site s = site_new(1, S, D, R, KIND_ZERO, _i ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32, PLUMB_F32, 0, 4);
	struct outputs o = outputs_new(&s), from = outputs_new(&s);
	float *up = st_floats(s.up.memory);

	twin_and_opt(&s, NULL, &o);
	for (int i = 0; i < S * D; i++)
		ck_assert(st_floats(o.normed)[i] == 0.0f && st_floats(o.residual)[i] == 0.0f);
	for (int c = 0; c < D; c++)
		ck_assert(st_floats(o.mixed)[c] == 0.0f);
	for (int i = 0; i < S; i++) /* gate logit 0: exactly 1 */
		ck_assert(st_floats(o.logits)[i] == 0.0f && st_floats(o.injection)[i] == 1.0f);

	for (int i = 0; i < S * D; i++) {
		st_floats(from.normed)[i] = i % 3 ? 1.0f : -0x1p-140f;
		up[i] = gates[i % GATES];
	}
	for (int i = 0; i < S; i++)
		st_floats(from.logits)[i] = gates[(3 * i) % GATES], st_floats(from.injection)[i] = gates[i];
	st_floats(from.low)[0] = 1.0f;
	twin_and_opt(&s, &from, &o);
	for (int c = 0; c < D; c++) {
		double sum = 0.0, size = 0.0;
		for (int i = c; i < S * D; i += D) {
			double p = (double)st_floats(from.normed)[i] / (1.0 + exp(-(double)up[i]));
			sum += p, size += fabs(p);
		}
		/* the steps of subnormals are 2^-133 in bf16 */
		ck_assert(fabs((double)st_floats(o.mixed)[c] - sum / S) <=
			  (_i ? 0x1p-7 * size + 0x1p-132 : 0x1p-22 * size + 0x1p-148));
	}
	outputs_free(&o);
	outputs_free(&from);
	site_free(&s);
}
END_TEST

/* residual_out may be residual. */
START_TEST(inject_in_place)
{
	struct site s = site_new(2, 5, 261, 2, KIND_NORMAL, PLUMB_POLICY_BF16, PLUMB_BF16, 0, 4);
	struct outputs o = outputs_new(&s), place = outputs_new(&s);
	struct plumb_env env = env_of(&s);
	size_t bytes = (size_t)(s.T * s.S * s.D) * sizeof(float);

	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &o, 0);
	for (int i = 0; i < ST_SEEDS; i++) {
		float *r = st_floats(place.residual);
		struct plumb_hc_inject a = {s.T, r, s.branch, st_floats(o.injection), r};
		memcpy(r, s.residual, bytes);
		env.device = st_device(i);
		st_call(hc_inject_opt, &env, &a);
		ck_assert_mem_eq(r, st_floats(o.residual), bytes);
		st_buffer_check(place.residual, "residual_out");
	}
	outputs_free(&o);
	outputs_free(&place);
	site_free(&s);
}
END_TEST

/* Known faults must not pass: neither the bits nor, where it is a fault of meaning, the bound. */
START_TEST(sensitivity)
{
	struct site s = site_new(1, 4, 512, 24, KIND_NORMAL, _i ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32, PLUMB_F32, 0, 4);
	struct outputs good = outputs_new(&s), bad = outputs_new(&s);
	struct plumb_env env = env_of(&s);
	int64_t S = s.S, D = s.D, R = s.R;
	struct allowance down = of_twin(R + S, S * D, &s), up = of_twin(S * D, R, &s);
	float *normed = st_floats(bad.normed), *w = st_floats(s.norm.memory), *row;

	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &good, 0);
	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &bad, 0);
	ck_assert_ptr_null(outputs_differ(&s, &good, &bad));

	/* hc_norm_down: w instead of 1 + w; one mean for all streams */
	for (int64_t i = 0; i < S * D; i++)
		normed[i] = st_floats(good.normed)[i] / (1.0f + w[i]) * w[i];
	ck_assert_str_eq(outputs_differ(&s, &good, &bad), "normed");
	ck_assert_int_gt(normed_outside(&s, &bad, down, NULL), S * D / 2);
	for (int64_t i = 0; i < S * D; i++)
		s.residual[i] *= (float)(1 + i / D);
	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &good, 0);
	float r =
		plumb_bits_f32(0x3F800000u) / sqrtf(twin_dot(s.residual, s.residual, S * D, 256) / (float)(S * D) + 1e-6f);
	for (int64_t i = 0; i < S * D; i++)
		normed[i] = twin_rne(&env, (s.residual[i] * r) * (1.0f + w[i]));
	ck_assert_int_gt(normed_outside(&s, &bad, down, NULL), S * D / 2);

	/* rows in one piece instead of pieces: right by the bound, wrong by the bits (policy bf16 hides it) */
	site_run(&s, &env, hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin, NULL, &bad, 0);
	row = malloc((size_t)(S * D) * sizeof *row);
	ck_assert_int_gt(plumb_split_count(R + S, S * D), 1);
	for (int64_t n = 0; n < S; n++) {
		plumb_weight_row(&s.inject.w, n, 0, S * D, row);
		st_floats(bad.logits)[n] = twin_rne(&env, twin_rne(&env, twin_split_dot(row, normed, S * D, 1)) / (float)S);
	}
	free(row);
	ck_assert_int_eq(rows_outside(&s, &bad, false, down, NULL), 0);
	if (!_i)
		ck_assert_str_eq(outputs_differ(&s, &good, &bad), "inject_logits");
	/* no division by S */
	for (int64_t n = 0; n < S; n++)
		st_floats(bad.logits)[n] = st_floats(good.logits)[n] * (float)S;
	ck_assert_int_gt(rows_outside(&s, &bad, false, down, NULL), 0);

	/* hc_up_mix: one element off; the raw residual in place of normed; no factor 2 */
	memcpy(st_floats(bad.mixed), st_floats(good.mixed), (size_t)D * 4);
	ck_assert_int_eq(mixed_outside(&s, &good, &good, up, NULL), 0);
	st_floats(bad.mixed)[D - 1] *= _i ? 1.03125f : 1.00001f;
	memcpy(st_floats(bad.injection), st_floats(good.injection), (size_t)S * 4);
	ck_assert_int_eq(mixed_outside(&s, &good, &bad, up, NULL), 1);
	memcpy(normed, s.residual, (size_t)(S * D) * 4);
	memcpy(st_floats(bad.low), st_floats(good.low), (size_t)R * 4);
	memcpy(st_floats(bad.logits), st_floats(good.logits), (size_t)S * 4);
	struct plumb_hc_up_mix raw = {1, normed, st_floats(bad.low), st_floats(bad.logits), &s.up.w, st_floats(bad.mixed),
		st_floats(bad.injection)};
	st_call(hc_up_mix_twin, &env, &raw);
	ck_assert_int_gt(mixed_outside(&s, &good, &bad, up, NULL), D / 2);
	memcpy(st_floats(bad.mixed), st_floats(good.mixed), (size_t)D * 4);
	for (int64_t i = 0; i < S; i++)
		st_floats(bad.injection)[i] *= 0.5f;
	ck_assert_int_eq(mixed_outside(&s, &good, &bad, up, NULL), S);

	/* hc_inject: fused, one rounding instead of two; the residual twice */
	int64_t twice = 0;
	for (int64_t i = 0; i < S * D; i++) {
		float *out = st_floats(bad.residual);
		out[i] = twin_rne(&env, fmaf(s.branch[i % D], st_floats(good.injection)[i / D], s.residual[i]));
	}
	ck_assert_int_ge(st_difference(st_floats(bad.residual), st_floats(good.residual), S * D), 0);
	for (int64_t i = 0; i < S * D; i++)
		st_floats(bad.residual)[i] = twin_rne(&env, st_floats(good.residual)[i] + s.residual[i]);
	twice = injected_outside(&s, &good, &bad, up);
	ck_assert_int_gt(twice, S * D / 2);
	outputs_free(&good);
	outputs_free(&bad);
	site_free(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hyper_connection");
	TCase *sites = suite_part(suite, "hyper_connection", 120);

	tcase_add_loop_test(sites, random_sites, 0, SHAPES);
	tcase_add_test(sites, no_races);
	tcase_add_test(sites, released_size);
	tcase_add_test(sites, norm_order);
	tcase_add_test(sites, rows_alone);
	tcase_add_test(sites, low_without_inject);
	tcase_add_loop_test(sites, not_finite, 0, 18);
	tcase_add_loop_test(sites, edges, 0, 2);
	tcase_add_test(sites, inject_in_place);
	tcase_add_loop_test(sites, sensitivity, 0, 2);
	int failed = suite_run_here(suite);
	printf("hyper_connection: error of the twin as a part of its bound: norm %.3f, down %.3f, mix %.3f\n", worst_norm,
		worst_down, worst_mix);
	st_devices_close();
	return failed;
}
