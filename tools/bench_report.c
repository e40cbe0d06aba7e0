/* SPDX-License-Identifier: MIT */
#include <cJSON.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/html.h"
#include "tools/output.h"

static const double GB10_BYTES_A_US = 230e3; /* bytes a microsecond: 230 GB/s, of 273 in the data sheet */
static const double GB10_US_A_LAUNCH = 2.2;

double bench_project(double bytes, double launches)
{
	return bytes / GB10_BYTES_A_US + launches * GB10_US_A_LAUNCH;
}

/* ---- sums ---- */

/* Of the timed ops: what a token would take if its calls did not know of one another. */
struct sums {
	double us, bytes;
	int64_t calls, launches;
	int left_out; /* ops that run and were not timed */
};

static struct sums add_up(const struct bench_run *r)
{
	struct sums s = {0};

	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		const struct bench_op *o = &r->op[i];
		s.left_out += o->runs && !o->timed;
		if (!o->timed)
			continue;
		s.us += o->us * (double)o->calls;
		s.bytes += (double)bench_total(&o->bytes);
		s.calls += o->calls;
		s.launches += o->launches > 0 ? o->launches : 0;
	}
	return s;
}

static double gb_s(double bytes, double us)
{
	return us > 0.0 ? bytes / us * 1e-3 : 0.0;
}

/* ---- the table ---- */

static void print_line(
	const struct bench *b, const char *name, int64_t calls, int64_t launches, double bytes, double us, bool warm)
{
	const double token_us = us * (double)calls;
	char count[24] = "-";

	if (launches >= 0)
		snprintf(count, sizeof count, "%lld", (long long)launches);
	printf("%-16s %5lld %8s %11.4f %10.2f %9.1f %8.1f%c %10.1f", name, (long long)calls, count,
		bytes / (double)calls * 1e-6, us, gb_s(bytes, token_us),
		b->ceiling > 0.0 ? 100.0 * gb_s(bytes, token_us) * 1e9 / b->ceiling : 0.0, warm ? 'w' : ' ', token_us);
	if (b->options->project)
		printf(" %11.2f", bench_project(bytes, (double)launches) / (double)calls);
	printf("\n");
}

static void print_run(const struct bench *b, const struct bench_run *r)
{
	const struct sums s = add_up(r);
	const bool all = s.left_out == 0;
	char launches[24] = "-";
	bool warm = false;

	if (r->launches >= 0)
		snprintf(launches, sizeof launches, "%lld", (long long)s.launches);
	printf("\ncontext %lld\n%-16s %5s %8s %11s %10s %9s %9s %10s%s\n", (long long)r->context, "op", "calls", "launches",
		"MB/call", "us/call", "GB/s", "% ceiling", "us/token", b->options->project ? "  gb10 us *" : "");
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		const struct bench_op *o = &r->op[i];
		if (o->timed)
			print_line(b, plumb_ops[i].name, o->calls, o->launches, (double)bench_total(&o->bytes), o->us,
				o->warm);
		warm = warm || (o->timed && o->warm);
	}
	if (s.calls > 0)
		printf("%-16s %5lld %8s %11.4f %10s %9.1f %9s %10.1f\n", all ? "sum of ops" : "sum of these",
			(long long)s.calls, launches, s.bytes * 1e-6, "", gb_s(s.bytes, s.us), "", s.us);
	print_line(b, "whole token", 1, r->launches, (double)bench_total(&r->bytes), r->token_us, false);
	if (all)
		printf("gap          %.1f us: the sum is %.1f %% of the token\n", r->token_us - s.us,
			r->token_us > 0.0 ? 100.0 * s.us / r->token_us : 0.0);
	if (r->host_us > 0.0)
		printf("caller       %.1f us a token with the host's launch and wait\n", r->host_us);
	if (!b->cuda)
		printf("least        %.1f us a token, the quickest run\n"
		       "resident     every run is from the state of one before it that was not timed and made or read the "
		       "same "
		       "weights;\n"
		       "             made while the clock ran: %.3f MB (rows of tables are made at every call)\n",
			r->least_us, (double)r->made * 1e-6);
	printf("bytes        %.1f MB of weights, %.3f MB read and %.3f MB written beside them\n",
		(double)r->bytes.weights * 1e-6, (double)r->bytes.read * 1e-6, (double)r->bytes.written * 1e-6);
	if (warm)
		printf("w            all that %s in a token is under twice the cache of %.0f MB: it may come from there\n",
			b->cuda ? "these calls move" : "is moved", (double)b->cache_bytes * 1e-6);
	if (b->options->project)
		printf("*            a projection, not a measurement: bytes / 230 GB/s + launches x 2.2 us\n");
}

void bench_print(const struct bench *b)
{
	printf("model        %s%s%s\n", b->model, *b->profile ? ", profile " : "", b->profile);
	printf("runs         %s\n", b->runs);
	printf("build        plumb " PLUMB_VERSION ", commit " PLUMB_COMMIT "%s%s\n", b->options->date ? "; " : "",
		b->options->date ? b->options->date : "");
	printf("checked      %s\n", b->checked);
	printf("ceiling      %.1f GB/s, streaming read%s\n", b->ceiling * 1e-9, b->cuda ? "" : ", as many threads");
	printf("times        median of %lld; %s\n", (long long)b->options->repeat,
		b->cuda ? "all calls of one op in a token, as one graph, back to back"
			: "wall clock around the calls of a token, readings of memory between them");
	for (int i = 0; i < b->options->contexts; i++)
		print_run(b, &b->run[i]);
}

/* ---- JSON ---- */

static void add_bytes(cJSON *to, const struct plumb_traffic *t)
{
	cJSON_AddNumberToObject(to, "bytes", (double)bench_total(t));
	cJSON_AddNumberToObject(to, "weight_bytes", (double)t->weights);
	cJSON_AddNumberToObject(to, "read_bytes", (double)t->read);
	cJSON_AddNumberToObject(to, "written_bytes", (double)t->written);
}

static void add_op(const struct bench *b, cJSON *list, int i, const struct bench_op *o)
{
	cJSON *item = cJSON_CreateObject();
	const double bytes = (double)bench_total(&o->bytes);

	cJSON_AddItemToArray(list, item);
	cJSON_AddStringToObject(item, "name", plumb_ops[i].name);
	cJSON_AddNumberToObject(item, "calls", (double)o->calls);
	add_bytes(item, &o->bytes);
	cJSON_AddBoolToObject(item, "exact", !b->wrong[i]);
	if (!o->timed)
		return;
	if (o->launches >= 0)
		cJSON_AddNumberToObject(item, "launches", (double)o->launches);
	cJSON_AddNumberToObject(item, "us_per_call", o->us);
	cJSON_AddNumberToObject(item, "us_per_token", o->us * (double)o->calls);
	cJSON_AddNumberToObject(item, "gb_per_second", gb_s(bytes, o->us * (double)o->calls));
	cJSON_AddBoolToObject(item, "warm", o->warm);
	if (o->least_us > 0.0)
		cJSON_AddNumberToObject(item, "least_us_per_call", o->least_us);
	if (b->options->project)
		cJSON_AddNumberToObject(
			item, "projected_gb10_us_per_call", bench_project(bytes, (double)o->launches) / (double)o->calls);
}

static void add_run(const struct bench *b, cJSON *list, const struct bench_run *r)
{
	cJSON *item = cJSON_CreateObject(), *token = cJSON_AddObjectToObject(item, "token");
	cJSON *ops = cJSON_AddArrayToObject(item, "ops");
	const struct sums s = add_up(r);

	cJSON_AddItemToArray(list, item);
	cJSON_AddNumberToObject(item, "context", (double)r->context);
	add_bytes(token, &r->bytes);
	if (r->launches >= 0)
		cJSON_AddNumberToObject(token, "launches", (double)r->launches);
	cJSON_AddNumberToObject(token, "us", r->token_us);
	if (!b->cuda) {
		cJSON_AddNumberToObject(token, "least_us", r->least_us);
		cJSON_AddNumberToObject(token, "made_bytes", (double)r->made);
	}
	cJSON_AddNumberToObject(token, "gb_per_second", gb_s((double)bench_total(&r->bytes), r->token_us));
	if (r->host_us > 0.0)
		cJSON_AddNumberToObject(token, "host_us", r->host_us);
	if (s.left_out == 0) {
		cJSON_AddNumberToObject(token, "sum_of_ops_us", s.us);
		cJSON_AddNumberToObject(token, "gap_us", r->token_us - s.us);
	}
	if (b->options->project)
		cJSON_AddNumberToObject(
			token, "projected_gb10_us", bench_project((double)bench_total(&r->bytes), (double)r->launches));
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		if (r->op[i].runs && b->options->op[i])
			add_op(b, ops, i, &r->op[i]);
}

/* What --compare read: times of the same places. */
static void add_before(const struct bench *b, cJSON *tree, const struct bench_old *old)
{
	cJSON *before = cJSON_AddObjectToObject(tree, "before"), *times;

	cJSON_AddStringToObject(before, "model", old->model);
	cJSON_AddStringToObject(before, "profile", old->profile);
	cJSON_AddStringToObject(before, "runs_on", old->runs);
	cJSON_AddStringToObject(before, "commit", old->commit);
	cJSON_AddBoolToObject(before, "alike", bench_alike(b, old));
	times = cJSON_AddArrayToObject(before, "times");
	for (int i = 0; i < old->times; i++) {
		const struct bench_time *t = &old->time[i];
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(times, one);
		cJSON_AddNumberToObject(one, "context", (double)t->context);
		cJSON_AddStringToObject(one, "name", t->op == PLUMB_OP_COUNT ? "token" : plumb_ops[t->op].name);
		cJSON_AddNumberToObject(one, "us", t->us);
	}
}

cJSON *bench_tree(const struct bench *b, const struct bench_old *old)
{
	cJSON *tree = cJSON_CreateObject(), *runs;

	cJSON_AddStringToObject(tree, "format", BENCH_FORMAT);
	origin_add(tree, b->options->origin);
	cJSON_AddStringToObject(tree, "model", b->model);
	cJSON_AddStringToObject(tree, "profile", b->profile);
	cJSON_AddStringToObject(tree, "runs_on", b->runs);
	cJSON_AddStringToObject(tree, "checked", b->checked);
	cJSON_AddNumberToObject(tree, "ceiling_gb_per_second", b->ceiling * 1e-9);
	cJSON_AddNumberToObject(tree, "cache_bytes", (double)b->cache_bytes);
	cJSON_AddNumberToObject(tree, "repeat", (double)b->options->repeat);
	runs = cJSON_AddArrayToObject(tree, "contexts");
	for (int i = 0; i < b->options->contexts; i++)
		add_run(b, runs, &b->run[i]);
	if (old)
		add_before(b, tree, old);
	return tree;
}

int bench_write(const struct bench *b, const struct bench_old *old, struct plumb_error *err)
{
	cJSON *tree = bench_tree(b, old);
	bench_shard_json(b, tree);
	char *text = b->options->json ? cJSON_Print(tree) : NULL;
	int status = PLUMB_OK;

	if (b->options->json)
		status = text ? output_file(b->options->json, text, strlen(text), err)
		              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for its text", b->options->json);
	if (status == PLUMB_OK && b->options->html)
		status = html_write(tree, b->options->html, err);
	cJSON_free(text);
	cJSON_Delete(tree);
	return status;
}
