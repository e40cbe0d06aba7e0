/* SPDX-License-Identifier: MIT */
/* The bound. With g the decay, beta the gate and k the unit key of a token, the exact step takes a row s of the state to
 * g (I - beta k k^T) s + beta v k. The matrix has a 2-norm of at most 1, so an error E of the whole state (2-norm over all
 * elements) is at most g E after it, and what a token adds is
 *   storage      half an ulp of each element: u |S'| with u = 2^-11 for f16 (2^-8 bf16), and half a smallest step each
 *   arithmetic   first-order analysis of the contract's operations, as in tests/test_gdn.c, in 2-norms
 * E_n = g E_(n-1) + added: a geometric sum, which for a constant decay ends at added / (1 - g). The S' that is rounded is
 * the implementation's: its 2-norm is measured every CHUNK tokens and grows by at most beta |v| a token in between. */
#include "tools/drift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/gdn.h"
#include "core/order.h"
#include "core/splitmix.h"

enum { CHUNK = 16, MOST_STEPS = 65536, MOST_DIM = 512 };

const enum plumb_format drift_formats[DRIFT_FORMATS] = {PLUMB_F32, PLUMB_F16, PLUMB_BF16};

/* 1 - decay of a token, about. */
static const double forgets[DRIFT_CLASSES] = {0.99, 0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6};

/* ---- inputs ---- */

/* Mean 0, variance 1, nearly normal: the sum of four uniforms. A function of its arguments: any element at any time. */
static float normal(uint64_t seed, uint64_t step, uint64_t i)
{
	uint64_t bits = plumb_mix64(plumb_mix64(plumb_splitmix64(seed) + step) + i);
	double sum = 0.0;
	for (int k = 0; k < 4; k++)
		sum += (double)(bits >> 16 * k & 0xffff) * 0x1p-16;
	return (float)((sum - 2.0 + 4.0 * 0x1p-17) * sqrt(3.0));
}

/* One run: heads are classes, and each has its own key head. */
struct run {
	const struct drift_options *options;
	struct plumb_config cfg;
	struct plumb_env env;
	float a_log[DRIFT_CLASSES], dt_bias[DRIFT_CLASSES];
	struct plumb_weight a_log_weight, dt_bias_weight;
	float *y, *b, *a;                           /* (CHUNK, C), (CHUNK, H), (CHUNK, H) */
	float *o[DRIFT_FORMATS];                    /* (CHUNK, H, Dv) */
	void *state[DRIFT_FORMATS];                 /* (H, Dv, Dk) */
	float *wide;                                /* the same, widened */
	double *exact, *exact_o;                    /* (H, Dv, Dk), (H, Dv) of the last token */
	double *qk;                                 /* (H, 2, Dk) */
	double error[DRIFT_FORMATS][DRIFT_CLASSES]; /* E of the bound */
	double log_decay[DRIFT_CLASSES];            /* sum over tokens */
	double size[DRIFT_CLASSES];                 /* 2-norm of the exact state */
	double held[DRIFT_FORMATS][DRIFT_CLASSES];  /* of the stored state */
};

static void fill(struct run *r, int64_t first, int64_t count)
{
	int64_t H = DRIFT_CLASSES, C = plumb_gdn_channels(&r->cfg);
#pragma omp parallel for schedule(static)
	for (int64_t t = 0; t < count; t++) {
		uint64_t step = (uint64_t)(first + t);
		for (int64_t i = 0; i < C; i++) { /* what the convolution and its silu give */
			float x = normal(r->options->seed, step, (uint64_t)i);
			r->y[t * C + i] = (float)((double)x / (1.0 + exp(-(double)x)));
		}
		for (int64_t h = 0; h < H; h++) {
			r->b[t * H + h] = normal(r->options->seed, step, (uint64_t)(C + h));
			r->a[t * H + h] = 0.5f * normal(r->options->seed, step, (uint64_t)(C + H + h));
		}
	}
}

/* ---- the truth ---- */

static double unit(const float *x, int64_t n, double *y)
{
	double sum = 0.0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	for (int64_t i = 0; i < n; i++)
		y[i] = (double)x[i] / sqrt(sum + 1e-6);
	return sqrt(sum);
}

/* What a token multiplies and adds. */
struct gates {
	double rate, step, decay, beta, v; /* A = exp(A_log), a + dt_bias, g, beta, 2-norm of v */
};

/* One token of a head in binary64. Returns the 2-norm of the new state. */
static double exact_step(struct run *r, int64_t h, int64_t t, struct gates *g)
{
	int64_t Dk = r->cfg.gdn_key_dim, Dv = r->cfg.gdn_value_dim, H = DRIFT_CLASSES;
	const float *y = r->y + t * plumb_gdn_channels(&r->cfg), *v = y + 2 * H * Dk + h * Dv;
	double *q = r->qk + h * 2 * Dk, *k = q + Dk, size = 0.0;

	unit(y + h * Dk, Dk, q);
	unit(y + (H + h) * Dk, Dk, k);
	g->rate = exp((double)r->a_log[h]);
	g->step = (double)r->a[t * H + h] + (double)r->dt_bias[h];
	g->decay = exp(-g->rate * log1p(exp(g->step)));
	g->beta = 1.0 / (1.0 + exp(-(double)r->b[t * H + h]));
	g->v = 0.0;
	for (int64_t i = 0; i < Dv; i++) {
		double *restrict s = r->exact + (h * Dv + i) * Dk, memory = 0.0, out = 0.0;
#pragma omp simd reduction(+ : memory)
		for (int64_t j = 0; j < Dk; j++) {
			s[j] *= g->decay;
			memory += s[j] * k[j];
		}
		double delta = ((double)v[i] - memory) * g->beta;
#pragma omp simd reduction(+ : out, size)
		for (int64_t j = 0; j < Dk; j++) {
			s[j] += k[j] * delta;
			out += s[j] * q[j];
			size += s[j] * s[j];
		}
		r->exact_o[h * Dv + i] = out / sqrt((double)Dk);
		g->v += (double)v[i] * (double)v[i];
	}
	g->v = sqrt(g->v);
	return sqrt(size);
}

/* ---- the bound ---- */

/* One token on: E, the bound so far, and *held, what the 2-norm of the stored state is at most. */
static double bound_step(const struct run *r, enum plumb_format format, const struct gates *g, double *held, double E)
{
	const double u = 0x1p-24, N = (double)(r->cfg.gdn_key_dim * r->cfg.gdn_value_dim);
	const double storage = format == PLUMB_F16 ? 0x1p-11 : format == PLUMB_BF16 ? 0x1p-8 : 0.0;
	const double least = format == PLUMB_F16 ? 0x1p-25 : format == PLUMB_BF16 ? 0x1p-134 : 0x1p-150;
	double d = plumb_strided_depth(r->cfg.gdn_key_dim, PLUMB_HEAD_LANES), gamma = d * u / (1.0 - d * u);
	double ek = (d / 2.0 + 2.5) * u, edecay = (-log(g->decay) * 4.0 + g->rate * fabs(g->step) + 2.2) * u;
	double decayed = g->decay * *held, reach = g->v + decayed; /* |v - m| */
	double memory = decayed * (gamma + edecay + ek), delta = (memory + u * reach + reach * 2.2 * u) * g->beta;
	double next =
		decayed + g->beta * g->v; /* 2-norm of the new state: 0 <= beta <= 1, so the delta rule adds no more */
	double added = 1.01 * (decayed * edecay + delta + g->beta * reach * ek + u * next); /* 1.01: second order */
	double rounded = storage * (next + added) + sqrt(N) * least;
	*held = next + added + rounded;
	return g->decay * E + added + rounded;
}

/* ---- the run ---- */

static void *take(size_t count, size_t size, bool *failed)
{
	void *m = calloc(count, size);
	*failed = *failed || !m;
	return m;
}

static int run_open(struct run *r, struct plumb_error *err)
{
	const struct drift_options *o = r->options;
	int64_t Dk = o->key_dim ? o->key_dim : 128, Dv = o->value_dim ? o->value_dim : 128, H = DRIFT_CLASSES;
	bool failed = false;

	if (o->steps < 1 || o->steps > MOST_STEPS)
		return plumb_fail(err, PLUMB_BAD_INPUT, "steps are %lld, expected 1..%d", (long long)o->steps, MOST_STEPS);
	if (Dk < 1 || Dk > MOST_DIM || Dv < 1 || Dv > MOST_DIM)
		return plumb_fail(err, PLUMB_BAD_INPUT, "heads are %lld by %lld, expected 1..%d each", (long long)Dk,
			(long long)Dv, MOST_DIM);
	r->cfg = (struct plumb_config){.layers = 1,
		.block_tokens = 1,
		.gdn_key_heads = (int)H,
		.gdn_value_heads = (int)H,
		.gdn_key_dim = Dk,
		.gdn_value_dim = Dv,
		.gdn_conv_taps = 1};
	r->env = (struct plumb_env){.cfg = &r->cfg, .capacity = CHUNK, .err = err, .device = o->binding.device};
	for (int h = 0; h < H; h++) /* softplus of what a is on average */
		r->a_log[h] = (float)log(-log1p(-forgets[h]) / log(2.0));
	r->a_log_weight = (struct plumb_weight){.rows = 1, .cols = H, .data = r->a_log};
	r->dt_bias_weight = (struct plumb_weight){.rows = 1, .cols = H, .data = r->dt_bias};
	size_t states = (size_t)(H * Dv * Dk);
	r->y = take((size_t)(CHUNK * plumb_gdn_channels(&r->cfg)), sizeof *r->y, &failed);
	r->b = take((size_t)(CHUNK * H), sizeof *r->b, &failed);
	r->a = take((size_t)(CHUNK * H), sizeof *r->a, &failed);
	for (int f = 0; f < DRIFT_FORMATS; f++) {
		r->o[f] = take((size_t)(CHUNK * H * Dv), sizeof *r->o[f], &failed);
		r->state[f] = take(states, plumb_format_row_bytes(drift_formats[f], 1), &failed);
	}
	r->wide = take(states, sizeof *r->wide, &failed);
	r->exact = take(states, sizeof *r->exact, &failed);
	r->exact_o = take((size_t)(H * Dv), sizeof *r->exact_o, &failed);
	r->qk = take((size_t)(H * 2 * Dk), sizeof *r->qk, &failed);
	return failed ? plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %d heads of %lld by %lld", DRIFT_CLASSES,
				(long long)Dk, (long long)Dv)
	              : PLUMB_OK;
}

static void run_close(struct run *r)
{
	for (int f = 0; f < DRIFT_FORMATS; f++) {
		free(r->o[f]);
		free(r->state[f]);
	}
	free(r->y);
	free(r->b);
	free(r->a);
	free(r->wide);
	free(r->exact);
	free(r->exact_o);
	free(r->qk);
}

/* 2-norm of a head's state as it is stored. */
static double norm_of(const struct run *r, int f, int64_t h)
{
	int64_t Dk = r->cfg.gdn_key_dim, Dv = r->cfg.gdn_value_dim;
	size_t row_bytes = plumb_format_row_bytes(drift_formats[f], Dk);
	float row[MOST_DIM];
	double sum = 0.0;
	for (int64_t i = 0; i < Dv; i++) {
		plumb_decode(drift_formats[f], (const char *)r->state[f] + (size_t)(h * Dv + i) * row_bytes, Dk, row);
#pragma omp simd reduction(+ : sum)
		for (int64_t j = 0; j < Dk; j++)
			sum += (double)row[j] * (double)row[j];
	}
	return sqrt(sum);
}

static int advance(struct run *r, int64_t first, int64_t count)
{
	struct plumb_gdn_recurrence args = {
		.T = count,
		.y = r->y,
		.b = r->b,
		.a = r->a,
		.a_log = &r->a_log_weight,
		.dt_bias = &r->dt_bias_weight,
	};
	int status = PLUMB_OK;

	fill(r, first, count);
	for (int f = 0; f < DRIFT_FORMATS && status == PLUMB_OK; f++) {
		if (r->options->without[f])
			continue;
		args.state = r->state[f];
		args.state_format = drift_formats[f];
		args.o = r->o[f];
		status = r->options->binding.set->op[PLUMB_GDN_RECURRENCE](&r->env, &args);
	}
#pragma omp parallel for schedule(static)
	for (int64_t h = 0; h < DRIFT_CLASSES; h++) {
		for (int64_t t = 0; t < count; t++) {
			struct gates g;
			r->size[h] = exact_step(r, h, t, &g);
			r->log_decay[h] += log(g.decay);
			for (int f = 0; f < DRIFT_FORMATS; f++)
				r->error[f][h] = bound_step(r, drift_formats[f], &g, &r->held[f][h], r->error[f][h]);
		}
		for (int f = 0; f < DRIFT_FORMATS; f++)
			r->held[f][h] = norm_of(r, f, h);
	}
	return status;
}

/* 2-norm of a - b over that of b, and the largest difference over the largest of b. */
static double apart(const float *a, const double *b, int64_t n, double *largest)
{
	double sum = 0.0, size = 0.0, most = 0.0, peak = 0.0;
	for (int64_t i = 0; i < n; i++) {
		double e = (double)a[i] - b[i];
		sum += e * e;
		size += b[i] * b[i];
		most = fabs(e) <= most ? most : fabs(e); /* a NaN stays */
		peak = fmax(peak, fabs(b[i]));
	}
	if (largest)
		*largest = most / peak;
	return sqrt(sum / size);
}

static void measure(struct run *r, int64_t step, int64_t count, struct drift_point *p)
{
	int64_t Dk = r->cfg.gdn_key_dim, Dv = r->cfg.gdn_value_dim, H = DRIFT_CLASSES;

	*p = (struct drift_point){.step = step};
	for (int f = 0; f < DRIFT_FORMATS; f++) {
		if (r->options->without[f])
			continue;
		plumb_decode(drift_formats[f], r->state[f], H * Dv * Dk, r->wide);
		for (int64_t h = 0; h < H; h++) {
			struct drift_figure *x = &p->figure[f][h];
			const float *o = r->o[f] + ((count - 1) * H + h) * Dv;
			x->state = apart(r->wide + h * Dv * Dk, r->exact + h * Dv * Dk, Dv * Dk, &x->largest);
			x->output = apart(o, r->exact_o + h * Dv, Dv, NULL);
			x->bound = r->error[f][h] / r->size[h];
		}
	}
}

int drift_run(const struct drift_options *options, struct drift *out, struct plumb_error *err)
{
	struct run *r = calloc(1, sizeof *r);
	int64_t next = 1;
	int status;

	*out = (struct drift){.points = 0};
	if (!r)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a drift run");
	r->options = options;
	status = run_open(r, err);
	for (int64_t t = 0, count; t < options->steps && status == PLUMB_OK; t += count) {
		int64_t until = next < options->steps ? next : options->steps;
		count = until - t < CHUNK ? until - t : CHUNK;
		status = advance(r, t, count);
		if (status == PLUMB_OK && t + count == until) {
			measure(r, until, count, &out->point[out->points++]);
			next *= 4;
		}
		if (options->progress)
			options->progress(options->self, t + count, options->steps);
	}
	for (int h = 0; h < DRIFT_CLASSES; h++)
		out->decay[h] = exp(r->log_decay[h] / (double)options->steps);
	run_close(r);
	free(r);
	return status;
}
