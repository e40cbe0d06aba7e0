/* SPDX-License-Identifier: MIT */
#include "tools/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "tools/trial_private.h"

enum { WIDE = 16 }; /* bytes to which activations and state are aligned, and where wide loads are possible */

uint64_t trial_random_next(struct trial_random *r)
{
	uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

int64_t trial_random_below(struct trial_random *r, int64_t n)
{
	return (int64_t)(trial_random_next(r) % (uint64_t)n);
}

float trial_random_float(struct trial_random *r, float low, float high)
{
	return low + (high - low) * (float)(trial_random_next(r) >> 40) * 0x1p-24f;
}

bool trial_is_vector(const struct plumb_operand *info)
{
	const char *name = info->name;
	return info->role == PLUMB_WEIGHT &&
	       (strstr(name, "norm") || !strcmp(name, "conv") || !strcmp(name, "a_log") || !strcmp(name, "dt_bias"));
}

/* Which of with.formats a matrix has. */
static int format_slot(const char *name)
{
	static const struct {
		const char *name;
		int slot;
	} others[] = {{"shared_gate", 1}, {"shared_up", 1}, {"shared_down", 1}, {"w_b", 1}, {"w_a", 1}, {"up", 2},
		{"w_z", 2}, {"w_k", 2}};

	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (strcmp(name, others[i].name) == 0)
			return others[i].slot;
	return 0;
}

bool trial_may(const struct trial *c, enum trial_formats whose, enum plumb_format format)
{
	return !c->with.among[whose] || c->with.among[whose] >> format & 1;
}

/* One of the formats below a number that the case may have; of any, if it may have none of them. */
static int random_format(struct trial *c, enum trial_formats whose, int choices)
{
	int may[PLUMB_FORMAT_COUNT], n = 0;

	for (int i = 0; i < choices; i++)
		if (trial_may(c, whose, (enum plumb_format)i))
			may[n++] = i;
	return n ? may[trial_random_below(&c->random, n)] : (int)trial_random_below(&c->random, choices);
}

/* Formats of the operand's matrices and of their scales. */
static void choose_formats(struct trial *c, const struct trial_operand *o, int format, struct plumb_weight *w)
{
	int choices = trial_is_vector(o->info) ? PLUMB_PLAIN_FORMATS : PLUMB_FORMAT_COUNT;

	if (format < 0 && !trial_is_vector(o->info))
		format = c->with.formats[format_slot(o->info->name)] - 1;
	if (format < 0 || format >= choices)
		format = random_format(c, TRIAL_OF_MATRICES, choices);
	w->format = (enum plumb_format)format;
	if (w->format == PLUMB_FP8_ROW || w->format == PLUMB_FP8_BLOCK)
		w->scale_format = trial_random_below(&c->random, 2) ? PLUMB_BF16 : PLUMB_F32;
}

/* Where the next of some arrays lies, *at bytes on: a gap or none; often an address where wide loads are possible. */
static size_t place_next(struct trial *c, size_t unit, size_t bytes, size_t *at)
{
	size_t start = *at + unit * (size_t)(trial_random_below(&c->random, 2) ? trial_random_below(&c->random, 9) : 0);

	if (trial_random_below(&c->random, 2) || c->with.aligned)
		start = (start + WIDE - 1) / WIDE * WIDE;
	*at = start + bytes;
	return start;
}

/* A number of the seed and the operand, without one from the case's sequence. */
static uint64_t turn_of(const struct trial *c, const struct trial_operand *o)
{
	struct trial_random r = {c->seed * TRIAL_OPERANDS + (uint64_t)(o - c->operand)};
	return trial_random_next(&r) >> 32;
}

static void make_memory(const struct trial *c, const struct trial_operand *o, struct trial_memory *m, size_t bytes,
	struct trial_layout layout)
{
	layout.name = o->info->name;
	layout.turn = turn_of(c, o);
	trial_memory_make(m, bytes, &layout);
}

/* Matrices in one block, with gaps, each at any address its elements may have; their scales in another, likewise. */
static void make_matrices(struct trial *c, struct trial_operand *o)
{
	bool bank = o->info->kind == PLUMB_KIND_BANK;
	int64_t rows = o->dim[bank], cols = o->dim[bank + 1], total = 0;
	struct plumb_weight like = {.cols = cols};
	size_t at = 0, scale_at = 0;

	o->matrices = bank ? o->dim[0] : 1;
	if (o->info->count) { /* the n-gram table, cut into shards of equal rows but for the last */
		int64_t shards = 1 + trial_random_below(&c->random, 4);
		shards = c->with.shards ? c->with.shards : shards;
		total = o->ngram.rows;
		rows = (total + shards - 1) / shards;
		o->matrices = (total + rows - 1) / rows;
	}
	o->weight = trial_take((size_t)o->matrices * sizeof *o->weight);
	size_t(*start)[2] = trial_take((size_t)o->matrices * sizeof *start);
	choose_formats(c, o, c->with.format, &like);
	size_t unit = plumb_format_row_bytes(like.format, 1);
	size_t scale_unit = like.format == PLUMB_NVFP4 ? 1 : plumb_format_row_bytes(like.scale_format, 1);
	for (int64_t i = 0; i < o->matrices; i++) {
		struct plumb_weight *w = &o->weight[i];
		*w = like;
		w->rows = total && i == o->matrices - 1 ? total - i * rows : rows;
		start[i][0] = place_next(c, unit, plumb_weight_data_bytes(w), &at);
		if (plumb_weight_scale_bytes(w) > 0)
			start[i][1] = place_next(c, scale_unit, plumb_weight_scale_bytes(w), &scale_at);
	}
	bool table = o->info->part == PLUMB_PART_ROWS || o->info->part == PLUMB_PART_HASHED;
	/* weights are aligned to one value, no more: the last then touches what traps without a gap */
	size_t align = c->with.aligned || (turn_of(c, o) / 4) % 2 ? WIDE : 1;
	make_memory(
		c, o, &o->memory, at, (struct trial_layout){.part = "", .align = align, .sparse = c->with.far && table});
	if (scale_at > 0)
		make_memory(c, o, &o->scale, scale_at, (struct trial_layout){.part = "the scales of ", .align = align});
	for (int64_t i = 0; i < o->matrices; i++) {
		o->weight[i].data = o->memory.data + start[i][0];
		o->weight[i].scale = scale_at > 0 ? o->scale.data + start[i][1] : NULL;
	}
	free(start);
}

/* Keys and values have a format of their own, the caches of the indexer that of the policy. */
static enum plumb_format cache_format(struct trial *c, const struct trial_operand *o)
{
	static const enum plumb_format formats[] = {PLUMB_F32, PLUMB_BF16, PLUMB_CACHE_FP8, PLUMB_CACHE_FP8};
	bool own = strcmp(o->info->name, "keys") == 0 || strcmp(o->info->name, "values") == 0;

	if (own && c->with.kv)
		return (enum plumb_format)(c->with.kv - 1);
	if (own && c->with.among[TRIAL_OF_KV])
		return (enum plumb_format)random_format(c, TRIAL_OF_KV, PLUMB_FORMAT_COUNT);
	if (c->with.caches)
		return (enum plumb_format)(c->with.caches - 1);
	if (own && !c->with.plain && trial_random_below(&c->random, 3))
		return formats[trial_random_below(&c->random, 4)];
	return c->env.policy == PLUMB_POLICY_BF16 ? PLUMB_BF16 : PLUMB_F32;
}

/* Pages more than 2^31 elements apart in all, so that offsets into them pass 2^31 bytes, and elements. */
static void spread_pages(struct trial_operand *o, int32_t *page, int64_t pages)
{
	int64_t elements = (int64_t)o->cache.page_rows * o->cache.width, far = (INT64_C(1) << 31) / elements + 2;
	size_t page_bytes = (size_t)o->cache.page_rows * plumb_format_row_bytes(o->cache.format, o->cache.width);

	for (int64_t i = 0; i < pages; i++) {
		page[i] = (int32_t)(pages == 1 ? far : far * page[i] / (pages - 1));
		trial_memory_add(&o->memory, (size_t)page[i] * page_bytes, page_bytes);
	}
}

static void make_cache(struct trial *c, struct trial_operand *o)
{
	int64_t rows = o->dim[0], page_rows = c->page_tokens * rows / c->env.capacity, pages = rows / page_rows;
	size_t row_bytes;
	int32_t *page;

	o->cache = (struct plumb_cache){
		.format = cache_format(c, o),
		.scale = 1.0f,
		.page_rows = (int32_t)page_rows,
		.width = (int32_t)o->dim[1],
		.rows = rows,
	};
	if (o->cache.format == PLUMB_CACHE_FP8 && trial_random_below(&c->random, 2))
		o->cache.scale =
			trial_random_float(&c->random, 0x1p-10f, 0.25f); /* no power of two: products are rounded */
	row_bytes = plumb_format_row_bytes(o->cache.format, o->cache.width);
	int64_t physical = c->with.far ? ((INT64_C(1) << 31) / (page_rows * o->cache.width) + 3) * page_rows : rows;
	make_memory(c, o, &o->memory, (size_t)physical * row_bytes,
		(struct trial_layout){.part = "",
			.element = plumb_format_row_bytes(o->cache.format, 1),
			.align = WIDE,
			.sparse = c->with.far});
	make_memory(c, o, &o->page, (size_t)pages * sizeof *page,
		(struct trial_layout){.part = "the page table of ", .element = sizeof *page, .align = sizeof *page});
	o->cache.data = o->memory.data;
	o->cache.page = page = (int32_t *)(void *)o->page.data;
	/* the same permutation for every cache of the case: they share a table in a decoder */
	struct trial_random shuffle = {c->seed};
	for (int32_t i = 0; i < pages; i++) {
		int32_t j = (int32_t)trial_random_below(&shuffle, i + 1);
		page[i] = page[j];
		page[j] = i;
	}
	if (c->with.far)
		spread_pages(o, page, pages);
}

static void make_operand(struct trial *c, struct trial_operand *o)
{
	const struct plumb_operand *info = o->info;
	struct plumb_extent extent = {c->T, c->env.capacity};
	void *pointer = NULL;
	size_t bytes, skew;

	o->rank = plumb_shape_eval(info->shape, &c->cfg, &extent, o->dim);
	o->count = 1;
	for (int i = 0; i < o->rank; i++)
		o->count *= o->dim[i];
	if (!o->absent)
		switch (info->kind) {
		case PLUMB_KIND_F32:
		case PLUMB_KIND_I32:
		case PLUMB_KIND_I64:
		case PLUMB_KIND_STORED:
			if (info->kind == PLUMB_KIND_STORED &&
				!c->with.plain) { /* any format: f32 as often as the others */
				o->format = (enum plumb_format)(trial_random_below(&c->random, 2) *
								trial_random_below(&c->random, PLUMB_PLAIN_FORMATS));
				if (!c->with.state && c->with.among[TRIAL_OF_STATE])
					o->format =
						(enum plumb_format)random_format(c, TRIAL_OF_STATE, PLUMB_PLAIN_FORMATS);
				if (c->with.state)
					o->format = (enum plumb_format)(c->with.state - 1);
				memcpy((unsigned char *)c->args + info->format, &o->format, sizeof o->format);
			}
			bytes = (size_t)o->count * plumb_operand_element(info, c->args);
			skew = info->kind == PLUMB_KIND_F32 || info->kind == PLUMB_KIND_STORED ? c->with.skew : 0;
			make_memory(c, o, &o->memory, bytes,
				(struct trial_layout){.part = "",
					.element = plumb_operand_element(info, c->args),
					.align = WIDE,
					.skew = skew});
			pointer = o->memory.data;
			break;
		case PLUMB_KIND_WEIGHT:
		case PLUMB_KIND_BANK:
			if (info->count && plumb_ngram_constants(&c->cfg, 0, &o->ngram, &c->error) != PLUMB_OK)
				abort();
			make_matrices(c, o);
			pointer = o->weight;
			break;
		case PLUMB_KIND_CACHE:
			make_cache(c, o);
			pointer = &o->cache;
			break;
		case PLUMB_KIND_NGRAM:
			if (plumb_ngram_constants(&c->cfg, 0, &o->ngram, &c->error) != PLUMB_OK)
				abort();
			pointer = &o->ngram;
			break;
		}
	memcpy((unsigned char *)c->args + info->offset, &pointer, sizeof pointer);
	if (info->count) {
		struct plumb_ple_embed *a = c->args; /* the one op whose shapes no config fixes */
		a->shards = o->matrices;
		a->shard_rows = o->weight[0].rows;
	}
}

void trial_place(struct trial *c)
{
	if (c->T > c->env.capacity)
		c->env.capacity = (c->T + c->page_tokens - 1) / c->page_tokens * c->page_tokens;
	c->position = trial_random_below(&c->random, c->env.capacity - c->T + 1);
}

void trial_draft(struct trial *c, const struct trial_options *options)
{
	const struct trial_options *with = &c->with;
	struct trial_random *r = &c->random;

	c->with = *options;
	c->within = 1.0;
	trial_config_random(r, c->op, &c->cfg);
	if (with->cfg)
		c->cfg = *with->cfg;
	c->with.cfg = NULL;
	c->page_tokens = c->cfg.block_tokens * (1 + trial_random_below(r, 4));
	c->env = (struct plumb_env){
		.cfg = &c->cfg,
		.capacity = c->page_tokens * (1 + trial_random_below(r, trial_random_below(r, 3) ? 8 : 40)),
		.policy = (enum plumb_policy)(with->policy >= 0 ? with->policy : (int)trial_random_below(r, 2)),
		.ties = PLUMB_TIES_LOWER,
		.err = &c->error,
	};
	c->T = with->T ? with->T : trial_random_below(r, 2) ? 1 : 1 + trial_random_below(r, 5);
	trial_place(c);
	if (trial_random_below(r, 4) == 0)
		c->position = trial_random_below(r, 2) ? 0 : c->env.capacity - c->T;
	c->span = ldexpf(1.0f, (int)trial_random_below(r, 5) - 2);
	c->zeros = trial_random_below(r, 4) ? 0.0f : 0.5f;
}

void trial_build(struct trial *c, void (*fill)(struct trial *c))
{
	const struct plumb_op_info *info = &plumb_ops[c->op];
	struct trial_random *r = &c->random;
	int traces = c->with.traces;

	c->args = trial_take(info->args_size);
	memset(c->args, 0, info->args_size);
	*(int64_t *)c->args = c->T;
	c->operands = info->operands;
	bool optional = traces >= 0 ? traces : trial_random_below(r, 4) != 0; /* come and go together */
	for (int i = 0; i < info->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		o->info = &info->operand[i];
		bool trace = traces >= 0 ? traces : trial_random_below(r, 2);
		o->absent = o->info->optional && !(o->info->trace ? trace : optional);
		make_operand(c, o);
	}
	trial_fill(c);
	if (fill)
		fill(c);
	trial_seal(c);
}

struct trial *trial_new(enum plumb_op op, uint64_t seed, const struct trial_options *options)
{
	static const struct trial_options all_random = {.policy = -1, .format = -1, .traces = -1};
	struct trial *c = trial_take(sizeof *c);

	*c = (struct trial){.op = op, .seed = seed, .random = {seed * PLUMB_OP_COUNT + (uint64_t)op}};
	trial_draft(c, options ? options : &all_random);
	trial_build(c, NULL);
	return c;
}

static void keep(unsigned char **copy, const struct trial_memory *m)
{
	free(*copy);
	*copy = m->block ? trial_memory_keep(m) : NULL;
}

void trial_seal(struct trial *c)
{
	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		if (o->info->role != PLUMB_OUT) {
			keep(&o->before, &o->memory);
			keep(&o->page_before, &o->page);
			keep(&o->scale_before, &o->scale);
		}
	}
}

void trial_free(struct trial *c)
{
	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		trial_memory_free(&o->memory);
		trial_memory_free(&o->page);
		trial_memory_free(&o->scale);
		free(o->weight);
		free(o->before);
		free(o->page_before);
		free(o->scale_before);
	}
	free(c->args);
	free(c);
}

struct trial_operand *trial_operand(struct trial *c, const char *name)
{
	for (int i = 0; i < c->operands; i++)
		if (strcmp(c->operand[i].info->name, name) == 0)
			return &c->operand[i];
	fprintf(stderr, "trial: %s has no operand %s\n", plumb_ops[c->op].name, name);
	exit(99);
}

void *trial_data(struct trial *c, const char *name)
{
	return trial_operand(c, name)->memory.data;
}

const char *trial_name(const struct trial *c, char text[64])
{
	snprintf(text, 64, "%s:%llu", plumb_ops[c->op].name, (unsigned long long)c->seed);
	return text;
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t word;

	for (; bytes >= sizeof word; p += sizeof word, bytes -= sizeof word) {
		memcpy(&word, p, sizeof word);
		h = (h ^ word) * 0x9E3779B97F4A7C15u;
		h ^= h >> 32;
	}
	for (; bytes; p++, bytes--) {
		h = (h ^ *p) * 0x9E3779B97F4A7C15u;
		h ^= h >> 32;
	}
	return h;
}

uint64_t trial_inputs(const struct trial *c)
{
	uint64_t h = mix(0, &c->T, sizeof c->T);

	h = mix(h, &c->position, sizeof c->position);
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		h = mix(h, o->dim, (size_t)o->rank * sizeof o->dim[0]);
		h = mix(h, &o->absent, sizeof o->absent);
		if (o->before)
			h = mix(h, o->before, trial_memory_live(&o->memory));
		if (o->page_before)
			h = mix(h, o->page_before, o->page.bytes);
		if (o->scale_before)
			h = mix(h, o->scale_before, o->scale.bytes);
		for (int64_t m = 0; m < o->matrices; m++) {
			uint32_t global = plumb_f32_bits(o->weight[m].global);
			h = mix(h, &global, sizeof global);
		}
	}
	return h;
}
