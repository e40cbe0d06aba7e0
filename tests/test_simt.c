/* SPDX-License-Identifier: MIT */
/* The simt device: right kernels give the same bits for every seed, wrong ones give other bits or a report. A shim that
 * let a missing barrier pass would make every race test above it worthless, so the wrong half is the larger one. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/simt/simt.h"
#include "tests/simt_kernels.h"
#include "tests/support/suite.h"

enum { SEEDS = 50 };

typedef int (*launcher)(SIMT_ARGUMENTS);

struct kernel {
	const char *name, *right_name;
	launcher run, right, race;
	int seeds, races;
};

#ifdef PLUMB_RACE
#define RACE(name) plumb_race_test_##name
#else
#define RACE(name) NULL /* the race check and the sanitizers do not go together */
#endif
#define ROW(name) {#name, NULL, plumb_simt_test_##name, NULL, RACE(name), 0, 0},
#define ROW_2(name, right, seeds, races)                                                                                   \
	{#name, #right, plumb_simt_test_##name, plumb_simt_test_##right, RACE(name), seeds, races},

static const struct kernel right_kernels[] = {SIMT_RIGHT(ROW)};
static const struct kernel differing_kernels[] = {SIMT_DIFFERS(ROW_2)};
static const struct kernel order_kernels[] = {SIMT_ORDER(ROW_2)};

/* What a report must say besides the kernel: the block and thread at fault, where they do not depend on the schedule,
 * and the cause. */
static const struct {
	const char *name;
	launcher run;
	const char *must[4];
} reported_kernels[] = {
	{"barrier_exit", plumb_simt_test_barrier_exit, {"block (1,0,0)", "thread (37,0,0)", "divergent barrier", "exit"}},
	{"barrier_branch", plumb_simt_test_barrier_branch,
		{"block (0,0,0), thread (", "divergent barrier", "waits at __syncthreads, line "}},
	{"barrier_kind", plumb_simt_test_barrier_kind,
		{"block (0,0,0), thread (", "divergent barrier", "__syncthreads_or"}},
	{"mask_wrong", plumb_simt_test_mask_wrong,
		{"block (0,0,0), thread (", "thread (9,0,0)|lane 9", "mask 0xfffffffe", "mask 0xffffffff"}},
	{"mask_exited", plumb_simt_test_mask_exited, {"thread (20,0,0)", "__ballot_sync", "exit", "mask 0xffffffff"}},
	{"mask_without_self", plumb_simt_test_mask_without_self,
		{"block (0,0,0), thread (", "mask 0x0000ffff does not name the calling lane"}},
	{"mask_at_barrier", plumb_simt_test_mask_at_barrier, {"thread (3|thread (35", "__syncwarp", "__syncthreads"}},
	{"shuffle_unnamed", plumb_simt_test_shuffle_unnamed,
		{"block (0,0,0), thread (", "mask 0x0000ffff reads lane 16", "does not name"}},
	{"shuffle_missing_lane", plumb_simt_test_shuffle_missing_lane,
		{"block (0,0,0), thread (3", "which does not exist"}},
	{"shuffle_width", plumb_simt_test_shuffle_width, {"block (0,0,0), thread (", "width 12"}},
	{"shuffle_mixed", plumb_simt_test_shuffle_mixed, {"block (0,0,0), thread (", "64-bit __shfl_xor_sync"}},
	{"shared_range", plumb_simt_test_shared_range, {"thread (63,0,0)", "shared array small has 63", "index 63"}},
	{"shared_negative", plumb_simt_test_shared_negative, {"thread (0,0,0)", "shared array values has 64", "index -1"}},
	{"shared_view_range", plumb_simt_test_shared_view_range, {"thread (7,0,0)", "array values has 7", "index 7"}},
	{"shared_too_large", plumb_simt_test_shared_too_large, {"thread (", "shared array more of 4096 bytes", "101376"}},
	{"misaligned", plumb_simt_test_misaligned, {"block (0,0,0), thread (", "16 bytes at address"}},
	{"spin_forever", plumb_simt_test_spin_forever, {"thread (33,0,0)", "no progress"}},
	{"grid_barrier_exit", plumb_simt_test_grid_barrier_exit, {"block (", "thread (", "divergent grid barrier"}},
	{"grid_barrier_plain", plumb_simt_test_grid_barrier_plain, {"thread (", "not cooperative"}},
	{"grid_barrier_mixed", plumb_simt_test_grid_barrier_mixed,
		{"block (", "divergent barrier", "plumb_grid_sync", "__syncthreads"}},
	{"dependent_exit", plumb_simt_test_dependent_exit, {"thread (9,0,0)", "exits without plumb_grid_dependency_wait"}},
	{"cluster_exit", plumb_simt_test_cluster_exit, {"block (", "thread (", "exits|exited"}},
	{"cluster_plain", plumb_simt_test_cluster_plain, {"thread (", "not of a cluster"}},
	{"copies_exit", plumb_simt_test_copies_exit, {"thread (", "exits before a copy", "line "}},
	{"copies_range", plumb_simt_test_copies_range, {"words", "out of range"}},
	{"copies_misaligned", plumb_simt_test_copies_misaligned, {"not a multiple"}},
	{"mask_cycle", plumb_simt_test_mask_cycle,
		{"block (0,0,0), thread (0,0,0)", "deadlock, 3 threads wait for ever", "mask 0x00000006",
			"mask 0x00000005"}},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ONE(name) +1
_Static_assert(COUNT(reported_kernels) == SIMT_REPORTED(ONE), "every kernel of SIMT_REPORTED has a row here");

struct buffers {
	_Alignas(16) uint32_t in[SIMT_WORDS], out[SIMT_WORDS], scratch[SIMT_WORDS];
};

static struct buffers *new_buffers(void)
{
	struct buffers *b = aligned_alloc(64, (sizeof(*b) + 63) / 64 * 64);

	ck_assert_ptr_nonnull(b);
	return b;
}

/* Floats between 2^-8 and 2^8 of both signs: their sums depend on order, and as words they are as good as any. */
static void reset(struct buffers *b)
{
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (int i = 0; i < SIMT_WORDS; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		const uint32_t sign = (uint32_t)(x >> 63) << 31, mantissa = (uint32_t)(x >> 20) & 0x7fffffu;

		b->in[i] = sign | (119u + (uint32_t)(x >> 44) % 16u) << 23 | mantissa;
		b->out[i] = 0xdeadbeefu;
		b->scratch[i] = 0;
	}
}

static int run_seed(struct plumb_simt *simt, launcher run, struct buffers *b, uint64_t seed)
{
	reset(b);
	simt->seed = seed;
	return run(b->in, b->out, b->scratch, simt);
}

START_TEST(right_kernel)
{
	const struct kernel *k = &right_kernels[_i];
	struct plumb_simt simt = {0};
	struct buffers *first = new_buffers(), *again = new_buffers();
	int written = 0;

	ck_assert_msg(run_seed(&simt, k->run, first, 0) == PLUMB_SIMT_OK, "%s", simt.error);
	for (int i = 0; i < SIMT_WORDS; i++)
		written += first->out[i] != 0xdeadbeefu;
	ck_assert_msg(written > 0, "%s wrote nothing", k->name);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		ck_assert_msg(run_seed(&simt, k->run, again, seed) == PLUMB_SIMT_OK, "%s", simt.error);
		ck_assert_msg(memcmp(first->out, again->out, sizeof(first->out)) == 0, "%s differs for seed %llu", k->name,
			(unsigned long long)seed);
	}
	/* Other numbers of blocks in flight, and a seed once more: the schedule is a function of seed and kernel alone.
	 */
	for (simt.resident = 1; simt.resident <= 32; simt.resident *= 2) {
		ck_assert_msg(run_seed(&simt, k->run, again, 7) == PLUMB_SIMT_OK, "%s", simt.error);
		ck_assert_mem_eq(first->out, again->out, sizeof(first->out));
		simt.yields = 0;
		ck_assert_int_eq(run_seed(&simt, k->run, again, 7), PLUMB_SIMT_OK);
		const uint64_t yields = simt.yields;

		simt.yields = 0;
		ck_assert_int_eq(run_seed(&simt, k->run, again, 7), PLUMB_SIMT_OK);
		ck_assert_uint_eq(yields, simt.yields);
	}
	plumb_simt_free(&simt);
	free(first);
	free(again);
}
END_TEST

static int count_differing(const struct kernel *k, const char **error)
{
	static struct plumb_simt simt;
	struct buffers *want = new_buffers(), *got = new_buffers();
	int differing = 0;

	*error = simt.error;
	ck_assert_int_eq(run_seed(&simt, k->right, want, 0), PLUMB_SIMT_OK);
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		ck_assert_msg(run_seed(&simt, k->run, got, seed) == PLUMB_SIMT_OK, "%s", simt.error);
		differing += memcmp(want->out, got->out, sizeof(want->out)) != 0;
	}
	plumb_simt_free(&simt);
	free(want);
	free(got);
	return differing;
}

START_TEST(differing_kernel)
{
	const struct kernel *k = &differing_kernels[_i];
	const char *error;
	const int differing = count_differing(k, &error);

	printf("  %-28s differs from %-14s for %2d of %d seeds, want %d\n", k->name, k->right_name, differing, SEEDS,
		k->seeds);
	ck_assert_msg(differing >= k->seeds, "%s: only %d of %d seeds differ", k->name, differing, SEEDS);
}
END_TEST

/* The limit that simt.h states, pinned: when a change makes these visible, the LIMIT line has to go. */
START_TEST(order_kernel)
{
	const struct kernel *k = &order_kernels[_i];
	const char *error;

	ck_assert_int_eq(count_differing(k, &error), 0);
}
END_TEST

#ifdef PLUMB_RACE
/* The race check says nothing about a right kernel, and does not change its bits. */
START_TEST(race_right)
{
	const struct kernel *k = &right_kernels[_i];
	struct plumb_simt simt = {0};
	struct buffers *plain = new_buffers(), *checked = new_buffers();

	ck_assert_int_eq(run_seed(&simt, k->run, plain, 0), PLUMB_SIMT_OK);
	for (uint64_t seed = 0; seed <= 20; seed++) {
		ck_assert_msg(run_seed(&simt, k->race, checked, seed) == PLUMB_SIMT_OK, "%s", simt.error);
		ck_assert_mem_eq(plain->out, checked->out, sizeof(plain->out));
	}
	plumb_simt_free(&simt);
	free(plain);
	free(checked);
}
END_TEST

/* It reports a race for nearly every seed, whether the bits happen to be right or not. */
static void check_race(const struct kernel *k)
{
	struct plumb_simt simt = {0};
	struct buffers *b = new_buffers();
	int reported = 0;

	for (uint64_t seed = 0; seed <= SEEDS; seed++) {
		const int status = run_seed(&simt, k->race, b, seed);

		if (status == PLUMB_SIMT_FAULT && strstr(simt.error, ": race: ") && strstr(simt.error, "thread ("))
			reported++;
		else
			ck_assert_msg(status == PLUMB_SIMT_OK, "%s", simt.error);
		if (seed == 0)
			printf("  %s: %s\n", k->name, simt.error);
	}
	printf("  %-28s race reported for %2d of %d seeds\n", k->name, reported, SEEDS + 1);
	ck_assert_msg(k->races ? reported >= 45 : reported == 0, "%s: %d of %d", k->name, reported, SEEDS + 1);
	plumb_simt_free(&simt);
	free(b);
}

START_TEST(race_differing)
{
	check_race(&differing_kernels[_i]);
}
END_TEST

START_TEST(race_order)
{
	check_race(&order_kernels[_i]);
}
END_TEST
#endif

static int has_one_of(const char *text, const char *alternatives)
{
	char copy[128], *rest = copy, *one;

	snprintf(copy, sizeof(copy), "%s", alternatives);
	while ((one = strsep(&rest, "|")) != NULL) {
		if (strstr(text, one))
			return 1;
	}
	return 0;
}

START_TEST(reported_kernel)
{
	struct plumb_simt simt = {.spin_limit = 1 << 16};
	struct buffers *b = new_buffers();
	char kernel[64];

	snprintf(kernel, sizeof(kernel), "kernel %s_kernel, block (", reported_kernels[_i].name);
	for (uint64_t seed = 0; seed <= SEEDS; seed++) {
		const int status = run_seed(&simt, reported_kernels[_i].run, b, seed);

		ck_assert_msg(
			status == PLUMB_SIMT_FAULT, "%s, seed %llu: status %d", kernel, (unsigned long long)seed, status);
		ck_assert_msg(strncmp(simt.error, kernel, strlen(kernel)) == 0, "%s", simt.error);
		ck_assert_ptr_null(strchr(simt.error, '\n'));
		for (int m = 0; m < 4 && reported_kernels[_i].must[m]; m++)
			ck_assert_msg(has_one_of(simt.error, reported_kernels[_i].must[m]), "want '%s' in: %s",
				reported_kernels[_i].must[m], simt.error);
		if (seed == 0)
			printf("  %s\n", simt.error);
	}
	/* The stacks that were abandoned serve again. */
	ck_assert_msg(run_seed(&simt, plumb_simt_test_scan, b, 1) == PLUMB_SIMT_OK, "%s", simt.error);
	ck_assert_str_eq(simt.error, "");
	plumb_simt_free(&simt);
	free(b);
}
END_TEST

/* What hardware tolerates is let through when asked for. */
START_TEST(relaxed)
{
	struct plumb_simt simt = {.relaxed = 1};
	struct buffers *b = new_buffers();

	for (uint64_t seed = 0; seed <= SEEDS; seed++) {
		ck_assert_msg(run_seed(&simt, plumb_simt_test_barrier_exit, b, seed) == 0, "%s", simt.error);
		ck_assert_uint_eq(b->out[36], b->in[0]);
		ck_assert_uint_eq(b->out[64 + 37], 0xdeadbeefu);
		ck_assert_msg(run_seed(&simt, plumb_simt_test_barrier_branch, b, seed) == 0, "%s", simt.error);
		ck_assert_msg(run_seed(&simt, plumb_simt_test_mask_exited, b, seed) == 0, "%s", simt.error);
		ck_assert_int_ne(run_seed(&simt, plumb_simt_test_mask_wrong, b, seed), 0);
	}
	plumb_simt_free(&simt);
	free(b);
}
END_TEST

START_TEST(refused)
{
	struct plumb_simt simt = {.shared_limit = 1024};
	struct buffers *b = new_buffers();

	ck_assert_int_eq(run_seed(&simt, plumb_simt_test_dynamic_shared, b, 0), PLUMB_SIMT_REFUSED);
	ck_assert_str_eq(simt.error, "kernel dynamic_shared_kernel: launch refused: 2048 bytes of dynamic shared memory, "
				     "the limit is 1024");
	ck_assert_int_eq(run_seed(&simt, plumb_simt_test_block_too_large, b, 0), PLUMB_SIMT_REFUSED);
	ck_assert_int_eq(plumb_simt_test_scan(b->in, b->out, b->scratch, NULL), PLUMB_SIMT_REFUSED);
	simt.shared_limit = (size_t)227 * 1024; /* H200 */
	ck_assert_msg(run_seed(&simt, plumb_simt_test_shared_too_large, b, 0) == 0, "%s", simt.error);
	plumb_simt_free(&simt);
	free(b);
}
END_TEST

START_TEST(poison)
{
	struct plumb_simt simt = {.poison = PLUMB_SIMT_POISON_NAN};
	struct buffers *b = new_buffers();
	int nan_shows = 0, large_shows = 0;

	/* The kernel's max(0, v) hides a NaN, as real ones do; the finite poison is what shows it. */
	ck_assert_int_eq(run_seed(&simt, plumb_simt_test_uninitialised, b, 1), 0);
	for (int i = 0; i < 28; i++)
		nan_shows += b->out[i] != 0;
	simt.poison = PLUMB_SIMT_POISON_LARGE;
	ck_assert_int_eq(run_seed(&simt, plumb_simt_test_uninitialised, b, 1), 0);
	for (int i = 0; i < 28; i++)
		large_shows += b->out[i] != 0;
	ck_assert_int_eq(nan_shows, 0);
	ck_assert_int_eq(large_shows, 28);
	plumb_simt_free(&simt);
	free(b);
}
END_TEST

/* A stack overflow ends the process at the guard page; it must not run into a neighbour's stack. */
START_TEST(stack_overflow)
{
	const pid_t child = fork();
	int status = 0;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct plumb_simt simt = {0};
		struct buffers *b = malloc(sizeof(*b));

		(void)!freopen("/dev/null", "w", stderr); /* AddressSanitizer's page about it */
		if (!b)
			_exit(0);
		run_seed(&simt, plumb_simt_test_deep_stack, b, 0);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(!(WIFEXITED(status) && WEXITSTATUS(status) == 0), "the overflow went unnoticed");

	/* With a stack that is large enough it is an ordinary kernel. */
	struct plumb_simt simt = {.stack_bytes = (size_t)16 << 20};
	struct buffers *b = new_buffers();

	ck_assert_msg(run_seed(&simt, plumb_simt_test_deep_stack, b, 0) == 0, "%s", simt.error);
	plumb_simt_free(&simt);
	free(b);
}
END_TEST

static void *several_launches(void *argument)
{
	struct buffers *b = argument;
	struct plumb_simt simt = {0};
	uintptr_t bad = 0;

	for (uint64_t seed = 0; seed < 20; seed++)
		bad += run_seed(&simt, plumb_simt_test_scan, b, seed) != 0;
	plumb_simt_free(&simt);
	return (void *)bad; /* not a pointer: a count */
}

START_TEST(os_threads)
{
	struct buffers *b[3];
	pthread_t threads[3];

	for (int i = 0; i < 3; i++) {
		b[i] = new_buffers();
		ck_assert_int_eq(pthread_create(&threads[i], NULL, several_launches, b[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		void *bad = NULL;

		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
		ck_assert_mem_eq(b[0]->out, b[i]->out, sizeof(b[0]->out));
	}
	for (int i = 0; i < 3; i++)
		free(b[i]);
}
END_TEST

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Printed, not judged: the machine is shared. */
START_TEST(speed)
{
	struct plumb_simt simt = {0};
	struct buffers *b = new_buffers();
	double best[4] = {1e9, 1e9, 1e9, 1e9};
	uint64_t yields = 0, seeded_yields = 0;

	for (int repeat = 0; repeat < 5; repeat++) {
		double t = seconds();

		simt.yields = 0;
		ck_assert_int_eq(run_seed(&simt, plumb_simt_test_yields, b, 0), 0);
		yields = simt.yields;
		best[0] = seconds() - t < best[0] ? seconds() - t : best[0];
		t = seconds();
		simt.yields = 0;
		ck_assert_int_eq(run_seed(&simt, plumb_simt_test_yields, b, 5), 0);
		seeded_yields = simt.yields;
		best[1] = seconds() - t < best[1] ? seconds() - t : best[1];
		t = seconds();
		ck_assert_int_eq(run_seed(&simt, plumb_simt_test_no_yields, b, 0), 0);
		best[2] = seconds() - t < best[2] ? seconds() - t : best[2];
		reset(b);
		t = seconds();
		ck_assert_int_eq(plumb_simt_test_five_shuffles(b->in, b->out, b->scratch, &simt), 0);
		best[3] = seconds() - t < best[3] ? seconds() - t : best[3];
	}
	printf("  %.1f M yields/s in natural order, %.1f M with a seed; a thread that never waits %.1f ns; 32 x 128 "
	       "threads "
	       "with 5 shuffles %.3f ms\n",
		1e-6 * (double)yields / best[0], 1e-6 * (double)seeded_yields / best[1], 1e9 * best[2] / (4096 * 128),
		1e3 * best[3]);
	plumb_simt_free(&simt);
	free(b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simt");
	TCase *tests = suite_part(suite, "simt", 300);

	tcase_add_loop_test(tests, right_kernel, 0, (int)COUNT(right_kernels));
	tcase_add_loop_test(tests, differing_kernel, 0, (int)COUNT(differing_kernels));
	tcase_add_loop_test(tests, order_kernel, 0, (int)COUNT(order_kernels));
	tcase_add_loop_test(tests, reported_kernel, 0, (int)COUNT(reported_kernels));
#ifdef PLUMB_RACE
	tcase_add_loop_test(tests, race_right, 0, (int)COUNT(right_kernels));
	tcase_add_loop_test(tests, race_differing, 0, (int)COUNT(differing_kernels));
	tcase_add_loop_test(tests, race_order, 0, (int)COUNT(order_kernels));
#endif
	tcase_add_test(tests, relaxed);
	tcase_add_test(tests, refused);
	tcase_add_test(tests, poison);
	tcase_add_test(tests, stack_overflow);
	tcase_add_test(tests, os_threads);
	tcase_add_test(tests, speed);
	return suite_run(suite);
}
