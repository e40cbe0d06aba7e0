/* SPDX-License-Identifier: MIT */
#include "tools/help.h"

#include <stdio.h>
#include <string.h>

#include "tools/output.h"
#include "tools/text.h"

enum { HELP_WIDTH = 80, HELP_WIDEST = 110, HELP_COLUMN = 31 };

const char *const help_exit[4] = {"within tolerance", "a mismatch", "wrong usage or bad input", "no such device"};

static const struct option option_help = {"--help", NULL, OPTION_FLAG, NULL, "this text"};

bool help_has(const struct option *table, int options, const char *name)
{
	for (int i = 0; i < options; i++)
		if (strcmp(table[i].name, name) == 0)
			return true;
	return false;
}

const char *help_words(const struct command *command, const struct option *option)
{
	return strcmp(option->name, "--verbose") == 0 && command->verbose ? command->verbose : option->help;
}

const char *help_short(const char *name)
{
	return strcmp(name, "--quiet") == 0     ? "-q"
	       : strcmp(name, "--verbose") == 0 ? "-v"
	       : strcmp(name, "--help") == 0    ? "-h"
	                                        : NULL;
}

static int width(void)
{
	int columns = output_columns();
	return columns == 0 ? HELP_WIDTH : columns > HELP_WIDEST ? HELP_WIDEST : columns;
}

static void print_option(const struct command *command, const struct option *o)
{
	const char *brief = help_short(o->name);
	int n = printf("  %s%s%s%s%s", brief ? brief : "", brief ? ", " : "", o->name, o->value ? " " : "",
		o->value ? o->value : "");

	if (n + 2 > HELP_COLUMN)
		printf("\n%*s", HELP_COLUMN, "");
	else
		printf("%*s", HELP_COLUMN - n, "");
	text_fill(stdout, help_words(command, o), HELP_COLUMN, HELP_COLUMN, width());
}

void help_print_exit(FILE *f)
{
	fprintf(f, "\nexit status:\n");
	for (int i = 0; i < 4; i++)
		fprintf(f, "  %d  %s\n", i, help_exit[i]);
}

void help_print(const struct command *command, const struct option *table, int options)
{
	int at = printf("usage: plumb %s%s", command->name, command->usage[0] ? " " : "");

	text_fill(stdout, command->usage, at, at < 24 ? at : 14, width());
	printf("\n");
	text_fill(stdout, command->about, 0, 0, width());
	if (options > 0)
		printf("\noptions:\n");
	for (int i = 0; i < options; i++)
		print_option(command, &table[i]);
	printf("\nfor every command:\n");
	for (int i = 0; i < options_common_count; i++)
		if (!help_has(table, options, options_common[i].name))
			print_option(command, &options_common[i]);
	print_option(command, &option_help);
	printf("\nexamples:\n%s\n", command->examples);
	help_print_exit(stdout);
}
