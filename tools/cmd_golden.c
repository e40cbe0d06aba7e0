/* SPDX-License-Identifier: MIT */
/* plumb golden make|verify|diff: picks one of the three. */
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/golden.h"
#include "tools/help.h"
#include "tools/text.h"

static const struct command *const parts[] = {&command_golden_make, &command_golden_verify, &command_golden_diff, NULL};

static void usage(FILE *f)
{
	fprintf(f, "usage: plumb golden %s\n\n%s\n\n", command_golden.usage, command_golden.about);
	for (int i = 0; parts[i]; i++)
		fprintf(f, "  %-14s %s\n", parts[i]->name, parts[i]->brief);
	fprintf(f, "\n'plumb golden make --help' explains one, with examples.\n");
	help_print_exit(f);
}

static int run(int argc, char **argv)
{
	struct text_nearest near = {.word = argc > 1 ? argv[1] : ""};
	char meant[TEXT_NEAREST];
	struct plumb_error err;

	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? PLUMB_BAD_INPUT : PLUMB_OK;
	}
	for (int i = 0; parts[i]; i++) {
		const char *name = parts[i]->name + strlen("golden ");
		if (strcmp(argv[1], name) == 0)
			return parts[i]->run(argc - 1, argv + 1);
		text_nearest(&near, name);
	}
	plumb_fail(&err, PLUMB_BAD_INPUT, "unknown command '%.200s', expected make, verify or diff%s", argv[1],
		text_did_you_mean(&near, meant));
	fprintf(stderr, "plumb golden: %s\n", err.text);
	return PLUMB_BAD_INPUT;
}

const struct command command_golden = {
	.name = "golden",
	.usage = "make|verify|diff ...",
	.brief = "make golden files, see what moved since one was made, compare two",
	.about = "Golden files hold the tensors of a run, with what made them and checksums (docs/golden-format.md).",
	.examples = "",
	.parts = parts,
	.run = run,
};
