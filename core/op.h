/* SPDX-License-Identifier: MIT */
/* The op: the unit that is swapped, compared, timed and bisected.
 *
 * An op is called with an environment and a struct of arguments; core/ops/NAME.h holds the struct and the contract of
 * each. The table below describes every member of every argument struct, so that generic code (guards, digests, cases,
 * device copies, user kernels) needs to know no op by name. */
#ifndef PLUMB_CORE_OP_H
#define PLUMB_CORE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/config.h"
#include "core/status.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every op once, in the decoder's order. X(id, name): PLUMB_id is the enumerator; name is that of its argument struct
 * (struct plumb_name), its row in plumb_ops[], and the stem of its functions in every set (name_ref, name_twin, name_opt,
 * name_bound). What is made of the list: the enumeration, the declarations and the tables of the sets. */
#define PLUMB_EACH_OP(X)                                                                                                   \
	X(EMBED, embed)                                                                                                    \
	X(PLE_EMBED, ple_embed)                                                                                            \
	X(PLE_GATE, ple_gate)                                                                                              \
	X(PLE_CONV, ple_conv)                                                                                              \
	X(HC_NORM_DOWN, hc_norm_down)                                                                                      \
	X(HC_UP_MIX, hc_up_mix)                                                                                            \
	X(HC_INJECT, hc_inject)                                                                                            \
	X(GDN_IN_PROJ, gdn_in_proj)                                                                                        \
	X(GDN_CONV, gdn_conv)                                                                                              \
	X(GDN_RECURRENCE, gdn_recurrence)                                                                                  \
	X(GDN_NORM_GATE, gdn_norm_gate)                                                                                    \
	X(GDN_OUT_PROJ, gdn_out_proj)                                                                                      \
	X(ATTN_IN_PROJ, attn_in_proj)                                                                                      \
	X(ATTN_QK_ROPE, attn_qk_rope)                                                                                      \
	X(QSA_PROJECT, qsa_project)                                                                                        \
	X(QSA_SCORE, qsa_score)                                                                                            \
	X(QSA_SELECT, qsa_select)                                                                                          \
	X(ATTN_DECODE, attn_decode)                                                                                        \
	X(ATTN_GATE, attn_gate)                                                                                            \
	X(ATTN_OUT_PROJ, attn_out_proj)                                                                                    \
	X(MOE_ROUTER, moe_router)                                                                                          \
	X(MOE_GATE_UP, moe_gate_up)                                                                                        \
	X(MOE_DOWN, moe_down)                                                                                              \
	X(LM_HEAD, lm_head)                                                                                                \
	X(ARGMAX, argmax)

#define PLUMB_OP_ENUMERATOR(id, name) PLUMB_##id,
enum plumb_op { PLUMB_EACH_OP(PLUMB_OP_ENUMERATOR) PLUMB_OP_COUNT };

/* Where activations are rounded. */
enum plumb_policy {
	PLUMB_POLICY_F32,  /* nowhere (binary32 storage only) */
	PLUMB_POLICY_BF16, /* to bf16, nearest even, at exactly the points that model-spec.md writes as rne */
};

/* Which of equal values a top-k takes. */
enum plumb_ties {
	PLUMB_TIES_LOWER, /* larger value first, then lower index: the rule of both sets */
	PLUMB_TIES_TORCH, /* what torch.topk on the CPU does (libstdc++ introselect): golden files made by transformers */
};

enum plumb_role {
	PLUMB_IN,       /* read only */
	PLUMB_OUT,      /* written in full, never read */
	PLUMB_STATE,    /* read and partly written: caches and recurrent state */
	PLUMB_WEIGHT,   /* read only, belongs to the model */
	PLUMB_CONSTANT, /* read only, derived from the config (rope tables, hash constants) */
};

enum plumb_kind {
	PLUMB_KIND_F32,    /* pointer to float */
	PLUMB_KIND_I32,    /* pointer to int32_t */
	PLUMB_KIND_I64,    /* pointer to int64_t */
	PLUMB_KIND_WEIGHT, /* pointer to struct plumb_weight; shape is (N, K) */
	PLUMB_KIND_BANK,   /* pointer to an array of struct plumb_weight; first dimension of the shape is the count */
	PLUMB_KIND_CACHE,  /* pointer to struct plumb_cache; shape is (rows, width) */
	PLUMB_KIND_NGRAM,  /* pointer to struct plumb_ngram (core/ops/ple.h); shape is (Hg), of each of its arrays */
	PLUMB_KIND_STORED, /* pointer to an array of f32, f16 or bf16 values: the arguments say which, at .format */
};

/* Which part of a weight one call reads. */
enum plumb_part {
	PLUMB_PART_ALL,      /* everything */
	PLUMB_PART_ROWS,     /* the rows whose ids are in another operand, an input */
	PLUMB_PART_MATRICES, /* the matrices of the bank whose ids are in another operand, an input */
	PLUMB_PART_HASHED,   /* the rows of the n-gram table that token and history hash to */
};

struct plumb_operand {
	const char *name;
	enum plumb_role role;
	enum plumb_kind kind;
	size_t offset;         /* of the pointer in the argument struct */
	const char *shape;     /* letters of core/config.h, joined by '*' and '/', e.g. "T S*D"; 'n' = from the arguments */
	size_t count;          /* bank whose size no config fixes: offset of its int64_t number of matrices; else 0 */
	size_t format;         /* kind STORED: offset of its enum plumb_format in the argument struct; else 0 */
	bool optional;         /* the pointer may be NULL: the op skips it */
	bool trace;            /* an output nobody but the comparison needs: NULL in fast runs */
	enum plumb_part part;  /* of weights */
	const char *chosen_by; /* name of the operand, I32, that holds the ids; NULL unless part says so */
};

struct plumb_op_info {
	const char *name;  /* "gdn_recurrence" */
	const char *stage; /* "gdn" */
	const char *brief; /* one line */
	size_t args_size;  /* sizeof of the argument struct; its first member is int64_t T */
	const struct plumb_operand *operand;
	int operands;
};

/* The table of ops. */
extern const struct plumb_op_info plumb_ops[PLUMB_OP_COUNT];

/* Room for one op, or for several that are called as one (opt/user.h). */
enum {
	PLUMB_MAX_OPERANDS = 96,
	PLUMB_MAX_ARGS = 2048, /* bytes of the arguments */
};

/* T of an argument struct: rows of the call. */
static inline int64_t plumb_op_rows(const void *args)
{
	int64_t T;
	memcpy(&T, args, sizeof T);
	return T;
}

/* The pointer of an operand in an argument struct, and setting it. Whatever the operand's kind points to. */
static inline void *plumb_operand_get(const void *args, const struct plumb_operand *operand)
{
	void *pointer;
	memcpy(&pointer, (const char *)args + operand->offset, sizeof pointer);
	return pointer;
}
static inline void plumb_operand_set(void *args, const struct plumb_operand *operand, const void *pointer)
{
	memcpy((char *)args + operand->offset, &pointer, sizeof pointer);
}

/* Operand by name; NULL when the op has none of that name. */
const struct plumb_operand *plumb_operand_find(const struct plumb_op_info *info, const char *name);

/* The position of row 0 of a call, host pointers; -1: the op is not told. */
int64_t plumb_op_position(const struct plumb_op_info *info, const void *args);

/* Whether the operand is a plain array: F32, I32, I64 or STORED. */
bool plumb_operand_is_array(const struct plumb_operand *operand);

/* Of an array: how an element is stored in this call (f32 for integers, which have no format), and its bytes. */
enum plumb_format plumb_operand_format(const struct plumb_operand *operand, const void *args);
size_t plumb_operand_element(const struct plumb_operand *operand, const void *args);

/* Whether the operand holds numbers with a fraction in an array: F32 or STORED. */
bool plumb_operand_is_real(const struct plumb_operand *operand);

/* Whether a decoder of this config runs the op in the layer; layer L stands for what lies outside the layers. */
bool plumb_op_runs(const struct plumb_config *cfg, enum plumb_op op, int layer);

/* Matrices of a weight operand: of a bank as the config or the arguments say, else 1. */
int64_t plumb_operand_matrices(const struct plumb_config *cfg, const struct plumb_operand *operand, const void *args);

/* Tokens that a row of a cache operand stands for: those of a block, where rows are blocks, else 1. */
int64_t plumb_operand_row_tokens(const struct plumb_config *cfg, const struct plumb_operand *operand);

/* Rows of a cache operand, a cache of `rows` rows, that a call of T rows at a position writes: [*first, *limit). A position
 * below 0, which the op was not told: all. */
void plumb_operand_written_rows(const struct plumb_config *cfg, const struct plumb_operand *operand, int64_t rows,
	int64_t position, int64_t T, int64_t *first, int64_t *limit);

/* Op by name; PLUMB_OP_COUNT when there is none. */
enum plumb_op plumb_op_find(const char *name);

/* Sizes that no config fixes. */
struct plumb_extent {
	int64_t T;        /* rows of this call */
	int64_t capacity; /* P: positions of the caches */
};

/* Evaluate a shape string: dim receives up to 8 sizes.
 * Returns the rank, or -1 when a letter is unknown (a defect of the table, found by the tests). */
int plumb_shape_eval(const char *shape, const struct plumb_config *cfg, const struct plumb_extent *extent, int64_t dim[8]);

/* The letters of shapes: the name of number i, from 0 on; NULL past the last. */
const char *plumb_shape_letter(int i);

/* Number of elements of a shape. */
int64_t plumb_shape_count(const char *shape, const struct plumb_config *cfg, const struct plumb_extent *extent);

struct plumb_call;

/* What an op knows besides its arguments. */
struct plumb_env {
	const struct plumb_config *cfg;
	enum plumb_policy policy;
	enum plumb_ties ties;
	int64_t capacity; /* P */
	bool unrounded;   /* reference only: leave out the last rounding of each output (shows how near a value
	                            lies to a rounding boundary); the value written is then binary32, odd where inexact */
	uint64_t nudge;   /* reference only: 0, or a seed: what binary32 arithmetic leaves open is moved (ref/nudge.h) */
	struct plumb_error *err;       /* message of a failed call */
	void *device;                  /* of the set: stream, simt schedule, ...; NULL for ref */
	const struct plumb_call *call; /* of the decoder (core/decoder.h): layer, site, position; NULL outside of one */
};

/* An implementation of an op. args points at the op's argument struct.
 * Returns PLUMB_OK or a status with env->err set; outputs are then undefined. */
typedef int plumb_op_fn(const struct plumb_env *env, const void *args);

/* A set: one function an op. */
struct plumb_set {
	const char *name; /* "ref" or "opt" */
	plumb_op_fn *op[PLUMB_OP_COUNT];
	bool makes_weights; /* makes weights that are `made` in its own memory: the host's stay untouched */
};

#ifdef __cplusplus
}
#endif
#endif
