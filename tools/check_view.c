/* SPDX-License-Identifier: MIT */
/* Run a decoder over the golden's tokens with an observer that compares what each op writes. */
#include "tools/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opt/user.h"
#include "tools/check_internal.h"

enum { FEW_CUTS = 4 };

/* ---- operands by name ---- */

void *check_operand(const struct plumb_call *call, const char *name)
{
	const struct plumb_operand *o = plumb_operand_find(&plumb_ops[call->op], name);
	return o ? plumb_operand_get(call->args, o) : NULL;
}

/* ---- items ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct check_item *)a)->name, ((const struct check_item *)b)->name);
}

static bool in_range(const struct check_options *o, int layer)
{
	return layer >= o->first_layer && layer <= o->last_layer;
}

static const char *source_stage(const struct plumb_golden_source *s)
{
	return strncmp(s->dataset, "state/", 6) == 0 ? "state" : plumb_ops[s->op].stage;
}

/* The layer whose op writes an item, which is not always the one that it belongs to. */
int check_home(const struct check_options *o, const struct check_item *it)
{
	if (!it->source)
		return o->model->cfg.layers;
	return it->source->scope == PLUMB_GOLDEN_NEXT    ? it->layer - 1
	       : it->source->scope == PLUMB_GOLDEN_FIRST ? o->model->cfg.layers
	                                                 : it->layer;
}

/* Whether the shard compares what the ops of a layer write. */
static bool mine(const struct check_options *o, int layer)
{
	return !o->mine || o->mine[layer];
}

/* The items of a run, one for each dataset, sorted by name. */
static int make_items(const struct check_options *o, enum plumb_view view, struct check_view *out, struct plumb_error *err)
{
	int64_t n = 0;
	const struct plumb_h5_entry *entry = plumb_golden_run(o->golden, o->policy, &n);
	size_t skip = strlen(plumb_golden_run_name(o->policy)) + 1;

	out->item = calloc((size_t)n + 1, sizeof *out->item);
	if (!out->item)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld datasets", (long long)n);
	for (int64_t i = 0; i < n; i++) {
		struct check_item *it = &out->item[out->items++];
		snprintf(it->name, sizeof it->name, "%s", entry[i].name + skip);
		for (unsigned char *p = (unsigned char *)it->name; *p; p++)
			if (*p < 0x20 || *p >= 0x7f)
				*p = '?'; /* names of the format are ASCII; what is not reaches no terminal and no report */
		it->choices.first_row = -1;
		it->boundary.unexplained.index = -1;
		it->layer = o->model->cfg.layers;
		it->stage = "lm_head";
		it->expected = view == PLUMB_VIEW_PROPAGATED && in_range(o, it->layer);
		if (strcmp(it->name, "decode_logits") == 0) {
			it->kind = CHECK_FLOAT;
		} else if (strcmp(it->name, "greedy") == 0) {
			it->kind = CHECK_GREEDY;
		} else {
			it->source = plumb_golden_source_find(&o->model->cfg, it->name, &it->layer);
			it->kind = !it->source ? CHECK_UNKNOWN
			           : it->source->form == PLUMB_GOLDEN_EXPERTS || it->source->form == PLUMB_GOLDEN_MASK
			                   ? CHECK_SELECTION
			           : it->source->integer ? CHECK_INT
			                                 : CHECK_FLOAT;
			it->stage = it->source ? source_stage(it->source) : "unknown";
			it->expected = in_range(o, it->layer);
		}
		it->listed = it->expected;
		it->expected = it->expected && mine(o, check_home(o, it));
	}
	qsort(out->item, (size_t)out->items, sizeof *out->item, by_name);
	return PLUMB_OK;
}

struct check_item *check_find(struct check_run *run, const struct plumb_golden_source *source, int layer)
{
	struct check_item key;
	if (!plumb_golden_dataset_name(source, &run->options->model->cfg, layer, key.name, sizeof key.name))
		return NULL;
	return bsearch(&key, run->view->item, (size_t)run->view->items, sizeof key, by_name);
}

struct check_item *check_find_name(struct check_run *run, const char *name)
{
	struct check_item key;
	snprintf(key.name, sizeof key.name, "%s", name);
	return bsearch(&key, run->view->item, (size_t)run->view->items, sizeof key, by_name);
}

int check_read(struct check_run *run, struct check_item *item)
{
	const struct check_options *o = run->options;
	char full[128];
	int status;

	if (item->golden.f32 || item->golden.i64)
		return PLUMB_OK;
	snprintf(full, sizeof full, "%s/%s", plumb_golden_run_name(o->policy), item->name);
	if (item->kind == CHECK_GREEDY || (item->source && item->source->integer))
		status = plumb_golden_read_i64(o->golden, full, &item->golden, run->err);
	else if (item->source && item->source->form == PLUMB_GOLDEN_MASK)
		status = plumb_golden_read_mask(o->golden, full, &item->golden, run->err);
	else
		status = plumb_golden_read_f32(o->golden, full, &item->golden, run->err);
	item->rank = item->golden.rank;
	memcpy(item->dim, item->golden.dim, sizeof item->dim);
	return status;
}

int check_load(struct check_run *run, struct check_item *item)
{
	if (item->golden.f32 || item->golden.i64)
		return PLUMB_OK;
	int status = check_read(run, item);
	plumb_compare_begin(&item->cmp, item->golden.count);
	plumb_compare_int_begin(&item->ints, item->golden.count);
	check_boundary_begin(run, item);
	return status;
}

void check_finish(struct check_run *run, struct check_item *item)
{
	item->compared = true;
	switch (item->kind) {
	case CHECK_FLOAT:
		check_judge(run, item);
		break;
	case CHECK_INT:
	case CHECK_GREEDY:
		plumb_verdict_int(&item->ints, &item->verdict);
		break;
	case CHECK_SELECTION: {
		const struct check_choices *c = &item->choices;
		/* half of the rows may have nothing but ties; more, and the choice shows nothing. A few rows may be so by chance:
		 * scores pass a ReLU, and a short prompt has few cuts */
		bool says = 2 * c->flat_rows <= c->cut_rows || c->cut_rows < FEW_CUTS;
		item->verdict.pass = c->rows >= 1 && c->wrong == 0 && c->equal + c->tie + c->margin == c->rows && says;
		item->verdict.share = !item->verdict.pass    ? HUGE_VAL
		                      : c->worst_bound > 0.0 ? c->worst_margin / c->worst_bound
		                                             : 0.0;
		snprintf(item->verdict.text, sizeof item->verdict.text,
			"%s: %lld rows, %lld equal, %lld by a tie, "
			"%lld by a margin, %lld wrong%s%s%s",
			item->verdict.pass ? "pass" : "FAIL", (long long)c->rows, (long long)c->equal, (long long)c->tie,
			(long long)c->margin, (long long)c->wrong,
			says ? "" : "; vacuous: most rows have equal scores only", c->first_row >= 0 ? "; " : "",
			c->first_row >= 0 ? c->first_text : "");
		break;
	}
	case CHECK_UNKNOWN:
		break;
	}
}

/* ---- comparing what a call wrote ---- */

/* T as the golden has it: all its tokens, whatever the rows of the call. */
static int64_t golden_count(const struct check_options *o, const char *shape)
{
	struct plumb_extent extent = {.T = plumb_golden_tokens(o->golden), .capacity = 0};
	return plumb_shape_count(shape, &o->model->cfg, &extent);
}

/* Rows of a float output: (T, width), golden rows from call->position on. */
static int compare_rows(struct check_run *run, const struct plumb_call *call, struct check_item *item)
{
	const float *ours = check_operand(call, item->source->operand);
	int64_t width = item->golden.count / plumb_golden_tokens(run->options->golden);
	int64_t first = call->position * width, count = call->T * width;

	if (!ours)
		return PLUMB_OK; /* a trace that this set does not write; the item stays open and is reported so */
	plumb_compare_add(&item->cmp, ours, item->golden.f32 + first, count);
	for (int64_t t = 0; t < call->T; t++)
		check_drift_add(&item->drift, plumb_golden_tokens(run->options->golden), call->position + t,
			ours + t * width, item->golden.f32 + first + t * width, width);
	return check_boundary_rows(run, call, item, ours, item->golden.f32 + first, first, count);
}

static int compare_first_stream(struct check_run *run, const struct plumb_call *call, struct check_item *item)
{
	const float *ours = check_operand(call, item->source->operand);
	int64_t D = run->options->model->cfg.hidden, S = run->options->model->cfg.streams;
	for (int64_t t = 0; t < call->T; t++) {
		const float *golden = item->golden.f32 + (call->position + t) * D;
		plumb_compare_add(&item->cmp, ours + t * S * D, golden, D);
		check_drift_add(&item->drift, plumb_golden_tokens(run->options->golden), call->position + t,
			ours + t * S * D, golden, D);
	}
	return PLUMB_OK;
}

/* Rows that the call appended to a cache. Recorded [H, T, Dh] or, with one head, [T, width]. */
static int compare_cache(struct check_run *run, const struct plumb_call *call, struct check_item *item)
{
	const struct plumb_cache *cache = check_operand(call, item->source->operand);
	int64_t T = plumb_golden_tokens(run->options->golden);
	int64_t heads = item->source->form == PLUMB_GOLDEN_CACHE_HEADS ? run->options->model->cfg.kv_heads : 1;
	int64_t width = cache->width / heads;
	float *row = malloc((size_t)cache->width * sizeof *row);
	int status = PLUMB_OK;

	if (!row)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a cache row");
	for (int64_t t = 0; t < call->T; t++) {
		int64_t p = call->position + t;
		plumb_cache_get(cache, p, row);
		for (int64_t h = 0; h < heads; h++) {
			const float *golden = item->golden.f32 + (h * T + p) * width;
			plumb_compare_add(&item->cmp, row + h * width, golden, width);
			check_drift_add(&item->drift, T, p, row + h * width, golden, width);
			if (status == PLUMB_OK)
				status = check_boundary_shown(
					run, item, row + h * width, golden, (h * T + p) * width, width);
		}
	}
	free(row);
	return status;
}

static int compare(struct check_run *run, const struct plumb_call *call, struct check_item *item)
{
	switch (item->source->form) {
	case PLUMB_GOLDEN_ROWS:
		return compare_rows(run, call, item);
	case PLUMB_GOLDEN_FIRST_STREAM:
		return compare_first_stream(run, call, item);
	case PLUMB_GOLDEN_CACHE_HEADS:
	case PLUMB_GOLDEN_CACHE_ROWS:
		return compare_cache(run, call, item);
	case PLUMB_GOLDEN_EXPERTS:
		return check_experts(run, call, item);
	case PLUMB_GOLDEN_MASK:
		return check_mask(run, call, item);
	case PLUMB_GOLDEN_STATE:
		break; /* after the last token */
	}
	return PLUMB_OK;
}

bool check_writes(const struct plumb_golden_source *s, const struct plumb_call *call)
{
	return s->op == call->op && (s->site == PLUMB_SITE_NONE || s->site == call->site) && s->form != PLUMB_GOLDEN_STATE;
}

/* A call of a layer that need not run. The embedding always does: it is what layer 0 begins from. */
bool check_skipped(const struct check_run *run, const struct plumb_call *call)
{
	return run->skip && run->skip[call->layer] && call->op != PLUMB_EMBED;
}

/* Between the decoder and the runner of the session. */
static int run_or_skip(void *self, const struct plumb_call *call)
{
	const struct check_run *run = self;
	const struct plumb_runner *runner = run->options->runner;

	if (check_skipped(run, call))
		return PLUMB_OK;
	return runner ? runner->run(runner->self, call) : call->binding->set->op[call->op](call->env, call->args);
}

/* In place of an op that did not run: what is recorded of it. */
int check_put_in_place(struct check_run *run, const struct plumb_call *call)
{
	int status = PLUMB_OK;

	for (int i = 0; i < plumb_golden_source_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		struct check_item *item =
			check_writes(s, call) && s->form == PLUMB_GOLDEN_ROWS ? check_find(run, s, call->layer) : NULL;
		if (item)
			status = check_read(run, item);
	}
	if (status == PLUMB_OK)
		status = check_force(run, call);
	for (int i = 0; i < plumb_golden_source_count; i++) {
		struct check_item *item = check_writes(&plumb_golden_sources[i], call)
		                                  ? check_find(run, &plumb_golden_sources[i], call->layer)
		                                  : NULL;
		if (item && call->position + call->T == plumb_golden_tokens(run->options->golden))
			plumb_golden_tensor_free(&item->golden);
	}
	return status;
}

/* Whether the bounds of a call are asked for. */
static bool judged(const struct check_run *run, const struct plumb_call *call)
{
	return run->view->bounds && in_range(run->options, call->layer) && mine(run->options, call->layer);
}

static int before(void *self, const struct plumb_call *call)
{
	struct check_run *run = self;
	run->fused = false;
	if (check_skipped(run, call))
		return PLUMB_OK;
	return judged(run, call) ? check_second_keep(&run->second, call, run->err) : check_boundary_before(run, call);
}

/* Before anything that the call wrote is put right. */
static int judge(struct check_run *run, const struct plumb_call *call)
{
	return judged(run, call) ? check_bounds_call(run->view->bounds, &run->second, call, run->err) : PLUMB_OK;
}

/* One op: wrote has what the set gave, call also what it did not (opt/user.h). */
static int after_op(struct check_run *run, const struct plumb_call *wrote, const struct plumb_call *call)
{
	int64_t tokens = plumb_golden_tokens(run->options->golden);
	int status = PLUMB_OK;

	if (mine(run->options, call->layer))
		plumb_digest_call(&run->view->digest, wrote);
	check_blame_begin(run, call);
	if (call->op == PLUMB_QSA_SCORE)
		status = check_scores(run, call);
	if (status == PLUMB_OK && mine(run->options, call->layer))
		status = check_untold(run, call);
	for (int i = 0; i < plumb_golden_source_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		struct check_item *item = check_writes(s, call) ? check_find(run, s, call->layer) : NULL;
		if (!item)
			continue;
		status = check_load(run, item);
		if (plumb_user_hides(call->binding, s->operand)) {
			item->hidden = true;
			continue; /* loaded all the same: the local view puts it in place */
		}
		if (status == PLUMB_OK)
			status = compare(run, call, item);
		if (run->blame.kernel) {
			item->kernel = run->blame.kernel;
			item->library = run->blame.library;
		}
		if (status == PLUMB_OK && call->position + call->T == tokens)
			check_finish(run, item);
	}
	if (status == PLUMB_OK && run->view->view == PLUMB_VIEW_LOCAL)
		status = check_force(run, call);
	check_blame_end(run, call);
	/* long prompts: what is compared and put in place is not needed again */
	for (int i = 0; i < plumb_golden_source_count; i++) {
		struct check_item *item = check_writes(&plumb_golden_sources[i], call)
		                                  ? check_find(run, &plumb_golden_sources[i], call->layer)
		                                  : NULL;
		if (item && item->compared)
			plumb_golden_tensor_free(&item->golden);
	}
	return status;
}

static int after(void *self, const struct plumb_call *call)
{
	struct check_run *run = self;
	struct plumb_call wrote[PLUMB_USER_MAX_OPS], full[PLUMB_USER_MAX_OPS];
	int ops, status = PLUMB_OK;

	if (check_skipped(run, call))
		return check_put_in_place(run, call);
	ops = plumb_user_done(call, wrote, full);
	run->fused = ops > 1;
	if (ops == 1)
		status = judge(run, &wrote[0]);
	for (int i = 0; i < ops && status == PLUMB_OK; i++)
		status = after_op(run, &wrote[i], &full[i]);
	progress_step(run->progress, call->layer + 1, run->options->model->cfg.layers + 1, "layer");
	return status;
}

/* While nothing is compared with the golden op by op. */
static int after_digest(void *self, const struct plumb_call *call)
{
	struct check_run *run = self;
	struct plumb_call wrote[PLUMB_USER_MAX_OPS], full[PLUMB_USER_MAX_OPS];
	int ops = plumb_user_done(call, wrote, full);

	for (int i = 0; i < ops; i++)
		plumb_digest_call(&run->view->digest, &wrote[i]);
	return ops == 1 ? judge(run, &wrote[0]) : PLUMB_OK;
}

/* ---- after the last token ---- */

static int compare_state(struct check_run *run, struct check_item *item)
{
	const struct plumb_layer_state *state = plumb_decoder_state(run->decoder, item->layer);
	const struct plumb_binding *bound = plumb_decoder_binding(run->decoder, item->layer, item->source->op);
	int status = check_load(run, item);
	float *f32 = NULL;
	int64_t *i64 = NULL;

	if (status != PLUMB_OK)
		return status;
	if (item->source->integer)
		i64 = malloc((size_t)item->golden.count * sizeof *i64);
	else
		f32 = malloc((size_t)item->golden.count * sizeof *f32);
	if (!i64 && !f32)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for %s", item->name);
	if (plumb_user_is(bound)) {
		item->kernel = plumb_user_ops(bound);
		item->library = bound->set->name;
	}
	plumb_golden_state(item->source, &run->options->model->cfg, state, plumb_decoder_position(run->decoder), f32, i64);
	if (i64)
		plumb_compare_int_add(&item->ints, i64, item->golden.i64, item->golden.count);
	else
		plumb_compare_add(&item->cmp, f32, item->golden.f32, item->golden.count);
	if (f32 && item->source->op != PLUMB_GDN_RECURRENCE && /* that state is not rounded */
		!(item->kernel && strchr(item->kernel, '+')))
		status = check_boundary_shown(run, item, f32, item->golden.f32, 0, item->golden.count);
	if (status == PLUMB_OK)
		check_finish(run, item);
	free(f32);
	free(i64);
	return status;
}

/* Cached decode after a prefill: rows of decode_logits are positions prefill .. T-1. */
static int decode_logits(struct check_run *run, struct check_item *item, const int32_t *token)
{
	const struct check_options *o = run->options;
	int64_t T = plumb_golden_tokens(o->golden), V = o->model->cfg.vocab;
	int64_t prefill = plumb_golden_prefill(o->golden, o->policy);
	int status = check_load(run, item);

	plumb_decoder_reset(run->decoder);
	if (status == PLUMB_OK && prefill > 0)
		status = plumb_decoder_step(run->decoder, token, prefill, run->err);
	for (int64_t t = prefill; t < T && status == PLUMB_OK; t++) {
		status = plumb_decoder_step(run->decoder, token + t, 1, run->err);
		if (status == PLUMB_OK) {
			const float *golden = item->golden.f32 + (t - prefill) * V;
			plumb_compare_add(&item->cmp, plumb_decoder_logits(run->decoder), golden, V);
			check_drift_add(&item->drift, T, t, plumb_decoder_logits(run->decoder), golden, V);
		}
		progress_step(run->progress, t + 1 - prefill, T - prefill, "token");
	}
	if (status == PLUMB_OK)
		check_finish(run, item);
	return status;
}

/* Greedy continuation; it does not stop at EOS. */
static int greedy(struct check_run *run, struct check_item *item, const int32_t *token)
{
	int64_t T = plumb_golden_tokens(run->options->golden);
	int status = check_load(run, item);

	plumb_decoder_reset(run->decoder);
	if (status == PLUMB_OK)
		status = plumb_decoder_step(run->decoder, token, T, run->err);
	for (int64_t i = 0; i < item->golden.count && status == PLUMB_OK; i++) {
		int64_t rows = plumb_decoder_rows(run->decoder);
		int32_t next = plumb_decoder_tokens(run->decoder)[rows - 1];
		int64_t next64 = next;
		plumb_compare_int_add(&item->ints, &next64, &item->golden.i64[i], 1);
		if (next < 0)
			break; /* no number among the logits: the comparison stays short and fails */
		if (i + 1 < item->golden.count)
			status = plumb_decoder_step(run->decoder, &next, 1, run->err);
		progress_step(run->progress, i + 1, item->golden.count, "token");
	}
	if (status == PLUMB_OK)
		check_finish(run, item);
	return status;
}

/* ---- the view ---- */

static int64_t greedy_tokens(const struct check_options *o)
{
	char full[64];
	snprintf(full, sizeof full, "%s/greedy", plumb_golden_run_name(o->policy));
	const struct plumb_h5_entry *e = plumb_golden_find(o->golden, full);
	return e ? e->count : 0;
}

static int run_all(struct check_run *run, const int32_t *token)
{
	const struct check_options *o = run->options;
	const struct plumb_observer comparing = {before, after, run}, digesting = {before, after_digest, run};
	struct check_item *item;
	int status;

	const struct plumb_runner skipping = {run_or_skip, run};

	plumb_decoder_run_through(run->decoder, run->skip ? &skipping : o->runner);
	plumb_decoder_observe(run->decoder, &comparing);
	status = plumb_decoder_step(run->decoder, token, plumb_golden_tokens(o->golden), run->err);
	plumb_decoder_observe(run->decoder, &digesting);
	plumb_digest_state_layers(&run->view->digest, run->decoder, o->mine);
	for (int i = 0; i < run->view->items && status == PLUMB_OK; i++) {
		item = &run->view->item[i];
		if (item->source && item->source->form == PLUMB_GOLDEN_STATE && mine(o, item->layer))
			status = compare_state(run, item);
	}
	if (run->view->view != PLUMB_VIEW_PROPAGATED || !in_range(o, o->model->cfg.layers))
		return status;
	if (status == PLUMB_OK && (item = check_find_name(run, "decode_logits")))
		status = decode_logits(run, item, token);
	if (status == PLUMB_OK && (item = check_find_name(run, "greedy")))
		status = greedy(run, item, token);
	plumb_digest_state(&run->view->digest, run->decoder);
	return status;
}

/* Tensors of the format that the golden lacks, in the layers asked for. */
static void find_missing(struct check_run *run)
{
	const struct check_options *o = run->options;
	struct check_view *v = run->view;
	size_t used = 0;

	for (int i = 0; i < plumb_golden_source_count; i++)
		for (int l = 0; l <= o->model->cfg.layers; l++) {
			const struct plumb_golden_source *s = &plumb_golden_sources[i];
			char name[96];
			int where;
			if (s->scope == PLUMB_GOLDEN_OUTSIDE && l < o->model->cfg.layers)
				continue;
			if (!plumb_op_runs(&o->model->cfg, s->op, l) ||
				!plumb_golden_dataset_name(s, &o->model->cfg, l, name, sizeof name))
				continue;
			if (plumb_golden_source_find(&o->model->cfg, name, &where) != s || !in_range(o, where) ||
				!mine(o, l) || check_find_name(run, name))
				continue;
			v->missing++;
			if (used < sizeof v->missing_names)
				used += (size_t)snprintf(v->missing_names + used, sizeof v->missing_names - used, "%s%s",
					used ? ", " : "", name);
		}
}

static void count(struct check_view *v)
{
	for (int i = 0; i < v->items; i++) {
		struct check_item *it = &v->item[i];
		if (it->hidden && it->expected) {
			it->expected = false;
			v->hidden++;
		}
		if (!it->expected)
			continue;
		if (!it->compared) {
			it->verdict.pass = false;
			it->verdict.share = HUGE_VAL;
			snprintf(it->verdict.text, sizeof it->verdict.text, "FAIL: %s",
				it->kind == CHECK_UNKNOWN ? "no op of this model writes such a tensor"
							  : "not compared: no op of this set wrote it");
		} else {
			v->compared++;
			v->floats += it->kind == CHECK_FLOAT;
			v->elements += it->kind == CHECK_FLOAT       ? it->cmp.count
			               : it->kind == CHECK_SELECTION ? it->choices.rows
			                                             : it->ints.count;
		}
		v->failed += !it->verdict.pass;
		v->tied_rows += it->choices.tied_rows;
		v->explained_rows += it->choices.tie + it->choices.margin;
	}
}

int check_view_list(
	const struct check_options *options, enum plumb_view view, struct check_view *out, struct plumb_error *err)
{
	int status;

	memset(out, 0, sizeof *out);
	out->view = view;
	out->part = true;
	status = make_items(options, view, out, err);
	for (int i = 0; i < out->items && status == PLUMB_OK; i++)
		out->item[i].expected = false;
	return status;
}

/* Which layers have to run: those of the shard, and those before them up to the last recorded tensor to begin from. */
int check_choose_layers(struct check_run *run)
{
	const struct check_options *o = run->options;
	int L = o->model->cfg.layers;
	bool needed;

	run->skip = malloc((size_t)(L + 1) * sizeof *run->skip);
	if (!run->skip)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for %d layers", L);
	run->skip[L] = !o->mine[L];
	needed = o->mine[L] && !check_residual_recorded(run, L - 1);
	for (int l = L - 1; l >= 0; l--) {
		needed = needed || o->mine[l];
		run->skip[l] = !needed;
		needed = needed && !check_residual_recorded(run, l - 1);
	}
	return PLUMB_OK;
}

struct plumb_decoder_options check_decoder_options(const struct check_options *o)
{
	return (struct plumb_decoder_options){
		.policy = o->policy,
		.ties = o->ties,
		.capacity = plumb_golden_tokens(o->golden) + greedy_tokens(o),
		.page_seed = o->page_seed,
		.own_caches = o->formats.own_caches,
		.caches = o->formats.caches,
		.state = o->formats.state,
		.all_logits = true,
		.traces = true,
	};
}

int check_view_run(
	const struct check_options *options, enum plumb_view view, struct check_view *out, struct plumb_error *err)
{
	int64_t T = plumb_golden_tokens(options->golden);
	struct progress progress;
	struct check_run run = {.options = options, .view = out, .err = err, .progress = &progress};
	const struct plumb_decoder_options decoder = check_decoder_options(options);
	int32_t *token = malloc((size_t)T * sizeof *token);
	int status = PLUMB_OK;

	memset(out, 0, sizeof *out);
	out->view = view;
	out->part = options->mine != NULL;
	progress_begin(&progress, options->progress, options->label);
	if (!token)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)T);
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++)
		token[t] = (int32_t)plumb_golden_input_ids(options->golden)[t];
	if (status == PLUMB_OK)
		status = make_items(options, view, out, err);
	for (int i = 0; i < out->items && status == PLUMB_OK; i++)
		out->item[i].fed = view == PLUMB_VIEW_PROPAGATED || check_fed(&run, &out->item[i]);
	if (status == PLUMB_OK && options->mine)
		status = check_choose_layers(&run);
	if (status == PLUMB_OK && options->bounds && !(out->bounds = check_bounds_create(options->model->cfg.layers, err)))
		status = PLUMB_BAD_INPUT;
	if (status == PLUMB_OK)
		status = plumb_decoder_create(options->model, options->plan, &decoder, &run.decoder, err);
	if (status == PLUMB_OK)
		status = run_all(&run, token);
	if (status == PLUMB_OK && view == PLUMB_VIEW_LOCAL)
		status = check_jury(&run, token);
	check_second_free(&run.second);
	free(run.score);
	free(run.skip);
	plumb_decoder_destroy(run.decoder);
	free(token);
	out->seconds = progress_now() - progress.start;
	progress_end(&progress);
	if (status == PLUMB_OK) {
		find_missing(&run);
		count(out);
	}
	return status;
}

void check_view_free(struct check_view *view)
{
	for (int i = 0; i < view->items; i++) {
		plumb_golden_tensor_free(&view->item[i].golden);
		free(view->item[i].boundary.apart);
		free(view->item[i].spread.exact);
	}
	free(view->item);
	check_bounds_free(view->bounds);
	memset(view, 0, sizeof *view);
}

int check_view_status(const struct check_view *view)
{
	bool bounded = !view->bounds || check_bounds_status(view->bounds) == PLUMB_OK;
	bool any = view->part;
	for (int i = 0; i < view->items && any; i++)
		any = !view->item[i].expected;
	return (view->compared >= 1 || any) && view->failed == 0 && bounded ? PLUMB_OK : PLUMB_MISMATCH;
}

/* ---- golden and model belong together ---- */

static void show_dims(const int64_t *dim, int rank, char *text, size_t size)
{
	size_t n = 0;
	text[0] = '\0';
	for (int i = 0; i < rank && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
}

static int fits_shape(
	const struct check_options *o, const struct plumb_h5_entry *e, const char *shape, struct plumb_error *err)
{
	struct plumb_extent extent = {.T = plumb_golden_tokens(o->golden), .capacity = 0};
	int64_t dim[8];
	int rank = plumb_shape_eval(shape, &o->model->cfg, &extent, dim);
	char found[128], wanted[128];

	if (rank == e->rank && memcmp(dim, e->dim, (size_t)rank * sizeof dim[0]) == 0 && golden_count(o, shape) == e->count)
		return PLUMB_OK;
	show_dims(e->dim, e->rank, found, sizeof found);
	show_dims(dim, rank, wanted, sizeof wanted);
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"%s: %s is [%s], expected [%s] (%s) by the checkpoint's config; are golden and checkpoint of one model?",
		plumb_golden_path(o->golden), e->name, found, wanted, shape);
}

int check_fits(const struct check_options *o, struct plumb_error *err)
{
	const struct plumb_config *cfg = &o->model->cfg;
	const char *path = plumb_golden_path(o->golden), *run = plumb_golden_run_name(o->policy);
	int64_t n = 0, T = plumb_golden_tokens(o->golden), prefill = plumb_golden_prefill(o->golden, o->policy);
	const struct plumb_h5_entry *entry = plumb_golden_run(o->golden, o->policy, &n);
	const int64_t *id = plumb_golden_input_ids(o->golden);

	if (!plumb_golden_has_run(o->golden, o->policy))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no group /%s, needed for --policy %s", path, run,
			plumb_policy_name(o->policy));
	for (int64_t t = 0; t < T; t++)
		if (id[t] < 0 || id[t] >= cfg->vocab)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: input_ids[%lld] is %lld, expected 0..%lld by the checkpoint's vocab_size", path,
				(long long)t, (long long)id[t], (long long)cfg->vocab - 1);
	for (int64_t i = 0; i < n; i++) {
		const char *name = entry[i].name + strlen(run) + 1;
		bool integer = strcmp(name, "greedy") == 0, either = false;
		int layer = 0, status = PLUMB_OK;
		const struct plumb_golden_source *s = plumb_golden_source_find(cfg, name, &layer);
		if (s) {
			integer = s->integer;
			either = s->form == PLUMB_GOLDEN_MASK && entry[i].type == PLUMB_H5_INT; /* golden/mask.h */
			status = fits_shape(o, &entry[i], s->shape, err);
		} else if (strcmp(name, "decode_logits") == 0) {
			if (prefill < 0)
				status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s needs the attribute prefill on /%s", path,
					entry[i].name, run);
			else if (entry[i].rank != 2 || entry[i].dim[0] != T - prefill || entry[i].dim[1] != cfg->vocab)
				status = plumb_fail(err, PLUMB_BAD_INPUT,
					"%s: %s has %lld numbers, expected [%lld, %lld] (tokens after prefill, vocab_size)",
					path, entry[i].name, (long long)entry[i].count, (long long)(T - prefill),
					(long long)cfg->vocab);
		} else if (!integer) {
			continue; /* unknown: reported as not compared */
		}
		if (status == PLUMB_OK && !either && entry[i].type != (integer ? PLUMB_H5_INT : PLUMB_H5_FLOAT))
			status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s is not of a%s type", path, entry[i].name,
				integer ? "n integer" : " float");
		if (status != PLUMB_OK)
			return status;
	}
	return PLUMB_OK;
}
