/* SPDX-License-Identifier: MIT */
#include "kernels/simt/fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef PLUMB_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* plumb_fiber_swap(void **save, void *load): push what the ABI says a call preserves, exchange stack pointers, pop,
 * return. The floating-point control words are not saved: kernels do not change them. The return is an ordinary one:
 * all threads of a warp wait at the same place, so the processor's return stack usually predicts it. */
void plumb_fiber_swap(void **save, void *load);
void plumb_fiber_start(void);

#if defined(__x86_64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl plumb_fiber_swap\n"
	".hidden plumb_fiber_swap\n"
	".type plumb_fiber_swap, @function\n"
	"plumb_fiber_swap:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size plumb_fiber_swap, . - plumb_fiber_swap\n"
	".globl plumb_fiber_start\n"
	".hidden plumb_fiber_start\n"
	".type plumb_fiber_start, @function\n"
	"plumb_fiber_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n" /* the outermost frame: debuggers and sanitizers stop here */
	"	movq %r13, %rdi\n"
	"	xorl %ebp, %ebp\n"
	"	callq *%r12\n"
	"	ud2\n"
	"	.cfi_endproc\n"
	".size plumb_fiber_start, . - plumb_fiber_start\n");

/* r15 r14 r13 r12 rbx rbp, return address, and two words so that the stack is 16-byte aligned at the call. */
enum { FRAME_WORDS = 9, FRAME_ENTRY = 3, FRAME_ARGUMENT = 2, FRAME_RETURN = 6 };

#elif defined(__aarch64__)
__asm__(".text\n"
	".p2align 4\n"
	".globl plumb_fiber_swap\n"
	".hidden plumb_fiber_swap\n"
	".type plumb_fiber_swap, %function\n"
	"plumb_fiber_swap:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp, #0]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp, #0]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size plumb_fiber_swap, . - plumb_fiber_swap\n"
	".globl plumb_fiber_start\n"
	".hidden plumb_fiber_start\n"
	".type plumb_fiber_start, %function\n"
	"plumb_fiber_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined x30\n" /* the outermost frame: debuggers and sanitizers stop here */
	"	mov x0, x20\n"
	"	blr x19\n"
	"	brk #1\n"
	"	.cfi_endproc\n"
	".size plumb_fiber_start, . - plumb_fiber_start\n");

/* x19 .. x28, x29, x30, d8 .. d15. */
enum { FRAME_WORDS = 20, FRAME_ENTRY = 0, FRAME_ARGUMENT = 1, FRAME_RETURN = 11 };
#else
#error "simt: no context switch for this processor (have x86-64 and aarch64)"
#endif

static size_t page_bytes(void)
{
	const long page = sysconf(_SC_PAGESIZE);

	return page > 0 ? (size_t)page : 4096;
}

void *plumb_fiber_map(struct plumb_fiber *fibers, unsigned count, size_t bytes, size_t *mapped_bytes)
{
	const size_t page = page_bytes();
	const size_t stack = (bytes + page - 1) / page * page;
	const size_t total = count * (page + stack);
	unsigned char *mapping =
		mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapping == MAP_FAILED)
		return NULL;
	for (unsigned i = 0; i < count; i++) {
		unsigned char *guard = mapping + i * (page + stack);

		if (mprotect(guard, page, PROT_NONE) != 0) {
			munmap(mapping, total);
			return NULL;
		}
		memset(&fibers[i], 0, sizeof(fibers[i]));
		fibers[i].low = guard + page;
		fibers[i].bytes = stack;
	}
	*mapped_bytes = total;
	return mapping;
}

void plumb_fiber_unmap(void *mapping, size_t mapped_bytes)
{
	munmap(mapping, mapped_bytes);
}

void plumb_fiber_reset(struct plumb_fiber *fiber, void (*entry)(void *), void *argument, unsigned index)
{
	/* Fifteen colours of five cache lines: at most 4.5 KiB of the stack. 15 and the 64 sets have no common factor,
	 * so neighbours and their neighbours fall apart. */
	const size_t colour = (size_t)(index % 15) * 5 * 64;
	uintptr_t *frame = (uintptr_t *)(void *)(fiber->low + fiber->bytes - colour) - FRAME_WORDS;

#ifdef PLUMB_FIBER_ASAN
	ASAN_UNPOISON_MEMORY_REGION(fiber->low, fiber->bytes); /* frames of a thread that was abandoned in the middle */
#endif
	memset(frame, 0, FRAME_WORDS * sizeof(*frame));
	frame[FRAME_ENTRY] = (uintptr_t)entry;
	frame[FRAME_ARGUMENT] = (uintptr_t)argument;
	frame[FRAME_RETURN] = (uintptr_t)plumb_fiber_start;
	fiber->stack_pointer = frame;
	fiber->fake_stack = NULL;
}

void plumb_fiber_adopt(struct plumb_fiber *fiber)
{
	memset(fiber, 0, sizeof(*fiber));
#ifdef PLUMB_FIBER_ASAN
	/* Asked once a thread: for the first one the C library reads /proc/self/maps, which has a line for every stack and
	 * every guard page; asked at each launch that was half of the time of a decode. */
	static __thread void *low;
	static __thread size_t bytes;
	pthread_attr_t attributes;

	if (!low && pthread_getattr_np(pthread_self(), &attributes) == 0) {
		pthread_attr_getstack(&attributes, &low, &bytes);
		pthread_attr_destroy(&attributes);
	}
	fiber->low = low;
	fiber->bytes = bytes;
#endif
}

void plumb_fiber_entered(void)
{
#ifdef PLUMB_FIBER_ASAN
	__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
}

void plumb_fiber_switch(struct plumb_fiber *from, struct plumb_fiber *to)
{
#ifdef PLUMB_FIBER_ASAN
	__sanitizer_start_switch_fiber(&from->fake_stack, to->low, to->bytes);
#endif
	plumb_fiber_swap(&from->stack_pointer, to->stack_pointer);
#ifdef PLUMB_FIBER_ASAN
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}
