/* SPDX-License-Identifier: MIT */
/* config.json. What is accepted keeps its text: written and read again it is the same. */
#include "core/config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct plumb_config config, again;
	struct plumb_error err = {""};
	int status = plumb_config_parse((const char *)data, size, "config.json", &config, &err);

	fuzz_judge(status, &err);
	if (status != PLUMB_OK)
		return 0;
	char *text = plumb_config_text(&config);

	FUZZ_CHECK(text != NULL);
	FUZZ_CHECK(plumb_config_parse(text, strlen(text), "again", &again, &err) == PLUMB_OK);
	char *twice = plumb_config_text(&again);

	FUZZ_CHECK(twice != NULL && strcmp(text, twice) == 0);
	FUZZ_CHECK(config.layers >= 1 && config.layers <= PLUMB_MAX_LAYERS && config.streams <= PLUMB_MAX_STREAMS);
	FUZZ_CHECK(config.q_heads % config.kv_heads == 0 && config.gdn_value_heads % config.gdn_key_heads == 0);
	free(text);
	free(twice);
	return 0;
}
