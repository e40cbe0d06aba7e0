/* SPDX-License-Identifier: MIT */
/* The tables of a launch, and what the files of this folder call of each other. Nothing outside the folder includes
 * this. */
#ifndef PLUMB_KERNELS_SIMT_STATE_H
#define PLUMB_KERNELS_SIMT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/simt/fiber.h"
#include "kernels/simt/race.h"
#include "kernels/simt/runtime.h"

enum {
	WARP = 32,
	MAX_THREADS = 1024, /* of a block: CUDA C++ Programming Guide, technical specifications */
	MAX_WARPS = MAX_THREADS / WARP,
	MAX_ARRAYS = 64,       /* shared declarations of one kernel */
	SLAB = 32,             /* stacks mapped at a time */
	LEAST_RESIDENT = 4,    /* blocks in flight at a time when there is a seed; up to eight times as many by seed, */
	MOST_STACKS = 4096,    /* as long as their threads are not more than this */
	DROP_WITHIN = 6,       /* changes of warp */
	PATIENCE = 256,        /* atomics without progress before the late ones get a turn */
	SPINS_PER_TURN = 1024, /* natural order: atomics a thread may do before the others get a turn */
};
#define DEFAULT_SHARED_LIMIT ((size_t)99 * 1024)
#define DEFAULT_SPIN_LIMIT ((uint64_t)1 << 24)
#ifdef PLUMB_FIBER_ASAN
#define DEFAULT_STACK ((size_t)256 * 1024) /* red zones around every local */
#else
#define DEFAULT_STACK ((size_t)64 * 1024)
#endif

enum state {
	FRESH, /* has not begun, has no stack */
	READY,
	AT_WARP,
	AT_BARRIER,
	AT_GRID,
	ENDED,
};

/* A copy under way, asked for at `line`. */
struct copy {
	struct copy *next;
	unsigned char *to, value[16];
	size_t bytes;
	uint32_t group;
	int line;
};

struct lane {
	struct plumb_simt_thread head; /* first: plumb_simt_now points here */
	struct plumb_simt_pool *pool;
	struct warp *warp;
	struct plumb_fiber *fiber;
	enum state state;
	/* What it waits for, or waited for last. */
	enum plumb_simt_kind kind;
	uint32_t mask;
	int line;
	/* Its part in a collective. */
	uint32_t source;
	uint64_t value, result;
	/* Its copies under way, the oldest first; groups that it has ended. */
	struct copy *copies, **copies_end;
	uint32_t copy_groups;
};

/* Lanes that arrived at one collective and wait for the rest of its mask. */
struct group {
	uint32_t mask, arrived;
	enum plumb_simt_kind kind;
};

struct warp {
	struct block *block;
	struct lane *lanes;
	unsigned index, first; /* first: the lane natural order begins with */
	uint32_t exist, ready, at_barrier, ended;
	unsigned groups;
	struct group group[WARP];
};

struct shared_place {
	const struct plumb_simt_shared_array *array;
	size_t offset;
};

struct block {
	struct plumb_simt_block head;
	struct warp warps[MAX_WARPS];
	struct lane *lanes;
	uint64_t number; /* in the grid, x fastest */
	unsigned slot, n_warps, n_threads;
	bool active, delayed;
	unsigned drop_after;     /* changes of warp until the block is left behind; 0: never */
	uint32_t runnable, late; /* warps with a ready lane; warps that run only when nothing else can */
	unsigned ended;
	struct lane *last_ended;
	/* The barrier being gathered. */
	unsigned arrived, at_grid, trues;
	enum plumb_simt_kind barrier_kind;
	struct lane *barrier_first, *grid_first;
	int barrier_result;
	/* Shared memory. */
	unsigned char *shared;
	size_t shared_bytes;
	unsigned n_arrays;
	struct shared_place arrays[MAX_ARRAYS];
};

struct slab {
	struct slab *next;
	void *mapping;
	size_t mapped_bytes;
	struct plumb_fiber fibers[SLAB];
};

struct plumb_simt_pool {
	/* Kept between launches. */
	struct slab *slabs;
	struct plumb_fiber *free_fibers;
	unsigned n_fibers;
	size_t stack_bytes;
	struct block **blocks; /* one a slot */
	unsigned n_slots;
	size_t shared_limit;
	/* The launch that runs. */
	struct plumb_simt *simt;
	const struct plumb_simt_launch *launch;
	struct plumb_fiber host;
	struct plumb_simt_race *race; /* kept between launches */
	struct copy_slab *copy_slabs; /* kept between launches */
	struct copy *free_copies;
	unsigned slots, active;
	uint64_t n_blocks, next_block, stride,
		offset; /* block number i of the schedule is (i * stride + offset) mod n_blocks */
	uint64_t random, spins, spin_limit, turns;
	uint32_t poison, mercy;
	struct warp *warp;         /* the one that runs */
	bool seeded, starve, drop; /* whether warps are late, whether blocks are left behind */
	bool leave, failed;
	unsigned grid_arrived;
	uint64_t grid_ended;
};

static inline struct lane *plumb_simt_running(void)
{
	return (struct lane *)(void *)plumb_simt_now;
}

/* report.c */
struct words {
	char text[224];
};
const char *plumb_simt_kind_name(enum plumb_simt_kind kind);
/* A thread and what it does, e.g. "thread (3,0,0) waits at __syncthreads, line 40". */
struct words plumb_simt_lane_words(const struct lane *lane);
/* "k<2>" of "(k<2>)". */
struct words plumb_simt_kernel_words(const struct plumb_simt_launch *launch);
__attribute__((format(printf, 4, 5))) void plumb_simt_complain(
	struct plumb_simt_pool *pool, const struct lane *lane, int line, const char *format, ...);
/* Leave the launch from inside a thread, for good: its stack and all others are abandoned. */
_Noreturn void plumb_simt_abandon(struct plumb_simt_pool *pool);
/* Nobody can run: the end of the grid, or a deadlock, which is reported. */
void plumb_simt_no_one_left(struct plumb_simt_pool *pool);

#define FAIL(lane, line, ...)                                                                                              \
	do {                                                                                                               \
		plumb_simt_complain((lane)->pool, lane, line, __VA_ARGS__);                                                \
		plumb_simt_abandon((lane)->pool);                                                                          \
	} while (0)

/* schedule.c */
uint64_t plumb_simt_mix(uint64_t x);
uint32_t plumb_simt_chance(struct plumb_simt_pool *pool);
bool plumb_simt_one_in(struct plumb_simt_pool *pool, uint32_t n);
/* Starve about a quarter of the warps until nothing else can run: that is what shows a missing barrier best. */
void plumb_simt_choose_late(struct plumb_simt_pool *pool, struct block *block);
void plumb_simt_begin_block(struct plumb_simt_pool *pool, struct block *block);
/* Order, residency and kinds of delay of this launch, from its seed. */
void plumb_simt_choose_order(struct plumb_simt_pool *pool);
/* The next thread to run; NULL when none can. */
struct lane *plumb_simt_pick(struct plumb_simt_pool *pool);

static inline void make_ready(struct warp *warp, uint32_t lanes)
{
	warp->ready |= lanes;
	warp->block->runnable |= 1u << warp->index;
}

static inline void make_waiting(struct lane *lane)
{
	struct warp *warp = lane->warp;

	warp->ready &= ~(1u << lane->head.lane);
	if (!warp->ready)
		warp->block->runnable &= ~(1u << warp->index);
}

/* run.c */
/* The running thread waits, or gives way. */
void plumb_simt_turn(struct lane *self);

/* sync.c */
void plumb_simt_lane_ends(struct plumb_simt_pool *pool, struct lane *lane);
/* relaxed: those who left count as arrived. */
void plumb_simt_finish_barrier(struct block *block);

/* copy.c */
/* No copy is under way: after a launch that failed, and at the end. */
void plumb_simt_copy_free(struct plumb_simt_pool *pool);

#endif
