/* SPDX-License-Identifier: MIT */
/* A checkpoint folder as transformers writes it, mapped into memory. */
#ifndef PLUMB_CORE_CHECKPOINT_H
#define PLUMB_CORE_CHECKPOINT_H

#include "core/model.h"
#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A model read from a checkpoint folder: config.json and one or many safetensors files, mapped, not read.
 * dir: the folder; *out is set on success and released by plumb_checkpoint_close.
 * Accepts: with or without model.safetensors.index.json (the headers decide; an index that contradicts them is an
 * error), prefixes model. and model.language_model., experts fused or one by one, PLE shards in numeric order or one
 * table, BF16, F16 and F32; any matrix but stacked experts also FP8 (a scale a 128 x 128 block, a row or the matrix) or
 * ModelOpt NVFP4 and the table FP8, as the dtype of each tensor says (core/bind.h: which scales it needs, what is checked
 * of them, and the LIMIT that codes are not). quantization_config and hf_quant_config.json are compared with the tensors
 * and decide nothing (core/quant_config.h). mtp.* and model.visual.* tensors are skipped by name; any other unknown tensor
 * is an error.
 * The PLE hash constants are computed from the config and compared with the stored I64 tensors when they are there.
 * Errors: PLUMB_BAD_INPUT, one line naming file, tensor, field, value and what was expected.
 * Source: model-spec 1.1, 3; the safetensors format. */
struct plumb_checkpoint;
int plumb_checkpoint_open(const char *dir, struct plumb_checkpoint **out, struct plumb_error *err);
const struct plumb_model *plumb_checkpoint_model(const struct plumb_checkpoint *checkpoint);
/* What its config.json leaves out, with the values taken: "norm_topk_prob true, seed 1234", or "". */
const char *plumb_checkpoint_defaults(const struct plumb_checkpoint *checkpoint);
void plumb_checkpoint_close(struct plumb_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
