/* SPDX-License-Identifier: MIT */
/* Calls judged one by one: the suspect on the truth's inputs and state (local), or on what a mixture makes (in
 * context), with the truth's result from the same inputs beside it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opt/user.h"
#include "tools/bisect.h"
#include "tools/check_second.h"
#include "tools/judge.h"

/* One op of the unit that is judged: of a fused entry there are several, which run when the last of them is called. */
struct held {
	struct check_second second;
	struct plumb_call call; /* as the decoder made it; args and env below */
	struct plumb_env env;
	void *args; /* a copy of its arguments: those of the truth */
	struct plumb_case_expected expected[PLUMB_CASE_OPERANDS];
	void *rows[PLUMB_CASE_OPERANDS]; /* of caches, in context */
};

/* What is summed over the calls of one (layer, op, site): bias needs more than one. */
struct summed {
	int layer;
	enum plumb_op op;
	enum plumb_site site;
	int64_t calls, wrong_calls;
	int finding; /* -1: none yet */
	struct plumb_bound_result bound;
};

struct watching {
	struct bisect *b;
	struct held held[PLUMB_USER_MAX_OPS];
	int count;
	struct summed *sum;
	int sums, room;
	int64_t number; /* of the judged call, from 0 on */
	bool in_context, ended;
};

static const struct plumb_binding *suspect_of(const struct watching *w, const struct plumb_call *call)
{
	return &w->b->options->suspects->binding[(size_t)call->layer * PLUMB_OP_COUNT + call->op];
}

static enum plumb_case_criterion criterion_of(const struct bisect *b)
{
	return b->options->exact ? PLUMB_CASE_BITS : PLUMB_CASE_BOUND;
}

static bool is_wanted(const struct bisect_options *o, const struct plumb_call *call)
{
	return o->wanted && call->op == o->wanted_op && (o->wanted_layer < 0 || call->layer == o->wanted_layer) &&
	       (o->wanted_position < 0 || call->position == o->wanted_position);
}

/* Say which call is about to be launched. Returns whether it is the one to stop at. */
static bool launching(struct watching *w, const struct plumb_call *call)
{
	struct bisect_mark *m = w->b->options->mark;
	int64_t number = w->number++;

	if (m)
		*m = (struct bisect_mark){.under_way = 1,
			.in_context = w->in_context,
			.number = number,
			.op = (int32_t)call->op,
			.layer = call->layer,
			.site = (int32_t)call->site,
			.position = call->position};
	return w->b->options->stop == number || is_wanted(w->b->options, call);
}

static void landed(struct watching *w)
{
	if (w->b->options->mark)
		w->b->options->mark->under_way = 0;
}

/* Whether the call is the last one of its unit. */
static bool completes(const struct plumb_binding *by, enum plumb_op op)
{
	const char *ops = plumb_user_ops(by), *last = ops ? strrchr(ops, '+') : NULL;
	return !last || strcmp(last + 1, plumb_ops[op].name) == 0;
}

static struct summed *sum_of(struct watching *w, const struct plumb_call *call)
{
	for (int i = w->sums - 1; i >= 0; i--)
		if (w->sum[i].layer == call->layer && w->sum[i].op == call->op && w->sum[i].site == call->site)
			return &w->sum[i];
	if (w->sums == w->room) {
		int room = w->room ? 2 * w->room : 128;
		struct summed *more = realloc(w->sum, (size_t)room * sizeof *more);
		if (!more)
			return NULL;
		w->sum = more;
		w->room = room;
	}
	struct summed *s = &w->sum[w->sums++];
	memset(s, 0, sizeof *s);
	s->layer = call->layer;
	s->op = call->op;
	s->site = call->site;
	s->finding = -1;
	plumb_bound_begin(&s->bound, call->op);
	return s;
}

static struct bisect_finding *add_finding(struct watching *w, const struct plumb_call *call, enum bisect_kind kind)
{
	struct bisect *b = w->b;
	int choice = bisect_choice_of(b, call->layer, call->op);
	struct bisect_finding *more = realloc(b->finding, (size_t)(b->findings + 1) * sizeof *more), *f;

	if (!more)
		return NULL;
	b->finding = more;
	f = &b->finding[b->findings++];
	memset(f, 0, sizeof *f);
	f->choice = b->choice[choice < 0 ? 0 : choice];
	f->op = call->op;
	f->site = call->site;
	f->kind = kind;
	f->position = call->position;
	f->T = call->T;
	f->token = call->T == 1 ? call->position : -1;
	f->operand = -1;
	f->element = -1;
	f->in_context = w->in_context;
	return f;
}

/* The case of a call: inputs, state before, and what the truth gives. */
static int write_case(struct watching *w, struct held *h, enum plumb_case_criterion criterion, const char *finding)
{
	struct bisect *b = w->b;
	struct plumb_case_origin origin = b->options->origin;
	struct plumb_call call = h->call;
	int status;

	if (!b->options->case_path || b->case_written)
		return PLUMB_OK;
	call.args = h->second.args_before;
	origin.finding = finding;
	status = plumb_case_write(b->options->case_path, &call, h->expected, criterion, &origin, b->err);
	b->case_written = status == PLUMB_OK;
	return status;
}

/* Copies of what a run left, for comparison with the next. */
static int copy_results(struct held *h, void *copy[PLUMB_CASE_OPERANDS], struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[h->call.op];
	struct plumb_call left = h->call;

	left.args = h->second.args;
	for (int i = 0; i < info->operands; i++) {
		size_t bytes = 0;
		copy[i] = NULL;
		if (h->expected[i].data)
			copy[i] = judge_copy(&left, &info->operand[i], &bytes);
		if (!copy[i] && bytes)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a copy of %s", info->operand[i].name);
	}
	return PLUMB_OK;
}

static void free_results(void *copy[PLUMB_CASE_OPERANDS])
{
	for (int i = 0; i < PLUMB_CASE_OPERANDS; i++) {
		free(copy[i]);
		copy[i] = NULL;
	}
}

/* Whether two results differ; *operand: in which. */
static bool results_differ(const struct held *h, void *const a[], void *const b[], int *operand)
{
	const struct plumb_op_info *info = &plumb_ops[h->call.op];
	struct plumb_call call = h->call;

	for (int i = 0; i < info->operands; i++) {
		int64_t n;
		double *x, *y;
		bool differ = false;
		if (!a[i] || !b[i])
			continue;
		x = judge_values(&call, &info->operand[i], a[i], &n);
		y = judge_values(&call, &info->operand[i], b[i], &n);
		for (int64_t k = 0; x && y && k < n && !differ; k++)
			differ = !judge_same(x[k], y[k]);
		free(x);
		free(y);
		if (differ) {
			*operand = i;
			return true;
		}
	}
	return false;
}

/* Run the unit from the held inputs over a poison. */
static int run_unit(struct watching *w, enum plumb_poison poison)
{
	struct bisect *b = w->b;
	int status = PLUMB_OK;

	for (int j = 0; j < w->count && status == PLUMB_OK; j++) {
		const struct plumb_binding *own = suspect_of(w, &w->held[j].call);
		const struct check_second_way way = {.by = *own, .runner = b->options->runner, .poison = poison};
		status = check_second_run_by(&w->held[j].second, &w->held[j].call, &way, b->err);
	}
	return status;
}

static void undo_unit(struct watching *w)
{
	for (int j = 0; j < w->count; j++)
		check_second_undo(&w->held[j].second, &w->held[j].call);
}

/* What the truth left of a call, which the suspect has to write as well. Outputs inside a fused entry are nobody's. */
static int expect(struct held *h, const struct plumb_binding *by, bool copy_rows, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[h->call.op];

	memset(h->expected, 0, sizeof h->expected);
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		int64_t last;
		size_t bytes;
		if ((o->role != PLUMB_OUT && o->role != PLUMB_STATE) || plumb_user_hides(by, o->name))
			continue;
		if (o->kind == PLUMB_KIND_CACHE) {
			plumb_case_written_rows(&h->call, o, &h->expected[i].first, &last);
			h->expected[i].rows = last - h->expected[i].first;
			h->expected[i].data = h->second.rows[i];
			if (copy_rows) {
				free(h->rows[i]);
				h->expected[i].data = h->rows[i] = judge_copy(&h->call, o, &bytes);
				if (!h->rows[i] && bytes)
					return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for rows of %s", o->name);
			}
		} else {
			h->expected[i].data = plumb_operand_get(h->args, o);
		}
	}
	return PLUMB_OK;
}

/* Keep a call for a unit that is not complete yet: the decoder's structs are gone by then. */
static int hold_call(struct held *h, const struct plumb_call *call, struct plumb_error *err)
{
	size_t bytes = plumb_ops[call->op].args_size;
	void *args = realloc(h->args, bytes);

	if (!args)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the arguments of %s", plumb_ops[call->op].name);
	h->args = memcpy(args, call->args, bytes);
	h->env = *call->env;
	h->call = *call;
	h->call.env = &h->env;
	h->call.args = h->args;
	return PLUMB_OK;
}

/* Look inside what is wrong, and write the case of the first. */
static int explain(struct watching *w, struct held *h, const struct plumb_call *left, struct bisect_finding *f,
	const void *got, const void *other)
{
	const struct plumb_operand *o = &plumb_ops[h->call.op].operand[f->operand];
	int64_t n = 0;
	double *x = got ? judge_values(&h->call, o, got, &n) : NULL;
	double *y = judge_values(&h->call, o, h->expected[f->operand].data, &n);
	double *z = other ? judge_values(&h->call, o, other, &n) : NULL;
	unsigned char *wrong = criterion_of(w->b) == PLUMB_CASE_BOUND && w->count == 1
	                               ? judge_beyond(left, h->second.args_before, f->operand, n)
	                               : NULL;
	int status = PLUMB_OK;

	if (x && y)
		inside_look(&h->call, o, x, z, y, wrong, n, &f->inside);
	if (f->inside.pattern == INSIDE_UNWRITTEN)
		f->kind = BISECT_UNWRITTEN;
	if (w->count == 1)
		status = write_case(w, h, criterion_of(w->b), f->text);
	free(x);
	free(y);
	free(z);
	free(wrong);
	return status;
}

/* A call that returned an error instead of a result. */
static int note_failure(struct watching *w, struct held *h)
{
	struct bisect_finding *f = add_finding(w, &h->call, BISECT_FAILED);
	char why[sizeof w->b->err->text];

	if (!f)
		return plumb_fail(w->b->err, PLUMB_BAD_INPUT, "out of memory for a finding");
	snprintf(why, sizeof why, "%s", w->b->err->text);
	snprintf(f->text, sizeof f->text, "%.500s", why);
	w->b->err->text[0] = '\0';
	return w->count == 1 ? write_case(w, h, criterion_of(w->b), f->text) : PLUMB_OK;
}

/* Verdict on the results of a unit that has run over NaN (first) and over large values (second): one op of it. */
static int judge_op(struct watching *w, struct held *h, const struct plumb_call *left, void *const first[],
	void *const second[], bool repeats)
{
	struct bisect *b = w->b;
	struct summed *s = sum_of(w, &h->call);
	struct bisect_finding *f;
	struct judge judge;
	int differs = -1, status;
	bool changes = second && results_differ(h, first, second, &differs);

	if (!s)
		return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for the calls of %s", plumb_ops[h->call.op].name);
	if (w->count > 1 && !b->options->exact)
		status = judge_fused(left, h->expected, &b->options->fused, &judge, b->err);
	else
		status = judge_call(left, h->second.args_before, h->expected, criterion_of(b), &s->bound, &judge, b->err);
	if (status != PLUMB_OK)
		return status;
	s->calls++;
	b->calls++;
	if (judge.pass && !changes)
		return PLUMB_OK;
	s->wrong_calls++;
	b->flaky = b->flaky || (changes && !repeats);
	if (s->finding >= 0)
		return PLUMB_OK;
	bool biased = judge.operand >= 0 && judge.at[judge.operand].gates[0];
	f = add_finding(w, &h->call, changes && !repeats ? BISECT_CHANGES : biased ? BISECT_BIASED : BISECT_WRONG);
	if (!f)
		return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for a finding");
	s->finding = b->findings - 1;
	f->judge = judge;
	f->operand = judge.operand >= 0 ? judge.operand : differs;
	f->element = judge.operand >= 0 ? judge.at[judge.operand].worst : -1;
	snprintf(f->text, sizeof f->text, "%s%s",
		changes ? repeats ? "follows what memory held before; " : "changes from run to run; " : "",
		judge.pass ? "within the criterion this time" : judge.text + strlen("FAIL: "));
	return explain(w, h, left, f, first[f->operand], second ? second[f->operand] : NULL);
}

/* The unit is complete: run it twice from the same inputs, over two poisons, and judge. */
static int judge_unit(struct watching *w)
{
	void *result[2][PLUMB_USER_MAX_OPS][PLUMB_CASE_OPERANDS] = {{{0}}};
	bool again = false, repeats = true;
	int status = run_unit(w, PLUMB_POISON_NAN), unused;

	if (status == PLUMB_MISMATCH) {
		undo_unit(w);
		return note_failure(w, &w->held[w->count - 1]);
	}
	for (int j = 0; j < w->count && status == PLUMB_OK; j++)
		status = copy_results(&w->held[j], result[0][j], w->b->err);
	undo_unit(w);
	if (status == PLUMB_OK) {
		status = run_unit(w, PLUMB_POISON_LARGE);
		again = status == PLUMB_OK;
		for (int j = 0; j < w->count && status == PLUMB_OK; j++) {
			status = copy_results(&w->held[j], result[1][j], w->b->err);
			repeats = repeats && !results_differ(&w->held[j], result[0][j], result[1][j], &unused);
		}
		if (!again)
			undo_unit(w);
		if (status == PLUMB_MISMATCH)
			status = note_failure(w, &w->held[w->count - 1]);
	}
	/* different: from the poison, or by itself? the second poison once more tells */
	if (again && !repeats && status == PLUMB_OK) {
		undo_unit(w);
		status = run_unit(w, PLUMB_POISON_LARGE);
		repeats = true;
		for (int j = 0; j < w->count && status == PLUMB_OK; j++) {
			void *third[PLUMB_CASE_OPERANDS] = {0};
			status = copy_results(&w->held[j], third, w->b->err);
			repeats = repeats && !results_differ(&w->held[j], result[1][j], third, &unused);
			free_results(third);
		}
	}
	for (int j = 0; j < w->count && again && status == PLUMB_OK; j++) {
		struct plumb_call left = w->held[j].call;
		left.args = w->held[j].second.args;
		status = judge_op(w, &w->held[j], &left, result[0][j], result[1][j], repeats);
	}
	if (again)
		undo_unit(w);
	for (int j = 0; j < w->count; j++) {
		free_results(result[0][j]);
		free_results(result[1][j]);
	}
	return status;
}

/* Before the call is launched: its case, and the end. */
static int stop_here(struct watching *w, struct held *h)
{
	enum plumb_case_criterion criterion = w->b->options->stop_exact ? PLUMB_CASE_BITS : criterion_of(w->b);
	int status = w->count > 1 ? PLUMB_OK : write_case(w, h, criterion, w->b->options->origin.finding);

	w->ended = true;
	landed(w);
	return status == PLUMB_OK ? PLUMB_MISMATCH : status;
}

/* ---- local ---- */

static bool is_judged(const struct watching *w, const struct plumb_call *call)
{
	return bisect_is_suspect(w->b->options, call->layer, call->op) &&
	       (w->b->only < 0 || bisect_choice_of(w->b, call->layer, call->op) == w->b->only);
}

static int local_before(void *self, const struct plumb_call *call)
{
	struct watching *w = self;
	if (!is_judged(w, call))
		return PLUMB_OK;
	return check_second_keep(&w->held[w->count].second, call, w->b->err);
}

static int local_after(void *self, const struct plumb_call *call)
{
	struct watching *w = self;
	const struct plumb_binding *by = suspect_of(w, call);
	struct held *h = &w->held[w->count];
	int status;

	if (!is_judged(w, call))
		return PLUMB_OK;
	status = check_second_before(&h->second, call, w->b->err);
	if (status == PLUMB_OK)
		status = check_second_hold(&h->second, call, w->b->err);
	if (status == PLUMB_OK)
		status = hold_call(h, call, w->b->err);
	if (status == PLUMB_OK)
		status = expect(h, by, false, w->b->err);
	w->count++;
	if (status != PLUMB_OK || !completes(by, call->op))
		return status;
	if (launching(w, call))
		return stop_here(w, h);
	status = w->b->options->wanted ? PLUMB_OK : judge_unit(w);
	landed(w);
	w->count = 0;
	return status;
}

/* With `only`: one choice, until its first wrong call. */
static int narrow_after(void *self, const struct plumb_call *call)
{
	struct watching *w = self;
	int before = w->b->findings, status = local_after(self, call);

	w->ended = w->ended || w->b->findings > before;
	return status == PLUMB_OK && w->ended ? PLUMB_MISMATCH : status;
}

/* ---- in context ---- */

/* The truth on the very inputs that the suspect is about to get. LIMIT: fused entries are not judged here. */
static int context_before(void *self, const struct plumb_call *call)
{
	struct watching *w = self;
	const struct check_second_way way = {.by = w->b->options->truth};
	struct held *h = &w->held[0];
	int status;

	if (call->binding->set == way.by.set && call->binding->device == way.by.device)
		return PLUMB_OK;
	status = check_second_keep(&h->second, call, w->b->err);
	if (status == PLUMB_OK)
		status = check_second_before(&h->second, call, w->b->err);
	if (status == PLUMB_OK)
		status = check_second_run_by(&h->second, call, &way, w->b->err);
	if (status != PLUMB_OK)
		return status;
	status = hold_call(h, call, w->b->err);
	if (status == PLUMB_OK) {
		memcpy(h->args, h->second.args, plumb_ops[call->op].args_size); /* expected: what the truth wrote */
		status = expect(h, call->binding, true, w->b->err);
	}
	check_second_undo(&h->second, call);
	return status == PLUMB_OK && launching(w, call) ? stop_here(w, h) : status;
}

static int context_after(void *self, const struct plumb_call *call)
{
	struct watching *w = self;
	struct held *h = &w->held[0];
	void *got[PLUMB_CASE_OPERANDS] = {0};
	struct plumb_call left = *call;
	int status, before = w->b->findings;

	landed(w);
	if (call->binding->set == w->b->options->truth.set && call->binding->device == w->b->options->truth.device)
		return PLUMB_OK;
	if (plumb_user_ops(call->binding) && strchr(plumb_user_ops(call->binding), '+'))
		return PLUMB_OK;
	h->second.args = realloc(h->second.args, plumb_ops[call->op].args_size);
	if (!h->second.args)
		return plumb_fail(
			w->b->err, PLUMB_BAD_INPUT, "out of memory for the arguments of %s", plumb_ops[call->op].name);
	memcpy(h->second.args, call->args, plumb_ops[call->op].args_size);
	w->count = 1;
	status = copy_results(h, got, w->b->err);
	if (status == PLUMB_OK)
		status = w->b->only < 0 || bisect_choice_of(w->b, call->layer, call->op) == w->b->only
		                 ? judge_op(w, h, &left, got, NULL, true)
		                 : PLUMB_OK;
	w->count = 0;
	free_results(got);
	w->ended = w->b->only >= 0 && w->b->findings > before;
	return status == PLUMB_OK && w->ended ? PLUMB_MISMATCH : status;
}

static void release(struct watching *w)
{
	for (int j = 0; j < PLUMB_USER_MAX_OPS; j++) {
		check_second_free(&w->held[j].second);
		free(w->held[j].args);
		for (int i = 0; i < PLUMB_CASE_OPERANDS; i++)
			free(w->held[j].rows[i]);
	}
	free(w->sum);
	free(w);
}

static bool measured(const struct summed *s)
{
	bool any = false;
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		any = any || s->bound.operand[i].values > 0;
	return any;
}

/* What only shows in sums over calls: rms and bias. */
static int judge_sums(struct watching *w)
{
	for (int i = 0; i < w->sums; i++) {
		struct summed *s = &w->sum[i];
		char text[400];
		if (s->finding >= 0) {
			w->b->finding[s->finding].calls = s->calls;
			w->b->finding[s->finding].wrong_calls = s->wrong_calls;
			continue;
		}
		if (w->b->options->exact || !plumb_bounds[s->op] || !measured(s) ||
			plumb_bound_passes(&s->bound, text, sizeof text))
			continue;
		const struct plumb_call call = {
			.op = s->op, .layer = s->layer, .site = s->site, .position = w->b->options->from};
		struct bisect_finding *f = add_finding(w, &call, BISECT_BIASED);
		if (!f)
			return plumb_fail(w->b->err, PLUMB_BAD_INPUT, "out of memory for a finding");
		f->calls = f->wrong_calls = s->calls;
		snprintf(f->text, sizeof f->text, "every value is within its bound, all of them together are not: %.300s",
			text);
	}
	return PLUMB_OK;
}

static int watch(struct bisect *b, const bool *on, bool in_context)
{
	struct watching *w = calloc(1, sizeof *w);
	const struct plumb_observer observer = {.before = in_context ? context_before : local_before,
		.after = in_context     ? context_after
	                 : b->only >= 0 ? narrow_after
	                                : local_after,
		.self = w};
	struct plumb_decoder *d = NULL;
	int status;

	if (!w)
		return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for a judged run");
	w->b = b;
	w->in_context = in_context;
	status = in_context ? bisect_truth(b) : PLUMB_OK; /* for the tokens that are fed */
	if (status == PLUMB_OK)
		status = bisect_decoder(b, on, &d);
	if (status == PLUMB_OK) {
		plumb_decoder_observe(d, &observer);
		status = bisect_feed(b, d, NULL, NULL);
		b->decodes++;
	}
	if (w->ended)
		status = PLUMB_OK;
	if (status == PLUMB_MISMATCH && in_context) /* a suspect said that it failed: that is known already */
		status = PLUMB_OK;
	if (status == PLUMB_OK)
		status = judge_sums(w);
	plumb_decoder_destroy(d);
	release(w);
	return status;
}

int bisect_local(struct bisect *b)
{
	return watch(b, NULL, false);
}

int bisect_in_context(struct bisect *b, const bool *on)
{
	return watch(b, on, true);
}
