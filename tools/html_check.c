/* SPDX-License-Identifier: MIT */
/* The page of plumb check. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/compare.h"
#include "core/op.h"
#include "tools/html_parts.h"

enum { WORST_SHOWN = 12, FAILED_SHOWN = 16 };

/* ---- what is worst ---- */

/* An item, or a cell of the bounds, to tell first. */
struct culprit {
	const cJSON *view, *item; /* item: of a tensor; or */
	const cJSON *op, *cell;   /* of the bounds; cell NULL: the op fails as a whole (rms, bias) */
	bool local;
};

static bool is_local(const cJSON *view)
{
	return strcmp(html_string(view, "view", ""), "local") == 0;
}

static double layer_of(const cJSON *item)
{
	double layer = html_number(item, "layer");
	return isnan(layer) ? 1e9
	                    : layer; /* outside the layers: what is wrong there comes after them, or is named by itself */
}

static const cJSON *first_failed(const cJSON *view)
{
	const cJSON *item, *first = NULL;
	cJSON_ArrayForEach (item, html_get(view, "items"))
		if (!html_true(item, "pass") && (!first || html_number(item, "order") < html_number(first, "order")))
			first = item;
	return first;
}

static bool first_over_bound(const cJSON *view, struct culprit *out)
{
	const cJSON *op, *cell, *bounds = html_get(view, "bounds");

	out->op = out->cell = NULL;
	cJSON_ArrayForEach (op, html_get(bounds, "ops")) {
		if (html_true(op, "pass"))
			continue;
		if (!out->op)
			out->op = op;
		cJSON_ArrayForEach (cell, html_get(op, "layers")) {
			if (html_number(cell, "max_ratio") <= 1.0 || (out->cell && layer_of(out->cell) <= layer_of(cell)))
				continue;
			out->op = op;
			out->cell = cell;
		}
	}
	out->view = view;
	out->item = NULL;
	out->local = is_local(view);
	return out->op != NULL;
}

/* What went wrong first, where it says most: an element over its bound, then a tensor of the local view, then any. */
static bool find_culprit(const cJSON *report, struct culprit *out)
{
	const cJSON *view;

	for (int local = 1; local >= 0; local--)
		cJSON_ArrayForEach (view, html_get(report, "views")) {
			if (is_local(view) != (local == 1))
				continue;
			if (first_over_bound(view, out))
				return true;
			out->item = first_failed(view);
			if (out->item)
				return true;
		}
	return false;
}

static const char *tensor_of(const cJSON *item)
{
	const char *name = html_string(item, "tensor", "?"), *slash = strchr(name, '/');
	return strncmp(name, "layer", 5) == 0 && slash ? slash + 1 : name;
}

/* "layer 17, " or nothing. */
static const char *layer_words(const cJSON *item, char text[32])
{
	double layer = html_number(item, "layer");
	text[0] = '\0';
	if (isfinite(layer) && layer >= 0.0 && layer < 1e6)
		snprintf(text, 32, "layer %.0f, ", layer);
	return text;
}

static const char *without_verdict(const char *text)
{
	return strncmp(text, "FAIL: ", 6) == 0 || strncmp(text, "pass: ", 6) == 0 ? text + 6 : text;
}

static void kernel_words(const cJSON *item, char *text, size_t size)
{
	const char *library = html_string(item, "library", "");
	text[0] = '\0';
	if (*library)
		snprintf(text, size, "Kernel of %.200s: ", library);
}

/* "1 of 91 tensors fails fed the recorded inputs, 56 of 93 from the tokens on." */
static void say_failed(const cJSON *report, char *text, size_t size)
{
	const cJSON *view;
	size_t n = 0;

	cJSON_ArrayForEach (view, html_get(report, "views")) {
		if (n < size)
			n += (size_t)snprintf(text + n, size - n, "%s%s of %s tensors %s %s", n ? "; " : "",
				html_count(html_number(view, "failed")),
				html_count(cJSON_GetArraySize(html_get(view, "items"))),
				html_number(view, "failed") == 1.0 ? "fails" : "fail",
				is_local(view) ? "when each op is fed the recorded inputs" : "from the tokens on");
	}
}

/* The op to blame: a user's kernel whose work is in the tensor, also where another op has only passed it on. */
static const char *blamed(const cJSON *item)
{
	return html_string(item, "kernel", html_string(item, "op", ""));
}

static void say_item(const cJSON *report, const cJSON *item, struct html_head *head)
{
	char layer[32], kernel[256], failed[200];
	const char *op = blamed(item), *tensor = tensor_of(item);
	bool passed_on = *op && strcmp(op, html_string(item, "op", op)) != 0;
	double share = html_number(item, "share_of_tolerance");
	const cJSON *worst = html_get(item, "worst");

	layer_words(item, layer);
	kernel_words(item, kernel, sizeof kernel);
	say_failed(report, failed, sizeof failed);
	snprintf(head->verdict, sizeof head->verdict, "Does not match: %s%.60s%s%.80s", layer, *op ? op : tensor,
		passed_on ? ", which shows in "
		: *op     ? ", "
			  : "",
		*op ? tensor : "");
	if (isfinite(share) && share > 1.0) {
		size_t n = strlen(head->verdict);
		snprintf(head->verdict + n, sizeof head->verdict - n, "%s %s times its tolerance", passed_on ? ":" : " is",
			html_times(share));
	}
	if (worst)
		snprintf(head->detail, sizeof head->detail, "%selement [%.40s] is %s, recorded %s. %.200s.", kernel,
			html_string(worst, "at", "?"), html_exactly(html_number(worst, "ours")),
			html_exactly(html_number(worst, "golden")), failed);
	else
		snprintf(head->detail, sizeof head->detail, "%s%.250s. %.200s.", kernel,
			without_verdict(html_string(item, "verdict", "")), failed);
	if (head->detail[0] >= 'a' && head->detail[0] <= 'z')
		head->detail[0] = (char)(head->detail[0] - 'a' + 'A');
}

static void say_bound(const struct culprit *c, struct html_head *head)
{
	char layer[32];
	const char *op = html_string(c->op, "op", "?");

	if (!c->cell) {
		snprintf(head->verdict, sizeof head->verdict, "Does not match: %.60s, all calls taken together", op);
		snprintf(head->detail, sizeof head->detail, "No single element is over its error bound, but %.300s.",
			without_verdict(html_string(c->op, "verdict", "the gates do not hold")));
		return;
	}
	snprintf(head->verdict, sizeof head->verdict, "Does not match: %s%.60s, element %.60s is %s times its bound",
		layer_words(c->cell, layer), op, html_string(c->cell, "at", "?"),
		html_times(html_number(c->cell, "max_ratio")));
	snprintf(head->detail, sizeof head->detail,
		"It is %s; exact arithmetic on the same inputs gives %s, and the declared order allows \xC2\xB1 %s.",
		html_exactly(html_number(c->cell, "ours")), html_exactly(html_number(c->cell, "exact")),
		html_short(html_number(c->cell, "bound")));
}

/* ---- head ---- */

static void say_pass(const cJSON *report, struct html_head *head)
{
	const cJSON *view, *item, *op, *worst = NULL;
	double tensors = 0.0, ratio = -1.0, values = 0.0;
	char layer[32];

	cJSON_ArrayForEach (view, html_get(report, "views")) {
		tensors += html_number(view, "tensors");
		cJSON_ArrayForEach (item, html_get(view, "items"))
			if (!worst || html_number(item, "share_of_tolerance") > html_number(worst, "share_of_tolerance"))
				worst = item;
		cJSON_ArrayForEach (op, html_get(html_get(view, "bounds"), "ops")) {
			values += html_number(op, "values");
			ratio = html_number(op, "max_ratio") > ratio ? html_number(op, "max_ratio") : ratio;
		}
	}
	snprintf(head->verdict, sizeof head->verdict, "Matches: %s comparisons in %s layers, all within tolerance",
		html_count(tensors), html_count(html_number(report, "layers")));
	if (worst)
		snprintf(head->detail, sizeof head->detail,
			"Nearest to its tolerance: %s%.80s, at %s %% of what is allowed.", layer_words(worst, layer),
			tensor_of(worst), html_short(100.0 * html_number(worst, "share_of_tolerance")));
	size_t n = strlen(head->detail);
	if (ratio >= 0.0)
		snprintf(head->detail + n, sizeof head->detail - n, " Largest error of %s values: %s of its bound.",
			html_count(values), html_places(ratio, 3));
}

void html_check_head(const cJSON *report, struct html_head *head)
{
	const char *failure = html_string(report, "failure", "");
	struct culprit culprit = {0};

	head->command = "plumb check";
	head->mood = html_true(report, "pass") && !*failure ? HTML_PASS : HTML_FAIL;
	if (*failure) {
		snprintf(head->verdict, sizeof head->verdict, "Did not finish: a kernel failed");
		snprintf(head->detail, sizeof head->detail, "%.500s", failure);
	} else if (head->mood == HTML_PASS) {
		say_pass(report, head);
	} else if (!find_culprit(report, &culprit)) {
		snprintf(head->verdict, sizeof head->verdict, "Does not match: nothing was compared");
	} else if (culprit.item) {
		say_item(report, culprit.item, head);
	} else {
		say_bound(&culprit, head);
	}
}

/* ---- body ---- */

static void views_table(FILE *f, const cJSON *report)
{
	const cJSON *view, *op, *bounds = html_get(cJSON_GetArrayItem(html_get(report, "views"), 0), "bounds");

	html_table_begin(f, "What was compared",
		bounds ? "view|result|#tensors|#failed|#values|#equal scores at the cut|#rows explained|#error / bound"
		       : "view|result|#tensors|#failed|#values|#equal scores at the cut|#rows explained");
	cJSON_ArrayForEach (view, html_get(report, "views")) {
		double ratio = (double)NAN;
		bool pass = html_true(view, "pass");
		cJSON_ArrayForEach (op, html_get(html_get(view, "bounds"), "ops"))
			ratio = html_number(op, "max_ratio") <= ratio ? ratio : html_number(op, "max_ratio");
		html_put(f, "<tr><th scope=\"row\">%s<span class=\"dim\">%r</span></th><td>",
			html_string(view, "view", "?"),
			is_local(view) ? " each op fed recorded inputs" : " from the tokens on");
		html_mark(f, pass, pass ? "pass" : "fail");
		fputs("</td>", f);
		html_cell(f, true, html_count(html_number(view, "tensors")));
		html_cell(f, true, html_count(html_number(view, "failed")));
		html_cell(f, true, html_count(html_number(view, "values")));
		html_cell(f, true, html_count(html_number(view, "tied_cuts")));
		html_cell(f, true, html_count(html_number(view, "rows_explained")));
		if (bounds)
			html_cell(f, true, html_places(ratio, 3));
		fputs("</tr>\n", f);
	}
	html_table_end(f);
	cJSON_ArrayForEach (view, html_get(report, "views"))
		if (html_get(view, "rounding"))
			html_put(f, "<p>%s</p>\n", html_string(view, "rounding", ""));
}

/* The commands that look closer at a place. */
static void commands(FILE *f, const cJSON *report, const cJSON *item, const char *op)
{
	const cJSON *again = html_get(report, "again");
	const char *check = html_string(again, "check", ""), *bisect = html_string(again, "bisect", "");
	double layer = html_number(item, "layer");
	char *line = NULL;
	size_t size = 0;
	FILE *words;

	if (*check && (words = open_memstream(&line, &size))) {
		if (isfinite(layer) && layer >= 0.0)
			fprintf(words, "%s --layers %.0f --view local --verbose", check, layer);
		else
			fprintf(words, "%s --layers out --verbose", check);
		fclose(words);
		html_command(f, "look at this layer", line);
		free(line);
		line = NULL;
	}
	if (*bisect && *op && (words = open_memstream(&line, &size))) {
		fprintf(words, "%s --case wrong.h5", bisect);
		fclose(words);
		html_command(f, "find the smallest set that fails, and keep the call", line);
		free(line);
	}
}

static void row_of(FILE *f, const char *key, const char *value)
{
	html_put(f, "<dt>%s</dt><dd>%s</dd>\n", key, value);
}

static void first_divergence(FILE *f, const cJSON *report)
{
	struct culprit c = {0};
	char text[160];

	if (!find_culprit(report, &c))
		return;
	const cJSON *at = c.item ? c.item : c.cell ? c.cell : c.op;
	const cJSON *worst = html_get(c.item, "worst");
	const char *op = c.item ? blamed(c.item) : html_string(c.op, "op", "");
	double layer = html_number(at, "layer");

	fputs("<section aria-labelledby=\"first\"><h2 id=\"first\">First divergence</h2>\n<dl class=\"facts big\">\n", f);
	snprintf(text, sizeof text, "%s view, %s", html_string(c.view, "view", "?"),
		c.local ? "each op fed the recorded inputs" : "everything from the tokens on");
	row_of(f, "seen in", text);
	row_of(f, "layer", isfinite(layer) ? html_count(layer) : "outside the layers");
	if (*op)
		row_of(f, "op", op);
	if (*html_string(c.item, "kernel", "") &&
		strcmp(html_string(c.item, "kernel", ""), html_string(c.item, "op", "")) != 0) {
		snprintf(text, sizeof text, "in what %.60s makes of it: what it wrote is not recorded",
			html_string(c.item, "op", "?"));
		row_of(f, "shows", text);
	}
	if (*html_string(c.item, "library", ""))
		row_of(f, "kernel", html_string(c.item, "library", ""));
	if (c.item) {
		row_of(f, "tensor", html_string(c.item, "tensor", "?"));
		row_of(f, "why", without_verdict(html_string(c.item, "verdict", "")));
	} else {
		row_of(f, "why", without_verdict(html_string(c.op, "verdict", "")));
	}
	if (worst) {
		snprintf(text, sizeof text, "[%.40s] is %s, recorded %s", html_string(worst, "at", "?"),
			html_exactly(html_number(worst, "ours")), html_exactly(html_number(worst, "golden")));
		row_of(f, "worst element", text);
	} else if (c.cell) {
		snprintf(text, sizeof text, "%.60s is %s, exact %s, allowed \xC2\xB1 %s", html_string(c.cell, "at", "?"),
			html_exactly(html_number(c.cell, "ours")), html_exactly(html_number(c.cell, "exact")),
			html_short(html_number(c.cell, "bound")));
		row_of(f, "worst element", text);
	}
	if (*html_string(c.item, "first", ""))
		row_of(f, "first wrong row", html_string(c.item, "first", ""));
	fputs("</dl>\n", f);
	commands(f, report, at, op);
	fputs("</section>\n", f);
}

static int by_place(const void *a, const void *b)
{
	const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
	double p = html_number(x, "order"), q = html_number(y, "order");
	return (p > q) - (p < q);
}

static int by_worst(const void *a, const void *b)
{
	const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
	bool passes = html_true(x, "pass");
	if (passes != html_true(y, "pass"))
		return passes ? 1 : -1;
	double p = html_number(x, "share_of_tolerance"), q = html_number(y, "share_of_tolerance");
	if (!passes || p == q)
		return by_place(a, b);
	return (p < q) - (p > q);
}

static void tensor_row(FILE *f, const cJSON *item)
{
	const cJSON *worst = html_get(item, "worst");
	const double layer = html_number(item, "layer"), equal = html_number(item, "equal_fraction");
	bool pass = html_true(item, "pass");

	html_put(f, "<tr%r><th scope=\"row\">%s</th>", pass ? "" : " class=\"bad\"", tensor_of(item));
	html_cell(f, true, isfinite(layer) ? html_count(layer) : "-");
	html_cell(f, false, html_string(item, "op", "-"));
	fputs("<td>", f);
	html_mark(f, pass, pass ? "ok" : "fail");
	fputs("</td>", f);
	double share = html_number(item, "share_of_tolerance");
	html_cell(f, true, share >= 1000.0 ? html_times(share) : html_short(share));
	html_cell(f, true, html_short(html_number(item, "relative_l2")));
	html_cell(f, true, html_count(html_number(item, "max_ulp")));
	html_cell(f, true, html_count(html_number(item, "max_bf16_ulp")));
	html_cell(f, true, html_places(100.0 * equal, 2));
	html_cell(f, true, html_string(worst, "at", "-"));
	html_cell(f, true, html_exactly(html_number(worst, "ours")));
	html_cell(f, true, html_exactly(html_number(worst, "golden")));
	fputs("</tr>\n", f);
}

/* Failed ones in the order of a forward pass, then those that are nearest to their tolerance. */
static void worst_tensors(FILE *f, const cJSON *view)
{
	const cJSON *items = html_get(view, "items"), *item;
	int n = 0, failed = 0, shown = 0;
	const cJSON **list = malloc(((size_t)cJSON_GetArraySize(items) + 1) * sizeof *list);
	char caption[96];

	if (!list)
		return;
	cJSON_ArrayForEach (item, items) {
		list[n++] = item;
		failed += !html_true(item, "pass");
	}
	qsort(list, (size_t)n, sizeof *list, by_worst);
	html_put(f, "<h3>%s view%r</h3>\n", html_string(view, "view", "?"),
		failed ? ": what failed, in the order of a forward pass" : "");
	snprintf(caption, sizeof caption, "Worst tensors of the %.20s view", html_string(view, "view", "?"));
	html_table_begin(f, caption,
		"tensor|#layer|op|result|#of tolerance|#rel L2|#ulp|#bf16 ulp|#equal %|#worst at|#ours|#recorded");
	for (; shown < n && (shown < WORST_SHOWN || (shown < failed && shown < FAILED_SHOWN)); shown++)
		tensor_row(f, list[shown]);
	html_table_end(f);
	if (shown < n)
		html_put(f, "<p class=\"dim\">%s of %s tensors%r.</p>\n", html_count(shown), html_count(n),
			failed > shown ? "; more have failed" : "");
	free(list);
}

static void bounds_table(FILE *f, const cJSON *view)
{
	const cJSON *bounds = html_get(view, "bounds"), *op, *operand, *cell;
	char caption[96];

	if (!bounds)
		return;
	snprintf(caption, sizeof caption, "Error bounds, %.20s view", html_string(view, "view", "?"));
	html_put(f, "<h3>%s</h3>\n", caption);
	html_table_begin(
		f, caption, "op|result|#calls|#values|#error / bound|#rms|#bias z|#worst layer|#element|#ours|#exact");
	cJSON_ArrayForEach (op, html_get(bounds, "ops")) {
		const cJSON *worst = NULL;
		double rms = (double)NAN, bias = (double)NAN;
		bool pass = html_true(op, "pass");
		cJSON_ArrayForEach (operand, html_get(op, "operands")) {
			double r = html_number(operand, "rms"), z = html_number(operand, "bias_z");
			if (html_true(operand, "rms_decides"))
				rms = r <= rms ? rms : r;
			if (html_true(operand, "bias_decides"))
				bias = z <= bias ? bias : z;
		}
		cJSON_ArrayForEach (cell, html_get(op, "layers"))
			if (!worst || html_number(cell, "max_ratio") > html_number(worst, "max_ratio"))
				worst = cell;
		html_put(
			f, "<tr%r><th scope=\"row\">%s</th><td>", pass ? "" : " class=\"bad\"", html_string(op, "op", "?"));
		html_mark(f, pass, pass ? "ok" : "fail");
		fputs("</td>", f);
		html_cell(f, true, html_count(html_number(op, "calls")));
		html_cell(f, true, html_count(html_number(op, "values")));
		html_cell(f, true, worst ? html_places(html_number(op, "max_ratio"), 3) : "-");
		html_cell(f, true, html_places(rms, 3));
		html_cell(f, true, html_places(bias, 2));
		html_cell(f, true, html_count(html_number(worst, "layer")));
		html_cell(f, true, html_string(worst, "at", "compared as sets"));
		html_cell(f, true, html_exactly(html_number(worst, "ours")));
		html_cell(f, true, html_exactly(html_number(worst, "exact")));
		fputs("</tr>\n", f);
	}
	html_table_end(f);
}

/* ---- what the script draws from ---- */

static double op_number(const cJSON *item)
{
	enum plumb_op op = plumb_op_find(html_string(item, "op", ""));
	return op == PLUMB_OP_COUNT ? -1.0 : (double)op;
}

static cJSON *item_data(const cJSON *item)
{
	cJSON *a = cJSON_CreateArray();
	const cJSON *worst = html_get(item, "worst");
	double layer = html_number(item, "layer");

	cJSON_AddItemToArray(a, html_data_string(html_string(item, "tensor", "?")));
	html_data_number(a, isfinite(layer) ? layer : -1.0);
	html_data_number(a, op_number(item));
	html_data_number(a, html_true(item, "pass") ? 1.0 : 0.0);
	html_data_number(a, html_number(item, "share_of_tolerance"));
	html_data_number(a, html_number(item, "max_ulp"));
	html_data_number(a, html_number(item, "relative_l2"));
	html_data_number(a, html_number(item, "max_bf16_ulp"));
	html_data_number(a, html_number(item, "equal_fraction"));
	cJSON_AddItemToArray(a, html_data_string(html_string(worst, "at", "")));
	cJSON_AddItemToArray(a, html_data_string(worst ? html_exactly(html_number(worst, "ours")) : ""));
	cJSON_AddItemToArray(a, html_data_string(worst ? html_exactly(html_number(worst, "golden")) : ""));
	cJSON_AddItemToArray(a, html_data_string(html_string(item, "kernel", "")));
	cJSON_AddItemToArray(
		a, html_data_string(html_true(item, "pass") ? "" : without_verdict(html_string(item, "verdict", ""))));
	return a;
}

static void ulp_data(cJSON *out, const cJSON *view)
{
	double(*sum)[PLUMB_ULP_BUCKETS] = calloc(PLUMB_OP_COUNT, sizeof *sum);
	const cJSON *item, *bucket;

	cJSON_ArrayForEach (item, html_get(view, "items")) {
		int op = (int)op_number(item), i = 0;
		cJSON_ArrayForEach (bucket, html_get(item, "ulp_histogram"))
			if (sum && op >= 0 && i < PLUMB_ULP_BUCKETS)
				sum[op][i++] += html_value(bucket);
	}
	for (int op = 0; sum && op < PLUMB_OP_COUNT; op++) {
		int last = PLUMB_ULP_BUCKETS - 1;
		while (last >= 0 && sum[op][last] == 0.0)
			last--;
		if (last < 0)
			continue;
		cJSON *one = cJSON_CreateArray(), *counts = cJSON_CreateArray();
		cJSON_AddItemToArray(out, one);
		html_data_number(one, (double)op);
		cJSON_AddItemToArray(one, counts);
		for (int i = 0; i <= last; i++)
			html_data_number(counts, sum[op][i]);
	}
	free(sum);
}

static void bounds_data(cJSON *out, const cJSON *view)
{
	const cJSON *op, *cell, *bucket;

	cJSON_ArrayForEach (op, html_get(html_get(view, "bounds"), "ops")) {
		cJSON *one = cJSON_CreateArray(), *cells = cJSON_CreateArray(), *counts = cJSON_CreateArray();
		cJSON_AddItemToArray(out, one);
		html_data_number(one, op_number(op));
		html_data_number(one, html_true(op, "pass") ? 1.0 : 0.0);
		cJSON_AddItemToArray(one, cells);
		cJSON_ArrayForEach (cell, html_get(op, "layers")) {
			cJSON *c = cJSON_CreateArray();
			double layer = html_number(cell, "layer");
			cJSON_AddItemToArray(cells, c);
			html_data_number(c, isfinite(layer) ? layer : -1.0);
			html_data_number(c, html_number(cell, "max_ratio"));
			cJSON_AddItemToArray(c, html_data_string(html_string(cell, "at", "")));
			cJSON_AddItemToArray(c, html_data_string(html_exactly(html_number(cell, "ours"))));
			cJSON_AddItemToArray(c, html_data_string(html_exactly(html_number(cell, "exact"))));
			cJSON_AddItemToArray(c, html_data_string(html_short(html_number(cell, "bound"))));
		}
		cJSON_AddItemToArray(one, counts);
		cJSON_ArrayForEach (bucket, html_get(op, "ratio_histogram"))
			html_data_number(counts, html_value(bucket));
		cJSON_AddItemToArray(one,
			html_data_string(html_true(op, "pass") ? "" : without_verdict(html_string(op, "verdict", ""))));
	}
}

static void drift_data(cJSON *out, const cJSON *view)
{
	const cJSON *tensor, *value;

	cJSON_ArrayForEach (tensor, html_get(html_get(view, "drift"), "tensors")) {
		cJSON *one = cJSON_CreateArray(), *values = cJSON_CreateArray();
		double layer = html_number(tensor, "layer");
		cJSON_AddItemToArray(out, one);
		cJSON_AddItemToArray(one, html_data_string(html_string(tensor, "tensor", "?")));
		html_data_number(one, isfinite(layer) ? layer : -1.0);
		html_data_number(one, html_true(tensor, "pass") ? 1.0 : 0.0);
		cJSON_AddItemToArray(one, values);
		cJSON_ArrayForEach (value, html_get(tensor, "relative_l2"))
			html_data_number(values, html_value(value));
	}
}

static void check_data(const cJSON *report, cJSON *data)
{
	const cJSON *view, *item, *again = html_get(report, "again");
	cJSON *ops = cJSON_AddArrayToObject(data, "ops"), *views;

	cJSON_AddStringToObject(data, "kind", "check");
	cJSON_AddNumberToObject(data, "layers", html_number(report, "layers"));
	cJSON_AddNumberToObject(data, "tokens", html_number(report, "tokens"));
	cJSON_AddItemToObject(data, "check", html_data_string(html_string(again, "check", "")));
	cJSON_AddItemToObject(data, "bisect", html_data_string(html_string(again, "bisect", "")));
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		cJSON *op = cJSON_CreateArray();
		cJSON_AddItemToArray(ops, op);
		cJSON_AddItemToArray(op, html_data_string(plumb_ops[i].name));
		cJSON_AddItemToArray(op, html_data_string(plumb_ops[i].stage));
	}
	views = cJSON_AddArrayToObject(data, "views");
	cJSON_ArrayForEach (view, html_get(report, "views")) {
		cJSON *one = cJSON_CreateObject(), *items = cJSON_AddArrayToObject(one, "items");
		cJSON_AddItemToArray(views, one);
		cJSON_AddItemToObject(one, "view", html_data_string(html_string(view, "view", "?")));
		cJSON_ArrayForEach (item, html_get(view, "items"))
			cJSON_AddItemToArray(items, item_data(item));
		ulp_data(cJSON_AddArrayToObject(one, "ulp"), view);
		bounds_data(cJSON_AddArrayToObject(one, "bounds"), view);
		drift_data(cJSON_AddArrayToObject(one, "drift"), view);
	}
}

void html_check_body(FILE *f, const cJSON *report, cJSON *data)
{
	const cJSON *views = html_get(report, "views"), *view;

	if (cJSON_GetArraySize(views) == 0) { /* the run did not get there */
		const cJSON *again = html_get(report, "again");
		char *line = NULL;
		size_t size = 0;
		FILE *words = *html_string(again, "bisect", "") ? open_memstream(&line, &size) : NULL;
		if (words) {
			fprintf(words, "%s --case wrong.h5", html_string(again, "bisect", ""));
			fclose(words);
			fputs("<section aria-labelledby=\"next\"><h2 id=\"next\">Next</h2>\n", f);
			html_command(f, "find the call, and keep it", line);
			fputs("</section>\n", f);
			free(line);
		}
		return;
	}
	fputs("<section class=\"flush\" aria-label=\"What was compared\">\n", f);
	views_table(f, report);
	fputs("</section>\n", f);
	first_divergence(f, report);
	fputs("<section aria-labelledby=\"map\"><h2 id=\"map\">Layers and ops</h2>\n<div id=\"heat\"></div>\n"
	      "<noscript><p class=\"dim\">The map and the charts are drawn by a script; the tables below do without.</p>"
	      "</noscript></section>\n"
	      "<section aria-labelledby=\"worst\"><h2 id=\"worst\">Worst tensors</h2>\n",
		f);
	cJSON_ArrayForEach (view, views)
		worst_tensors(f, view);
	cJSON_ArrayForEach (view, views)
		bounds_table(f, view);
	fputs("</section>\n<section aria-labelledby=\"errors\" data-script hidden><h2 id=\"errors\">How errors are "
	      "spread</h2>\n"
	      "<div id=\"spread\"></div></section>\n"
	      "<section aria-labelledby=\"along\" data-script hidden><h2 id=\"along\">Drift along the tokens</h2>\n"
	      "<div id=\"drift\"></div></section>\n"
	      "<section aria-labelledby=\"every\" data-script hidden><h2 id=\"every\">Every tensor</h2>\n"
	      "<div id=\"all\"></div></section>\n",
		f);
	check_data(report, data);
}
