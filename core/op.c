/* SPDX-License-Identifier: MIT */
/* The table of ops, and the evaluation of its shape strings. */
#include "core/op.h"

#include <string.h>

#include "core/ops/attention.h"
#include "core/ops/embed.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "core/ops/qsa.h"

/* An operand of struct plumb_OP: member, role, kind, shape, then optional designated flags. */
#define OPERAND(op, member, role_, kind_, shape_, ...)                                                                     \
	{                                                                                                                  \
		.name = #member, .role = PLUMB_##role_, .kind = PLUMB_KIND_##kind_,                                        \
		.offset = offsetof(struct plumb_##op, member), .shape = shape_, __VA_ARGS__                                \
	}

static const struct plumb_operand embed_operands[] = {
	OPERAND(embed, token, IN, I32, "T", ),
	OPERAND(embed, table, WEIGHT, WEIGHT, "V D", .part = PLUMB_PART_ROWS, .chosen_by = "token"),
	OPERAND(embed, residual, OUT, F32, "T S D", ),
};

static const struct plumb_operand ple_embed_operands[] = {
	OPERAND(ple_embed, token, IN, I32, "T", ),
	OPERAND(ple_embed, history, STATE, I64, "G-1", ),
	OPERAND(ple_embed, ngram, CONSTANT, NGRAM, "Hg", ),
	OPERAND(ple_embed, table, WEIGHT, BANK, "n n De/Hg", .count = offsetof(struct plumb_ple_embed, shards),
		.part = PLUMB_PART_HASHED),
	OPERAND(ple_embed, row, OUT, I64, "T Hg", ),
	OPERAND(ple_embed, embedding, OUT, F32, "T De", ),
};

static const struct plumb_operand ple_gate_operands[] = {
	OPERAND(ple_gate, embedding, IN, F32, "T De", ),
	OPERAND(ple_gate, residual, IN, F32, "T S D", ),
	OPERAND(ple_gate, key_proj, WEIGHT, WEIGHT, "S*D De", ),
	OPERAND(ple_gate, value_proj, WEIGHT, WEIGHT, "D De", ),
	OPERAND(ple_gate, norm_key, WEIGHT, WEIGHT, "1 S*D", ),
	OPERAND(ple_gate, norm_query, WEIGHT, WEIGHT, "1 S*D", ),
	OPERAND(ple_gate, norm_conv, WEIGHT, WEIGHT, "1 S*D", ),
	OPERAND(ple_gate, gated, OUT, F32, "T S D", ),
	OPERAND(ple_gate, conv_in, OUT, F32, "T S D", ),
};

static const struct plumb_operand ple_conv_operands[] = {
	OPERAND(ple_conv, position, IN, I32, "1", ),
	OPERAND(ple_conv, gated, IN, F32, "T S D", ),
	OPERAND(ple_conv, conv_in, IN, F32, "T S D", ),
	OPERAND(ple_conv, residual, IN, F32, "T S D", ),
	OPERAND(ple_conv, conv, WEIGHT, WEIGHT, "S*D Kp", ),
	OPERAND(ple_conv, window, STATE, F32, "W S*D", ),
	OPERAND(ple_conv, output, OUT, F32, "T S D", ),
	OPERAND(ple_conv, residual_out, OUT, F32, "T S D", ),
};

static const struct plumb_operand hc_norm_down_operands[] = {
	OPERAND(hc_norm_down, residual, IN, F32, "T S D", ),
	OPERAND(hc_norm_down, norm, WEIGHT, WEIGHT, "1 S*D", ),
	OPERAND(hc_norm_down, down, WEIGHT, WEIGHT, "R S*D", ),
	OPERAND(hc_norm_down, inject, WEIGHT, WEIGHT, "S S*D", .optional = true),
	OPERAND(hc_norm_down, normed, OUT, F32, "T S D", ),
	OPERAND(hc_norm_down, low, OUT, F32, "T R", ),
	OPERAND(hc_norm_down, inject_logits, OUT, F32, "T S", .optional = true),
};

static const struct plumb_operand hc_up_mix_operands[] = {
	OPERAND(hc_up_mix, normed, IN, F32, "T S D", ),
	OPERAND(hc_up_mix, low, IN, F32, "T R", ),
	OPERAND(hc_up_mix, inject_logits, IN, F32, "T S", .optional = true),
	OPERAND(hc_up_mix, up, WEIGHT, WEIGHT, "S*D R", ),
	OPERAND(hc_up_mix, mixed, OUT, F32, "T D", ),
	OPERAND(hc_up_mix, injection, OUT, F32, "T S", .optional = true),
};

static const struct plumb_operand hc_inject_operands[] = {
	OPERAND(hc_inject, residual, IN, F32, "T S D", ),
	OPERAND(hc_inject, branch, IN, F32, "T D", ),
	OPERAND(hc_inject, injection, IN, F32, "T S", ),
	OPERAND(hc_inject, residual_out, OUT, F32, "T S D", ),
};

static const struct plumb_operand gdn_in_proj_operands[] = {
	OPERAND(gdn_in_proj, x, IN, F32, "T D", ),
	OPERAND(gdn_in_proj, w_qkv, WEIGHT, WEIGHT, "C D", ),
	OPERAND(gdn_in_proj, w_z, WEIGHT, WEIGHT, "Hv*Dv D", ),
	OPERAND(gdn_in_proj, w_b, WEIGHT, WEIGHT, "Hv D", ),
	OPERAND(gdn_in_proj, w_a, WEIGHT, WEIGHT, "Hv D", ),
	OPERAND(gdn_in_proj, qkv, OUT, F32, "T C", ),
	OPERAND(gdn_in_proj, z, OUT, F32, "T Hv*Dv", ),
	OPERAND(gdn_in_proj, b, OUT, F32, "T Hv", ),
	OPERAND(gdn_in_proj, a, OUT, F32, "T Hv", ),
};

static const struct plumb_operand gdn_conv_operands[] = {
	OPERAND(gdn_conv, position, IN, I32, "1", ),
	OPERAND(gdn_conv, qkv, IN, F32, "T C", ),
	OPERAND(gdn_conv, conv, WEIGHT, WEIGHT, "C Kc", ),
	OPERAND(gdn_conv, window, STATE, F32, "Kc C", ),
	OPERAND(gdn_conv, y, OUT, F32, "T C", ),
};

static const struct plumb_operand gdn_recurrence_operands[] = {
	OPERAND(gdn_recurrence, y, IN, F32, "T C", ),
	OPERAND(gdn_recurrence, b, IN, F32, "T Hv", ),
	OPERAND(gdn_recurrence, a, IN, F32, "T Hv", ),
	OPERAND(gdn_recurrence, a_log, WEIGHT, WEIGHT, "1 Hv", ),
	OPERAND(gdn_recurrence, dt_bias, WEIGHT, WEIGHT, "1 Hv", ),
	OPERAND(gdn_recurrence, state, STATE, STORED, "Hv Dv Dk",
		.format = offsetof(struct plumb_gdn_recurrence, state_format)),
	OPERAND(gdn_recurrence, o, OUT, F32, "T Hv Dv", ),
};

static const struct plumb_operand gdn_norm_gate_operands[] = {
	OPERAND(gdn_norm_gate, o, IN, F32, "T Hv Dv", ),
	OPERAND(gdn_norm_gate, z, IN, F32, "T Hv*Dv", ),
	OPERAND(gdn_norm_gate, norm, WEIGHT, WEIGHT, "1 Dv", ),
	OPERAND(gdn_norm_gate, out, OUT, F32, "T Hv*Dv", ),
};

static const struct plumb_operand gdn_out_proj_operands[] = {
	OPERAND(gdn_out_proj, x, IN, F32, "T Hv*Dv", ),
	OPERAND(gdn_out_proj, w, WEIGHT, WEIGHT, "D Hv*Dv", ),
	OPERAND(gdn_out_proj, y, OUT, F32, "T D", ),
};

static const struct plumb_operand attn_in_proj_operands[] = {
	OPERAND(attn_in_proj, x, IN, F32, "T D", ),
	OPERAND(attn_in_proj, w_q, WEIGHT, WEIGHT, "Hq*2*Dh D", ),
	OPERAND(attn_in_proj, w_k, WEIGHT, WEIGHT, "Hkv*Dh D", ),
	OPERAND(attn_in_proj, w_v, WEIGHT, WEIGHT, "Hkv*Dh D", ),
	OPERAND(attn_in_proj, qg, OUT, F32, "T Hq 2 Dh", ),
	OPERAND(attn_in_proj, k, OUT, F32, "T Hkv Dh", ),
	OPERAND(attn_in_proj, v, OUT, F32, "T Hkv Dh", ),
};

static const struct plumb_operand attn_qk_rope_operands[] = {
	OPERAND(attn_qk_rope, position, IN, I32, "1", ),
	OPERAND(attn_qk_rope, qg, IN, F32, "T Hq 2 Dh", ),
	OPERAND(attn_qk_rope, k, IN, F32, "T Hkv Dh", ),
	OPERAND(attn_qk_rope, v, IN, F32, "T Hkv Dh", ),
	OPERAND(attn_qk_rope, rope, CONSTANT, F32, "P 2 Dr/2", ),
	OPERAND(attn_qk_rope, q_norm, WEIGHT, WEIGHT, "1 Dh", ),
	OPERAND(attn_qk_rope, k_norm, WEIGHT, WEIGHT, "1 Dh", ),
	OPERAND(attn_qk_rope, q, OUT, F32, "T Hq Dh", ),
	OPERAND(attn_qk_rope, keys, STATE, CACHE, "P Hkv*Dh", ),
	OPERAND(attn_qk_rope, values, STATE, CACHE, "P Hkv*Dh", ),
	OPERAND(attn_qk_rope, q_normed, OUT, F32, "T Hq Dh", .optional = true, .trace = true),
	OPERAND(attn_qk_rope, k_normed, OUT, F32, "T Hkv Dh", .optional = true, .trace = true),
};

static const struct plumb_operand qsa_project_operands[] = {
	OPERAND(qsa_project, position, IN, I32, "1", ),
	OPERAND(qsa_project, x, IN, F32, "T D", ),
	OPERAND(qsa_project, rope, CONSTANT, F32, "P 2 Dr/2", ),
	OPERAND(qsa_project, w, WEIGHT, WEIGHT, "Hi*Di+Di D", ),
	OPERAND(qsa_project, q_norm, WEIGHT, WEIGHT, "1 Di", ),
	OPERAND(qsa_project, k_norm, WEIGHT, WEIGHT, "1 Di", ),
	OPERAND(qsa_project, query, OUT, F32, "T Hi Di", ),
	OPERAND(qsa_project, raw_keys, STATE, CACHE, "P Di", ),
	OPERAND(qsa_project, block_keys, STATE, CACHE, "NB Di", ),
};

static const struct plumb_operand qsa_score_operands[] = {
	OPERAND(qsa_score, position, IN, I32, "1", ),
	OPERAND(qsa_score, query, IN, F32, "T Hi Di", ),
	OPERAND(qsa_score, block_keys, IN, CACHE, "NB Di", ),
	OPERAND(qsa_score, score, OUT, F32, "T NB", ),
};

static const struct plumb_operand qsa_select_operands[] = {
	OPERAND(qsa_select, position, IN, I32, "1", ),
	OPERAND(qsa_select, score, IN, F32, "T NB", ),
	OPERAND(qsa_select, block, OUT, I32, "T N", ),
	OPERAND(qsa_select, count, OUT, I32, "T", ),
};

static const struct plumb_operand attn_decode_operands[] = {
	OPERAND(attn_decode, position, IN, I32, "1", ),
	OPERAND(attn_decode, q, IN, F32, "T Hq Dh", ),
	OPERAND(attn_decode, keys, IN, CACHE, "P Hkv*Dh", ),
	OPERAND(attn_decode, values, IN, CACHE, "P Hkv*Dh", ),
	OPERAND(attn_decode, block, IN, I32, "T N", ),
	OPERAND(attn_decode, count, IN, I32, "T", ),
	OPERAND(attn_decode, o, OUT, F32, "T Hq Dh", ),
};

static const struct plumb_operand attn_gate_operands[] = {
	OPERAND(attn_gate, o, IN, F32, "T Hq Dh", ),
	OPERAND(attn_gate, qg, IN, F32, "T Hq 2 Dh", ),
	OPERAND(attn_gate, out, OUT, F32, "T Hq*Dh", ),
};

static const struct plumb_operand attn_out_proj_operands[] = {
	OPERAND(attn_out_proj, x, IN, F32, "T Hq*Dh", ),
	OPERAND(attn_out_proj, w, WEIGHT, WEIGHT, "D Hq*Dh", ),
	OPERAND(attn_out_proj, y, OUT, F32, "T D", ),
};

static const struct plumb_operand moe_router_operands[] = {
	OPERAND(moe_router, x, IN, F32, "T D", ),
	OPERAND(moe_router, gate, WEIGHT, WEIGHT, "E D", ),
	OPERAND(moe_router, shared_gate, WEIGHT, WEIGHT, "1 D", ),
	OPERAND(moe_router, logits, OUT, F32, "T E", ),
	OPERAND(moe_router, expert, OUT, I32, "T A", ),
	OPERAND(moe_router, weight, OUT, F32, "T A", ),
	OPERAND(moe_router, shared_weight, OUT, F32, "T", ),
};

static const struct plumb_operand moe_gate_up_operands[] = {
	OPERAND(moe_gate_up, x, IN, F32, "T D", ),
	OPERAND(moe_gate_up, expert, IN, I32, "T A", ),
	OPERAND(moe_gate_up, gate, WEIGHT, BANK, "E F D", .part = PLUMB_PART_MATRICES, .chosen_by = "expert"),
	OPERAND(moe_gate_up, up, WEIGHT, BANK, "E F D", .part = PLUMB_PART_MATRICES, .chosen_by = "expert"),
	OPERAND(moe_gate_up, shared_gate, WEIGHT, WEIGHT, "Fs D", ),
	OPERAND(moe_gate_up, shared_up, WEIGHT, WEIGHT, "Fs D", ),
	OPERAND(moe_gate_up, hidden, OUT, F32, "T A F", ),
	OPERAND(moe_gate_up, shared_hidden, OUT, F32, "T Fs", ),
};

static const struct plumb_operand moe_down_operands[] = {
	OPERAND(moe_down, hidden, IN, F32, "T A F", ),
	OPERAND(moe_down, shared_hidden, IN, F32, "T Fs", ),
	OPERAND(moe_down, expert, IN, I32, "T A", ),
	OPERAND(moe_down, weight, IN, F32, "T A", ),
	OPERAND(moe_down, shared_weight, IN, F32, "T", ),
	OPERAND(moe_down, down, WEIGHT, BANK, "E D F", .part = PLUMB_PART_MATRICES, .chosen_by = "expert"),
	OPERAND(moe_down, shared_down, WEIGHT, WEIGHT, "D Fs", ),
	OPERAND(moe_down, y, OUT, F32, "T D", ),
	OPERAND(moe_down, routed, OUT, F32, "T D", .optional = true, .trace = true),
	OPERAND(moe_down, shared, OUT, F32, "T D", .optional = true, .trace = true),
};

static const struct plumb_operand lm_head_operands[] = {
	OPERAND(lm_head, x, IN, F32, "T D", ),
	OPERAND(lm_head, w, WEIGHT, WEIGHT, "V D", ),
	OPERAND(lm_head, logits, OUT, F32, "T V", ),
};

static const struct plumb_operand argmax_operands[] = {
	OPERAND(argmax, logits, IN, F32, "T V", ),
	OPERAND(argmax, token, OUT, I32, "T", ),
};

#define OP(id, op, stage_, brief_)                                                                                         \
	[PLUMB_##id] = {#op, stage_, brief_, sizeof(struct plumb_##op), op##_operands,                                     \
		sizeof op##_operands / sizeof op##_operands[0]}

const struct plumb_op_info plumb_ops[PLUMB_OP_COUNT] = {
	OP(EMBED, embed, "embed", "embedding row, repeated over the streams"),
	OP(PLE_EMBED, ple_embed, "ple", "n-gram hash and gather"),
	OP(PLE_GATE, ple_gate, "ple", "key, value and query; gate; conv input"),
	OP(PLE_CONV, ple_conv, "ple", "dilated conv, sum into the residual"),
	OP(HC_NORM_DOWN, hc_norm_down, "hyper_connection", "stream norms, low-rank and injection logits"),
	OP(HC_UP_MIX, hc_up_mix, "hyper_connection", "gates, mixed input, injection weights"),
	OP(HC_INJECT, hc_inject, "hyper_connection", "branch output into the residual streams"),
	OP(GDN_IN_PROJ, gdn_in_proj, "gdn", "q, k, v, z, b, a projections"),
	OP(GDN_CONV, gdn_conv, "gdn", "causal depthwise conv and silu"),
	OP(GDN_RECURRENCE, gdn_recurrence, "gdn", "gated delta rule on the recurrent state"),
	OP(GDN_NORM_GATE, gdn_norm_gate, "gdn", "head norm and output gate"),
	OP(GDN_OUT_PROJ, gdn_out_proj, "gdn", "output projection"),
	OP(ATTN_IN_PROJ, attn_in_proj, "attention", "q, gate, k, v projections"),
	OP(ATTN_QK_ROPE, attn_qk_rope, "attention", "q and k norms, rope, cache append"),
	OP(QSA_PROJECT, qsa_project, "qsa", "index queries and keys, block keys"),
	OP(QSA_SCORE, qsa_score, "qsa", "block scores"),
	OP(QSA_SELECT, qsa_select, "qsa", "top blocks within the budget"),
	OP(ATTN_DECODE, attn_decode, "attention", "attention over the selected tokens"),
	OP(ATTN_GATE, attn_gate, "attention", "output gate"),
	OP(ATTN_OUT_PROJ, attn_out_proj, "attention", "output projection"),
	OP(MOE_ROUTER, moe_router, "moe", "router logits, top experts, weights"),
	OP(MOE_GATE_UP, moe_gate_up, "moe", "expert gate and up projections, silu product"),
	OP(MOE_DOWN, moe_down, "moe", "expert down projections, combine with shared expert"),
	OP(LM_HEAD, lm_head, "lm_head", "vocabulary logits"),
	OP(ARGMAX, argmax, "lm_head", "greedy token"),
};

const struct plumb_operand *plumb_operand_find(const struct plumb_op_info *info, const char *name)
{
	for (int i = 0; i < info->operands; i++)
		if (strcmp(info->operand[i].name, name) == 0)
			return &info->operand[i];
	return NULL;
}

int64_t plumb_op_position(const struct plumb_op_info *info, const void *args)
{
	const struct plumb_operand *o = plumb_operand_find(info, "position");
	const int32_t *cell = o ? plumb_operand_get(args, o) : NULL;
	return cell ? *cell : -1;
}

bool plumb_operand_is_real(const struct plumb_operand *o)
{
	return o->kind == PLUMB_KIND_F32 || o->kind == PLUMB_KIND_STORED;
}

bool plumb_operand_is_array(const struct plumb_operand *o)
{
	return plumb_operand_is_real(o) || o->kind == PLUMB_KIND_I32 || o->kind == PLUMB_KIND_I64;
}

enum plumb_format plumb_operand_format(const struct plumb_operand *o, const void *args)
{
	enum plumb_format format = PLUMB_F32;
	if (o->kind == PLUMB_KIND_STORED)
		memcpy(&format, (const char *)args + o->format, sizeof format);
	return format;
}

size_t plumb_operand_element(const struct plumb_operand *o, const void *args)
{
	if (o->kind == PLUMB_KIND_I64)
		return sizeof(int64_t);
	return plumb_format_row_bytes(plumb_operand_format(o, args), 1); /* an int32_t is as wide as an f32 */
}

bool plumb_op_runs(const struct plumb_config *cfg, enum plumb_op op, int layer)
{
	const char *stage = plumb_ops[op].stage;
	bool outside = layer == cfg->layers;

	if (strcmp(stage, "embed") == 0 || strcmp(stage, "lm_head") == 0)
		return outside;
	if (outside) /* the final mixer, which injects nothing */
		return op == PLUMB_HC_NORM_DOWN || op == PLUMB_HC_UP_MIX;
	if (strcmp(stage, "gdn") == 0)
		return cfg->kind[layer] == PLUMB_LAYER_GDN;
	if (strcmp(stage, "attention") == 0 || strcmp(stage, "qsa") == 0)
		return cfg->kind[layer] == PLUMB_LAYER_ATTENTION;
	if (strcmp(stage, "ple") == 0)
		return plumb_ple_of_layer(cfg, layer) >= 0;
	return true;
}

int64_t plumb_operand_matrices(const struct plumb_config *cfg, const struct plumb_operand *o, const void *args)
{
	const struct plumb_extent any = {.T = 1, .capacity = 1}; /* no count of matrices depends on them */
	int64_t dim[8] = {1}, count;

	if (o->kind != PLUMB_KIND_BANK)
		return 1;
	if (!o->count)
		return plumb_shape_eval(o->shape, cfg, &any, dim) > 0 ? dim[0] : 0;
	memcpy(&count, (const char *)args + o->count, sizeof count);
	return count;
}

int64_t plumb_operand_row_tokens(const struct plumb_config *cfg, const struct plumb_operand *o)
{
	return strncmp(o->shape, "NB", 2) == 0 ? cfg->block_tokens : 1;
}

void plumb_operand_written_rows(const struct plumb_config *cfg, const struct plumb_operand *o, int64_t rows,
	int64_t position, int64_t T, int64_t *first, int64_t *limit)
{
	int64_t tokens = plumb_operand_row_tokens(cfg, o);

	*first = position < 0 ? 0 : position / tokens;
	*limit = position < 0 ? rows : (position + T) / tokens;
	if (*limit > rows)
		*limit = rows;
}

enum plumb_op plumb_op_find(const char *name)
{
	int i = 0;
	while (i < PLUMB_OP_COUNT && strcmp(plumb_ops[i].name, name) != 0)
		i++;
	return (enum plumb_op)i;
}

/* Every letter with its value for config c and extent x. */
#define EACH_LETTER(X)                                                                                                     \
	X("T", x->T)                                                                                                       \
	X("P", x->capacity)                                                                                                \
	X("NB", x->capacity / c->block_tokens)                                                                             \
	X("D", c->hidden)                                                                                                  \
	X("S", c->streams)                                                                                                 \
	X("R", c->low_rank)                                                                                                \
	X("V", c->vocab)                                                                                                   \
	X("Hq", c->q_heads)                                                                                                \
	X("Hkv", c->kv_heads)                                                                                              \
	X("Dh", c->head_dim)                                                                                               \
	X("Dr", c->rotary_dim)                                                                                             \
	X("Hk", c->gdn_key_heads)                                                                                          \
	X("Hv", c->gdn_value_heads)                                                                                        \
	X("Dk", c->gdn_key_dim)                                                                                            \
	X("Dv", c->gdn_value_dim)                                                                                          \
	X("C", plumb_gdn_channels(c))                                                                                      \
	X("Kc", c->gdn_conv_taps)                                                                                          \
	X("E", c->experts)                                                                                                 \
	X("A", c->experts_per_token)                                                                                       \
	X("F", c->expert_inner)                                                                                            \
	X("Fs", c->shared_inner)                                                                                           \
	X("Hi", c->index_heads)                                                                                            \
	X("Di", c->index_dim)                                                                                              \
	X("B", c->block_tokens)                                                                                            \
	X("N", c->block_budget)                                                                                            \
	X("G", c->ngram)                                                                                                   \
	X("Hg", plumb_ngram_heads(c))                                                                                      \
	X("De", c->ple_dim)                                                                                                \
	X("Kp", c->ple_conv_taps)                                                                                          \
	X("W", plumb_ple_history(c))

const char *plumb_shape_letter(int i)
{
#define LETTER_NAME(name, value) name,
	static const char *const names[] = {EACH_LETTER(LETTER_NAME)};
	return i >= 0 && (size_t)i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

/* One letter group, or number, at *s; moves *s past it. -1: unknown. */
static int64_t letter_value(const char **s, const struct plumb_config *c, const struct plumb_extent *x)
{
#define LETTER_VALUE(name, value) value,
	const int64_t values[] = {EACH_LETTER(LETTER_VALUE)};
	const char *name, *text = *s;
	size_t n = strcspn(text, "*/+- ");
	int64_t value = 0;

	*s += n;
	if (n == 1 && text[0] == 'n') /* from the arguments */
		return 0;
	if (n > 0 && strspn(text, "0123456789") == n) {
		for (size_t i = 0; i < n; i++)
			value = value * 10 + (text[i] - '0');
		return value;
	}
	for (int i = 0; (name = plumb_shape_letter(i)); i++)
		if (strlen(name) == n && strncmp(text, name, n) == 0)
			return values[i];
	return -1;
}

int plumb_shape_eval(const char *shape, const struct plumb_config *cfg, const struct plumb_extent *extent, int64_t dim[8])
{
	int rank = 0;
	const char *s = shape;
	while (*s) {
		/* a sum of products: "Hi*Di+Di", "G-1", "De/Hg" */
		int64_t total = 0, product = letter_value(&s, cfg, extent), sign = 1;
		if (product < 0 || rank == 8)
			return -1;
		while (*s && *s != ' ') {
			char operation = *s++;
			int64_t v = letter_value(&s, cfg, extent);
			if (v < 0)
				return -1;
			if (operation == '*') {
				product *= v;
			} else if (operation == '/') {
				product = v ? product / v : 0;
			} else {
				total += sign * product;
				sign = operation == '-' ? -1 : 1;
				product = v;
			}
		}
		dim[rank++] = total + sign * product;
		while (*s == ' ')
			s++;
	}
	return rank;
}

int64_t plumb_shape_count(const char *shape, const struct plumb_config *cfg, const struct plumb_extent *extent)
{
	int64_t dim[8], count = 1;
	int rank = plumb_shape_eval(shape, cfg, extent, dim);
	if (rank < 0)
		return -1;
	for (int i = 0; i < rank; i++)
		count *= dim[i];
	return count;
}
