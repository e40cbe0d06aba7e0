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

cJSON *html_score_of_faults(const cJSON *report)
{
	static const char *const others[] = {"equivalent", "identical", "stillborn", "elsewhere"};
	double other[sizeof others / sizeof others[0]] = {0.0};
	const char *lane = html_string(report, "lane", "?");
	cJSON *score = begin(report, "plumb faults", lane), *classes = cJSON_AddArrayToObject(score, "classes");
	cJSON *survivors = cJSON_AddArrayToObject(score, "survivors"),
	      *failures = cJSON_AddArrayToObject(score, "failures");
	cJSON *inputs = cJSON_AddArrayToObject(score, "inputs");
	const cJSON *fault;
	char text[700];
	double tried = 0.0, caught = 0.0;

	cJSON_ArrayForEach (fault, html_get(report, "faults")) {
		const char *outcome = html_string(fault, "outcome", "?"), *file = html_string(fault, "file", "?");
		const char *name = html_string(fault, "class", "?"), *stage = html_string(fault, "stage", "-");
		bool killed = strcmp(outcome, "killed") == 0, survived = strcmp(outcome, "survived") == 0, known = false;
		for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
			if (strcmp(outcome, others[i]) == 0) {
				other[i]++;
				known = true;
			}
		if (known)
			continue;
		if (killed || survived) {
			tally(classes, name, stage, lane, killed);
			tried++;
			caught += killed;
		}
		if (killed)
			continue;
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(survived ? survivors : failures, one);
		cJSON_AddStringToObject(one, "name", html_string(fault, "id", "?"));
		cJSON_AddStringToObject(one, "class", name);
		cJSON_AddStringToObject(one, "stage", stage);
		cJSON_AddStringToObject(one, "lane", lane);
		snprintf(text, sizeof text, "%.40s%s%.150s:%s%s%.400s", survived ? "" : outcome, survived ? "" : ", ", file,
			html_count(html_number(fault, "line")), *html_string(fault, "text", "") ? ": " : "",
			html_string(fault, "text", ""));
		cJSON_AddStringToObject(one, "text", text);
	}
	add_checks(score, report);
	snprintf(text, sizeof text, "%s of %s planted faults caught in lane %.60s", html_count(caught), html_count(tried),
		lane);
	cJSON_AddStringToObject(score, "summary", text);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (other[i] > 0.0)
			input(inputs, others[i], html_count(other[i]));
	input(inputs, "seed", html_count(html_number(report, "seed")));
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
