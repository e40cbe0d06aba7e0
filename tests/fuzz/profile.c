/* SPDX-License-Identifier: MIT */
/* A profile: which group of matrices is held in which format. */
#include "core/profile.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plumb_profile profile;
	struct plumb_error err = {""};
	int status = plumb_profile_parse((const char *)data, size, "profile.json", &profile, &err);

	fuzz_judge(status, &err);
	if (status != PLUMB_OK)
		return 0;
	FUZZ_CHECK(strcmp(profile.name, "profile") == 0);
	FUZZ_CHECK(memchr(profile.description, '\0', sizeof profile.description) != NULL);
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++)
		FUZZ_CHECK(profile.keep[g] || plumb_group_takes((enum plumb_group)g, profile.format[g]));
	return 0;
}
