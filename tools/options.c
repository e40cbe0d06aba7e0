/* SPDX-License-Identifier: MIT */
#include "tools/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/help.h"
#include "tools/output.h"
#include "tools/text.h"

/* Written by options_parse, read by it: the program has one command line. */
static struct {
	bool quiet, plain;
	const char *colour;
} common;

const struct option options_common[] = {
	{"--quiet", NULL, OPTION_FLAG, &common.quiet, "the verdict only; errors are still told"},
	{"--verbose", NULL, OPTION_FLAG, NULL, "more detail"},
	{"--color", "auto|always|never", OPTION_TEXT, &common.colour,
		"colours: on a terminal (default; NO_COLOR turns them off), always or never"},
	{"--no-color", NULL, OPTION_FLAG, &common.plain, "as --color never"},
};
const int options_common_count = sizeof options_common / sizeof options_common[0];

static options_visit *describe;
static void *describe_self;

void options_describe(const struct command *command, options_visit *fn, void *self)
{
	char name[64], *argv[2] = {name, NULL};

	if (command->parts) {
		for (int i = 0; command->parts[i]; i++)
			options_describe(command->parts[i], fn, self);
		return;
	}
	snprintf(name, sizeof name, "%s", command->name);
	describe = fn;
	describe_self = self;
	command->run(1, argv);
	describe = NULL;
}

int options_count(const char *name, const char *text, int64_t most, int64_t *out, struct plumb_error *err)
{
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || v > most)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is '%s', expected a whole number in 0..%lld", name, text,
			(long long)most);
	*out = v;
	return PLUMB_OK;
}

/* value: NULL for a flag, and nothing else. */
static int put(const struct option *o, const char *value, struct plumb_error *err)
{
	if (value && !*value)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is empty, expected %s", o->name, o->value);
	switch (o->kind) {
	case OPTION_FLAG:
		*(bool *)o->place = true;
		return PLUMB_OK;
	case OPTION_TEXT:
		*(const char **)o->place = value;
		return PLUMB_OK;
	case OPTION_COUNT:
		return options_count(o->name, value, INT64_MAX, o->place, err);
	case OPTION_REPEAT: {
		struct option_list *list = o->place;
		if (list->count == OPTIONS_MAX_REPEAT)
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "%s is given more than %d times", o->name, OPTIONS_MAX_REPEAT);
		list->item[list->count++] = value;
		return PLUMB_OK;
	}
	}
	return PLUMB_BAD_INPUT;
}

static const struct option *find(const struct option *table, int options, const char *name, size_t n)
{
	for (int i = 0; i < options; i++)
		if (strlen(table[i].name) == n && strncmp(table[i].name, name, n) == 0)
			return &table[i];
	return NULL;
}

/* An option of the table, or a common one. */
static const struct option *find_any(const struct option *table, int options, const char *word)
{
	const size_t n = strcspn(word, "=");
	const struct option *o = find(table, options, word, n);

	return o ? o : find(options_common, options_common_count, word, n);
}

static int unknown(const struct command *command, const struct option *table, int options, const char *word, size_t n,
	struct plumb_error *err)
{
	char name[64], near[TEXT_NEAREST];
	struct text_nearest best = {.word = name};

	snprintf(name, sizeof name, "%.*s", (int)n, word);
	for (int i = 0; i < options; i++)
		text_nearest(&best, table[i].name);
	for (int i = 0; i < options_common_count; i++)
		text_nearest(&best, options_common[i].name);
	return plumb_fail(err, PLUMB_BAD_INPUT, "unknown option '%.200s'%s; 'plumb %s --help' lists them", word,
		text_did_you_mean(&best, near), command->name);
}

/* -q, -v, -vv: 1 when the word is one, 0 when not. */
static int short_option(const char *word, int *verbosity)
{
	size_t n = strspn(word + 1, "v");

	if (strcmp(word, "-q") == 0) {
		common.quiet = true;
		return 1;
	}
	if (n == 0 || word[1 + n])
		return 0;
	*verbosity += (int)n;
	return 1;
}

/* The common options are all there: settle them. */
static int settle(int verbosity, struct plumb_error *err)
{
	enum output_when when = OUTPUT_AUTO;

	if (common.quiet && verbosity)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--quiet and --verbose: expected one of them");
	if (common.plain)
		when = OUTPUT_NEVER;
	if (common.colour && strcmp(common.colour, "always") == 0)
		when = OUTPUT_ALWAYS;
	else if (common.colour && strcmp(common.colour, "never") == 0)
		when = OUTPUT_NEVER;
	else if (common.colour && strcmp(common.colour, "auto") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--color is '%s', expected auto, always or never", common.colour);
	output_level(common.quiet, verbosity, when);
	output_colour(true);
	return PLUMB_OK;
}

/* The option that stands in argv[*i], whose value may be the next word. */
static int take(const struct command *command, const struct option *table, int options, int argc, char **argv, int *i,
	int *verbosity, struct plumb_error *err)
{
	const char *a = argv[*i], *next = *i + 1 < argc ? argv[*i + 1] : NULL;
	size_t n = strcspn(a, "=");
	const struct option *o = find_any(table, options, a);

	if (!o && a[1] != '-' && short_option(a, verbosity))
		return PLUMB_OK;
	if (!o)
		return unknown(command, table, options, a, n, err);
	if (!o->value && a[n])
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s takes no value", o->name);
	if (strcmp(o->name, "--verbose") == 0)
		++*verbosity;
	if (strcmp(o->name, "--quiet") == 0)
		common.quiet = true;
	if (!o->value)
		return o->place ? put(o, NULL, err) : PLUMB_OK;
	if (a[n])
		return put(o, a + n + 1, err);
	if (!next || find_any(table, options, next)) /* forgotten; FILE named like an option: --json=--tap */
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s needs a value: %s", o->name, o->value);
	++*i;
	return put(o, next, err);
}

int options_parse(const struct command *command, const struct option *table, int options, int argc, char **argv,
	const char **operand, int max_operands, int *operands, bool *done, struct plumb_error *err)
{
	bool words = false; /* behind "--" */
	int verbosity = 0, status = PLUMB_OK;

	*operands = 0;
	*done = describe != NULL;
	if (describe) {
		describe(describe_self, command, table, options);
		return PLUMB_OK;
	}
	for (int i = 1; i < argc && status == PLUMB_OK; i++) {
		const char *a = argv[i];
		if (!words && (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)) {
			help_print(command, table, options);
			*done = true;
			return PLUMB_OK;
		}
		if (!words && strcmp(a, "--") == 0)
			words = true;
		else if (!words && a[0] == '-' && a[1])
			status = take(command, table, options, argc, argv, &i, &verbosity, err);
		else if (!*a)
			status = plumb_fail(err, PLUMB_BAD_INPUT, "an argument is empty; usage: plumb %s %s", command->name,
				command->usage);
		else if (*operands == max_operands)
			status = plumb_fail(err, PLUMB_BAD_INPUT, "unexpected argument '%s'; usage: plumb %s %s", a,
				command->name, command->usage);
		else
			operand[(*operands)++] = a;
	}
	return status == PLUMB_OK ? settle(verbosity, err) : status;
}

/* One of two words. */
static int choose(
	const char *option, const char *text, const char *first, const char *second, int *out, struct plumb_error *err)
{
	if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is '%s', expected %s or %s", option, text, first, second);
	*out = strcmp(text, second) == 0;
	return PLUMB_OK;
}

int options_policy(const struct set_options *s, enum plumb_policy *out, struct plumb_error *err)
{
	int second = 0, status = s->policy ? choose("--policy", s->policy, "f32", "bf16", &second, err) : PLUMB_OK;
	*out = second ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	return status;
}

int options_ties(const struct set_options *s, enum plumb_ties fallback, enum plumb_ties *out, struct plumb_error *err)
{
	int second = fallback == PLUMB_TIES_TORCH;
	int status = s->ties ? choose("--ties", s->ties, "lower", "torch", &second, err) : PLUMB_OK;
	*out = second ? PLUMB_TIES_TORCH : PLUMB_TIES_LOWER;
	return status;
}

int options_formats(const struct set_options *s, struct plumb_decoder_options *out, struct plumb_error *err)
{
	static const enum plumb_format caches[] = {PLUMB_F32, PLUMB_BF16, PLUMB_CACHE_FP8};
	static const char *const name[] = {"f32", "bf16", "fp8"};
	int second = 0, i = 0, status = PLUMB_OK;

	while (s->kv_format && i < 3 && strcmp(s->kv_format, name[i]) != 0)
		i++;
	if (i == 3)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--kv-format is '%s', expected f32, bf16 or fp8", s->kv_format);
	if (s->kv_format) {
		out->own_caches = true;
		out->caches = caches[i];
	}
	if (s->state_format) {
		status = choose("--state-format", s->state_format, "f32", "f16", &second, err);
		out->state = second ? PLUMB_F16 : PLUMB_F32;
	}
	return status;
}

int options_layers(const char *text, int layers, int *first, int *last, struct plumb_error *err)
{
	char *end;

	*first = 0;
	*last = layers;
	if (!text)
		return PLUMB_OK;
	if (strcmp(text, "out") == 0) {
		*first = layers;
		return PLUMB_OK;
	}
	errno = 0;
	long a = strtol(text, &end, 10), b = a;
	bool good = end != text && *text >= '0' && *text <= '9';
	if (good && *end == '-') {
		const char *second = end + 1;
		b = strtol(second, &end, 10);
		good = end != second && *second >= '0' && *second <= '9';
	}
	if (!good || *end || errno || a > b || b >= layers)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"layers are '%s', expected A or A-B with 0 <= A <= B <= %d, or 'out' for what lies outside them",
			text, layers - 1);
	*first = (int)a;
	*last = (int)b;
	return PLUMB_OK;
}

int options_tokens(const char *text, int32_t **out, int64_t *count, struct plumb_error *err)
{
	int64_t room = 1, n = 0;
	for (const char *p = text; *p; p++)
		room += *p == ',';
	int32_t *token = malloc((size_t)room * sizeof *token);
	const char *p = text;

	if (!token)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)room);
	while (n < room) {
		char *end;
		errno = 0;
		long long v = strtoll(p, &end, 10);
		if (end == p || errno || v < 0 || v > INT32_MAX || (*end != ',' && *end != '\0')) {
			free(token);
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"--tokens is '%.60s', expected token ids with commas between, such as 1,2,3", text);
		}
		token[n++] = (int32_t)v;
		p = end + 1;
	}
	*out = token;
	*count = n;
	return PLUMB_OK;
}
