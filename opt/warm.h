/* SPDX-License-Identifier: MIT */
/* The warm branch: while kernels run that wait rather than load, weights of later ops are brought into the cache, by a tiny
 * kernel beside the chain of a recorded step (kernels/warm.h). No bit depends on it: nothing is read, only asked for.
 *
 * What is warmed when is a list of rules, "AFTER>OP:MB" with commas between: once an op AFTER has ended, the first so many MB
 * (10^6 bytes) of the weights of the next OP, in the order of its operands, unless there is another AFTER in between.
 * "AFTER>OP~MB": as many, but evenly over all of them, so that cache and memory serve the op side by side. Weights that
 * ids choose (experts, rows of tables) are not known before, and left out. "blocks=N" in the list: of each launch.
 *
 *	gdn_in_proj>gdn_out_proj:24,moe_gate_up>gdn_in_proj~24,blocks=32
 *
 * A step's calls are noted once, so that each weight's place on the device is known before its op comes. */
#ifndef PLUMB_OPT_WARM_H
#define PLUMB_OPT_WARM_H

#include "core/decoder.h"
#include "opt/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_warm;

/* rules: "off" and "" are none. Errors: PLUMB_BAD_INPUT naming the rule. */
int plumb_warm_create(const char *rules, struct plumb_warm **out, struct plumb_error *err);
void plumb_warm_destroy(struct plumb_warm *warm);
bool plumb_warm_is_on(const struct plumb_warm *warm);

/* A step begins, whose calls are noted; or, launch, the same step again, and after its calls what the rules say is
 * launched: on a branch of the capture, or, where a device has none (simt), in line. */
void plumb_warm_begin(struct plumb_warm *warm, bool launch);
/* A call of it has been launched. Errors: PLUMB_BAD_INPUT when it is not the call that was noted, or for memory. */
int plumb_warm_after(struct plumb_warm *warm, const struct plumb_call *call);

/* For tests and reports: launches and bytes of the last step. */
int64_t plumb_warm_launches(const struct plumb_warm *warm);
int64_t plumb_warm_bytes(const struct plumb_warm *warm);

#ifdef __cplusplus
}
#endif
#endif
