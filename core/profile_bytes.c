/* SPDX-License-Identifier: MIT */
#include "core/profile_bytes.h"

#include <string.h>

#include "core/op.h"
#include "core/ops/ple.h"

/* The group of an operand; PLUMB_GROUP_COUNT: a vector. */
static enum plumb_group group_of(enum plumb_op op, const char *name)
{
	static const struct {
		enum plumb_op op;
		const char *name;
		enum plumb_group group;
	} table[] = {
		{PLUMB_EMBED, "table", PLUMB_GROUP_EMBED},
		{PLUMB_PLE_EMBED, "table", PLUMB_GROUP_NGRAM_TABLE},
		{PLUMB_PLE_GATE, "key_proj", PLUMB_GROUP_PLE},
		{PLUMB_PLE_GATE, "value_proj", PLUMB_GROUP_PLE},
		{PLUMB_HC_NORM_DOWN, "down", PLUMB_GROUP_HC},
		{PLUMB_HC_NORM_DOWN, "inject", PLUMB_GROUP_HC},
		{PLUMB_HC_UP_MIX, "up", PLUMB_GROUP_HC},
		{PLUMB_GDN_IN_PROJ, "w_qkv", PLUMB_GROUP_GDN},
		{PLUMB_GDN_IN_PROJ, "w_z", PLUMB_GROUP_GDN},
		{PLUMB_GDN_IN_PROJ, "w_b", PLUMB_GROUP_GDN_GATES},
		{PLUMB_GDN_IN_PROJ, "w_a", PLUMB_GROUP_GDN_GATES},
		{PLUMB_GDN_OUT_PROJ, "w", PLUMB_GROUP_GDN},
		{PLUMB_ATTN_IN_PROJ, "w_q", PLUMB_GROUP_ATTENTION},
		{PLUMB_ATTN_IN_PROJ, "w_k", PLUMB_GROUP_ATTENTION},
		{PLUMB_ATTN_IN_PROJ, "w_v", PLUMB_GROUP_ATTENTION},
		{PLUMB_ATTN_OUT_PROJ, "w", PLUMB_GROUP_ATTENTION},
		{PLUMB_QSA_PROJECT, "w", PLUMB_GROUP_INDEX},
		{PLUMB_MOE_ROUTER, "gate", PLUMB_GROUP_ROUTER},
		{PLUMB_MOE_ROUTER, "shared_gate", PLUMB_GROUP_ROUTER},
		{PLUMB_MOE_GATE_UP, "gate", PLUMB_GROUP_EXPERTS},
		{PLUMB_MOE_GATE_UP, "up", PLUMB_GROUP_EXPERTS},
		{PLUMB_MOE_GATE_UP, "shared_gate", PLUMB_GROUP_SHARED},
		{PLUMB_MOE_GATE_UP, "shared_up", PLUMB_GROUP_SHARED},
		{PLUMB_MOE_DOWN, "down", PLUMB_GROUP_EXPERTS},
		{PLUMB_MOE_DOWN, "shared_down", PLUMB_GROUP_SHARED},
		{PLUMB_LM_HEAD, "w", PLUMB_GROUP_LM_HEAD},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].op == op && strcmp(table[i].name, name) == 0)
			return table[i].group;
	return PLUMB_GROUP_COUNT;
}

/* Rows [0, rows) of a matrix in the group's format. */
static int64_t bytes_of(const struct plumb_profile *p, enum plumb_group group, int64_t rows, int64_t cols)
{
	bool keep = group == PLUMB_GROUP_COUNT || p->keep[group];
	struct plumb_weight w = {.format = keep ? PLUMB_BF16 : p->format[group], .rows = rows, .cols = cols};
	w.scale_format = plumb_profile_scale_format(w.format);
	return (int64_t)plumb_weight_bytes(&w);
}

/* One weight operand of one call. */
static int add(const struct plumb_config *cfg, const struct plumb_profile *p, enum plumb_op op,
	const struct plumb_operand *o, int module, struct plumb_profile_bytes *out, struct plumb_error *err)
{
	const struct plumb_extent one = {.T = 1, .capacity = 1};
	enum plumb_group group = group_of(op, o->name);
	struct plumb_bytes *sum = &out->group[group];
	struct plumb_ngram ngram;
	int64_t dim[8];
	int rank = plumb_shape_eval(o->shape, cfg, &one, dim);
	int64_t cols = dim[rank - 1], rows = dim[rank - 2], matrices = rank == 3 ? dim[0] : 1, read = matrices, read_rows;

	if (o->part == PLUMB_PART_HASHED) {
		int status = plumb_ngram_constants(cfg, module, &ngram, err);
		if (status)
			return status;
		matrices = read = 1;
		rows = ngram.rows;
	}
	read_rows = o->part == PLUMB_PART_HASHED ? plumb_ngram_heads(cfg) : o->part == PLUMB_PART_ROWS ? 1 : rows;
	if (o->part == PLUMB_PART_MATRICES)
		read = cfg->experts_per_token;
	sum->matrices += matrices;
	sum->resident += matrices * bytes_of(p, group, rows, cols);
	sum->token += read * bytes_of(p, group, read_rows, cols);
	return PLUMB_OK;
}

int plumb_profile_bytes(const struct plumb_config *cfg, const struct plumb_profile *profile,
	struct plumb_profile_bytes *out, struct plumb_error *err)
{
	int status = PLUMB_OK;

	memset(out, 0, sizeof *out);
	for (int layer = 0; layer <= cfg->layers; layer++) /* row L: what lies outside the layers */
		for (int op = 0; op < PLUMB_OP_COUNT; op++) {
			const struct plumb_op_info *info = &plumb_ops[op];
			bool hc = op == PLUMB_HC_NORM_DOWN || op == PLUMB_HC_UP_MIX, outside = layer == cfg->layers;
			if (!plumb_op_runs(cfg, (enum plumb_op)op, layer))
				continue;
			for (int site = 0; site < (hc && !outside ? 2 : 1); site++) /* before the mixer, before the MoE */
				for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
					const struct plumb_operand *o = &info->operand[i];
					if (o->role == PLUMB_WEIGHT &&
						!(o->optional && outside)) /* nothing follows the final mixer */
						status = add(cfg, profile, (enum plumb_op)op, o,
							plumb_ple_of_layer(cfg, layer), out, err);
				}
		}
	for (int g = 0; g <= PLUMB_GROUP_COUNT; g++) {
		out->all.matrices += out->group[g].matrices;
		out->all.resident += out->group[g].resident;
		out->all.token += out->group[g].token;
	}
	return status;
}

void plumb_release_config(struct plumb_config *out)
{
	plumb_config_parse(plumb_release_json, plumb_release_json_size, "built-in release.json", out, NULL);
}
