/* SPDX-License-Identifier: MIT */
#include "golden/h5_write.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "golden/h5.h"

#define UNFINISHED ".unfinished-"

/* Bytes of a chunk where a row is smaller: a few seeks for a large tensor, little memory for a stream. */
#define CHUNK_BYTES ((int64_t)256 << 10)

/* gzip: beyond 4 it takes twice the time for some 1 % of float data. */
enum { GZIP_LEVEL = 4, MAX_WRITERS = 16 };

struct plumb_h5_stream {
	struct plumb_h5_writer *writer;
	struct plumb_h5_stream *next;
	char *name;
	hid_t dataset, memory;
	int rank;
	int axis; /* along which its rows lie */
	bool grows;
	int64_t most;               /* rows that it ends with, when it does not grow */
	hsize_t dim[PLUMB_H5_RANK]; /* of one chunk; dim[axis]: rows of it */
	int64_t row_bytes, rows;    /* rows: appended so far */
	int64_t held;               /* of these, in the buffer */
	char *buffer;               /* (dim[0], row) */
};

struct plumb_h5_writer {
	hid_t file;
	char *path, *unfinished;
	int slot; /* in abandoned[] */
	struct plumb_h5_stream *stream;
	struct plumb_error failed; /* first failure; empty text: none */
};

/* Unfinished paths of this process, for a signal handler: a slot is filled before the file is made, and emptied after it
 * is gone. */
static const char *volatile unfinished_path[MAX_WRITERS];

/* Report a failure and remember it. */
static int fail(struct plumb_h5_writer *w, struct plumb_error *err, const char *what, const char *why)
{
	if (!w->failed.text[0])
		plumb_fail(&w->failed, PLUMB_BAD_INPUT, "%s: cannot write%s%s: %s", w->path, what[0] ? " " : "", what, why);
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s", w->failed.text);
}

static int failed_before(const struct plumb_h5_writer *w, struct plumb_error *err)
{
	return w->failed.text[0] ? plumb_fail(err, PLUMB_BAD_INPUT, "%s", w->failed.text) : PLUMB_OK;
}

/* The innermost line of the library's error stack; of a failed system call only the system's reason. */
static herr_t innermost(unsigned n, const H5E_error2_t *error, void *context)
{
	static const char reason[] = "error message = '";
	const char *at = error->desc ? strstr(error->desc, reason) : NULL;

	if (n == 0 && at)
		snprintf(context, 256, "%.*s", (int)strcspn(at + strlen(reason), "'"), at + strlen(reason));
	else if (n == 0 && error->desc)
		snprintf(context, 256, "%s", error->desc);
	return 0;
}

static int fail_hdf5(struct plumb_h5_writer *w, struct plumb_error *err, const char *what)
{
	char text[256] = "the HDF5 library refuses";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, text);
	return fail(w, err, what, text);
}

/* After a failed write: let everything that the library still wants to write go to memory that is thrown away. An object
 * that cannot be written out as it is closed would stay open, and bring the process down at its end. */
static void write_nowhere(struct plumb_h5_writer *w)
{
	int *fd = NULL, nowhere = memfd_create("plumb", MFD_CLOEXEC);

	if (nowhere < 0)
		return;
	if (H5Fget_vfd_handle(w->file, H5P_DEFAULT, (void **)&fd) >= 0 && fd && *fd >= 0)
		dup3(nowhere, *fd, O_CLOEXEC);
	close(nowhere);
}

/* Close a dataset. Written out first, so that closing it cannot fail. */
static int close_dataset(struct plumb_h5_writer *w, hid_t dataset, const char *name, struct plumb_error *err)
{
	if (H5Dflush(dataset) < 0) {
		fail_hdf5(w, err, name);
		write_nowhere(w);
	}
	H5Dclose(dataset);
	return failed_before(w, err);
}

bool plumb_h5_is_unfinished(const char *path)
{
	const char *at = strrchr(path, '.');
	size_t length = strlen(UNFINISHED);

	return at && strncmp(at, UNFINISHED, length) == 0 && at[length] &&
	       strspn(at + length, "0123456789") == strlen(at + length);
}

void plumb_h5_abandon(void)
{
	for (int i = 0; i < MAX_WRITERS; i++)
		if (unfinished_path[i])
			unlink(unfinished_path[i]);
}

/* Where a path leads: through links; the same path when nothing is there yet. */
static int resolve(const char *path, char target[PATH_MAX], struct plumb_error *err)
{
	struct stat st;

	if (plumb_h5_is_unfinished(path))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: a name for unfinished files, expected another", path);
	if (!realpath(path, target)) {
		if (errno != ENOENT || lstat(path, &st) == 0) /* a link to nothing */
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: %s", path, strerror(errno));
		if ((size_t)snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: %s", path, strerror(ENAMETOOLONG));
		return PLUMB_OK;
	}
	if (stat(target, &st) < 0 || !S_ISREG(st.st_mode))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: not a regular file", path);
	if (access(target, W_OK) != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: %s", path, strerror(errno));
	return PLUMB_OK;
}

/* Files, groups and datasets alike: no times. */
static hid_t object_plist(hid_t class)
{
	hid_t plist = H5Pcreate(class);

	if (plist >= 0)
		H5Pset_obj_track_times(plist, false);
	return plist;
}

static hid_t create_file(const char *unfinished)
{
	hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = object_plist(H5P_FILE_CREATE), file = -1;

	if (fapl >= 0 && fcpl >= 0 && H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0) {
#if H5_VERSION_GE(1, 10, 7)
		H5Pset_file_locking(fapl, 0, 1); /* network mounts refuse locks; the name is ours alone */
#endif
		file = H5Fcreate(unfinished, H5F_ACC_TRUNC, fcpl, fapl);
	}
	H5Pclose(fapl);
	H5Pclose(fcpl);
	return file;
}

static void release(struct plumb_h5_writer *w)
{
	if (w->slot >= 0)
		unfinished_path[w->slot] = NULL;
	free(w->unfinished);
	free(w->path);
	free(w);
}

int plumb_h5_create(const char *path, struct plumb_h5_writer **out, struct plumb_error *err)
{
	char target[PATH_MAX];
	struct plumb_h5_writer *w;
	int status = resolve(path, target, err), fd;

	*out = NULL;
	if (status != PLUMB_OK)
		return status;
	w = calloc(1, sizeof *w);
	if (!w)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", path);
	w->file = -1;
	w->slot = -1;
	w->path = strdup(target);
	if (!w->path || asprintf(&w->unfinished, "%s" UNFINISHED "%ld", target, (long)getpid()) < 0) {
		w->unfinished = NULL;
		release(w);
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", path);
	}
	for (int i = 0; i < MAX_WRITERS && w->slot < 0; i++)
		if (!unfinished_path[i])
			w->slot = i;
	for (int i = 0; i < MAX_WRITERS; i++) /* the name would be the same */
		if (unfinished_path[i] && strcmp(unfinished_path[i], w->unfinished) == 0) {
			w->slot = -1;
			release(w);
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: being written already", path);
		}
	if (w->slot < 0) {
		release(w);
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: cannot write: %d files being written already", path, MAX_WRITERS);
	}
	unfinished_path[w->slot] = w->unfinished;
	/* the system's reason, which the library would hide; a left-over of a former process with our number is replaced */
	unlink(w->unfinished);
	fd = open(w->unfinished, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: %s", path, strerror(errno));
		release(w);
		return status;
	}
	close(fd);
	H5dont_atexit(); /* a file that could not be closed would be closed, and fail, again at exit */
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	w->file = create_file(w->unfinished);
	if (w->file < 0) {
		status = fail_hdf5(w, err, "");
		plumb_h5_abort(w);
		return status;
	}
	*out = w;
	return PLUMB_OK;
}

/* Whether a name leads through clean parts, so that what is written can be read again by golden/h5.h. */
static bool name_is_clean(const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length >= PLUMB_H5_MAX_NAME || name[0] == '/' || name[length - 1] == '/')
		return false;
	for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
		size_t n = strcspn(part, "/");
		if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
			return false;
	}
	return true;
}

/* Groups above a name, without times (those that the library would make by itself have them). whole: the last part, the
 * name's own, becomes a group too. */
static int make_groups(struct plumb_h5_writer *w, const char *name, bool whole, struct plumb_error *err)
{
	char part[PLUMB_H5_MAX_NAME];

	for (const char *end = strchr(name, '/'); end || whole; end = end ? strchr(end + 1, '/') : NULL) {
		hid_t plist, group;
		size_t n = end ? (size_t)(end - name) : strlen(name);

		memcpy(part, name, n);
		part[n] = '\0';
		if (H5Lexists(w->file, part, H5P_DEFAULT) <= 0) {
			plist = object_plist(H5P_GROUP_CREATE);
			group = H5Gcreate2(w->file, part, H5P_DEFAULT, plist, H5P_DEFAULT);
			H5Pclose(plist);
			if (group < 0)
				return fail_hdf5(w, err, part);
			H5Gclose(group);
		}
		if (!end)
			break;
	}
	return PLUMB_OK;
}

int plumb_h5_put_group(struct plumb_h5_writer *w, const char *name, struct plumb_error *err)
{
	int status = failed_before(w, err);

	if (status != PLUMB_OK)
		return status;
	return name_is_clean(name) ? make_groups(w, name, true, err) : fail(w, err, name, "no name of a group");
}

static hid_t file_type(enum plumb_h5_store type)
{
	switch (type) {
	case PLUMB_H5_STORE_F32:
		return H5T_IEEE_F32LE;
	case PLUMB_H5_STORE_F64:
		return H5T_IEEE_F64LE;
	case PLUMB_H5_STORE_I32:
		return H5T_STD_I32LE;
	case PLUMB_H5_STORE_I64:
		return H5T_STD_I64LE;
	case PLUMB_H5_STORE_U8:
		return H5T_STD_U8LE;
	}
	return -1;
}

static hid_t memory_type(enum plumb_h5_store type)
{
	switch (type) {
	case PLUMB_H5_STORE_F32:
		return H5T_NATIVE_FLOAT;
	case PLUMB_H5_STORE_F64:
		return H5T_NATIVE_DOUBLE;
	case PLUMB_H5_STORE_I32:
		return H5T_NATIVE_INT32;
	case PLUMB_H5_STORE_I64:
		return H5T_NATIVE_INT64;
	case PLUMB_H5_STORE_U8:
		return H5T_NATIVE_UINT8;
	}
	return -1;
}

/* Cut a dataset into chunks along the first axis where that gives one of the wanted size; further axes when one row is
 * too large for a chunk (4 GiB less one byte is the format's end). */
static void chunk_dims(int rank, const hsize_t *dim, int64_t value_bytes, hsize_t *chunk)
{
	int64_t inner = value_bytes;

	for (int i = rank - 1; i >= 0; i--) {
		int64_t most = i == 0 ? CHUNK_BYTES / inner : INT32_MAX / inner;
		chunk[i] = dim[i] < 1 ? 1 : dim[i];
		if ((int64_t)chunk[i] > most)
			chunk[i] = most < 1 ? 1 : (hsize_t)most;
		inner *= (int64_t)chunk[i];
	}
}

static hid_t create_dataset(struct plumb_h5_writer *w, const char *name, enum plumb_h5_store type, int rank,
	const hsize_t *dim, bool grows, const hsize_t *chunk, enum plumb_h5_pack pack, struct plumb_error *err)
{
	hsize_t most[PLUMB_H5_RANK];
	hid_t plist, space, dataset;

	if (make_groups(w, name, false, err) != PLUMB_OK)
		return -1;
	memcpy(most, dim, (size_t)rank * sizeof *most);
	if (grows)
		most[0] = H5S_UNLIMITED;
	space = rank > 0 ? H5Screate_simple(rank, dim, most) : H5Screate(H5S_SCALAR);
	plist = object_plist(H5P_DATASET_CREATE);
	if (chunk) {
		H5Pset_chunk(plist, rank, chunk);
		if (pack == PLUMB_H5_PACK) {
			if (H5Tget_size(file_type(type)) > 1)
				H5Pset_shuffle(plist);
			H5Pset_deflate(plist, GZIP_LEVEL);
		}
		H5Pset_fletcher32(plist);
	}
	dataset = H5Dcreate2(w->file, name, file_type(type), space, H5P_DEFAULT, plist, H5P_DEFAULT);
	H5Sclose(space);
	H5Pclose(plist);
	if (dataset < 0)
		fail_hdf5(w, err, name);
	return dataset;
}

/* What every dataset's call must satisfy. *count: product of dim from the axis `first` on. */
static int check_call(struct plumb_h5_writer *w, const char *name, enum plumb_h5_store type, int least_rank, int rank,
	const int64_t *dim, int first, int64_t *count, struct plumb_error *err)
{
	int status = failed_before(w, err);
	char why[96];

	if (status != PLUMB_OK)
		return status;
	if (!name_is_clean(name))
		return fail(w, err, name, "no name of a dataset");
	if (rank < least_rank || rank > PLUMB_H5_RANK) {
		snprintf(why, sizeof why, "rank %d, expected %d..%d", rank, least_rank, PLUMB_H5_RANK);
		return fail(w, err, name, why);
	}
	if (file_type(type) < 0)
		return fail(w, err, name, "no such type of values");
	*count = 1;
	for (int i = first; i < rank; i++) {
		if (dim[i] < 0 || __builtin_mul_overflow(*count, dim[i], count) || *count > INT64_MAX / 8) {
			snprintf(why, sizeof why, "size %" PRId64 " of axis %d, expected 0 or more, 2^60 values in all",
				dim[i], i);
			return fail(w, err, name, why);
		}
	}
	return PLUMB_OK;
}

int plumb_h5_put(struct plumb_h5_writer *w, const char *name, enum plumb_h5_store type, int rank, const int64_t *dim,
	const void *values, enum plumb_h5_pack pack, struct plumb_error *err)
{
	hsize_t size[PLUMB_H5_RANK] = {0}, chunk[PLUMB_H5_RANK];
	int64_t count;
	int status = check_call(w, name, type, 0, rank, dim, 0, &count, err);
	hid_t dataset;

	if (status != PLUMB_OK)
		return status;
	for (int i = 0; i < rank; i++)
		size[i] = (hsize_t)dim[i];
	if (rank > 0 && count > 0)
		chunk_dims(rank, size, (int64_t)H5Tget_size(file_type(type)), chunk);
	dataset = create_dataset(w, name, type, rank, size, false, rank > 0 && count > 0 ? chunk : NULL, pack, err);
	if (dataset < 0)
		return PLUMB_BAD_INPUT;
	if (count > 0 && H5Dwrite(dataset, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
		fail_hdf5(w, err, name);
	return close_dataset(w, dataset, name, err);
}

static void stream_free(struct plumb_h5_stream *s)
{
	free(s->buffer);
	free(s->name);
	free(s);
}

/* A stream whose rows lie along axis; size: of the dataset, row: elements of one. */
static int open_stream(struct plumb_h5_writer *w, const char *name, enum plumb_h5_store type, int rank, const hsize_t *size,
	struct plumb_h5_stream like, int64_t row, enum plumb_h5_pack pack, struct plumb_h5_stream **out,
	struct plumb_error *err)
{
	struct plumb_h5_stream *s;
	int64_t value_bytes = (int64_t)H5Tget_size(file_type(type)), rows;

	*out = NULL;
	if (row < 1)
		return fail(w, err, name, "rows of no values, expected at least one value");
	s = calloc(1, sizeof *s);
	if (!s || row > INT32_MAX / value_bytes) {
		free(s);
		return fail(w, err, name, s ? "rows of 2 GiB or more" : "out of memory");
	}
	*s = like;
	s->writer = w;
	s->rank = rank;
	s->memory = memory_type(type);
	s->row_bytes = row * value_bytes;
	rows = s->row_bytes < CHUNK_BYTES ? CHUNK_BYTES / s->row_bytes : 1;
	memcpy(s->dim, size, sizeof s->dim);
	s->dim[s->axis] = (hsize_t)(s->grows || rows < s->most ? rows : s->most);
	s->name = strdup(name);
	s->buffer = malloc((size_t)s->row_bytes * s->dim[s->axis]);
	s->dataset = s->name && s->buffer ? create_dataset(w, name, type, rank, size, s->grows, s->dim, pack, err) : -1;
	if (s->dataset < 0) {
		stream_free(s);
		return w->failed.text[0] ? failed_before(w, err) : fail(w, err, name, "out of memory");
	}
	s->next = w->stream;
	w->stream = s;
	*out = s;
	return PLUMB_OK;
}

int plumb_h5_stream(struct plumb_h5_writer *w, const char *name, enum plumb_h5_store type, int rank, const int64_t *dim,
	enum plumb_h5_pack pack, struct plumb_h5_stream **out, struct plumb_error *err)
{
	hsize_t size[PLUMB_H5_RANK] = {0};
	int64_t row;
	int status = check_call(w, name, type, 1, rank, dim, 1, &row, err);

	*out = NULL;
	if (status != PLUMB_OK)
		return status;
	for (int i = 1; i < rank; i++)
		size[i] = (hsize_t)dim[i];
	return open_stream(w, name, type, rank, size, (struct plumb_h5_stream){.grows = true}, row, pack, out, err);
}

int plumb_h5_pieces(struct plumb_h5_writer *w, const char *name, enum plumb_h5_store type, int rank, const int64_t *dim,
	enum plumb_h5_pack pack, struct plumb_h5_stream **out, struct plumb_error *err)
{
	hsize_t size[PLUMB_H5_RANK] = {0};
	struct plumb_h5_stream like = {.grows = false};
	int64_t count = 0;
	int status = check_call(w, name, type, 1, rank, dim, 0, &count, err);

	*out = NULL;
	if (status != PLUMB_OK)
		return status;
	for (int i = 0; i < rank; i++)
		size[i] = (hsize_t)dim[i];
	like.axis = plumb_h5_row_axis(rank, dim);
	like.most = dim[like.axis];
	return open_stream(w, name, type, rank, size, like, count > 0 ? count / like.most : 0, pack, out, err);
}

/* Bring the held rows to the file. */
static int flush_rows(struct plumb_h5_stream *s, struct plumb_error *err)
{
	hsize_t start[PLUMB_H5_RANK] = {0}, size[PLUMB_H5_RANK];
	hid_t space = -1, memory = -1;
	int status = PLUMB_OK;

	if (s->held == 0)
		return PLUMB_OK;
	memcpy(size, s->dim, sizeof size);
	size[s->axis] = (hsize_t)s->rows;
	start[s->axis] = (hsize_t)(s->rows - s->held);
	if (s->grows && H5Dset_extent(s->dataset, size) < 0)
		return fail_hdf5(s->writer, err, s->name);
	size[s->axis] = (hsize_t)s->held;
	space = H5Dget_space(s->dataset);
	memory = H5Screate_simple(s->rank, size, NULL);
	if (space < 0 || memory < 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) < 0 ||
		H5Dwrite(s->dataset, s->memory, memory, space, H5P_DEFAULT, s->buffer) < 0)
		status = fail_hdf5(s->writer, err, s->name);
	H5Sclose(space);
	H5Sclose(memory);
	s->held = 0;
	return status;
}

int plumb_h5_append(struct plumb_h5_stream *s, int64_t rows, const void *values, struct plumb_error *err)
{
	const char *from = values;
	int status = failed_before(s->writer, err);

	if (status == PLUMB_OK && !s->grows && rows > s->most - s->rows)
		status = fail(s->writer, err, s->name, "more rows than its shape has");
	while (status == PLUMB_OK && rows > 0) {
		int64_t room = (int64_t)s->dim[s->axis] - s->held, n = rows < room ? rows : room;

		memcpy(s->buffer + s->held * s->row_bytes, from, (size_t)(n * s->row_bytes));
		from += n * s->row_bytes;
		rows -= n;
		s->held += n;
		s->rows += n;
		if (s->held == (int64_t)s->dim[s->axis])
			status = flush_rows(s, err);
	}
	return status;
}

int64_t plumb_h5_stream_rows(const struct plumb_h5_stream *s)
{
	return s->rows;
}

static int put_attribute(struct plumb_h5_writer *w, const char *object, const char *name, hid_t type, hid_t memory,
	const void *value, struct plumb_error *err)
{
	int status = failed_before(w, err);
	hid_t at = -1, space = -1, attribute = -1;

	if (status != PLUMB_OK)
		return status;
	at = H5Oopen(w->file, object[0] ? object : "/", H5P_DEFAULT);
	space = H5Screate(H5S_SCALAR);
	if (at >= 0 && space >= 0)
		attribute = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	if (attribute < 0 || H5Awrite(attribute, memory, value) < 0)
		status = fail_hdf5(w, err, name);
	if (attribute >= 0)
		H5Aclose(attribute);
	if (space >= 0)
		H5Sclose(space);
	if (at >= 0)
		H5Oclose(at);
	return status;
}

int plumb_h5_put_text(
	struct plumb_h5_writer *w, const char *object, const char *name, const char *text, struct plumb_error *err)
{
	size_t length = strlen(text);
	hid_t type;
	int status;

	if (length >= PLUMB_H5_MAX_TEXT)
		return fail(w, err, name, "a text of 64 KiB or more");
	type = H5Tcopy(H5T_C_S1);
	H5Tset_size(type, length + 1);
	H5Tset_cset(type, H5T_CSET_UTF8);
	status = put_attribute(w, object, name, type, type, text, err);
	H5Tclose(type);
	return status;
}

int plumb_h5_put_integer(
	struct plumb_h5_writer *w, const char *object, const char *name, int64_t value, struct plumb_error *err)
{
	return put_attribute(w, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, err);
}

int plumb_h5_put_real(
	struct plumb_h5_writer *w, const char *object, const char *name, double value, struct plumb_error *err)
{
	return put_attribute(w, object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value, err);
}

/* Close the first stream of the list. */
static int end_first(struct plumb_h5_writer *w, struct plumb_error *err)
{
	struct plumb_h5_stream *s = w->stream;
	int status = failed_before(w, err);

	if (status == PLUMB_OK)
		status = flush_rows(s, err);
	if (status == PLUMB_OK && !s->grows && s->rows != s->most)
		fail(w, err, s->name, "fewer rows than its shape has");
	status = close_dataset(w, s->dataset, s->name, err);
	w->stream = s->next;
	stream_free(s);
	return status;
}

int plumb_h5_end(struct plumb_h5_stream *stream, struct plumb_error *err)
{
	struct plumb_h5_writer *w = stream->writer;
	struct plumb_h5_stream **link = &w->stream;

	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	stream->next = w->stream;
	w->stream = stream;
	return end_first(w, err);
}

/* Close whatever is open, in a failed writer too. */
static int close_file(struct plumb_h5_writer *w, struct plumb_error *err)
{
	int status = failed_before(w, err);

	while (w->stream)
		status = end_first(w, err);
	if (w->file >= 0 && H5Fflush(w->file, H5F_SCOPE_GLOBAL) < 0) {
		status = fail_hdf5(w, err, "");
		write_nowhere(w);
	}
	if (w->file >= 0 && H5Fclose(w->file) < 0 && status == PLUMB_OK)
		status = fail_hdf5(w, err, "");
	w->file = -1;
	return status;
}

static int sync_path(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC), status;

	if (fd < 0)
		return -1;
	status = fsync(fd);
	close(fd);
	return status;
}

int plumb_h5_commit(struct plumb_h5_writer *w, struct plumb_error *err)
{
	int status = close_file(w, err);
	char *folder;

	if (status == PLUMB_OK && sync_path(w->unfinished, O_RDONLY) < 0)
		status = fail(w, err, "", strerror(errno));
	if (status == PLUMB_OK && rename(w->unfinished, w->path) < 0)
		status = fail(w, err, "", strerror(errno));
	if (status == PLUMB_OK) {
		folder = strdup(w->path);
		if (folder) /* best effort: not every file system can, and the file itself is safe */
			sync_path(dirname(folder), O_RDONLY | O_DIRECTORY);
		free(folder);
	} else {
		unlink(w->unfinished);
	}
	release(w);
	return status;
}

void plumb_h5_abort(struct plumb_h5_writer *w)
{
	if (!w)
		return;
	if (!w->failed.text[0])
		plumb_fail(&w->failed, PLUMB_BAD_INPUT, "%s: given up", w->path);
	close_file(w, NULL);
	unlink(w->unfinished);
	release(w);
}
