/* SPDX-License-Identifier: MIT */
/* The weights of a model, by role. Where the bytes come from (a checkpoint, a generator) is the maker's business. */
#ifndef PLUMB_CORE_MODEL_H
#define PLUMB_CORE_MODEL_H

#include "core/config.h"
#include "core/ops/ple.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One hyper-connection site. */
struct plumb_hc_weights {
	struct plumb_weight norm;   /* (1, S*D)  hc_norm */
	struct plumb_weight down;   /* (R, S*D)  input_mix_weight_down */
	struct plumb_weight up;     /* (S*D, R)  input_mix_weight_up */
	struct plumb_weight inject; /* (S, S*D)  block_inject_weight; data NULL at the final mixer */
};

struct plumb_gdn_weights {
	struct plumb_weight qkv, z, b, a; /* (C, D), (Hv*Dv, D), (Hv, D), (Hv, D) */
	struct plumb_weight conv;         /* (C, Kc) */
	struct plumb_weight a_log;        /* (1, Hv) */
	struct plumb_weight dt_bias;      /* (1, Hv) */
	struct plumb_weight norm;         /* (1, Dv) */
	struct plumb_weight out;          /* (D, Hv*Dv) */
};

struct plumb_attention_weights {
	struct plumb_weight q, k, v;                    /* (Hq*2*Dh, D), (Hkv*Dh, D), (Hkv*Dh, D) */
	struct plumb_weight q_norm, k_norm;             /* (1, Dh) */
	struct plumb_weight out;                        /* (D, Hq*Dh) */
	struct plumb_weight index_qk;                   /* (Hi*Di + Di, D) */
	struct plumb_weight index_q_norm, index_k_norm; /* (1, Di) */
};

struct plumb_moe_weights {
	struct plumb_weight router;                              /* (E, D) */
	struct plumb_weight shared_router;                       /* (1, D)  shared_expert_gate */
	struct plumb_weight *gate, *up, *down;                   /* (E) of (F, D), (F, D), (D, F) */
	struct plumb_weight shared_gate, shared_up, shared_down; /* (Fs, D), (Fs, D), (D, Fs) */
};

struct plumb_ple_weights {
	struct plumb_ngram ngram;
	struct plumb_weight *table; /* (shards) of (shard_rows, De/Hg) */
	int64_t shards, shard_rows;
	struct plumb_weight key_proj, value_proj;            /* (S*D, De), (D, De) */
	struct plumb_weight norm_key, norm_query, norm_conv; /* (1, S*D) */
	struct plumb_weight conv;                            /* (S*D, Kp) */
};

struct plumb_layer_weights {
	struct plumb_hc_weights attn_hc, mlp_hc;
	struct plumb_gdn_weights gdn;             /* of a GDN layer */
	struct plumb_attention_weights attention; /* of an attention layer */
	struct plumb_moe_weights moe;
	struct plumb_ple_weights *ple; /* NULL: none */
};

/* Makes weights on demand: before an op reads host memory, what the call will read of weights that are `made`
 * (core/reads.h). args: the op's argument struct with host pointers. Errors: PLUMB_BAD_INPUT for memory. */
struct plumb_maker {
	int (*make)(void *self, const struct plumb_env *env, enum plumb_op op, const void *args); /* NULL: all is there */
	void *self;
};

struct plumb_model {
	struct plumb_config cfg;
	struct plumb_weight embed;         /* (V, D) */
	struct plumb_weight lm_head;       /* (V, D) */
	struct plumb_hc_weights mixer;     /* final mixer */
	struct plumb_layer_weights *layer; /* (L) */
	struct plumb_maker maker;
};

/* Free the lists that a model is made of (layers, banks, PLE modules, tables), not what their weights point to. For
 * whoever made them with malloc; a model without them, all zero, is fine. */
void plumb_model_free_lists(struct plumb_model *model);

#ifdef __cplusplus
}
#endif
#endif
