/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "tools/bench.h"
#include "tools/bench_golden.h"
#include "tools/progress.h"
#include "tools/run_digest.h"

/* ---- op by op, on preset small ---- */

enum { CHECK_CONTEXT = 300, CHECK_STEPS = 4 };

/* What the twin's calls wrote, in the order of the calls. */
struct tape {
	unsigned char *byte;
	size_t size, room, at;
	bool recording;
	bool wrong[PLUMB_OP_COUNT], seen[PLUMB_OP_COUNT];
};

/* Memory of a written operand; 0: none. */
static size_t written(const struct plumb_call *call, const struct plumb_operand *o, unsigned char **at)
{
	struct plumb_extent extent = {call->T, call->env->capacity};
	void *pointer = plumb_operand_get(call->args, o);

	if (!pointer || (o->role != PLUMB_OUT && o->role != PLUMB_STATE))
		return 0;
	if (o->kind == PLUMB_KIND_CACHE) {
		const struct plumb_cache *c = pointer;
		const int64_t pages = (c->rows + c->page_rows - 1) / c->page_rows; /* all of them are in use */
		*at = c->data;
		return (size_t)(pages * c->page_rows) * plumb_format_row_bytes(c->format, c->width);
	}
	*at = pointer;
	return (size_t)plumb_shape_count(o->shape, call->env->cfg, &extent) * plumb_operand_element(o, call->args);
}

static int record(struct tape *t, const unsigned char *from, size_t bytes, struct plumb_error *err)
{
	if (bytes > t->room - t->size) {
		const size_t room = 2 * (t->size + bytes);
		unsigned char *more = realloc(t->byte, room);
		if (!more)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for what the twin wrote (%zu bytes)", room);
		t->byte = more;
		t->room = room;
	}
	memcpy(t->byte + t->size, from, bytes);
	t->size += bytes;
	return PLUMB_OK;
}

/* After a call of the twin: keep what it wrote. Of the set under test: compare, and put the twin's in its place, so that
 * the next op has right inputs whatever this one did. */
static int after(void *self, const struct plumb_call *call)
{
	struct tape *t = self;
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = PLUMB_OK;

	t->seen[call->op] = true;
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		unsigned char *at = NULL;
		const size_t bytes = written(call, &info->operand[i], &at);
		if (bytes == 0)
			continue;
		if (t->recording) {
			status = record(t, at, bytes, call->env->err);
			continue;
		}
		if (bytes > t->size - t->at)
			return plumb_fail(
				call->env->err, PLUMB_MISMATCH, "%s wrote more than the twin's calls did", info->name);
		t->wrong[call->op] |= memcmp(at, t->byte + t->at, bytes) != 0;
		memcpy(at, t->byte + t->at, bytes);
		t->at += bytes;
	}
	return status;
}

/* The same steps, from the set that the options name. */
static int run_small(const struct bench_options *o, const struct set_options *set, struct tape *t, struct plumb_error *err)
{
	const struct plumb_observer observer = {NULL, after, t};
	struct plumb_decoder_options options = o->decoder;
	struct plumb_decoder *d = NULL;
	struct session s;
	int status = session_open(set, &s, err);

	options.capacity = CHECK_CONTEXT + CHECK_STEPS;
	if (status == PLUMB_OK)
		status = plumb_decoder_create(s.model, &s.plan, &options, &d, err);
	if (status == PLUMB_OK)
		status = plumb_synthetic_context(d, CHECK_CONTEXT, 0, err);
	if (status == PLUMB_OK)
		plumb_decoder_observe(d, &observer);
	for (int32_t i = 0; i < CHECK_STEPS && status == PLUMB_OK; i++) {
		const int32_t token = 5 + 90 * i;
		status = plumb_decoder_step(d, &token, 1, err);
	}
	plumb_decoder_destroy(d);
	session_close(&s);
	return status;
}

int bench_check_ops(struct bench *b, struct plumb_error *err)
{
	struct set_options set = b->options->set, twin;
	struct tape t = {.recording = true};
	char names[256] = "";
	int ops = 0, wrong = 0, status;

	if (!set.set || strcmp(set.set, "opt") != 0) {
		snprintf(b->checked, sizeof b->checked, "nothing: the reference is what the sets are held to");
		return PLUMB_OK;
	}
	set.checkpoint = NULL;
	set.synthetic = "small";
	set.weight_seed = 0;
	twin = set;
	twin.set = "ref";
	twin.mode = "twin";
	twin.device = NULL;
	status = run_small(b->options, &twin, &t, err);
	t.recording = false;
	if (status == PLUMB_OK)
		status = run_small(b->options, &set, &t, err);
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		const size_t n = strlen(names);
		b->wrong[i] = t.wrong[i];
		ops += t.seen[i];
		wrong += t.wrong[i];
		if (t.wrong[i])
			snprintf(names + n, sizeof names - n, " %s", plumb_ops[i].name);
	}
	if (status == PLUMB_OK && wrong)
		snprintf(b->checked, sizeof b->checked, "NOT bit-exact with the twin on preset small, so not timed:%s",
			names);
	else
		snprintf(b->checked, sizeof b->checked, "%d of %d ops bit-exact with the twin on preset small", ops - wrong,
			ops);
	free(t.byte);
	return status;
}

/* ---- whole runs at full size ---- */

struct digesting {
	struct run_digests digests;
	struct progress progress;
	int64_t total;
};

static int digest_call(void *self, const struct plumb_call *call)
{
	struct digesting *g = self;
	const int layers = g->digests.layers;
	char where[48];

	snprintf(where, sizeof where, "layer %d of %d", call->layer < layers ? call->layer + 1 : layers, layers);
	progress_within(&g->progress, call->position - g->digests.first, (double)call->layer / (layers + 1), g->total,
		"token", where);
	return run_digests_call(&g->digests, call);
}

/* Decode as a digest file says, and hold every layer of every token to it. */
static int run_expected(
	struct session *s, const struct run_expected *e, const char *name, const char *model, struct plumb_error *err)
{
	const struct run_facts *f = &e->facts;
	struct run_facts facts = *f;
	struct set_options words = {.policy = f->policy, .state_format = f->state};
	struct plumb_decoder_options options = {.capacity = f->capacity};
	struct digesting g = {.total = f->prompts + f->tokens - 1};
	const struct plumb_observer observer = {NULL, digest_call, &g};
	struct plumb_decoder *d = NULL;
	int32_t *token = calloc((size_t)f->tokens + 1, sizeof *token);
	int status =
		token ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)f->tokens);

	if (strcmp(f->caches, "policy") != 0)
		words.kv_format = f->caches;
	if (status == PLUMB_OK)
		status = options_policy(&words, &options.policy, err);
	if (status == PLUMB_OK)
		status = options_formats(&words, &options, err);
	if (status == PLUMB_OK)
		status = plumb_decoder_create(s->model, &s->plan, &options, &d, err);
	if (status == PLUMB_OK && f->context > 0)
		status = plumb_synthetic_context(d, f->context, (uint64_t)f->weight_seed, err);
	if (status == PLUMB_OK)
		status = run_digests_create(s->model->cfg.layers, f->context, f->prompts + f->tokens, &g.digests, err);
	if (status == PLUMB_OK)
		plumb_decoder_observe(d, &observer);
	progress_begin(&g.progress, true, "checking digests");
	g.digests.last = f->context + f->prompts - 1;
	if (status == PLUMB_OK)
		status = plumb_decoder_step(d, f->prompt, f->prompts, err);
	for (int64_t i = 0; i < f->tokens && status == PLUMB_OK; i++) {
		token[i] = plumb_decoder_tokens(d)[plumb_decoder_rows(d) - 1];
		g.digests.last++;
		if (i + 1 < f->tokens)
			status = plumb_decoder_step(d, &token[i], 1, err);
	}
	progress_end(&g.progress);
	facts.model = model;
	facts.profile = s->profile.name;
	facts.token = token;
	if (status == PLUMB_OK)
		status = run_expected_compare(e, name, &g.digests, f->prompts + f->tokens - 1, &facts, err);
	run_digests_free(&g.digests);
	plumb_decoder_destroy(d);
	free(token);
	return status;
}

int bench_check_digests(struct bench *b, struct session *s, struct plumb_error *err)
{
	const struct set_options *o = &b->options->set;
	int status = PLUMB_OK, held = 0;

	for (int i = 0; i < BENCH_GOLDENS && status == PLUMB_OK; i++) {
		const struct bench_golden *g = &bench_goldens[i];
		struct run_expected e;
		status = run_expected_parse(g->text, *g->size, g->name, &e, err);
		if (status != PLUMB_OK)
			break;
		if (strcmp(e.facts.model, b->model) == 0 && strcmp(e.facts.profile, s->profile.name) == 0 &&
			e.facts.weight_seed == o->weight_seed && e.facts.tokens > 0) {
			status = run_expected(s, &e, g->name, b->model, err);
			held++;
		}
		run_expected_free(&e);
	}
	const size_t n = strlen(b->checked);
	if (status == PLUMB_OK && held)
		snprintf(b->checked + n, sizeof b->checked - n, "; %d shipped runs of this model: every digest as expected",
			held);
	return status;
}
