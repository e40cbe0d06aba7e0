/* SPDX-License-Identifier: MIT */
/* model.safetensors.index.json in a folder with one shard. */
#include <string.h>
#include <unistd.h>

#include "core/shards.h"
#include "tests/fuzz/fuzz.h"

static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plumb_shards *shards = NULL;
	struct plumb_error err = {""};
	uint8_t shard[8 + sizeof header + 1] = {sizeof header - 1};
	char path[192];

	memcpy(shard + 8, header, sizeof header - 1);
	strncpy(path, fuzz_file_in_folder("a.safetensors", shard, sizeof shard), sizeof path - 1);
	path[sizeof path - 1] = '\0';
	fuzz_file_in_folder("model.safetensors.index.json", data, size);
	int status = plumb_shards_open(fuzz_folder(), &shards, &err);

	fuzz_judge(status, &err);
	FUZZ_CHECK((status == PLUMB_OK) == (shards != NULL));
	if (shards) {
		FUZZ_CHECK(shards->files <= 1);
		for (size_t i = 0; i < shards->tensors; i++)
			FUZZ_CHECK(plumb_shards_find(shards, shards->tensor[i]->name, NULL) == shards->tensor[i]);
	}
	plumb_shards_close(shards);
	unlink(path);
	return 0;
}
