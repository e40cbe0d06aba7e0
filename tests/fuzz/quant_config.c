/* SPDX-License-Identifier: MIT */
/* quantization_config of a config.json (first byte even) or hf_quant_config.json (odd), against a few tensors of each
 * kind of storage. */
#include "core/quant_config.h"

#include <stdbool.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

/* Sorted, as plumb_shards_open leaves them. */
static struct plumb_tensor tensors[] = {
	{.name = "model.layers.0.a.weight",
		.file = "f",
		.dtype = PLUMB_DTYPE_BF16,
		.rank = 2,
		.dim = {4, 32},
		.bytes = 256},
	{.name = "model.layers.0.b.weight",
		.file = "f",
		.dtype = PLUMB_DTYPE_F8_E4M3,
		.rank = 2,
		.dim = {4, 32},
		.bytes = 128},
	{.name = "model.layers.0.b.weight_scale_inv",
		.file = "f",
		.dtype = PLUMB_DTYPE_F32,
		.rank = 2,
		.dim = {1, 1},
		.bytes = 4},
	{.name = "model.layers.0.c.weight", .file = "f", .dtype = PLUMB_DTYPE_U8, .rank = 2, .dim = {4, 16}, .bytes = 64},
	{.name = "model.layers.0.c.weight_scale",
		.file = "f",
		.dtype = PLUMB_DTYPE_F8_E4M3,
		.rank = 2,
		.dim = {4, 2},
		.bytes = 8},
	{.name = "model.layers.0.c.weight_scale_2", .file = "f", .dtype = PLUMB_DTYPE_F32, .rank = 0, .bytes = 4},
	{.name = "mtp.x.weight", .file = "f", .dtype = PLUMB_DTYPE_BF16, .rank = 1, .dim = {2}, .bytes = 4},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };

static bool is_skipped(const char *name)
{
	return strncmp(name, "mtp.", 4) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[256];
	const struct plumb_tensor *table[TENSORS];
	struct plumb_shards shards = {.dir = (char *)"folder", .tensor = table, .tensors = TENSORS};
	struct plumb_error err = {""};

	if (size < 1)
		return 0;
	for (int i = 0; i < TENSORS; i++) {
		tensors[i].data = bytes;
		table[i] = &tensors[i];
	}
	const char *path = fuzz_file(data + 1, size - 1);

	fuzz_judge(data[0] % 2 ? plumb_quant_sidecar_check(path, &shards, is_skipped, &err)
			       : plumb_quant_config_check(path, &shards, is_skipped, &err),
		&err);
	return 0;
}
