/* SPDX-License-Identifier: MIT */
/* The simt device, for the host (C11 and C++): how a kernel built for the CPU is run.
 *
 *	struct plumb_simt simt = {.seed = 17};
 *	int status = plumb_simt_gdn_conv(x, y, n, &simt);
 *	if (status)
 *		puts(simt.error);
 *	plumb_simt_free(&simt);
 *
 * Threads of a block are fibers; a warp's collectives, the barriers and the atomics are where they take turns. A
 * correct kernel gives the same bits for every seed, and the bits nvcc's build of it gives; a kernel with a missing
 * barrier or an arrival order in its sums gives other bits for some seed. What no schedule can make right is reported,
 * with kernel, block and thread: a divergent barrier, a wrong mask, a shared index out of range, a wait that nothing
 *can end.
 *
 * One struct serves one OS thread at a time; any number of OS threads may each use one of their own.
 *
 * LIMIT: memory is sequentially consistent here, and threads take turns only at collectives, barriers, atomics, fences
 * and sleeps. So a missing __threadfence alone, or a counter raised by a plain load and store, gives the right bits
 *(test kernels arrive_no_fence, arrive_plain_counter). The race check (race.h) reports both.
 *
 * LIMIT: a thread that waits on a bare volatile load never lets the others run, so such a wait hangs here.
 *
 * LIMIT: two calls of one function with a barrier in it, in two branches, look like one place, so divergence between
 *them goes unseen.
 *
 * LIMIT: a schedule must meet a fault. Of the faults of test_simt, a block that counts itself before all its data is
 *there shows for a quarter of the seeds; the others for nearly all. The race check does not depend on meeting it. */
#ifndef PLUMB_KERNELS_SIMT_H
#define PLUMB_KERNELS_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_simt_status {
	PLUMB_SIMT_OK = 0,
	PLUMB_SIMT_REFUSED = 1, /* the launch itself is not possible: shape, shared memory, host memory */
	PLUMB_SIMT_FAULT = 2,   /* the kernel did what is undefined or never ends */
};

enum plumb_simt_poison {
	PLUMB_SIMT_POISON_BY_SEED = 0, /* even seeds NaN, odd seeds large finite */
	PLUMB_SIMT_POISON_NAN,
	PLUMB_SIMT_POISON_LARGE, /* about 4e37 as binary32 and as bf16 */
};

struct plumb_simt {
	/* What is asked. All zero is a good default. */
	uint64_t seed; /* 0: blocks, warps, lanes in natural order, one block at a time. Else: permuted */
	int resident;  /* blocks in flight at a time; 0: one for seed 0, else 4 to 32 by seed and block size */
	int relaxed;   /* 0: also report what hardware happens to tolerate: an exited thread at a barrier or mask */
	enum plumb_simt_poison poison; /* what shared memory holds before it is written */
	size_t stack_bytes;            /* stack of a thread; 0: 64 KiB (256 KiB under AddressSanitizer) */
	size_t shared_limit;           /* shared memory of a block; 0: 99 KiB, what GB10 has (H200: 227 KiB) */
	uint64_t spin_limit;           /* turns without any progress that are taken for a deadlock; 0: 2^24 */

	/* What the last launch did. */
	char error[768];   /* empty, or one line */
	uint64_t yields;   /* times a thread waited or gave way, over all launches */
	uint64_t switches; /* changes of stack, over all launches */
	int64_t launches;  /* so far */

	struct plumb_simt_pool *pool; /* stacks and tables, kept between launches; owned */
};

/* All launches have ended, as after a synchronisation: who wrote what is forgotten by the race check. To be called where
 * memory that kernels wrote gets another use. */
void plumb_simt_settle(struct plumb_simt *simt);

/* Gives back the stacks. The struct may be used again. */
void plumb_simt_free(struct plumb_simt *simt);

#ifdef __cplusplus
}
#endif
#endif
