/* SPDX-License-Identifier: MIT */
#include "tools/golden_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/golden.h"
#include "golden/layout.h"
#include "golden/mask.h"
#include "golden/seal.h"
#include "tools/progress.h"

/* Values of a row block, of each file: 2 x 8 MiB of integers at most, unless one row is longer. */
#define BLOCK_ELEMENTS ((int64_t)1 << 20)

void diff_printable(const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s", name);
	for (unsigned char *p = (unsigned char *)out; *p; p++)
		if (*p < 0x20 || *p >= 0x7f)
			*p = '?';
}

const char *diff_coordinates(const struct plumb_h5_entry *entry, int64_t index, char text[160])
{
	int64_t at[PLUMB_H5_RANK] = {0};
	size_t n = 0;

	for (int i = entry->rank - 1; i >= 0; i--) {
		at[i] = index % entry->dim[i];
		index /= entry->dim[i];
	}
	text[0] = '\0';
	for (int i = 0; i < entry->rank; i++)
		n += (size_t)snprintf(text + n, 160 - n, "%s%lld", i ? "," : "", (long long)at[i]);
	return text;
}

/* ---- the order of a forward pass ---- */

struct place {
	int run;    /* 0: no run, then fp32, bf16, any other */
	long layer; /* -1: before the layers, LONG: after them */
	int step;
};

static int source_step(const char *rest, long *layer)
{
	if (strcmp(rest, "input") == 0)
		return -1;
	for (int i = 0; i < plumb_golden_source_count; i++)
		if (strcmp(plumb_golden_sources[i].dataset, rest) == 0) {
			if (plumb_golden_sources[i].op == PLUMB_EMBED && *layer > PLUMB_MAX_LAYERS)
				*layer = -1;
			return i;
		}
	return plumb_golden_source_count + (strcmp(rest, "decode_logits") != 0) + 2 * (strcmp(rest, "greedy") != 0);
}

static struct place place_of(const char *name)
{
	struct place p = {.layer = PLUMB_MAX_LAYERS + 1};
	const char *rest = strchr(name, '/');

	if (!rest)
		return p;
	p.run = strncmp(name, "fp32/", 5) == 0 ? 1 : strncmp(name, "bf16/", 5) == 0 ? 2 : 3;
	rest++;
	if (strncmp(rest, "layer", 5) == 0 && rest[5] >= '0' && rest[5] <= '9') {
		char *end;
		long l = strtol(rest + 5, &end, 10);
		if (*end == '/' && l <= PLUMB_MAX_LAYERS) {
			p.layer = l;
			rest = end + 1;
		}
	}
	p.step = source_step(rest, &p.layer);
	return p;
}

static int by_place(const void *x, const void *y)
{
	const struct diff_item *a = x, *b = y;
	struct place p = place_of(a->name), q = place_of(b->name);

	if (p.run != q.run)
		return p.run - q.run;
	if (p.layer != q.layer)
		return p.layer < q.layer ? -1 : 1;
	return p.step != q.step ? p.step - q.step : strcmp(a->name, b->name);
}

/* ---- choices ---- */

/* What of x, ascending, is not in y. */
static size_t only(const int64_t *x, int64_t nx, const int64_t *y, int64_t ny, char *text, size_t size)
{
	size_t n = 0;
	int64_t j = 0, more = 0;

	text[0] = '\0';
	for (int64_t i = 0; i < nx; i++) {
		while (j < ny && y[j] < x[i])
			j++;
		if (j < ny && y[j] == x[i])
			continue;
		if (n + 24 < size)
			n += (size_t)snprintf(text + n, size - n, "%s%lld", n ? " " : "", (long long)x[i]);
		else
			more++;
	}
	if (more)
		snprintf(text + n, size - n, " ...");
	return strlen(text);
}

/* A row as ascending numbers of both sides; same: in order too. */
static void add_row(struct diff_rows *r, const int64_t *x, int64_t nx, const int64_t *y, int64_t ny, bool same)
{
	char in_a[64], in_b[64];
	bool equal = nx == ny && (nx == 0 || memcmp(x, y, (size_t)nx * sizeof *x) == 0);

	if (!equal && r->first < 0) {
		r->first = r->rows;
		only(x, nx, y, ny, in_a, sizeof in_a);
		only(y, ny, x, nx, in_b, sizeof in_b);
		snprintf(r->text, sizeof r->text, "row %lld: only A has %s; only B has %s", (long long)r->rows,
			in_a[0] ? in_a : "nothing", in_b[0] ? in_b : "nothing");
	}
	r->rows++;
	r->equal += equal;
	r->same += same;
}

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* Rows of ids; both are sorted in place. */
static void add_experts(struct diff_rows *r, int64_t *a, int64_t *b, int64_t rows, int64_t width)
{
	for (int64_t i = 0; i < rows; i++, a += width, b += width) {
		bool same = memcmp(a, b, (size_t)width * sizeof *a) == 0;
		qsort(a, (size_t)width, sizeof *a, ascending);
		qsort(b, (size_t)width, sizeof *b, ascending);
		add_row(r, a, width, b, width, same);
	}
}

/* Rows of a mask: which tokens are selected. room: (2, width). */
static void add_mask(struct diff_rows *r, const float *a, const float *b, int64_t rows, int64_t width, int64_t *room)
{
	for (int64_t i = 0; i < rows; i++, a += width, b += width) {
		int64_t n = 0, m = 0;
		for (int64_t j = 0; j < width; j++) {
			if (a[j] == 0.0f)
				room[n++] = j;
			if (b[j] == 0.0f)
				room[width + m++] = j;
		}
		add_row(r, room, n, room + width, m, n == m && memcmp(room, room + width, (size_t)n * sizeof *room) == 0);
	}
}

/* ---- one tensor ---- */

static bool is_floats(const struct diff_item *it)
{
	return it->kind == DIFF_FLOATS || it->kind == DIFF_MASK;
}

struct sides {
	struct plumb_h5 *file[2];
	struct plumb_sha256 sum[2];
};

/* A block of one side as it is compared; a mask of integers becomes one of floats. */
static int read_block(struct sides *s, int side, const struct diff_item *it, int64_t first, int64_t rows, int64_t width,
	void *value, int64_t *room, struct plumb_error *err)
{
	const struct plumb_h5_entry *entry = side == 0 ? it->a : it->b;
	const bool convert = it->kind == DIFF_MASK && entry->type == PLUMB_H5_INT;
	struct plumb_error why;
	void *as_stored = convert ? room : value;
	int status = plumb_h5_read_rows(s->file[side], entry, first, rows, as_stored, err);

	if (status != PLUMB_OK)
		return status;
	plumb_golden_sum_add(&s->sum[side], entry->type, as_stored, rows * width);
	if (!convert || plumb_golden_mask_floats(it->name, room, rows * width, value, &why) == PLUMB_OK)
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s", plumb_h5_path(s->file[side]), why.text);
}

/* One block of both, into the measurements and the checksums. */
static int add_block(struct sides *s, struct diff_item *it, int64_t first, int64_t rows, int64_t width, void *value[2],
	int64_t *room, struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int i = 0; i < 2 && status == PLUMB_OK; i++)
		status = read_block(s, i, it, first, rows, width, value[i], room, err);
	if (status != PLUMB_OK)
		return status;
	if (is_floats(it))
		plumb_compare_add(&it->cmp, value[0], value[1], rows * width);
	else
		plumb_compare_int_add(&it->ints, value[0], value[1], rows * width);
	if (it->kind == DIFF_EXPERTS)
		add_experts(&it->rows, value[0], value[1], rows, width);
	else if (room) /* of a mask */
		add_mask(&it->rows, value[0], value[1], rows, width, room);
	return PLUMB_OK;
}

static int compare_values(struct sides *s, struct diff_item *it, struct plumb_error *err)
{
	int64_t width, rows = plumb_h5_rows(it->a, &width);
	int64_t block = width < BLOCK_ELEMENTS ? BLOCK_ELEMENTS / width : 1;
	size_t size = is_floats(it) ? sizeof(float) : sizeof(int64_t);
	void *value[2] = {NULL, NULL};
	int64_t *room = NULL;
	int status = PLUMB_OK;

	block = block < rows ? block : rows;
	if (width > PLUMB_H5_MAX_COUNT)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: rows of %lld elements, expected at most %lld",
			plumb_h5_path(s->file[0]), it->name, (long long)width, (long long)PLUMB_H5_MAX_COUNT);
	for (int i = 0; i < 2; i++) {
		plumb_sha256_begin(&s->sum[i]);
		value[i] = malloc((size_t)(block * width) * size + 1);
	}
	room = it->kind == DIFF_MASK ? malloc((size_t)(block > 2 ? block : 2) * (size_t)width * sizeof *room + 1) : NULL;
	if (!value[0] || !value[1] || (it->kind == DIFF_MASK && !room))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for %lld rows", it->name, (long long)block);
	plumb_compare_begin(&it->cmp, it->a->count);
	plumb_compare_int_begin(&it->ints, it->a->count);
	it->rows.first = -1;
	for (int64_t r = 0; r < rows && status == PLUMB_OK; r += block)
		status = add_block(s, it, r, rows - r < block ? rows - r : block, width, value, room, err);
	if (status == PLUMB_OK)
		status = plumb_golden_sum_check(s->file[0], it->a->name, &s->sum[0], err);
	if (status == PLUMB_OK)
		status = plumb_golden_sum_check(s->file[1], it->b->name, &s->sum[1], err);
	free(value[0]);
	free(value[1]);
	free(room);
	return status;
}

/* What is asked of a float tensor. A tensor of zeros or of one value that is the same on both sides is no fault here:
 * two traces are compared, not a kernel with its golden. */
static struct plumb_tolerance demand(const struct diff_options *o, const struct diff_item *it)
{
	struct plumb_tolerance t = {.allow_zero = true, .allow_constant = true, .allow_nan = true};
	enum plumb_policy policy = strncmp(it->name, "bf16/", 5) == 0 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;

	switch (o->rule) {
	case DIFF_BITS:
		t.set = PLUMB_BOUND_BITS;
		break;
	case DIFF_ULP:
		t.set = PLUMB_BOUND_ULP;
		t.max_ulp = o->ulp;
		break;
	case DIFF_REL_L2:
		t.set = PLUMB_BOUND_REL_L2;
		t.max_rel_l2 = o->rel_l2;
		break;
	case DIFF_TOLERANCES:
		t = plumb_tolerances_find(o->tolerances, PLUMB_VIEW_PROPAGATED, policy, it->name)->tolerance;
		break;
	}
	return t;
}

static bool same_bits(const struct diff_item *it)
{
	if (is_floats(it))
		return it->cmp.equal + it->cmp.nan_both == it->cmp.count;
	return it->ints.equal == it->ints.count;
}

static void judge(const struct diff_options *o, struct diff_item *it)
{
	struct plumb_tolerance t = demand(o, it);
	bool pass;

	if (it->a->count == 0 || same_bits(it)) { /* no verdict passes on nothing: here it is the same nothing */
		it->state = DIFF_EQUAL;
		snprintf(it->verdict.text, sizeof it->verdict.text, "pass: every bit equal");
		it->verdict.pass = true;
		return;
	}
	if (it->kind == DIFF_EXPERTS || it->kind == DIFF_MASK) {
		const struct diff_rows *r = &it->rows;
		it->verdict.pass = o->rule != DIFF_BITS && r->rows >= 1 && r->equal == r->rows;
		snprintf(it->verdict.text, sizeof it->verdict.text,
			"%s: %lld rows, %lld equal, %lld in another order, %lld differ%s%s",
			it->verdict.pass ? "pass" : "FAIL", (long long)r->rows, (long long)r->same,
			(long long)(r->equal - r->same), (long long)(r->rows - r->equal), r->first >= 0 ? "; " : "",
			r->first >= 0 ? r->text : "");
		pass = it->verdict.pass;
	} else if (is_floats(it)) {
		pass = plumb_verdict(&it->cmp, &t, &it->verdict) == PLUMB_OK;
	} else {
		pass = plumb_verdict_int(&it->ints, &it->verdict) == PLUMB_OK;
	}
	it->state = pass ? DIFF_WITHIN : DIFF_BEYOND;
}

static bool same_shape(const struct plumb_h5_entry *a, const struct plumb_h5_entry *b)
{
	return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);
	return n >= m && strcmp(name + n - m, end) == 0;
}

static int compare_item(struct sides *s, const struct diff_options *o, struct diff_item *it, struct plumb_error *err)
{
	int status;

	if (!it->a || !it->b) {
		it->state = it->a ? DIFF_ONLY_A : DIFF_ONLY_B;
		snprintf(it->verdict.text, sizeof it->verdict.text, "FAIL: only %s has it", it->a ? "A" : "B");
		return PLUMB_OK;
	}
	const bool mask = plumb_golden_is_mask(it->name) && it->a->type != PLUMB_H5_OTHER && it->b->type != PLUMB_H5_OTHER;
	const bool same_type = it->a->type == it->b->type || mask; /* a mask has two spellings */
	if (!same_shape(it->a, it->b) || !same_type || it->a->type == PLUMB_H5_OTHER) {
		it->state = DIFF_SHAPE;
		it->kind = DIFF_NOTHING;
		snprintf(it->verdict.text, sizeof it->verdict.text, "FAIL: %s",
			!same_type                      ? "types differ"
			: it->a->type == PLUMB_H5_OTHER ? "neither floats nor integers"
							: "shapes differ");
		return PLUMB_OK;
	}
	it->kind = it->a->type == PLUMB_H5_FLOAT ? DIFF_FLOATS : DIFF_INTEGERS;
	if (it->kind == DIFF_INTEGERS && ends_with(it->name, "/moe/router/experts"))
		it->kind = DIFF_EXPERTS;
	if (mask)
		it->kind = DIFF_MASK;
	status = compare_values(s, it, err);
	if (status == PLUMB_OK)
		judge(o, it);
	return status;
}

/* ---- all of them ---- */

static bool wanted(const struct diff_options *o, const char *name)
{
	size_t n = o->group ? strlen(o->group) : 0;
	return !o->group || (strncmp(name, o->group, n) == 0 && name[n] == '/');
}

/* Both lists are sorted by name: a merge. */
static int make_items(
	struct plumb_h5 *a, struct plumb_h5 *b, const struct diff_options *o, struct diff *out, struct plumb_error *err)
{
	int64_t n, m, i = 0, j = 0;
	const struct plumb_h5_entry *x = plumb_h5_entries(a, &n), *y = plumb_h5_entries(b, &m);

	out->item = calloc((size_t)(n + m) + 1, sizeof *out->item);
	if (!out->item)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld datasets", (long long)(n + m));
	while (i < n || j < m) {
		int order = i == n ? 1 : j == m ? -1 : strcmp(x[i].name, y[j].name);
		const bool in_a = order <= 0, in_b = order >= 0;
		const char *name = in_a ? x[i].name : y[j].name;
		if (wanted(o, name))
			out->item[out->items++] =
				(struct diff_item){.name = name, .a = in_a ? &x[i] : NULL, .b = in_b ? &y[j] : NULL};
		i += in_a;
		j += in_b;
	}
	if (out->items == 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s and %s: no dataset%s%s in either", plumb_h5_path(a),
			plumb_h5_path(b), o->group ? " in group " : "", o->group ? o->group : "");
	qsort(out->item, (size_t)out->items, sizeof *out->item, by_place);
	return PLUMB_OK;
}

int diff_run(
	struct plumb_h5 *a, struct plumb_h5 *b, const struct diff_options *o, struct diff *out, struct plumb_error *err)
{
	struct sides sides = {.file = {a, b}};
	struct progress progress;
	int status;

	memset(out, 0, sizeof *out);
	progress_begin(&progress, o->progress, "golden diff");
	status = plumb_golden_seal_check(a, err);
	if (status == PLUMB_OK)
		status = plumb_golden_seal_check(b, err);
	if (status == PLUMB_OK)
		status = make_items(a, b, o, out, err);
	for (int64_t i = 0; i < out->items && status == PLUMB_OK; i++) {
		status = compare_item(&sides, o, &out->item[i], err);
		out->count[out->item[i].state]++;
		progress_step(&progress, i + 1, out->items, "tensor");
	}
	progress_end(&progress);
	return status;
}

void diff_free(struct diff *diff)
{
	free(diff->item);
	memset(diff, 0, sizeof *diff);
}

int diff_status(const struct diff *diff)
{
	int64_t good = diff->count[DIFF_EQUAL] + diff->count[DIFF_WITHIN];
	return good >= 1 && good == diff->items ? PLUMB_OK : PLUMB_MISMATCH;
}
