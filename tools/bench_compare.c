/* SPDX-License-Identifier: MIT */
#include <cJSON.h>
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "tools/bench.h"

static const struct plumb_json_limits limits = {.bytes = 16 << 20, .depth = 6, .values = 1 << 18};
static const double LONGEST = 1e15; /* microseconds */
static const double SLOWER = 1.05;  /* what is called slower */

/* ---- reading ---- */

/* Text for a terminal: no control characters. */
static void keep(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text ? text : "");
	for (char *p = to; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

static int add_time(
	struct bench_old *old, const char *path, int64_t context, enum plumb_op op, double us, struct plumb_error *err)
{
	if (old->times == BENCH_OLD_TIMES)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: more than %d times", path, BENCH_OLD_TIMES);
	old->time[old->times++] = (struct bench_time){context, op, us};
	return PLUMB_OK;
}

/* Ops that this build does not know, and ops that were not timed, are passed over. */
static int read_op(struct bench_old *old, const char *path, int64_t context, const cJSON *item, struct plumb_error *err)
{
	struct plumb_json_object o = {.object = item, .file = path, .path = "contexts[].ops[].", .err = err};
	static const double none = 0.0;

	if (!cJSON_IsObject(item))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: contexts[].ops[]: expected objects", path);
	const char *name = plumb_json_string(&o, "name", NULL);
	const double us = plumb_json_number(&o, "us_per_call", 0.0, LONGEST, &none);
	if (o.status != PLUMB_OK)
		return o.status;
	const enum plumb_op op = plumb_op_find(name);
	return op == PLUMB_OP_COUNT || us <= 0.0 ? PLUMB_OK : add_time(old, path, context, op, us, err);
}

static int read_context(struct bench_old *old, const char *path, const cJSON *item, struct plumb_error *err)
{
	struct plumb_json_object o = {.object = item, .file = path, .path = "contexts[].", .err = err};
	const cJSON *op;
	int status;

	if (!cJSON_IsObject(item))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: contexts[]: expected objects", path);
	const int64_t context = plumb_json_int(&o, "context", 0, INT32_MAX, NULL);
	const cJSON *ops = plumb_json_array(&o, "ops", true), *token = plumb_json_child(&o, "token", true);
	status = o.status;
	if (status == PLUMB_OK)
		cJSON_ArrayForEach (op, ops)
			if (status == PLUMB_OK)
				status = read_op(old, path, context, op, err);
	if (status != PLUMB_OK)
		return status;
	struct plumb_json_object t = {.object = token, .file = path, .path = "contexts[].token.", .err = err};
	const double us = plumb_json_number(&t, "us", 0.0, LONGEST, NULL);
	return t.status != PLUMB_OK ? t.status : add_time(old, path, context, PLUMB_OP_COUNT, us, err);
}

int bench_old_read(const char *path, struct bench_old *old, struct plumb_error *err)
{
	struct plumb_json_object o = {.file = path, .path = "", .err = err};
	cJSON *tree = NULL;
	const cJSON *item;
	int status = plumb_json_read(path, &limits, &tree, err);

	memset(old, 0, sizeof *old);
	if (status != PLUMB_OK)
		return status;
	o.object = tree;
	if (!cJSON_IsObject(tree))
		o.status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: expected an object", path);
	const char *format = plumb_json_string(&o, "format", NULL);
	if (o.status == PLUMB_OK && strcmp(format, BENCH_FORMAT) != 0)
		o.status = plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: format is \"%.60s\", expected \"" BENCH_FORMAT "\"", path, format);
	keep(old->model, sizeof old->model, plumb_json_string(&o, "model", NULL));
	keep(old->profile, sizeof old->profile, plumb_json_string(&o, "profile", NULL));
	keep(old->runs, sizeof old->runs, plumb_json_string(&o, "runs_on", NULL));
	keep(old->commit, sizeof old->commit, plumb_json_string(&o, "commit", "unknown"));
	const cJSON *contexts = plumb_json_array(&o, "contexts", true);
	status = o.status;
	if (status == PLUMB_OK)
		cJSON_ArrayForEach (item, contexts)
			if (status == PLUMB_OK)
				status = read_context(old, path, item, err);
	cJSON_Delete(tree);
	return status;
}

/* ---- comparing ---- */

/* What is now at that place; 0: nothing. */
static double now_at(const struct bench *b, const struct bench_time *t)
{
	for (int i = 0; i < b->options->contexts; i++) {
		const struct bench_run *r = &b->run[i];
		if (r->context == t->context)
			return t->op == PLUMB_OP_COUNT ? r->token_us : r->op[t->op].timed ? r->op[t->op].us : 0.0;
	}
	return 0.0;
}

bool bench_alike(const struct bench *b, const struct bench_old *old)
{
	return strcmp(old->model, b->model) == 0 && strcmp(old->profile, b->profile) == 0 &&
	       strcmp(old->runs, b->runs) == 0;
}

void bench_compare(const struct bench *b, const struct bench_old *old)
{
	char slower[1024] = "";
	int compared = 0;

	printf("\nbefore       %s%s%s; %s; commit %s\n", old->model, *old->profile ? ", profile " : "", old->profile,
		old->runs, old->commit);
	if (!bench_alike(b, old))
		printf("             another model, profile, set or card than now: the ratios say little\n");
	printf("%-16s %8s %12s %12s %8s\n", "op", "context", "before us", "now us", "ratio");
	for (int i = 0; i < old->times; i++) {
		const struct bench_time *t = &old->time[i];
		const char *name = t->op == PLUMB_OP_COUNT ? "whole token" : plumb_ops[t->op].name;
		const double now = now_at(b, t);
		const size_t n = strlen(slower);
		if (now <= 0.0 || t->us <= 0.0)
			continue;
		compared++;
		printf("%-16s %8lld %12.2f %12.2f %8.3f\n", name, (long long)t->context, t->us, now, now / t->us);
		if (now / t->us > SLOWER)
			snprintf(slower + n, sizeof slower - n, "%s %s@%lld", n ? "," : "", name, (long long)t->context);
	}
	if (compared == 0)
		printf("slower       nothing in common with that file\n");
	else if (*slower)
		printf("slower       by more than 5 %%:%s\n", slower);
	else
		printf("slower       nothing of %d by more than 5 %%\n", compared);
}
