/* SPDX-License-Identifier: MIT */
/* Classes by sizes, positions and places. */
#include "core/numeric.h"
#include "tools/trial_class.h"
#include "tools/trial_private.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

void trial_shape_bf16(struct trial *c)
{
	if (c->with.policy < 0)
		c->env.policy = PLUMB_POLICY_BF16;
	if (c->op == PLUMB_ATTN_QK_ROPE && !c->with.kv && trial_may(c, TRIAL_OF_KV, PLUMB_CACHE_FP8))
		c->with.kv = 1 + PLUMB_CACHE_FP8;
	if (!c->with.state)
		c->with.state = trial_pick_format(c, TRIAL_OF_STATE, (const int64_t[]){PLUMB_BF16, PLUMB_F16}, 2);
	if (c->cfg.hidden < 40) /* sums must reach 256 */
		c->cfg.hidden = 40 + trial_random_below(&c->random, 40);
}

void trial_shape_scales(struct trial *c)
{
	static const int64_t formats[] = {PLUMB_NVFP4, PLUMB_NVFP4, PLUMB_FP8_ROW, PLUMB_FP8_BLOCK, PLUMB_FP8_TABLE};

	if (c->with.format < 0)
		c->with.format = trial_pick_format(c, TRIAL_OF_MATRICES, formats, COUNT(formats)) - 1;
	if (!c->with.kv && trial_may(c, TRIAL_OF_KV, PLUMB_CACHE_FP8))
		c->with.kv = 1 + PLUMB_CACHE_FP8;
	c->with.scales = 1 + (int)(trial_random_below(&c->random, 2) ? TRIAL_SCALES_ALTERNATING : TRIAL_SCALES_ALIKE);
}

void trial_shape_small(struct trial *c)
{
	struct plumb_config *f = &c->cfg;
	int64_t one = 1 + trial_random_below(&c->random, 2); /* 1 or 2 */

	c->T = 1;
	f->hidden = f->low_rank = f->vocab = one;
	f->streams = f->kv_heads = f->q_heads = f->index_heads = f->block_tokens = 1;
	f->head_dim = f->index_dim = f->rotary_dim = 2;
	f->block_budget = 1;
	f->gdn_key_heads = f->gdn_value_heads = 1;
	f->gdn_key_dim = f->gdn_value_dim = one;
	f->gdn_conv_taps = f->ple_conv_taps = (int)one;
	f->experts = one;
	f->experts_per_token = (int)(1 + trial_random_below(&c->random, one));
	f->expert_inner = f->shared_inner = one;
	f->ngram = 2;
	f->heads_per_ngram = 1;
	f->ple_dim = one;
	f->eos %= f->vocab;
	c->page_tokens = 1;
	c->env.capacity = 1 + trial_random_below(&c->random, 3);
	c->position = trial_random_below(&c->random, c->env.capacity);
}

void trial_shape_pages(struct trial *c)
{
	c->page_tokens = c->cfg.block_tokens;
	c->env.capacity = c->page_tokens * (40 + trial_random_below(&c->random, 100));
	c->position = trial_random_below(&c->random, c->env.capacity - c->T + 1);
}

/* Few heads, of few dims: what grows is the context. */
static void narrow(struct trial *c, int64_t most)
{
	struct plumb_config *f = &c->cfg;

	f->kv_heads = 1;
	f->q_heads = 1 + (int)trial_random_below(&c->random, 2);
	f->head_dim = 2 + trial_random_below(&c->random, most - 1);
	f->index_heads = 1 + (int)trial_random_below(&c->random, 2);
	f->index_dim = 2 + trial_random_below(&c->random, most - 1);
	f->rotary_dim = 2;
}

/* Tokens around tiles of 16, 32 and 64; the rest is small, for there are so many. */
void trial_shape_rows(struct trial *c)
{
	static const int64_t tokens[] = {15, 16, 17, 31, 32, 33, 48, 63, 64};
	struct plumb_config *f = &c->cfg;

	narrow(c, 8);
	c->T = trial_pick(c, tokens, (int64_t)(sizeof tokens / sizeof tokens[0]));
	f->hidden = 4 + trial_random_below(&c->random, 13);
	f->low_rank = 2 + trial_random_below(&c->random, 7);
	f->vocab = 9 + trial_random_below(&c->random, 24);
	f->eos %= f->vocab;
	f->gdn_key_heads = 1;
	f->gdn_value_heads = 1 + (int)trial_random_below(&c->random, 2);
	f->gdn_key_dim = f->gdn_value_dim = 2 + trial_random_below(&c->random, 7);
	f->experts = 5 + trial_random_below(&c->random, 8);
	f->experts_per_token = (int)(1 + trial_random_below(&c->random, 4));
	f->expert_inner = 3 + trial_random_below(&c->random, 8);
	f->shared_inner = 3 + trial_random_below(&c->random, 8);
	trial_place(c);
}

static void at_position(struct trial *c, int64_t position)
{
	const struct plumb_operand *o = plumb_operand_find(&plumb_ops[c->op], "rope");
	int64_t needed = position + c->T;

	c->position = position;
	c->env.capacity = (needed + c->page_tokens - 1) / c->page_tokens * c->page_tokens;
	if (trial_random_below(&c->random, 2) && !o) /* room behind it, where bait lies */
		c->env.capacity += c->page_tokens * (1 + trial_random_below(&c->random, 3));
}

void trial_shape_positions(struct trial *c)
{
	static const int64_t positions[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2047, 2048, 2049, 2050, 2051, 2052, 2053};
	int64_t position = trial_pick(c, positions, COUNT(positions));

	if (trial_random_below(&c->random, 4) == 0)
		position = 4 * trial_random_below(&c->random, 300) + trial_random_below(&c->random, 4);
	narrow(c, 24);
	c->cfg.block_tokens = trial_random_below(&c->random, 4) ? 4 : 1 + (int)trial_random_below(&c->random, 5);
	c->cfg.block_budget =
		trial_random_below(&c->random, 2) ? 2048 / c->cfg.block_tokens : 1 + trial_random_below(&c->random, 16);
	c->page_tokens = c->cfg.block_tokens * (1 + trial_random_below(&c->random, 16));
	at_position(c, position);
}

void trial_shape_far(struct trial *c)
{
	static const int64_t positions[] = {131071, 131072, 262143};

	narrow(c, 7);
	c->T = c->with.T ? c->with.T : 1;
	c->cfg.block_tokens = 4;
	c->cfg.block_budget = trial_random_below(&c->random, 2) ? 512 : 1 + trial_random_below(&c->random, 16);
	c->page_tokens = 64;
	at_position(c, trial_pick(c, positions, COUNT(positions)));
}

void trial_shape_offsets(struct trial *c)
{
	static const int64_t formats[] = {PLUMB_F32, PLUMB_BF16, PLUMB_FP8_TABLE};
	struct plumb_config *f = &c->cfg;

	c->with.far = true;
	if (c->op == PLUMB_EMBED || c->op == PLUMB_PLE_EMBED) {
		if (c->with.format < 0)
			c->with.format = trial_pick_format(c, TRIAL_OF_MATRICES, formats, COUNT(formats)) - 1;
		if (c->with.format < 0)
			c->with.format = PLUMB_F16; /* what is left of those that the class takes */
		f->hidden = 512 + trial_random_below(&c->random, 2100);
		f->vocab = (INT64_C(1) << 31) / f->hidden + 1 + trial_random_below(&c->random, 1000);
		f->streams = 1 + (int)trial_random_below(&c->random, 3);
		f->eos %= f->vocab;
		if (c->op == PLUMB_PLE_EMBED) { /* rows of about 32 values: twice 2^31 in all */
			f->ngram = 3;
			f->heads_per_ngram = 1 + (int)trial_random_below(&c->random, 2);
			f->ple_dim = plumb_ngram_heads(f) * (32 + trial_random_below(&c->random, 8));
			f->ngram_vocab_base = (INT64_C(1) << 32) / f->ple_dim;
			f->vocab = 248320;
			c->with.shards = 1;
		}
		return;
	}
	if (f->kv_heads * f->head_dim < 16)
		f->head_dim = 16 + trial_random_below(&c->random, 20);
	if (f->index_dim < 16)
		f->index_dim = 16 + trial_random_below(&c->random, 20);
	c->page_tokens = f->block_tokens * (1 + trial_random_below(&c->random, 4));
	c->env.capacity = c->page_tokens * (2 + trial_random_below(&c->random, 6));
	c->T = c->T < c->env.capacity ? c->T : 1;
	c->position = trial_random_below(&c->random, c->env.capacity - c->T + 1);
}
