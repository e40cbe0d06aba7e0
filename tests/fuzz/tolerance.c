/* SPDX-License-Identifier: MIT */
/* Tolerances of a user's file. What is accepted always decides by some element. */
#include "core/tolerance.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plumb_tolerances *tolerances = NULL;
	struct plumb_error err = {""};
	int status = plumb_tolerances_parse((const char *)data, size, "tolerances.json", &tolerances, &err);

	fuzz_judge(status, &err);
	FUZZ_CHECK((status == PLUMB_OK) == (tolerances != NULL));
	plumb_tolerances_free(tolerances);
	return 0;
}
