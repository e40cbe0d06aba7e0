/* SPDX-License-Identifier: MIT */
/* tools/synthetic.py, written from the formulas alone, gives the bytes that C gives: data, scales and global scale of
 * every format, at the start of a tensor, across 2^32 and far behind it. Without python3 it ends with 77. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/made_tensor.h"
#include "tests/support/suite.h"

enum { VALUES = 300 };

/* What the script writes. Returns the bytes read. */
static size_t by_script(unsigned char *out, size_t room, const char *arguments)
{
	char command[512];

	snprintf(command, sizeof command, "python3 %s/synthetic.py %s --raw", PLUMB_TOOLS_DIR, arguments);
	FILE *f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	size_t n = fread(out, 1, room, f);
	ck_assert_msg(pclose(f) == 0, "%s failed", command);
	return n;
}

static const char *const names[] = {"layers.1.ple.ple_embedding.ngram_embedding", "layers.3.mlp.experts.17.gate_proj",
	"layers.0.linear_attn.A_log", "layers.0.attn_hyper_connection.hc_norm", "embed_tokens", "lm_head",
	"layers.3.self_attn.k_norm", "layers.2.mlp.shared_expert.down_proj"};

START_TEST(data_is_the_same)
{
	static const int64_t firsts[] = {0, (INT64_C(1) << 32) - 100, INT64_C(51199999000)};
	const struct made_case *c = &made_cases[_i];
	unsigned char *seen = malloc(VALUES * 4);
	char arguments[256];

	for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
		const char *name = names[((size_t)_i + f) % (sizeof names / sizeof names[0])];
		/* a shard of one row is what lies there; its step follows from the columns of the whole */
		int64_t cols = 160, count = c->format == PLUMB_NVFP4 ? cols / 2 : cols;
		struct made_tensor m;
		made_create(&m, name, c->format, c->scale_format, 1, cols, firsts[f], 77);
		plumb_synthetic_fill(&m.w, 0, 1);
		snprintf(arguments, sizeof arguments, "%s %s %lld %lld --seed 77 --first %lld --count %lld", name,
			plumb_format_name(c->format), (long long)1 << 40, (long long)cols, (long long)firsts[f],
			(long long)count);
		ck_assert_uint_eq(by_script(seen, VALUES * 4, arguments), m.data_bytes);
		ck_assert_msg(memcmp(seen, m.data, m.data_bytes) == 0, "%s differs", arguments);
		made_free(&m);
	}
	free(seen);
}
END_TEST

START_TEST(scales_are_the_same)
{
	const struct made_case *c = &made_cases[_i];
	unsigned char *seen = malloc(1 << 16);
	char arguments[256];
	struct made_tensor m;

	made_create(&m, "layers.3.mlp.experts.17.gate_proj", c->format, c->scale_format, c->rows, c->cols, 0, 5);
	plumb_synthetic_fill(&m.w, 0, c->rows);
	snprintf(arguments, sizeof arguments,
		"layers.3.mlp.experts.17.gate_proj %s %lld %lld --seed 5 --part scale --scale-format %s",
		plumb_format_name(c->format), (long long)c->rows, (long long)c->cols, plumb_format_name(c->scale_format));
	if (m.scale_bytes > 0) {
		ck_assert_uint_eq(by_script(seen, 1 << 16, arguments), m.scale_bytes);
		ck_assert_msg(memcmp(seen, m.scale, m.scale_bytes) == 0, "%s differs", arguments);
	}
	if (m.w.global != 0.0f) {
		snprintf(arguments, sizeof arguments,
			"layers.3.mlp.experts.17.gate_proj %s %lld %lld --seed 5 --part global",
			plumb_format_name(c->format), (long long)c->rows, (long long)c->cols);
		ck_assert_uint_eq(by_script(seen, 1 << 16, arguments), sizeof m.w.global);
		ck_assert_mem_eq(seen, &m.w.global, sizeof m.w.global);
	}
	made_free(&m);
	free(seen);
}
END_TEST

int main(void)
{
	if (system("python3 -c pass >/dev/null 2>&1") != 0) {
		printf("SKIP test_synthetic_python: no python3\n");
		return SUITE_SKIPPED;
	}
	Suite *s = suite_create("synthetic_python");
	TCase *t = suite_part(s, "bytes", 120);
	tcase_add_loop_test(t, data_is_the_same, 0, MADE_CASES);
	tcase_add_loop_test(t, scales_are_the_same, 0, MADE_CASES);
	return suite_run(s);
}
