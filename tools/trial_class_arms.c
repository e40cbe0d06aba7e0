/* SPDX-License-Identifier: MIT */
/* Classes by the arms that kernels have: fast paths and the ends of their reach, which random sizes and addresses seldom
 * meet. A bank of twelve experts, each at an address that is aligned half of the time, never is. */
#include <math.h>

#include "tools/trial_class.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))
#define PICK(c, ...) trial_pick(c, (const int64_t[]){__VA_ARGS__}, COUNT(((const int64_t[]){__VA_ARGS__})))

#define PICK_FORMAT(c, ...)                                                                                                \
	trial_pick_format(c, TRIAL_OF_MATRICES, (const int64_t[]){__VA_ARGS__}, COUNT(((const int64_t[]){__VA_ARGS__})))

/* Formats that fast paths are for. */
static void choose_formats(struct trial *c)
{
	if (c->with.format >= 0 || trial_random_below(&c->random, 4) == 0)
		return;
	c->with.formats[0] = PICK_FORMAT(c, PLUMB_BF16, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_NVFP4);
	c->with.formats[1] = c->with.formats[2] = c->with.formats[0];
	if (trial_random_below(&c->random, 4) == 0)
		c->with.formats[2] = PICK_FORMAT(c, PLUMB_BF16, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_NVFP4);
	if (trial_random_below(&c->random, 2))
		c->with.formats[1] = PICK_FORMAT(c, PLUMB_BF16, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_NVFP4);
}

/* A shared expert in another quantised format than the routed ones: few such pairs have an arm, and the others must
 * not take it. */
static void choose_pairs(struct trial *c)
{
	if (c->with.format >= 0 || (c->op != PLUMB_MOE_GATE_UP && c->op != PLUMB_MOE_DOWN) ||
		trial_random_below(&c->random, 2))
		return;
	c->with.formats[0] = c->with.formats[2] = PICK_FORMAT(c, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_NVFP4, PLUMB_NVFP4);
	c->with.formats[1] = PICK_FORMAT(c, PLUMB_FP8_ROW, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_NVFP4);
}

void trial_shape_wide(struct trial *c)
{
	struct plumb_config *f = &c->cfg;

	c->with.aligned = true;
	choose_formats(c);
	choose_pairs(c);
	if (!c->with.scales)
		c->with.scales = 1 + (int)PICK(c, TRIAL_SCALES_MANY, TRIAL_SCALES_ALTERNATING);
	f->hidden = PICK(c, 8, 16, 24, 64, 120, 256, 264, 512, 520, 768, 776, 1024, 1544, 2560);
	f->streams = (int)PICK(c, 1, 2, 3, 4);
	while (f->streams > 1 && f->streams * f->hidden > 8192)
		f->streams--;
	f->low_rank = PICK(c, 8, 16, 40);
	f->vocab = PICK(c, 3, 8, 20, 33, 130);
	f->eos %= f->vocab;
	f->experts = c->op == PLUMB_MOE_ROUTER ? PICK(c, 3, 16, 60, 130, 300) : PICK(c, 3, 8, 12);
	f->experts_per_token = (int)(1 + trial_random_below(&c->random, f->experts < 16 ? f->experts : 16));
	f->expert_inner = PICK(c, 8, 16, 24, 40, 256, 264, 512);
	f->shared_inner = PICK(c, 8, 16, 24, 256, 520);
	if (c->op == PLUMB_HC_UP_MIX) {
		f->low_rank = PICK(c, 8, 256, 264, 320, 512);
		f->hidden = PICK(c, 8, 9, 40);
	}
	if (c->op == PLUMB_MOE_DOWN)
		f->hidden = PICK(c, 1, 3, 5, 8, 40);
	if (f->hidden * f->expert_inner * f->experts_per_token > 200000) /* milliseconds, not seconds */
		f->expert_inner = 8;
	if (f->hidden * f->shared_inner > 200000)
		f->shared_inner = 16;
	if (c->T > 2 && !c->with.T)
		c->T = 2;
}

/* One format that a fast path is for, in all matrices (the router's: bf16); the shared expert's may be bf16, or FP8
 * beside NVFP4. */
static void choose_fast_formats(struct trial *c)
{
	int format = c->op == PLUMB_MOE_ROUTER ? 1 + PLUMB_BF16
	                                       : PICK_FORMAT(c, PLUMB_BF16, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_NVFP4);

	c->with.aligned = true;
	if (c->with.format >= 0)
		return;
	if (c->op == PLUMB_MOE_ROUTER && !trial_may(c, TRIAL_OF_MATRICES, PLUMB_BF16))
		format = 0;
	c->with.formats[0] = c->with.formats[2] = format;
	int other = format == 1 + PLUMB_NVFP4 && trial_random_below(&c->random, 2) ? PLUMB_FP8_ROW : PLUMB_BF16;
	bool same = trial_random_below(&c->random, 4) || !trial_may(c, TRIAL_OF_MATRICES, (enum plumb_format)other);
	c->with.formats[1] = same ? format : 1 + other;
}

/* A count of outputs, prime to 2, 3 and 5: whole warps and blocks of several never hold it, the last one is not full. */
static int64_t ragged(struct trial *c)
{
	return PICK(c, 7, 11, 13, 17, 23, 29, 31, 37, 49, 77);
}

/* Whole rows that fast arms take; of ops that join several matrices the sum of their rows is no multiple of 4. */
void trial_shape_ragged(struct trial *c)
{
	struct plumb_config *f = &c->cfg;
	const int64_t cols = PICK(c, 8, 64, 256, 264, 520, 768);
	const bool out = c->op == PLUMB_GDN_OUT_PROJ || c->op == PLUMB_ATTN_OUT_PROJ;
	const bool rows = out || c->op == PLUMB_HC_UP_MIX || c->op == PLUMB_PLE_GATE || c->op == PLUMB_MOE_DOWN;

	choose_fast_formats(c);
	f->streams = (int)(c->op == PLUMB_HC_UP_MIX ? PICK(c, 1, 2, 3, 4) : PICK(c, 2, 4));
	f->hidden = rows ? ragged(c) : cols;
	f->low_rank = c->op == PLUMB_HC_UP_MIX ? PICK(c, 8, 256, 320, 512) : ragged(c);
	f->vocab = ragged(c);
	f->eos %= f->vocab;
	f->gdn_key_heads = 1;
	f->gdn_value_heads = out ? 1 : (int)PICK(c, 1, 3);
	f->gdn_key_dim = c->op == PLUMB_GDN_RECURRENCE ? PICK(c, 4, 128, 256) : ragged(c);
	f->gdn_value_dim = out ? cols : ragged(c);
	f->kv_heads = 1;
	f->q_heads = out ? 1 : (int)PICK(c, 2, 4);
	f->head_dim = out ? cols : ragged(c);
	f->index_heads = (int)PICK(c, 2, 4);
	f->index_dim = ragged(c);
	f->rotary_dim = 2;
	f->ple_dim = INT64_C(8) * plumb_ngram_heads(f) * (1 + trial_random_below(&c->random, 4));
	f->experts = ragged(c) - 1; /* and one row for the shared gate */
	f->experts_per_token = (int)PICK(c, 1, 3, 5);
	f->expert_inner = c->op == PLUMB_MOE_DOWN ? cols : ragged(c);
	f->shared_inner = c->op == PLUMB_MOE_DOWN ? PICK(c, 8, 256, 520) : ragged(c);
}

/* In the arms of wide loads too, which a bank at random addresses never takes. */
void trial_shape_bad_ids(struct trial *c)
{
	if (trial_random_below(&c->random, 2))
		trial_shape_ragged(c);
}

/* Two pieces are the same in either order: four, eight and sixteen are not. */
void trial_shape_pieces(struct trial *c)
{
	struct plumb_config *f = &c->cfg;
	const int64_t cols = PICK(c, 2048, 2560, 4096, 6144, 8200, 8200), few = 1 + trial_random_below(&c->random, 12);
	const bool down = c->op == PLUMB_MOE_DOWN || c->op == PLUMB_GDN_OUT_PROJ || c->op == PLUMB_ATTN_OUT_PROJ;
	const bool has_streams = c->op == PLUMB_HC_NORM_DOWN;

	c->with.aligned = trial_random_below(&c->random, 3) > 0;
	choose_formats(c);
	f->streams = has_streams ? (int)PICK(c, 1, 2, 4) : 1;
	f->hidden = down || c->op == PLUMB_HC_UP_MIX || c->op == PLUMB_PLE_GATE ? few : cols / f->streams / 8 * 8;
	f->low_rank = c->op == PLUMB_HC_UP_MIX ? PICK(c, 512, 520, 1024, 2048, 4096) : few;
	f->vocab = few;
	f->eos %= f->vocab;
	f->experts = 1 + trial_random_below(&c->random, 12);
	f->experts_per_token = (int)(1 + trial_random_below(&c->random, f->experts < 4 ? f->experts : 4));
	f->expert_inner = down ? cols : few;
	f->shared_inner = down ? PICK(c, 2, 512, 1024, 4096) : few;
	f->gdn_key_heads = 1;
	f->gdn_key_dim = 2;
	f->gdn_value_heads = c->op == PLUMB_GDN_OUT_PROJ ? 16 : 2;
	f->gdn_value_dim = c->op == PLUMB_GDN_OUT_PROJ ? cols / 16 : 3;
	f->kv_heads = 1;
	f->q_heads = c->op == PLUMB_ATTN_OUT_PROJ ? 16 : 2;
	f->head_dim = c->op == PLUMB_ATTN_OUT_PROJ ? cols / 16 : 4;
	f->index_heads = 2;
	f->index_dim = 4;
	f->rotary_dim = 2;
	if (c->op == PLUMB_PLE_GATE)
		f->ple_dim = plumb_ngram_heads(f) * (cols / plumb_ngram_heads(f));
}

/* More heads and streams than a pass takes, heads longer than the fast paths take. */
void trial_shape_heads(struct trial *c)
{
	struct plumb_config *f = &c->cfg;
	const bool projects = c->op == PLUMB_ATTN_IN_PROJ || c->op == PLUMB_ATTN_OUT_PROJ || c->op == PLUMB_QSA_PROJECT;

	c->with.aligned = trial_random_below(&c->random, 3) > 0;
	choose_formats(c);
	f->kv_heads = (int)PICK(c, 1, 2, 3);
	f->q_heads = f->kv_heads * (int)PICK(c, 4, 12, 13, 16, 17, 24, 33);
	f->head_dim = c->op == PLUMB_ATTN_IN_PROJ ? PICK(c, 4, 8) : PICK(c, 4, 5, 8, 16, 24, 64, 257, 264, 264, 272, 300);
	f->index_heads = (int)PICK(c, 3, 4, 5, 8, 9);
	f->index_dim = PICK(c, 4, 8, 16, 128, 129, 136, 200, 257, 264);
	f->rotary_dim =
		2 * (1 + trial_random_below(&c->random, (f->head_dim < f->index_dim ? f->head_dim : f->index_dim) / 2));
	f->hidden = projects ? PICK(c, 8, 16) : PICK(c, 8, 16, 24, 40, 100, 256);
	f->streams = (int)PICK(c, 3, 5, 6, 7, 16, 17, 18, 20);
	f->low_rank = c->op == PLUMB_HC_UP_MIX ? PICK(c, 8, 320, 520, 768) : PICK(c, 4, 8);
	f->gdn_key_heads = (int)PICK(c, 2, 3);
	f->gdn_value_heads = f->gdn_key_heads * (int)PICK(c, 2, 3);
	f->gdn_key_dim = PICK(c, 4, 8, 12, 128, 200, 256, 257, 260, 384);
	f->gdn_value_dim = PICK(c, 3, 4, 6, 16, 18, 129, 136);
	if (f->gdn_key_dim > 256 && trial_random_below(&c->random, 2)) { /* rows that are one more than whole blocks */
		f->gdn_key_heads = 3;
		f->gdn_value_heads = 9;
		f->gdn_value_dim = PICK(c, 1, 5, 13);
	}
	f->experts = PICK(c, 17, 40);
	f->experts_per_token = (int)PICK(c, 15, 16, 17);
	f->expert_inner = f->shared_inner = 8;
	f->ngram = 5;
	f->heads_per_ngram = 6;
	f->ple_dim = plumb_ngram_heads(f) * PICK(c, 3, 33, 40);
	if (c->op == PLUMB_PLE_GATE)
		f->hidden = 8;
}

/* More of what is chosen from than one round of loads takes: budgets above 2112 tokens and 96 tiles, 8192 blocks and more,
 * 4096 experts in long rows. */
void trial_shape_long(struct trial *c)
{
	struct plumb_config *f = &c->cfg;

	c->T = c->with.T ? c->with.T : 1;
	f->kv_heads = 1;
	f->q_heads = 2;
	f->head_dim = f->index_dim = 4;
	f->index_heads = 1;
	f->rotary_dim = 2;
	f->block_tokens = c->op == PLUMB_ATTN_DECODE && trial_random_below(&c->random, 2) ? 4 : 1;
	f->block_budget = c->op == PLUMB_ATTN_DECODE ? 3400 / f->block_tokens : PICK(c, 1, 100, 2048, 2048);
	c->page_tokens = INT64_C(64) * f->block_tokens;
	c->env.capacity = c->op == PLUMB_ATTN_DECODE ? 3584 : PICK(c, 4096, 8192, 9024, 20032, 66560, 69632);
	c->position = c->env.capacity - 1 - trial_random_below(&c->random, 64);
	if (c->position + c->T > c->env.capacity)
		c->position = c->env.capacity - c->T;
	c->with.aligned = true;
	choose_formats(c);
	if (c->op == PLUMB_MOE_ROUTER && c->with.format < 0 && trial_random_below(&c->random, 2) &&
		trial_may(c, TRIAL_OF_MATRICES, PLUMB_BF16))
		c->with.formats[0] = c->with.formats[1] = 1 + PLUMB_BF16;
	f->experts = 4500;
	f->experts_per_token = 10;
	f->hidden = PICK(c, 776, 792, 1024);
	f->vocab = PICK(c, 4097, 6000, 20000);
	f->eos %= f->vocab;
}

/* Scores of which no two need be alike, in half of the cases: what lies above the threshold is then counted, too. */
void trial_fill_long(struct trial *c)
{
	if (c->op != PLUMB_QSA_SELECT || trial_random_below(&c->random, 2))
		return;
	struct trial_operand *score = trial_operand(c, "score");
	for (int64_t i = 0; i < score->count; i++)
		trial_put(c, score, i, trial_random_float(&c->random, 0.0f, 1.0f));
}

void trial_shape_caches(struct trial *c)
{
	if (!c->with.caches)
		c->with.caches = 1 + (int)PICK(c, PLUMB_F32, PLUMB_F16, PLUMB_BF16, PLUMB_CACHE_FP8);
	if (trial_random_below(&c->random, 2)) { /* whole 8 columns, or not */
		c->cfg.head_dim = PICK(c, 8, 16, 24, 256);
		c->cfg.index_dim = PICK(c, 8, 16, 128);
		c->cfg.rotary_dim = PICK(c, 2, 4, 8);
	}
}

void trial_shape_skewed(struct trial *c)
{
	trial_shape_wide(c);
	c->with.skew = (size_t)PICK(c, 4, 8, 12);
	c->cfg.head_dim = PICK(c, 8, 16, 24);
	c->cfg.index_dim = PICK(c, 8, 16, 24);
	c->cfg.rotary_dim = 2;
	c->cfg.gdn_key_dim = PICK(c, 4, 8, 128);
}

void trial_shape_tiles(struct trial *c)
{
	c->cfg.block_tokens = 1;
	c->cfg.block_budget = 100 + trial_random_below(&c->random, 60);
	c->page_tokens = 16;
	c->env.capacity = 160;
	c->T = 1;
	c->position = 64 + trial_random_below(&c->random, 32);
	if (!c->with.kv && trial_may(c, TRIAL_OF_KV, PLUMB_F32)) /* which holds -Inf, as bf16 does */
		c->with.kv = 1 + PLUMB_F32;
}

/* Every token is chosen: entry i of the list is token i. Queries are above zero; keys of whole tiles are -Inf. */
void trial_fill_tiles(struct trial *c)
{
	struct trial_operand *q = trial_operand(c, "q"), *keys = trial_operand(c, "keys");
	int32_t *block = trial_data(c, "block"), *count = trial_data(c, "count");
	const int64_t n = c->position + 1, first = 32 * trial_random_below(&c->random, 3);
	const int64_t end = first + 32 * (1 + trial_random_below(&c->random, 2));

	for (int64_t i = 0; i < q->count; i++)
		trial_put(c, q, i, trial_random_float(&c->random, 0.25f, 1.0f));
	for (int64_t i = 0; i < c->cfg.block_budget; i++)
		block[i] = i < n ? (int32_t)i : -1;
	*count = (int32_t)n;
	for (int64_t i = first; i < end && i < n; i++)
		for (int64_t k = 0; k < keys->cache.width; k++)
			trial_put(c, keys, i * keys->cache.width + k, -INFINITY);
}

void trial_shape_vanishing(struct trial *c)
{
	trial_shape_wide(c);
	if (c->with.format < 0 && trial_may(c, TRIAL_OF_MATRICES, PLUMB_BF16))
		c->with.format = PLUMB_BF16;
	c->with.scales = 1 + TRIAL_SCALES_ALIKE;
	c->cfg.streams = 1;
	if (c->op != PLUMB_MOE_DOWN && c->op != PLUMB_HC_UP_MIX)
		c->cfg.hidden = PICK(c, 264, 520, 776, 1032);
}

/* Products of -2^-200: the sum of all is -0, and a +0 that joins it makes it +0. */
float trial_value_vanishing(struct trial *c, const struct trial_operand *o, int64_t i)
{
	(void)c;
	(void)i;
	return trial_class_role(o) == TRIAL_ON_MATRIX ? 0x1p-100f : -0x1p-100f;
}

/* So many rows that one is not cut into pieces, so long that the vector is staged in shared memory. */
void trial_shape_staged(struct trial *c)
{
	c->T = c->with.T ? c->with.T : 1;
	c->with.aligned = true;
	choose_formats(c);
	c->cfg.hidden = PICK(c, 1544, 1800);
	c->cfg.vocab = 8192 + trial_random_below(&c->random, 8);
}
