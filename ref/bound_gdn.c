/* SPDX-License-Identifier: MIT */
/* Bounds of the GDN stage. Contracts: core/ops/gdn.h. */
#include "core/ops/gdn.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"
#include "ref/linear.h"

int gdn_in_proj_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_gdn_in_proj *a = args;
	const struct plumb_weight *w[] = {a->w_qkv, a->w_z, a->w_b, a->w_a};
	static const char *const name[] = {"qkv", "z", "b", "a"};
	int64_t rows = a->w_qkv->rows + a->w_z->rows + a->w_b->rows + a->w_a->rows;
	int status = PLUMB_OK;

	(void)before;
	for (int m = 0; m < 4 && status == PLUMB_OK; m++)
		status = bound_projection(env, w[m], a->x, a->T, rows, plumb_bound_of(set, name[m]));
	return status;
}

int gdn_conv_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_gdn_conv *a = args, *old = before;
	int64_t C = plumb_gdn_channels(env->cfg), Kc = env->cfg->gdn_conv_taps;
	struct plumb_ball *window = plumb_bound_of(set, "window"), *y = plumb_bound_of(set, "y");
	float *w = bound_matrix(env, a->conv); /* (C, Kc) */

	bound_exact_copy(old->window, Kc * C, window);
	for (int64_t t = 0; w && t < a->T; t++) {
		int64_t p = *a->position + t;
		bound_exact_copy(a->qkv + t * C, C, window + p % Kc * C);
		for (int64_t ch = 0; ch < C; ch++) {
			struct plumb_ball sum = ball_exact(0.0);
			for (int64_t j = 0; j < Kc; j++) { /* each tap joins by one fmaf */
				int64_t back = p - (Kc - 1 - j);
				if (back < 0)
					continue;
				sum = ball_fmaf(ball_exact((double)w[ch * Kc + j]), window[back % Kc * C + ch], sum);
			}
			y[t * C + ch] = ball_out(env, ball_silu(ball_rne(env, sum)));
		}
	}
	int status = w ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(w);
	return status;
}

/* y = x / sqrt(sum x^2 + 1e-6). The implementation adds 1e-6f. */
static void l2_norm(const float *x, int64_t n, struct plumb_ball *y)
{
	const double off = fabs((double)1e-6f - 1e-6);
	bound_exact_copy(x, n, y);
	struct plumb_ball squares = bound_dot(y, y, n, plumb_strided_depth(n, PLUMB_HEAD_LANES));
	squares.error += off;
	struct plumb_ball length = ball_sqrt(ball_add_eps(squares, 1e-6));
	for (int64_t i = 0; i < n; i++)
		y[i] = ball_div(y[i], length);
}

/* What one token brings to a head. */
struct token {
	struct plumb_ball *q, *k; /* (Dk) normed */
	struct plumb_ball decay, beta;
	double k_length, q_length; /* |k|, |q| in the 2-norm */
};

/* Row i of the state of a head: s (Dk) balls; *norm: what the 2-norm of the row's error is at most.
 *
 * With g the decay the exact step is S -> g S + k beta (v - g k.S), so an error vector becomes g (I - beta k k^T) times
 * itself. Taken element by element with magnitudes, that would grow by up to 1 + beta a token; but 0 <= beta <= 1 and
 * |k| <= 1 make the 2-norm of the matrix at most 1. So both are carried: an elementwise bound, tight over a few tokens,
 * in which the memory's error k.e is at most |k||e|, and the 2-norm of the row's error, which forgets with g; an
 * element has the smaller.
 *
 * A state that is stored in a narrow format is rounded after o: the exact state is the rounded one, and an implementation's
 * is elsewhere only where a boundary lies within its error. Over many tokens of one call a single step apart spreads, and
 * the bound grows up to sqrt(Dk) steps / (1 - g); over one token it demands the nearest value. */
static struct plumb_ball step_row(const struct token *w, double v, int64_t Dk, int depth, enum plumb_format format,
	struct plumb_ball *s, double *norm)
{
	double g = w->decay.value, local1 = 0.0, local2 = 0.0, k_error = 0.0, cross = 0.0, cross1 = 0.0;
	struct plumb_ball memory = {0.0, 0.0, 0.0, 0.0};
	double size = 0.0;

	/* S1 = g S: local error l1, from the decay's error and the rounding */
	for (int64_t j = 0; j < Dk; j++) {
		struct plumb_ball k = w->k[j];
		double s1 = g * s[j].value,
		       most = fabs(s1) + g * s[j].error + w->decay.error * (fabs(s[j].value) + s[j].error);
		double l1 = w->decay.error * (fabs(s[j].value) + s[j].error) + half_ulp(most);
		most += half_ulp(most);
		cross += fabs(k.value) * g * s[j].error;
		cross1 += fabs(k.value) * l1;
		local1 += l1 * l1;
		memory.value += k.value * s1;
		memory.error += k.error * most;
		memory.drift += k.drift * s1 + k.value * g * s[j].drift;
		size += (fabs(k.value) + k.error) * most;
		k_error += k.error * k.error;
		s[j] = (struct plumb_ball){s1, g * s[j].error + l1, 0.0, g * s[j].drift};
	}
	local1 = sqrt(local1);
	cross = fmin(cross, w->k_length * g * *norm) + fmin(cross1, w->k_length * local1);
	/* m = k.S1 beyond what the state's error does to it, then delta = (v - m) beta */
	double m_local = memory.error + plumb_gamma(depth) * size + (double)Dk * 0x1p-150;
	struct plumb_ball delta = {(v - memory.value), m_local, m_local, -memory.drift}, rest = ball_fl(delta);
	rest.error += half_ulp(fabs(delta.value) + m_local + cross) - half_ulp(fabs(delta.value) + m_local);
	double whole = (fabs(rest.value) + rest.error + cross) * w->beta.error + w->beta.value * rest.error;
	double d = rest.value * w->beta.value, d_most = fabs(d) + whole + w->beta.value * cross;
	double d_local = whole + half_ulp(d_most), d_error = d_local + w->beta.value * cross;
	/* S2 = S1 + k delta */
	double carried = g * *norm + local1 + w->k_length * d_local + sqrt(k_error) * (fabs(d) + d_error);
	for (int64_t j = 0; j < Dk; j++) {
		struct plumb_ball k = w->k[j];
		double value = s[j].value + k.value * d;
		double error = s[j].error + fabs(k.value) * d_error + k.error * (fabs(d) + d_error);
		double rounding = half_ulp(fabs(value) + error);
		local2 += rounding * rounding;
		s[j] = (struct plumb_ball){
			value, error + rounding, 0.0, s[j].drift + k.drift * d + k.value * delta.drift * w->beta.value};
	}
	*norm = carried + sqrt(local2);
	/* o = S2.q */
	struct plumb_ball o = {0.0, 0.0, 0.0, 0.0};
	double from_state = 0.0;
	size = 0.0;
	for (int64_t j = 0; j < Dk; j++) {
		struct plumb_ball q = w->q[j];
		s[j].error = fmin(s[j].error, *norm);
		s[j].spread = s[j].error; /* no model of independence holds here */
		from_state += fabs(q.value) * s[j].error;
		o.value += s[j].value * q.value;
		o.drift += s[j].drift * q.value + s[j].value * q.drift;
		o.error += q.error * (fabs(s[j].value) + s[j].error);
		size += (fabs(q.value) + q.error) * (fabs(s[j].value) + s[j].error);
	}
	o.error += fmin(from_state, w->q_length * *norm);
	o.spread = root_of_squares(o.error, sqrt((double)depth) * 0x1p-24 * size);
	o.error += plumb_gamma(depth) * size + (double)Dk * 0x1p-150;
	if (format != PLUMB_F32) {
		local2 = 0.0;
		for (int64_t j = 0; j < Dk; j++) {
			s[j] = bound_stored(format, s[j]);
			local2 += s[j].error * s[j].error;
		}
		*norm = sqrt(local2);
	}
	return o;
}

static double length(const struct plumb_ball *x, int64_t n)
{
	double sum = 0.0;
	for (int64_t i = 0; i < n; i++)
		sum += x[i].value * x[i].value;
	return sqrt(sum);
}

/* The tokens of head h. qk: scratch (2, Dk); norm: scratch (Dv). */
static void head(const struct plumb_env *env, const struct plumb_gdn_recurrence *a, int64_t h, const float *a_log,
	const float *dt_bias, struct plumb_ball *qk, double *norm, struct plumb_ball *state, struct plumb_ball *o)
{
	const struct plumb_config *cfg = env->cfg;
	int64_t Hk = cfg->gdn_key_heads, Hv = cfg->gdn_value_heads, Dk = cfg->gdn_key_dim, Dv = cfg->gdn_value_dim;
	int64_t hk = h / (Hv / Hk), C = plumb_gdn_channels(cfg);
	double root = sqrt((double)Dk);
	struct plumb_ball divisor = {root, half_ulp(root), half_ulp(root), (double)(float)root - root};
	struct token w = {.q = qk, .k = qk + Dk};

	if (root == (double)(float)root)
		divisor = ball_exact(root);
	for (int64_t i = 0; i < Dv; i++)
		norm[i] = 0.0;
	for (int64_t t = 0; t < a->T; t++) {
		const float *y = a->y + t * C; /* q (Hk*Dk) | k (Hk*Dk) | v (Hv*Dv) */
		struct plumb_ball dt = ball_add(ball_exact((double)a->a[t * Hv + h]), ball_exact((double)dt_bias[h]));
		struct plumb_ball rate = ball_mul(ball_exp(ball_exact((double)a_log[h])), ball_softplus(dt));
		w.beta = ball_rne(env, ball_sigmoid(ball_exact((double)a->b[t * Hv + h])));
		w.decay = ball_exp(ball_negate(rate));
		l2_norm(y + hk * Dk, Dk, w.q);
		l2_norm(y + (Hk + hk) * Dk, Dk, w.k);
		for (int64_t j = 0; j < Dk; j++)
			w.q[j] = ball_div(w.q[j], divisor);
		w.q_length = length(w.q, Dk);
		w.k_length = length(w.k, Dk);
		for (int64_t i = 0; i < Dv; i++) {
			double v = (double)y[2 * Hk * Dk + h * Dv + i];
			o[(t * Hv + h) * Dv + i] =
				ball_out(env, step_row(&w, v, Dk, plumb_strided_depth(Dk, PLUMB_HEAD_LANES),
						      a->state_format, state + (h * Dv + i) * Dk, &norm[i]));
		}
	}
}

int gdn_recurrence_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_gdn_recurrence *a = args, *old = before;
	int64_t Hv = env->cfg->gdn_value_heads, Dk = env->cfg->gdn_key_dim, Dv = env->cfg->gdn_value_dim;
	struct plumb_ball *state = plumb_bound_of(set, "state"), *o = plumb_bound_of(set, "o");
	float *a_log = bound_matrix(env, a->a_log), *dt_bias = bound_matrix(env, a->dt_bias);
	struct plumb_ball *qk = bound_scratch(env, Hv * 2 * Dk); /* (Hv, 2, Dk) */
	double *norm = scratch_ref(env, Hv * Dv, sizeof *norm);  /* (Hv, Dv) */
	float *wide = scratch_ref(env, Hv * Dv * Dk, sizeof *wide);
	int status = a_log && dt_bias && qk && norm && wide ? PLUMB_OK : PLUMB_BAD_INPUT;

	plumb_bound_wide(set, "state");
	if (status == PLUMB_OK) {
		plumb_decode(a->state_format, old->state, Hv * Dv * Dk, wide);
		bound_exact_copy(wide, Hv * Dv * Dk, state);
	}
	if (status == PLUMB_OK) {
#pragma omp parallel for schedule(static) if (Hv * Dk * Dv > 16384)
		for (int64_t h = 0; h < Hv; h++)
			head(env, a, h, a_log, dt_bias, qk + h * 2 * Dk, norm + h * Dv, state, o);
	}
	free(a_log);
	free(dt_bias);
	free(qk);
	free(norm);
	free(wide);
	return status;
}

int gdn_norm_gate_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_gdn_norm_gate *a = args;
	int64_t Dv = env->cfg->gdn_value_dim, rows = a->T * env->cfg->gdn_value_heads;
	struct plumb_ball *out = plumb_bound_of(set, "out"), *o = bound_balls(env, a->o, rows * Dv);
	float *w = bound_matrix(env, a->norm);

	(void)before;
	for (int64_t i = 0; o && w && i < rows; i++) {
		struct plumb_ball r = bound_inverse_rms(env, o + i * Dv, Dv, PLUMB_HEAD_LANES);
		for (int64_t j = 0; j < Dv; j++) {
			struct plumb_ball z = ball_exact((double)a->z[i * Dv + j]);
			struct plumb_ball n = ball_rne(env, ball_mul(o[i * Dv + j], r));
			struct plumb_ball t = ball_rne(env, ball_mul(ball_exact((double)w[j]), n));
			struct plumb_ball gate = env->cfg->gdn_gate == PLUMB_GATE_SILU ? ball_silu(z) : ball_sigmoid(z);
			out[i * Dv + j] = ball_out(env, ball_mul(t, gate));
		}
	}
	int status = o && w ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(o);
	free(w);
	return status;
}

int gdn_out_proj_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_gdn_out_proj *a = args;

	(void)before;
	return bound_projection(env, a->w, a->x, a->T, a->w->rows, plumb_bound_of(set, "y"));
}
