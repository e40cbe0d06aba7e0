/* SPDX-License-Identifier: MIT */
/* The table of classes. */
#include "tools/trial_class.h"

#include <string.h>

#define ACT TRIAL_ON_ACTIVATION
#define ALL (TRIAL_ON_ACTIVATION | TRIAL_ON_STATE | TRIAL_ON_CACHE | TRIAL_ON_MATRIX | TRIAL_ON_VECTOR)
#define TERMS (TRIAL_ON_ACTIVATION | TRIAL_ON_CACHE | TRIAL_ON_MATRIX)                          /* of products */
#define POSITIONS "attn_qk_rope attn_decode qsa_project qsa_score qsa_select gdn_conv ple_conv" /* ops that are told one */

static const struct trial_class classes[] = {
	{.name = "plain",
		.aim = "uniform values of ordinary size, sizes around lanes, warps and blocks",
		.faults = "F04 F07 F09 F14 F15 F22 F24 F25 F26 F30",
		.on = ALL},
	{.name = "heavy",
		.aim = "magnitudes over 40 binades: a small term next to a large one",
		.faults = "F11 F12 F14 F27",
		.on = TERMS,
		.value = trial_value_heavy},
	{.name = "integers",
		.aim = "small integers, every sum exact: a term dropped or taken twice is a whole number off",
		.faults = "F15 F22 F24 F25 F26",
		.on = TERMS | TRIAL_ON_STATE,
		.value = trial_value_integer,
		.any_format = true},
	{.name = "powers",
		.aim = "powers of two of either sign: a scale must shift bits exactly",
		.faults = "F14 F22",
		.on = TERMS | TRIAL_ON_STATE,
		.value = trial_value_power,
		.any_format = true},
	{.name = "ties",
		.aim = "equal scores 1, 31, 32, 33, 128, 256 or 1024 apart: across lanes, warps, blocks, pieces",
		.faults = "F01 F02 F27",
		.ops = "qsa_select argmax moe_router",
		.shape = trial_shape_ties,
		.fill = trial_fill_ties},
	{.name = "bin",
		.aim = "scores that are equal or differ in low bits only, as many as the budget, one less, one more",
		.faults = "F01 F02 F28",
		.ops = "qsa_select argmax",
		.shape = trial_shape_bin,
		.fill = trial_fill_bin},
	{.name = "zeros",
		.aim = "+0 and -0, alone or among numbers",
		.faults = "F02 F13 F22",
		.on = ALL,
		.value = trial_value_zero},
	{.name = "subnormal",
		.aim = "values below 2^-126: nothing may be flushed",
		.faults = "F12 F13 F23",
		.on = TERMS | TRIAL_ON_STATE,
		.value = trial_value_subnormal},
	{.name = "tiny",
		.aim = "magnitudes of 1e-4 to 1e-20: where an eps stands",
		.faults = "F13 F16",
		.on = ACT | TRIAL_ON_STATE | TRIAL_ON_CACHE,
		.value = trial_value_tiny},
	{.name = "huge",
		.aim = "magnitudes of 2^60 to 2^127: overflow at the same step as the twin",
		.faults = "F12 F14 F28",
		.on = ACT,
		.value = trial_value_huge,
		.bits = true,
		.overflows = true},
	{.name = "nan",
		.aim = "NaN at the first, middle or last place, or everywhere, of one operand",
		.faults = "F03 F02 F28",
		.on = ALL,
		.fill = trial_fill_nan},
	{.name = "inf",
		.aim = "Inf of either sign at the first, middle or last place, or everywhere, of one operand",
		.faults = "F03 F28",
		.on = ALL,
		.fill = trial_fill_inf,
		.bits = true},
	{.name = "onehot",
		.aim = "one 1 in each row: the result is a column of the weights",
		.faults = "F15 F18 F22 F24",
		.on = ACT | TRIAL_ON_STATE,
		.fill = trial_fill_onehot},
	{.name = "coordinates",
		.aim = "every element says its index: transposed, shifted or swapped parts show",
		.faults = "F07 F15 F16 F18 F22",
		.on = ALL,
		.value = trial_value_coordinate,
		.any_format = true},
	{.name = "cancellation",
		.aim = "terms that cancel but for a small rest: another order of a sum shows",
		.faults = "F11 F27",
		.on = TERMS,
		.fill = trial_fill_cancel},
	{.name = "midpoints",
		.aim = "results halfway between two values of bf16, f16 or e4m3: ties to even",
		.faults = "F11 F21 F23",
		.on = TERMS | TRIAL_ON_STATE,
		.shape = trial_shape_bf16,
		.value = trial_value_midpoint,
		.any_format = true,
		.fill = trial_fill_midpoint},
	{.name = "branch",
		.aim = "one input zero, or all but one: what is added or gated in the wrong place",
		.faults = "F17",
		.on = ACT,
		.ops = "hc_inject hc_up_mix ple_gate ple_conv gdn_norm_gate gdn_recurrence attn_gate moe_down",
		.fill = trial_fill_branch},
	{.name = "unit",
		.aim = "norm weights of 0, 1 and -1: 1 + w, or w",
		.faults = "F13",
		.on = TRIAL_ON_VECTOR,
		.ops = "hc_norm_down ple_gate attn_qk_rope qsa_project gdn_norm_gate",
		.fill = trial_fill_unit},
	{.name = "gates",
		.aim = "gate inputs of +-0, 20, 88, 89, 104 and -200: edges of exp, sigmoid, silu, softplus",
		.faults = "F12 F17",
		.ops = "hc_up_mix gdn_norm_gate gdn_recurrence gdn_conv ple_conv attn_gate moe_gate_up moe_router",
		.shape = trial_shape_gates,
		.fill = trial_fill_gates},
	{.name = "decay",
		.aim = "decay of 0, near 0, near 1 and 1, and a write strength of 0 and 1",
		.faults = "F11 F12",
		.ops = "gdn_recurrence",
		.fill = trial_fill_decay},
	{.name = "scales",
		.aim = "scales alike, alternating 1 : 64, or powers of two; keys and values of unequal scale",
		.faults = "F14 F22 F24",
		.on = TRIAL_ON_MATRIX | TRIAL_ON_CACHE,
		.ops = "embed ple_embed ple_gate hc_norm_down hc_up_mix gdn_in_proj gdn_out_proj attn_in_proj attn_qk_rope "
		       "qsa_project attn_decode attn_out_proj moe_router moe_gate_up moe_down lm_head",
		.shape = trial_shape_scales,
		.fill = trial_fill_powers_of_two},
	{.name = "experts",
		.aim = "all tokens to the same experts, to the first, to the last; the others without a token",
		.faults = "F28 F04",
		.ops = "moe_gate_up moe_down",
		.fill = trial_fill_experts},
	{.name = "badids",
		.aim = "expert ids of -1, E and beyond: NaN, and nothing read",
		.faults = "F03 F10",
		.ops = "moe_gate_up moe_down",
		.shape = trial_shape_bad_ids,
		.fill = trial_fill_bad_ids},
	{.name = "rope",
		.aim = "a rope table of three unequal positions (time, height, width), no two entries alike",
		.faults = "F16",
		.ops = "attn_qk_rope qsa_project",
		.fill = trial_fill_rope},
	{.name = "ngram",
		.aim = "EOS at each place of the window, token ids near 2^31",
		.faults = "F19",
		.ops = "ple_embed",
		.shape = trial_shape_ngram,
		.fill = trial_fill_ngram},
	{.name = "padding",
		.aim = "NaN, Inf or a winning value in everything that a call must not read",
		.faults = "F05 F06 F09 F10",
		.ops = "embed attn_qk_rope attn_decode qsa_project qsa_score qsa_select moe_gate_up moe_down",
		.fill = trial_fill_padding},
	{.name = "pages",
		.aim = "many small pages of caches, out of order",
		.faults = "F07 F10",
		.ops = "attn_qk_rope attn_decode qsa_project qsa_score",
		.shape = trial_shape_pages},
	{.name = "positions",
		.aim = "positions 0 to 9, 2047 to 2053 and around multiples of blocks and windows, budget 2048",
		.faults = "F05 F06 F18 F28",
		.ops = POSITIONS,
		.shape = trial_shape_positions},
	{.name = "far",
		.aim = "positions 131072 and 262143",
		.faults = "F04 F05 F16",
		.ops = POSITIONS,
		.shape = trial_shape_far},
	{.name = "offsets",
		.aim = "table rows and cache pages more than 2^31 elements, and bytes, from the first",
		.faults = "F08",
		.ops = "embed ple_embed attn_qk_rope attn_decode qsa_project qsa_score",
		.shape = trial_shape_offsets},
	{.name = "wide",
		.aim = "aligned matrices of the served formats, one for the shared expert: the arms of wide loads",
		.faults = "F24 F30 F26",
		.on = TRIAL_ON_MATRIX,
		.shape = trial_shape_wide},
	{.name = "ragged",
		.aim = "counts of outputs that no warp or block of several divides, in the arms of wide loads",
		.faults = "F24 F30",
		.ops = "ple_gate hc_norm_down hc_up_mix gdn_in_proj gdn_recurrence gdn_out_proj attn_in_proj qsa_project "
		       "attn_out_proj moe_router moe_gate_up moe_down lm_head",
		.shape = trial_shape_ragged},
	{.name = "pieces",
		.aim = "rows of 2048 to 8192 columns, few of them: 4, 8 and 16 pieces of a row",
		.faults = "F27 F28 F24",
		.on = TRIAL_ON_MATRIX,
		.shape = trial_shape_pieces},
	{.name = "heads",
		.aim = "more heads, streams and slots than a pass takes; heads longer than the fast arms",
		.faults = "F04 F30 F15",
		.ops = "attn_qk_rope attn_decode attn_gate qsa_project qsa_score hc_norm_down hc_up_mix hc_inject gdn_conv "
		       "gdn_recurrence gdn_norm_gate moe_gate_up moe_down ple_embed",
		.shape = trial_shape_heads},
	{.name = "long",
		.aim = "more tokens, blocks and experts than one round of loads takes: 96 tiles, 8192 and 65536 blocks",
		.faults = "F04 F01 F30",
		.ops = "attn_decode qsa_score qsa_select moe_router argmax",
		.shape = trial_shape_long,
		.fill = trial_fill_long},
	{.name = "caches",
		.aim = "caches of every format, f16 and fp8 in the indexer too; heads of whole 8 columns, and others",
		.faults = "F22 F14 F11",
		.ops = "attn_qk_rope attn_decode qsa_project qsa_score",
		.shape = trial_shape_caches,
		.bits = true},
	{.name = "skewed",
		.aim = "activations and states at addresses that are no multiple of 16, next to aligned matrices",
		.faults = "F30",
		.on = ACT,
		.shape = trial_shape_skewed},
	{.name = "vanishing",
		.aim = "products below the least subnormal, all of one sign: sums of -0",
		.faults = "F02 F24",
		.on = ACT | TRIAL_ON_MATRIX,
		.ops = "gdn_in_proj gdn_out_proj attn_in_proj attn_out_proj moe_router moe_gate_up moe_down lm_head",
		.shape = trial_shape_vanishing,
		.value = trial_value_vanishing,
		.bits = true},
	{.name = "staged",
		.aim = "8192 rows of 1544 columns and more: the arm that stages the vector in shared memory",
		.faults = "F24 F25",
		.ops = "lm_head",
		.shape = trial_shape_staged},
	{.name = "tiles",
		.aim = "scores of -Inf in whole tiles of attention, next to tiles of numbers",
		.faults = "F28",
		.ops = "attn_decode",
		.shape = trial_shape_tiles,
		.fill = trial_fill_tiles,
		.bits = true},
	{.name = "unranked",
		.aim = "a row each of -Inf alone, of -Inf among NaN, of NaN alone, of one number, the last, behind -Inf",
		.faults = "F03 F02",
		.ops = "qsa_select argmax moe_router",
		.shape = trial_shape_unranked,
		.fill = trial_fill_unranked,
		.bits = true,
		.named = true},
	{.name = "rows",
		.aim = "15 to 64 tokens in a call, of small sizes: tiles of tokens that are not full",
		.faults = "F24 F28",
		.on = ALL,
		.shape = trial_shape_rows,
		.named = true},
	{.name = "small",
		.aim = "every size 1, or as small as it may be",
		.faults = "F24 F28 F30",
		.on = ALL,
		.shape = trial_shape_small},
};

const struct trial_class *trial_class(int i)
{
	return i >= 0 && i < (int)(sizeof classes / sizeof classes[0]) ? &classes[i] : NULL;
}

const struct trial_class *trial_class_find(const char *name)
{
	for (int i = 0; trial_class(i); i++)
		if (strcmp(classes[i].name, name) == 0)
			return &classes[i];
	return NULL;
}

unsigned trial_class_role(const struct trial_operand *o)
{
	const char *name = o->info->name;

	switch (o->info->kind) {
	case PLUMB_KIND_F32:
		return o->info->role == PLUMB_IN ? TRIAL_ON_ACTIVATION : o->info->role == PLUMB_STATE ? TRIAL_ON_STATE : 0;
	case PLUMB_KIND_STORED:
		return TRIAL_ON_STATE;
	case PLUMB_KIND_CACHE:
		return TRIAL_ON_CACHE;
	case PLUMB_KIND_WEIGHT:
	case PLUMB_KIND_BANK:
		if (!trial_is_vector(o->info))
			return TRIAL_ON_MATRIX;
		return strcmp(name, "a_log") == 0 || strcmp(name, "dt_bias") == 0 ? 0 : TRIAL_ON_VECTOR;
	default:
		return 0;
	}
}

static bool is_listed(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *at = list; (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
			return true;
	return false;
}

bool trial_class_applies(const struct trial_class *class, enum plumb_op op)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	unsigned has = 0;

	if (class->ops)
		return is_listed(class->ops, info->name);
	if (class == classes)
		return true;
	for (int i = 0; i < info->operands; i++)
		has |= trial_class_role(&(struct trial_operand){.info = &info->operand[i]});
	return has & class->on;
}

bool trial_class_takes(const struct trial_class *class, enum plumb_op op, unsigned formats)
{
	const unsigned without_rows = 1u << PLUMB_F32 | 1u << PLUMB_F16 | 1u << PLUMB_BF16 | 1u << PLUMB_FP8_TABLE;

	/* of a table whose rows are far apart only the rows are memory, not their scales */
	return formats == 0 || class->shape != trial_shape_offsets || (op != PLUMB_EMBED && op != PLUMB_PLE_EMBED) ||
	       formats & without_rows;
}

void trial_class_fill(struct trial *c)
{
	const struct trial_class *class = c->class;

	for (int i = 0; class->value && i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		if (o->absent || !(trial_class_role(o) & class->on) || o->memory.sparse)
			continue;
		if (o->weight && o->weight[0].format >= (enum plumb_format)PLUMB_PLAIN_FORMATS) {
			if (!class->any_format)
				continue;
			trial_unscale(o);
		}
		for (int64_t k = 0; k < trial_elements(o); k++)
			trial_put(c, o, k, class->value(c, o, k));
	}
	if (class->fill)
		class->fill(c);
}
