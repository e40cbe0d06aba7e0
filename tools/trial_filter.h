/* SPDX-License-Identifier: MIT */
/* What a kernel is for, where that is not everything: formats and sizes that every case of a run has. */
#ifndef PLUMB_TOOLS_TRIAL_FILTER_H
#define PLUMB_TOOLS_TRIAL_FILTER_H

#include "tools/options.h"
#include "tools/trial_spec.h"

struct trial_filter {
	struct option_list formats[TRIAL_FORMATS], sizes; /* as asked */
	unsigned among[TRIAL_FORMATS];                    /* sets of 1 << enum plumb_format; 0: any */
	int64_t size[TRIAL_LETTERS];                      /* 0: any */
};

#define TRIAL_FILTER_OPTIONS(f)                                                                                            \
	{"--format", "f32|f16|bf16|fp8_row|fp8_block|fp8_table|nvfp4", OPTION_REPEAT, &(f)->formats[TRIAL_OF_MATRICES],    \
		"weights in this format only, or in these, with commas (default: any)"},                                   \
		{"--kv-format", "f32|bf16|fp8", OPTION_REPEAT, &(f)->formats[TRIAL_OF_KV],                                 \
			"keys and values in these formats only"},                                                          \
		{"--state-format", "f32|f16|bf16", OPTION_REPEAT, &(f)->formats[TRIAL_OF_STATE],                           \
			"the GDN state in these formats only"},                                                            \
	{                                                                                                                  \
		"--size", "D=2560,T=1", OPTION_REPEAT, &(f)->sizes, "these sizes in every case, by their letters"          \
	}

/* Reads what was asked. wanted: (PLUMB_OP_COUNT) the ops in question. Errors: PLUMB_BAD_INPUT naming the option and
 * what there is: no format or size, or one that none of these ops has. */
int trial_filter_begin(struct trial_filter *f, const bool wanted[], struct plumb_error *err);
/* Into a case, as far as its op has such operands and sizes: what it has none of is no matter of them. */
void trial_filter_take(const struct trial_filter *f, struct trial_spec *spec);
/* "format nvfp4; size D=2560"; "" when nothing is asked. Returns text. */
const char *trial_filter_show(const struct trial_filter *f, char text[TRIAL_LINE]);

#endif
