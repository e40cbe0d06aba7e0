/* SPDX-License-Identifier: MIT */
/* What ops write, into the part file: every tensor in the arrangement of the golden format, row by row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/moe.h"
#include "core/ops/qsa.h"
#include "tools/check_internal.h"
#include "tools/golden_maker.h"

/* Scratch of so many bytes; grown. */
static void *scratch(struct golden_recorder *r, size_t bytes)
{
	if (bytes > r->row_bytes) {
		void *more = realloc(r->row, bytes);
		if (!more) {
			plumb_fail(r->err, PLUMB_BAD_INPUT, "out of memory for %zu bytes of rows", bytes);
			return NULL;
		}
		r->row = more;
		r->row_bytes = bytes;
	}
	return r->row;
}

/* count values of a tensor from element `first` on. */
static int put(struct golden_recorder *r, const struct golden_tensor *t, int64_t first, const void *values, int64_t count)
{
	if (t->type == PLUMB_H5_FLOAT && t->value_bytes == 4)
		for (int64_t i = 0; i < count; i++)
			r->nan += isnan(((const float *)values)[i]) != 0;
	return golden_part_write(r->part, t->offset + first * t->value_bytes, values, count * t->value_bytes, r->err);
}

static int put_rows(struct golden_recorder *r, const struct plumb_call *call, const struct golden_tensor *t)
{
	const float *ours = check_operand(call, t->source->operand);
	int64_t width = t->count / r->plan->T;

	if (!ours)
		return plumb_fail(r->err, PLUMB_BAD_INPUT,
			"%s: the function that runs %s does not write %s; --tensors leaves it out", t->name,
			plumb_ops[call->op].name, t->source->operand);
	return put(r, t, call->position * width, ours, call->T * width);
}

static int put_first_stream(struct golden_recorder *r, const struct plumb_call *call, const struct golden_tensor *t)
{
	const float *ours = check_operand(call, t->source->operand);
	int64_t D = r->plan->cfg->hidden, S = r->plan->cfg->streams;
	int status = PLUMB_OK;

	for (int64_t i = 0; i < call->T && status == PLUMB_OK; i++)
		status = put(r, t, (call->position + i) * D, ours + i * S * D, D);
	return status;
}

/* Rows that the call appended to a cache; [H, T, Dh], or with one head [T, width]. */
static int put_cache(struct golden_recorder *r, const struct plumb_call *call, const struct golden_tensor *t)
{
	const struct plumb_cache *cache = check_operand(call, t->source->operand);
	int64_t heads = t->source->form == PLUMB_GOLDEN_CACHE_HEADS ? r->plan->cfg->kv_heads : 1;
	int64_t width = cache->width / heads;
	float *row = scratch(r, (size_t)cache->width * sizeof *row);
	int status = row ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t p = call->position; p < call->position + call->T && status == PLUMB_OK; p++) {
		plumb_cache_get(cache, p, row);
		for (int64_t h = 0; h < heads && status == PLUMB_OK; h++)
			status = put(r, t, (h * r->plan->T + p) * width, row + h * width, width);
	}
	return status;
}

static int put_experts(struct golden_recorder *r, const struct plumb_call *call, const struct golden_tensor *t)
{
	const struct plumb_moe_router *a = call->args;
	int64_t n = call->T * r->plan->cfg->experts_per_token;
	int64_t *wide = scratch(r, (size_t)n * sizeof *wide);

	if (!wide)
		return PLUMB_BAD_INPUT;
	for (int64_t i = 0; i < n; i++)
		wide[i] = a->expert[i];
	return put(r, t, call->position * r->plan->cfg->experts_per_token, wide, n);
}

/* A row of the mask: the tokens of the chosen blocks, and those behind the last complete block up to the row's own. */
static int put_mask(struct golden_recorder *r, const struct plumb_call *call, const struct golden_tensor *t)
{
	const struct plumb_qsa_select *a = call->args;
	int64_t T = r->plan->T, B = r->plan->cfg->block_tokens, N = r->plan->cfg->block_budget;
	unsigned char *row = scratch(r, (size_t)T);
	int status = row ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t i = 0; i < call->T && status == PLUMB_OK; i++) {
		int64_t p = call->position + i, complete = (p + 1) / B;
		memset(row, 0, (size_t)T);
		for (int64_t k = 0; k < a->count[i]; k++) {
			int64_t b = a->block[i * N + k];
			if (b < 0 || b >= complete)
				return plumb_fail(r->err, PLUMB_BAD_INPUT, "%s: row %lld chose block %lld of %lld", t->name,
					(long long)p, (long long)b, (long long)complete);
			memset(row + b * B, 1, (size_t)B);
		}
		memset(row + complete * B, 1, (size_t)(p + 1 - complete * B));
		status = put(r, t, p * T, row, T);
	}
	return status;
}

static int put_tensor(struct golden_recorder *r, const struct plumb_call *call, const struct golden_tensor *t)
{
	switch (t->source->form) {
	case PLUMB_GOLDEN_ROWS:
		return put_rows(r, call, t);
	case PLUMB_GOLDEN_FIRST_STREAM:
		return put_first_stream(r, call, t);
	case PLUMB_GOLDEN_CACHE_HEADS:
	case PLUMB_GOLDEN_CACHE_ROWS:
		return put_cache(r, call, t);
	case PLUMB_GOLDEN_EXPERTS:
		return put_experts(r, call, t);
	case PLUMB_GOLDEN_MASK:
		return put_mask(r, call, t);
	case PLUMB_GOLDEN_STATE:
		break; /* golden_record_states */
	}
	return PLUMB_OK;
}

static int after(void *self, const struct plumb_call *call)
{
	struct golden_recorder *r = self;
	int status = PLUMB_OK;

	for (int i = 0; i < plumb_golden_source_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		if (s->op != call->op || (s->site != PLUMB_SITE_NONE && s->site != call->site))
			continue;
		const struct golden_tensor *t = golden_plan_of(r->plan, r->run, s, call->layer);
		if (t)
			status = put_tensor(r, call, t);
	}
	return status;
}

struct plumb_observer golden_record_observer(struct golden_recorder *recorder)
{
	return (struct plumb_observer){.after = after, .self = recorder};
}

int golden_record_states(struct golden_recorder *r, struct plumb_decoder *decoder)
{
	int status = PLUMB_OK;

	for (int i = 0; i < r->run->tensors && status == PLUMB_OK; i++) {
		const struct golden_tensor *t = &r->run->tensor[i];
		if (t->fill != GOLDEN_FILL_STATE)
			continue;
		void *values = scratch(r, (size_t)(t->count * t->value_bytes));
		if (!values)
			return PLUMB_BAD_INPUT;
		plumb_golden_state(t->source, r->plan->cfg, plumb_decoder_state(decoder, t->layer),
			plumb_decoder_position(decoder), t->type == PLUMB_H5_FLOAT ? values : NULL,
			t->type == PLUMB_H5_INT ? values : NULL);
		status = put(r, t, 0, values, t->count);
	}
	return status;
}

void golden_record_free(struct golden_recorder *r)
{
	free(r->row);
	r->row = NULL;
	r->row_bytes = 0;
}
