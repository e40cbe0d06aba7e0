/* SPDX-License-Identifier: MIT */
/* Golden files: the one that ships, every number format that is taken, and files made to do harm. A refusal is one line
 * that starts with the path; no file may crash, hang, or make the reader open another file.
 *
 * The HDF5 library crashes and leaks on some of the damaged files below. It does so in the reader's child process,
 * which ends by _exit, so no leak has to be suppressed here; that process is also why a crash is a test and not the end
 * of one. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <float.h>
#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/numeric.h"
#include "golden/golden.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"

static char folder[64], path[128], other[128];
static struct plumb_error err;

static void set_up(void)
{
	strcpy(folder, "/tmp/plumb-test-golden-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/golden.h5", folder);
	snprintf(other, sizeof other, "%s/other.h5", folder);
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static void tear_down(void)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		char name[400];
		snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
		if (entry->d_name[0] != '.')
			remove(name);
	}
	closedir(dir);
	rmdir(folder);
	/* Every child was waited for. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}

static struct plumb_golden *open_golden(const char *name)
{
	struct plumb_golden *golden;

	ck_assert_msg(plumb_golden_open(name, &golden, &err) == PLUMB_OK, "%s", err.text);
	return golden;
}

/* The file must be refused, in one line that begins with its path and contains what. */
static void ck_refused(const char *name, const char *what)
{
	struct plumb_golden *golden = (struct plumb_golden *)folder;

	err.text[0] = '\0';
	ck_assert_msg(plumb_golden_open(name, &golden, &err) == PLUMB_BAD_INPUT, "not refused, expected %s", what);
	ck_assert_ptr_null(golden);
	ck_assert_msg(strncmp(err.text, name, strlen(name)) == 0 && err.text[strlen(name)] == ':', "%s", err.text);
	ck_assert_msg(strstr(err.text, what) != NULL, "%s\nexpected: %s", err.text, what);
	ck_assert_ptr_null(strchr(err.text, '\n'));
}

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
				ck_assert_msg(
				        plumb_golden_read_f32(golden, entry[i].name, &t, &err) == 0, "%s", err.text);
			else
				ck_assert_msg(
				        plumb_golden_read_i64(golden, entry[i].name, &t, &err) == 0, "%s", err.text);
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

static hid_t create(const char *name)
{
	hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

	ck_assert_int_ge(file, 0);
	return file;
}

static void put(hid_t file, const char *name, hid_t file_type, hid_t memory_type, int rank, const hsize_t *dim,
        hid_t create_plist, const void *values)
{
	hid_t links = H5Pcreate(H5P_LINK_CREATE), space = H5Screate_simple(rank, dim, NULL), dataset;

	H5Pset_create_intermediate_group(links, 1);
	dataset = H5Dcreate2(file, name, file_type, space, links, create_plist, H5P_DEFAULT);
	ck_assert_msg(dataset >= 0, "%s", name);
	if (values)
		ck_assert_int_ge(H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
	H5Dclose(dataset);
	H5Sclose(space);
	H5Pclose(links);
}

static const int64_t three_ids[3] = {5, -6, INT64_MAX};
static const float six[6] = {1.0f, -0.5f, 0.25f, 3.0f, -0.0f, 1e-40f};

/* What every golden file has: input_ids and one dataset. The rest of a file is put by the test. */
static hid_t create_golden(void)
{
	hid_t file = create(path);

	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t[]){3}, H5P_DEFAULT, three_ids);
	put(file, "fp32/layer00/input", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){3, 2}, H5P_DEFAULT, six);
	return file;
}

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

static void put_attribute(hid_t object, const char *name, hid_t type, hid_t memory, hid_t space, const void *value)
{
	hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);

	ck_assert_int_ge(attribute, 0);
	H5Awrite(attribute, memory, value);
	H5Aclose(attribute);
}

START_TEST(test_attributes)
{
	hid_t file = create_golden(), scalar = H5Screate(H5S_SCALAR), fixed = H5Tcopy(H5T_C_S1),
	      text = H5Tcopy(H5T_C_S1);
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

START_TEST(test_not_hdf5)
{
	FILE *file = fopen(path, "wb");

	ck_refused("/nonexistent/golden.h5", "No such file or directory");
	ck_refused(folder, "not a regular file");
	ck_refused("/dev/null", "not a regular file");
	ck_refused(path, "(0 bytes), expected an HDF5 file");
	fputs("\x93NUMPY\x01", file);
	fflush(file);
	ck_refused(path, "starts with 93 4e 55 4d (7 bytes), expected an HDF5 file (89 48 44 46)");
	rewind(file);
	fputs("\x89HDF\r\n\x1a\n", file);
	fclose(file);
	ck_refused(path, "cannot be read as HDF5");
	ck_assert_int_eq(mkfifo(other, 0600), 0);
	ck_refused(other, "not a regular file"); /* and does not wait for a writer */
}
END_TEST

START_TEST(test_links)
{
	hid_t file = create(other), group;

	put(file, "secret", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, (hsize_t[]){6}, H5P_DEFAULT, six);
	H5Fclose(file);

	file = create_golden();
	H5Lcreate_external(other, "/secret", file, "/fp32/logits", H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: an external link, expected a dataset or group of this file");

	file = create_golden();
	H5Lcreate_soft("/fp32/layer00/input", file, "/fp32/logits", H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: a soft link");

	file = create_golden();
	H5Lcreate_soft("/fp32/b", file, "/fp32/a", H5P_DEFAULT, H5P_DEFAULT);
	H5Lcreate_soft("/fp32/a", file, "/fp32/b", H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(file);
	ck_refused(path, "fp32/a: a soft link");

	file = create_golden();
	H5Lcreate_hard(file, "/fp32", file, "/fp32/layer00/up", H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(file);
	ck_refused(path, "fp32/layer00/up: a group inside itself");

	file = create_golden();
	H5Lcreate_hard(file, "/fp32/layer00/input", file, "/fp32/layer00/again", H5P_DEFAULT, H5P_DEFAULT);
	H5Fclose(file);
	plumb_golden_close(open_golden(path)); /* two names of one dataset do no harm */

	file = create_golden();
	group = H5Gcreate2(file, "deep", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	for (int i = 0; i < 40; i++) {
		hid_t next = H5Gcreate2(group, "d", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
		H5Gclose(group);
		group = next;
	}
	H5Gclose(group);
	H5Fclose(file);
	ck_refused(path, "groups nested 33 deep, expected at most 32");

	/* 2^31 paths over 31 groups: each group is twice in the one above it */
	file = create_golden();
	H5Gclose(H5Gcreate2(file, "g0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	for (int i = 1; i < 31; i++) {
		char name[16], below[32];
		snprintf(name, sizeof name, "g%d", i);
		H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
		for (int k = 0; k < 2; k++) {
			snprintf(below, sizeof below, "g%d/%c", i, 'a' + k);
			snprintf(name, sizeof name, "g%d", i - 1);
			H5Lcreate_hard(file, name, file, below, H5P_DEFAULT, H5P_DEFAULT);
		}
	}
	H5Fclose(file);
	ck_refused(path, "more than 65536 datasets and groups");
}
END_TEST

START_TEST(test_data_elsewhere)
{
	const hsize_t dim[1] = {6};
	hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dim, NULL), file;
	char raw[160];

	snprintf(raw, sizeof raw, "%s/raw.bin", folder);
	H5Pset_external(plist, raw, 0, sizeof six);
	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, dim, plist, six);
	H5Fclose(file);
	H5Pclose(plist);
	ck_refused(path, "fp32/logits: stored in an external file, expected data inside the file");

	file = create(other);
	put(file, "secret", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, dim, H5P_DEFAULT, six);
	H5Fclose(file);
	plist = H5Pcreate(H5P_DATASET_CREATE);
	ck_assert_int_ge(H5Pset_virtual(plist, space, other, "/secret", space), 0);
	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, dim, plist, NULL);
	H5Fclose(file);
	H5Pclose(plist);
	H5Sclose(space);
	ck_refused(path, "fp32/logits: virtual storage, expected data inside the file");
}
END_TEST

static size_t pass_filter(
        unsigned flags, size_t values, const unsigned *value, size_t bytes, size_t *size, void **buffer)
{
	(void)flags;
	(void)values;
	(void)value;
	(void)size;
	(void)buffer;
	return bytes;
}

START_TEST(test_filters)
{
	static const H5Z_class2_t own = {H5Z_CLASS_T_VERS, 32001, 1, 1, "own", NULL, NULL, pass_filter};
	const hsize_t dim[2] = {3, 2};
	hid_t plist = H5Pcreate(H5P_DATASET_CREATE), file;
	struct plumb_golden *golden;
	struct plumb_golden_tensor t;

	H5Zregister(&own);
	H5Pset_chunk(plist, 2, (hsize_t[]){2, 2});
	H5Pset_filter(plist, 32001, H5Z_FLAG_MANDATORY, 0, NULL);
	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dim, plist, six);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: filter 32001 at place 0, expected shuffle, gzip, fletcher32, each once");
	H5Pclose(plist);

	plist = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_chunk(plist, 2, (hsize_t[]){2, 2});
	H5Pset_deflate(plist, 1);
	H5Pset_deflate(plist, 1); /* a bomb of a million to one */
	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dim, plist, six);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: filter 1 at place 1");
	H5Pclose(plist);

	plist = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_chunk(plist, 2, (hsize_t[]){2, 2});
	H5Pset_shuffle(plist);
	H5Pset_deflate(plist, 9);
	H5Pset_fletcher32(plist);
	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dim, plist, six);
	H5Fclose(file);
	H5Pclose(plist);
	golden = open_golden(path);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/logits", &t, &err), PLUMB_OK);
	ck_assert_mem_eq(t.f32, six, sizeof six);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
}
END_TEST

/* A file of a few KB that claims to hold the world. */
START_TEST(test_claims)
{
	hid_t plist = H5Pcreate(H5P_DATASET_CREATE), file;

	file = create_golden(); /* contiguous, never written: no byte of it is there */
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, (hsize_t[]){(hsize_t)1 << 59}, H5P_DEFAULT, NULL);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: claims 2305843009213693952 bytes of values, its 0 stored bytes hold at most 0");

	H5Pset_chunk(plist, 2, (hsize_t[]){1024, 1024});
	H5Pset_deflate(plist, 9);
	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){(hsize_t)1 << 30, (hsize_t)1 << 30},
	        plist, NULL);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: claims 4611686018427387904 bytes of values");

	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){(hsize_t)1 << 40, (hsize_t)1 << 40},
	        plist, NULL);
	H5Fclose(file);
	ck_refused(path, ""); /* HDF5 itself may say no first */

	file = create_golden();
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 9, (hsize_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1},
	        H5P_DEFAULT, six);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: rank 9, expected at most 8");
	H5Pclose(plist);
}
END_TEST

/* Chunks that were never written read as zeros: a golden file with holes must not look like one with zeros. */
START_TEST(test_holes)
{
	hid_t plist = H5Pcreate(H5P_DATASET_CREATE), file = create_golden(), space, part, dataset;
	float some[4] = {1.0f, 2.0f, 3.0f, 4.0f};

	H5Pset_chunk(plist, 1, (hsize_t[]){4});
	H5Pset_deflate(plist, 1);
	space = H5Screate_simple(1, (hsize_t[]){10}, NULL);
	dataset = H5Dcreate2(file, "fp32/logits", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
	part = H5Screate_simple(1, (hsize_t[]){4}, NULL);
	H5Sselect_hyperslab(space, H5S_SELECT_SET, (hsize_t[]){0}, NULL, (hsize_t[]){4}, NULL);
	ck_assert_int_ge(H5Dwrite(dataset, H5T_NATIVE_FLOAT, part, space, H5P_DEFAULT, some), 0);
	H5Dclose(dataset);
	H5Sclose(space);
	H5Sclose(part);
	H5Pclose(plist);
	H5Fclose(file);
	ck_refused(path, "fp32/logits: 1 chunks written, expected 3");
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

/* ---- damage ---- */

struct bytes {
	unsigned char *data;
	size_t size;
};

static struct bytes slurp(const char *name)
{
	struct bytes b = {0};
	struct stat st;
	FILE *file = fopen(name, "rb");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fstat(fileno(file), &st), 0);
	b.size = (size_t)st.st_size;
	b.data = malloc(b.size);
	ck_assert_uint_eq(fread(b.data, 1, b.size, file), b.size);
	fclose(file);
	return b;
}

static void spill(const char *name, const unsigned char *data, size_t size)
{
	FILE *file = fopen(name, "wb");

	ck_assert_uint_eq(fwrite(data, 1, size, file), size);
	fclose(file);
}

/* Open and read everything; whatever comes of it must be PLUMB_OK or one line. Returns whether the file opened. */
static bool digest(const char *name, int64_t *read, int64_t *refused, int64_t *crashed)
{
	struct plumb_golden *golden;
	int status = plumb_golden_open(name, &golden, &err);

	ck_assert(status == PLUMB_OK || status == PLUMB_BAD_INPUT);
	if (status == PLUMB_OK) {
		for (int policy = 0; policy < 2; policy++) {
			int64_t count;
			const struct plumb_h5_entry *entry =
			        plumb_golden_run(golden, (enum plumb_policy)policy, &count);
			for (int64_t i = 0; i < count; i++) {
				struct plumb_golden_tensor t;
				int reading = entry[i].type == PLUMB_H5_INT
				                      ? plumb_golden_read_i64(golden, entry[i].name, &t, &err)
				                      : plumb_golden_read_f32(golden, entry[i].name, &t, &err);
				ck_assert(reading == PLUMB_OK || reading == PLUMB_BAD_INPUT);
				*(reading == PLUMB_OK ? read : refused) += 1;
				plumb_golden_tensor_free(&t);
			}
		}
		plumb_golden_close(golden);
		return true;
	}
	ck_assert_msg(strncmp(err.text, name, strlen(name)) == 0, "%s", err.text);
	for (const char *p = err.text; *p; p++)
		ck_assert((unsigned char)*p >= 0x20);
	*crashed += strstr(err.text, "damaged") != NULL;
	return false;
}

START_TEST(test_truncated_tiny)
{
	struct bytes b = slurp(TINY);
	int64_t read = 0, refused = 0, crashed = 0;

	for (int i = 0; i < 60; i++) {
		size_t size = i < 20 ? (size_t)i * 97 : (size_t)((double)(b.size - 1) * (i - 19) / 40.0);
		spill(path, b.data, size);
		ck_assert_msg(!digest(path, &read, &refused, &crashed), "%zu of %zu bytes", size, b.size);
	}
	ck_assert_ptr_nonnull(strstr(err.text, "truncated file"));
	ck_assert_int_eq(crashed, 0);
	free(b.data);
}
END_TEST

/* A small file, so that nearly every byte means something; in the old and in the new file format. */
static struct bytes small_golden(bool latest)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), plist = H5Pcreate(H5P_DATASET_CREATE), scalar = H5Screate(H5S_SCALAR),
	      text = H5Tcopy(H5T_C_S1), file, group;
	const char *producer = "test_golden";
	float many[64];

	for (int i = 0; i < 64; i++)
		many[i] = (float)i;
	if (latest)
		H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
	H5Tset_size(text, H5T_VARIABLE);
	H5Pset_chunk(plist, 2, (hsize_t[]){4, 4});
	H5Pset_shuffle(plist);
	H5Pset_deflate(plist, 4);
	file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t[]){3}, H5P_DEFAULT, three_ids);
	put(file, "fp32/layer00/input", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){3, 2}, H5P_DEFAULT, six);
	put(file, "fp32/layer00/output", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){8, 8}, plist, many);
	put(file, "fp32/layer00/moe/router/experts", H5T_STD_I64LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){8, 8}, plist,
	        many);
	put_attribute(file, "producer", text, text, scalar, &producer);
	group = H5Gopen2(file, "fp32", H5P_DEFAULT);
	put_attribute(group, "prefill", H5T_STD_I64LE, H5T_NATIVE_INT, scalar, (int[]){2});
	H5Gclose(group);
	H5Fclose(file);
	H5Tclose(text);
	H5Sclose(scalar);
	H5Pclose(plist);
	H5Pclose(fapl);
	return slurp(path);
}

START_TEST(test_truncated_small)
{
	struct bytes b = small_golden(_i == 1);
	int64_t read = 0, refused = 0, crashed = 0;

	ck_assert(digest(path, &read, &refused, &crashed));
	ck_assert_int_eq(read, 3);
	for (size_t size = 0; size < b.size; size += 1 + b.size / 150) {
		spill(path, b.data, size);
		ck_assert_msg(!digest(path, &read, &refused, &crashed), "%zu of %zu bytes", size, b.size);
	}
	ck_assert_int_eq(crashed, 0);
	free(b.data);
}
END_TEST

START_TEST(test_flipped_small)
{
	struct bytes b = small_golden(_i % 2 == 1);
	unsigned char *damaged = malloc(b.size);
	uint64_t x = 88172645463325252u + (uint64_t)_i;
	int64_t read = 0, refused = 0, crashed = 0, opened = 0;
	enum { FLIPS = 200 };

	for (int i = 0; i < FLIPS; i++) {
		memcpy(damaged, b.data, b.size);
		for (int k = 0; k < 1 + i % 3; k++) {
			static const unsigned char value[4] = {0x00, 0xFF, 0x80, 0x01};
			size_t at;
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17; /* xorshift64 */
			at = (size_t)(x >> 8) % b.size;
			damaged[at] = x & 4 ? (unsigned char)(damaged[at] ^ (1u << (x & 3) * 2)) : value[x & 3];
		}
		spill(path, damaged, b.size);
		opened += digest(path, &read, &refused, &crashed);
	}
	/* Most of a small file is padding and most damage goes unseen without checksums; some must be seen. */
	ck_assert_int_gt(opened, 0);
	ck_assert_int_lt(opened, FLIPS);
	free(damaged);
	free(b.data);
}
END_TEST

START_TEST(test_flipped_tiny)
{
	/* Single bytes of the shipped file on which HDF5 1.10.8 dies of a signal, then random ones. A newer library may
	 * refuse the former itself, or take a string that is cut: no crash is all that is asked. */
	static const struct {
		size_t at;
		unsigned char value;
	} deadly[] = {{902, 83}, {917, 255}, {982, 29}, {2079, 255}, {2154, 255}};
	struct bytes b = slurp(TINY);
	int64_t read = 0, refused = 0, crashed = 0;
	uint64_t x = 362436069u;

	for (size_t i = 0; i < 5; i++) {
		unsigned char kept = b.data[deadly[i].at];
		b.data[deadly[i].at] = deadly[i].value;
		spill(path, b.data, b.size);
		digest(path, &read, &refused, &crashed);
		b.data[deadly[i].at] = kept;
	}
	for (int i = 0; i < 40; i++) {
		size_t at;
		unsigned char kept;
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		at = (size_t)(x >> 8) % (i % 2 ? 4000 : b.size);
		kept = b.data[at];
		b.data[at] ^= (unsigned char)(1u << (x & 7));
		spill(path, b.data, b.size);
		digest(path, &read, &refused, &crashed);
		b.data[at] = kept;
	}
	free(b.data);
}
END_TEST

/* A dataset that cannot be decoded is refused by name, and the others stay readable. */
START_TEST(test_one_bad_dataset)
{
	struct bytes b = small_golden(false);
	struct plumb_golden *golden;
	struct plumb_golden_tensor t;
	int broken = 0;

	for (size_t i = 0; i + 2 < b.size; i++) { /* the zlib header of the chunks */
		if (b.data[i] == 0x78 && b.data[i + 1] == 0x5e) {
			b.data[i + 1] = 0;
			broken++;
		}
	}
	ck_assert_int_gt(broken, 0);
	spill(path, b.data, b.size);
	golden = open_golden(path);
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/layer00/output", &t, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "fp32/layer00/output: cannot be decoded: inflate() failed"));
	ck_assert_int_eq(plumb_golden_read_f32(golden, "fp32/layer00/input", &t, &err), PLUMB_OK);
	ck_assert_mem_eq(t.f32, six, sizeof six);
	plumb_golden_tensor_free(&t);
	plumb_golden_close(golden);
	free(b.data);
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
	TCase *shipped = tcase_create("shipped"), *made = tcase_create("made"), *harm = tcase_create("harm");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(shipped, set_up, tear_down);
	tcase_set_timeout(shipped, 60);
	tcase_add_test(shipped, test_tiny);
	tcase_add_test(shipped, test_tiny_values);
	tcase_add_test(shipped, test_reads_that_are_refused);
	tcase_add_test(shipped, test_two_at_once);
	suite_add_tcase(suite, shipped);
	tcase_add_checked_fixture(made, set_up, tear_down);
	tcase_set_timeout(made, 60);
	tcase_add_test(made, test_made_here);
	tcase_add_test(made, test_number_formats);
	tcase_add_test(made, test_attributes);
	tcase_add_test(made, test_format_is_demanded);
	tcase_add_test(made, test_other_types);
	suite_add_tcase(suite, made);
	tcase_add_checked_fixture(harm, set_up, tear_down);
	tcase_set_timeout(harm, 300); /* a process for each file, under sanitizers */
	tcase_add_test(harm, test_not_hdf5);
	tcase_add_test(harm, test_links);
	tcase_add_test(harm, test_data_elsewhere);
	tcase_add_test(harm, test_filters);
	tcase_add_test(harm, test_claims);
	tcase_add_test(harm, test_holes);
	tcase_add_test(harm, test_truncated_tiny);
	tcase_add_loop_test(harm, test_truncated_small, 0, 2);
	tcase_add_loop_test(harm, test_flipped_small, 0, 4);
	tcase_add_test(harm, test_flipped_tiny);
	tcase_add_test(harm, test_one_bad_dataset);
	suite_add_tcase(suite, harm);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
