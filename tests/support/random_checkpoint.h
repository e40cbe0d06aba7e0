/* SPDX-License-Identifier: MIT */
/* A checkpoint folder of any config with random weights.
 *
 * A value depends on the seed, the role of its tensor and its place in it, not on how the checkpoint is cut: the same
 * model comes out with experts stacked or not, in one file or many, with any number of PLE shards and either prefix, and
 * quantised or as the F32 values of the quantised one.
 * Scales are those golden/tiny was made with, so that activations stay of order one through the layers; every value is
 * a bf16 value first, so BF16 and F32 hold the same numbers (F16 too, but for those below 2^-14). */
#ifndef PLUMB_TESTS_SUPPORT_RANDOM_CHECKPOINT_H
#define PLUMB_TESTS_SUPPORT_RANDOM_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config.h"
#include "core/weight.h"

struct random_checkpoint {
	uint64_t seed;
	enum plumb_format format;
	bool stacked_experts; /* experts.gate_up_proj and experts.down_proj instead of a tensor each */
	bool other_prefix;    /* the prefix that the model_type does not suggest */
	bool no_constants;    /* without the I64 hash constants */
	bool extras;          /* with mtp.* and model.visual.* tensors of odd dtypes and shapes */
	int files;            /* 0 or 1: model.safetensors; else model-0000I-of-0000N.safetensors, tensors dealt in turn */
	bool index;           /* with model.safetensors.index.json */
	int ple_shards;       /* 0: one ngram_embedding.weight */
	int shift;            /* bytes by which data misses a multiple of 8 */

	/* Quantised parts: one of the formats with scales, else as format says. fp8_table for matrices is one scale for all
	 * rows. Names and shapes of the scales are those of the released checkpoints and of ModelOpt. */
	enum plumb_format experts;      /* the three matrices of each expert; not with stacked_experts */
	enum plumb_format matrices;     /* every other tensor of rank 2: projections, router, embedding, head */
	bool fp8_table;                 /* the n-gram table, whose scale is bf16 of rank 1 or, with f32 scales, of rank 0 */
	enum plumb_format scale_format; /* of fp8 scales: f32 or bf16 */
	bool column_scales;             /* scales of fp8 rows have shape [N, 1] instead of [N] */
	bool dequantised;               /* F32 tensors with the values that the quantised ones stand for, in their place */
	const char *quantization_config; /* of config.json; NULL: none */
};

/* Write config.json (model_type by cfg->nested) and the tensors into dir, which exists. */
void random_checkpoint_write(const char *dir, const struct plumb_config *cfg, const struct random_checkpoint *options);

/* config.json alone, into text of size bytes. Returns text. */
const char *random_checkpoint_config(const struct plumb_config *cfg, char *text, size_t size);

/* The smallest config that has every mechanism: 2 layers (GDN with PLE, attention), 2 streams, no two sizes equal where
 * that is possible, partial PLE shards. */
struct plumb_config random_checkpoint_smallest(void);

#endif
