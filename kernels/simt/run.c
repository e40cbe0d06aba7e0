/* SPDX-License-Identifier: MIT */
/* A launch of the simt device. It is one loop without a loop: whoever has to wait picks the next thread and switches
 * to it directly; the launcher gets control back when nothing is left or something went wrong.
 *
 * A stack is bound to a thread only while the thread is in the middle of the kernel. A thread that ends leaves its
 * stack to the next one that has not begun, so threads that never wait cost a function call each and no switch. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/simt/state.h"

__thread struct plumb_simt_thread *plumb_simt_now __attribute__((tls_model("initial-exec")));

/* ---- stacks ---- */

static void carry(void *argument);

static bool more_fibers(struct plumb_simt_pool *pool)
{
	struct slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return false;
	slab->mapping = plumb_fiber_map(slab->fibers, SLAB, pool->stack_bytes, &slab->mapped_bytes);
	if (!slab->mapping) {
		free(slab);
		return false;
	}
	slab->next = pool->slabs;
	pool->slabs = slab;
	for (unsigned i = SLAB; i-- > 0;) {
		plumb_fiber_reset(&slab->fibers[i], carry, pool, pool->n_fibers + i);
		slab->fibers[i].next = pool->free_fibers;
		pool->free_fibers = &slab->fibers[i];
	}
	pool->n_fibers += SLAB;
	return true;
}

static void reset_fibers(struct plumb_simt_pool *pool)
{
	unsigned index = 0;

	pool->free_fibers = NULL;
	for (struct slab *slab = pool->slabs; slab; slab = slab->next) {
		for (unsigned i = SLAB; i-- > 0; index++) {
			plumb_fiber_reset(&slab->fibers[i], carry, pool, index);
			slab->fibers[i].next = pool->free_fibers;
			pool->free_fibers = &slab->fibers[i];
		}
	}
}

static void drop_fibers(struct plumb_simt_pool *pool)
{
	while (pool->slabs) {
		struct slab *slab = pool->slabs;

		pool->slabs = slab->next;
		plumb_fiber_unmap(slab->mapping, slab->mapped_bytes);
		free(slab);
	}
	pool->free_fibers = NULL;
	pool->n_fibers = 0;
}

/* Where the next thread's control is: its stack, a free one, or the launcher's. Makes it the current thread. */
static struct plumb_fiber *enter(struct plumb_simt_pool *pool, struct lane *next)
{
	if (!next) {
		plumb_simt_no_one_left(pool);
		return &pool->host;
	}
	if (!next->fiber) {
		if (!pool->free_fibers && !more_fibers(pool)) {
			plumb_simt_complain(pool, next, 0,
				"no memory for the stack of another thread (%u stacks of %zu bytes are in use; each "
				"takes two of the "
				"kernel's vm.max_map_count mappings)",
				pool->n_fibers, pool->stack_bytes);
			pool->failed = true;
			return &pool->host;
		}
		next->fiber = pool->free_fibers;
		pool->free_fibers = next->fiber->next;
	}
	plumb_simt_now = &next->head;
	return next->fiber;
}

/* The running thread waits, or gives way. */
void plumb_simt_turn(struct lane *self)
{
	struct plumb_simt_pool *pool = self->pool;
	struct plumb_fiber *mine = self->fiber;
	struct lane *next = plumb_simt_pick(pool);

	pool->turns++;
	if (next == self)
		return;
	struct plumb_fiber *there = enter(pool, next);

	pool->simt->switches++;
	plumb_fiber_switch(mine, there);
}

/* What a stack does: run threads from their beginning, one after another, until the next one to run is elsewhere. */
static void carry(void *argument)
{
	struct plumb_simt_pool *pool = argument;

	plumb_fiber_entered();
	for (;;) {
		struct lane *lane = plumb_simt_running();
		struct plumb_fiber *mine = lane->fiber;
		struct block *block = lane->warp->block;

		lane->state = READY;
		pool->launch->thread(pool->launch->argument);
		plumb_simt_lane_ends(pool, lane);
		lane->fiber = NULL;
		if (block->ended == block->n_threads) {
			block->active = false;
			pool->active--;
			if (pool->next_block < pool->n_blocks)
				plumb_simt_begin_block(pool, block);
		} else if (block->arrived && block->arrived + block->ended == block->n_threads) {
			plumb_simt_finish_barrier(block); /* relaxed: those who left count as arrived */
		}
		/* The stack is free before the next thread is chosen, and on top of the list: a fresh thread gets it
		 * back. */
		mine->next = pool->free_fibers;
		pool->free_fibers = mine;
		struct plumb_fiber *there = enter(pool, plumb_simt_pick(pool));

		if (there != mine) {
			pool->simt->switches++;
			plumb_fiber_switch(mine, there);
		}
	}
}

/* ---- shared memory ---- */

void *plumb_simt_shared(const struct plumb_simt_shared_array *array)
{
	struct lane *self = plumb_simt_running();
	struct plumb_simt_pool *pool = self->pool;
	struct block *block = self->warp->block;

	for (unsigned i = 0; i < block->n_arrays; i++) {
		if (block->arrays[i].array == array)
			return block->shared + block->arrays[i].offset;
	}
	const size_t offset = block->shared_bytes;
	const size_t bytes = (array->bytes + 15) / 16 * 16;

	if (block->n_arrays == MAX_ARRAYS)
		FAIL(self, array->line, "more than %d shared arrays", MAX_ARRAYS);
	if (offset + bytes > pool->shared_limit)
		FAIL(self, array->line, "shared array %s of %zu bytes: the block already has %zu and the limit is %zu",
			array->name, array->bytes, offset, pool->shared_limit);
	block->arrays[block->n_arrays].array = array;
	block->arrays[block->n_arrays++].offset = offset;
	block->shared_bytes = offset + bytes;
	for (size_t i = 0; i < bytes; i += 4)
		memcpy(block->shared + offset + i, &pool->poison, 4);
	return block->shared + offset;
}

void *plumb_simt_shared_of(const void *shared, unsigned number)
{
	struct lane *self = plumb_simt_running();
	struct plumb_simt_pool *pool = self->pool;
	const struct block *mine = self->warp->block;
	const struct plumb_simt_shared_array *array = NULL;
	size_t at = (size_t)((const unsigned char *)shared - mine->shared);

	if (!pool->launch->cluster)
		FAIL(self, 0, "plumb_cluster_shared in a launch that is not of a cluster");
	for (unsigned i = 0; i < mine->n_arrays; i++)
		if (at >= mine->arrays[i].offset && at < mine->arrays[i].offset + mine->arrays[i].array->bytes) {
			array = mine->arrays[i].array;
			at -= mine->arrays[i].offset;
			break;
		}
	for (unsigned s = 0; array && s < pool->slots; s++) {
		const struct block *other = pool->blocks[s];

		if (other->number != number)
			continue;
		if (other->ended)
			FAIL(self, 0, "plumb_cluster_shared: block %u of the cluster has threads that have exited", number);
		for (unsigned i = 0; i < other->n_arrays; i++)
			if (other->arrays[i].array == array)
				return other->shared + other->arrays[i].offset + at;
	}
	FAIL(self, 0, "plumb_cluster_shared: block %u of the cluster has no such shared array yet", number);
}

void plumb_simt_fail_index(const char *name, long long index, size_t count, size_t element_bytes)
{
	FAIL(plumb_simt_running(), 0, "shared array %s has %zu elements of %zu bytes, index %lld is out of range", name,
		count, element_bytes, index);
}

void plumb_simt_fail_aligned(const void *address, size_t alignment)
{
	FAIL(plumb_simt_running(), 0, "a load or view of %zu bytes at address %p, which is not a multiple of it", alignment,
		address);
}

/* ---- the launch ---- */

static void free_blocks(struct plumb_simt_pool *pool)
{
	for (unsigned s = 0; s < pool->n_slots; s++) {
		if (!pool->blocks[s])
			continue;
		free(pool->blocks[s]->lanes);
		free(pool->blocks[s]->shared);
		free(pool->blocks[s]);
	}
	free(pool->blocks);
	pool->blocks = NULL;
	pool->n_slots = 0;
}

void plumb_simt_free(struct plumb_simt *simt)
{
	if (!simt->pool)
		return;
	plumb_simt_race_free(simt->pool);
	plumb_simt_copy_free(simt->pool);
	free_blocks(simt->pool);
	drop_fibers(simt->pool);
	free(simt->pool);
	simt->pool = NULL;
}

__attribute__((format(printf, 3, 4))) static int refuse(
	struct plumb_simt *simt, const struct plumb_simt_launch *launch, const char *format, ...)
{
	const struct words kernel = plumb_simt_kernel_words(launch);
	size_t used;
	va_list arguments;

	snprintf(simt->error, sizeof(simt->error), "kernel %s: launch refused: ", kernel.text);
	used = strlen(simt->error);
	va_start(arguments, format);
	vsnprintf(simt->error + used, sizeof(simt->error) - used, format, arguments);
	va_end(arguments);
	return PLUMB_SIMT_REFUSED;
}

/* Give slot s what the launch needs. */
static bool prepare_slot(struct plumb_simt_pool *pool, unsigned s, unsigned n_threads)
{
	struct block *block = pool->blocks[s];
	const struct plumb_simt_launch *launch = pool->launch;

	if (!block) {
		block = pool->blocks[s] = calloc(1, sizeof(*block));
		if (!block)
			return false;
		block->slot = s;
	}
	if (!block->shared)
		block->shared = aligned_alloc(128, (pool->shared_limit + 127) / 128 * 128);
	if (!block->lanes)
		block->lanes = calloc(MAX_THREADS, sizeof(*block->lanes));
	if (!block->shared || !block->lanes)
		return false;
	block->active = false;
	block->runnable = 0;
	block->n_threads = n_threads;
	block->n_warps = (n_threads + WARP - 1) / WARP;
	block->head.block_dim = launch->block;
	block->head.grid_dim = launch->grid;
	block->head.dynamic_shared = block->shared;
	block->head.dynamic_bytes = launch->shared_bytes;
	for (unsigned i = 0; i < n_threads; i++) {
		struct lane *lane = &block->lanes[i];

		memset(lane, 0, sizeof(*lane));
		lane->head.index.x = i % launch->block.x;
		lane->head.index.y = i / launch->block.x % launch->block.y;
		lane->head.index.z = i / launch->block.x / launch->block.y;
		lane->head.lane = i % WARP;
		lane->head.block = &block->head;
		lane->pool = pool;
		lane->warp = &block->warps[i / WARP];
	}
	for (unsigned w = 0; w < block->n_warps; w++) {
		const unsigned lanes = n_threads - w * WARP < WARP ? n_threads - w * WARP : WARP;

		block->warps[w].block = block;
		block->warps[w].lanes = block->lanes + (size_t)w * WARP;
		block->warps[w].index = w;
		block->warps[w].exist = lanes == WARP ? 0xffffffffu : (1u << lanes) - 1;
	}
	return true;
}

static bool prepare(
	struct plumb_simt_pool *pool, unsigned slots, unsigned n_threads, size_t stack_bytes, size_t shared_limit)
{
	if (pool->stack_bytes != stack_bytes)
		drop_fibers(pool);
	pool->stack_bytes = stack_bytes;
	if (pool->shared_limit != shared_limit)
		free_blocks(pool);
	pool->shared_limit = shared_limit;
	if (slots > pool->n_slots) {
		struct block **blocks = realloc(pool->blocks, slots * sizeof(*blocks));

		if (!blocks)
			return false;
		memset(blocks + pool->n_slots, 0, (slots - pool->n_slots) * sizeof(*blocks));
		pool->blocks = blocks;
		pool->n_slots = slots;
	}
	pool->slots = slots;
	for (unsigned s = 0; s < slots; s++) {
		if (!prepare_slot(pool, s, n_threads))
			return false;
	}
	return true;
}

/* Few blocks in flight make few interleavings (a too early arrival of test_simt: 5 % of seeds with 4 blocks of 24, 32 %
 * with 16), many make a launch slower, since their stacks leave the cache. */
static uint64_t resident_by_seed(uint64_t seed, uint64_t threads)
{
	uint64_t slots = (uint64_t)LEAST_RESIDENT << plumb_simt_mix(seed) % 4;

	while (slots > LEAST_RESIDENT && slots * threads > MOST_STACKS)
		slots /= 2;
	return slots;
}

int plumb_simt_run(struct plumb_simt *simt, const struct plumb_simt_launch *launch)
{
	struct plumb_simt_thread *const outer = plumb_simt_now;
	const struct plumb_simt_dim g = launch->grid, b = launch->block;

	if (!simt)
		return PLUMB_SIMT_REFUSED;
	simt->error[0] = '\0';
	if (outer)
		return refuse(simt, launch, "a kernel cannot launch a kernel");
	/* Limits: CUDA C++ Programming Guide, technical specifications per compute capability. */
	const uint64_t threads = (uint64_t)b.x * b.y * b.z;

	if (!b.x || !b.y || !b.z || b.x > MAX_THREADS || b.y > MAX_THREADS || b.z > 64 || threads > MAX_THREADS)
		return refuse(simt, launch, "block (%u,%u,%u), want 1 to 1024 threads, z at most 64", b.x, b.y, b.z);
	if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
		return refuse(simt, launch, "grid (%u,%u,%u), want 1 or more, x < 2^31, y and z < 2^16", g.x, g.y, g.z);
	const uint64_t n_blocks = (uint64_t)g.x * g.y * g.z;
	const size_t shared_limit = simt->shared_limit ? simt->shared_limit : DEFAULT_SHARED_LIMIT;
	uint64_t slots = simt->resident > 0 ? (uint64_t)simt->resident
	                 : simt->seed       ? resident_by_seed(simt->seed, threads)
	                                    : 1;

	if (launch->shared_bytes > shared_limit)
		return refuse(simt, launch, "%zu bytes of dynamic shared memory, the limit is %zu", launch->shared_bytes,
			shared_limit);
	if (slots > n_blocks || launch->cooperative)
		slots = n_blocks;
	if (slots > 4096)
		return refuse(simt, launch, "%" PRIu64 " blocks resident at a time, at most 4096 are possible", slots);
	if (!simt->pool)
		simt->pool = calloc(1, sizeof(*simt->pool));
	struct plumb_simt_pool *pool = simt->pool;

	if (!pool)
		return refuse(simt, launch, "no memory");
	pool->simt = simt;
	pool->launch = launch;
	simt->launches++;
	if (!prepare(pool, (unsigned)slots, (unsigned)threads, simt->stack_bytes ? simt->stack_bytes : DEFAULT_STACK,
		    shared_limit))
		return refuse(simt, launch, "no memory for %" PRIu64 " resident blocks", slots);
	pool->n_blocks = n_blocks;
	pool->next_block = 0;
	pool->active = 0;
	pool->spins = pool->turns = 0;
	pool->spin_limit = simt->spin_limit ? simt->spin_limit : DEFAULT_SPIN_LIMIT;
	pool->leave = pool->failed = false;
	pool->grid_arrived = 0;
	pool->grid_ended = 0;
	plumb_simt_choose_order(pool);
	if (!plumb_simt_race_begin(pool)) {
		plumb_simt_race_end(pool);
		return refuse(simt, launch, "race check: no memory, or more than 65536 blocks");
	}
	for (unsigned s = 0; s < pool->slots; s++)
		plumb_simt_begin_block(pool, pool->blocks[s]);
	pool->warp = &pool->blocks[0]->warps[0];
	pool->leave = pool->seeded;

	plumb_fiber_adopt(&pool->host);
	struct plumb_fiber *there = enter(pool, plumb_simt_pick(pool));

	if (there != &pool->host)
		plumb_fiber_switch(&pool->host, there);
	plumb_simt_now = NULL;
	plumb_simt_race_end(pool);
	simt->yields += pool->turns;
	if (pool->failed) {
		reset_fibers(pool);
		plumb_simt_copy_free(pool);
		return PLUMB_SIMT_FAULT;
	}
	return PLUMB_SIMT_OK;
}
