/* SPDX-License-Identifier: MIT */
/* Golden files: the one that ships, files made here in every number format that is taken, and what the format demands.
 * Files made to do harm: test_golden_refused.c. */
#include <check.h>
#include <float.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "golden/golden.h"
#include "tests/support/golden_files.h"
#include "tests/support/suite.h"

/* ---- the shipped file ---- */

START_TEST(test_tiny)
{
	static const int floats[2] = {87, 86}, ints[2] = {6, 5};
	struct plumb_golden *golden = open_golden(TINY);
	const int64_t *ids = plumb_golden_input_ids(golden);

	ck_assert_str_eq(plumb_golden_path(golden), TINY);
	ck_assert_str_eq(plumb_golden_attribute(golden, "case"), "tiny");
	ck_assert_str_eq(plumb_golden_attribute(golden, "model_type"), "qwen4_exp_text");
	ck_assert_str_eq(plumb_golden_attribute(golden, "producer"),
		"transformers 5.17.0, torch 2.11.0+cu130, eager attention, CPU");
	ck_assert_ptr_null(plumb_golden_attribute(golden, "layout"));
	ck_assert_int_eq(plumb_golden_tokens(golden), 56);
	ck_assert(ids[0] == 204 && ids[7] == 235 && ids[55] == 66);
	ck_assert_int_eq(plumb_golden_prefill(golden, PLUMB_POLICY_F32), 37);
	ck_assert_int_eq(plumb_golden_prefill(golden, PLUMB_POLICY_BF16), -1);

	for (int policy = 0; policy < 2; policy++) {
		int64_t count;
		const struct plumb_h5_entry *entry = plumb_golden_run(golden, (enum plumb_policy)policy, &count);
		int found[2] = {0, 0};

		ck_assert(plumb_golden_has_run(golden, (enum plumb_policy)policy));
		for (int64_t i = 0; i < count; i++) {
			struct plumb_golden_tensor t;
			int64_t product = 1;

			ck_assert_int_eq(strncmp(entry[i].name, policy ? "bf16/" : "fp32/", 5), 0);
			ck_assert(i == 0 || strcmp(entry[i - 1].name, entry[i].name) < 0);
			ck_assert_ptr_eq(plumb_golden_find(golden, entry[i].name), &entry[i]);
			ck_assert_int_ne(entry[i].type, PLUMB_H5_OTHER);
			found[entry[i].type]++;
			if (entry[i].type == PLUMB_H5_FLOAT)
				ck_assert_msg(plumb_golden_read_f32(golden, entry[i].name, &t, &err) == 0, "%s", err.text);
			else
				ck_assert_msg(plumb_golden_read_i64(golden, entry[i].name, &t, &err) == 0, "%s", err.text);
			ck_assert_int_eq(t.rank, entry[i].rank);
			for (int d = 0; d < t.rank; d++)
				product *= t.dim[d];
			ck_assert(t.count == product && t.count == entry[i].count && t.count > 0);
			ck_assert((t.f32 != NULL) == (entry[i].type == PLUMB_H5_FLOAT) && (!t.f32) != (!t.i64));
			for (int64_t k = 0; t.f32 && k < t.count; k++)
				ck_assert_msg(isfinite(t.f32[k]), "%s[%" PRId64 "]", entry[i].name, k);
			plumb_golden_tensor_free(&t);
			ck_assert_ptr_null(t.f32);
		}
		ck_assert_int_eq(found[PLUMB_H5_FLOAT], floats[policy]);
		ck_assert_int_eq(found[PLUMB_H5_INT], ints[policy]);
	}
	plumb_golden_close(golden);
}
END_TEST

/* Single values, as another HDF5 reader (h5py 3) shows them. */
START_TEST(test_tiny_values)
{
	static const struct {
		const char *name;
		int rank;
		int64_t dim[3], at;
		float value;
	} spot[] = {
		{"fp32/layer00/input", 2, {56, 256, 0}, 0, 0x1.36p-2f},
		{"fp32/layer03/attention/q_norm/output", 3, {56, 12, 32}, 56 * 12 * 32 - 1, 0x1.42a7ccp-3f},
		{"fp32/logits", 2, {56, 320, 0}, 17 * 320 + 100, -0x1.22a13ep+0f},
		{"bf16/logits", 2, {56, 320, 0}, 56 * 320 - 1, -0x1.42p-3f},
		{"fp32/layer03/qsa/selected_mask", 3, {1, 56, 56}, 1, -FLT_MAX},
		{"bf16/layer03/qsa/selected_mask", 3, {1, 56, 56}, 1, -0x1.fep+127f},
		{"fp32/decode_logits", 2, {19, 320, 0}, 19 * 320 - 1, -0x1.3b2d4ep-3f},
		{"bf16/layer01/state/conv_states1", 2, {256, 9, 0}, 256 * 9 - 1, 0x1.0ep+0f},
	};
	struct plumb_golden *golden = open_golden(TINY);
	struct plumb_golden_tensor t;

	for (size_t i = 0; i < sizeof spot / sizeof spot[0]; i++) {
		ck_assert_msg(plumb_golden_read_f32(golden, spot[i].name, &t, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_int_eq(t.rank, spot[i].rank);
		for (int d = 0; d < 8; d++)
			ck_assert_int_eq(t.dim[d], d < 3 ? spot[i].dim[d] : 0);
		ck_assert(t.f32[spot[i].at] == spot[i].value);
		plumb_golden_tensor_free(&t);
	}
	ck_assert_int_eq(plumb_golden_read_i64(golden, "fp32/greedy", &t, &err), PLUMB_OK);
	ck_assert(t.count == 24 && t.i64[0] == 234 && t.i64[23] == 216);
	plumb_golden_tensor_free(&t);
	ck_assert_int_eq(plumb_golden_read_i64(golden, "bf16/layer02/moe/router/experts", &t, &err), PLUMB_OK);
	ck_assert(t.rank == 2 && t.i64[49 * 4] == 7 && t.i64[49 * 4 + 1] == 10 && t.i64[49 * 4 + 3] == 8);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
}
END_TEST

START_TEST(test_reads_that_are_refused)
{
	struct plumb_golden *golden = open_golden(TINY);
	struct plumb_golden_tensor t;

	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/layer09/input", &t, &err), PLUMB_BAD_INPUT);
	ck_assert_str_eq(err.text, TINY ": fp32/layer09/input: no such dataset, expected floats");
	ck_assert(!t.f32 && !t.i64 && t.count == 0);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/greedy", &t, &err), PLUMB_BAD_INPUT);
	ck_assert_str_eq(err.text, TINY ": fp32/greedy: integers, expected floats");
	ck_assert_int_eq(plumb_golden_read_i64(golden, "fp32/logits", &t, &err), PLUMB_BAD_INPUT);
	ck_assert_str_eq(err.text, TINY ": fp32/logits: floats, expected integers");
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32", &t, &err), PLUMB_BAD_INPUT); /* a group */
	plumb_golden_limit(golden, 56 * 320 - 1);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/logits", &t, &err), PLUMB_BAD_INPUT);
	ck_assert_str_eq(err.text, TINY ": fp32/logits: 17920 elements, expected at most 17919");
	plumb_golden_limit(golden, 56 * 320);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/logits", &t, &err), PLUMB_OK);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
	plumb_golden_close(NULL);
	plumb_golden_tensor_free(NULL);
}
END_TEST

/* ---- files made here ---- */

START_TEST(test_made_here)
{
	struct plumb_golden *golden;
	struct plumb_golden_tensor t;

	H5Fclose(create_golden());
	golden = open_golden(path);
	ck_assert_int_eq(plumb_golden_tokens(golden), 3);
	ck_assert_mem_eq(plumb_golden_input_ids(golden), three_ids, sizeof three_ids); /* the caller knows the range */
	ck_assert(!plumb_golden_has_run(golden, PLUMB_POLICY_BF16));
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/layer00/input", &t, &err), PLUMB_OK);
	ck_assert_mem_eq(t.f32, six, sizeof six);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
}
END_TEST

static hid_t small_float(size_t exponent, size_t exponent_size, size_t bias)
{
	hid_t type = H5Tcopy(H5T_IEEE_F32LE);

	H5Tset_fields(type, 15, exponent, exponent_size, 0, exponent);
	H5Tset_size(type, 2);
	H5Tset_ebias(type, bias);
	return type;
}

START_TEST(test_number_formats)
{
	static const double wide[4] = {1.0, -0.1, 1e300, 1.0 + 0x1p-24}; /* the last a tie: to even */
	static const float narrow[4] = {1.0f, -0.09375f, 1.5f, -448.0f}; /* exact in float16 and bfloat16 */
	static const int64_t whole[4] = {-3, 100, 0, 7};
	const hsize_t dim[1] = {4};
	const hid_t ints[] = {H5T_STD_I8LE, H5T_STD_I16BE, H5T_STD_I32LE, H5T_STD_I64BE};
	hid_t file = create_golden(), half = small_float(10, 5, 15), bf16 = small_float(7, 8, 127);
	struct plumb_golden *golden;
	struct plumb_golden_tensor t;
	char name[32];

	put(file, "fp32/f64", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, dim, H5P_DEFAULT, wide);
	put(file, "fp32/f32be", H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, 1, dim, H5P_DEFAULT, narrow);
	put(file, "fp32/f16", half, H5T_NATIVE_FLOAT, 1, dim, H5P_DEFAULT, narrow);
	put(file, "fp32/bf16", bf16, H5T_NATIVE_FLOAT, 1, dim, H5P_DEFAULT, narrow);
	put(file, "fp32/scalar", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 0, NULL, H5P_DEFAULT, narrow);
	put(file, "fp32/empty", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){0, 5}, H5P_DEFAULT, NULL);
	put(file, "fp32/u64", H5T_STD_U64LE, H5T_NATIVE_UINT64, 1, dim, H5P_DEFAULT,
		(uint64_t[]){0, 1, INT64_MAX, UINT64_MAX});
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "fp32/i%d", i);
		put(file, name, ints[i], H5T_NATIVE_INT64, 1, dim, H5P_DEFAULT, whole);
	}
	H5Fclose(file);
	golden = open_golden(path);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/f64", &t, &err), PLUMB_OK);
	ck_assert(t.f32[0] == 1.0f && t.f32[1] == -0.1f && isinf(t.f32[2]) && t.f32[3] == 1.0f);
	plumb_golden_tensor_free(&t);
	for (int i = 0; i < 3; i++) {
		const char *const names[] = {"fp32/f32be", "fp32/f16", "fp32/bf16"};
		ck_assert_msg(plumb_golden_read_f32(golden, names[i], &t, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_mem_eq(t.f32, narrow, sizeof narrow);
		plumb_golden_tensor_free(&t);
	}
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/scalar", &t, &err), PLUMB_OK);
	ck_assert(t.rank == 0 && t.count == 1 && t.f32[0] == 1.0f);
	plumb_golden_tensor_free(&t);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/empty", &t, &err), PLUMB_OK);
	ck_assert(t.rank == 2 && t.count == 0 && t.dim[1] == 5 && t.f32);
	plumb_golden_tensor_free(&t);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "fp32/i%d", i);
		ck_assert_msg(plumb_golden_read_i64(golden, name, &t, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_mem_eq(t.i64, whole, sizeof whole);
		plumb_golden_tensor_free(&t);
	}
	ck_assert_int_eq(plumb_golden_read_i64(golden, "fp32/u64", &t, &err), PLUMB_OK);
	ck_assert(t.i64[2] == INT64_MAX && t.i64[3] == INT64_MAX);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
	H5Tclose(half);
	H5Tclose(bf16);
}
END_TEST

START_TEST(test_attributes)
{
	hid_t file = create_golden(), scalar = H5Screate(H5S_SCALAR), fixed = H5Tcopy(H5T_C_S1), text = H5Tcopy(H5T_C_S1);
	hid_t vector = H5Screate_simple(1, (hsize_t[]){2}, NULL);
	char *long_text = malloc(PLUMB_H5_MAX_TEXT + 10);
	const char *shown = "caf\xc3\xa9", *longer = long_text;
	struct plumb_h5 *raw;
	struct plumb_golden *golden;

	memset(long_text, 'x', PLUMB_H5_MAX_TEXT + 9);
	long_text[PLUMB_H5_MAX_TEXT + 9] = '\0';
	H5Tset_size(fixed, 6);
	H5Tset_size(text, H5T_VARIABLE);
	H5Tset_cset(text, H5T_CSET_UTF8);
	put_attribute(file, "case", fixed, fixed, scalar, "fixed");
	put_attribute(file, "producer", text, text, scalar, &shown);
	put_attribute(file, "too_long", text, text, scalar, &longer);
	put_attribute(file, "layout", H5T_STD_I32LE, H5T_NATIVE_INT, scalar, (int[]){7}); /* no text */
	put_attribute(file, "vector", H5T_STD_I32LE, H5T_NATIVE_INT, vector, (int[]){7, 8});
	put_attribute(file, "bound", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, scalar, (double[]){0.1});
	put_attribute(file, "unset", text, text, scalar, &(const char *){NULL});
	H5Fclose(file);
	golden = open_golden(path);
	ck_assert_str_eq(plumb_golden_attribute(golden, "case"), "fixed");
	ck_assert_str_eq(plumb_golden_attribute(golden, "producer"), shown);
	ck_assert_ptr_null(plumb_golden_attribute(golden, "layout"));
	ck_assert_ptr_null(plumb_golden_attribute(golden, "too_long"));
	ck_assert_ptr_null(plumb_golden_attribute(golden, "vector"));
	plumb_golden_close(golden);
	ck_assert_int_eq(plumb_h5_open(path, &raw, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_h5_attribute(raw, "", "layout")->integer, 7);
	ck_assert_double_eq(plumb_h5_attribute(raw, "", "bound")->real, 0.1);
	ck_assert_ptr_null(plumb_h5_attribute(raw, "fp32", "layout"));
	plumb_h5_close(raw);
	H5Sclose(vector);
	H5Sclose(scalar);
	H5Tclose(fixed);
	H5Tclose(text);
	free(long_text);
}
END_TEST

START_TEST(test_format_is_demanded)
{
	hid_t file = create(path), scalar = H5Screate(H5S_SCALAR), group;
	const hsize_t one[1] = {1}, two[2] = {2, 3};

	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, one, H5P_DEFAULT, six);
	H5Fclose(file);
	ck_refused(path, "input_ids: no such dataset, expected integers");
	file = create(path);
	put(file, "input_ids", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, one, H5P_DEFAULT, six);
	H5Fclose(file);
	ck_refused(path, "input_ids: floats, expected integers");
	file = create(path);
	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_FLOAT, 2, two, H5P_DEFAULT, six);
	H5Fclose(file);
	ck_refused(path, "input_ids: rank 2 with 6 elements, expected rank 1 with at least 1");
	file = create(path);
	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t[]){0}, H5P_DEFAULT, NULL);
	H5Fclose(file);
	ck_refused(path, "input_ids: rank 1 with 0 elements");
	file = create(path);
	H5Gclose(H5Gcreate2(file, "input_ids", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	H5Fclose(file);
	ck_refused(path, "input_ids: no such dataset");
	file = create(path);
	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t[]){3}, H5P_DEFAULT, three_ids);
	H5Gclose(H5Gcreate2(file, "fp32", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	H5Fclose(file);
	ck_refused(path, "no group fp32 or bf16 with datasets in it");
	for (int i = 0; i < 3; i++) {
		file = create_golden();
		group = H5Gopen2(file, "fp32", H5P_DEFAULT);
		if (i < 2)
			put_attribute(group, "prefill", H5T_STD_I64LE, H5T_NATIVE_INT, scalar, (int[]){i ? -1 : 4});
		else
			put_attribute(group, "prefill", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, scalar, (double[]){2.0});
		H5Gclose(group);
		H5Fclose(file);
		ck_refused(path, i == 0   ? "fp32: attribute prefill is 4, expected 0..3"
				 : i == 1 ? "fp32: attribute prefill is -1, expected 0..3"
					  : "fp32: attribute prefill is no integer, expected 0..3");
	}
	H5Sclose(scalar);
}
END_TEST

START_TEST(test_other_types)
{
	const hsize_t dim[1] = {2};
	hid_t file = create_golden(), text = H5Tcopy(H5T_C_S1), pair = H5Tcreate(H5T_COMPOUND, 8),
	      boolean = H5Tenum_create(H5T_NATIVE_INT8), odd = H5Tcopy(H5T_STD_I32LE), array;
	const char *const words[2] = {"a", "b"};
	static const char *const names[] = {
		"fp32/text", "fp32/pair", "fp32/bool", "fp32/reference", "fp32/odd", "fp32/array", "fp32/opaque"};
	struct plumb_golden *golden;
	struct plumb_golden_tensor t;

	H5Tset_size(text, H5T_VARIABLE);
	H5Tinsert(pair, "x", 0, H5T_NATIVE_FLOAT);
	H5Tinsert(pair, "y", 4, H5T_NATIVE_FLOAT);
	H5Tenum_insert(boolean, "FALSE", &(signed char){0});
	H5Tset_precision(odd, 20);
	array = H5Tarray_create2(H5T_NATIVE_FLOAT, 1, dim);
	put(file, names[0], text, text, 1, dim, H5P_DEFAULT, words);
	put(file, names[1], pair, pair, 1, dim, H5P_DEFAULT, six);
	put(file, names[2], boolean, boolean, 1, dim, H5P_DEFAULT, "\0\0");
	put(file, names[3], H5T_STD_REF_OBJ, H5T_STD_REF_OBJ, 1, dim, H5P_DEFAULT, NULL);
	put(file, names[4], odd, H5T_NATIVE_INT, 1, dim, H5P_DEFAULT, (int[]){1, 2});
	put(file, names[5], array, array, 1, dim, H5P_DEFAULT, six);
	put(file, names[6], H5T_STD_B8LE, H5T_STD_B8LE, 1, dim, H5P_DEFAULT, "\0\0");
	H5Fclose(file);
	golden = open_golden(path);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		ck_assert_int_eq(plumb_golden_find(golden, names[i])->type, PLUMB_H5_OTHER);
		ck_assert_int_eq(plumb_golden_read_f32(golden, names[i], &t, &err), PLUMB_BAD_INPUT);
		ck_assert_ptr_nonnull(strstr(err.text, "neither floats nor integers, expected floats"));
		ck_assert_int_eq(plumb_golden_read_i64(golden, names[i], &t, &err), PLUMB_BAD_INPUT);
	}
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/layer00/input", &t, &err), PLUMB_OK);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
	H5Tclose(text);
	H5Tclose(pair);
	H5Tclose(boolean);
	H5Tclose(odd);
	H5Tclose(array);
}
END_TEST

/* Two files at a time, closed in either order, and what the caller has open stays the caller's. */
START_TEST(test_two_at_once)
{
	struct plumb_golden *a = open_golden(TINY), *b = open_golden(TINY);
	struct plumb_golden_tensor t;
	int end[2];
	char byte;

	plumb_golden_close(a);
	ck_assert_int_eq(plumb_golden_read_f32(b, "bf16/logits", &t, &err), PLUMB_OK);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(b);

	ck_assert_int_eq(pipe(end), 0);
	a = open_golden(TINY);
	close(end[1]);
	ck_assert_int_eq(read(end[0], &byte, 1), 0); /* ends: the child does not hold the other end */
	close(end[0]);
	plumb_golden_close(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("golden");
	TCase *tcase = suite_part(suite, "shipped", 60);
	tcase_add_checked_fixture(tcase, golden_files_set_up, golden_files_tear_down);
	tcase_add_test(tcase, test_tiny);
	tcase_add_test(tcase, test_tiny_values);
	tcase_add_test(tcase, test_reads_that_are_refused);
	tcase_add_test(tcase, test_two_at_once);
	tcase = suite_part(suite, "made", 60);
	tcase_add_checked_fixture(tcase, golden_files_set_up, golden_files_tear_down);
	tcase_add_test(tcase, test_made_here);
	tcase_add_test(tcase, test_number_formats);
	tcase_add_test(tcase, test_attributes);
	tcase_add_test(tcase, test_format_is_demanded);
	tcase_add_test(tcase, test_other_types);
	return suite_run(suite);
}
