/* SPDX-License-Identifier: MIT */
/* Between opt/user.c (loading, binding) and opt/user_call.c (calling). */
#ifndef PLUMB_OPT_USER_PRIVATE_H
#define PLUMB_OPT_USER_PRIVATE_H

#include "core/plumb_kernel.h"
#include "opt/user.h"

enum {
	USER_MAX_OPERANDS = 96,
	USER_MAX_ARGS = 2048,
	USER_LETTERS = 32,
};

struct user_library {
	char *path;   /* as the user gave it */
	void *handle; /* of dlopen */
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
	struct plumb_operand operand[USER_MAX_OPERANDS];
	int op_of[USER_MAX_OPERANDS];         /* index into op */
	struct plumb_set seat_set, whole_set; /* what the plan binds; what the guard calls, with the block as arguments */
	struct user_seat *seat;               /* (ops) */
	struct plumb_binding whole;

	/* the call that is being put together */
	union {
		unsigned char byte[USER_MAX_ARGS];
		int64_t T;
		void *align;
	} block;
	int next;         /* the op that is expected */
	const void *host; /* the block of the run under way, with the host's pointers */
	struct plumb_call part[PLUMB_USER_MAX_OPS];
	struct plumb_call
		full[PLUMB_USER_MAX_OPS]; /* the same with the decoder's arguments, of which the kernel sees a part */
	union {
		unsigned char byte[USER_MAX_ARGS];
		void *align;
	} shown, decoders; /* the arguments of part and full */
	struct plumb_env env[PLUMB_USER_MAX_OPS];

	struct user_prepared *prepared;
	int prepared_count;
	struct user_table *table;
	int tables;
};

struct user_seat {
	struct user_unit *unit;
	int index; /* of its op */
};

struct plumb_user {
	struct plumb_user_mark *mark, own_mark;
	struct user_library **library;
	int libraries;
	struct user_unit **unit;
	int units;
	struct plumb_user_options options;
	/* workspace of host kernels, zone | room | zone */
	unsigned char *workspace;
	size_t workspace_room;
};

/* Hands over to a user's code, and back: sets the mark. */
void user_enter(struct user_unit *unit, const char *phase, const struct plumb_call *call);
void user_leave(struct plumb_user *user);

/* The functions of units: seats, and calls of whole units. */
plumb_op_fn user_seat_op, user_whole_op;

/* Whether an operand of an op of the unit is given to its kernel. */
bool user_gives(const struct user_unit *unit, int op, const struct plumb_operand *operand);

#endif
