/* SPDX-License-Identifier: MIT */
/* The page of a score (tools/html.h): which planted faults, or hostile inputs, were caught, by what, and which were not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/html_parts.h"

enum { STAGES_MOST = 64, LISTED_MOST = 500 };

struct tally {
	double tried, caught;
};

static struct tally total_of(const cJSON *report)
{
	struct tally t = {0.0, 0.0};
	const cJSON *one;
	cJSON_ArrayForEach (one, html_get(report, "classes")) {
		double tried = html_number(one, "tried"), caught = html_number(one, "caught");
		t.tried += isfinite(tried) ? tried : 0.0;
		t.caught += isfinite(caught) ? caught : 0.0;
	}
	return t;
}

static const char *word_of(const cJSON *report)
{
	return html_string(report, "word", "caught");
}

/* Whether what passes by unseen is the fault. */
static bool is_planted(const cJSON *report)
{
	return strcmp(word_of(report), "caught") == 0;
}

void html_score_head(const cJSON *report, struct html_head *head)
{
	struct tally t = total_of(report);
	bool pass =
		strcmp(html_string(report, "verdict", "fail"), "pass") == 0 && t.tried > 0.0; /* nothing shows nothing */
	int survivors = cJSON_GetArraySize(html_get(report, "survivors"));

	head->command = html_string(report, "title", "plumb");
	head->mood = pass ? HTML_PASS : HTML_FAIL;
	if (*html_string(report, "summary", ""))
		snprintf(head->verdict, sizeof head->verdict, "%.250s", html_string(report, "summary", ""));
	else if (!(t.tried > 0.0))
		snprintf(head->verdict, sizeof head->verdict, "Nothing was tried");
	else
		snprintf(head->verdict, sizeof head->verdict, "%s of %s %.20s", html_count(t.caught), html_count(t.tried),
			word_of(report));
	size_t n = (size_t)snprintf(head->detail, sizeof head->detail, "%s of %s %.20s, in %s rows of class and %.20s",
		html_count(t.caught), html_count(t.tried), word_of(report),
		html_count(cJSON_GetArraySize(html_get(report, "classes"))), html_string(report, "rows", "stage"));
	if (is_planted(report))
		snprintf(head->detail + n, sizeof head->detail - n, "; %s survived.", html_count(survivors));
	else
		snprintf(head->detail + n, sizeof head->detail - n, ".");
}

/* "12 / 12", marked where some got through. */
static void cell_of(FILE *f, double tried, double caught, double skipped)
{
	bool full = caught >= tried;

	if (!(tried > 0.0)) {
		html_cell(f, true, skipped > 0.0 ? "skipped" : "-");
		return;
	}
	html_put(f, "<td class=\"n\"><span class=\"%r\">%s / %s%r</span></td>", full ? "" : "mark bad", html_count(caught),
		html_count(tried), full ? "" : " &#10007;");
}

/* One lane is the whole. */
static const cJSON *lanes_of(const cJSON *report)
{
	const cJSON *lanes = html_get(report, "lanes");
	return cJSON_GetArraySize(lanes) > 1 ? lanes : NULL;
}

static const cJSON *by_lane(const cJSON *one, const char *lane)
{
	const cJSON *at;
	cJSON_ArrayForEach (at, html_get(one, "by"))
		if (strcmp(html_string(at, "lane", ""), lane) == 0)
			return at;
	return NULL;
}

/* The head of a table: texts of a tree, so not html_table_begin's. */
static void begin(
	FILE *f, const cJSON *report, const char *caption, const char *first, const char *second, const cJSON *lanes)
{
	const cJSON *lane;

	html_put(f,
		"<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><caption "
		"class=\"sr\">%s</caption>"
		"<thead><tr><th scope=\"col\">%s</th>",
		caption, caption, first);
	if (second)
		html_put(f, "<th scope=\"col\">%s</th>", second);
	cJSON_ArrayForEach (lane, lanes)
		html_put(f, "<th scope=\"col\" class=\"n\">%s</th>", html_string(lane, "name", "?"));
	html_put(f, "<th scope=\"col\" class=\"n\">in all</th><th scope=\"col\">%s</th></tr></thead><tbody>\n",
		word_of(report));
}

static void share_cell(FILE *f, double tried, double caught)
{
	double percent = tried > 0.0 ? 100.0 * caught / tried : 0.0;
	html_put(f,
		"<td><span class=\"num\">%s %%</span><span class=\"bar\" aria-hidden=\"true\"><i "
		"style=\"width:%s%%\"></i></span></td>",
		html_places(percent, percent > 99.9 && percent < 100.0 ? 2 : 1), html_places(percent, 1));
}

static void classes_table(FILE *f, const cJSON *report)
{
	const cJSON *one, *lane, *lanes = lanes_of(report);

	begin(f, report, "By class", "class", html_string(report, "rows", "stage"), lanes);
	cJSON_ArrayForEach (one, html_get(report, "classes")) {
		double tried = html_number(one, "tried"), caught = html_number(one, "caught");
		html_put(f, "<tr%r><th scope=\"row\">%s</th><td>%s</td>", caught < tried ? " class=\"bad\"" : "",
			html_string(one, "name", "?"), html_string(one, "stage", "-"));
		cJSON_ArrayForEach (lane, lanes) {
			const cJSON *at = by_lane(one, html_string(lane, "name", "?"));
			cell_of(f, html_number(at, "tried"), html_number(at, "caught"), html_number(at, "skipped"));
		}
		cell_of(f, tried, caught, 0.0);
		share_cell(f, tried, caught);
		fputs("</tr>\n", f);
	}
	html_table_end(f);
}

static void stages_table(FILE *f, const cJSON *report)
{
	const char *name[STAGES_MOST];
	const cJSON *one, *lane, *lanes = lanes_of(report);
	int stages = 0;

	cJSON_ArrayForEach (one, html_get(report, "classes")) {
		const char *stage = html_string(one, "stage", "-");
		int i = 0;
		while (i < stages && strcmp(name[i], stage) != 0)
			i++;
		if (i == stages && stages < STAGES_MOST)
			name[stages++] = stage;
	}
	begin(f, report, "All classes together", html_string(report, "rows", "stage"), NULL, lanes);
	for (int s = 0; s < stages; s++) {
		struct tally all = {0.0, 0.0};
		html_put(f, "<tr><th scope=\"row\">%s</th>", name[s]);
		cJSON_ArrayForEach (lane, lanes) {
			struct tally t = {0.0, 0.0};
			cJSON_ArrayForEach (one, html_get(report, "classes")) {
				const cJSON *at = by_lane(one, html_string(lane, "name", "?"));
				if (at && strcmp(html_string(one, "stage", "-"), name[s]) == 0) {
					t.tried += html_number(at, "tried");
					t.caught += html_number(at, "caught");
				}
			}
			cell_of(f, t.tried, t.caught, 0.0);
		}
		cJSON_ArrayForEach (one, html_get(report, "classes"))
			if (strcmp(html_string(one, "stage", "-"), name[s]) == 0) {
				all.tried += html_number(one, "tried");
				all.caught += html_number(one, "caught");
			}
		cell_of(f, all.tried, all.caught, 0.0);
		share_cell(f, all.tried, all.caught);
		fputs("</tr>\n", f);
	}
	html_table_end(f);
}

static void list(FILE *f, const cJSON *list, const char *caption)
{
	const cJSON *one;
	int n = cJSON_GetArraySize(list), shown = 0;

	html_table_begin(f, caption, "name|class|stage|lane|in words|replay");
	cJSON_ArrayForEach (one, list) {
		const char *replay = html_string(one, "replay", "");
		if (shown++ == LISTED_MOST)
			break;
		html_put(f, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td><td class=\"wrap\">%s</td><td>",
			html_string(one, "name", "?"), html_string(one, "class", "-"), html_string(one, "stage", "-"),
			html_string(one, "lane", "-"), html_string(one, "text", ""));
		if (*replay)
			html_command(f, "replay", replay);
		fputs("</td></tr>\n", f);
	}
	html_table_end(f);
	if (n > LISTED_MOST)
		html_put(f, "<p class=\"dim\">%s of %s.</p>\n", html_count(LISTED_MOST), html_count(n));
}

/* What was changed, a line each, with a sign before it: never by colour alone. */
static void change_lines(FILE *f, const char *sign, const char *look, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		char line[512];
		snprintf(line, sizeof line, "%.*s", (int)n, text);
		html_put(f, "<code class=\"%r\">%s %s</code>\n", look, sign, line);
		text += n + (text[n] == '\n');
	}
}

/* Changes of code: one below the other, since lines of code fit no column. */
static void list_changes(FILE *f, const cJSON *list)
{
	const cJSON *one;
	int n = cJSON_GetArraySize(list), shown = 0;

	cJSON_ArrayForEach (one, list) {
		if (shown++ == LISTED_MOST)
			break;
		html_put(f, "<div class=\"found\"><h3>%s <span class=\"dim\">%s, %s, %s</span></h3>\n<p>%s</p>\n",
			html_string(one, "name", "?"), html_string(one, "class", "-"), html_string(one, "stage", "-"),
			html_string(one, "lane", "-"), html_string(one, "text", ""));
		if (*html_string(one, "before", "") || *html_string(one, "after", "")) {
			fputs("<div class=\"diff\" tabindex=\"0\" role=\"region\" aria-label=\"The change\">\n", f);
			change_lines(f, "-", "was", html_string(one, "before", ""));
			change_lines(f, "+", "is", html_string(one, "after", ""));
			fputs("</div>\n", f);
		}
		if (*html_string(one, "advice", ""))
			html_put(f, "<p>%s</p>\n", html_string(one, "advice", ""));
		if (*html_string(one, "replay", ""))
			html_command(f, "this one alone", html_string(one, "replay", ""));
		fputs("</div>\n", f);
	}
	if (n > LISTED_MOST)
		html_put(f, "<p class=\"dim\">%s of %s.</p>\n", html_count(LISTED_MOST), html_count(n));
}

static bool has_changes(const cJSON *list)
{
	const cJSON *one;
	cJSON_ArrayForEach (one, list)
		if (*html_string(one, "after", "") || *html_string(one, "advice", ""))
			return true;
	return false;
}

static void any_list(FILE *f, const cJSON *items, const char *caption)
{
	if (has_changes(items))
		list_changes(f, items);
	else
		list(f, items, caption);
}

/* A table of rows that are added up already. */
static void summed_table(FILE *f, const cJSON *report, const cJSON *table, int number)
{
	const cJSON *row;
	bool by = false, share = false;

	cJSON_ArrayForEach (row, html_get(table, "rows")) {
		by = by || *html_string(row, "by", "");
		share = share || html_number(row, "caught") < html_number(row, "tried");
	}
	html_put(f, "<section aria-labelledby=\"table-%s\"><h2 id=\"table-%s\">%s</h2>\n", html_count(number),
		html_count(number), html_string(table, "title", "-"));
	html_put(f,
		"<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><caption "
		"class=\"sr\">%s</caption>"
		"<thead><tr><th scope=\"col\">%s</th><th scope=\"col\" class=\"n\">%s</th>%r%r</tr></thead><tbody>\n",
		html_string(table, "title", "-"), html_string(table, "title", "-"), html_string(table, "head", "-"),
		word_of(report), share ? "<th scope=\"col\">share</th>" : "", by ? "<th scope=\"col\">by</th>" : "");
	cJSON_ArrayForEach (row, html_get(table, "rows")) {
		double tried = html_number(row, "tried"), caught = html_number(row, "caught");
		html_put(f, "<tr%r><th scope=\"row\">%s</th>", caught < tried ? " class=\"bad\"" : "",
			html_string(row, "name", "?"));
		if (html_get(row, "tried"))
			cell_of(f, tried, caught, html_number(row, "skipped"));
		else
			html_cell(f, true, html_count(caught));
		if (share && tried > 0.0)
			share_cell(f, tried, caught);
		else if (share)
			html_cell(f, false, "");
		if (by)
			html_put(f, "<td class=\"wrap\">%s</td>", html_string(row, "by", ""));
		fputs("</tr>\n", f);
	}
	html_table_end(f);
	fputs("</section>\n", f);
}

static void checks_table(FILE *f, const cJSON *report)
{
	const cJSON *one;

	html_table_begin(f, "What caught how many", "check|#caught");
	cJSON_ArrayForEach (one, html_get(report, "checks")) {
		html_put(f, "<tr><th scope=\"row\">%s</th>", html_string(one, "name", "?"));
		html_cell(f, true, html_count(html_number(one, "caught")));
		fputs("</tr>\n", f);
	}
	html_table_end(f);
}

static void reasons(FILE *f, const cJSON *report)
{
	const cJSON *one;
	bool any = false;

	cJSON_ArrayForEach (one, html_get(report, "classes"))
		any = any || *html_string(one, "reason", "");
	if (!any)
		return;
	fputs("<section aria-labelledby=\"why\"><h2 id=\"why\">What each class stands for</h2><dl class=\"facts\">\n", f);
	cJSON_ArrayForEach (one, html_get(report, "classes"))
		if (*html_string(one, "reason", ""))
			html_put(f, "<dt>%s</dt><dd>%s</dd>\n", html_string(one, "name", "?"),
				html_string(one, "reason", ""));
	fputs("</dl></section>\n", f);
}

void html_score_body(FILE *f, const cJSON *report, cJSON *data)
{
	const cJSON *survivors = html_get(report, "survivors"), *failures = html_get(report, "failures");

	cJSON_AddStringToObject(data, "kind", "score");
	if (cJSON_GetArraySize(failures) > 0) {
		fputs("<section aria-labelledby=\"failures\"><h2 id=\"failures\">Not right</h2>\n", f);
		any_list(f, failures, "Not right");
		fputs("</section>\n", f);
	}
	if (is_planted(report)) {
		fputs("<section aria-labelledby=\"survivors\"><h2 id=\"survivors\">Survivors</h2>\n", f);
		if (cJSON_GetArraySize(survivors) > 0)
			any_list(f, survivors, "Survivors");
		else
			fputs("<p>None: everything that was tried was caught.</p>\n", f);
		fputs("</section>\n", f);
	}
	const cJSON *tables = html_get(report, "tables"), *table;
	int number = 0;
	cJSON_ArrayForEach (table, tables)
		summed_table(f, report, table, ++number);
	if (number == 0) {
		html_put(f, "<section aria-labelledby=\"stages\"><h2 id=\"stages\">By %s</h2>\n",
			html_string(report, "rows", "stage"));
		stages_table(f, report);
		fputs("</section>\n", f);
	}
	html_put(f, "<section aria-labelledby=\"classes\"><h2 id=\"classes\">%r</h2>\n",
		number ? "By class and stage" : "By class");
	classes_table(f, report);
	fputs("</section>\n", f);
	if (cJSON_GetArraySize(html_get(report, "checks")) > 0) {
		fputs("<section aria-labelledby=\"checks\"><h2 id=\"checks\">Caught by</h2>\n", f);
		checks_table(f, report);
		fputs("</section>\n", f);
	}
	reasons(f, report);
}
