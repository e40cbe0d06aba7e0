/* SPDX-License-Identifier: MIT */
/* What is said of a wrong result: known faults are put into right ones, and each must be called by its name and place.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/trial.h"
#include "tools/inside.h"

static struct trial *c;
static struct plumb_call call;
static const struct plumb_operand *operand;
static double *want, *got, *other;
static int64_t count, columns, rows;

/* A call of an op with at least some rows and columns, and the twin's values of one output. */
static void start(enum plumb_op op, const char *output, int64_t least_columns)
{
	struct trial_result result;
	char text[TRIAL_TEXT];
	const struct trial_options options = {.policy = PLUMB_POLICY_F32, .T = 4, .format = PLUMB_BF16, .traces = 1};

	for (uint64_t seed = 1; !c; seed++) {
		c = trial_new(op, seed, &options);
		operand = trial_operand(c, output)->info;
		count = trial_operand(c, output)->count;
		rows = c->T;
		columns = count / rows;
		bool short_sum = op == PLUMB_ATTN_OUT_PROJ && trial_operand(c, "w")->weight->cols < 96;
		if (columns < least_columns || c->zeros > 0.0f || columns > 4096 || short_sum || c->cfg.streams < 2) {
			trial_free(c);
			c = NULL;
		}
	}
	call = (struct plumb_call){.op = op, .position = c->position, .T = c->T, .env = &c->env, .args = c->args};
	ck_assert_msg(trial_run(c, "twin", plumb_ref_twin.op[op], NULL, PLUMB_POISON_NAN, &result, text), "%s", text);
	trial_result_free(&result);
	want = malloc((size_t)count * sizeof *want);
	got = malloc((size_t)count * sizeof *got);
	other = malloc((size_t)count * sizeof *other);
	for (int64_t i = 0; i < count; i++)
		want[i] = operand->kind == PLUMB_KIND_F32 ? (double)((float *)trial_data(c, output))[i]
		                                          : (double)((int32_t *)trial_data(c, output))[i];
	memcpy(got, want, (size_t)count * sizeof *got);
	memcpy(other, want, (size_t)count * sizeof *got);
}

static void stop(void)
{
	trial_free(c);
	c = NULL;
	free(want);
	free(got);
	free(other);
	want = got = other = NULL;
}

/* What is said now holds the pattern, the words of the place and of the text. Then everything is as it was. */
static struct inside said(enum inside_pattern pattern, const char *where, const char *text)
{
	struct inside in;

	inside_look(&call, operand, got, other, want, NULL, count, &in);
	ck_assert_msg(in.pattern == pattern, "%s, expected %s: %s", inside_pattern_name(in.pattern),
		inside_pattern_name(pattern), in.text);
	ck_assert_msg(strstr(in.where, where) != NULL, "'%s' does not say '%s' (%s)", in.where, where, in.text);
	ck_assert_msg(strstr(in.text, text) != NULL, "'%s' does not say '%s'", in.text, text);
	memcpy(got, want, (size_t)count * sizeof *got);
	memcpy(other, want, (size_t)count * sizeof *got);
	return in;
}

#define EACH(condition, change)                                                                                            \
	for (int64_t r = 0, k = 0; r < rows; r += ++k == columns, k %= columns) {                                          \
		int64_t i = r * columns + k;                                                                               \
		if (condition) {                                                                                           \
			change;                                                                                            \
		}                                                                                                          \
	}

START_TEST(values)
{
	struct inside in;

	start(PLUMB_GDN_OUT_PROJ, "y", 40);
	inside_look(&call, operand, got, other, want, NULL, count, &in);
	ck_assert(in.differ == 0 && in.text[0] == '\0');
	EACH(k % 2 == 0, (got[i] = NAN, other[i] = 1e30));
	said(INSIDE_UNWRITTEN, "0 mod 2", "never written");
	EACH(r == 2, got[i] = NAN; other[i] = NAN);
	said(INSIDE_NAN, "only token", "NaN");
	EACH(k >= columns - 5, got[i] = 0.0);
	said(INSIDE_ZERO, "from", "zero");
	EACH(1, got[i] = -want[i]);
	said(INSIDE_SIGN, "every element", "other sign");
	EACH(k % 16 == 3, got[i] = want[i] * 1.25);
	in = said(INSIDE_FACTOR, "3 mod 16", "1.25 times");
	ck_assert(fabs(in.factor - 1.25) < 1e-9);
	EACH(1, got[i] = want[i] + 0.375);
	in = said(INSIDE_OFFSET, "every element", "0.375 above");
	EACH(k + 1 < columns, got[i] = want[i + 1]);
	in = said(INSIDE_SHIFTED, "", "1 column further on");
	ck_assert_int_eq(in.shift, 1);
	EACH(r > 0, got[i] = want[i - columns]);
	in = said(INSIDE_ROW, "tokens from", "1 token before");
	ck_assert_int_eq(in.shift, -1);
	EACH(1, got[i] = want[r * columns + columns - 1 - k]);
	said(INSIDE_PERMUTED, "", "another order");
	EACH(1, got[i] = (double)nextafterf((float)want[i], 1e30f));
	said(INSIDE_BIAS, "every element", "all upwards");
	EACH(1, got[i] = (double)nextafterf((float)want[i], want[i] > 0 ? 0.0f : -0.0f));
	said(INSIDE_BIAS, "every element", "towards zero");
	EACH(1, got[i] = (double)nextafterf((float)want[i], (i * 7919 / 3) % 2 ? 1e30f : -1e30f));
	said(INSIDE_ROUNDING, "every element", "as often as down");
	EACH(1, got[i] = want[i] * (1.0 + 0.3 * sin((double)(i * i + 1))));
	said(INSIDE_UNKNOWN, "every element", "no common factor");
	EACH(1, got[i] = want[i] * (1.0 + 3e-5 * sin((double)(i * i + 1)))); /* a factor of 1 is none */
	said(INSIDE_UNKNOWN, "every element", "no common factor");
	EACH(1, (want[i] = 0.0, got[i] = sin((double)(i * i + 1))));
	said(INSIDE_UNKNOWN, "every element", "where zeros are expected");
	stop();
}
END_TEST

/* Parts of a sum: the last terms, a chunk, a lane; missing, or there twice. */
START_TEST(sums)
{
	const struct plumb_weight *w;
	const float *x;
	int64_t K;

	start(PLUMB_ATTN_OUT_PROJ, "y", 24);
	w = trial_operand(c, "w")->weight;
	x = trial_data(c, "x");
	K = w->cols;
	ck_assert_int_ge(K, 96);
	static const struct {
		int64_t first, last, step; /* last 0: K */
		double times;
		enum inside_pattern pattern;
		const char *text;
	} parts[] = {
		{-6, 0, 1, -1.0, INSIDE_DROPPED, "the last 6 of"},
		{32, 64, 1, -1.0, INSIDE_DROPPED, "columns 32 to 63"},
		{5, 0, 32, -1.0, INSIDE_DROPPED, "5 mod 32"},
		{16, 32, 1, 1.0, INSIDE_DOUBLED, "columns 16 to 31"},
	};
	float *row = malloc((size_t)K * sizeof *row);
	for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
		int64_t first = parts[p].first < 0 ? K + parts[p].first : parts[p].first,
			last = parts[p].last ? parts[p].last : K;
		for (int64_t i = 0; i < count; i++) {
			plumb_weight_row(w, i % w->rows, 0, K, row);
			for (int64_t k = first; k < last; k += parts[p].step)
				got[i] += parts[p].times * (double)row[k] * (double)x[i / w->rows * K + k];
		}
		said(parts[p].pattern, "", parts[p].text);
	}
	free(row);
	stop();
}
END_TEST

/* Heads and streams are called by their names; a choice among equals is a tie. */
START_TEST(places)
{
	start(PLUMB_HC_INJECT, "residual_out", 60);
	int64_t D = c->cfg.hidden, S = c->cfg.streams;
	ck_assert_int_ge(S, 2);
	EACH(k / D == 1, got[i] = want[i] * 3.0);
	said(INSIDE_FACTOR, "only stream 1", "3 times");
	stop();

	start(PLUMB_QSA_SELECT, "block", 1);
	float *score = trial_data(c, "score");
	int64_t NB = c->env.capacity / c->cfg.block_tokens;
	for (int64_t i = 0; i < rows * NB; i++)
		score[i] = 1.0f;
	want[0] = 0.0;
	got[0] = 1.0;
	struct inside in;
	inside_look(&call, operand, got, NULL, want, NULL, count, &in);
	ck_assert_msg(NB < 2 || in.pattern == INSIDE_TIE, "%s", in.text);
	score[0] = 2.0f;
	inside_look(&call, operand, got, NULL, want, NULL, count, &in);
	ck_assert_msg(in.pattern == INSIDE_CHOICE, "%s", in.text);
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inside");
	TCase *tc = suite_part(suite, "inside", 60);

	tcase_add_test(tc, values);
	tcase_add_test(tc, sums);
	tcase_add_test(tc, places);
	return suite_run(suite);
}
