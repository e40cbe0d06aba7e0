/* SPDX-License-Identifier: MIT */
#include "tools/check_second.h"

#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "ref/ref.h"

static void *pointer_at(const void *args, const struct plumb_operand *o)
{
	void *p;
	memcpy(&p, (const char *)args + o->offset, sizeof p);
	return p;
}

static void set_pointer(void *args, const struct plumb_operand *o, void *p)
{
	memcpy((char *)args + o->offset, &p, sizeof p);
}

static size_t array_bytes(const struct plumb_call *call, const struct plumb_operand *o)
{
	struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	return (size_t)plumb_shape_count(o->shape, call->env->cfg, &extent) * plumb_operand_element(o, call->args);
}

/* Make room for bytes in *place. */
static int room(void **place, size_t bytes, const char *name, struct plumb_error *err)
{
	void *m = realloc(*place, bytes ? bytes : 1);
	if (!m)
		return plumb_fail(
		        err, PLUMB_BAD_INPUT, "out of memory for a second evaluation: %zu bytes of %s", bytes, name);
	*place = m;
	return PLUMB_OK;
}

int check_second_keep(struct check_second *s, const struct plumb_call *call, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = PLUMB_OK;

	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		if (o->role != PLUMB_STATE || !plumb_operand_is_array(o))
			continue;
		status = room(&s->before[i], array_bytes(call, o), o->name, err);
		if (status == PLUMB_OK && array_bytes(call, o))
			memcpy(s->before[i], pointer_at(call->args, o), array_bytes(call, o));
	}
	return status;
}

int check_second_before(struct check_second *s, const struct plumb_call *call, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = room(&s->args_before, info->args_size, info->name, err);

	if (status != PLUMB_OK)
		return status;
	memcpy(s->args_before, call->args, info->args_size);
	for (int i = 0; i < info->operands; i++)
		if (info->operand[i].role == PLUMB_STATE && plumb_operand_is_array(&info->operand[i]))
			set_pointer(s->args_before, &info->operand[i], s->before[i]);
	return PLUMB_OK;
}

/* Rows of a cache that a call of T rows at a position writes: those of its tokens, or the blocks they complete. */
static void written_rows(const struct plumb_call *call, const struct plumb_operand *o, int64_t *first, int64_t *last)
{
	int64_t unit = strncmp(o->shape, "NB", 2) == 0 ? call->env->cfg->block_tokens : 1;
	*first = call->position / unit;
	*last = (call->position + call->T) / unit;
}

static void copy_rows(const struct plumb_call *call, const struct plumb_operand *o, char *kept, bool back)
{
	const struct plumb_cache *cache = pointer_at(call->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	int64_t first, last;

	written_rows(call, o, &first, &last);
	for (int64_t r = first; r < last; r++, kept += bytes) {
		if (back)
			memcpy(plumb_cache_row(cache, r), kept, bytes);
		else
			memcpy(kept, plumb_cache_row(cache, r), bytes);
	}
}

static int keep_rows(struct check_second *s, int i, const struct plumb_call *call, struct plumb_error *err)
{
	const struct plumb_operand *o = &plumb_ops[call->op].operand[i];
	const struct plumb_cache *cache = pointer_at(call->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	int status = room(&s->rows[i], (size_t)(call->T + 1) * bytes, o->name, err);

	if (status == PLUMB_OK)
		copy_rows(call, o, s->rows[i], false);
	return status;
}

int check_second_run(struct check_second *s, const struct plumb_call *call, bool unrounded, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_env env = *call->env;
	int status = room(&s->args, info->args_size, info->name, err);

	if (status == PLUMB_OK)
		memcpy(s->args, call->args, info->args_size);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		bool state = o->role == PLUMB_STATE;
		if (!pointer_at(call->args, o) || (o->role != PLUMB_OUT && !state))
			continue;
		if (o->kind == PLUMB_KIND_CACHE) {
			status = keep_rows(s, i, call, err);
			continue;
		}
		size_t bytes = array_bytes(call, o);
		status = room(&s->scratch[i], bytes, o->name, err);
		if (status == PLUMB_OK && state && bytes)
			memcpy(s->scratch[i], s->before[i], bytes);
		set_pointer(s->args, o, s->scratch[i]);
	}
	env.unrounded = unrounded;
	env.device = NULL;
	env.err = err;
	if (status == PLUMB_OK) {
		status = plumb_ref_oracle.op[call->op](&env, s->args);
		if (status != PLUMB_OK)
			check_second_undo(s, call);
	}
	return status;
}

void check_second_undo(struct check_second *s, const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	for (int i = 0; i < info->operands; i++)
		if (info->operand[i].role == PLUMB_STATE && info->operand[i].kind == PLUMB_KIND_CACHE)
			copy_rows(call, &info->operand[i], s->rows[i], true);
}

void check_second_free(struct check_second *s)
{
	for (int i = 0; i < CHECK_SECOND_OPERANDS; i++) {
		free(s->before[i]);
		free(s->scratch[i]);
		free(s->rows[i]);
	}
	free(s->args);
	free(s->args_before);
	memset(s, 0, sizeof *s);
}
