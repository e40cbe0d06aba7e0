/* SPDX-License-Identifier: MIT */
/* What the simt device says when a kernel does what is undefined or never ends. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/simt/state.h"

const char *plumb_simt_kind_name(enum plumb_simt_kind kind)
{
	static const char *const names[] = {
		[PLUMB_SIMT_SYNCWARP] = "__syncwarp",
		[PLUMB_SIMT_BALLOT] = "__ballot_sync",
		[PLUMB_SIMT_ANY] = "__any_sync",
		[PLUMB_SIMT_ALL] = "__all_sync",
		[PLUMB_SIMT_MAX] = "__reduce_max_sync",
		[PLUMB_SIMT_MIN] = "__reduce_min_sync",
		[PLUMB_SIMT_SUM] = "plumb_warp_sum",
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

static struct words thread_words(const struct lane *lane)
{
	struct words w;
	const struct plumb_simt_dim i = lane->head.index;

	snprintf(w.text, sizeof(w.text), "thread (%u,%u,%u)", i.x, i.y, i.z);
	return w;
}

struct words plumb_simt_lane_words(const struct lane *lane)
{
	const struct words who = thread_words(lane);
	struct words w;

	switch (lane->state) {
	case ENDED:
		snprintf(w.text, sizeof(w.text), "%.60s has exited", who.text);
		break;
	case AT_BARRIER:
		snprintf(w.text, sizeof(w.text), "%.60s waits at %s, line %d", who.text, plumb_simt_kind_name(lane->kind),
			lane->line);
		break;
	case AT_WARP:
		snprintf(w.text, sizeof(w.text), "%.60s waits at %s mask 0x%08" PRIx32 ", line %d", who.text,
			plumb_simt_kind_name(lane->kind), lane->mask, lane->line);
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

struct words plumb_simt_kernel_words(const struct plumb_simt_launch *launch)
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

void plumb_simt_complain(struct plumb_simt_pool *pool, const struct lane *lane, int line, const char *format, ...)
{
	char *out = pool->simt->error;
	const size_t room = sizeof(pool->simt->error);
	const struct words kernel = plumb_simt_kernel_words(pool->launch);
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

_Noreturn void plumb_simt_abandon(struct plumb_simt_pool *pool)
{
	struct plumb_fiber *self = plumb_simt_running()->fiber;

	pool->failed = true;
	plumb_fiber_switch(self, &pool->host);
	abort(); /* nobody switches back */
}

void plumb_simt_no_one_left(struct plumb_simt_pool *pool)
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
							block->lanes[i].line != block->lanes[i - 1].line ||
							block->lanes[i].mask != block->lanes[i - 1].mask))
				shown[n_shown++] = plumb_simt_lane_words(&block->lanes[i]);
		}
	}
	const struct words words = plumb_simt_lane_words(first);

	plumb_simt_complain(pool, first, first->line, "deadlock, %u threads wait for ever: %s%s%s%s%s%s%s", waiting,
		words.text, n_shown > 0 ? "; " : "", shown[0].text, n_shown > 1 ? "; " : "", shown[1].text,
		n_shown > 2 ? "; " : "", shown[2].text);
	pool->failed = true;
}
