/* SPDX-License-Identifier: MIT */
/* plumb list: the living reference of ops, their operands, and tolerances. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/op.h"
#include "core/order.h"
#include "core/profile.h"
#include "core/profile_bytes.h"
#include "core/synthetic.h"
#include "core/tolerance.h"
#include "opt/device.h"
#include "tools/commands.h"
#include "tools/contract.h"
#include "tools/trial_class.h"

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
	printf("%s (%s): %s\n\n%-16s %-9s %-7s %s\n", info->name, info->stage, info->brief, "operand", "role", "kind",
		"shape");
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
		{"GDN q, k, v, z, b, a", 16480, 2560},
		{"attention q, gate, k, v", 13312, 2560},
		{"GDN or attention output", 2560, 6144},
		{"hyper-connection down and inject", 324, 10240},
		{"hyper-connection up", 10240, 320},
		{"router and shared gate", 513, 2560},
		{"lm_head", 248320, 2560},
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
		printf("%-11s %-5s %-24s %s\n            %s\n", plumb_view_name(rule[i].view),
			plumb_policy_name(rule[i].policy), rule[i].suffix[0] ? rule[i].suffix : "every tensor",
			plumb_tolerance_show(&rule[i].tolerance, text, sizeof text), rule[i].reason);
	plumb_tolerances_free(t);
	return status;
}

static int list_profiles(struct plumb_error *err)
{
	struct plumb_config release;
	const char *name, *text;
	size_t size;
	int status = PLUMB_OK;

	plumb_release_config(&release);
	printf("%-22s %10s %11s  %s\n", "profile", "GB a token", "GB resident", "what is held how");
	for (int i = 0; (name = plumb_profile_shipped(i, &text, &size)) && status == PLUMB_OK; i++) {
		struct plumb_profile profile;
		struct plumb_profile_bytes bytes;
		status = plumb_profile_open(name, &profile, err);
		if (status == PLUMB_OK)
			status = plumb_profile_bytes(&release, &profile, &bytes, err);
		if (status == PLUMB_OK)
			printf("%-22s %10.2f %11.2f  %s\n", name, (double)bytes.all.token / 1e9,
				(double)bytes.all.resident / 1e9, profile.description);
	}
	printf("\nBytes of weights at the sizes of the release (1 GB = 10^9). 'plumb list PROFILE' shows the groups of "
	       "one, which\n"
	       "may be a file of your own; golden/profiles/ holds these as examples.\n");
	return status;
}

static int list_profile(const char *name, struct plumb_error *err)
{
	struct plumb_config release;
	struct plumb_profile profile;
	struct plumb_profile_bytes bytes;
	int status = plumb_profile_open(name, &profile, err);

	if (status == PLUMB_OK) {
		plumb_release_config(&release);
		status = plumb_profile_bytes(&release, &profile, &bytes, err);
	}
	if (status != PLUMB_OK)
		return status;
	printf("%s: %s\n\n%-12s %-10s %9s %12s %12s\n", profile.name,
		profile.description[0] ? profile.description : "(no description)", "group", "format", "matrices",
		"MB a token", "MB resident");
	for (int g = 0; g <= PLUMB_GROUP_COUNT; g++) {
		bool vectors = g == PLUMB_GROUP_COUNT;
		printf("%-12s %-10s %9lld %12.3f %12.3f\n", vectors ? "vectors" : plumb_group_name((enum plumb_group)g),
			vectors           ? "bf16"
			: profile.keep[g] ? "as stored"
					  : plumb_format_name(profile.format[g]),
			(long long)bytes.group[g].matrices, (double)bytes.group[g].token / 1e6,
			(double)bytes.group[g].resident / 1e6);
	}
	printf("%-12s %-10s %9lld %12.3f %12.3f\n\nkeys and values %s, GDN state %s\n"
	       "At the sizes of the release (1 MB = 10^6); what is kept as stored is counted as bf16.\n",
		"all", "", (long long)bytes.all.matrices, (double)bytes.all.token / 1e6, (double)bytes.all.resident / 1e6,
		profile.keep_caches               ? "as the policy says"
		: profile.caches == PLUMB_FP8_ROW ? "fp8"
						  : plumb_format_name(profile.caches),
		profile.keep_state ? "as the policy says" : plumb_format_name(profile.state));
	return PLUMB_OK;
}

/* What plumb_profile_open takes as a path, or the name of one that ships. */
static bool is_profile(const char *name)
{
	const char *shipped, *text;
	size_t size, n = strlen(name);
	for (int i = 0; (shipped = plumb_profile_shipped(i, &text, &size)); i++)
		if (strcmp(name, shipped) == 0)
			return true;
	return strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0);
}

static int list_presets(void)
{
	for (int i = 0; plumb_preset_name(i); i++)
		printf("%-8s %s\n", plumb_preset_name(i), plumb_preset_brief(i));
	return PLUMB_OK;
}

static int list_classes(void)
{
	printf("%-13s %-32s %s\n", "class", "for faults", "aim, and the ops it says something about");
	for (int i = 0; trial_class(i); i++) {
		const struct trial_class *class = trial_class(i);
		int ops = 0;
		printf("%-13s %-32s %s\n%-46s ", class->name, class->faults, class->aim, "");
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			ops += trial_class_applies(class, (enum plumb_op)op);
		if (ops == PLUMB_OP_COUNT)
			printf("every op");
		for (int op = 0; op < PLUMB_OP_COUNT && ops < PLUMB_OP_COUNT; op++)
			if (trial_class_applies(class, (enum plumb_op)op))
				printf("%s%s", plumb_ops[op].name, --ops ? " " : "");
		printf("\n");
	}
	return PLUMB_OK;
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
		else if (strcmp(what[0], "profiles") == 0)
			status = list_profiles(&err);
		else if (is_profile(what[0]))
			status = list_profile(what[0], &err);
		else if (strcmp(what[0], "presets") == 0)
			status = list_presets();
		else if (strcmp(what[0], "classes") == 0)
			status = list_classes();
		else if (op != PLUMB_OP_COUNT)
			status = list_op(op);
		else
			status = plumb_fail(&err, PLUMB_BAD_INPUT, "'%s' is no list, op or profile; usage: plumb list %s",
				what[0], command_list.usage);
	}
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb list: %s\n", err.text);
	return status;
}

const struct command command_list = {
	.name = "list",
	.usage = "ops|orders|tolerances|devices|profiles|presets|classes|OP|PROFILE",
	.brief = "show ops, operands, reduction orders, tolerances, devices, profiles, presets",
	.about = "Prints what is compiled in: the table of ops, the operands of one op with roles and shapes, the "
		 "reduction\n"
		 "orders, the tolerances with the reason for each, the devices this machine has, the profiles of number "
		 "formats with the\n"
		 "bytes of weights that a token reads in each, and the synthetic models.",
	.examples = "  plumb list ops\n  plumb list gdn_recurrence\n  plumb list tolerances\n"
		    "  plumb list profiles\n  plumb list served",
	.run = run,
};
