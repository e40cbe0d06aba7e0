/* SPDX-License-Identifier: MIT */
/* Memory of a trial, between zones; dense, or address space of which only some ranges are used. */
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

void trial_memory_make(struct trial_memory *m, size_t bytes, bool sparse)
{
	*m = (struct trial_memory){.bytes = bytes, .block_bytes = bytes + 2 * TRIAL_ZONE, .sparse = sparse};
	if (!sparse) {
		m->block = trial_take(m->block_bytes);
		memset(m->block, TRIAL_ZONE_BYTE, m->block_bytes);
	} else {
		m->block = mmap(
			NULL, m->block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (m->block == MAP_FAILED) {
			fprintf(stderr, "trial: no address space for %zu bytes\n", bytes);
			exit(99);
		}
		madvise(m->block, m->block_bytes, MADV_NOHUGEPAGE);
		memset(m->block, TRIAL_ZONE_BYTE, TRIAL_ZONE);
		memset(m->block + TRIAL_ZONE + bytes, TRIAL_ZONE_BYTE, TRIAL_ZONE);
	}
	m->data = m->block + TRIAL_ZONE;
}

void trial_memory_free(struct trial_memory *m)
{
	if (m->sparse)
		munmap(m->block, m->block_bytes);
	else
		free(m->block);
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
	for (size_t i = 0; i < TRIAL_ZONE; i++)
		if (m->block[i] != TRIAL_ZONE_BYTE || m->data[m->bytes + i] != TRIAL_ZONE_BYTE)
			return false;
	return true;
}

unsigned char *trial_memory_keep(const struct trial_memory *m)
{
	unsigned char *copy = trial_take(m->sparse ? trial_memory_live(m) : m->block_bytes);
	if (m->sparse)
		trial_memory_gather(m, copy);
	else
		memcpy(copy, m->block, m->block_bytes);
	return copy;
}

void trial_memory_back(struct trial_memory *m, const unsigned char *kept)
{
	if (m->sparse)
		trial_memory_scatter(m, kept);
	else
		memcpy(m->block, kept, m->block_bytes);
}

bool trial_memory_is(const struct trial_memory *m, const unsigned char *kept)
{
	if (!m->sparse)
		return memcmp(m->block, kept, m->block_bytes) == 0;
	for (int64_t i = 0; i < m->ranges; kept += m->range[i++].bytes)
		if (memcmp(m->data + m->range[i].start, kept, m->range[i].bytes) != 0)
			return false;
	return true;
}
