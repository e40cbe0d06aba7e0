/* SPDX-License-Identifier: MIT */
#include "tools/check_second.h"

#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "golden/case.h"
#include "ref/ref.h"

enum { ROWS_BEYOND = 64 }; /* of a cache */

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
			memcpy(s->before[i], plumb_operand_get(call->args, o), array_bytes(call, o));
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
			plumb_operand_set(s->args_before, &info->operand[i], s->before[i]);
	return PLUMB_OK;
}

static void copy_rows(const struct plumb_call *call, const struct plumb_operand *o, char *kept, bool back)
{
	const struct plumb_cache *cache = plumb_operand_get(call->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	int64_t first, last;

	plumb_case_written_rows(call, o, &first, &last);
	for (int64_t r = first; r < last; r++, kept += bytes) {
		if (back)
			memcpy(plumb_cache_row(cache, r), kept, bytes);
		else
			memcpy(kept, plumb_cache_row(cache, r), bytes);
	}
}

static int hold_rows(struct check_second *s, int i, const struct plumb_call *call, struct plumb_error *err)
{
	const struct plumb_operand *o = &plumb_ops[call->op].operand[i];
	const struct plumb_cache *cache = plumb_operand_get(call->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	int status = room(&s->rows[i], (size_t)(call->T + 1) * bytes, o->name, err);

	if (status == PLUMB_OK)
		copy_rows(call, o, s->rows[i], false);
	return status;
}

static bool is_row_state(const struct plumb_operand *o)
{
	return o->role == PLUMB_STATE && o->kind == PLUMB_KIND_CACHE;
}

int check_second_hold(struct check_second *s, const struct plumb_call *call, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = PLUMB_OK;

	for (int i = 0; i < info->operands && status == PLUMB_OK; i++)
		if (is_row_state(&info->operand[i]))
			status = hold_rows(s, i, call, err);
	return status;
}

/* Poison the rows of a cache that the call has to write, and some that nobody has written yet: rows of later tokens, of which a
 * call makes nothing. */
static void poison_rows(const struct plumb_call *call, const struct plumb_operand *o, enum plumb_poison poison)
{
	const struct plumb_cache *cache = plumb_operand_get(call->args, o);
	enum plumb_poison_unit unit = plumb_poison_unit(cache->format);
	int64_t first, last;

	plumb_case_written_rows(call, o, &first, &last);
	first = o->role == PLUMB_STATE ? first : last;
	last = last + ROWS_BEYOND < cache->rows ? last + ROWS_BEYOND : cache->rows;
	for (int64_t r = first; r < last; r++)
		plumb_poison_fill(poison, unit, plumb_cache_row(cache, r), (size_t)(r - first) * (size_t)cache->width,
			(size_t)cache->width);
}

static void poison_array(const struct plumb_call *call, const struct plumb_operand *o, enum plumb_poison poison, void *data)
{
	enum plumb_poison_unit unit =
		o->kind == PLUMB_KIND_I64 ? PLUMB_POISON_64 : plumb_poison_unit(plumb_operand_format(o, call->args));
	plumb_poison_fill(poison, unit, data, 0, array_bytes(call, o) / plumb_operand_element(o, call->args));
}

int check_second_run_by(
	struct check_second *s, const struct plumb_call *call, const struct check_second_way *way, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_binding by = way->by.set ? way->by : (struct plumb_binding){.set = &plumb_ref_oracle};
	struct plumb_env env = *call->env;
	struct plumb_call again = *call;
	int status = room(&s->args, info->args_size, info->name, err);

	if (status == PLUMB_OK)
		memcpy(s->args, call->args, info->args_size);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		bool state = o->role == PLUMB_STATE;
		if (o->role == PLUMB_IN && o->kind == PLUMB_KIND_CACHE && way->poison != PLUMB_POISON_OFF)
			poison_rows(call, o, way->poison);
		if (!plumb_operand_get(call->args, o) || (o->role != PLUMB_OUT && !state))
			continue;
		if (o->kind == PLUMB_KIND_CACHE) {
			status = hold_rows(s, i, call, err);
			if (status == PLUMB_OK && way->poison != PLUMB_POISON_OFF)
				poison_rows(call, o, way->poison);
			continue;
		}
		size_t bytes = array_bytes(call, o);
		status = room(&s->scratch[i], bytes, o->name, err);
		if (status == PLUMB_OK && state && bytes)
			memcpy(s->scratch[i], s->before[i], bytes);
		else if (status == PLUMB_OK && bytes && way->poison != PLUMB_POISON_OFF)
			poison_array(call, o, way->poison, s->scratch[i]);
		plumb_operand_set(s->args, o, s->scratch[i]);
	}
	env.unrounded = way->unrounded;
	env.device = by.device;
	env.err = err;
	env.call = &again;
	again.env = &env;
	again.binding = &by;
	again.args = s->args;
	if (status == PLUMB_OK) {
		status = way->runner ? way->runner->run(way->runner->self, &again) : by.set->op[call->op](&env, s->args);
		if (status != PLUMB_OK)
			check_second_undo(s, call);
	}
	return status;
}

int check_second_run(struct check_second *s, const struct plumb_call *call, bool unrounded, struct plumb_error *err)
{
	return check_second_run_by(s, call, &(struct check_second_way){.unrounded = unrounded}, err);
}

void check_second_undo(struct check_second *s, const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	for (int i = 0; i < info->operands; i++)
		if (is_row_state(&info->operand[i]))
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
