/* SPDX-License-Identifier: MIT */
#include "tests/support/op_call.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "opt/opt.h"
#include "ref/twin/twin.h"

enum { ZONE = 64, MEMORIES = 4096, SEEDS = 5, CAPACITY = 64 };

/* ---- values ---- */

uint64_t op_call_seed;

uint64_t draw(void)
{
	uint64_t z = op_call_seed += UINT64_C(0x9E3779B97F4A7C15);
	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

int64_t below(int64_t n)
{
	return (int64_t)(draw() % (uint64_t)n);
}

float uniform(void) /* -1 .. 1 */
{
	return (float)((double)(draw() >> 11) * 0x1p-52 - 1.0);
}

static void *memory[MEMORIES];
static int memories;

void *take(size_t bytes)
{
	void *m = malloc(bytes ? bytes : 1);
	ck_assert_ptr_nonnull(m);
	ck_assert_int_lt(memories, MEMORIES);
	return memory[memories++] = m;
}

void release(void)
{
	while (memories)
		free(memory[--memories]);
}

static float value_of(enum input input, int64_t i, int64_t n)
{
	bool placed = i == 0 || i == n / 2 || i == n - 1;
	float x = uniform();
	switch (input) {
	case ZEROS:
		return x < 0.0f ? -0.0f : 0.0f;
	case SUBNORMAL:
		return x * 0x1p-127f;
	case TINY:
		return x * 1e-20f;
	case HUGE_VALUES:
		return x * 1e19f; /* squares overflow */
	case NAN_PLACED:
		return placed ? NAN : x;
	case INF_PLACED:
		return placed ? (x < 0.0f ? -INFINITY : INFINITY) : x;
	default:
		return x * 2.0f;
	}
}

float *values(int64_t n, enum input input, enum plumb_policy policy)
{
	float *x = take((size_t)n * sizeof *x);
	for (int64_t i = 0; i < n; i++) {
		x[i] = value_of(input, i, n);
		if (policy == PLUMB_POLICY_BF16)
			x[i] = plumb_round_bf16(x[i]);
	}
	return x;
}

struct plumb_weight *matrix(enum plumb_format format, int64_t rows, int64_t cols, int offset)
{
	size_t element = format == PLUMB_F32 ? 4 : 2;
	float *x = values(rows * cols, ORDINARY, PLUMB_POLICY_F32);
	unsigned char *data = take((size_t)(rows * cols) * element + 48);
	struct plumb_weight *w = take(sizeof *w);

	for (int64_t i = 0; i < rows * cols; i++)
		x[i] *= 0.6f * sqrtf(3.0f / (float)cols);
	data += (16 - (uintptr_t)data % 16) % 16 + (size_t)offset * element;
	plumb_encode(format, x, rows * cols, data);
	*w = (struct plumb_weight){.format = format, .rows = rows, .cols = cols, .data = data};
	return w;
}

/* ---- calls: operands come from the table of ops ---- */

static const char *const policy_name[] = {"f32", "bf16"};

static void **operand_at(void *arguments, const struct plumb_operand *o)
{
	return (void **)((char *)arguments + o->offset);
}

static int64_t operand_count(const struct call *c, const struct plumb_operand *o)
{
	struct plumb_extent extent = {c->arguments.T, CAPACITY};
	return plumb_shape_count(o->shape, &c->cfg, &extent);
}

static size_t operand_bytes(const struct call *c, const struct plumb_operand *o)
{
	return (size_t)operand_count(c, o) * plumb_operand_element(o, &c->arguments);
}

static bool written(const struct plumb_operand *o)
{
	return o->role == PLUMB_OUT || o->role == PLUMB_STATE;
}

void fill(struct call *c)
{
	const struct plumb_op_info *info = &plumb_ops[c->op];
	struct plumb_extent extent = {c->arguments.T, CAPACITY};
	int64_t dim[8];

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		void **at = operand_at(&c->arguments, o);
		if (o->kind == PLUMB_KIND_F32 && o->role != PLUMB_OUT)
			*at = values(operand_count(c, o), c->input, o->role == PLUMB_STATE ? PLUMB_POLICY_F32 : c->policy);
		if (o->kind == PLUMB_KIND_STORED) {
			int64_t n = operand_count(c, o);
			*at = take(operand_bytes(c, o));
			plumb_encode(plumb_operand_format(o, &c->arguments), values(n, c->input, PLUMB_POLICY_F32), n, *at);
		}
		if (o->kind == PLUMB_KIND_I32 && strcmp(o->name, "position") == 0)
			*at = memcpy(take(4), &c->position, 4);
		if (o->kind == PLUMB_KIND_WEIGHT) {
			ck_assert_int_eq(plumb_shape_eval(o->shape, &c->cfg, &extent, dim), 2);
			*at = matrix(c->format, dim[0], dim[1], c->offset);
		}
	}
}

struct result run(const struct call *c, plumb_op_fn *fn, enum plumb_poison poison, struct plumb_device *device)
{
	const struct plumb_op_info *info = &plumb_ops[c->op];
	struct plumb_error err = {""};
	struct plumb_env env = {.cfg = &c->cfg, .policy = c->policy, .capacity = CAPACITY, .err = &err, .device = device};
	struct call own = *c;
	struct result result = {{NULL}};

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		size_t bytes = operand_bytes(c, o);
		if (!written(o))
			continue;
		/* every second buffer is not 16-byte aligned, so that a kernel shows both its ways of loading */
		size_t skew = o->kind == PLUMB_KIND_I64
		                      ? 0
		                      : (size_t)(below(2) * below(4)) * plumb_operand_element(o, &c->arguments);
		unsigned char *m = take(bytes + 3 * ZONE);
		memset(m, 0xA5, bytes + 3 * ZONE);
		result.data[i] = m + ZONE + skew;
		if (o->role == PLUMB_STATE)
			memcpy(result.data[i], *operand_at(&own.arguments, o), bytes);
		else
			plumb_poison_fill(poison, o->kind == PLUMB_KIND_I64 ? PLUMB_POISON_64 : PLUMB_POISON_32,
				result.data[i], 0, (size_t)operand_count(c, o));
		*operand_at(&own.arguments, o) = result.data[i];
	}
	if (device)
		plumb_device_poison(device, poison, info->name);
	ck_assert_msg(fn(&env, &own.arguments) == PLUMB_OK, "%s: %s", info->name, err.text);
	if (device) {
		ck_assert_msg(plumb_device_check(device, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_msg(plumb_device_forget(device, &err) == PLUMB_OK, "%s", err.text);
	}
	for (int i = 0; i < info->operands; i++)
		for (int z = 0; result.data[i] && z < ZONE; z++)
			ck_assert_msg(result.data[i][-1 - z] == 0xA5 &&
					      result.data[i][operand_bytes(c, &info->operand[i]) + (size_t)z] == 0xA5,
				"%s: wrote outside of %s", info->name, info->operand[i].name);
	return result;
}

static bool same(uint32_t a, uint32_t b) /* as binary32: the same bits, or NaN twice */
{
	return a == b || ((a & 0x7FFFFFFFu) > 0x7F800000u && (b & 0x7FFFFFFFu) > 0x7F800000u);
}

const char *difference(const struct call *c, const struct result *a, const struct result *b)
{
	static char text[256];
	const struct plumb_op_info *info = &plumb_ops[c->op];

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		enum plumb_format format = plumb_operand_format(o, &c->arguments);
		size_t unit = plumb_format_row_bytes(format, 1);
		for (size_t at = 0; a->data[i] && at < operand_bytes(c, o); at += unit) {
			uint32_t x, y;
			plumb_decode(format, a->data[i] + at, 1, (float *)(void *)&x);
			plumb_decode(format, b->data[i] + at, 1, (float *)(void *)&y);
			if (plumb_operand_is_real(o) ? same(x, y) : x == y)
				continue;
			snprintf(text, sizeof text,
				"%s, T %lld, position %d, %s, input %d, format %s: %s (%s) element %zu is %08x, not %08x",
				info->name, (long long)c->arguments.T, c->position, policy_name[c->policy], c->input,
				plumb_format_name(c->format), o->name, plumb_format_name(format), at / unit, x, y);
			return text;
		}
	}
	return NULL;
}

float *floats(const struct call *c, const struct result *r, const char *name)
{
	const struct plumb_op_info *info = &plumb_ops[c->op];
	for (int i = 0; i < info->operands; i++)
		if (strcmp(info->operand[i].name, name) == 0)
			return (float *)(void *)r->data[i];
	ck_abort_msg("%s has no operand %s", info->name, name);
}

static struct plumb_device *simt(uint64_t seed)
{
	struct plumb_device_options options = {.seed = seed, .poison = PLUMB_POISON_NAN};
	struct plumb_device *device = NULL;
	struct plumb_error err = {""};
	ck_assert_msg(plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device, &err) == PLUMB_OK, "%s", err.text);
	return device;
}

static struct plumb_device *devices[SEEDS]; /* seed 0 is natural order */

void open_devices(void)
{
	for (int s = 0; s < SEEDS; s++)
		devices[s] = simt((uint64_t)s);
}

void close_devices(void)
{
	for (int s = 0; s < SEEDS; s++)
		plumb_device_close(devices[s]);
	release();
}

struct plumb_device *any_device(void)
{
	return devices[below(SEEDS)];
}

struct result agree(const struct call *c)
{
	plumb_op_fn *twin = plumb_ref_twin.op[c->op], *opt = plumb_opt_set.op[c->op];
	struct result expected = run(c, twin, PLUMB_POISON_NAN, NULL);
	struct result other[] = {
		run(c, twin, PLUMB_POISON_LARGE, NULL),
		run(c, opt, PLUMB_POISON_NAN, devices[0]),
		run(c, opt, PLUMB_POISON_LARGE, devices[1 + below(SEEDS - 1)]),
	};
	for (int i = 0; i < 3; i++) {
		const char *text = difference(c, &other[i], &expected);
		ck_assert_msg(!text, "%s", text);
	}
	return expected;
}

void caught(const struct call *c, plumb_op_fn *wrong, const char *name)
{
	struct result right = run(c, plumb_ref_twin.op[c->op], PLUMB_POISON_NAN, NULL);
	struct result other = run(c, wrong, PLUMB_POISON_NAN, NULL);
	ck_assert_msg(difference(c, &other, &right) != NULL, "%s: nobody noticed %s", plumb_ops[c->op].name, name);
}

double gamma_of(double d)
{
	return d * 0x1p-24 / (1.0 - d * 0x1p-24);
}

void bounded(double *ratio, const char *what, int64_t i, double error, double bound)
{
	ck_assert_msg(fabs(error) <= bound, "%s: element %lld is off by %g, bound %g", what, (long long)i, error, bound);
	if (bound > 0.0 && fabs(error) / bound > *ratio)
		*ratio = fabs(error) / bound;
}

double *dense(const struct plumb_weight *w)
{
	double *out = take((size_t)(w->rows * w->cols) * sizeof *out);
	float *row = take((size_t)w->cols * sizeof *row);
	for (int64_t n = 0; n < w->rows; n++) {
		plumb_weight_row(w, n, 0, w->cols, row);
		for (int64_t k = 0; k < w->cols; k++)
			out[n * w->cols + k] = (double)row[k];
	}
	return out;
}
