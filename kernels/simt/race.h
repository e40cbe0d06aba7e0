/* SPDX-License-Identifier: MIT */
/* The race check. A kernel file is built a second time with the compiler's thread-sanitizer instrumentation, and race.c
 * takes the place of the sanitizer's run time: it sees every load and store of a kernel and knows what __syncthreads,
 * __syncwarp, warp collectives, grid barriers, and an atomic between two __threadfence order. Two accesses to the same
 * bytes, one of them a store, by two threads that nothing orders are reported, in whatever order this schedule happened
 * to run them. So it finds what no schedule can show, such as a missing __threadfence or a counter raised by a plain
 * store, and finds the rest with one seed where schedules need many. It costs a factor of 8 to 34 in time (kernels of
 * test_simt, x86-64).
 *
 * plumb_race_NAME(..., simt) is that build of plumb_simt_NAME. Not there when Plumb itself is built with sanitizers.
 *
 * In a dependent launch it also reports who stores to global memory before plumb_grid_dependency_wait, and who loads there
 * what a launch wrote that may not have ended: the one before, and those before that if it let this one begin before its
 * own wait. That is since the host waited last (plumb_simt_settle, and a launch that is not dependent). A
 * plumb_load_stream of such data is reported behind the wait too: a compiler may move it before.
 *
 * The rules, those of the PTX memory model as far as kernels here need them: a release is a __threadfence and then an
 * atomic by the same thread; an acquire is an atomic that comes after the release's on the same address and then a
 * __threadfence by the same thread, or by another one after a barrier. A barrier carries on what its threads know.
 *
 * LIMIT: atomics are not checked against plain accesses of the same address.
 *
 * LIMIT: __threadfence_block orders nothing here, so a protocol inside one block that needs it is reported; use a
 * barrier.
 *
 * LIMIT: of the loads of a word only the last two threads are remembered, and of all words 2^20: more of them
 * can hide a race, never invent one. */
#ifndef PLUMB_KERNELS_SIMT_RACE_H
#define PLUMB_KERNELS_SIMT_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block;
struct lane;
struct plumb_simt_pool;
struct warp;

/* Each does nothing for a launch that is not of the race build. */
bool plumb_simt_race_begin(struct plumb_simt_pool *pool); /* false: no memory */
void plumb_simt_race_end(struct plumb_simt_pool *pool);
void plumb_simt_race_block(struct block *block);
void plumb_simt_race_collective(struct warp *warp, uint32_t lanes);
void plumb_simt_race_barrier(struct block *block);
void plumb_simt_race_grid(struct plumb_simt_pool *pool);
void plumb_simt_race_fence(struct lane *lane);
void plumb_simt_race_dependents(const struct lane *lane);
void plumb_simt_race_store(const void *address, size_t bytes); /* by the running thread, where no compiler shows it */
void plumb_simt_race_free(struct plumb_simt_pool *pool);

#endif
