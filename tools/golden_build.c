/* SPDX-License-Identifier: MIT */
/* The golden file from a complete part: datasets by name, each in pieces, checksums, provenance, seal. Always in the
 * same order, so the same contents are the same bytes. */
#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "golden/golden.h"
#include "golden/h5_write.h"
#include "golden/seal.h"
#include "tools/golden_maker.h"

/* Bytes of a piece on its way from the part to the file, unless one row is longer. */
#define PIECE_BYTES ((int64_t)1 << 20)

/* What a mask says of tokens that are not selected: the lowest finite number of the run's format (model-spec 8.1). */
#define LOWEST_F32 (-0x1.fffffep127f)
#define LOWEST_BF16 (-0x1.fep127f)

struct builder {
	const struct golden_make *make;
	struct golden_part *part;
	struct plumb_h5_writer *writer;
	struct plumb_sha256 seal;
	char *piece;
	size_t piece_bytes;
	struct plumb_error *err;
};

static void *room(struct builder *b, size_t bytes)
{
	if (bytes > b->piece_bytes) {
		char *more = realloc(b->piece, bytes);
		if (!more) {
			plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for a row of %zu bytes", bytes);
			return NULL;
		}
		b->piece = more;
		b->piece_bytes = bytes;
	}
	return b->piece;
}

/* Marks of selected tokens, in place, to floats: from the end, since floats are wider. */
static void widen_mask(char *piece, int64_t count, enum plumb_policy policy)
{
	float not_selected = policy == PLUMB_POLICY_BF16 ? LOWEST_BF16 : LOWEST_F32;

	for (int64_t i = count - 1; i >= 0; i--) {
		float value = piece[i] ? 0.0f : not_selected;
		memcpy(piece + 4 * i, &value, sizeof value);
	}
}

static int copy_rows(struct builder *b, const struct golden_run *run, const struct golden_tensor *t, int64_t rows,
	int64_t width, struct plumb_h5_stream *stream, struct plumb_sha256 *sum)
{
	int64_t size = t->type == PLUMB_H5_FLOAT ? 4 : 8,
		step = width * size < PIECE_BYTES ? PIECE_BYTES / (width * size) : 1;
	char *piece = room(b, (size_t)((step < rows ? step : rows) * width * size));
	int status = piece ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t r = 0; r < rows && status == PLUMB_OK; r += step) {
		int64_t n = (rows - r < step ? rows - r : step) * width;
		status = golden_part_read(
			b->part, t->offset + r * width * t->value_bytes, piece, n * t->value_bytes, b->err);
		if (status != PLUMB_OK)
			break;
		if (t->value_bytes == 1)
			widen_mask(piece, n, run->policy);
		plumb_golden_sum_add(sum, t->type, piece, n);
		status = plumb_h5_append(stream, n / width, piece, b->err);
	}
	return status;
}

static int put_tensor(struct builder *b, const struct golden_run *run, const struct golden_tensor *t)
{
	struct plumb_h5_entry shape = {.type = t->type, .rank = t->rank, .count = t->count};
	struct plumb_h5_stream *stream;
	struct plumb_sha256 sum;
	int64_t width, rows;
	char name[128], hex[65];
	int status;

	memcpy(shape.dim, t->dim, sizeof shape.dim);
	rows = plumb_h5_rows(&shape, &width);
	snprintf(name, sizeof name, "%s/%s", plumb_golden_run_name(run->policy), t->name);
	plumb_sha256_begin(&sum);
	status = plumb_h5_pieces(b->writer, name, t->type == PLUMB_H5_FLOAT ? PLUMB_H5_STORE_F32 : PLUMB_H5_STORE_I64,
		t->rank, t->dim, PLUMB_H5_PACK, &stream, b->err);
	if (status == PLUMB_OK)
		status = copy_rows(b, run, t, rows, width, stream, &sum);
	if (status == PLUMB_OK)
		status = plumb_h5_end(stream, b->err);
	plumb_sha256_end(&sum, hex);
	if (status == PLUMB_OK)
		status = plumb_h5_put_text(b->writer, name, "sha256", hex, b->err);
	plumb_golden_seal_dataset(&b->seal, name, t->type, t->rank, t->dim, hex);
	return status;
}

static int put_ids(struct builder *b)
{
	const struct golden_plan *plan = b->make->plan;
	int64_t *wide = malloc((size_t)plan->T * sizeof *wide);
	struct plumb_sha256 sum;
	char hex[65];
	int status;

	if (!wide)
		return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)plan->T);
	for (int64_t i = 0; i < plan->T; i++)
		wide[i] = plan->token[i];
	plumb_sha256_begin(&sum);
	plumb_golden_sum_add(&sum, PLUMB_H5_INT, wide, plan->T);
	plumb_sha256_end(&sum, hex);
	status = plumb_h5_put(b->writer, "input_ids", PLUMB_H5_STORE_I64, 1, &plan->T, wide, PLUMB_H5_PACK, b->err);
	if (status == PLUMB_OK)
		status = plumb_h5_put_text(b->writer, "input_ids", "sha256", hex, b->err);
	plumb_golden_seal_dataset(&b->seal, "input_ids", PLUMB_H5_INT, 1, &plan->T, hex);
	free(wide);
	return status;
}

static int put_attributes(struct builder *b)
{
	const struct golden_plan *plan = b->make->plan;
	int status = PLUMB_OK;

	for (int i = 0; i < plan->runs && status == PLUMB_OK; i++)
		status = plumb_h5_put_group(b->writer, plumb_golden_run_name(plan->run[i].policy), b->err);
	for (int i = 0; i < plumb_golden_sealed_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_sealed *s = &plumb_golden_sealed[i];
		const char *text;
		int64_t integer;
		if (!golden_plan_attribute(plan, s, &text, &integer))
			continue;
		if (text) {
			status = plumb_h5_put_text(b->writer, s->object, s->name, text, b->err);
			plumb_golden_seal_text(&b->seal, s->object, s->name, text);
		} else {
			status = plumb_h5_put_integer(b->writer, s->object, s->name, integer, b->err);
			plumb_golden_seal_integer(&b->seal, s->object, s->name, integer);
		}
	}
	return status;
}

/* Left by makes of this file that were killed while they wrote it: only one make at a time has the part. */
static void sweep(const char *out)
{
	char folder[PATH_MAX], base[PATH_MAX], *path = NULL;
	const struct dirent *e;
	DIR *d;

	snprintf(folder, sizeof folder, "%s", out);
	snprintf(base, sizeof base, "%s", out);
	const char *dir = dirname(folder), *name = basename(base);
	d = opendir(dir);
	while (d && (e = readdir(d)))
		if (strncmp(e->d_name, name, strlen(name)) == 0 && e->d_name[strlen(name)] == '.' &&
			strncmp(e->d_name + strlen(name), ".unfinished-", 12) == 0 && plumb_h5_is_unfinished(e->d_name) &&
			asprintf(&path, "%s/%s", dir, e->d_name) >= 0) {
			unlink(path);
			free(path);
		}
	if (d)
		closedir(d);
}

/* Runs by name: the seal lists datasets in byte order, "bf16/..." before "fp32/..." before "input_ids". */
static int put_all(struct builder *b)
{
	static const enum plumb_policy order[] = {PLUMB_POLICY_BF16, PLUMB_POLICY_F32};
	const struct golden_plan *plan = b->make->plan;
	int status = put_attributes(b);

	for (int k = 0; k < 2; k++)
		for (int i = 0; i < plan->runs && status == PLUMB_OK; i++)
			for (int j = 0; j < plan->run[i].tensors && plan->run[i].policy == order[k] && status == PLUMB_OK;
				j++)
				status = put_tensor(b, &plan->run[i], &plan->run[i].tensor[j]);
	if (status == PLUMB_OK)
		status = put_ids(b);
	return status;
}

int golden_build(const struct golden_make *make, struct golden_part *part, char sha256[65], struct plumb_error *err)
{
	struct builder b = {.make = make, .part = part, .err = err};
	int status;

	sweep(make->out);
	status = plumb_h5_create(make->out, &b.writer, err);
	if (status != PLUMB_OK)
		return status;
	plumb_sha256_begin(&b.seal);
	status = put_all(&b);
	plumb_sha256_end(&b.seal, sha256);
	if (status == PLUMB_OK)
		status = plumb_h5_put_text(b.writer, "", "sha256", sha256, err);
	if (status == PLUMB_OK)
		status = plumb_h5_commit(b.writer, err);
	else
		plumb_h5_abort(b.writer);
	free(b.piece);
	return status;
}
