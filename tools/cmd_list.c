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
#include "tools/list_op.h"
#include "tools/output.h"
#include "tools/text.h"
#include "tools/trial_class.h"

static int list_ops(struct plumb_error *err)
{
	(void)err;
	printf("%-16s %-18s %s\n", "op", "stage", "what it does");
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		printf("%-16s %-18s ", plumb_ops[i].name, plumb_ops[i].stage);
		text_fill(stdout, plumb_ops[i].brief, 36, 36, output_columns());
	}
	printf("\n'plumb list OP' shows the operands, the contract and the tolerances of one.\n");
	return PLUMB_OK;
}

static int list_orders(struct plumb_error *err)
{
	(void)err;
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
	       "rows of a matrix: split(S, %d); head-sized sums: strided(%d); each op's: plumb list OP\n\n"
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

static int list_devices(struct plumb_error *err)
{
	(void)err;
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

	for (int i = 0; i < n; i++) {
		printf("%-11s %-5s %-24s ", plumb_view_name(rule[i].view), plumb_policy_name(rule[i].policy),
			rule[i].suffix[0] ? rule[i].suffix : "every tensor");
		text_fill(stdout, plumb_tolerance_show(&rule[i].tolerance, text, sizeof text), 43, 43, output_columns());
		printf("%12s", "");
		text_fill(stdout, rule[i].reason, 12, 12, output_columns());
	}
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

static int list_presets(struct plumb_error *err)
{
	(void)err;
	for (int i = 0; plumb_preset_name(i); i++)
		printf("%-8s %s\n", plumb_preset_name(i), plumb_preset_brief(i));
	return PLUMB_OK;
}

static int list_formats(struct plumb_error *err)
{
	static const char *const values[PLUMB_FORMAT_COUNT] = {
		[PLUMB_F32] = "the stored value",
		[PLUMB_F16] = "the stored value, widened",
		[PLUMB_BF16] = "the stored value, widened",
		[PLUMB_FP8_ROW] = "e4m3 * scale of the row (binary32)",
		[PLUMB_FP8_BLOCK] = "e4m3 * scale of the block of 128 x 128 (binary32 or bf16); edge blocks may be partial",
		[PLUMB_FP8_TABLE] = "e4m3 * scale of the table, rounded to bf16",
		[PLUMB_NVFP4] = "e2m1 * (e4m3 scale of 16 columns * binary32 scale of the matrix)",
	};
	static const float one = 1.0F;

	(void)err;
	printf("%-10s %14s  %s\n", "format", "bits a value", "value");
	for (int i = 0; i < PLUMB_FORMAT_COUNT; i++) {
		const struct plumb_weight w = {.format = (enum plumb_format)i,
			.rows = 4096,
			.cols = 4096,
			.data = &one,
			.scale = &one,
			.scale_format = PLUMB_F32};
		printf("%-10s %14.4f  ", plumb_format_name((enum plumb_format)i),
			8.0 * (double)plumb_weight_bytes(&w) / (4096.0 * 4096.0));
		text_fill(stdout, values[i], 27, 27, output_columns());
	}
	printf("\nOf a matrix of 4096 x 4096 with its scales. Keys and values: f32, bf16 or fp8 (--kv-format); GDN state: "
	       "f32 or "
	       "f16\n(--state-format). Products are rounded once to binary32. docs/number-formats.md\n");
	return PLUMB_OK;
}

static int list_classes(struct plumb_error *err)
{
	(void)err;
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

/* Everything there is to list, in the order in which it is shown. */
static const struct list {
	const char *name, *brief;
	int (*show)(struct plumb_error *err);
} lists[] = {
	{"ops", "what is swapped, compared, timed and bisected", list_ops},
	{"orders", "reduction orders, and what they make of the released model's sums", list_orders},
	{"tolerances", "what is demanded of each recorded tensor, with the reason", list_tolerances},
	{"formats", "number formats of weights", list_formats},
	{"profiles", "which weights are held in which format", list_profiles},
	{"presets", "synthetic models", list_presets},
	{"classes", "classes of hostile inputs of plumb test, and the faults that they are for", list_classes},
	{"devices", "where the optimised set can run on this machine", list_devices},
};
enum { LISTS = sizeof lists / sizeof lists[0] };

static int overview(void)
{
	printf("%-12s %s\n", "list", "what it shows");
	for (int i = 0; i < LISTS; i++)
		printf("%-12s %s\n", lists[i].name, lists[i].brief);
	printf("%-12s %s\n%-12s %s\n", "OP", "operands, contract, golden tensors and tolerances of one op", "PROFILE",
		"groups of weights of one profile, which may be a file");
	return PLUMB_OK;
}

static int unknown(const char *word, struct plumb_error *err)
{
	struct text_nearest near = {.word = word};
	const char *name, *text;
	char meant[TEXT_NEAREST];
	size_t size;

	for (int i = 0; i < LISTS; i++)
		text_nearest(&near, lists[i].name);
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		text_nearest(&near, plumb_ops[i].name);
	for (int i = 0; (name = plumb_profile_shipped(i, &text, &size)); i++)
		text_nearest(&near, name);
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"'%.80s' is no list, op or profile%s; 'plumb list' shows what there is; usage: plumb list %s", word,
		text_did_you_mean(&near, meant), command_list.usage);
}

static int show(const char *word, struct plumb_error *err)
{
	for (int i = 0; i < LISTS; i++)
		if (strcmp(word, lists[i].name) == 0)
			return lists[i].show(err);
	if (plumb_op_find(word) != PLUMB_OP_COUNT)
		return list_op(plumb_op_find(word), err);
	return is_profile(word) ? list_profile(word, err) : unknown(word, err);
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
	if (status == PLUMB_OK)
		status = operands ? show(what[0], &err) : overview();
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb list: %s\n", err.text);
	return status;
}

const struct command command_list = {
	.name = "list",
	.usage = "[LIST|OP|PROFILE]",
	.brief = "show ops, contracts, orders, tolerances, formats, profiles, presets, devices",
	.about = "Prints what is compiled in: the ops with operands, contract, golden tensors and tolerances of each; "
		 "reduction "
		 "orders; tolerances with the reason for each; number formats, and profiles of them with the bytes of "
		 "weights "
		 "that a token reads; synthetic models; the devices that this machine has. Without an operand: what there "
		 "is.",
	.examples = "  plumb list\n  plumb list gdn_recurrence\n  plumb list tolerances\n  plumb list served\n"
		    "  plumb list ./mine.json",
	.operands = "ops|orders|tolerances|formats|profiles|presets|classes|devices|OP|PROFILE",
	.run = run,
};
