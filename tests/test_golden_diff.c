/* SPDX-License-Identifier: MIT */
/* Two traces: what `plumb golden diff` finds, in which order it says so, and that it finds what was planted. And what
 * it stands on: checksums, the seal, rows in pieces. */
#include <cJSON.h>
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/sha256.h"
#include "golden/h5_write.h"
#include "golden/seal.h"
#include "tests/support/golden_files.h"
#include "tests/support/program.h"
#include "tests/support/suite.h"

static struct program_result r;

/* ---- SHA-256 ---- */

/* Examples of FIPS 180-4's own appendix (and its millions of a); any split into calls gives the same. */
START_TEST(sha256_vectors)
{
	static const struct {
		const char *text;
		int times;
		const char *sum;
	} vector[] = {
		{"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
			"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
		{"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
	};
	for (size_t i = 0; i < sizeof vector / sizeof vector[0]; i++) {
		struct plumb_sha256 sha;
		char hex[65];
		plumb_sha256_begin(&sha);
		for (int t = 0; t < vector[i].times; t++)
			plumb_sha256_text(&sha, vector[i].text);
		ck_assert_str_eq(plumb_sha256_end(&sha, hex), vector[i].sum);
	}
	static char bytes[300];
	char whole[65], cut[65];
	for (size_t n = 0; n <= sizeof bytes; n += 7) {
		struct plumb_sha256 sha;
		memset(bytes, (int)n, sizeof bytes);
		plumb_sha256_begin(&sha);
		plumb_sha256_add(&sha, bytes, sizeof bytes);
		plumb_sha256_end(&sha, whole);
		plumb_sha256_begin(&sha);
		plumb_sha256_add(&sha, bytes, n);
		plumb_sha256_add(&sha, bytes + n, sizeof bytes - n);
		ck_assert_str_eq(plumb_sha256_end(&sha, cut), whole);
	}
}
END_TEST

/* ---- rows ---- */

/* Rows of every kind of shape, against the whole dataset; written in pieces of 1 and of 5 rows, the same bytes. */
START_TEST(rows_in_pieces)
{
	static const struct {
		int rank;
		int64_t dim[4], rows, width;
	} shape[] = {
		{1, {11}, 11, 1},
		{2, {9, 4}, 9, 4},
		{3, {1, 6, 6}, 6, 6},
		{3, {3, 5, 2}, 3, 10},
		{4, {1, 1, 7, 3}, 7, 3},
		{1, {1}, 1, 1},
		{2, {70000, 3}, 70000, 3},
	};
	static float value[70000 * 3], back[70000 * 3];
	for (size_t i = 0; i < sizeof value / sizeof value[0]; i++)
		value[i] = (float)i;
	for (size_t k = 0; k < sizeof shape / sizeof shape[0]; k++) {
		for (int64_t step = 1; step <= 5; step += 4) {
			struct plumb_h5_writer *w;
			struct plumb_h5_stream *s;
			ck_assert_int_eq(plumb_h5_create(step == 1 ? path : other, &w, &err), 0);
			ck_assert_int_eq(plumb_h5_pieces(w, "x", PLUMB_H5_STORE_F32, shape[k].rank, shape[k].dim,
						 PLUMB_H5_PACK, &s, &err),
				0);
			for (int64_t row = 0; row < shape[k].rows; row += step) {
				int64_t n = shape[k].rows - row < step ? shape[k].rows - row : step;
				ck_assert_int_eq(plumb_h5_append(s, n, value + row * shape[k].width, &err), 0);
			}
			ck_assert_msg(plumb_h5_end(s, &err) == 0 && plumb_h5_commit(w, &err) == 0, "%s", err.text);
		}
		size_t n, m;
		char *a = scratch_read(path, &n), *b = scratch_read(other, &m);
		ck_assert(n == m && memcmp(a, b, n) == 0);
		free(a);
		free(b);

		struct plumb_h5 *file;
		ck_assert_msg(plumb_h5_open(path, &file, &err) == 0, "%s", err.text);
		const struct plumb_h5_entry *e = plumb_h5_find(file, "x");
		int64_t width, rows = plumb_h5_rows(e, &width);
		ck_assert(rows == shape[k].rows && width == shape[k].width && e->rank == shape[k].rank);
		for (int64_t first = 0; first <= rows; first += rows / 3 + 1)
			for (int64_t count = 0; first + count <= rows; count += rows / 2 + 1) {
				memset(back, 0xff, sizeof back);
				ck_assert_msg(plumb_h5_read_rows(file, e, first, count, back, &err) == 0, "%s", err.text);
				ck_assert(memcmp(back, value + first * width, (size_t)(count * width) * sizeof *back) == 0);
				ck_assert(plumb_f32_bits(back[count * width]) == 0xffffffffu);
			}
		ck_assert_int_eq(plumb_h5_read_rows(file, e, 0, rows + 1, back, &err), PLUMB_BAD_INPUT);
		ck_assert_int_eq(plumb_h5_read_rows(file, e, -1, 1, back, &err), PLUMB_BAD_INPUT);
		ck_assert_int_eq(plumb_h5_read_rows(file, e, rows, 1, back, &err), PLUMB_BAD_INPUT);
		ck_assert_int_eq(plumb_h5_read_rows(file, e, 0, -1, back, &err), PLUMB_BAD_INPUT);
		plumb_h5_close(file);
	}
}
END_TEST

/* A dataset of a known shape takes neither more nor fewer rows. */
START_TEST(pieces_must_fit)
{
	for (int64_t rows = 2; rows <= 4; rows++) {
		struct plumb_h5_writer *w;
		struct plumb_h5_stream *s;
		float value[8] = {0};
		int64_t dim[2] = {3, 2};
		ck_assert_int_eq(plumb_h5_create(path, &w, &err), 0);
		ck_assert_int_eq(plumb_h5_pieces(w, "x", PLUMB_H5_STORE_F32, 2, dim, PLUMB_H5_PLAIN, &s, &err), 0);
		plumb_h5_append(s, rows, value, &err);
		plumb_h5_end(s, &err);
		int status = plumb_h5_commit(w, &err);
		ck_assert_int_eq(status, rows == 3 ? PLUMB_OK : PLUMB_BAD_INPUT);
		if (rows != 3)
			ck_assert_msg(strstr(err.text, rows < 3 ? "fewer rows" : "more rows"), "%s", err.text);
	}
}
END_TEST

/* ---- two traces ---- */

enum { T = 6 };

/* What both files of a pair have, unless changed: ids, two layers, a mask, experts, logits. */
struct trace {
	int64_t ids[T];
	float early[T * 3], late[T * 3]; /* layer00/gdn/output, layer01/output */
	float mask[T * T];
	int64_t experts[T * 2];
	float logits[T * 5];
	bool no_late, extra, wide; /* layer01/output missing; another tensor; logits of another shape */
};

static struct trace usual(void)
{
	struct trace t = {.ids = {1, 2, 3, 4, 5, 6}};
	for (int i = 0; i < T * 5; i++)
		t.logits[i] = (float)(i + 1) * 0.25f;
	for (int i = 0; i < T * 3; i++)
		t.early[i] = t.late[i] = (float)(i + 1);
	for (int i = 0; i < T * T; i++)
		t.mask[i] = i % T <= i / T ? 0.0f : -3.4028235e38f;
	for (int i = 0; i < T * 2; i++)
		t.experts[i] = i;
	return t;
}

static void write_trace(const char *name, const struct trace *t)
{
	hid_t file = create(name);
	hsize_t ids = T, three[2] = {T, 3}, square[3] = {1, T, T}, two[2] = {T, 2}, five[2] = {T, 5}, wide[2] = {T - 1, 6};

	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &ids, H5P_DEFAULT, t->ids);
	put(file, "fp32/layer00/gdn/output", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, three, H5P_DEFAULT, t->early);
	if (!t->no_late)
		put(file, "fp32/layer01/output", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, three, H5P_DEFAULT, t->late);
	put(file, "fp32/layer01/qsa/selected_mask", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 3, square, H5P_DEFAULT, t->mask);
	put(file, "fp32/layer01/moe/router/experts", H5T_STD_I64LE, H5T_NATIVE_INT64, 2, two, H5P_DEFAULT, t->experts);
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, t->wide ? wide : five, H5P_DEFAULT, t->logits);
	if (t->extra)
		put(file, "bf16/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, five, H5P_DEFAULT, t->logits);
	H5Fclose(file);
}

static cJSON *diff_json(const struct trace *a, const struct trace *b, const char *options, int status)
{
	write_trace(path, a);
	write_trace(other, b);
	program(&r, folder, "golden diff %s %s %s --json -", path, other, options);
	program_expect(&r, status);
	cJSON *json = cJSON_Parse(r.out);
	ck_assert_ptr_nonnull(json);
	ck_assert_int_eq(cJSON_IsTrue(cJSON_GetObjectItem(json, "pass")), status == 0);
	return json;
}

static const cJSON *tensor(const cJSON *json, const char *name)
{
	const cJSON *item;
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(json, "tensors"))
		if (strcmp(cJSON_GetObjectItem(item, "tensor")->valuestring, name) == 0)
			return item;
	ck_abort_msg("no tensor %s", name);
}

static const char *text(const cJSON *item, const char *key)
{
	const cJSON *value = cJSON_GetObjectItem(item, key);
	ck_assert_msg(cJSON_IsString(value), "%s", key);
	return value->valuestring;
}

static double number(const cJSON *item, const char *key)
{
	const cJSON *value = cJSON_GetObjectItem(item, key);
	ck_assert_msg(cJSON_IsNumber(value), "%s", key);
	return value->valuedouble;
}

START_TEST(equal_traces)
{
	struct trace a = usual();
	cJSON *json = diff_json(&a, &a, "", 0);
	ck_assert(number(json, "equal") == 6 && number(json, "within") == 0 && number(json, "beyond") == 0);
	cJSON_Delete(json);
	a.mask[3] = a.logits[7] = NAN; /* the same NaN on both sides is no difference */
	cJSON_Delete(diff_json(&a, &a, "", 0));
}
END_TEST

/* A step of one ulp in one element: found, with its place; allowed by --ulp 1; a step of two is not. */
START_TEST(one_ulp)
{
	struct trace a = usual(), b = usual();
	b.late[10] = nextafterf(b.late[10], 100.0f);
	cJSON *json = diff_json(&a, &b, "", 1);
	const cJSON *item = tensor(json, "fp32/layer01/output"), *first = cJSON_GetObjectItem(item, "first");
	ck_assert_str_eq(text(item, "state"), "beyond");
	ck_assert_str_eq(text(first, "at"), "3,1");
	ck_assert(number(item, "max_ulp") == 1 && number(first, "a") == 11.0 && number(first, "b") > 11.0);
	ck_assert(number(json, "equal") == 5 && number(json, "beyond") == 1);
	cJSON_Delete(json);
	cJSON_Delete(diff_json(&a, &b, "--ulp 1", 0));
	cJSON_Delete(diff_json(&a, &b, "--rel-l2 1e-6", 0));
	cJSON_Delete(diff_json(&a, &b, "--rel-l2 1e-12", 1));
	cJSON_Delete(diff_json(&a, &b, "--tolerances builtin", 0));
	b.late[10] = nextafterf(b.late[10], 100.0f);
	cJSON_Delete(diff_json(&a, &b, "--ulp 1", 1));
	cJSON_Delete(diff_json(&a, &b, "--ulp 2", 0));
	b.early[0] = -0.0f; /* -0 and +0 are the same number and not the same bits */
	a.early[0] = 0.0f;
	cJSON_Delete(diff_json(&a, &b, "--ulp 2", 0));
	b = a;
	b.early[0] = -0.0f;
	cJSON_Delete(diff_json(&a, &b, "", 1));
	b.early[0] = NAN;
	cJSON_Delete(diff_json(&a, &b, "--ulp 8388608", 1));
}
END_TEST

/* The first divergence is the first in the report, whatever the names. */
START_TEST(order_of_a_pass)
{
	struct trace a = usual(), b = usual();
	b.late[0] = b.early[4] = b.logits[0] = 99.0f;
	b.experts[3] = 40;
	a.extra = b.extra = true;
	cJSON *json = diff_json(&a, &b, "", 1);
	static const char *const order[] = {
		"input_ids",
		"fp32/layer00/gdn/output",
		"fp32/layer01/qsa/selected_mask",
		"fp32/layer01/moe/router/experts",
		"fp32/layer01/output",
		"fp32/logits",
		"bf16/logits",
	};
	const cJSON *list = cJSON_GetObjectItem(json, "tensors");
	ck_assert_int_eq(cJSON_GetArraySize(list), 7);
	for (int i = 0; i < 7; i++)
		ck_assert_str_eq(text(cJSON_GetArrayItem(list, i), "tensor"), order[i]);
	cJSON_Delete(json);
	program(&r, folder, "golden diff %s %s", path, other);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "first  fp32/layer00/gdn/output: FAIL"), "%s", r.out);
	ck_assert_msg(strstr(r.out, "[1,1] 5 / 99"), "%s", r.out);
	ck_assert_msg(!strstr(r.out, "selected_mask"), "equal tensors are not shown: %s", r.out);
	program(&r, folder, "golden diff %s %s --verbose", path, other);
	ck_assert_ptr_nonnull(strstr(r.out, "selected_mask"));
	program(&r, folder, "golden diff %s %s --group bf16 --verbose", path, other);
	program_expect(&r, 1); /* bf16/logits have the 99 too */
	ck_assert_ptr_null(strstr(r.out, "fp32"));
}
END_TEST

START_TEST(names_and_shapes)
{
	struct trace a = usual(), b = usual();
	a.no_late = b.extra = a.wide = true;
	cJSON *json = diff_json(&a, &b, "--ulp 100", 1);
	ck_assert_str_eq(text(tensor(json, "fp32/layer01/output"), "state"), "only b");
	ck_assert_str_eq(text(tensor(json, "bf16/logits"), "state"), "only b");
	ck_assert_str_eq(text(tensor(json, "fp32/logits"), "state"), "shape");
	ck_assert(number(json, "only_b") == 2 && number(json, "only_a") == 0 && number(json, "other_shape") == 1);
	cJSON_Delete(json);
	program(&r, folder, "golden diff %s %s", path, other);
	ck_assert_msg(strstr(r.out, "B only") && strstr(r.out, "6x5"), "%s", r.out);
	program(&r, folder, "golden diff %s %s --group bf17", path, other);
	program_expect_bad(&r, "bf17", "no dataset");
}
END_TEST

/* Choices: as sets where bits are not asked for; a token more or fewer is found. */
START_TEST(choices_as_sets)
{
	struct trace a = usual(), b = usual();
	b.experts[4] = 5; /* row 2: 5 4 against 4 5 */
	b.experts[5] = 4;
	cJSON *json = diff_json(&a, &b, "", 1);
	ck_assert(number(tensor(json, "fp32/layer01/moe/router/experts"), "rows_in_another_order") == 1);
	cJSON_Delete(json);
	cJSON_Delete(diff_json(&a, &b, "--ulp 0", 0));
	b.experts[5] = 7;
	json = diff_json(&a, &b, "--ulp 0", 1);
	const cJSON *item = tensor(json, "fp32/layer01/moe/router/experts");
	ck_assert(number(item, "rows_differ") == 1 && number(item, "rows_equal") == 5);
	ck_assert_msg(strstr(text(item, "verdict"), "row 2: only A has 4; only B has 7"), "%s", text(item, "verdict"));
	cJSON_Delete(json);

	b = usual();
	for (int i = 0; i < T * T; i++)
		b.mask[i] = b.mask[i] == 0.0f ? -0.0f : -3.3895314e38f; /* what says "not selected" may differ */
	cJSON_Delete(diff_json(&a, &b, "--ulp 0", 0));
	b.mask[4 * T + 2] = -3.4028235e38f;
	json = diff_json(&a, &b, "--ulp 100", 1);
	item = tensor(json, "fp32/layer01/qsa/selected_mask");
	ck_assert(number(item, "rows_differ") == 1 && number(item, "rows") == T);
	ck_assert_msg(
		strstr(text(item, "verdict"), "row 4: only A has 2; only B has nothing"), "%s", text(item, "verdict"));
	cJSON_Delete(json);
}
END_TEST

START_TEST(wrong_usage)
{
	struct trace a = usual();
	write_trace(path, &a);
	program(&r, folder, "golden diff %s", path);
	program_expect_bad(&r, "two files", "usage");
	program(&r, folder, "golden diff %s %s/none.h5", path, folder);
	program_expect_bad(&r, "none.h5", "");
	static const char *const wrong[][2] = {
		{"--ulp -1", "--ulp is '-1', expected a whole number in 0..8388608"},
		{"--ulp 1.5", "--ulp is '1.5', expected a whole number in 0..8388608"},
		{"--ulp 8388609", "--ulp is '8388609', expected a whole number in 0..8388608"},
		{"--rel-l2 2", "--rel-l2"},
		{"--rel-l2 nan", "--rel-l2"},
		{"--ulp 1 --rel-l2 0.1", "one of them"},
		{"--tolerances /nonexistent.json", "nonexistent"},
		{"--json /nonexistent/x.json", "--json"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		program(&r, folder, "golden diff %s %s %s", path, path, wrong[i][0]);
		program_expect_bad(&r, wrong[i][1], "");
	}
	program(&r, folder, "golden diff %s %s --json %s", path, path, path);
	program_expect_bad(&r, "--json", "overwrite");
	program(&r, folder, "golden");
	program_expect(&r, 2);
	program(&r, folder, "golden twist");
	program_expect_bad(&r, "twist", "make, verify or diff");
	static const char *const parts[] = {"make", "verify", "diff"};
	for (size_t i = 0; i < 3; i++) {
		program(&r, folder, "golden %s --help", parts[i]);
		program_expect(&r, 0);
		ck_assert_msg(strstr(r.out, "examples:") && strstr(r.out, "exit status"), "%s", r.out);
		program(&r, folder, "golden %s --nonsense", parts[i]);
		program_expect_bad(&r, "--nonsense", "--help");
	}
}
END_TEST

/* ---- checksums of files made elsewhere ---- */

static void put_text(hid_t file, const char *object, const char *name, const char *value)
{
	hid_t at = H5Oopen(file, object, H5P_DEFAULT), type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
	H5Tset_size(type, strlen(value) + 1);
	put_attribute(at, name, type, type, space, value);
	H5Sclose(space);
	H5Tclose(type);
	H5Oclose(at);
}

/* The attribute sha256 of a dataset is held against its values, whoever wrote it, by reading, diff and verify. */
START_TEST(sum_of_a_dataset)
{
	static const char of_nothing[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
	struct plumb_sha256 sha;
	char hex[65];
	for (int good = 0; good < 2; good++) {
		hid_t file = create_golden();
		plumb_sha256_begin(&sha);
		plumb_golden_sum_add(&sha, PLUMB_H5_FLOAT, six, 6);
		put_text(file, "fp32/layer00/input", "sha256", good ? plumb_sha256_end(&sha, hex) : of_nothing);
		H5Fclose(file);
		struct plumb_golden *golden = open_golden(path);
		struct plumb_golden_tensor t;
		int status = plumb_golden_read_f32(golden, "fp32/layer00/input", &t, &err);
		ck_assert_int_eq(status, good ? PLUMB_OK : PLUMB_BAD_INPUT);
		if (good)
			plumb_golden_tensor_free(&t);
		else
			ck_assert_msg(strstr(err.text, "fp32/layer00/input: damaged"), "%s", err.text);
		plumb_golden_close(golden);
		program(&r, folder, "golden verify %s --checksums", path);
		good ? program_expect(&r, 0) : program_expect_bad(&r, "fp32/layer00/input", "damaged");
		program(&r, folder, "golden diff %s %s", path, path);
		good ? program_expect(&r, 0) : program_expect_bad(&r, "fp32/layer00/input", "damaged");
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("golden_diff");
	TCase *c = suite_part(s, "golden_diff", 120);
	tcase_add_checked_fixture(c, golden_files_set_up, golden_files_tear_down);
	tcase_add_test(c, sha256_vectors);
	tcase_add_test(c, rows_in_pieces);
	tcase_add_test(c, pieces_must_fit);
	tcase_add_test(c, equal_traces);
	tcase_add_test(c, one_ulp);
	tcase_add_test(c, order_of_a_pass);
	tcase_add_test(c, names_and_shapes);
	tcase_add_test(c, choices_as_sets);
	tcase_add_test(c, wrong_usage);
	tcase_add_test(c, sum_of_a_dataset);
	return suite_run(s);
}
