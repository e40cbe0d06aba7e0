/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/h5_readers.h"

#include <string.h>

#include "golden/case.h"
#include "golden/golden.h"
#include "tests/fuzz/fuzz.h"

/* Elements of a dataset that are read: more is slow and nothing new. */
enum { MOST_ELEMENTS = 1 << 16 };

/* The HDF5 library asks malloc for whatever size a damaged file claims, and gets NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void read_run(struct plumb_golden *golden, enum plumb_policy policy)
{
	int64_t count;
	const struct plumb_h5_entry *entry = plumb_golden_run(golden, policy, &count);

	FUZZ_CHECK(plumb_golden_prefill(golden, policy) >= -1 &&
		   plumb_golden_prefill(golden, policy) <= plumb_golden_tokens(golden));
	for (int64_t i = 0; i < count; i++) {
		struct plumb_golden_tensor tensor;
		struct plumb_error err = {""};
		int status;

		FUZZ_CHECK(plumb_golden_find(golden, entry[i].name) == &entry[i]);
		status = entry[i].type == PLUMB_H5_INT ? plumb_golden_read_i64(golden, entry[i].name, &tensor, &err)
		                                       : plumb_golden_read_f32(golden, entry[i].name, &tensor, &err);
		fuzz_judge_h5(status, &err);
		if (status != PLUMB_OK)
			continue;
		FUZZ_CHECK(tensor.count == entry[i].count && (tensor.f32 != NULL) + (tensor.i64 != NULL) == 1);
		plumb_golden_tensor_free(&tensor);
	}
}

void fuzz_read_golden(const char *path)
{
	struct plumb_golden *golden = NULL;
	struct plumb_error err = {""};
	int status = plumb_golden_open(path, &golden, &err);

	fuzz_judge_h5(status, &err);
	FUZZ_CHECK((status == PLUMB_OK) == (golden != NULL));
	if (!golden)
		return;
	plumb_golden_limit(golden, MOST_ELEMENTS);
	FUZZ_CHECK(plumb_golden_tokens(golden) >= 1 && plumb_golden_input_ids(golden));
	FUZZ_CHECK(plumb_golden_ties(golden) <= PLUMB_TIES_TORCH);
	(void)plumb_golden_attribute(golden, "producer");
	read_run(golden, PLUMB_POLICY_F32);
	read_run(golden, PLUMB_POLICY_BF16);
	plumb_golden_close(golden);
}

void fuzz_read_case(const char *path)
{
	struct plumb_case *c = NULL;
	struct plumb_error err = {""};
	int status = plumb_case_read(path, &c, &err);

	fuzz_judge_h5(status, &err);
	FUZZ_CHECK((status == PLUMB_OK) == (c != NULL));
	if (!c)
		return;
	FUZZ_CHECK(c->call.op < PLUMB_OP_COUNT && c->args != NULL && c->criterion <= PLUMB_CASE_BOUND);
	plumb_case_free(c);
}
