/* SPDX-License-Identifier: MIT */
#include "tools/commands.h"
static int run(int argc, char **argv)
{
	int operands;
	bool done;
	struct plumb_error err = {""};
	const char *p[1];
	return options_parse(&command_merge, NULL, 0, argc, argv, p, 1, &operands, &done, &err);
}
const struct command command_merge = {
	.name = "merge", .usage = "A.json...", .brief = "join", .about = "x", .examples = "", .run = run};
