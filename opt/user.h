/* SPDX-License-Identifier: MIT */
/* Kernels from shared objects (core/plumb_kernel.h) in the seats of ops: loading, binding, calling.
 *
 * A unit is one entry of one library, covering one op or several neighbours. Bound in a plan, each of its ops has a
 * seat; the unit runs when the last of its ops is called, with the arguments of all of them. What only the unit sees
 * (an output that nothing outside reads) is left out of its operands, and so are trace outputs, unless the entry writes
 * them.
 *
 * Everything that runs a user's kernel runs with plumb_user_runner: it guards the calls (opt/guard.h), so that a kernel
 * that leaves outputs, writes elsewhere or is not repeatable is named. Crashes and hangs are the business of whoever
 * forked (tools/contain.h): the mark tells them which call was under way. */
#ifndef PLUMB_OPT_USER_H
#define PLUMB_OPT_USER_H

#include <stdio.h>

#include "core/decoder.h"
#include "opt/device.h"
#include "opt/guard.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLUMB_USER_MAX_OPS = 12 }; /* of one entry */

/* What a user's code is doing right now; lies in memory that outlives a crash. */
struct plumb_user_mark {
	int32_t under_way; /* 0: none of a user's code runs */
	char phase[16];    /* "loading", "prepare", "workspace", "run", "release", "unloading" */
	char ops[128];     /* "attn_gate"; empty while loading */
	char path[512];    /* of the shared object */
	int32_t layer, layers;
	int32_t forks;  /* calls of fork() in a user's code */
	int32_t copied; /* a kernel forked, and the copy returned from it as well */
	int64_t position, T;
	uint64_t calls; /* begun so far: tells a hang from progress */
};

/* "op attn_gate layer 3 position 12: ./mine.so", or "./mine.so while loading". */
const char *plumb_user_mark_show(const struct plumb_user_mark *mark, char *text, size_t size);

/* Where the users' code finds its stdout while it runs, so that what it prints stays out of a report there. NULL: where
 * ours is. Of the whole process. */
void plumb_user_output(FILE *for_kernels);

struct plumb_user;

/* mark: borrowed; NULL: none needed. */
int plumb_user_create(struct plumb_user_mark *mark, struct plumb_user **out, struct plumb_error *err);
/* Calls release hooks and unloads. After the decoder, before the device. */
void plumb_user_destroy(struct plumb_user *user);

/* Load a shared object, once. path: as dlopen takes it, but a name without '/' is looked for in the current folder
 * only. Errors: PLUMB_BAD_INPUT naming the file and what is wrong: it cannot be loaded (the linker's words), has no
 * plumb_kernels, serves another ABI, offers nothing, an unknown op, or one list of ops twice. */
int plumb_user_load(struct plumb_user *user, const char *path, struct plumb_error *err);

/* Whether a loaded library has an entry for these ops that wants the memory of a GPU, or of simt's own. */
bool plumb_user_wants(const struct plumb_user *user, int32_t where);

/* Whether the loaded library of that path has an entry for exactly these ops. */
bool plumb_user_offers(const struct plumb_user *user, const char *path, const char *ops);

/* Bind in the plan what the library of that path (loaded here if need be) offers for ops, in those of layers
 * first..last that run it. ops: "attn_gate", "hc_norm_down+hc_up_mix", one op of a fused entry, or "all": every entry
 * of the library. device: of the session, for entries that want device memory; may be NULL. Errors: PLUMB_BAD_INPUT
 * when the library offers no such entry, when no layer runs it (of "all": any of them), or when the neighbours of a
 * fused entry do not follow each other everywhere in a layer; PLUMB_NO_DEVICE when the entry wants a device that is not
 * open. */
int plumb_user_bind(struct plumb_user *user, struct plumb_plan *plan, const struct plumb_config *cfg, const char *path,
	const char *ops, int first, int last, struct plumb_device *device, struct plumb_error *err);

/* What a kernel of these ops, "a" or "a+b", is given, without traces: fn for each operand of each op, in order; a
 * status other than PLUMB_OK ends the walk. Errors: PLUMB_BAD_INPUT for a name that is no op's, or one that comes
 * twice. */
typedef int plumb_user_operand_fn(void *self, enum plumb_op op, const struct plumb_operand *operand);
int plumb_user_operands(const char *ops, plumb_user_operand_fn *fn, void *self, struct plumb_error *err);

/* How many places of the plan the library has. */
int plumb_user_seats(const struct plumb_user *u, const struct plumb_plan *plan, const char *path);

/* After all bindings: every fused entry is bound as a whole. Errors: PLUMB_BAD_INPUT naming layer, entry and the op
 * that another binding has taken. */
int plumb_user_whole(const struct plumb_user *user, const struct plumb_plan *plan, struct plumb_error *err);

struct plumb_user_options {
	struct plumb_guard *guard; /* for the users' calls; NULL: each runs once, over outputs that hold NaN */
	bool guard_all;            /* the guard takes all other calls too */
	int threads;               /* of OpenMP that a kernel finds, whatever the process has; 0: those of the process */
	/* Computes what lies inside a fused entry, before its kernel runs, into the decoder's buffers and on copies of
	 * the state: for those who judge a choice by the scores it was made from. NULL: such buffers hold anything. */
	const struct plumb_set *shadow;
};
/* To be run through by every decoder of the plan. */
struct plumb_runner plumb_user_runner(struct plumb_user *user, const struct plumb_user_options *options);

/* ---- for those who look at calls ---- */

/* What is loaded, for reports: "gate 1.0 (./gate.so), ...". Returns text. */
const char *plumb_user_describe(const struct plumb_user *user, char *text, size_t size);

bool plumb_user_is(const struct plumb_binding *binding);

/* The ops of the entry, as it says them, "hc_norm_down+hc_up_mix"; NULL for any other set. */
const char *plumb_user_ops(const struct plumb_binding *binding);

/* The device whose memory the kernel of a binding uses; NULL: host memory, or no user's. */
struct plumb_device *plumb_user_device(const struct plumb_binding *binding);

/* The calls that are done once `call` has returned. For a call of any other set that is the call itself; for an inner
 * op of a fused entry nothing; for its last op, all of its ops, in order. Valid until the unit runs again. Room for
 * PLUMB_USER_MAX_OPS each: wrote: outputs that the kernel does not give (plumb_user_hides) are NULL in the arguments;
 * full: the arguments as the decoder made them (see shadow).
 * Returns how many. */
int plumb_user_done(const struct plumb_call *call, struct plumb_call wrote[PLUMB_USER_MAX_OPS],
	struct plumb_call full[PLUMB_USER_MAX_OPS]);

/* Whether an output of a call, as the decoder made it, is nobody's to compare: inside a fused entry, or a trace not
 * written. */
bool plumb_user_hides(const struct plumb_binding *binding, const char *operand);

#ifdef __cplusplus
}
#endif
#endif
