/* SPDX-License-Identifier: MIT */
/* What the tests of a stage share: random operands, buffers between guard zones, comparison of bits, intervals,
 * devices. (tools/trial.h tests any op by its table row; the tests of a stage choose their data by hand.) A
 * helper that fails prints why and ends the test (Check). */
#ifndef PLUMB_TESTS_SUPPORT_STAGE_TEST_H
#define PLUMB_TESTS_SUPPORT_STAGE_TEST_H

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/op.h"
#include "core/weight.h"
#include "opt/device.h"
#include "opt/poison.h"

/* ---- random numbers: splitmix64 ---- */

static inline uint64_t st_random(uint64_t *state)
{
	uint64_t v = *state += UINT64_C(0x9E3779B97F4A7C15);
	v = (v ^ v >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	v = (v ^ v >> 27) * UINT64_C(0x94D049BB133111EB);
	return v ^ v >> 31;
}

/* 0 .. n-1 */
static inline int64_t st_below(uint64_t *state, int64_t n)
{
	return (int64_t)(st_random(state) % (uint64_t)n);
}

/* About normal, a bf16 value: F32 and BF16 hold it exactly. */
static inline float st_normal(uint64_t *state, double scale)
{
	double sum = -2.0;
	uint64_t bits = st_random(state);
	for (int i = 0; i < 4; i++, bits >>= 16)
		sum += (double)(bits & 0xFFFF) / 65536.0;
	return plumb_round_bf16((float)(sum * 1.7 * scale));
}

/* The same with all 24 bits in use, so that the low bits of a sum depend on its order. */
static inline float st_full(uint64_t *state, double scale)
{
	return st_normal(state, scale) * (1.0f + (float)st_below(state, 1 << 20) * 0x1p-22f);
}

/* ---- memory: what is asked for lies between zones that nobody may write ---- */

enum { ST_ZONE = 256 }; /* bytes */

struct st_buffer {
	unsigned char *all;
	size_t bytes;
};

static inline struct st_buffer st_buffer_new(size_t bytes)
{
	struct st_buffer b = {malloc(bytes + 2 * ST_ZONE), bytes};
	ck_assert_ptr_nonnull(b.all);
	memset(b.all, 0xFF, bytes + 2 * ST_ZONE); /* NaN in every format: a read past the end shows as well */
	return b;
}

static inline struct st_buffer st_floats_new(int64_t count)
{
	return st_buffer_new((size_t)count * sizeof(float));
}

static inline void *st_at(struct st_buffer b)
{
	return b.all + ST_ZONE;
}

static inline float *st_floats(struct st_buffer b)
{
	return st_at(b);
}

static inline void st_buffer_check(struct st_buffer b, const char *name)
{
	for (size_t i = 0; i < ST_ZONE; i++) {
		ck_assert_msg(b.all[i] == 0xFF, "%s: written %zu bytes before its start", name, ST_ZONE - i);
		ck_assert_msg(b.all[ST_ZONE + b.bytes + i] == 0xFF, "%s: written %zu bytes behind its end", name, i);
	}
}

/* Before a call: what the op leaves unwritten then shows. Even runs hold NaN, odd ones large finite values. */
static inline void st_buffer_poison(struct st_buffer b, int run)
{
	plumb_poison_fill(run % 2 ? PLUMB_POISON_LARGE : PLUMB_POISON_NAN, PLUMB_POISON_32, st_at(b), 0, b.bytes / 4);
}

static inline void st_buffer_free(struct st_buffer b)
{
	free(b.all);
}

/* ---- weights ---- */

struct st_weight {
	struct plumb_weight w;
	struct st_buffer memory;
};

/* Random weights whose data starts `shift` elements behind a 16-byte boundary, NaN around them. */
static inline struct st_weight st_weight_new(
	uint64_t *state, int64_t rows, int64_t cols, double scale, enum plumb_format format, int shift)
{
	size_t size = plumb_format_row_bytes(format, 1), n = (size_t)(rows * cols);
	struct st_weight o = {{.format = format, .rows = rows, .cols = cols}, st_buffer_new((n + (size_t)shift) * size)};
	unsigned char *data = (unsigned char *)st_at(o.memory) + (size_t)shift * size;

	for (size_t i = 0; i < n; i++) {
		float value = st_normal(state, scale);
		plumb_encode(format, &value, 1, data + i * size);
	}
	o.w.data = data;
	return o;
}

static inline void st_weight_free(struct st_weight o)
{
	st_buffer_free(o.memory);
}

/* The values in binary64, row-major; free() it. */
static inline double *st_decoded(const struct plumb_weight *w)
{
	double *wide = malloc((size_t)(w->rows * w->cols) * sizeof *wide);
	float *narrow = malloc((size_t)w->cols * sizeof *narrow);

	ck_assert(wide && narrow);
	for (int64_t n = 0; n < w->rows; n++) {
		plumb_weight_row(w, n, 0, w->cols, narrow);
		for (int64_t k = 0; k < w->cols; k++)
			wide[n * w->cols + k] = (double)narrow[k];
	}
	free(narrow);
	return wide;
}

/* ---- comparison ---- */

/* The first element whose bits differ, or -1. A NaN equals any NaN. */
static inline int64_t st_difference(const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (plumb_f32_bits(a[i]) != plumb_f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i])))
			return i;
	return -1;
}

/* Numbers between lo and hi: what a computation can give when each of its roundings errs as far as it may. */
struct st_range {
	double lo, hi;
};

static inline struct st_range st_around(double value, double error)
{
	struct st_range r = {value - error, value + error};
	return r;
}

/* One more operation of this relative error; results may be subnormal. */
static inline struct st_range st_widened(struct st_range r, double relative)
{
	struct st_range wide = {r.lo - relative * fabs(r.lo) - 0x1p-149, r.hi + relative * fabs(r.hi) + 0x1p-149};
	return wide;
}

/* rne of the policy. Rounding is monotone, so the ends of the range give the ends of the result. */
static inline struct st_range st_rounded(enum plumb_policy policy, struct st_range r)
{
	if (policy == PLUMB_POLICY_BF16) {
		r.lo = (double)plumb_round_bf16((float)r.lo);
		r.hi = (double)plumb_round_bf16((float)r.hi);
	}
	return r;
}

static inline bool st_inside(float x, struct st_range r)
{
	return (double)x >= r.lo && (double)x <= r.hi;
}

/* gamma_d of binary32. */
static inline double st_gamma(int depth)
{
	double du = depth * 0x1p-24;
	return du / (1.0 - du);
}

/* ---- devices: one a schedule seed, open until the program ends ---- */

static const uint64_t st_seeds[] = {0, 1, 2, 77, 4096};
enum { ST_SEEDS = sizeof st_seeds / sizeof *st_seeds };

static struct plumb_device *st_devices[ST_SEEDS];

static inline struct plumb_device *st_device(int seed_index)
{
	struct plumb_device_options options = {.seed = st_seeds[seed_index]};
	struct plumb_error err = {""};

	if (!st_devices[seed_index])
		ck_assert_msg(plumb_device_open(PLUMB_DEVICE_SIMT, &options, &st_devices[seed_index], &err) == PLUMB_OK,
			"%s", err.text);
	return st_devices[seed_index];
}

static inline void st_devices_close(void)
{
	for (int i = 0; i < ST_SEEDS; i++)
		if (st_devices[i])
			plumb_device_close(st_devices[i]);
}

/* A device that reports races between threads; NULL in a build with sanitizers, which has no such check. To be closed. */
static inline struct plumb_device *st_race_device(void)
{
	struct plumb_device_options options = {.seed = 3, .race = true};
	struct plumb_device *device = NULL;
	struct plumb_error err = {""};

	if (plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device, &err) != PLUMB_OK)
		device = NULL;
	return device;
}

/* Call an op that must succeed. */
static inline void st_call(plumb_op_fn *op, const struct plumb_env *env, const void *args)
{
	ck_assert_msg(op(env, args) == PLUMB_OK, "%s", env->err->text);
}

#endif
