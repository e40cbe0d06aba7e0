/* SPDX-License-Identifier: MIT */
/* Contracts of the GDN (gated delta net) stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's
 * rounding. */
#ifndef PLUMB_CORE_OPS_GDN_H
#define PLUMB_CORE_OPS_GDN_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     qkv = rne(w_qkv . x), z = rne(w_z . x), b = rne(w_b . x), a = rne(w_a . x).
 * Shapes       x (T, D), w_qkv (C, D), w_z (Hv*Dv, D), w_b (Hv, D), w_a (Hv, D); qkv (T, C), z (T, Hv*Dv), b, a (T, Hv).
 * Layout       row-major; qkv = q (Hk*Dk) | k (Hk*Dk) | v (Hv*Dv).
 * Units        none.
 * Numerics     binary32; rows split(pieces, 256) with rows C + Hv*Dv + 2*Hv. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.6. */
struct plumb_gdn_in_proj {
	int64_t T;
	const float *x;                   /* in  (T, D) */
	const struct plumb_weight *w_qkv; /* w   (C, D) */
	const struct plumb_weight *w_z;   /* w   (Hv*Dv, D) */
	const struct plumb_weight *w_b;   /* w   (Hv, D) */
	const struct plumb_weight *w_a;   /* w   (Hv, D) */
	float *qkv;                       /* out (T, C) */
	float *z;                         /* out (T, Hv*Dv) */
	float *b;                         /* out (T, Hv) */
	float *a;                         /* out (T, Hv) */
};

/* Computes     y[t, ch] = rne(silu(rne(sum_j conv[ch, j] * qkv_{p - (Kc-1-j)}[ch]))), zeros before position 0.
 * Shapes       qkv, y (T, C), conv (C, Kc), window (Kc, C), position (1).
 * Layout       window is a ring: the row of position p is p mod Kc. It holds one row more than the next token needs,
 *              as transformers keeps it. The stored weight is (C, 1, Kc).
 * Units        position: 0-based position of row 0 of the call.
 * Numerics     binary32. Taps serial by fmaf, oldest first; those before position 0 are left out. NaN carried.
 * Determinism  bit-exact on every device. window then holds the last Kc rows of qkv.
 * Errors       none.
 * Source       model-spec 2.6 line conv, 2.11. */
struct plumb_gdn_conv {
	int64_t T;
	const int32_t *position;         /* in    (1) */
	const float *qkv;                /* in    (T, C) */
	const struct plumb_weight *conv; /* w     (C, Kc) */
	float *window;                   /* state (Kc, C) */
	float *y;                        /* out   (T, C) */
};

/* Computes     for each value head h, key head hk = h / (Hv/Hk): qn = q/sqrt(sum q^2 + 1e-6)/sqrt(Dk),
 *              kn = k/sqrt(sum k^2 + 1e-6), beta = rne(sigmoid(b)), g = -exp(A_log)*softplus(a + dt_bias);
 *              in this order S *= exp(g); m_v = sum_k S[v,k]*kn[k]; d_v = (v_v - m_v)*beta; S[v,k] += kn[k]*d_v;
 *              o_v = rne(sum_k S[v,k]*qn[k]).
 * Shapes       y (T, C), b, a (T, Hv), A_log, dt_bias (Hv), state (Hv, Dv, Dk), o (T, Hv, Dv).
 * Layout       state: one row of Dk keys for each value element, so that a warp owns whole rows. Golden files hold it
 *              as (Hv, Dk, Dv).
 * Units        softplus(x) = x for x > 20, else log1p(exp(x)); 1e-6 is fixed, not rms_norm_eps.
 * Numerics     state is widened to binary32, computed with in binary32 under both policies, and rounded once, to
 *              state_format, when it is stored (nearest even; f16: subnormals kept, from 65520 on +-Inf, as IEEE has
 *              it), after every token, whatever T: the next token reads what is stored. o is computed from the state
 *              before that rounding, as served engines do (the state is in registers there, and o is no worse for it).
 *              Sums over Dk strided(128). State update by one fmaf after the decay product. Every other operation
 *              rounds once, in the order written: qn is divided by the root, then by sqrt(Dk) rounded to binary32;
 *              g = -(exp(A_log)*softplus(a + dt_bias)). Functions of core/math32.h. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       a state_format with scales is refused.
 * Source       model-spec 2.6. */
struct plumb_gdn_recurrence {
	int64_t T;
	const float *y;                     /* in    (T, C) */
	const float *b;                     /* in    (T, Hv) */
	const float *a;                     /* in    (T, Hv) */
	const struct plumb_weight *a_log;   /* w     (1, Hv) */
	const struct plumb_weight *dt_bias; /* w     (1, Hv) */
	void *state;                        /* state (Hv, Dv, Dk) of state_format */
	enum plumb_format state_format;     /*       f32, f16 or bf16 */
	float *o;                           /* out   (T, Hv, Dv) */
};

/* The one thing that the op refuses. */
static inline int plumb_gdn_recurrence_check(const struct plumb_env *env, const struct plumb_gdn_recurrence *a)
{
	if ((unsigned)a->state_format < PLUMB_PLAIN_FORMATS)
		return PLUMB_OK;
	return plumb_fail(env->err, PLUMB_BAD_INPUT, "gdn_recurrence: the state is %s, expected f32, f16 or bf16",
		plumb_format_name(a->state_format));
}

/* Computes     per head: r = 1/sqrt(mean o^2 + eps); n = rne(o*r); t = rne(norm*n); out = rne(t * gate(z)), where
 *              gate(z) = sigmoid(z) or, for output_gate_type silu, z*sigmoid(z), in binary32.
 * Shapes       o (T, Hv, Dv), z (T, Hv*Dv), norm (Dv), out (T, Hv*Dv).
 * Layout       row-major, head-major.
 * Units        eps is rms_norm_eps; norm is a plain weight, not 1 + w.
 * Numerics     mean = strided(128) sum of squares over Dv, divided by Dv; every other operation rounds once, in the
 *              order written. sigmoid and z*sigmoid(z) are plumb_sigmoidf and plumb_siluf. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.6 (output norm). */
struct plumb_gdn_norm_gate {
	int64_t T;
	const float *o;                  /* in  (T, Hv, Dv) */
	const float *z;                  /* in  (T, Hv*Dv) */
	const struct plumb_weight *norm; /* w   (1, Dv) */
	float *out;                      /* out (T, Hv*Dv) */
};

/* Computes     y = rne(w . x).
 * Shapes       x (T, Hv*Dv), w (D, Hv*Dv), y (T, D).
 * Layout       row-major.
 * Units        none.
 * Numerics     binary32; rows split(pieces, 256) with rows D. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.6. */
struct plumb_gdn_out_proj {
	int64_t T;
	const float *x;               /* in  (T, Hv*Dv) */
	const struct plumb_weight *w; /* w   (D, Hv*Dv) */
	float *y;                     /* out (T, D) */
};

#endif
