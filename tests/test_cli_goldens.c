/* SPDX-License-Identifier: MIT */
/* `plumb check` on golden files that are damaged, changed, of another model, or of another producer's spelling. */
#include <check.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/program.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"

/* With sanitizers a check takes seconds: every kind of tensor is changed once. */
#ifdef __SANITIZE_ADDRESS__
enum { CHANGES = 7 };
#else
enum { CHANGES = 16 };
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

/* Goldens: truncated, without what is needed, of another model, with tokens beyond the vocabulary. */
START_TEST(bad_goldens)
{
	struct program_result r;
	size_t size;
	char *data = scratch_read(TINY, &size), path[SCRATCH_PATH];

	for (int i = 0; i < 8; i++) {
		scratch_write(dir, "cut.h5", data, size * (size_t)i / 8);
		program(&r, dir, "check '%s/cut.h5' --checkpoint " CHECKPOINT, dir);
		program_expect_line(&r, "cut.h5", "");
	}
	free(data);
	program(&r, dir, "check /nonexistent/g.h5 --checkpoint " CHECKPOINT);
	program_expect_line(&r, "g.h5", "");

	/* no group of the policy */
	scratch_copy(dir, TINY, "edit.h5");
	hid_t f = H5Fopen(scratch_path(path, dir, "edit.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	H5Ldelete(f, "bf16", H5P_DEFAULT);
	H5Fclose(f);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT " --policy bf16", path);
	program_expect_line(&r, "/bf16", "edit.h5");

	/* a token beyond the vocabulary */
	f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	hid_t d = H5Dopen2(f, "input_ids", H5P_DEFAULT);
	int64_t id[56];
	H5Dread(d, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, id);
	id[7] = 320;
	H5Dwrite(d, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, id);
	H5Dclose(d);
	H5Fclose(f);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT, path);
	program_expect_line(&r, "input_ids[7] is 320", "vocab_size");

	/* checkpoint of another model */
	struct plumb_config cfg = random_checkpoint_smallest();
	char other[SCRATCH_PATH];
	mkdir(scratch_path(other, dir, "other"), 0777);
	random_checkpoint_write(other, &cfg, &(struct random_checkpoint){.seed = 1, .format = PLUMB_BF16});
	program(&r, dir, "check " TINY " --checkpoint '%s'", other);
	program_expect(&r, 2);
	ck_assert_msg(strstr(r.err, "tiny.h5") != NULL, "%s", r.err);
}
END_TEST

/* One number of the golden changed, in each kind of tensor: the check must name it. */
static void changed_golden(const char *dataset, int64_t element, double add, int status, const char *word)
{
	struct program_result r;
	char path[SCRATCH_PATH];

	scratch_copy(dir, TINY, "edit.h5");
	hid_t f = H5Fopen(scratch_path(path, dir, "edit.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	hid_t d = H5Dopen2(f, dataset, H5P_DEFAULT), space = H5Dget_space(d);
	hssize_t n = H5Sget_simple_extent_npoints(space);
	double *v = malloc((size_t)n * sizeof *v);
	H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v);
	v[element] += add;
	H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, v);
	free(v);
	H5Sclose(space);
	H5Dclose(d);
	H5Fclose(f);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT " %s", path,
		strncmp(dataset, "bf16", 4) == 0 ? "--policy bf16" : "");
	program_expect(&r, status);
	ck_assert_msg(strstr(r.out, word) != NULL, "nothing of '%s' in: %s", word, r.out);
}

START_TEST(changed_goldens_are_found)
{
	static const struct {
		const char *dataset;
		int64_t element;
		double add;
	} change[] = {
		{"fp32/layer00/gdn/recurrence", 777, 1e-3},
		{"fp32/layer01/ple/output", 5000, 2e-3},
		{"fp32/layer02/moe/output", 3000, 1e-3},
		{"fp32/layer03/state/keys", 100, 2e-3},
		{"fp32/layer01/state/conv_states1", 9, 1e-2},
		{"fp32/layer01/state/conv_states2", 0, 1},
		{"fp32/layer00/state/recurrent_states0", 3, 1e-3},
		{"fp32/logits", 17000, 1e-2},
		{"fp32/decode_logits", 6000, 1e-2},
		{"fp32/greedy", 23, 1},
		{"fp32/layer02/moe/router/experts", 11, 1},
		{"fp32/layer03/qsa/selected_mask", 55 * 56 + 3, 3.4028234663852886e38},
		{"fp32/embed/output", 1, 1e-6},
		{"bf16/layer00/attn_hc/mixed", 70, 0.0625},
		{"bf16/layer02/moe/shared/output", 999, 0.0625},
		{"bf16/layer03/attention/gated", 400, 0.0625},
	};
	/* a state, integers, the cached decode, greedy tokens, choices, a mask, the other policy */
	static const int some[] = {4, 5, 8, 9, 10, 11, 15};
	const int which = CHANGES == 16 ? _i : some[_i];
	const char *name = strchr(change[which].dataset, '/') + 1;
	changed_golden(change[which].dataset, change[which].element, change[which].add, 1, name);
}
END_TEST

/* NaN in the golden is never within tolerance. */
START_TEST(nan_in_golden)
{
	changed_golden("fp32/layer00/moe/output", 5, strtod("nan", NULL), 1, "moe/output");
}
END_TEST

/* Index scores that are NaN, or all the same, explain nothing: not a tie, not a pass. */
static void constant_index_norm(uint16_t code)
{
	static const char name[] = "\"model.layers.3.self_attn.indexer.k_layernorm.weight\"";
	struct program_result r;
	char path[SCRATCH_PATH];
	size_t size;
	unsigned long first = 0, last = 0;
	char *model = scratch_read(CHECKPOINT "/model.safetensors", &size), *at;
	uint64_t header;

	memcpy(&header, model, sizeof header);
	at = memmem(model + 8, header, name, sizeof name - 1);
	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(strstr(at, "data_offsets"), "data_offsets\":[%lu,%lu]", &first, &last), 2);
	for (unsigned long i = first; i < last; i += 2)
		memcpy(model + 8 + header + i, &code, sizeof code);
	mkdir(scratch_path(path, dir, "ckpt"), 0777);
	scratch_copy(dir, CHECKPOINT "/config.json", "ckpt/config.json");
	scratch_write(path, "model.safetensors", model, size);
	free(model);
	for (int i = 0; i < 2; i++) {
		program(&r, dir, "check " TINY " --checkpoint '%s' --view local %s", path, i ? "--policy bf16" : "");
		program_expect(&r, 1);
		ck_assert_msg(strstr(r.out, "qsa/selected_mask") != NULL, "%s", r.out);
	}
}

START_TEST(index_scores_that_say_nothing)
{
	constant_index_norm(_i ? 0xbf80 : 0x7fc0); /* 1 + w = 0: all keys and scores zero; NaN */
}
END_TEST

/* What the file does not hold is said. */
START_TEST(missing_recordings_are_named)
{
	struct program_result r;
	char path[SCRATCH_PATH];

	scratch_copy(dir, TINY, "edit.h5");
	hid_t f = H5Fopen(scratch_path(path, dir, "edit.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	H5Ldelete(f, "fp32/layer02/gdn", H5P_DEFAULT);
	H5Fclose(f);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT " --view local", path);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "not recorded") && strstr(r.out, "layer02/gdn/"), "%s", r.out);
}
END_TEST

/* A dataset that no op writes is not passed over. */
START_TEST(unknown_dataset)
{
	struct program_result r;
	char path[SCRATCH_PATH];

	scratch_copy(dir, TINY, "edit.h5");
	hid_t f = H5Fopen(scratch_path(path, dir, "edit.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	H5Lmove(f, "fp32/layer00/gdn/output", H5L_SAME_LOC, "fp32/layer00/gdn/ouput", H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(f);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT, path);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "gdn/ouput") != NULL, "%s", r.out);
}
END_TEST

/* transformers 5.23 and later record the choice of QSA as a boolean mask: the same choice, and as closely judged. */
START_TEST(mask_of_integers)
{
	enum { T = 56 };
	static const char name[] = "fp32/layer03/qsa/selected_mask";
	static const hsize_t square[3] = {1, T, T};
	struct program_result r;
	char path[SCRATCH_PATH];
	float mask[T * T];
	int64_t selected[T * T];

	scratch_copy(dir, TINY, "edit.h5");
	hid_t f = H5Fopen(scratch_path(path, dir, "edit.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
	hid_t d = H5Dopen2(f, name, H5P_DEFAULT), space = H5Screate_simple(3, square, NULL);
	H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, mask);
	H5Dclose(d);
	for (int i = 0; i < T * T; i++)
		selected[i] = mask[i] == 0.0f;
	selected[30 * T + 31] = (int[]){0, 1, 2}[_i]; /* a token of the future */
	H5Ldelete(f, name, H5P_DEFAULT);
	d = H5Dcreate2(f, name, H5T_STD_I8LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	H5Dwrite(d, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, selected);
	H5Dclose(d);
	H5Sclose(space);
	H5Fclose(f);
	program(&r, dir, "check '%s' --checkpoint " CHECKPOINT, path);
	if (_i == 2) {
		program_expect_line(&r, name, "element 1711 of the mask is 2, expected 0 or 1");
		return;
	}
	program_expect(&r, _i);
	ck_assert_msg(strstr(r.out, _i ? "row 30" : "56 rows: 56 equal") != NULL, "%s", r.out);
	program(&r, dir, "golden diff '%s' " TINY " --rel-l2 0", path);
	program_expect(&r, _i);
}
END_TEST

/* The built-in tolerances and one rule more. */
static void write_tolerances(const char *policy, const char *suffix)
{
	static char text[1 << 16];
	size_t size;
	char *shipped = scratch_read(PLUMB_GOLDEN_DIR "/tolerances.json", &size);

	*strrchr(shipped, ']') = '\0';
	snprintf(text, sizeof text,
		"%s, {\"view\": \"local\", \"policy\": \"%s\", \"suffix\": \"%s\", \"exact\": true, "
		"\"reason\": \"one more\"}]}",
		shipped, policy, suffix);
	scratch_write(dir, "t.json", text, (size_t)-1);
	free(shipped);
}

/* A rule that no tensor can have is refused, one that this file has no tensor for is told, any other is silent. */
START_TEST(rules_without_tensors)
{
	static const struct {
		const char *policy, *suffix, *meant; /* meant NULL: told; "": silent */
	} rules[] = {
		{"f32", "moe/outptu", "did you mean 'moe/output'"},
		{"f32", "decode_logit", "did you mean 'decode_logits'"},
		{"bf16", "layer02/moe/outptu", "expected the end of the name of a float tensor"},
		{"f32", "moe/router/experts", "expected the end of the name of a float tensor"}, /* a choice */
		{"f32", "qsa/selected_mask", "expected the end of the name of a float tensor"},
		{"f32", "bf16/layer00/moe/output", "expected the end of the name of a float tensor"}, /* not of that run */
		{"bf16", "layer3/moe/output", "expected the end of the name of a float tensor"},
		{"f32", "layer07/moe/output", NULL},
		{"f32", "layer00/ple/output", NULL},
		{"bf16", "fp32/layer00/moe/output", "expected the end of the name of a float tensor"},
		{"bf16", "bf16/layer03/moe/output", ""},
		{"f32", "embedding/output", ""},
		{"f32", "decode_logits", ""},
	};
	static const char *const commands[] = {"check " TINY " --checkpoint " CHECKPOINT " --view local --layers 0 -q",
		"golden diff " TINY " " TINY, "golden verify " TINY " --checkpoint " CHECKPOINT " --checksums",
		"bisect " TINY " --checkpoint " CHECKPOINT};
	struct program_result r;

	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		const char *meant = rules[i].meant;
		write_tolerances(rules[i].policy, rules[i].suffix);
		program(&r, dir, "%s --tolerances '%s/t.json'", commands[0], dir);
		if (meant && *meant) {
			program_expect_bad(&r, rules[i].suffix, meant);
			ck_assert_msg(strstr(r.err, "].suffix: ") != NULL, "%s", r.err);
			continue;
		}
		if (meant)
			ck_assert_str_eq(r.err, "");
		else
			program_expect_failure(&r, 0, "] is for nothing here", rules[i].suffix);
	}
	write_tolerances("f32", "moe/outptu");
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		program(&r, dir, "%s --tolerances '%s/t.json'", commands[i], dir);
		program_expect_line(&r, "].suffix: \"moe/outptu\"", "did you mean 'moe/output'");
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli_goldens");
	TCase *c = suite_part(s, "program", 300);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, bad_goldens);
	tcase_add_loop_test(c, changed_goldens_are_found, 0, CHANGES);
	tcase_add_test(c, nan_in_golden);
	tcase_add_loop_test(c, index_scores_that_say_nothing, 0, 2);
	tcase_add_test(c, missing_recordings_are_named);
	tcase_add_test(c, unknown_dataset);
	tcase_add_loop_test(c, mask_of_integers, 0, 3);
	tcase_add_test(c, rules_without_tensors);
	return suite_run(s);
}
