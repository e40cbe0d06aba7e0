/* SPDX-License-Identifier: MIT */
/* Running a trial, and whether two results are the same. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tools/trial_private.h"

bool trial_written(const struct trial_operand *o)
{
	return !o->absent && (o->info->role == PLUMB_OUT || o->info->role == PLUMB_STATE);
}

static void prepare(struct trial *c, enum plumb_poison poison)
{
	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		if (o->absent)
			continue;
		if (o->info->role == PLUMB_OUT)
			plumb_poison_fill(poison,
				o->info->kind == PLUMB_KIND_I64 ? PLUMB_POISON_64 : plumb_poison_unit(o->format),
				o->memory.data, 0, (size_t)o->count);
		else if (o->before)
			trial_memory_scatter(&o->memory, o->before);
		if (o->scale_before)
			trial_memory_scatter(&o->scale, o->scale_before);
	}
}

/* What a call may not have done. */
static bool untouched(const struct trial *c, const char *what, char text[TRIAL_TEXT])
{
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		const char *fault = NULL;
		if (o->memory.block && !trial_memory_intact(&o->memory))
			fault = "was written outside";
		else if (o->before && o->info->role != PLUMB_STATE && !trial_memory_is(&o->memory, o->before))
			fault = "is an input and was changed";
		else if (o->page_before && !trial_memory_is(&o->page, o->page_before))
			fault = "had its page table changed";
		else if (o->scale_before && !trial_memory_is(&o->scale, o->scale_before))
			fault = "had its scales changed";
		if (fault) {
			snprintf(text, TRIAL_TEXT, "%s: %s %s", what, o->info->name, fault);
			return false;
		}
	}
	return true;
}

struct plumb_call trial_call(const struct trial *c)
{
	return (struct plumb_call){
		.op = c->op,
		.layer = plumb_op_runs(&c->cfg, c->op, 0) ? 0 : c->cfg.layers,
		.position = c->position,
		.T = c->T,
		.env = &c->env,
		.args = c->args,
	};
}

bool trial_run_by(struct trial *c, const struct trial_runner *runner, enum plumb_poison poison, struct trial_result *result,
	char text[TRIAL_TEXT])
{
	struct plumb_device *device = runner->device;
	int status;

	*result = (struct trial_result){{NULL}};
	prepare(c, poison);
	c->error.text[0] = '\0';
	c->env.device = runner->env_device ? runner->env_device : device;
	if (device)
		plumb_device_poison(device, poison, plumb_ops[c->op].name);
	status = runner->run(runner->self, &c->env, c->args);
	if (device && status == PLUMB_OK)
		status = plumb_device_sync(device, &c->error);
	if (device && status == PLUMB_OK)
		status = plumb_device_check(device, &c->error);
	c->env.device = NULL;
	if (status != PLUMB_OK) {
		snprintf(text, TRIAL_TEXT, "%s: failed: %s", runner->what, c->error.text);
		return false;
	}
	if (!untouched(c, runner->what, text))
		return false;
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		if (trial_written(o)) {
			result->bytes[i] = trial_take(trial_memory_live(&o->memory));
			trial_memory_gather(&o->memory, result->bytes[i]);
		}
	}
	return true;
}

static int run_function(void *self, const struct plumb_env *env, const void *args)
{
	return (*(plumb_op_fn **)self)(env, args);
}

bool trial_run(struct trial *c, const char *what, plumb_op_fn *fn, struct plumb_device *device, enum plumb_poison poison,
	struct trial_result *result, char text[TRIAL_TEXT])
{
	struct trial_runner runner = {.what = what, .run = run_function, .self = &fn, .device = device};
	return trial_run_by(c, &runner, poison, result, text);
}

void trial_result_free(struct trial_result *r)
{
	for (int i = 0; i < TRIAL_OPERANDS; i++)
		free(r->bytes[i]);
	*r = (struct trial_result){{NULL}};
}

void trial_restore(struct trial *c, const struct trial_result *result)
{
	for (int i = 0; i < c->operands; i++)
		if (result->bytes[i])
			trial_memory_scatter(&c->operand[i].memory, result->bytes[i]);
}

int64_t trial_count(const struct trial_operand *o)
{
	return o->info->kind == PLUMB_KIND_CACHE ? o->cache.rows * o->cache.width : o->count;
}

float *trial_values(const struct trial_operand *o, const unsigned char *bytes)
{
	int64_t count = trial_count(o);
	float *v = trial_take((size_t)count * sizeof *v);
	if (o->info->kind == PLUMB_KIND_CACHE)
		plumb_cache_decode(&o->cache, bytes, count, v);
	else
		plumb_decode(o->format, bytes, count, v);
	return v;
}

/* The row of a cache that element `index` of its memory belongs to is the one whose page lies there. */
static int64_t logical(const struct trial_operand *o, int64_t index)
{
	int64_t width = o->cache.width, page_rows = o->cache.page_rows;

	if (o->info->kind != PLUMB_KIND_CACHE || o->memory.sparse) /* sparse: gathered in order */
		return index;
	int64_t row = index / width;
	for (int64_t p = 0; p < o->cache.rows / page_rows; p++)
		if (o->cache.page[p] == row / page_rows)
			return (p * page_rows + row % page_rows) * width + index % width;
	return index;
}

/* "y[3, 17]" of a flat index. */
static const char *place(const struct trial_operand *o, int64_t index, char text[128])
{
	int used = snprintf(text, 128, "%s[", o->info->name);
	int64_t rest = o->count;

	index = logical(o, index);
	for (int d = 0; d < o->rank && used < 120; d++) {
		rest /= o->dim[d];
		used += snprintf(text + used, 128 - (size_t)used, "%s%lld", d ? ", " : "", (long long)(index / rest));
		index %= rest;
	}
	snprintf(text + used, 128 - (size_t)used, "]");
	return text;
}

/* Steps of binary32 from one number to the other, through zero; -1 when one is none. */
static int64_t steps(float x, float y)
{
	int64_t a = plumb_f32_bits(x) & 0x7FFFFFFF, b = plumb_f32_bits(y) & 0x7FFFFFFF;

	if (!isfinite(x) || !isfinite(y))
		return -1;
	return llabs((signbit(x) ? -a : a) - (signbit(y) ? -b : b));
}

static bool integers_same(const struct trial_operand *o, const unsigned char *a, const unsigned char *b, const char *what,
	char text[TRIAL_TEXT])
{
	size_t n = plumb_operand_element(o->info, NULL);
	int64_t first = -1, differ = 0, x = 0, y = 0;
	char at[128];

	for (int64_t i = 0; i < o->count; i++)
		if (memcmp(a + (size_t)i * n, b + (size_t)i * n, n) != 0) {
			first = first < 0 ? i : first;
			differ++;
		}
	memcpy(&x, a + (size_t)first * n, n); /* little-endian; the low word says enough of a 32-bit one */
	memcpy(&y, b + (size_t)first * n, n);
	snprintf(text, TRIAL_TEXT, "%s: %s is %lld, expected %lld (%lld of %lld values differ)", what, place(o, first, at),
		(long long)(n == 4 ? (int32_t)x : x), (long long)(n == 4 ? (int32_t)y : y), (long long)differ,
		(long long)o->count);
	return false;
}

static bool values_same(const struct trial_operand *o, const unsigned char *a, const unsigned char *b, const char *what,
	char text[TRIAL_TEXT])
{
	float *x = trial_values(o, a), *y = trial_values(o, b);
	int64_t count = trial_count(o), first = -1, worst = -1, differ = 0, most = -1;
	char at[128], far[128];

	for (int64_t i = 0; i < count; i++) {
		if (plumb_f32_bits(x[i]) == plumb_f32_bits(y[i]) || (isnan(x[i]) && isnan(y[i])))
			continue;
		int64_t apart = steps(x[i], y[i]);
		first = first < 0 ? i : first;
		differ++;
		if (worst < 0 || (most >= 0 && (apart < 0 || apart > most))) { /* another class is worst */
			worst = i;
			most = apart;
		}
	}
	if (differ && most < 0)
		snprintf(text, TRIAL_TEXT,
			"%s: %s is %.9g, expected %.9g (%lld of %lld values differ; worst %s: %.9g, expected %.9g)", what,
			place(o, first, at), (double)x[first], (double)y[first], (long long)differ, (long long)count,
			place(o, worst, far), (double)x[worst], (double)y[worst]);
	else if (differ)
		snprintf(text, TRIAL_TEXT,
			"%s: %s is %.9g, expected %.9g (%lld of %lld values differ; worst %s: %.9g, expected %.9g, %" PRId64
			" ulp)",
			what, place(o, first, at), (double)x[first], (double)y[first], (long long)differ, (long long)count,
			place(o, worst, far), (double)x[worst], (double)y[worst], most);
	free(x);
	free(y);
	return differ == 0;
}

static bool is_integer(const struct plumb_operand *o)
{
	return o->kind == PLUMB_KIND_I32 || o->kind == PLUMB_KIND_I64;
}

bool trial_operand_same(const struct trial_operand *o, const unsigned char *a, const unsigned char *b, const char *what,
	char text[TRIAL_TEXT])
{
	if (!b) {
		snprintf(text, TRIAL_TEXT, "%s: nothing of %s is there", what, o->info->name);
		return false;
	}
	if (memcmp(a, b, trial_memory_live(&o->memory)) == 0)
		return true;
	if (is_integer(o->info))
		return integers_same(o, a, b, what, text);
	return values_same(o, a, b, what, text);
}

int trial_differs(const struct trial *c, const struct trial_result *a, const struct trial_result *b, bool integers)
{
	char text[TRIAL_TEXT];
	for (int i = 0; i < c->operands; i++)
		if (a->bytes[i] && (!integers || is_integer(c->operand[i].info)) &&
			!trial_operand_same(&c->operand[i], a->bytes[i], b->bytes[i], "", text))
			return i;
	return -1;
}

bool trial_same(struct trial *c, const struct trial_result *a, const struct trial_result *b, const char *what,
	char text[TRIAL_TEXT])
{
	for (int i = 0; i < c->operands; i++)
		if (a->bytes[i] && !trial_operand_same(&c->operand[i], a->bytes[i], b->bytes[i], what, text))
			return false;
	return true;
}

/* 0: a number, 1: NaN, 2: Inf, 3: -Inf. */
static int kind_of(float x)
{
	return isnan(x) ? 1 : isinf(x) ? 2 + !!signbit(x) : 0;
}

static bool kinds_same(const struct trial_operand *o, const unsigned char *a, const unsigned char *b, const char *what,
	char text[TRIAL_TEXT])
{
	float *x = trial_values(o, a), *y = trial_values(o, b);
	int64_t count = trial_count(o), at = 0;
	char where[128];

	while (at < count && kind_of(x[at]) == kind_of(y[at]))
		at++;
	if (at < count)
		snprintf(text, TRIAL_TEXT, "%s: %s is %.9g, expected %.9g: a NaN or Inf on one side", what,
			place(o, at, where), (double)x[at], (double)y[at]);
	free(x);
	free(y);
	return at == count;
}

bool trial_same_kinds(struct trial *c, const struct trial_result *a, const struct trial_result *b, const char *what,
	char text[TRIAL_TEXT])
{
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		bool integer = is_integer(o->info);
		if (a->bytes[i] && !(integer ? trial_operand_same(o, a->bytes[i], b->bytes[i], what, text)
					     : kinds_same(o, a->bytes[i], b->bytes[i], what, text)))
			return false;
	}
	return true;
}

bool trial_agree(struct trial *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[TRIAL_TEXT])
{
	plumb_op_fn *reference = plumb_ref_twin.op[c->op];
	struct trial_result twin = {{NULL}}, other = {{NULL}};
	bool ok = trial_run(c, "twin", reference, NULL, PLUMB_POISON_NAN, &twin, text) &&
	          trial_run(c, "twin", reference, NULL, PLUMB_POISON_LARGE, &other, text) &&
	          trial_same(c, &other, &twin, "twin, other poison", text);

	for (int d = 0; ok && d < devices; d++) {
		bool large = d % 2;
		char what[512];
		snprintf(what, sizeof what, "opt on %s, poison %s", plumb_device_description(device[d]),
			large ? "large" : "NaN");
		trial_result_free(&other);
		ok = trial_run(c, what, opt ? opt : plumb_device_set(device[d])->op[c->op], device[d],
			     large ? PLUMB_POISON_LARGE : PLUMB_POISON_NAN, &other, text) &&
		     trial_same(c, &other, &twin, what, text);
	}
	trial_result_free(&twin);
	trial_result_free(&other);
	return ok;
}

bool trial_check(struct trial *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[TRIAL_TEXT])
{
	struct trial_result oracle = {{NULL}}, twin = {{NULL}};
	bool ok = trial_run(c, "oracle", plumb_ref_oracle.op[c->op], NULL, PLUMB_POISON_LARGE, &oracle, text) &&
	          trial_bounded(c, "oracle", NULL, text) &&
	          trial_run(c, "twin", plumb_ref_twin.op[c->op], NULL, PLUMB_POISON_NAN, &twin, text) &&
	          trial_near(c, &oracle, &twin, "twin against oracle", text);

	trial_result_free(&oracle);
	trial_result_free(&twin);
	return ok && trial_agree(c, opt, device, devices, text);
}
