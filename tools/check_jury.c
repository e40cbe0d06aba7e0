/* SPDX-License-Identifier: MIT */
/* The jury: perturbed passes of the reference over the local view (ref/nudge.h), for what its plain evaluation leaves
 * unexplained. Whatever the set is, the jury is the oracle, fed with the recorded inputs as the local view feeds the set, and
 * only in the layers in question.
 *
 * bf16: a value next to a rounding boundary inside an op, or of an op whose output is not recorded, goes either way in a
 * pass, with even chances. Each element's span over the passes has to hold both the candidate's value and the recorded one.
 *
 * f32: the GDN recurrence is a product of decays over all tokens, and its forms differ by what the data makes of their
 * roundings: 1e-7 to 4e-6 of the state, as far as the decays of a chunk fall. Where the tolerance does not hold there, the
 * largest distance of a perturbed pass from the plain one takes its place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ref.h"
#include "tools/check_internal.h"

/* ---- verdicts ---- */

static bool is_spread(const struct check_run *run, const struct check_item *item)
{
	return run->options->policy == PLUMB_POLICY_F32 && run->view->view == PLUMB_VIEW_LOCAL && item->fed &&
	       item->source && item->source->op == PLUMB_GDN_RECURRENCE && item->kind == CHECK_FLOAT;
}

/* All weights are 1 when a token has one expert, and its probability is divided by itself or is the only one. */
static bool is_constant(const struct check_run *run, const struct check_item *item)
{
	const struct plumb_config *cfg = &run->options->model->cfg;
	return item->source && strcmp(item->source->dataset, "moe/router/weights") == 0 && cfg->experts_per_token == 1 &&
	       (cfg->norm_topk || cfg->experts == 1);
}

/* The verdict of the tolerance, elements that wait for or were explained by
 * perturbed passes left out of steps of bf16 and of the share of equal ones. */
static void by_tolerance(const struct check_run *run, const struct check_item *item, struct plumb_verdict *verdict)
{
	const struct plumb_tolerance_rule *rule = plumb_tolerances_find(run->options->tolerances,
		item->fed ? run->view->view : PLUMB_VIEW_PROPAGATED, run->options->policy, item->name);
	const struct check_boundary *b = &item->boundary;
	struct plumb_tolerance t = rule->tolerance;
	struct plumb_compare cmp = item->cmp;

	t.allow_constant = t.allow_constant || is_constant(run, item);
	if (item->spread.relative > t.max_rel_l2)
		t.max_rel_l2 = item->spread.relative;
	if (b->aparts > 0 && !b->crowded && cmp.max_bf16_ulp < PLUMB_ULP_APART) {
		cmp.max_bf16_ulp = b->bf16_ulp;
		cmp.max_bf16_ulp_at.index = -1;
		memcpy(cmp.beyond, b->beyond, sizeof cmp.beyond);
		for (int k = 0; k < PLUMB_BF16_STEPS; k++)
			cmp.beyond_at[k].index = -1;
	}
	/* those, and one that the last rounding explains: in a small tensor they are more than a share */
	if (b->differ > 0 && !b->crowded && cmp.count > 0)
		t.min_equal -= (double)(b->aparts + (b->explained > 0)) / (double)cmp.count;
	t.min_equal = t.min_equal > 0.0 ? t.min_equal : 0.0;
	plumb_verdict(&cmp, &t, verdict);
}

void check_judge(const struct check_run *run, struct check_item *item)
{
	const struct check_boundary *b = &item->boundary;
	const struct check_apart *a = &b->unexplained;
	char span[112] = "";

	by_tolerance(run, item, &item->verdict);
	if (!item->verdict.pass || b->explained + b->earlier == b->differ)
		return;
	item->verdict.pass = false;
	item->verdict.share = HUGE_VAL;
	if (b->crowded)
		snprintf(span, sizeof span, ": more differ than rounding explains");
	else if (a->low <= a->high)
		snprintf(span, sizeof span, "; rounding lets the reference write %.9g to %.9g", (double)a->low,
			(double)a->high);
	snprintf(item->verdict.text, sizeof item->verdict.text,
		"FAIL: element %lld is %.9g, recorded %.9g%s (%d perturbed passes)", (long long)a->index, (double)a->ours,
		(double)a->golden, span, b->passes);
}

/* ---- a pass ---- */

static bool waits(const struct check_run *run, const struct check_item *item)
{
	struct plumb_verdict verdict;

	if (!item->compared || !item->expected || item->hidden || item->kind != CHECK_FLOAT)
		return false;
	by_tolerance(run, item, &verdict);
	if (is_spread(run, item))
		return !verdict.pass && item->cmp.nan_one + item->cmp.inf_one + item->cmp.inf_sign == 0;
	return verdict.pass && item->boundary.aparts > item->boundary.earlier && !item->boundary.crowded;
}

/* count values of the pass, from element first of the tensor on. */
static void take(const struct check_run *pass, struct check_item *item, const float *values, int64_t first, int64_t count)
{
	struct check_spread *s = &item->spread;

	check_boundary_span(item, values, first, count);
	if (!s->exact)
		return;
	for (int64_t i = 0; i < count; i++) {
		double exact = (double)s->exact[first + i], error = (double)values[i] - exact;
		if (!pass->nudge)
			s->exact[first + i] = values[i];
		s->error2 += error * error;
		s->reference2 += exact * exact;
	}
}

static int take_cache(struct check_run *pass, const struct plumb_call *call, struct check_item *item)
{
	const struct plumb_cache *cache = check_operand(call, item->source->operand);
	int64_t T = plumb_golden_tokens(pass->options->golden);
	int64_t heads = item->source->form == PLUMB_GOLDEN_CACHE_HEADS ? pass->options->model->cfg.kv_heads : 1;
	int64_t width = cache->width / heads;
	float *row = malloc((size_t)cache->width * sizeof *row);

	if (!row)
		return plumb_fail(pass->err, PLUMB_BAD_INPUT, "out of memory for a cache row");
	for (int64_t p = call->position; p < call->position + call->T; p++) {
		plumb_cache_get(cache, p, row);
		for (int64_t h = 0; h < heads; h++)
			take(pass, item, row + h * width, (h * T + p) * width, width);
	}
	free(row);
	return PLUMB_OK;
}

/* What a call of the pass wrote of an item; recorded choices are gone on with, as everywhere in this view. */
static int look(struct check_run *pass, const struct plumb_call *call, struct check_item *item)
{
	struct check_item choice = *item; /* its counts are those of the set */
	int64_t width = item->golden.count / plumb_golden_tokens(pass->options->golden);

	switch (item->source->form) {
	case PLUMB_GOLDEN_ROWS:
		take(pass, item, check_operand(call, item->source->operand), call->position * width, call->T * width);
		break;
	case PLUMB_GOLDEN_CACHE_HEADS:
	case PLUMB_GOLDEN_CACHE_ROWS:
		return take_cache(pass, call, item);
	case PLUMB_GOLDEN_EXPERTS:
		return check_experts(pass, call, &choice);
	case PLUMB_GOLDEN_MASK:
		return check_mask(pass, call, &choice);
	case PLUMB_GOLDEN_FIRST_STREAM:
	case PLUMB_GOLDEN_STATE:
		break;
	}
	return PLUMB_OK;
}

static int after(void *self, const struct plumb_call *call)
{
	struct check_run *pass = self;
	int status = PLUMB_OK;

	if (check_skipped(pass, call))
		return check_put_in_place(pass, call);
	if (call->op == PLUMB_QSA_SCORE)
		status = check_scores(pass, call);
	for (int i = 0; i < plumb_golden_source_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		struct check_item *item = check_writes(s, call) ? check_find(pass, s, call->layer) : NULL;
		if (!item)
			continue;
		status = check_read(pass, item);
		if (status == PLUMB_OK)
			status = look(pass, call, item);
	}
	if (status == PLUMB_OK)
		status = check_force(pass, call);
	for (int i = 0; i < plumb_golden_source_count; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		struct check_item *item = check_writes(s, call) ? check_find(pass, s, call->layer) : NULL;
		if (item && call->position + call->T == plumb_golden_tokens(pass->options->golden))
			plumb_golden_tensor_free(&item->golden);
	}
	progress_step(pass->progress, call->layer + 1, pass->options->model->cfg.layers + 1, "layer");
	return status;
}

/* In place of every binding: the oracle, with the seed of the pass. */
static int run_nudged(void *self, const struct plumb_call *call)
{
	const struct check_run *pass = self;
	struct plumb_env env = *call->env;

	if (check_skipped(pass, call))
		return PLUMB_OK;
	env.nudge = pass->nudge;
	env.device = NULL;
	return plumb_ref_oracle.op[call->op](&env, call->args);
}

static int take_state(struct check_run *pass, struct check_item *item)
{
	const struct plumb_layer_state *state = plumb_decoder_state(pass->decoder, item->layer);
	int64_t count = 1;
	float *values;

	for (int i = 0; i < item->rank; i++)
		count *= item->dim[i];
	if (!(values = malloc((size_t)(count > 0 ? count : 1) * sizeof *values)))
		return plumb_fail(pass->err, PLUMB_BAD_INPUT, "out of memory for %s", item->name);
	plumb_golden_state(
		item->source, &pass->options->model->cfg, state, plumb_decoder_position(pass->decoder), values, NULL);
	take(pass, item, values, 0, count);
	free(values);
	return PLUMB_OK;
}

static int run_pass(struct check_run *run, const struct check_options *o, const struct plumb_plan *plan, uint64_t seed,
	const int32_t *token)
{
	struct check_run pass = {
		.options = o, .view = run->view, .err = run->err, .progress = run->progress, .nudge = seed};
	const struct plumb_decoder_options decoder = check_decoder_options(o);
	const struct plumb_observer observer = {NULL, after, &pass};
	const struct plumb_runner runner = {run_nudged, &pass};
	int status = plumb_decoder_create(o->model, plan, &decoder, &pass.decoder, run->err);

	if (status == PLUMB_OK)
		status = check_choose_layers(&pass);
	if (status == PLUMB_OK) {
		plumb_decoder_run_through(pass.decoder, &runner);
		plumb_decoder_observe(pass.decoder, &observer);
		status = plumb_decoder_step(pass.decoder, token, plumb_golden_tokens(o->golden), run->err);
	}
	for (int i = 0; i < run->view->items && status == PLUMB_OK; i++) {
		struct check_item *item = &run->view->item[i];
		if (item->source && item->source->form == PLUMB_GOLDEN_STATE && !item->source->integer &&
			o->mine[item->layer] && (item->boundary.aparts || item->spread.exact))
			status = take_state(&pass, item);
	}
	free(pass.score);
	free(pass.skip);
	plumb_decoder_destroy(pass.decoder);
	return status;
}

/* ---- all of them ---- */

/* Items that wait, and the layers whose ops write them. */
static int summon(struct check_run *run, bool *layer)
{
	const struct check_options *o = run->options;
	int n = 0;

	memset(layer, 0, ((size_t)o->model->cfg.layers + 1) * sizeof *layer);
	for (int i = 0; i < run->view->items; i++) {
		struct check_item *item = &run->view->item[i];
		if (!waits(run, item))
			continue;
		layer[check_home(o, item)] = true;
		n++;
	}
	return n;
}

/* The reference itself, for the items that are measured against it. */
static int begin_spread(
	struct check_run *run, const struct check_options *o, const struct plumb_plan *plan, const int32_t *token)
{
	bool any = false;

	for (int i = 0; i < run->view->items; i++) {
		struct check_item *item = &run->view->item[i];
		if (!is_spread(run, item) || !waits(run, item))
			continue;
		item->spread.exact = calloc((size_t)item->cmp.count + 1, sizeof(float));
		if (!item->spread.exact)
			return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for %s", item->name);
		any = true;
	}
	return any ? run_pass(run, o, plan, 0, token) : PLUMB_OK;
}

/* After pass number n. */
static void conclude(struct check_run *run, int n)
{
	for (int i = 0; i < run->view->items; i++) {
		struct check_item *item = &run->view->item[i];
		struct check_spread *s = &item->spread;
		if (item->boundary.aparts && waits(run, item)) {
			item->boundary.passes = n;
			check_boundary_end(item);
			check_judge(run, item);
		}
		if (s->exact) {
			double relative = s->reference2 > 0.0 ? sqrt(s->error2 / s->reference2) : 0.0;
			s->relative = n && relative > s->relative ? relative : s->relative;
			s->error2 = s->reference2 = 0.0;
			s->passes = n;
			check_judge(run, item);
		}
	}
}

int check_jury(struct check_run *run, const int32_t *token)
{
	struct check_options o = *run->options;
	struct plumb_plan plan = {0};
	bool *layer = malloc(((size_t)o.model->cfg.layers + 1) * sizeof *layer);
	int status = layer ? PLUMB_OK : plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for perturbed passes");

	o.mine = layer;
	if (status == PLUMB_OK && summon(run, layer) > 0) {
		run->progress->label = "perturbed";
		status =
			plumb_plan_create(&o.model->cfg, (struct plumb_binding){.set = &plumb_ref_oracle}, &plan, run->err);
		if (status == PLUMB_OK)
			status = begin_spread(run, &o, &plan, token);
		if (status == PLUMB_OK)
			conclude(run, 0);
		for (int n = 1; n <= CHECK_PASSES && status == PLUMB_OK && summon(run, layer) > 0; n++) {
			status = run_pass(run, &o, &plan, (uint64_t)n, token);
			conclude(run, n);
			run->view->passes = n;
		}
	}
	plumb_plan_free(&plan);
	free(layer);
	return status;
}
