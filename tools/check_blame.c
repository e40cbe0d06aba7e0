/* SPDX-License-Identifier: MIT */
/* Whose work is in a tensor. What a user's kernel writes and nobody recorded goes on to other ops and shows there: the
 * gate half of attn_in_proj in attn_gate, the shared weight of moe_router in moe_down. So each buffer that holds such
 * work is remembered, until it is put right (what is recorded is) or written by an op that read none. */
#include <string.h>

#include "opt/user.h"
#include "tools/check_internal.h"

/* Outputs that follow from a recorded one of the same op: computed again from it, or not read by any other op. */
static const struct {
	enum plumb_op op;
	const char *operand;
} follows[] = {
	{PLUMB_PLE_EMBED, "row"},
	{PLUMB_PLE_CONV, "residual_out"},
	{PLUMB_ATTN_QK_ROPE, "q"},
	{PLUMB_QSA_SELECT, "count"},
};

static bool recorded(struct check_run *run, const struct plumb_call *call, const char *operand)
{
	bool any = false, follow = false;

	for (size_t i = 0; i < sizeof follows / sizeof follows[0]; i++)
		follow = follow || (follows[i].op == call->op && strcmp(follows[i].operand, operand) == 0);
	for (int i = 0; i < plumb_golden_source_count && !any; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		/* block keys come out of the call that writes the recorded raw keys, which are not put in place */
		any = s->op == call->op && (s->site == PLUMB_SITE_NONE || s->site == call->site) && s->operand &&
		      (follow || strcmp(s->operand, operand) == 0) && s->form != PLUMB_GOLDEN_CACHE_ROWS &&
		      check_find(run, s, call->layer);
	}
	return any;
}

static struct check_work *find(struct check_blame *b, const void *buffer)
{
	for (int i = 0; i < b->works; i++)
		if (b->work[i].buffer == buffer)
			return &b->work[i];
	return NULL;
}

static void put(struct check_blame *b, const void *buffer, bool holds)
{
	struct check_work *w = find(b, buffer);

	if (w && !holds)
		*w = b->work[--b->works];
	if (!holds)
		return;
	if (!w && b->works < CHECK_WORKS)
		w = &b->work[b->works++];
	if (w)
		*w = (struct check_work){buffer, b->kernel, b->library, b->calls};
}

static bool writes(const struct plumb_operand *o)
{
	return o->role == PLUMB_OUT || (o->role == PLUMB_STATE && o->kind == PLUMB_KIND_CACHE);
}

void check_blame_begin(struct check_run *run, const struct plumb_call *call)
{
	struct check_blame *b = &run->blame;
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int64_t latest = -1;

	b->kernel = b->library = NULL;
	b->calls++;
	for (int i = 0; i < info->operands; i++) {
		const void *buffer = plumb_operand_get(call->args, &info->operand[i]);
		const struct check_work *w = buffer && info->operand[i].role != PLUMB_OUT ? find(b, buffer) : NULL;
		if (!w || w->call <= latest)
			continue;
		latest = w->call;
		b->kernel = w->kernel;
		b->library = w->library;
	}
	if (plumb_user_is(call->binding)) {
		b->kernel = plumb_user_ops(call->binding);
		b->library = call->binding->set->name;
	}
}

void check_blame_end(struct check_run *run, const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const void *buffer = plumb_operand_get(call->args, o);
		if (buffer && writes(o))
			put(&run->blame, buffer, run->blame.kernel && !o->trace && !recorded(run, call, o->name));
	}
}
