/* SPDX-License-Identifier: MIT */
/* `plumb golden make` and `verify`: the same bytes every time, also when stopped and resumed; files that check accepts;
 * damage and changes found and named. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "golden/seal.h"
#include "tests/support/golden_files.h"
#include "tests/support/program.h"
#include "tests/support/suite.h"

#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define FROM_TINY "--checkpoint " CHECKPOINT " --prompt-from " TINY
#define SHORT                                                                                                              \
	"--checkpoint " CHECKPOINT " --tokens "                                                                            \
	"5,17,3,42,200,17,3,42,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27"
#define FEW "--checkpoint " CHECKPOINT " --tokens 5,17,3,42,200,17,3 --steps 2 --policy f32"

static struct program_result r;

static bool same_file(const char *x, const char *y)
{
	size_t n, m;
	char *a = scratch_read(x, &n), *b = scratch_read(y, &m);
	bool same = n == m && memcmp(a, b, n) == 0;
	free(a);
	free(b);
	return same;
}

/* Files of the scratch folder whose name begins so. */
static int files_like(const char *start)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	int n = 0;
	while ((e = readdir(d)))
		n += strncmp(e->d_name, start, strlen(start)) == 0;
	closedir(d);
	return n;
}

static void make(const char *file, const char *options)
{
	program(&r, folder, "golden make %s %s", file, options);
	program_expect(&r, 0);
}

/* ---- what is made ---- */

START_TEST(same_bytes)
{
	static const char *const other_ways[] = {"", " --threads 1", " --page-seed 7", " --save-seconds 0", " --resume"};
	make(path, FROM_TINY);
	ck_assert_msg(strstr(r.out, "56 tokens, 2 runs, 184 tensors"), "%s", r.out);
	for (size_t i = 0; i < sizeof other_ways / sizeof other_ways[0]; i++) {
		program(&r, folder, "golden make %s " FROM_TINY "%s", other, other_ways[i]);
		program_expect(&r, 0);
		ck_assert_msg(same_file(path, other), "not the same bytes with '%s'", other_ways[i]);
	}
	ck_assert_int_eq(files_like("other.h5"), 1);
	program(&r, folder, "golden make %s " FROM_TINY " --date 2026-01-02 --quiet", other);
	program_expect(&r, 0);
	ck_assert_str_eq(r.out, "");
	ck_assert(!same_file(path, other));
	struct plumb_golden *golden = open_golden(other);
	ck_assert_str_eq(plumb_golden_attribute(golden, "date"), "2026-01-02");
	ck_assert_str_eq(plumb_golden_attribute(golden, "mode"), "oracle");
	ck_assert_str_eq(plumb_golden_attribute(golden, "set"), "ref");
	ck_assert_str_eq(plumb_golden_attribute(golden, "ties"), "torch"); /* as tiny.h5 was made */
	ck_assert_int_eq(strncmp(plumb_golden_attribute(golden, "producer"), "plumb ", 6), 0);
	ck_assert_int_eq(strncmp(plumb_golden_attribute(golden, "checkpoint"), "sha256:", 7), 0);
	ck_assert_ptr_nonnull(strstr(plumb_golden_attribute(golden, "config"), "\"hc_count\""));
	ck_assert_int_eq(plumb_golden_prefill(golden, PLUMB_POLICY_F32), 37);
	plumb_golden_close(golden);
}
END_TEST

/* A generated model is a source too: told by preset and seed, the same bits from twin and kernels, and the seed counts. */
START_TEST(generated_model)
{
	make(path, "--synthetic tiny --tokens 1,2,3,4,5 --steps 2 --mode twin");
	make(other, "--synthetic tiny --tokens 1,2,3,4,5 --steps 2 --set opt");
	program(&r, folder, "golden diff %s %s", path, other);
	program_expect(&r, 0);
	struct plumb_golden *golden = open_golden(path);
	ck_assert_str_eq(plumb_golden_attribute(golden, "checkpoint"), "synthetic tiny, seed 0");
	ck_assert_ptr_nonnull(strstr(plumb_golden_attribute(golden, "config"), "\"hc_count\""));
	plumb_golden_close(golden);
	program(&r, folder, "golden verify %s --synthetic tiny", path);
	program_expect(&r, 0);
	program(&r, folder, "golden verify %s --synthetic tiny --weight-seed 1", path);
	program_expect(&r, 1);
}
END_TEST

/* The layout of the file that transformers made: the same names and shapes, values within the tolerances, not every
 * bit; and check passes on it in both views and policies, by both sets. */
START_TEST(as_the_shipped_file)
{
	make(path, FROM_TINY);
	program(&r, folder, "golden diff %s " TINY " --tolerances builtin", path);
	program_expect(&r, 0);
	ck_assert_msg(
		strstr(r.out, "185 tensors") && strstr(r.out, "0 beyond, 0 of another shape; only in A 0, only in B 0"),
		"%s", r.out);
	program(&r, folder, "golden diff %s " TINY " --quiet", path);
	program_expect(&r, 1);
	static const char *const ways[] = {"", "--policy bf16", "--mode twin", "--set opt --view local"};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		program(&r, folder, "check %s --checkpoint " CHECKPOINT " %s", path, ways[i]);
		program_expect(&r, 0);
		ck_assert_msg(!strstr(r.out, "not recorded"), "%s", r.out);
	}
	program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, path);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "185 equal") && strstr(r.out, "185 datasets as recorded"), "%s", r.out);
	program(&r, folder, "golden verify " TINY " --checkpoint " CHECKPOINT " --quiet");
	program_expect(&r, 0);
	program(&r, folder,
		"golden verify " TINY " --checkpoint " CHECKPOINT " --quiet --ties lower"); /* row 23 is a tie */
	program_expect(&r, 1);
}
END_TEST

/* Twin and the kernels on this CPU give one trace. */
START_TEST(sets_agree)
{
	make(path, FEW " --mode twin");
	make(other, FEW " --set opt");
	program(&r, folder, "golden diff %s %s --quiet", path, other);
	program_expect(&r, 0);
	program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, other);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "no bit may differ") && strstr(r.out, "set opt on simt"), "%s", r.out);
}
END_TEST

/* A mixture is recorded, and verified with. */
START_TEST(mixtures)
{
	/* number formats too */
	make(path, FEW " --profile served --kv-format fp8 --state-format f16");
	program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, path);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "no bit may differ") && strstr(r.out, "GDN state f16"), "%s", r.out);
	program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT " --kv-format f32", path);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "kv_format   recorded fp8; now f32"), "%s", r.out);
	make(path, FEW " --mode twin --op gdn_recurrence@1-2=opt --op moe_down=opt");
	struct plumb_golden *golden = open_golden(path);
	ck_assert_str_eq(plumb_golden_attribute(golden, "ops"), "gdn_recurrence@1-2=opt,moe_down=opt");
	plumb_golden_close(golden);
	program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, path);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "2 --op"), "%s", r.out);
}
END_TEST

/* ---- parts of the format ---- */

START_TEST(chosen_tensors)
{
	static const struct {
		const char *options;
		int tensors;
		const char *there, *not_there;
	} way[] = {
		{"--policy f32 --layers 1", 25, "fp32/layer01/ple/output", "fp32/logits"},
		{"--policy f32 --layers out --steps 3 --prefill 20", 5, "fp32/decode_logits", "fp32/layer00/input"},
		{"--policy bf16 --tensors 'layer*/output,logits'", 5, "bf16/layer03/output",
			"bf16/layer03/attention/output"},
		{"--policy bf16 --tensors 'layer03/moe/**,layer0[01]/gdn/*/output'", 16, "bf16/layer00/gdn/norm/output",
			"bf16/layer00/gdn/output"},
		{"--tensors 'layer0?/moe/router/*,logits' --layers 2-3", 6, "fp32/layer03/moe/router/experts",
			"fp32/logits"},
		{"--steps 0 --prefill 27 --policy f32", 91, "fp32/logits", "fp32/decode_logits"},
	};
	make(path, SHORT);
	for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
		program(&r, folder, "golden make %s " SHORT " %s", other, way[i].options);
		if (strstr(way[i].options, ",logits' --layers")) { /* logits lie outside the layers 2-3 */
			program_expect_bad(&r, "'logits'", "--tensors");
			continue;
		}
		program_expect(&r, 0);
		struct plumb_golden *all = open_golden(path), *some = open_golden(other);
		int64_t n, m;
		plumb_golden_run(some, PLUMB_POLICY_F32, &n);
		plumb_golden_run(some, PLUMB_POLICY_BF16, &m);
		ck_assert_msg(n + m == way[i].tensors, "%s: %lld tensors", way[i].options, (long long)(n + m));
		ck_assert_msg(plumb_golden_find(some, way[i].there) && !plumb_golden_find(some, way[i].not_there), "%s",
			way[i].options);
		const struct plumb_h5_entry *entry = plumb_h5_entries(plumb_golden_file(some), &n);
		for (int64_t k = 0; k < n; k++) /* every one as in the whole file */
			if (!strstr(entry[k].name, "decode_logits") && !strstr(entry[k].name, "greedy"))
				ck_assert_str_eq(plumb_golden_sum(plumb_golden_file(some), entry[k].name),
					plumb_golden_sum(plumb_golden_file(all), entry[k].name));
		plumb_golden_close(all);
		plumb_golden_close(some);
		program(&r, folder, "check %s --checkpoint " CHECKPOINT, other);
		program_expect(&r, 0);
		program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, other);
		program_expect(&r, 0);
	}
}
END_TEST

/* One tensor a layer is enough for check: it says what it compared by which rules; a wrong one fails. */
START_TEST(minimal_files)
{
	make(path, FROM_TINY " --policy f32 --tensors 'layer0?/output,logits' --ties lower");
	program(&r, folder, "check %s --checkpoint " CHECKPOINT, path);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "come from inputs that are not recorded") && strstr(r.out, "86 tensors of the format"),
		"%s", r.out);
	ck_assert_msg(
		strstr(r.out, "1 choice not recorded runs through equal scores (first: layer03/qsa/selected_mask row 23)"),
		"%s", r.out);
	/* recorded by the other rule, the tie shows */
	make(other, FROM_TINY " --policy bf16 --tensors 'layer0?/output,logits' --ties torch");
	program(&r, folder, "check %s --checkpoint " CHECKPOINT " --view local", other);
	program_expect(&r, 0); /* its only run, and the tie rule it records */
	ck_assert_msg(strstr(r.out, "policy bf16, ties torch"), "%s", r.out);
	program(&r, folder, "check %s --checkpoint " CHECKPOINT " --policy f32", other);
	program_expect_bad(&r, "no group /fp32", "--policy");
	/* a layer that is one per mille off */
	struct plumb_golden *golden = open_golden(path);
	struct plumb_golden_tensor t;
	hid_t file = create(other);
	hsize_t ids = 56, dim[2] = {56, 256};
	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &ids, H5P_DEFAULT, plumb_golden_input_ids(golden));
	for (int l = 0; l < 4; l++) {
		char name[64];
		snprintf(name, sizeof name, "fp32/layer%02d/output", l);
		ck_assert_int_eq(plumb_golden_read_f32(golden, name, &t, &err), 0);
		for (int64_t i = 0; i < t.count && l == 2; i++)
			t.f32[i] *= 1.001f;
		put(file, name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dim, H5P_DEFAULT, t.f32);
		plumb_golden_tensor_free(&t);
	}
	H5Fclose(file);
	plumb_golden_close(golden);
	program(&r, folder, "check %s --checkpoint " CHECKPOINT " --view local", other);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "layer02/output: FAIL") && !strstr(r.out, "layer01/output: FAIL"), "%s", r.out);
}
END_TEST

START_TEST(wrong_wishes)
{
	static const struct {
		const char *options, *first, *second;
	} wrong[] = {
		{"--checkpoint " CHECKPOINT, "--tokens", "--prompt-from"},
		{FROM_TINY " --tokens 1", "--tokens", "--prompt-from"},
		{"--tokens 1,2", "--checkpoint", ""},
		{"--checkpoint " CHECKPOINT " --tokens 1,320", "[1] is 320", "0..319"},
		{SHORT " --policy f16", "--policy", "both"},
		{SHORT " --tensors ''", "--tensors", ""},
		{SHORT " --tensors 'layer00/nonsense'", "layer00/nonsense", "matches no tensor"},
		{SHORT " --layers 4", "layers", ""},
		{SHORT " --steps 4096", "4096 steps", "4096 positions"},
		{SHORT " --prefill 28", "--prefill", "0..27"},
		{SHORT " --steps x", "--steps", ""},
		{"--checkpoint " CHECKPOINT " --prompt-from " CHECKPOINT "/config.json", "config.json", "HDF5"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		program(&r, folder, "golden make %s %s", path, wrong[i].options);
		program_expect_bad(&r, wrong[i].first, wrong[i].second);
		ck_assert_int_eq(files_like("golden.h5"), 0);
	}
	program(&r, folder, "golden make %s/none/x.h5 " SHORT, folder);
	program_expect_bad(&r, "x.h5", "no such folder");
	program(&r, folder, "golden make %s " SHORT, folder);
	program_expect_bad(&r, folder, "folder");
	program(&r, folder, "golden make - " SHORT);
	program_expect_bad(&r, "'-'", "");
	make(path, SHORT);
	program(&r, folder, "golden make %s --checkpoint " CHECKPOINT " --prompt-from %s", path, path);
	program_expect_bad(&r, "overwrite", "");
	make(path, SHORT); /* what is there is replaced */
}
END_TEST

/* Prompts of files that mean harm: ids outside the vocabulary, more positions than the model has. */
START_TEST(hostile_prompts)
{
	for (int way = 0; way < 3; way++) {
		hid_t file = create(path), chunked = H5Pcreate(H5P_DATASET_CREATE);
		hsize_t n = way == 2 ? 1 << 20 : 3, one = 1;
		int64_t *ids = calloc(n, sizeof *ids);
		float value = 1.0f;
		ids[1] = way == 0 ? 320 : way == 1 ? -1 : 0;
		H5Pset_chunk(chunked, 1, &n);
		H5Pset_deflate(chunked, 9);
		put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &n, chunked, ids);
		put(file, "fp32/greedy", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, &one, H5P_DEFAULT,
			&value); /* of floats: no plan */
		H5Pclose(chunked);
		H5Fclose(file);
		free(ids);
		program(&r, folder, "golden make %s --checkpoint " CHECKPOINT " --prompt-from %s", other, path);
		program_expect_bad(&r, way == 2 ? "1048576 tokens" : "input_ids[1]", way == 2 ? "4096" : "0..319");
		program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, path);
		program_expect_bad(&r, path, way == 2 ? "" : "input_ids[1]");
	}
	program(&r, folder, "golden verify " PLUMB_GOLDEN_DIR "/tiny-fp8/tiny-fp8.h5 --checkpoint " CHECKPOINT);
	program_expect_bad(&r, "expected", "config");
}
END_TEST

static void put_text(hid_t file, const char *name, const char *value)
{
	hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
	H5Tset_size(type, strlen(value) + 1);
	put_attribute(file, name, type, type, space, value);
	H5Sclose(space);
	H5Tclose(type);
}

/* Settings of a file are words, not code to load, and not everything that the command line takes. */
START_TEST(hostile_settings)
{
	static const char *const wrong[][3] = {
		{"set", "cuda", "expected ref or opt"},
		{"mode", "fast", "expected oracle or twin"},
		{"device", "tpu", "simt or cuda"},
		{"ties", "upper", "lower or torch"},
		{"ops", "hc_inject=./evil.so", "'hc_inject=./evil.so'"},
		{"ops", "hc_inject=ref,moe_down=/tmp/x.so", "'moe_down=/tmp/x.so'"},
		{"ops", "hc_inject", "NAME"},
		{"ops", ",", "NAME"},
		{"profile", "/tmp/evil.json", "ships"},
		{"kv_format", "or", "f32 or bf16 or fp8"},
		{"state_format", "bf16", "f32 or f16"},
		{"ops", "nothing=opt", "nothing"},
		{"set", "\x1b[31m", "expected ref or opt"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		hid_t file = create(path);
		hsize_t n = 3, dim[2] = {3, 320};
		static const int64_t ids[3] = {1, 2, 3};
		static const float logits[960];
		put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &n, H5P_DEFAULT, ids);
		put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dim, H5P_DEFAULT, logits);
		put_text(file, wrong[i][0], wrong[i][1]);
		H5Fclose(file);
		program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT, path);
		program_expect_bad(&r, wrong[i][2], "");
		ck_assert_ptr_null(strchr(r.err, 27));
	}
	hid_t file = create_golden();
	int64_t format = 2;
	put_attribute(file, "format", H5T_STD_I64LE, H5T_NATIVE_INT64, H5Screate(H5S_SCALAR), &format);
	H5Fclose(file);
	program(&r, folder, "golden verify %s --checksums", path);
	program_expect_bad(&r, "format is 2", "expected 1");
	program(&r, folder,
		"golden verify " TINY " --checksums"); /* made elsewhere; a fixture of other tests, as it may be */
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "185 without a checksum: nothing was held against one"));
}
END_TEST

/* ---- damage ---- */

static void flip(const char *file, off_t at, int bit)
{
	unsigned char byte;
	int fd = open(file, O_RDWR);
	ck_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= (unsigned char)(1u << bit);
	ck_assert(pwrite(fd, &byte, 1, at) == 1);
	close(fd);
}

/* Where the first chunk of a dataset lies; 0 bytes: nowhere. */
static off_t chunk_of(const char *file, const char *name, hsize_t *size)
{
	hid_t f = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT), d = H5Dopen2(f, name, H5P_DEFAULT), s = H5Dget_space(d);
	haddr_t at = 0;
	hsize_t start[8];
	unsigned mask;
	ck_assert(d >= 0 && H5Dget_chunk_info(d, s, 0, start, &mask, &at, size) >= 0);
	H5Sclose(s);
	H5Dclose(d);
	H5Fclose(f);
	return (off_t)at;
}

/* A bit of every dataset, one at a time: verify names it. */
START_TEST(flipped_bit_of_every_dataset)
{
	make(path, FROM_TINY " --policy f32");
	struct plumb_golden *golden = open_golden(path);
	int64_t n;
	const struct plumb_h5_entry *entry = plumb_h5_entries(plumb_golden_file(golden), &n);
	ck_assert_int_eq(n, 94);
	for (int64_t i = 0; i < n; i++) {
		hsize_t size = 0;
		off_t at = chunk_of(path, entry[i].name, &size);
		ck_assert(size > 0);
		flip(path, at + (off_t)((hsize_t)i * 131 % size), (int)(i % 8));
		program(&r, folder, "golden verify %s --checksums", path);
		program_expect_bad(&r, entry[i].name, path);
		if (i % 20 == 0) {
			program(&r, folder, "check %s --checkpoint " CHECKPOINT, path);
			program_expect_bad(&r, entry[i].name, path);
			program(&r, folder, "golden diff %s " TINY " --group fp32", path);
			if (strcmp(entry[i].name, "input_ids") != 0)
				program_expect_bad(&r, entry[i].name, path);
		}
		flip(path, at + (off_t)((hsize_t)i * 131 % size), (int)(i % 8));
	}
	plumb_golden_close(golden);
	program(&r, folder, "golden verify %s --checksums", path);
	program_expect(&r, 0);
}
END_TEST

/* A sum of everything a file says, or the refusal. */
static bool everything(const char *file, char hex[65])
{
	struct plumb_golden *golden;
	struct plumb_sha256 all;
	int64_t n;
	bool good = plumb_golden_open(file, &golden, &err) == PLUMB_OK;

	if (!good)
		return false;
	const struct plumb_h5_entry *entry = plumb_h5_entries(plumb_golden_file(golden), &n);
	plumb_sha256_begin(&all);
	for (int64_t i = 0; i < n && good; i++) {
		struct plumb_golden_tensor t = {0};
		good = (entry[i].type == PLUMB_H5_FLOAT ? plumb_golden_read_f32 : plumb_golden_read_i64)(
			       golden, entry[i].name, &t, &err) == PLUMB_OK;
		plumb_sha256_text(&all, entry[i].name);
		if (good)
			plumb_golden_sum_add(&all, entry[i].type, t.f32 ? (void *)t.f32 : (void *)t.i64, t.count);
		plumb_golden_tensor_free(&t);
	}
	plumb_sha256_text(&all, plumb_golden_attribute(golden, "producer"));
	plumb_sha256_text(&all, plumb_golden_attribute(golden, "config"));
	plumb_golden_close(golden);
	plumb_sha256_end(&all, hex);
	return good;
}

/* A bit anywhere: the file is refused, or says all it said before (a bit that nothing is kept in). */
START_TEST(flipped_bit_anywhere)
{
	char before[65], now[65];
	struct stat st;
	int found = 0, tries = 300;

	make(path, SHORT " --policy f32 --tensors 'layer01/**,logits'");
	ck_assert(everything(path, before));
	ck_assert_int_eq(stat(path, &st), 0);
	for (int i = 0; i < tries; i++) {
		off_t at = (off_t)((uint64_t)st.st_size * (uint64_t)i / (uint64_t)tries) + i * 37 % 400;
		at = at < st.st_size ? at : st.st_size - 1;
		flip(path, at, i % 8);
		bool opens = everything(path, now);
		ck_assert_msg(!opens || strcmp(before, now) == 0, "bit %d of byte %lld changed the file unseen", i % 8,
			(long long)at);
		found += !opens;
		flip(path, at, i % 8);
	}
	ck_assert(everything(path, now) && strcmp(before, now) == 0);
	ck_assert_msg(found > tries * 9 / 10, "only %d of %d flipped bits found", found, tries);
}
END_TEST

START_TEST(truncated_files)
{
	struct stat st;
	make(path, SHORT " --policy f32");
	ck_assert_int_eq(stat(path, &st), 0);
	for (int i = 15; i >= 0; i--) {
		ck_assert_int_eq(truncate(path, st.st_size * i / 16), 0);
		program(&r, folder, "golden verify %s --checksums", path);
		program_expect_bad(&r, path, "");
		program(&r, folder, "golden diff " TINY " %s", path);
		program_expect_bad(&r, path, "");
		program(&r, folder, "golden make %s --checkpoint " CHECKPOINT " --prompt-from %s", other, path);
		program_expect_bad(&r, path, "");
	}
}
END_TEST

/* What is no value: names, provenance, a dataset that is gone. */
START_TEST(edited_files)
{
	for (int way = 0; way < 6; way++) {
		make(path, SHORT " --policy f32 --tensors 'layer01/**,logits'");
		hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
		ck_assert_int_ge(f, 0);
		hsize_t one = 1;
		float value = 1.0f;
		if (way == 0)
			ck_assert_int_ge(
				H5Lmove(f, "fp32/layer01/input", f, "fp32/layer01/inpux", H5P_DEFAULT, H5P_DEFAULT), 0);
		else if (way == 1)
			ck_assert_int_ge(H5Ldelete(f, "fp32/logits", H5P_DEFAULT), 0);
		else if (way == 2)
			ck_assert_int_ge(H5Adelete(f, "mode"), 0);
		else if (way == 3)
			put(f, "fp32/layer00/input", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, &one, H5P_DEFAULT, &value);
		else if (way == 4)
			ck_assert_int_ge(H5Arename_by_name(f, "fp32/logits", "sha256", "sha257", H5P_DEFAULT), 0);
		else
			put_attribute(f, "note", H5T_STD_I64LE, H5T_NATIVE_FLOAT, H5Screate(H5S_SCALAR), &value);
		H5Fclose(f);
		program(&r, folder, "check %s --checkpoint " CHECKPOINT, path);
		if (way == 5) /* a remark of the user's own */
			program_expect(&r, 0);
		else
			program_expect_bad(&r, path, "damaged or edited");
	}
}
END_TEST

/* Another checkpoint: verify says that it is another, and what moved. */
START_TEST(changed_checkpoint)
{
	struct stat st;
	char weights[SCRATCH_PATH];
	make(path, SHORT " --policy f32");
	program(&r, folder, "golden verify %s --checkpoint " CHECKPOINT " --keep %s", path, other);
	program_expect(&r, 0);
	ck_assert(same_file(path, other));
	char command[3 * SCRATCH_PATH];
	snprintf(command, sizeof command, "cp -r '%s' '%s/changed'", CHECKPOINT, folder);
	ck_assert_int_eq(system(command), 0);
	scratch_path(weights, folder, "changed/model.safetensors");
	ck_assert_int_eq(stat(weights, &st), 0);
	flip(weights, st.st_size / 2, 4);
	program(&r, folder, "golden verify %s --checkpoint %s/changed", path, folder);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "checkpoint  recorded sha256:") && strstr(r.out, "first  fp32/"), "%s", r.out);
	ck_assert_int_eq(files_like("golden.h5"), 1);
}
END_TEST

/* ---- stopped and resumed ---- */

/* Options of the make that is stopped; the second with state in formats of fewer bytes. */
static const char *const stopped[2] = {FROM_TINY, FROM_TINY " --kv-format fp8 --state-format f16"};

static pid_t start(const char *file, int way)
{
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 1);
		dup2(null, 2);
		execl(PLUMB_PROGRAM, "plumb", "golden", "make", file, "--checkpoint", CHECKPOINT, "--prompt-from", TINY,
			"--save-seconds", "0", "--resume", way ? "--kv-format" : NULL, "fp8", "--state-format", "f16",
			(char *)NULL);
		_exit(127);
	}
	return pid;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Killed at random moments, as often as it takes (PLUMB_KILLS in all, 20 by default): at no moment is there a file that
 * is not the whole one; what is left is finished to the same bytes. */
START_TEST(killed_anywhere)
{
	const char *wanted = getenv("PLUMB_KILLS"), *options = stopped[_i];
	int kills = (wanted ? atoi(wanted) : 20) / (_i ? 4 : 1), whole = 0, parts = 0;
	unsigned seed = 20260901;
	char hex[65];

	make(path, options);
	double begin = now();
	program(&r, folder, "golden make %s %s --save-seconds 0", other, options);
	program_expect(&r, 0);
	double full = now() - begin;
	ck_assert(same_file(path, other));
	unlink(other);
	for (int i = 0; i < kills; i++) {
		struct timespec wait = {.tv_nsec = (long)(1e9 * full * ((double)rand_r(&seed) / RAND_MAX))};
		wait.tv_sec = wait.tv_nsec / 1000000000;
		wait.tv_nsec %= 1000000000;
		pid_t pid = start(other, _i);
		int status;
		nanosleep(&wait, NULL);
		kill(pid, i % 3 ? SIGKILL : SIGTERM);
		ck_assert(waitpid(pid, &status, 0) == pid);
		if (access(other, F_OK) == 0) {
			ck_assert_msg(same_file(path, other), "a file that is not the whole one after kill %d", i);
			whole++;
			unlink(other);
		} else {
			ck_assert(!everything(other, hex));
		}
		DIR *d = opendir(folder); /* nothing that is left opens as a golden file */
		const struct dirent *e;
		while ((e = readdir(d)))
			if (strncmp(e->d_name, "other.h5", 8) == 0) {
				char left[SCRATCH_PATH];
				parts++;
				ck_assert(!everything(scratch_path(left, folder, e->d_name), hex));
			}
		closedir(d);
	}
	program(&r, folder, "golden make %s %s --save-seconds 0 --resume", other, options);
	program_expect(&r, 0);
	ck_assert(same_file(path, other));
	ck_assert_int_eq(files_like("other.h5"), 1);
	ck_assert_msg(parts > 0, "no kill left anything behind: %d of %d were late", whole, kills);
}
END_TEST

/* A part is another's: nothing of it is taken, nothing of it is lost. */
START_TEST(parts_of_others)
{
	char part[SCRATCH_PATH];
	size_t n;
	scratch_path(part, folder, "golden.h5.part");
	pid_t pid = -1;
	for (int wait = 50; wait < 2000; wait += 50) { /* until one is killed in the middle */
		struct timespec t = {.tv_nsec = wait * 1000000L % 1000000000L, .tv_sec = wait / 1000};
		pid = start(path, 0);
		nanosleep(&t, NULL);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		struct stat st;
		if (stat(part, &st) == 0 && st.st_size > 0)
			break;
		unlink(path);
	}
	program(&r, folder, "golden make %s " FROM_TINY, path);
	program_expect_bad(&r, "golden.h5.part", "--resume");
	program(&r, folder, "golden make %s " FROM_TINY " --resume --mode twin", path);
	program_expect_bad(&r, "golden.h5.part", "another make");
	program(&r, folder, "golden make %s " SHORT " --resume", path);
	program_expect_bad(&r, "golden.h5.part", "another make");
	int fd = open(part, O_RDWR);
	ck_assert(fd >= 0 && flock(fd, LOCK_EX) == 0);
	program(&r, folder, "golden make %s " FROM_TINY " --resume", path);
	program_expect_bad(&r, "golden.h5.part", "being written");
	close(fd);
	program(&r, folder, "golden make %s " FROM_TINY " --resume", path);
	program_expect(&r, 0);
	scratch_write(folder, "golden.h5.part", "a letter to my aunt", (size_t)-1);
	program(&r, folder, "golden make %s " SHORT " --resume", path);
	program_expect_bad(&r, "golden.h5.part", "in the way");
	char *letter = scratch_read(part, &n);
	ck_assert_str_eq(letter, "a letter to my aunt");
	free(letter);
}
END_TEST

/* A state that is damaged is not gone on from; the make begins anew and ends the same. */
START_TEST(damaged_state)
{
	char state[SCRATCH_PATH];
	struct stat st;
	make(path, FROM_TINY);
	for (int wait = 50; wait < 3000; wait += 40) {
		struct timespec t = {.tv_nsec = wait * 1000000L % 1000000000L, .tv_sec = wait / 1000};
		pid_t pid = start(other, 0);
		nanosleep(&t, NULL);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		if (stat(scratch_path(state, folder, "other.h5.part-state"), &st) == 0 && st.st_size > 1000)
			break;
		unlink(other);
	}
	ck_assert(st.st_size > 1000);
	flip(state, st.st_size / 2, 3);
	program(&r, folder, "golden make %s " FROM_TINY " --resume", other);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.err, "from the beginning") && !strstr(r.out, "resumed"), "%s%s", r.err, r.out);
	ck_assert(same_file(path, other));
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ /* its memory is not the program's */
/* ---- memory ---- */

/* Largest memory of a make of so many tokens, in KiB. */
static long memory_of(int tokens)
{
	char list[1 << 14], prefill[16];
	size_t n = 0;
	struct rusage used;
	int status;
	for (int i = 0; i < tokens; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", i ? "," : "", 4 + i * 37 % 300);
	snprintf(prefill, sizeof prefill, "%d", tokens - 10);
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 1);
		execl(PLUMB_PROGRAM, "plumb", "golden", "make", path, "--checkpoint", CHECKPOINT, "--policy", "f32",
			"--tokens", list, "--prefill", prefill, (char *)NULL);
		_exit(127);
	}
	ck_assert(wait4(pid, &status, 0, &used) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return used.ru_maxrss;
}

START_TEST(bounded_memory)
{
	long few = memory_of(50), many = memory_of(2000);
	struct stat st;
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_msg(many - few < 24 * 1024, "%ld KiB for 50 tokens, %ld KiB for 2000", few, many);
	ck_assert_msg(st.st_size > 30 << 20, "a trace of %lld bytes proves nothing", (long long)st.st_size);
}
END_TEST
#endif

static TCase *part(Suite *s, const char *name)
{
	TCase *c = suite_part(s, name, 600);
	tcase_add_checked_fixture(c, golden_files_set_up, golden_files_tear_down);
	return c;
}

int main(void)
{
	Suite *s = suite_create("golden_make");
	TCase *c = part(s, "make");
	tcase_add_test(c, same_bytes);
	tcase_add_test(c, as_the_shipped_file);
	tcase_add_test(c, generated_model);
	tcase_add_test(c, sets_agree);
	tcase_add_test(c, mixtures);
	tcase_add_test(c, chosen_tensors);
	tcase_add_test(c, minimal_files);
	c = part(s, "refusals");
	tcase_add_test(c, wrong_wishes);
	tcase_add_test(c, hostile_prompts);
	tcase_add_test(c, hostile_settings);
	c = part(s, "damage");
	tcase_add_test(c, flipped_bit_of_every_dataset);
	tcase_add_test(c, flipped_bit_anywhere);
	tcase_add_test(c, truncated_files);
	tcase_add_test(c, edited_files);
	tcase_add_test(c, changed_checkpoint);
	c = part(s, "stopped");
	tcase_add_loop_test(c, killed_anywhere, 0, 2);
	tcase_add_test(c, parts_of_others);
	tcase_add_test(c, damaged_state);
#ifndef __SANITIZE_ADDRESS__
	c = part(s, "memory");
	tcase_add_test(c, bounded_memory);
#endif
	return suite_run(s);
}
