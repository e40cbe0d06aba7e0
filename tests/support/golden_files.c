/* SPDX-License-Identifier: MIT */
#include "tests/support/golden_files.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

char folder[SCRATCH_PATH], path[SCRATCH_PATH], other[SCRATCH_PATH];
struct plumb_error err;

const int64_t three_ids[3] = {5, -6, INT64_MAX};
const float six[6] = {1.0f, -0.5f, 0.25f, 3.0f, -0.0f, 1e-40f};

void golden_files_set_up(void)
{
	scratch_make(folder);
	scratch_path(path, folder, "golden.h5");
	scratch_path(other, folder, "other.h5");
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void golden_files_tear_down(void)
{
	scratch_remove(folder);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
}

struct plumb_golden *open_golden(const char *name)
{
	struct plumb_golden *golden;

	ck_assert_msg(plumb_golden_open(name, &golden, &err) == PLUMB_OK, "%s", err.text);
	return golden;
}

void ck_refused(const char *name, const char *what)
{
	struct plumb_golden *golden = (struct plumb_golden *)folder;

	err.text[0] = '\0';
	ck_assert_msg(plumb_golden_open(name, &golden, &err) == PLUMB_BAD_INPUT, "not refused, expected %s", what);
	ck_assert_ptr_null(golden);
	ck_assert_msg(strncmp(err.text, name, strlen(name)) == 0 && err.text[strlen(name)] == ':', "%s", err.text);
	ck_assert_msg(strstr(err.text, what) != NULL, "%s\nexpected: %s", err.text, what);
	ck_assert_ptr_null(strchr(err.text, '\n'));
}

hid_t create(const char *name)
{
	hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

	ck_assert_int_ge(file, 0);
	return file;
}

void put(hid_t file, const char *name, hid_t file_type, hid_t memory_type, int rank, const hsize_t *dim, hid_t create_plist,
	const void *values)
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

void put_attribute(hid_t object, const char *name, hid_t type, hid_t memory, hid_t space, const void *value)
{
	hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);

	ck_assert_int_ge(attribute, 0);
	H5Awrite(attribute, memory, value);
	H5Aclose(attribute);
}

hid_t create_golden(void)
{
	hid_t file = create(path);

	put(file, "input_ids", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, (hsize_t[]){3}, H5P_DEFAULT, three_ids);
	put(file, "fp32/layer00/input", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){3, 2}, H5P_DEFAULT, six);
	return file;
}
