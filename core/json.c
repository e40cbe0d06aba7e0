/* SPDX-License-Identifier: MIT */
#include "core/json.h"

#include <cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/spelling.h"

enum {
	DEPTH_MAX = 256,   /* of this file's and cJSON's recursion: both use about 100 bytes of stack a level */
	NUMBER_CHARS = 63, /* cJSON copies a number into 64 bytes and would read the rest as something else */
};
#define EXACT_INT 9007199254740992.0 /* 2^53: from here on binary64 does not hold every integer */

struct scan {
	const unsigned char *start, *p, *end; /* *end is a NUL */
	const char *name;
	struct plumb_error *err;
	size_t values_left;
	int depth_left;
	const struct plumb_json_limits *limits;
};

static int scan_fail(const struct scan *s, const char *expected)
{
	size_t line = 1;
	char found[24] = "the end";
	for (const unsigned char *p = s->start; p < s->p; p++)
		line += *p == '\n';
	unsigned char byte = s->p < s->end ? *s->p : 0;
	if (byte > 0x20 && byte < 0x7f)
		snprintf(found, sizeof found, "'%c'", byte);
	else if (s->p < s->end)
		snprintf(found, sizeof found, "byte 0x%02X", byte);
	return plumb_fail(s->err, PLUMB_BAD_INPUT, "%s: byte %zu, line %zu: found %s, expected %s", s->name,
		(size_t)(s->p - s->start), line, found, expected);
}

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static bool is_digit(const struct scan *s)
{
	return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

/* Four hex digits at s->p; -1: not that. Moves past them. */
static int hex4(struct scan *s)
{
	int code = 0;
	for (int i = 0; i < 4; i++, s->p++) {
		if (s->p == s->end)
			return -1;
		int c = *s->p;
		if (c >= '0' && c <= '9')
			code = code * 16 + c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			code = code * 16 + (c | 0x20) - 'a' + 10;
		else
			return -1;
	}
	return code;
}

/* After the backslash. \u0000 is refused: C strings would end there, and two keys that differ behind it be one. */
static int scan_escape(struct scan *s)
{
	static const char kinds[] = "\"\\/bfnrtu";

	if (s->p == s->end || !memchr(kinds, *s->p, sizeof kinds - 1))
		return scan_fail(s, "an escape of JSON");
	if (*s->p++ != 'u')
		return PLUMB_OK;
	int code = hex4(s);
	if (code <= 0)
		return scan_fail(s, code == 0 ? "no \\u0000 before it" : "four hex digits");
	if (code >= 0xDC00 && code <= 0xDFFF)
		return scan_fail(s, "a high surrogate before the low one");
	if (code >= 0xD800 && code <= 0xDBFF) {
		if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
			return scan_fail(s, "\\u and a low surrogate");
		s->p += 2;
		code = hex4(s);
		if (code < 0xDC00 || code > 0xDFFF)
			return scan_fail(s, "a low surrogate before it");
	}
	return PLUMB_OK;
}

static int scan_string(struct scan *s)
{
	int status = PLUMB_OK;
	if (s->p == s->end || *s->p != '"')
		return scan_fail(s, "a string");
	s->p++;
	while (!status) {
		if (s->p == s->end || *s->p < 0x20)
			return scan_fail(s, "the rest of a string (control characters are written as escapes)");
		if (*s->p == '"') {
			s->p++;
			return PLUMB_OK;
		}
		if (*s->p == '\\') {
			s->p++;
			status = scan_escape(s);
		} else {
			size_t n = plumb_utf8_length((const char *)s->p);
			if (n == 0)
				return scan_fail(s, "UTF-8");
			s->p += n;
		}
	}
	return status;
}

static int scan_number(struct scan *s)
{
	const unsigned char *first = s->p;
	if (*s->p == '-')
		s->p++;
	if (!is_digit(s))
		return scan_fail(s, "a digit");
	if (*s->p == '0')
		s->p++;
	else
		while (is_digit(s))
			s->p++;
	if (s->p < s->end && *s->p == '.') {
		s->p++;
		if (!is_digit(s))
			return scan_fail(s, "a digit");
		while (is_digit(s))
			s->p++;
	}
	if (s->p < s->end && (*s->p | 0x20) == 'e') {
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		if (!is_digit(s))
			return scan_fail(s, "a digit");
		while (is_digit(s))
			s->p++;
	}
	if (s->p - first > NUMBER_CHARS)
		return scan_fail(s, "a number of at most 63 characters before it");
	return PLUMB_OK;
}

static int scan_word(struct scan *s, const char *word)
{
	size_t n = strlen(word);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return scan_fail(s, "a value of JSON (NaN and Infinity are none)");
	s->p += n;
	return PLUMB_OK;
}

static int scan_value(struct scan *s);

/* After '[' or '{'. */
static int scan_members(struct scan *s, unsigned char close)
{
	int status;
	if (s->depth_left-- == 0) {
		s->p--;
		char expected[64];
		snprintf(expected, sizeof expected, "no more than %d arrays and objects inside one another",
			s->limits->depth);
		return scan_fail(s, expected);
	}
	skip_space(s);
	if (s->p < s->end && *s->p == close) {
		s->p++;
		s->depth_left++;
		return PLUMB_OK;
	}
	for (;;) {
		skip_space(s);
		if (close == '}') {
			if ((status = scan_string(s)))
				return status;
			skip_space(s);
			if (s->p == s->end || *s->p != ':')
				return scan_fail(s, "':'");
			s->p++;
		}
		if ((status = scan_value(s)))
			return status;
		skip_space(s);
		if (s->p < s->end && *s->p == close)
			break;
		if (s->p == s->end || *s->p != ',')
			return scan_fail(s, close == '}' ? "',' or '}'" : "',' or ']'");
		s->p++;
	}
	s->p++;
	s->depth_left++;
	return PLUMB_OK;
}

static int scan_value(struct scan *s)
{
	skip_space(s);
	if (s->p == s->end)
		return scan_fail(s, "a value");
	if (s->values_left-- == 0) {
		char expected[64];
		snprintf(expected, sizeof expected, "no more than %zu values", s->limits->values);
		return scan_fail(s, expected);
	}
	switch (*s->p) {
	case '{':
		s->p++;
		return scan_members(s, '}');
	case '[':
		s->p++;
		return scan_members(s, ']');
	case '"':
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		return *s->p == '-' || is_digit(s) ? scan_number(s) : scan_word(s, "a value");
	}
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuse an object that has a key twice: readers disagree on which one counts, which is how a file says one thing to a
 * checker and another to a loader. Sorted, so that an index of 300 000 names takes no quadratic time. */
static int check_keys(const cJSON *tree, const char *name, struct plumb_error *err)
{
	int status = PLUMB_OK;
	size_t count = 0;
	const char *few[32], **keys = few;
	const cJSON *item;

	cJSON_ArrayForEach (item, tree) {
		if (item->child && (status = check_keys(item, name, err)))
			return status;
		count++;
	}
	if (!cJSON_IsObject(tree) || count < 2)
		return PLUMB_OK;
	if (count > sizeof few / sizeof few[0] && !(keys = malloc(count * sizeof *keys)))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for an object of %zu fields", name, count);
	count = 0;
	cJSON_ArrayForEach (item, tree)
		keys[count++] = item->string;
	qsort(keys, count, sizeof *keys, compare_keys);
	for (size_t i = 1; i < count && !status; i++)
		if (strcmp(keys[i - 1], keys[i]) == 0)
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: field \"%.160s\" stands twice in one object, expected once", name, keys[i]);
	if (keys != few)
		free(keys);
	return status;
}

/* text[size] is a NUL. */
static int parse_terminated(const char *text, size_t size, const char *name, const struct plumb_json_limits *limits,
	cJSON **out, struct plumb_error *err)
{
	const unsigned char *bytes = (const unsigned char *)text;
	struct scan s = {
		.start = bytes,
		.p = bytes,
		.end = bytes + size,
		.name = name,
		.err = err,
		.values_left = limits->values,
		.depth_left = limits->depth < DEPTH_MAX ? limits->depth : DEPTH_MAX,
		.limits = limits,
	};
	int status = scan_value(&s);
	if (status)
		return status;
	skip_space(&s);
	if (s.p != s.end)
		return scan_fail(&s, "the end");

	cJSON *tree = cJSON_ParseWithLength(text, size + 1);
	if (!tree) /* the scan passed it, so this is memory */
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %zu bytes of JSON", name, size);
	status = check_keys(tree, name, err);
	if (status)
		cJSON_Delete(tree);
	else
		*out = tree;
	return status;
}

int plumb_json_parse(const char *text, size_t size, const char *name, const struct plumb_json_limits *limits,
	struct cJSON **out, struct plumb_error *err)
{
	if (size > limits->bytes)
		return plumb_file_too_long(name, size, limits->bytes, err);
	/* cJSON's length-bounded parsing has read past the end before (CVE-2023-53154): give it a NUL to stop at. */
	char *copy = malloc(size + 1);
	if (!copy)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %zu bytes of JSON", name, size);
	if (size)
		memcpy(copy, text, size);
	copy[size] = 0;
	int status = parse_terminated(copy, size, name, limits, out, err);
	free(copy);
	return status;
}

int plumb_json_read(const char *path, const struct plumb_json_limits *limits, struct cJSON **out, struct plumb_error *err)
{
	char *text;
	size_t size;
	int status = plumb_file_read(path, limits->bytes, &text, &size, err);
	if (status)
		return status;
	status = parse_terminated(text, size, path, limits, out, err);
	free(text);
	return status;
}

const struct cJSON *plumb_json_field(const struct plumb_json_object *o, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(o->object, key);
	return cJSON_IsNull(item) ? NULL : item;
}

const char *plumb_json_show(const struct cJSON *item, char text[64])
{
	if (!item)
		snprintf(text, 64, "missing");
	else if (cJSON_IsNumber(item))
		snprintf(text, 64, "%.17g", item->valuedouble);
	else if (cJSON_IsString(item))
		snprintf(text, 64, "\"%.56s\"", item->valuestring);
	else if (cJSON_IsArray(item))
		snprintf(text, 64, "an array");
	else if (cJSON_IsObject(item))
		snprintf(text, 64, "an object");
	else
		snprintf(text, 64, "%s", cJSON_IsNull(item) ? "null" : cJSON_IsTrue(item) ? "true" : "false");
	return text;
}

/* What stands in an object in place of an absent field: a name that is nearly the same and none of the object's own. A field
 * that is null is left out on purpose. */
static const char *misspelt(const struct plumb_json_object *o, const char *key)
{
	enum { NEAR = 2, LOOKED_AT = 1000 }; /* objects that people write have a hundred fields */
	const int most = strlen(key) / 3 < NEAR ? (int)strlen(key) / 3 : NEAR;
	int looked = 0;

	if (!o->names || !o->object || cJSON_GetObjectItemCaseSensitive(o->object, key))
		return NULL;
	for (const cJSON *item = o->object->child; item && looked < LOOKED_AT; item = item->next, looked++) {
		const char *const *name = o->names;
		while (*name && strcmp(*name, item->string) != 0)
			name++;
		if (!*name && plumb_spelling_distance(item->string, key) <= most)
			return item->string;
	}
	return NULL;
}

/* An absent field gets the fallback that format says; nothing, once something has failed. */
__attribute__((format(printf, 3, 4))) static void fall_back(
	struct plumb_json_object *o, const char *key, const char *format, ...)
{
	const char *other = misspelt(o, key);
	size_t used = o->absent ? strlen(o->absent) : 0;
	char value[64];
	va_list ap;

	if (o->status)
		return;
	if (other)
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
			"%s: %s%.64s is no field here, expected %s, which is absent (null, if its default is meant)",
			o->file, o->path, other, key);
	if (!o->absent)
		return;
	va_start(ap, format);
	vsnprintf(value, sizeof value, format, ap);
	va_end(ap);
	if (used + strlen(key) + strlen(value) + 4 <= o->absent_size)
		snprintf(o->absent + used, o->absent_size - used, "%s%s %s", used ? ", " : "", key, value);
}

static void field_fail(struct plumb_json_object *o, const char *key, const cJSON *item, const char *expected)
{
	const char *other = item ? NULL : misspelt(o, key);
	char shown[64];
	o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: %s%s is %s, expected %s%s%.64s%s", o->file, o->path, key,
		plumb_json_show(item, shown), expected, other ? "; '" : "", other ? other : "", other ? "' is there" : "");
}

bool plumb_json_item_int(const struct cJSON *item, int64_t min, int64_t max, int64_t *out)
{
	if (!cJSON_IsNumber(item))
		return false;
	double v = item->valuedouble;
	if (!(fabs(v) <= EXACT_INT) || v != trunc(v))
		return false;
	int64_t whole = (int64_t)v;
	if (whole < min || whole > max)
		return false;
	*out = whole;
	return true;
}

int64_t plumb_json_int(struct plumb_json_object *o, const char *key, int64_t min, int64_t max, const int64_t *fallback)
{
	int64_t value = fallback ? *fallback : 0;
	const cJSON *item = plumb_json_field(o, key);
	if (!item && fallback)
		fall_back(o, key, "%lld", (long long)value);
	if (o->status || (!item && fallback))
		return value;
	if (!plumb_json_item_int(item, min, max, &value)) {
		char expected[96];
		int64_t exact = (int64_t)EXACT_INT;
		snprintf(expected, sizeof expected, "a whole number in %lld..%lld",
			(long long)(min < -exact ? -exact : min), (long long)(max > exact ? exact : max));
		field_fail(o, key, item, expected);
	}
	return value;
}

double plumb_json_number(struct plumb_json_object *o, const char *key, double min, double max, const double *fallback)
{
	double value = fallback ? *fallback : 0;
	const cJSON *item = plumb_json_field(o, key);
	if (!item && fallback)
		fall_back(o, key, "%g", value);
	if (o->status || (!item && fallback))
		return value;
	if (cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max)
		return item->valuedouble;
	char expected[96];
	snprintf(expected, sizeof expected, "a number in %g..%g", min, max);
	field_fail(o, key, item, expected);
	return value;
}

bool plumb_json_bool(struct plumb_json_object *o, const char *key, const bool *fallback)
{
	bool value = fallback ? *fallback : false;
	const cJSON *item = plumb_json_field(o, key);
	if (!item && fallback)
		fall_back(o, key, "%s", value ? "true" : "false");
	if (o->status || (!item && fallback))
		return value;
	if (cJSON_IsBool(item))
		return cJSON_IsTrue(item);
	field_fail(o, key, item, "true or false");
	return value;
}

const char *plumb_json_string(struct plumb_json_object *o, const char *key, const char *fallback)
{
	const cJSON *item = plumb_json_field(o, key);
	if (!item && fallback)
		fall_back(o, key, "%s", fallback);
	if (o->status || (!item && fallback))
		return fallback;
	if (cJSON_IsString(item))
		return item->valuestring;
	field_fail(o, key, item, "a string");
	return fallback;
}

const struct cJSON *plumb_json_array(struct plumb_json_object *o, const char *key, bool required)
{
	const cJSON *item = plumb_json_field(o, key);
	if (!item && !required)
		fall_back(o, key, "none");
	if (o->status || (!item && !required))
		return NULL;
	if (cJSON_IsArray(item))
		return item;
	field_fail(o, key, item, "an array");
	return NULL;
}

const struct cJSON *plumb_json_child(struct plumb_json_object *o, const char *key, bool required)
{
	const cJSON *item = plumb_json_field(o, key);
	if (!item && !required)
		fall_back(o, key, "none");
	if (o->status || (!item && !required))
		return NULL;
	if (cJSON_IsObject(item))
		return item;
	field_fail(o, key, item, "an object");
	return NULL;
}
