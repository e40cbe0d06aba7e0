/* SPDX-License-Identifier: MIT */
/* The staged kernel of the projections (kernels/staged.h), at shapes of few rows that the ops would cut into more pieces: its
 * bits are those of the kernel that takes anything, which a vector at an odd address gets, for every schedule; its race check
 * has nothing to say; and what copies cannot reach is left to the others. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/linear.h"
#include "kernels/simt/simt.h"
#include "tests/support/suite.h"

enum { MOST_ROWS = 120, SEEDS = 3 };

/* Rows of three parts, columns, pieces: blocks of 56 rows with 10 steps, of 10 rows with 6; the second of each length has a
 * last step, or a last piece, that is cut off. */
static const struct shape {
	int64_t rows[3], cols;
	int pieces;
} shapes[] = {
	{{57, 0, 0}, 2560, 1}, {{3, 52, 4}, 2432, 1}, {{1, 0, 0}, 2560, 1}, {{11, 0, 0}, 6144, 4}, {{1, 7, 12}, 5248, 4},
	{{9, 0, 0}, 6016, 4}, {{5, 0, 0}, 2440, 1}, /* not whole copies */
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

/* Everything of a call, data and scales `late` bytes behind a 16-byte boundary. */
struct call {
	struct plumb_linear a;
	struct piece data[3], scale[3], vector;
	float *x, y[MOST_ROWS];
};

static void call_make(struct call *c, const struct shape *s, size_t late_data, size_t late_scale)
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
		const size_t data = (size_t)(s->rows[p] * s->cols / 2),
			     scale = (size_t)(s->rows[p] * ((s->cols + 15) / 16));

		c->data[p] = take(data + late_data);
		c->scale[p] = take(scale + late_scale);
		for (size_t i = 0; i < data; i++)
			c->data[p].at[late_data + i] = (unsigned char)draw();
		for (size_t i = 0; i < scale; i++)
			c->scale[p].at[late_scale + i] = (unsigned char)(draw() % 0x7f);
		c->a.part[p].w = (struct plumb_matrix){.data = c->data[p].at + late_data,
			.scale = c->scale[p].at + late_scale,
			.global = 0x1.234568p-3f * (float)(p + 1),
			.format = PLUMB_NVFP4};
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
static void run_any(const struct call *c, const struct shape *s, float *y)
{
	struct call any;

	call_make(&any, s, 0, 0);
	memmove(any.x + 1, any.x, sizeof(float) * (size_t)s->cols);
	any.a.x = any.x + 1;
	any.a.bf16 = c->a.bf16;
	run(&any, plumb_simt_linear, 0);
	memcpy(y, any.y, sizeof any.y);
	call_free(&any);
}

START_TEST(bits)
{
	static const size_t late[][2] = {{0, 0}, {4, 0}, {0, 4}, {8, 8}};
	const struct shape *s = &shapes[_i];
	float want[MOST_ROWS];

	for (size_t l = 0; l < sizeof late / sizeof late[0]; l++) {
		struct call c;

		call_make(&c, s, late[l][0], late[l][1]);
		c.a.bf16 = (int)(l & 1);
		run_any(&c, s, want);
		for (uint64_t seed = 0; seed < SEEDS; seed++) {
			run(&c, plumb_simt_linear, seed);
			ck_assert_msg(memcmp(c.y, want, sizeof want) == 0, "shape %d, late by %zu, %zu: other bits", _i,
				late[l][0], late[l][1]);
		}
#ifdef PLUMB_RACE
		run(&c, plumb_race_linear, 1);
		ck_assert_mem_eq(c.y, want, sizeof want);
#endif
		call_free(&c);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("staged");
	TCase *tests = suite_part(suite, "staged", 60);

	tcase_add_loop_test(tests, bits, 0, (int)(sizeof shapes / sizeof shapes[0]));
	return suite_run(suite);
}
