/* SPDX-License-Identifier: MIT */
/* A safetensors file for a test: begin, add tensors, finish. Data lies in the file in the order it was added. */
#ifndef PLUMB_TESTS_SUPPORT_WRITE_SAFETENSORS_H
#define PLUMB_TESTS_SUPPORT_WRITE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

struct safetensors_writer;

struct safetensors_writer *safetensors_begin(const char *path);

/* data: bytes bytes, copied. name needs no escapes in JSON. dtype as in a header; the helper does not check that bytes
 * follows from dtype and shape, so that a test can write what is wrong. */
void safetensors_add(struct safetensors_writer *w, const char *name, const char *dtype, int rank, const int64_t *dims,
	const void *data, size_t bytes);

/* Write the file and release w. The data begins at a multiple of 8 bytes plus shift (0..7). */
void safetensors_finish(struct safetensors_writer *w, int shift);

#endif
