/* SPDX-License-Identifier: MIT */
/* Fibers: stacks with a guard page below, and a switch between them that costs a few loads and stores (swapcontext
 * makes a system call). A fiber belongs to the OS thread that runs it. */
#ifndef PLUMB_KERNELS_SIMT_FIBER_H
#define PLUMB_KERNELS_SIMT_FIBER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define PLUMB_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLUMB_FIBER_ASAN 1
#endif
#endif

struct plumb_fiber {
	void *stack_pointer; /* of a fiber that is not running */
	unsigned char *low;  /* lowest usable byte; NULL for the OS thread's own stack */
	size_t bytes;
	void *fake_stack;         /* AddressSanitizer's, of a fiber that is not running */
	struct plumb_fiber *next; /* for the owner's lists */
};

/* Map `count` stacks of at least `bytes` each, a guard page below every one. Returns the mapping's address, or NULL
 * with errno. mapped_bytes receives its size, for plumb_fiber_unmap. */
void *plumb_fiber_map(struct plumb_fiber *fibers, unsigned count, size_t bytes, size_t *mapped_bytes);
void plumb_fiber_unmap(void *mapping, size_t mapped_bytes);

/* Let the next switch to the fiber call entry(argument) on a fresh stack. entry never returns. `index` spreads the
 * stacks over the sets of the first-level cache: their tops would all fall into the same few otherwise. */
void plumb_fiber_reset(struct plumb_fiber *fiber, void (*entry)(void *), void *argument, unsigned index);

/* Learn the running OS thread's own stack, so that a switch can return to it. */
void plumb_fiber_adopt(struct plumb_fiber *fiber);

/* A fiber's entry calls this first. `from` is the fiber that switched to it. */
void plumb_fiber_entered(void);

void plumb_fiber_switch(struct plumb_fiber *from, struct plumb_fiber *to);

#endif
