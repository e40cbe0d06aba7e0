/* SPDX-License-Identifier: MIT */
/* Launchers of the hyper-connection ops, one token a launch. Contracts: core/ops/hc.h. */
#ifndef PLUMB_KERNELS_HC_H
#define PLUMB_KERNELS_HC_H

#include <stdint.h>

#include "kernels/launcher.h"
#include "kernels/matrix.h"

/* hc_norm_down is two launches: hc_norm writes normed, hc_down reads it. */
struct plumb_hc_norm {
	const float *residual; /* (S, D) */
	const void *norm;      /* (S*D) of format */
	int format;            /* f32, f16 or bf16 */
	int streams;           /* S */
	int64_t hidden;        /* D */
	float eps;
	int bf16;      /* policy bf16: round at the contract's rne */
	float *normed; /* (S, D) */
};

struct plumb_hc_down {
	const float *normed;        /* (S*D) */
	struct plumb_matrix down;   /* (R, S*D) */
	struct plumb_matrix inject; /* (S, S*D) or none */
	int streams;                /* S */
	int64_t low_rank;           /* R */
	int64_t cols;               /* S*D */
	int pieces;                 /* plumb_split_count(R + S, S*D) */
	int bf16;
	float *low;           /* (R) */
	float *inject_logits; /* (S), unless there is no inject */
};
/* down->normed is norm->normed. One launch where kernels/gemv.h takes down, else two. */
PLUMB_DECLARE_LAUNCHER(hc_norm_down, const struct plumb_hc_norm *norm, const struct plumb_hc_down *down, void *stream);

struct plumb_hc_up {
	const float *normed;        /* (S, D) */
	const float *low;           /* (R) */
	const float *inject_logits; /* (S) or NULL */
	struct plumb_matrix up;     /* (S*D, R) */
	int streams;                /* S */
	int64_t hidden;             /* D */
	int64_t low_rank;           /* R */
	int pieces;                 /* plumb_split_count(S*D, R) */
	int bf16;
	float *mixed;     /* (D) */
	float *injection; /* (S), unless inject_logits is NULL */
};
PLUMB_DECLARE_LAUNCHER(hc_up_mix, const struct plumb_hc_up *up, void *stream);

struct plumb_hc_inject_launch {
	const float *residual;  /* (S, D) */
	const float *branch;    /* (D) */
	const float *injection; /* (S) */
	int streams;            /* S */
	int64_t hidden;         /* D */
	int bf16;
	float *residual_out; /* (S, D), may be residual */
};
PLUMB_DECLARE_LAUNCHER(hc_inject, const struct plumb_hc_inject_launch *inject, void *stream);

/* hc_inject, then hc_norm_down of what it wrote (norm->residual is inject->residual_out), to the same bits: one launch where
 * hc_norm_down is one and the streams are not injected in place. */
PLUMB_DECLARE_LAUNCHER(hc_inject_norm_down, const struct plumb_hc_inject_launch *inject, const struct plumb_hc_norm *norm,
	const struct plumb_hc_down *down, void *stream);

#endif
