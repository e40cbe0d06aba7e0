/* SPDX-License-Identifier: MIT */
/* Memory of a decoder: the state between tokens and the activations between ops. Private to the decoder. */
#ifndef PLUMB_CORE_BUFFERS_H
#define PLUMB_CORE_BUFFERS_H

#include "core/decoder.h"

struct plumb_state {
	int32_t position;
	int layers;
	struct plumb_layer_state *layer; /* (L) */
	float *rope;                     /* (P, 2, Dr/2) */
	int32_t *page;                   /* (P / page_tokens) shared by all caches of all layers */
	void **block;                    /* every allocation, for release */
	int blocks;
};

struct plumb_activations {
	int32_t *token;                                              /* (T) */
	float *residual, *residual_next;                             /* (T, S, D) */
	float *normed, *low, *inject_logits, *mixed, *injection;     /* (T,S,D) (T,R) (T,S) (T,D) (T,S) */
	float *branch;                                               /* (T, D) output of a mixer or MoE */
	int64_t *ple_row;                                            /* (T, Hg) */
	float *ple_embedding, *ple_gated, *ple_conv_in, *ple_output; /* (T, De) (T,S,D) x3 */
	float *gdn_qkv, *gdn_z, *gdn_b, *gdn_a, *gdn_y, *gdn_o, *gdn_gated;
	float *attn_qg, *attn_k, *attn_v, *attn_q, *attn_o, *attn_gated;
	float *attn_q_normed, *attn_k_normed;                 /* NULL without traces */
	float *index_query, *score;                           /* (T, Hi, Di) (T, NB) */
	int32_t *block, *block_count;                         /* (T, N) (T) */
	float *router_logits, *expert_weight, *shared_weight; /* (T, E) (T, A) (T) */
	int32_t *expert;                                      /* (T, A) */
	float *expert_hidden, *shared_hidden;                 /* (T, A, F) (T, Fs) */
	float *moe_routed, *moe_shared;                       /* NULL without traces */
	float *logits;                                        /* (rows, V) */
	int32_t *next;                                        /* (rows) */
	void **memory;                                        /* every allocation, for release */
	int memories;
};

int plumb_options_complete(const struct plumb_config *cfg, struct plumb_decoder_options *options, struct plumb_error *err);
int plumb_state_create(const struct plumb_config *cfg, const struct plumb_decoder_options *options, struct plumb_state *out,
	struct plumb_error *err);
void plumb_state_reset(
	const struct plumb_config *cfg, const struct plumb_decoder_options *options, struct plumb_state *state);
void plumb_state_free(struct plumb_state *state);
int plumb_activations_create(const struct plumb_config *cfg, const struct plumb_decoder_options *options,
	struct plumb_activations *out, struct plumb_error *err);
void plumb_activations_free(struct plumb_activations *act);

#endif
