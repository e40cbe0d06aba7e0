/* SPDX-License-Identifier: MIT */
/* A case in HDF5, opened as `plumb replay` opens it. See tests/fuzz/golden.c. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/h5_readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_read_case(fuzz_file(data, size));
	return 0;
}
