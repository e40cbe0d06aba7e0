/* SPDX-License-Identifier: MIT */
/* The scheduler of the simt device. A launch is one loop without a loop: whoever has to wait picks the next thread and switches
 * to it directly; the launcher gets control back when nothing is left or something went wrong.
 *
 * A stack is bound to a thread only while the thread is in the middle of the kernel. A thread that ends leaves its stack to the
 * next one that has not begun, so threads that never wait cost a function call each and no switch. */
#include "kernels/simt/runtime.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/simt/fiber.h"

enum {
	WARP = 32,
	MAX_THREADS = 1024, /* of a block: CUDA C++ Programming Guide, technical specifications */
	MAX_WARPS = MAX_THREADS / WARP,
	MAX_ARRAYS = 64,     /* shared declarations of one kernel */
	SLAB = 32,           /* stacks mapped at a time */
	DEFAULT_RESIDENT = 4,
	SPINS_PER_TURN = 1024, /* natural order: atomics a thread may do before the others get a turn */
};
#define DEFAULT_SHARED_LIMIT ((size_t)99 * 1024)
#define DEFAULT_SPIN_LIMIT ((uint64_t)1 << 24)
#ifdef PLUMB_FIBER_ASAN
#define DEFAULT_STACK ((size_t)256 * 1024) /* red zones around every local */
#else
#define DEFAULT_STACK ((size_t)64 * 1024)
#endif

__thread struct plumb_simt_thread *plumb_simt_now __attribute__((tls_model("initial-exec")));

enum state {
	FRESH, /* has not begun, has no stack */
	READY,
	AT_WARP,
	AT_BARRIER,
	AT_GRID,
	ENDED,
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
	unsigned slot, n_warps, n_threads;
	bool active, delayed;
	uint32_t runnable, late; /* warps with a ready lane; warps that run only when nothing else can */
	unsigned ended;
	struct lane *last_ended;
	/* The barrier being gathered. */
	unsigned arrived, trues;
	enum plumb_simt_kind barrier_kind;
	struct lane *barrier_first;
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
	unsigned slots, active;
	uint64_t n_blocks, next_block, stride, offset; /* block number i of the schedule is (i * stride + offset) mod n_blocks */
	uint64_t random, spins, spin_limit, turns;
	uint32_t poison;
	struct warp *warp; /* the one that runs */
	bool seeded, leave, failed;
	unsigned grid_arrived;
	uint64_t grid_ended;
};


static struct lane *running(void)
{
	return (struct lane *)(void *)plumb_simt_now;
}

/* ---- words for messages ---- */

static const char *kind_name(enum plumb_simt_kind kind)
{
	static const char *const names[] = {
		[PLUMB_SIMT_SYNCWARP] = "__syncwarp",
		[PLUMB_SIMT_BALLOT] = "__ballot_sync",
		[PLUMB_SIMT_ANY] = "__any_sync",
		[PLUMB_SIMT_ALL] = "__all_sync",
		[PLUMB_SIMT_SHFL] = "__shfl_sync",
		[PLUMB_SIMT_SHFL_UP] = "__shfl_up_sync",
		[PLUMB_SIMT_SHFL_DOWN] = "__shfl_down_sync",
		[PLUMB_SIMT_SHFL_XOR] = "__shfl_xor_sync",
		[PLUMB_SIMT_SHFL64] = "64-bit __shfl_sync",
		[PLUMB_SIMT_SHFL64_UP] = "64-bit __shfl_up_sync",
		[PLUMB_SIMT_SHFL64_DOWN] = "64-bit __shfl_down_sync",
		[PLUMB_SIMT_SHFL64_XOR] = "64-bit __shfl_xor_sync",
		[PLUMB_SIMT_BARRIER] = "__syncthreads",
		[PLUMB_SIMT_BARRIER_OR] = "__syncthreads_or",
		[PLUMB_SIMT_BARRIER_AND] = "__syncthreads_and",
		[PLUMB_SIMT_BARRIER_COUNT] = "__syncthreads_count",
	};
	return names[kind];
}

struct words {
	char text[224];
};

static struct words thread_words(const struct lane *lane)
{
	struct words w;
	const struct plumb_simt_dim i = lane->head.index;

	snprintf(w.text, sizeof(w.text), "thread (%u,%u,%u)", i.x, i.y, i.z);
	return w;
}

/* A thread and what it does, e.g. "thread (3,0,0) waits at __syncthreads, line 40". */
static struct words lane_words(const struct lane *lane)
{
	const struct words who = thread_words(lane);
	struct words w;

	switch (lane->state) {
	case ENDED:
		snprintf(w.text, sizeof(w.text), "%.60s has exited", who.text);
		break;
	case AT_BARRIER:
		snprintf(w.text, sizeof(w.text), "%.60s waits at %s, line %d", who.text, kind_name(lane->kind), lane->line);
		break;
	case AT_WARP:
		snprintf(w.text, sizeof(w.text), "%.60s waits at %s mask 0x%08" PRIx32 ", line %d", who.text,
			kind_name(lane->kind), lane->mask, lane->line);
		break;
	case AT_GRID:
		snprintf(w.text, sizeof(w.text), "%.60s waits at plumb_grid_sync, line %d", who.text, lane->line);
		break;
	case FRESH:
	case READY:
		snprintf(w.text, sizeof(w.text), "%.60s runs", who.text);
		break;
	}
	return w;
}

/* "k<2>" of "(k<2>)". */
static struct words kernel_words(const struct plumb_simt_launch *launch)
{
	const char *name = launch->kernel;
	size_t length = strlen(name);
	struct words w;

	if (length >= 2 && name[0] == '(' && name[length - 1] == ')') {
		name++;
		length -= 2;
	}
	snprintf(w.text, sizeof(w.text), "%.*s", (int)(length < 150 ? length : 150), name);
	return w;
}

__attribute__((format(printf, 4, 5))) static void complain(
	struct plumb_simt_pool *pool, const struct lane *lane, int line, const char *format, ...)
{
	char *out = pool->simt->error;
	const size_t room = sizeof(pool->simt->error);
	const struct words kernel = kernel_words(pool->launch);
	const struct words thread = thread_words(lane);
	const struct plumb_simt_dim b = lane->warp->block->head.index;
	size_t used;
	va_list arguments;

	snprintf(out, room, "kernel %s, block (%u,%u,%u), %s", kernel.text, b.x, b.y, b.z, thread.text);
	used = strlen(out);
	if (line > 0)
		snprintf(out + used, room - used, ", line %d", line);
	used = strlen(out);
	snprintf(out + used, room - used, ": ");
	used = strlen(out);
	va_start(arguments, format);
	vsnprintf(out + used, room - used, format, arguments);
	va_end(arguments);
	used = strlen(out);
	snprintf(out + used, room - used, " [seed %" PRIu64 "]", pool->simt->seed);
}

/* Leave the launch from inside a thread, for good: its stack and all others are abandoned. */
_Noreturn static void abandon(struct plumb_simt_pool *pool)
{
	struct plumb_fiber *self = running()->fiber;

	pool->failed = true;
	plumb_fiber_switch(self, &pool->host);
	abort(); /* nobody switches back */
}

#define FAIL(lane, line, ...)                                                                                          \
	do {                                                                                                           \
		complain((lane)->pool, lane, line, __VA_ARGS__);                                                       \
		abandon((lane)->pool);                                                                                 \
	} while (0)

/* ---- chance ---- */

static uint64_t mix(uint64_t x)
{
	/* splitmix64's finaliser */
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint32_t chance(struct plumb_simt_pool *pool)
{
	uint64_t x = pool->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	pool->random = x;
	return (uint32_t)(x >> 32);
}

static bool one_in(struct plumb_simt_pool *pool, uint32_t n)
{
	return chance(pool) % n == 0;
}

static unsigned rotate_pick(uint32_t set, unsigned start)
{
	const uint32_t turned = set >> start | (start ? set << (32 - start) : 0);

	return ((unsigned)__builtin_ctz(turned) + start) & 31u;
}

/* ---- blocks and warps ---- */

static void make_ready(struct warp *warp, uint32_t lanes)
{
	warp->ready |= lanes;
	warp->block->runnable |= 1u << warp->index;
}

static void make_waiting(struct lane *lane)
{
	struct warp *warp = lane->warp;

	warp->ready &= ~(1u << lane->head.lane);
	if (!warp->ready)
		warp->block->runnable &= ~(1u << warp->index);
}

/* Starve about a quarter of the warps until nothing else can run: that is what shows a missing barrier best. */
static void choose_late(struct plumb_simt_pool *pool, struct block *block)
{
	if (pool->seeded)
		block->late = chance(pool) & chance(pool);
}

static void begin_block(struct plumb_simt_pool *pool, struct block *block)
{
	const struct plumb_simt_dim grid = pool->launch->grid;
	const uint64_t number = (pool->next_block++ * pool->stride + pool->offset) % pool->n_blocks;

	block->head.index.x = (unsigned)(number % grid.x);
	block->head.index.y = (unsigned)(number / grid.x % grid.y);
	block->head.index.z = (unsigned)(number / grid.x / grid.y);
	block->ended = block->arrived = 0;
	block->last_ended = block->barrier_first = NULL;
	block->n_arrays = 0;
	block->runnable = 0;
	block->late = 0;
	block->delayed = pool->seeded && one_in(pool, 4);
	choose_late(pool, block);
	for (unsigned i = 0; i < block->n_threads; i++)
		block->lanes[i].state = FRESH;
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

		/* The own block comes first and again last. Who gives way passes over the warps up to its own at first, so
		 * that a wait for any warp of any resident block ends. */
		if (leave && i == 0)
			set &= ~(uint32_t)(((uint64_t)2 << pool->warp->index) - 1);
		if (set)
			return &b->warps[rotate_pick(set, start)];
	}
	return NULL;
}

static struct warp *seeded_warp(struct plumb_simt_pool *pool, bool leave)
{
	struct block *late_block = NULL;

	if (!leave && pool->warp->ready)
		return pool->warp;
	const bool mercy = one_in(pool, 16); /* the late ones get a turn at times, or a wait for them never ended */
	const unsigned start = chance(pool) % pool->slots;

	for (unsigned i = 0; i < pool->slots; i++) {
		struct block *b = pool->blocks[(start + i) % pool->slots];

		if (!b->active || !b->runnable)
			continue;
		if (!mercy && (b->delayed || !(b->runnable & ~b->late))) {
			if (!late_block || !b->delayed)
				late_block = b;
			continue;
		}
		return &b->warps[rotate_pick(mercy ? b->runnable : b->runnable & ~b->late, chance(pool) & 31u)];
	}
	if (!late_block)
		return NULL;
	const uint32_t timely = late_block->runnable & ~late_block->late;

	return &late_block->warps[rotate_pick(timely ? timely : late_block->runnable, chance(pool) & 31u)];
}

/* The next thread to run; NULL when none can. */
static struct lane *pick(struct plumb_simt_pool *pool)
{
	const bool leave = pool->leave;
	struct warp *warp = pool->seeded ? seeded_warp(pool, leave) : natural_warp(pool, leave);

	pool->leave = false;
	if (!warp)
		return NULL;
	pool->warp = warp;
	return &warp->lanes[rotate_pick(warp->ready, pool->seeded ? chance(pool) & 31u : warp->first)];
}

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

/* Nobody can run: the end of the grid, or a deadlock. The launcher sees to both. `lane` is the thread that found out. */
static void no_one_left(struct plumb_simt_pool *pool)
{
	struct words shown[3];
	unsigned n_shown = 0, waiting = 0;
	const struct lane *first = NULL;

	if (pool->active == 0)
		return;
	memset(shown, 0, sizeof(shown));
	for (unsigned s = 0; s < pool->slots; s++) {
		const struct block *block = pool->blocks[s];

		if (!block->active)
			continue;
		for (unsigned i = 0; i < block->n_threads; i++) {
			if (block->lanes[i].state == ENDED)
				continue;
			waiting++;
			if (!first)
				first = &block->lanes[i];
			else if (n_shown < 3 && (i == 0 || block->lanes[i].state != block->lanes[i - 1].state ||
							block->lanes[i].line != block->lanes[i - 1].line))
				shown[n_shown++] = lane_words(&block->lanes[i]);
		}
	}
	const struct words words = lane_words(first);

	complain(pool, first, first->line, "deadlock, %u threads wait for ever: %s%s%s%s%s%s%s", waiting, words.text,
		n_shown > 0 ? "; " : "", shown[0].text, n_shown > 1 ? "; " : "", shown[1].text, n_shown > 2 ? "; " : "",
		shown[2].text);
	pool->failed = true;
}

/* Where the next thread's control is: its stack, a free one, or the launcher's. Makes it the current thread. */
static struct plumb_fiber *enter(struct plumb_simt_pool *pool, struct lane *next)
{
	if (!next) {
		no_one_left(pool);
		return &pool->host;
	}
	if (!next->fiber) {
		if (!pool->free_fibers && !more_fibers(pool)) {
			complain(pool, next, 0,
				"no memory for the stack of another thread (%u stacks of %zu bytes are in use; each takes two of the "
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
static void turn(struct lane *self)
{
	struct plumb_simt_pool *pool = self->pool;
	struct plumb_fiber *mine = self->fiber;
	struct lane *next = pick(pool);

	pool->turns++;
	if (next == self)
		return;
	struct plumb_fiber *there = enter(pool, next);

	pool->simt->switches++;
	plumb_fiber_switch(mine, there);
}

static void finish_collective(struct warp *warp, unsigned g);

static void lane_ends(struct plumb_simt_pool *pool, struct lane *lane)
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
			FAIL(lane, 0, "exits although %s and names it", lane_words(other).text);
		if (!(group->mask & warp->exist & ~warp->ended & ~group->arrived))
			finish_collective(warp, g--);
	}
	if (block->arrived && !pool->simt->relaxed)
		FAIL(lane, 0, "divergent barrier: exits although %s", lane_words(block->barrier_first).text);
	if (pool->grid_arrived)
		FAIL(lane, 0, "divergent grid barrier: exits although other threads wait at plumb_grid_sync");
	pool->grid_ended++;
}

static void finish_barrier(struct block *block);

/* What a stack does: run threads from their beginning, one after another, until the next one to run is elsewhere. */
static void carry(void *argument)
{
	struct plumb_simt_pool *pool = argument;

	plumb_fiber_entered();
	for (;;) {
		struct lane *lane = running();
		struct plumb_fiber *mine = lane->fiber;
		struct block *block = lane->warp->block;

		lane->state = READY;
		pool->launch->thread(pool->launch->argument);
		lane_ends(pool, lane);
		lane->fiber = NULL;
		if (block->ended == block->n_threads) {
			block->active = false;
			pool->active--;
			if (pool->next_block < pool->n_blocks)
				begin_block(pool, block);
		} else if (block->arrived && block->arrived + block->ended == block->n_threads) {
			finish_barrier(block); /* relaxed: those who left count as arrived */
		}
		/* The stack is free before the next thread is chosen, and on top of the list: a fresh thread gets it back. */
		mine->next = pool->free_fibers;
		pool->free_fibers = mine;
		struct plumb_fiber *there = enter(pool, pick(pool));

		if (there != mine) {
			pool->simt->switches++;
			plumb_fiber_switch(mine, there);
		}
	}
}

/* ---- warp collectives ---- */

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

static void finish_collective(struct warp *warp, unsigned g)
{
	const struct group group = warp->group[g];
	struct lane *lanes = warp->lanes;
	struct plumb_simt_pool *pool = lanes[0].pool;
	uint64_t common = 0;
	uint32_t trues = 0;

	warp->group[g] = warp->group[--warp->groups];
	if (group.kind <= PLUMB_SIMT_ALL) {
		if (group.kind != PLUMB_SIMT_SYNCWARP) {
			for (uint32_t rest = group.arrived; rest; rest &= rest - 1)
				trues |= lanes[__builtin_ctz(rest)].value ? rest & -rest : 0;
			common = group.kind == PLUMB_SIMT_BALLOT ? trues
				: group.kind == PLUMB_SIMT_ANY	 ? trues != 0
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
					kind_name(group.kind), group.mask, lane->source,
					!exists				      ? "does not exist in this block"
					: group.mask >> lane->source & 1u ? "has exited"
									      : "the mask does not name");
			}
			lane->result = lanes[lane->source].value;
			lane->state = READY;
		}
	}
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
		FAIL(self, line, "%s mask 0x%08" PRIx32 " does not name the calling lane %u", kind_name(kind), mask,
			self->head.lane);
	for (unsigned g = 0; g < warp->groups; g++) {
		const struct group *group = &warp->group[g];
		const uint32_t named = group->arrived & mask;

		if (named && (group->mask != mask || group->kind != kind))
			FAIL(self, line, "%s mask 0x%08" PRIx32 " names lane %d, but %s", kind_name(kind), mask,
				__builtin_ctz(named), lane_words(&warp->lanes[__builtin_ctz(named)]).text);
	}
	if (mask & warp->at_barrier)
		FAIL(self, line, "%s mask 0x%08" PRIx32 " names lane %d, but %s", kind_name(kind), mask,
			__builtin_ctz(mask & warp->at_barrier),
			lane_words(&warp->lanes[__builtin_ctz(mask & warp->at_barrier)]).text);
	if (mask & warp->ended && !self->pool->simt->relaxed)
		FAIL(self, line, "%s mask 0x%08" PRIx32 " names lane %d, but %s", kind_name(kind), mask,
			__builtin_ctz(mask & warp->ended),
			lane_words(&warp->lanes[__builtin_ctz(mask & warp->ended)]).text);
}

uint64_t plumb_simt_collective(enum plumb_simt_kind kind, uint32_t mask, uint64_t value, int by, int width, int line)
{
	struct lane *self = running();
	struct warp *warp = self->warp;
	struct plumb_simt_pool *pool = self->pool;
	const uint32_t bit = 1u << self->head.lane;
	unsigned g = 0;

	if (__builtin_expect(width < 1 || width > WARP || (width & (width - 1)), 0))
		FAIL(self, line, "%s has width %d, not a power of two of at most 32", kind_name(kind), width);
	self->kind = kind;
	self->mask = mask;
	self->line = line;
	self->value = value;
	self->source = shuffle_source(kind, self->head.lane, by, width);
	while (g < warp->groups && (warp->group[g].mask != mask || warp->group[g].kind != kind))
		g++;
	if (__builtin_expect(!(mask & bit) || warp->groups > (g < warp->groups) || (mask & (warp->at_barrier | warp->ended)), 0))
		check_arrival(self, kind, mask, line);
	if (g == warp->groups)
		warp->group[warp->groups++] = (struct group){.mask = mask, .kind = kind};
	warp->group[g].arrived |= bit;
	self->state = AT_WARP;
	make_waiting(self);
	if (!(mask & warp->exist & ~warp->ended & ~warp->group[g].arrived)) {
		finish_collective(warp, g);
		pool->leave = pool->seeded && one_in(pool, 8);
	}
	turn(self);
	return self->result;
}

/* ---- block and grid barriers ---- */

static void finish_barrier(struct block *block)
{
	struct plumb_simt_pool *pool = block->lanes[0].pool;
	const unsigned present = block->arrived;

	block->barrier_result = block->barrier_kind == PLUMB_SIMT_BARRIER_COUNT ? (int)block->trues
		: block->barrier_kind == PLUMB_SIMT_BARRIER_OR			? block->trues > 0
		: block->barrier_kind == PLUMB_SIMT_BARRIER_AND			? block->trues == present
										: 0;
	block->arrived = 0;
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
	choose_late(pool, block);
	pool->leave = pool->seeded;
}

/* The running thread is about to wait for more than its warp: no lane of the warp may be waiting for it. */
static void leave_warp(struct lane *self, const char *where, int line)
{
	struct warp *warp = self->warp;

	for (unsigned g = 0; g < warp->groups; g++) {
		if (warp->group[g].mask >> self->head.lane & 1u)
			FAIL(self, line, "waits at %s, but %s and names it", where,
				lane_words(&warp->lanes[__builtin_ctz(warp->group[g].arrived)]).text);
	}
}

int plumb_simt_barrier(enum plumb_simt_kind kind, int predicate, int line)
{
	struct lane *self = running();
	struct warp *warp = self->warp;
	struct block *block = warp->block;

	if (warp->groups)
		leave_warp(self, kind_name(kind), line);
	if (block->ended && !self->pool->simt->relaxed)
		FAIL(self, line, "divergent barrier: waits at %s, but %s", kind_name(kind),
			lane_words(block->last_ended).text);
	if (block->arrived == 0) {
		block->barrier_first = self;
		block->barrier_kind = kind;
		block->trues = 0;
	} else if (block->barrier_kind != kind || (block->barrier_first->line != line && !self->pool->simt->relaxed)) {
		FAIL(self, line, "divergent barrier: waits at %s, but %s", kind_name(kind),
			lane_words(block->barrier_first).text);
	}
	self->kind = kind;
	self->line = line;
	self->state = AT_BARRIER;
	make_waiting(self);
	warp->at_barrier |= 1u << self->head.lane;
	block->arrived++;
	block->trues += predicate != 0;
	if (block->arrived + block->ended == block->n_threads)
		finish_barrier(block);
	turn(self);
	return block->barrier_result;
}

void plumb_simt_grid_barrier(unsigned *counter, int line)
{
	struct lane *self = running();
	struct plumb_simt_pool *pool = self->pool;
	struct block *block = self->warp->block;

	if (!pool->launch->cooperative)
		FAIL(self, line, "plumb_grid_sync in a launch that is not cooperative");
	if (pool->grid_ended)
		FAIL(self, line, "divergent grid barrier: waits at plumb_grid_sync, but another thread has exited");
	if (self->warp->groups)
		leave_warp(self, "plumb_grid_sync", line);
	/* It begins and ends with a __syncthreads, so that one cannot be pending. */
	if (block->arrived)
		FAIL(self, line, "waits at plumb_grid_sync, but %s", lane_words(block->barrier_first).text);
	self->line = line;
	self->state = AT_GRID;
	make_waiting(self);
	if (++pool->grid_arrived == pool->n_blocks * block->n_threads) {
		pool->grid_arrived = 0;
		pool->spins = 0;
		*counter ^= 0x80000000u; /* what cuda leaves in it */
		for (unsigned s = 0; s < pool->slots; s++) {
			struct block *b = pool->blocks[s];

			for (unsigned i = 0; i < b->n_threads; i++)
				b->lanes[i].state = READY;
			for (unsigned w = 0; w < b->n_warps; w++)
				make_ready(&b->warps[w], b->warps[w].exist);
			choose_late(pool, b);
			b->delayed = pool->seeded && one_in(pool, 4);
		}
		pool->leave = pool->seeded;
	}
	turn(self);
}

/* ---- other places to take turns ---- */

void plumb_simt_give_way(enum plumb_simt_point point, int line)
{
	struct lane *self = running();
	struct plumb_simt_pool *pool = self->pool;

	if (point != PLUMB_SIMT_AT_FENCE && ++pool->spins > pool->spin_limit)
		FAIL(self, line,
			"deadlock or no progress: %" PRIu64 " atomics without one thread ending or one barrier completed; it waits "
			"for what never comes, or spin_limit is too low",
			pool->spin_limit);
	if (pool->seeded) {
		/* A thread mostly gives way to its warp's other lanes, often to another warp, at times to none. */
		const uint32_t draw = chance(pool) & 7u;

		if (draw == 0 && point != PLUMB_SIMT_AT_SLEEP)
			return;
		pool->leave = draw < 4 || point == PLUMB_SIMT_AT_SLEEP;
	} else {
		if (point != PLUMB_SIMT_AT_SLEEP && (point == PLUMB_SIMT_AT_FENCE || pool->spins % SPINS_PER_TURN))
			return;
		pool->leave = true;
		self->warp->first = (self->head.lane + 1) & 31u;
	}
	turn(self);
}

/* ---- shared memory ---- */

void *plumb_simt_shared(const struct plumb_simt_shared_array *array)
{
	struct lane *self = running();
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
		FAIL(self, array->line, "shared array %s of %zu bytes: the block already has %zu and the limit is %zu", array->name,
			array->bytes, offset, pool->shared_limit);
	block->arrays[block->n_arrays].array = array;
	block->arrays[block->n_arrays++].offset = offset;
	block->shared_bytes = offset + bytes;
	for (size_t i = 0; i < bytes; i += 4)
		memcpy(block->shared + offset + i, &pool->poison, 4);
	return block->shared + offset;
}

void plumb_simt_fail_index(const char *name, long long index, size_t count, size_t element_bytes)
{
	FAIL(running(), 0, "shared array %s has %zu elements of %zu bytes, index %lld is out of range", name, count,
		element_bytes, index);
}

void plumb_simt_fail_aligned(const void *address, size_t alignment)
{
	FAIL(running(), 0, "a load or view of %zu bytes at address %p, which is not a multiple of it", alignment, address);
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
	free_blocks(simt->pool);
	drop_fibers(simt->pool);
	free(simt->pool);
	simt->pool = NULL;
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

__attribute__((format(printf, 3, 4))) static int refuse(
	struct plumb_simt *simt, const struct plumb_simt_launch *launch, const char *format, ...)
{
	const struct words kernel = kernel_words(launch);
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

static bool prepare(struct plumb_simt_pool *pool, unsigned slots, unsigned n_threads, size_t stack_bytes, size_t shared_limit)
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

static void choose_order(struct plumb_simt_pool *pool)
{
	const uint64_t seed = pool->simt->seed;
	uint64_t random = seed;

	/* The kernel's name joins in, so that kernels of one run do not share a schedule; history does not, so that seed and
	 * kernel replay one alone. */
	for (const char *c = pool->launch->kernel; *c; c++)
		random = mix(random ^ (unsigned char)*c);
	pool->random = random | 1;
	pool->seeded = seed != 0;
	pool->stride = 1;
	pool->offset = 0;
	if (pool->seeded && pool->n_blocks > 1) {
		pool->offset = mix(random) % pool->n_blocks;
		pool->stride = mix(random + 1) % pool->n_blocks;
		while (gcd(pool->stride, pool->n_blocks) != 1)
			pool->stride = (pool->stride + 1) % pool->n_blocks;
	}
	const bool large = pool->simt->poison == PLUMB_SIMT_POISON_LARGE ||
		(pool->simt->poison == PLUMB_SIMT_POISON_BY_SEED && seed % 2);
	const uint32_t bits = (uint32_t)(mix(seed) >> 32);

	/* Both halves are also a NaN or about 4e37 as bf16. The low bits differ by seed: a comparison of two runs sees what a
	 * test for NaN does not. */
	pool->poison = large ? 0x7e007e00u | (bits & 0x003f003fu) : 0x7fc07fc0u | (bits & 0x803f803fu);
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
	uint64_t slots = simt->resident > 0 ? (uint64_t)simt->resident : simt->seed ? DEFAULT_RESIDENT : 1;

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
	choose_order(pool);
	for (unsigned s = 0; s < pool->slots; s++)
		begin_block(pool, pool->blocks[s]);
	pool->warp = &pool->blocks[0]->warps[0];
	pool->leave = pool->seeded;

	plumb_fiber_adopt(&pool->host);
	struct plumb_fiber *there = enter(pool, pick(pool));

	if (there != &pool->host)
		plumb_fiber_switch(&pool->host, there);
	plumb_simt_now = NULL;
	simt->yields += pool->turns;
	if (pool->failed) {
		reset_fibers(pool);
		return PLUMB_SIMT_FAULT;
	}
	return PLUMB_SIMT_OK;
}
