/* SPDX-License-Identifier: MIT */
#include "tests/support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"

enum { ZONE = 256, ALIGNMENT = 64, ZONE_BYTE = 0xff }; /* all ones is a NaN in binary32, bf16, f16 and E4M3, and -1 */

uint64_t op_random_next(struct op_random *r)
{
	uint64_t z = (r->state += 0x9E3779B97F4A7C15u);
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

int64_t op_random_below(struct op_random *r, int64_t n)
{
	return (int64_t)(op_random_next(r) % (uint64_t)n);
}

float op_random_float(struct op_random *r, float low, float high)
{
	return low + (high - low) * (float)(op_random_next(r) >> 40) * 0x1p-24f;
}

static void *take(size_t bytes)
{
	void *m = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
	if (!m) {
		fprintf(stderr, "op_case: out of memory for %zu bytes\n", bytes);
		exit(99);
	}
	return m;
}

static void memory_make(struct op_memory *m, size_t bytes)
{
	m->bytes = bytes;
	m->block_bytes = bytes + 2 * ZONE;
	m->block = take(m->block_bytes);
	m->data = m->block + ZONE;
	memset(m->block, ZONE_BYTE, m->block_bytes);
}

static bool zones_intact(const struct op_memory *m)
{
	for (size_t i = 0; i < ZONE; i++)
		if (m->block[i] != ZONE_BYTE || m->data[m->bytes + i] != ZONE_BYTE)
			return false;
	return true;
}

bool op_is_vector(const struct plumb_operand *info)
{
	const char *name = info->name;
	return info->role == PLUMB_WEIGHT &&
	       (strstr(name, "norm") || !strcmp(name, "conv") || !strcmp(name, "a_log") || !strcmp(name, "dt_bias"));
}

/* Formats of the operand's matrices and of their scales. */
static void choose_formats(struct op_case *c, const struct op_operand *o, int format, struct plumb_weight *w)
{
	int choices = op_is_vector(o->info) ? PLUMB_PLAIN_FORMATS : PLUMB_FORMAT_COUNT;

	if (format < 0 || format >= choices)
		format = (int)op_random_below(&c->random, choices);
	w->format = (enum plumb_format)format;
	if (w->format == PLUMB_FP8_ROW || w->format == PLUMB_FP8_BLOCK)
		w->scale_format = op_random_below(&c->random, 2) ? PLUMB_BF16 : PLUMB_F32;
}

/* Where the next of some arrays lies, *at bytes on: a gap or none; often an address where wide loads are possible. */
static size_t place_next(struct op_case *c, size_t unit, size_t bytes, size_t *at)
{
	size_t start = *at + unit * (size_t)(op_random_below(&c->random, 2) ? op_random_below(&c->random, 9) : 0);

	if (op_random_below(&c->random, 2))
		start = (start + 15) / 16 * 16;
	*at = start + bytes;
	return start;
}

/* Matrices in one block, with gaps, each at any address its elements may have; their scales in another, likewise. */
static void make_matrices(struct op_case *c, struct op_operand *o, int format)
{
	bool bank = o->info->kind == PLUMB_KIND_BANK;
	int64_t rows = o->dim[bank], cols = o->dim[bank + 1], total = 0;
	struct plumb_weight like = {.cols = cols};
	size_t at = 0, scale_at = 0;

	o->matrices = bank ? o->dim[0] : 1;
	if (o->info->count) { /* the n-gram table, cut into shards of equal rows but for the last */
		int64_t shards = 1 + op_random_below(&c->random, 4);
		total = o->ngram.rows;
		rows = (total + shards - 1) / shards;
		o->matrices = (total + rows - 1) / rows;
	}
	o->weight = take((size_t)o->matrices * sizeof *o->weight);
	size_t(*start)[2] = take((size_t)o->matrices * sizeof *start);
	choose_formats(c, o, format, &like);
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
	memory_make(&o->memory, at);
	if (scale_at > 0)
		memory_make(&o->scale, scale_at);
	for (int64_t i = 0; i < o->matrices; i++) {
		o->weight[i].data = o->memory.data + start[i][0];
		o->weight[i].scale = scale_at > 0 ? o->scale.data + start[i][1] : NULL;
	}
	free(start);
}

/* Keys and values have a format of their own, the caches of the indexer that of the policy. */
static enum plumb_format cache_format(struct op_case *c, const struct op_operand *o, bool plain)
{
	static const enum plumb_format formats[] = {PLUMB_F32, PLUMB_BF16, PLUMB_CACHE_FP8, PLUMB_CACHE_FP8};
	bool own = strcmp(o->info->name, "keys") == 0 || strcmp(o->info->name, "values") == 0;

	if (own && !plain && op_random_below(&c->random, 3))
		return formats[op_random_below(&c->random, 4)];
	return c->env.policy == PLUMB_POLICY_BF16 ? PLUMB_BF16 : PLUMB_F32;
}

static void make_cache(struct op_case *c, struct op_operand *o, int64_t page_tokens, bool plain)
{
	int64_t rows = o->dim[0], page_rows = page_tokens * rows / c->env.capacity, pages = rows / page_rows;
	int32_t *page;

	o->cache = (struct plumb_cache){
		.format = cache_format(c, o, plain),
		.scale = 1.0f,
		.page_rows = (int32_t)page_rows,
		.width = (int32_t)o->dim[1],
		.rows = rows,
	};
	if (o->cache.format == PLUMB_CACHE_FP8 && op_random_below(&c->random, 2))
		o->cache.scale = op_random_float(&c->random, 0x1p-10f, 0.25f); /* no power of two: products are rounded */
	memory_make(&o->memory, (size_t)rows * plumb_format_row_bytes(o->cache.format, o->cache.width));
	memory_make(&o->page, (size_t)pages * sizeof *page);
	o->cache.data = o->memory.data;
	o->cache.page = page = (int32_t *)(void *)o->page.data;
	/* the same permutation for every cache of the case: they share a table in a decoder */
	struct op_random shuffle = {c->seed};
	for (int32_t i = 0; i < pages; i++) {
		int32_t j = (int32_t)op_random_below(&shuffle, i + 1);
		page[i] = page[j];
		page[j] = i;
	}
}

static void make_operand(
	struct op_case *c, struct op_operand *o, const struct op_case_options *options, int64_t page_tokens)
{
	const struct plumb_operand *info = o->info;
	struct plumb_extent extent = {c->T, c->env.capacity};
	void *pointer = NULL;

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
				!options->plain) { /* any format: f32 as often as the others */
				o->format = (enum plumb_format)(
					op_random_below(&c->random, 2) * op_random_below(&c->random, PLUMB_PLAIN_FORMATS));
				memcpy((unsigned char *)c->args + info->format, &o->format, sizeof o->format);
			}
			memory_make(&o->memory, (size_t)o->count * plumb_operand_element(info, c->args));
			pointer = o->memory.data;
			break;
		case PLUMB_KIND_WEIGHT:
		case PLUMB_KIND_BANK:
			if (info->count && plumb_ngram_constants(&c->cfg, 0, &o->ngram, &c->error) != PLUMB_OK)
				abort();
			make_matrices(c, o, options->format);
			pointer = o->weight;
			break;
		case PLUMB_KIND_CACHE:
			make_cache(c, o, page_tokens, options->plain);
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

struct op_case *op_case_new(enum plumb_op op, uint64_t seed, const struct op_case_options *options)
{
	static const struct op_case_options all_random = {.policy = -1, .format = -1, .traces = -1};
	const struct op_case_options *with = options ? options : &all_random;
	const struct plumb_op_info *info = &plumb_ops[op];
	struct op_case *c = take(sizeof *c);

	*c = (struct op_case){.op = op, .seed = seed, .random = {seed * PLUMB_OP_COUNT + (uint64_t)op}};
	struct op_random *r = &c->random;
	op_config_random(r, op, &c->cfg);
	if (with->cfg)
		c->cfg = *with->cfg;
	int64_t page_tokens = c->cfg.block_tokens * (1 + op_random_below(r, 4));
	c->env = (struct plumb_env){
		.cfg = &c->cfg,
		.capacity = page_tokens * (1 + op_random_below(r, op_random_below(r, 3) ? 8 : 40)),
		.policy = (enum plumb_policy)(with->policy >= 0 ? with->policy : (int)op_random_below(r, 2)),
		.ties = PLUMB_TIES_LOWER,
		.err = &c->error,
	};
	c->T = with->T ? with->T : op_random_below(r, 2) ? 1 : 1 + op_random_below(r, 5);
	if (c->T > c->env.capacity)
		c->env.capacity = (c->T + page_tokens - 1) / page_tokens * page_tokens;
	c->position = op_random_below(r, c->env.capacity - c->T + 1);
	if (op_random_below(r, 4) == 0)
		c->position = op_random_below(r, 2) ? 0 : c->env.capacity - c->T;
	c->span = ldexpf(1.0f, (int)op_random_below(r, 5) - 2);
	c->zeros = op_random_below(r, 4) ? 0.0f : 0.5f;

	c->args = take(info->args_size);
	memset(c->args, 0, info->args_size);
	*(int64_t *)c->args = c->T;
	c->operands = info->operands;
	bool optional = with->traces >= 0 ? with->traces : op_random_below(r, 4) != 0; /* come and go together */
	for (int i = 0; i < info->operands; i++) {
		struct op_operand *o = &c->operand[i];
		o->info = &info->operand[i];
		bool trace = with->traces >= 0 ? with->traces : op_random_below(r, 2);
		o->absent = o->info->optional && !(o->info->trace ? trace : optional);
		make_operand(c, o, with, page_tokens);
	}
	op_case_fill(c);
	op_case_seal(c);
	return c;
}

static void keep(unsigned char **copy, const struct op_memory *m)
{
	free(*copy);
	*copy = NULL;
	if (m->block) {
		*copy = take(m->block_bytes);
		memcpy(*copy, m->block, m->block_bytes);
	}
}

void op_case_seal(struct op_case *c)
{
	for (int i = 0; i < c->operands; i++) {
		struct op_operand *o = &c->operand[i];
		if (o->info->role != PLUMB_OUT) {
			keep(&o->before, &o->memory);
			keep(&o->page_before, &o->page);
			keep(&o->scale_before, &o->scale);
		}
	}
}

void op_case_free(struct op_case *c)
{
	for (int i = 0; i < c->operands; i++) {
		struct op_operand *o = &c->operand[i];
		free(o->memory.block);
		free(o->page.block);
		free(o->scale.block);
		free(o->weight);
		free(o->before);
		free(o->page_before);
		free(o->scale_before);
	}
	free(c->args);
	free(c);
}

struct op_operand *op_case_operand(struct op_case *c, const char *name)
{
	for (int i = 0; i < c->operands; i++)
		if (strcmp(c->operand[i].info->name, name) == 0)
			return &c->operand[i];
	fprintf(stderr, "op_case: %s has no operand %s\n", plumb_ops[c->op].name, name);
	exit(99);
}

void *op_case_data(struct op_case *c, const char *name)
{
	return op_case_operand(c, name)->memory.data;
}

const char *op_case_name(const struct op_case *c, char text[64])
{
	snprintf(text, 64, "%s:%llu", plumb_ops[c->op].name, (unsigned long long)c->seed);
	return text;
}

static bool written(const struct op_operand *o)
{
	return !o->absent && (o->info->role == PLUMB_OUT || o->info->role == PLUMB_STATE);
}

static void prepare(struct op_case *c, enum plumb_poison poison)
{
	for (int i = 0; i < c->operands; i++) {
		struct op_operand *o = &c->operand[i];
		if (o->absent)
			continue;
		if (o->info->role == PLUMB_OUT)
			plumb_poison_fill(poison,
				o->info->kind == PLUMB_KIND_I64 ? PLUMB_POISON_64 : plumb_poison_unit(o->format),
				o->memory.data, 0, (size_t)o->count);
		else if (o->before)
			memcpy(o->memory.block, o->before, o->memory.block_bytes);
		if (o->scale_before)
			memcpy(o->scale.block, o->scale_before, o->scale.block_bytes);
	}
}

/* What a call may not have done. */
static bool untouched(const struct op_case *c, const char *what, char text[OP_CASE_TEXT])
{
	for (int i = 0; i < c->operands; i++) {
		const struct op_operand *o = &c->operand[i];
		const char *fault = NULL;
		if (o->memory.block && !zones_intact(&o->memory))
			fault = "was written outside";
		else if (o->before && o->info->role != PLUMB_STATE &&
			 memcmp(o->memory.block, o->before, o->memory.block_bytes) != 0)
			fault = "is an input and was changed";
		else if (o->page_before && memcmp(o->page.block, o->page_before, o->page.block_bytes) != 0)
			fault = "had its page table changed";
		else if (o->scale_before && memcmp(o->scale.block, o->scale_before, o->scale.block_bytes) != 0)
			fault = "had its scales changed";
		if (fault) {
			snprintf(text, OP_CASE_TEXT, "%s: %s %s", what, o->info->name, fault);
			return false;
		}
	}
	return true;
}

bool op_case_run(struct op_case *c, const char *what, plumb_op_fn *fn, struct plumb_device *device,
	enum plumb_poison poison, struct op_result *result, char text[OP_CASE_TEXT])
{
	int status;

	*result = (struct op_result){{NULL}};
	prepare(c, poison);
	c->error.text[0] = '\0';
	c->env.device = device;
	if (device)
		plumb_device_poison(device, poison, plumb_ops[c->op].name);
	status = fn(&c->env, c->args);
	if (device && status == PLUMB_OK)
		status = plumb_device_sync(device, &c->error);
	if (device && status == PLUMB_OK)
		status = plumb_device_check(device, &c->error);
	c->env.device = NULL;
	if (status != PLUMB_OK) {
		snprintf(text, OP_CASE_TEXT, "%s: failed: %s", what, c->error.text);
		return false;
	}
	if (!untouched(c, what, text))
		return false;
	for (int i = 0; i < c->operands; i++) {
		const struct op_operand *o = &c->operand[i];
		if (written(o)) {
			result->bytes[i] = take(o->memory.bytes);
			memcpy(result->bytes[i], o->memory.data, o->memory.bytes);
		}
	}
	return true;
}

void op_result_free(struct op_result *r)
{
	for (int i = 0; i < OP_CASE_OPERANDS; i++)
		free(r->bytes[i]);
	*r = (struct op_result){{NULL}};
}

float *op_values(const struct op_operand *o, const unsigned char *bytes)
{
	bool cache = o->info->kind == PLUMB_KIND_CACHE;
	int64_t count = cache ? o->cache.rows * o->cache.width : o->count;
	float *v = take((size_t)count * sizeof *v);
	if (cache)
		plumb_cache_decode(&o->cache, bytes, count, v);
	else
		plumb_decode(o->format, bytes, count, v);
	return v;
}

/* "y[3, 17]" of a flat index. */
static const char *place(const struct op_operand *o, int64_t index, char text[128])
{
	int used = snprintf(text, 128, "%s[", o->info->name);
	int64_t rest = o->count;
	for (int d = 0; d < o->rank && used < 120; d++) {
		rest /= o->dim[d];
		used += snprintf(text + used, 128 - (size_t)used, "%s%lld", d ? ", " : "", (long long)(index / rest));
		index %= rest;
	}
	snprintf(text + used, 128 - (size_t)used, "]");
	return text;
}

static bool operand_same(const struct op_operand *o, const unsigned char *a, const unsigned char *b, const char *what,
	char text[OP_CASE_TEXT])
{
	char at[128];

	if (memcmp(a, b, o->memory.bytes) == 0)
		return true;
	if (o->info->kind == PLUMB_KIND_I32 || o->info->kind == PLUMB_KIND_I64) {
		size_t n = plumb_operand_element(o->info, NULL), i = 0;
		while (memcmp(a + i * n, b + i * n, n) == 0)
			i++;
		int64_t x = 0, y = 0; /* little-endian; the low word says enough of a 32-bit one */
		memcpy(&x, a + i * n, n);
		memcpy(&y, b + i * n, n);
		snprintf(text, OP_CASE_TEXT, "%s: %s is %lld, expected %lld", what, place(o, (int64_t)i, at),
			(long long)(n == 4 ? (int32_t)x : x), (long long)(n == 4 ? (int32_t)y : y));
		return false;
	}
	float *x = op_values(o, a), *y = op_values(o, b);
	int64_t count = o->count, first = -1, differ = 0;
	for (int64_t i = 0; i < count; i++)
		if (plumb_f32_bits(x[i]) != plumb_f32_bits(y[i]) && !(isnan(x[i]) && isnan(y[i]))) {
			first = first < 0 ? i : first;
			differ++;
		}
	if (differ)
		snprintf(text, OP_CASE_TEXT, "%s: %s is %.9g, expected %.9g (%lld of %lld values differ)", what,
			place(o, first, at), (double)x[first], (double)y[first], (long long)differ, (long long)count);
	free(x);
	free(y);
	return differ == 0;
}

bool op_case_same(
	struct op_case *c, const struct op_result *a, const struct op_result *b, const char *what, char text[OP_CASE_TEXT])
{
	for (int i = 0; i < c->operands; i++)
		if (a->bytes[i] && !operand_same(&c->operand[i], a->bytes[i], b->bytes[i], what, text))
			return false;
	return true;
}

bool op_case_agree(
	struct op_case *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[OP_CASE_TEXT])
{
	plumb_op_fn *reference = plumb_ref_twin.op[c->op];
	struct op_result twin = {{NULL}}, other = {{NULL}};
	bool ok = op_case_run(c, "twin", reference, NULL, PLUMB_POISON_NAN, &twin, text) &&
	          op_case_run(c, "twin", reference, NULL, PLUMB_POISON_LARGE, &other, text) &&
	          op_case_same(c, &other, &twin, "twin, other poison", text);

	for (int d = 0; ok && d < devices; d++) {
		bool large = d % 2;
		char what[512];
		snprintf(what, sizeof what, "opt on %s, poison %s", plumb_device_description(device[d]),
			large ? "large" : "NaN");
		op_result_free(&other);
		ok = op_case_run(c, what, opt ? opt : plumb_device_set(device[d])->op[c->op], device[d],
			     large ? PLUMB_POISON_LARGE : PLUMB_POISON_NAN, &other, text) &&
		     op_case_same(c, &other, &twin, what, text);
	}
	op_result_free(&twin);
	op_result_free(&other);
	return ok;
}

bool op_case_check(
	struct op_case *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[OP_CASE_TEXT])
{
	struct op_result oracle = {{NULL}}, twin = {{NULL}};
	bool ok = op_case_run(c, "oracle", plumb_ref_oracle.op[c->op], NULL, PLUMB_POISON_LARGE, &oracle, text) &&
	          op_case_bounded(c, "oracle", NULL, text) &&
	          op_case_run(c, "twin", plumb_ref_twin.op[c->op], NULL, PLUMB_POISON_NAN, &twin, text) &&
	          op_case_near(c, &oracle, &twin, "twin against oracle", text);

	op_result_free(&oracle);
	op_result_free(&twin);
	return ok && op_case_agree(c, opt, device, devices, text);
}
