/* SPDX-License-Identifier: MIT */
#include "opt/trap.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRONT = 3, TURNS = 4 };

static struct plumb_trap *first;
static atomic_flag changing = ATOMIC_FLAG_INIT;

static void begin_change(void)
{
	while (atomic_flag_test_and_set(&changing))
		;
}

void plumb_trap_add(struct plumb_trap *trap)
{
	begin_change();
	trap->before = NULL;
	trap->next = first;
	if (first)
		first->before = trap;
	first = trap;
	atomic_flag_clear(&changing);
}

void plumb_trap_remove(struct plumb_trap *trap)
{
	begin_change();
	if (trap->before)
		trap->before->next = trap->next;
	else
		first = trap->next;
	if (trap->next)
		trap->next->before = trap->before;
	atomic_flag_clear(&changing);
}

/* How far at lies outside; 0: not in what belongs to the trap, or inside the operand. */
static size_t outside(const struct plumb_trap *t, const unsigned char *at)
{
	const unsigned char *end = t->data + t->bytes;
	if (at < t->low || at >= t->high)
		return 0;
	return at >= end ? (size_t)(at - end) + 1 : at < t->data ? (size_t)(t->data - at) : 0;
}

bool plumb_trap_tell(const void *address, int write, char *text, size_t size)
{
	const unsigned char *at = address;
	const char *did = write < 0 ? "touched memory" : write ? "wrote" : "read";
	const struct plumb_trap *near = NULL;
	size_t least = SIZE_MAX;

	for (const struct plumb_trap *t = first; t; t = t->next) /* neighbours share a page */
		if (outside(t, at) && outside(t, at) < least) {
			near = t;
			least = outside(t, at);
		}
	text[0] = '\0';
	if (!near)
		return false;
	const bool after = at >= near->data;
	const size_t far = after ? least - 1 : least;
	int n = snprintf(text, size, "%s %s %s%s: ", did, after ? "after" : "before", near->part, near->name);
	if (near->element && n > 0 && (size_t)n < size) {
		const int64_t e = after ? (int64_t)((near->bytes + far) / near->element)
		                        : -(int64_t)((far + near->element - 1) / near->element);
		n += snprintf(text + n, size - (size_t)n, "element %" PRId64 " of %zu, ", e, near->bytes / near->element);
	}
	if (n > 0 && (size_t)n < size)
		snprintf(text + n, size - (size_t)n, "%zu bytes %s", far, after ? "after the last" : "before the first");
	return true;
}

int plumb_trap_is_write(const void *context)
{
#if defined(__x86_64__)
	enum { WRITE = 2 }; /* of the page fault's error code */
	return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & WRITE ? 1 : 0;
#else
	(void)context;
	return -1;
#endif
}

size_t plumb_trap_page(void)
{
	static size_t page;
	if (!page)
		page = (size_t)sysconf(_SC_PAGESIZE);
	return page;
}

unsigned char *plumb_trap_map(size_t room)
{
	const size_t sides = 2 * (size_t)PLUMB_TRAP_SIDE;
	if (room > SIZE_MAX - sides)
		return NULL;
	unsigned char *map = mmap(NULL, room + sides, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	if (mprotect(map + PLUMB_TRAP_SIDE, room, PROT_READ | PROT_WRITE) != 0) {
		munmap(map, room + sides);
		return NULL;
	}
	return map + PLUMB_TRAP_SIDE;
}

void plumb_trap_unmap(unsigned char *memory, size_t room)
{
	if (memory)
		munmap(memory - PLUMB_TRAP_SIDE, room + 2 * (size_t)PLUMB_TRAP_SIDE);
}

size_t plumb_trap_place(size_t bytes, size_t room, size_t align, size_t skew, uint64_t turn)
{
	skew %= align;
	return turn % TURNS == FRONT ? skew : (room - bytes - skew) / align * align + skew;
}
