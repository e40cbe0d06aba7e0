/* SPDX-License-Identifier: MIT */
/* Between kernel code (device_simt.h, C++) and the scheduler (run.c, C). Not for hosts and not for kernel authors. */
#ifndef PLUMB_KERNELS_SIMT_RUNTIME_H
#define PLUMB_KERNELS_SIMT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/simt/simt.h"

#ifdef __cplusplus
extern "C" {
#define PLUMB_SIMT_NORETURN [[noreturn]]
#else
#define PLUMB_SIMT_NORETURN _Noreturn
#endif

struct plumb_simt_dim {
	unsigned x, y, z;
};

struct plumb_simt_block {
	struct plumb_simt_dim index;
	struct plumb_simt_dim block_dim;
	struct plumb_simt_dim grid_dim;
	unsigned char *dynamic_shared;
	size_t dynamic_bytes;
};

struct plumb_simt_thread {
	struct plumb_simt_dim index;
	unsigned lane; /* in its warp */
	int waited;    /* at plumb_grid_dependency_wait */
	struct plumb_simt_block *block;
};

/* The thread that runs now. One OS thread runs one launch at a time; the host's other threads have their own.
 * initial-exec: a plain load, where position-independent code would call a function. */
extern __thread struct plumb_simt_thread *plumb_simt_now __attribute__((tls_model("initial-exec")));

enum plumb_simt_kind {
	PLUMB_SIMT_SYNCWARP,
	PLUMB_SIMT_BALLOT,
	PLUMB_SIMT_ANY,
	PLUMB_SIMT_ALL,
	PLUMB_SIMT_MAX, /* of uint32_t */
	PLUMB_SIMT_MIN,
	PLUMB_SIMT_SUM, /* the last of those that give every lane the same */
	PLUMB_SIMT_SHFL,
	PLUMB_SIMT_SHFL_UP,
	PLUMB_SIMT_SHFL_DOWN,
	PLUMB_SIMT_SHFL_XOR,
	PLUMB_SIMT_SHFL64,
	PLUMB_SIMT_SHFL64_UP,
	PLUMB_SIMT_SHFL64_DOWN,
	PLUMB_SIMT_SHFL64_XOR,
	PLUMB_SIMT_BARRIER,
	PLUMB_SIMT_BARRIER_OR,
	PLUMB_SIMT_BARRIER_AND,
	PLUMB_SIMT_BARRIER_COUNT,
};

/* One operation of all lanes named in mask. value: the predicate, or what the lane offers to others. by: source lane,
 * delta or lane mask. The result: the lane set of a ballot, 0 or 1, a maximum, minimum or sum, or the value of the
 * source lane. */
uint64_t plumb_simt_collective(enum plumb_simt_kind kind, uint32_t mask, uint64_t value, int by, int width, int line);
int plumb_simt_barrier(enum plumb_simt_kind kind, int predicate, int line);
void plumb_simt_grid_barrier(unsigned *counter, int line);

enum plumb_simt_point { PLUMB_SIMT_AT_ATOMIC, PLUMB_SIMT_AT_FENCE, PLUMB_SIMT_AT_BLOCK_FENCE, PLUMB_SIMT_AT_SLEEP };

/* The overlap of launches: nothing overlaps here, but a thread that does not wait is seen, and in the race build one that
 * is too early. */
void plumb_simt_dependency_wait(void);
void plumb_simt_dependency_end(void);
void plumb_simt_dependents(void);

/* Copies to shared memory that come later (copy.c): `bytes`, at most 16, of `value` are at `to` once the thread has waited. */
void plumb_simt_copy(void *to, const void *value, size_t bytes, int line);
void plumb_simt_copy_commit(void);
void plumb_simt_copy_wait(unsigned groups);
void plumb_simt_copy_end(void);

/* A place where the thread may give way to others. */
void plumb_simt_give_way(enum plumb_simt_point point, int line);

/* An atomic of the race build. */
void plumb_simt_race_atomic(const void *address);
void plumb_simt_race_stream(const void *address, size_t bytes); /* plumb_load_stream: it may be moved before a wait */

/* A shared array's declaration; its address tells arrays apart. */
struct plumb_simt_shared_array {
	const char *name;
	size_t bytes;
	int line;
};

void *plumb_simt_shared(const struct plumb_simt_shared_array *array);

/* What lies at `shared`, a place in an array of the calling block, in another block of the cluster. */
void *plumb_simt_shared_of(const void *shared, unsigned block);

PLUMB_SIMT_NORETURN void plumb_simt_fail_index(const char *name, long long index, size_t count, size_t element_bytes);
PLUMB_SIMT_NORETURN void plumb_simt_fail_aligned(const void *address, size_t alignment);

struct plumb_simt_launch {
	const char *kernel;
	struct plumb_simt_dim grid, block;
	size_t shared_bytes;
	int cooperative;
	int dependent;
	int cluster;                    /* the grid is one cluster: it is cooperative, and of up to 8 blocks */
	int race;                       /* the kernel is of the race build (race.h) */
	void (*thread)(void *argument); /* runs the kernel once, as plumb_simt_now */
	void *argument;
};

int plumb_simt_run(struct plumb_simt *simt, const struct plumb_simt_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
