/* SPDX-License-Identifier: MIT */
/* The side of golden/h5.h that faces the program: starts the child, checks what it sends, keeps the lists. */
#include "golden/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "golden/h5_child.h"
#include "golden/h5_write.h"

/* A child that says nothing for this long hangs, in the file system most likely: its processor time has a closer limit
 * (golden/h5_child.c). Reading adds a second for each 16 MiB. */
#define PATIENCE_MS 60000
#define PATIENCE_BYTES_PER_MS (16 * 1024 * 1024 / 1000)

struct plumb_h5 {
	char *path;
	pid_t pid; /* of the child; 0: none */
	int fd;    /* our end of the socket; -1: none */
	struct plumb_h5_entry *entry;
	uint32_t *position; /* (entries) place of entry i in the child's list */
	int64_t entries, entry_room;
	struct plumb_h5_attribute *attribute;
	int64_t attributes, attribute_room;
	int64_t max_count;
	int64_t patience_ms;
};

void plumb_golden_tensor_free(struct plumb_golden_tensor *tensor)
{
	if (!tensor)
		return;
	free(tensor->f32);
	free(tensor->i64);
	free(tensor->u8);
	memset(tensor, 0, sizeof *tensor);
}

static void stop_child(struct plumb_h5 *file)
{
	if (file->fd >= 0)
		close(file->fd);
	if (file->pid > 0) {
		kill(file->pid, SIGKILL); /* it holds nothing but what it read */
		while (waitpid(file->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	file->fd = -1;
	file->pid = 0;
}

/* The socket ended although the child owes an answer: say how it ended. */
static int fail_dead(struct plumb_h5 *file, struct plumb_error *err)
{
	int status = 0;
	pid_t ended;

	do
		ended = waitpid(file->pid, &status, 0);
	while (ended < 0 && errno == EINTR);
	if (ended == file->pid)
		file->pid = 0;
	stop_child(file);
	if (ended > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: damaged: the HDF5 library comes to no end with it, expected a readable HDF5 file", file->path);
	if (ended > 0 && WIFSIGNALED(status))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: damaged: the HDF5 library crashed on it (signal %d), expected a readable HDF5 file",
			file->path, WTERMSIG(status));
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"%s: damaged: the HDF5 library gave up on it (exit status %d), expected a readable HDF5 file", file->path,
		ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Receive exactly size bytes before the child's patience runs out. */
static int receive(struct plumb_h5 *file, void *data, size_t size, struct plumb_error *err)
{
	char *at = data;

	while (size > 0) {
		struct pollfd ready = {.fd = file->fd, .events = POLLIN};
		int64_t deadline = now_ms() + file->patience_ms, left = file->patience_ms;
		ssize_t n;
		int polled;

		do {
			polled = poll(&ready, 1, (int)(left > INT32_MAX ? INT32_MAX : left));
			left = deadline - now_ms();
		} while (polled < 0 && errno == EINTR && left > 0);
		if (polled <= 0) {
			stop_child(file);
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: damaged: the HDF5 library does not come back from it within %" PRId64
				" s, expected a readable HDF5 file",
				file->path, file->patience_ms / 1000);
		}
		n = recv(file->fd, at, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail_dead(file, err);
		at += n;
		size -= (size_t)n;
	}
	return PLUMB_OK;
}

/* Receive a message into body (PLUMB_H5_MAX_MESSAGE + 1 bytes, terminated). A FAILED message becomes our error. */
static int receive_message(struct plumb_h5 *file, struct plumb_h5_header *header, char *body, struct plumb_error *err)
{
	int status = receive(file, header, sizeof *header, err);

	if (status != PLUMB_OK)
		return status;
	if (header->size > PLUMB_H5_MAX_MESSAGE || header->kind > PLUMB_H5_FAILED) {
		stop_child(file);
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: damaged: the reader of it answers nonsense", file->path);
	}
	status = receive(file, body, header->size, err);
	if (status != PLUMB_OK)
		return status;
	body[header->size] = '\0';
	if (header->kind == PLUMB_H5_FAILED)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s", file->path, body);
	return PLUMB_OK;
}

/* Room for one more element of an array; doubles. */
static bool grow(void **array, int64_t used, int64_t *room, size_t size)
{
	if (used == *room) {
		int64_t more = *room > 0 ? 2 * *room : 64;
		void *moved = realloc(*array, (size_t)more * size);
		if (!moved)
			return false;
		*array = moved;
		*room = more;
	}
	return true;
}

static int no_memory(const struct plumb_h5 *file, struct plumb_error *err)
{
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for its list of datasets", file->path);
}

static int add_entry(struct plumb_h5 *file, const char *body, size_t size, struct plumb_error *err)
{
	struct plumb_h5_entry_message message;
	struct plumb_h5_entry entry = {.count = 1};
	bool sane = size > sizeof message && file->entries < PLUMB_H5_MAX_ENTRIES;

	if (sane) {
		memcpy(&message, body, sizeof message);
		sane = message.rank >= 0 && message.rank <= PLUMB_H5_RANK && message.type >= PLUMB_H5_FLOAT &&
		       message.type <= PLUMB_H5_OTHER;
	}
	if (sane) {
		entry.type = (enum plumb_h5_type)message.type;
		entry.rank = message.rank;
		for (int i = 0; i < entry.rank; i++) {
			entry.dim[i] = message.dim[i];
			sane = sane && entry.dim[i] >= 0 &&
			       !__builtin_mul_overflow(entry.count, entry.dim[i], &entry.count);
		}
	}
	if (!sane)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: damaged: the reader of it answers nonsense", file->path);
	if (!grow((void **)&file->entry, file->entries, &file->entry_room, sizeof *file->entry))
		return no_memory(file, err);
	entry.name = strdup(body + sizeof message);
	if (!entry.name)
		return no_memory(file, err);
	file->entry[file->entries++] = entry;
	return PLUMB_OK;
}

static int add_attribute(struct plumb_h5 *file, const char *body, size_t size, struct plumb_error *err)
{
	struct plumb_h5_attribute_message message;
	struct plumb_h5_attribute attribute;
	const char *object, *name, *text;

	if (size >= sizeof message)
		memcpy(&message, body, sizeof message);
	if (size < sizeof message || message.object_size > size || message.name_size > size || message.text_size > size ||
		sizeof message + message.object_size + message.name_size + message.text_size != size ||
		message.type < PLUMB_H5_TEXT || message.type > PLUMB_H5_REAL || file->attributes >= PLUMB_H5_MAX_ATTRIBUTES)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: damaged: the reader of it answers nonsense", file->path);
	if (!grow((void **)&file->attribute, file->attributes, &file->attribute_room, sizeof *file->attribute))
		return no_memory(file, err);
	object = strndup(body + sizeof message, message.object_size);
	name = strndup(body + sizeof message + message.object_size, message.name_size);
	text = strndup(body + sizeof message + message.object_size + message.name_size, message.text_size);
	attribute = (struct plumb_h5_attribute){
		.object = object,
		.name = name,
		.type = (enum plumb_h5_value)message.type,
		.text = text,
		.integer = message.integer,
		.real = message.real,
	};
	file->attribute[file->attributes++] = attribute; /* from here on close frees the three */
	return object && name && text ? PLUMB_OK : no_memory(file, err);
}

static int receive_list(struct plumb_h5 *file, struct plumb_error *err)
{
	struct plumb_h5_header header = {0};
	char *body = malloc(PLUMB_H5_MAX_MESSAGE + 1);
	int status = body ? PLUMB_OK : no_memory(file, err);

	while (status == PLUMB_OK) {
		status = receive_message(file, &header, body, err);
		if (status != PLUMB_OK || header.kind == PLUMB_H5_READY)
			break;
		if (header.kind == PLUMB_H5_ENTRY)
			status = add_entry(file, body, header.size, err);
		else if (header.kind == PLUMB_H5_ATTRIBUTE)
			status = add_attribute(file, body, header.size, err);
	}
	free(body);
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct plumb_h5_entry *)a)->name, ((const struct plumb_h5_entry *)b)->name);
}

static int by_object(const void *a, const void *b)
{
	const struct plumb_h5_attribute *x = a, *y = b;
	int order = strcmp(x->object, y->object);

	return order != 0 ? order : strcmp(x->name, y->name);
}

/* Sort the attributes and the entries, and remember where the child has each entry. */
static int sort_lists(struct plumb_h5 *file, struct plumb_error *err)
{
	const char **order = malloc(((size_t)file->entries + 1) * sizeof *order);
	int status = PLUMB_OK;

	file->position = malloc(((size_t)file->entries + 1) * sizeof *file->position);
	if (!order || !file->position) {
		status = no_memory(file, err);
		goto out;
	}
	for (int64_t i = 0; i < file->entries; i++)
		order[i] = file->entry[i].name;
	if (file->attributes > 0)
		qsort(file->attribute, (size_t)file->attributes, sizeof *file->attribute, by_object);
	if (file->entries > 0)
		qsort(file->entry, (size_t)file->entries, sizeof *file->entry, by_name);
	for (int64_t i = 1; i < file->entries; i++) {
		if (strcmp(file->entry[i - 1].name, file->entry[i].name) == 0) {
			status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: there twice, expected once", file->path,
				file->entry[i].name);
			goto out;
		}
	}
	for (int64_t i = 0; i < file->entries; i++)
		file->position[plumb_h5_find(file, order[i]) - file->entry] = (uint32_t)i;
out:
	free(order);
	return status;
}

/* Start the child. Between fork and plumb_h5_serve it only makes system calls. */
static int start_child(struct plumb_h5 *file, struct plumb_error *err)
{
	int end[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no socket for the reader: %s", file->path, strerror(errno));
	pid = fork();
	if (pid < 0) {
		int reason = errno;
		close(end[0]);
		close(end[1]);
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no process for the reader: %s", file->path, strerror(reason));
	}
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		/* Keep nothing of the caller's: a pipe held here would never end for whoever reads it. */
		if (dup2(end[1], 3) < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
			_exit(1);
#ifndef PLUMB_H5_CHILD_STDERR /* to see the report of a sanitizer */
		dup2(null, 2);
#endif
		closefrom(4);
		plumb_h5_serve(file->path, 3);
	}
	close(end[1]);
	file->pid = pid;
	file->fd = end[0];
	return PLUMB_OK;
}

/* What can be said of a file without the library. */
static int look(const char *path, struct plumb_error *err)
{
	static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
	unsigned char start[8] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
	struct stat st;
	int status = PLUMB_OK;
	ssize_t n;

	if (fd < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s", path, strerror(errno));
	if (plumb_h5_is_unfinished(path)) {
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: left unfinished by a program that was stopped, expected a whole file", path);
		goto out;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: not a regular file, expected an HDF5 file", path);
		goto out;
	}
	do
		n = read(fd, start, sizeof start);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof start || memcmp(start, signature, sizeof signature) != 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: starts with %02x %02x %02x %02x (%" PRId64 " bytes), expected an HDF5 file (89 48 44 46)",
			path, start[0], start[1], start[2], start[3], (int64_t)st.st_size);
out:
	close(fd);
	return status;
}

int plumb_h5_open(const char *path, struct plumb_h5 **out, struct plumb_error *err)
{
	struct plumb_h5 *file = NULL;
	int status = look(path, err);

	*out = NULL;
	if (status != PLUMB_OK)
		return status;
	file = calloc(1, sizeof *file);
	if (!file)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", path);
	file->fd = -1;
	file->max_count = PLUMB_H5_MAX_COUNT;
	file->patience_ms = PATIENCE_MS;
	file->path = strdup(path);
	if (!file->path) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", path);
		goto out;
	}
	status = start_child(file, err);
	if (status == PLUMB_OK)
		status = receive_list(file, err);
	if (status == PLUMB_OK)
		status = sort_lists(file, err);
	if (status == PLUMB_OK) {
		*out = file;
		file = NULL;
	}
out:
	plumb_h5_close(file);
	return status;
}

void plumb_h5_close(struct plumb_h5 *file)
{
	if (!file)
		return;
	stop_child(file);
	for (int64_t i = 0; i < file->entries; i++)
		free((void *)file->entry[i].name);
	for (int64_t i = 0; i < file->attributes; i++) {
		free((void *)file->attribute[i].object);
		free((void *)file->attribute[i].name);
		free((void *)file->attribute[i].text);
	}
	free(file->entry);
	free(file->position);
	free(file->attribute);
	free(file->path);
	free(file);
}

const char *plumb_h5_path(const struct plumb_h5 *file)
{
	return file->path;
}

const struct plumb_h5_entry *plumb_h5_entries(const struct plumb_h5 *file, int64_t *count)
{
	*count = file->entries;
	return file->entry;
}

const struct plumb_h5_entry *plumb_h5_find(const struct plumb_h5 *file, const char *name)
{
	struct plumb_h5_entry key = {.name = name};

	if (file->entries == 0)
		return NULL;
	return bsearch(&key, file->entry, (size_t)file->entries, sizeof *file->entry, by_name);
}

const struct plumb_h5_attribute *plumb_h5_attribute(const struct plumb_h5 *file, const char *object, const char *name)
{
	struct plumb_h5_attribute key = {.object = object, .name = name};

	if (file->attributes == 0)
		return NULL;
	return bsearch(&key, file->attribute, (size_t)file->attributes, sizeof *file->attribute, by_object);
}

void plumb_h5_limit(struct plumb_h5 *file, int64_t max_count)
{
	file->max_count = max_count;
}

static const char *type_name(enum plumb_h5_type type)
{
	return type == PLUMB_H5_FLOAT ? "floats" : type == PLUMB_H5_INT ? "integers" : "neither floats nor integers";
}

static size_t value_size(enum plumb_h5_want want)
{
	return want == PLUMB_H5_AS_U8 ? 1 : want == PLUMB_H5_AS_F32 ? sizeof(float) : sizeof(int64_t);
}

/* Ask the child for rows of an entry, `elements` values in all; rows -1: all of it. */
static int request_values(struct plumb_h5 *file, const struct plumb_h5_entry *entry, enum plumb_h5_want want, int64_t first,
	int64_t rows, int64_t elements, void *values, struct plumb_error *err)
{
	struct plumb_h5_request request = {
		.entry = file->position[entry - file->entry],
		.want = (int32_t)want,
		.first = first,
		.count = rows,
	};
	struct plumb_h5_header header;
	size_t bytes = (size_t)elements * value_size(want);
	char *body = malloc(PLUMB_H5_MAX_MESSAGE + 1);
	int status;

	if (!body)
		return no_memory(file, err);
	file->patience_ms = PATIENCE_MS + (int64_t)(bytes / PATIENCE_BYTES_PER_MS);
	if (send(file->fd, &request, sizeof request, MSG_NOSIGNAL) != (ssize_t)sizeof request) {
		status = fail_dead(file, err);
		goto out;
	}
	status = receive_message(file, &header, body, err);
	if (status == PLUMB_OK && header.kind != PLUMB_H5_DATA) {
		stop_child(file);
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: damaged: the reader of it answers nonsense", file->path);
	}
	if (status == PLUMB_OK)
		status = receive(file, values, bytes, err);
out:
	free(body);
	return status;
}

/* Whether so many values of an entry can be asked for. */
static int admit(struct plumb_h5 *file, const struct plumb_h5_entry *entry, int64_t elements, struct plumb_error *err)
{
	if (elements > file->max_count)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: %" PRId64 " elements, expected at most %" PRId64,
			file->path, entry->name, elements, file->max_count);
	if (file->fd < 0)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: %s: not readable after an earlier failure", file->path, entry->name);
	/* The child has checked that the stored bytes can hold this many values, and no count passes 2^63 / 8. */
	if (elements > (INT64_MAX >> 4))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: %" PRId64 " elements", file->path, entry->name, elements);
	return PLUMB_OK;
}

static int read_values(struct plumb_h5 *file, const char *name, enum plumb_h5_want want, struct plumb_golden_tensor *out,
	void **values, struct plumb_error *err)
{
	const struct plumb_h5_entry *entry = plumb_h5_find(file, name);
	enum plumb_h5_type type = want == PLUMB_H5_AS_F32 ? PLUMB_H5_FLOAT : PLUMB_H5_INT;
	int status;

	memset(out, 0, sizeof *out);
	*values = NULL;
	if (!entry)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: %s: no such dataset, expected %s", file->path, name, type_name(type));
	if (entry->type != type)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: %s, expected %s", file->path, name, type_name(entry->type),
			type_name(type));
	status = admit(file, entry, entry->count, err);
	if (status != PLUMB_OK)
		return status;
	*values = malloc((size_t)entry->count * value_size(want) + 1);
	if (!*values)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: out of memory for %" PRId64 " values", file->path, name,
			entry->count);
	status = request_values(file, entry, want, 0, -1, entry->count, *values, err);
	if (status != PLUMB_OK) {
		free(*values);
		*values = NULL;
		return status;
	}
	out->rank = entry->rank;
	out->count = entry->count;
	memcpy(out->dim, entry->dim, sizeof out->dim);
	return PLUMB_OK;
}

int plumb_h5_read_f32(struct plumb_h5 *file, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err)
{
	void *values;
	int status = read_values(file, name, PLUMB_H5_AS_F32, out, &values, err);

	out->f32 = values;
	return status;
}

int plumb_h5_read_i64(struct plumb_h5 *file, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err)
{
	void *values;
	int status = read_values(file, name, PLUMB_H5_AS_I64, out, &values, err);

	out->i64 = values;
	return status;
}

int plumb_h5_read_u8(struct plumb_h5 *file, const char *name, struct plumb_golden_tensor *out, struct plumb_error *err)
{
	void *values;
	int status = read_values(file, name, PLUMB_H5_AS_U8, out, &values, err);

	out->u8 = values;
	return status;
}

int64_t plumb_h5_rows(const struct plumb_h5_entry *entry, int64_t *width)
{
	const int axis = plumb_h5_row_axis(entry->rank, entry->dim);

	*width = 1;
	if (entry->rank == 0)
		return 1;
	if (entry->count > 0)
		*width = entry->count / entry->dim[axis];
	return entry->count > 0 ? entry->dim[axis] : 0;
}

int plumb_h5_read_rows(struct plumb_h5 *file, const struct plumb_h5_entry *entry, int64_t first, int64_t count,
	void *values, struct plumb_error *err)
{
	int64_t width, rows = plumb_h5_rows(entry, &width);
	bool whole = first == 0 && count == rows;
	int status;

	if (entry->type == PLUMB_H5_OTHER)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: %s, expected numbers", file->path, entry->name,
			type_name(entry->type));
	if (first < 0 || count < 0 || first > rows || count > rows - first)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: rows %" PRId64 " to %" PRId64 ", it has %" PRId64,
			file->path, entry->name, first, first + count - 1, rows);
	status = admit(file, entry, count * width, err);
	if (status == PLUMB_OK && count > 0)
		status = request_values(file, entry, entry->type == PLUMB_H5_FLOAT ? PLUMB_H5_AS_F32 : PLUMB_H5_AS_I64,
			first, whole ? -1 : count, count * width, values, err);
	return status;
}
