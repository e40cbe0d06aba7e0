/* SPDX-License-Identifier: MIT */
/* Whole decodes in every profile: the kernels write what the twin writes, every bit, and what they write lies within
 * the derived error bounds. Then --profile, --scan and `plumb list profiles` as a user meets them.
 *
 * PLUMB_TEST_DEVICE=cuda runs the kernels on a GPU instead of simt; without one the program then ends with status 77.
 */
#include <cJSON.h>
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/requantise.h"
#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tests/support/decode.h"
#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define NVFP4 PLUMB_GOLDEN_DIR "/tiny-nvfp4"

enum { PROMPT = 5, TOKENS = 7 };

static enum plumb_device_kind kind = PLUMB_DEVICE_SIMT;
static char dir[SCRATCH_PATH];
static struct plumb_error err;

static int profiles(void)
{
	const char *text;
	size_t size;
	int n = 0;
	while (plumb_profile_shipped(n, &text, &size))
		n++;
	return n;
}

static const char *profile_name(int i)
{
	const char *text;
	size_t size;
	return plumb_profile_shipped(i, &text, &size);
}

/* ---- digests ---- */

static int digest_call(void *self, const struct plumb_call *call)
{
	plumb_digest_call(self, call);
	return PLUMB_OK;
}

static struct plumb_digest run(
	const struct plumb_model *model, const struct plumb_set *set, void *device, enum plumb_policy policy)
{
	struct plumb_decoder_options options = {.policy = policy, .traces = true};
	struct plumb_decoder *d = decode_create(model, set, device, &options);
	struct plumb_digest digest = {{0}, 0};
	const struct plumb_observer observer = {NULL, digest_call, &digest};
	int32_t token[TOKENS];
	for (int t = 0; t < TOKENS; t++)
		token[t] = decode_token(&model->cfg, t);
	plumb_decoder_observe(d, &observer);
	decode_step(d, token, PROMPT);
	for (int t = PROMPT; t < TOKENS; t++)
		decode_step(d, token + t, 1);
	plumb_digest_state(&digest, d);
	plumb_decoder_destroy(d);
	return digest;
}

static bool equal(const struct plumb_digest *a, const struct plumb_digest *b)
{
	return a->sum[0] == b->sum[0] && a->sum[1] == b->sum[1] && a->values == b->values;
}

/* Every profile that ships and both policies: twin = kernels; and another profile is another run, unless tiny's bf16
 * weights are what it asks for. */
START_TEST(every_bit)
{
	struct plumb_device_options options = {.poison = PLUMB_POISON_NAN, .seed = (uint64_t)_i};
	enum plumb_policy policy = _i % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	struct plumb_checkpoint *ck = decode_tiny();
	const struct plumb_model *stored = plumb_checkpoint_model(ck);
	struct plumb_requantised *r = NULL;
	struct plumb_profile profile;
	struct plumb_device *device = NULL;
	char text[1024], x[33], y[33];

	ck_assert_msg(plumb_profile_open(profile_name(_i / 2), &profile, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_msg(plumb_profile_apply(stored, &profile, NULL, &r, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_msg(plumb_device_open(kind, &options, &device, &err) == PLUMB_OK, "%s", err.text);
	const struct plumb_model *model = plumb_requantised_model(r);
	struct plumb_digest plain = run(stored, &plumb_ref_twin, NULL, policy);
	struct plumb_digest twin = run(model, &plumb_ref_twin, NULL, policy);
	struct plumb_digest kernels = run(model, plumb_device_set(device), device, policy);
	ck_assert_msg(equal(&twin, &kernels), "%s: %s of the kernels, %s of the twin",
		plumb_requantised_show(r, text, sizeof text), plumb_digest_show(&kernels, x), plumb_digest_show(&twin, y));
	ck_assert_int_eq(equal(&twin, &plain), strcmp(profile.name, "release-bf16") == 0);
	plumb_device_close(device);
	plumb_requantised_free(r);
	plumb_checkpoint_close(ck);
}
END_TEST

/* ---- the program ---- */

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

static void expect(const struct program_result *r, int status, const char *out)
{
	program_expect(r, status);
	ck_assert_msg(strstr(r->out, out), "no '%s' in %s", out, r->out);
}

/* The bits are the kernels' (above), so their errors are too. The golden was made from other weights: that it is not
 * met is right, and says that the weights are others. */
START_TEST(bounds_hold)
{
	struct program_result r;
	const char *name = profile_name(_i / 2);
	program(&r, dir,
		"check " TINY " --checkpoint " CHECKPOINT
		" --profile %s --policy %s --mode twin --view local --bounds --quiet",
		name, _i % 2 ? "bf16" : "f32");
	ck_assert_msg(strstr(r.out, "pass  bounds") && strstr(r.out, "; 0 failed; largest ratio"), "%s: %s%s", name, r.out,
		r.err);
	ck_assert_int_eq(r.status, strcmp(name, "release-bf16") != 0);
}
END_TEST

START_TEST(what_changed_is_said)
{
	struct program_result r;
	char path[SCRATCH_PATH];
	size_t size;

	scratch_path(path, dir, "report.json");
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --profile served --scan --view local --json '%s'",
		path);
	expect(&r, 1, "\nrequantised served: ngram_table bf16 -> fp8_table, 4 matrices; ");
	expect(&r, 1, "\nscanned     737140 weights, all are finite numbers\n");
	char *text = scratch_read(path, &size);
	cJSON *root = cJSON_Parse(text), *o = cJSON_GetObjectItem(root, "requantised"), *group;
	ck_assert_ptr_nonnull(o);
	ck_assert_str_eq(cJSON_GetObjectItem(o, "profile")->valuestring, "served");
	ck_assert(cJSON_GetObjectItem(root, "weights_scanned")->valuedouble == 737140);
	int groups = 0;
	cJSON_ArrayForEach (group, cJSON_GetObjectItem(o, "groups")) {
		groups++;
		if (strcmp(cJSON_GetObjectItem(group, "group")->valuestring, "experts") != 0)
			continue;
		ck_assert_str_eq(cJSON_GetObjectItem(group, "from")->child->valuestring, "bf16");
		ck_assert_str_eq(cJSON_GetObjectItem(group, "to")->valuestring, "nvfp4");
		ck_assert(cJSON_GetObjectItem(group, "changed")->valuedouble == 192);
		ck_assert(cJSON_GetObjectItem(group, "bytes_before")->valuedouble >
			  3 * cJSON_GetObjectItem(group, "bytes_after")->valuedouble);
	}
	ck_assert_int_eq(groups, 4);
	cJSON_Delete(root);
	free(text);

	program(&r, dir,
		"check " NVFP4 "/tiny-nvfp4.h5 --checkpoint " NVFP4 "/checkpoint --profile release-nvfp4 --view local");
	expect(&r, 0, "\nrequantised release-nvfp4: all is held so\n"); /* and the golden is met */
	ck_assert_ptr_null(strstr(r.out, "scanned"));
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local");
	ck_assert_ptr_null(strstr(r.out, "requantised"));

	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,17,42 --steps 2 --profile served-gdn-nvfp4");
	expect(&r, 0, ",");
	ck_assert_msg(strstr(r.err, "plumb run: requantised served-gdn-nvfp4: ") &&
			      strstr(r.err, "gdn bf16 -> nvfp4, 9 matrices"),
		"%s", r.err);
}
END_TEST

START_TEST(what_is_refused)
{
	struct program_result r;
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --profile serve");
	program_expect_bad(&r, "profile 'serve' is unknown", "release-nvfp4");
	scratch_write(dir, "p.json", "{\"version\": 1, \"groups\": {\"embed\": \"nvfp4\"}}", (size_t)-1);
	program(&r, dir, "run --tokens 1 --checkpoint " CHECKPOINT " --profile '%s/p.json'", dir);
	program_expect_bad(&r, "p.json: groups.embed is \"nvfp4\"", "expected keep, f32, f16, bf16 or fp8_table");
	program(&r, dir, "list '%s/p.json'", dir);
	program_expect_bad(&r, "p.json: groups.embed", "fp8_table");
	program(&r, dir, "run --tokens 1 --checkpoint " CHECKPOINT " --profile '%s/none.json'", dir);
	program_expect_bad(&r, "none.json", "");
}
END_TEST

/* A profile of one's own changes what it names and no more. */
START_TEST(file_of_ones_own)
{
	struct program_result r;
	scratch_write(dir, "mine.json", "{\"version\": 1, \"groups\": {\"router\": \"f32\"}}", (size_t)-1);
	program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --profile '%s/mine.json' --view local", dir);
	expect(&r, 0, "requantised mine: router bf16 -> f32, 8 matrices; "); /* the same values: the golden is met */
}
END_TEST

START_TEST(nan_codes_are_named)
{
	struct program_result r;
	char to[4 * SCRATCH_PATH];
	size_t size;
	snprintf(to, sizeof to, "cp -r " NVFP4 "/checkpoint '%s/ckpt' && chmod -R u+w '%s/ckpt'", dir, dir);
	ck_assert_int_eq(system(to), 0);
	char *data = scratch_read(NVFP4 "/checkpoint/layer-00002-experts-0000-0011.safetensors", &size);
	/* block scales of layer 2 end where as many codes times 8 begin, which end the file */
	size_t scales = 12 * (64 * 3 + 2 * 48 * 4), codes = scales * 8;
	data[size - codes - scales] = 0x7F;
	scratch_write(dir, "ckpt/layer-00002-experts-0000-0011.safetensors", data, size);
	free(data);
	program(&r, dir, "check " NVFP4 "/tiny-nvfp4.h5 --checkpoint '%s/ckpt' --scan", dir);
	program_expect_bad(&r, "/ckpt: tensor layers.2.mlp.experts.", "has code 0x7f, which is NaN");
	program(&r, dir, "run --tokens 1 --checkpoint '%s/ckpt' --profile release-bf16", dir);
	program_expect_bad(&r, "/ckpt, for profile release-bf16: layers.2.mlp.experts.", "stored as nvfp4, is nan");
	program(&r, dir, "run --tokens 1 --steps 1 --checkpoint '%s/ckpt'", dir); /* not asked, not looked at */
	ck_assert_int_ne(r.status, 2);
}
END_TEST

START_TEST(lists)
{
	struct program_result r;
	program(&r, dir, "list profiles");
	expect(&r, 0, "GB a token");
	for (int i = 0; i < profiles(); i++)
		expect(&r, 0, profile_name(i));
	expect(&r, 0, "release-bf16                13.34      353.89  ");
	size_t width = 0;
	for (char *line = strtok(r.out, "\n"); line && line[0]; line = strtok(NULL, "\n")) /* aligned */
		if (strncmp(line, "release-", 8) == 0 || strncmp(line, "served", 6) == 0) {
			char *dot = strchr(line, '.');
			ck_assert_msg(!width || (size_t)(dot - line) == width, "%s", line);
			width = (size_t)(dot - line);
		}
	program(&r, dir, "list served");
	expect(&r, 0, "experts      nvfp4          73728     1327.104    67947.725");
	program(&r, dir, "list " PLUMB_GOLDEN_DIR "/profiles/served.json");
	expect(&r, 0, "experts      nvfp4");
}
END_TEST

int main(void)
{
	bool gpu;
	int status = suite_wants_gpu(&gpu);
	if (status != PLUMB_OK)
		return suite_without_device(status);
	kind = gpu ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT;
	Suite *suite = suite_create("profile_runs");
	TCase *tcase = suite_part(suite, "profile_runs", 300);
	tcase_add_checked_fixture(tcase, setup, teardown);
#ifdef __SANITIZE_ADDRESS__
	int step = 5; /* instrumented kernels take ten times as long: every fifth, which are of both policies */
#else
	int step = 1;
#endif
	for (int i = 0; i < 2 * profiles(); i += step)
		tcase_add_loop_test(tcase, every_bit, i, i + 1);
	if (kind == PLUMB_DEVICE_SIMT) {
		for (int i = 0; i < 2 * profiles(); i += step) /* the profiles by turns in either policy, served in both */
			if (i % 2 == i / 2 % 2 || strcmp(profile_name(i / 2), "served") == 0)
				tcase_add_loop_test(tcase, bounds_hold, i, i + 1);
		tcase_add_test(tcase, what_changed_is_said);
		tcase_add_test(tcase, what_is_refused);
		tcase_add_test(tcase, file_of_ones_own);
		tcase_add_test(tcase, nan_codes_are_named);
		tcase_add_test(tcase, lists);
	}
	return gpu ? suite_run_here(suite) : suite_run(suite);
}
