/* SPDX-License-Identifier: MIT */
/* The full-model decoder: it runs the ops in their order (core/flow.h) over one token or T tokens at once, by whatever
 * functions its plan names, and keeps the buffers between them and the state they leave behind. It knows no set. */
#ifndef PLUMB_CORE_DECODER_H
#define PLUMB_CORE_DECODER_H

#include "core/cache.h"
#include "core/flow.h"
#include "core/model.h"
#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which function runs an op. */
struct plumb_binding {
	const struct plumb_set *set; /* for messages and for telling sets apart */
	void *device;                /* becomes env->device of the call */
};

/* A binding for every layer and op; ops outside the layers (embed, final mixer, lm_head, argmax) use row L. */
struct plumb_plan {
	int layers;                    /* L */
	struct plumb_binding *binding; /* (L + 1, PLUMB_OP_COUNT) */
};
/* A plan that binds every op of every layer to `all`; released by plumb_plan_free. Errors: PLUMB_BAD_INPUT for memory. */
int plumb_plan_create(
	const struct plumb_config *cfg, struct plumb_binding all, struct plumb_plan *out, struct plumb_error *err);
void plumb_plan_free(struct plumb_plan *plan);
/* Bind one op in layers first..last (inclusive, row L = outside the layers). */
void plumb_plan_bind(struct plumb_plan *plan, enum plumb_op op, int first, int last, struct plumb_binding binding);

/* One call of one op, as observers see it. */
struct plumb_call {
	enum plumb_op op;
	int layer; /* 0-based; L for ops outside the layers */
	enum plumb_site site;
	int64_t position; /* of row 0 */
	int64_t T;
	const struct plumb_env *env;
	const struct plumb_binding *binding;
	const void *args; /* the op's argument struct; all pointers are host pointers */
	/* of args, where several ops are called as one (opt/user.h); else NULL: plumb_ops[op] */
	const struct plumb_op_info *info;
};

/* Called around every op. before sees inputs and state; after sees the outputs and may overwrite them in place.
 * A status other than PLUMB_OK ends the step and is returned by it. */
struct plumb_observer {
	int (*before)(void *self, const struct plumb_call *call); /* may be NULL */
	int (*after)(void *self, const struct plumb_call *call);  /* may be NULL */
	void *self;
};

/* Runs every call in the place of its binding: what has to stand between the decoder and an op (guards, timers). It calls
 * call->binding->set->op[call->op](call->env, call->args), or arranges the like, and returns the status. */
struct plumb_runner {
	int (*run)(void *self, const struct plumb_call *call);
	void *self;
};

/* What a decoder keeps between tokens. */
struct plumb_gdn_state {
	float *window;            /* (Kc, C) ring, row p mod Kc */
	void *s;                  /* (Hv, Dv, Dk) of format */
	enum plumb_format format; /* f32, f16 or bf16 */
};
struct plumb_attention_state {
	struct plumb_cache keys, values; /* (P, Hkv*Dh) */
	struct plumb_cache raw_keys;     /* (P, Di) */
	struct plumb_cache block_keys;   /* (NB, Di) */
};
struct plumb_ple_state {
	float *window;    /* (W, S*D) ring, row p mod W */
	int64_t *history; /* (G-1) */
};
struct plumb_layer_state {
	struct plumb_gdn_state gdn;
	struct plumb_attention_state attention;
	struct plumb_ple_state ple;
};

struct plumb_decoder_options {
	enum plumb_policy policy;
	enum plumb_ties ties;
	int64_t capacity;   /* P; rounded up to whole pages; default 4096, at most max_positions */
	int page_tokens;    /* a multiple of B; default the least multiple of B that is >= 64 */
	uint64_t page_seed; /* 0: pages in order; else shuffled by this seed (results do not change) */
	int max_rows;       /* rows of one pass, longer prompts are cut; default 64 */
	/* How keys and values are stored, and the GDN state; index keys and block keys follow the policy. */
	bool own_caches;              /* caches says it; else f32 under policy f32, bf16 under bf16 */
	enum plumb_format caches;     /* f32, bf16 or PLUMB_CACHE_FP8 */
	float key_scale, value_scale; /* of fp8 caches; 0 stands for 1 */
	enum plumb_format state;      /* f32 (default), f16 or bf16 */
	bool all_logits;              /* logits of every row, else of the last row of a step */
	bool traces;                  /* ask ops for their trace outputs */
};

struct plumb_decoder;

/* model: borrowed, must outlive the decoder. plan: copied. options: NULL for defaults (policy f32, ties lower).
 * Errors: PLUMB_BAD_INPUT for sizes out of range or memory that cannot be had. */
int plumb_decoder_create(const struct plumb_model *model, const struct plumb_plan *plan,
	const struct plumb_decoder_options *options, struct plumb_decoder **out, struct plumb_error *err);
void plumb_decoder_destroy(struct plumb_decoder *decoder);

/* Forget everything: position 0, zero state. */
void plumb_decoder_reset(struct plumb_decoder *decoder);

/* Go on from a position: the caller has put the state of all tokens before it where plumb_decoder_state says (cache rows
 * below it, of block keys those of complete blocks; ring rows of the last positions; recurrent state; history of ids).
 * Errors: PLUMB_BAD_INPUT for a position outside 0..capacity. */
int plumb_decoder_resume(struct plumb_decoder *decoder, int64_t position, struct plumb_error *err);

/* At most one observer; NULL removes it. */
void plumb_decoder_observe(struct plumb_decoder *decoder, const struct plumb_observer *observer);

/* At most one runner, inside the observer; NULL removes it. */
void plumb_decoder_run_through(struct plumb_decoder *decoder, const struct plumb_runner *runner);

/* Run T tokens from the current position. token: (T) ids.
 * Errors: PLUMB_BAD_INPUT for a token outside the vocabulary or a position beyond the capacity (nothing has run then);
 * else the status of a failed op or observer. */
int plumb_decoder_step(struct plumb_decoder *decoder, const int32_t *token, int64_t T, struct plumb_error *err);

/* Of the last pass: rows of logits held (max_rows at most), the logits (rows, V), and their argmax (rows). */
int64_t plumb_decoder_rows(const struct plumb_decoder *decoder);
const float *plumb_decoder_logits(const struct plumb_decoder *decoder);
const int32_t *plumb_decoder_tokens(const struct plumb_decoder *decoder);

/* Tokens so far, which is the position of the next one; the state of a layer, 0 <= layer < L; what ops are called with, but
 * for device and call, which a call has of its own. */
int64_t plumb_decoder_position(const struct plumb_decoder *decoder);
struct plumb_layer_state *plumb_decoder_state(struct plumb_decoder *decoder, int layer);
const struct plumb_env *plumb_decoder_env(const struct plumb_decoder *decoder);

/* For whoever replays a recorded step instead of calling ops. advance: check a token and the room for it, and do on the
 * host what a step of one token does around its ops: store the id, go on by one position, hold one row of logits (whose
 * values are the caller's to bring). Errors as plumb_decoder_step. */
int plumb_decoder_advance(struct plumb_decoder *decoder, int32_t token, struct plumb_error *err);
const struct plumb_binding *plumb_decoder_binding(const struct plumb_decoder *decoder, int layer, enum plumb_op op);
bool plumb_decoder_is_watched(const struct plumb_decoder *decoder); /* has an observer or a runner */
/* Where every op of every step finds them: the ids (max_rows), the position (1). The addresses never change. */
const int32_t *plumb_decoder_token_cell(const struct plumb_decoder *decoder);
const int32_t *plumb_decoder_position_cell(const struct plumb_decoder *decoder);

#ifdef __cplusplus
}
#endif
#endif
