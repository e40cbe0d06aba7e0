/* SPDX-License-Identifier: MIT */
/* Happens-before by vector clocks (Flanagan and Freund, "FastTrack", PLDI 2009, with the epochs of the last accesses).
 * A thread's clock counts the points where it may hand something on. What a thread knows of its own block is stored by
 * barrier and by warp, since nearly everything is ordered by those; what it knows of other blocks is a table of
 * vectors, made by fences only. */
#include "kernels/simt/race.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/simt/state.h"

enum {
	CELLS = 1 << 20,   /* words remembered; a power of two */
	RECORDS = 1 << 12, /* addresses of atomics remembered; a power of two */
	CHUNK = 1 << 20,   /* bytes taken from malloc at a time */
	MOST_BLOCKS = 1 << 16,
	READERS = 2,
};

/* What is known of every block's threads: vectors of n_threads clocks; NULL for nothing. Never changed once made. */
struct known {
	const uint32_t *blocks[1]; /* n_blocks */
};

struct race_lane {
	uint32_t clock;
	uint32_t mates[32];                           /* what it knows of the lanes of its warp */
	const struct known *known, *pending, *fenced; /* for good; after the next fence; what an atomic would hand on */
};

struct race_block {
	struct race_lane *lanes;
	uint32_t *barrier; /* every thread's clock at the last barrier */
	bool early;        /* a thread of it let the next launch begin before its own wait */
};

struct access {
	uint32_t block, thread, clock;
	uint8_t bytes; /* which of the four; 0: none */
	bool stores;
};

struct cell {
	uintptr_t word; /* address / 4 */
	uint32_t generation;
	uint32_t launch; /* that stored it last, of global memory; 0: none that is known */
	struct access store, loads[READERS];
};

struct record {
	uintptr_t address;
	uint32_t generation;
	const struct known *known;
};

struct chunk {
	struct chunk *next;
	size_t used;
	uint64_t space[CHUNK / 8];
};

struct plumb_simt_race {
	struct cell *cells;
	struct record records[RECORDS];
	struct chunk *chunks;
	struct race_block *slots;
	unsigned n_slots;
	uint32_t generation, evict;
	uint32_t launch;        /* number of the one that runs, from 1 */
	uint32_t settled;       /* it and all before had ended when this one began */
	uint64_t blocks, early; /* of it: all; those that were early */
};

static struct race_lane *lane_race(const struct lane *lane)
{
	const struct block *block = lane->warp->block;

	return &lane->pool->race->slots[block->slot].lanes[lane - block->lanes];
}

static void *take(struct plumb_simt_pool *pool, size_t bytes)
{
	struct plumb_simt_race *race = pool->race;

	bytes = (bytes + 7) / 8 * 8;
	if (bytes > CHUNK / 2) {
		/* One of its own, behind the one in use. */
		struct chunk *own = calloc(1, sizeof(*own) + bytes);

		if (!own)
			return NULL;
		own->used = CHUNK;
		if (race->chunks) {
			own->next = race->chunks->next;
			race->chunks->next = own;
		} else {
			race->chunks = own;
		}
		return own->space;
	}
	if (!race->chunks || race->chunks->used + bytes > CHUNK) {
		struct chunk *chunk = malloc(sizeof(*chunk));

		if (!chunk)
			return NULL;
		chunk->next = race->chunks;
		chunk->used = 0;
		race->chunks = chunk;
	}
	void *space = (unsigned char *)race->chunks->space + race->chunks->used;

	race->chunks->used += bytes;
	return memset(space, 0, bytes);
}

static void *take_or_fail(struct plumb_simt_pool *pool, size_t bytes)
{
	void *space = take(pool, bytes);

	if (!space)
		FAIL(plumb_simt_running(), 0, "race check: no memory");
	return space;
}

static const struct known *join(struct plumb_simt_pool *pool, const struct known *a, const struct known *b)
{
	if (a == b || !b)
		return a;
	if (!a)
		return b;
	struct known *both = take_or_fail(pool, pool->n_blocks * sizeof(both->blocks[0]));
	const size_t n_threads = pool->blocks[0]->n_threads;
	bool is_a = true, is_b = true;

	for (uint64_t i = 0; i < pool->n_blocks; i++) {
		const uint32_t *va = a->blocks[i], *vb = b->blocks[i];
		bool a_more = false, b_more = false;

		if (va == vb || !va || !vb) {
			both->blocks[i] = va ? va : vb;
			is_a = is_a && (va || !vb);
			is_b = is_b && (vb || !va);
			continue;
		}
		for (size_t t = 0; t < n_threads; t++) {
			a_more |= va[t] > vb[t];
			b_more |= vb[t] > va[t];
		}
		is_a = is_a && !b_more;
		is_b = is_b && !a_more;
		if (a_more && b_more) {
			uint32_t *most = take_or_fail(pool, n_threads * sizeof(*most));

			for (size_t t = 0; t < n_threads; t++)
				most[t] = va[t] > vb[t] ? va[t] : vb[t];
			both->blocks[i] = most;
		} else {
			both->blocks[i] = b_more ? vb : va;
		}
	}
	return is_a ? a : is_b ? b : both;
}

/* What the thread knows of thread t of its own block. */
static uint32_t knows_own(const struct lane *lane, const struct race_lane *race, unsigned t)
{
	const struct block *block = lane->warp->block;
	uint32_t clock = lane->pool->race->slots[block->slot].barrier[t];

	if (t / 32 == lane->warp->index && race->mates[t % 32] > clock)
		clock = race->mates[t % 32];
	if (race->known && race->known->blocks[block->number] && race->known->blocks[block->number][t] > clock)
		clock = race->known->blocks[block->number][t];
	return clock;
}

static bool ordered(const struct lane *lane, const struct race_lane *race, const struct access *earlier)
{
	const struct block *block = lane->warp->block;

	if (earlier->block == block->number)
		return earlier->thread == (unsigned)(lane - block->lanes) ||
		       knows_own(lane, race, earlier->thread) >= earlier->clock;
	return race->known && race->known->blocks[earlier->block] &&
	       race->known->blocks[earlier->block][earlier->thread] >= earlier->clock;
}

/* ---- what orders ---- */

bool plumb_simt_race_begin(struct plumb_simt_pool *pool)
{
	if (!pool->launch->race)
		return true;
	struct plumb_simt_race *race = pool->race;

	if (pool->n_blocks > MOST_BLOCKS)
		return false;
	if (!race) {
		race = pool->race = calloc(1, sizeof(*race));
		if (!race)
			return false;
	}
	if (!race->cells)
		race->cells = calloc(CELLS, sizeof(*race->cells));
	if (!race->cells)
		return false;
	race->generation++;
	race->launch++;
	if (!pool->launch->dependent)
		race->settled = race->launch - 1;
	else if (race->early < race->blocks && race->launch > 1 && race->settled < race->launch - 2)
		race->settled = race->launch - 2; /* a block of the one before had waited for all before it */
	race->blocks = pool->n_blocks;
	race->early = 0;
	race->slots = take(pool, pool->slots * sizeof(*race->slots));
	for (unsigned s = 0; race->slots && s < pool->slots; s++) {
		race->slots[s].lanes = take(pool, pool->blocks[s]->n_threads * sizeof(*race->slots[s].lanes));
		race->slots[s].barrier = take(pool, pool->blocks[s]->n_threads * sizeof(*race->slots[s].barrier));
		if (!race->slots[s].lanes || !race->slots[s].barrier)
			return false;
	}
	return race->slots != NULL;
}

void plumb_simt_race_dependents(const struct lane *lane)
{
	struct plumb_simt_race *race = lane->pool->race;

	if (!lane->pool->launch->race || !lane->pool->launch->dependent || lane->head.waited)
		return;
	struct race_block *block = &race->slots[lane->warp->block->slot];
	race->early += !block->early;
	block->early = true;
}

void plumb_simt_settle(struct plumb_simt *simt)
{
	if (simt->pool && simt->pool->race)
		simt->pool->race->settled = simt->pool->race->launch;
}

void plumb_simt_race_end(struct plumb_simt_pool *pool)
{
	struct plumb_simt_race *race = pool->race;

	while (race && race->chunks) {
		struct chunk *chunk = race->chunks;

		race->chunks = chunk->next;
		free(chunk);
	}
}

void plumb_simt_race_free(struct plumb_simt_pool *pool)
{
	if (!pool->race)
		return;
	plumb_simt_race_end(pool);
	free(pool->race->cells);
	free(pool->race);
	pool->race = NULL;
}

void plumb_simt_race_block(struct block *block)
{
	struct plumb_simt_pool *pool = block->lanes[0].pool;

	if (!pool->launch->race)
		return;
	struct race_block *race = &pool->race->slots[block->slot];

	memset(race->lanes, 0, block->n_threads * sizeof(*race->lanes));
	memset(race->barrier, 0, block->n_threads * sizeof(*race->barrier));
	race->early = false;
	for (unsigned t = 0; t < block->n_threads; t++)
		race->lanes[t].clock = 1;
}

void plumb_simt_race_collective(struct warp *warp, uint32_t lanes)
{
	struct plumb_simt_pool *pool = warp->lanes[0].pool;

	if (!pool->launch->race)
		return;
	struct race_lane *race = lane_race(&warp->lanes[0]);
	uint32_t mates[32] = {0};
	const struct known *known = NULL, *pending = NULL;

	for (uint32_t rest = lanes; rest; rest &= rest - 1) {
		struct race_lane *lane = &race[__builtin_ctz(rest)];

		for (int m = 0; m < 32; m++)
			mates[m] = lane->mates[m] > mates[m] ? lane->mates[m] : mates[m];
		known = join(pool, known, lane->known);
		pending = join(pool, pending, lane->pending);
	}
	for (uint32_t rest = lanes; rest; rest &= rest - 1)
		mates[__builtin_ctz(rest)] = race[__builtin_ctz(rest)].clock;
	for (uint32_t rest = lanes; rest; rest &= rest - 1) {
		struct race_lane *lane = &race[__builtin_ctz(rest)];

		memcpy(lane->mates, mates, sizeof(mates));
		lane->known = known;
		lane->pending = pending;
		lane->clock++;
	}
}

void plumb_simt_race_barrier(struct block *block)
{
	struct plumb_simt_pool *pool = block->lanes[0].pool;

	if (!pool->launch->race)
		return;
	struct race_block *race = &pool->race->slots[block->slot];
	const struct known *known = NULL, *pending = NULL;

	for (unsigned t = 0; t < block->n_threads; t++) {
		known = join(pool, known, race->lanes[t].known);
		pending = join(pool, pending, race->lanes[t].pending);
	}
	for (unsigned t = 0; t < block->n_threads; t++) {
		race->barrier[t] = race->lanes[t].clock++;
		race->lanes[t].known = known;
		race->lanes[t].pending = pending;
	}
}

/* Everything before is ordered before everything after: all cells are forgotten. */
void plumb_simt_race_grid(struct plumb_simt_pool *pool)
{
	if (pool->launch->race)
		pool->race->generation++;
}

void plumb_simt_race_fence(struct lane *lane)
{
	struct plumb_simt_pool *pool = lane->pool;

	if (!pool->launch->race)
		return;
	struct race_lane *race = lane_race(lane);
	const struct block *block = lane->warp->block;
	uint32_t *own;

	race->known = join(pool, race->known, race->pending);
	race->pending = NULL;

	/* What an atomic from here on hands over: all it knows, and what it did itself. */
	struct known *fenced = take_or_fail(pool, pool->n_blocks * sizeof(fenced->blocks[0]));

	if (race->known)
		memcpy(fenced, race->known, pool->n_blocks * sizeof(fenced->blocks[0]));
	own = take_or_fail(pool, block->n_threads * sizeof(*own));
	for (unsigned t = 0; t < block->n_threads; t++)
		own[t] = knows_own(lane, race, t);
	own[lane - block->lanes] = race->clock++;
	fenced->blocks[block->number] = own;
	race->fenced = fenced;
}

void plumb_simt_race_atomic(const void *address)
{
	struct lane *lane = plumb_simt_running();
	struct plumb_simt_pool *pool = lane->pool;
	struct race_lane *race = lane_race(lane);
	const uintptr_t key = (uintptr_t)address;
	struct record *record = NULL;

	for (unsigned probe = 0; probe < RECORDS; probe++) {
		record = &pool->race->records[(plumb_simt_mix(key) + probe) % RECORDS];
		if (record->generation != pool->race->generation) {
			record->address = key;
			record->generation = pool->race->generation;
			record->known = NULL;
		}
		if (record->address == key)
			break;
		record = NULL;
	}
	if (!record) {
		/* More addresses than places: order everything, since a report that is wrong is worse than none. */
		plumb_simt_race_grid(pool);
		return;
	}
	race->pending = join(pool, race->pending, record->known);
	record->known = join(pool, record->known, race->fenced);
}

/* ---- what is ordered ---- */

static const struct shared_place *shared_array(const struct block *block, uintptr_t offset)
{
	for (unsigned i = 0; i < block->n_arrays; i++) {
		if (offset - block->arrays[i].offset < block->arrays[i].array->bytes)
			return &block->arrays[i];
	}
	return NULL;
}

_Noreturn static void report(struct lane *lane, const struct access *now, const struct access *before, uintptr_t address)
{
	const struct plumb_simt_dim grid = lane->pool->launch->grid, shape = lane->pool->launch->block;
	const struct block *block = lane->warp->block;
	const uintptr_t offset = address - (uintptr_t)block->shared;
	char where[160], after[40] = "";

	if (offset < lane->pool->shared_limit) {
		const struct shared_place *place = shared_array(block, offset);

		if (place)
			snprintf(where, sizeof(where), "byte %zu of shared array %s", (size_t)(offset - place->offset),
				place->array->name);
		else
			snprintf(where, sizeof(where), "byte %zu of dynamic shared memory", (size_t)offset);
	} else {
		snprintf(where, sizeof(where), "global address 0x%" PRIxPTR, address);
	}
	if (lane->line > 0)
		snprintf(after, sizeof(after), ", made after line %d,", lane->line);
	FAIL(lane, 0, "race: the %s of %s%s is not ordered after the %s by block (%u,%u,%u), thread (%u,%u,%u)",
		now->stores ? "store" : "load", where, after, before->stores ? "store" : "load", before->block % grid.x,
		before->block / grid.x % grid.y, before->block / grid.x / grid.y, before->thread % shape.x,
		before->thread / shape.x % shape.y, before->thread / shape.x / shape.y);
}

_Noreturn static void report_early(struct lane *lane, const struct cell *cell, bool stores)
{
	const uint32_t before = lane->pool->race->launch - cell->launch;

	if (stores)
		FAIL(lane, 0, "race: a store to global address 0x%" PRIxPTR " before plumb_grid_dependency_wait",
			cell->word * 4);
	FAIL(lane, 0,
		"race: a load of global address 0x%" PRIxPTR ", which %" PRIu32
		" launch%s before this one wrote, before plumb_grid_dependency_wait",
		cell->word * 4, before, before == 1 ? "" : "es");
}

static void check_word(struct lane *lane, uintptr_t word, uint8_t bytes, bool stores)
{
	struct plumb_simt_pool *pool = lane->pool;
	struct plumb_simt_race *race = pool->race;
	struct race_lane *mine = lane_race(lane);
	const struct block *block = lane->warp->block;
	struct cell *cell = &race->cells[plumb_simt_mix(word) % CELLS];
	const struct access now = {(uint32_t)block->number, (uint32_t)(lane - block->lanes), mine->clock, bytes, stores};

	/* Shared memory is another memory for every block, whatever block had the place before. */
	const bool shared = word * 4 - (uintptr_t)block->shared < pool->shared_limit;

	if (cell->generation != race->generation || cell->word != word) {
		const uint32_t launch = cell->word == word && !shared ? cell->launch : 0;

		memset(cell, 0, sizeof(*cell));
		cell->generation = race->generation;
		cell->word = word;
		cell->launch = launch;
	}
	if (!shared && pool->launch->dependent && !lane->head.waited && (stores || cell->launch > race->settled))
		report_early(lane, cell, stores);
	if (!shared && stores)
		cell->launch = race->launch;
	if (cell->store.bytes & bytes && !(shared && cell->store.block != now.block) && !ordered(lane, mine, &cell->store))
		report(lane, &now, &cell->store, word * 4 + (uintptr_t)__builtin_ctz(cell->store.bytes & bytes));
	if (stores) {
		for (int r = 0; r < READERS; r++) {
			const struct access *load = &cell->loads[r];

			if (load->bytes & bytes && !(shared && load->block != now.block) && !ordered(lane, mine, load))
				report(lane, &now, load, word * 4 + (uintptr_t)__builtin_ctz(load->bytes & bytes));
		}
		/* Another byte's store in the same word keeps its place only if the word has one writer: two writers of
		 * neighbouring bytes are rare, and forgetting one is allowed. */
		cell->store = now;
		memset(cell->loads, 0, sizeof(cell->loads));
		return;
	}
	for (int r = 0; r < READERS; r++) {
		struct access *load = &cell->loads[r];

		if (!load->bytes || (load->thread == now.thread && load->block == now.block) ||
			(shared && load->block != now.block) || ordered(lane, mine, load)) {
			*load = now;
			return;
		}
	}
	cell->loads[race->evict++ % READERS] = now;
}

static void check(const volatile void *pointer, size_t size, bool stores)
{
	struct lane *lane = plumb_simt_running();
	const uintptr_t first = (uintptr_t)pointer, end = first + size;

	if (!lane || !lane->pool->launch->race || first - (uintptr_t)lane->fiber->low < lane->fiber->bytes)
		return; /* the host, or the thread's own stack */
	for (uintptr_t word = first / 4; word * 4 < end; word++) {
		const unsigned low = word * 4 < first ? (unsigned)(first - word * 4) : 0;
		const unsigned high = word * 4 + 4 > end ? (unsigned)(end - word * 4) : 4;

		check_word(lane, word, (uint8_t)((1u << high) - (1u << low)), stores);
	}
}

void plumb_simt_race_stream(const void *address, size_t bytes)
{
	struct lane *lane = plumb_simt_running();
	const uintptr_t first = (uintptr_t)address / 4;

	if (!lane->pool->launch->race || !lane->pool->launch->dependent)
		return;
	for (uintptr_t word = first; word < first + bytes / 4; word++) {
		const struct plumb_simt_race *race = lane->pool->race;
		const struct cell *cell = &race->cells[plumb_simt_mix(word) % CELLS];

		if (cell->word == word && cell->launch > race->settled)
			FAIL(lane, 0,
				"race: plumb_load_stream of global address 0x%" PRIxPTR ", which %" PRIu32
				" launches before this one wrote: it may be moved before plumb_grid_dependency_wait",
				word * 4, race->launch - cell->launch);
	}
}

void plumb_simt_race_store(const void *address, size_t bytes)
{
	check(address, bytes, true);
}

/* The names that -fsanitize=thread makes the compilers call. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define ACCESS(size)                                                                                                       \
	void __tsan_read##size(const void *p)                                                                              \
	{                                                                                                                  \
		check(p, size, false);                                                                                     \
	}                                                                                                                  \
	void __tsan_write##size(const void *p)                                                                             \
	{                                                                                                                  \
		check(p, size, true);                                                                                      \
	}                                                                                                                  \
	void __tsan_volatile_read##size(const void *p)                                                                     \
	{                                                                                                                  \
		check(p, size, false);                                                                                     \
	}                                                                                                                  \
	void __tsan_volatile_write##size(const void *p)                                                                    \
	{                                                                                                                  \
		check(p, size, true);                                                                                      \
	}                                                                                                                  \
	void __tsan_unaligned_read##size(const void *p)                                                                    \
	{                                                                                                                  \
		check(p, size, false);                                                                                     \
	}                                                                                                                  \
	void __tsan_unaligned_write##size(const void *p)                                                                   \
	{                                                                                                                  \
		check(p, size, true);                                                                                      \
	}
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(const void *p, size_t size)
{
	check(p, size, false);
}

void __tsan_write_range(const void *p, size_t size)
{
	check(p, size, true);
}

void *__tsan_memcpy(void *to, const void *from, size_t size)
{
	check(from, size, false);
	check(to, size, true);
	return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size)
{
	check(from, size, false);
	check(to, size, true);
	return memmove(to, from, size);
}

void *__tsan_memset(void *to, int value, size_t size)
{
	check(to, size, true);
	return memset(to, value, size);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(const void *caller)
{
	(void)caller;
}

void __tsan_func_exit(void)
{
}
