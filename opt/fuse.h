/* SPDX-License-Identifier: MIT */
/* Neighbours as one launch. Every op exists alone, and alone it runs wherever somebody looks: in single calls, copied
 * calls, with an observer, a guard, or neighbours of another set. In a step of a graph (opt/graph.h) nobody looks in
 * between: there an op may leave its launch to the next one, which takes it along in a launch of both, to the same
 * bits, or, where it is not the one that was expected, lets it go first.
 *
 *	gdn_step    gdn_conv, gdn_recurrence, gdn_norm_gate
 *	hc_inject   hc_inject into the next site's hc_norm_down
 *	attn_heads  attn_qk_rope, the last launch of qsa_project
 *	attn_gate   the last launch of attn_decode, attn_gate
 *	moe_early   three launches as ever, moe_router, moe_gate_up, moe_down, but each of the last two begins with what it
 *	            needs from before its predecessor
 *
 * What passes between the ops of one launch (gdn's y and o, attention's o) is not written then. */
#ifndef PLUMB_OPT_FUSE_H
#define PLUMB_OPT_FUSE_H

#include "core/op.h"
#include "kernels/attention.h"
#include "kernels/gdn.h"
#include "kernels/hc.h"
#include "kernels/moe.h"
#include "kernels/qsa.h"
#include "opt/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_fusion {
	PLUMB_FUSE_GDN_STEP = 1,
	PLUMB_FUSE_HC_INJECT = 2,
	PLUMB_FUSE_ATTN_GATE = 4,
	PLUMB_FUSE_ATTN_HEADS = 8,
	PLUMB_FUSE_MOE_EARLY = 16,
	PLUMB_FUSE_ALL = 31,
};

/* "on", "off", or names from the list above with commas between: their sum. Errors: PLUMB_BAD_INPUT naming the word. */
int plumb_fuse_parse(const char *words, int *fusions, struct plumb_error *err);

/* A step begins, in which these fusions are taken; it ends. Between the two all calls on the device are of one decoder, one
 * token each. end: after an error what was left is dropped. */
void plumb_fuse_begin(struct plumb_device *device, int fusions);
int plumb_fuse_end(const struct plumb_env *env, int status);

/* The op of info is about to run: what was left to another goes first. */
int plumb_fuse_before(const struct plumb_env *env, const struct plumb_op_info *info);

/* In the place of PLUMB_RUN of one token's launch: run it, leave it, or take along what was left. */
int plumb_fuse_gdn_conv(const struct plumb_env *env, const struct plumb_gdn_conv_launch *launch);
int plumb_fuse_gdn_recurrence(const struct plumb_env *env, const struct plumb_gdn_recurrence_launch *launch);
int plumb_fuse_gdn_norm_gate(const struct plumb_env *env, const struct plumb_gdn_norm_gate_launch *launch);
int plumb_fuse_hc_inject(const struct plumb_env *env, const struct plumb_hc_inject_launch *launch);
int plumb_fuse_hc_norm_down(
	const struct plumb_env *env, const struct plumb_hc_norm *norm, const struct plumb_hc_down *down);
int plumb_fuse_attn_heads(const struct plumb_env *env, const struct plumb_attn_heads *launch);
int plumb_fuse_qsa_heads(const struct plumb_env *env, const struct plumb_qsa_heads *launch);
int plumb_fuse_attn_combine(const struct plumb_env *env, const struct plumb_attn_token *launch);
int plumb_fuse_attn_gate(const struct plumb_env *env, const struct plumb_attn_gate_launch *launch);
int plumb_fuse_moe_router(const struct plumb_env *env, const struct plumb_moe_router_launch *launch);
int plumb_fuse_moe_gate_up(const struct plumb_env *env, const struct plumb_moe_gate_up_launch *launch);
int plumb_fuse_moe_down(const struct plumb_env *env, const struct plumb_moe_down_launch *launch);

/* What a device keeps of it. */
struct plumb_fuse {
	int fusions;                           /* of the step under way; 0: none is */
	enum plumb_op taker;                   /* of what is left, PLUMB_OP_COUNT: nothing is */
	struct plumb_moe_router_launch router; /* ran just now */
	const float *hidden;                   /* of moe_gate_up, which ran just now, behind that router */
	struct plumb_gdn_step_launch gdn;
	struct plumb_hc_inject_launch inject;
	struct plumb_attn_heads heads;
	struct plumb_attn_token attention;
};

#ifdef __cplusplus
}
#endif
#endif
