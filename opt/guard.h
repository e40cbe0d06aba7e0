/* SPDX-License-Identifier: MIT */
/* Guarded calls, for any set on any device: what an op does to memory that its contract does not allow is named.
 *
 * A guarded call runs the op twice from the same inputs and state, in buffers of its own between guard zones:
 *   outputs hold poison before, and so do cache rows that the call has to write and those that nobody has written yet;
 *   zones, outputs, scratch and shared memory hold NaN the first time, large finite values the second.
 * What is then named:
 *   a zone that changed: a write outside an operand (element -1, or the number of elements);
 *   an input that changed, or a cache row that is not the call's to write;
 *   an element that holds its poison both times: not written, or added to (a third run, over values near 1, tells);
 *   an element that differs between the runs: from memory that nobody wrote, or not deterministic (a third run, with
 *   the first poison, tells).
 * The results then go to the real buffers, so a run through a guard gives the bits of a run without. Fillers (-1, -inf)
 * are values like others.
 *
 * LIMIT: a read outside is seen where the result follows it, and under plumb_guard_trap within a page of the operand; a
 * write that lands farther than 4 KiB outside, or in another operand's data, is seen only there. Weights are not
 * guarded (simt and ref read the model's own memory). A guarded call copies whole caches, so it is linear in the
 * capacity. */
#ifndef PLUMB_OPT_GUARD_H
#define PLUMB_OPT_GUARD_H

#include "core/decoder.h"
#include "opt/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_guard_fault {
	PLUMB_GUARD_NONE,
	PLUMB_GUARD_UNWRITTEN,        /* an element of an output was left */
	PLUMB_GUARD_OUTSIDE,          /* written before or after an operand */
	PLUMB_GUARD_INPUT_CHANGED,    /* an input or constant */
	PLUMB_GUARD_ROW_CHANGED,      /* a cache row outside position .. position + T - 1 */
	PLUMB_GUARD_DIRTY_READ,       /* a result follows what memory held before */
	PLUMB_GUARD_NONDETERMINISTIC, /* a result differs between runs from the same memory */
	PLUMB_GUARD_DEVICE,           /* found by the device: scratch, counters, or an operand in its own memory */
};

/* The last fault found, for reports; the message in call->env->err says the same in words. */
struct plumb_guard_finding {
	enum plumb_guard_fault fault;
	enum plumb_op op;
	int layer;
	int operand;     /* index into plumb_ops[op].operand; -1: see the message */
	int64_t element; /* flat index of the first one (of a cache: row * width + column); negative: before the operand */
	int64_t count;   /* how many elements */
};

const char *plumb_guard_fault_name(enum plumb_guard_fault fault);

struct plumb_guard;
int plumb_guard_create(struct plumb_guard **out, struct plumb_error *err);
void plumb_guard_destroy(struct plumb_guard *guard);

/* Calls bound to this device (borrowed) poison its memory along; without, only operands are guarded. Up to 8
 * devices. */
int plumb_guard_watch(struct plumb_guard *guard, struct plumb_device *device, struct plumb_error *err);

/* From now on clones end (or, by turn, begin) where memory traps (opt/trap.h) while an op runs on the host: for a process
 * of which somebody handles the signal. They keep the alignment of the originals modulo 16. Of one turn, equal calls
 * have equal addresses. */
void plumb_guard_trap(struct plumb_guard *guard, uint64_t turn);
bool plumb_guard_traps(const struct plumb_guard *guard); /* whether that was called */

/* Run one call guarded. call: as a decoder makes it; of position only args->position is looked at.
 * Returns PLUMB_MISMATCH with call->env->err set when something was found (outputs are then left alone), else the op's
 * status. */
int plumb_guard_call(struct plumb_guard *guard, const struct plumb_call *call);

/* The same for every call of a decoder: plumb_decoder_run_through(decoder, &runner). Set and binding stay what they
 * are. */
struct plumb_runner plumb_guard_runner(struct plumb_guard *guard);

const struct plumb_guard_finding *plumb_guard_finding(const struct plumb_guard *guard);

/* What memory holds in the run under way, for ops with memory of their own; OFF outside of guarded calls. */
enum plumb_poison plumb_guard_poison(const struct plumb_guard *guard);

#ifdef __cplusplus
}
#endif
#endif
