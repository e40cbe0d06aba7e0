/* SPDX-License-Identifier: MIT */
#include "opt/fuse.h"

#include <string.h>

#include "opt/device_private.h"

static const struct {
	const char *name;
	int fusions;
} words[] = {
	{"on", PLUMB_FUSE_ALL},
	{"off", 0},
	{"gdn_step", PLUMB_FUSE_GDN_STEP},
	{"hc_inject", PLUMB_FUSE_HC_INJECT},
	{"attn_heads", PLUMB_FUSE_ATTN_HEADS},
	{"attn_gate", PLUMB_FUSE_ATTN_GATE},
	{"moe_early", PLUMB_FUSE_MOE_EARLY},
};

int plumb_fuse_parse(const char *text, int *fusions, struct plumb_error *err)
{
	const size_t count = sizeof words / sizeof words[0];

	*fusions = 0;
	for (const char *p = text;; p++) {
		const size_t length = strcspn(p, ",");
		size_t w = 0;
		while (w < count && (strlen(words[w].name) != length || strncmp(words[w].name, p, length) != 0))
			w++;
		if (w == count)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"'%.*s' is no fusion, expected on, off, or some of gdn_step, hc_inject, attn_heads, "
				"attn_gate, moe_early",
				length < 40 ? (int)length : 40, p);
		*fusions |= words[w].fusions;
		p += length;
		if (!*p)
			return PLUMB_OK;
	}
}

void plumb_fuse_begin(struct plumb_device *d, int fusions)
{
	d->fuse.fusions = fusions;
	d->fuse.taker = PLUMB_OP_COUNT;
}

/* What was left, in launches of its own. */
static int let_go(const struct plumb_env *env)
{
	struct plumb_device *d = env->device;
	struct plumb_fuse *f = &d->fuse;
	const enum plumb_op taker = f->taker;
	int status = PLUMB_OK;

	if (!f->fusions)
		return PLUMB_OK;
	f->taker = PLUMB_OP_COUNT;
	switch (taker) {
	case PLUMB_GDN_RECURRENCE:
		return PLUMB_RUN(env, gdn_conv, &f->gdn.conv);
	case PLUMB_GDN_NORM_GATE:
		status = PLUMB_RUN(env, gdn_conv, &f->gdn.conv);
		return status == PLUMB_OK ? PLUMB_RUN(env, gdn_recurrence, &f->gdn.recurrence) : status;
	case PLUMB_HC_NORM_DOWN:
		return PLUMB_RUN(env, hc_inject, &f->inject);
	case PLUMB_QSA_PROJECT:
		return PLUMB_RUN(env, attn_heads, &f->heads);
	case PLUMB_ATTN_GATE:
		return PLUMB_RUN(env, attn_combine, &f->attention);
	default:
		return PLUMB_OK;
	}
}

int plumb_fuse_end(const struct plumb_env *env, int status)
{
	struct plumb_device *d = env->device;

	if (status == PLUMB_OK)
		status = let_go(env);
	d->fuse.fusions = 0;
	return status;
}

int plumb_fuse_before(const struct plumb_env *env, const struct plumb_op_info *info)
{
	const struct plumb_device *d = env->device;

	if (!d->fuse.fusions || d->fuse.taker == PLUMB_OP_COUNT || info == &plumb_ops[d->fuse.taker])
		return PLUMB_OK;
	return let_go(env);
}

/* Leave the op's launch to the taker, if that fusion is on. */
static bool leaves(const struct plumb_env *env, enum plumb_fusion fusion, enum plumb_op taker)
{
	struct plumb_device *d = env->device;

	if (!(d->fuse.fusions & fusion))
		return false;
	d->fuse.taker = taker;
	return true;
}

/* Whether something was left to the op that feeds it: what that writes, it reads. Both NULL: it only runs beside it. */
static bool takes(const struct plumb_env *env, enum plumb_op op, const float *written, const float *read)
{
	const struct plumb_device *d = env->device;
	return d->fuse.fusions && d->fuse.taker == op && written == read;
}

int plumb_fuse_gdn_conv(const struct plumb_env *env, const struct plumb_gdn_conv_launch *launch)
{
	struct plumb_device *d = env->device;

	if (!leaves(env, PLUMB_FUSE_GDN_STEP, PLUMB_GDN_RECURRENCE))
		return PLUMB_RUN(env, gdn_conv, launch);
	d->fuse.gdn.conv = *launch;
	return PLUMB_OK;
}

int plumb_fuse_gdn_recurrence(const struct plumb_env *env, const struct plumb_gdn_recurrence_launch *launch)
{
	struct plumb_device *d = env->device;

	if (takes(env, PLUMB_GDN_RECURRENCE, d->fuse.gdn.conv.y, launch->y)) {
		d->fuse.gdn.recurrence = *launch;
		d->fuse.taker = PLUMB_GDN_NORM_GATE;
		return PLUMB_OK;
	}
	int status = let_go(env);
	return status == PLUMB_OK ? PLUMB_RUN(env, gdn_recurrence, launch) : status;
}

int plumb_fuse_gdn_norm_gate(const struct plumb_env *env, const struct plumb_gdn_norm_gate_launch *launch)
{
	struct plumb_device *d = env->device;
	int status;

	d->fuse.gdn.gate = *launch;
	if (takes(env, PLUMB_GDN_NORM_GATE, d->fuse.gdn.recurrence.o, launch->o) && plumb_gdn_step_takes(&d->fuse.gdn)) {
		d->fuse.taker = PLUMB_OP_COUNT;
		return PLUMB_RUN(env, gdn_step, &d->fuse.gdn);
	}
	status = let_go(env);
	return status == PLUMB_OK ? PLUMB_RUN(env, gdn_norm_gate, launch) : status;
}

int plumb_fuse_hc_inject(const struct plumb_env *env, const struct plumb_hc_inject_launch *launch)
{
	struct plumb_device *d = env->device;

	if (!leaves(env, PLUMB_FUSE_HC_INJECT, PLUMB_HC_NORM_DOWN))
		return PLUMB_RUN(env, hc_inject, launch);
	d->fuse.inject = *launch;
	return PLUMB_OK;
}

int plumb_fuse_hc_norm_down(const struct plumb_env *env, const struct plumb_hc_norm *norm, const struct plumb_hc_down *down)
{
	struct plumb_device *d = env->device;

	if (takes(env, PLUMB_HC_NORM_DOWN, d->fuse.inject.residual_out, norm->residual)) {
		d->fuse.taker = PLUMB_OP_COUNT;
		return PLUMB_RUN(env, hc_inject_norm_down, &d->fuse.inject, norm, down);
	}
	int status = let_go(env);
	return status == PLUMB_OK ? PLUMB_RUN(env, hc_norm_down, norm, down) : status;
}

int plumb_fuse_attn_heads(const struct plumb_env *env, const struct plumb_attn_heads *launch)
{
	struct plumb_device *d = env->device;

	if (!leaves(env, PLUMB_FUSE_ATTN_HEADS, PLUMB_QSA_PROJECT))
		return PLUMB_RUN(env, attn_heads, launch);
	d->fuse.heads = *launch;
	return PLUMB_OK;
}

int plumb_fuse_qsa_heads(const struct plumb_env *env, const struct plumb_qsa_heads *launch)
{
	struct plumb_device *d = env->device;

	if (takes(env, PLUMB_QSA_PROJECT, NULL, NULL)) {
		d->fuse.taker = PLUMB_OP_COUNT;
		return PLUMB_RUN(env, attn_qsa_heads, &d->fuse.heads, launch);
	}
	return PLUMB_RUN(env, qsa_heads, launch);
}

int plumb_fuse_attn_combine(const struct plumb_env *env, const struct plumb_attn_token *launch)
{
	struct plumb_device *d = env->device;

	if (!leaves(env, PLUMB_FUSE_ATTN_GATE, PLUMB_ATTN_GATE))
		return PLUMB_RUN(env, attn_combine, launch);
	d->fuse.attention = *launch;
	return PLUMB_OK;
}

int plumb_fuse_attn_gate(const struct plumb_env *env, const struct plumb_attn_gate_launch *launch)
{
	struct plumb_device *d = env->device;

	if (takes(env, PLUMB_ATTN_GATE, d->fuse.attention.o, launch->o)) {
		d->fuse.taker = PLUMB_OP_COUNT;
		return PLUMB_RUN(env, attn_combine_gate, &d->fuse.attention, launch);
	}
	int status = let_go(env);
	return status == PLUMB_OK ? PLUMB_RUN(env, attn_gate, launch) : status;
}

/* The router and gate_up run at once: what they leave is that they were the last launch. */
int plumb_fuse_moe_router(const struct plumb_env *env, const struct plumb_moe_router_launch *launch)
{
	struct plumb_device *d = env->device;

	if (leaves(env, PLUMB_FUSE_MOE_EARLY, PLUMB_MOE_GATE_UP))
		d->fuse.router = *launch;
	return PLUMB_RUN(env, moe_router, launch);
}

int plumb_fuse_moe_gate_up(const struct plumb_env *env, const struct plumb_moe_gate_up_launch *launch)
{
	struct plumb_device *d = env->device;
	struct plumb_moe_gate_up_launch early = *launch;

	early.early = takes(env, PLUMB_MOE_GATE_UP, d->fuse.router.x, launch->x);
	if (early.early && leaves(env, PLUMB_FUSE_MOE_EARLY, PLUMB_MOE_DOWN))
		d->fuse.hidden = early.hidden;
	return PLUMB_RUN(env, moe_gate_up, &early);
}

int plumb_fuse_moe_down(const struct plumb_env *env, const struct plumb_moe_down_launch *launch)
{
	struct plumb_device *d = env->device;
	const struct plumb_moe_router_launch *router = &d->fuse.router;
	struct plumb_moe_down_launch early = *launch;

	early.early = takes(env, PLUMB_MOE_DOWN, d->fuse.hidden, launch->hidden) && router->expert == launch->expert &&
	              router->weight == launch->weight && router->shared_weight == launch->shared_weight;
	d->fuse.taker = PLUMB_OP_COUNT;
	return PLUMB_RUN(env, moe_down, &early);
}
