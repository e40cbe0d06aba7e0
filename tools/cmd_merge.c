/* SPDX-License-Identifier: MIT */
/* plumb merge: the results of shards into one verdict. */
#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/faults_score.h"
#include "tools/html.h"
#include "tools/merge.h"
#include "tools/output.h"
#include "tools/unit_report.h"

struct merge_command {
	const char *json, *junit, *tap, *html;
	struct origin origin;
};

enum { SHOWN = 20 }; /* failures printed without --verbose */

static bool on_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

static const char *word(const cJSON *u, const char *name)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(u, name);
	return cJSON_IsString(x) ? x->valuestring : "";
}

static void print_verdicts(const struct merge *m, const cJSON *list, int *shown)
{
	for (const cJSON *u = list ? list->child : NULL; u; u = u->next) {
		struct plumb_error name, text; /* through plumb_fail, which makes control characters visible */
		bool failed = strcmp(word(u, "verdict"), "fail") == 0, skipped = strcmp(word(u, "verdict"), "skip") == 0;
		if (!failed && !(skipped && output_verbosity() > 0))
			continue;
		plumb_fail(&name, PLUMB_OK, "%.200s", word(u, "name"));
		plumb_fail(&text, PLUMB_OK, "%.500s", word(u, "text"));
		if (output_verbosity() > 0 || ++*shown <= SHOWN)
			printf("  %s%s%s: %s\n", failed ? output_bad() : output_dim(), name.text, output_plain(),
				text.text);
	}
	(void)m;
}

static void print(const struct merge *m, const cJSON *joined)
{
	const cJSON *shard = cJSON_GetObjectItemCaseSensitive(joined, "shard");
	char digest[33];
	int shown = 0;

	if (!output_quiet()) {
		printf("command     plumb %s, %d shard%s\n", m->part[0].command, m->parts, m->parts == 1 ? "" : "s");
		for (int i = 0; i < m->parts && (m->parts <= SHOWN || output_verbosity() > 0); i++)
			printf("shard %-5lld %s: %d of %lld units, exit status %d\n", (long long)m->part[i].index,
				m->part[i].path,
				cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(m->part[i].shard, "units")),
				(long long)m->total, m->part[i].status);
		if (m->whole)
			faults_score_print(m->whole);
		else
			print_verdicts(m, cJSON_GetObjectItemCaseSensitive(shard, "units"), &shown);
		print_verdicts(m, cJSON_GetObjectItemCaseSensitive(shard, "also"), &shown);
		if (shown > SHOWN)
			printf("  and %d more (--verbose shows them)\n", shown - SHOWN);
	}
	if (m->has_digest)
		printf("digest  %s\n", plumb_digest_show(&m->digest, digest));
	printf("%s%s%s  %s: %lld units: %lld passed, %lld failed, %lld skipped, %lld missing\n",
		m->status == PLUMB_OK ? output_good() : output_bad(), m->status == PLUMB_OK ? "pass" : "FAIL",
		output_plain(), m->part[0].command, (long long)m->total, (long long)m->passed, (long long)m->failed,
		(long long)m->skipped, (long long)m->missing);
}

static int write_json(const char *path, const cJSON *joined, struct plumb_error *err)
{
	char *text = cJSON_Print(joined);
	int status = text ? output_file(path, text, strlen(text), err)
	                  : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JSON report");
	free(text);
	return status;
}

/* Before the work: reports must not go over the results or over one another. */
static int report_paths(const struct merge_command *c, const char *const *path, int paths, struct plumb_error *err)
{
	const struct output_path out[] = {
		{"--json", c->json}, {"--junit", c->junit}, {"--tap", c->tap}, {"--html", c->html}};

	return output_paths(out, 4, &(struct output_inputs){.file = path, .files = paths}, err);
}

static int run(int argc, char **argv)
{
	struct merge_command c = {0};
	const struct option table[] = {
		{"--json", "FILE", OPTION_TEXT, &c.json, "write the joined result, with the results of all shards in it"},
		{"--junit", "FILE", OPTION_TEXT, &c.junit, "write a JUnit report, one test case a unit"},
		{"--tap", "FILE", OPTION_TEXT, &c.tap, "write a TAP report, one line a unit"},
		{"--html", "FILE", OPTION_TEXT, &c.html,
			"write a page to look at: one file, no network (docs/reading-a-report.md)"},
	};
	static const char *path[SHARDS_MOST];
	struct plumb_error err = {""};
	struct merge m = {0};
	cJSON *joined = NULL, *whole = NULL;
	int paths, status;
	bool done;

	status = options_parse(
		&command_merge, table, sizeof table / sizeof table[0], argc, argv, path, SHARDS_MOST, &paths, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && paths == 0)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "no result; usage: plumb merge %s", command_merge.usage);
	if (status == PLUMB_OK)
		status = report_paths(&c, path, paths, &err);
	if (status == PLUMB_OK)
		status = merge_make(path, paths, &m, &err);
	if (status == PLUMB_OK && strcmp(m.part[0].command, "faults") == 0) {
		status = faults_score_join(&m, &whole, &err);
		m.whole = whole;
	}
	if (status == PLUMB_OK) {
		joined = merge_json(&m);
		origin_begin(&c.origin, argc, argv, NULL);
		origin_add(joined, &c.origin);
		origin_end(&c.origin);
		if (!on_stdout(c.json) && !on_stdout(c.junit) && !on_stdout(c.tap) && !on_stdout(c.html))
			print(&m, joined);
		if (c.json)
			status = write_json(c.json, joined, &err);
		if (status == PLUMB_OK && c.junit)
			status = unit_report_junit(cJSON_GetObjectItemCaseSensitive(joined, "shard"), c.junit, &err);
		if (status == PLUMB_OK && c.tap)
			status = unit_report_tap(cJSON_GetObjectItemCaseSensitive(joined, "shard"), c.tap, &err);
		if (status == PLUMB_OK && c.html)
			status = html_write(joined, c.html, &err);
		if (status == PLUMB_OK)
			status = m.status;
	}
	if (err.text[0])
		fprintf(stderr, "plumb merge: %s\n", err.text);
	cJSON_Delete(joined);
	cJSON_Delete(whole);
	merge_free(&m);
	return status;
}

const struct command command_merge = {
	.name = "merge",
	.usage = "RESULT.json... [--json FILE] [--junit FILE] [--tap FILE] [--html FILE]",
	.brief = "join the --json files of shards into one verdict",
	.about = "Takes the results of all N shards of one command (--shard 1/N to N/N, each with --json) and gives the "
		 "exit "
		 "status of the whole. A shard that is missing or there twice, shards of different inputs, options or "
		 "versions, "
		 "and a unit that no shard or more than one ran are errors, and a whole in which nothing passed is a "
		 "mismatch. "
		 "One result of a command without --shard serves too: for a JUnit or TAP report of it.",
	.examples = "  plumb merge shard1.json shard2.json shard3.json shard4.json --junit report.xml\n"
		    "  plumb merge out/*.json --json whole.json\n"
		    "  plumb merge result.json --tap -",
	.operands = "FILE.json",
	.verbose = "every failure, and what was skipped",
	.run = run,
};
