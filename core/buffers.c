/* SPDX-License-Identifier: MIT */
#include "core/buffers.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "core/rope.h"
#include "core/splitmix.h"

enum { DEFAULT_CAPACITY = 4096, DEFAULT_PAGE = 64, DEFAULT_ROWS = 64, MAX_ROWS = 4096 };

/* 448 times it must be a number, or the largest code would be Inf. */
static int check_scale(const char *name, float *scale, struct plumb_error *err)
{
	if (*scale == 0.0f)
		*scale = 1.0f;
	if (!(*scale > 0.0f) || !(*scale * 448.0f <= FLT_MAX))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is %g, expected above 0 and at most %g", name, (double)*scale,
			(double)(FLT_MAX / 448.0f));
	return PLUMB_OK;
}

static int complete_formats(struct plumb_decoder_options *o, struct plumb_error *err)
{
	int status = check_scale("key_scale", &o->key_scale, err);

	if (!o->own_caches)
		o->caches = o->policy == PLUMB_POLICY_BF16 ? PLUMB_BF16 : PLUMB_F32;
	if (o->caches != PLUMB_F32 && o->caches != PLUMB_BF16 && o->caches != PLUMB_CACHE_FP8)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "caches are %s, expected f32, bf16 or fp8", plumb_format_name(o->caches));
	if ((unsigned)o->state >= PLUMB_PLAIN_FORMATS)
		return plumb_fail(err, PLUMB_BAD_INPUT, "the GDN state is %s, expected f32, f16 or bf16",
			plumb_format_name(o->state));
	return status == PLUMB_OK ? check_scale("value_scale", &o->value_scale, err) : status;
}

int plumb_options_complete(const struct plumb_config *cfg, struct plumb_decoder_options *o, struct plumb_error *err)
{
	int block = cfg->block_tokens;

	if (o->page_tokens == 0)
		o->page_tokens = (DEFAULT_PAGE + block - 1) / block * block;
	if (o->page_tokens < block || o->page_tokens % block != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"page_tokens is %d, expected a multiple of %d (indexer_compress_ratio)", o->page_tokens, block);
	if (o->max_rows == 0)
		o->max_rows = DEFAULT_ROWS;
	if (o->max_rows < 1 || o->max_rows > MAX_ROWS)
		return plumb_fail(err, PLUMB_BAD_INPUT, "max_rows is %d, expected 1..%d", o->max_rows, MAX_ROWS);
	if (o->capacity == 0)
		o->capacity = cfg->max_positions < DEFAULT_CAPACITY ? cfg->max_positions : DEFAULT_CAPACITY;
	if (o->capacity < 1 || o->capacity > cfg->max_positions)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"capacity is %lld tokens, expected 1..%lld (max_position_embeddings)", (long long)o->capacity,
			(long long)cfg->max_positions);
	o->capacity = (o->capacity + o->page_tokens - 1) / o->page_tokens * o->page_tokens;
	return complete_formats(o, err);
}

/* A list of allocations that are released together. */
struct pool {
	void **item;
	int count, room;
	bool failed;
	size_t wanted; /* bytes of the first allocation that failed */
};

/* Zeroed memory of count elements; NULL after a failure, which the pool remembers. */
static void *pool_take(struct pool *p, int64_t count, size_t size)
{
	if (p->failed)
		return NULL;
	if (p->count == p->room) {
		int room = p->room ? 2 * p->room : 64;
		void **item = realloc(p->item, (size_t)room * sizeof *item);
		if (!item) {
			p->failed = true;
			return NULL;
		}
		p->item = item;
		p->room = room;
	}
	/* calloc, so that large caches cost only the pages that are touched */
	void *m = count >= 0 && (uint64_t)count < SIZE_MAX / size ? calloc((size_t)count + !count, size) : NULL;
	if (!m) {
		p->failed = true;
		p->wanted = (size_t)count * size;
		return NULL;
	}
	p->item[p->count++] = m;
	return m;
}

static int pool_status(const struct pool *p, const char *what, struct plumb_error *err)
{
	if (!p->failed)
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s (one buffer of %zu bytes)", what, p->wanted);
}

static void pool_free(void **item, int count)
{
	for (int i = 0; i < count; i++)
		free(item[i]);
	free(item);
}

static struct plumb_cache make_cache(struct pool *p, enum plumb_format format, float scale, const int32_t *page,
	int64_t rows, int page_rows, int64_t width)
{
	struct plumb_cache c = {
		.format = format,
		.scale = scale,
		.page = page,
		.page_rows = page_rows,
		.width = (int32_t)width,
		.rows = rows,
	};
	c.data = pool_take(p, rows, plumb_format_row_bytes(format, width));
	return c;
}

int plumb_state_create(const struct plumb_config *cfg, const struct plumb_decoder_options *o, struct plumb_state *s,
	struct plumb_error *err)
{
	struct pool p = {0};
	int64_t P = o->capacity;
	enum plumb_format index = o->policy == PLUMB_POLICY_BF16 ? PLUMB_BF16 : PLUMB_F32;

	memset(s, 0, sizeof *s);
	s->layers = cfg->layers;
	s->layer = pool_take(&p, cfg->layers, sizeof *s->layer);
	s->rope = pool_take(&p, P * cfg->rotary_dim, sizeof *s->rope);
	s->page = pool_take(&p, P / o->page_tokens, sizeof *s->page);
	for (int l = 0; l < cfg->layers && !p.failed; l++) {
		struct plumb_layer_state *x = &s->layer[l];
		if (cfg->kind[l] == PLUMB_LAYER_GDN) {
			x->gdn.window = pool_take(&p, cfg->gdn_conv_taps * plumb_gdn_channels(cfg), sizeof(float));
			x->gdn.format = o->state;
			x->gdn.s = pool_take(&p, cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim,
				plumb_format_row_bytes(o->state, 1));
		} else {
			struct plumb_attention_state *a = &x->attention;
			int block = cfg->block_tokens;
			int64_t width = cfg->kv_heads * cfg->head_dim;
			a->keys = make_cache(&p, o->caches, o->key_scale, s->page, P, o->page_tokens, width);
			a->values = make_cache(&p, o->caches, o->value_scale, s->page, P, o->page_tokens, width);
			a->raw_keys = make_cache(&p, index, 1.0f, s->page, P, o->page_tokens, cfg->index_dim);
			a->block_keys =
				make_cache(&p, index, 1.0f, s->page, P / block, o->page_tokens / block, cfg->index_dim);
		}
		if (plumb_ple_of_layer(cfg, l) >= 0) {
			x->ple.window = pool_take(&p, cfg->hidden * cfg->streams * plumb_ple_history(cfg), sizeof(float));
			x->ple.history = pool_take(&p, cfg->ngram - 1, sizeof(int64_t));
		}
	}
	if (!p.failed)
		plumb_rope_table(cfg, o->policy, P, s->rope);
	s->block = p.item;
	s->blocks = p.count;
	return pool_status(&p, "decoder state", err);
}

/* A shuffle of pages needs no better generator. */
static uint64_t next_random(uint64_t *counter)
{
	uint64_t random = plumb_splitmix64(*counter);
	*counter += PLUMB_SPLITMIX_STEP;
	return random;
}

void plumb_state_reset(const struct plumb_config *cfg, const struct plumb_decoder_options *o, struct plumb_state *s)
{
	int64_t pages = o->capacity / o->page_tokens;
	uint64_t seed = o->page_seed;

	/* caches are left as they are: no row at or beyond the position is read before it is written */
	s->position = 0;
	for (int64_t i = 0; i < pages; i++)
		s->page[i] = (int32_t)i;
	for (int64_t i = pages - 1; i > 0 && o->page_seed; i--) {
		int64_t j = (int64_t)(next_random(&seed) % (uint64_t)(i + 1));
		int32_t t = s->page[i];
		s->page[i] = s->page[j];
		s->page[j] = t;
	}
	for (int l = 0; l < cfg->layers; l++) {
		struct plumb_layer_state *x = &s->layer[l];
		if (x->gdn.s) {
			memset(x->gdn.window, 0,
				(size_t)(cfg->gdn_conv_taps * plumb_gdn_channels(cfg)) * sizeof *x->gdn.window);
			memset(x->gdn.s, 0,
				(size_t)(cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim) *
					plumb_format_row_bytes(x->gdn.format, 1));
		}
		if (x->ple.window) {
			memset(x->ple.window, 0,
				(size_t)(cfg->hidden * cfg->streams * plumb_ple_history(cfg)) * sizeof *x->ple.window);
			for (int i = 0; i < cfg->ngram - 1; i++)
				x->ple.history[i] = cfg->eos;
		}
	}
}

void plumb_state_free(struct plumb_state *s)
{
	pool_free(s->block, s->blocks);
	memset(s, 0, sizeof *s);
}

int plumb_activations_create(const struct plumb_config *cfg, const struct plumb_decoder_options *o,
	struct plumb_activations *a, struct plumb_error *err)
{
	struct pool p = {0};
	int64_t T = o->max_rows, D = cfg->hidden, S = cfg->streams;
	int64_t value = cfg->gdn_value_heads * cfg->gdn_value_dim, heads = cfg->q_heads * cfg->head_dim;
	int64_t kv = cfg->kv_heads * cfg->head_dim, A = cfg->experts_per_token;
	int64_t rows = o->all_logits ? T : 1;
	const struct {
		float **place;
		int64_t count;
	} floats[] = {
		{&a->residual, T * S * D},
		{&a->residual_next, T * S * D},
		{&a->normed, T * S * D},
		{&a->low, T * cfg->low_rank},
		{&a->inject_logits, T * S},
		{&a->mixed, T * D},
		{&a->injection, T * S},
		{&a->branch, T * D},
		{&a->ple_embedding, cfg->ple_count ? T * cfg->ple_dim : 0},
		{&a->ple_gated, cfg->ple_count ? T * S * D : 0},
		{&a->ple_conv_in, cfg->ple_count ? T * S * D : 0},
		{&a->ple_output, cfg->ple_count ? T * S * D : 0},
		{&a->gdn_qkv, T * plumb_gdn_channels(cfg)},
		{&a->gdn_z, T * value},
		{&a->gdn_b, T * cfg->gdn_value_heads},
		{&a->gdn_a, T * cfg->gdn_value_heads},
		{&a->gdn_y, T * plumb_gdn_channels(cfg)},
		{&a->gdn_o, T * value},
		{&a->gdn_gated, T * value},
		{&a->attn_qg, T * 2 * heads},
		{&a->attn_k, T * kv},
		{&a->attn_v, T * kv},
		{&a->attn_q, T * heads},
		{&a->attn_o, T * heads},
		{&a->attn_gated, T * heads},
		{&a->index_query, T * cfg->index_heads * cfg->index_dim},
		{&a->score, T * (o->capacity / cfg->block_tokens)},
		{&a->router_logits, T * cfg->experts},
		{&a->expert_weight, T * A},
		{&a->shared_weight, T},
		{&a->expert_hidden, T * A * cfg->expert_inner},
		{&a->shared_hidden, T * cfg->shared_inner},
		{&a->logits, rows * cfg->vocab},
	};
	const struct {
		float **place;
		int64_t count;
	} traces[] = {
		{&a->attn_q_normed, T * heads},
		{&a->attn_k_normed, T * kv},
		{&a->moe_routed, T * D},
		{&a->moe_shared, T * D},
	};

	memset(a, 0, sizeof *a);
	for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
		*floats[i].place = pool_take(&p, floats[i].count, sizeof(float));
	for (size_t i = 0; i < sizeof traces / sizeof traces[0] && o->traces; i++)
		*traces[i].place = pool_take(&p, traces[i].count, sizeof(float));
	a->token = pool_take(&p, T, sizeof *a->token);
	a->ple_row = pool_take(&p, cfg->ple_count ? T * plumb_ngram_heads(cfg) : 0, sizeof *a->ple_row);
	a->block = pool_take(&p, T * cfg->block_budget, sizeof *a->block);
	a->block_count = pool_take(&p, T, sizeof *a->block_count);
	a->expert = pool_take(&p, T * A, sizeof *a->expert);
	a->next = pool_take(&p, rows, sizeof *a->next);
	a->memory = p.item;
	a->memories = p.count;
	return pool_status(&p, "decoder activations", err);
}

void plumb_activations_free(struct plumb_activations *a)
{
	pool_free(a->memory, a->memories);
	memset(a, 0, sizeof *a);
}
