/* SPDX-License-Identifier: MIT */
/* A golden file in HDF5, opened as the program opens it: by a child process. What happens inside the HDF5 library stays
 * there (and adds nothing to the coverage of this process); tests/fuzz/h5_child.c feeds the readers without it. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/h5_readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_read_golden(fuzz_file(data, size));
	return 0;
}
