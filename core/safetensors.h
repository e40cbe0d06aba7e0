/* SPDX-License-Identifier: MIT */
/* One safetensors file, mapped into memory: what is in it and where, checked before anybody looks. */
#ifndef PLUMB_CORE_SAFETENSORS_H
#define PLUMB_CORE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLUMB_TENSOR_RANK = 8 };

/* Every dtype of the format, so that a tensor nobody wants to read is no error. */
enum plumb_dtype {
	PLUMB_DTYPE_BOOL,
	PLUMB_DTYPE_F4,
	PLUMB_DTYPE_F6_E2M3,
	PLUMB_DTYPE_F6_E3M2,
	PLUMB_DTYPE_U8,
	PLUMB_DTYPE_I8,
	PLUMB_DTYPE_F8_E5M2,
	PLUMB_DTYPE_F8_E4M3,
	PLUMB_DTYPE_F8_E8M0,
	PLUMB_DTYPE_F8_E4M3FNUZ,
	PLUMB_DTYPE_F8_E5M2FNUZ,
	PLUMB_DTYPE_I16,
	PLUMB_DTYPE_U16,
	PLUMB_DTYPE_F16,
	PLUMB_DTYPE_BF16,
	PLUMB_DTYPE_I32,
	PLUMB_DTYPE_U32,
	PLUMB_DTYPE_F32,
	PLUMB_DTYPE_C64,
	PLUMB_DTYPE_F64,
	PLUMB_DTYPE_I64,
	PLUMB_DTYPE_U64,
	PLUMB_DTYPE_COUNT,
};

struct plumb_tensor {
	const char *name; /* valid UTF-8, otherwise as the file has it */
	const char *file; /* path of the file, for messages */
	enum plumb_dtype dtype;
	int rank;
	int64_t dim[PLUMB_TENSOR_RANK];
	const unsigned char *data; /* any alignment */
	size_t bytes;
};

struct plumb_safetensors {
	char *path;
	struct plumb_tensor *tensor; /* (tensors), in the order of their data */
	size_t tensors;
	/* of the implementation */
	char *names;
	void *map;
	size_t map_bytes;
};

/* Name as in a header, e.g. "BF16". */
const char *plumb_dtype_name(enum plumb_dtype dtype);

/* Shape of a tensor for messages, e.g. "[16, 64]". Returns text. */
const char *plumb_tensor_shape(const struct plumb_tensor *t, char text[192]);

/* Map a file.
 * Accepted is what the format's own reader accepts: a header of at most 100 000 000 bytes, __metadata__ ignored, known
 * dtypes, rank <= 8, sizes that match shape and dtype, data that is covered once and in full. Holes between tensors and
 * bytes after the last one are refused as there: the format forbids them so that a file cannot be two things at once,
 * and a shortened or overlong file shows.
 * The mapping is private and read-only. LIMIT: a file that is shortened while it is mapped kills the reader (SIGBUS),
 * as with every program that maps it; copying 360 GB is no alternative. *out is set on success and released by
 * plumb_safetensors_close. Errors: PLUMB_BAD_INPUT, one line naming file, tensor, field, value and what was expected.
 * Source: the safetensors format description and its validate(). */
int plumb_safetensors_open(const char *path, struct plumb_safetensors **out, struct plumb_error *err);
void plumb_safetensors_close(struct plumb_safetensors *file);

#ifdef __cplusplus
}
#endif
#endif
