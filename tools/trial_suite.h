/* SPDX-License-Identifier: MIT */
/* Many trials, in processes of their own: a crash, a hang or an exit fails one case, and the run goes on. */
#ifndef PLUMB_TOOLS_TRIAL_SUITE_H
#define PLUMB_TOOLS_TRIAL_SUITE_H

#include "tools/trial_judge.h"

enum { TRIAL_JOBS = 64 };

/* A case of a suite, and the shared object that is tried in it; NULL: the opt set. */
struct trial_item {
	struct trial_spec spec;
	const char *path;
};

struct trial_suite {
	const struct trial_item *item;
	int64_t items;
	int jobs;        /* processes at a time; at least 1 */
	int64_t timeout; /* seconds of one run of a candidate; 0: no limit */
	bool fail_fast;  /* start nothing after the first failure */
	bool exact, race;
	double within; /* as struct trial_candidate has them */
	int gpu;
	/* Called for each case that has run, in the order of the items. */
	void (*done)(void *self, const struct trial_report *report);
	/* Called now and then: how many have run. */
	void (*step)(void *self, int64_t done);
	void *self;
};

/* What a suite measured. */
struct trial_sums {
	struct plumb_bound_result bounds[PLUMB_OP_COUNT]; /* of cases of class plain */
	int64_t ran;
};

/* Run them. To be called before this process has used CUDA or OpenMP. sums: may be NULL.
 * Returns PLUMB_OK, PLUMB_MISMATCH when a case failed, PLUMB_NO_DEVICE, or PLUMB_BAD_INPUT with err for a case that cannot be
 * made or processes that cannot be started. */
int trial_suite_run(const struct trial_suite *suite, struct trial_sums *sums, struct plumb_error *err);

/* The ops that a shared object offers kernels for, one op an entry, by loading it in a process of its own: offered[op].
 * Errors: PLUMB_BAD_INPUT naming the file and what is wrong with it. */
int trial_suite_offers(const char *path, bool offered[PLUMB_OP_COUNT], struct plumb_error *err);

#endif
