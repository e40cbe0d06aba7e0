/* SPDX-License-Identifier: MIT */
/* The page of plumb bisect: a story in the order in which it was found out. */
#include <math.h>
#include <string.h>

#include "tools/html_parts.h"

enum { FINDINGS_SHOWN = 200, SETS_NAMED = 2 };

static const cJSON *chief_of(const cJSON *report)
{
	const cJSON *finding, *findings = html_get(report, "findings");
	cJSON_ArrayForEach (finding, findings)
		if (html_true(finding, "chief"))
			return finding;
	return cJSON_GetArrayItem(findings, 0);
}

/* "gdn_out_proj in layer 1", of a fused entry its ops joined. */
static size_t choice_words(const cJSON *choice, double layers, char *text, size_t size)
{
	const cJSON *op;
	double layer = html_number(choice, "layer");
	size_t n = 0;

	text[0] = '\0';
	cJSON_ArrayForEach (op, html_get(choice, "ops"))
		if (n < size && cJSON_IsString(op))
			n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "+" : "", op->valuestring);
	if (n < size && layer < layers)
		n += (size_t)snprintf(text + n, size - n, " in layer %s", html_count(layer));
	return n < size ? n : size - 1;
}

static void set_words(const cJSON *set, double layers, char *text, size_t size)
{
	const cJSON *choice;
	size_t n = 0;

	text[0] = '\0';
	cJSON_ArrayForEach (choice, set) {
		if (n + 8 >= size)
			break;
		n += (size_t)snprintf(text + n, size - n, "%s", n ? " and " : "");
		n += choice_words(choice, layers, text + n, size - n);
	}
}

void html_bisect_head(const cJSON *report, struct html_head *head)
{
	const char *failure = html_string(report, "failure", "");
	const cJSON *chief = chief_of(report), *sets = html_get(report, "sets");
	bool wrong = strcmp(html_string(report, "verdict", "fail"), "pass") != 0;
	double layers = html_number(report, "layers");
	char words[200];

	head->command = "plumb bisect";
	head->mood = wrong ? HTML_FAIL : HTML_PASS;
	if (*failure) {
		const char *place = html_string(report, "place", "");
		snprintf(head->verdict, sizeof head->verdict, "%s%.120s", *place ? "Died in " : "The run died", place);
		snprintf(head->detail, sizeof head->detail, "%.500s", failure);
		return;
	}
	if (!wrong) {
		snprintf(head->verdict, sizeof head->verdict, "No suspect is wrong, alone or together");
		snprintf(head->detail, sizeof head->detail, "%s calls judged; whole run: %.200s.",
			html_count(html_number(report, "calls")),
			html_string(html_get(report, "whole"), "words", "passes"));
		return;
	}
	if (cJSON_GetArraySize(sets) > 0) {
		size_t n = 0;
		for (int i = 0; i < cJSON_GetArraySize(sets) && n < sizeof head->verdict; i++) {
			const cJSON *set = cJSON_GetArrayItem(sets, i);
			const bool several = cJSON_GetArraySize(set) > 1;
			if (i == SETS_NAMED) {
				snprintf(head->verdict + n, sizeof head->verdict - n, "; and %d more",
					cJSON_GetArraySize(sets) - i);
				break;
			}
			set_words(set, layers, words, sizeof words);
			n += (size_t)snprintf(head->verdict + n, sizeof head->verdict - n, "%s%.100s%s",
				i ? several ? "; so are " : "; so is " : "", words,
				i         ? several ? " together" : ""
				: several ? " are wrong together"
					  : " is wrong");
		}
	} else if (chief) {
		snprintf(head->verdict, sizeof head->verdict, "%.80s, %.80s, is wrong by itself; the run as a whole passes",
			html_string(chief, "op", "?"), html_string(chief, "place", "?"));
	} else {
		snprintf(head->verdict, sizeof head->verdict, "The run differs, but no set of suspects explains it");
	}
	if (chief)
		snprintf(head->detail, sizeof head->detail, "%.500s",
			*html_string(chief, "inside", "") ? html_string(chief, "inside", "")
							  : html_string(chief, "text", ""));
}

static void findings_table(FILE *f, const cJSON *report)
{
	const cJSON *findings = html_get(report, "findings"), *one;
	int shown = 0;

	if (cJSON_GetArraySize(findings) == 0) {
		fputs("<p>Every call is right by itself.</p>\n", f);
		return;
	}
	html_table_begin(f, "Calls that are wrong by themselves",
		"op|where|how|#from position|#wrong calls|#error / bound|in words");
	cJSON_ArrayForEach (one, findings) {
		char calls[48];
		double ratio = html_number(one, "ratio");
		if (shown++ == FINDINGS_SHOWN)
			break;
		snprintf(calls, sizeof calls, "%s of %s", html_count(html_number(one, "wrong_calls")),
			html_count(html_number(one, "calls")));
		html_put(f, "<tr%r><th scope=\"row\">%s</th>", html_true(one, "chief") ? " class=\"bad\"" : "",
			html_string(one, "op", "?"));
		html_cell(f, false, html_string(one, "place", "?"));
		fputs("<td>", f);
		html_mark(f, false, html_string(one, "kind", "?"));
		fputs("</td>", f);
		html_cell(f, true, html_count(html_number(one, "position")));
		html_cell(f, true, html_number(one, "calls") > 0.0 ? calls : "-");
		html_cell(f, true, ratio >= 1000.0 ? html_times(ratio) : html_short(ratio));
		html_put(f, "<td class=\"wrap\">%s%s</td></tr>\n", html_string(one, "text", ""),
			html_true(one, "in_context") ? " (on what the other suspects made)" : "");
	}
	html_table_end(f);
	if (cJSON_GetArraySize(findings) > FINDINGS_SHOWN)
		html_put(f, "<p class=\"dim\">%s of %s.</p>\n", html_count(FINDINGS_SHOWN),
			html_count(cJSON_GetArraySize(findings)));
}

static void sets_list(FILE *f, const cJSON *report)
{
	const cJSON *sets = html_get(report, "sets"), *set;
	double layers = html_number(report, "layers");
	char words[1024];

	fputs("<ul>\n", f);
	cJSON_ArrayForEach (set, sets) {
		set_words(set, layers, words, sizeof words);
		html_put(f, "<li><b>%s</b> %r</li>\n", words,
			cJSON_GetArraySize(set) > 1 ? "fail only together: without any one of them the run passes"
						    : "fails alone");
	}
	fputs("</ul>\n", f);
	if (html_true(report, "more_sets"))
		fputs("<p>More remain.</p>\n", f);
}

static void inside_facts(FILE *f, const cJSON *chief)
{
	const char *pattern = html_string(chief, "pattern", ""), *where = html_string(chief, "where", "");
	double token = html_number(chief, "token"), values = html_number(chief, "values");

	html_put(f, "<p>%s</p>\n<dl class=\"facts\">\n",
		*html_string(chief, "inside", "") ? html_string(chief, "inside", "") : html_string(chief, "text", ""));
	html_put(f, "<dt>op</dt><dd>%s, %s</dd>\n", html_string(chief, "op", "?"), html_string(chief, "place", "?"));
	if (isfinite(token))
		html_put(f, "<dt>first token</dt><dd>%s</dd>\n", html_count(token));
	if (values > 0.0)
		html_put(f, "<dt>values wrong</dt><dd>%s of %s</dd>\n", html_count(html_number(chief, "differ")),
			html_count(values));
	if (*pattern)
		html_put(f, "<dt>pattern</dt><dd>%s</dd>\n", pattern);
	if (*where)
		html_put(f, "<dt>where</dt><dd>%s</dd>\n", where);
	fputs("</dl>\n", f);
}

static void case_and_replay(FILE *f, const cJSON *report)
{
	html_put(f, "<p>The call is kept in <code>%s</code>: its inputs, its weights and what it should give.</p>\n",
		html_string(report, "case", "?"));
	if (*html_string(report, "replay", ""))
		html_command(
			f, "run it again, in milliseconds and without the checkpoint", html_string(report, "replay", ""));
}

void html_bisect_body(FILE *f, const cJSON *report, cJSON *data)
{
	const cJSON *whole = html_get(report, "whole"), *chief = chief_of(report);
	bool kept = *html_string(report, "case", "") != '\0';

	cJSON_AddStringToObject(data, "kind", "bisect");
	fputs("<section aria-labelledby=\"story\"><h2 id=\"story\">How it was found</h2>\n<ol class=\"story\">\n", f);
	if (*html_string(report, "failure", "")) {
		html_put(f, "<li><h3>The run died</h3><p>%s</p></li>\n", html_string(report, "failure", ""));
		if (kept) {
			fputs("<li><h3>The call, kept before it was launched</h3>\n", f);
			case_and_replay(f, report);
			fputs("</li>\n", f);
		}
		fputs("</ol></section>\n", f);
		return;
	}
	html_put(f,
		"<li><h3>Each call by itself</h3><p>%s suspects, choices of layer and op. %s calls of theirs ran on the "
		"truth's inputs, "
		"each twice; %r.</p>\n",
		html_count(html_number(report, "choices")), html_count(html_number(report, "calls")),
		strcmp(html_string(report, "criterion", ""), "bits") == 0 ? "every bit must be equal"
									  : "each is held to the error bounds of its op");
	findings_table(f, report);
	html_put(f, "</li>\n<li><h3>The whole run</h3><p>%s tokens, then %s decoded: it %s.</p></li>\n",
		html_count(html_number(report, "tokens")), html_count(html_number(report, "steps")),
		html_true(whole, "fails") ? html_string(whole, "words", "fails") : "passes");
	if (cJSON_GetArraySize(html_get(report, "sets")) > 0) {
		html_put(f,
			"<li><h3>The smallest sets that fail</h3><p>%s decodes with suspects switched on and off%r.</p>\n",
			html_count(html_number(report, "decodes")),
			html_true(report, "flaky") ? "; calls change from run to run, so each set was asked several times"
						   : "");
		sets_list(f, report);
		fputs("</li>\n", f);
	}
	if (chief) {
		fputs("<li><h3>Inside the op</h3>\n", f);
		inside_facts(f, chief);
		fputs("</li>\n", f);
	}
	if (kept) {
		fputs("<li><h3>A case that replays</h3>\n", f);
		case_and_replay(f, report);
		fputs("</li>\n", f);
	}
	fputs("</ol></section>\n", f);
}
