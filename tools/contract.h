/* SPDX-License-Identifier: MIT */
/* The contracts of the ops, as core/ops/ has them, inside the program: the headers are embedded when it is built. */
#ifndef PLUMB_TOOLS_CONTRACT_H
#define PLUMB_TOOLS_CONTRACT_H

#include <stddef.h>

#include "core/op.h"

extern const char contract_attention[], contract_embed[], contract_gdn[], contract_hc[], contract_lm_head[], contract_moe[],
	contract_ple[], contract_qsa[];
extern const size_t contract_attention_size, contract_embed_size, contract_gdn_size, contract_hc_size,
	contract_lm_head_size, contract_moe_size, contract_ple_size, contract_qsa_size;

/* The comment above the argument struct of an op, lines "Computes ..." to "Source ...", without the marks of a comment,
 * NUL-terminated; free() it. NULL: out of memory, or the header has no such struct (a defect, found by
 * tests/test_template.sh). */
char *contract_text(enum plumb_op op);

#endif
