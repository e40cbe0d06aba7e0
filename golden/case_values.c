/* SPDX-License-Identifier: MIT */
/* What an op demands of its ids: tokens, experts, blocks, positions. Kernels index by them. */
#include <inttypes.h>

#include "golden/case_parts.h"

struct checking {
	const struct plumb_case *c;
	const char *path;
	struct plumb_error *err;
};

#define REFUSE(r, ...) plumb_fail((r)->err, PLUMB_BAD_INPUT, __VA_ARGS__)

static int check_ids(
	struct checking *r, const char *name, const int32_t *id, int64_t count, int64_t limit, const char *what)
{
	for (int64_t i = 0; i < count; i++)
		if (id[i] < 0 || id[i] >= limit)
			return REFUSE(r, "%s: in/%s[%" PRId64 "] is %d, expected 0..%" PRId64 " (%s)", r->path, name, i,
				id[i], limit - 1, what);
	return PLUMB_OK;
}

static int check_history(struct checking *r, const int64_t *id, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		if (id[i] < 0 || id[i] >= r->c->cfg.vocab)
			return REFUSE(
				r, "%s: state/history[%" PRId64 "] is %" PRId64 ", expected a token", r->path, i, id[i]);
	return PLUMB_OK;
}

/* Block lists: ascending, complete blocks, the rest -1. */
static int check_blocks(struct checking *r, const int32_t *block, const int32_t *count)
{
	const struct plumb_config *cfg = &r->c->cfg;
	int64_t N = cfg->block_budget;

	for (int64_t t = 0; t < r->c->call.T; t++) {
		int64_t complete = (r->c->call.position + t + 1) / cfg->block_tokens;
		if (count[t] < 0 || count[t] > N || count[t] > complete)
			return REFUSE(r, "%s: in/count[%" PRId64 "] is %d, expected 0..%" PRId64, r->path, t, count[t],
				N < complete ? N : complete);
		for (int64_t i = 0; i < N; i++) {
			int64_t b = block[t * N + i], least = i ? (int64_t)block[t * N + i - 1] + 1 : 0;
			if (i < count[t] ? b < least || b >= complete : b != -1)
				return REFUSE(r,
					"%s: in/block[%" PRId64 "] is %" PRId64 ", expected ascending blocks below %" PRId64
					", then -1",
					r->path, t * N + i, b, complete);
		}
	}
	return PLUMB_OK;
}

int case_check_values(const struct plumb_case *c, const char *path, struct plumb_error *err)
{
	struct checking checking = {c, path, err}, *r = &checking;
	const struct plumb_op_info *info = &plumb_ops[r->c->call.op];
	const struct plumb_config *cfg = &r->c->cfg;
	const struct plumb_extent extent = {.T = c->call.T, .capacity = c->env.capacity};
	const int32_t *block = NULL;
	int status = PLUMB_OK;

	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const void *data = plumb_operand_get(r->c->args, o);
		if (!data || !plumb_operand_is_array(o) || (o->role != PLUMB_IN && o->role != PLUMB_STATE))
			continue;
		int64_t count = plumb_shape_count(o->shape, cfg, &extent);
		if (strcmp(o->name, "token") == 0)
			status = check_ids(r, o->name, data, count, cfg->vocab, "vocab_size");
		else if (strcmp(o->name, "expert") == 0)
			status = check_ids(r, o->name, data, count, cfg->experts, "num_experts");
		else if (strcmp(o->name, "history") == 0)
			status = check_history(r, data, count);
		else if (strcmp(o->name, "position") == 0 && *(const int32_t *)data != r->c->call.position)
			status = REFUSE(r, "%s: in/position is %d, expected %" PRId64 " (attribute position)", r->path,
				*(const int32_t *)data, r->c->call.position);
		else if (strcmp(o->name, "block") == 0)
			block = data;
		else if (strcmp(o->name, "count") == 0 && block)
			status = check_blocks(r, block, data);
	}
	return status;
}
