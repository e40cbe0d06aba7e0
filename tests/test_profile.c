/* SPDX-License-Identifier: MIT */
/* Profiles: those that ship, every way to write one that would not mean what it says, and the walk over a model's
 * matrices by group. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint.h"
#include "core/profile.h"
#include "core/profile_bytes.h"
#include "core/shards.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define SHIPPED PLUMB_GOLDEN_DIR "/profiles"

static struct plumb_error err;

static struct plumb_profile opened(const char *name)
{
	struct plumb_profile p;
	memset(&p, 0x5a, sizeof p);
	ck_assert_msg(plumb_profile_open(name, &p, &err) == PLUMB_OK, "%s", err.text);
	return p;
}

/* ---- those that ship ---- */

/* The bytes in the library are the bytes in golden/profiles, each says what it is, and states every group. */
START_TEST(test_built_in_is_the_file)
{
	const char *name, *text;
	size_t size, file_size;
	int count = 0;
	for (; (name = plumb_profile_shipped(count, &text, &size)); count++) {
		char path[SCRATCH_PATH], leaf[80];
		snprintf(leaf, sizeof leaf, "%s.json", name);
		char *file = scratch_read(scratch_path(path, SHIPPED, leaf), &file_size);
		ck_assert_uint_eq(file_size, size);
		ck_assert_mem_eq(file, text, size + 1);
		free(file);

		struct plumb_profile built_in = opened(name), read = opened(path);
		ck_assert_str_eq(built_in.name, name);
		ck_assert_str_eq(read.name, name);
		ck_assert_uint_gt(strlen(read.description), 10);
		ck_assert(memcmp(built_in.format, read.format, sizeof read.format) == 0);
		for (int g = 0; g < PLUMB_GROUP_COUNT; g++)
			ck_assert_msg(!built_in.keep[g] && plumb_group_takes((enum plumb_group)g, built_in.format[g]),
				"%s, %s", name, plumb_group_name((enum plumb_group)g));
	}
	ck_assert_int_ge(count, 8);
	ck_assert_ptr_null(plumb_profile_shipped(-1, &text, &size));
}
END_TEST

/* What each name promises (model-spec 3.2; issue words): groups that are not listed are bf16. */
static const struct promise {
	const char *name;
	struct {
		enum plumb_group group;
		enum plumb_format format;
	} other[6];
	int others;
} promises[] = {
	{"release-bf16", {{0}}, 0},
	{"release-fp8", {{PLUMB_GROUP_NGRAM_TABLE, PLUMB_FP8_TABLE}, {PLUMB_GROUP_EXPERTS, PLUMB_FP8_BLOCK}}, 2},
	{"release-nvfp4", {{PLUMB_GROUP_NGRAM_TABLE, PLUMB_FP8_TABLE}, {PLUMB_GROUP_EXPERTS, PLUMB_NVFP4}}, 2},
	{"served",
		{{PLUMB_GROUP_NGRAM_TABLE, PLUMB_FP8_TABLE}, {PLUMB_GROUP_EXPERTS, PLUMB_NVFP4},
			{PLUMB_GROUP_SHARED, PLUMB_NVFP4}, {PLUMB_GROUP_ATTENTION, PLUMB_NVFP4}},
		4},
	{"served-gdn-nvfp4",
		{{PLUMB_GROUP_NGRAM_TABLE, PLUMB_FP8_TABLE}, {PLUMB_GROUP_EXPERTS, PLUMB_NVFP4},
			{PLUMB_GROUP_SHARED, PLUMB_NVFP4}, {PLUMB_GROUP_ATTENTION, PLUMB_NVFP4},
			{PLUMB_GROUP_GDN, PLUMB_NVFP4}},
		5},
	{"served-head-fp8",
		{{PLUMB_GROUP_NGRAM_TABLE, PLUMB_FP8_TABLE}, {PLUMB_GROUP_EXPERTS, PLUMB_NVFP4},
			{PLUMB_GROUP_SHARED, PLUMB_NVFP4}, {PLUMB_GROUP_ATTENTION, PLUMB_NVFP4},
			{PLUMB_GROUP_LM_HEAD, PLUMB_FP8_ROW}},
		5},
};
enum { PROMISES = sizeof promises / sizeof promises[0] };

START_TEST(test_promise)
{
	const struct promise *promise = &promises[_i];
	struct plumb_profile p = opened(promise->name);
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		enum plumb_format want = PLUMB_BF16;
		for (int i = 0; i < promise->others; i++)
			if ((int)promise->other[i].group == g)
				want = promise->other[i].format;
		ck_assert_msg(p.format[g] == want, "%s: %s is %s, expected %s", promise->name,
			plumb_group_name((enum plumb_group)g), plumb_format_name(p.format[g]), plumb_format_name(want));
	}
	ck_assert(p.keep_caches && p.keep_state);
}
END_TEST

/* ---- files of others ---- */

static int parse(const char *text, struct plumb_profile *p)
{
	size_t size = strlen(text); /* an exact allocation, so that a sanitizer sees a read past the end */
	char *copy = malloc(size + !size);
	memcpy(copy, text, size);
	int status = plumb_profile_parse(copy, size, "dir/mine.json", p, &err);
	free(copy);
	return status;
}

START_TEST(test_every_field_is_read)
{
	struct plumb_profile p;
	ck_assert_msg(parse("{\"version\": 1, \"groups\": {\"embed\": \"f16\", \"experts\": \"nvfp4\", \"index\": \"keep\","
			    "\"hc\": \"fp8_row\", \"lm_head\": \"fp8_block\", \"ngram_table\": \"fp8_table\"},"
			    "\"caches\": \"fp8\", \"state\": \"f16\", \"description\": \"a test\"}",
			      &p) == PLUMB_OK,
		"%s", err.text);
	ck_assert_str_eq(p.name, "mine");
	ck_assert_str_eq(p.description, "a test");
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		bool named = g == PLUMB_GROUP_EMBED || g == PLUMB_GROUP_EXPERTS || g == PLUMB_GROUP_HC ||
		             g == PLUMB_GROUP_LM_HEAD || g == PLUMB_GROUP_NGRAM_TABLE;
		ck_assert_int_eq(p.keep[g], !named);
	}
	ck_assert_int_eq(p.format[PLUMB_GROUP_EMBED], PLUMB_F16);
	ck_assert_int_eq(p.format[PLUMB_GROUP_EXPERTS], PLUMB_NVFP4);
	ck_assert_int_eq(p.format[PLUMB_GROUP_HC], PLUMB_FP8_ROW);
	ck_assert_int_eq(p.format[PLUMB_GROUP_LM_HEAD], PLUMB_FP8_BLOCK);
	ck_assert_int_eq(p.format[PLUMB_GROUP_NGRAM_TABLE], PLUMB_FP8_TABLE);
	ck_assert(!p.keep_caches && !p.keep_state && p.state == PLUMB_F16);

	ck_assert_int_eq(parse("{\"version\": 1, \"groups\": {}}", &p), PLUMB_OK);
	ck_assert(p.keep_caches && p.keep_state && p.keep[PLUMB_GROUP_EXPERTS]);
}
END_TEST

#define TOP(more) "{\"version\": 1, \"groups\": {}" more "}"
#define GROUPS(inside) "{\"version\": 1, \"groups\": {" inside "}}"
static const struct {
	const char *text, *message; /* a part of it, besides the file */
} refused[] = {
	{"", "dir/mine.json"},
	{"[]", "expected an object"},
	{"{\"groups\": {}}", "version"},
	{"{\"version\": 2, \"groups\": {}}", "version"},
	{"{\"version\": \"1\", \"groups\": {}}", "version"},
	{"{\"version\": 1}", "groups"},
	{"{\"version\": 1, \"groups\": []}", "groups"},
	{TOP(", \"cache\": \"f32\""), "\"cache\" is no key of a profile, expected one of version"},
	{TOP(", \"caches\": null"), "caches is null"},
	{TOP(", \"caches\": \"f16\""), "caches is \"f16\", expected keep, f32, bf16 or fp8"},
	{TOP(", \"caches\": 8"), "caches"},
	{TOP(", \"state\": \"bf16\""), "state is \"bf16\", expected keep, f32 or f16"},
	{TOP(", \"description\": 1"), "description"},
	{TOP(", \"description\": \"two\\nlines\""), "description"},
	{TOP(", \"description\": \"nai\\u0308ve\""), "description"},
	{GROUPS("\"expert\": \"nvfp4\""), "groups.\"expert\" is no group of matrices, expected one of embed, ngram_table"},
	{GROUPS("\"experts\": null"), "groups.experts is null"},
	{GROUPS("\"experts\": 4"), "groups.experts"},
	{GROUPS("\"experts\": [\"nvfp4\"]"), "groups.experts"},
	{GROUPS("\"experts\": \"fp4\""),
		"groups.experts is \"fp4\", expected keep, f32, f16, bf16, fp8_row, fp8_block or nvfp4"},
	{GROUPS("\"experts\": \"NVFP4\""), "groups.experts is \"NVFP4\""},
	{GROUPS("\"experts\": \"\""), "groups.experts is \"\""},
	{GROUPS("\"experts\": \"fp8_table\""), "groups.experts is \"fp8_table\""},
	{GROUPS("\"lm_head\": \"fp8_table\""), "groups.lm_head is \"fp8_table\""},
	{GROUPS("\"ngram_table\": \"nvfp4\""),
		"groups.ngram_table is \"nvfp4\", expected keep, f32, f16, bf16 or fp8_table"},
	{GROUPS("\"embed\": \"fp8_row\""), "groups.embed is \"fp8_row\""},
	{GROUPS("\"gdn\": \"nvfp4\", \"gdn\": \"bf16\""), "gdn"},
	{TOP("") "x", "dir/mine.json"},
};
enum { REFUSED = sizeof refused / sizeof refused[0] };

START_TEST(test_refused)
{
	struct plumb_profile p, before;
	memset(&p, 0x5a, sizeof p);
	before = p;
	ck_assert_int_eq(parse(refused[_i].text, &p), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "dir/mine.json") == err.text && strstr(err.text, refused[_i].message),
		"'%s' does not contain '%s'", err.text, refused[_i].message);
	ck_assert_ptr_null(strchr(err.text, '\n'));
	ck_assert_mem_eq(&p, &before, sizeof p);
}
END_TEST

/* A description and a name as long as they come. */
START_TEST(test_lengths)
{
	struct plumb_profile p;
	char text[512], words[256];
	for (int n = 158; n <= 161; n++) {
		memset(words, 'w', sizeof words);
		words[n] = '\0';
		snprintf(text, sizeof text, TOP(", \"description\": \"%s\""), words);
		ck_assert_int_eq(parse(text, &p), n < 160 ? PLUMB_OK : PLUMB_BAD_INPUT);
	}
	memset(words, 'n', sizeof words);
	words[200] = '\0';
	ck_assert_int_eq(plumb_profile_parse(TOP(""), strlen(TOP("")), words, &p, &err), PLUMB_OK);
	ck_assert_uint_eq(strlen(p.name), sizeof p.name - 1);
	ck_assert_int_eq(plumb_profile_parse(TOP(""), strlen(TOP("")), "d/a\033[m\xc3(.json", &p, &err), PLUMB_OK);
	ck_assert_str_eq(p.name, "a?[m?(");
}
END_TEST

START_TEST(test_names_and_paths)
{
	struct plumb_profile p;
	char dir[SCRATCH_PATH], path[SCRATCH_PATH];
	ck_assert_int_eq(plumb_profile_open("serve", &p, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "'serve'") && strstr(err.text, "release-bf16, ") && strstr(err.text, "served"), "%s",
		err.text);
	ck_assert_int_eq(plumb_profile_open("", &p, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_profile_open("served.json", &p, &err), PLUMB_BAD_INPUT); /* a path, and there is no file */
	ck_assert_ptr_nonnull(strstr(err.text, "served.json"));
	ck_assert_int_eq(plumb_profile_open("/nonexistent/served", &p, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/served"));
	scratch_make(dir);
	scratch_write(dir, "served.json", GROUPS("\"hc\": \"f32\""), (size_t)-1);
	p = opened(scratch_path(path, dir, "served.json"));
	ck_assert(p.keep[PLUMB_GROUP_EXPERTS] && p.format[PLUMB_GROUP_HC] == PLUMB_F32);
	scratch_remove(dir);
}
END_TEST

/* ---- the walk ---- */

struct seen {
	const struct plumb_shards *shards;
	int *times; /* (tensors) */
	const char *prefix;
	int matrices[PLUMB_GROUP_COUNT], stop_after;
};

static int see(void *self, enum plumb_group group, const char *name, struct plumb_weight *w)
{
	struct seen *s = self;
	char full[192];
	size_t place;
	snprintf(full, sizeof full, "%s%s.weight", strcmp(name, "lm_head") == 0 ? "" : s->prefix, name);
	const struct plumb_tensor *t = plumb_shards_find(s->shards, full, &place);
	ck_assert_msg(t != NULL, "no tensor %s", full);
	ck_assert_uint_eq(t->bytes, plumb_weight_data_bytes(w));
	ck_assert_msg(memcmp(t->data, w->data, t->bytes) == 0, "%s is another matrix", full);
	s->times[place]++;
	s->matrices[group]++;
	return --s->stop_after == 0 ? PLUMB_MISMATCH : PLUMB_OK;
}

static const struct {
	const char *dir, *prefix;
	int matrices[PLUMB_GROUP_COUNT]; /* from the config: 4 layers of which 1 attention, PLE in one */
} walked[] = {
	{PLUMB_GOLDEN_DIR "/tiny/checkpoint", "model.", {1, 4, 2, 26, 9, 6, 4, 1, 8, 4 * 16 * 3, 12, 1}},
	{PLUMB_GOLDEN_DIR "/tiny-nvfp4/checkpoint", "model.language_model.",
		{1, 4, 2, 26, 9, 6, 4, 1, 8, 4 * 12 * 3, 12, 1}},
};
enum { WALKED = sizeof walked / sizeof walked[0] };

/* Every matrix that a checkpoint names is visited once, under its name and as itself; nothing else is. */
START_TEST(test_walk)
{
	struct plumb_checkpoint *ck;
	struct plumb_shards *shards;
	ck_assert_msg(plumb_checkpoint_open(walked[_i].dir, &ck, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_msg(plumb_shards_open(walked[_i].dir, &shards, &err) == PLUMB_OK, "%s", err.text);
	struct plumb_model model = *plumb_checkpoint_model(ck);
	struct seen seen = {.shards = shards, .times = calloc(shards->tensors, sizeof(int)), .prefix = walked[_i].prefix};
	ck_assert_int_eq(plumb_groups_walk(&model, see, &seen), PLUMB_OK);
	for (size_t i = 0; i < shards->tensors; i++) {
		const struct plumb_tensor *t = shards->tensor[i];
		size_t n = strlen(t->name);
		bool skipped = strncmp(t->name, "mtp.", 4) == 0 || strncmp(t->name, "model.visual.", 13) == 0;
		bool matrix = !skipped && t->rank == 2 && n > 7 && strcmp(t->name + n - 7, ".weight") == 0;
		ck_assert_msg(seen.times[i] == matrix, "%s is visited %d times", t->name, seen.times[i]);
	}
	ck_assert_mem_eq(seen.matrices, walked[_i].matrices, sizeof seen.matrices);

	seen.stop_after = 7;
	ck_assert_int_eq(plumb_groups_walk(&model, see, &seen), PLUMB_MISMATCH);
	ck_assert_int_eq(seen.stop_after, 0); /* and it went no further */
	free(seen.times);
	plumb_shards_close(shards);
	plumb_checkpoint_close(ck);
}
END_TEST

/* ---- bytes ---- */

/* GB of weights a token reads, by hand: model-spec 5, its totals; the last two with the scales that they leave out. */
static const struct {
	const char *name;
	double token, slack;
} totals[] = {
	{"release-bf16", 13.34, 0.005},
	{"release-fp8", 10.98, 0.005},
	{"release-nvfp4", 9.95, 0.005},
	{"served", 8.75, 0.005},
	{"dense-fp8", 5.77, 0.011},
	{"least-bytes", 3.94, 0.011},
};
enum { TOTALS = sizeof totals / sizeof totals[0] };

START_TEST(test_totals_of_the_release)
{
	struct plumb_config release;
	struct plumb_profile p = opened(totals[_i].name);
	struct plumb_profile_bytes bytes;
	plumb_release_config(&release);
	ck_assert_int_eq(plumb_profile_bytes(&release, &p, &bytes, &err), PLUMB_OK);
	double gb = (double)bytes.all.token / 1e9;
	ck_assert_msg(gb > totals[_i].token - totals[_i].slack && gb < totals[_i].token + totals[_i].slack,
		"%s reads %.4f GB a token, expected %.2f", p.name, gb, totals[_i].token);
}
END_TEST

/* The lines of model-spec 5 and 1.4, to the last digit given there. */
START_TEST(test_parts_of_the_release)
{
	struct plumb_config release;
	struct plumb_profile p = opened("release-bf16"), q = opened("least-bytes");
	struct plumb_profile_bytes bf16, nvfp4;
	plumb_release_config(&release);
	ck_assert_int_eq(plumb_profile_bytes(&release, &p, &bf16, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_profile_bytes(&release, &q, &nvfp4, &err), PLUMB_OK);
#define MB(bytes, part) ((int)((double)(bytes).group[PLUMB_GROUP_##part].token / 1e6 + 0.5))
	ck_assert_int_eq(MB(bf16, EXPERTS), 4719);
	ck_assert_int_eq(MB(nvfp4, EXPERTS), 1327);
	ck_assert_int_eq(MB(bf16, SHARED), 472);
	ck_assert_int_eq(MB(nvfp4, SHARED), 133);
	ck_assert_int_eq(MB(bf16, ROUTER), 126);
	ck_assert_int_eq(MB(bf16, GDN), 4152);
	ck_assert_int_eq(MB(nvfp4, GDN), 1168);
	ck_assert_int_eq(MB(bf16, GDN_GATES), 18);
	ck_assert_int_eq(MB(bf16, ATTENTION), 1195);
	ck_assert_int_eq(MB(nvfp4, ATTENTION), 336);
	ck_assert_int_eq(MB(bf16, INDEX), 39);
	ck_assert_int_eq(MB(bf16, PLE), 66);
	ck_assert_int_eq(MB(bf16, LM_HEAD), 1271);
	ck_assert_int_eq(MB(nvfp4, LM_HEAD), 358);
#undef MB
	ck_assert_int_eq(bf16.group[PLUMB_GROUP_NGRAM_TABLE].token, 16 * 320);
	ck_assert_int_eq(nvfp4.group[PLUMB_GROUP_NGRAM_TABLE].token, 16 * 160);
	ck_assert_int_eq(bf16.group[PLUMB_GROUP_EMBED].token, 5120);
	ck_assert_int_eq(bf16.group[PLUMB_GROUP_NGRAM_TABLE].resident, 320001536LL * 160 * 2);
	ck_assert_int_eq(nvfp4.group[PLUMB_GROUP_EXPERTS].resident, 48LL * 512 * 2764800);
	/* the whole of the BF16 repository's text model: 359 999 962 848 B less the draft model (2.6 B parameters) and
	 * the vision tower (0.45 B) */
	ck_assert(bf16.all.resident > 353500000000 && bf16.all.resident < 354500000000);
}
END_TEST

static int weigh(void *self, enum plumb_group group, const char *name, struct plumb_weight *w)
{
	struct plumb_bytes *sum = (struct plumb_bytes *)self + group;
	(void)name;
	sum->matrices++;
	sum->resident += (int64_t)plumb_weight_bytes(w);
	return PLUMB_OK;
}

/* A model that was loaded weighs what its config says. */
START_TEST(test_bytes_of_a_model)
{
	struct plumb_checkpoint *ck;
	struct plumb_profile p = opened("release-bf16");
	struct plumb_profile_bytes bytes;
	struct plumb_bytes sum[PLUMB_GROUP_COUNT] = {{0}};
	ck_assert_msg(plumb_checkpoint_open(walked[0].dir, &ck, &err) == PLUMB_OK, "%s", err.text);
	struct plumb_model model = *plumb_checkpoint_model(ck);
	ck_assert_int_eq(plumb_groups_walk(&model, weigh, sum), PLUMB_OK);
	ck_assert_int_eq(plumb_profile_bytes(&model.cfg, &p, &bytes, &err), PLUMB_OK);
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		ck_assert_int_eq(bytes.group[g].resident, sum[g].resident);
		ck_assert_int_eq(
			bytes.group[g].matrices, g == PLUMB_GROUP_NGRAM_TABLE ? 1 : sum[g].matrices); /* there in 4 parts */
	}
	plumb_checkpoint_close(ck);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("profile");
	TCase *tcase = suite_part(suite, "profile", 60);
	tcase_add_test(tcase, test_built_in_is_the_file);
	tcase_add_loop_test(tcase, test_promise, 0, PROMISES);
	tcase_add_test(tcase, test_every_field_is_read);
	tcase_add_loop_test(tcase, test_refused, 0, REFUSED);
	tcase_add_test(tcase, test_lengths);
	tcase_add_test(tcase, test_names_and_paths);
	tcase_add_loop_test(tcase, test_walk, 0, WALKED);
	tcase_add_loop_test(tcase, test_totals_of_the_release, 0, TOTALS);
	tcase_add_test(tcase, test_parts_of_the_release);
	tcase_add_test(tcase, test_bytes_of_a_model);
	return suite_run(suite);
}
