/* SPDX-License-Identifier: MIT */
/* The optimised set: the host side of the kernels. One function an op, the same argument structs as the reference.
 *
 * A function here sees arguments whose every data pointer is valid on the device: on simt that is host memory as it is;
 * on cuda opt/mirror.c has replaced each pointer by its device copy (struct plumb_weight and struct plumb_cache stay
 * host structs whose data, scale and page members point to the device). It launches on the device's stream, one token
 * of the T after the other, and does not wait. */
#ifndef PLUMB_OPT_OPT_H
#define PLUMB_OPT_OPT_H

#include "core/op.h"
#include "core/ops/ple.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The set. */
extern const struct plumb_set plumb_opt_set;

/* embed_opt, ... of every op. */
#define OPT_FUNCTION(id, name) plumb_op_fn name##_opt;
PLUMB_EACH_OP(OPT_FUNCTION)

#ifdef __cplusplus
}
#endif
#endif
