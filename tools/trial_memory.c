/* SPDX-License-Identifier: MIT */
/* Memory of a trial, between zones and traps; dense, or address space of which only some ranges are used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/trial_private.h"

enum { ALIGNMENT = 64 };

void *trial_take(size_t bytes)
{
	void *m = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
	if (!m) {
		fprintf(stderr, "trial: out of memory for %zu bytes\n", bytes);
		exit(99);
	}
	return m;
}

void trial_memory_make(struct trial_memory *m, size_t bytes, const struct trial_layout *layout)
{
	const size_t page = plumb_trap_page(), slack = layout->align + layout->skew;
	const size_t room = (TRIAL_ZONE + bytes + slack + page - 1) / page * page;
	unsigned char *block = plumb_trap_map(room);

	if (!block) {
		fprintf(stderr, "trial: no address space for %zu bytes\n", bytes);
		exit(99);
	}
	const size_t start = plumb_trap_place(bytes, room, layout->align, layout->skew, layout->turn);
	*m = (struct trial_memory){.block = block, .bytes = bytes, .block_bytes = room, .sparse = layout->sparse};
	m->data = m->block + start;
	if (m->sparse)
		madvise(m->block, room, MADV_NOHUGEPAGE);
	memset(m->block, TRIAL_ZONE_BYTE, m->sparse ? start : room);
	if (m->sparse)
		memset(m->data + bytes, TRIAL_ZONE_BYTE, room - start - bytes);
	m->trap = (struct plumb_trap){.name = layout->name,
		.part = layout->part,
		.data = m->data,
		.bytes = bytes,
		.element = layout->element,
		.low = block - PLUMB_TRAP_SIDE,
		.high = block + room + PLUMB_TRAP_SIDE};
	plumb_trap_add(&m->trap);
}

void trial_memory_free(struct trial_memory *m)
{
	if (m->block) {
		plumb_trap_remove(&m->trap);
		plumb_trap_unmap(m->block, m->block_bytes);
	}
	free(m->range);
	*m = (struct trial_memory){0};
}

void trial_memory_add(struct trial_memory *m, size_t start, size_t bytes)
{
	struct trial_range *more = realloc(m->range, (size_t)(m->ranges + 1) * sizeof *more);
	if (!more)
		abort();
	m->range = more;
	m->range[m->ranges++] = (struct trial_range){start, bytes};
}

size_t trial_memory_live(const struct trial_memory *m)
{
	size_t bytes = 0;
	if (!m->sparse)
		return m->bytes;
	for (int64_t i = 0; i < m->ranges; i++)
		bytes += m->range[i].bytes;
	return bytes;
}

void trial_memory_gather(const struct trial_memory *m, unsigned char *to)
{
	if (!m->sparse)
		memcpy(to, m->data, m->bytes);
	for (int64_t i = 0; m->sparse && i < m->ranges; to += m->range[i++].bytes)
		memcpy(to, m->data + m->range[i].start, m->range[i].bytes);
}

void trial_memory_scatter(struct trial_memory *m, const unsigned char *from)
{
	if (!m->sparse)
		memcpy(m->data, from, m->bytes);
	for (int64_t i = 0; m->sparse && i < m->ranges; from += m->range[i++].bytes)
		memcpy(m->data + m->range[i].start, from, m->range[i].bytes);
}

bool trial_memory_intact(const struct trial_memory *m)
{
	const unsigned char *end = m->data + m->bytes;
	const size_t lead = (size_t)(m->data - m->block), rest = m->block_bytes - lead - m->bytes;

	for (size_t i = 1; i <= TRIAL_ZONE && i <= lead; i++)
		if (m->data[-(ptrdiff_t)i] != TRIAL_ZONE_BYTE)
			return false;
	for (size_t i = 0; i < TRIAL_ZONE && i < rest; i++)
		if (end[i] != TRIAL_ZONE_BYTE)
			return false;
	return true;
}

unsigned char *trial_memory_keep(const struct trial_memory *m)
{
	unsigned char *copy = trial_take(trial_memory_live(m));
	trial_memory_gather(m, copy);
	return copy;
}

bool trial_memory_is(const struct trial_memory *m, const unsigned char *kept)
{
	if (!m->sparse)
		return memcmp(m->data, kept, m->bytes) == 0;
	for (int64_t i = 0; i < m->ranges; kept += m->range[i++].bytes)
		if (memcmp(m->data + m->range[i].start, kept, m->range[i].bytes) != 0)
			return false;
	return true;
}
