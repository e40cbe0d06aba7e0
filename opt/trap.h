/* SPDX-License-Identifier: MIT */
/* Operands and scratch between pages that nobody may touch: a read or a write outside ends the process there, and
 * whoever handles the signal asks here what it was. A guard zone shows writes alone, and a read outside only where the
 * result follows it.
 *
 * LIMIT: only one end of the data touches such a page; at the other, and where a format or an alignment leaves a gap,
 * there is a guard zone. */
#ifndef PLUMB_OPT_TRAP_H
#define PLUMB_OPT_TRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* data, bytes: of the operand. low .. high: its memory with what traps on both sides. name, part: "x", "scales of "; both
 * borrowed. element: bytes of one; 0: they have no common size. */
struct plumb_trap {
	const char *name, *part;
	const unsigned char *data, *low, *high;
	size_t bytes, element;
	struct plumb_trap *next, *before; /* its own */
};

/* Known until removed; the struct stays where it is. Any thread. */
void plumb_trap_add(struct plumb_trap *trap);
void plumb_trap_remove(struct plumb_trap *trap);

/* "read after x: element 17 of 16 (4 bytes after the last)"; false, with text empty: the address is none of theirs.
 * write: -1: not known. For a signal's handler: it takes no lock. */
bool plumb_trap_tell(const void *address, int write, char *text, size_t size);

/* Whether the access that failed was a write, by the third argument of a signal's handler; -1: this machine does not
 * say. */
int plumb_trap_is_write(const void *context);

size_t plumb_trap_page(void);

/* room bytes, a whole number of pages, all zero, with PLUMB_TRAP_SIDE bytes of address space on both sides that nobody
 * may touch. NULL: there is no room for that. */
enum { PLUMB_TRAP_SIDE = 1 << 20 };
unsigned char *plumb_trap_map(size_t room);
void plumb_trap_unmap(unsigned char *memory, size_t room); /* of the same room; memory may be NULL */

/* Where data of that many bytes lies in `room`, a whole number of pages: at the end, or at turn % 4 == 3 at the beginning,
 * at an address that is skew modulo align. */
size_t plumb_trap_place(size_t bytes, size_t room, size_t align, size_t skew, uint64_t turn);

#ifdef __cplusplus
}
#endif
#endif
