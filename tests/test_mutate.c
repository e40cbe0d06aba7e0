/* SPDX-License-Identifier: MIT */
/* The lexer and the mutation operators: on texts of a few lines, every mutant that there is and none besides. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tools/faults_mutate.h"

/* All mutants of a text as "line:column operator replacement", one a line. */
static void all_of(const char *text, char *out, size_t size)
{
	struct mutants m;
	size_t used = 0;

	ck_assert(mutants_find(text, strlen(text), &m));
	out[0] = '\0';
	for (size_t i = 0; i < m.count && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%d:%d %s%s %s\n", m.mutant[i].line, m.mutant[i].column,
			mutation_name(m.mutant[i].mutation), m.mutant[i].orders ? "*" : "", m.mutant[i].replacement);
	ck_assert(used < size);
	mutants_free(&m);
}

static const struct {
	const char *text, *mutants;
} texts[] = {
	{"int f(int a, int b)\n{\n\treturn a + b;\n}\n", "3:11 arithmetic -\n"},
	{"void f(float *x)\n{\n\tx[i] = -y;\n}\n", "3:2 drop ;\n3:4 index (i) + 1\n3:9 sign  \n"},
	{"bool f(int a)\n{\n\treturn a < 4;\n}\n", "3:11 relation <=\n3:13 constant 5\n3:13 constant 3\n"},
	{"void f(void)\n{\n\tif (a && b)\n\t\tg(a, b);\n}\n",
		"3:6 negate !(a && b)\n3:8 logic ||\n4:3 drop ;\n4:5 swap b, a\n"},
	{"void f(void)\n{\n\t__syncthreads();\n}\n", "3:2 drop* ;\n"},
	{"float f(float a)\n{\n\treturn plumb_rne(bf16, fabsf(a));\n}\n",
		"3:9 round (fabsf(a))\n3:19 swap fabsf(a), bf16\n3:25 sign (a)\n"},
	{"float f(void)\n{\n\treturn fmaf(a, a, 0.0f);\n}\n",
		"3:9 round ((a) * (a) + (0.0f))\n3:17 swap 0.0f, a\n3:20 constant (0.0f + 1.0f)\n"},
	{"int f(void)\n{\n\treturn max(a, a) << 0x1u;\n}\n",
		"3:9 extreme min\n3:19 bits >>\n3:22 constant 0x2u\n3:22 constant 0x0u\n"},
	{"bool f(void)\n{\n\treturn true;\n}\n", "3:9 constant false\n"},
	/* what is no code, and what a message says */
	{"/* a + b < 3 */ // a - b\n#define X(a) ((a) + 1)\n#if 1 + 1 > \\\n 3\n#endif\nstatic const char *s = \"a + 1\", "
	 "c = '+';\n",
		""},
	{"void f(void)\n{\n\tplumb_fail(err, 1 + 2, \"%d\", x[3]);\n}\n", ""},
	/* declarations are no statements, pointers no products, templates no relations */
	{"void f(void)\n{\n\tint a[3];\n\tint *b[2][5];\n\treturn a[3];\n}\n",
		"3:8 constant 2\n4:9 constant 1\n4:12 constant 4\n5:11 index (3) + 1\n5:11 constant 4\n5:11 constant 2\n"},
	{"void f(void)\n{\n\tfloat a[N / W], b[N + W];\n\tf(x[N / W], y[2]);\n}\n",
		"3:22 arithmetic -\n4:2 drop ;\n4:4 swap y[2], x[N / W]\n4:6 index (N / W) + 1\n4:8 arithmetic *\n4:16 "
		"index (2) + 1\n4:16 constant 3\n4:16 constant 1\n"},
	{"template <int N, typename T> static void f(const float *x)\n{\n\tfloat y[N];\n\tconst T *p = g<T>(x);\n}\n", ""},
	{"struct a {\n\tint b;\n\tfloat *c;\n};\nenum { A, B };\n", ""},
};

START_TEST(mutants_of_a_text)
{
	char out[4096];
	all_of(texts[_i].text, out, sizeof out);
	ck_assert_str_eq(out, texts[_i].mutants);
}
END_TEST

/* Replacing gives text that differs in that place only, and the same text gives the same mutants. */
START_TEST(places)
{
	const char *text =
		"int f(int n)\n{\n\tint a = 0;\n\tfor (int i = 0; i < n; i++)\n\t\ta += x[i] * 3;\n\treturn a;\n}\n";
	struct mutants m, again;

	ck_assert(mutants_find(text, strlen(text), &m));
	ck_assert(mutants_find(text, strlen(text), &again));
	ck_assert_uint_eq(m.count, again.count);
	ck_assert_uint_gt(m.count, 5);
	for (size_t i = 0; i < m.count; i++) {
		const struct mutant *k = &m.mutant[i];
		int line = 1;
		for (size_t c = 0; c < k->at; c++)
			line += text[c] == '\n';
		ck_assert_int_eq(line, k->line);
		ck_assert_uint_le(k->at + k->length, strlen(text));
		ck_assert(strncmp(text + k->at, k->replacement, k->length) != 0 || strlen(k->replacement) != k->length);
		ck_assert_uint_eq(k->at, again.mutant[i].at);
		ck_assert_str_eq(k->replacement, again.mutant[i].replacement);
	}
	mutants_free(&m);
	mutants_free(&again);
}
END_TEST

/* Text that ends anywhere, brackets that do not pair. */
START_TEST(broken_text)
{
	const char *text = "int f(int a[3]) { return g(a[1], \"x\\\"\", 'c') /* d */ + 0x1.8p-3f; } #if";
	struct mutants m;

	for (size_t n = 0; n <= strlen(text); n++) {
		char *copy = malloc(n + 1); /* of that size, so that a sanitizer sees what is read behind it */
		ck_assert_ptr_nonnull(copy);
		memcpy(copy, text, n);
		copy[n] = '\0';
		ck_assert(mutants_find(copy, n, &m));
		mutants_free(&m);
		free(copy);
	}
	ck_assert(mutants_find(")]}{([;", 7, &m));
	ck_assert_uint_eq(m.count, 0);
	mutants_free(&m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mutate");
	TCase *mutate = suite_part(suite, "mutate", 60);
	tcase_add_loop_test(mutate, mutants_of_a_text, 0, (int)(sizeof texts / sizeof texts[0]));
	tcase_add_test(mutate, places);
	tcase_add_test(mutate, broken_text);
	return suite_run(suite);
}
