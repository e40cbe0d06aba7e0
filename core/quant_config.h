/* SPDX-License-Identifier: MIT */
/* What quantization_config of a config.json and ModelOpt's file beside it say, against what the tensors are. */
#ifndef PLUMB_CORE_QUANT_CONFIG_H
#define PLUMB_CORE_QUANT_CONFIG_H

#include <stdbool.h>

#include "core/shards.h"
#include "core/status.h"

/* Compare the quantization_config of the config.json at path, if it has one, with the tensors.
 * The tensors decide how a weight is read: released configs leave out what is quantised (the FP8 table of the nvfp4
 * repositories stands in their ignore list) and name methods in many ways. So only a contradiction is an error:
 *   quant_method fp8 with a weight_block_size other than [128, 128], or no F8_E4M3 weight
 *   quant_method modelopt with a group_size other than 16 for 4-bit weights, or 128 for blocks; quant_algo NVFP4, FP8,
 *   FP8_PB_WO or FP8_BLOCK_SCALES without a weight stored so
 *   quantized_layers (of quant_algo MIXED_PRECISION) that names a module of which a weight is stored otherwise
 * Methods, algorithms and modules that are not known here say nothing. Modules without tensors are passed over: an entry
 * may be for a part that was left out. is_skipped: names of tensors that do not count (mtp.*, model.visual.*).
 * Errors: PLUMB_BAD_INPUT, one line naming file, field, value and the tensor that it contradicts.
 * Source: model-spec 3.2 to 3.5. */
int plumb_quant_config_check(
	const char *path, const struct plumb_shards *shards, bool (*is_skipped)(const char *name), struct plumb_error *err);

/* The same for the hf_quant_config.json that ModelOpt writes beside config.json: its object "quantization" has quant_algo,
 * group_size and quantized_layers (exclude_modules decide nothing, as the ignore lists do not, and neither does
 * kv_cache_quant_algo). A path where nothing is is no error; a file that is no JSON object is. */
int plumb_quant_sidecar_check(
	const char *path, const struct plumb_shards *shards, bool (*is_skipped)(const char *name), struct plumb_error *err);

#endif
