/* SPDX-License-Identifier: MIT */
#include "core/synthetic.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/reads.h"
#include "core/synthetic_fill.h"

enum { PAGE = 4096, SCALE_ALIGN = 256, NAME = 160, CHUNK_VALUES = 262144 };
#define DEFAULT_MEMORY ((int64_t)14 << 30)

/* What becomes of the bytes of a matrix once made. */
enum keep {
	KEEP,  /* stays */
	DROP,  /* an expert: goes when room is needed */
	TABLE, /* rows are made at every call that reads them: there are few, and no list of 320 million */
	KEEPS,
};

struct item {
	struct plumb_synthetic_tensor tensor; /* w->made points here */
	struct plumb_weight *weight;
	enum keep keep;
	size_t bytes; /* of data and scales, in whole pages */
	bool present;
	int64_t used;               /* the call that read it last */
	struct item *older, *newer; /* experts that are present, by use */
};

/* Rows to be made. */
struct job {
	const struct plumb_weight *weight;
	int64_t row, rows;
};

struct plumb_synthetic {
	struct plumb_model model;
	struct plumb_synthetic_usage usage;
	int64_t memory, call;
	uint64_t seed;
	const struct plumb_profile *profile; /* while it is built */
	struct item *item;
	size_t items, item_room;
	struct item *oldest, *newest;
	unsigned char *space;
	size_t space_bytes;
	struct job *job; /* of the running call */
	size_t jobs, job_room;
	struct plumb_error *err; /* of the running call */
	int status;              /* while it is built */
};

/* ---- scaling ---- */

/* Values of a role: rms (times 1/sqrt(K) where per_column), centre. Why: docs/synthetic.md. The longer name of two with
 * the same end comes first. */
static const struct {
	const char *end;
	double rms, centre;
	bool per_column;
} roles[] = {
	{"embed_tokens", 1.0, 0.0, false},
	{"lm_head", 6.0, 0.0, true},
	{"ngram_embedding", 1.0, 0.0, false},
	{"hc_norm", 0.1, 0.0, false},
	{"input_mix_weight_down", 4.0, 0.0, true},
	{"input_mix_weight_up", 1.7, 0.0, true},
	{"block_inject_weight", 4.0, 0.0, true},
	{"linear_attn.in_proj_qkv", 2.0, 0.0, true},
	{"linear_attn.in_proj_z", 2.0, 0.0, true},
	{"linear_attn.in_proj_b", 2.0, 0.0, true},
	{"linear_attn.in_proj_a", 2.0, 0.0, true},
	{"linear_attn.conv1d", 0.5, 0.0, false},
	{"linear_attn.A_log", 1.6, -1.5, false},
	{"linear_attn.dt_bias", 1.0, 0.0, false},
	{"linear_attn.norm", 0.1, 1.0, false},
	{"linear_attn.out_proj", 0.37, 0.0, true},
	{"self_attn.q_proj", 2.0, 0.0, true},
	{"self_attn.k_proj", 2.0, 0.0, true},
	{"self_attn.v_proj", 2.0, 0.0, true},
	{"self_attn.q_norm", 0.1, 0.5, false},
	{"self_attn.k_norm", 0.1, 0.5, false},
	{"self_attn.o_proj", 0.5, 0.0, true},
	{"indexer.index_qk_proj", 2.0, 0.0, true},
	{"indexer.q_layernorm", 0.1, 0.0, false},
	{"indexer.k_layernorm", 0.1, 0.0, false},
	{"mlp.gate", 3.0, 0.0, true},
	{"mlp.shared_expert_gate", 2.0, 0.0, true},
	{"shared_expert.down_proj", 0.5, 0.0, true},
	{".gate_proj", 2.0, 0.0, true},
	{".up_proj", 2.0, 0.0, true},
	{".down_proj", 0.75, 0.0, true},
	{"ple.key_proj", 1.0, 0.0, true},
	{"ple.value_proj", 0.5, 0.0, true},
	{"ple.norm_key", 0.1, 0.0, false},
	{"ple.norm_query", 0.1, 0.0, false},
	{"ple.norm_conv", 0.1, 0.0, false},
	{"ple.conv1d", 0.25, 0.0, false},
};

void plumb_synthetic_scaling(const char *name, int64_t cols, double *rms, double *centre)
{
	size_t n = strlen(name);

	*rms = 1.0;
	*centre = 0.0;
	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
		size_t end = strlen(roles[i].end);
		if (end > n || strcmp(name + n - end, roles[i].end) != 0)
			continue;
		*rms = roles[i].per_column ? roles[i].rms / sqrt((double)cols) : roles[i].rms;
		*centre = roles[i].centre;
		return;
	}
}

/* ---- building ---- */

static struct item *new_item(struct plumb_synthetic *s)
{
	if (s->items == s->item_room) { /* counted before: a defect of this file */
		s->status = plumb_fail(s->err, PLUMB_BAD_INPUT, "synthetic model: more than %zu tensors", s->item_room);
		return NULL;
	}
	return &s->item[s->items++];
}

/* A matrix of a role: which format it has, and what its values are. first: number of its first element in the tensor of
 * that name. */
static void set(struct plumb_synthetic *s, struct plumb_weight *w, enum plumb_format format, enum keep keep, int64_t rows,
	int64_t cols, int64_t first, const char *name)
{
	struct item *item = s->status ? NULL : new_item(s);
	double rms, centre;

	if (!item)
		return;
	plumb_synthetic_scaling(name, cols, &rms, &centre);
	item->weight = w;
	item->keep = keep;
	item->tensor.key = plumb_synthetic_key(name, s->seed);
	item->tensor.first = first;
	item->tensor.step = plumb_synthetic_step(format, rms);
	item->tensor.centre = (float)centre;
	*w = (struct plumb_weight){
		.format = format,
		.rows = rows,
		.cols = cols,
		.made = &item->tensor,
		.scale_format = plumb_profile_scale_format(format),
		.global = plumb_synthetic_global_of(format, item->tensor.key, item->tensor.step),
	};
}

static enum plumb_format held(struct plumb_synthetic *s, enum plumb_group group)
{
	enum plumb_format format = s->profile && !s->profile->keep[group] ? s->profile->format[group] : PLUMB_BF16;
	if (!s->status && !plumb_group_takes(group, format)) /* plumb_profile_open gives no such profile */
		s->status = plumb_fail(s->err, PLUMB_BAD_INPUT, "profile %s: %s as %s, which it cannot be held in",
			s->profile->name, plumb_group_name(group), plumb_format_name(format));
	return format;
}

__attribute__((format(printf, 7, 8))) static void matrix(struct plumb_synthetic *s, struct plumb_weight *w,
	enum plumb_group group, int64_t rows, int64_t cols, const char *site, const char *format, ...)
{
	char name[NAME];
	int n = snprintf(name, sizeof name, "%s", site);
	va_list ap;

	va_start(ap, format);
	vsnprintf(name + n, sizeof name - (size_t)n, format, ap);
	va_end(ap);
	set(s, w, held(s, group),
		group == PLUMB_GROUP_EXPERTS ? DROP
		: group == PLUMB_GROUP_EMBED ? TABLE
					     : KEEP,
		rows, cols, 0, name);
}

/* Norms, convolutions, decay constants: no producer quantises them. */
static void vector(
	struct plumb_synthetic *s, struct plumb_weight *w, int64_t rows, int64_t cols, const char *site, const char *end)
{
	char name[NAME];
	snprintf(name, sizeof name, "%s%s", site, end);
	set(s, w, PLUMB_BF16, KEEP, rows, cols, 0, name);
}

static void set_hc(struct plumb_synthetic *s, struct plumb_hc_weights *w, const char *site, bool injects)
{
	const struct plumb_config *c = &s->model.cfg;
	int64_t wide = c->streams * c->hidden;

	vector(s, &w->norm, 1, wide, site, "hc_norm");
	matrix(s, &w->down, PLUMB_GROUP_HC, c->low_rank, wide, site, "input_mix_weight_down");
	matrix(s, &w->up, PLUMB_GROUP_HC, wide, c->low_rank, site, "input_mix_weight_up");
	if (injects)
		matrix(s, &w->inject, PLUMB_GROUP_HC, c->streams, wide, site, "block_inject_weight");
}

static void set_gdn(struct plumb_synthetic *s, struct plumb_gdn_weights *w, const char *site)
{
	const struct plumb_config *c = &s->model.cfg;
	int64_t D = c->hidden, values = c->gdn_value_heads * c->gdn_value_dim, channels = plumb_gdn_channels(c);

	matrix(s, &w->qkv, PLUMB_GROUP_GDN, channels, D, site, "in_proj_qkv");
	matrix(s, &w->z, PLUMB_GROUP_GDN, values, D, site, "in_proj_z");
	matrix(s, &w->b, PLUMB_GROUP_GDN_GATES, c->gdn_value_heads, D, site, "in_proj_b");
	matrix(s, &w->a, PLUMB_GROUP_GDN_GATES, c->gdn_value_heads, D, site, "in_proj_a");
	vector(s, &w->conv, channels, c->gdn_conv_taps, site, "conv1d");
	vector(s, &w->a_log, 1, c->gdn_value_heads, site, "A_log");
	vector(s, &w->dt_bias, 1, c->gdn_value_heads, site, "dt_bias");
	vector(s, &w->norm, 1, c->gdn_value_dim, site, "norm");
	matrix(s, &w->out, PLUMB_GROUP_GDN, D, values, site, "out_proj");
}

static void set_attention(struct plumb_synthetic *s, struct plumb_attention_weights *w, const char *site)
{
	const struct plumb_config *c = &s->model.cfg;
	int64_t D = c->hidden, queries = c->q_heads * c->head_dim, keys = c->kv_heads * c->head_dim;

	matrix(s, &w->q, PLUMB_GROUP_ATTENTION, 2 * queries, D, site, "q_proj");
	matrix(s, &w->k, PLUMB_GROUP_ATTENTION, keys, D, site, "k_proj");
	matrix(s, &w->v, PLUMB_GROUP_ATTENTION, keys, D, site, "v_proj");
	vector(s, &w->q_norm, 1, c->head_dim, site, "q_norm");
	vector(s, &w->k_norm, 1, c->head_dim, site, "k_norm");
	matrix(s, &w->out, PLUMB_GROUP_ATTENTION, D, queries, site, "o_proj");
	matrix(s, &w->index_qk, PLUMB_GROUP_INDEX, (c->index_heads + 1) * c->index_dim, D, site, "indexer.index_qk_proj");
	vector(s, &w->index_q_norm, 1, c->index_dim, site, "indexer.q_layernorm");
	vector(s, &w->index_k_norm, 1, c->index_dim, site, "indexer.k_layernorm");
}

static struct plumb_weight *new_bank(struct plumb_synthetic *s, int64_t count)
{
	struct plumb_weight *bank = s->status ? NULL : calloc((size_t)count, sizeof *bank);
	if (!bank && !s->status)
		s->status = plumb_fail(
			s->err, PLUMB_BAD_INPUT, "synthetic model: no memory for %lld matrices", (long long)count);
	return bank;
}

static void set_moe(struct plumb_synthetic *s, struct plumb_moe_weights *w, const char *site)
{
	const struct plumb_config *c = &s->model.cfg;
	int64_t D = c->hidden, F = c->expert_inner, Fs = c->shared_inner;

	matrix(s, &w->router, PLUMB_GROUP_ROUTER, c->experts, D, site, "gate");
	matrix(s, &w->shared_router, PLUMB_GROUP_ROUTER, 1, D, site, "shared_expert_gate");
	matrix(s, &w->shared_gate, PLUMB_GROUP_SHARED, Fs, D, site, "shared_expert.gate_proj");
	matrix(s, &w->shared_up, PLUMB_GROUP_SHARED, Fs, D, site, "shared_expert.up_proj");
	matrix(s, &w->shared_down, PLUMB_GROUP_SHARED, D, Fs, site, "shared_expert.down_proj");
	w->gate = new_bank(s, c->experts);
	w->up = new_bank(s, c->experts);
	w->down = new_bank(s, c->experts);
	for (int64_t e = 0; e < c->experts && !s->status; e++) {
		matrix(s, &w->gate[e], PLUMB_GROUP_EXPERTS, F, D, site, "experts.%lld.gate_proj", (long long)e);
		matrix(s, &w->up[e], PLUMB_GROUP_EXPERTS, F, D, site, "experts.%lld.up_proj", (long long)e);
		matrix(s, &w->down[e], PLUMB_GROUP_EXPERTS, D, F, site, "experts.%lld.down_proj", (long long)e);
	}
}

static void set_ple(struct plumb_synthetic *s, struct plumb_ple_weights *w, const char *site, int q)
{
	const struct plumb_config *c = &s->model.cfg;
	int64_t wide = c->streams * c->hidden, width = c->ple_dim / plumb_ngram_heads(c);
	enum plumb_format format = held(s, PLUMB_GROUP_NGRAM_TABLE);
	char name[NAME];

	if (!s->status)
		s->status = plumb_ngram_constants(c, q, &w->ngram, s->err);
	if (s->status)
		return;
	w->shard_rows = (w->ngram.rows + c->ngram_parts - 1) / c->ngram_parts;
	w->shards = (w->ngram.rows + w->shard_rows - 1) / w->shard_rows;
	w->table = new_bank(s, w->shards);
	snprintf(name, sizeof name, "%sple_embedding.ngram_embedding", site);
	for (int64_t i = 0; i < w->shards && !s->status; i++) {
		int64_t first = i * w->shard_rows, rows = w->ngram.rows - first;
		set(s, &w->table[i], format, TABLE, rows < w->shard_rows ? rows : w->shard_rows, width, first * width,
			name);
	}
	matrix(s, &w->key_proj, PLUMB_GROUP_PLE, wide, c->ple_dim, site, "key_proj");
	matrix(s, &w->value_proj, PLUMB_GROUP_PLE, c->hidden, c->ple_dim, site, "value_proj");
	vector(s, &w->norm_key, 1, wide, site, "norm_key");
	vector(s, &w->norm_query, 1, wide, site, "norm_query");
	vector(s, &w->norm_conv, 1, wide, site, "norm_conv");
	vector(s, &w->conv, wide, c->ple_conv_taps, site, "conv1d");
}

static void set_layer(struct plumb_synthetic *s, struct plumb_layer_weights *w, int layer)
{
	int q = plumb_ple_of_layer(&s->model.cfg, layer);
	char site[64];

	snprintf(site, sizeof site, "layers.%d.attn_hyper_connection.", layer);
	set_hc(s, &w->attn_hc, site, true);
	snprintf(site, sizeof site, "layers.%d.mlp_hyper_connection.", layer);
	set_hc(s, &w->mlp_hc, site, true);
	if (s->model.cfg.kind[layer] == PLUMB_LAYER_GDN) {
		snprintf(site, sizeof site, "layers.%d.linear_attn.", layer);
		set_gdn(s, &w->gdn, site);
	} else {
		snprintf(site, sizeof site, "layers.%d.self_attn.", layer);
		set_attention(s, &w->attention, site);
	}
	snprintf(site, sizeof site, "layers.%d.mlp.", layer);
	set_moe(s, &w->moe, site);
	if (q < 0 || s->status)
		return;
	w->ple = calloc(1, sizeof *w->ple);
	if (!w->ple) {
		s->status = plumb_fail(s->err, PLUMB_BAD_INPUT, "synthetic model: no memory for PLE weights");
		return;
	}
	snprintf(site, sizeof site, "layers.%d.ple.", layer);
	set_ple(s, w->ple, site, q);
}

static size_t aligned(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

/* Give every matrix its place: what stays first, then experts, then tables. Nothing of it costs memory yet. */
static int reserve(struct plumb_synthetic *s, struct plumb_error *err)
{
	size_t total = 0, kept = 0;

	for (size_t i = 0; i < s->items; i++) {
		const struct plumb_weight *w = s->item[i].weight;
		s->item[i].bytes =
			aligned(aligned(plumb_weight_data_bytes(w), SCALE_ALIGN) + plumb_weight_scale_bytes(w), PAGE);
		total += s->item[i].bytes;
		kept += s->item[i].keep == KEEP ? s->item[i].bytes : 0;
	}
	void *space = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (space == MAP_FAILED)
		return plumb_fail(err, PLUMB_BAD_INPUT, "synthetic model: no address space of %zu bytes", total);
	s->space = space;
	s->space_bytes = total;
	s->usage.reserved = (int64_t)total;
	(void)madvise(space, kept, MADV_HUGEPAGE); /* a wish: fewer page faults where all is used */
	unsigned char *at = space;
	for (int keep = 0; keep < KEEPS; keep++)
		for (size_t i = 0; i < s->items; i++) {
			struct plumb_weight *w = s->item[i].weight;
			if ((int)s->item[i].keep != keep)
				continue;
			w->data = at;
			if (plumb_weight_scale_bytes(w) > 0)
				w->scale = at + aligned(plumb_weight_data_bytes(w), SCALE_ALIGN);
			at += s->item[i].bytes;
		}
	return PLUMB_OK;
}

static int make(void *self, const struct plumb_env *env, enum plumb_op op, const void *args);

int plumb_synthetic_create(const struct plumb_config *cfg, const struct plumb_synthetic_options *options,
	struct plumb_synthetic **out, struct plumb_error *err)
{
	struct plumb_synthetic *s = calloc(1, sizeof *s);
	int status = PLUMB_BAD_INPUT;

	if (!s)
		return plumb_fail(err, PLUMB_BAD_INPUT, "synthetic model: no memory");
	s->model.cfg = *cfg;
	s->profile = options ? options->profile : NULL;
	s->seed = options ? options->seed : 0;
	s->memory = options && options->memory ? options->memory : DEFAULT_MEMORY;
	s->err = err;
	/* a layer has at most 8 + 9 + 5 + 6 tensors besides experts and shards */
	s->item_room = 8 + (size_t)cfg->layers * (28 + 3 * (size_t)cfg->experts) +
	               (size_t)cfg->ple_count * (size_t)cfg->ngram_parts;
	s->item = calloc(s->item_room, sizeof *s->item);
	s->model.layer = calloc((size_t)cfg->layers, sizeof *s->model.layer);
	if (!s->item || !s->model.layer) {
		plumb_fail(err, PLUMB_BAD_INPUT, "synthetic model: no memory for %zu tensors", s->item_room);
		goto failed;
	}
	matrix(s, &s->model.embed, PLUMB_GROUP_EMBED, cfg->vocab, cfg->hidden, "", "embed_tokens");
	matrix(s, &s->model.lm_head, PLUMB_GROUP_LM_HEAD, cfg->vocab, cfg->hidden, "", "lm_head");
	set_hc(s, &s->model.mixer, "hyper_connection_mixer.", false);
	for (int l = 0; l < cfg->layers; l++)
		set_layer(s, &s->model.layer[l], l);
	status = s->status ? s->status : reserve(s, err);
	if (status != PLUMB_OK)
		goto failed;
	s->profile = NULL;
	s->err = NULL;
	s->model.maker = (struct plumb_maker){make, s};
	*out = s;
	return PLUMB_OK;
failed:
	plumb_synthetic_close(s);
	return status;
}

int plumb_synthetic_open(const char *preset, const struct plumb_synthetic_options *options, struct plumb_synthetic **out,
	struct plumb_error *err)
{
	struct plumb_config *cfg = malloc(sizeof *cfg);
	int status = cfg ? plumb_preset_config(preset, cfg, err)
	                 : plumb_fail(err, PLUMB_BAD_INPUT, "synthetic model: no memory");
	if (status == PLUMB_OK)
		status = plumb_synthetic_create(cfg, options, out, err);
	free(cfg);
	return status;
}

void plumb_synthetic_close(struct plumb_synthetic *s)
{
	if (!s)
		return;
	plumb_model_free_lists(&s->model);
	if (s->space)
		munmap(s->space, s->space_bytes);
	free(s->item);
	free(s->job);
	free(s);
}

const struct plumb_model *plumb_synthetic_model(const struct plumb_synthetic *s)
{
	return &s->model;
}

struct plumb_synthetic_usage plumb_synthetic_usage(const struct plumb_synthetic *s)
{
	return s->usage;
}

/* ---- on demand ---- */

static void unlink_item(struct plumb_synthetic *s, struct item *x)
{
	*(x->older ? &x->older->newer : &s->oldest) = x->newer;
	*(x->newer ? &x->newer->older : &s->newest) = x->older;
	x->older = x->newer = NULL;
}

static void link_newest(struct plumb_synthetic *s, struct item *x)
{
	x->older = s->newest;
	*(s->newest ? &s->newest->newer : &s->oldest) = x;
	s->newest = x;
}

static int push(struct plumb_synthetic *s, const struct plumb_weight *w, int64_t row, int64_t rows)
{
	if (s->jobs == s->job_room) {
		size_t room = s->job_room ? 2 * s->job_room : 256;
		struct job *job = realloc(s->job, room * sizeof *job);
		if (!job)
			return plumb_fail(
				s->err, PLUMB_BAD_INPUT, "synthetic model: no memory for a list of %zu parts", room);
		s->job = job;
		s->job_room = room;
	}
	s->job[s->jobs++] = (struct job){w, row, rows};
	return PLUMB_OK;
}

/* The item whose tensor a weight points to. */
static struct item *item_of(const struct plumb_synthetic *s, const struct plumb_weight *w)
{
	return s->item + ((const char *)w->made - (const char *)s->item) / (ptrdiff_t)sizeof *s->item;
}

static void forget(struct plumb_synthetic *s, struct item *x)
{
	if (!x->present)
		return;
	if (x->keep == DROP)
		unlink_item(s, x);
	x->present = false;
	s->usage.resident -= (int64_t)x->bytes;
}

/* A part that the running call reads: put on the list what of it is missing. */
static int want(void *self, const struct plumb_read *read)
{
	struct plumb_synthetic *s = self;
	const struct plumb_weight *w = read->weight;
	int status = PLUMB_OK;

	if (!w->made)
		return PLUMB_OK;
	struct item *x = item_of(s, w);
	if (x->keep == TABLE || read->rows < w->rows)
		return x->present ? PLUMB_OK : push(s, w, read->row, read->rows);
	x->used = s->call;
	if (x->present && x->keep == DROP)
		unlink_item(s, x);
	if (x->keep == DROP)
		link_newest(s, x);
	if (x->present)
		return PLUMB_OK;
	int64_t step = CHUNK_VALUES / w->cols / PLUMB_SYNTHETIC_ROWS * PLUMB_SYNTHETIC_ROWS;
	if (step < PLUMB_SYNTHETIC_ROWS)
		step = PLUMB_SYNTHETIC_ROWS;
	for (int64_t row = 0; row < w->rows && status == PLUMB_OK; row += step)
		status = push(s, w, row, w->rows - row < step ? w->rows - row : step);
	x->present = true;
	s->usage.resident += (int64_t)x->bytes;
	return status;
}

/* Drop the experts unused for longest, but none of the running call. */
static void make_room(struct plumb_synthetic *s)
{
	while (s->usage.resident > s->memory && s->oldest && s->oldest->used != s->call) {
		struct item *x = s->oldest;
		void *memory;
		memcpy(&memory, &x->weight->data, sizeof memory);
		(void)madvise(memory, x->bytes, MADV_DONTNEED); /* cannot fail for a whole anonymous mapping */
		forget(s, x);
		s->usage.dropped++;
	}
}

static int make(void *self, const struct plumb_env *env, enum plumb_op op, const void *args)
{
	struct plumb_synthetic *s = self;
	int64_t values = 0;
	int status;

	s->call++;
	s->jobs = 0;
	s->err = env->err;
	status = plumb_reads(env, op, args, want, s);
	s->err = NULL;
	if (status != PLUMB_OK) { /* what was not made is not there */
		for (size_t i = 0; i < s->jobs; i++)
			forget(s, item_of(s, s->job[i].weight));
		return status;
	}
	make_room(s);
	if (s->usage.resident > s->usage.peak)
		s->usage.peak = s->usage.resident;
	for (size_t i = 0; i < s->jobs; i++) {
		const struct plumb_read part = {.weight = s->job[i].weight, .row = s->job[i].row, .rows = s->job[i].rows};
		values += s->job[i].rows * s->job[i].weight->cols;
		s->usage.made += (int64_t)plumb_read_bytes(&part);
	}
#pragma omp parallel for schedule(dynamic) if (values > 65536)
	for (size_t i = 0; i < s->jobs; i++)
		plumb_synthetic_fill(s->job[i].weight, s->job[i].row, s->job[i].rows);
	return PLUMB_OK;
}
