/* SPDX-License-Identifier: MIT */
#include "tools/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void help(const struct command *c, const struct option *table, int options)
{
	printf("usage: plumb %s %s\n\n%s\n\noptions:\n", c->name, c->usage, c->about);
	for (int i = 0; i < options; i++) {
		char left[64];
		snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].value ? " " : "",
			table[i].value ? table[i].value : "");
		printf("  %-28s %s\n", left, table[i].help);
	}
	printf("  %-28s %s\n\nexamples:\n%s\n", "--help", "this text", c->examples);
	printf("\nexit status: 0 within tolerance, 1 a mismatch, 2 wrong usage or bad input, 3 no such device\n");
}

static int parse_count(const char *name, const char *text, int64_t *out, struct plumb_error *err)
{
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (errno || end == text || *end || v < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is '%s', expected a whole number from 0 on", name, text);
	*out = v;
	return PLUMB_OK;
}

static int put(const struct option *o, const char *value, struct plumb_error *err)
{
	switch (o->kind) {
	case OPTION_FLAG:
		*(bool *)o->place = true;
		return PLUMB_OK;
	case OPTION_TEXT:
		*(const char **)o->place = value;
		return PLUMB_OK;
	case OPTION_COUNT:
		return parse_count(o->name, value, o->place, err);
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

int options_parse(const struct command *command, const struct option *table, int options, int argc, char **argv,
	const char **operand, int max_operands, int *operands, bool *done, struct plumb_error *err)
{
	*operands = 0;
	*done = false;
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *equals = strchr(a, '=');
		size_t n = a[0] == '-' && equals ? (size_t)(equals - a) : strlen(a);
		const struct option *o = NULL;
		int status;

		if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
			help(command, table, options);
			*done = true;
			return PLUMB_OK;
		}
		if (a[0] != '-' || !a[1]) {
			if (*operands == max_operands)
				return plumb_fail(err, PLUMB_BAD_INPUT, "unexpected argument '%s'; usage: plumb %s %s", a,
					command->name, command->usage);
			operand[(*operands)++] = a;
			continue;
		}
		for (int j = 0; j < options && !o; j++)
			if (strlen(table[j].name) == n && strncmp(table[j].name, a, n) == 0)
				o = &table[j];
		if (!o)
			return plumb_fail(err, PLUMB_BAD_INPUT, "unknown option '%s'; 'plumb %s --help' lists them", a,
				command->name);
		if (!o->value && a[n])
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s takes no value", o->name);
		if (!o->value)
			status = put(o, NULL, err);
		else if (a[n])
			status = put(o, a + n + 1, err);
		else if (i + 1 < argc)
			status = put(o, argv[++i], err);
		else
			status = plumb_fail(err, PLUMB_BAD_INPUT, "%s needs a value: %s", o->name, o->value);
		if (status != PLUMB_OK)
			return status;
	}
	return PLUMB_OK;
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
