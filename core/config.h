/* SPDX-License-Identifier: MIT */
/* What a checkpoint's config.json says of the text decoder, and the sizes that follow from it.
 *
 * Dimension letters, the same in every shape comment of the project:
 *   T   tokens (rows) of one call          D   hidden size               S   residual streams (hc_count)
 *   R   hyper-connection low rank          V   vocabulary                L   layers
 *   Hq  attention query heads              Hkv attention key/value heads Dh  attention head dim   Dr rotary dims
 *   Hk  GDN key heads    Hv GDN value heads    Dk  GDN key dim    Dv GDN value dim
 *   C   GDN conv channels 2*Hk*Dk + Hv*Dv      Kc  GDN conv taps
 *   E   experts          A  experts a token    F   expert inner size     Fs  shared expert inner size
 *   Hi  index query heads Di index head dim    B   tokens a QSA block    N   QSA block budget
 *   G   n-gram size      Hg n-gram heads (G-1)*heads_per_ngram           De  PLE embedding dim
 *   Kp  PLE conv taps    W  PLE conv history rows (Kp-1)*G
 *   P   positions (token capacity of the caches)                         NB  blocks in P positions, P/B
 */
#ifndef PLUMB_CORE_CONFIG_H
#define PLUMB_CORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	PLUMB_MAX_LAYERS = 1024,
	PLUMB_MAX_STREAMS = 64,      /* hc_count */
	PLUMB_MAX_NGRAM = 16,        /* ngram_size */
	PLUMB_MAX_NGRAM_HEADS = 256, /* (ngram_size - 1) * heads_per_ngram */
	PLUMB_MAX_PLE = 64,          /* PLE modules */
};

enum plumb_layer_kind {
	PLUMB_LAYER_GDN,       /* linear_attention */
	PLUMB_LAYER_ATTENTION, /* full_attention and its other spellings: QSA attention */
};

enum plumb_gate {
	PLUMB_GATE_SIGMOID,
	PLUMB_GATE_SILU,
};

struct plumb_config {
	bool nested;    /* model_type qwen4_exp: tensor prefix model.language_model., else model. */
	int64_t vocab;  /* V */
	int64_t hidden; /* D */
	int layers;     /* L */
	enum plumb_layer_kind kind[PLUMB_MAX_LAYERS];
	float rms_norm_eps;

	int streams;      /* S */
	int64_t low_rank; /* R */

	int q_heads, kv_heads; /* Hq, Hkv; Hq % Hkv == 0 */
	int64_t head_dim;      /* Dh */
	int64_t rotary_dim;    /* Dr = int(head_dim * partial_rotary_factor), even, <= min(Dh, Di) */
	double rope_theta;
	int64_t max_positions;

	int gdn_key_heads, gdn_value_heads; /* Hk, Hv; Hv % Hk == 0 */
	int64_t gdn_key_dim, gdn_value_dim; /* Dk, Dv */
	int gdn_conv_taps;                  /* Kc */
	enum plumb_gate gdn_gate;           /* output_gate_type */

	int64_t experts;                    /* E */
	int experts_per_token;              /* A <= E */
	int64_t expert_inner, shared_inner; /* F, Fs */
	bool norm_topk;                     /* norm_topk_prob */

	int index_heads;      /* Hi */
	int64_t index_dim;    /* Di */
	int block_tokens;     /* B = indexer_compress_ratio */
	int64_t block_budget; /* N = indexer_budget / B */

	int ple_count;                /* PLE modules; 0: none */
	int ple_layer[PLUMB_MAX_PLE]; /* zero-based layer index of module q, ascending */
	int64_t ple_dim;              /* De */
	int ple_conv_taps;            /* Kp */
	int ngram;                    /* G */
	int heads_per_ngram;
	int64_t ngram_vocab_base;   /* ngram_vocab_size_base */
	int64_t ngram_row_multiple; /* make_ngram_vocab_size_divisible_by */
	int ngram_parts;            /* split_ngram_parts: how many shards a save writes */
	uint64_t seed;
	int64_t eos; /* element 0 of eos_token_id */
};

/* Derived sizes. */
static inline int64_t plumb_gdn_channels(const struct plumb_config *c) /* C */
{
	return 2 * c->gdn_key_dim * c->gdn_key_heads + c->gdn_value_heads * c->gdn_value_dim;
}
static inline int plumb_ngram_heads(const struct plumb_config *c) /* Hg */
{
	return (c->ngram - 1) * c->heads_per_ngram;
}
static inline int plumb_ple_history(const struct plumb_config *c) /* W */
{
	return (c->ple_conv_taps - 1) * c->ngram;
}
/* Index of the PLE module of a layer, or -1. */
int plumb_ple_of_layer(const struct plumb_config *c, int layer);

/* What a config.json leaves out, each with the value that transformers gives it: "norm_topk_prob true, seed 1234", or "". */
struct plumb_config_defaults {
	char text[1024];
};

/* Read a config.json.
 * path: the file; *out is written only on success.
 * Accepts model_type qwen4_exp_text (fields at top level) and qwen4_exp (fields in text_config), every spelling and
 * default of the released files; unknown keys are ignored, but not a misspelt one where the key that was meant is absent;
 * duplicate keys, deep nesting, wrong types and every broken invariant (heads that do not divide, budget that is no multiple
 * of the ratio, an unknown gate or layer type, sizes outside 1..2^31-1) are refused.
 * defaults, unless NULL, is filled.
 * Errors: PLUMB_BAD_INPUT with one line naming the file, the field, its value and what was expected.
 * Source: model-spec 1.2, 1.3. */
int plumb_config_read(
	const char *path, struct plumb_config *out, struct plumb_config_defaults *defaults, struct plumb_error *err);

/* The same from memory: text of size bytes (no terminator needed), name for messages. */
int plumb_config_parse(const char *text, size_t size, const char *name, struct plumb_config *out, struct plumb_error *err);

/* A config as the text of a config.json: parsing it gives the same config, every field. To be freed with free(); NULL:
 * out of memory. */
char *plumb_config_text(const struct plumb_config *config);

#ifdef __cplusplus
}
#endif
#endif
