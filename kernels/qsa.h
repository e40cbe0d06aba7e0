/* SPDX-License-Identifier: MIT */
/* Launchers of the QSA indexer stage (contracts: core/ops/qsa.h). The projection uses kernels/linear.h.
 * A launch is one token: row `token` of its call, at position *position + token, which is read on the device. */
#ifndef PLUMB_KERNELS_QSA_H
#define PLUMB_KERNELS_QSA_H

#include <stdint.h>

#include "core/cache.h"
#include "kernels/attention.h"
#include "kernels/launcher.h"

struct plumb_qsa_heads {
	const int32_t *position; /* (1) */
	int64_t token;
	const float *projected;      /* (Hi + 1, Di), rounded: queries, then the raw key */
	float *mean;                 /* scratch (Di): mean of the raw keys of a block */
	const float *rope;           /* (P, 2, Dr/2) */
	const void *q_norm, *k_norm; /* (Di) of format */
	int q_norm_format, k_norm_format;
	int64_t index_heads, index_dim, half; /* Hi, Di, Dr/2 */
	int32_t block_tokens;                 /* B */
	float eps;
	int bf16;     /* policy bf16 */
	float *query; /* (Hi, Di) */
	struct plumb_cache raw_keys, block_keys;
};

struct plumb_qsa_blocks {
	const int32_t *position; /* (1) */
	int64_t token;
	const float *query; /* (Hi, Di) */
	struct plumb_cache block_keys;
	int64_t index_heads, index_dim; /* Hi, Di */
	int32_t block_tokens;           /* B */
	int32_t blocks;                 /* NB */
	float root;                     /* sqrtf(Di) */
	float *score;                   /* (NB) */
};

/* Norms, rope, raw key row, and the block key of a block that the token completes. */
PLUMB_DECLARE_LAUNCHER(qsa_heads, const struct plumb_qsa_heads *a, void *stream);

/* attn_heads and qsa_heads, which have nothing to do with each other, as one launch, to the same bits; two where index heads are
 * longer than 256. */
PLUMB_DECLARE_LAUNCHER(
	attn_qsa_heads, const struct plumb_attn_heads *attention, const struct plumb_qsa_heads *a, void *stream);

/* Scores of all blocks; -inf past the complete ones. */
PLUMB_DECLARE_LAUNCHER(qsa_score, const struct plumb_qsa_blocks *a, void *stream);

/* score: (blocks), NB. block[0..count-1] = the min(budget, complete blocks) best, ascending; the rest of block (budget) = -1. */
PLUMB_DECLARE_LAUNCHER(qsa_select, const int32_t *position, int64_t token, const float *score, int32_t blocks,
	int32_t block_tokens, int32_t budget, int32_t *block, int32_t *count, void *stream);

#endif
