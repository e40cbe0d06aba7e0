/* SPDX-License-Identifier: MIT */
#include "tools/unit_report.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/output.h"

static const char *field(const cJSON *o, const char *name)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
	return cJSON_IsString(x) ? x->valuestring : "";
}

/* Calls fn for every unit and what stands beside them; failure is one more, which failed. */
static void each(const cJSON *object, FILE *f, void (*fn)(FILE *, const char *, const char *, const char *, const char *))
{
	static const char *const lists[] = {"units", "also"};
	const char *command = field(object, "command"), *failure = field(object, "failure");

	for (int i = 0; i < 2; i++)
		for (const cJSON *u = cJSON_GetObjectItemCaseSensitive(object, lists[i])
		                              ? cJSON_GetObjectItemCaseSensitive(object, lists[i])->child
		                              : NULL;
			u; u = u->next)
			fn(f, command, field(u, "name"), field(u, "verdict"), field(u, "text"));
	if (*failure)
		fn(f, command, "run", "fail", failure);
}

static int finish(FILE *f, char **text, const size_t *size, const char *what, const char *path, struct plumb_error *err)
{
	bool good = !ferror(f);
	int status;

	good = fclose(f) == 0 && good;
	status = good ? output_file(path, *text, *size, err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the %s report", what);
	free(*text);
	return status;
}

/* ---- JUnit ---- */

static int count_of[3]; /* of the report that is being written: units, failures, skipped */

static void count(FILE *f, const char *command, const char *name, const char *verdict, const char *text)
{
	(void)f;
	(void)command;
	(void)name;
	(void)text;
	count_of[0]++;
	count_of[1] += strcmp(verdict, "fail") == 0;
	count_of[2] += strcmp(verdict, "skip") == 0;
}

static void xml(FILE *f, const char *text, size_t n)
{
	for (size_t i = 0; i < n && text[i]; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c == '<')
			fputs("&lt;", f);
		else if (c == '>')
			fputs("&gt;", f);
		else if (c == '&')
			fputs("&amp;", f);
		else if (c == '"')
			fputs("&quot;", f);
		else
			fputc(c < 0x20 || c >= 0x7f ? '?' : c, f);
	}
}

/* "local/layer03/gdn/output": class plumb.check.local.layer03.gdn, name output. */
static void testcase(FILE *f, const char *command, const char *name, const char *verdict, const char *text)
{
	const char *slash = strrchr(name, '/');
	size_t n = slash ? (size_t)(slash - name) : 0;

	fprintf(f, "  <testcase classname=\"plumb.");
	for (const char *p = command; *p; p++)
		fputc(*p == ' ' ? '_' : *p, f);
	if (n)
		fputc('.', f);
	for (size_t i = 0; i < n; i++) {
		xml(f, name[i] == '/' ? "." : name + i, 1);
	}
	fprintf(f, "\" name=\"");
	xml(f, slash ? slash + 1 : name, strlen(name));
	if (strcmp(verdict, "pass") == 0) {
		fprintf(f, "\"/>\n");
		return;
	}
	fprintf(f, "\"><%s message=\"", strcmp(verdict, "skip") == 0 ? "skipped" : "failure");
	xml(f, text, strlen(text));
	fprintf(f, "\"/></testcase>\n");
}

int unit_report_junit(const struct cJSON *object, const char *path, struct plumb_error *err)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JUnit report");
	memset(count_of, 0, sizeof count_of);
	each(object, NULL, count);
	fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plumb ");
	xml(f, field(object, "command"), 80);
	fprintf(f, "\">\n <testsuite name=\"");
	xml(f, field(object, "command"), 80);
	fprintf(f, "\" tests=\"%d\" failures=\"%d\" skipped=\"%d\">\n", count_of[0], count_of[1], count_of[2]);
	each(object, f, testcase);
	fprintf(f, " </testsuite>\n</testsuites>\n");
	return finish(f, &text, &size, "JUnit", path, err);
}

/* ---- TAP ---- */

static int number; /* of the line that is being written */

static void plain(FILE *f, const char *text)
{
	for (; *text; text++) /* '#' would begin a directive */
		fputc(*text == '#' ? '?' : (unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f ? '?' : *text, f);
}

static void line(FILE *f, const char *command, const char *name, const char *verdict, const char *text)
{
	(void)command;
	fprintf(f, "%s %d - ", strcmp(verdict, "fail") == 0 ? "not ok" : "ok", ++number);
	plain(f, name);
	if (strcmp(verdict, "skip") == 0) {
		fprintf(f, " # SKIP ");
		plain(f, text);
	}
	fputc('\n', f);
	if (strcmp(verdict, "fail") == 0 && *text) {
		fprintf(f, "# ");
		plain(f, text);
		fputc('\n', f);
	}
}

int unit_report_tap(const struct cJSON *object, const char *path, struct plumb_error *err)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the TAP report");
	memset(count_of, 0, sizeof count_of);
	number = 0;
	each(object, NULL, count);
	fprintf(f, "TAP version 13\n1..%d\n", count_of[0]);
	each(object, f, line);
	return finish(f, &text, &size, "TAP", path, err);
}
