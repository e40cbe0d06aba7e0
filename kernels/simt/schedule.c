/* SPDX-License-Identifier: MIT */
/* Who runs next. Natural order for seed 0; otherwise everything a scheduler may choose is drawn from the seed. */
#include <string.h>

#include "kernels/simt/state.h"

uint64_t plumb_simt_mix(uint64_t x)
{
	/* splitmix64's finaliser */
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint32_t plumb_simt_chance(struct plumb_simt_pool *pool)
{
	uint64_t x = pool->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	pool->random = x;
	return (uint32_t)(x >> 32);
}

bool plumb_simt_one_in(struct plumb_simt_pool *pool, uint32_t n)
{
	return plumb_simt_chance(pool) % n == 0;
}

static unsigned rotate_pick(uint32_t set, unsigned start)
{
	const uint32_t turned = set >> start | (start ? set << (32 - start) : 0);

	return ((unsigned)__builtin_ctz(turned) + start) & 31u;
}

void plumb_simt_choose_late(struct plumb_simt_pool *pool, struct block *block)
{
	if (pool->starve)
		block->late = plumb_simt_chance(pool) & plumb_simt_chance(pool);
}

void plumb_simt_begin_block(struct plumb_simt_pool *pool, struct block *block)
{
	const struct plumb_simt_dim grid = pool->launch->grid;
	const uint64_t number = (pool->next_block++ * pool->stride + pool->offset) % pool->n_blocks;

	block->number = number;
	block->head.index.x = (unsigned)(number % grid.x);
	block->head.index.y = (unsigned)(number / grid.x % grid.y);
	block->head.index.z = (unsigned)(number / grid.x / grid.y);
	block->ended = block->arrived = block->at_grid = 0;
	block->last_ended = block->barrier_first = block->grid_first = NULL;
	block->n_arrays = 0;
	block->runnable = 0;
	block->late = 0;
	/* Half of the blocks are left behind once, most of them in the middle of what they do, until nothing else can
	 * run, and then run undisturbed. One of the resident blocks goes on to the end of the grid meanwhile. A wrong
	 * arrival protocol needs that to show: a block that stops between its arrival and its data while the last block
	 * does all it has to do. (The idea is Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees
	 * of Finding Bugs", ASPLOS 2010.) */
	block->delayed = false;
	block->drop_after = pool->drop && plumb_simt_one_in(pool, 2) ? 1 + plumb_simt_chance(pool) % DROP_WITHIN : 0;
	plumb_simt_choose_late(pool, block);
	for (unsigned i = 0; i < block->n_threads; i++) {
		block->lanes[i].state = FRESH;
		block->lanes[i].head.waited = 0;
	}
	for (unsigned w = 0; w < block->n_warps; w++) {
		struct warp *warp = &block->warps[w];

		warp->at_barrier = warp->ended = 0;
		warp->groups = 0;
		warp->first = 0;
		warp->ready = 0;
		make_ready(warp, warp->exist);
	}
	if (block->head.dynamic_bytes) {
		for (size_t i = 0; i + 4 <= (block->head.dynamic_bytes + 3) / 4 * 4; i += 4)
			memcpy(block->shared + i, &pool->poison, 4);
	}
	block->shared_bytes = (block->head.dynamic_bytes + 15) / 16 * 16;
	plumb_simt_race_block(block);
	block->active = true;
	pool->active++;
}

static struct warp *natural_warp(struct plumb_simt_pool *pool, bool leave)
{
	struct block *block = pool->warp->block;

	if (!leave && pool->warp->ready)
		return pool->warp;
	for (unsigned i = 0; i <= pool->slots; i++) {
		struct block *b = pool->blocks[(block->slot + i) % pool->slots];
		const unsigned start = i == 0 ? (pool->warp->index + 1) & 31u : 0;
		uint32_t set = b->active ? b->runnable : 0;

		/* The own block comes first and again last. Who gives way passes over the warps up to its own at first,
		 * so that a wait for any warp of any resident block ends. */
		if (leave && i == 0)
			set &= ~(uint32_t)(((uint64_t)2 << pool->warp->index) - 1);
		if (set)
			return &b->warps[rotate_pick(set, start)];
	}
	return NULL;
}

static struct warp *seeded_warp(struct plumb_simt_pool *pool, bool leave)
{
	struct block *left = pool->warp->block, *fallback = NULL;

	if (!leave && pool->warp->ready)
		return pool->warp;
	if (left->active && left->runnable && left->drop_after && --left->drop_after == 0)
		left->delayed = true;
	/* The late ones get a turn at times, as often as the seed says, and surely when somebody may be waiting for
	 * them. */
	const bool mercy = (pool->mercy && plumb_simt_one_in(pool, pool->mercy)) ||
	                   (pool->spins > PATIENCE && plumb_simt_one_in(pool, 16));
	const unsigned start = plumb_simt_chance(pool) % pool->slots;

	for (unsigned i = 0; i < pool->slots; i++) {
		struct block *b = pool->blocks[(start + i) % pool->slots];

		if (!b->active || !b->runnable)
			continue;
		if (mercy)
			return &b->warps[rotate_pick(b->runnable, plumb_simt_chance(pool) & 31u)];
		if (!b->delayed && b->runnable & ~b->late)
			return &b->warps[rotate_pick(b->runnable & ~b->late, plumb_simt_chance(pool) & 31u)];
		if (!fallback || (fallback->delayed && !b->delayed))
			fallback = b; /* a late warp of a block in time is better than a block left behind */
	}
	if (!fallback)
		return NULL;
	fallback->delayed = false;
	const uint32_t timely = fallback->runnable & ~fallback->late;

	return &fallback->warps[rotate_pick(timely ? timely : fallback->runnable, plumb_simt_chance(pool) & 31u)];
}

struct lane *plumb_simt_pick(struct plumb_simt_pool *pool)
{
	const bool leave = pool->leave;
	struct warp *warp = pool->seeded ? seeded_warp(pool, leave) : natural_warp(pool, leave);

	pool->leave = false;
	if (!warp)
		return NULL;
	pool->warp = warp;
	return &warp->lanes[rotate_pick(warp->ready, pool->seeded ? plumb_simt_chance(pool) & 31u : warp->first)];
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		const uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

void plumb_simt_choose_order(struct plumb_simt_pool *pool)
{
	const uint64_t seed = pool->simt->seed;
	uint64_t random = seed;

	/* The kernel's name joins in, so that kernels of one run do not share a schedule; history does not, so that
	 * seed and kernel replay one alone. */
	for (const char *c = pool->launch->kernel; *c; c++)
		random = plumb_simt_mix(random ^ (unsigned char)*c);
	pool->random = random | 1;
	pool->seeded = seed != 0;
	/* Late warps and blocks left behind hide each other's effect, so some seeds have only the ones and some only
	 * the others, and most let what is late stay late for as long as anything else can run. */
	const uint32_t how = pool->seeded ? (uint32_t)plumb_simt_mix(random + 2) : 0;

	pool->starve = pool->seeded && how % 4 != 1;
	pool->drop = pool->seeded && pool->slots > 1 && how % 4 != 0;
	pool->mercy = how % 4 != 3 ? 0 : how & 4 ? 16 : 4;
	pool->stride = 1;
	pool->offset = 0;
	if (pool->seeded && pool->n_blocks > 1) {
		pool->offset = plumb_simt_mix(random) % pool->n_blocks;
		pool->stride = plumb_simt_mix(random + 1) % pool->n_blocks;
		while (gcd(pool->stride, pool->n_blocks) != 1)
			pool->stride = (pool->stride + 1) % pool->n_blocks;
	}
	const bool large = pool->simt->poison == PLUMB_SIMT_POISON_LARGE ||
	                   (pool->simt->poison == PLUMB_SIMT_POISON_BY_SEED && seed % 2);
	const uint32_t bits = (uint32_t)(plumb_simt_mix(seed) >> 32);

	/* Both halves are also a NaN or about 4e37 as bf16. The low bits differ by seed: a comparison of two runs sees
	 * what a test for NaN does not. */
	pool->poison = large ? 0x7e007e00u | (bits & 0x003f003fu) : 0x7fc07fc0u | (bits & 0x803f803fu);
}
