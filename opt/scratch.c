/* SPDX-License-Identifier: MIT */
/* Scratch of ops: the same memory at every call, or, with traps, as near as possible to memory that nobody may touch. */
#include "opt/device_private.h"

enum { LEAST = 4096, WIDE = 16 }; /* bytes; WIDE: of the widest load */

static const char *const names[PLUMB_SCRATCH_SLOTS] = {"scratch slot 0", "scratch slot 1", "scratch slot 2",
	"scratch slot 3", "scratch slot 4", "scratch slot 5", "scratch slot 6", "scratch slot 7"};

/* Of memory, zones and all. */
static size_t whole(const struct plumb_device *d, size_t room)
{
	const size_t page = d->options.traps ? plumb_trap_page() : 1;
	return (room + 2 * (size_t)PLUMB_GUARD_ZONE + page - 1) / page * page;
}

static void let_go(struct plumb_device *d, struct plumb_scratch *s)
{
	if (!d->options.traps) {
		d->backend->give(d, s->memory);
	} else if (s->memory) {
		plumb_trap_remove(&s->trap);
		plumb_trap_unmap(s->memory, whole(d, s->room));
	}
	*s = (struct plumb_scratch){.memory = NULL};
}

void plumb_scratch_drop(struct plumb_device *d)
{
	for (int i = 0; i < PLUMB_SCRATCH_SLOTS; i++)
		let_go(d, &d->scratch[i]);
}

static int make(struct plumb_device *d, int slot, size_t bytes, struct plumb_error *err)
{
	struct plumb_scratch *s = &d->scratch[slot];
	const size_t room = plumb_device_grown(LEAST, bytes);

	if (room > SIZE_MAX / 2)
		return plumb_fail(err, PLUMB_BAD_INPUT, "scratch of %zu bytes is out of range", bytes);
	if (d->options.traps) { /* no graph has been captured that names the old one */
		int status = plumb_device_sync(d, err);
		if (status != PLUMB_OK)
			return status;
		let_go(d, s);
		unsigned char *memory = plumb_trap_map(whole(d, room));
		if (!memory)
			return plumb_fail(err, PLUMB_BAD_INPUT, "no address space for scratch of %zu bytes", bytes);
		*s = (struct plumb_scratch){.memory = memory, .room = room};
		s->trap = (struct plumb_trap){.name = names[slot],
			.part = "",
			.data = memory,
			.low = memory - PLUMB_TRAP_SIDE,
			.high = memory + whole(d, room) + PLUMB_TRAP_SIDE};
		plumb_trap_add(&s->trap);
		return PLUMB_OK;
	}
	unsigned char *memory = d->backend->take(d, whole(d, room), err);
	if (!memory || plumb_device_retire(d, s->memory, err) != PLUMB_OK) {
		d->backend->give(d, memory);
		return PLUMB_BAD_INPUT;
	}
	*s = (struct plumb_scratch){
		.memory = memory, .data = memory + PLUMB_GUARD_ZONE, .room = room, .after = PLUMB_GUARD_ZONE};
	return PLUMB_OK;
}

/* With traps: bytes at the end of memory. */
static void place(const struct plumb_device *d, struct plumb_scratch *s, size_t bytes)
{
	s->data = s->memory + plumb_trap_place(bytes, whole(d, s->room), WIDE, 0, 0);
	s->after = (size_t)(s->memory + whole(d, s->room) - s->data) - bytes;
	s->trap.data = s->data;
	s->trap.bytes = bytes;
}

void *plumb_device_scratch(const struct plumb_env *env, int slot, size_t bytes)
{
	struct plumb_device *d = env->device;
	int status = PLUMB_OK;

	if (slot < 0 || slot >= PLUMB_SCRATCH_SLOTS) {
		plumb_fail(env->err, PLUMB_BAD_INPUT, "%s: scratch slot %d, expected 0..%d", d->op ? d->op : "an op", slot,
			PLUMB_SCRATCH_SLOTS - 1);
		return NULL;
	}
	struct plumb_scratch *s = &d->scratch[slot];
	bytes = bytes ? (bytes + 3) / 4 * 4 : 4;
	if ((bytes > s->room || !s->memory) && make(d, slot, bytes, env->err) != PLUMB_OK)
		return NULL;
	if (bytes <= s->asked) /* one fill an op: what an op has put there stays between its requests */
		return s->data;
	const bool first = s->asked == 0 || d->options.traps;
	if (d->options.traps)
		place(d, s, bytes);
	s->asked = bytes;
	if (d->poison == PLUMB_POISON_OFF)
		return s->data;
	if (first)
		status = plumb_device_fill(d, s->data - PLUMB_GUARD_ZONE, PLUMB_GUARD_ZONE, env->err);
	if (status == PLUMB_OK && first)
		status = plumb_device_fill(d, s->data, bytes, env->err);
	if (status == PLUMB_OK)
		status = plumb_device_fill(d, s->data + bytes, s->after, env->err);
	return status == PLUMB_OK ? s->data : NULL;
}

int plumb_scratch_check(struct plumb_device *d, struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int i = 0; i < PLUMB_SCRATCH_SLOTS && status == PLUMB_OK && d->poison != PLUMB_POISON_OFF; i++) {
		const struct plumb_scratch *s = &d->scratch[i];
		if (s->asked)
			status = plumb_device_zones(d, s->data, s->asked, s->after, names[i], err);
	}
	return status;
}
