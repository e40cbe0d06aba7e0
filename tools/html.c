/* SPDX-License-Identifier: MIT */
/* The frame of a page, and how texts become markup. */
#include "tools/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/sha256.h"
#include "tools/html_parts.h"
#include "tools/output.h"

/* ---- text ---- */

/* The next character of UTF-8 text, and its length; what is no UTF-8, or would not show as what it is (control
 * characters, marks that turn the direction of writing, line separators), comes out as '?'. */
static uint32_t next_character(const unsigned char *p, int *length)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	int n = *p < 0x80 ? 1 : *p >= 0xC2 && *p < 0xE0 ? 2 : *p >= 0xE0 && *p < 0xF0 ? 3 : *p >= 0xF0 && *p < 0xF5 ? 4 : 0;
	uint32_t c = n == 1 ? *p : n ? *p & (0xFFu >> (n + 1)) : 0;

	*length = 1;
	for (int i = 1; i < n; i++) {
		if ((p[i] & 0xC0) != 0x80)
			return '?';
		c = c << 6 | (p[i] & 0x3Fu);
	}
	if (n == 0 || c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
		return '?';
	*length = n;
	bool unseen = c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
	              (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c & 0xFFFE) == 0xFFFE;
	return unseen ? '?' : c;
}

static void put_text(FILE *f, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	while (*p) {
		int length;
		uint32_t c = next_character(p, &length);
		switch (c) {
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
		case '\'':
			fputs("&#39;", f);
			break;
		case '?':
			fputc('?', f);
			break;
		default:
			fwrite(p, 1, (size_t)length, f);
		}
		p += length;
	}
}

void html_put(FILE *f, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	for (const char *p = format; *p; p++) {
		if (*p != '%') {
			fputc(*p, f);
			continue;
		}
		p++;
		/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start stands above */
		const char *text = *p == 's' || *p == 'r' ? va_arg(list, const char *) : "%";
		if (*p == 's')
			put_text(f, text);
		else
			fputs(text, f);
	}
	va_end(list);
}

/* ---- numbers ---- */

static char *buffer(void)
{
	static char ring[8][48];
	static int turn;
	turn = (turn + 1) % 8;
	return ring[turn];
}

static const char *special(double v)
{
	return isnan(v) ? "-" : v > 0.0 ? "Inf" : "-Inf";
}

const char *html_count(double n)
{
	char digits[32], *text = buffer();
	size_t at = 0;

	if (!isfinite(n))
		return special(n);
	if (fabs(n) >= 1e15 || n < 0.0) {
		snprintf(text, 48, "%.3g", n);
		return text;
	}
	snprintf(digits, sizeof digits, "%.0f", n);
	for (size_t i = 0, all = strlen(digits); i < all; i++) {
		if (i && (all - i) % 3 == 0)
			text[at++] = ',';
		text[at++] = digits[i];
	}
	text[at] = '\0';
	return text;
}

const char *html_short(double v)
{
	char *text = buffer();
	if (!isfinite(v))
		return special(v);
	if (v >= 1000.0 && v < 1e5)
		return html_count(round(v));
	if (v != 0.0 && (fabs(v) < 1e-3 || fabs(v) >= 1e5))
		snprintf(text, 48, "%.1e", v);
	else
		snprintf(text, 48, "%.3g", v);
	return text;
}

const char *html_exactly(double v)
{
	char *text = buffer();
	if (!isfinite(v))
		return special(v);
	snprintf(text, 48, "%.9g", v);
	return text;
}

const char *html_times(double v)
{
	char *text = buffer();
	if (!isfinite(v))
		return special(v);
	if (v >= 1e9) {
		snprintf(text, 48, "%.1e", v);
	} else if (v >= 1000.0) { /* two digits that count */
		double step = pow(10.0, floor(log10(v)) - 1.0);
		return html_count(round(v / step) * step);
	}
	if (v >= 1e9)
		return text;
	if (v >= 10.0)
		snprintf(text, 48, "%.0f", v);
	else if (v > 1.0 && v < 1.05)
		snprintf(text, 48, "%.4g", v); /* never "1.0 times its bound" for more than that */
	else
		snprintf(text, 48, "%.1f", v);
	return text;
}

const char *html_places(double v, int n)
{
	char *text = buffer();
	if (!isfinite(v))
		return special(v);
	if (fabs(v) >= 1e4)
		return html_count(round(v));
	snprintf(text, 48, "%.*f", n, v);
	return text;
}

/* ---- reading trees ---- */

const cJSON *html_get(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

const char *html_string(const cJSON *object, const char *name, const char *otherwise)
{
	const cJSON *item = html_get(object, name);
	return cJSON_IsString(item) && item->valuestring ? item->valuestring : otherwise;
}

double html_value(const cJSON *item)
{
	if (cJSON_IsNumber(item))
		return item->valuedouble;
	if (cJSON_IsString(item) && strcmp(item->valuestring, "inf") == 0)
		return HUGE_VAL;
	if (cJSON_IsString(item) && strcmp(item->valuestring, "-inf") == 0)
		return -HUGE_VAL;
	return (double)NAN;
}

double html_number(const cJSON *object, const char *name)
{
	return html_value(html_get(object, name));
}

bool html_true(const cJSON *object, const char *name)
{
	return cJSON_IsTrue(html_get(object, name));
}

void html_data_number(cJSON *array, double v)
{
	char text[32];
	if (isnan(v))
		cJSON_AddItemToArray(array, cJSON_CreateNull());
	else if (isinf(v))
		cJSON_AddItemToArray(array, cJSON_CreateRaw(v > 0.0 ? "1e999" : "-1e999")); /* JSON.parse reads Infinity */
	else if (v == floor(v) && fabs(v) < 1e15)
		cJSON_AddItemToArray(array, cJSON_CreateNumber(v));
	else {
		snprintf(text, sizeof text, "%.4g", v);
		cJSON_AddItemToArray(array, cJSON_CreateRaw(text));
	}
}

cJSON *html_data_string(const char *text)
{
	size_t n = strlen(text), at = 0;
	char *clean = malloc(n + 1);
	cJSON *item;

	for (size_t i = 0; clean && i < n;) {
		int length;
		uint32_t c = next_character((const unsigned char *)text + i, &length);
		if (c == '?')
			clean[at++] = '?';
		else
			for (int k = 0; k < length; k++)
				clean[at++] = text[i + (size_t)k];
		i += (size_t)length;
	}
	if (clean)
		clean[at] = '\0';
	item = cJSON_CreateString(clean ? clean : "?");
	free(clean);
	return item;
}

/* ---- pieces ---- */

void html_command(FILE *f, const char *label, const char *command)
{
	html_put(f,
		"<div class=\"cmd\"><span class=\"cmd-label\">%s</span><code tabindex=\"0\">%s</code>"
		"<button type=\"button\" class=\"copy\" aria-label=\"Copy: %s\">Copy</button></div>\n",
		label, command, label);
}

void html_table_begin(FILE *f, const char *caption, const char *head)
{
	html_put(f,
		"<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><caption "
		"class=\"sr\">%s</caption>"
		"<thead><tr>",
		caption, caption);
	while (*head) {
		size_t n = strcspn(head, "|");
		bool number = *head == '#';
		char text[64];
		snprintf(text, sizeof text, "%.*s", (int)(n - number), head + number);
		html_put(f, "<th scope=\"col\"%r>%s</th>", number ? " class=\"n\"" : "", text);
		head += n + (head[n] == '|');
	}
	fputs("</tr></thead><tbody>\n", f);
}

void html_table_end(FILE *f)
{
	fputs("</tbody></table></div>\n", f);
}

void html_cell(FILE *f, bool number, const char *text)
{
	html_put(f, number ? "<td class=\"n\">%s</td>" : "<td>%s</td>", text);
}

void html_mark(FILE *f, bool pass, const char *words)
{
	html_put(f, "<span class=\"mark %r\"><span aria-hidden=\"true\">%r</span> %s</span>", pass ? "ok" : "bad",
		pass ? "&#10003;" : "&#10007;", words);
}

/* ---- the frame ---- */

/* JSON inside markup: no '<' that could end the element. Its strings are html_data_string's. */
static void put_data(FILE *f, const char *json)
{
	for (const char *p = json; *p; p++)
		if (*p == '<' || *p == '>' || *p == '&')
			fprintf(f, "\\u%04x", (unsigned)*p);
		else
			fputc(*p, f);
}

/* The digest by which the page's policy knows its own script: nothing else may run in it. */
static void script_digest(char out[48])
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	struct plumb_sha256 sha;
	unsigned char byte[33] = {0};
	char hex[65];
	int n = 0;

	plumb_sha256_begin(&sha);
	plumb_sha256_add(&sha, html_js, html_js_size);
	plumb_sha256_end(&sha, hex);
	for (int i = 0; i < 32; i++) {
		const char *digits = hex + (size_t)2 * (size_t)i, pair[3] = {digits[0], digits[1]};
		byte[i] = (unsigned char)strtoul(pair, NULL, 16);
	}
	for (int i = 0; i < 33; i += 3) {
		uint32_t v = (uint32_t)byte[i] << 16 | (uint32_t)byte[i + 1] << 8 | (i + 2 < 32 ? byte[i + 2] : 0u);
		for (int k = 18; k >= 0; k -= 6)
			out[n++] = set[v >> k & 63];
	}
	out[43] = '=';
	out[44] = '\0';
}

static void put_head(FILE *f, const struct html_head *head)
{
	static const char *const mood[] = {"pass", "fail", "note"}, *const sign[] = {"&#10003;", "&#10007;", ""};
	char digest[48];

	script_digest(digest);
	html_put(f,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
		"script-src 'sha256-%r'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
		"<title>%s - %s</title>\n<style>\n",
		digest, head->verdict, head->command);
	fwrite(html_css, 1, html_css_size, f);
	html_put(f,
		"</style>\n</head>\n<body>\n<header class=\"top\"><span class=\"brand\">%s</span>"
		"<svg id=\"ns\" width=\"0\" height=\"0\" aria-hidden=\"true\"></svg>"
		"<button type=\"button\" id=\"theme\" hidden>Dark</button></header>\n"
		"<main>\n<section class=\"verdict %r\" aria-label=\"Verdict\">\n"
		"<span class=\"sign\" aria-hidden=\"true\">%r</span><div><h1>%s</h1>\n",
		head->command, mood[head->mood], sign[head->mood], head->verdict);
	if (head->detail[0])
		html_put(f, "<p>%s</p>\n", head->detail);
	fputs("</div></section>\n", f);
}

static void fact(FILE *f, const cJSON *report, const char *key, const char *member)
{
	const char *text = html_string(report, member, "");
	if (*text)
		html_put(f, "<dt>%s</dt><dd>%s</dd>\n", key, text);
}

/* What made it, of every report. */
static void put_origin(FILE *f, const cJSON *report)
{
	const cJSON *again = html_get(report, "inputs"), *one;

	fputs("<section aria-labelledby=\"origin\"><h2 id=\"origin\">Made from</h2>\n<dl class=\"facts\">\n", f);
	fact(f, report, "golden", "golden");
	fact(f, report, "producer", "producer");
	fact(f, report, "checkpoint", "checkpoint");
	fact(f, report, "model", "model");
	fact(f, report, "profile", "profile");
	fact(f, report, "set", "set");
	fact(f, report, "runs on", "runs_on");
	fact(f, report, "suspects", "suspects");
	fact(f, report, "truth", "truth");
	fact(f, report, "ties", "ties");
	fact(f, report, "digest", "digest");
	cJSON_ArrayForEach (one, again)
		html_put(f, "<dt>%s</dt><dd>%s</dd>\n", html_string(one, "key", "-"), html_string(one, "value", "-"));
	html_put(f, "<dt>plumb</dt><dd>%s, commit %s</dd>\n", html_string(report, "version", "-"),
		html_string(report, "commit", "-"));
	fact(f, report, "date", "date");
	fputs("</dl>\n", f);
	if (*html_string(report, "command", ""))
		html_command(f, "command", html_string(report, "command", ""));
	fputs("</section>\n", f);
}

struct kind {
	const char *format;
	cJSON *(*from)(const cJSON *report); /* what it is turned into before; NULL: nothing */
	void (*head)(const cJSON *report, struct html_head *head);
	void (*body)(FILE *f, const cJSON *report, cJSON *data);
};

static const struct kind kinds[] = {
	{"plumb check 1", NULL, html_check_head, html_check_body},
	{"plumb bisect 1", NULL, html_bisect_head, html_bisect_body},
	{"plumb bench 1", NULL, html_bench_head, html_bench_body},
	{"plumb score 1", NULL, html_score_head, html_score_body},
	{"plumb faults score 1", html_score_of_faults, html_score_head, html_score_body},
	{"plumb merge 1", html_score_of_merge, html_score_head, html_score_body},
	{"plumb test 1", html_score_of_test, html_score_head, html_score_body},
};

char *html_page(const cJSON *report, size_t *size, struct plumb_error *err)
{
	const char *format = html_string(report, "format", "");
	const struct kind *kind = NULL;
	struct html_head head = {.command = "plumb"};
	char *page = NULL, *json = NULL;
	bool good;

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (strcmp(format, kinds[i].format) == 0)
			kind = &kinds[i];
	if (!kind) {
		plumb_fail(err, PLUMB_BAD_INPUT, "no page for a report of format '%.60s'", format);
		return NULL;
	}
	cJSON *data = cJSON_CreateObject(), *turned = kind->from ? kind->from(report) : NULL;
	if (turned)
		report = turned;
	FILE *f = open_memstream(&page, size);
	if (data && f) {
		kind->head(report, &head);
		put_head(f, &head);
		kind->body(f, report, data);
		put_origin(f, report);
		fputs("</main>\n<script type=\"application/json\" id=\"data\">", f);
		json = cJSON_PrintUnformatted(data);
		put_data(f, json ? json : "null");
		fputs("</script>\n<script>", f);
		fwrite(html_js, 1, html_js_size, f);
		fputs("</script>\n</body>\n</html>\n", f);
	}
	good = f && json && !ferror(f);
	if (f && fclose(f) != 0)
		good = false;
	cJSON_free(json);
	cJSON_Delete(data);
	cJSON_Delete(turned);
	if (!good) {
		free(page);
		plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the page");
		return NULL;
	}
	return page;
}

int html_write(const cJSON *report, const char *path, struct plumb_error *err)
{
	size_t size = 0;
	char *page = html_page(report, &size, err);
	int status = page ? output_file(path, page, size, err) : PLUMB_BAD_INPUT;
	free(page);
	return status;
}
