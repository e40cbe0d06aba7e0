/* SPDX-License-Identifier: MIT */
/* The reports of plumb faults and plumb test as scores (tools/html.h). */
#include <math.h>
#include <string.h>

#include "core/op.h"
#include "tools/html_parts.h"

/* The class of that name in that stage; made when it is new. */
static cJSON *class_of(cJSON *classes, const char *name, const char *stage, const char *lane)
{
	cJSON *one, *by, *at;

	cJSON_ArrayForEach (one, classes)
		if (strcmp(html_string(one, "name", ""), name) == 0 && strcmp(html_string(one, "stage", ""), stage) == 0)
			return one;
	one = cJSON_CreateObject();
	cJSON_AddItemToArray(classes, one);
	cJSON_AddStringToObject(one, "name", name);
	cJSON_AddStringToObject(one, "stage", stage);
	cJSON_AddNumberToObject(one, "tried", 0.0);
	cJSON_AddNumberToObject(one, "caught", 0.0);
	by = cJSON_AddArrayToObject(one, "by");
	at = cJSON_CreateObject();
	cJSON_AddItemToArray(by, at);
	cJSON_AddStringToObject(at, "lane", lane);
	cJSON_AddNumberToObject(at, "tried", 0.0);
	cJSON_AddNumberToObject(at, "caught", 0.0);
	return one;
}

static void raise_one(cJSON *object, const char *name)
{
	cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
	if (item)
		cJSON_SetNumberValue(item, item->valuedouble + 1.0);
}

static void tally(cJSON *classes, const char *name, const char *stage, const char *lane, bool caught)
{
	cJSON *one = class_of(classes, name, stage, lane);
	cJSON *at = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(one, "by"), 0);
	raise_one(one, "tried");
	raise_one(at, "tried");
	if (caught) {
		raise_one(one, "caught");
		raise_one(at, "caught");
	}
}

/* What every report has of its origin. */
static cJSON *begin(const cJSON *report, const char *title, const char *lane)
{
	static const char *const kept[] = {"version", "commit", "command", "date"};
	cJSON *score = cJSON_CreateObject(), *lanes, *one;

	cJSON_AddStringToObject(score, "format", "plumb score 1");
	cJSON_AddStringToObject(score, "title", title);
	cJSON_AddStringToObject(score, "verdict", html_true(report, "pass") ? "pass" : "fail");
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
		if (*html_string(report, kept[i], ""))
			cJSON_AddStringToObject(score, kept[i], html_string(report, kept[i], ""));
	lanes = cJSON_AddArrayToObject(score, "lanes");
	one = cJSON_CreateObject();
	cJSON_AddItemToArray(lanes, one);
	cJSON_AddStringToObject(one, "name", lane);
	return score;
}

static void input(cJSON *inputs, const char *key, const char *value)
{
	cJSON *one = cJSON_CreateObject();
	cJSON_AddItemToArray(inputs, one);
	cJSON_AddStringToObject(one, "key", key);
	cJSON_AddStringToObject(one, "value", value);
}

static void add_checks(cJSON *score, const cJSON *report)
{
	cJSON *checks = cJSON_AddArrayToObject(score, "checks");
	const cJSON *row;

	cJSON_ArrayForEach (row, html_get(report, "checks")) {
		cJSON *one = cJSON_CreateObject();
		double killed = html_number(row, "killed");
		cJSON_AddItemToArray(checks, one);
		cJSON_AddStringToObject(one, "name", row->string ? row->string : "?");
		cJSON_AddNumberToObject(one, "caught", isfinite(killed) ? killed : 0.0);
	}
}

/* "test, first cases (3); replay (1)", the busiest first. */
static void by_words(const cJSON *by, char *text, size_t size)
{
	const cJSON *one;
	double most = 0.0, next;
	size_t n = 0;

	text[0] = '\0';
	cJSON_ArrayForEach (one, by)
		most = html_value(one) > most ? html_value(one) : most;
	while (most > 0.0) {
		next = 0.0;
		cJSON_ArrayForEach (one, by) {
			double v = html_value(one);
			if (v == most && n < size)
				n += (size_t)snprintf(text + n, size - n, "%s%.80s (%s)", n ? "; " : "",
					one->string ? one->string : "?", html_count(v));
			else if (v < most && v > next)
				next = v;
		}
		most = next;
	}
}

/* The tables of a score that are there, as the page shows them. */
static void add_tables(cJSON *score, const cJSON *report)
{
	static const struct {
		const char *key, *title, *head;
	} from[] = {{"classes", "By class", "class"}, {"stages", "By stage", "stage"}, {"lanes", "By lane", "lane"},
		{"checks", "By the check that caught it", "check"}, {"kinds", "By kind", "kind"},
		{"files", "By file", "file"}};
	cJSON *tables = NULL;
	const cJSON *row;
	char text[1000];

	if (!html_get(report, "classes")) /* of another program */
		return;
	for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
		if (cJSON_GetArraySize(html_get(report, from[i].key)) == 0)
			continue;
		tables = tables ? tables : cJSON_AddArrayToObject(score, "tables");
		cJSON *table = cJSON_CreateObject(), *rows;
		cJSON_AddItemToArray(tables, table);
		cJSON_AddStringToObject(table, "title", from[i].title);
		cJSON_AddStringToObject(table, "head", from[i].head);
		rows = cJSON_AddArrayToObject(table, "rows");
		cJSON_ArrayForEach (row, html_get(report, from[i].key)) {
			cJSON *one = cJSON_CreateObject();
			cJSON_AddItemToArray(rows, one);
			cJSON_AddStringToObject(one, "name", row->string ? row->string : "?");
			cJSON_AddNumberToObject(one, "caught", html_number(row, "killed"));
			if (strcmp(from[i].key, "checks") == 0) /* it caught all that it is counted for */
				continue;
			cJSON_AddNumberToObject(one, "tried", html_number(row, "total"));
			cJSON_AddNumberToObject(one, "skipped", html_number(row, "elsewhere"));
			by_words(html_get(row, "by"), text, sizeof text);
			cJSON_AddStringToObject(one, "by", text);
		}
	}
}

/* What to do about a fault that was not caught, or not judged. */
static void add_advice(cJSON *one, const cJSON *fault, bool survived)
{
	const bool mutant = strcmp(html_string(fault, "kind", ""), "mutant") == 0;
	const char *text = "Nothing is known of this one: mend what stopped it, and run it again.";

	if (survived && mutant)
		text = "Write the check that fails here. If the code computes the same, record it with its reason in "
		       "tests/faults/equivalent.json.";
	else if (survived)
		text = "Write the check that fails here. If the code computes the same, give it \"equivalent\": \"reason\" "
		       "in "
		       "tests/faults.";
	else if (strcmp(html_string(fault, "outcome", ""), "not equivalent") == 0)
		text = "It is recorded as equivalent, and a check fails: take its reason out of the record.";
	cJSON_AddStringToObject(one, "advice", text);
	cJSON_AddStringToObject(one, "before", html_string(fault, "before", ""));
	cJSON_AddStringToObject(one, "after", html_string(fault, "after", ""));
	if (*html_string(fault, "again", ""))
		cJSON_AddStringToObject(one, "replay", html_string(fault, "again", ""));
}

/* The run stopped, or is a shard's. */
static void add_shard(cJSON *score, const cJSON *report)
{
	const cJSON *shard = html_get(report, "shard");
	char text[64];

	if (*html_string(shard, "failure", "")) {
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(score, "failures"), one);
		cJSON_AddStringToObject(one, "name", "the run");
		cJSON_AddStringToObject(one, "text", html_string(shard, "failure", ""));
	}
	if (html_number(shard, "of") > 1.0) {
		snprintf(text, sizeof text, "%s of %s", html_count(html_number(shard, "index")),
			html_count(html_number(shard, "of")));
		input(cJSON_GetObjectItemCaseSensitive(score, "inputs"), "shard", text);
	}
}

cJSON *html_score_of_faults(const cJSON *report)
{
	static const char *const others[] = {"equivalent", "identical", "stillborn", "elsewhere"};
	static const char *const other_words[] = {"equivalent", "same object code", "do not compile", "only on the GPU"};
	double other[sizeof others / sizeof others[0]] = {0.0};
	const char *lane = html_string(report, "lane", "?");
	cJSON *score = begin(report, "plumb faults", lane), *classes = cJSON_AddArrayToObject(score, "classes");
	cJSON *survivors = cJSON_AddArrayToObject(score, "survivors"),
	      *failures = cJSON_AddArrayToObject(score, "failures");
	cJSON *inputs = cJSON_AddArrayToObject(score, "inputs");
	const cJSON *fault, *mutants = html_get(report, "mutants");
	char text[900];
	double tried[2] = {0.0}, caught[2] = {0.0}; /* planted, mutants */

	cJSON_ArrayForEach (fault, html_get(report, "faults")) {
		const char *outcome = html_string(fault, "outcome", "?"), *file = html_string(fault, "file", "?");
		const char *name = html_string(fault, "class", "?"), *stage = html_string(fault, "stage", "-");
		bool killed = strcmp(outcome, "killed") == 0, survived = strcmp(outcome, "survived") == 0, known = false;
		int mutant = strcmp(html_string(fault, "kind", ""), "mutant") == 0;
		for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
			if (strcmp(outcome, others[i]) == 0) {
				other[i]++;
				known = true;
			}
		if (known)
			continue;
		if (killed || survived) {
			tally(classes, name, stage, lane, killed);
			tried[mutant]++;
			caught[mutant] += killed;
		}
		if (killed)
			continue;
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(survived ? survivors : failures, one);
		cJSON_AddStringToObject(one, "name", html_string(fault, "id", "?"));
		cJSON_AddStringToObject(one, "class", name);
		cJSON_AddStringToObject(one, "stage", stage);
		cJSON_AddStringToObject(one, "lane", html_string(fault, "lane", lane));
		snprintf(text, sizeof text, "%.40s%s%.150s:%s%s%.200s%s%.400s", survived ? "" : outcome,
			survived ? "" : ", ", file, html_count(html_number(fault, "line")),
			*html_string(fault, "why", "") ? ": " : "", html_string(fault, "why", ""),
			*html_string(fault, "text", "") ? ": " : "", html_string(fault, "text", ""));
		cJSON_AddStringToObject(one, "text", text);
		add_advice(one, fault, survived);
	}
	add_tables(score, report);
	if (!html_get(score, "tables"))
		add_checks(score, report);
	if (tried[1] > 0.0 && tried[0] > 0.0)
		snprintf(text, sizeof text, "%s of %s planted faults and %s of %s mutants caught in lane %.60s",
			html_count(caught[0]), html_count(tried[0]), html_count(caught[1]), html_count(tried[1]), lane);
	else
		snprintf(text, sizeof text, "%s of %s %s caught in lane %.60s", html_count(caught[0] + caught[1]),
			html_count(tried[0] + tried[1]), tried[1] > 0.0 ? "mutants" : "planted faults", lane);
	cJSON_AddStringToObject(score, "summary", text);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (other[i] > 0.0)
			input(inputs, other_words[i], html_count(other[i]));
	if (html_number(mutants, "least") < 100.0) {
		snprintf(text, sizeof text, "at least %s %% to be caught%s", html_count(html_number(mutants, "least")),
			html_true(mutants, "judged") ? "" : ", which all shards together tell (plumb merge)");
		input(inputs, "mutants", text);
	}
	input(inputs, "seed", html_count(html_number(report, "seed")));
	if (html_number(report, "cases") > 0.0)
		input(inputs, "cases of an op", html_count(html_number(report, "cases")));
	add_shard(score, report);
	return score;
}

cJSON *html_score_of_test(const cJSON *report)
{
	const char *device = html_string(report, "device", "?");
	cJSON *score = begin(report, "plumb test", device), *classes = cJSON_AddArrayToObject(score, "classes");
	cJSON *failures = cJSON_AddArrayToObject(score, "failures"), *inputs = cJSON_AddArrayToObject(score, "inputs");
	const cJSON *trial;
	char text[700];
	double failed = html_number(report, "failed"), cases = 0.0, told = 0.0;

	cJSON_AddStringToObject(score, "word", "passed");
	cJSON_AddStringToObject(score, "rows", "op");
	cJSON_ArrayForEach (trial, html_get(report, "cases")) {
		const char *op = html_string(trial, "op", "?"), *name = html_string(trial, "class", "plain");
		bool pass = html_true(trial, "pass");
		cases++;
		tally(classes, name, op, device, pass);
		if (pass)
			continue;
		told++;
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(failures, one);
		cJSON_AddStringToObject(one, "name", html_string(trial, "case", "?"));
		cJSON_AddStringToObject(one, "class", name);
		cJSON_AddStringToObject(one, "stage", op);
		cJSON_AddStringToObject(one, "lane", device);
		snprintf(text, sizeof text, "%s%.300s%s%.300s",
			html_true(trial, "reference") ? "the reference itself: " : "", html_string(trial, "text", ""),
			*html_string(trial, "how", "") ? ". " : "", html_string(trial, "how", ""));
		cJSON_AddStringToObject(one, "text", text);
		cJSON_AddStringToObject(one, "replay", html_string(trial, "replay", ""));
	}
	if (failed > told) { /* gates of many values: no case fails by itself */
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(failures, one);
		cJSON_AddStringToObject(one, "name", "class plain");
		cJSON_AddStringToObject(
			one, "text", "every value is within its bound, all of them together are not (rms, bias)");
	}
	if (html_true(report, "pass"))
		snprintf(text, sizeof text, "All %s cases pass on %.60s", html_count(cases), device);
	else
		snprintf(text, sizeof text, "%s of %s cases fail%s on %.60s", html_count(told), html_count(cases),
			failed > told ? ", and sums over many" : "", device);
	cJSON_AddStringToObject(score, "summary", text);
	input(inputs, "device", device);
	input(inputs, "seed", html_count(html_number(report, "seed")));
	if (*html_string(report, "shard", ""))
		input(inputs, "shard", html_string(report, "shard", ""));
	return score;
}

/* The joined results of shards: of plumb faults its score; of others their units, by what their names begin with. */
cJSON *html_score_of_merge(const cJSON *report)
{
	static const char *const kept[] = {"version", "commit", "command", "date"};
	const cJSON *whole = html_get(report, "whole"), *shard = html_get(report, "shard"), *unit;
	const char *command = html_string(shard, "command", "?");
	cJSON *score, *classes, *failures, *inputs;
	char title[80], text[200];
	double failed = 0.0, units = 0.0, skipped = 0.0;

	snprintf(title, sizeof title, "plumb merge: %.60s", command);
	if (cJSON_IsObject(whole)) {
		score = html_score_of_faults(whole);
		for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
			cJSON_DeleteItemFromObjectCaseSensitive(score, kept[i]);
			if (*html_string(report, kept[i], ""))
				cJSON_AddStringToObject(score, kept[i], html_string(report, kept[i], ""));
		}
		if (!html_true(report, "pass"))
			cJSON_ReplaceItemInObjectCaseSensitive(score, "verdict", cJSON_CreateString("fail"));
		inputs = cJSON_GetObjectItemCaseSensitive(score, "inputs");
		failures = cJSON_GetObjectItemCaseSensitive(score, "failures");
		classes = NULL;
	} else {
		score = begin(report, title, "all shards");
		classes = cJSON_AddArrayToObject(score, "classes");
		failures = cJSON_AddArrayToObject(score, "failures");
		inputs = cJSON_AddArrayToObject(score, "inputs");
		cJSON_AddStringToObject(score, "word", "passed");
		cJSON_AddStringToObject(score, "rows", "group");
	}
	for (int list = 0; list < 2; list++)
		cJSON_ArrayForEach (unit, html_get(shard, list ? "also" : "units")) {
			const char *name = html_string(unit, "name", "?"), *verdict = html_string(unit, "verdict", "?");
			const char *slash = strrchr(name, '/');
			const bool fail = strcmp(verdict, "fail") == 0, skip = strcmp(verdict, "skip") == 0;
			if (classes && !list) {
				char group[200], first[200]; /* "local/layer00" of "local/layer00/gdn/output" */
				size_t to = strcspn(name, "/ ");
				snprintf(first, sizeof first, "%.*s", (int)to, name);
				to += name[to] == '/' ? 1 + strcspn(name + to + 1, "/ ") : 0;
				snprintf(group, sizeof group, "%.*s",
					slash && name + to > slash ? (int)(slash - name) : (int)to, name);
				units++;
				failed += fail;
				skipped += skip;
				if (!skip)
					tally(classes, first, *group ? group : "-", "all shards", !fail);
			}
			if (!fail || (!classes && !list))
				continue;
			cJSON *one = cJSON_CreateObject();
			cJSON_AddItemToArray(failures, one);
			cJSON_AddStringToObject(one, "name", name);
			cJSON_AddStringToObject(one, "text", html_string(unit, "text", ""));
		}
	if (*html_string(shard, "failure", "")) {
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(failures, one);
		cJSON_AddStringToObject(one, "name", "the whole");
		cJSON_AddStringToObject(one, "text", html_string(shard, "failure", ""));
	}
	if (classes) {
		const bool pass = failed == 0.0 && html_true(report, "pass");
		char rest[48] = "";
		if (skipped > 0.0)
			snprintf(rest, sizeof rest, ", %s are skipped", html_count(skipped));
		if (pass)
			snprintf(text, sizeof text, "%s units of plumb %.60s pass%s", html_count(units - skipped), command,
				rest);
		else
			snprintf(text, sizeof text, "%s of %s units of plumb %.60s fail%s", html_count(failed),
				html_count(units), command, rest);
		cJSON_AddStringToObject(score, "summary", text);
		if (*html_string(shard, "digest", ""))
			input(inputs, "digest", html_string(shard, "digest", ""));
	}
	input(inputs, "shards", html_count(cJSON_GetArraySize(html_get(report, "merged"))));
	cJSON_ArrayForEach (unit, html_get(shard, "inputs"))
		if (cJSON_IsString(unit) && unit->string && strcmp(unit->string, "seed") != 0)
			input(inputs, unit->string, unit->valuestring);
	return score;
}
