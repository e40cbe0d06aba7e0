/* SPDX-License-Identifier: MIT */
#include "tools/golden_plan.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tolerance.h"

#include "tools/golden_part.h"

/* A tensor of more values than this could not be read again. */
#define MOST_VALUES PLUMB_H5_MAX_COUNT

struct maker {
	struct golden_plan *plan;
	const struct golden_choice *choice;
	bool matched[GOLDEN_GLOBS];
	struct plumb_error *err;
};

/* As a shell does: * and ? stop at a slash; a pattern with ** in it does not. */
static bool matches(const char *glob, const char *name)
{
	return fnmatch(glob, name, strstr(glob, "**") ? 0 : FNM_PATHNAME) == 0;
}

static bool chosen(struct maker *m, const struct golden_run *run, const char *name, int layer)
{
	const struct golden_choice *c = m->choice;
	bool wanted = c->globs == 0;
	char full[128];

	if (layer < c->first_layer || layer > c->last_layer)
		return false;
	for (int i = 0; i < c->globs; i++)
		if (matches(c->glob[i], name))
			wanted = m->matched[i] = true;
	snprintf(full, sizeof full, "%s/%s", plumb_golden_run_name(run->policy), name);
	return wanted && (!c->like || plumb_golden_find(c->like, full));
}

static int add_tensor(struct maker *m, struct golden_run *run, const struct golden_tensor *t)
{
	struct golden_tensor *more = realloc(run->tensor, ((size_t)run->tensors + 1) * sizeof *more);

	if (!more)
		return plumb_fail(m->err, PLUMB_BAD_INPUT, "out of memory for the list of tensors");
	run->tensor = more;
	run->tensor[run->tensors] = *t;
	more = &run->tensor[run->tensors++];
	more->count = 1;
	for (int i = 0; i < more->rank; i++)
		if (__builtin_mul_overflow(more->count, more->dim[i], &more->count))
			more->count = INT64_MAX;
	if (more->count > MOST_VALUES)
		return plumb_fail(m->err, PLUMB_BAD_INPUT,
			"%s/%s would have %lld values, expected at most %lld; --tensors leaves it out",
			plumb_golden_run_name(run->policy), t->name, (long long)more->count, (long long)MOST_VALUES);
	return PLUMB_OK;
}

static int add_source(struct maker *m, struct golden_run *run, const struct plumb_golden_source *s, int layer)
{
	const struct plumb_config *cfg = m->plan->cfg;
	struct plumb_extent extent = {.T = m->plan->T, .capacity = 0};
	struct golden_tensor t = {.source = s};

	if (s->scope == PLUMB_GOLDEN_OUTSIDE && layer < cfg->layers)
		return PLUMB_OK; /* the op may run in layers too */
	if (!plumb_op_runs(cfg, s->op, layer) || !plumb_golden_dataset_name(s, cfg, layer, t.name, sizeof t.name) ||
		plumb_golden_source_find(cfg, t.name, &t.layer) != s || !chosen(m, run, t.name, t.layer))
		return PLUMB_OK;
	t.fill = s->form == PLUMB_GOLDEN_STATE ? GOLDEN_FILL_STATE : GOLDEN_FILL_PROMPT;
	t.type = s->integer ? PLUMB_H5_INT : PLUMB_H5_FLOAT;
	t.value_bytes = s->form == PLUMB_GOLDEN_MASK ? 1 : s->integer ? 8 : 4;
	t.rank = plumb_shape_eval(s->shape, cfg, &extent, t.dim);
	return add_tensor(m, run, &t);
}

/* What no op writes. */
static int add_others(struct maker *m, struct golden_run *run)
{
	const struct plumb_config *cfg = m->plan->cfg;
	struct golden_tensor decode = {
		.name = "decode_logits",
		.layer = cfg->layers,
		.fill = GOLDEN_FILL_DECODE,
		.type = PLUMB_H5_FLOAT,
		.rank = 2,
		.dim = {m->plan->T - run->prefill, cfg->vocab},
		.value_bytes = 4,
	};
	struct golden_tensor greedy = {
		.name = "greedy",
		.layer = cfg->layers,
		.fill = GOLDEN_FILL_GREEDY,
		.type = PLUMB_H5_INT,
		.rank = 1,
		.dim = {run->steps},
		.value_bytes = 8,
	};
	int status = PLUMB_OK;

	if (run->prefill >= 0 && run->prefill < m->plan->T && chosen(m, run, decode.name, decode.layer))
		status = add_tensor(m, run, &decode);
	else
		run->prefill = -1;
	if (status == PLUMB_OK && run->steps > 0 && chosen(m, run, greedy.name, greedy.layer))
		status = add_tensor(m, run, &greedy);
	else
		run->steps = 0;
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct golden_tensor *)a)->name, ((const struct golden_tensor *)b)->name);
}

static int make_run(struct maker *m, struct golden_run *run)
{
	int L = m->plan->cfg->layers, status = PLUMB_OK;

	for (int s = 0; s < plumb_golden_source_count; s++)
		for (int l = 0; l <= L && status == PLUMB_OK; l++)
			status = add_source(m, run, &plumb_golden_sources[s], l);
	if (status == PLUMB_OK)
		status = add_others(m, run);
	run->of_source = calloc((size_t)plumb_golden_source_count * (size_t)(L + 1), sizeof *run->of_source);
	if (status == PLUMB_OK && !run->of_source)
		status = plumb_fail(m->err, PLUMB_BAD_INPUT, "out of memory for the list of tensors");
	if (status != PLUMB_OK || run->tensors == 0)
		return status;
	qsort(run->tensor, (size_t)run->tensors, sizeof *run->tensor, by_name);
	for (int s = 0; s < plumb_golden_source_count; s++)
		for (int l = 0; l <= L; l++) {
			const struct golden_tensor *t = NULL;
			char name[96];
			if (plumb_golden_dataset_name(&plumb_golden_sources[s], m->plan->cfg, l, name, sizeof name))
				t = golden_plan_find(run, name);
			run->of_source[s * (L + 1) + l] =
				t && t->source == &plumb_golden_sources[s] ? (int)(t - run->tensor) : -1;
		}
	for (int i = 0; i < run->tensors; i++) {
		run->tensor[i].offset = m->plan->bytes;
		m->plan->bytes += (run->tensor[i].count * run->tensor[i].value_bytes + 7) / 8 * 8;
	}
	return PLUMB_OK;
}

int golden_plan_make(struct golden_plan *plan, const struct golden_choice *choice, struct plumb_error *err)
{
	struct maker m = {.plan = plan, .choice = choice, .err = err};
	int status = PLUMB_OK;

	plan->bytes = GOLDEN_PART_HEADER;
	for (int i = 0; i < plan->runs && status == PLUMB_OK; i++)
		status = make_run(&m, &plan->run[i]);
	for (int i = 0; i < choice->globs && status == PLUMB_OK; i++)
		if (!m.matched[i])
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"--tensors: '%s' matches no tensor of these layers and runs; names are like "
				"layer03/gdn/output",
				choice->glob[i]);
	for (int i = 0; i < plan->runs && status == PLUMB_OK; i++)
		if (plan->run[i].tensors == 0)
			status = plumb_fail(err, PLUMB_BAD_INPUT, "nothing is chosen for the run %s",
				plumb_golden_run_name(plan->run[i].policy));
	return status;
}

void golden_plan_free(struct golden_plan *plan)
{
	for (int i = 0; i < GOLDEN_RUNS; i++) {
		free(plan->run[i].tensor);
		free(plan->run[i].of_source);
		plan->run[i].tensor = NULL;
		plan->run[i].of_source = NULL;
	}
}

const struct golden_tensor *golden_plan_of(
	const struct golden_plan *plan, const struct golden_run *run, const struct plumb_golden_source *source, int layer)
{
	int i = run->of_source[(source - plumb_golden_sources) * (plan->cfg->layers + 1) + layer];
	return i < 0 ? NULL : &run->tensor[i];
}

const struct golden_tensor *golden_plan_find(const struct golden_run *run, const char *name)
{
	struct golden_tensor key;
	snprintf(key.name, sizeof key.name, "%s", name);
	return bsearch(&key, run->tensor, (size_t)run->tensors, sizeof key, by_name);
}

static const struct plumb_h5_entry *entry_of(const struct plumb_golden *golden, enum plumb_policy policy, const char *name)
{
	char full[64];
	snprintf(full, sizeof full, "%s/%s", plumb_golden_run_name(policy), name);
	return plumb_golden_find(golden, full);
}

int64_t golden_plan_greedy_of(const struct plumb_golden *golden, enum plumb_policy policy)
{
	const struct plumb_h5_entry *e = entry_of(golden, policy, "greedy");
	return e && e->type == PLUMB_H5_INT && e->rank == 1 ? e->count : 0;
}

int64_t golden_plan_prefill_of(const struct plumb_golden *golden, enum plumb_policy policy)
{
	return entry_of(golden, policy, "decode_logits") ? plumb_golden_prefill(golden, policy) : -1;
}

bool golden_plan_attribute(
	const struct golden_plan *plan, const struct plumb_golden_sealed *what, const char **text, int64_t *integer)
{
	*text = NULL;
	*integer = PLUMB_GOLDEN_FORMAT;
	if (!what->object[0]) {
		*text = golden_origin_text(plan->origin, what->name);
		return *text || strcmp(what->name, "format") == 0;
	}
	for (int i = 0; i < plan->runs; i++) {
		const struct golden_run *run = &plan->run[i];
		if (strcmp(plumb_golden_run_name(run->policy), what->object) != 0)
			continue;
		if (strcmp(what->name, "policy") == 0)
			*text = plumb_policy_name(run->policy);
		else
			*integer = run->prefill;
		return *text || run->prefill >= 0;
	}
	return false;
}

const char *golden_plan_fingerprint(const struct golden_plan *plan, char hex[65])
{
	struct plumb_sha256 sha;

	plumb_sha256_begin(&sha);
	for (int i = 0; i < plumb_golden_sealed_count; i++) {
		const struct plumb_golden_sealed *s = &plumb_golden_sealed[i];
		const char *text;
		int64_t integer;
		if (!golden_plan_attribute(plan, s, &text, &integer))
			continue;
		if (text)
			plumb_golden_seal_text(&sha, s->object, s->name, text);
		else
			plumb_golden_seal_integer(&sha, s->object, s->name, integer);
	}
	for (int i = 0; i < plan->runs; i++)
		for (int j = 0; j < plan->run[i].tensors; j++) {
			const struct golden_tensor *t = &plan->run[i].tensor[j];
			plumb_golden_seal_dataset(&sha, t->name, t->type, t->rank, t->dim, NULL);
		}
	plumb_sha256_add(&sha, plan->token, (size_t)plan->T * sizeof *plan->token);
	return plumb_sha256_end(&sha, hex);
}
