/* SPDX-License-Identifier: MIT */
/* The older report that `plumb bench --compare` is given. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/bench.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bench_old old;
	struct plumb_error err = {""};
	int status = bench_old_read(fuzz_file(data, size), &old, &err);

	fuzz_judge(status, &err);
	if (status != PLUMB_OK)
		return 0;
	FUZZ_CHECK(old.times >= 0 && old.times <= BENCH_OLD_TIMES);
	FUZZ_CHECK(memchr(old.model, '\0', sizeof old.model) && memchr(old.runs, '\0', sizeof old.runs));
	for (int i = 0; i < old.times; i++)
		FUZZ_CHECK(old.time[i].op <= PLUMB_OP_COUNT && old.time[i].us >= 0.0); /* 0: not compared */
	return 0;
}
