/* SPDX-License-Identifier: MIT */
/* The staged kernel of the projections (kernels/staged.h), at shapes of few rows that the ops would cut into more pieces: its
 * bits are those of the kernel that takes anything, which a vector at an odd address gets, for every schedule; its race check
 * has nothing to say; and what copies cannot reach is left to the others. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/linear.h"
#include "kernels/simt/simt.h"
#include "tests/support/suite.h"

enum { MOST_ROWS = 132, SEEDS = 3 };

/* Rows of three parts, columns, pieces: blocks of 32 or 56 rows with 10 steps, of 10 rows with 6; the second of each length has
 * a last step, or a last piece, that is cut off. */
static const struct shape {
	int64_t rows[3], cols;
	int pieces;
} shapes[] = {
	{{57, 0, 0}, 2560, 1}, {{3, 52, 4}, 2432, 1}, {{1, 0, 0}, 2560, 1}, {{11, 0, 0}, 6144, 4}, {{1, 7, 12}, 5248, 4},
	{{9, 0, 0}, 6016, 4}, {{2, 0, 0}, 4096, 4}, {{131, 0, 0}, 6144, 4}, /* the block of the last rows is another one */
	{{5, 0, 0}, 2440, 1},                                               /* not whole copies */
};

/* Formats and those of their scales, of the second part always f32; data and scales begin so many bytes behind a 16-byte
 * boundary. */
static const struct kind {
	enum plumb_format format, scale_format;
	size_t late_data, late_scale;
} kinds[] = {
	{PLUMB_NVFP4, PLUMB_F32, 0, 0},
	{PLUMB_NVFP4, PLUMB_F32, 4, 0},
	{PLUMB_NVFP4, PLUMB_F32, 0, 4},
	{PLUMB_NVFP4, PLUMB_F32, 8, 8},
	{PLUMB_FP8_ROW, PLUMB_F32, 0, 4},
	{PLUMB_FP8_ROW, PLUMB_BF16, 0, 4},
	{PLUMB_FP8_ROW, PLUMB_F32, 8, 0},
	{PLUMB_FP8_BLOCK, PLUMB_F32, 0, 4},
	{PLUMB_FP8_BLOCK, PLUMB_BF16, 0, 4},
	{PLUMB_FP8_BLOCK, PLUMB_BF16, 8, 0},
};

static uint32_t state;
static uint32_t draw(void)
{
	state = state * 1664525u + 1013904223u;
	return state >> 8;
}

/* Memory on a 16-byte boundary that ends before a page which nobody may read. */
struct piece {
	unsigned char *at;
	void *pages;
	size_t mapped;
};

static struct piece take(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
	struct piece p = {.mapped = room + page};

	p.pages = mmap(NULL, p.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(p.pages, MAP_FAILED);
	p.at = (unsigned char *)p.pages + (room - bytes) / 16 * 16;
	ck_assert_int_eq(mprotect((unsigned char *)p.pages + room, page, PROT_NONE), 0);
	return p;
}

struct call {
	struct plumb_linear a;
	struct piece data[3], scale[3], vector;
	float *x, y[MOST_ROWS];
};

/* Any codes but those of NaN, positive scales. */
static void fill(
	const struct plumb_matrix *m, unsigned char *data, size_t data_bytes, unsigned char *scale, size_t scale_bytes)
{
	const bool fp8 = m->format != PLUMB_NVFP4;
	const size_t size = !fp8 ? 1 : m->scale_format == PLUMB_F32 ? sizeof(float) : sizeof(uint16_t);

	for (size_t i = 0; i < data_bytes; i++)
		data[i] = (unsigned char)(fp8 ? draw() % 0x7f + draw() % 2 * 0x80 : draw());
	for (size_t i = 0; i < scale_bytes; i += size) {
		const uint8_t e4m3 = (uint8_t)(draw() % 0x7f);
		const uint16_t bf16 = (uint16_t)(0x3c00 + draw() % 0x200);
		const float f32 = (float)(draw() % 4096 + 1) * 0x1p-14f;

		memcpy(scale + i,
			size == sizeof f32    ? (const void *)&f32
			: size == sizeof bf16 ? (const void *)&bf16
					      : &e4m3,
			size);
	}
}

static void call_make(struct call *c, const struct shape *s, const struct kind *kind)
{
	memset(c, 0, sizeof *c);
	state = 77;
	c->a.cols = s->cols;
	c->a.pieces = s->pieces;
	c->vector = take(sizeof(float) * (size_t)(s->cols + 1));
	c->x = (float *)(void *)c->vector.at;
	for (int64_t k = 0; k < s->cols; k++)
		c->x[k] = (float)((int)(draw() % 2001) - 1000) * 0x1.8p-9f;
	c->a.x = c->x;
	for (int p = 0; p < 3 && s->rows[p]; p++) {
		const struct plumb_weight w = {.format = kind->format,
			.scale_format = p == 1 ? PLUMB_F32 : kind->scale_format,
			.rows = s->rows[p],
			.cols = s->cols};
		const size_t data = plumb_weight_data_bytes(&w), scale = plumb_weight_scale_bytes(&w);
		struct plumb_matrix *m = &c->a.part[p].w;

		m->format = (int)kind->format;
		m->scale_format = (int)w.scale_format;
		m->global = 0x1.234568p-3f * (float)(p + 1);
		c->data[p] = take(data + kind->late_data);
		c->scale[p] = take(scale + kind->late_scale);
		m->data = c->data[p].at + kind->late_data;
		m->scale = c->scale[p].at + kind->late_scale;
		fill(m, c->data[p].at + kind->late_data, data, c->scale[p].at + kind->late_scale, scale);
		c->a.part[p].rows = s->rows[p];
		c->a.part[p].y = c->y + c->a.rows;
		c->a.rows += s->rows[p];
		c->a.parts = p + 1;
	}
	ck_assert_int_lt(c->a.rows, MOST_ROWS);
}

static void call_free(struct call *c)
{
	for (int p = 0; p < c->a.parts; p++) {
		munmap(c->data[p].pages, c->data[p].mapped);
		munmap(c->scale[p].pages, c->scale[p].mapped);
	}
	munmap(c->vector.pages, c->vector.mapped);
}

static void run(struct call *c, int (*launch)(const struct plumb_linear *, void *), uint64_t seed)
{
	struct plumb_simt simt = {.seed = seed};

	memset(c->y, 0xff, sizeof c->y);
	ck_assert_msg(launch(&c->a, &simt) == PLUMB_SIMT_OK, "seed %llu: %s", (unsigned long long)seed, simt.error);
	plumb_simt_free(&simt);
}

/* What the kernel that takes anything makes of it. */
static void run_any(const struct call *c, const struct shape *s, const struct kind *kind, float *y)
{
	struct call any;

	call_make(&any, s, kind);
	memmove(any.x + 1, any.x, sizeof(float) * (size_t)s->cols);
	any.a.x = any.x + 1;
	any.a.bf16 = c->a.bf16;
	run(&any, plumb_simt_linear, 0);
	memcpy(y, any.y, sizeof any.y);
	call_free(&any);
}

START_TEST(bits)
{
	const struct shape *s = &shapes[_i];
	float want[MOST_ROWS];

	for (size_t l = 0; l < sizeof kinds / sizeof kinds[0]; l++) {
		struct call c;

		call_make(&c, s, &kinds[l]);
		c.a.bf16 = (int)(l & 1);
		run_any(&c, s, &kinds[l], want);
		for (uint64_t seed = 0; seed < SEEDS; seed++) {
			run(&c, plumb_simt_linear, seed);
			ck_assert_msg(memcmp(c.y, want, sizeof want) == 0, "shape %d, %s %zu: other bits", _i,
				plumb_format_name(kinds[l].format), l);
		}
#ifdef PLUMB_RACE
		run(&c, plumb_race_linear, 1);
		ck_assert_mem_eq(c.y, want, sizeof want);
#endif
		call_free(&c);
	}
}
END_TEST

/* Rows of ones with an infinite scale are infinite, and not NaN: codes of columns that are not there are not multiplied by it.
 * 2440 columns end within a step and a block, 2432 within a step that is staged; 6016 in a piece that is cut. */
START_TEST(infinite_scale)
{
	static const struct shape cut[] = {{{1, 0, 0}, 2440, 1}, {{1, 0, 0}, 2432, 1}, {{1, 0, 0}, 6016, 4}};
	static const struct kind scaled[] = {
		{PLUMB_FP8_BLOCK, PLUMB_F32, 0, 0}, {PLUMB_FP8_ROW, PLUMB_F32, 0, 0}, {PLUMB_NVFP4, PLUMB_F32, 0, 0}};
	const struct shape *s = &cut[_i / 3];
	const struct kind *kind = &scaled[_i % 3];
	const bool nvfp4 = kind->format == PLUMB_NVFP4;
	struct call c;

	call_make(&c, s, kind);
	memset(c.data[0].at, nvfp4 ? 0x22 : 0x38, (size_t)(nvfp4 ? s->cols / 2 : s->cols));
	for (int64_t k = 0; k < s->cols; k++)
		c.x[k] = 1.0f;
	if (nvfp4) {
		memset(c.scale[0].at, 0x38, (size_t)((s->cols + 15) / 16));
		c.a.part[0].w.global = INFINITY;
	} else {
		((float *)(void *)c.scale[0].at)[kind->format == PLUMB_FP8_BLOCK ? (s->cols - 1) / 128 : 0] = INFINITY;
	}
	run(&c, plumb_simt_linear, 0);
	ck_assert_msg(c.y[0] == INFINITY, "%g", (double)c.y[0]);
	call_free(&c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("staged");
	TCase *tests = suite_part(suite, "staged", 60);

	tcase_add_loop_test(tests, bits, 0, (int)(sizeof shapes / sizeof shapes[0]));
	tcase_add_loop_test(tests, infinite_scale, 0, 9);
	return suite_run(suite);
}
