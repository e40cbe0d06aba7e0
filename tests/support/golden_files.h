/* SPDX-License-Identifier: MIT */
/* HDF5 files that the tests of the golden reader make, and what they ask of every refusal. */
#ifndef PLUMB_TESTS_SUPPORT_GOLDEN_FILES_H
#define PLUMB_TESTS_SUPPORT_GOLDEN_FILES_H

#include <hdf5.h>
#include <stdint.h>

#include "golden/golden.h"
#include "tests/support/scratch.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"

/* A fixture: a folder of its own for each test, the paths of two files in it, and a message. At its end no child
 * process is left that nobody waited for. */
extern char folder[SCRATCH_PATH], path[SCRATCH_PATH], other[SCRATCH_PATH];
extern struct plumb_error err;
void golden_files_set_up(void);
void golden_files_tear_down(void);

/* Open a file that must open. */
struct plumb_golden *open_golden(const char *name);

/* The file must be refused, in one line that begins with its path and contains what. */
void ck_refused(const char *name, const char *what);

hid_t create(const char *name);

/* Write a dataset and the groups above it; values NULL: leave it unwritten. */
void put(hid_t file, const char *name, hid_t file_type, hid_t memory_type, int rank, const hsize_t *dim, hid_t create_plist,
	const void *values);
void put_attribute(hid_t object, const char *name, hid_t type, hid_t memory, hid_t space, const void *value);

/* What every golden file has, in the file path: input_ids (three_ids) and fp32/layer00/input (six, [3, 2]). */
extern const int64_t three_ids[3];
extern const float six[6];
hid_t create_golden(void);

#endif
