/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/h5_readers.h"

#include <string.h>

#include "golden/case.h"
#include "golden/golden.h"
#include "tests/fuzz/fuzz.h"

/* Elements of a dataset that are read: more is slow and nothing new. */
enum { MOST_ELEMENTS = 1 << 16 };

/* The HDF5 library asks malloc for whatever size a damaged file claims, and gets NULL; what it hands to memcpy and the like
 * is its own affair; and a signal ends the child as one. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:handle_segv=0:handle_sigbus=0:handle_sigfpe=0";
}

const char *__asan_default_suppressions(void);
const char *__asan_default_suppressions(void)
{
	return "interceptor_via_lib:libhdf5";
}

/* The child cannot open anything, also not the list of libraries that the suppression needs: it is read here. */
#ifdef __clang__
int __sanitizer_get_module_and_offset_for_pc(void *pc, char *path, size_t size, void **offset);

__attribute__((constructor)) static void know_the_libraries(void)
{
	char path[256];
	void *offset;

	(void)__sanitizer_get_module_and_offset_for_pc((void *)(uintptr_t)plumb_h5_open, path, sizeof path, &offset);
}
#endif

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
