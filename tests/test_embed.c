/* SPDX-License-Identifier: MIT */
/* embed: the twin (which is the oracle) against the meaning written once more, the kernel on simt against the twin. */
#include <sys/mman.h>

#include "core/ops/embed.h"
#include "opt/opt.h"
#include "ref/twin/twin.h"
#include "tests/support/stage_test.h"
#include "tests/support/suite.h"

static struct plumb_config config;
static struct plumb_error error;

static struct plumb_env env_of(enum plumb_policy policy)
{
	struct plumb_env env = {.cfg = &config, .policy = policy, .err = &error};
	return env;
}

START_TEST(embed_formats)
{
	static const int64_t widths[] = {1, 31, 33, 255, 256, 257, 700};
	enum plumb_format format = (enum plumb_format)(_i % PLUMB_PLAIN_FORMATS);
	uint64_t random = 11 + (uint64_t)_i;
	struct plumb_env env = env_of(_i % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32);
	int64_t S = 2 + _i, D = widths[_i % 7], V = 19, T = 5;
	const int32_t token[] = {18, 0, 7, 7, 11};
	struct st_weight table = st_weight_new(&random, V, D, 1.0, format, _i % 3);
	struct st_buffer ref = st_floats_new(T * S * D), opt = st_floats_new(T * S * D);
	struct plumb_embed a = {T, token, &table.w, st_floats(ref)};
	float *row = malloc((size_t)D * sizeof *row);

	config.streams = (int)S, config.hidden = D, config.vocab = V;
	st_buffer_poison(ref, 0);
	st_call(embed_twin, &env, &a);
	for (int64_t t = 0; t < T; t++) { /* the meaning, once more */
		plumb_weight_row(&table.w, token[t], 0, D, row);
		for (int64_t s = 0; s < S; s++)
			ck_assert_mem_eq(st_floats(ref) + (t * S + s) * D, row, (size_t)D * 4);
	}
	a.residual = st_floats(opt);
	for (int i = 0; i < ST_SEEDS; i++) {
		env.device = st_device(i);
		st_buffer_poison(opt, i);
		st_call(embed_opt, &env, &a);
		ck_assert_int_eq(st_difference(st_floats(ref), st_floats(opt), T * S * D), -1);
		st_buffer_check(opt, "residual");
	}
	/* sensitivity: a neighbour's row, and a row cut by one */
	int32_t wrong[] = {18, 0, 7, 8, 11};
	a.token = wrong;
	a.residual = st_floats(ref);
	st_call(embed_twin, &env, &a);
	ck_assert_int_eq(st_difference(st_floats(ref), st_floats(opt), T * S * D) / (S * D), 3);
	free(row);
	st_buffer_free(ref);
	st_buffer_free(opt);
	st_weight_free(table);
}
END_TEST

/* Every code of the 16-bit formats, and the binary32 values that a copy might spoil: NaN, Inf, -0, subnormals. */
START_TEST(embed_codes)
{
	enum { D = 65536 };
	enum plumb_format format = _i ? PLUMB_F16 : PLUMB_BF16;
	struct plumb_env env = env_of(PLUMB_POLICY_BF16);
	uint16_t *code = malloc(D * sizeof *code);
	struct plumb_weight table = {.format = format, .rows = 1, .cols = D, .data = code};
	struct st_buffer ref = st_floats_new(2 * D), opt = st_floats_new(2 * D);
	const int32_t token = 0;
	struct plumb_embed a = {1, &token, &table, st_floats(ref)};

	for (int i = 0; i < D; i++)
		code[i] = (uint16_t)i;
	config.streams = 2, config.hidden = D, config.vocab = 1;
	st_call(embed_twin, &env, &a);
	a.residual = st_floats(opt);
	env.device = st_device(0);
	st_call(embed_opt, &env, &a);
	ck_assert_int_eq(st_difference(st_floats(ref), st_floats(opt), 2 * D), -1);

	static const uint32_t hard[] = {0x7FC00000u, 0xFFC12345u, 0x7F800000u, 0xFF800000u, 0x80000000u, 0, 1, 0x80000001u,
		0x007FFFFFu, 0x00800000u, 0x3F800001u, 0x7F7FFFFFu};
	struct plumb_weight exact = {.format = PLUMB_F32, .rows = 1, .cols = sizeof hard / 4, .data = hard};
	config.hidden = exact.cols;
	a.table = &exact;
	env.device = st_device(3);
	st_buffer_poison(opt, 1);
	st_call(embed_opt, &env, &a);
	for (int64_t i = 0; i < 2 * exact.cols; i++) {
		float stored = plumb_bits_f32(hard[i % exact.cols]);
		ck_assert_int_eq(st_difference(&stored, st_floats(opt) + i, 1), -1);
	}
	free(code);
	st_buffer_free(ref);
	st_buffer_free(opt);
}
END_TEST

/* A row above 2^31 elements, and above 2^32 bytes. Nothing but that row is ever touched, so it costs no memory. */
START_TEST(embed_far)
{
	enum { D = 1024 };
	const int64_t V = (INT64_C(1) << 31) / D + 2;
	const size_t bytes = (size_t)V * D * sizeof(uint16_t);
	uint16_t *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct plumb_weight table = {.format = PLUMB_BF16, .rows = V, .cols = D, .data = far};
	struct plumb_env env = env_of(PLUMB_POLICY_BF16);
	struct st_buffer opt = st_floats_new(2 * D);
	const int32_t token = (int32_t)(V - 1);
	struct plumb_embed a = {1, &token, &table, st_floats(opt)};

	ck_assert(far != MAP_FAILED);
	config.streams = 2, config.hidden = D, config.vocab = V;
	for (int i = 0; i < D; i++)
		far[(V - 1) * D + i] = (uint16_t)(0x3F80 + i % 128);
	env.device = st_device(0);
	st_buffer_poison(opt, 0);
	st_call(embed_opt, &env, &a);
	for (int i = 0; i < 2 * D; i++)
		ck_assert(st_floats(opt)[i] == plumb_bf16_to_f32((uint16_t)(0x3F80 + i % D % 128)));
	munmap(far, bytes);
	st_buffer_free(opt);
}
END_TEST

START_TEST(no_races)
{
	enum { D = 1100 };
	uint64_t random = 21;
	struct plumb_env env = env_of(PLUMB_POLICY_BF16);
	struct st_weight table = st_weight_new(&random, 3, D, 1.0, PLUMB_BF16, 0);
	static float residual[4 * D];
	const int32_t token = 2;
	struct plumb_embed embed = {1, &token, &table.w, residual};

	config.streams = 4, config.hidden = D, config.vocab = 3;
	env.device = st_race_device();
	if (env.device) {
		st_call(embed_opt, &env, &embed);
		plumb_device_close(env.device);
	}
	st_weight_free(table);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("embed");
	TCase *embed = suite_part(suite, "embed", 60);

	tcase_add_loop_test(embed, embed_formats, 0, 7);
	tcase_add_loop_test(embed, embed_codes, 0, 2);
	tcase_add_test(embed, embed_far);
	tcase_add_test(embed, no_races);
	int failed = suite_run_here(suite);
	st_devices_close();
	return failed;
}
