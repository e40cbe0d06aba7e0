/* SPDX-License-Identifier: MIT */
/* Digests of a run, as golden/synthetic/ has them. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/run_digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run_expected expected = {.layers = 0};
	struct plumb_error err = {""};
	int status = run_expected_parse((const char *)data, size, "run.json", &expected, &err);
	size_t digits = 0;

	fuzz_judge(status, &err);
	if (status != PLUMB_OK)
		return 0;
	FUZZ_CHECK(expected.facts.model && expected.facts.profile && expected.facts.policy && strlen(expected.total) == 32);
	for (int64_t i = 0; i < expected.positions * (expected.layers + 1); i++)
		digits += strlen(expected.cell[i]);
	FUZZ_CHECK(digits == 8 * (size_t)(expected.positions * (expected.layers + 1)));
	for (int64_t i = 0; i < expected.facts.prompts; i++)
		FUZZ_CHECK(expected.facts.prompt[i] >= 0);
	run_expected_free(&expected);
	return 0;
}
