/* SPDX-License-Identifier: MIT */
/* plumb man: the manual page, made from the tables that the program parses. */
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/help.h"

/* Text of man(7): a backslash and a hyphen as they are typed, and no line that begins with a control character. */
static void text(const char *p)
{
	bool fresh = true;

	for (; *p; p++) {
		if (fresh && (*p == '.' || *p == '\''))
			printf("\\&");
		if (*p == '\\')
			printf("\\e");
		else if (*p == '-')
			printf("\\-");
		else
			putchar(*p);
		fresh = *p == '\n';
	}
}

/* Paragraphs: filled, so single newlines are blanks; sentences are left to the formatter. */
static void paragraphs(const char *p)
{
	for (; *p; p++) {
		if (*p == '\n' && p[1] == '\n') {
			printf("\n.PP\n");
			p++;
		} else if (*p == '\n') {
			putchar(' ');
		} else {
			const char one[2] = {*p, '\0'};
			text(one);
		}
	}
	printf("\n");
}

static void option(const struct command *c, const struct option *o)
{
	const char *brief = help_short(o->name);

	printf(".TP\n");
	if (brief)
		printf("\\fB\\-%s\\fR, ", brief + 1);
	printf("\\fB");
	text(o->name);
	printf("\\fR");
	if (o->value) {
		printf(" \\fI");
		text(o->value);
		printf("\\fR");
	}
	printf("\n");
	text(help_words(c, o));
	printf("\n");
}

static void examples(const char *lines)
{
	printf(".PP\n.nf\n.RS 2\n");
	while (*lines) {
		size_t n = strcspn(lines, "\n"), blank = strspn(lines, " ");
		char line[512];
		snprintf(line, sizeof line, "%.*s", (int)(n - blank), lines + blank);
		text(line);
		printf("\n");
		lines += n + (lines[n] == '\n');
	}
	printf(".RE\n.fi\n");
}

static void section(void *self, const struct command *c, const struct option *table, int options)
{
	(void)self;
	printf(".SS plumb %s\n.B plumb ", c->name);
	text(c->name);
	printf("\n");
	text(c->usage);
	printf("\n.PP\n");
	paragraphs(c->about);
	for (int i = 0; i < options; i++)
		option(c, &table[i]);
	if (c->verbose && !help_has(table, options, "--verbose")) {
		printf(".PP\nWith \\fB\\-\\-verbose\\fR: ");
		text(c->verbose);
		printf(".\n");
	}
	if (c->examples[0])
		examples(c->examples);
}

static void page(void)
{
	printf(".\\\" SPDX-License-Identifier: MIT\n.\\\" Made by: plumb man\n"
	       ".TH PLUMB 1 \"\" \"plumb " PLUMB_VERSION "\" \"User Commands\"\n"
	       ".SH NAME\nplumb \\- hold optimised decode kernels of Qwen3.8\\-Flash\\-Next against a reference\n"
	       ".SH SYNOPSIS\n.B plumb\n.I COMMAND\n.RI [ options ]\n.PP\n.B plumb\n.I COMMAND\n.B \\-\\-help\n"
	       ".SH DESCRIPTION\n"
	       "Plumb runs a decoder from a plain C reference, from optimised kernels or from any mixture of both, and "
	       "compares "
	       "it with golden\ntensors layer by layer. Kernels run on a GPU or, through a shim, on the CPU, with the same "
	       "bits.\n"
	       ".SH COMMANDS\n");
	for (int i = 0; commands[i]; i++)
		options_describe(commands[i], section, NULL);
	printf(".SH OPTIONS\nThese are the same in every command.\n");
	for (int i = 0; i < options_common_count; i++)
		option(&command_man, &options_common[i]);
	printf(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nThe help of the program or of a command.\n"
	       ".TP\n\\fB\\-\\-version\\fR\nThe version; without a command only.\n"
	       ".SH EXIT STATUS\n");
	for (int i = 0; i < 4; i++)
		printf(".TP\n%d\n%s\n", i, help_exit[i]);
	printf(".SH ENVIRONMENT\n"
	       ".TP\n.B NO_COLOR\nNo colours, unless \\fB\\-\\-color\\fR says otherwise.\n"
	       ".TP\n.B COLUMNS\nWidth to fill help and tables to; without, that of the terminal.\n"
	       ".TP\n.B OMP_NUM_THREADS\nThreads of the reference; the bits do not change.\n");
}

static int run(int argc, char **argv)
{
	int operands, status;
	bool done;
	struct plumb_error err = {""};

	status = options_parse(&command_man, NULL, 0, argc, argv, NULL, 0, &operands, &done, &err);
	if (status == PLUMB_OK && !done)
		page();
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb man: %s\n", err.text);
	return status;
}

const struct command command_man = {
	.name = "man",
	.usage = "",
	.brief = "print the manual page",
	.about = "The page is man(7) source, made from the same tables that the program parses. cmake --install puts it "
		 "where man "
		 "looks.",
	.examples = "  plumb man | man -l -\n  plumb man >plumb.1",
	.operands = "",
	.run = run,
};
