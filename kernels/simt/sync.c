/* SPDX-License-Identifier: MIT */
/* What threads wait for: warp collectives, block and grid barriers; where they give way; and what happens to those who
 * wait when a thread ends. */
#include <inttypes.h>
#include <string.h>

#include "kernels/simt/state.h"

/* The lane whose value a shuffle gives, as PTX's shfl.sync defines it. */
static uint32_t shuffle_source(enum plumb_simt_kind kind, unsigned lane, int by, int width)
{
	const unsigned segment = 32u - (unsigned)width; /* bits that stay */
	const unsigned b = (unsigned)by & 31u;
	const unsigned lowest = lane & segment, highest = lowest | (31u & ~segment);

	switch (kind) {
	case PLUMB_SIMT_SHFL:
	case PLUMB_SIMT_SHFL64:
		return lowest | (b & ~segment);
	case PLUMB_SIMT_SHFL_UP:
	case PLUMB_SIMT_SHFL64_UP:
		return lane >= lowest + b ? lane - b : lane;
	case PLUMB_SIMT_SHFL_DOWN:
	case PLUMB_SIMT_SHFL64_DOWN:
		return lane + b <= highest ? lane + b : lane;
	case PLUMB_SIMT_SHFL_XOR:
	case PLUMB_SIMT_SHFL64_XOR:
		return (lane ^ b) <= highest ? lane ^ b : lane;
	default:
		return lane;
	}
}

/* The binary32 sum of a full warp as xor shuffles by 1, 2, 4, 8, 16 give it: addition commutes, so one lane's tree is
 * every lane's. */
static uint64_t warp_sum(const struct lane *lanes)
{
	float t[WARP];
	uint32_t bits;

	for (unsigned i = 0; i < WARP; i++) {
		bits = (uint32_t)lanes[i].value;
		memcpy(&t[i], &bits, sizeof bits);
	}
	for (unsigned offset = 1; offset < WARP; offset *= 2)
		for (unsigned i = 0; i < WARP; i += 2 * offset)
			t[i] = t[i] + t[i + offset];
	memcpy(&bits, &t[0], sizeof bits);
	return bits;
}

static void finish_collective(struct warp *warp, unsigned g)
{
	const struct group group = warp->group[g];
	struct lane *lanes = warp->lanes;
	struct plumb_simt_pool *pool = lanes[0].pool;
	uint64_t common = 0;
	uint32_t trues = 0;

	warp->group[g] = warp->group[--warp->groups];
	if (group.kind <= PLUMB_SIMT_SUM) {
		if (group.kind == PLUMB_SIMT_SUM) {
			if (__builtin_expect(group.arrived != UINT32_MAX, 0)) {
				struct lane *lane = &lanes[__builtin_ctz(group.arrived)];

				FAIL(lane, lane->line, "plumb_warp_sum needs a full warp, lanes 0x%08" PRIx32 " are there",
					group.arrived);
			}
			common = warp_sum(lanes);
		} else if (group.kind == PLUMB_SIMT_MAX || group.kind == PLUMB_SIMT_MIN) {
			common = lanes[__builtin_ctz(group.arrived)].value;
			for (uint32_t rest = group.arrived; rest; rest &= rest - 1) {
				const uint64_t value = lanes[__builtin_ctz(rest)].value;

				if (group.kind == PLUMB_SIMT_MAX ? value > common : value < common)
					common = value;
			}
		} else if (group.kind != PLUMB_SIMT_SYNCWARP) {
			for (uint32_t rest = group.arrived; rest; rest &= rest - 1)
				trues |= lanes[__builtin_ctz(rest)].value ? rest & -rest : 0;
			common = group.kind == PLUMB_SIMT_BALLOT ? trues
			         : group.kind == PLUMB_SIMT_ANY  ? trues != 0
			                                         : trues == group.arrived;
		}
		for (uint32_t rest = group.arrived; rest; rest &= rest - 1) {
			struct lane *lane = &lanes[__builtin_ctz(rest)];

			lane->result = common;
			lane->state = READY;
		}
	} else {
		for (uint32_t rest = group.arrived; rest; rest &= rest - 1) {
			struct lane *lane = &lanes[__builtin_ctz(rest)];

			if (__builtin_expect(!(group.arrived >> lane->source & 1u), 0)) {
				const bool exists = warp->exist >> lane->source & 1u;

				FAIL(lane, lane->line, "%s mask 0x%08" PRIx32 " reads lane %" PRIu32 ", which %s",
					plumb_simt_kind_name(group.kind), group.mask, lane->source,
					!exists                           ? "does not exist in this block"
					: group.mask >> lane->source & 1u ? "has exited"
									  : "the mask does not name");
			}
			lane->result = lanes[lane->source].value;
			lane->state = READY;
		}
	}
	plumb_simt_race_collective(warp, group.arrived);
	make_ready(warp, group.arrived);
	warp->first = 0;
	pool->spins = 0;
}

/* Whether something waits that the new arrival contradicts; it does not return then. Out of line: rare. */
__attribute__((noinline)) static void check_arrival(struct lane *self, enum plumb_simt_kind kind, uint32_t mask, int line)
{
	struct warp *warp = self->warp;
	const uint32_t bit = 1u << self->head.lane;

	if (!(mask & bit))
		FAIL(self, line, "%s mask 0x%08" PRIx32 " does not name the calling lane %u", plumb_simt_kind_name(kind),
			mask, self->head.lane);
	for (unsigned g = 0; g < warp->groups; g++) {
		const struct group *group = &warp->group[g];
		const uint32_t named = group->arrived & mask;

		/* It names someone who waits for it elsewhere. Who waits for others only may still come. */
		if (named && group->mask & bit && (group->mask != mask || group->kind != kind))
			FAIL(self, line, "%s mask 0x%08" PRIx32 " names lane %d, but %s", plumb_simt_kind_name(kind), mask,
				__builtin_ctz(named), plumb_simt_lane_words(&warp->lanes[__builtin_ctz(named)]).text);
	}
	if (mask & warp->at_barrier)
		FAIL(self, line, "%s mask 0x%08" PRIx32 " names lane %d, but %s", plumb_simt_kind_name(kind), mask,
			__builtin_ctz(mask & warp->at_barrier),
			plumb_simt_lane_words(&warp->lanes[__builtin_ctz(mask & warp->at_barrier)]).text);
	if (mask & warp->ended && !self->pool->simt->relaxed)
		FAIL(self, line, "%s mask 0x%08" PRIx32 " names lane %d, but %s", plumb_simt_kind_name(kind), mask,
			__builtin_ctz(mask & warp->ended),
			plumb_simt_lane_words(&warp->lanes[__builtin_ctz(mask & warp->ended)]).text);
}

uint64_t plumb_simt_collective(enum plumb_simt_kind kind, uint32_t mask, uint64_t value, int by, int width, int line)
{
	struct lane *self = plumb_simt_running();
	struct warp *warp = self->warp;
	struct plumb_simt_pool *pool = self->pool;
	const uint32_t bit = 1u << self->head.lane;
	unsigned g = 0;

	if (__builtin_expect(width < 1 || width > WARP || (width & (width - 1)), 0))
		FAIL(self, line, "%s has width %d, not a power of two of at most 32", plumb_simt_kind_name(kind), width);
	self->kind = kind;
	self->mask = mask;
	self->line = line;
	self->value = value;
	self->source = shuffle_source(kind, self->head.lane, by, width);
	while (g < warp->groups && (warp->group[g].mask != mask || warp->group[g].kind != kind))
		g++;
	if (__builtin_expect(
		    !(mask & bit) || warp->groups > (g < warp->groups) || (mask & (warp->at_barrier | warp->ended)), 0))
		check_arrival(self, kind, mask, line);
	if (g == warp->groups)
		warp->group[warp->groups++] = (struct group){.mask = mask, .kind = kind};
	warp->group[g].arrived |= bit;
	self->state = AT_WARP;
	make_waiting(self);
	if (!(mask & warp->exist & ~warp->ended & ~warp->group[g].arrived)) {
		finish_collective(warp, g);
		pool->leave = pool->seeded && plumb_simt_one_in(pool, 8);
	}
	plumb_simt_turn(self);
	return self->result;
}

void plumb_simt_finish_barrier(struct block *block)
{
	struct plumb_simt_pool *pool = block->lanes[0].pool;
	const unsigned present = block->arrived;

	block->barrier_result = block->barrier_kind == PLUMB_SIMT_BARRIER_COUNT ? (int)block->trues
	                        : block->barrier_kind == PLUMB_SIMT_BARRIER_OR  ? block->trues > 0
	                        : block->barrier_kind == PLUMB_SIMT_BARRIER_AND ? block->trues == present
	                                                                        : 0;
	block->arrived = 0;
	plumb_simt_race_barrier(block);
	for (unsigned w = 0; w < block->n_warps; w++) {
		struct warp *warp = &block->warps[w];

		for (uint32_t rest = warp->at_barrier; rest; rest &= rest - 1)
			warp->lanes[__builtin_ctz(rest)].state = READY;
		if (warp->at_barrier)
			make_ready(warp, warp->at_barrier);
		warp->at_barrier = 0;
		warp->first = 0;
	}
	pool->spins = 0;
	plumb_simt_choose_late(pool, block);
	pool->leave = pool->seeded;
}

/* The running thread is about to wait for more than its warp: no lane of the warp may be waiting for it. */
static void leave_warp(struct lane *self, const char *where, int line)
{
	struct warp *warp = self->warp;

	for (unsigned g = 0; g < warp->groups; g++) {
		if (warp->group[g].mask >> self->head.lane & 1u)
			FAIL(self, line, "waits at %s, but %s and names it", where,
				plumb_simt_lane_words(&warp->lanes[__builtin_ctz(warp->group[g].arrived)]).text);
	}
}

int plumb_simt_barrier(enum plumb_simt_kind kind, int predicate, int line)
{
	struct lane *self = plumb_simt_running();
	struct warp *warp = self->warp;
	struct block *block = warp->block;

	if (warp->groups)
		leave_warp(self, plumb_simt_kind_name(kind), line);
	if (block->ended && !self->pool->simt->relaxed)
		FAIL(self, line, "divergent barrier: waits at %s, but %s", plumb_simt_kind_name(kind),
			plumb_simt_lane_words(block->last_ended).text);
	if (block->at_grid)
		FAIL(self, line, "divergent barrier: waits at %s, but %s", plumb_simt_kind_name(kind),
			plumb_simt_lane_words(block->grid_first).text);
	if (block->arrived == 0) {
		block->barrier_first = self;
		block->barrier_kind = kind;
		block->trues = 0;
	} else if (block->barrier_kind != kind || (block->barrier_first->line != line && !self->pool->simt->relaxed)) {
		FAIL(self, line, "divergent barrier: waits at %s, but %s", plumb_simt_kind_name(kind),
			plumb_simt_lane_words(block->barrier_first).text);
	}
	self->kind = kind;
	self->line = line;
	self->state = AT_BARRIER;
	make_waiting(self);
	warp->at_barrier |= 1u << self->head.lane;
	block->arrived++;
	block->trues += predicate != 0;
	if (block->arrived + block->ended == block->n_threads)
		plumb_simt_finish_barrier(block);
	plumb_simt_turn(self);
	return block->barrier_result;
}

void plumb_simt_grid_barrier(unsigned *counter, int line)
{
	struct lane *self = plumb_simt_running();
	struct plumb_simt_pool *pool = self->pool;
	struct block *block = self->warp->block;

	if (!pool->launch->cooperative)
		FAIL(self, line, "plumb_grid_sync in a launch that is not cooperative");
	if (pool->grid_ended)
		FAIL(self, line, "divergent grid barrier: waits at plumb_grid_sync, but another thread has exited");
	if (self->warp->groups)
		leave_warp(self, "plumb_grid_sync", line);
	if (block->arrived)
		FAIL(self, line, "divergent barrier: waits at plumb_grid_sync, but %s",
			plumb_simt_lane_words(block->barrier_first).text);
	self->line = line;
	self->state = AT_GRID;
	make_waiting(self);
	if (block->at_grid++ == 0)
		block->grid_first = self;
	if (++pool->grid_arrived == pool->n_blocks * block->n_threads) {
		pool->grid_arrived = 0;
		pool->spins = 0;
		plumb_simt_race_grid(pool);
		*counter ^= 0x80000000u; /* what cuda leaves in it */
		for (unsigned s = 0; s < pool->slots; s++) {
			struct block *b = pool->blocks[s];

			for (unsigned i = 0; i < b->n_threads; i++)
				b->lanes[i].state = READY;
			for (unsigned w = 0; w < b->n_warps; w++)
				make_ready(&b->warps[w], b->warps[w].exist);
			plumb_simt_choose_late(pool, b);
			b->at_grid = 0;
		}
		pool->leave = pool->seeded;
	}
	plumb_simt_turn(self);
}

void plumb_simt_dependency_wait(void)
{
	plumb_simt_running()->head.waited = 1;
}

void plumb_simt_dependents(void)
{
	plumb_simt_race_dependents(plumb_simt_running());
}

void plumb_simt_dependency_end(void)
{
	struct lane *self = plumb_simt_running();

	if (self->pool->launch->dependent && !self->head.waited)
		FAIL(self, 0, "exits without plumb_grid_dependency_wait, in a dependent launch");
}

void plumb_simt_give_way(enum plumb_simt_point point, int line)
{
	struct lane *self = plumb_simt_running();
	struct plumb_simt_pool *pool = self->pool;

	if (point == PLUMB_SIMT_AT_FENCE)
		plumb_simt_race_fence(self);
	const bool fence = point == PLUMB_SIMT_AT_FENCE || point == PLUMB_SIMT_AT_BLOCK_FENCE;

	if (!fence && ++pool->spins > pool->spin_limit)
		FAIL(self, line,
			"deadlock or no progress: %" PRIu64
			" atomics without one thread ending or one barrier completed; it waits "
			"for what never comes, or spin_limit is too low",
			pool->spin_limit);
	if (pool->seeded) {
		/* A thread mostly gives way to its warp's other lanes, often to another warp, at times to none. */
		const uint32_t draw = plumb_simt_chance(pool) & 7u;

		if (draw == 0 && point != PLUMB_SIMT_AT_SLEEP)
			return;
		pool->leave = draw < 4 || point == PLUMB_SIMT_AT_SLEEP;
	} else {
		if (point != PLUMB_SIMT_AT_SLEEP && (fence || pool->spins % SPINS_PER_TURN))
			return;
		pool->leave = true;
		self->warp->first = (self->head.lane + 1) & 31u;
	}
	plumb_simt_turn(self);
}

void plumb_simt_lane_ends(struct plumb_simt_pool *pool, struct lane *lane)
{
	struct warp *warp = lane->warp;
	struct block *block = warp->block;
	const uint32_t bit = 1u << lane->head.lane;

	lane->state = ENDED;
	warp->ended |= bit;
	block->ended++;
	block->last_ended = lane;
	make_waiting(lane);
	pool->spins = 0;
	for (unsigned g = 0; g < warp->groups; g++) {
		struct group *group = &warp->group[g];
		const struct lane *other = &warp->lanes[__builtin_ctz(group->arrived)];

		if (!(group->mask & bit))
			continue;
		if (!pool->simt->relaxed)
			FAIL(lane, 0, "exits although %s and names it", plumb_simt_lane_words(other).text);
		if (!(group->mask & warp->exist & ~warp->ended & ~group->arrived))
			finish_collective(warp, g--);
	}
	if (block->arrived && !pool->simt->relaxed)
		FAIL(lane, 0, "divergent barrier: exits although %s", plumb_simt_lane_words(block->barrier_first).text);
	if (pool->grid_arrived)
		FAIL(lane, 0, "divergent grid barrier: exits although other threads wait at plumb_grid_sync");
	pool->grid_ended++;
}
