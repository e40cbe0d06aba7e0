/* SPDX-License-Identifier: MIT */
/* Everything that is known of one op, for `plumb list OP`. */
#ifndef PLUMB_TOOLS_LIST_OP_H
#define PLUMB_TOOLS_LIST_OP_H

#include "core/op.h"

/* Where it runs, operands with their sizes in the release, the contract, golden tensors and what is demanded of each, and
 * commands to go on with. Errors: PLUMB_BAD_INPUT. */
int list_op(enum plumb_op op, struct plumb_error *err);

#endif
