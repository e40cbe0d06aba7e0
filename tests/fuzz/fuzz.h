/* SPDX-License-Identifier: MIT */
/* What fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: libFuzzer's main calls it in a build with
 * the preset `fuzz`, that of tests/fuzz/replay.c with a corpus in every other one. docs/fuzzing.md says how to run it. */
#ifndef PLUMB_TESTS_FUZZ_FUZZ_H
#define PLUMB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input as a regular file, for readers that take a path. One file a process, written over at each call and gone at
 * its end. Returns its path. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* A folder of this process, gone at its end, and a file in it. */
const char *fuzz_folder(void);
const char *fuzz_file_in_folder(const char *name, const uint8_t *data, size_t size);

/* What every reader owes: PLUMB_OK, or PLUMB_BAD_INPUT and one line of text, printable and not empty. Anything else
 * ends the program as a finding. */
void fuzz_judge(int status, const struct plumb_error *err);

/* The finding, in words, when a condition does not hold. */
#define FUZZ_CHECK(condition)                                                                                              \
	do {                                                                                                               \
		if (!(condition))                                                                                          \
			fuzz_fail(__FILE__, __LINE__, #condition);                                                         \
	} while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *condition);

/* The HDF5 library crashes on some damaged files: that is contained in the child process of golden/h5_child.c, and no
 * finding. A report of a sanitizer there is one: it ends the child with this program's exit status for them, 1. */
void fuzz_judge_h5(int status, const struct plumb_error *err);

#endif
