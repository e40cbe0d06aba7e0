/* SPDX-License-Identifier: MIT */
/* Writing an HDF5 file whole or not at all.
 *
 * Everything goes to a file PATH.unfinished-PID beside the target. plumb_h5_commit closes it, brings it to the disk and
 * renames it; plumb_h5_abort removes it. So a reader of PATH sees the old file or the new one, whatever moment the
 * program dies at. What a killed program leaves behind is told apart three times: by its name, which plumb_h5_open
 * refuses (plumb_h5_is_unfinished); by the mark of a file open for writing, which the HDF5 library refuses; and, should
 * both be lost, by checksums.
 *
 * The same calls give the same bytes on every run: no times, no identifiers, nothing of the machine. Format of HDF5 1.10
 * (metadata with checksums); values in chunks with fletcher32, so a flipped bit is found when it is read. Little endian.
 *
 * A failed call makes the writer useless (every later call fails with the first message), so a caller may go on and look
 * at the status of plumb_h5_commit alone.
 *
 * In-process use of the HDF5 library: for files this program makes itself. Files from elsewhere: golden/h5.h. Not for
 * several threads at once. */
#ifndef PLUMB_GOLDEN_H5_WRITE_H
#define PLUMB_GOLDEN_H5_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_h5_writer;
struct plumb_h5_stream;

/* Type of the values in the file and of those handed in. */
enum plumb_h5_store {
	PLUMB_H5_STORE_F32, /* float */
	PLUMB_H5_STORE_F64, /* double */
	PLUMB_H5_STORE_I32, /* int32_t */
	PLUMB_H5_STORE_I64, /* int64_t */
	PLUMB_H5_STORE_U8,  /* uint8_t: raw bytes */
};

/* How values lie in the file. */
enum plumb_h5_pack {
	PLUMB_H5_PLAIN, /* as they are */
	PLUMB_H5_PACK,  /* shuffle, gzip */
};

/* Start a file. path: the target, which need not exist; its folder must. A link is followed, what is there and no regular
 * file is refused. *out is released by plumb_h5_commit or plumb_h5_abort.
 * Errors: PLUMB_BAD_INPUT naming the path and the system's reason. */
int plumb_h5_create(const char *path, struct plumb_h5_writer **out, struct plumb_error *err);

/* A group; those above it and those above a dataset are made as needed. One that is there already is no error. */
int plumb_h5_put_group(struct plumb_h5_writer *writer, const char *name, struct plumb_error *err);

/* A dataset in one piece. name: path from the root, "fp32/layer00/input", not there yet. rank 0..PLUMB_H5_RANK (0: one
 * value), dim (rank) >= 0, values: product of dim of them, row-major; NULL when that is 0. */
int plumb_h5_put(struct plumb_h5_writer *writer, const char *name, enum plumb_h5_store type, int rank, const int64_t *dim,
	const void *values, enum plumb_h5_pack pack, struct plumb_error *err);

/* A dataset that grows along its first axis. dim (rank), rank >= 1: dim[0] is where it starts, 0, and is not looked at.
 * At most one chunk (some 256 KiB, or one row) is held in memory; the bytes of the file do not depend on how the rows of a
 * stream are cut into calls (they do on the order in which several streams fill their chunks).
 * Streams are ended by plumb_h5_commit. */
int plumb_h5_stream(struct plumb_h5_writer *writer, const char *name, enum plumb_h5_store type, int rank,
	const int64_t *dim, enum plumb_h5_pack pack, struct plumb_h5_stream **out, struct plumb_error *err);
int plumb_h5_append(struct plumb_h5_stream *stream, int64_t rows, const void *values, struct plumb_error *err);

/* The same for a dataset whose shape is known, all of dim: its rows lie along the first axis longer than 1, as
 * plumb_h5_rows counts them (a mask [1, T, T] is appended in rows of T), and all of them must come. */
int plumb_h5_pieces(struct plumb_h5_writer *writer, const char *name, enum plumb_h5_store type, int rank,
	const int64_t *dim, enum plumb_h5_pack pack, struct plumb_h5_stream **out, struct plumb_error *err);

/* End a stream before plumb_h5_commit would: its memory is released. */
int plumb_h5_end(struct plumb_h5_stream *stream, struct plumb_error *err);

/* Rows appended so far. */
int64_t plumb_h5_stream_rows(const struct plumb_h5_stream *stream);

/* Attributes of the root (object ""), of a group or of a dataset that is there. text: up to PLUMB_H5_MAX_TEXT - 1 bytes
 * (a whole config.json fits), stored with its length as UTF-8. */
int plumb_h5_put_text(
	struct plumb_h5_writer *writer, const char *object, const char *name, const char *text, struct plumb_error *err);
int plumb_h5_put_integer(
	struct plumb_h5_writer *writer, const char *object, const char *name, int64_t value, struct plumb_error *err);
int plumb_h5_put_real(
	struct plumb_h5_writer *writer, const char *object, const char *name, double value, struct plumb_error *err);

/* Finish: write what streams hold, close, fsync, rename over the target, fsync the folder. Releases the writer whether it
 * succeeds or not; after a failure (a full disk, say) nothing is left behind. */
int plumb_h5_commit(struct plumb_h5_writer *writer, struct plumb_error *err);

/* Give up: nothing is left behind. NULL is fine. */
void plumb_h5_abort(struct plumb_h5_writer *writer);

/* Remove the unfinished files of all writers of this process. For a handler of SIGINT and the like, before the process
 * ends: it only unlinks. Writers are useless afterwards. */
void plumb_h5_abandon(void);

/* Whether a path is one of an unfinished file: it ends in ".unfinished-" and digits. */
bool plumb_h5_is_unfinished(const char *path);

#ifdef __cplusplus
}
#endif
#endif
