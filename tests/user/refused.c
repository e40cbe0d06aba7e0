/* SPDX-License-Identifier: MIT */
/* Libraries that must be refused: REFUSED says how. */
#include <stdlib.h>

#include "core/plumb_kernel.h"

static int run(const struct plumb_kernel_call *call)
{
	return plumb_say(call, "never called");
}

PLUMB_KERNEL_SYMBOL const struct plumb_kernel_library *plumb_kernels(uint32_t abi);
PLUMB_KERNEL_SYMBOL const struct plumb_kernel_library *plumb_kernels(uint32_t abi)
{
	static struct plumb_kernel kernels[2];
	static struct plumb_kernel_library library;
	static void *room[64]; /* two entries of a later kind */
	const char *how = getenv("REFUSED");

	if (!how)
		how = "";
	kernels[0] = kernels[1] = (struct plumb_kernel){.ops = "attn_gate", .run = run};
	library = (struct plumb_kernel_library){
		.size = sizeof library,
		.abi = abi,
		.kernel_size = sizeof kernels[0],
		.kernels = 1,
		.kernel = kernels,
	};
	if (strcmp(how, "null") == 0)
		return NULL;
	if (strcmp(how, "abi") == 0)
		library.abi = abi + 1;
	if (strcmp(how, "empty") == 0)
		library.kernels = 0;
	if (strcmp(how, "small") == 0)
		library.kernel_size = 4;
	if (strcmp(how, "old") == 0) { /* members that came later are not there: what stands behind must not be read */
		library.kernel_size = offsetof(struct plumb_kernel, where);
		kernels[0].where = 77;
		kernels[0].workspace = (size_t(*)(const struct plumb_kernel_call *))(uintptr_t)16;
	}
	if (strcmp(how, "new") == 0) { /* the second entry is farther away than we know */
		memcpy((char *)room + sizeof room / 2, &kernels[0], sizeof kernels[0]);
		memcpy(room, &kernels[0], sizeof kernels[0]);
		((struct plumb_kernel *)room)->ops = "hc_inject";
		library.kernel_size = sizeof room / 2;
		library.kernels = 2;
		library.kernel = (const struct plumb_kernel *)room;
	}
	if (strcmp(how, "unknown") == 0)
		kernels[0].ops = "attn_gates";
	if (strcmp(how, "twice") == 0)
		library.kernels = 2;
	if (strcmp(how, "strangers") == 0)
		kernels[0].ops = "gdn_conv+gdn_out_proj";
	if (strcmp(how, "both_sites") == 0)
		kernels[0].ops = "hc_up_mix+moe_router";
	if (strcmp(how, "all_layers_between") == 0)
		kernels[0].ops = "embed+hc_norm_down";
	if (strcmp(how, "no_run") == 0)
		kernels[0].run = NULL;
	if (strcmp(how, "where") == 0)
		kernels[0].where = 7;
	if (strcmp(how, "cuda") == 0)
		kernels[0].where = PLUMB_KERNEL_CUDA;
	if (strcmp(how, "crash") == 0)
		abort();
	return &library;
}
