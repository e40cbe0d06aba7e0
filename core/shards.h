/* SPDX-License-Identifier: MIT */
/* The safetensors files of a folder as one table of tensors. */
#ifndef PLUMB_CORE_SHARDS_H
#define PLUMB_CORE_SHARDS_H

#include <stddef.h>

#include "core/safetensors.h"
#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_shards {
	char *dir;
	struct plumb_safetensors **file; /* (files), by name */
	size_t files;
	const struct plumb_tensor **tensor; /* (tensors), by name */
	size_t tensors;
};

/* Open every shard of a folder.
 * With model.safetensors.index.json: the files its weight_map names. Without: every *.safetensors in the folder but
 * hidden ones. The headers decide what is there; an index that names a file or a tensor that is not there, or puts a
 * tensor into another file, is an error. A tensor the index leaves out is found all the same, and metadata.total_size
 * is not looked at: writers disagree on what it counts.
 * File names in an index are names in the folder: no directory, no "..", a .safetensors ending. Links are followed (the
 * cache of the Hugging Face hub is made of them); what they lead to must be a regular file.
 * *out is set on success and released by plumb_shards_close.
 * Errors: PLUMB_BAD_INPUT, one line naming the file and what is wrong with it. */
int plumb_shards_open(const char *dir, struct plumb_shards **out, struct plumb_error *err);
void plumb_shards_close(struct plumb_shards *shards);

/* Tensor of that name, or NULL. *place (may be NULL): its place in the table. */
const struct plumb_tensor *plumb_shards_find(const struct plumb_shards *shards, const char *name, size_t *place);

#ifdef __cplusplus
}
#endif
#endif
