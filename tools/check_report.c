/* SPDX-License-Identifier: MIT */
#include "tools/check_report.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/output.h"

int check_report_status(const struct check_report *r)
{
	/* a shard may have nothing to do; plumb merge sees that all of them together have */
	int status = r->views >= 1 || (!r->failure && r->shard->shard.of > 1) ? PLUMB_OK : PLUMB_MISMATCH;
	for (int i = 0; i < r->views; i++)
		if (check_view_status(&r->view[i]) != PLUMB_OK)
			status = PLUMB_MISMATCH;
	return status;
}

static void layer_name(const struct check_report *r, int layer, char *text, size_t size)
{
	if (layer == r->layers)
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%d", layer);
}

void check_item_coordinates(const struct check_item *it, int64_t index, char *text, size_t size)
{
	int64_t at[PLUMB_H5_RANK], rest = index;
	size_t n = 0;

	for (int i = it->rank - 1; i >= 0; i--) {
		at[i] = it->dim[i] ? rest % it->dim[i] : 0;
		rest = it->dim[i] ? rest / it->dim[i] : 0;
	}
	text[0] = '\0';
	for (int i = 0; i < it->rank && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "", (long long)at[i]);
}

const struct plumb_at *check_item_worst(const struct check_item *it)
{
	return it->cmp.class_mismatch.index >= 0 ? &it->cmp.class_mismatch : &it->cmp.max_abs_at;
}

static void print_worst(const struct check_item *it)
{
	const struct plumb_at *at = check_item_worst(it);
	char where[96];

	if (it->kind == CHECK_SELECTION) {
		const struct check_choices *c = &it->choices;
		printf("%lld rows: %lld equal", (long long)c->rows, (long long)c->equal);
		if (c->tie || c->margin)
			printf(", %lld by equal scores, %lld by margin (worst %.2g of %.2g allowed)", (long long)c->tie,
				(long long)c->margin, c->worst_margin, c->worst_bound);
		if (c->tied_rows)
			printf("; %lld with equal scores at the cut", (long long)c->tied_rows);
	} else if (it->kind == CHECK_FLOAT && it->compared && at->index >= 0 &&
		   it->cmp.differ + it->cmp.nan_one + it->cmp.inf_one + it->cmp.inf_sign > 0) {
		check_item_coordinates(it, at->index, where, sizeof where);
		printf("[%s] %.9g / %.9g", where, (double)at->candidate, at->reference);
	} else if (it->compared && it->verdict.pass) {
		printf("all equal");
	}
}

/* Place in a forward pass: embedding, layers in order, what comes after them, what has no op. */
static long place(const struct check_item *it, int layers)
{
	long stage = it->source ? it->source - plumb_golden_sources : plumb_golden_source_count;
	bool next = it->source && it->source->scope == PLUMB_GOLDEN_NEXT; /* written by the layer before */
	long layer = it->layer < layers ? it->layer + 1 - next : strcmp(it->stage, "embed") == 0 ? 0 : layers + 1;
	return layer * (plumb_golden_source_count + 1) + stage;
}

static int layers_of_order; /* qsort has no argument for it */
static int by_place(const void *x, const void *y)
{
	const struct check_item *a = *(const struct check_item *const *)x, *b = *(const struct check_item *const *)y;
	long p = place(a, layers_of_order), q = place(b, layers_of_order);
	return p != q ? (p > q) - (p < q) : strcmp(a->name, b->name);
}

const struct check_item **check_items_in_order(const struct check_view *v, int layers, int *count)
{
	const struct check_item **list = malloc(((size_t)v->items + 1) * sizeof *list);
	*count = 0;
	for (int i = 0; list && i < v->items; i++)
		if (v->item[i].expected)
			list[(*count)++] = &v->item[i];
	layers_of_order = layers;
	if (list)
		qsort(list, (size_t)*count, sizeof *list, by_place);
	return list;
}

/* Which of a group to show: of failures the first in the pass, else the largest error. */
static bool worse(const struct check_item *a, const struct check_item *b, int layers)
{
	if (a->verdict.pass != b->verdict.pass)
		return !a->verdict.pass;
	if (!a->verdict.pass)
		return place(a, layers) < place(b, layers);
	if ((a->kind == CHECK_FLOAT) != (b->kind == CHECK_FLOAT))
		return a->kind == CHECK_FLOAT;
	return plumb_compare_rel_l2(&a->cmp) > plumb_compare_rel_l2(&b->cmp);
}

static const char *mark(bool pass)
{
	return pass ? "ok" : "FAIL";
}

static void print_row(const struct check_report *r, const struct check_item *it, int tensors, int failed, bool grouped)
{
	const char *slash = strncmp(it->name, "layer", 5) == 0 ? strchr(it->name, '/') : NULL;
	const char *name = slash ? slash + 1 : it->name;
	char layer[16], l2[32] = "-", bf16[32] = "-", ulp[32] = "-", equal[32] = "-";

	layer_name(r, it->layer, layer, sizeof layer);
	if (it->kind == CHECK_FLOAT && it->compared) {
		snprintf(l2, sizeof l2, "%.1e", plumb_compare_rel_l2(&it->cmp));
		snprintf(equal, sizeof equal, "%.2f", 100.0 * plumb_compare_equal_fraction(&it->cmp));
		if (it->cmp.max_ulp < 1000000)
			snprintf(ulp, sizeof ulp, "%lld", (long long)it->cmp.max_ulp);
		else
			snprintf(ulp, sizeof ulp, "%.1e", (double)it->cmp.max_ulp);
		if (it->cmp.max_bf16_ulp < 1000000)
			snprintf(bf16, sizeof bf16, "%lld", (long long)it->cmp.max_bf16_ulp);
		else
			snprintf(bf16, sizeof bf16, "%.1e", (double)it->cmp.max_bf16_ulp);
	}
	printf("%5s  ", layer);
	if (grouped)
		printf("%-16s %7d  ", it->stage, tensors);
	printf("%-26s %8s %8s %8s %7s  %s%-4s%s  ", name, l2, ulp, bf16, equal, failed ? output_bad() : output_good(),
		mark(failed == 0), output_plain());
	print_worst(it);
	printf("\n");
}

static void print_head(bool grouped)
{
	printf("%s%5s  ", output_dim(), "layer");
	if (grouped)
		printf("%-16s %7s  ", "stage", "tensors");
	printf("%-26s %8s %8s %8s %7s  %-4s  %s%s\n", grouped ? "worst tensor" : "tensor", "rel L2", "ulp", "bf16 ulp",
		"equal %", "", "worst element: ours / golden", output_plain());
}

/* The order of stages within a layer. */
static const char *const stages[] = {
	"embed",
	"ple",
	"hyper_connection",
	"gdn",
	"attention",
	"qsa",
	"moe",
	"lm_head",
	"state",
	"unknown",
};

/* embed comes first though it lies outside the layers. */
static void print_groups(const struct check_report *r, const struct check_view *v)
{
	for (int step = -1; step <= r->layers; step++)
		for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++) {
			int layer = step < 0 ? r->layers : step, tensors = 0, failed = 0;
			const struct check_item *worst = NULL;
			if (layer == r->layers && (s == 0) != (step < 0))
				continue;
			for (int i = 0; i < v->items; i++) {
				const struct check_item *it = &v->item[i];
				if (!it->expected || it->layer != layer || strcmp(it->stage, stages[s]) != 0)
					continue;
				tensors++;
				failed += !it->verdict.pass;
				if (!worst || worse(it, worst, r->layers))
					worst = it;
			}
			if (worst)
				print_row(r, worst, tensors, failed, true);
		}
}

/* " (attn_gate of ./mine.so)", or nothing. */
static const char *kernel_of(const struct check_item *it, char *text, size_t size)
{
	text[0] = '\0';
	if (it->kernel)
		snprintf(text, size, " (%s of %s)", it->kernel, it->library);
	return text;
}

enum { SHOWN_FAILURES = 12 };

/* The first failures, in the order of a pass; what follows the first is mostly its doing. */
static void print_failures(const struct check_report *r, const struct check_view *v, int most)
{
	char kernel[700];
	int n, failed = 0;
	const struct check_item **list = check_items_in_order(v, r->layers, &n);

	for (int i = 0; i < n; i++)
		if (!list[i]->verdict.pass && failed++ < most)
			printf("  %s%s%s%s: %s\n", output_bad(), list[i]->name, output_plain(),
				kernel_of(list[i], kernel, sizeof kernel), list[i]->verdict.text);
	if (failed > most && most > 1)
		printf("  %d more tensors fail (--verbose shows them)\n", failed - most);
	free(list);
}

static void print_tensors(const struct check_report *r, const struct check_view *v)
{
	int n;
	const struct check_item **list = check_items_in_order(v, r->layers, &n);
	for (int i = 0; i < n; i++) {
		print_row(r, list[i], 1, !list[i]->verdict.pass, false);
		if (r->verbose > 1 && list[i]->verdict.text[0])
			printf("       %s%s%s\n", output_dim(), list[i]->verdict.text, output_plain());
	}
	free(list);
}

static void print_boundary(const struct check_view *v)
{
	char text[256];

	for (int i = 0; i < v->items; i++) {
		const struct check_item *it = &v->item[i];
		if (it->spread.passes)
			printf("  %s: %d perturbed pass%s of the reference lie%s up to %.2g of relative L2 from it\n",
				it->name, it->spread.passes, it->spread.passes == 1 ? "" : "es",
				it->spread.passes == 1 ? "s" : "", it->spread.relative);
	}
	if (check_view_rounding(v, text, sizeof text))
		printf("  %s\n", text);
}

/* Local view: what is not held to the rules of one op. */
static void print_unfed(const struct check_view *v)
{
	char names[120] = "";
	size_t used = 0;
	int n = 0;

	for (int i = 0; i < v->items; i++) {
		if (!v->item[i].expected || v->item[i].fed)
			continue;
		n++;
		if (used < sizeof names)
			used += (size_t)snprintf(
				names + used, sizeof names - used, "%s%s", used ? ", " : "", v->item[i].name);
	}
	if (n)
		printf("  %d tensor%s come%s from inputs that are not recorded, by several ops: held to the propagated "
		       "tolerances (%s%s)\n",
			n, n == 1 ? "" : "s", n == 1 ? "s" : "", names, used < sizeof names ? "" : "...");
	if (v->untold)
		printf("  %lld choice%s not recorded run%s through equal scores (first: %s): what follows may differ; "
		       "--ties torch|lower\n",
			(long long)v->untold, v->untold == 1 ? "" : "s", v->untold == 1 ? "s" : "", v->untold_first);
}

static void print_view(const struct check_report *r, const struct check_view *v)
{
	printf("\n%s view: %s\n", plumb_view_name(v->view),
		v->view == PLUMB_VIEW_LOCAL ? "each op is fed the recorded inputs" : "from the tokens on");
	print_head(!r->verbose);
	if (r->verbose) {
		print_tensors(r, v);
	} else {
		print_groups(r, v);
	}
	if (v->hidden)
		printf("  inside fused entries or traces not written, so not compared: %d tensors\n", v->hidden);
	if (v->missing)
		printf("  not recorded, so not compared: %d tensors of the format (%s%s)\n", v->missing, v->missing_names,
			strlen(v->missing_names) + 1 < sizeof v->missing_names ? "" : "...");
	print_unfed(v);
	if (v->compared == 0)
		printf("  FAIL: nothing to compare in this view and these layers\n");
	print_boundary(v);
	print_failures(r, v, r->verbose ? INT_MAX : SHOWN_FAILURES);
	if (v->bounds)
		check_bounds_print(v->bounds);
}

const char *check_report_digest(const struct check_report *r, char text[33])
{
	struct plumb_digest all = {{0}, 0};
	for (int i = 0; i < r->views; i++) {
		all.sum[0] += r->view[i].digest.sum[0];
		all.sum[1] += r->view[i].digest.sum[1];
	}
	return plumb_digest_show(&all, text);
}

void check_report_print(const struct check_report *r)
{
	bool pass = check_report_status(r) == PLUMB_OK;
	char text[33], line[1024];

	if (!r->quiet) {
		printf("golden      %s (%lld tokens%s%s)\n", r->golden, (long long)r->tokens, r->producer ? "; " : "",
			r->producer ? r->producer : "");
		printf("checkpoint  %s (%d layers)\n", r->checkpoint, r->layers);
		if (r->scanned >= 0)
			printf("scanned     %lld weights, all are finite numbers\n", (long long)r->scanned);
		if (r->requantised)
			printf("requantised %s\n", plumb_requantised_show(r->requantised, line, sizeof line));
		printf("runs        %s, ties %s\n", r->set, r->ties == PLUMB_TIES_TORCH ? "torch" : "lower");
		if (r->shard->shard.of > 1)
			printf("shard       %lld of %lld\n", (long long)r->shard->shard.index,
				(long long)r->shard->shard.of);
		if (r->other_formats)
			printf("note        the golden tensors were made with caches and state in the policy's formats: "
			       "what follows from "
			       "others differs. --bounds judges each op by its own inputs\n");
		for (int i = 0; i < r->views; i++)
			print_view(r, &r->view[i]);
		printf("\n");
		if (!pass && r->origin && r->origin->bisect)
			printf("next        %s --case wrong.h5\n\n", r->origin->bisect);
	}
	if (r->views == 0)
		printf("%spass%s  nothing of this golden is in shard %lld of %lld\n", output_good(), output_plain(),
			(long long)r->shard->shard.index, (long long)r->shard->shard.of);
	for (int i = 0; i < r->views; i++) {
		const struct check_view *v = &r->view[i];
		bool good = check_view_status(v) == PLUMB_OK;
		printf("%s%s%s  %-10s  %d tensors (%d float), %lld values; %d failed; top-k rows: %lld with equal scores "
		       "at the cut, %lld explained; %.2f s\n",
			good ? output_good() : output_bad(), good ? "pass" : "FAIL", output_plain(),
			plumb_view_name(v->view), v->compared, v->floats, (long long)v->elements, v->failed,
			(long long)v->tied_rows, (long long)v->explained_rows, v->seconds);
		if (r->quiet)
			print_failures(r, v, 1); /* all that a CI job's log has of it */
		if (v->bounds)
			check_bounds_print_line(v->bounds);
	}
	if (r->digest)
		printf("digest  %s\n", check_report_digest(r, text));
	if (r->views > 1)
		printf("%s%s%s\n", pass ? output_good() : output_bad(), pass ? "pass" : "FAIL", output_plain());
}

/* ---- JUnit ---- */

static void xml(FILE *f, const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		switch (*p) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			fputc(*p < 0x20 || *p >= 0x7f ? '?' : *p,
				f); /* names are ASCII; what is not is no XML we vouch for */
		}
}

int check_report_junit(const struct check_report *r, const char *path, struct plumb_error *err)
{
	char *text = NULL, kernel[700], rounding[256];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int status;

	if (!f)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JUnit report");
	fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plumb check\">\n");
	if (r->failure) {
		fprintf(f, " <testsuite name=\"run\" tests=\"1\" failures=\"1\">\n"
			   "  <testcase classname=\"plumb.run\" name=\"kernels\"><failure message=\"");
		xml(f, r->failure);
		fprintf(f, "\"/></testcase>\n </testsuite>\n");
	}
	for (int i = 0; i < r->views; i++) {
		const struct check_view *v = &r->view[i];
		int expected = 0;
		for (int j = 0; j < v->items; j++)
			expected += v->item[j].expected;
		const int nothing =
			v->compared == 0; /* a failure: readers of JUnit count, and take none of none for good */
		fprintf(f, " <testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" time=\"%.3f\">\n",
			plumb_view_name(v->view), expected + nothing, v->failed + nothing, v->seconds);
		if (check_view_rounding(v, rounding, sizeof rounding)) {
			fprintf(f, "  <properties><property name=\"rounding\" value=\"");
			xml(f, rounding);
			fprintf(f, "\"/></properties>\n");
		}
		if (nothing) {
			fprintf(f, "  <testcase classname=\"plumb.%s\" name=\"compared\">", plumb_view_name(v->view));
			fprintf(f, "<failure message=\"nothing to compare\"/></testcase>\n");
		}
		for (int j = 0; j < v->items; j++) {
			const struct check_item *it = &v->item[j];
			if (!it->expected)
				continue;
			fprintf(f, "  <testcase classname=\"plumb.%s.%s\" name=\"", plumb_view_name(v->view), it->stage);
			xml(f, it->name);
			fprintf(f, "\"");
			if (it->verdict.pass) {
				fprintf(f, "/>\n");
				continue;
			}
			fprintf(f, "><failure message=\"");
			xml(f, it->verdict.text);
			xml(f, kernel_of(it, kernel, sizeof kernel));
			fprintf(f, "\"/></testcase>\n");
		}
		fprintf(f, " </testsuite>\n");
		if (v->bounds)
			check_bounds_junit(v->bounds, plumb_view_name(v->view), f);
	}
	fprintf(f, "</testsuites>\n");
	bool good = !ferror(f);
	good = fclose(f) == 0 && good;
	status = good ? output_file(path, text, size, err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JUnit report");
	free(text);
	return status;
}
