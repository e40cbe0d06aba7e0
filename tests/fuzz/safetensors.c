/* SPDX-License-Identifier: MIT */
/* A safetensors file: header, offsets, shapes. What is accepted lies inside the file, whole. */
#include "core/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	int status = plumb_safetensors_open(fuzz_file(data, size), &file, &err);
	unsigned sum = 0;

	fuzz_judge(status, &err);
	FUZZ_CHECK((status == PLUMB_OK) == (file != NULL));
	if (!file)
		return 0;
	for (size_t i = 0; i < file->tensors; i++) {
		const struct plumb_tensor *t = &file->tensor[i];
		char text[192];

		FUZZ_CHECK(t->name && plumb_dtype_name(t->dtype) && plumb_tensor_shape(t, text) == text);
		FUZZ_CHECK(t->rank >= 0 && t->rank <= PLUMB_TENSOR_RANK);
		FUZZ_CHECK(t->bytes <= size);
		if (t->bytes) {
			const unsigned char *map = file->map;
			FUZZ_CHECK(t->data >= map && t->data + t->bytes <= map + size);
			sum += t->data[0] + t->data[t->bytes - 1];
		}
	}
	plumb_safetensors_close(file);
	return sum == 0x7fffffff;
}
