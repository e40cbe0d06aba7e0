/* SPDX-License-Identifier: MIT */
/* Launchers of the PLE stage: each takes one token. Contracts: core/ops/ple.h; letters: core/config.h. */
#ifndef PLUMB_KERNELS_PLE_H
#define PLUMB_KERNELS_PLE_H

#include <stdint.h>

#include "kernels/launcher.h"
#include "kernels/matrix.h"

struct plumb_ngram; /* core/ops/ple.h */

struct plumb_ple_embed_launch {
	const int32_t *token;                   /* (1) */
	int64_t *history;                       /* (G-1) */
	const struct plumb_ngram *ngram;        /* on the device: 4232 bytes are more than a kernel takes by value */
	struct plumb_matrix_bank table;         /* (shards) of (shard_rows, width) */
	int64_t shard_rows, width;              /* width: De/Hg */
	int ngram_size, heads, heads_per_ngram; /* G, Hg */
	int64_t eos;
	int64_t *row;     /* (Hg) */
	float *embedding; /* (Hg, width) */
};

PLUMB_DECLARE_LAUNCHER(ple_embed, const struct plumb_ple_embed_launch *launch, void *stream);

/* A vector weight: f32, f16 or bf16. */
struct plumb_ple_vector {
	const void *data;
	int format;
};

struct plumb_ple_gate_launch {
	const float *key;                                        /* (S, D) rne(key_proj . e) */
	const float *value;                                      /* (D) rne(value_proj . e) */
	const float *residual;                                   /* (S, D) */
	struct plumb_ple_vector norm_key, norm_query, norm_conv; /* (S, D) each */
	float *gated;                                            /* (S, D) */
	float *conv_in;                                          /* (S, D) */
	int64_t streams, hidden;                                 /* S, D */
	float eps;
	float root;  /* sqrt(D) */
	float least; /* clamp of |s| */
	int bf16;
};

PLUMB_DECLARE_LAUNCHER(ple_gate, const struct plumb_ple_gate_launch *launch, void *stream);

struct plumb_ple_conv_launch {
	const int32_t *position;                 /* (1) of row 0 of the call */
	int row;                                 /* t: this token's row in the call */
	const float *gated, *conv_in, *residual; /* (S*D) */
	const void *conv;                        /* (S*D, Kp) of format */
	int format;                              /* f32, f16 or bf16 */
	float *window;                           /* (W, S*D), W = (Kp-1)*G */
	float *output, *residual_out;            /* (S*D) */
	int64_t channels;                        /* S*D */
	int taps, dilation;                      /* Kp, G; (Kp-1)*G rows of history */
	int bf16;
};

PLUMB_DECLARE_LAUNCHER(ple_conv, const struct plumb_ple_conv_launch *launch, void *stream);

#endif
