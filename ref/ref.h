/* SPDX-License-Identifier: MIT */
/* The reference set in oracle mode: the specification in plain C.
 *
 * Every op computes in binary64 from its stored inputs and rounds once to binary32 where it stores an output; under
 * policy bf16 it rounds at every point that model-spec.md writes as rne. One file a stage; contracts in core/ops/.
 * Rows of a call are independent (or, for recurrent state, taken in order), so T rows at once give the same bits as T
 * calls of one row, with any number of threads. */
#ifndef PLUMB_REF_REF_H
#define PLUMB_REF_REF_H

#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The set. */
extern const struct plumb_set plumb_ref_oracle;

/* embed_ref, ... of every op. */
#define REF_FUNCTION(id, name) plumb_op_fn name##_ref;
PLUMB_EACH_OP(REF_FUNCTION)

#ifdef __cplusplus
}
#endif
#endif
