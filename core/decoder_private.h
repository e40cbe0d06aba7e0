/* SPDX-License-Identifier: MIT */
/* The inside of a decoder: core/decoder.c walks through the ops, core/decoder_ops.c knows what each is handed. */
#ifndef PLUMB_CORE_DECODER_PRIVATE_H
#define PLUMB_CORE_DECODER_PRIVATE_H

#include "core/buffers.h"
#include "core/decoder.h"

struct plumb_decoder {
	const struct plumb_model *model;
	struct plumb_plan plan;
	struct plumb_decoder_options options;
	struct plumb_env env;
	struct plumb_observer observer;
	struct plumb_runner runner;
	struct plumb_state state;
	struct plumb_activations act;
	int64_t rows;   /* of logits, after a pass */
	int64_t passed; /* rows of the running pass before those that the running call has */
};

/* Where a pass is: what the call of an op depends on besides the decoder. */
struct plumb_place {
	int layer; /* L outside the layers */
	enum plumb_site site;
	int64_t T;
};

/* Runs one op with these arguments (its struct) through its binding, with the observer around it. */
int plumb_decoder_run(struct plumb_decoder *d, enum plumb_op op, const struct plumb_place *at, const void *args);

/* For each op: run it with the weights, buffers and state of that place. */
typedef int plumb_decoder_op_fn(struct plumb_decoder *d, const struct plumb_place *at);
extern plumb_decoder_op_fn *const plumb_decoder_op[PLUMB_OP_COUNT];

#endif
