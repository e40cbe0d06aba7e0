/* SPDX-License-Identifier: MIT */
/* One op call under test: its memory between guard zones, and runs of different implementations on the same inputs.
 * Used by the suites of the stages with paged caches. A failure ends the test through Check, with replay text. */
#ifndef PLUMB_TESTS_SUPPORT_RIG_H
#define PLUMB_TESTS_SUPPORT_RIG_H

#include <check.h>
#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/numeric.h"
#include "core/op.h"
#include "opt/device.h"
#include "opt/mirror.h"
#include "opt/opt.h"

/* 1 under AddressSanitizer, where a run takes some ten times as long. */
#if defined(__SANITIZE_ADDRESS__)
#define RIG_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RIG_SLOW 1
#endif
#endif
#ifndef RIG_SLOW
#define RIG_SLOW 0
#endif

enum { RIG_ZONE = 256, RIG_BLOCKS = 32, RIG_WATCHES = 8, RIG_I32 = PLUMB_FORMAT_COUNT };

struct rig_watch {
	const char *name;
	unsigned char *data;
	int64_t count;
	int format;             /* enum plumb_format, or RIG_I32 */
	unsigned char *initial; /* contents before every run; NULL: poison (an output) */
};

struct rig {
	struct plumb_config cfg;
	struct plumb_error err;
	struct plumb_env env;
	uint64_t random;
	char replay[160];
	struct {
		unsigned char *block;
		size_t bytes, before;
	} block[RIG_BLOCKS];
	int blocks;
	struct rig_watch watch[RIG_WATCHES];
	int watches;
	size_t result_bytes;
	double worst; /* largest error / bound seen by rig_near */
};

/* --- random numbers: splitmix64 --- */

static inline uint64_t rig_next(struct rig *r)
{
	uint64_t z = r->random += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline int64_t rig_below(struct rig *r, int64_t n)
{
	return (int64_t)(rig_next(r) % (uint64_t)n);
}

/* About normal; a bf16 value under policy bf16, as every activation is. */
static inline float rig_normal(struct rig *r)
{
	double sum = -2.0;
	for (int i = 0; i < 4; i++)
		sum += (double)(rig_next(r) >> 40) * 0x1p-24;
	float x = (float)(sum * 1.7320508);
	return r->env.policy == PLUMB_POLICY_BF16 ? plumb_round_bf16(x) : x;
}

/* --- memory --- */

static inline size_t rig_size(int format)
{
	return format == PLUMB_F32 || format == RIG_I32 ? 4 : 2;
}

/* offset: bytes by which the data miss 16-byte alignment. */
static inline void *rig_memory(struct rig *r, size_t bytes, size_t offset)
{
	size_t before = RIG_ZONE + offset;
	unsigned char *block = malloc(before + bytes + RIG_ZONE);

	ck_assert(block && r->blocks < RIG_BLOCKS);
	memset(block, 0xff, before + bytes + RIG_ZONE); /* NaN in every format */
	r->block[r->blocks].block = block;
	r->block[r->blocks].bytes = bytes;
	r->block[r->blocks++].before = before;
	return block + before;
}

static inline void rig_check_zones(const struct rig *r, const char *who)
{
	for (int b = 0; b < r->blocks; b++) {
		size_t before = r->block[b].before, end = before + r->block[b].bytes;
		bool intact = true;
		for (size_t i = 0; i < before; i++)
			intact = intact && r->block[b].block[i] == 0xff;
		for (size_t i = end; i < end + RIG_ZONE; i++)
			intact = intact && r->block[b].block[i] == 0xff;
		ck_assert_msg(intact, "%s: %s wrote outside buffer %d", r->replay, who, b);
	}
}

static inline void rig_watch(struct rig *r, const char *name, void *data, int64_t count, int format, bool state)
{
	size_t bytes = (size_t)count * rig_size(format);
	struct rig_watch *w = &r->watch[r->watches++];

	ck_assert(r->watches <= RIG_WATCHES);
	*w = (struct rig_watch){name, data, count, format, NULL};
	r->result_bytes += bytes;
	if (state) {
		w->initial = malloc(bytes);
		ck_assert_ptr_nonnull(w->initial);
		memcpy(w->initial, data, bytes);
	}
}

/* The contents of a state were changed by hand. */
static inline void rig_state_changed(struct rig *r, const void *data)
{
	for (int w = 0; w < r->watches; w++)
		if (r->watch[w].data == data)
			memcpy(r->watch[w].initial, data, (size_t)r->watch[w].count * rig_size(r->watch[w].format));
}

static inline float *rig_output(struct rig *r, const char *name, int64_t count)
{
	float *data = rig_memory(r, (size_t)count * sizeof *data, 4 * (size_t)rig_below(r, 4));
	rig_watch(r, name, data, count, PLUMB_F32, false);
	return data;
}

static inline int32_t *rig_output_i32(struct rig *r, const char *name, int64_t count)
{
	int32_t *data = rig_memory(r, (size_t)count * sizeof *data, 4 * (size_t)rig_below(r, 4));
	rig_watch(r, name, data, count, RIG_I32, false);
	return data;
}

/* An activation, usually aligned. */
static inline float *rig_input(struct rig *r, int64_t count)
{
	float *data = rig_memory(r, (size_t)count * sizeof *data, rig_below(r, 3) ? 0 : 4);
	for (int64_t i = 0; i < count; i++)
		data[i] = rig_normal(r);
	return data;
}

static inline int32_t *rig_position(struct rig *r, int64_t p)
{
	int32_t *data = rig_memory(r, sizeof *data, 0);
	*data = (int32_t)p;
	return data;
}

/* A random weight of a random format; 16-byte aligned in two cases of three, else aligned to its element. */
static inline struct plumb_weight rig_weight(struct rig *r, int64_t rows, int64_t cols, float scale)
{
	struct plumb_weight w = {
		.format = (enum plumb_format)rig_below(r, PLUMB_PLAIN_FORMATS), .rows = rows, .cols = cols};
	size_t size = rig_size((int)w.format);
	void *data = rig_memory(r, (size_t)(rows * cols) * size, rig_below(r, 3) ? 0 : size);

	for (int64_t i = 0; i < rows * cols; i++) {
		float x = scale * rig_normal(r);
		plumb_encode(w.format, &x, 1, (unsigned char *)data + (size_t)i * size);
	}
	w.data = data;
	return w;
}

/* A paged cache of random rows. physical: pages of memory; at least as many as logical ones: a shuffled table with
 * spare pages; fewer: logical pages share them (read only). */
static inline struct plumb_cache rig_cache(struct rig *r, const char *name, enum plumb_format format, int64_t rows,
	int64_t width, int64_t page_rows, int64_t physical)
{
	int64_t logical = (rows + page_rows - 1) / page_rows, count = physical * page_rows * width;
	size_t size = rig_size((int)format);
	unsigned char *data = rig_memory(r, (size_t)count * size, rig_below(r, 3) ? 0 : size);
	int32_t *page = rig_memory(r, (size_t)logical * sizeof *page, 0);
	int32_t *order = malloc((size_t)physical * sizeof *order);

	for (int64_t i = 0; i < count; i++) {
		float x = rig_normal(r);
		plumb_encode(format, &x, 1, data + (size_t)i * size);
	}
	for (int64_t i = 0; i < physical; i++)
		order[i] = (int32_t)i;
	for (int64_t i = physical - 1; i > 0; i--) {
		int64_t j = rig_below(r, i + 1);
		int32_t swap = order[i];
		order[i] = order[j];
		order[j] = swap;
	}
	for (int64_t i = 0; i < logical; i++)
		page[i] = physical >= logical ? order[i] : (int32_t)rig_below(r, physical);
	free(order);
	rig_watch(r, name, data, count, (int)format, true);
	return (struct plumb_cache){format, data, page, (int32_t)page_rows, (int32_t)width, rows, 1.0f};
}

static inline void rig_open(struct rig *r, uint64_t seed, enum plumb_policy policy)
{
	*r = (struct rig){.random = seed, .env = {.policy = policy}};
	r->cfg.rms_norm_eps = 1e-6f;
	r->env.cfg = &r->cfg;
	r->env.err = &r->err;
}

static inline void rig_close(struct rig *r)
{
	for (int b = 0; b < r->blocks; b++)
		free(r->block[b].block);
	for (int w = 0; w < r->watches; w++)
		free(r->watch[w].initial);
}

/* --- runs --- */

/* Run fn with outputs poisoned (even poison: NaN, odd: large finite) and states as at first. Returns what outputs and
 * states hold afterwards, malloc'ed. */
static inline unsigned char *rig_run(struct rig *r, plumb_op_fn *fn, const void *args, int poison, const char *who)
{
	unsigned char *result = malloc(r->result_bytes), *at = result;

	ck_assert_ptr_nonnull(result);
	for (int w = 0; w < r->watches; w++) {
		size_t bytes = (size_t)r->watch[w].count * rig_size(r->watch[w].format);
		if (r->watch[w].initial)
			memcpy(r->watch[w].data, r->watch[w].initial, bytes);
		else
			memset(r->watch[w].data, poison % 2 ? 0x7e : 0xff, bytes);
	}
	ck_assert_msg(fn(&r->env, args) == PLUMB_OK, "%s: %s: %s", r->replay, who, r->err.text);
	rig_check_zones(r, who);
	for (int w = 0; w < r->watches; w++) {
		size_t bytes = (size_t)r->watch[w].count * rig_size(r->watch[w].format);
		memcpy(at, r->watch[w].data, bytes);
		at += bytes;
	}
	return result;
}

static inline double rig_value(int format, const unsigned char *data, int64_t i)
{
	float x;
	int32_t k;
	if (format == RIG_I32) {
		memcpy(&k, data + 4 * i, 4);
		return k;
	}
	plumb_decode((enum plumb_format)format, data + rig_size(format) * (size_t)i, 1, &x);
	return (double)x;
}

/* First element, counted over all watches, that differs in its bits (a NaN agrees with a NaN), or -1. */
static inline int64_t rig_difference(const struct rig *r, const unsigned char *a, const unsigned char *b)
{
	int64_t before = 0;
	for (int w = 0; w < r->watches; w++) {
		int format = r->watch[w].format;
		size_t size = rig_size(format);
		for (int64_t i = 0; i < r->watch[w].count; i++)
			if (memcmp(a + size * (size_t)i, b + size * (size_t)i, size) != 0 &&
				!(isnan(rig_value(format, a, i)) && isnan(rig_value(format, b, i))))
				return before + i;
		before += r->watch[w].count;
		a += size * (size_t)r->watch[w].count;
		b += size * (size_t)r->watch[w].count;
	}
	return -1;
}

/* The part of a result that belongs to an output or state. */
static inline const unsigned char *rig_part(const struct rig *r, const unsigned char *result, const char *name, int *format)
{
	for (int w = 0; w < r->watches; w++) {
		*format = r->watch[w].format;
		if (strcmp(r->watch[w].name, name) == 0)
			return result;
		result += (size_t)r->watch[w].count * rig_size(r->watch[w].format);
	}
	ck_abort_msg("no output %s", name);
}

static inline void rig_same(const struct rig *r, const unsigned char *want, const unsigned char *got, const char *who)
{
	int64_t i = rig_difference(r, want, got);
	int w = 0;
	if (i < 0)
		return;
	for (; i >= r->watch[w].count; w++) {
		want += (size_t)r->watch[w].count * rig_size(r->watch[w].format);
		got += (size_t)r->watch[w].count * rig_size(r->watch[w].format);
		i -= r->watch[w].count;
	}
	ck_abort_msg("%s: %s: %s[%lld] is %a, expected %a", r->replay, who, r->watch[w].name, (long long)i,
		rig_value(r->watch[w].format, got, i), rig_value(r->watch[w].format, want, i));
}

/* The devices of a program, one a schedule, kept open: their stacks are what costs. rig_devices_close at the end. */
enum { RIG_DEVICES = 6 };
static struct plumb_device *rig_devices[RIG_DEVICES];
static struct plumb_device *rig_gpu;
static const uint64_t rig_seeds[RIG_DEVICES] = {0, 1, 17, 4096, 77, UINT64_MAX};

static inline void rig_devices_close(void)
{
	for (int d = 0; d < RIG_DEVICES; d++)
		if (rig_devices[d])
			plumb_device_close(rig_devices[d]);
	plumb_device_close(rig_gpu);
}

/* PLUMB_TEST_DEVICE=cuda: the GPU, opened at the first use; else NULL. */
static inline struct plumb_device *rig_cuda(struct rig *r)
{
	const char *wanted = getenv("PLUMB_TEST_DEVICE");
	if (!rig_gpu && wanted && strcmp(wanted, "cuda") == 0)
		ck_assert_msg(plumb_device_open(PLUMB_DEVICE_CUDA, NULL, &rig_gpu, &r->err) == PLUMB_OK, "%s", r->err.text);
	return rig_gpu;
}

/* An opt function as it runs on a device with its own memory. */
static inline plumb_op_fn *rig_mirrored(plumb_op_fn *opt)
{
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		if (plumb_opt_set.op[op] == opt)
			return plumb_opt_mirrored_set.op[op];
	ck_abort_msg("not a function of the opt set");
	return NULL;
}

/* The same bits on the GPU, four times. */
static inline void rig_agree_cuda(struct rig *r, plumb_op_fn *opt, const void *args, const unsigned char *want)
{
	for (int i = 0; rig_cuda(r) && i < 4; i++) {
		r->env.device = rig_cuda(r);
		unsigned char *got = rig_run(r, rig_mirrored(opt), args, i % 2, "opt on cuda");
		r->env.device = NULL;
		rig_same(r, want, got, "opt on cuda");
		free(got);
		ck_assert_msg(plumb_device_forget(rig_gpu, &r->err) == PLUMB_OK, "%s", r->err.text);
	}
}

/* Twin under both poisons, then opt on simt under `seeds` schedules (beginning with another at every call), all equal
 * in every bit. Returns the twin's result. */
static inline unsigned char *rig_agree(struct rig *r, plumb_op_fn *twin, plumb_op_fn *opt, const void *args, int seeds)
{
	unsigned char *want = rig_run(r, twin, args, 0, "twin"), *got = rig_run(r, twin, args, 1, "twin");
	static int turn;

	rig_same(r, want, got, "twin, other poison");
	free(got);
	for (int s = 0; s < seeds; s++, turn++) {
		int d = turn % RIG_DEVICES;
		struct plumb_device_options options = {.seed = rig_seeds[d]};
		char who[64];
		snprintf(who, sizeof who, "opt, seed %llu", (unsigned long long)rig_seeds[d]);
		if (!rig_devices[d])
			ck_assert_int_eq(
				plumb_device_open(PLUMB_DEVICE_SIMT, &options, &rig_devices[d], &r->err), PLUMB_OK);
		plumb_device_poison(rig_devices[d], s % 2 ? PLUMB_POISON_LARGE : PLUMB_POISON_NAN, NULL);
		r->env.device = rig_devices[d];
		got = rig_run(r, opt, args, s, who);
		ck_assert_msg(
			plumb_device_check(rig_devices[d], &r->err) == PLUMB_OK, "%s: %s: %s", r->replay, who, r->err.text);
		r->env.device = NULL;
		rig_same(r, want, got, who);
		free(got);
	}
	rig_agree_cuda(r, opt, args, want);
	return want;
}

/* A wrong implementation must not agree. */
static inline void rig_differs(
	struct rig *r, plumb_op_fn *wrong, const void *args, const unsigned char *want, const char *what)
{
	unsigned char *got = rig_run(r, wrong, args, 0, what);
	ck_assert_msg(rig_difference(r, want, got) >= 0, "%s: %s passes for right", r->replay, what);
	free(got);
}

/* |result - exact| <= bound for each element of output `name`; NaN on both sides or none. Keeps the worst ratio. */
static inline void rig_near(struct rig *r, const unsigned char *result, const char *name, const double *exact,
	const double *bound, const char *who)
{
	int format;
	const unsigned char *part = rig_part(r, result, name, &format);
	for (int w = 0; w < r->watches; w++)
		for (int64_t i = 0; strcmp(r->watch[w].name, name) == 0 && i < r->watch[w].count; i++) {
			double x = rig_value(format, part, i), error = fabs(x - exact[i]);
			if (x == exact[i] || (isnan(x) && isnan(exact[i])))
				continue;
			ck_assert_msg(error <= bound[i], "%s: %s: %s[%lld] is %a, exact %a, error %g > %g", r->replay, who,
				name, (long long)i, x, exact[i], error, bound[i]);
			r->worst = fmax(r->worst, error / bound[i]);
		}
}

/* clang's C11 library headers may lack CMPLX. */
static inline double complex rig_complex(double re, double im)
{
	return re + im * (double complex)I;
}

/* gamma_d of core/order.h. */
static inline double rig_gamma(int depth)
{
	return depth * 0x1p-24 / (1.0 - depth * 0x1p-24);
}

#endif
