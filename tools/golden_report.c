/* SPDX-License-Identifier: MIT */
#include "tools/golden_report.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json_number.h"
#include "tools/output.h"

static const char *text_of(const struct plumb_h5 *file, const char *name)
{
	const struct plumb_h5_attribute *a = plumb_h5_attribute(file, "", name);
	return a && a->type == PLUMB_H5_TEXT ? a->text : NULL;
}

void golden_report_facts(struct golden_report *r, const struct plumb_h5 *a, const struct plumb_h5 *b)
{
	static const char *const names[] = {
		"producer",
		"checkpoint",
		"config",
		"set",
		"device",
		"mode",
		"ops",
		"profile",
		"kv_format",
		"state_format",
		"ties",
		"date",
		"model_type",
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0] && r->facts < GOLDEN_FACTS; i++) {
		const char *x = text_of(a, names[i]), *y = text_of(b, names[i]);
		if ((x || y) && !(x && y && strcmp(x, y) == 0))
			r->fact[r->facts++] = (struct golden_fact){names[i], x, y};
	}
}

/* ---- text ---- */

static const char *const state_names[] = {"equal", "ok", "FAIL", "SHAPE", "A only", "B only"};

static const char *state_name(const struct golden_report *r, const struct diff_item *it, char text[32])
{
	if (it->state < DIFF_ONLY_A)
		return state_names[it->state];
	snprintf(text, 32, "%s only", it->state == DIFF_ONLY_A ? r->name_a : r->name_b);
	return text;
}

static void shape_text(const struct plumb_h5_entry *e, char text[160])
{
	size_t n = 0;
	text[0] = '\0';
	for (int i = 0; e && i < e->rank; i++)
		n += (size_t)snprintf(text + n, 160 - n, "%s%lld", i ? "x" : "", (long long)e->dim[i]);
	if (e && e->rank == 0)
		snprintf(text, 160, "scalar");
}

/* A long count in few characters. */
static const char *few(int64_t v, char text[32])
{
	if (v < 1000000)
		snprintf(text, 32, "%lld", (long long)v);
	else
		snprintf(text, 32, "%.1e", (double)v);
	return text;
}

static void print_detail(const struct diff_item *it)
{
	char where[160], shape[160];

	if (it->state == DIFF_SHAPE) {
		shape_text(it->b, shape);
		printf("%s here, %s there", it->a->type == it->b->type ? "this shape" : "these values", shape);
	} else if (it->state >= DIFF_ONLY_A || it->state == DIFF_EQUAL) {
		return;
	} else if (it->kind == DIFF_EXPERTS || it->kind == DIFF_MASK) {
		printf("%lld of %lld rows differ%s%s", (long long)(it->rows.rows - it->rows.equal),
			(long long)it->rows.rows, it->rows.first >= 0 ? "; " : " as sets", it->rows.text);
	} else if (it->kind == DIFF_FLOATS) {
		const struct plumb_at *at = &it->cmp.first_differ;
		printf("[%s] %.9g / %.9g", diff_coordinates(it->a, at->index, where), (double)at->candidate, at->reference);
	} else {
		printf("[%s] %lld / %lld", diff_coordinates(it->a, it->ints.index, where), (long long)it->ints.candidate,
			(long long)it->ints.reference);
	}
}

static void print_item(const struct golden_report *r, const struct diff_item *it)
{
	char name[96], shape[160], state[32], ulp[32] = "-", l2[32] = "-", cosine[32] = "-", ratio[32] = "-",
					      equal[32] = "-";
	bool good = it->state <= DIFF_WITHIN, measured = it->state <= DIFF_BEYOND && it->kind == DIFF_FLOATS;

	diff_printable(it->name, name, sizeof name);
	shape_text(it->state == DIFF_ONLY_B ? it->b : it->a, shape);
	if (measured && it->a->count > 0) {
		if (it->cmp.class_mismatch.index >= 0)
			snprintf(ulp, sizeof ulp, "apart");
		else
			few(it->cmp.max_ulp, ulp);
		snprintf(equal, sizeof equal, "%.2f", 100.0 * plumb_compare_equal_fraction(&it->cmp));
	}
	if (measured && it->a->count > 0 && it->kind != DIFF_MASK) {
		snprintf(l2, sizeof l2, "%.1e", plumb_compare_rel_l2(&it->cmp));
		snprintf(cosine, sizeof cosine, "%.7f", plumb_compare_cosine(&it->cmp));
		snprintf(ratio, sizeof ratio, "%.7f", plumb_compare_norm_ratio(&it->cmp));
	}
	printf("%-36s %-12s %s%-6s%s %8s %8s %10s %10s %7s  ", name, shape, good ? output_good() : output_bad(),
		state_name(r, it, state), output_plain(), ulp, l2, cosine, ratio, equal);
	print_detail(it);
	printf("\n");
}

/* Text of a file for the terminal: one line, ASCII, not too long. */
static const char *brief(const char *text, char out[100])
{
	if (!text)
		return "(not said)";
	diff_printable(text, out, 96);
	if (strlen(text) >= 96)
		memcpy(out + 92, "...", sizeof "...");
	return out;
}

static void print_facts(const struct golden_report *r)
{
	char a[100], b[100];
	for (int i = 0; i < r->facts; i++) {
		const struct golden_fact *f = &r->fact[i];
		if (strcmp(f->name, "config") == 0) /* a page each */
			printf("config      differs\n");
		else
			printf("%-11s %s %s; %s %s\n", f->name, r->name_a, brief(f->a, a), r->name_b, brief(f->b, b));
	}
}

void golden_report_print(const struct golden_report *r)
{
	const struct diff *d = r->diff;
	const struct diff_item *first = NULL;
	bool pass = diff_status(d) == PLUMB_OK;
	int64_t shown = 0;

	for (int64_t i = 0; i < d->items && !first; i++)
		if (d->item[i].state > DIFF_EQUAL)
			first = &d->item[i];
	if (!r->quiet) {
		printf("%-11s %s\n%-11s %s\n", r->name_a, r->path_a, r->name_b, r->path_b);
		print_facts(r);
		for (int64_t i = 0; i < d->items; i++) {
			if (!r->verbose && d->item[i].state == DIFF_EQUAL)
				continue;
			if (shown++ == 0)
				printf("\n%s%-36s %-12s %-6s %8s %8s %10s %10s %7s  first differing element: %s / "
				       "%s%s\n",
					output_dim(), "tensor", "shape", "", "max ulp", "rel L2", "cosine", "norm ratio",
					"equal %", r->name_a, r->name_b, output_plain());
			print_item(r, &d->item[i]);
		}
		printf("\n");
	}
	printf("%s%s%s  %lld tensors: %lld equal, %lld within (%s), %lld beyond, %lld of another shape; only in %s "
	       "%lld, only in "
	       "%s %lld; %.2f s\n",
		pass ? output_good() : output_bad(), pass ? "pass" : "FAIL", output_plain(), (long long)d->items,
		(long long)d->count[DIFF_EQUAL], (long long)d->count[DIFF_WITHIN], r->demand,
		(long long)d->count[DIFF_BEYOND], (long long)d->count[DIFF_SHAPE], r->name_a,
		(long long)d->count[DIFF_ONLY_A], r->name_b, (long long)d->count[DIFF_ONLY_B], r->seconds);
	if (first && !pass) {
		const struct diff_item *fault = first;
		char name[96];
		while (fault->state <= DIFF_WITHIN)
			fault++;
		diff_printable(fault->name, name, sizeof name);
		printf("first  %s: %s\n", name, fault->verdict.text);
	}
}

/* ---- JSON ---- */

static void add_text(cJSON *object, const char *name, const char *text)
{
	char *copy = text ? malloc(strlen(text) + 1) : NULL;
	if (copy) {
		diff_printable(text, copy, strlen(text) + 1);
		cJSON_AddStringToObject(object, name, copy);
	} else {
		cJSON_AddNullToObject(object, name);
	}
	free(copy);
}

static void add_first(cJSON *o, const struct diff_item *it)
{
	char where[160];
	const struct plumb_at *at = &it->cmp.first_differ;
	cJSON *e;

	if (it->kind == DIFF_FLOATS ? at->index < 0 : it->ints.index < 0)
		return;
	e = cJSON_AddObjectToObject(o, "first");
	cJSON_AddStringToObject(
		e, "at", diff_coordinates(it->a, it->kind == DIFF_FLOATS ? at->index : it->ints.index, where));
	json_number(e, "a", it->kind == DIFF_FLOATS ? (double)at->candidate : (double)it->ints.candidate);
	json_number(e, "b", it->kind == DIFF_FLOATS ? at->reference : (double)it->ints.reference);
}

static void add_item(cJSON *array, const struct diff_item *it)
{
	static const char *const states[] = {"equal", "within", "beyond", "shape", "only a", "only b"};
	char shape[160];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddItemToArray(array, o);
	add_text(o, "tensor", it->name);
	cJSON_AddStringToObject(o, "state", states[it->state]);
	add_text(o, "verdict", it->verdict.text);
	shape_text(it->state == DIFF_ONLY_B ? it->b : it->a, shape);
	cJSON_AddStringToObject(o, "shape", shape);
	if (it->state > DIFF_BEYOND)
		return;
	json_number(o, "elements", (double)it->a->count);
	if (it->kind == DIFF_FLOATS && it->a->count > 0) {
		const struct plumb_compare *c = &it->cmp;
		json_number(o, "max_ulp", (double)c->max_ulp);
		json_number(o, "max_bf16_ulp", (double)c->max_bf16_ulp);
		json_number(o, "max_error", c->max_abs);
		json_number(o, "relative_l2", plumb_compare_rel_l2(c));
		json_number(o, "cosine", plumb_compare_cosine(c));
		json_number(o, "norm_ratio", plumb_compare_norm_ratio(c));
		json_number(o, "equal_fraction", plumb_compare_equal_fraction(c));
	}
	if (it->kind == DIFF_EXPERTS || it->kind == DIFF_MASK) {
		json_number(o, "rows", (double)it->rows.rows);
		json_number(o, "rows_equal", (double)it->rows.same);
		json_number(o, "rows_in_another_order", (double)(it->rows.equal - it->rows.same));
		json_number(o, "rows_differ", (double)(it->rows.rows - it->rows.equal));
	}
	if (it->kind == DIFF_FLOATS || it->kind == DIFF_INTEGERS)
		add_first(o, it);
}

int golden_report_json(const struct golden_report *r, const char *path, struct plumb_error *err)
{
	const struct diff *d = r->diff;
	cJSON *root = cJSON_CreateObject(), *facts, *tensors;
	char format[48], *json;
	int status;

	snprintf(format, sizeof format, "plumb %s 1", r->command);
	cJSON_AddStringToObject(root, "format", format);
	cJSON_AddBoolToObject(root, "pass", diff_status(d) == PLUMB_OK);
	add_text(root, "a", r->path_a);
	add_text(root, "b", r->path_b);
	add_text(root, "demand", r->demand);
	facts = cJSON_AddObjectToObject(root, "provenance");
	for (int i = 0; i < r->facts; i++) {
		cJSON *o = cJSON_AddObjectToObject(facts, r->fact[i].name);
		add_text(o, "a", r->fact[i].a);
		add_text(o, "b", r->fact[i].b);
	}
	json_number(root, "equal", (double)d->count[DIFF_EQUAL]);
	json_number(root, "within", (double)d->count[DIFF_WITHIN]);
	json_number(root, "beyond", (double)d->count[DIFF_BEYOND]);
	json_number(root, "other_shape", (double)d->count[DIFF_SHAPE]);
	json_number(root, "only_a", (double)d->count[DIFF_ONLY_A]);
	json_number(root, "only_b", (double)d->count[DIFF_ONLY_B]);
	tensors = cJSON_AddArrayToObject(root, "tensors");
	for (int64_t i = 0; i < d->items; i++)
		add_item(tensors, &d->item[i]);
	if (r->shard)
		cJSON_AddItemToObject(root, "shard", r->shard);
	json = cJSON_Print(root);
	cJSON_Delete(root);
	status = json ? output_file(path, json, strlen(json), err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JSON report");
	free(json);
	return status;
}
