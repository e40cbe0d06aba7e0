/* SPDX-License-Identifier: MIT */
/* The line that names a trial of `plumb test`. What is accepted is shown in a line that means the same. */
#include "tools/trial_spec.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#ifdef FUZZ_NO_RUN /* of tools/trial_run.c, which needs the sets: a line is read here, its trial is not made */
int64_t trial_count(const struct trial_operand *o)
{
	(void)o;
	fuzz_fail(__FILE__, __LINE__, "no trial is made");
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trial_spec spec, again;
	struct plumb_error err = {""};
	char *text = malloc(size + 1), line[TRIAL_LINE], twice[TRIAL_LINE];

	FUZZ_CHECK(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	int status = trial_spec_parse(text, &spec, &err);

	free(text);
	fuzz_judge(status, &err);
	if (status != PLUMB_OK)
		return 0;
	FUZZ_CHECK(spec.op < PLUMB_OP_COUNT);
	FUZZ_CHECK(trial_spec_show(&spec, line) == line && strlen(line) < TRIAL_LINE);
	FUZZ_CHECK(trial_spec_parse(line, &again, &err) == PLUMB_OK);
	FUZZ_CHECK(strcmp(trial_spec_show(&again, twice), line) == 0);
	FUZZ_CHECK(again.seed == spec.seed && again.position == spec.position && again.class == spec.class);
	return 0;
}
