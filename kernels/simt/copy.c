/* SPDX-License-Identifier: MIT */
/* Copies from global to shared memory that come later. One comes at the wait that makes it come, at the latest time that the
 * device allows, and until then its place holds poison, so that a wait which is missing or too weak shows in the bits. */
#include <stdlib.h>
#include <string.h>

#include "kernels/simt/state.h"

enum { COPIES = 1024 }; /* taken from malloc at a time */

struct copy_slab {
	struct copy_slab *next;
	struct copy copies[COPIES];
};

static struct copy *take(struct lane *lane, int line)
{
	struct plumb_simt_pool *pool = lane->pool;

	if (!pool->free_copies) {
		struct copy_slab *slab = malloc(sizeof(*slab));

		if (!slab)
			FAIL(lane, line, "no memory for another asynchronous copy");
		slab->next = pool->copy_slabs;
		pool->copy_slabs = slab;
		for (int i = 0; i < COPIES; i++) {
			slab->copies[i].next = pool->free_copies;
			pool->free_copies = &slab->copies[i];
		}
	}
	struct copy *copy = pool->free_copies;

	pool->free_copies = copy->next;
	return copy;
}

void plumb_simt_copy(void *to, const void *value, size_t bytes, int line)
{
	struct lane *self = plumb_simt_running();
	struct copy *copy = take(self, line);

	plumb_simt_race_store(to, bytes);
	for (size_t i = 0; i < bytes; i += sizeof(self->pool->poison))
		memcpy((unsigned char *)to + i, &self->pool->poison, sizeof(self->pool->poison));
	copy->next = NULL;
	copy->to = to;
	memcpy(copy->value, value, bytes);
	copy->bytes = bytes;
	copy->group = self->copy_groups;
	copy->line = line;
	if (!self->copies)
		self->copies_end = &self->copies;
	*self->copies_end = copy;
	self->copies_end = &copy->next;
}

void plumb_simt_copy_commit(void)
{
	plumb_simt_running()->copy_groups++;
}

void plumb_simt_copy_wait(unsigned groups)
{
	struct lane *self = plumb_simt_running();

	while (self->copies && self->copies->group + groups < self->copy_groups) {
		struct copy *copy = self->copies;

		plumb_simt_race_store(copy->to, copy->bytes);
		memcpy(copy->to, copy->value, copy->bytes);
		self->copies = copy->next;
		copy->next = self->pool->free_copies;
		self->pool->free_copies = copy;
	}
}

void plumb_simt_copy_end(void)
{
	struct lane *self = plumb_simt_running();

	if (self->copies)
		FAIL(self, self->copies->line, "exits before a copy that it asked for with plumb_copy_async has come");
}

void plumb_simt_copy_free(struct plumb_simt_pool *pool)
{
	while (pool->copy_slabs) {
		struct copy_slab *slab = pool->copy_slabs;

		pool->copy_slabs = slab->next;
		free(slab);
	}
	pool->free_copies = NULL;
}
