/* SPDX-License-Identifier: MIT */
/* Between opt/user.c (loading, binding) and opt/user_call.c (calling). */
#ifndef PLUMB_OPT_USER_PRIVATE_H
#define PLUMB_OPT_USER_PRIVATE_H

#include <fenv.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/plumb_kernel.h"
#include "opt/trap.h"
#include "opt/user.h"

enum {
	USER_LETTERS = 32,
	USER_THOROUGH = 8, /* calls of an entry after which all descriptors are looked at */
};

struct user_library {
	char *path;   /* as the user gave it */
	void *handle; /* of dlopen */
	bool pool;    /* shares plumb's pool of OpenMP threads */
	fenv_t mode; /* of floating point, as its constructors left it: its kernels run in it (cc -Ofast flushes to zero) */
	char *name, *version;
	struct plumb_kernel *kernel; /* copies, filled up with zeros to the size that we know */
	int kernels;
};

/* What prepare left for one set of weights. */
struct user_prepared {
	const void **key; /* identities of the weights, of all operands in order */
	void *result;
};

/* The matrices of an operand on a device, and what was uploaded. */
struct user_table {
	const void *identity; /* of the first */
	struct plumb_kernel_matrix *last;
	int64_t count;
	void *device;
};

/* An entry that is bound somewhere. */
struct user_unit {
	struct plumb_user *user;
	const struct user_library *library;
	const struct plumb_kernel *kernel;
	struct plumb_device *device; /* NULL: host memory */
	enum plumb_op op[PLUMB_USER_MAX_OPS];
	int ops;
	size_t args_offset[PLUMB_USER_MAX_OPS]; /* of each op's arguments in the block */
	struct plumb_op_info info;              /* of the block: what the kernel is given */
	struct plumb_operand operand[PLUMB_MAX_OPERANDS];
	int op_of[PLUMB_MAX_OPERANDS];        /* index into op */
	struct plumb_set seat_set, whole_set; /* what the plan binds; what the guard calls, with the block as arguments */
	struct user_seat *seat;               /* (ops) */
	struct plumb_binding whole;

	/* the call that is being put together */
	union {
		unsigned char byte[PLUMB_MAX_ARGS];
		int64_t T;
		void *align;
	} block;
	int next;         /* the op that is expected */
	const void *host; /* the block of the run under way, with the host's pointers */
	struct plumb_call part[PLUMB_USER_MAX_OPS];
	/* the same with the decoder's arguments, of which the kernel sees a part */
	struct plumb_call full[PLUMB_USER_MAX_OPS];
	union {
		unsigned char byte[PLUMB_MAX_ARGS];
		void *align;
	} shown, decoders; /* the arguments of part and full */
	struct plumb_env env[PLUMB_USER_MAX_OPS];

	struct user_prepared *prepared;
	int prepared_count;
	struct user_table *table;
	int tables;
	int entered; /* calls of its code, up to USER_THOROUGH */
};

struct user_seat {
	struct user_unit *unit;
	int index; /* of its op */
};

/* What the process was like before a user's code ran (opt/user_world.c). */
struct user_world {
	pid_t pid;
	int folder; /* the working directory; -1: not known */
	int errors; /* standard error once more; -1: none */
	struct stat place;
	fenv_t outside, inside;
	bool pool;     /* the code may have used OpenMP's threads */
	int threads;   /* how many of them the process had; 0: it is not asked */
	uint64_t open; /* descriptors, one bit each */
	int looked_at; /* how many of them */
	FILE *output;  /* plumb's stdout */
	char text[160];
};

struct plumb_user {
	struct plumb_user_mark *mark, own_mark;
	struct user_library **library;
	int libraries;
	struct user_unit **unit;
	int units;
	struct plumb_user_options options;
	/* workspace of host kernels: workspace_room bytes, at whose end are what a call asked for and, without traps, a
	 * zone */
	unsigned char *workspace;
	size_t workspace_room;
	struct plumb_trap workspace_trap;
	struct user_world world;
};

/* Whether the file is there, a regular one, and holds all that its headers promise. path: as open takes it, for
 * messages too.
 * Errors: PLUMB_BAD_INPUT. */
int user_file_check(const char *path, struct plumb_error *err);

void user_workspace_free(struct plumb_user *user); /* opt/user_call.c, which makes it */

void user_world_begin(struct user_world *world, struct plumb_user_mark *mark);
void user_world_end(struct user_world *world);
/* Before and after a user's code. mode: what it runs in; NULL: as the process. leave gives the process its own mode
 * back and returns what was left changed that may not be, a phrase for a message, or NULL; with mode, which gets the
 * one that was left, another mode is no fault. pool: OpenMP's threads get it back as well; the code finds that many of
 * them, if threads is not 0. A copy of the process (fork) does not come back from it. */
void user_world_enter(struct user_world *world, const fenv_t *mode, bool thorough, bool pool, int threads);
const char *user_world_leave(struct user_world *world, struct plumb_user_mark *mark, fenv_t *mode);

/* Hands over to a user's code, and back: sets the mark, and keeps the process as it is. leave: as user_world_leave. */
void user_enter(struct user_unit *unit, const char *phase, const struct plumb_call *call);
const char *user_leave(struct plumb_user *user);
/* Which call is meant, without handing over. */
void user_mark(struct user_unit *unit, const char *phase, const struct plumb_call *call);

/* The functions of units: seats, and calls of whole units. */
plumb_op_fn user_seat_op, user_whole_op;

/* Whether an operand of an op of the unit is given to its kernel. */
bool user_gives(const struct user_unit *unit, int op, const struct plumb_operand *operand);

#endif
