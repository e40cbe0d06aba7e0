/* SPDX-License-Identifier: MIT */
/* Golden files, format version 1: the tensors a run of the model left behind.
 *
 * /input_ids int64 [T], and a group for each run, /fp32 and /bf16, with the datasets of the run. A dataset is named by
 * its path without a leading slash: "fp32/layer00/input". How such a file is read without trusting it: golden/h5.h. */
#ifndef PLUMB_GOLDEN_GOLDEN_H
#define PLUMB_GOLDEN_GOLDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/op.h"
#include "core/status.h"
#include "golden/h5.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_golden;

enum { PLUMB_GOLDEN_FORMAT = 1 }; /* the attribute `format`; files without it are of it too */

/* Open a golden file; *out is set on success and released by plumb_golden_close.
 * Demands /input_ids (integers, rank 1, 1 to PLUMB_H5_MAX_COUNT of them), at least one of the groups fp32 and bf16 with
 * at least one dataset that can be read, and an integer `prefill` in 0..T where there is one; a seal, where there is
 * one, must hold (golden/seal.h). input_ids may be any integers: their range is that of a vocabulary the caller knows.
 * Errors: PLUMB_BAD_INPUT, one line with the file, the dataset, its value and what was expected. */
int plumb_golden_open(const char *path, struct plumb_golden **out, struct plumb_error *err);
void plumb_golden_close(struct plumb_golden *golden);

const char *plumb_golden_path(const struct plumb_golden *golden);

/* A text attribute of the file ("producer", "model_type", "case", "layout"), or NULL. Do not print it raw. */
const char *plumb_golden_attribute(const struct plumb_golden *golden, const char *name);

/* Tokens: T and (T) ids. */
int64_t plumb_golden_tokens(const struct plumb_golden *golden);
const int64_t *plumb_golden_input_ids(const struct plumb_golden *golden);

/* The group of a policy: "fp32" or "bf16". */
const char *plumb_golden_run_name(enum plumb_policy policy);
bool plumb_golden_has_run(const struct plumb_golden *golden, enum plumb_policy policy);

/* Tokens fed before the cached decode of `decode_logits`, or -1 when the run does not say. */
int64_t plumb_golden_prefill(const struct plumb_golden *golden, enum plumb_policy policy);

/* The datasets of a run, by name in byte order (names with the run in front); count 0 when there is no such run. */
const struct plumb_h5_entry *plumb_golden_run(const struct plumb_golden *golden, enum plumb_policy policy, int64_t *count);

/* A dataset by its full name, or NULL. */
const struct plumb_h5_entry *plumb_golden_find(const struct plumb_golden *golden, const char *name);

/* Largest number of elements that a read accepts, PLUMB_H5_MAX_COUNT unless set. */
void plumb_golden_limit(struct plumb_golden *golden, int64_t max_count);

/* Which of equal scores its producer took: its attribute `ties` ("lower", "torch"); without one, transformers on the CPU
 * chooses as torch.topk does and anybody else is taken to prefer the lower index. */
enum plumb_ties plumb_golden_ties(const struct plumb_golden *golden);

/* The HDF5 file under it, for reading in pieces. */
struct plumb_h5 *plumb_golden_file(struct plumb_golden *golden);

/* Read a dataset; *out is released by plumb_golden_tensor_free. See plumb_h5_read_f32 and plumb_h5_read_i64. Refused too:
 * values that their checksum contradicts (golden/seal.h). */
int plumb_golden_read_f32(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err);
int plumb_golden_read_i64(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err);
/* A mask in either spelling (golden/mask.h), as floats. */
int plumb_golden_read_mask(
	struct plumb_golden *golden, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
