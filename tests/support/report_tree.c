/* SPDX-License-Identifier: MIT */
#include "tests/support/report_tree.h"

#include <stdio.h>
#include <string.h>

#include "core/op.h"

/* Tensors of a layer, as many as the golden format records in one. */
static const struct {
	const char *tensor;
	enum plumb_op op;
} tensors[] = {
	{"attn_hc/injection", PLUMB_HC_UP_MIX},
	{"attn_hc/mixed", PLUMB_HC_UP_MIX},
	{"gdn/in_proj_a/output", PLUMB_GDN_IN_PROJ},
	{"gdn/in_proj_b/output", PLUMB_GDN_IN_PROJ},
	{"gdn/in_proj_qkv/output", PLUMB_GDN_IN_PROJ},
	{"gdn/in_proj_z/output", PLUMB_GDN_IN_PROJ},
	{"gdn/norm/output", PLUMB_GDN_NORM_GATE},
	{"gdn/output", PLUMB_GDN_OUT_PROJ},
	{"gdn/recurrence", PLUMB_GDN_RECURRENCE},
	{"mlp_hc/injection", PLUMB_HC_UP_MIX},
	{"mlp_hc/mixed", PLUMB_HC_UP_MIX},
	{"moe/output", PLUMB_MOE_DOWN},
	{"moe/routed/output", PLUMB_MOE_DOWN},
	{"moe/router/experts", PLUMB_MOE_ROUTER},
	{"moe/router/logits", PLUMB_MOE_ROUTER},
	{"moe/router/weights", PLUMB_MOE_ROUTER},
	{"moe/shared/output", PLUMB_MOE_DOWN},
	{"output", PLUMB_HC_INJECT},
	{"ple/embedding/output", PLUMB_PLE_EMBED},
	{"ple/output", PLUMB_PLE_CONV},
	{"qsa/selected_mask", PLUMB_QSA_SELECT},
	{"state/conv_states0", PLUMB_GDN_CONV},
	{"state/keys", PLUMB_ATTN_QK_ROPE},
	{"state/recurrent_states0", PLUMB_GDN_RECURRENCE},
	{"state/values", PLUMB_ATTN_QK_ROPE},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

/* Numbers that look measured, the same every time. */
static double figure(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (double)(*seed >> 8) / (double)(1u << 24);
}

static const char *with(char *text, size_t size, const char *ours, const char *name)
{
	snprintf(text, size, "%s%s", ours, name);
	return text;
}

static cJSON *begin(const char *format, const struct report_tree *t)
{
	cJSON *root = cJSON_CreateObject(), *again;
	char text[1024];

	cJSON_AddStringToObject(root, "format", format);
	cJSON_AddStringToObject(root, "version", "0.1.0");
	cJSON_AddStringToObject(root, "commit", with(text, sizeof text, "0123456789ab", t->name));
	cJSON_AddStringToObject(
		root, "command", with(text, sizeof text, "plumb check golden.h5 --checkpoint DIR", t->name));
	cJSON_AddStringToObject(root, "golden", with(text, sizeof text, "golden.h5", t->name));
	cJSON_AddStringToObject(root, "checkpoint", with(text, sizeof text, "DIR", t->name));
	cJSON_AddStringToObject(root, "producer", with(text, sizeof text, "transformers", t->name));
	again = cJSON_AddObjectToObject(root, "again");
	cJSON_AddStringToObject(again, "check", with(text, sizeof text, "plumb check golden.h5", t->name));
	cJSON_AddStringToObject(again, "bisect", with(text, sizeof text, "plumb bisect golden.h5 --set opt", t->name));
	return root;
}

static void add_item(cJSON *items, const struct report_tree *t, int layer, int k, bool fails, unsigned *seed)
{
	char name[512], text[1024];
	cJSON *o = cJSON_CreateObject(), *histogram, *worst;

	cJSON_AddItemToArray(items, o);
	snprintf(name, sizeof name, "layer%02d/%s%.200s", layer, tensors[k].tensor, t->name);
	cJSON_AddStringToObject(o, "tensor", name);
	cJSON_AddNumberToObject(o, "layer", layer);
	cJSON_AddStringToObject(o, "stage", plumb_ops[tensors[k].op].stage);
	cJSON_AddStringToObject(o, "op", plumb_ops[tensors[k].op].name);
	if (*t->name)
		cJSON_AddStringToObject(o, "library", t->name);
	cJSON_AddBoolToObject(o, "pass", !fails);
	cJSON_AddStringToObject(
		o, "verdict", with(text, sizeof text, fails ? "FAIL: relative L2 0.026" : "pass: ", t->name));
	cJSON_AddNumberToObject(o, "share_of_tolerance", fails ? 26000.0 : figure(seed));
	cJSON_AddNumberToObject(o, "order", layer * TENSORS + k);
	cJSON_AddBoolToObject(o, "inputs_recorded", true);
	cJSON_AddNumberToObject(o, "elements", 143360);
	cJSON_AddNumberToObject(o, "relative_l2", 1e-6 * figure(seed));
	cJSON_AddNumberToObject(o, "max_ulp", (double)(int)(1e5 * figure(seed)));
	cJSON_AddNumberToObject(o, "max_bf16_ulp", 1);
	cJSON_AddNumberToObject(o, "equal_fraction", figure(seed));
	worst = cJSON_AddObjectToObject(o, "worst");
	cJSON_AddNumberToObject(worst, "index", 142871);
	cJSON_AddStringToObject(worst, "at", "55,2071");
	cJSON_AddNumberToObject(worst, "ours", figure(seed));
	cJSON_AddNumberToObject(worst, "golden", figure(seed));
	histogram = cJSON_AddArrayToObject(o, "ulp_histogram");
	for (int i = 0; i < 18; i++)
		cJSON_AddItemToArray(histogram, cJSON_CreateNumber((double)(int)(1e5 * figure(seed))));
}

static void add_drift(cJSON *view, const struct report_tree *t, unsigned *seed)
{
	cJSON *drift = cJSON_AddObjectToObject(view, "drift"), *list;
	char name[256];

	cJSON_AddNumberToObject(drift, "tokens", t->tokens);
	list = cJSON_AddArrayToObject(drift, "tensors");
	for (int l = 0; l <= t->layers; l++) {
		cJSON *one = cJSON_CreateObject(), *values;
		cJSON_AddItemToArray(list, one);
		snprintf(name, sizeof name, l < t->layers ? "layer%02d/output" : "logits", l);
		cJSON_AddStringToObject(one, "tensor", name);
		if (l < t->layers)
			cJSON_AddNumberToObject(one, "layer", l);
		else
			cJSON_AddNullToObject(one, "layer");
		cJSON_AddBoolToObject(one, "pass", true);
		values = cJSON_AddArrayToObject(one, "relative_l2");
		for (int g = 0; g < (t->tokens < 64 ? t->tokens : 64); g++)
			cJSON_AddItemToArray(values, cJSON_CreateNumber(1e-7 * (1.0 + l) * (0.5 + figure(seed))));
	}
}

static void add_bounds(cJSON *view, const struct report_tree *t, unsigned *seed)
{
	cJSON *bounds = cJSON_AddObjectToObject(view, "bounds"), *ops = cJSON_AddArrayToObject(bounds, "ops");
	char text[1024];

	cJSON_AddBoolToObject(bounds, "pass", !t->fails);
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		cJSON *o = cJSON_CreateObject(), *layers, *counts;
		bool fails = t->fails && op == PLUMB_MOE_DOWN;
		cJSON_AddItemToArray(ops, o);
		cJSON_AddStringToObject(o, "op", plumb_ops[op].name);
		cJSON_AddBoolToObject(o, "pass", !fails);
		cJSON_AddStringToObject(o, "verdict", with(text, sizeof text, fails ? "FAIL: ratio 3.1" : "pass", t->name));
		cJSON_AddNumberToObject(o, "calls", 56 * t->layers);
		cJSON_AddNumberToObject(o, "values", 143360.0 * t->layers);
		cJSON_AddNumberToObject(o, "max_ratio", fails ? 3.1 : 0.9);
		cJSON_AddArrayToObject(o, "operands");
		layers = cJSON_AddArrayToObject(o, "layers");
		for (int l = 0; l < t->layers; l++) {
			cJSON *c = cJSON_CreateObject();
			cJSON_AddItemToArray(layers, c);
			cJSON_AddNumberToObject(c, "layer", l);
			cJSON_AddNumberToObject(c, "calls", 56);
			cJSON_AddNumberToObject(c, "values", 143360);
			cJSON_AddNumberToObject(c, "max_ratio", fails && l == t->layers / 3 ? 3.1 : figure(seed));
			cJSON_AddStringToObject(c, "at", fails && l == t->layers / 3 ? "output[803]" : "output[55,2071]");
			cJSON_AddNumberToObject(c, "ours", figure(seed));
			cJSON_AddNumberToObject(c, "exact", figure(seed));
			cJSON_AddNumberToObject(c, "bound", 1e-7 * figure(seed));
		}
		counts = cJSON_AddArrayToObject(o, "ratio_histogram");
		for (int i = 0; i < 25; i++)
			cJSON_AddItemToArray(
				counts, cJSON_CreateNumber(i > 17 || (i == 17 && !fails) ? 0.0 : 1000.0 / (1 + i)));
	}
}

cJSON *report_tree_check(const struct report_tree *t)
{
	cJSON *root = begin("plumb check 1", t), *views;
	char text[1024];
	unsigned seed = 7;

	cJSON_AddBoolToObject(root, "pass", !t->fails);
	cJSON_AddNumberToObject(root, "layers", t->layers);
	cJSON_AddNumberToObject(root, "tokens", t->tokens);
	cJSON_AddStringToObject(root, "set", with(text, sizeof text, "set opt on simt", t->name));
	cJSON_AddStringToObject(root, "ties", "torch");
	cJSON_AddStringToObject(root, "digest", "68890248028dfcba49bdd3eeb2faa8d4");
	views = cJSON_AddArrayToObject(root, "views");
	for (int v = 0; v < 2; v++) {
		cJSON *view = cJSON_CreateObject(), *items;
		int failed = 0;
		cJSON_AddItemToArray(views, view);
		cJSON_AddStringToObject(view, "view", v ? "propagated" : "local");
		items = cJSON_AddArrayToObject(view, "items");
		for (int l = 0; l < t->layers; l++)
			for (int k = 0; k < TENSORS; k++) {
				bool fails = t->fails && tensors[k].op == PLUMB_MOE_DOWN &&
				             (v ? l >= t->layers / 3 : l == t->layers / 3);
				add_item(items, t, l, k, fails, &seed);
				failed += fails;
			}
		cJSON_AddBoolToObject(view, "pass", failed == 0);
		cJSON_AddNumberToObject(view, "tensors", t->layers * TENSORS);
		cJSON_AddNumberToObject(view, "failed", failed);
		cJSON_AddNumberToObject(view, "values", 143360.0 * TENSORS * t->layers);
		cJSON_AddNumberToObject(view, "tied_cuts", 3);
		cJSON_AddNumberToObject(view, "rows_explained", 1);
		add_drift(view, t, &seed);
		if (t->bounds)
			add_bounds(view, t, &seed);
	}
	return root;
}

cJSON *report_tree_bisect(const struct report_tree *t)
{
	cJSON *root = begin("plumb bisect 1", t), *findings, *sets, *set, *whole;
	char text[1024];

	cJSON_AddStringToObject(root, "verdict", t->fails ? "fail" : "pass");
	cJSON_AddStringToObject(root, "criterion", "bound");
	cJSON_AddStringToObject(root, "suspects", with(text, sizeof text, "kernels of ", t->name));
	cJSON_AddNumberToObject(root, "tokens", t->tokens);
	cJSON_AddNumberToObject(root, "steps", 8);
	cJSON_AddNumberToObject(root, "layers", t->layers);
	cJSON_AddNumberToObject(root, "choices", 2 * t->layers);
	cJSON_AddNumberToObject(root, "calls", 18 * t->layers);
	cJSON_AddNumberToObject(root, "decodes", 7);
	findings = cJSON_AddArrayToObject(root, "findings");
	sets = cJSON_AddArrayToObject(root, "sets");
	whole = cJSON_AddObjectToObject(root, "whole");
	cJSON_AddBoolToObject(whole, "fails", t->fails);
	cJSON_AddStringToObject(
		whole, "words", with(text, sizeof text, t->fails ? "leaves the truth at token 0" : "passes", t->name));
	if (!t->fails)
		return root;
	cJSON *one = cJSON_CreateObject();
	cJSON_AddItemToArray(findings, one);
	cJSON_AddStringToObject(one, "op", "moe_down");
	cJSON_AddStringToObject(one, "place", with(text, sizeof text, "layer 1", t->name));
	cJSON_AddStringToObject(one, "kind", with(text, sizeof text, "wrong", t->name));
	cJSON_AddBoolToObject(one, "chief", true);
	cJSON_AddNumberToObject(one, "position", 0);
	cJSON_AddNumberToObject(one, "calls", 9);
	cJSON_AddNumberToObject(one, "wrong_calls", 9);
	cJSON_AddNumberToObject(one, "ratio", 361000.0);
	cJSON_AddStringToObject(one, "text", with(text, sizeof text, "output: token 24, column 25 is wrong", t->name));
	cJSON_AddStringToObject(one, "inside", with(text, sizeof text, "the last 8 of 96 terms are missing", t->name));
	cJSON_AddStringToObject(one, "where", with(text, sizeof text, "every element", t->name));
	set = cJSON_CreateArray();
	cJSON_AddItemToArray(sets, set);
	for (int i = 0; i < 2; i++) {
		cJSON *choice = cJSON_CreateObject(), *ops = cJSON_AddArrayToObject(choice, "ops");
		cJSON_AddItemToArray(set, choice);
		cJSON_AddItemToArray(ops, cJSON_CreateString(i ? "hc_inject" : "moe_down"));
		cJSON_AddNumberToObject(choice, "layer", 1);
	}
	cJSON_AddStringToObject(root, "case", with(text, sizeof text, "wrong.h5", t->name));
	cJSON_AddStringToObject(root, "replay", with(text, sizeof text, "plumb replay wrong.h5", t->name));
	return root;
}

cJSON *report_tree_bench(const struct report_tree *t)
{
	cJSON *root = begin("plumb bench 1", t), *run = cJSON_CreateObject(), *token, *ops, *before, *times;
	char text[1024];
	unsigned seed = 11;
	double sum = 0.0, bytes = 0.0;

	cJSON_AddStringToObject(root, "model", with(text, sizeof text, "synthetic full", t->name));
	cJSON_AddStringToObject(root, "profile", with(text, sizeof text, "served", t->name));
	cJSON_AddStringToObject(root, "runs_on", with(text, sizeof text, "set opt on cuda", t->name));
	cJSON_AddStringToObject(root, "checked", with(text, sizeof text, "28 of 28 ops bit-exact", t->name));
	cJSON_AddNumberToObject(root, "ceiling_gb_per_second", 4100.0);
	cJSON_AddNumberToObject(root, "repeat", 20);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "contexts"), run);
	cJSON_AddNumberToObject(run, "context", 4096);
	token = cJSON_AddObjectToObject(run, "token");
	ops = cJSON_AddArrayToObject(run, "ops");
	before = cJSON_AddObjectToObject(root, "before");
	cJSON_AddStringToObject(before, "model", with(text, sizeof text, "synthetic full", t->name));
	cJSON_AddStringToObject(before, "runs_on", with(text, sizeof text, "set opt on cuda", t->name));
	cJSON_AddStringToObject(before, "commit", with(text, sizeof text, "ba9876543210", t->name));
	cJSON_AddBoolToObject(before, "alike", true);
	times = cJSON_AddArrayToObject(before, "times");
	for (int op = 0; op <= PLUMB_OP_COUNT; op++) {
		cJSON *o = cJSON_CreateObject(), *old = cJSON_CreateObject();
		double b = 2e3 * (1 + 3e4 * figure(&seed) * figure(&seed)),
		       us = 2.0 + b / 4.1e6 * (1.0 + 2.0 * figure(&seed));
		cJSON_AddItemToArray(times, old);
		cJSON_AddNumberToObject(old, "context", 4096);
		cJSON_AddStringToObject(old, "name", op < PLUMB_OP_COUNT ? plumb_ops[op].name : "token");
		cJSON_AddNumberToObject(old, "us", op < PLUMB_OP_COUNT ? us * (0.9 + 0.2 * figure(&seed)) : sum);
		if (op == PLUMB_OP_COUNT) {
			cJSON_Delete(o);
			break;
		}
		cJSON_AddItemToArray(ops, o);
		cJSON_AddStringToObject(o, "name", plumb_ops[op].name);
		cJSON_AddNumberToObject(o, "calls", t->layers);
		cJSON_AddNumberToObject(o, "launches", t->layers);
		cJSON_AddNumberToObject(o, "bytes", b * t->layers);
		cJSON_AddBoolToObject(o, "exact", !(t->fails && op == PLUMB_MOE_DOWN));
		cJSON_AddBoolToObject(o, "warm", b < 1e5);
		if (t->fails && op == PLUMB_MOE_DOWN)
			continue;
		cJSON_AddNumberToObject(o, "us_per_call", us);
		cJSON_AddNumberToObject(o, "us_per_token", us * t->layers);
		cJSON_AddNumberToObject(o, "gb_per_second", b / us * 1e-3);
		cJSON_AddNumberToObject(o, "projected_gb10_us_per_call", b / 230e3 + 2.2);
		sum += us * t->layers;
		bytes += b * t->layers;
	}
	cJSON_AddNumberToObject(token, "us", sum * 1.02);
	cJSON_AddNumberToObject(token, "launches", 28.0 * t->layers);
	cJSON_AddNumberToObject(token, "bytes", bytes);
	cJSON_AddNumberToObject(token, "gb_per_second", bytes / sum * 1e-3);
	cJSON_AddNumberToObject(token, "sum_of_ops_us", sum);
	cJSON_AddNumberToObject(token, "gap_us", sum * 0.02);
	cJSON_AddNumberToObject(token, "projected_gb10_us", bytes / 230e3);
	return root;
}

cJSON *report_tree_score(const struct report_tree *t)
{
	static const char *const lanes[] = {"simt", "check", "bisect"};
	static const char *const classes[] = {
		"dropped_tail", "swapped_rows", "missing_barrier", "wrong_round", "stale_cache"};
	cJSON *root = begin("plumb score 1", t), *list;
	char text[1024];

	cJSON_AddStringToObject(root, "title", with(text, sizeof text, "plumb faults", t->name));
	cJSON_AddStringToObject(root, "verdict", t->fails ? "fail" : "pass");
	cJSON_AddStringToObject(root, "summary",
		with(text, sizeof text, t->fails ? "1 of 60 planted faults was not caught" : "All 60 caught", t->name));
	list = cJSON_AddArrayToObject(root, "lanes");
	for (int i = 0; i < 3; i++) {
		cJSON *lane = cJSON_CreateObject();
		cJSON_AddItemToArray(list, lane);
		cJSON_AddStringToObject(lane, "name", lanes[i]);
	}
	list = cJSON_AddArrayToObject(root, "classes");
	for (int i = 0; i < 5; i++) {
		cJSON *one = cJSON_CreateObject(), *by = cJSON_AddArrayToObject(one, "by");
		int caught = t->fails && i == 2 ? 11 : 12;
		cJSON_AddItemToArray(list, one);
		cJSON_AddStringToObject(one, "name", with(text, sizeof text, classes[i], t->name));
		cJSON_AddStringToObject(one, "stage", with(text, sizeof text, i < 3 ? "gdn" : "moe", t->name));
		cJSON_AddStringToObject(one, "reason", with(text, sizeof text, "seen in real kernels", t->name));
		cJSON_AddNumberToObject(one, "tried", 12);
		cJSON_AddNumberToObject(one, "caught", caught);
		for (int k = 0; k < 3; k++) {
			cJSON *at = cJSON_CreateObject();
			cJSON_AddItemToArray(by, at);
			cJSON_AddStringToObject(at, "lane", lanes[k]);
			cJSON_AddNumberToObject(at, "tried", 4);
			cJSON_AddNumberToObject(at, "caught", k == 0 && caught == 11 ? 3 : 4);
		}
	}
	list = cJSON_AddArrayToObject(root, "survivors");
	if (t->fails) {
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(list, one);
		cJSON_AddStringToObject(one, "name", with(text, sizeof text, "missing_barrier/3", t->name));
		cJSON_AddStringToObject(one, "class", "missing_barrier");
		cJSON_AddStringToObject(one, "stage", "gdn");
		cJSON_AddStringToObject(one, "lane", "simt");
		cJSON_AddStringToObject(one, "text", with(text, sizeof text, "no schedule tried shows it", t->name));
		cJSON_AddStringToObject(
			one, "replay", with(text, sizeof text, "plumb faults --only missing_barrier/3", t->name));
	}
	return root;
}
