/* SPDX-License-Identifier: MIT */
/* A profile: what of a model is held in which number format. A small JSON file, or one of those that ship
 * (golden/profiles/, compiled in). docs/profiles.md shows the file. */
#ifndef PLUMB_CORE_PROFILE_H
#define PLUMB_CORE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/model.h"
#include "core/status.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrices that are always held alike. Vectors (norms, convolutions, decay constants) belong to none: they stay as they
 * are stored, bf16 in a synthetic model. */
enum plumb_group {
	PLUMB_GROUP_EMBED,
	PLUMB_GROUP_NGRAM_TABLE,
	PLUMB_GROUP_PLE,       /* key_proj, value_proj */
	PLUMB_GROUP_HC,        /* down, up, inject of every site and of the final mixer */
	PLUMB_GROUP_GDN,       /* qkv, z, out */
	PLUMB_GROUP_GDN_GATES, /* b, a */
	PLUMB_GROUP_ATTENTION, /* q, k, v, out */
	PLUMB_GROUP_INDEX,     /* index_qk */
	PLUMB_GROUP_ROUTER,    /* router, shared_router */
	PLUMB_GROUP_EXPERTS,   /* gate, up, down of the routed experts */
	PLUMB_GROUP_SHARED,    /* of the shared expert */
	PLUMB_GROUP_LM_HEAD,
	PLUMB_GROUP_COUNT,
};

struct plumb_profile {
	char name[64];
	char description[160];                       /* one line; "" when the file has none */
	bool keep[PLUMB_GROUP_COUNT];                /* as the checkpoint has it; a synthetic model then takes bf16 */
	enum plumb_format format[PLUMB_GROUP_COUNT]; /* where not kept */
	bool keep_caches, keep_state;                /* as the policy says */
	enum plumb_format caches;                    /* keys and values: f32, bf16 or fp8 */
	enum plumb_format state;                     /* GDN state: f32 or f16 */
};

/* "experts" and the like, as in the JSON. */
const char *plumb_group_name(enum plumb_group group);

/* Whether matrices of a group can be held so: the embedding and the n-gram table, whose rows are looked up, in f32, f16,
 * bf16 or fp8_table; every other matrix in f32, f16, bf16, fp8_row, fp8_block or nvfp4. */
bool plumb_group_takes(enum plumb_group group, enum plumb_format format);

/* What the scales of a matrix are stored as, where a profile asks for fp8: bf16 for blocks, as the FP8 release has them,
 * else f32. */
enum plumb_format plumb_profile_scale_format(enum plumb_format format);

/* A profile by the name of one that ships, else by the path of a JSON file (a name with a '/' or that ends in .json).
 * Errors: PLUMB_BAD_INPUT naming file, field, value and what was expected; an unknown name lists those that ship. */
int plumb_profile_open(const char *name_or_path, struct plumb_profile *out, struct plumb_error *err);

/* The same from memory: size bytes of text; file: for messages. The name is that of the file without folder and .json,
 * cut to what fits, with '?' for what is no printable ASCII. */
int plumb_profile_parse(
	const char *text, size_t size, const char *file, struct plumb_profile *out, struct plumb_error *err);

/* Those that ship, as their files are, in the order of a list: number 0 on; NULL past the last. */
const char *plumb_profile_shipped(int number, const char **text, size_t *size);

/* Walk over every matrix of a model that belongs to a group, in the order of struct plumb_model. A bank is given matrix by
 * matrix. name: as a checkpoint names it, without prefix and ".weight", e.g. "layers.3.mlp.experts.17.gate_proj" (whether
 * the experts lie stacked or not); parts of an n-gram table are ".ngram_embedding.shard_0" on, a table of one part is
 * ".ngram_embedding". A status other than PLUMB_OK ends it. */
typedef int plumb_group_fn(void *self, enum plumb_group group, const char *name, struct plumb_weight *w);
int plumb_groups_walk(struct plumb_model *model, plumb_group_fn *fn, void *self);

/* The same over what belongs to no group, the vectors: group is PLUMB_GROUP_COUNT, name e.g.
 * "layers.3.self_attn.q_norm". */
int plumb_vectors_walk(struct plumb_model *model, plumb_group_fn *fn, void *self);

#ifdef __cplusplus
}
#endif
#endif
