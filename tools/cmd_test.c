/* SPDX-License-Identifier: MIT */
/* plumb test: single ops on generated inputs, without a model or a golden file. */
#include <cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/contain.h"
#include "tools/html.h"
#include "tools/origin.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/shard.h"
#include "tools/text.h"
#include "tools/trial_filter.h"
#include "tools/trial_suite.h"

enum { SHOWN_FAILURES = 10, TEST_TIMEOUT = 120, MAX_CASES = 10000000, SEED_STEP = 1000000, USER_ROUNDS = 4 };

struct test_command {
	const char *op[PLUMB_OP_COUNT + 1];
	int ops;
	const char *device, *policy, *json, *html, *shard, *one;
	struct origin origin;
	struct option_list seats, classes;
	struct trial_filter filter;
	int64_t cases, seed, jobs, timeout, gpu, within;
	bool list, fail_fast, keep_going, exact, race;
	bool alone; /* a report on standard output: nothing else goes there */
	struct shard part;

	bool wanted[PLUMB_OP_COUNT];
	const char *path[PLUMB_OP_COUNT]; /* of the shared object in the seat; NULL: the opt set */
	struct trial_item *item;
	int64_t items, every; /* of this shard, of all */
	/* what came out */
	struct {
		int64_t cases, failed, constant;
		double ratio, seconds;
	} sum[PLUMB_OP_COUNT];
	int64_t failed;
	bool gates_failed; /* of judge_sums */
	double near;       /* the largest ratio of a failure of a shared object; HUGE_VAL: one is no matter of nearness */
	cJSON *reports;
	struct progress progress;
};

/* ---- what to run ---- */

static int want_class(const struct test_command *c, bool wanted[], struct plumb_error *err)
{
	for (int i = 0; i < c->classes.count; i++)
		if (!trial_class_find(c->classes.item[i]))
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"--class is '%.60s'; 'plumb list classes' shows what there is", c->classes.item[i]);
	for (int k = 0; trial_class(k); k++) {
		wanted[k] = c->classes.count == 0;
		for (int i = 0; i < c->classes.count; i++)
			wanted[k] = wanted[k] || strcmp(c->classes.item[i], trial_class(k)->name) == 0;
	}
	return PLUMB_OK;
}

/* One --op NAME=FILE.so. */
static int take_seat(struct test_command *c, const char *text, struct plumb_error *err)
{
	const char *equals = strchr(text, '=');
	bool offered[PLUMB_OP_COUNT];
	char name[128];
	int status;

	if (!equals || strchr(text, '@'))
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op is '%.100s', expected NAME=FILE.so, or all=FILE.so", text);
	snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
	enum plumb_op op = plumb_op_find(name);
	if (strchr(name, '+'))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--op names '%s': plumb test runs single ops. Of several: plumb bisect --synthetic small "
			"--tokens 5,17,42,3,99,7,23 --op '%.200s' (odd sizes), and plumb check",
			name, text);
	if (strcmp(name, "all") != 0 && text_op("--op", name, &op, err) != PLUMB_OK)
		return PLUMB_BAD_INPUT;
	status = trial_suite_offers(equals + 1, offered, err);
	if (status != PLUMB_OK)
		return status;
	bool any = false;
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		if (offered[i] && (op == PLUMB_OP_COUNT || op == (enum plumb_op)i)) {
			c->path[i] = equals + 1;
			any = true;
		}
	if (!any)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%.300s offers no entry for %s alone (fused ones: plumb bisect --synthetic small, plumb check)",
			equals + 1, op == PLUMB_OP_COUNT ? "any op" : name);
	return PLUMB_OK;
}

static int want_ops(struct test_command *c, struct plumb_error *err)
{
	char meant[TEXT_NEAREST];

	for (int i = 0; i < c->seats.count; i++) {
		int status = take_seat(c, c->seats.item[i], err);
		if (status != PLUMB_OK)
			return status;
	}
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		c->wanted[i] = c->ops == 0 && (c->seats.count == 0 || c->path[i]);
	for (int i = 0; i < c->ops; i++) {
		enum plumb_op op = plumb_op_find(c->op[i]);
		bool stage = false;
		for (int k = 0; k < PLUMB_OP_COUNT; k++)
			if (strcmp(plumb_ops[k].stage, c->op[i]) == 0)
				stage = c->wanted[k] = true;
		if (op == PLUMB_OP_COUNT && !stage)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"'%.60s' is no op and no stage%s; 'plumb list ops' shows them", c->op[i],
				text_op_meant(c->op[i], meant));
		if (op != PLUMB_OP_COUNT)
			c->wanted[op] = true;
	}
	return PLUMB_OK;
}

/* Every --op has a case to run: an object that nothing is asked of would seem to have passed. */
static int seat_all(const struct test_command *c, struct plumb_error *err)
{
	for (int i = 0; i < c->seats.count; i++) {
		const char *path = strchr(c->seats.item[i], '=') + 1;
		bool any = false;
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			any = any || (c->wanted[op] && c->path[op] == path);
		if (!any)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"--op %.300s: another --op, or the ops that are asked for, leave nothing of it to run",
				c->seats.item[i]);
	}
	return PLUMB_OK;
}

/* Cases that have no meaning here. */
static bool excluded(const struct test_command *c, enum plumb_op op, const struct trial_class *class, bool cuda)
{
	bool table = op == PLUMB_EMBED || op == PLUMB_PLE_EMBED;

	if (c->path[op] && class->overflows && !c->exact)
		return true;
	if (!trial_class_takes(class, op, c->filter.among[TRIAL_OF_MATRICES]))
		return true;
	/* pages 2^31 elements apart are no memory that can be copied */
	return strcmp(class->name, "offsets") == 0 && (c->path[op] || (cuda && !table));
}

static int add_item(struct test_command *c, const struct trial_spec *spec, int64_t *room, struct plumb_error *err)
{
	if (c->items == *room) {
		*room = *room ? 2 * *room : 1024;
		struct trial_item *more = realloc(c->item, (size_t)*room * sizeof *more);
		if (!more)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %" PRId64 " cases", *room);
		c->item = more;
	}
	c->item[c->items++] = (struct trial_item){*spec, c->path[spec->op]};
	return PLUMB_OK;
}

/* Rounds over ops and classes; what is asked for only picks from them, so that it never changes a case. */
static int make_items(struct test_command *c, struct plumb_error *err)
{
	bool cuda = c->device && strcmp(c->device, "cuda") == 0, wanted[256] = {false};
	int64_t room = 0, before = -1, rounds = c->cases == 0 ? USER_ROUNDS : SEED_STEP;
	int status = want_class(c, wanted, err);

	if (status == PLUMB_OK)
		status = trial_filter_begin(&c->filter, c->wanted, err);

	for (int64_t round = 0; round < rounds && status == PLUMB_OK && c->items != before; round++) {
		before = c->items;
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			for (int k = 0; trial_class(k) && status == PLUMB_OK; k++) {
				struct trial_spec spec = trial_spec_of((enum plumb_op)op);
				if (c->cases == 0 && round > 0 && !c->path[op])
					continue;
				if (!c->wanted[op] || !wanted[k] || !trial_class_applies(trial_class(k), spec.op) ||
					excluded(c, spec.op, trial_class(k), cuda) || (c->cases && c->items == c->cases))
					continue;
				spec.class = trial_class(k);
				spec.seed = (uint64_t)c->seed * SEED_STEP + (uint64_t)round;
				spec.device = cuda ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT;
				if (c->policy)
					spec.policy = strcmp(c->policy, "bf16") == 0;
				trial_filter_take(&c->filter, &spec);
				status = add_item(c, &spec, &room, err);
			}
	}
	return status;
}

/* --shard I/N: every N-th case from the I-th on. */
static int take_shard(struct test_command *c, struct plumb_error *err)
{
	int64_t kept = 0;
	int status = shard_parse(c->shard, &c->part, err);

	c->every = c->items;
	for (int64_t i = 0; i < c->items && status == PLUMB_OK; i++)
		if (shard_takes(&c->part, i))
			c->item[kept++] = c->item[i];
	if (status == PLUMB_OK)
		c->items = kept;
	return status;
}

static int take_one(struct test_command *c, struct plumb_error *err)
{
	struct trial_spec spec;
	int64_t room = 0;
	int status = trial_spec_parse(c->one, &spec, err);

	if (status == PLUMB_OK && c->ops)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "--case has its own op, '%.60s' is one too many", c->op[0]);
	if (status == PLUMB_OK && (c->classes.count || c->cases || c->shard))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "--case is one case: %s does not go with it",
			c->classes.count ? "--class"
			: c->cases       ? "--cases"
					 : "--shard");
	if (status != PLUMB_OK)
		return status;
	if (c->device)
		spec.device = strcmp(c->device, "cuda") == 0 ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT;
	if (c->policy)
		spec.policy = strcmp(c->policy, "bf16") == 0;
	memset(c->wanted, 0, sizeof c->wanted);
	c->wanted[spec.op] = true;
	status = trial_filter_begin(&c->filter, c->wanted, err);
	if (status != PLUMB_OK)
		return status;
	trial_filter_take(&c->filter, &spec);
	return add_item(c, &spec, &room, err);
}

/* ---- what came out ---- */

static const char *replay_line(const struct test_command *c, const struct trial_item *item, char text[2048])
{
	char line[TRIAL_LINE], within[48] = "";
	if (c->within > 1)
		snprintf(within, sizeof within, " --within %" PRId64, c->within);
	snprintf(text, 2048, "plumb test --case \"%s\"%s%s%s%.1024s%s%s%s", trial_spec_show(&item->spec, line),
		item->path ? " --op " : "", item->path ? plumb_ops[item->spec.op].name : "", item->path ? "=" : "",
		item->path ? item->path : "", c->exact ? " --exact" : "", within, c->race ? " --race" : "");
	return text;
}

static void show_failure(struct test_command *c, const struct trial_item *item, const struct trial_report *r)
{
	char line[TRIAL_LINE], replay[2048];

	progress_end(&c->progress);
	printf("%sFAIL%s  %s\n", output_bad(), output_plain(), trial_spec_show(&item->spec, line));
	printf("      %s%s\n", r->reference ? "the reference itself: " : "", r->text);
	if (r->how[0])
		printf("      %s\n", r->how);
	if (r->full[0])
		printf("      %s%s%s\n", output_dim(), r->full, output_plain());
	printf("      replay  %s\n", replay_line(c, item, replay));
	fflush(stdout);
}

static void add_json(struct test_command *c, const struct trial_item *item, const struct trial_report *r)
{
	char line[TRIAL_LINE], inputs[32], replay[2048];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddItemToArray(c->reports, o);
	snprintf(inputs, sizeof inputs, "%016" PRIx64, r->inputs);
	cJSON_AddNumberToObject(o, "unit", (double)(c->part.index - 1 + r->index * c->part.of));
	cJSON_AddStringToObject(o, "case", trial_spec_show(&item->spec, line));
	cJSON_AddStringToObject(o, "op", plumb_ops[item->spec.op].name);
	if (item->spec.class)
		cJSON_AddStringToObject(o, "class", item->spec.class->name);
	cJSON_AddStringToObject(o, "inputs", inputs);
	cJSON_AddBoolToObject(o, "pass", r->status == PLUMB_OK);
	cJSON_AddNumberToObject(o, "ratio", r->ratio < 1e300 ? r->ratio : 1e300);
	cJSON_AddNumberToObject(o, "milliseconds", r->seconds * 1e3);
	if (r->status == PLUMB_OK)
		return;
	cJSON_AddBoolToObject(o, "reference", r->reference);
	cJSON_AddStringToObject(o, "text", r->text);
	cJSON_AddStringToObject(o, "how", r->how);
	cJSON_AddStringToObject(o, "sizes", r->full);
	cJSON_AddStringToObject(o, "replay", replay_line(c, item, replay));
}

static void on_done(void *self, const struct trial_report *r)
{
	struct test_command *c = self;
	const struct trial_item *item = &c->item[r->index];
	enum plumb_op op = item->spec.op;

	c->sum[op].cases++;
	c->sum[op].constant += r->constant;
	c->sum[op].seconds += r->seconds;
	if ((r->status == PLUMB_OK || item->path) && r->ratio > c->sum[op].ratio)
		c->sum[op].ratio = r->ratio;
	if (c->reports)
		add_json(c, item, r);
	if (c->one && r->status == PLUMB_OK && !c->alone)
		printf("%spass%s  %s\n      %s; largest error %.4g of the bound\n", output_good(), output_plain(), c->one,
			r->full, r->ratio);
	if (r->status == PLUMB_OK)
		return;
	c->failed++;
	double ratio = item->path && !c->exact && r->ratio > 1.0 ? r->ratio : HUGE_VAL;
	c->near = ratio > c->near ? ratio : c->near;
	if (c->sum[op].failed++ < SHOWN_FAILURES && !output_quiet() && !c->alone)
		show_failure(c, item, r);
}

static void on_step(void *self, int64_t done)
{
	struct test_command *c = self;
	progress_step(&c->progress, done, c->items, "case");
}

static void show_sums(const struct test_command *c)
{
	printf("%-16s %6s %7s  %-12s %8s\n", "op", "cases", "failed", "of the bound", "seconds");
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		char ratio[32];
		if (!c->sum[op].cases)
			continue;
		if (c->sum[op].failed == c->sum[op].cases && c->sum[op].ratio == 0.0)
			snprintf(ratio, sizeof ratio, "-"); /* crashes: nothing was measured */
		else
			snprintf(ratio, sizeof ratio, c->sum[op].ratio < 1e6 ? "%.4f" : "%.3g", c->sum[op].ratio);
		printf("%-16s %6" PRId64 " %7" PRId64 "  %-12s %8.2f%s%s\n", plumb_ops[op].name, c->sum[op].cases,
			c->sum[op].failed, ratio, c->sum[op].seconds, c->path[op] ? "  " : "",
			c->path[op] ? c->path[op] : "");
		if (c->sum[op].failed > SHOWN_FAILURES)
			printf("%-16s %" PRId64 " more failures are not shown (--json has all)\n", "",
				c->sum[op].failed - SHOWN_FAILURES);
	}
}

/* Gates of many values: rms and bias over the cases of class plain. Only a shared object can fail here: what is bit-exact
 * errs as the twin does. */
static int judge_sums(struct test_command *c, const struct trial_sums *sums)
{
	int status = PLUMB_OK;
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		char text[256];
		bool any = false;
		for (int i = 0; i < plumb_ops[op].operands; i++)
			any = any || sums->bounds[op].operand[i].values > 0;
		if (!any || plumb_bound_passes(&sums->bounds[op], text, sizeof text))
			continue;
		status = PLUMB_MISMATCH;
		c->failed++;
		c->gates_failed = true;
		if (!c->alone)
			printf("%sFAIL%s  %s: every value is within its bound, all of class plain together are not: %s\n",
				output_bad(), output_plain(), plumb_ops[op].name, text);
	}
	return status;
}

/* What this shard ran, for plumb merge. */
static void add_shard(const struct test_command *c, cJSON *top)
{
	cJSON *o = shard_json(top, "test", &c->part, c->every);
	char text[32], name[80], words[TRIAL_LINE];
	int64_t ran = 0;

	shard_json_input(o, "producer", "plumb " PLUMB_VERSION);
	snprintf(text, sizeof text, "%" PRId64, c->seed);
	shard_json_input(o, "seed", text);
	snprintf(text, sizeof text, "%" PRId64, c->within);
	shard_json_input(o, "within", text);
	shard_json_input(o, "exact", c->exact ? "yes" : "no");
	shard_json_input(o, "device", c->device ? c->device : "simt");
	shard_json_input(o, "policy", c->policy ? c->policy : "by the seed");
	shard_json_input(o, "only", trial_filter_show(&c->filter, words));
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		if (c->path[op]) {
			snprintf(name, sizeof name, "library of %s", plumb_ops[op].name);
			shard_json_file(o, name, c->path[op]);
		}
	for (const cJSON *r = c->reports->child; r; r = r->next, ran++) {
		const bool pass = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r, "pass"));
		const cJSON *why = cJSON_GetObjectItemCaseSensitive(r, "text");
		const cJSON *unit = cJSON_GetObjectItemCaseSensitive(r, "unit");
		shard_json_unit(o, (int64_t)unit->valuedouble, cJSON_GetObjectItemCaseSensitive(r, "case")->valuestring,
			pass ? SHARD_PASS : SHARD_FAIL, why ? why->valuestring : NULL);
	}
	if (c->gates_failed)
		shard_json_also(o, "gates over many values", SHARD_FAIL, "an op's rms or bias is beyond its bound");
	if (ran < c->items)
		shard_json_failure(o, "stopped before all cases had run");
	shard_json_status(o, c->failed || ran < c->items ? PLUMB_MISMATCH : PLUMB_OK);
}

static int write_reports(const struct test_command *c, double seconds, struct plumb_error *err)
{
	cJSON *top = cJSON_CreateObject();
	cJSON_AddStringToObject(top, "format", "plumb test 1");
	origin_add(top, &c->origin);
	cJSON_AddNumberToObject(top, "seed", (double)c->seed);
	cJSON_AddStringToObject(top, "device", c->device ? c->device : "simt");
	cJSON_AddNumberToObject(top, "failed", (double)c->failed);
	cJSON_AddBoolToObject(top, "pass", c->failed == 0);
	cJSON_AddNumberToObject(top, "seconds", seconds);
	add_shard(c, top);
	cJSON_AddItemToObject(top, "cases", c->reports);
	char *text = c->json ? cJSON_Print(top) : NULL;
	int status = PLUMB_OK;
	if (c->json)
		status = text ? output_file(c->json, text, strlen(text), err)
		              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", c->json);
	if (status == PLUMB_OK && c->html)
		status = html_write(top, c->html, err);
	cJSON_free(text);
	cJSON_Delete(top);
	return status;
}

static int list_cases(const struct test_command *c)
{
	char line[TRIAL_LINE];
	for (int64_t i = 0; i < c->items; i++)
		printf("%s\n", trial_spec_show(&c->item[i].spec, line));
	return PLUMB_OK;
}

static int run_items(struct test_command *c, struct plumb_error *err)
{
	static struct trial_sums sums;
	const struct trial_suite suite = {.item = c->item,
		.items = c->items,
		.jobs = (int)c->jobs,
		.timeout = c->timeout,
		.fail_fast = c->fail_fast,
		.exact = c->exact,
		.within = (double)c->within,
		.race = c->race,
		.gpu = (int)c->gpu,
		.done = on_done,
		.step = on_step,
		.self = c};
	double start = progress_now(), seconds;

	if (c->json || c->html)
		c->reports = cJSON_CreateArray();
	progress_begin(&c->progress, true, "test");
	int status = trial_suite_run(&suite, &sums, err);
	progress_end(&c->progress);
	seconds = progress_now() - start;
	if (status > PLUMB_MISMATCH)
		return status;
	if (!c->one) {
		int gates = c->within > 1 ? PLUMB_OK : judge_sums(c, &sums);
		status = gates > status ? gates : status;
		if (!output_quiet() && !c->alone)
			show_sums(c);
	}
	if (sums.ran == 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "no case has run");
	if (!c->one && !c->alone)
		printf("%s%s%s  %" PRId64 " of %" PRId64 " cases on %s, seed %" PRId64 "; %" PRId64 " failed; %.1f s\n",
			c->failed ? output_bad() : output_good(), c->failed ? "FAIL" : "pass", output_plain(), sums.ran,
			c->items, c->device ? c->device : "simt", c->seed, c->failed, seconds);
	if (!output_quiet() && !c->alone && c->failed && c->near > 0.0 && c->near < 3.0)
		printf("No failure is beyond %.3g times the bound: a kernel that sums in another order or has other "
		       "functions may\n"
		       "be held to more than that of the contract's order: --within %.0f\n",
			c->near, ceil(c->near));
	if (c->json || c->html) {
		int written = write_reports(c, seconds, err);
		c->reports = NULL;
		status = written != PLUMB_OK ? written : status;
	}
	return status;
}

static int check_options(struct test_command *c, struct plumb_error *err)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	bool cuda = c->device && strcmp(c->device, "cuda") == 0;

	if (c->device && strcmp(c->device, "simt") != 0 && !cuda)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--device is '%.40s', expected simt or cuda", c->device);
	if (c->policy && strcmp(c->policy, "f32") != 0 && strcmp(c->policy, "bf16") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--policy is '%.40s', expected f32 or bf16", c->policy);
	if (c->cases > MAX_CASES)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--cases is %" PRId64 ", expected 1 to %d", c->cases, MAX_CASES);
	if (c->jobs > TRIAL_JOBS)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--jobs is %" PRId64 ", expected 1 to %d", c->jobs, TRIAL_JOBS);
	if (c->seed > INT64_MAX / SEED_STEP - 1)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--seed is %" PRId64 ", expected at most %" PRId64, c->seed,
			INT64_MAX / SEED_STEP - 1);
	if (c->within < 1)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--within is 0, expected 1 or more");
	if (c->gpu > 1023)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--gpu is %" PRId64 ", expected 0..1023", c->gpu);
	if (c->fail_fast && c->keep_going)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--fail-fast and --keep-going: expected one of them");
	if (c->jobs == 0) /* a GPU is shared by cases best one after the other */
		c->jobs = cuda || cores < 1 ? 1 : cores < TRIAL_JOBS ? cores : TRIAL_JOBS;
	const struct output_path out[] = {{"--json", c->json}, {"--html", c->html}};
	const struct output_inputs in = {.kernels = &c->seats};
	return output_paths(out, 2, &in, err);
}

static int run(int argc, char **argv)
{
	static struct test_command c = {.seed = 1, .timeout = TEST_TIMEOUT, .cases = -1, .within = 1};
	const struct option table[] = {
		{"--op", "NAME=FILE.so", OPTION_REPEAT, &c.seats,
			"try a shared object's kernel (all=FILE.so: all of its single ops)"},
		{"--device", "simt|cuda", OPTION_TEXT, &c.device, "where the opt set runs (default simt, the CPU)"},
		{"--class", "CLASS", OPTION_REPEAT, &c.classes, "only this class of inputs: 'plumb list classes'"},
		{"--cases", "N", OPTION_COUNT, &c.cases,
			"cases in all (default: of every class one for every op, four for a shared object's)"},
		{"--seed", "N", OPTION_COUNT, &c.seed, "other cases (default 1)"},
		{"--policy", "f32|bf16", OPTION_TEXT, &c.policy, "only this policy (default: either, by the seed)"},
		TRIAL_FILTER_OPTIONS(&c.filter),
		{"--case", "TEXT", OPTION_TEXT, &c.one, "one case, as --list and failures print it"},
		{"--exact", NULL, OPTION_FLAG, &c.exact,
			"of a shared object too: every bit of the declared order, not only its bound"},
		{"--within", "N", OPTION_COUNT, &c.within,
			"of a shared object: errors up to N times the bound of the declared order (default 1)"},
		{"--race", NULL, OPTION_FLAG, &c.race, "simt: the race check for every case, not for one small one in 8"},
		{"--jobs", "N", OPTION_COUNT, &c.jobs, "processes at a time (default: one a core; on cuda one)"},
		SHARD_OPTION(&c.shard),
		{"--fail-fast", NULL, OPTION_FLAG, &c.fail_fast, "stop at the first failure"},
		{"--keep-going", NULL, OPTION_FLAG, &c.keep_going, "run all cases, whatever fails (default)"},
		{"--timeout", "N", OPTION_COUNT, &c.timeout,
			"seconds that one run of a kernel may take (default 120; 0: no limit)"},
		{"--gpu", "N", OPTION_COUNT, &c.gpu, "which GPU, for --device cuda"},
		{"--list", NULL, OPTION_FLAG, &c.list, "print the cases, one a line, and run nothing"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write every case to a file ('-': standard output)"},
		{"--html", "FILE", OPTION_TEXT, &c.html,
			"write a page to look at: one file, no network (docs/reading-a-report.md)"},
	};
	struct plumb_error err = {""};
	bool done = false;
	int status = options_parse(&command_test, table, sizeof table / sizeof table[0], argc, argv, c.op,
		PLUMB_OP_COUNT + 1, &c.ops, &done, &err);

	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	origin_begin(&c.origin, argc, argv, NULL);
	if (status == PLUMB_OK && c.cases == 0)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--cases is 0, expected 1 or more");
	c.cases = c.cases < 0 ? 0 : c.cases;
	if (status == PLUMB_OK)
		status = check_options(&c, &err);
	if (status == PLUMB_OK)
		status = want_ops(&c, &err);
	if (status == PLUMB_OK)
		status = c.one ? take_one(&c, &err) : make_items(&c, &err);
	if (status == PLUMB_OK)
		status = seat_all(&c, &err);
	if (status == PLUMB_OK)
		status = take_shard(&c, &err);
	if (status == PLUMB_OK && c.items == 0 && c.every > 0)
		status = plumb_fail(
			&err, PLUMB_BAD_INPUT, "no case: --shard %s of %" PRId64 " cases is empty", c.shard, c.every);
	if (status == PLUMB_OK && c.items == 0)
		status = plumb_fail(&err, PLUMB_BAD_INPUT,
			"no case: none of the classes says anything about these ops, or about these formats of them");
	if (status == PLUMB_OK) {
		c.alone = (c.json && strcmp(c.json, "-") == 0) || (c.html && strcmp(c.html, "-") == 0);
		output_colour(!c.alone);
		status = c.list ? list_cases(&c) : run_items(&c, &err);
	}
	if (err.text[0])
		fprintf(stderr, "plumb test: %s\n", err.text);
	origin_end(&c.origin);
	free(c.item);
	return status;
}

const struct command command_test = {
	.name = "test",
	.usage = "[OP|STAGE...] [--op NAME=FILE.so] [--device simt|cuda] [--class CLASS] [--cases N] [options]",
	.brief = "single ops on generated hostile inputs: no model, no golden file",
	.about = "Runs each op on inputs made from a seed, in named classes (ties, NaN, subnormals, far positions, ...), "
		 "and "
		 "compares bit for bit\n"
		 "with the twin, which itself has to be within the derived bound of the oracle. simt: in natural order, "
		 "under a "
		 "permuted schedule, in\n"
		 "memory of its own, a share through the race check; two poisons, guard zones. A shared object's kernel is "
		 "held to "
		 "the bound (--exact: to\n"
		 "the bits) and contained: a crash or a hang is one failed case. Every failure prints the line that "
		 "replays it.",
	.examples = "  plumb test\n"
		    "  plumb test moe_router --class ties --cases 500\n"
		    "  plumb test --op attn_gate=./mine.so\n"
		    "  plumb test --op moe_gate_up=./mine.so --format nvfp4\n"
		    "  plumb test --case \"moe_router T=3 E=512 policy=bf16 format=nvfp4 class=ties seed=17 device=simt\"",
	.operands = "OP",
	.run = run,
};
