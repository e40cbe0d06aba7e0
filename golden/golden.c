/* SPDX-License-Identifier: MIT */
#include "golden/golden.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "golden/mask.h"
#include "golden/seal.h"

enum { RUNS = 2 };

struct plumb_golden {
	struct plumb_h5 *file;
	struct plumb_golden_tensor input_ids; /* (T) */
	struct {
		int64_t first, count; /* of its datasets in the sorted list */
		int64_t prefill;      /* -1: not said */
	} run[RUNS];
};

const char *plumb_golden_run_name(enum plumb_policy policy)
{
	return policy == PLUMB_POLICY_BF16 ? "bf16" : "fp32";
}

/* Names are sorted, so those of a run stand together. */
static void find_run(struct plumb_golden *golden, enum plumb_policy policy)
{
	const char *run = plumb_golden_run_name(policy);
	size_t length = strlen(run);
	int64_t entries, first = 0, count = 0;
	const struct plumb_h5_entry *entry = plumb_h5_entries(golden->file, &entries);

	for (int64_t i = 0; i < entries; i++) {
		if (strncmp(entry[i].name, run, length) != 0 || entry[i].name[length] != '/')
			continue;
		if (count == 0)
			first = i;
		count++;
	}
	golden->run[policy].first = first;
	golden->run[policy].count = count;
}

static int read_prefill(struct plumb_golden *golden, enum plumb_policy policy, struct plumb_error *err)
{
	const char *run = plumb_golden_run_name(policy);
	const struct plumb_h5_attribute *prefill = plumb_h5_attribute(golden->file, run, "prefill");
	int64_t tokens = golden->input_ids.count;

	golden->run[policy].prefill = -1;
	if (!prefill)
		return PLUMB_OK;
	if (prefill->type != PLUMB_H5_INTEGER)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: attribute prefill is no integer, expected 0..%" PRId64,
			plumb_golden_path(golden), run, tokens);
	if (!(prefill->integer >= 0 && prefill->integer <= tokens))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: attribute prefill is %" PRId64 ", expected 0..%" PRId64,
			plumb_golden_path(golden), run, prefill->integer, tokens);
	golden->run[policy].prefill = prefill->integer;
	return PLUMB_OK;
}

static int read_format(struct plumb_golden *golden, struct plumb_error *err)
{
	struct plumb_golden_tensor *ids = &golden->input_ids;
	const struct plumb_h5_attribute *format = plumb_h5_attribute(golden->file, "", "format");
	int status;

	if (format && format->type == PLUMB_H5_INTEGER && format->integer != PLUMB_GOLDEN_FORMAT)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: attribute format is %" PRId64 ", expected %d",
			plumb_golden_path(golden), format->integer, PLUMB_GOLDEN_FORMAT);
	status = plumb_golden_read_i64(golden, "input_ids", ids, err);
	if (status != PLUMB_OK)
		return status;
	if (ids->rank != 1 || ids->count < 1)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: input_ids: rank %d with %" PRId64 " elements, expected rank 1 with at least 1",
			plumb_golden_path(golden), ids->rank, ids->count);
	for (int policy = 0; policy < RUNS; policy++) {
		find_run(golden, (enum plumb_policy)policy);
		status = read_prefill(golden, (enum plumb_policy)policy, err);
		if (status != PLUMB_OK)
			return status;
	}
	if (!plumb_golden_has_run(golden, PLUMB_POLICY_F32) && !plumb_golden_has_run(golden, PLUMB_POLICY_BF16))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: no group fp32 or bf16 with datasets in it, expected at least one", plumb_golden_path(golden));
	return PLUMB_OK;
}

int plumb_golden_open(const char *path, struct plumb_golden **out, struct plumb_error *err)
{
	struct plumb_golden *golden = calloc(1, sizeof *golden);
	int status;

	*out = NULL;
	if (!golden)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", path);
	status = plumb_h5_open(path, &golden->file, err);
	if (status == PLUMB_OK)
		status = plumb_golden_seal_check(golden->file, err);
	if (status == PLUMB_OK)
		status = read_format(golden, err);
	if (status == PLUMB_OK)
		*out = golden;
	else
		plumb_golden_close(golden);
	return status;
}

void plumb_golden_close(struct plumb_golden *golden)
{
	if (!golden)
		return;
	plumb_golden_tensor_free(&golden->input_ids);
	plumb_h5_close(golden->file);
	free(golden);
}

const char *plumb_golden_path(const struct plumb_golden *golden)
{
	return plumb_h5_path(golden->file);
}

const char *plumb_golden_attribute(const struct plumb_golden *golden, const char *name)
{
	const struct plumb_h5_attribute *attribute = plumb_h5_attribute(golden->file, "", name);

	return attribute && attribute->type == PLUMB_H5_TEXT ? attribute->text : NULL;
}

int64_t plumb_golden_tokens(const struct plumb_golden *golden)
{
	return golden->input_ids.count;
}

const int64_t *plumb_golden_input_ids(const struct plumb_golden *golden)
{
	return golden->input_ids.i64;
}

bool plumb_golden_has_run(const struct plumb_golden *golden, enum plumb_policy policy)
{
	return golden->run[policy].count > 0;
}

int64_t plumb_golden_prefill(const struct plumb_golden *golden, enum plumb_policy policy)
{
	return golden->run[policy].prefill;
}

const struct plumb_h5_entry *plumb_golden_run(const struct plumb_golden *golden, enum plumb_policy policy, int64_t *count)
{
	int64_t entries;

	*count = golden->run[policy].count;
	return plumb_h5_entries(golden->file, &entries) + golden->run[policy].first;
}

const struct plumb_h5_entry *plumb_golden_find(const struct plumb_golden *golden, const char *name)
{
	return plumb_h5_find(golden->file, name);
}

void plumb_golden_limit(struct plumb_golden *golden, int64_t max_count)
{
	plumb_h5_limit(golden->file, max_count);
}

/* What was read of a dataset, against its checksum. */
static int check_sum(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *t, int status, struct plumb_error *err)
{
	struct plumb_sha256 sha;

	if (status != PLUMB_OK || !plumb_golden_sum(golden->file, name))
		return status;
	plumb_sha256_begin(&sha);
	plumb_golden_sum_add(
		&sha, t->f32 ? PLUMB_H5_FLOAT : PLUMB_H5_INT, t->f32 ? (void *)t->f32 : (void *)t->i64, t->count);
	status = plumb_golden_sum_check(golden->file, name, &sha, err);
	if (status != PLUMB_OK)
		plumb_golden_tensor_free(t);
	return status;
}

int plumb_golden_read_f32(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err)
{
	return check_sum(golden, name, out, plumb_h5_read_f32(golden->file, name, out, err), err);
}

int plumb_golden_read_i64(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err)
{
	return check_sum(golden, name, out, plumb_h5_read_i64(golden->file, name, out, err), err);
}

int plumb_golden_read_mask(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err)
{
	const struct plumb_h5_entry *entry = plumb_golden_find(golden, name);
	int status;

	if (!entry || entry->type != PLUMB_H5_INT)
		return plumb_golden_read_f32(golden, name, out, err);
	status = plumb_golden_read_i64(golden, name, out, err);
	if (status != PLUMB_OK)
		return status;
	int64_t *selected = out->i64;
	out->i64 = NULL;
	out->f32 = malloc((size_t)out->count * sizeof *out->f32 + 1);
	if (out->f32) {
		struct plumb_error why;
		status = plumb_golden_mask_floats(name, selected, out->count, out->f32, &why);
		if (status != PLUMB_OK)
			status = plumb_fail(err, status, "%s: %s", plumb_h5_path(golden->file), why.text);
	} else {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for %s", plumb_h5_path(golden->file), name);
	}
	free(selected);
	if (status != PLUMB_OK)
		plumb_golden_tensor_free(out);
	return status;
}

struct plumb_h5 *plumb_golden_file(struct plumb_golden *golden)
{
	return golden->file;
}

enum plumb_ties plumb_golden_ties(const struct plumb_golden *golden)
{
	const char *ties = plumb_golden_attribute(golden, "ties"), *producer = plumb_golden_attribute(golden, "producer");

	if (ties)
		return strcmp(ties, "torch") == 0 ? PLUMB_TIES_TORCH : PLUMB_TIES_LOWER;
	return producer && strstr(producer, "transformers") && strstr(producer, "CPU") ? PLUMB_TIES_TORCH
	                                                                               : PLUMB_TIES_LOWER;
}
