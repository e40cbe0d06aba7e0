/* SPDX-License-Identifier: MIT */
/* The page of plumb bench: where the time of a token goes, beside what its bytes would take. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/html_parts.h"

enum { OPS_MOST = 64 };
static const double CHANGED = 0.05; /* what is called slower or faster */

/* Microseconds at the same place in the older file; NaN: none. */
static double before_at(const cJSON *report, double context, const char *name)
{
	const cJSON *one;
	cJSON_ArrayForEach (one, html_get(html_get(report, "before"), "times"))
		if (html_number(one, "context") == context && strcmp(html_string(one, "name", ""), name) == 0)
			return html_number(one, "us");
	return (double)NAN;
}

static double share_of_ceiling(const cJSON *report, const cJSON *item)
{
	double ceiling = html_number(report, "ceiling_gb_per_second");
	return ceiling > 0.0 ? html_number(item, "gb_per_second") / ceiling : (double)NAN;
}

void html_bench_head(const cJSON *report, struct html_head *head)
{
	const cJSON *run = cJSON_GetArrayItem(html_get(report, "contexts"), 0), *each, *op, *token = html_get(run, "token");
	const char *wrong = NULL;
	double context = html_number(run, "context"), old = before_at(report, context, "token");
	double part = share_of_ceiling(report, token);
	size_t n;

	head->command = "plumb bench";
	cJSON_ArrayForEach (each, html_get(report, "contexts"))
		cJSON_ArrayForEach (op, html_get(each, "ops"))
			if (cJSON_IsFalse(html_get(op, "exact")))
				wrong = wrong ? wrong : html_string(op, "name", "?");
	head->mood = wrong ? HTML_FAIL : HTML_NOTE;
	snprintf(head->detail, sizeof head->detail, "Checked first: %.400s.", html_string(report, "checked", "nothing"));
	if (wrong) {
		snprintf(head->verdict, sizeof head->verdict, "%.80s gives other bits than its contract: it is not timed",
			wrong);
		return;
	}
	n = (size_t)snprintf(head->verdict, sizeof head->verdict, "A token takes %s us at context %s",
		html_places(html_number(token, "us"), 1), html_count(context));
	if (isfinite(part))
		n += (size_t)snprintf(head->verdict + n, sizeof head->verdict - n, ": %s\xC2\xA0%% of the reading rate",
			html_places(100.0 * part, part < 0.1 ? 1 : 0));
	if (old > 0.0 && n < sizeof head->verdict) {
		double change = html_number(token, "us") / old - 1.0;
		snprintf(head->verdict + n, sizeof head->verdict - n, "; %s\xC2\xA0%% %s than before",
			html_places(100.0 * fabs(change), 1), change > 0.0 ? "slower" : "faster");
	}
}

static int by_time(const void *a, const void *b)
{
	double p = html_number(*(const cJSON *const *)a, "us_per_token"),
	       q = html_number(*(const cJSON *const *)b, "us_per_token");
	if (isnan(p) || isnan(q))
		return isnan(p) - isnan(q);
	return (p < q) - (p > q);
}

/* Before, ratio and what to call it. */
static void cells_before(FILE *f, double now, double before)
{
	double ratio = now / before;
	html_cell(f, true, html_places(before, 2));
	html_cell(f, true, html_places(ratio, 3));
	html_put(f, "<td%r>%r</td>",
		ratio > 1.0 + CHANGED   ? " class=\"mark bad\""
		: ratio < 1.0 - CHANGED ? " class=\"mark ok\""
					: "",
		ratio > 1.0 + CHANGED   ? "&#9650; slower"
		: ratio < 1.0 - CHANGED ? "&#9660; faster"
		: isfinite(ratio)       ? "same"
					: "-");
}

static void op_row(FILE *f, const cJSON *report, const cJSON *run, const cJSON *op, double sum, double most)
{
	double calls = html_number(op, "calls"), bytes = html_number(op, "bytes"), token = html_number(op, "us_per_token");
	double gb10 = html_number(op, "projected_gb10_us_per_call");
	bool exact = !cJSON_IsFalse(html_get(op, "exact"));
	double share = sum > 0.0 ? token / sum : (double)NAN, part = share_of_ceiling(report, op);

	html_put(f, "<tr%r><th scope=\"row\">%s%r</th><td>", exact ? "" : " class=\"bad\"", html_string(op, "name", "?"),
		html_true(op, "warm") ? " <span class=\"dim\" title=\"may come from the cache\">(warm)</span>" : "");
	if (!exact)
		html_mark(f, false, "wrong, not timed");
	else if (isfinite(share))
		html_put(f,
			"<span class=\"num\">%s %%</span><span class=\"bar\" aria-hidden=\"true\"><i "
			"style=\"width:%s%%\"></i></span>",
			html_places(100.0 * share, 1), html_places(most > 0.0 ? 100.0 * token / most : 0.0, 1));
	fputs("</td>", f);
	html_cell(f, true, html_places(token, 1));
	html_cell(f, true, html_places(html_number(op, "us_per_call"), 2));
	html_cell(f, true, html_count(calls));
	html_cell(f, true, html_count(html_number(op, "launches")));
	html_cell(f, true, html_places(bytes / calls * 1e-6, 4));
	html_cell(f, true, html_short(html_number(op, "gb_per_second")));
	html_cell(f, true, html_places(100.0 * part, 1));
	if (html_get(report, "before"))
		cells_before(f, html_number(op, "us_per_call"),
			before_at(report, html_number(run, "context"), html_string(op, "name", "?")));
	if (isfinite(html_number(html_get(run, "token"), "projected_gb10_us")))
		html_cell(f, true, html_places(gb10, 2));
	fputs("</tr>\n", f);
}

static void token_row(FILE *f, const cJSON *report, const cJSON *run)
{
	const cJSON *token = html_get(run, "token");
	double us = html_number(token, "us"), gb10 = html_number(token, "projected_gb10_us");

	fputs("<tr><th scope=\"row\">whole token</th><td></td>", f);
	html_cell(f, true, html_places(us, 1));
	html_cell(f, true, "");
	html_cell(f, true, "");
	html_cell(f, true, html_count(html_number(token, "launches")));
	html_cell(f, true, html_places(html_number(token, "bytes") * 1e-6, 2));
	html_cell(f, true, html_short(html_number(token, "gb_per_second")));
	html_cell(f, true, html_places(100.0 * share_of_ceiling(report, token), 1));
	if (html_get(report, "before"))
		cells_before(f, us, before_at(report, html_number(run, "context"), "token"));
	if (isfinite(gb10))
		html_cell(f, true, html_places(gb10, 1));
	fputs("</tr>\n", f);
}

static void one_context(FILE *f, const cJSON *report, const cJSON *run, int number)
{
	const cJSON *token = html_get(run, "token"), *op, *list[OPS_MOST];
	double context = html_number(run, "context"), sum = 0.0, gap = html_number(token, "gap_us");
	bool projected = isfinite(html_number(token, "projected_gb10_us"));
	char head[320], caption[64];
	int n = 0;

	cJSON_ArrayForEach (op, html_get(run, "ops")) {
		if (n == OPS_MOST)
			break;
		list[n++] = op;
		if (isfinite(html_number(op, "us_per_token")))
			sum += html_number(op, "us_per_token");
	}
	qsort(list, (size_t)n, sizeof list[0], by_time);
	snprintf(caption, sizeof caption, "Context %s", html_count(context));
	html_put(f, "<section aria-labelledby=\"context%s\"><h2 id=\"context%s\">%s</h2>\n", html_count(number),
		html_count(number), caption);
	html_put(f, "<div data-roof=\"%s\"></div>\n", html_count(number));
	snprintf(head, sizeof head,
		"op|share of the ops|#us / token|#us / call|#calls|#launches|#MB / call|#GB/s|#%% of ceiling%s%s",
		html_get(report, "before") ? "|#before us|#ratio|change" : "", projected ? "|#gb10 us (computed)" : "");
	html_table_begin(f, caption, head);
	for (int i = 0; i < n; i++)
		op_row(f, report, run, list[i], sum, n ? html_number(list[0], "us_per_token") : 0.0);
	token_row(f, report, run);
	html_table_end(f);
	html_put(f, "<p class=\"dim\">Bytes of a token: %s MB of weights, %s MB read and %s MB written beside them.",
		html_places(html_number(token, "weight_bytes") * 1e-6, 1),
		html_places(html_number(token, "read_bytes") * 1e-6, 3),
		html_places(html_number(token, "written_bytes") * 1e-6, 3));
	if (isfinite(gap))
		html_put(f, " The ops add up to %s us, %s us %r the token.",
			html_places(html_number(token, "sum_of_ops_us"), 1), html_places(fabs(gap), 1),
			gap >= 0.0 ? "less than" : "more than");
	if (projected)
		fputs(" GB10 is computed from bytes / 230 GB/s and launches x 2.2 us, not measured.", f);
	fputs("</p></section>\n", f);
}

static void bench_data(const cJSON *report, cJSON *data)
{
	const cJSON *run, *op;
	cJSON *runs = cJSON_AddArrayToObject(data, "contexts");

	cJSON_AddStringToObject(data, "kind", "bench");
	cJSON_AddNumberToObject(data, "ceiling", html_number(report, "ceiling_gb_per_second"));
	cJSON_ArrayForEach (run, html_get(report, "contexts")) {
		cJSON *ops = cJSON_CreateArray();
		cJSON_AddItemToArray(runs, ops);
		cJSON_ArrayForEach (op, html_get(run, "ops")) {
			cJSON *one = cJSON_CreateArray();
			double calls = html_number(op, "calls");
			cJSON_AddItemToArray(ops, one);
			cJSON_AddItemToArray(one, html_data_string(html_string(op, "name", "?")));
			html_data_number(one, html_number(op, "bytes") / calls);
			html_data_number(one, html_number(op, "us_per_call"));
			html_data_number(one, html_number(op, "us_per_token"));
			html_data_number(one, html_true(op, "warm") ? 1.0 : 0.0);
			html_data_number(one, before_at(report, html_number(run, "context"), html_string(op, "name", "?")));
		}
	}
}

void html_bench_body(FILE *f, const cJSON *report, cJSON *data)
{
	const cJSON *before = html_get(report, "before"), *run;
	int number = 0;

	html_put(f,
		"<section class=\"flush\" aria-label=\"How it was measured\"><dl class=\"facts\">\n<dt>ceiling</dt><dd>%s "
		"GB/s, a "
		"kernel that only reads, in the same run</dd>\n<dt>times</dt><dd>median of %s</dd>\n",
		html_short(html_number(report, "ceiling_gb_per_second")), html_count(html_number(report, "repeat")));
	if (before)
		html_put(f, "<dt>before</dt><dd>%s, %s; %s; commit %s%r</dd>\n", html_string(before, "model", "?"),
			html_string(before, "profile", "-"), html_string(before, "runs_on", "?"),
			html_string(before, "commit", "?"),
			html_true(before, "alike")
				? ""
				: " <b>(another model, profile, set or card: the ratios say little)</b>");
	fputs("</dl></section>\n", f);
	cJSON_ArrayForEach (run, html_get(report, "contexts"))
		one_context(f, report, run, number++);
	bench_data(report, data);
}
