/* SPDX-License-Identifier: MIT */
/* Synthetic models: a preset's config with weights from a generator (core/synthetic_value.h), made when a call is about
 * to read them. The model itself is address space; docs/synthetic.md has formulas, scales, presets and sizes. */
#ifndef PLUMB_CORE_SYNTHETIC_H
#define PLUMB_CORE_SYNTHETIC_H

#include "core/decoder.h"
#include "core/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The presets, in order of size: name and one line, NULL from `index` = their number on. config.json of each in the
 * spelling of the released one. */
const char *plumb_preset_name(int index);
const char *plumb_preset_brief(int index);
const char *plumb_preset_json(int index);

/* Config of a preset. Errors: PLUMB_BAD_INPUT, listing the presets. */
int plumb_preset_config(const char *name, struct plumb_config *out, struct plumb_error *err);

struct plumb_synthetic_options {
	const struct plumb_profile *profile; /* what is held in which format; NULL, or a group kept as it is: bf16 */
	uint64_t seed;                       /* of the weights */
	int64_t memory; /* bytes of weights on the host, about; 0: 14 GiB. Experts beyond it go, the longest unused first;
	                   everything else stays once made, and so does what the running call reads */
};

/* How much was made so far. */
struct plumb_synthetic_usage {
	int64_t reserved; /* bytes of address space */
	int64_t resident; /* of them made and not dropped, in whole pages; rows of tables are not counted */
	int64_t peak;     /* most of that at a time */
	int64_t made;     /* bytes written so far */
	int64_t dropped;  /* matrices of experts */
};

/* A model of a preset (or of any config). Released by plumb_synthetic_close, after every decoder of it.
 * Errors: PLUMB_BAD_INPUT: an unknown preset, an n-gram table in a format that has scales of its own, no memory. */
struct plumb_synthetic;
int plumb_synthetic_open(const char *preset, const struct plumb_synthetic_options *options, struct plumb_synthetic **out,
	struct plumb_error *err);
int plumb_synthetic_create(const struct plumb_config *cfg, const struct plumb_synthetic_options *options,
	struct plumb_synthetic **out, struct plumb_error *err);
void plumb_synthetic_close(struct plumb_synthetic *synthetic);

const struct plumb_model *plumb_synthetic_model(const struct plumb_synthetic *synthetic);
struct plumb_synthetic_usage plumb_synthetic_usage(const struct plumb_synthetic *synthetic);

/* The scaling of a role, by the name of its tensor (without prefix and ".weight"): values of about this rms around the
 * centre. cols: of the matrix. */
void plumb_synthetic_scaling(const char *name, int64_t cols, double *rms, double *centre);

/* Fill the state of a decoder as if `position` tokens had been, and go on from there. seed: the model's.
 * Keys, values, index keys, windows and the recurrent state come from the generator, keyed "state.layers.L.PART", every
 * value a bf16 value; ids of the n-gram history too ("state.tokens"). LIMIT: block keys are values of their own, not made
 * from the raw index keys; ops read either, never both of one block.
 * Errors: PLUMB_BAD_INPUT for a position outside 0..capacity, or memory. */
int plumb_synthetic_context(struct plumb_decoder *decoder, int64_t position, uint64_t seed, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
