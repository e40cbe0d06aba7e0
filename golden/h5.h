/* SPDX-License-Identifier: MIT */
/* Reading an HDF5 file that nobody vouches for.
 *
 * The HDF5 library follows what a file says: it opens other files, loads plugins, allocates what is claimed, and 1.10
 * has a history of crashes and endless loops on damaged files. So the library never touches the file in this process: a
 * child process opens it, gives up the right to open anything else, checks every object, and sends numbers through a
 * socket. What the child sends is checked again here. A child that crashes, hangs or asks for too much memory is a
 * refused file, with one line saying so. It also keeps the library's process-wide settings (error printing, plugins)
 * out of this process.
 *
 * Accepted: groups and hard links; datasets of rank 0 to 8 of float16, bfloat16, float32, float64 and of signed and
 * unsigned integers up to 64 bits, either byte order, stored in the file (compact, contiguous or chunked, the latter
 * through shuffle, gzip, fletcher32), every element written. Datasets of other types (strings, compounds, enumerations,
 * references) may be there and cannot be read.
 * Refused when the file is opened: soft, external and user-defined links, external and virtual storage, other filters,
 * a group inside itself, a dataset that claims more than its stored bytes can hold, truncation.
 *
 * Needs fork(). LIMIT: opening copies the page tables of this process, so open golden files before the memory is
 * filled and before threads hold locks that malloc needs (glibc handles its own). */
#ifndef PLUMB_GOLDEN_H5_H
#define PLUMB_GOLDEN_H5_H

#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	PLUMB_H5_RANK = 8,
	PLUMB_H5_MAX_DEPTH = 32,           /* groups in groups; golden files have 5 */
	PLUMB_H5_MAX_ENTRIES = 1 << 16,    /* datasets and groups; golden files have some 50 a layer and run */
	PLUMB_H5_MAX_ATTRIBUTES = 1 << 14, /* a checksum a dataset: some 50 a layer and run */
	PLUMB_H5_MAX_NAME = 1 << 10,       /* bytes of a path inside the file */
	PLUMB_H5_MAX_TEXT = 1 << 16,       /* bytes of a string attribute; a whole config.json fits */
};

/* Elements of one dataset unless plumb_h5_limit says otherwise: 4 GiB of binary32, logits of 4096 tokens. */
#define PLUMB_H5_MAX_COUNT ((int64_t)1 << 30)

enum plumb_h5_type {
	PLUMB_H5_FLOAT,
	PLUMB_H5_INT,
	PLUMB_H5_OTHER, /* listed, not readable */
};

struct plumb_h5_entry {
	const char *name; /* path from the root, without a leading slash: "fp32/layer00/input" */
	enum plumb_h5_type type;
	int rank;
	int64_t dim[PLUMB_H5_RANK]; /* 0 beyond rank */
	int64_t count;              /* product of dim; 1 for rank 0 */
};

enum plumb_h5_value {
	PLUMB_H5_TEXT,
	PLUMB_H5_INTEGER,
	PLUMB_H5_REAL,
};

/* A scalar attribute of the root (object ""), a group or a dataset. Attributes of other kinds are not listed. */
struct plumb_h5_attribute {
	const char *object;
	const char *name;
	enum plumb_h5_value type;
	const char *text; /* PLUMB_H5_TEXT; file content: do not print it raw */
	int64_t integer;  /* PLUMB_H5_INTEGER */
	double real;      /* PLUMB_H5_REAL */
};

/* An array read from a file; exactly one of the pointers is set. Released by plumb_golden_tensor_free. */
struct plumb_golden_tensor {
	int rank;
	int64_t dim[PLUMB_H5_RANK];
	int64_t count;
	float *f32;
	int64_t *i64;
	uint8_t *u8;
};
void plumb_golden_tensor_free(struct plumb_golden_tensor *tensor);

struct plumb_h5;

/* Open, check every object, list. Errors: PLUMB_BAD_INPUT, one line with the path, the object, what it has and what was
 * expected. */
int plumb_h5_open(const char *path, struct plumb_h5 **out, struct plumb_error *err);
void plumb_h5_close(struct plumb_h5 *file);

const char *plumb_h5_path(const struct plumb_h5 *file);

/* All datasets, by name in byte order. */
const struct plumb_h5_entry *plumb_h5_entries(const struct plumb_h5 *file, int64_t *count);
const struct plumb_h5_entry *plumb_h5_find(const struct plumb_h5 *file, const char *name); /* or NULL */

/* An attribute, or NULL. object: "" for the root. */
const struct plumb_h5_attribute *plumb_h5_attribute(const struct plumb_h5 *file, const char *object, const char *name);

/* Largest number of elements that a read may ask for; who knows the config sets it to what that needs. */
void plumb_h5_limit(struct plumb_h5 *file, int64_t max_count);

/* Read a dataset.
 * f32: of floats. float16, bfloat16 widen exactly; float64 is rounded to nearest even, beyond the range to Inf.
 * i64: of integers of any width and sign; unsigned values beyond 2^63-1 give 2^63-1.
 * u8: of unsigned integers of 8 bits only: raw bytes, one byte of memory each.
 * Errors: no such dataset, another type, more elements than the limit, a file that cannot be decoded. */
int plumb_h5_read_f32(struct plumb_h5 *file, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err);
int plumb_h5_read_i64(struct plumb_h5 *file, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err);
int plumb_h5_read_u8(struct plumb_h5 *file, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err);

/* The axis along which the rows of a dataset of rank >= 1 lie: the first that is longer than 1, else the last. */
static inline int plumb_h5_row_axis(int rank, const int64_t *dim)
{
	int axis = 0;
	while (axis < rank - 1 && dim[axis] == 1)
		axis++;
	return axis;
}

/* A long dataset in pieces. How many rows it has (a mask [1, T, T] has T, a cache [H, T, D] has H); *width receives the
 * elements of one. 0 rows: no elements. */
int64_t plumb_h5_rows(const struct plumb_h5_entry *entry, int64_t *width);

/* Rows first .. first + count - 1 of a dataset, read as plumb_h5_read_f32 and plumb_h5_read_i64 do. values: (count, width)
 * f32 of a dataset of floats, i64 of one of integers. Errors: as there, and rows that the dataset does not have. */
int plumb_h5_read_rows(struct plumb_h5 *file, const struct plumb_h5_entry *entry, int64_t first, int64_t count,
	void *values, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
