/* SPDX-License-Identifier: MIT */
/* plumb replay: run the calls that cases hold, and compare. */
#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/check_second.h"
#include "tools/commands.h"
#include "tools/contain.h"
#include "tools/judge.h"
#include "tools/output.h"
#include "tools/session.h"
#include "tools/shard.h"

enum { MAX_CASES = 1024 };

struct replay_command {
	struct set_options set;
	const char *path[MAX_CASES];
	int cases;
	int64_t repeat;
	const char *json, *shard_text;
	struct shard shard;
	bool exact;
};

/* What came out of one case. */
struct replayed {
	struct judge judge;
	char text[sizeof(struct plumb_error)];
	double milliseconds; /* of the fastest run */
	bool changes;        /* two runs gave different results */
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static const char *or_unknown(const char *text)
{
	return text ? text : "unknown";
}

/* What a run left, to be compared with the next one. */
static int keep_result(const struct plumb_call *call, struct check_second *second, struct plumb_case_expected kept[],
	struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_call left = *call;

	left.args = second->args;
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		size_t bytes;
		free((void *)kept[i].data);
		kept[i].data = NULL;
		if (o->role != PLUMB_OUT && o->role != PLUMB_STATE)
			continue;
		kept[i].data = judge_copy(&left, o, &bytes);
		if (!kept[i].data && bytes)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a copy of %s", o->name);
	}
	return PLUMB_OK;
}

/* Of operands that fail their bound, how many elements are beyond it, and the first: the verdict stops at the worst. */
static void count_beyond(const struct plumb_call *call, const void *before, struct judge *j)
{
	for (int i = 0; i < plumb_ops[call->op].operands; i++) {
		struct judge_operand *at = &j->at[i];
		unsigned char *wrong = at->judged && !at->pass ? judge_beyond(call, before, i, at->count) : NULL;
		if (!wrong)
			continue;
		at->differ = 0;
		at->first = -1;
		for (int64_t k = 0; k < at->count; k++)
			if (wrong[k] && at->differ++ == 0)
				at->first = k;
		free(wrong);
	}
}

/* Run a case as often as asked. */
static int run_case(const struct replay_command *c, const struct session *s, struct plumb_case *k, struct replayed *out,
	struct plumb_error *err)
{
	const struct plumb_binding *by = &s->plan.binding[(size_t)k->call.layer * PLUMB_OP_COUNT + k->call.op];
	const struct check_second_way way = {.by = *by, .runner = session_runner(s), .poison = PLUMB_POISON_NAN};
	enum plumb_case_criterion criterion = c->exact ? PLUMB_CASE_BITS : k->criterion;
	struct plumb_case_expected kept[PLUMB_CASE_OPERANDS] = {{0}};
	struct check_second second = {0};
	struct plumb_call left = k->call;
	struct judge same;
	int status = check_second_keep(&second, &k->call, err);

	k->call.binding = by;
	out->milliseconds = -1.0;
	if (status == PLUMB_OK)
		status = check_second_before(&second, &k->call, err);
	for (int64_t i = 0; i < c->repeat && status == PLUMB_OK; i++) {
		double start = now_ms(), took;
		status = check_second_run_by(&second, &k->call, &way, err);
		took = now_ms() - start;
		if (status != PLUMB_OK)
			break;
		out->milliseconds = out->milliseconds < 0 || took < out->milliseconds ? took : out->milliseconds;
		left.args = second.args;
		if (i == 0) {
			status = judge_call(&left, second.args_before, k->expected, criterion, NULL, &out->judge, err);
			if (status == PLUMB_OK && c->json && criterion == PLUMB_CASE_BOUND)
				count_beyond(&left, second.args_before, &out->judge);
		} else {
			status = judge_call(&left, second.args_before, kept, PLUMB_CASE_BITS, NULL, &same, err);
			if (status == PLUMB_OK && !same.pass && !out->changes) {
				out->changes = true;
				snprintf(out->text, sizeof out->text, "run %lld differs from run %lld: %s",
					(long long)i + 1, (long long)i, same.text + strlen("FAIL: "));
			}
		}
		if (status == PLUMB_OK && c->repeat > 1)
			status = keep_result(&k->call, &second, kept, err);
		check_second_undo(&second, &k->call);
	}
	for (int i = 0; i < PLUMB_CASE_OPERANDS; i++)
		free((void *)kept[i].data);
	check_second_free(&second);
	return status;
}

static void report(const char *path, const struct plumb_case *k, const struct session *s, const struct replayed *r)
{
	bool pass = r->judge.pass && !r->changes;
	char where[96];

	if (k->call.layer == k->cfg.layers)
		snprintf(where, sizeof where, "outside the layers");
	else
		snprintf(where, sizeof where, "layer %d", k->call.layer);
	printf("%s%s%s  %s: %s, %s%s%s, position %lld, %lld row%s; %s: %s; %.2f ms\n", pass ? output_good() : output_bad(),
		pass ? "pass" : "FAIL", output_plain(), path, plumb_ops[k->call.op].name, where,
		k->call.site ? " site " : "", k->call.site ? plumb_site_name(k->call.site) : "",
		(long long)k->call.position, (long long)k->call.T, k->call.T == 1 ? "" : "s", s->describes,
		r->judge.text + (r->judge.pass ? strlen("pass: ") : strlen("FAIL: ")), r->milliseconds);
	if (r->changes)
		printf("      %snot repeatable%s: %s\n", output_bad(), output_plain(), r->text);
	if (!pass && k->origin.finding) {
		struct plumb_error clean; /* through plumb_fail, which makes control characters visible */
		plumb_fail(&clean, PLUMB_OK, "%.400s", k->origin.finding);
		printf("      when it was recorded (expected values by %.60s): %s\n", or_unknown(k->origin.truth),
			clean.text);
	}
}

static void add_json(cJSON *list, const char *path, const struct plumb_case *k, const struct replayed *r)
{
	const struct plumb_op_info *info = &plumb_ops[k->call.op];
	cJSON *o = cJSON_CreateObject(), *operands;

	cJSON_AddItemToArray(list, o);
	cJSON_AddStringToObject(o, "case", path);
	cJSON_AddStringToObject(o, "op", info->name);
	cJSON_AddNumberToObject(o, "layer", k->call.layer);
	cJSON_AddStringToObject(o, "site", plumb_site_name(k->call.site));
	cJSON_AddNumberToObject(o, "position", (double)k->call.position);
	cJSON_AddNumberToObject(o, "rows", (double)k->call.T);
	cJSON_AddStringToObject(o, "criterion", k->criterion == PLUMB_CASE_BOUND ? "bound" : "bits");
	cJSON_AddBoolToObject(o, "pass", r->judge.pass && !r->changes);
	cJSON_AddBoolToObject(o, "repeatable", !r->changes);
	cJSON_AddStringToObject(o, "text", r->judge.text);
	cJSON_AddNumberToObject(o, "milliseconds", r->milliseconds);
	operands = cJSON_AddArrayToObject(o, "operands");
	for (int i = 0; i < info->operands; i++) {
		const struct judge_operand *at = &r->judge.at[i];
		cJSON *x;
		if (!at->judged)
			continue;
		x = cJSON_CreateObject();
		cJSON_AddItemToArray(operands, x);
		cJSON_AddStringToObject(x, "name", info->operand[i].name);
		cJSON_AddNumberToObject(x, "values", (double)at->count);
		cJSON_AddNumberToObject(x, "differ", (double)at->differ);
		cJSON_AddNumberToObject(x, "first", (double)at->first);
		cJSON_AddNumberToObject(x, "worst", (double)at->worst);
		cJSON_AddNumberToObject(x, "got", at->got);
		cJSON_AddNumberToObject(x, "expected", at->want);
		cJSON_AddNumberToObject(x, "ratio", at->ratio);
	}
}

/* One case file. *asked: set where an --op speaks of its op. */
static int replay(const struct replay_command *c, const char *path, struct plumb_user_mark *mark, cJSON *list, bool *asked,
	struct plumb_error *err)
{
	struct replayed r = {0};
	struct session s = {0};
	struct plumb_case *k = NULL;
	struct set_options set = c->set;
	int status = plumb_case_read(path, &k, err);

	if (status == PLUMB_OK)
		set.policy = k->env.policy == PLUMB_POLICY_BF16 ? "bf16" : "f32"; /* for what the report says */
	if (status == PLUMB_OK)
		status = session_open_config(&set, mark, &k->cfg, &s, err);
	if (status == PLUMB_OK) {
		*asked = *asked || session_is_asked(&s, &set, k->call.op, k->call.layer);
		status = run_case(c, &s, k, &r, err);
	}
	if (status == PLUMB_OK) {
		if (!output_quiet() && !(c->json && strcmp(c->json, "-") == 0))
			report(path, k, &s, &r);
		if (list)
			add_json(list, path, k, &r);
		status = r.judge.pass && !r.changes ? PLUMB_OK : PLUMB_MISMATCH;
	}
	session_close(&s);
	plumb_case_free(k);
	return status;
}

/* What this shard ran, for plumb merge. list: its cases. */
static void add_shard(const struct replay_command *c, cJSON *top, const cJSON *list, int status)
{
	cJSON *o = shard_json(top, "replay", &c->shard, c->cases);
	char name[32];

	shard_json_input(o, "set", c->set.set ? c->set.set : "ref");
	shard_json_input(o, "device", c->set.device ? c->set.device : "");
	shard_json_input(o, "mode", c->set.mode);
	shard_json_input(o, "exact", c->exact ? "yes" : "no");
	for (int i = 0; i < c->set.op.count; i++) {
		const char *equals = strchr(c->set.op.item[i], '=');
		snprintf(name, sizeof name, "op %d", i + 1);
		if (equals && strcmp(equals + 1, "ref") != 0 && strcmp(equals + 1, "opt") != 0)
			shard_json_file(o, name, equals + 1);
		else
			shard_json_input(o, name, c->set.op.item[i]);
	}
	for (int i = 0; i < c->cases; i++) {
		snprintf(name, sizeof name, "case %d", i + 1);
		shard_json_file(o, name, c->path[i]);
	}
	for (const cJSON *r = list->child; r; r = r->next) {
		bool pass = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(r, "pass"));
		int unit = cJSON_GetObjectItemCaseSensitive(r, "unit")->valueint;
		shard_json_unit(o, unit, c->path[unit], pass ? SHARD_PASS : SHARD_FAIL,
			pass ? NULL : cJSON_GetObjectItemCaseSensitive(r, "text")->valuestring);
	}
	shard_json_status(o, status);
}

/* failure: why it ended before its end; NULL: it did not. */
static int write_json(
	const struct replay_command *c, cJSON *list, int verdict, const char *failure, struct plumb_error *err)
{
	const char *path = c->json;
	cJSON *top = cJSON_CreateObject();
	char *text;
	int status;

	add_shard(c, top, list, verdict);
	if (failure) {
		shard_json_failure(cJSON_GetObjectItemCaseSensitive(top, "shard"), failure);
		cJSON_AddStringToObject(top, "failure", failure);
	}
	cJSON_AddItemToObject(top, "cases", list);
	text = cJSON_Print(top);
	status = text ? output_file(path, text, strlen(text), err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", path);
	cJSON_free(text);
	cJSON_Delete(top);
	return status;
}

/* Everything after the options. self: struct replay_command. */
static int work(void *self, struct plumb_user_mark *mark)
{
	const struct replay_command *c = self;
	cJSON *list = c->json ? cJSON_CreateArray() : NULL;
	struct plumb_error err = {""};
	char why[sizeof err.text];
	int worst = PLUMB_OK, ran = 0, wrong = 0;
	bool asked = c->set.op.count == 0 || c->shard.of > 1; /* another shard may have the cases */

	for (int i = 0; i < c->cases; i++) {
		if (!shard_takes(&c->shard, i))
			continue;
		int status = replay(c, c->path[i], mark, list, &asked, &err);
		if (err.text[0])
			fprintf(stderr, "plumb replay: %s\n", err.text);
		snprintf(why, sizeof why, "%s", err.text);
		err.text[0] = '\0';
		worst = status > worst ? status : worst;
		if (list && cJSON_GetArraySize(list) == ran) { /* it ended before it was judged */
			cJSON *o = cJSON_CreateObject();
			cJSON_AddItemToArray(list, o);
			cJSON_AddStringToObject(o, "case", c->path[i]);
			cJSON_AddBoolToObject(o, "pass", false);
			cJSON_AddStringToObject(o, "text", why);
		}
		if (list)
			cJSON_AddNumberToObject(cJSON_GetArrayItem(list, ran), "unit", i);
		ran++;
		wrong += status != PLUMB_OK;
	}
	if (worst == PLUMB_OK && !asked) {
		fprintf(stderr, "plumb replay: --op %s: no case is of such an op and layer, nothing of it was run\n",
			c->set.op.item[0]);
		worst = PLUMB_BAD_INPUT;
	}
	if ((c->cases > 1 || output_quiet()) && worst <= PLUMB_MISMATCH && !(c->json && strcmp(c->json, "-") == 0))
		printf("%s%s%s  %d of %d cases%s: %d wrong\n", wrong ? output_bad() : output_good(),
			wrong ? "FAIL" : "pass", output_plain(), ran, c->cases, c->shard.of > 1 ? " in this shard" : "",
			wrong);
	if (list && worst <= PLUMB_MISMATCH && write_json(c, list, worst, NULL, &err) != PLUMB_OK) {
		fprintf(stderr, "plumb replay: %s\n", err.text);
		return PLUMB_BAD_INPUT;
	}
	if (worst > PLUMB_MISMATCH)
		cJSON_Delete(list);
	return worst;
}

static int run(int argc, char **argv)
{
	static struct replay_command c = {.repeat = 1, .set = {.mode = "twin", .timeout = CONTAIN_TIMEOUT}};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		{"--repeat", "N", OPTION_COUNT, &c.repeat,
			"run each case N times: time of the fastest, and whether results change"},
		{"--exact", NULL, OPTION_FLAG, &c.exact, "demand every bit, whatever the case says"},
		SHARD_OPTION(&c.shard_text),
		{"--json", "FILE", OPTION_TEXT, &c.json, "write the figures to a file ('-': standard output)"},
	};
	int status;
	struct plumb_error err = {""};
	bool done = false;

	status = options_parse(&command_replay, table, sizeof table / sizeof table[0], argc, argv, c.path, MAX_CASES,
		&c.cases, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK)
		status = shard_parse(c.shard_text, &c.shard, &err);
	if (status == PLUMB_OK && c.cases == 0)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "no case; usage: plumb replay %s", command_replay.usage);
	if (status == PLUMB_OK && c.set.checkpoint)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--checkpoint %s: a case needs none", c.set.checkpoint);
	if (status == PLUMB_OK && c.set.policy)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--policy %s: a case has its own", c.set.policy);
	if (status == PLUMB_OK && (c.set.kv_format || c.set.state_format || c.set.profile || c.set.scan))
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "%s: a case has its own weights, caches and states",
			c.set.kv_format      ? "--kv-format"
			: c.set.state_format ? "--state-format"
			: c.set.profile      ? "--profile"
					     : "--scan");
	if (status == PLUMB_OK && c.repeat < 1)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--repeat is 0, expected 1 or more");
	const struct output_path out = {"--json", c.json};
	const struct output_inputs in = {c.path, c.cases, &c.set.op, NULL};
	if (status == PLUMB_OK)
		status = output_paths(&out, 1, &in, &err);
	if (status != PLUMB_OK) {
		fprintf(stderr, "plumb replay: %s\n", err.text);
		return status;
	}
	output_colour(!c.json || strcmp(c.json, "-") != 0);
	if (!session_wants_user(&c.set))
		return work(&c, NULL);
	status = contain(work, &c, c.set.timeout, &err);
	if (err.text[0] && status == PLUMB_MISMATCH &&
		!(c.json && strcmp(c.json, "-") == 0)) /* the kernel's doing: a verdict */
		printf("%sFAIL%s  %s\n", output_bad(), output_plain(), err.text);
	else if (err.text[0])
		fprintf(stderr, "plumb replay: %s\n", err.text);
	if (err.text[0] && status == PLUMB_MISMATCH && c.json) { /* an older report would say something else */
		struct plumb_error why = {""};
		if (write_json(&c, cJSON_CreateArray(), status, err.text, &why) != PLUMB_OK) {
			fprintf(stderr, "plumb replay: %s\n", why.text);
			return PLUMB_BAD_INPUT;
		}
	}
	return status;
}

const struct command command_replay = {
	.name = "replay",
	.usage = "CASE.h5... [--set ref|opt] [--device simt|cuda] [--op NAME=FILE.so] [options]",
	.brief = "run recorded calls again and compare: one op, milliseconds, no checkpoint",
	.about = "A case holds one call of one op: inputs, weights, state and what has to come out (plumb bisect "
		 "writes them; some ship in\n"
		 "golden/cases). It is run from the set that the options name, as often as --repeat says, and compared "
		 "in the\n"
		 "criterion that it records: every bit, or the error bound derived from the op's declared order.",
	.examples = "  plumb replay golden/cases/*.h5\n"
		    "  plumb replay case.h5 --set opt\n"
		    "  plumb replay case.h5 --op gdn_recurrence=./mine.so --repeat 10",
	.operands = "FILE.h5",
	.run = run,
};
