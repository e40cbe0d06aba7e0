/* SPDX-License-Identifier: MIT */
/* What `plumb drift` measures, against what can be derived. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "core/ops/gdn.h"
#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/drift.h"

enum { F32, F16, BF16 };
static const double unit[DRIFT_FORMATS] = {0x1p-24, 0x1p-11, 0x1p-8};

static struct plumb_error err;

static struct drift run(struct drift_options o)
{
	struct drift d;
	if (!o.binding.set)
		o.binding.set = &plumb_ref_twin;
	ck_assert_msg(drift_run(&o, &d, &err) == PLUMB_OK, "%s", err.text);
	return d;
}

START_TEST(points)
{
	struct drift d = run((struct drift_options){.steps = 100, .key_dim = 8, .value_dim = 8, .seed = 1});
	static const int64_t steps[] = {1, 4, 16, 64, 100};
	ck_assert_int_eq(d.points, 5);
	for (int p = 0; p < 5; p++)
		ck_assert_int_eq(d.point[p].step, steps[p]);
	for (int h = 1; h < DRIFT_CLASSES; h++)
		ck_assert(d.decay[h] > d.decay[h - 1]);
	ck_assert(d.decay[0] > 0.0 && d.decay[0] < 0.05 && d.decay[DRIFT_CLASSES - 1] > 0.99999 &&
		  d.decay[DRIFT_CLASSES - 1] < 1.0);
	d = run((struct drift_options){.steps = 1, .key_dim = 1, .value_dim = 1, .seed = 1});
	ck_assert_int_eq(d.points, 1);
}
END_TEST

/* The error stays below the geometric sum of what each token can add, in every format and class. */
START_TEST(within_the_derived_bound)
{
	static const int64_t dims[][2] = {{128, 128}, {32, 16}, {5, 3}, {300, 4}};
	struct drift d = run((struct drift_options){
		.steps = _i ? 4096 : 256, .key_dim = dims[_i][0], .value_dim = dims[_i][1], .seed = (uint64_t)_i + 1});
	for (int p = 0; p < d.points; p++)
		for (int f = 0; f < DRIFT_FORMATS; f++)
			for (int h = 0; h < DRIFT_CLASSES; h++) {
				const struct drift_figure *x = &d.point[p].figure[f][h];
				ck_assert_msg(x->state <= x->bound, "%s, class %d, token %lld: %g of %g",
					plumb_format_name(drift_formats[f]), h, (long long)d.point[p].step, x->state,
					x->bound);
				ck_assert(isfinite(x->output) && isfinite(x->largest) && isfinite(x->bound));
			}
}
END_TEST

/* One token from nothing: each element is beta v k, rounded once to the format. Elements spread over their binades, so the
 * mean square of the relative error lies between what it is at the top of one, u^2/12, and at the bottom, u^2/3; binary32
 * has its arithmetic on top. o comes before the rounding and is that of binary32, in every bit. */
START_TEST(first_token)
{
	for (uint64_t seed = 1; seed < 6; seed++) {
		struct drift d = run((struct drift_options){.steps = 1, .seed = seed});
		for (int h = 0; h < DRIFT_CLASSES; h++) {
			const struct drift_figure(*x)[DRIFT_CLASSES] = d.point[0].figure;
			for (int f = F16; f <= BF16; f++) {
				ck_assert_msg(x[f][h].state >= unit[f] / sqrt(12.0) && x[f][h].state <= unit[f] / sqrt(3.0),
					"%s: %g", plumb_format_name(drift_formats[f]), x[f][h].state);
				ck_assert(x[f][h].output == x[F32][h].output);
			}
			ck_assert(x[F32][h].state < 0x1p-20);
		}
	}
}
END_TEST

/* A head forgets errors as fast as values: the geometric sum ends at what a token adds / (1 - g). A decay of 0.01 leaves
 * one rounding and 1% of the one before, at any token. Without decay, what each token adds is about the same once |S| is:
 * four times as many tokens, four times the bound (from 64 on: before, |S| is not measured between the points). */
START_TEST(forgetting_heads_saturate)
{
	struct drift d = run((struct drift_options){.steps = 4096, .key_dim = 64, .value_dim = 32, .seed = 7});
	for (int p = 0; p < d.points; p++)
		for (int f = F16; f <= BF16; f++) {
			double first = d.point[p].figure[f][0].state;
			ck_assert_msg(first <= 1.02 * unit[f], "%s, token %lld: %g", plumb_format_name(drift_formats[f]),
				(long long)d.point[p].step, first);
		}
	for (int p = 3; p + 1 < d.points; p++) {
		double now = d.point[p].figure[F16][DRIFT_CLASSES - 1].bound;
		double later = d.point[p + 1].figure[F16][DRIFT_CLASSES - 1].bound;
		ck_assert_msg(later <= 4.0 * 1.25 * now, "bound %g after %lld tokens, %g before", later,
			(long long)d.point[p + 1].step, now);
	}
}
END_TEST

/* A state that is also rounded to bf16 between tokens (fault class F11) is beyond the bound of f32 and of f16. */
static int narrowed(const struct plumb_env *env, const void *args)
{
	struct plumb_gdn_recurrence a = *(const struct plumb_gdn_recurrence *)args;
	int64_t n = env->cfg->gdn_value_heads * env->cfg->gdn_value_dim * env->cfg->gdn_key_dim, T = a.T;
	int64_t C = plumb_gdn_channels(env->cfg), H = env->cfg->gdn_value_heads;
	int status = PLUMB_OK;
	float x;
	uint16_t code;

	a.T = 1;
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++) {
		status = gdn_recurrence_twin(env, &a);
		for (int64_t i = 0; i < n; i++) {
			char *at = (char *)a.state + plumb_format_row_bytes(a.state_format, i);
			plumb_decode(a.state_format, at, 1, &x);
			plumb_encode(PLUMB_BF16, &x, 1, &code);
			plumb_decode(PLUMB_BF16, &code, 1, &x);
			plumb_encode(a.state_format, &x, 1, at);
		}
		a.y += C;
		a.b += H;
		a.a += H;
		a.o += H * env->cfg->gdn_value_dim;
	}
	return status;
}

START_TEST(a_narrowed_state_is_beyond)
{
	const struct plumb_set wrong = {.name = "wrong", .op = {[PLUMB_GDN_RECURRENCE] = narrowed}};
	struct drift d = run(
		(struct drift_options){.binding = {.set = &wrong}, .steps = 64, .key_dim = 32, .value_dim = 16, .seed = 3});
	for (int p = 0; p < d.points; p++)
		for (int h = 0; h < DRIFT_CLASSES; h++) {
			ck_assert(d.point[p].figure[F32][h].state > d.point[p].figure[F32][h].bound);
			ck_assert(p > 0 || d.point[p].figure[F16][h].state > d.point[p].figure[F16][h].bound);
		}
}
END_TEST

/* The kernels have the reference's bits, so the figures are equal, not near. */
START_TEST(kernels_drift_alike)
{
	struct plumb_device *device = NULL;
	struct plumb_device_options with = {.own_memory = _i};
	struct drift_options o = {.steps = 40, .key_dim = _i ? 128 : 30, .value_dim = 20, .seed = 5};
	struct drift twin = run(o);

	ck_assert_msg(plumb_device_open(PLUMB_DEVICE_SIMT, &with, &device, &err) == PLUMB_OK, "%s", err.text);
	o.binding = (struct plumb_binding){.set = plumb_device_set(device), .device = device};
	struct drift opt = run(o);
	ck_assert_int_eq(twin.points, opt.points);
	for (int p = 0; p < twin.points; p++)
		ck_assert_mem_eq(twin.point[p].figure, opt.point[p].figure, sizeof twin.point[p].figure);
	plumb_device_close(device);
}
END_TEST

START_TEST(refusals)
{
	static const struct drift_options bad[] = {
		{.steps = 0}, {.steps = 65537}, {.steps = 1, .key_dim = 513}, {.steps = 1, .value_dim = -1}};
	struct drift d;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct drift_options o = bad[i];
		o.binding.set = &plumb_ref_twin;
		ck_assert_int_eq(drift_run(&o, &d, &err), PLUMB_BAD_INPUT);
		ck_assert_ptr_nonnull(strstr(err.text, "expected 1.."));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("drift");
	TCase *t = suite_part(s, "drift", 300);
	tcase_add_test(t, points);
	tcase_add_loop_test(t, within_the_derived_bound, 0, 4);
	tcase_add_test(t, first_token);
	tcase_add_test(t, forgetting_heads_saturate);
	tcase_add_test(t, a_narrowed_state_is_beyond);
	tcase_add_loop_test(t, kernels_drift_alike, 0, 2);
	tcase_add_test(t, refusals);
	return suite_run(s);
}
