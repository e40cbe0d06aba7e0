/* SPDX-License-Identifier: MIT */
/* Reading JSON that somebody else wrote: grammar, limits, values. */
#include <cJSON.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "tests/support/suite.h"

/* A message is one line that begins with the file. */
static void check_message(const struct plumb_error *err, const char *file, const char *contains, const char *what)
{
	ck_assert_msg(strncmp(err->text, file, strlen(file)) == 0, "%s: message \"%s\" does not begin with %s", what,
		err->text, file);
	ck_assert_msg(
		strstr(err->text, contains) != NULL, "%s: message \"%s\" does not name %s", what, err->text, contains);
	ck_assert_msg(strchr(err->text, '\n') == NULL, "%s: more than a line", what);
}

static const struct plumb_json_limits wide = {.bytes = 1 << 20, .depth = 64, .values = 1000};

static int parse_limited(const char *text, size_t size, struct plumb_error *err)
{
	cJSON *tree = NULL;
	int status = plumb_json_parse(text, size, "x.json", &wide, &tree, err);
	cJSON_Delete(tree);
	return status;
}

/* What passes arrives as it was written. */
START_TEST(accepted_text)
{
	static const char text[] =
		" {\"a\": -0.5e+1, \"b\": \"\\u00e9\\ud83d\\ude00\\/\\n\xc3\xa9\",\n"
		"\"c\": [true, false, null, {}, []], \"\": 9007199254740992, \"d\": 1e400, \"A\": 7}\r\n\t";
	static const struct plumb_json_limits limits = {.bytes = 1000, .depth = 3, .values = 12};
	cJSON *tree = NULL;
	struct plumb_error err = {""};
	int status = plumb_json_parse(text, sizeof text - 1, "x.json", &limits, &tree, &err);
	ck_assert_msg(status == PLUMB_OK, "%s", err.text);
	struct plumb_json_object o = {.object = tree, .file = "x.json", .path = "", .err = &err};
	ck_assert_int_eq(plumb_json_int(&o, "a", -5, -5, NULL), -5);
	ck_assert_str_eq(plumb_json_string(&o, "b", NULL), "\xc3\xa9\xf0\x9f\x98\x80/\n\xc3\xa9");
	ck_assert_int_eq(plumb_json_int(&o, "", 0, INT64_MAX, NULL), INT64_C(9007199254740992));
	ck_assert_int_eq(plumb_json_int(&o, "A", 0, 9, NULL), 7); /* names differ by case */
	ck_assert_int_eq(cJSON_GetArraySize(plumb_json_array(&o, "c", true)), 5);
	ck_assert_ptr_null(plumb_json_child(&o, "e", false));
	ck_assert_int_eq(o.status, PLUMB_OK);
	/* the first failure stands; what is read after it gives the fallback */
	plumb_json_number(&o, "d", 0, 1e308, NULL);
	ck_assert_int_eq(o.status, PLUMB_BAD_INPUT);
	check_message(&err, "x.json: ", "d is inf, expected a number in 0..1e+308", "inf");
	static const int64_t fallback = 3;
	ck_assert_int_eq(plumb_json_int(&o, "A", 0, 9, &fallback), 3);
	plumb_json_bool(&o, "A", NULL);
	check_message(&err, "x.json: ", "d is inf", "kept");
	cJSON_Delete(tree);
}
END_TEST

/* Fields that are absent, by the names an object has: what they are taken for is told, and a word that must have been meant for
 * one of them is refused, or named beside what is missing. */
START_TEST(absent_fields)
{
	static const char *const names[] = {"seed", "rate", "rates", "layer_types", "scale", "title", NULL};
	static const struct {
		const char *text, *absent, *message;
	} cases[] = {
		{"{}", "seed 1234, rate 0.5, scale true, title none yet, layer_types none", NULL},
		{"{\"seed\": 7, \"layer_types\": [], \"title\": \"x\"}", "rate 0.5, scale true", NULL},
		{"{\"rates\": 1, \"sede\": null, \"seed\": null, \"spade\": 2}",
			"seed 1234, rate 0.5, scale true, title none yet, layer_types none", NULL},
		{"{\"sede\": 7}", NULL, "o.sede is no field here, expected seed, which is absent"},
		{"{\"Seed\": 7}", NULL, "o.Seed is no field here, expected seed, which is absent"},
		{"{\"scael\": false}", NULL, "o.scael is no field here, expected scale, which is absent"},
		{"{\"layr_type\": []}", NULL,
			"o.layr_type is no field here, expected layer_types, which is absent (null, if its default is "
			"meant)"},
	};
	static const int64_t seed = 1234;
	static const double rate = 0.5;
	static const bool scale = true;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct plumb_error err = {""};
		char absent[128] = "";
		struct cJSON *tree;
		ck_assert_int_eq(
			plumb_json_parse(cases[i].text, strlen(cases[i].text), "x.json", &wide, &tree, &err), PLUMB_OK);
		struct plumb_json_object o = {.object = tree,
			.file = "x.json",
			.path = "o.",
			.err = &err,
			.names = names,
			.absent = absent,
			.absent_size = sizeof absent};
		plumb_json_int(&o, "seed", 0, 9999, &seed);
		plumb_json_number(&o, "rate", 0, 1, &rate);
		plumb_json_bool(&o, "scale", &scale);
		plumb_json_string(&o, "title", "none yet");
		plumb_json_array(&o, "layer_types", false);
		ck_assert_int_eq(o.status, cases[i].message ? PLUMB_BAD_INPUT : PLUMB_OK);
		if (cases[i].message)
			check_message(&err, "x.json: ", cases[i].message, cases[i].text);
		else
			ck_assert_str_eq(absent, cases[i].absent);
		if (strstr(cases[i].text, "\"sede\": 7")) { /* one that has to be there */
			o.status = PLUMB_OK;
			plumb_json_int(&o, "seed", 0, 9, NULL);
			check_message(&err,
				"x.json: ", "o.seed is missing, expected a whole number in 0..9; 'sede' is there",
				"missing");
		}
		cJSON_Delete(tree);
	}
}
END_TEST

/* Text that is no JSON, or JSON that readers disagree about. */
START_TEST(refused_text)
{
#define TEXT(s) s, sizeof s - 1
	static const struct {
		const char *text;
		size_t size;
		const char *contains;
	} cases[] = {
		{TEXT(""), "expected a value"},
		{TEXT("   \n"), "line 2"},
		{TEXT("{"), "expected a string"},
		{TEXT("{\"a\""), "expected ':'"},
		{TEXT("{\"a\":"), "expected a value"},
		{TEXT("{\"a\":1"), "expected ',' or '}'"},
		{TEXT("{\"a\":1,}"), "expected a string"},
		{TEXT("{\"a\":1 \"b\":2}"), "expected ',' or '}'"},
		{TEXT("{a:1}"), "expected a string"},
		{TEXT("{'a':1}"), "expected a string"},
		{TEXT("{1:1}"), "expected a string"},
		{TEXT("[1,]"), "expected a value of JSON"},
		{TEXT("[1"), "expected ',' or ']'"},
		{TEXT("{} x"), "expected the end"},
		{TEXT("{}{}"), "expected the end"},
		{TEXT("{}\0"), "byte 2"},
		{TEXT("\0{}"), "byte 0"},
		{TEXT("{\"a\0b\":1}"), "byte 3"},
		{TEXT("\xEF\xBB\xBF{}"), "byte 0"},
		{TEXT("{\"a\":01}"), "expected ',' or '}'"},
		{TEXT("{\"a\":+1}"), "expected a value of JSON"},
		{TEXT("{\"a\":.5}"), "expected a value of JSON"},
		{TEXT("{\"a\":1.}"), "expected a digit"},
		{TEXT("{\"a\":1e}"), "expected a digit"},
		{TEXT("{\"a\":-}"), "expected a digit"},
		{TEXT("{\"a\":0x10}"), "expected ',' or '}'"},
		{TEXT("{\"a\":NaN}"), "NaN"},
		{TEXT("{\"a\":Infinity}"), "Infinity"},
		{TEXT("{\"a\":-Infinity}"), "expected a digit"},
		{TEXT("{\"a\":True}"), "expected a value of JSON"},
		{TEXT("{\"a\":nul}"), "expected a value of JSON"},
		{TEXT("{\"a\":1} // x"), "expected the end"},
		{TEXT("{/**/\"a\":1}"), "expected a string"},
		{TEXT("{\"a\":\"x\ny\"}"), "control characters"},
		{TEXT("{\"a\":\"x\x01\"}"), "control characters"},
		{TEXT("{\"a\":\"\\x41\"}"), "an escape of JSON"},
		{TEXT("{\"a\":\"\\u12\"}"), "four hex digits"},
		{TEXT("{\"a\":\"\\u0000\"}"), "\\u0000"},
		{TEXT("{\"a\\u0000b\":1}"), "\\u0000"},
		{TEXT("{\"a\":\"\\ud800\"}"), "low surrogate"},
		{TEXT("{\"a\":\"\\ud800\\u0041\"}"), "low surrogate"},
		{TEXT("{\"a\":\"\\udc00\"}"), "high surrogate"},
		{TEXT("{\"a\":\"\xff\"}"), "UTF-8"},
		{TEXT("{\"a\":\"\xc0\x80\"}"), "UTF-8"},         /* an overlong NUL */
		{TEXT("{\"a\":\"\xc3\"}"), "UTF-8"},             /* cut short by the quote */
		{TEXT("{\"a\":\"\xed\xa0\x80\"}"), "UTF-8"},     /* a surrogate */
		{TEXT("{\"a\":\"\xf4\x90\x80\x80\"}"), "UTF-8"}, /* beyond U+10FFFF */
		{TEXT("{\"a\":\"\xe2\x82"), "UTF-8"},            /* cut short by the end */
		{TEXT("{\"a\":\"x"), "the rest of a string"},
		{TEXT("{\"a\":\"x\\"), "an escape of JSON"},
		{TEXT("{\"a\":1111111111111111111111111111111111111111111111111111111111111111}"), "63 characters"},
		{TEXT("{\"a\":1,\"b\":2,\"a\":1}"), "field \"a\" stands twice"},
		{TEXT("{\"a\":1,\"\\u0061\":2}"), "field \"a\" stands twice"},
		{TEXT("{\"x\":[{\"q\":{\"hidden_size\":1,\"hidden_size\":2}}]}"), "field \"hidden_size\" stands twice"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct plumb_error err = {""};
		/* exactly sized memory, so that a read past the end shows under AddressSanitizer */
		char *copy = malloc(cases[i].size + !cases[i].size);
		memcpy(copy, cases[i].text, cases[i].size);
		int status = parse_limited(copy, cases[i].size, &err);
		free(copy);
		ck_assert_msg(status == PLUMB_BAD_INPUT, "case %zu: %s: accepted", i, cases[i].text);
		check_message(&err, "x.json: ", cases[i].contains, cases[i].text);
	}
}
END_TEST

START_TEST(limits)
{
	struct plumb_error err = {""};
	char *text = malloc(4 << 20);
	for (int depth = 63; depth <= 66; depth++) {
		memset(text, '[', (size_t)depth);
		memset(text + depth, ']', (size_t)depth);
		int status = parse_limited(text, 2 * (size_t)depth, &err);
		ck_assert_int_eq(status, depth <= 64 ? PLUMB_OK : PLUMB_BAD_INPUT);
		if (status)
			check_message(&err, "x.json: byte 64", "no more than 64 arrays", "depth");
	}
	/* depth is what is open, not what there was */
	size_t n = 1;
	text[0] = '[';
	for (int i = 0; i < 400; i++)
		n += (size_t)sprintf(text + n, "%s[[]]", i ? "," : "");
	text[n++] = ']';
	ck_assert_msg(parse_limited(text, n, &err) == PLUMB_OK, "%s", err.text);
	/* a million brackets must not use a million stack frames */
	memset(text, '[', 1 << 20);
	ck_assert_int_eq(parse_limited(text, 1 << 20, &err), PLUMB_BAD_INPUT);
	memset(text, '{', 1 << 20);
	ck_assert_int_eq(parse_limited(text, 1 << 20, &err), PLUMB_BAD_INPUT);
	/* size, then number of values */
	memset(text, ' ', 2 << 20);
	ck_assert_int_eq(parse_limited(text, (1 << 20) + 1, &err), PLUMB_BAD_INPUT);
	check_message(&err, "x.json: ", "has 1048577 bytes, expected at most 1048576", "size");
	for (int count = 999; count <= 1001; count++) {
		n = 0;
		text[n++] = '[';
		for (int i = 1; i < count; i++)
			n += (size_t)sprintf(text + n, "%s7", i > 1 ? "," : "");
		text[n++] = ']';
		ck_assert_int_eq(parse_limited(text, n, &err), count <= 1000 ? PLUMB_OK : PLUMB_BAD_INPUT);
	}
	check_message(&err, "x.json: ", "no more than 1000 values", "values");
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json");
	TCase *all = suite_part(suite, "all", 60);
	tcase_add_test(all, accepted_text);
	tcase_add_test(all, absent_fields);
	tcase_add_test(all, refused_text);
	tcase_add_test(all, limits);
	return suite_run(suite);
}
