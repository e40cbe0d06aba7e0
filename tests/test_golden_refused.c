/* SPDX-License-Identifier: MIT */
/* Golden files made to do harm. A refusal is one line that starts with the path; no file may crash, hang, or make the
 * reader open another file.
 *
 * The HDF5 library crashes, leaks and runs in circles on some of the damaged files below. It does so in the reader's
 * child process, which ends by _exit or by the kernel's hand, so no leak has to be suppressed here; that process is
 * also why a crash is a test and not the end of one. */
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
	char raw[SCRATCH_PATH];

	scratch_path(raw, folder, "raw.bin");
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

static size_t pass_filter(unsigned flags, size_t values, const unsigned *value, size_t bytes, size_t *size, void **buffer)
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
	put(file, "fp32/logits", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 9, (hsize_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, H5P_DEFAULT,
		six);
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
			const struct plumb_h5_entry *entry = plumb_golden_run(golden, (enum plumb_policy)policy, &count);
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
	put(file, "fp32/layer00/moe/router/experts", H5T_STD_I64LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){8, 8}, plist, many);
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

int main(void)
{
	Suite *suite = suite_create("golden_refused");
	TCase *tcase = suite_part(suite, "structure", 60);
	tcase_add_checked_fixture(tcase, golden_files_set_up, golden_files_tear_down);
	tcase_add_test(tcase, test_not_hdf5);
	tcase_add_test(tcase, test_links);
	tcase_add_test(tcase, test_data_elsewhere);
	tcase_add_test(tcase, test_filters);
	tcase_add_test(tcase, test_claims);
	tcase_add_test(tcase, test_holes);
	tcase = suite_part(suite, "damage", 300); /* a process for each file, under sanitizers */
	tcase_add_checked_fixture(tcase, golden_files_set_up, golden_files_tear_down);
	tcase_add_test(tcase, test_truncated_tiny);
	tcase_add_loop_test(tcase, test_truncated_small, 0, 2);
	tcase_add_loop_test(tcase, test_flipped_small, 0, 4);
	tcase_add_test(tcase, test_flipped_tiny);
	tcase_add_test(tcase, test_one_bad_dataset);
	return suite_run(suite);
}
