/* SPDX-License-Identifier: MIT */
/* The tolerance file: what ships, which rule a dataset gets, and every way to write a file that would not mean what it
 * says. That each shipped rule fails what it must fail is in test_compare.c. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tolerance.h"
#include "tests/support/suite.h"

#define SHIPPED PLUMB_GOLDEN_DIR "/tolerances.json"

static struct plumb_error err;

static struct plumb_tolerances *read_file(const char *path)
{
	struct plumb_tolerances *t;

	ck_assert_msg(plumb_tolerances_read(path, &t, &err) == PLUMB_OK, "%s", err.text);
	return t;
}

static const struct plumb_tolerance_rule *find(
	const struct plumb_tolerances *t, enum plumb_view view, enum plumb_policy policy, const char *dataset)
{
	const struct plumb_tolerance_rule *rule = plumb_tolerances_find(t, view, policy, dataset);

	ck_assert_ptr_nonnull(rule);
	ck_assert_int_eq(rule->view, view);
	ck_assert_int_eq(rule->policy, policy);
	return rule;
}

START_TEST(test_shipped)
{
	struct plumb_tolerances *t = read_file(NULL);
	const struct plumb_tolerance *f32_local =
		&find(t, PLUMB_VIEW_LOCAL, PLUMB_POLICY_F32, "fp32/layer00/gdn/output")->tolerance;
	const struct plumb_tolerance *f32_far = &find(t, PLUMB_VIEW_PROPAGATED, PLUMB_POLICY_F32, "fp32/logits")->tolerance;
	const struct plumb_tolerance *bf16_local =
		&find(t, PLUMB_VIEW_LOCAL, PLUMB_POLICY_BF16, "bf16/layer00/gdn/output")->tolerance;
	const struct plumb_tolerance *bf16_far =
		&find(t, PLUMB_VIEW_PROPAGATED, PLUMB_POLICY_BF16, "bf16/logits")->tolerance;
	int count;
	const struct plumb_tolerance_rule *rule = plumb_tolerances_rules(t, &count);

	ck_assert(f32_local->set & PLUMB_BOUND_REL_L2 && f32_local->max_rel_l2 == 1e-6);
	ck_assert(f32_far->set & PLUMB_BOUND_REL_L2 && f32_far->max_rel_l2 == 1e-5);
	ck_assert(bf16_local->set == (PLUMB_BOUND_EQUAL | PLUMB_BOUND_BF16_ULP));
	ck_assert(bf16_local->min_equal == 0.99 && bf16_local->max_bf16_ulp == 1 && bf16_local->bf16_noise == 8e-6);
	ck_assert(bf16_far->set & PLUMB_BOUND_REL_L2 && bf16_far->max_rel_l2 == 2.5e-2);
	for (int i = 0; i < count; i++)
		ck_assert_int_gt(strlen(rule[i].reason), 10);
	plumb_tolerances_free(t);
}
END_TEST

/* The bytes in the library are the bytes in golden/. */
START_TEST(test_built_in_is_the_file)
{
	FILE *file = fopen(SHIPPED, "rb");
	char *text = calloc(1, plumb_tolerances_json_size + 2);

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fread(text, 1, plumb_tolerances_json_size + 1, file), plumb_tolerances_json_size);
	ck_assert_mem_eq(text, plumb_tolerances_json, plumb_tolerances_json_size);
	ck_assert_int_eq(plumb_tolerances_json[plumb_tolerances_json_size], 0);
	fclose(file);
	free(text);
	plumb_tolerances_free(read_file(SHIPPED));
}
END_TEST

/* A file that is named is read, and not the built-in one. */
START_TEST(test_named_file_is_read)
{
	struct plumb_tolerances *t = read_file(SHIPPED), *built_in = read_file(NULL);
	int count = 0, expected = 0;

	ck_assert_ptr_nonnull(t);
	plumb_tolerances_rules(t, &count);
	plumb_tolerances_rules(built_in, &expected);
	ck_assert_int_gt(count, 0);
	ck_assert_int_eq(count, expected);
	plumb_tolerances_free(t);
	plumb_tolerances_free(built_in);
}
END_TEST

START_TEST(test_suffix)
{
	struct plumb_tolerances *t = read_file(NULL);

#define SUFFIX(dataset) find(t, PLUMB_VIEW_LOCAL, PLUMB_POLICY_BF16, dataset)->suffix
	ck_assert_str_eq(SUFFIX("bf16/layer00/ple/embedding/output"), "ple/embedding/output");
	ck_assert_str_eq(SUFFIX("bf16/embed/output"), "embed/output");
	ck_assert_str_eq(SUFFIX("embed/output"), "embed/output");
	ck_assert_str_eq(SUFFIX("bf16/layer00/reembed/output"), ""); /* whole components only */
	ck_assert_str_eq(SUFFIX("bf16/embed/output/more"), "");
	ck_assert_str_eq(SUFFIX("output"), "");
	ck_assert_str_eq(SUFFIX(""), "");
	ck_assert_str_eq(SUFFIX("bf16/layer02/state/recurrent_states0"), "state/recurrent_states0");
	ck_assert_str_eq(find(t, PLUMB_VIEW_PROPAGATED, PLUMB_POLICY_BF16, "bf16/layer00/moe/output")->suffix, "");
#undef SUFFIX
	plumb_tolerances_free(t);
}
END_TEST

/* Four general rules, and what a test puts behind them or in the place of one. */
#define GENERAL(view, policy) "{\"view\":\"" view "\",\"policy\":\"" policy "\",\"max_ulp\":4,\"reason\":\"as measured\"}"
#define THREE GENERAL("local", "f32") "," GENERAL("propagated", "f32") "," GENERAL("local", "bf16")
#define FILE_OF(rules) "{\"version\":1,\"rules\":[" rules "]}"
#define RULE(fields) FILE_OF(THREE "," GENERAL("propagated", "bf16") ",{" fields "}")
#define WHERE "\"view\":\"local\",\"policy\":\"f32\",\"suffix\":\"a/b\""
#define WHY "\"reason\":\"why\""

static int parse(const char *text, struct plumb_tolerances **t)
{
	/* An exact allocation, so that a sanitizer sees a read past the end. */
	size_t size = strlen(text);
	char *copy = malloc(size);
	int status;

	memcpy(copy, text, size);
	status = plumb_tolerances_parse(copy, size, "t.json", t, &err);
	free(copy);
	return status;
}

START_TEST(test_every_bound_is_read)
{
	struct plumb_tolerances *t;
	const struct plumb_tolerance *x;
	char text[256];

	ck_assert_msg(parse(RULE(WHERE ",\"max_relative_l2\":0.5,\"max_error\":2,\"max_peak\":1,\"max_ulp\":8388608,"
				       "\"max_bf16_ulp\":128,\"min_equal\":1,\"min_near\":0.25,\"near_ulp_log2\":23,"
				       "\"exact\":true,\"bits\":true,"
				       "\"allow_zero\":true,\"allow_constant\":true,\"allow_nan\":false," WHY),
			      &t) == PLUMB_OK,
		"%s", err.text);
	x = &find(t, PLUMB_VIEW_LOCAL, PLUMB_POLICY_F32, "fp32/a/b")->tolerance;
	ck_assert_uint_eq(x->set, (1u << 9) - 1);
	ck_assert(x->max_rel_l2 == 0.5 && x->max_abs == 2.0 && x->max_peak == 1.0 && x->max_ulp == 1 << 23);
	ck_assert(x->max_bf16_ulp == 128 && x->min_equal == 1.0 && x->min_near == 0.25 && x->near_ulp_log2 == 23);
	ck_assert(x->allow_zero && x->allow_constant && !x->allow_nan);
	ck_assert_str_eq(plumb_tolerance_show(x, text, sizeof text),
		"relative L2 <= 0.5, error <= 2, max error / rms <= 1, equal part >= 1, part near >= 0.25 (below 2^23 "
		"ulp), "
		"ulp <= 8388608, bf16 ulp <= 128, exact, bits, allow_zero, allow_constant");
	ck_assert_str_eq(plumb_tolerance_show(x, text, 12), "relative L2");
	ck_assert_str_eq(plumb_tolerance_show(x, text, 1), "");
	for (unsigned bit = PLUMB_BOUND_REL_L2; bit <= PLUMB_BOUND_BITS; bit <<= 1) { /* one bound is one phrase */
		const struct plumb_tolerance one = {.set = bit};
		plumb_tolerance_show(&one, text, sizeof text);
		ck_assert_msg(text[0] && !strchr(text, ','), "bound %x: %s", bit, text);
	}
	plumb_tolerances_free(t);
}
END_TEST

static const struct {
	const char *text, *message;
} refused[] = {
	{"", "t.json"},
	{"[]", "t.json: an array, expected an object"},
	{"{}", "version"},
	{"{\"version\":2,\"rules\":[]}", "version"},
	{"{\"version\":1}", "rules"},
	{"{\"version\":1,\"rules\":{}}", "rules"},
	{"{\"version\":1,\"rules\":[1]}", "t.json: rules[0]: 1, expected an object"},
	{"{\"version\":1,\"rules\":[],\"note\":1}",
		"t.json: \"note\" is no key of a tolerance file, expected version and rules"},
	{FILE_OF(""), "no rule without a suffix for view local and policy f32, expected one"},
	{FILE_OF(THREE), "no rule without a suffix for view propagated and policy bf16, expected one"},
	{FILE_OF(THREE "," THREE), "rules[0] and rules[3] both speak of local, f32, suffix \"\", expected one"},
	{FILE_OF(THREE) "x", "t.json"},
	{RULE("\"policy\":\"f32\",\"exact\":true," WHY), "rules[4].view"},
	{RULE("\"view\":\"near\",\"policy\":\"f32\",\"exact\":true," WHY),
		"t.json: rules[4].view: \"near\", expected \"local\" or \"propagated\""},
	{RULE("\"view\":\"local\",\"policy\":\"fp32\",\"exact\":true," WHY),
		"rules[4].policy: \"fp32\", expected \"f32\" or \"bf16\""},
	{RULE("\"view\":\"local\",\"policy\":1,\"exact\":true," WHY), "rules[4].policy"},
	{RULE(WHERE ",\"exact\":true"), "rules[4].reason"},
	{RULE(WHERE ",\"exact\":true,\"reason\":\"\""), "rules[4].reason: empty, expected why these figures"},
	{RULE(WHERE ",\"exact\":true,\"reason\":\" \\n\\t\""), "rules[4].reason: empty"},
	{RULE(WHERE ",\"exact\":true,\"reason\":7"), "rules[4].reason"},
	{RULE(WHERE ",\"exact\":true,\"reason\":null"), "rules[4].reason"},
	{RULE(WHERE "," WHY), "no bound that looks at every element"},
	{RULE(WHERE ",\"min_equal\":0.99," WHY), "no bound that looks at every element"},
	{RULE(WHERE ",\"min_near\":0.99,\"near_ulp_log2\":3," WHY), "no bound that looks at every element"},
	{RULE(WHERE ",\"max_rel_l2\":1e-6," WHY), "t.json: rules[4]: \"max_rel_l2\" is no key of a rule"},
	{RULE(WHERE ",\"max_relative_l2\":1," WHY), "rules[4].max_relative_l2"},
	{RULE(WHERE ",\"max_relative_l2\":0," WHY), "rules[4].max_relative_l2"},
	{RULE(WHERE ",\"max_relative_l2\":-1e-6," WHY), "rules[4].max_relative_l2"},
	{RULE(WHERE ",\"max_relative_l2\":\"1e-6\"," WHY), "rules[4].max_relative_l2"},
	{RULE(WHERE ",\"max_relative_l2\":null," WHY), "rules[4].max_relative_l2"},
	{RULE(WHERE ",\"max_relative_l2\":NaN," WHY), "t.json"},
	{RULE(WHERE ",\"max_error\":-1," WHY), "rules[4].max_error"},
	{RULE(WHERE ",\"max_error\":1e999," WHY), "t.json"},
	{RULE(WHERE ",\"max_peak\":1.5," WHY), "rules[4].max_peak"},
	{RULE(WHERE ",\"max_ulp\":8388609," WHY), "rules[4].max_ulp"},
	{RULE(WHERE ",\"max_ulp\":-1," WHY), "rules[4].max_ulp"},
	{RULE(WHERE ",\"max_ulp\":0.5," WHY), "rules[4].max_ulp"},
	{RULE(WHERE ",\"max_bf16_ulp\":129," WHY), "rules[4].max_bf16_ulp"},
	{RULE(WHERE ",\"max_bf16_ulp\":8,\"bf16_noise\":1e-6," WHY), "rules[4].bf16_noise: needs a max_bf16_ulp of 0..7"},
	{RULE(WHERE ",\"exact\":true,\"bf16_noise\":1e-6," WHY), "rules[4].bf16_noise: needs a max_bf16_ulp of 0..7"},
	{RULE(WHERE ",\"max_bf16_ulp\":1,\"bf16_noise\":0," WHY), "rules[4].bf16_noise"},
	{RULE(WHERE ",\"max_bf16_ulp\":1,\"bf16_noise\":2e-3," WHY), "rules[4].bf16_noise"},
	{RULE(WHERE ",\"exact\":true,\"min_equal\":1.01," WHY), "rules[4].min_equal"},
	{RULE(WHERE ",\"exact\":true,\"min_equal\":0," WHY), "rules[4].min_equal"},
	{RULE(WHERE ",\"exact\":true,\"min_near\":0.5," WHY), "min_near and near_ulp_log2 need one another"},
	{RULE(WHERE ",\"exact\":true,\"near_ulp_log2\":5," WHY), "min_near and near_ulp_log2 need one another"},
	{RULE(WHERE ",\"exact\":true,\"min_near\":0.5,\"near_ulp_log2\":24," WHY), "rules[4].near_ulp_log2"},
	{RULE(WHERE ",\"exact\":false," WHY), "rules[4].exact: false, expected true"},
	{RULE(WHERE ",\"exact\":1," WHY), "rules[4].exact"},
	{RULE(WHERE ",\"bits\":false," WHY), "rules[4].bits: false, expected true"},
	{RULE(WHERE ",\"exact\":true,\"allow_zero\":\"yes\"," WHY), "rules[4].allow_zero"},
	{RULE(WHERE ",\"exact\":true,\"exact\":true," WHY), "t.json"},
	{RULE("\"view\":\"local\",\"policy\":\"f32\",\"suffix\":\"\",\"exact\":true," WHY),
		"rules[4].suffix: \"\", expected"},
	{RULE("\"view\":\"local\",\"policy\":\"f32\",\"suffix\":\"/a\",\"exact\":true," WHY), "rules[4].suffix: \"/a\""},
	{RULE("\"view\":\"local\",\"policy\":\"f32\",\"suffix\":\"a/\",\"exact\":true," WHY), "rules[4].suffix: \"a/\""},
	{RULE("\"view\":\"local\",\"policy\":\"f32\",\"suffix\":5,\"exact\":true," WHY), "rules[4].suffix"},
	{RULE("\"view\":\"local\",\"policy\":\"f32\",\"exact\":true," WHY),
		"rules[0] and rules[4] both speak of local, f32, suffix \"\""},
};
enum { REFUSED = sizeof refused / sizeof refused[0] };

START_TEST(test_refused)
{
	struct plumb_tolerances *t = (struct plumb_tolerances *)&err;

	err.text[0] = '\0';
	ck_assert_msg(parse(refused[_i].text, &t) == PLUMB_BAD_INPUT, "not refused: %s", refused[_i].text);
	ck_assert_ptr_null(t);
	ck_assert_msg(strncmp(err.text, "t.json", 6) == 0, "%s", err.text);
	ck_assert_msg(strstr(err.text, refused[_i].message) != NULL, "%s\nexpected: %s", err.text, refused[_i].message);
	ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

/* Every prefix of the shipped file is refused. */
START_TEST(test_truncated)
{
	for (size_t size = 0; size + 2 < plumb_tolerances_json_size; size += 1 + size / 300) {
		char *copy = malloc(size + 1);
		struct plumb_tolerances *t;

		memcpy(copy, plumb_tolerances_json, size);
		ck_assert_int_eq(plumb_tolerances_parse(copy, size, "t.json", &t, &err), PLUMB_BAD_INPUT);
		free(copy);
	}
}
END_TEST

START_TEST(test_missing_file)
{
	struct plumb_tolerances *t;

	ck_assert_int_eq(plumb_tolerances_read("/nonexistent/t.json", &t, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_null(t);
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/t.json"));
	plumb_tolerances_free(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tolerance");
	TCase *tcase = suite_part(suite, "file", 60);

	tcase_add_test(tcase, test_shipped);
	tcase_add_test(tcase, test_built_in_is_the_file);
	tcase_add_test(tcase, test_named_file_is_read);
	tcase_add_test(tcase, test_suffix);
	tcase_add_test(tcase, test_every_bound_is_read);
	tcase_add_loop_test(tcase, test_refused, 0, REFUSED);
	tcase_add_test(tcase, test_truncated);
	tcase_add_test(tcase, test_missing_file);
	return suite_run(suite);
}
