/* SPDX-License-Identifier: MIT */
#include "core/safetensors.h"

#include <cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"

enum { PREFIX = 8 }; /* bytes: the little-endian length of the header */

/* 100 000 000 bytes is the limit of the format's own reader. A tensor is 6 values and one for each dimension, so 4
 * million values are half a million tensors in one file (300 000 are the most seen in a whole checkpoint) and half a
 * gigabyte of tree at worst. */
static const struct plumb_json_limits limits = {.bytes = 100000000, .depth = 8, .values = 4000000};

static const struct {
	const char *name;
	int bits; /* of one value */
} dtypes[PLUMB_DTYPE_COUNT] = {
	[PLUMB_DTYPE_BOOL] = {"BOOL", 8},
	[PLUMB_DTYPE_F4] = {"F4", 4},
	[PLUMB_DTYPE_F6_E2M3] = {"F6_E2M3", 6},
	[PLUMB_DTYPE_F6_E3M2] = {"F6_E3M2", 6},
	[PLUMB_DTYPE_U8] = {"U8", 8},
	[PLUMB_DTYPE_I8] = {"I8", 8},
	[PLUMB_DTYPE_F8_E5M2] = {"F8_E5M2", 8},
	[PLUMB_DTYPE_F8_E4M3] = {"F8_E4M3", 8},
	[PLUMB_DTYPE_F8_E8M0] = {"F8_E8M0", 8},
	[PLUMB_DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
	[PLUMB_DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
	[PLUMB_DTYPE_I16] = {"I16", 16},
	[PLUMB_DTYPE_U16] = {"U16", 16},
	[PLUMB_DTYPE_F16] = {"F16", 16},
	[PLUMB_DTYPE_BF16] = {"BF16", 16},
	[PLUMB_DTYPE_I32] = {"I32", 32},
	[PLUMB_DTYPE_U32] = {"U32", 32},
	[PLUMB_DTYPE_F32] = {"F32", 32},
	[PLUMB_DTYPE_C64] = {"C64", 64},
	[PLUMB_DTYPE_F64] = {"F64", 64},
	[PLUMB_DTYPE_I64] = {"I64", 64},
	[PLUMB_DTYPE_U64] = {"U64", 64},
};

const char *plumb_dtype_name(enum plumb_dtype dtype)
{
	return (unsigned)dtype < PLUMB_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

const char *plumb_tensor_shape(const struct plumb_tensor *t, char text[192])
{
	int n = snprintf(text, 192, "[");
	for (int i = 0; i < t->rank; i++) /* at most 8 * 22 characters */
		n += snprintf(text + n, (size_t)(192 - n), "%s%lld", i ? ", " : "", (long long)t->dim[i]);
	snprintf(text + n, (size_t)(192 - n), "]");
	return text;
}

/* What is wrong with one tensor. Names come from the file: at most 200 bytes of one in a message. */
__attribute__((format(printf, 3, 4))) static int tensor_fail(
	struct plumb_error *err, const struct plumb_tensor *t, const char *format, ...)
{
	char what[384];
	va_list ap;
	va_start(ap, format);
	vsnprintf(what, sizeof what, format, ap);
	va_end(ap);
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: tensor %.200s: %s", t->file, t->name, what);
}

static int read_dtype(const cJSON *item, struct plumb_tensor *t, struct plumb_error *err)
{
	char shown[64];
	for (int i = 0; cJSON_IsString(item) && i < PLUMB_DTYPE_COUNT; i++) {
		if (strcmp(item->valuestring, dtypes[i].name) == 0) {
			t->dtype = (enum plumb_dtype)i;
			return PLUMB_OK;
		}
	}
	return tensor_fail(err, t, "dtype is %s, expected one of the format, e.g. \"BF16\"", plumb_json_show(item, shown));
}

/* Shape and, in *bits, the size of the data. */
static int read_shape(const cJSON *item, struct plumb_tensor *t, uint64_t *bits, struct plumb_error *err)
{
	char shown[64];
	const cJSON *entry;
	if (!cJSON_IsArray(item))
		return tensor_fail(err, t, "shape is %s, expected an array", plumb_json_show(item, shown));
	*bits = (uint64_t)dtypes[t->dtype].bits;
	bool overflow = false, empty = false;
	cJSON_ArrayForEach (entry, item) {
		if (t->rank == PLUMB_TENSOR_RANK)
			return tensor_fail(err, t, "shape has more than %d dimensions, expected at most %d",
				PLUMB_TENSOR_RANK, PLUMB_TENSOR_RANK);
		if (!plumb_json_item_int(entry, 0, INT64_MAX, &t->dim[t->rank]))
			return tensor_fail(err, t, "shape[%d] is %s, expected a whole number from 0", t->rank,
				plumb_json_show(entry, shown));
		empty |= t->dim[t->rank] == 0;
		overflow |= __builtin_mul_overflow(*bits, (uint64_t)t->dim[t->rank], bits);
		t->rank++;
	}
	if (overflow && !empty) {
		char shape[192];
		return tensor_fail(err, t, "shape %s of %s has more than 2^64 bits, expected a tensor that fits the file",
			plumb_tensor_shape(t, shape), dtypes[t->dtype].name);
	}
	if (empty)
		*bits = 0;
	if (*bits % 8 != 0)
		return tensor_fail(err, t, "has %llu bits, expected whole bytes", (unsigned long long)*bits);
	return PLUMB_OK;
}

/* Turn an entry of the header into t; data: the bytes behind the header. */
static int read_tensor(
	const cJSON *entry, const unsigned char *data, uint64_t data_bytes, struct plumb_tensor *t, struct plumb_error *err)
{
	const cJSON *dtype = NULL, *shape = NULL, *offsets = NULL, *field;
	char shown[64];
	int64_t begin, end;
	uint64_t bits = 0;
	int status;

	if (!cJSON_IsObject(entry))
		return tensor_fail(err, t, "is %s, expected an object", plumb_json_show(entry, shown));
	cJSON_ArrayForEach (field, entry) {
		if (strcmp(field->string, "dtype") == 0)
			dtype = field;
		else if (strcmp(field->string, "shape") == 0)
			shape = field;
		else if (strcmp(field->string, "data_offsets") == 0)
			offsets = field;
	}
	if ((status = read_dtype(dtype, t, err)) || (status = read_shape(shape, t, &bits, err)))
		return status;

	if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
		return tensor_fail(err, t, "data_offsets is %s, expected [begin, end]",
			cJSON_IsArray(offsets) ? "an array of another length than 2" : plumb_json_show(offsets, shown));
	if (!plumb_json_item_int(offsets->child, 0, INT64_MAX, &begin))
		return tensor_fail(err, t, "data_offsets[0] is %s, expected a whole number from 0",
			plumb_json_show(offsets->child, shown));
	if (!plumb_json_item_int(offsets->child->next, begin, INT64_MAX, &end))
		return tensor_fail(err, t, "data_offsets[1] is %s, expected a whole number from %lld (data_offsets[0])",
			plumb_json_show(offsets->child->next, shown), (long long)begin);
	if ((uint64_t)end > data_bytes)
		return tensor_fail(err, t, "data_offsets[1] is %lld, expected at most %llu: the file ends there",
			(long long)end, (unsigned long long)data_bytes);
	if ((uint64_t)(end - begin) != bits / 8) {
		char text[192];
		return tensor_fail(err, t, "data_offsets hold %lld bytes, expected %llu for shape %s of %s",
			(long long)(end - begin), (unsigned long long)(bits / 8), plumb_tensor_shape(t, text),
			dtypes[t->dtype].name);
	}
	t->data = data + begin;
	t->bytes = (size_t)(end - begin);
	return PLUMB_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct plumb_tensor *x = a, *y = b;
	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	if (x->bytes != y->bytes) /* empty tensors before the one that begins there */
		return x->bytes < y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Every byte of the data belongs to exactly one tensor. */
static int check_cover(
	struct plumb_safetensors *file, const unsigned char *data, uint64_t data_bytes, struct plumb_error *err)
{
	uint64_t end = 0;
	if (file->tensors)
		qsort(file->tensor, file->tensors, sizeof *file->tensor, by_place);
	for (size_t i = 0; i < file->tensors; i++) {
		const struct plumb_tensor *t = &file->tensor[i];
		uint64_t begin = (uint64_t)(t->data - data);
		if (begin < end)
			return tensor_fail(err, t, "data_offsets[0] is %llu, expected %llu: it overlaps tensor %.100s",
				(unsigned long long)begin, (unsigned long long)end, file->tensor[i - 1].name);
		if (begin > end)
			return tensor_fail(err, t,
				"data_offsets[0] is %llu, expected %llu: the bytes between belong to no tensor",
				(unsigned long long)begin, (unsigned long long)end);
		end = begin + t->bytes;
	}
	if (end != data_bytes)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: has %llu bytes of data, expected %llu: the last tensor ends there", file->path,
			(unsigned long long)data_bytes, (unsigned long long)end);
	return PLUMB_OK;
}

static int read_header(struct plumb_safetensors *file, const cJSON *header, size_t header_bytes, struct plumb_error *err)
{
	const unsigned char *data = (const unsigned char *)file->map + PREFIX + header_bytes;
	uint64_t data_bytes = file->map_bytes - PREFIX - header_bytes;
	const cJSON *entry;
	char shown[64];
	size_t count = 0, names = 0;
	int status = PLUMB_OK;

	if (!cJSON_IsObject(header))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: the header is %s, expected an object", file->path,
			plumb_json_show(header, shown));
	cJSON_ArrayForEach (entry, header) {
		count++;
		names += strlen(entry->string) + 1;
	}
	file->tensor = calloc(count + 1, sizeof *file->tensor);
	file->names = malloc(names + 1);
	if (!file->tensor || !file->names)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %zu tensors", file->path, count);

	char *name = file->names;
	cJSON_ArrayForEach (entry, header) {
		if (strcmp(entry->string, "__metadata__") == 0) {
			if (!cJSON_IsObject(entry))
				return plumb_fail(err, PLUMB_BAD_INPUT, "%s: __metadata__ is %s, expected an object",
					file->path, plumb_json_show(entry, shown));
			continue;
		}
		struct plumb_tensor *t = &file->tensor[file->tensors];
		size_t n = strlen(entry->string) + 1;
		t->name = memcpy(name, entry->string, n);
		t->file = file->path;
		name += n;
		if ((status = read_tensor(entry, data, data_bytes, t, err)))
			return status;
		file->tensors++;
	}
	return check_cover(file, data, data_bytes, err);
}

/* Length, and text, of the header of an open file of size bytes; *text is freed by the caller.
 * It is read into memory of our own: what was checked is then what is used, whoever writes to the file. */
static int take_header(const char *path, int fd, uint64_t size, char **text, size_t *header_bytes, struct plumb_error *err)
{
	unsigned char prefix[PREFIX];
	uint64_t length = 0;

	if (size < PREFIX || plumb_file_take(fd, prefix, PREFIX) < PREFIX)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: has %llu bytes, expected a safetensors file: 8 bytes of header length first", path,
			(unsigned long long)size);
	for (int i = PREFIX - 1; i >= 0; i--)
		length = length << 8 | prefix[i];
	if (length > size - PREFIX || length > limits.bytes)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: header length is %llu, expected at most %llu (%s)", path,
			(unsigned long long)length,
			(unsigned long long)(size - PREFIX < limits.bytes ? size - PREFIX : limits.bytes),
			size - PREFIX < limits.bytes ? "the rest of the file" : "the limit of the format");
	*text = malloc((size_t)length + 1);
	if (!*text)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: no memory for a header of %llu bytes", path, (unsigned long long)length);
	if (plumb_file_take(fd, *text, (size_t)length) < length)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot read the %llu bytes of the header", path,
			(unsigned long long)length);
	*header_bytes = (size_t)length;
	return PLUMB_OK;
}

static int map_file(struct plumb_safetensors *file, int fd, uint64_t size, struct plumb_error *err)
{
	void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (map == MAP_FAILED)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot map %llu bytes: %s", file->path,
			(unsigned long long)size, strerror(errno));
	file->map = map;
	file->map_bytes = (size_t)size;
	return PLUMB_OK;
}

int plumb_safetensors_open(const char *path, struct plumb_safetensors **out, struct plumb_error *err)
{
	uint64_t size;
	size_t header_bytes = 0;
	char *text = NULL;
	cJSON *header = NULL;
	struct plumb_safetensors *file = NULL;
	int fd, status = plumb_file_open(path, &fd, &size, err);

	if (status != PLUMB_OK)
		return status;
	file = calloc(1, sizeof *file);
	if (!file || !(file->path = strdup(path)))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory", path);
	if (status == PLUMB_OK)
		status = take_header(path, fd, size, &text, &header_bytes, err);
	if (status == PLUMB_OK)
		status = plumb_json_parse(text, header_bytes, path, &limits, &header, err);
	if (status == PLUMB_OK)
		status = map_file(file, fd, size, err);
	if (status == PLUMB_OK)
		status = read_header(file, header, header_bytes, err);
	if (status == PLUMB_OK) {
		*out = file;
		file = NULL;
	}
	cJSON_Delete(header);
	free(text);
	close(fd);
	plumb_safetensors_close(file);
	return status;
}

void plumb_safetensors_close(struct plumb_safetensors *file)
{
	if (!file)
		return;
	if (file->map)
		munmap(file->map, file->map_bytes);
	free(file->tensor);
	free(file->names);
	free(file->path);
	free(file);
}
