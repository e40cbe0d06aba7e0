/* SPDX-License-Identifier: MIT */
/* The kernels of test_simt: one list, so that the declarations, the simt runs and the cuda runs cannot drift apart.
 * Every launcher has the same arguments: `in` SIMT_WORDS random words (whose float views are finite), `out` SIMT_WORDS
 * words and `scratch` SIMT_WORDS zero words. */
#ifndef PLUMB_TESTS_SIMT_KERNELS_H
#define PLUMB_TESTS_SIMT_KERNELS_H

#include <stdint.h>

#include "kernels/launcher.h"

#define SIMT_WORDS 16384

/* Right kernels: the same bits for every seed and on every device. */
#define SIMT_RIGHT(X)                                                                                                      \
	X(warp_sum)                                                                                                        \
	X(block_sum)                                                                                                       \
	X(scan)                                                                                                            \
	X(votes)                                                                                                           \
	X(last_arriver)                                                                                                    \
	X(dynamic_shared)                                                                                                  \
	X(grid_3d)                                                                                                         \
	X(widths)                                                                                                          \
	X(odd_masks)                                                                                                       \
	X(shuffle_64)                                                                                                      \
	X(vector_loads)                                                                                                    \
	X(partial_warp)                                                                                                    \
	X(atomics)                                                                                                         \
	X(bits)                                                                                                            \
	X(grid_barrier)                                                                                                    \
	X(tile)                                                                                                            \
	X(argmax)                                                                                                          \
	X(subgroups)                                                                                                       \
	X(exchange)                                                                                                        \
	X(reuse)                                                                                                           \
	X(copy_shift)                                                                                                      \
	X(ordered_sum)                                                                                                     \
	X(initialised)                                                                                                     \
	X(chain)                                                                                                           \
	X(arithmetic)                                                                                                      \
	X(dependent)                                                                                                       \
	X(dependent_chain)                                                                                                 \
	X(dependent_chain_some)                                                                                            \
	X(cluster)                                                                                                         \
	X(copies)

/* Wrong kernels whose bits differ for some seed, each next to the right kernel whose bits it should give, and the
 * number of the 50 seeds of the test that must show it. uninitialised hides a NaN, so only the finite poison of odd
 * seeds shows it. */
#define SIMT_DIFFERS(X)                                                                                                    \
	X(block_sum_no_barrier, block_sum, 45, 1)                                                                          \
	X(scan_no_barrier, scan, 45, 1)                                                                                    \
	X(reuse_no_barrier, reuse, 45, 1)                                                                                  \
	X(exchange_no_syncwarp, exchange, 45, 1)                                                                           \
	X(exchange_no_second_syncwarp, exchange, 45, 1)                                                                    \
	X(arrive_early, last_arriver, 5, 1)                                                                                \
	X(arrive_no_barrier, last_arriver, 8, 1)                                                                           \
	X(arrive_unchecked, last_arriver, 30, 1)                                                                           \
	X(copy_shift_in_place, copy_shift, 45, 1)                                                                          \
	X(copies_no_wait, copies, 45, 1)                                                                                   \
	X(copies_weak_wait, copies, 45, 1)                                                                                 \
	X(copies_no_barrier, copies, 45, 1)                                                                                \
	X(copies_refill, copies, 45, 1)                                                                                    \
	X(arrival_order_sum, ordered_sum, 30, 0)                                                                           \
	X(uninitialised, initialised, 25, 0)

/* Wrong kernels that no schedule shows, because their fault is one of memory order or of a torn read-modify-write: for
 * the race check alone. */
#define SIMT_ORDER(X)                                                                                                      \
	X(arrive_plain_counter, last_arriver, 0, 1)                                                                        \
	X(arrive_no_fence, last_arriver, 0, 1)                                                                             \
	X(dependent_load_early, dependent, 0, 1)                                                                           \
	X(dependent_stream, dependent, 0, 1)                                                                               \
	X(dependent_store_early, dependent, 0, 1)                                                                          \
	X(dependent_chain_early, dependent_chain, 0, 1)

/* Wrong kernels that are reported. */
#define SIMT_REPORTED(X)                                                                                                   \
	X(barrier_exit)                                                                                                    \
	X(barrier_branch)                                                                                                  \
	X(barrier_kind)                                                                                                    \
	X(mask_wrong)                                                                                                      \
	X(mask_exited)                                                                                                     \
	X(mask_without_self)                                                                                               \
	X(mask_at_barrier)                                                                                                 \
	X(mask_cycle)                                                                                                      \
	X(shuffle_unnamed)                                                                                                 \
	X(shuffle_missing_lane)                                                                                            \
	X(shuffle_width)                                                                                                   \
	X(shuffle_mixed)                                                                                                   \
	X(shared_range)                                                                                                    \
	X(shared_negative)                                                                                                 \
	X(shared_view_range)                                                                                               \
	X(shared_too_large)                                                                                                \
	X(misaligned)                                                                                                      \
	X(spin_forever)                                                                                                    \
	X(grid_barrier_exit)                                                                                               \
	X(grid_barrier_plain)                                                                                              \
	X(grid_barrier_mixed)                                                                                              \
	X(dependent_exit)                                                                                                  \
	X(cluster_exit)                                                                                                    \
	X(cluster_plain)                                                                                                   \
	X(copies_exit)                                                                                                     \
	X(copies_range)                                                                                                    \
	X(copies_misaligned)

/* Others: refused, measured, or run in a child process. */
#define SIMT_OTHER(X)                                                                                                      \
	X(block_too_large)                                                                                                 \
	X(yields)                                                                                                          \
	X(no_yields)                                                                                                       \
	X(five_shuffles)                                                                                                   \
	X(deep_stack)

#define SIMT_ARGUMENTS const uint32_t *in, uint32_t *out, uint32_t *scratch, void *stream

#define SIMT_DECLARE(name) PLUMB_DECLARE_LAUNCHER(test_##name, SIMT_ARGUMENTS);
#define SIMT_DECLARE_2(name, right, seeds, race) PLUMB_DECLARE_LAUNCHER(test_##name, SIMT_ARGUMENTS);
SIMT_RIGHT(SIMT_DECLARE)
SIMT_DIFFERS(SIMT_DECLARE_2)
SIMT_ORDER(SIMT_DECLARE_2)
SIMT_REPORTED(SIMT_DECLARE)
SIMT_OTHER(SIMT_DECLARE)

#endif
