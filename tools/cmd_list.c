/* SPDX-License-Identifier: MIT */
/* plumb list: the living reference of ops, their operands, and tolerances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/op.h"
#include "core/order.h"
#include "core/tolerance.h"
#include "opt/device.h"
#include "tools/commands.h"
#include "tools/contract.h"

static const char *const roles[] = {"in", "out", "state", "weight", "constant"};
static const char *const kinds[] = {"f32", "i32", "i64", "matrix", "bank", "cache", "ngram", "stored"};

static int list_ops(void)
{
	printf("%-16s %-18s %s\n", "op", "stage", "what it does");
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		printf("%-16s %-18s %s\n", plumb_ops[i].name, plumb_ops[i].stage, plumb_ops[i].brief);
	printf("\n'plumb list OP' shows the operands and the contract of one.\n");
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
	char *contract = contract_text(op);
	if (contract)
		printf("\n%s\n", contract);
	free(contract);
	return PLUMB_OK;
}

static int list_orders(void)
{
	static const struct {
		const char *what;
		int64_t rows, cols;
	} example[] = {
		{"GDN q, k, v, z, b, a", 16480, 2560}, {"attention q, gate, k, v", 13312, 2560},
		{"GDN or attention output", 2560, 6144}, {"hyper-connection down and inject", 324, 10240},
		{"hyper-connection up", 10240, 320}, {"router and shared gate", 513, 2560}, {"lm_head", 248320, 2560},
	};
	printf("strided(W)   element k joins accumulator k mod W by fmaf, ascending; then a neighbour-first pairwise tree\n"
	       "split(S, W)  S contiguous pieces, each strided(W), summed left to right\n"
	       "serial       one accumulator, ascending\n\n"
	       "rows of a matrix: split(S, %d); head-sized sums: strided(%d); each op's contract: core/ops/\n\n"
	       "%-34s %8s %8s %3s %8s   gamma_depth\n",
		PLUMB_ROW_LANES, PLUMB_HEAD_LANES, "rows of the released model", "rows", "columns", "S", "depth");
	for (size_t i = 0; i < sizeof example / sizeof example[0]; i++) {
		int pieces = plumb_split_count(example[i].rows, example[i].cols);
		int depth = plumb_split_depth(example[i].cols, pieces);
		printf("%-34s %8lld %8lld %3d %8d   %.2e\n", example[i].what, (long long)example[i].rows,
			(long long)example[i].cols, pieces, depth, depth * 0x1p-24 / (1.0 - depth * 0x1p-24));
	}
	return PLUMB_OK;
}

static int list_devices(void)
{
	static const enum plumb_device_kind kinds_of[] = {PLUMB_DEVICE_SIMT, PLUMB_DEVICE_CUDA};
	for (size_t i = 0; i < sizeof kinds_of / sizeof kinds_of[0]; i++) {
		struct plumb_device *d = NULL;
		struct plumb_error why = {""};
		if (plumb_device_open(kinds_of[i], NULL, &d, &why) == PLUMB_OK)
			printf("%-5s %s\n", plumb_device_name(d), plumb_device_description(d));
		else
			printf("%-5s not there: %s\n", kinds_of[i] == PLUMB_DEVICE_CUDA ? "cuda" : "simt", why.text);
		plumb_device_close(d);
	}
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
		else if (strcmp(what[0], "orders") == 0)
			status = list_orders();
		else if (strcmp(what[0], "devices") == 0)
			status = list_devices();
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
	.usage = "ops|orders|tolerances|devices|OP",
	.brief = "show ops, operands, reduction orders, tolerances, devices",
	.about = "Prints what is compiled in: the table of ops, the operands of one op with roles and shapes, the reduction\n"
		 "orders, the tolerances with the reason for each, and the devices this machine has.",
	.examples = "  plumb list ops\n  plumb list gdn_recurrence\n  plumb list tolerances",
	.run = run,
};
