/* SPDX-License-Identifier: MIT */
/* The attention stage: the oracle against formulations of another kind, the twin against the oracle's mathematics
 * within its derived bound, the kernels on simt against the twin in every bit, and known-wrong variants, which must not
 * pass.
 *
 * A center is the exact value before its last rounding, in binary64; `last` is what that rounding may add. */
#include <cblas.h>
#include <complex.h>

#include "core/math32.h"
#include "core/ops/attention.h"
#include "core/order.h"
#include "core/rope.h"
#include "opt/opt.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/rig.h"
#include "tests/support/suite.h"

enum { CASES = RIG_SLOW ? 12 : 24, SEEDS = RIG_SLOW ? 2 : 3 };

static double worst[5];           /* of each op, policy f32: largest error of the twin as a part of its bound */
static int64_t flipped, compared; /* policy bf16: elements of the twin that are not the oracle's */

static double last(const struct rig *r, double x)
{
	return fabs(x) * (r->env.policy == PLUMB_POLICY_BF16 ? 0x1.01p-8 : 0x1.01p-24) + 0x1p-149;
}

static double rounded(const struct rig *r, double x)
{
	return r->env.policy == PLUMB_POLICY_BF16 ? (double)plumb_round_bf16((float)x) : x;
}

/* Sizes below, at and above those where the kernels change their way. */
static void open_case(struct rig *r, int i, const char *what)
{
	static const int groups[] = {1, 2, 3, 5, 12, 17, 18};
	static const int dims[] = {2, 8, 20, 32, 33, 64, 66, 100, 128, 256, 264, 300};

	rig_open(r, 1000 + (uint64_t)i, (i / 12 + i) % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32);
	snprintf(r->replay, sizeof r->replay, "%s, case %d", what, i);
	r->cfg.kv_heads = 1 + (int)rig_below(r, 3);
	r->cfg.q_heads = r->cfg.kv_heads * groups[rig_below(r, 7)];
	r->cfg.head_dim = dims[i % 12];
	r->cfg.rotary_dim = 2 + 2 * rig_below(r, r->cfg.head_dim / 2);
	r->cfg.rope_theta = 1e4;
	r->cfg.block_tokens = 1 + (int)rig_below(r, 5);
	r->cfg.block_budget = rig_below(r, 4) ? 1 + rig_below(r, 6) : 40;
	r->env.capacity = r->cfg.block_tokens * (r->cfg.block_budget + 1 + rig_below(r, 12)) + rig_below(r, 3);
}

/* Page size of the caches: a multiple of B. */
static int64_t page_rows_of(struct rig *r)
{
	return r->cfg.block_tokens * (1 + rig_below(r, 4));
}

static struct plumb_cache cache_of(struct rig *r, const char *name, int64_t page_rows)
{
	int64_t pages = (r->env.capacity + page_rows - 1) / page_rows;
	return rig_cache(r, name, (enum plumb_format)rig_below(r, PLUMB_PLAIN_FORMATS), r->env.capacity,
		r->cfg.kv_heads * r->cfg.head_dim, page_rows, pages + 2);
}

/* --- projections --- */

/* center = w . x and mass = |w| . |x| by OpenBLAS; x (T, K), both (T, N). */
static void witness_product(const struct plumb_weight *w, const float *x, int64_t T, double *center, double *mass)
{
	int64_t N = w->rows, K = w->cols;
	double *wd = malloc((size_t)(N * K) * sizeof *wd), *xd = malloc((size_t)(T * K) * sizeof *xd);
	float *row = malloc((size_t)K * sizeof *row);

	for (int absolute = 0; absolute < 2; absolute++) {
		for (int64_t n = 0; n < N; n++) {
			plumb_weight_row(w, n, 0, K, row);
			for (int64_t k = 0; k < K; k++)
				wd[n * K + k] = absolute ? fabs((double)row[k]) : (double)row[k];
		}
		for (int64_t i = 0; i < T * K; i++)
			xd[i] = absolute ? fabs((double)x[i]) : (double)x[i];
		cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)T, (int)N, (int)K, 1.0, xd, (int)K, wd, (int)K,
			0.0, absolute ? mass : center, (int)N);
	}
	free(wd);
	free(xd);
	free(row);
}

static void near_product(struct rig *r, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows,
	const char *name, const unsigned char *oracle, const unsigned char *twin)
{
	int64_t n = T * w->rows;
	int depth = plumb_split_depth(w->cols, plumb_split_count(call_rows, w->cols));
	double *center = calloc((size_t)n, sizeof *center), *bound = calloc((size_t)n, sizeof *bound);
	double *mass = malloc((size_t)n * sizeof *mass);

	witness_product(w, x, T, center, mass);
	for (int64_t i = 0; i < n; i++)
		bound[i] = last(r, center[i]) + 0x1p-40 * mass[i];
	rig_near(r, oracle, name, center, bound, "oracle");
	r->worst = 0;
	for (int64_t i = 0; i < n; i++)
		bound[i] = r->env.policy == PLUMB_POLICY_BF16
		                   ? last(r, fabs(center[i]) + rig_gamma(depth) * mass[i]) + rig_gamma(depth) * mass[i]
		                   : rig_gamma(depth) * mass[i] + 0x1p-140;
	rig_near(r, twin, name, center, bound, "twin");
	free(center);
	free(bound);
	free(mass);
}

/* Each matrix cut into pieces as if it were alone. */
static int in_proj_alone(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_in_proj *a = args;
	twin_linear(env, a->w_q, a->x, a->T, 100000, a->qg);
	twin_linear(env, a->w_k, a->x, a->T, 100000, a->k);
	return twin_linear(env, a->w_v, a->x, a->T, 100000, a->v);
}

static int in_proj_swapped(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_in_proj a = *(const struct plumb_attn_in_proj *)args;
	const struct plumb_weight *k = a.w_k;
	a.w_k = a.w_v;
	a.w_v = k;
	return attn_in_proj_twin(env, &a);
}

static int out_proj_alone(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_out_proj *a = args;
	return twin_linear(env, a->w, a->x, a->T, 100000, a->y);
}

START_TEST(projections)
{
	static const int64_t widths[] = {1, 7, 64, 255, 300, 1100, 2056};
	struct rig r;

	open_case(&r, _i, "attn_in_proj");
	r.cfg.hidden = widths[_i % 7];
	r.cfg.head_dim = _i % 5 ? 8 : 33;
	r.cfg.q_heads = r.cfg.kv_heads * (1 + _i % 3);
	int64_t T = 1 + _i % 3, D = r.cfg.hidden, q = r.cfg.q_heads * r.cfg.head_dim, kv = r.cfg.kv_heads * r.cfg.head_dim;
	struct plumb_weight w_q = rig_weight(&r, 2 * q, D, 0.2f), w_k = rig_weight(&r, kv, D, 0.2f);
	struct plumb_weight w_v = rig_weight(&r, kv, D, 0.2f);
	struct plumb_attn_in_proj a = {T, rig_input(&r, T * D), &w_q, &w_k, &w_v, rig_output(&r, "qg", T * 2 * q),
		rig_output(&r, "k", T * kv), rig_output(&r, "v", T * kv)};
	unsigned char *twin = rig_agree(&r, attn_in_proj_twin, attn_in_proj_opt, &a, SEEDS);
	unsigned char *oracle = rig_run(&r, attn_in_proj_ref, &a, 0, "oracle");
	int64_t rows = 2 * (q + kv);

	near_product(&r, &w_q, a.x, T, rows, "qg", oracle, twin);
	near_product(&r, &w_k, a.x, T, rows, "k", oracle, twin);
	near_product(&r, &w_v, a.x, T, rows, "v", oracle, twin);
	if (r.env.policy == PLUMB_POLICY_F32)
		worst[0] = fmax(worst[0], r.worst);
	rig_differs(&r, in_proj_swapped, &a, twin, "key and value swapped");
	if (plumb_split_count(rows, D) > 1 && r.env.policy == PLUMB_POLICY_F32)
		rig_differs(&r, in_proj_alone, &a, twin, "one piece a row");
	free(twin);
	free(oracle);
	rig_close(&r);

	open_case(&r, _i, "attn_out_proj");
	r.cfg.q_heads = r.cfg.kv_heads * (1 + _i % 3);
	r.cfg.hidden = D % 40 + 1;
	struct plumb_weight w = rig_weight(&r, D % 40 + 1, r.cfg.q_heads * r.cfg.head_dim, 0.1f);
	struct plumb_attn_out_proj o = {T, rig_input(&r, T * w.cols), &w, rig_output(&r, "y", T * w.rows)};
	twin = rig_agree(&r, attn_out_proj_twin, attn_out_proj_opt, &o, SEEDS);
	oracle = rig_run(&r, attn_out_proj_ref, &o, 0, "oracle");
	near_product(&r, &w, o.x, T, w.rows, "y", oracle, twin);
	if (r.env.policy == PLUMB_POLICY_F32)
		worst[4] = fmax(worst[4], r.worst);
	if (plumb_split_count(w.rows, w.cols) > 1 && r.env.policy == PLUMB_POLICY_F32)
		rig_differs(&r, out_proj_alone, &o, twin, "one piece a row");
	((float *)o.x)[w.cols / 2] = NAN;
	free(twin);
	free(oracle);
	twin = rig_agree(&r, attn_out_proj_twin, attn_out_proj_opt, &o, 1);
	for (int64_t n = 0; n < w.rows; n++)
		ck_assert(isnan(o.y[n]));
	free(twin);
	rig_close(&r);
}
END_TEST

/* --- norms, rope, cache rows --- */

/* One head in binary64: the pair (i, i + half) is a complex number, multiplied by e^(i angle). size: what error bounds
 * scale with. Under policy bf16 the roundings in between are missing; the bound of that policy has room for them. */
static void witness_rotation(const struct rig *r, const float *x, const float *w, const float *rope, double *normed,
	double *turned, double *size)
{
	int64_t n = r->cfg.head_dim, half = r->cfg.rotary_dim / 2;
	double squares = 0;

	for (int64_t i = 0; i < n; i++)
		squares += (double)x[i] * (double)x[i];
	for (int64_t i = 0; i < n; i++) {
		normed[i] = (double)x[i] / sqrt(squares / (double)n + (double)r->cfg.rms_norm_eps) * (1.0 + (double)w[i]);
		turned[i] = normed[i];
		size[i] = fabs(normed[i]);
	}
	for (int64_t i = 0; i < half; i++) {
		double complex turn = rig_complex((double)rope[i], (double)rope[half + i]);
		double complex z = turn * rig_complex(normed[i], normed[i + half]);
		turned[i] = creal(z);
		turned[i + half] = cimag(z);
		size[i] = size[i + half] = size[i] + size[i + half];
	}
}

static int rope_next(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_qk_rope a = *(const struct plumb_attn_qk_rope *)args;
	a.rope += env->cfg->rotary_dim;
	return attn_qk_rope_twin(env, &a);
}

static int rope_row_late(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_qk_rope a = *(const struct plumb_attn_qk_rope *)args;
	const int32_t late = *a.position - 1;
	a.position = &late;
	a.rope += env->cfg->rotary_dim;
	return attn_qk_rope_twin(env, &a);
}

static int norms_swapped(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_qk_rope a = *(const struct plumb_attn_qk_rope *)args;
	a.q_norm = a.k_norm;
	return attn_qk_rope_twin(env, &a);
}

/* The rounding of a stored row: 11 bits of f16, 8 of bf16, steps of 2^-24 below 2^-14. */
static double stored(enum plumb_format format, double x)
{
	return format == PLUMB_F32 ? 0.0 : format == PLUMB_F16 ? fabs(x) * 0x1.01p-11 + 0x1p-25 : fabs(x) * 0x1.01p-8;
}

START_TEST(qk_rope)
{
	struct rig r;
	open_case(&r, _i, "attn_qk_rope");
	int64_t Hq = r.cfg.q_heads, Hkv = r.cfg.kv_heads, Dh = r.cfg.head_dim, page_rows = page_rows_of(&r), T = 1 + _i % 3;
	int64_t last_position = r.env.capacity - T, P = r.env.capacity + 2;
	int64_t p = _i % 5 == 0 ? 0 : _i % 5 == 1 ? last_position : rig_below(&r, last_position + 1);
	float *rope = rig_memory(&r, (size_t)(P * r.cfg.rotary_dim) * sizeof *rope, 4 * (size_t)(_i % 2));
	struct plumb_weight q_norm = rig_weight(&r, 1, Dh, 0.2f), k_norm = rig_weight(&r, 1, Dh, 0.2f);
	struct plumb_cache keys = cache_of(&r, "keys", page_rows), values = cache_of(&r, "values", page_rows);
	bool traced = _i % 3 != 0;
	struct plumb_attn_qk_rope a = {
		.T = T,
		.position = rig_position(&r, p),
		.rope = rope,
		.q_norm = &q_norm,
		.k_norm = &k_norm,
		.qg = rig_input(&r, T * Hq * 2 * Dh),
		.k = rig_input(&r, T * Hkv * Dh),
		.v = rig_input(&r, T * Hkv * Dh),
		.q = rig_output(&r, "q", T * Hq * Dh),
		.keys = &keys,
		.values = &values,
		.q_normed = traced ? rig_output(&r, "q_normed", T * Hq * Dh) : NULL,
		.k_normed = traced ? rig_output(&r, "k_normed", T * Hkv * Dh) : NULL,
	};
	plumb_rope_table(&r.cfg, r.env.policy, P, rope);

	unsigned char *twin = rig_agree(&r, attn_qk_rope_twin, attn_qk_rope_opt, &a, SEEDS);
	unsigned char *oracle = rig_run(&r, attn_qk_rope_ref, &a, 0, "oracle");
	int64_t rows = r.watch[0].count / (Hkv * Dh); /* physical */
	double *key = malloc((size_t)(rows * Hkv * Dh) * sizeof *key),
	       *key_bound = calloc((size_t)(rows * Hkv * Dh), sizeof *key);
	double *q = malloc((size_t)(T * Hq * Dh) * sizeof *q), *q_bound = malloc((size_t)(T * Hq * Dh) * sizeof *q);
	double *q_normed = malloc((size_t)(T * Hq * Dh) * sizeof *q),
	       *normed_bound = malloc((size_t)(T * Hq * Dh) * sizeof *q);
	double *size = malloc((size_t)Dh * sizeof *size);
	double *k_normed = malloc((size_t)Dh * sizeof *k_normed);
	float *w = malloc((size_t)Dh * sizeof *w);

	for (int who = 0; who < 2; who++) { /* oracle, twin */
		/* relative: half the depth of the mean of squares (its root is taken) and 8 roundings of norm and rope;
		 * bf16: three rounded values of up to 2^-8 each before the last */
		double d = plumb_strided_depth(Dh, PLUMB_HEAD_LANES);
		double share = r.env.policy == PLUMB_POLICY_BF16 ? 3.2 * 0x1p-8 : who ? (d / 2 + 8) * 0x1p-24 : 0x1p-40;
		for (int64_t i = 0; i < rows * Hkv * Dh; i++)
			key[i] = rig_value((int)keys.format, r.watch[0].initial, i);
		for (int64_t t = 0; t < T; t++) {
			const float *row = rope + (p + t) * r.cfg.rotary_dim;
			plumb_weight_row(&q_norm, 0, 0, Dh, w);
			for (int64_t h = 0; h < Hq; h++) {
				int64_t at = (t * Hq + h) * Dh;
				witness_rotation(&r, a.qg + 2 * at, w, row, q_normed + at, q + at, size);
				for (int64_t i = 0; i < Dh; i++) {
					q_bound[at + i] = share * size[i] + last(&r, q[at + i]);
					normed_bound[at + i] = share * fabs(q_normed[at + i]) + last(&r, q_normed[at + i]);
				}
			}
			plumb_weight_row(&k_norm, 0, 0, Dh, w);
			for (int64_t h = 0; h < Hkv; h++) {
				int64_t logical = (p + t) / page_rows;
				int64_t at = ((keys.page[logical] * page_rows + (p + t) % page_rows) * Hkv + h) * Dh;
				witness_rotation(&r, a.k + (t * Hkv + h) * Dh, w, row, k_normed, key + at, size);
				for (int64_t i = 0; i < Dh; i++)
					key_bound[at + i] = share * size[i] + last(&r, key[at + i]) +
					                    stored(keys.format, key[at + i]) * (1 + share) * 1.1;
			}
		}
		r.worst = 0;
		rig_near(&r, who ? twin : oracle, "q", q, q_bound, who ? "twin" : "oracle");
		if (who && r.env.policy == PLUMB_POLICY_F32)
			worst[1] = fmax(worst[1], r.worst);
		rig_near(&r, who ? twin : oracle, "keys", key, key_bound, who ? "twin" : "oracle");
		if (traced)
			rig_near(&r, who ? twin : oracle, "q_normed", q_normed, normed_bound, who ? "twin" : "oracle");
	}
	if (r.env.policy == PLUMB_POLICY_BF16) {
		int format;
		const unsigned char *x = rig_part(&r, twin, "q", &format), *y = rig_part(&r, oracle, "q", &format);
		for (int64_t i = 0; i < T * Hq * Dh; i++, compared++)
			flipped += rig_value(format, x, i) != rig_value(format, y, i);
	}
	/* value rows are copies */
	for (int64_t i = 0; i < Hkv * Dh; i++) {
		float x = a.v[i], y;
		unsigned char code[4];
		plumb_encode(values.format, &x, 1, code);
		plumb_decode(values.format, code, 1, &x);
		plumb_decode(values.format,
			(const unsigned char *)plumb_cache_row(&values, p) + rig_size((int)values.format) * (size_t)i, 1,
			&y);
		ck_assert(x == y);
	}
	rig_differs(&r, rope_next, &a, twin, "rope of the next position");
	rig_differs(&r, norms_swapped, &a, twin, "key norm for queries");
	if (p > 0)
		rig_differs(&r, rope_row_late, &a, twin, "cache row of the position before");
	free(twin);

	/* zeros of both signs, subnormals, NaN and Inf at first, middle and last place of a head */
	static const float hard[] = {-0.0f, 0x1p-149f, -0x1p-130f, NAN, INFINITY, -INFINITY, 0x1p127f};
	for (int i = 0; i < 7; i++) {
		((float *)a.qg)[i % 3 == 0 ? 0 : i % 3 == 1 ? Dh / 2 : Dh - 1] = hard[i];
		((float *)a.k)[i % 3 == 0 ? Dh - 1 : 0] = hard[i];
		((float *)a.v)[0] = hard[i];
		free(rig_agree(&r, attn_qk_rope_twin, attn_qk_rope_opt, &a, 1));
	}
	for (int64_t i = 0; i < Dh; i++)
		((float *)a.qg)[i] = i % 2 ? -0.0f : 0.0f;
	free(rig_agree(&r, attn_qk_rope_twin, attn_qk_rope_opt, &a, 1));
	free(oracle);
	free(key);
	free(key_bound);
	free(q);
	free(q_bound);
	free(q_normed);
	free(normed_bound);
	free(k_normed);
	free(size);
	free(w);
	rig_close(&r);
}
END_TEST

/* --- attention over the selected tokens --- */

/* Every token of the past under a mask, no list, no chunks: center and bound of o (Hq, Dh) of row t. depth: roundings
 * of the twin in scores and sums; 0 for the oracle. */
static void witness_decode(
	const struct rig *r, const struct plumb_attn_decode *a, int64_t t, bool twin, double *center, double *bound)
{
	int64_t Hq = r->cfg.q_heads, Hkv = r->cfg.kv_heads, Dh = r->cfg.head_dim, B = r->cfg.block_tokens;
	int64_t N = r->cfg.block_budget, p = *a->position + t, n = 0;
	bool *visible = calloc((size_t)(p + 1), sizeof *visible), bf16 = r->env.policy == PLUMB_POLICY_BF16;
	double *s = malloc((size_t)(p + 1) * sizeof *s), scale = (double)(float)(1.0 / sqrt((double)Dh));
	float *row = malloc((size_t)(Hkv * Dh) * sizeof *row);

	for (int64_t j = 0; j <= p; j++) {
		visible[j] = j >= (p + 1) / B * B;
		for (int32_t i = 0; i < a->count[t]; i++)
			visible[j] = visible[j] || a->block[t * N + i] == j / B;
		n += visible[j];
	}
	for (int64_t h = 0; h < Hq; h++) {
		const float *q = a->q + (t * Hq + h) * Dh;
		int64_t kv = h / (Hq / Hkv);
		double max = -HUGE_VAL, min = HUGE_VAL, sum = 0, slip = 0; /* slip: largest error of a score */
		for (int64_t j = 0; j <= p; j++) {
			double dot = 0, mass = 0;
			if (!visible[j])
				continue;
			plumb_cache_get(a->keys, j, row);
			for (int64_t i = 0; i < Dh; i++) {
				dot += (double)q[i] * (double)row[kv * Dh + i];
				mass += fabs((double)q[i] * (double)row[kv * Dh + i]);
			}
			s[j] = rounded(r, rounded(r, dot) * scale);
			max = fmax(max, s[j]);
			min = fmin(min, s[j]);
			if (twin) /* a score may round the other way, twice, where the sum lies next to a boundary */
				slip = fmax(slip, rig_gamma(plumb_strided_depth(Dh, PLUMB_ROW_LANES)) * mass * scale +
							  fabs(s[j]) * (bf16 ? 0x2p-7 : 0x2p-24));
		}
		for (int64_t j = 0; j <= p; j++)
			sum += visible[j] ? s[j] = exp(s[j] - max) : 0;
		double *o = center + h * Dh, *e = bound + h * Dh;
		for (int64_t d = 0; d < Dh; d++)
			o[d] = e[d] = 0;
		for (int64_t j = 0; j <= p; j++) {
			double weight = visible[j] ? rounded(r, s[j] / sum) : 0;
			if (!visible[j])
				continue;
			plumb_cache_get(a->values, j, row);
			for (int64_t d = 0; d < Dh; d++) {
				o[d] += weight * (double)row[kv * Dh + d];
				e[d] += weight * fabs((double)row[kv * Dh + d]);
			}
		}
		/* in numerator and denominator: a slip of score and maximum, and the rounding of their difference; then
		 * the exponentials, sum, division, chunk and chunks; a weight may round the other way */
		int depth = plumb_strided_depth(n, PLUMB_ROW_LANES) + (int)(n < PLUMB_ATTN_CHUNK ? n : PLUMB_ATTN_CHUNK) +
		            (int)(n / PLUMB_ATTN_CHUNK) + 4;
		double share = expm1(4 * slip + 0x2p-24 * (max - min)) + rig_gamma(depth) + (bf16 ? 0x1p-7 : 0);
		for (int64_t d = 0; d < Dh; d++)
			e[d] = (twin ? share : 0x1p-40) * e[d] + last(r, fabs(o[d]) + (twin ? share * e[d] : 0));
	}
	free(visible);
	free(s);
	free(row);
}

/* A random ascending choice of min(N, nb) blocks for every row. */
static void choose_blocks(struct rig *r, int64_t p, int64_t T, int32_t *block, int32_t *count)
{
	int64_t N = r->cfg.block_budget;
	for (int64_t t = 0; t < T; t++) {
		int64_t nb = (p + t + 1) / r->cfg.block_tokens, k = nb < N ? nb : N, taken = 0;
		for (int64_t b = 0; b < nb; b++)
			if (rig_below(r, nb - b) < k - taken)
				block[t * N + taken++] = (int32_t)b;
		for (int64_t i = k; i < N; i++)
			block[t * N + i] = -1;
		count[t] = (int32_t)k;
	}
}

static int tail_dropped(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_decode a = *(const struct plumb_attn_decode *)args;
	const int32_t earlier = *a.position - (int32_t)((*a.position + 1) % env->cfg->block_tokens);
	a.position = &earlier;
	return attn_decode_twin(env, &a);
}

static int last_block_dropped(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_decode a = *(const struct plumb_attn_decode *)args;
	int32_t count[8];
	for (int64_t t = 0; t < a.T; t++)
		count[t] = a.count[t] - 1;
	a.count = count;
	return attn_decode_twin(env, &a);
}

static int pages_ignored(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_decode a = *(const struct plumb_attn_decode *)args;
	struct plumb_cache keys = *a.keys;
	int32_t page[256];
	for (int32_t i = 0; i < 256; i++)
		page[i] = i;
	keys.page = page;
	a.keys = &keys;
	return attn_decode_twin(env, &a);
}

static int heads_interleaved(const struct plumb_env *env, const void *args)
{
	struct plumb_attn_decode a = *(const struct plumb_attn_decode *)args;
	int64_t Hq = env->cfg->q_heads, Hkv = env->cfg->kv_heads, Dh = env->cfg->head_dim, group = Hq / Hkv;
	float *q = malloc((size_t)(a.T * Hq * Dh) * sizeof *q), *o = malloc((size_t)(a.T * Hq * Dh) * sizeof *o),
	      *out = a.o;
	const float *in = a.q;
	int status;

	for (int64_t i = 0; i < a.T * Hq; i++) /* head h reads kv head h % Hkv */
		memcpy(q + (i / Hq * Hq + i % Hq % Hkv * group + i % Hq / Hkv) * Dh, in + i * Dh, (size_t)Dh * sizeof *q);
	a.q = q;
	a.o = o;
	status = attn_decode_twin(env, &a);
	for (int64_t i = 0; i < a.T * Hq; i++)
		memcpy(out + i * Dh, o + (i / Hq * Hq + i % Hq % Hkv * group + i % Hq / Hkv) * Dh, (size_t)Dh * sizeof *q);
	free(q);
	free(o);
	return status;
}

/* Fill the rows of the cache that no row of the call may read. */
static void bait(struct rig *r, const struct plumb_attn_decode *a, const struct plumb_cache *cache, float x)
{
	int64_t B = r->cfg.block_tokens, N = r->cfg.block_budget, width = cache->width;
	float *row = malloc((size_t)width * sizeof *row);

	for (int64_t i = 0; i < width; i++)
		row[i] = x;
	for (int64_t j = 0; j < cache->rows; j++) {
		bool read = false;
		for (int64_t t = 0; t < a->T; t++) {
			int64_t p = *a->position + t;
			read = read || (j >= (p + 1) / B * B && j <= p);
			for (int32_t i = 0; i < a->count[t]; i++)
				read = read || a->block[t * N + i] == j / B;
		}
		if (!read)
			plumb_cache_put(cache, j, row);
	}
	free(row);
	rig_state_changed(r, cache->data);
}

START_TEST(decode)
{
	struct rig r;
	open_case(&r, _i, "attn_decode");
	int64_t Hq = r.cfg.q_heads, Dh = r.cfg.head_dim, B = r.cfg.block_tokens, N = r.cfg.block_budget, T = 1 + _i % 3;
	int64_t page_rows = page_rows_of(&r), top = r.env.capacity - T;
	const int64_t edges[] = {0, B - 1, B, N * B - 1, N * B, N * B + B - 1, N * B + B, top};
	int64_t p = _i % 9 < 8 ? edges[_i % 9] : rig_below(&r, top + 1);
	p = p > top ? top : p;
	struct plumb_cache keys = cache_of(&r, "keys", page_rows), values = cache_of(&r, "values", page_rows);
	int32_t *block = rig_memory(&r, (size_t)(T * N) * sizeof *block, 0),
		*count = rig_memory(&r, (size_t)T * sizeof *count, 0);
	float *q = rig_input(&r, T * Hq * Dh);
	struct plumb_attn_decode a = {
		T, rig_position(&r, p), q, &keys, &values, block, count, rig_output(&r, "o", T * Hq * Dh)};
	choose_blocks(&r, p, T, block, count);
	if (_i % 7 == 6) /* every score 0: the mean of the values */
		memset(q, 0, (size_t)(T * Hq * Dh) * sizeof *q);

	unsigned char *twin = rig_agree(&r, attn_decode_twin, attn_decode_opt, &a, SEEDS);
	unsigned char *oracle = rig_run(&r, attn_decode_ref, &a, 0, "oracle");
	double *center = malloc((size_t)(T * Hq * Dh) * sizeof *center),
	       *bound = malloc((size_t)(T * Hq * Dh) * sizeof *bound);
	for (int who = 0; who < 2; who++) {
		for (int64_t t = 0; t < T; t++)
			witness_decode(&r, &a, t, who, center + t * Hq * Dh, bound + t * Hq * Dh);
		r.worst = 0;
		rig_near(&r, who ? twin : oracle, "o", center, bound, who ? "twin" : "oracle");
	}
	if (r.env.policy == PLUMB_POLICY_F32)
		worst[2] = fmax(worst[2], r.worst);
	for (int64_t i = 0; i < T * Hq * Dh; i++, compared++) {
		int format;
		flipped += r.env.policy == PLUMB_POLICY_BF16 &&
		           rig_value(PLUMB_F32, rig_part(&r, twin, "o", &format), i) !=
		                   rig_value(PLUMB_F32, rig_part(&r, oracle, "o", &format), i);
	}
	if (_i % 7 != 6) {
		if ((p + 1) % B != 0 && T == 1 && p >= B)
			rig_differs(&r, tail_dropped, &a, twin, "tail dropped");
		if (count[0] > 1)
			rig_differs(&r, last_block_dropped, &a, twin, "last block dropped");
		if (p > 2)
			rig_differs(&r, pages_ignored, &a, twin, "page table ignored");
		if (r.cfg.kv_heads > 1 && Hq > r.cfg.kv_heads && p > 2)
			rig_differs(&r, heads_interleaved, &a, twin, "query heads interleaved over kv heads");
	}

	/* what is outside A(p), the future included, is not read */
	bait(&r, &a, &keys, NAN);
	bait(&r, &a, &values, 0x1p14f);
	unsigned char *baited = rig_run(&r, attn_decode_ref, &a, 1, "oracle, baited");
	ck_assert_mem_eq(
		rig_part(&r, baited, "o", &(int){0}), rig_part(&r, oracle, "o", &(int){0}), (size_t)(T * Hq * Dh) * 4);
	free(baited);
	baited = rig_agree(&r, attn_decode_twin, attn_decode_opt, &a, 2);
	ck_assert_mem_eq(
		rig_part(&r, baited, "o", &(int){0}), rig_part(&r, twin, "o", &(int){0}), (size_t)(T * Hq * Dh) * 4);
	free(baited);

	/* NaN, Inf, huge and zero: in the key of the first or last token of the list, in a value, in a query */
	static const float hard[] = {NAN, INFINITY, -INFINITY, 0x1p14f, -0.0f, 0x1p-24f};
	for (int i = _i % 2; i < 6; i += 2) {
		struct plumb_cache *cache = i / 2 % 2 ? &keys : &values;
		int64_t end = (p + 1) % B ? p : block[count[0] - 1] * B + B - 1, j = i % 3 && count[0] ? block[0] * B : end;
		float *row = malloc((size_t)cache->width * sizeof *row);
		plumb_cache_get(cache, j, row);
		row[0] = hard[i];
		row[cache->width - 1] = hard[5 - i];
		plumb_cache_put(cache, j, row);
		rig_state_changed(&r, cache->data);
		free(row);
		unsigned char *got = rig_agree(&r, attn_decode_twin, attn_decode_opt, &a, 1);
		if (i == 0) /* a value is NaN in one dim: all heads of kv head 0 in that dim, nothing else of it */
			ck_assert(isnan(a.o[0]) && (Dh == 1 || r.cfg.kv_heads == 1 || !isnan(a.o[1])));
		free(got);
	}
	for (int64_t i = 0; i < T * Hq * Dh; i++)
		q[i] = i / Dh % 2 ? -0.0f : 0x1p60f;
	free(rig_agree(&r, attn_decode_twin, attn_decode_opt, &a, 1));
	free(center);
	free(bound);
	free(twin);
	free(oracle);
	rig_close(&r);
}
END_TEST

/* The release's sizes at the edges of the budget and of the context; few physical pages, shared, stand for all. */
START_TEST(decode_full_size)
{
	static const int32_t positions[] = {0, 2047, 2048, 2049, 2050, 2051, 2052, 2053, 131071, 262143};
	struct rig r;

	rig_open(&r, 5 + (uint64_t)_i, _i % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32);
	snprintf(r.replay, sizeof r.replay, "attn_decode, position %d", positions[_i]);
	r.cfg.q_heads = 24;
	r.cfg.kv_heads = 2;
	r.cfg.head_dim = 256;
	r.cfg.block_tokens = 4;
	r.cfg.block_budget = 512;
	r.env.capacity = 262144;
	enum plumb_format format = r.env.policy == PLUMB_POLICY_BF16 ? PLUMB_BF16 : PLUMB_F32;
	struct plumb_cache keys = rig_cache(&r, "keys", format, r.env.capacity, 512, 64, 3);
	struct plumb_cache values = rig_cache(&r, "values", format, r.env.capacity, 512, 64, 3);
	int32_t *block = rig_memory(&r, 512 * sizeof *block, 0), *count = rig_memory(&r, sizeof *count, 0);
	struct plumb_attn_decode a = {1, rig_position(&r, positions[_i]), rig_input(&r, 24 * 256), &keys, &values, block,
		count, rig_output(&r, "o", 24 * 256)};
	choose_blocks(&r, positions[_i], 1, block, count);
	ck_assert_int_eq(count[0], positions[_i] / 4 < 512 ? (positions[_i] + 1) / 4 : 512);

	unsigned char *twin =
		rig_agree(&r, attn_decode_twin, attn_decode_opt, &a, positions[_i] == 262143 && !RIG_SLOW ? 4 : 1);
	if (positions[_i] < 10000) { /* the witness looks at every position */
		double *center = malloc(24 * 256 * sizeof *center), *bound = malloc(24 * 256 * sizeof *bound);
		witness_decode(&r, &a, 0, true, center, bound);
		rig_near(&r, twin, "o", center, bound, "twin");
		if (r.env.policy == PLUMB_POLICY_F32)
			worst[2] = fmax(worst[2], r.worst);
		free(center);
		free(bound);
	}
	free(twin);
	rig_close(&r);
}
END_TEST

START_TEST(decode_refuses)
{
	struct rig r;
	struct plumb_cache cache = {.format = PLUMB_F32};
	struct plumb_attn_decode a = {.T = 1, .keys = &cache, .values = &cache};

	open_case(&r, 0, "attn_decode");
	r.cfg.block_tokens = 4;
	r.cfg.block_budget = 1 << 29;
	r.env.capacity = INT32_MAX;
	ck_assert_int_eq(attn_decode_opt(&r.env, &a), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(r.err.text, "attn_decode") && strstr(r.err.text, "2147483647"), "%s", r.err.text);
	r.cfg.block_budget = 1 << 24;
	r.cfg.kv_heads = 1 << 20;
	ck_assert_int_eq(attn_decode_opt(&r.env, &a), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(r.err.text, "1048576 kv heads"), "%s", r.err.text);
	rig_close(&r);
}
END_TEST

/* --- gate --- */

static int gate_silu(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_gate *a = args;
	int64_t Dh = env->cfg->head_dim;
	for (int64_t i = 0; i < a->T * env->cfg->q_heads * Dh; i++)
		a->out[i] = twin_rne(env, a->o[i] * twin_rne(env, plumb_siluf(a->qg[(i / Dh * 2 + 1) * Dh + i % Dh])));
	return PLUMB_OK;
}

static int gate_from_query(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_gate *a = args;
	int64_t Dh = env->cfg->head_dim;
	for (int64_t i = 0; i < a->T * env->cfg->q_heads * Dh; i++)
		a->out[i] = twin_rne(env, a->o[i] * twin_rne(env, plumb_sigmoidf(a->qg[i / Dh * 2 * Dh + i % Dh])));
	return PLUMB_OK;
}

START_TEST(gate)
{
	static const float hard[] = {
		0.0f, -0.0f, INFINITY, -INFINITY, NAN, 20.0f, 88.0f, 89.0f, -89.0f, -104.0f, -200.0f, 0x1p-149f, 0x1p127f};
	struct rig r;
	open_case(&r, _i, "attn_gate");
	int64_t Hq = r.cfg.q_heads, Dh = r.cfg.head_dim, T = 1 + _i % 3, n = T * Hq * Dh;
	float *o = rig_input(&r, n), *qg = rig_input(&r, 2 * n);
	struct plumb_attn_gate a = {T, o, qg, rig_output(&r, "out", n)};
	double *center = calloc((size_t)n, sizeof *center), *bound = calloc((size_t)n, sizeof *bound);
	unsigned char *twin = rig_agree(&r, attn_gate_twin, attn_gate_opt, &a, SEEDS);
	unsigned char *oracle = rig_run(&r, attn_gate_ref, &a, 0, "oracle");

	for (int who = 0; who < 2; who++) {
		for (int64_t i = 0; i < n; i++) {
			/* the gate's own rounding, or 0.6 ulp of the twin's sigmoid (core/math32.h), before the last */
			double g = (double)qg[(i / Dh * 2 + 1) * Dh + i % Dh];
			center[i] = (double)o[i] * 0.5 * (1.0 + tanh(0.5 * g));
			bound[i] = last(&r, center[i]) * 1.01;
			if (r.env.policy == PLUMB_POLICY_BF16)
				bound[i] *= 2;
			else
				bound[i] += fabs(center[i]) * (who ? 1.2 * 0x1p-24 : 0x1p-45);
		}
		r.worst = 0;
		rig_near(&r, who ? twin : oracle, "out", center, bound, who ? "twin" : "oracle");
	}
	if (r.env.policy == PLUMB_POLICY_F32)
		worst[3] = fmax(worst[3], r.worst);
	rig_differs(&r, gate_silu, &a, twin, "silu");
	rig_differs(&r, gate_from_query, &a, twin, "gate from the query half");
	for (int64_t i = 0; i < n; i++) {
		qg[(i / Dh * 2 + 1) * Dh + i % Dh] = hard[i % 13];
		o[i] = hard[i / 13 % 13];
	}
	free(rig_agree(&r, attn_gate_twin, attn_gate_opt, &a, 1));
	free(center);
	free(bound);
	free(twin);
	free(oracle);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("attention");
	TCase *all = suite_part(suite, "attention", 120);

	tcase_add_loop_test(all, projections, 0, CASES);
	tcase_add_loop_test(all, qk_rope, 0, CASES);
	tcase_add_loop_test(all, decode, 0, CASES);
	tcase_add_loop_test(all, decode_full_size, 0, 10);
	tcase_add_test(all, decode_refuses);
	tcase_add_loop_test(all, gate, 0, CASES);
	int failed = suite_run_here(suite);
	printf("attention: largest error of the twin as a part of its bound, f32: in_proj %.3f, qk_rope %.3f, decode "
	       "%.3f, "
	       "gate %.3f, out_proj %.3f\n",
		worst[0], worst[1], worst[2], worst[3], worst[4]);
	printf("attention: bf16 values that round another way than the oracle's: %lld of %lld\n", (long long)flipped,
		(long long)compared);
	rig_devices_close();
	if (flipped * 100 > compared) /* a boundary is hit by chance: a wrong rounding point shows in far more */
		failed = 1;
	return failed;
}
