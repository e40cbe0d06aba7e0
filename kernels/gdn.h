/* SPDX-License-Identifier: MIT */
/* Launchers of the GDN stage: each takes one token. Contracts: core/ops/gdn.h; letters: core/config.h. */
#ifndef PLUMB_KERNELS_GDN_H
#define PLUMB_KERNELS_GDN_H

#include <stdint.h>

#include "kernels/launcher.h"

struct plumb_gdn_conv_launch {
	const int32_t *position; /* (1) of row 0 of the call */
	int row;                 /* t: this token's row in the call */
	const float *qkv;        /* (C) */
	const void *conv;        /* (C, Kc) of format */
	int format;              /* enum plumb_format */
	float *window;           /* (Kc, C) */
	float *y;                /* (C) */
	int64_t channels;        /* C */
	int taps;                /* Kc */
	int bf16;                /* policy bf16: round */
};

PLUMB_DECLARE_LAUNCHER(gdn_conv, const struct plumb_gdn_conv_launch *launch, void *stream);

struct plumb_gdn_recurrence_launch {
	const float *y;      /* (C) q | k | v */
	const float *b, *a;  /* (Hv) */
	const void *a_log;   /* (Hv) of a_log_format */
	const void *dt_bias; /* (Hv) of dt_bias_format */
	int a_log_format, dt_bias_format;
	void *state; /* (Hv, Dv, Dk) of state_format: f32, f16 or bf16 */
	int state_format;
	float *o;                                           /* (Hv, Dv) */
	int64_t key_heads, value_heads, key_dim, value_dim; /* Hk, Hv, Dk, Dv */
	float root;                                         /* sqrt(Dk) */
	int bf16;
};

/* Any shape. Dk up to 256: one pass over the state; above: two, with k and q normed again for every row. */
PLUMB_DECLARE_LAUNCHER(gdn_recurrence, const struct plumb_gdn_recurrence_launch *launch, void *stream);

struct plumb_gdn_norm_gate_launch {
	const float *o;   /* (Hv, Dv) */
	const float *z;   /* (Hv, Dv) */
	const void *norm; /* (Dv) of format */
	int format;
	float *out;              /* (Hv, Dv) */
	int64_t heads, head_dim; /* Hv, Dv */
	float eps;
	int silu; /* output gate z*sigmoid(z) instead of sigmoid(z) */
	int bf16;
};

PLUMB_DECLARE_LAUNCHER(gdn_norm_gate, const struct plumb_gdn_norm_gate_launch *launch, void *stream);

/* The three as one launch, to the same bits: conv.y and recurrence.o, which pass between them, are not written. */
struct plumb_gdn_step_launch {
	struct plumb_gdn_conv_launch conv;
	struct plumb_gdn_recurrence_launch recurrence;
	struct plumb_gdn_norm_gate_launch gate;
};

/* Whether the launch takes these shapes: Dk and Dv up to 128, up to 4 taps. */
static inline int plumb_gdn_step_takes(const struct plumb_gdn_step_launch *l)
{
	const int64_t most = 128;
	return l->recurrence.key_dim <= most && l->recurrence.value_dim <= most && l->conv.taps <= 4;
}

PLUMB_DECLARE_LAUNCHER(gdn_step, const struct plumb_gdn_step_launch *launch, void *stream);

#endif
