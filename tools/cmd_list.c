/* SPDX-License-Identifier: MIT */
/* plumb list: the living reference of ops, their operands, and tolerances. */
#include <stdio.h>
#include <string.h>

#include "core/op.h"
#include "core/tolerance.h"
#include "tools/commands.h"

static const char *const roles[] = {"in", "out", "state", "weight", "constant"};
static const char *const kinds[] = {"f32", "i32", "i64", "matrix", "bank", "cache", "ngram"};

static int list_ops(void)
{
	printf("%-16s %-18s %s\n", "op", "stage", "what it does");
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		printf("%-16s %-18s %s\n", plumb_ops[i].name, plumb_ops[i].stage, plumb_ops[i].brief);
	printf("\n'plumb list OP' shows the operands of one; core/ops/ holds the contracts.\n");
	return PLUMB_OK;
}

static int list_op(enum plumb_op op)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	printf("%s (%s): %s\n\n%-16s %-9s %-7s %s\n", info->name, info->stage, info->brief, "operand", "role", "kind", "shape");
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		printf("%-16s %-9s %-7s (%s)%s%s\n", o->name, roles[o->role], kinds[o->kind], o->shape,
			o->trace ? ", trace" : "", o->optional && !o->trace ? ", may be absent" : "");
	}
	printf("\ndimension letters: core/config.h\n");
	return PLUMB_OK;
}

static int list_tolerances(struct plumb_error *err)
{
	struct plumb_tolerances *t = NULL;
	int n = 0, status = plumb_tolerances_read(NULL, &t, err);
	const struct plumb_tolerance_rule *rule = status == PLUMB_OK ? plumb_tolerances_rules(t, &n) : NULL;
	char text[256];

	for (int i = 0; i < n; i++)
		printf("%-11s %-5s %-24s %s\n            %s\n", plumb_view_name(rule[i].view), plumb_policy_name(rule[i].policy),
			rule[i].suffix[0] ? rule[i].suffix : "every tensor",
			plumb_tolerance_show(&rule[i].tolerance, text, sizeof text), rule[i].reason);
	plumb_tolerances_free(t);
	return status;
}

static int run(int argc, char **argv)
{
	const char *what[1] = {NULL};
	int operands, status;
	bool done;
	struct plumb_error err = {""};

	status = options_parse(&command_list, NULL, 0, argc, argv, what, 1, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && operands != 1)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "what? usage: plumb list %s", command_list.usage);
	if (status == PLUMB_OK) {
		enum plumb_op op = plumb_op_find(what[0]);
		if (strcmp(what[0], "ops") == 0)
			status = list_ops();
		else if (strcmp(what[0], "tolerances") == 0)
			status = list_tolerances(&err);
		else if (op != PLUMB_OP_COUNT)
			status = list_op(op);
		else
			status = plumb_fail(&err, PLUMB_BAD_INPUT, "'%s' is no list and no op; usage: plumb list %s", what[0],
				command_list.usage);
	}
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb list: %s\n", err.text);
	return status;
}

const struct command command_list = {
	.name = "list",
	.usage = "ops|tolerances|OP",
	.brief = "show ops, their operands, tolerances",
	.about = "Prints what is compiled in: the table of ops, the operands of one op with roles and shapes, the tolerances\n"
		 "with the reason for each.",
	.examples = "  plumb list ops\n  plumb list gdn_recurrence\n  plumb list tolerances",
	.run = run,
};
