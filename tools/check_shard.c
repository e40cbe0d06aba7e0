/* SPDX-License-Identifier: MIT */
#include "tools/check_shard.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check_bounds.h"
#include "tools/golden_origin.h"
#include "tools/unit_report.h"

int check_shard_make(
	struct check_shard *s, const bool wanted[2], const struct check_options *options, struct plumb_error *err)
{
	const int L = options->model->cfg.layers, units = L + 2;
	double *weight = calloc((size_t)units, sizeof *weight);
	bool *own = calloc((size_t)units, sizeof *own);
	int status = PLUMB_OK;

	if (!weight || !own)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %d units", units);
	for (int l = 0; l <= L && status == PLUMB_OK; l++) /* a layer, or what lies outside them */
		weight[l] = wanted[PLUMB_VIEW_LOCAL] && l >= options->first_layer && l <= options->last_layer;
	/* the propagated view runs the prompt three times: at once, with cached decode, and before the greedy tokens */
	if (status == PLUMB_OK)
		weight[L + 1] = wanted[PLUMB_VIEW_PROPAGATED] ? 3.0 * (L + 1) : 0.0;
	if (status == PLUMB_OK)
		status = shard_share(&s->shard, weight, units, own, err);
	for (int l = 0; l <= L && status == PLUMB_OK; l++) {
		own[l] = own[l] && weight[l] > 0.0;
		s->view[PLUMB_VIEW_LOCAL] = s->view[PLUMB_VIEW_LOCAL] || own[l];
	}
	if (status == PLUMB_OK)
		s->view[PLUMB_VIEW_PROPAGATED] = wanted[PLUMB_VIEW_PROPAGATED] && own[L + 1];
	free(weight);
	if (status == PLUMB_OK && s->shard.of > 1) {
		s->layer = own;
		return PLUMB_OK;
	}
	if (status == PLUMB_OK)
		memcpy(s->view, wanted, sizeof s->view);
	free(own);
	return status;
}

void check_shard_free(struct check_shard *s)
{
	for (int v = 0; v < 2; v++)
		check_view_free(&s->rest[v]);
	free(s->layer);
	s->layer = NULL;
}

/* Digests of a user's shared objects, by the order of their options. */
static void add_libraries(cJSON *o, const struct set_options *set)
{
	for (int i = 0; i < set->op.count; i++) {
		const char *equals = strchr(set->op.item[i], '=');
		char name[320];
		if (!equals || strcmp(equals + 1, "ref") == 0 || strcmp(equals + 1, "opt") == 0)
			continue;
		snprintf(name, sizeof name, "library of --op %.*s", (int)(equals - set->op.item[i]), set->op.item[i]);
		shard_json_file(o, name, equals + 1);
	}
}

/* --op options without the paths, which may differ from machine to machine. */
static void add_ops(cJSON *o, const struct set_options *set)
{
	char text[900] = "";
	size_t n = 0;

	for (int i = 0; i < set->op.count && n < sizeof text; i++) {
		const char *item = set->op.item[i], *equals = strchr(item, '=');
		bool file = equals && strcmp(equals + 1, "ref") != 0 && strcmp(equals + 1, "opt") != 0;
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s%s", n ? "," : "",
			file ? (int)(equals + 1 - item) : (int)strlen(item), item, file ? "file" : "");
	}
	shard_json_input(o, "ops", text);
}

static int add_inputs(const struct check_shard *s, cJSON *o, struct plumb_error *err)
{
	static const char *const names[] = {
		"producer", "checkpoint", "set", "device", "mode", "profile", "kv_format", "state_format", "ties"};
	struct golden_origin origin;
	int status = golden_origin_make(s->set, s->session, s->ties, NULL, &origin, err);

	shard_json_file(o, "golden", s->golden);
	for (size_t i = 0; i < sizeof names / sizeof names[0] && status == PLUMB_OK; i++) {
		const char *text = golden_origin_text(&origin, names[i]);
		shard_json_input(o, names[i], text ? text : "");
	}
	golden_origin_free(&origin);
	add_ops(o, s->set);
	add_libraries(o, s->set);
	shard_json_input(o, "policy", plumb_policy_name(s->policy));
	shard_json_input(o, "views", s->views == 2 ? "both" : s->views ? plumb_view_name(s->all[0]->view) : "");
	shard_json_input(o, "layers", s->layers ? s->layers : "all");
	shard_json_input(o, "guard", s->set->guard ? "yes" : "no");
	shard_json_input(o, "bounds", s->bounds ? "yes" : "no");
	if (s->tolerances)
		shard_json_file(o, "tolerances", s->tolerances);
	else
		shard_json_input(o, "tolerances", "built-in");
	return status;
}

static int64_t count_units(const struct check_shard *s)
{
	int64_t n = 0;
	for (int v = 0; v < s->views; v++)
		for (int i = 0; i < s->all[v]->items; i++)
			n += s->all[v]->item[i].listed;
	return n;
}

static void add_units(const struct check_shard *s, cJSON *o)
{
	int64_t position = 0;
	char name[160];

	for (int v = 0; v < s->views; v++)
		for (int i = 0; i < s->all[v]->items; i++) {
			const struct check_item *it = &s->all[v]->item[i];
			if (!it->listed)
				continue;
			snprintf(name, sizeof name, "%s/%s", plumb_view_name(s->all[v]->view), it->name);
			if (it->expected)
				shard_json_unit(o, position, name, it->verdict.pass ? SHARD_PASS : SHARD_FAIL,
					it->verdict.pass ? NULL : it->verdict.text);
			else if (it->hidden)
				shard_json_unit(
					o, position, name, SHARD_SKIP, "inside a fused entry, or a trace not written");
			position++;
		}
}

int check_shard_json(
	const struct check_shard *s, struct cJSON *root, int status, const char *failure, struct plumb_error *err)
{
	struct plumb_digest digest = {{0}, 0};
	cJSON *o = shard_json(root, "check", &s->shard, failure ? 0 : count_units(s));
	int made = PLUMB_OK;

	shard_json_status(o, status);
	if (failure) {
		shard_json_failure(o, failure);
		return PLUMB_OK;
	}
	made = add_inputs(s, o, err);
	add_units(s, o);
	for (int v = 0; v < s->views; v++) {
		const struct check_view *view = s->all[v];
		digest.sum[0] += view->digest.sum[0];
		digest.sum[1] += view->digest.sum[1];
		if (view->bounds) {
			char name[48];
			bool pass = check_bounds_status(view->bounds) == PLUMB_OK;
			snprintf(name, sizeof name, "%s/bounds", plumb_view_name(view->view));
			shard_json_also(o, name, pass ? SHARD_PASS : SHARD_FAIL,
				pass ? NULL : "an op is beyond its error bound; the report of this shard says which");
		}
	}
	shard_json_digest(o, &digest);
	return made;
}

int check_shard_tap(const struct check_shard *s, const char *failure, const char *path, struct plumb_error *err)
{
	cJSON *root = cJSON_CreateObject();
	int status = check_shard_json(s, root, failure ? PLUMB_MISMATCH : PLUMB_OK, failure, err);

	if (status == PLUMB_OK)
		status = unit_report_tap(cJSON_GetObjectItemCaseSensitive(root, "shard"), path, err);
	cJSON_Delete(root);
	return status;
}
