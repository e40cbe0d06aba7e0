/* SPDX-License-Identifier: MIT */
/* A check as a tree: what --json writes, and what the page of --html is made from. */
#include <cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check_report.h"
#include "tools/json_number.h"
#include "tools/origin.h"
#include "tools/output.h"

static void add_element(cJSON *object, const char *name, const struct check_item *it, const struct plumb_at *at)
{
	char where[96];
	if (at->index < 0)
		return;
	cJSON *o = cJSON_AddObjectToObject(object, name);
	check_item_coordinates(it, at->index, where, sizeof where);
	json_number(o, "index", (double)at->index);
	cJSON_AddStringToObject(o, "at", where);
	json_number(o, "ours", (double)at->candidate);
	json_number(o, "golden", at->reference);
}

static void add_float(cJSON *o, const struct check_item *it)
{
	const struct plumb_compare *c = &it->cmp;
	json_number(o, "elements", (double)c->count);
	json_number(o, "relative_l2", plumb_compare_rel_l2(c));
	json_number(o, "cosine", plumb_compare_cosine(c));
	json_number(o, "norm_ratio", plumb_compare_norm_ratio(c));
	json_number(o, "max_error", c->max_abs);
	json_number(o, "max_ulp", (double)c->max_ulp);
	json_number(o, "max_bf16_ulp", (double)c->max_bf16_ulp);
	json_number(o, "equal_fraction", plumb_compare_equal_fraction(c));
	json_number(o, "bias", plumb_compare_bias(c));
	cJSON *ulp = cJSON_AddArrayToObject(o, "ulp_histogram");
	int last = PLUMB_ULP_BUCKETS - 1;
	while (last > 0 && c->ulp_bucket[last] == 0)
		last--;
	for (int i = 0; i <= last; i++)
		cJSON_AddItemToArray(ulp, cJSON_CreateNumber((double)c->ulp_bucket[i]));
	add_element(o, "worst", it, check_item_worst(it));
	if (it->boundary.differ) {
		cJSON *b = cJSON_AddObjectToObject(o, "boundary");
		json_number(b, "differ", (double)it->boundary.differ);
		json_number(b, "explained", (double)it->boundary.explained);
		json_number(b, "explained_earlier", (double)it->boundary.earlier);
		json_number(b, "perturbed_passes", it->boundary.passes);
		json_number(b, "slack", it->boundary.slack);
		json_number(b, "worst_share_of_slack", it->boundary.worst);
		json_number(b, "first_unexplained", (double)it->boundary.unexplained.index);
	}
	if (it->spread.passes) {
		cJSON *s = cJSON_AddObjectToObject(o, "spread");
		json_number(s, "relative_l2", it->spread.relative);
		json_number(s, "perturbed_passes", it->spread.passes);
	}
}

static void add_choices(cJSON *o, const struct check_item *it)
{
	const struct check_choices *c = &it->choices;
	json_number(o, "rows", (double)c->rows);
	json_number(o, "equal", (double)c->equal);
	json_number(o, "tie", (double)c->tie);
	json_number(o, "margin", (double)c->margin);
	json_number(o, "wrong", (double)c->wrong);
	json_number(o, "tied_cuts", (double)c->tied_rows);
	json_number(o, "worst_margin", c->worst_margin);
	if (c->first_row >= 0)
		cJSON_AddStringToObject(o, "first", c->first_text);
}

static void add_item(cJSON *array, const struct check_report *r, const struct check_item *it, int order)
{
	cJSON *o = cJSON_CreateObject();
	cJSON_AddItemToArray(array, o);
	cJSON_AddStringToObject(o, "tensor", it->name);
	if (it->layer < r->layers)
		cJSON_AddNumberToObject(o, "layer", it->layer);
	else
		cJSON_AddNullToObject(o, "layer");
	cJSON_AddStringToObject(o, "stage", it->stage);
	if (it->source)
		cJSON_AddStringToObject(o, "op", plumb_ops[it->source->op].name);
	if (it->kernel) {
		cJSON_AddStringToObject(o, "kernel", it->kernel);
		cJSON_AddStringToObject(o, "library", it->library);
	}
	cJSON_AddBoolToObject(o, "pass", it->verdict.pass);
	cJSON_AddStringToObject(o, "verdict", it->verdict.text);
	json_number(o, "share_of_tolerance", it->verdict.share);
	cJSON_AddNumberToObject(o, "order", order);
	cJSON_AddBoolToObject(o, "inputs_recorded", it->fed);
	if (it->kind == CHECK_FLOAT && it->compared)
		add_float(o, it);
	else if (it->kind == CHECK_SELECTION)
		add_choices(o, it);
	else if (it->kind == CHECK_INT || it->kind == CHECK_GREEDY)
		json_number(o, "elements", (double)it->ints.count);
}

static void add_requantised(cJSON *root, const struct plumb_requantised *r)
{
	const struct plumb_requantised_group *group = plumb_requantised_groups(r);
	cJSON *o = cJSON_AddObjectToObject(root, "requantised");
	cJSON_AddStringToObject(o, "profile", plumb_requantised_profile(r));
	cJSON *groups = cJSON_AddArrayToObject(o, "groups");
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		if (!group[g].changed)
			continue;
		cJSON *one = cJSON_CreateObject();
		cJSON_AddItemToArray(groups, one);
		cJSON_AddStringToObject(one, "group", plumb_group_name((enum plumb_group)g));
		cJSON *from = cJSON_AddArrayToObject(one, "from");
		for (int f = 0; f < PLUMB_FORMAT_COUNT; f++)
			if (group[g].from[f])
				cJSON_AddItemToArray(from, cJSON_CreateString(plumb_format_name((enum plumb_format)f)));
		cJSON_AddStringToObject(one, "to", plumb_format_name(group[g].to));
		json_number(one, "matrices", (double)group[g].matrices);
		json_number(one, "changed", (double)group[g].changed);
		json_number(one, "bytes_before", (double)group[g].before);
		json_number(one, "bytes_after", (double)group[g].after);
	}
}

/* How tensors drift along the tokens: layers' outputs and logits, and the first few that failed. */
static void add_drift(cJSON *view, const struct check_report *r, const struct check_item **list, int n)
{
	enum { FAILED_SHOWN = 4 };
	cJSON *drift = cJSON_AddObjectToObject(view, "drift");
	int failed = 0;

	cJSON_AddNumberToObject(drift, "tokens", (double)r->tokens);
	cJSON *tensors = cJSON_AddArrayToObject(drift, "tensors");
	for (int i = 0; i < n; i++) {
		const struct check_item *it = list[i];
		const char *slash = strchr(it->name, '/');
		bool output = slash && strncmp(it->name, "layer", 5) == 0 && strcmp(slash, "/output") == 0;
		bool wanted = output || strcmp(it->name, "logits") == 0 || strcmp(it->name, "decode_logits") == 0;
		if (it->drift.groups == 0 || (!wanted && (it->verdict.pass || failed >= FAILED_SHOWN)))
			continue;
		failed += !wanted;
		cJSON *o = cJSON_CreateObject();
		cJSON_AddItemToArray(tensors, o);
		cJSON_AddStringToObject(o, "tensor", it->name);
		if (it->layer < r->layers)
			cJSON_AddNumberToObject(o, "layer", it->layer);
		else
			cJSON_AddNullToObject(o, "layer");
		cJSON_AddBoolToObject(o, "pass", it->verdict.pass);
		cJSON *values = cJSON_AddArrayToObject(o, "relative_l2");
		for (int g = 0; g < it->drift.groups; g++) {
			double v = check_drift_at(&it->drift, g);
			cJSON_AddItemToArray(values, isfinite(v) ? cJSON_CreateNumber(v) : cJSON_CreateString("inf"));
		}
	}
}

static cJSON *view_tree(const struct check_report *r, const struct check_view *v)
{
	cJSON *o = cJSON_CreateObject();
	int n;
	char rounding[256];
	const struct check_item **list = check_items_in_order(v, r->layers, &n);

	cJSON_AddStringToObject(o, "view", plumb_view_name(v->view));
	cJSON_AddBoolToObject(o, "pass", check_view_status(v) == PLUMB_OK);
	cJSON_AddNumberToObject(o, "tensors", v->compared);
	cJSON_AddNumberToObject(o, "failed", v->failed);
	json_number(o, "values", (double)v->elements);
	json_number(o, "not_recorded", v->missing);
	json_number(o, "not_given", v->hidden);
	json_number(o, "ties_not_recorded", (double)v->untold);
	json_number(o, "tied_cuts", (double)v->tied_rows);
	json_number(o, "rows_explained", (double)v->explained_rows);
	json_number(o, "perturbed_passes", v->passes);
	if (check_view_rounding(v, rounding, sizeof rounding))
		cJSON_AddStringToObject(o, "rounding", rounding);
	cJSON *items = cJSON_AddArrayToObject(o, "items");
	for (int j = 0; list && j < v->items; j++) {
		int order = 0;
		while (order < n && list[order] != &v->item[j])
			order++;
		if (v->item[j].expected)
			add_item(items, r, &v->item[j], order);
	}
	if (list)
		add_drift(o, r, list, n);
	if (v->bounds)
		check_bounds_json(v->bounds, o);
	free(list);
	return o;
}

cJSON *check_report_tree(const struct check_report *r)
{
	cJSON *root = cJSON_CreateObject();
	char text[33];

	cJSON_AddStringToObject(root, "format", "plumb check 1");
	origin_add(root, r->origin);
	cJSON_AddBoolToObject(root, "pass", check_report_status(r) == PLUMB_OK);
	cJSON_AddStringToObject(root, "golden", r->golden);
	if (r->producer)
		cJSON_AddStringToObject(root, "producer", r->producer);
	if (r->checkpoint)
		cJSON_AddStringToObject(root, "checkpoint", r->checkpoint);
	if (r->scanned >= 0 && !r->failure)
		json_number(root, "weights_scanned", (double)r->scanned);
	if (r->requantised)
		add_requantised(root, r->requantised);
	if (r->failure) {
		cJSON_AddStringToObject(root, "failure", r->failure);
	} else {
		cJSON_AddNumberToObject(root, "layers", r->layers);
		cJSON_AddNumberToObject(root, "tokens", (double)r->tokens);
		cJSON_AddStringToObject(root, "set", r->set);
		cJSON_AddStringToObject(root, "ties", r->ties == PLUMB_TIES_TORCH ? "torch" : "lower");
		cJSON_AddStringToObject(root, "digest", check_report_digest(r, text));
	}
	cJSON *views = cJSON_AddArrayToObject(root, "views");
	for (int i = 0; i < r->views; i++)
		cJSON_AddItemToArray(views, view_tree(r, &r->view[i]));
	return root;
}

int check_report_json(const struct check_report *r, const char *path, struct plumb_error *err)
{
	cJSON *root = check_report_tree(r);
	int told = check_shard_json(r->shard, root, check_report_status(r), r->failure, err);
	char *json = cJSON_Print(root);
	cJSON_Delete(root);
	int status = told != PLUMB_OK ? told
	             : json           ? output_file(path, json, strlen(json), err)
	                              : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JSON report");
	free(json);
	return status;
}
