/* SPDX-License-Identifier: MIT */
/* The program as a user meets it: exit statuses, messages, reports, and bad input of every kind. */
#include <cJSON.h>
#include <check.h>
#include <hdf5.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/random_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"

/* With sanitizers a check takes seconds: any two settings meet. */
#ifdef __SANITIZE_ADDRESS__
enum { WAYS = 2, QUANTISED = 4 };
#else
enum { WAYS = 4, QUANTISED = 8 };
#endif

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

START_TEST(help_and_usage)
{
	struct program_result r;
	program(&r, dir, "--help");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "check"));
	program(&r, dir, "--version");
	program_expect(&r, 0);
	program(&r, dir, "%s", "");
	program_expect(&r, 2);
	program(&r, dir, "frobnicate");
	program_expect_line(&r, "frobnicate", "--help");
	static const char *const commands[] = {"check", "run", "list", "golden make", "golden verify", "golden diff"};
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		program(&r, dir, "%s --help", commands[i]);
		program_expect(&r, 0);
		ck_assert_msg(strstr(r.out, "examples:") && strstr(r.out, "exit status"), "%s", r.out);
		program(&r, dir, "%s --nonsense", commands[i]);
		program_expect_line(&r, "--nonsense", "--help");
	}
	program(&r, dir, "check");
	program_expect_line(&r, "golden file", "usage");
	program(&r, dir, "check " TINY);
	program_expect_line(&r, "--checkpoint", "");
	program(&r, dir, "check " TINY " --checkpoint");
	program_expect_line(&r, "--checkpoint", "DIR");
	program(&r, dir, "check " TINY " another --checkpoint " CHECKPOINT);
	program_expect_line(&r, "another", "usage");
	static const char *const wrong[][2] = {
		{"--set cuda", "--set"},
		{"--gpu -3", "--gpu"},
		{"--seed x", "--seed"},
		{"--policy f16", "--policy"},
		{"--ties upper", "--ties"},
		{"--view side", "--view"},
		{"--layers 3-1", "layers"},
		{"--layers 4", "layers"},
		{"--layers x", "layers"},
		{"--mode fast", "--mode"},
		{"--threads -1", "--threads"},
		{"--threads 2x", "--threads"},
		{"--op nothing=ref", "nothing"},
		{"--op gdn_conv", "--op"},
		{"--op gdn_conv@9=ref", "layers"},
		{"--quiet=1", "--quiet"},
		{"--tolerances /nonexistent/t.json", "t.json"},
		{"--layers 0 --op attn_gate=opt", "nothing of it would be compared"}, /* attention is in layer 3 */
		{"--layers 1-2 --view local --op embed=opt", "nothing of it would be compared"},
		{"--layers 0 --view local --op gdn_conv@2=opt", "nothing of it would be compared"},
		{"--layers 0 --op gdn_conv@2=ref", "nothing of it would be compared"},
		{"--layers 0 --op lm_head=opt", "nothing of it would be compared"}, /* it runs after the layers */
		{"--layers 3 --view local --op gdn_conv=opt --op ple_gate=opt", "nothing of it would be compared"},
	};
	static const char *const seen[] = {"--layers 3 --op attn_gate=opt", "--layers out --view local --op embed=opt",
		"--layers 1-2 --op embed=opt", "--layers 3 --op gdn_conv@0=opt", "--layers 0 --op gdn_conv@0=ref",
		"--layers 3 --view local --op gdn_conv=opt --op attn_gate=ref"};
	for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " -q %s", seen[i]);
		program_expect(&r, 0);
	}
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " %s", wrong[i][0]);
		program_expect_line(&r, wrong[i][1], "");
	}
}
END_TEST

START_TEST(list)
{
	static const char *const lists[][2] = {
		{"ops", "gdn_recurrence"},
		{"gdn_recurrence", "(Hv Dv Dk)"},
		{"moe_router", "moe/router/experts (T A)\n  the same choice"}, /* no L2 of ids */
		{"tolerances", "1e-06"},
		{"orders", "strided(W)"},
		{"devices", "simt"},
	};
	struct program_result r;

	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		program(&r, dir, "list %s", lists[i][0]);
		program_expect(&r, 0);
		ck_assert_msg(strstr(r.out, lists[i][1]) != NULL, "%s", r.out);
	}
	program(&r, dir, "list nothing");
	program_expect_line(&r, "nothing", "usage");
}
END_TEST

/* The acceptance run: both policies, both tie rules, both views. */
START_TEST(tiny_passes)
{
	struct program_result r;
	static const char *const policy[] = {"f32", "bf16"}, *const ties[] = {"torch", "lower"};
	const int way = WAYS == 4 ? _i : 3 * _i;
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --policy %s --ties %s --verbose", policy[way / 2],
		ties[way % 2]);
	program_expect(&r, 0);
	ck_assert_ptr_null(strstr(r.out, "FAIL"));
	ck_assert_ptr_nonnull(strstr(r.out, "layer03") ? r.out : strstr(r.out, "qsa/selected_mask"));
	ck_assert_ptr_null(strstr(r.out, "\033")); /* no colours in a file */
	if (way / 2 == 0)
		ck_assert_ptr_nonnull(strstr(r.out, "greedy"));
}
END_TEST

/* The same with quantised checkpoints, as released: experts nvfp4 or block FP8, an FP8 n-gram table. Only /fp32 is recorded. */
static const struct {
	const char *golden, *checkpoint;
} quantised[] = {
	{PLUMB_GOLDEN_DIR "/tiny-nvfp4/tiny-nvfp4.h5", PLUMB_GOLDEN_DIR "/tiny-nvfp4/checkpoint"},
	{PLUMB_GOLDEN_DIR "/tiny-fp8/tiny-fp8.h5", PLUMB_GOLDEN_DIR "/tiny-fp8/checkpoint"},
};

START_TEST(quantised_passes)
{
	struct program_result r;
	static const char *const mode[] = {"oracle", "twin"}, *const ties[] = {"torch", "lower"};
	static const int some[] = {0, 3, 5, 6};
	const int way = QUANTISED == 8 ? _i : some[_i];
	program(&r, dir, "check %s --checkpoint %s --mode %s --ties %s --verbose", quantised[way / 4].golden,
		quantised[way / 4].checkpoint, mode[way / 2 % 2], ties[way % 2]);
	program_expect(&r, 0);
	ck_assert_ptr_null(strstr(r.out, "FAIL"));
	ck_assert_ptr_nonnull(strstr(r.out, "greedy"));
}
END_TEST

static cJSON *read_json(const char *path)
{
	size_t size;
	char *text = scratch_read(path, &size);
	cJSON *j = cJSON_ParseWithLength(text, size);
	ck_assert_msg(j != NULL, "%s is no JSON", path);
	free(text);
	return j;
}

static double number(const cJSON *o, const char *name)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, name);
	ck_assert_msg(cJSON_IsNumber(n), "no number %s", name);
	return n->valuedouble;
}

/* The figures, asserted from the JSON: every float tensor, local <= 1e-6, propagated <= 1e-5, choices equal. */
static void figures(const char *golden, const char *checkpoint, int expected_floats)
{
	struct program_result r;
	char path[SCRATCH_PATH];
	int floats = 0, choices = 0;

	scratch_path(path, dir, "report.json");
	program(&r, dir, "check %s --checkpoint %s --json '%s' --quiet", golden, checkpoint, path);
	program_expect(&r, 0);
	cJSON *j = read_json(path), *view, *item;
	ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(j, "pass")));
	cJSON_ArrayForEach (view, cJSON_GetObjectItem(j, "views")) {
		bool local = strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(view, "view")), "local") == 0;
		cJSON_ArrayForEach (item, cJSON_GetObjectItem(view, "items")) {
			const cJSON *l2 = cJSON_GetObjectItem(item, "relative_l2"),
				    *rows = cJSON_GetObjectItem(item, "rows");
			ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(item, "pass")));
			if (l2) {
				floats++;
				ck_assert_msg(l2->valuedouble <= (local ? 1e-6 : 1e-5), "%s", cJSON_Print(item));
			} else if (rows) {
				choices++;
				ck_assert(number(item, "equal") == rows->valuedouble);
			}
		}
	}
	ck_assert_int_eq(floats, expected_floats);
	ck_assert_int_eq(choices, 2 * 5);
	cJSON_Delete(j);
}

START_TEST(json_report)
{
	figures(TINY, CHECKPOINT, 85 + 86); /* with the mask 87 under /fp32; decode_logits in the propagated view */
}
END_TEST

START_TEST(json_report_quantised)
{
	figures(quantised[_i].golden, quantised[_i].checkpoint, 85 + 85);
}
END_TEST

/* A NaN code in a weight is found by the comparison, not hidden by it (core/bind.h). */
START_TEST(nan_code)
{
	struct program_result r;
	char path[SCRATCH_PATH];
	size_t size;
	static const char *const files[] = {"config.json", "layer-00000-experts-0000-0011.safetensors",
		"layer-00001-experts-0000-0011.safetensors", "layer-00002-experts-0000-0011.safetensors",
		"layer-00003-experts-0000-0011.safetensors", "model-bf16-00001-of-00001.safetensors",
		"model-plefp8-00001-of-00002.safetensors", "model-plefp8-00002-of-00002.safetensors"};
	mkdir(scratch_path(path, dir, "ckpt"), 0777);
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		char from[512], to[128];
		snprintf(from, sizeof from, "%s/%s", quantised[0].checkpoint, files[i]);
		snprintf(to, sizeof to, "ckpt/%s", files[i]);
		char *data = scratch_read(from, &size);
		if (i ==
			3) { /* all block scales of layer 2: 12 * (64 * 3 + 2 * 48 * 4) bytes before as many groups of codes */
			size_t scales = 12 * (64 * 3 + 2 * 48 * 4), codes = scales * 8;
			memset(data + size - codes - scales, 0x7F, scales);
		}
		scratch_write(dir, to, data, size);
		free(data);
	}
	program(&r, dir, "check %s --checkpoint '%s/ckpt' --view local", quantised[0].golden, dir);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "moe/routed/output") && strstr(r.out, "NaN"), "%s", r.out);
}
END_TEST

START_TEST(junit_report)
{
	struct program_result r;
	char path[SCRATCH_PATH];
	size_t size;

	scratch_path(path, dir, "report.xml");
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --junit '%s' --quiet --view local", path);
	program_expect(&r, 0);
	char *text = scratch_read(path, &size);
	ck_assert_ptr_nonnull(strstr(text, "<testsuite name=\"local\" tests=\"91\" failures=\"0\""));
	ck_assert_ptr_nonnull(strstr(text, "name=\"layer00/gdn/recurrence\"/>"));
	free(text);
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --junit '%s/no/such/folder.xml' --quiet", dir);
	program_expect_line(&r, "folder.xml", "cannot write");
}
END_TEST

/* Layers and views choose what is compared; nothing left to compare is a failure, not a pass. */
START_TEST(selection_of_layers)
{
	struct program_result r;
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --layers 3 --view local --verbose");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "attention/gated"));
	ck_assert_ptr_null(strstr(r.out, "gdn/output"));
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --layers out --view propagated --verbose");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "decode_logits"));
	ck_assert_ptr_null(strstr(r.out, "moe/output"));
}
END_TEST

START_TEST(run_command)
{
	struct program_result r;
	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,17,42 --steps 4");
	program_expect(&r, 0);
	ck_assert_int_eq(strspn(r.out, "0123456789,"), strlen(r.out) - 1);
	program(&r, dir,
		"run --checkpoint " CHECKPOINT " --tokens 5,17,42 --steps 4 --policy bf16 --threads 1 --page-seed 9");
	program_expect(&r, 0);
	/* every way to run gives the same ids: op by op, as a graph, guarded, mixed */
	static const char *const ways[] = {
		"--mode twin",
		"--set opt",
		"--set opt --seed 4",
		"--device simt",
		"--set opt --guard",
		"--op moe_router=opt",
	};
	char first[256];
	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,17,42,99 --steps 5");
	program_expect(&r, 0);
	snprintf(first, sizeof first, "%.200s", r.out);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,17,42,99 --steps 5 %s", ways[i]);
		program_expect(&r, 0);
		ck_assert_msg(strcmp(r.out, first) == 0, "%s: %s, expected %s", ways[i], r.out, first);
	}
	static const char *const wrong[][2] = {
		{"--tokens 5,320", "320"},
		{"--tokens 5,,7", "--tokens"},
		{"--tokens 5,-1", "--tokens"},
		{"--tokens ,", "--tokens"},
		{"--tokens 99999999999", "--tokens"},
		{"", "--tokens"},
		{"--tokens 1 --capacity 100000", "capacity"},
		{"--tokens 1,2,3 --capacity 7 --steps 6", "--capacity is 7, expected at least 8 positions"},
		{"--tokens 1,2,3 --capacity 0 --steps 0", "--capacity is 0, expected at least 3 positions"},
		{"--tokens 1 --steps x", "--steps"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		program(&r, dir, "run --checkpoint " CHECKPOINT " %s", wrong[i][0]);
		program_expect_line(&r, wrong[i][1], "");
	}
	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 1,2,3 --capacity 8 --steps 6");
	program_expect(&r, 0);
	program(&r, dir, "run --tokens 1");
	program_expect_line(&r, "--checkpoint", "");
	program(&r, dir, "run --checkpoint '%s' --tokens 1", dir);
	program_expect_line(&r, "config.json", "");
}
END_TEST

/* The greedy tokens of the golden, through the other command. */
START_TEST(run_agrees_with_golden)
{
	struct program_result r;
	char prompt[1024] = "", wanted[512] = "";
	int64_t id[56], greedy[24];
	hid_t f = H5Fopen(TINY, H5F_ACC_RDONLY, H5P_DEFAULT);
	hid_t a = H5Dopen2(f, "input_ids", H5P_DEFAULT), b = H5Dopen2(f, "fp32/greedy", H5P_DEFAULT);

	H5Dread(a, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, id);
	H5Dread(b, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, greedy);
	H5Dclose(a);
	H5Dclose(b);
	H5Fclose(f);
	for (int i = 0; i < 56; i++)
		sprintf(prompt + strlen(prompt), "%s%lld", i ? "," : "", (long long)id[i]);
	for (int i = 0; i < 24; i++)
		sprintf(wanted + strlen(wanted), "%s%lld", i ? "," : "", (long long)greedy[i]);
	program(&r, dir, "run --checkpoint " CHECKPOINT " --ties torch --steps 24 --tokens %s", prompt);
	program_expect(&r, 0);
	ck_assert_msg(strncmp(r.out, wanted, strlen(wanted)) == 0, "%s, expected %s", r.out, wanted);
}
END_TEST

/* ---- bad files, through the program ---- */

/* A copy of the tiny checkpoint in dir/ckpt, with config.json edited: the first `from` becomes `to`. */
static void edited_config(const char *from, const char *to)
{
	char path[SCRATCH_PATH], target[SCRATCH_PATH];
	size_t size;
	char *text = scratch_read(CHECKPOINT "/config.json", &size), *at = strstr(text, from);

	mkdir(scratch_path(path, dir, "ckpt"), 0777);
	ck_assert_ptr_nonnull(at);
	char *edited = malloc(size + strlen(to) + 1);
	sprintf(edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	scratch_write(path, "config.json", edited, (size_t)-1);
	free(edited);
	free(text);
	if (access(scratch_path(target, path, "model.safetensors"), F_OK) != 0)
		ck_assert_int_eq(symlink(CHECKPOINT "/model.safetensors", target), 0);
}

START_TEST(bad_configs)
{
	struct program_result r;
	static const char *const edit[][3] = {
		{"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 5", "num_key_value_heads"},
		{"\"indexer_budget\": 16", "\"indexer_budget\": 18", "indexer_budget"},
		{"\"output_gate_type\": \"sigmoid\"", "\"output_gate_type\": \"tanh\"", "output_gate_type"},
		{"\"linear_num_value_heads\": 6", "\"linear_num_value_heads\": 5", "linear_num_value_heads"},
		{"\"num_experts_per_tok\": 4", "\"num_experts_per_tok\": 17", "num_experts_per_tok"},
		{"\"vocab_size\": 320", "\"vocab_size\": 320, \"vocab_size\": 320", "vocab_size"},
		{"\"vocab_size\": 320", "\"vocab_size\": \"320\"", "vocab_size"},
		{"\"qwen_sparse_attention\"", "\"sliding_attention\"", "layer_types"},
		{"\"hidden_size\": 64", "\"hidden_size\": 128", "expected"},
		{"{", "{{", "config.json"},
	};
	for (size_t i = 0; i < sizeof edit / sizeof edit[0]; i++) {
		edited_config(edit[i][0], edit[i][1]);
		program(&r, dir, "check " TINY " --checkpoint '%s/ckpt'", dir);
		program_expect_line(&r, edit[i][2], dir);
	}
	/* nothing wrong with the helper: an edit that changes nothing that matters passes */
	edited_config("\"initializer_range\": 0.02", "\"initializer_range\": 0.03");
	program(&r, dir, "check " TINY " --checkpoint '%s/ckpt' --quiet", dir);
	program_expect(&r, 0);
}
END_TEST

START_TEST(bad_checkpoints)
{
	struct program_result r;
	char path[SCRATCH_PATH];
	size_t size;
	char *model = scratch_read(CHECKPOINT "/model.safetensors", &size);

	program(&r, dir, "run --checkpoint '%s' --tokens 1", PLUMB_GOLDEN_DIR "/tiny");
	program_expect_line(&r, "tiny: no config.json", "tiny/checkpoint is");
	mkdir(scratch_path(path, dir, "ckpt"), 0777);
	program(&r, dir, "run --checkpoint '%s/ckpt' --tokens 1", dir);
	program_expect_line(&r, "ckpt/config.json: cannot open: No such file", "checkpoint folder");
	scratch_copy(dir, CHECKPOINT "/config.json", "ckpt/config.json");
	program(&r, dir, "run --checkpoint '%s/ckpt' --tokens 1", dir);
	program_expect_line(&r, "safetensors", dir);
	static const size_t cut[] = {0, 4, 8, 100, 20000};
	for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
		scratch_write(path, "model.safetensors", model, cut[i]);
		program(&r, dir, "run --checkpoint '%s/ckpt' --tokens 1", dir);
		program_expect_line(&r, "model.safetensors", dir);
	}
	scratch_write(path, "model.safetensors", model, size - 1);
	program(&r, dir, "run --checkpoint '%s/ckpt' --tokens 1", dir);
	program_expect_line(&r, "model.safetensors", dir);
	/* a header that claims more than the file */
	model[7] = 0x7f;
	scratch_write(path, "model.safetensors", model, size);
	program(&r, dir, "run --checkpoint '%s/ckpt' --tokens 1", dir);
	program_expect_line(&r, "model.safetensors", dir);
	free(model);
	/* an index that leaves the folder */
	unlink(scratch_path(path, dir, "ckpt/model.safetensors"));
	scratch_write(dir, "ckpt/model.safetensors.index.json",
		"{\"weight_map\": {\"lm_head.weight\": \"../evil.safetensors\"}}", (size_t)-1);
	program(&r, dir, "run --checkpoint '%s/ckpt' --tokens 1", dir);
	program_expect_line(&r, "evil.safetensors", "index.json");
	program(&r, dir, "run --checkpoint /nonexistent/folder --tokens 1");
	program_expect_line(&r, "/nonexistent/folder", "");
}
END_TEST

/* One digest for twin, simt, another schedule and a mixture; another one for the oracle. */
static const char *digest(char text[40], const char *options)
{
	struct program_result r;
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local --quiet --digest %s", options);
	program_expect(&r, 0);
	const char *at = strstr(r.out, "digest  ");
	ck_assert_msg(at != NULL, "%s", r.out);
	snprintf(text, 40, "%.32s", at + 8);
	return text;
}

START_TEST(digests_agree)
{
	static const char *const others[] = {
		"--set opt",
		"--set opt --seed 11",
		"--mode twin --threads 3 --page-seed 5",
		"--mode twin --op gdn_recurrence@0-1=opt --op moe_down=opt --op lm_head=opt",
		"--set opt --mode twin --op hc_up_mix=ref --op qsa_select@3=ref",
	};
	char twin[40], other[40], options[128];
	const char *policy = _i ? "bf16" : "f32";
	size_t count = sizeof others / sizeof others[0];
#ifdef __SANITIZE_ADDRESS__
	count = 1; /* the others are the same code, ten times slower here */
#endif
	snprintf(options, sizeof options, "--mode twin --policy %s", policy);
	digest(twin, options);
	for (size_t i = 0; i < count; i++) {
		snprintf(options, sizeof options, "%s --policy %s", others[i], policy);
		ck_assert_msg(strcmp(digest(other, options), twin) == 0, "%s: digest %s, twin %s", options, other, twin);
	}
	snprintf(options, sizeof options, "--policy %s", policy);
	ck_assert_str_ne(digest(other, options), twin);
}
END_TEST

START_TEST(guarded_check)
{
	struct program_result r;
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local --guard --quiet %s",
		_i ? "--set opt" : "--mode twin");
	program_expect(&r, 0);
}
END_TEST

/* Without a GPU (or without CUDA in the build) the answer is exit status 3, never a pass. */
START_TEST(no_gpu)
{
	struct program_result r;
	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 1 --set opt --device cuda --gpu 99");
	program_expect(&r, 3);
	ck_assert_msg(strstr(r.err, "cuda") != NULL || strstr(r.err, "GPU") != NULL, "%s", r.err);
	ck_assert_str_eq(r.out, "");
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --set opt --device vulkan");
	program_expect_line(&r, "--device", "vulkan");
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --op moe_down=fast");
	program_expect_line(&r, "moe_down", "fast");
}
END_TEST

/* Reports never replace an input, a device or each other, and lost output is no success. */
START_TEST(report_paths)
{
	struct program_result r;
	char path[SCRATCH_PATH];
	struct stat before, after;

	scratch_copy(dir, TINY, "g.h5");
	ck_assert_int_eq(stat(scratch_path(path, dir, "g.h5"), &before), 0);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT " --json '%s'", path, path);
	program_expect_line(&r, "overwrite", "g.h5");
	ck_assert_int_eq(stat(path, &after), 0);
	ck_assert(before.st_ino == after.st_ino && before.st_size == after.st_size);
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --junit " CHECKPOINT "/config.json");
	program_expect_line(&r, "checkpoint", "--junit");
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --json '%s/r' --junit '%s/r'", dir, dir);
	program_expect_line(&r, "--json and --junit", "");
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --json ''");
	program_expect_line(&r, "--json", "empty");
	/* inputs of every kind */
	static const char *const inputs[] = {"--tolerances", "--profile", "--op attn_gate="};
	scratch_write(dir, "in.so", "mine", 4);
	for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
		const char *space = strchr(inputs[i], '=') ? "" : " ";
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " %s%s'%s/in.so' --tap '%s/in.so'", inputs[i],
			space, dir, dir);
		program_expect_bad(&r, "--tap ", "in.so would overwrite the input ");
	}
	program(&r, dir, "test --op argmax='%s/in.so' --json '%s/in.so'", dir, dir);
	program_expect_bad(&r, "--json ", "in.so would overwrite the input ");
	ck_assert_int_eq(stat(scratch_path(path, dir, "in.so"), &after), 0);
	ck_assert_int_eq(after.st_size, 4);
	/* a link to nothing, and to itself */
	for (int loop = 0; loop < 2; loop++) {
		scratch_path(path, dir, loop ? "loop" : "link");
		ck_assert_int_eq(symlink(loop ? "loop" : "nowhere", path), 0);
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --json '%s'", path);
		program_expect_bad(&r, "--json ", loop ? "Too many levels" : "cannot write: No such file");
		ck_assert(lstat(path, &after) == 0 && S_ISLNK(after.st_mode));
	}
	static const char *const one_file[][2] = {
		{"run --checkpoint " CHECKPOINT " --tokens 1 --steps 2 --digests x.json --json x.json",
			"--digests and --json"},
		{"run --checkpoint " CHECKPOINT " --tokens 1 --steps 2 --digests ./x.json --json x.json",
			"--digests and --json"},
		{"check " TINY " --checkpoint " CHECKPOINT " --html - --tap -", "--tap and --html"},
		{"bisect " TINY " --checkpoint " CHECKPOINT " --set opt --json x.h5 --case x.h5", "--json and --case"},
		{"golden verify " TINY " --checkpoint " CHECKPOINT " --json x.h5 --keep x.h5", "--json and --keep"},
		{"test argmax --json x --html x", "--json and --html"},
		{"bench --json x --html x", "--json and --html"},
		{"faults --json x --html x", "--json and --html"},
		{"merge x.json --tap x --junit x", "--junit and --tap"},
	};
	for (size_t i = 0; i < sizeof one_file / sizeof one_file[0]; i++) {
		program(&r, dir, "%s", one_file[i][0]);
		program_expect_bad(&r, one_file[i][1], "expected two files");
	}
	/* what is no regular file is written to and stays what it is */
	ck_assert_int_eq(symlink("/dev/null", scratch_path(path, dir, "null")), 0);
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local --quiet --json '%s'", path);
	program_expect(&r, 0);
	ck_assert(stat(path, &after) == 0 && S_ISCHR(after.st_mode));
	/* a link to a file is followed */
	scratch_write(dir, "real.json", "", 0);
	ck_assert_int_eq(symlink("real.json", scratch_path(path, dir, "link.json")), 0);
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local --quiet --json '%s'", path);
	program_expect(&r, 0);
	ck_assert(lstat(path, &after) == 0 && S_ISLNK(after.st_mode));
	cJSON_Delete(read_json(path));
	/* alone on standard output */
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local --junit -");
	program_expect(&r, 0);
	ck_assert_int_eq(strncmp(r.out, "<?xml", 5), 0);
	program(&r, dir, "list ops >/dev/full; exit $?; true");
	program_expect(&r, 2);
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local >&-; exit $?; true");
	program_expect(&r, 2);
}
END_TEST

START_TEST(ops_only_where_they_run)
{
	struct program_result r;
	static const char *const wrong[] = {
		"gdn_conv@3=opt",
		"attn_gate@0-2=opt",
		"lm_head@2=opt",
		"embed@0=opt",
		"ple_gate@0=ref",
		"hc_inject@out=ref",
		"gdn_conv@0-0000000000000000000000000000000000000000002=opt",
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --op %s", wrong[i]);
		program_expect_line(&r, "--op", "");
	}
	program(&r, dir,
		"check " TINY " --checkpoint " CHECKPOINT
		" --view local --quiet --op gdn_conv@0-3=opt --op lm_head@out=opt");
	program_expect(&r, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli");
	TCase *c = suite_part(s, "program", 300);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, help_and_usage);
	tcase_add_test(c, list);
	tcase_add_loop_test(c, tiny_passes, 0, WAYS);
	tcase_add_loop_test(c, quantised_passes, 0, QUANTISED);
	tcase_add_test(c, json_report);
	tcase_add_loop_test(c, json_report_quantised, 0, 2);
	tcase_add_test(c, nan_code);
	tcase_add_test(c, junit_report);
	tcase_add_test(c, selection_of_layers);
	tcase_add_test(c, run_command);
	tcase_add_test(c, run_agrees_with_golden);
	tcase_add_test(c, bad_configs);
	tcase_add_test(c, bad_checkpoints);
#ifdef __SANITIZE_ADDRESS__
	tcase_add_loop_test(c, digests_agree, 1, 2); /* bf16 alone: it passes every rounding point, too */
#else
	tcase_add_loop_test(c, digests_agree, 0, 2);
#endif
#ifdef __SANITIZE_ADDRESS__
	tcase_add_loop_test(
		c, guarded_check, 0, 1); /* test_guard and test_sets guard the kernels here, on smaller models */
#else
	tcase_add_loop_test(c, guarded_check, 0, 2);
#endif
	tcase_add_test(c, no_gpu);
	tcase_add_test(c, report_paths);
	tcase_add_test(c, ops_only_where_they_run);
	return suite_run(s);
}
