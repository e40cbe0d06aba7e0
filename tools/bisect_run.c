/* SPDX-License-Identifier: MIT */
/* Whole runs of a mixture against the truth's run: a digest for each row of each output, or the logits; no trace is
 * held. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opt/user.h"
#include "tools/bisect.h"
#include "tools/ddmin.h"
#include "tools/progress.h"

/* What the truth's run leaves behind. */
struct bisect_trace {
	uint64_t *digest; /* (digests) of every row of every output, in the order of the run */
	int64_t digests, digest_room;
	int64_t *base; /* (calls) number of a call's first digest */
	int64_t calls, call_room;
	float *logits; /* (rows, V), criterion tolerance only */
	int64_t rows, row_room;
	int32_t *decoded; /* (steps) */
	void **state;     /* (parts) of the decoder at position `from` */
	int parts;
	bool done;
};

/* ---- choices ---- */

static const struct plumb_binding *binding_of(const struct plumb_plan *plan, int layer, enum plumb_op op)
{
	return &plan->binding[(size_t)layer * PLUMB_OP_COUNT + op];
}

bool bisect_is_suspect(const struct bisect_options *o, int layer, enum plumb_op op)
{
	const struct plumb_binding *b = binding_of(o->suspects, layer, op);
	return b->set != o->truth.set || b->device != o->truth.device;
}

/* The ops of the entry that is bound here, in order; of any other set the op alone. */
static int ops_of(const struct plumb_binding *binding, enum plumb_op op, enum plumb_op out[16])
{
	const char *at = plumb_user_ops(binding);
	int n = 0;

	while (at && *at && n < 16) {
		char name[64];
		size_t length = strcspn(at, "+");
		snprintf(name, sizeof name, "%.*s", (int)length, at);
		out[n] = plumb_op_find(name);
		n += out[n] != PLUMB_OP_COUNT;
		at += length + (at[length] == '+');
	}
	if (n == 0)
		out[n++] = op;
	return n;
}

int bisect_choice_of(const struct bisect *b, int layer, enum plumb_op op)
{
	for (int i = 0; i < b->choices; i++)
		for (int k = 0; k < b->choice[i].ops && b->choice[i].layer == layer; k++)
			if (b->choice[i].op[k] == op)
				return i;
	return -1;
}

const char *bisect_choice_show(const struct bisect *b, int choice, char *text, size_t size)
{
	const struct bisect_choice *c = &b->choice[choice];
	size_t n = 0;

	for (int k = 0; k < c->ops && n < size; k++)
		n += (size_t)snprintf(text + n, size - n, "%s%s", k ? "+" : "", plumb_ops[c->op[k]].name);
	if (n < size && c->layer == b->options->model->cfg.layers)
		snprintf(text + n, size - n, " (outside the layers)");
	else if (n < size)
		snprintf(text + n, size - n, " in layer %d", c->layer);
	return text;
}

int bisect_begin(struct bisect *b, const struct bisect_options *o, struct plumb_error *err)
{
	const struct plumb_config *cfg = &o->model->cfg;
	size_t most = (size_t)(cfg->layers + 1) * PLUMB_OP_COUNT;
	int groups = 0;

	memset(b, 0, sizeof *b);
	b->options = o;
	b->err = err;
	b->repeats = 5;
	b->only = -1;
	b->whole.layer = -1;
	b->choice = calloc(most, sizeof *b->choice);
	b->group = calloc(most, sizeof *b->group);
	b->trace = calloc(1, sizeof *b->trace);
	b->set = calloc(most + 1, sizeof *b->set);
	if (!b->choice || !b->group || !b->trace || !b->set)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the choices of %d layers", cfg->layers);
	/* op by op, so that the layers of one op stand together */
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		bool any = false;
		for (int l = 0; l <= cfg->layers; l++) {
			struct bisect_choice *c = &b->choice[b->choices];
			if (!plumb_op_runs(cfg, (enum plumb_op)op, l) || !bisect_is_suspect(o, l, (enum plumb_op)op) ||
				bisect_choice_of(b, l, (enum plumb_op)op) >= 0)
				continue;
			c->layer = l;
			c->ops = ops_of(binding_of(o->suspects, l, (enum plumb_op)op), (enum plumb_op)op, c->op);
			b->group[b->choices++] = groups;
			any = true;
		}
		groups += any;
	}
	if (b->choices == 0)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"nothing is suspected: every op runs from the truth; say what is, with --set opt or --op "
			"NAME=opt|FILE.so");
	return PLUMB_OK;
}

void bisect_end(struct bisect *b)
{
	if (b->trace) {
		for (int i = 0; i < b->trace->parts; i++)
			free(b->trace->state[i]);
		free(b->trace->state);
		free(b->trace->digest);
		free(b->trace->base);
		free(b->trace->logits);
		free(b->trace->decoded);
	}
	for (int i = 0; i < b->sets; i++)
		free(b->set[i]);
	free(b->set);
	free(b->trace);
	free(b->choice);
	free(b->group);
	free(b->finding);
	memset(b, 0, sizeof *b);
}

/* ---- a decoder at `from` ---- */

struct part {
	void *data;
	size_t bytes;
};

static void add_cache(struct part *part, int *n, const struct plumb_cache *c)
{
	part[(*n)++] = (struct part){c->data, (size_t)c->rows * plumb_format_row_bytes(c->format, c->width)};
}

/* Memory of the state of a layer. Returns how many parts, at most 8. */
static int parts_of(const struct plumb_config *cfg, const struct plumb_layer_state *s, struct part part[8])
{
	int n = 0;
	if (s->gdn.s) {
		part[n++] = (struct part){
			s->gdn.window, (size_t)(cfg->gdn_conv_taps * plumb_gdn_channels(cfg)) * sizeof(float)};
		part[n++] = (struct part){s->gdn.s, plumb_format_row_bytes(s->gdn.format,
							    cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim)};
	} else {
		add_cache(part, &n, &s->attention.keys);
		add_cache(part, &n, &s->attention.values);
		add_cache(part, &n, &s->attention.raw_keys);
		add_cache(part, &n, &s->attention.block_keys);
	}
	if (s->ple.window) {
		part[n++] = (struct part){s->ple.window,
			(size_t)plumb_ple_history(cfg) * (size_t)cfg->streams * (size_t)cfg->hidden * sizeof(float)};
		part[n++] = (struct part){s->ple.history, (size_t)(cfg->ngram - 1) * sizeof(int64_t)};
	}
	return n;
}

/* Copy the state of a decoder to the trace, or back. */
static int carry_state(struct bisect *b, struct plumb_decoder *d, bool back)
{
	const struct plumb_config *cfg = &b->options->model->cfg;
	struct bisect_trace *t = b->trace;
	int at = 0;

	if (!t->state) {
		t->state = calloc((size_t)cfg->layers * 8, sizeof *t->state);
		if (!t->state)
			return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for a copy of the state");
	}
	for (int l = 0; l < cfg->layers; l++) {
		struct part part[8];
		int n = parts_of(cfg, plumb_decoder_state(d, l), part);
		for (int i = 0; i < n; i++, at++) {
			if (back) {
				memcpy(part[i].data, t->state[at], part[i].bytes);
				continue;
			}
			t->state[at] = malloc(part[i].bytes + 1);
			if (!t->state[at])
				return plumb_fail(b->err, PLUMB_BAD_INPUT,
					"out of memory for a copy of the state: %zu bytes", part[i].bytes);
			memcpy(t->state[at], part[i].data, part[i].bytes);
			t->parts = at + 1;
		}
	}
	return PLUMB_OK;
}

static int mix_plan(struct bisect *b, const bool *on, struct plumb_plan *plan)
{
	int status = plumb_plan_create(&b->options->model->cfg, b->options->truth, plan, b->err);

	for (int i = 0; i < b->choices && on && status == PLUMB_OK; i++)
		for (int k = 0; k < b->choice[i].ops && on[i]; k++) {
			int l = b->choice[i].layer;
			plumb_plan_bind(
				plan, b->choice[i].op[k], l, l, *binding_of(b->options->suspects, l, b->choice[i].op[k]));
		}
	return status;
}

int bisect_decoder(struct bisect *b, const bool *on, struct plumb_decoder **out)
{
	const struct bisect_options *o = b->options;
	struct plumb_plan plan = {0};
	int status = mix_plan(b, on, &plan);

	*out = NULL;
	if (status == PLUMB_OK)
		status = plumb_decoder_create(o->model, &plan, &o->decoder, out, b->err);
	if (status == PLUMB_OK && on)
		plumb_decoder_run_through(*out, o->runner);
	plumb_plan_free(&plan);
	if (status != PLUMB_OK || o->from == 0)
		return status;
	if (!b->trace->state) { /* the truth goes there first */
		struct plumb_decoder *truth = NULL;
		status = on ? bisect_decoder(b, NULL, &truth) : plumb_decoder_step(*out, o->token, o->from, b->err);
		if (status == PLUMB_OK && !on)
			return carry_state(b, *out, false);
		plumb_decoder_destroy(truth);
		if (status != PLUMB_OK)
			return status;
	}
	for (int64_t i = 0; i < o->from && status == PLUMB_OK; i++)
		status = plumb_decoder_advance(*out, o->token[i], b->err);
	return status == PLUMB_OK ? carry_state(b, *out, true) : status;
}

int bisect_feed(struct bisect *b, struct plumb_decoder *d,
	int (*after_step)(void *self, struct plumb_decoder *decoder, int64_t first, int64_t rows), void *self)
{
	const struct bisect_options *o = b->options;
	struct bisect_trace *t = b->trace;
	struct progress progress;
	int64_t pass = o->decoder.max_rows ? o->decoder.max_rows : 64;
	int status = PLUMB_OK;

	if (!t->decoded && !(t->decoded = calloc((size_t)o->steps + 1, sizeof *t->decoded)))
		return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)o->steps);
	progress_begin(&progress, o->progress, "bisect");
	for (int64_t p = o->from; p < o->tokens && status == PLUMB_OK; p += pass) {
		int64_t rows = o->tokens - p < pass ? o->tokens - p : pass;
		status = plumb_decoder_step(d, o->token + p, rows, b->err);
		if (status == PLUMB_OK && after_step)
			status = after_step(self, d, p, rows);
		progress_step(&progress, p + rows, o->tokens + o->steps, "token");
	}
	for (int64_t i = 0; i < o->steps && status == PLUMB_OK; i++) {
		int32_t next = plumb_decoder_tokens(d)[plumb_decoder_rows(d) - 1];
		if (t->done)
			next = t->decoded[i];
		t->decoded[i] = next < 0 ? 0 : next; /* a row of NaN gives none */
		status = plumb_decoder_step(d, &t->decoded[i], 1, b->err);
		if (status == PLUMB_OK && after_step)
			status = after_step(self, d, o->tokens + i, 1);
		progress_step(&progress, o->tokens + i + 1, o->tokens + o->steps, "token");
	}
	progress_end(&progress);
	return status;
}

/* ---- digests ---- */

static uint64_t mix(uint64_t h, uint32_t word)
{
	h = (h ^ word) * 0x9E3779B97F4A7C15u;
	return h ^ h >> 29;
}

/* Hash of a row of binary32: all NaN are one, -0 and +0 are two. */
static uint64_t hash_floats(uint64_t h, const float *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t word = 0x7fc00000;
		if (!isnan(v[i]))
			memcpy(&word, &v[i], sizeof word);
		h = mix(h, word);
	}
	return h;
}

/* Integers, and states that are stored as f16 or bf16: their bits. */
static uint64_t hash_words(uint64_t h, const void *data, size_t bytes)
{
	uint32_t rest = 0;

	memcpy(&rest, (const char *)data + bytes / 4 * 4, bytes % 4);
	h = mix(h, rest);
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		uint32_t word;
		memcpy(&word, (const char *)data + i, sizeof word);
		h = mix(h, word);
	}
	return h;
}

/* Rows of an operand that have a digest of their own: its tokens, or its rows of the cache; a state is one. */
static int64_t digest_rows(const struct plumb_call *call, const struct plumb_operand *o)
{
	int64_t first, last;
	if (o->kind == PLUMB_KIND_CACHE) {
		plumb_case_written_rows(call, o, &first, &last);
		return last - first;
	}
	return o->role == PLUMB_OUT ? call->T : 1;
}

/* Digest of row r of an operand. scratch: (width) of a cache. */
static uint64_t digest_row(const struct plumb_call *call, const struct plumb_operand *o, int64_t r, float *scratch)
{
	const struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	const void *data = plumb_operand_get(call->args, o);
	const uint64_t start = 0x243F6A8885A308D3u;
	int64_t first, last, row;

	if (o->kind == PLUMB_KIND_CACHE) {
		const struct plumb_cache *cache = data;
		plumb_case_written_rows(call, o, &first, &last);
		plumb_cache_get(cache, first + r, scratch);
		return hash_floats(start, scratch, cache->width);
	}
	row = plumb_shape_count(o->shape, call->env->cfg, &extent) / digest_rows(call, o);
	if (o->kind == PLUMB_KIND_F32)
		return hash_floats(start, (const float *)data + r * row, row);
	size_t bytes = (size_t)row * plumb_operand_element(o, call->args);
	return hash_words(start, (const char *)data + (size_t)r * bytes, bytes);
}

static bool is_written(const struct plumb_operand *o)
{
	return (o->role == PLUMB_OUT && !o->trace) || o->role == PLUMB_STATE;
}

static float *cache_scratch(const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int64_t width = 1;
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_cache *c =
			info->operand[i].kind == PLUMB_KIND_CACHE ? plumb_operand_get(call->args, &info->operand[i]) : NULL;
		width = c && c->width > width ? c->width : width;
	}
	return malloc((size_t)width * sizeof(float));
}

/* A run under way. */
struct running {
	struct bisect *b;
	struct bisect_outcome *out;  /* NULL: the truth's, which is recorded */
	int64_t calls;               /* made so far */
	int64_t seq[PLUMB_OP_COUNT]; /* number of the last call of each op */
	bool ended;                  /* by us */
};

static int record(struct bisect *b, const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct bisect_trace *t = b->trace;
	float *scratch = cache_scratch(call);

	if (t->calls == t->call_room) {
		int64_t room = t->call_room ? 2 * t->call_room : 1024;
		int64_t *base = realloc(t->base, (size_t)room * sizeof *base);
		if (base) {
			t->base = base;
			t->call_room = room;
		}
	}
	if (!scratch || t->calls == t->call_room) {
		free(scratch);
		return plumb_fail(
			b->err, PLUMB_BAD_INPUT, "out of memory for the digests of %lld calls", (long long)t->calls);
	}
	t->base[t->calls++] = t->digests;
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		int64_t rows = is_written(o) && plumb_operand_get(call->args, o) ? digest_rows(call, o) : 0;
		if (t->digests + rows > t->digest_room) {
			int64_t room = 2 * (t->digests + rows);
			uint64_t *more = realloc(t->digest, (size_t)room * sizeof *more);
			if (!more) {
				free(scratch);
				return plumb_fail(
					b->err, PLUMB_BAD_INPUT, "out of memory for %lld digests", (long long)room);
			}
			t->digest = more;
			t->digest_room = room;
		}
		for (int64_t r = 0; r < rows; r++)
			t->digest[t->digests++] = digest_row(call, o, r, scratch);
	}
	free(scratch);
	return PLUMB_OK;
}

/* Compare what a call wrote with the digests of call number seq of the truth. present: arguments as the decoder made
 * them. */
static int compare_call(struct running *r, const struct plumb_call *wrote, const struct plumb_call *present, int64_t seq)
{
	const struct plumb_op_info *info = &plumb_ops[wrote->op];
	struct bisect_trace *t = r->b->trace;
	float *scratch = cache_scratch(present);
	int64_t at = t->base[seq];

	if (!scratch)
		return plumb_fail(r->b->err, PLUMB_BAD_INPUT, "out of memory for a row of %s", info->name);
	for (int i = 0; i < info->operands && !r->ended; i++) {
		const struct plumb_operand *o = &info->operand[i];
		int64_t rows = is_written(o) && plumb_operand_get(present->args, o) ? digest_rows(wrote, o) : 0;
		for (int64_t k = 0; k < rows && plumb_operand_get(wrote->args, o) && !r->ended; k++)
			if (digest_row(wrote, o, k, scratch) != t->digest[at + k]) {
				int64_t unit = plumb_operand_row_tokens(wrote->env->cfg, o);
				*r->out = (struct bisect_outcome){.fails = true,
					.layer = wrote->layer,
					.op = wrote->op,
					.site = wrote->site,
					.operand = o->name,
					.token = o->role == PLUMB_STATE && rows == 1 && o->kind != PLUMB_KIND_CACHE
				                         ? wrote->position + wrote->T - 1
				                         : wrote->position + k * unit};
				r->ended = true;
			}
		at += rows;
	}
	free(scratch);
	return r->ended ? PLUMB_MISMATCH : PLUMB_OK;
}

static int after_call(void *self, const struct plumb_call *call)
{
	struct running *r = self;
	struct plumb_call wrote[PLUMB_USER_MAX_OPS], full[PLUMB_USER_MAX_OPS];
	int ops, status = PLUMB_OK;

	r->seq[call->op] = r->calls++;
	if (!r->out)
		return record(r->b, call);
	if (!r->b->options->exact)
		return PLUMB_OK;
	ops = plumb_user_done(call, wrote, full);
	for (int i = 0; i < ops && status == PLUMB_OK; i++)
		status = compare_call(r, &wrote[i], &full[i], r->seq[wrote[i].op]);
	return status;
}

/* ---- logits ---- */

static int record_logits(struct bisect *b, struct plumb_decoder *d, int64_t rows)
{
	struct bisect_trace *t = b->trace;
	int64_t V = b->options->model->cfg.vocab;

	if (t->rows + rows > t->row_room) {
		int64_t room = b->options->tokens - b->options->from + b->options->steps;
		float *more = realloc(t->logits, (size_t)room * (size_t)V * sizeof *more);
		if (!more)
			return plumb_fail(
				b->err, PLUMB_BAD_INPUT, "out of memory for the logits of %lld tokens", (long long)room);
		t->logits = more;
		t->row_room = room;
	}
	memcpy(t->logits + t->rows * V, plumb_decoder_logits(d), (size_t)(rows * V) * sizeof *t->logits);
	t->rows += rows;
	return PLUMB_OK;
}

static int compare_logits(struct running *r, struct plumb_decoder *d, int64_t first, int64_t rows)
{
	const struct bisect_options *o = r->b->options;
	int64_t V = o->model->cfg.vocab;
	const float *ours = plumb_decoder_logits(d), *truth = r->b->trace->logits + (first - o->from) * V;

	for (int64_t i = 0; i < rows; i++) {
		struct plumb_compare cmp;
		plumb_compare_f32(&cmp, ours + i * V, truth + i * V, V);
		double distance = cmp.nan_one + cmp.inf_one + cmp.inf_sign > 0 ? HUGE_VAL : plumb_compare_rel_l2(&cmp);
		if (distance <= o->tolerance) {
			r->out->distance = distance > r->out->distance ? distance : r->out->distance;
			continue;
		}
		*r->out = (struct bisect_outcome){.fails = true,
			.token = first + i,
			.layer = -1,
			.op = PLUMB_LM_HEAD,
			.operand = "logits",
			.distance = distance};
		r->ended = true;
		return PLUMB_MISMATCH;
	}
	return PLUMB_OK;
}

static int after_step(void *self, struct plumb_decoder *d, int64_t first, int64_t rows)
{
	struct running *r = self;
	if (r->b->options->exact)
		return PLUMB_OK;
	return r->out ? compare_logits(r, d, first, rows) : record_logits(r->b, d, rows);
}

/* ---- runs ---- */

static int run_observed(struct bisect *b, const bool *on, struct bisect_outcome *out)
{
	struct running r = {.b = b, .out = out};
	const struct plumb_observer observer = {.after = after_call, .self = &r};
	struct plumb_decoder *d = NULL;
	int status = bisect_decoder(b, on, &d);

	b->decodes++;
	if (status == PLUMB_OK) {
		plumb_decoder_observe(d, &observer);
		status = bisect_feed(b, d, after_step, &r);
	}
	plumb_decoder_destroy(d);
	if (out && r.ended)
		return PLUMB_OK;
	if (out && status == PLUMB_MISMATCH) { /* a suspect said that it failed */
		*out = (struct bisect_outcome){.fails = true, .token = -1, .layer = -1};
		if (b->err)
			out->failed = *b->err;
		return PLUMB_OK;
	}
	return status;
}

/* Where an item stands in a forward pass. */
static int64_t order_of(const struct check_item *it, int layers)
{
	int64_t at = it->source ? it->source - plumb_golden_sources : plumb_golden_source_count;
	bool first = it->source && it->source->op == PLUMB_EMBED;
	int64_t layer = first ? -1 : it->source ? it->layer : layers;
	return layer * (plumb_golden_source_count + 1) + at;
}

/* Against the golden file: the first tensor, in the order of a forward pass, that is out of tolerance. */
static int run_golden(struct bisect *b, const bool *on, struct bisect_outcome *out)
{
	struct check_options o = *b->options->golden;
	struct plumb_plan plan = {0};
	struct check_view view = {0};
	int status = mix_plan(b, on, &plan);

	o.plan = &plan;
	o.runner = on ? b->options->runner : NULL;
	b->decodes++;
	if (status == PLUMB_OK)
		status = check_view_run(&o, PLUMB_VIEW_PROPAGATED, &view, b->err);
	if (status == PLUMB_MISMATCH) {
		*out = (struct bisect_outcome){.fails = true, .token = -1, .layer = -1};
		out->failed = *b->err;
		status = PLUMB_OK;
	} else if (status == PLUMB_OK && check_view_status(&view) != PLUMB_OK) {
		int layers = b->options->model->cfg.layers;
		const struct check_item *first = NULL;
		for (int i = 0; i < view.items; i++) {
			const struct check_item *it = &view.item[i];
			if (it->expected && !it->verdict.pass && (!first || order_of(it, layers) < order_of(first, layers)))
				first = it;
		}
		out->fails = true;
		if (first) {
			out->layer = first->layer;
			out->op = first->source ? first->source->op : PLUMB_LM_HEAD;
			snprintf(out->text, sizeof out->text, "%s: %.150s", first->name, first->verdict.text);
		}
	}
	check_view_free(&view);
	plumb_plan_free(&plan);
	return status;
}

int bisect_truth(struct bisect *b)
{
	int status = b->trace->done ? PLUMB_OK : run_observed(b, NULL, NULL);
	b->trace->done = b->trace->done || status == PLUMB_OK;
	return status;
}

const int32_t *bisect_decoded(const struct bisect *b)
{
	return b->trace->decoded;
}

int bisect_run(struct bisect *b, const bool *on, struct bisect_outcome *out)
{
	int status = bisect_truth(b);

	*out = (struct bisect_outcome){.layer = -1, .token = -1};
	if (status != PLUMB_OK)
		return status;
	return b->options->golden ? run_golden(b, on, out) : run_observed(b, on, out);
}

/* ---- the search ---- */

/* The truth never fails, so of a set whose calls change from run to run one failure is enough. */
static int ask(void *self, const bool *on, bool *fails)
{
	struct bisect *b = self;
	int times = b->flaky ? b->repeats : 1, status = PLUMB_OK;

	*fails = false;
	for (int i = 0; i < times && status == PLUMB_OK && !*fails; i++) {
		struct bisect_outcome out;
		status = bisect_run(b, on, &out);
		*fails = out.fails;
	}
	return status;
}

int bisect_search(struct bisect *b, int most)
{
	size_t bytes = (size_t)b->choices * sizeof(bool);
	bool *rest = malloc(bytes), *hint = calloc(1, bytes), fails = true;
	struct ddmin *d = NULL;
	int status = PLUMB_OK;

	if (!rest || !hint) {
		status = plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for %d choices", b->choices);
		goto out;
	}
	memset(rest, 1, bytes);
	for (int i = 0; i < b->findings; i++) {
		int c = bisect_choice_of(b, b->finding[i].choice.layer, b->finding[i].op);
		if (c >= 0)
			hint[c] = true;
	}
	status = ddmin_create(b->choices, b->group, ask, b, &d, b->err);
	while (status == PLUMB_OK && fails) {
		status = ddmin_ask(d, rest, &fails);
		if (status != PLUMB_OK || !fails)
			break;
		if (b->sets == most) {
			b->rest_fails = true;
			break;
		}
		bool *set = malloc(bytes);
		if (!set) {
			status = plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for %d choices", b->choices);
			break;
		}
		memcpy(set, rest, bytes);
		b->set[b->sets++] = set;
		status = ddmin_reduce(d, set, hint);
		for (int i = 0; i < b->choices; i++) {
			rest[i] = rest[i] && !set[i];
			hint[i] = hint[i] && !set[i];
		}
	}
out:
	ddmin_free(d);
	free(rest);
	free(hint);
	return status;
}
