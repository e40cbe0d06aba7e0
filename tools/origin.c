/* SPDX-License-Identifier: MIT */
#include "tools/origin.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What says how to report, or what to look at, and not what to run; with '=': takes a value. */
static const char *const left_out[] = {"--json=", "--junit=", "--html=", "--view=", "--layers=", "--date=", "--tolerances=",
	"--tap=", "--shard=", "--color=", "--digest", "--bounds", "--once", "--verbose", "--quiet", "--no-color", "-v",
	"-vv", "-q"};

/* The words of an option that is left out: 0: it stays. */
static int words_left_out(const char *word)
{
	for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
		const char *equals = strchr(left_out[i], '=');
		size_t n = equals ? (size_t)(equals - left_out[i]) : strlen(left_out[i]);
		if (strncmp(word, left_out[i], n) == 0 && (word[n] == '\0' || word[n] == '='))
			return equals && !word[n] ? 2 : 1;
	}
	return 0;
}

static void put_word(FILE *f, const char *word)
{
	bool plain = *word != '\0';
	for (const char *p = word; *p; p++)
		plain = plain && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
					 strchr("-_./=,:@+%", *p));
	fputc(' ', f);
	if (plain) {
		fputs(word, f);
		return;
	}
	fputc('\'', f);
	for (const char *p = word; *p; p++)
		if (*p == '\'')
			fputs("'\\''", f);
		else
			fputc(*p, f);
	fputc('\'', f);
}

/* "plumb NAME" and the words behind argv[0]; all: the left out ones too. NULL: out of memory. */
static char *words(const char *name, int argc, char **argv, bool all)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	fprintf(f, "plumb %s", name);
	for (int i = 1; i < argc; i++) {
		int skip = all ? 0 : words_left_out(argv[i]);
		if (skip)
			i += skip - 1;
		else
			put_word(f, argv[i]);
	}
	fclose(f);
	return text;
}

/* Whether anything but the reference runs. */
static bool has_suspects(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		bool set = strcmp(argv[i], "--set") == 0, op = strcmp(argv[i], "--op") == 0;
		if (strncmp(argv[i], "--set=", 6) == 0 || strncmp(argv[i], "--op=", 5) == 0)
			value = strchr(argv[i], '=') + 1;
		else if (!set && !op)
			continue;
		set = set || strncmp(argv[i], "--set=", 6) == 0;
		if (set ? strcmp(value, "opt") == 0 : strchr(value, '=') && strcmp(strchr(value, '='), "=ref") != 0)
			return true;
	}
	return false;
}

const char *origin_commit(void)
{
	return PLUMB_COMMIT;
}

void origin_begin(struct origin *origin, int argc, char **argv, const char *date)
{
	*origin = (struct origin){.date = date};
	origin->command = words(argv[0], argc, argv, true);
	/* no other command has words that these two take */
	if (strcmp(argv[0], "check") != 0 && strcmp(argv[0], "bisect") != 0)
		return;
	origin->check = words("check", argc, argv, false);
	if (has_suspects(argc, argv))
		origin->bisect = words("bisect", argc, argv, false);
}

void origin_end(struct origin *origin)
{
	free(origin->command);
	free(origin->check);
	free(origin->bisect);
}

void origin_add(cJSON *report, const struct origin *origin)
{
	cJSON_AddStringToObject(report, "version", PLUMB_VERSION);
	cJSON_AddStringToObject(report, "commit", PLUMB_COMMIT);
	if (!origin)
		return;
	if (origin->command)
		cJSON_AddStringToObject(report, "command", origin->command);
	if (origin->date)
		cJSON_AddStringToObject(report, "date", origin->date);
	if (!origin->check && !origin->bisect)
		return;
	cJSON *again = cJSON_AddObjectToObject(report, "again");
	if (origin->check)
		cJSON_AddStringToObject(again, "check", origin->check);
	if (origin->bisect)
		cJSON_AddStringToObject(again, "bisect", origin->bisect);
}
