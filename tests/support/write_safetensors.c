/* SPDX-License-Identifier: MIT */
#include "tests/support/write_safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
	char *bytes;
	size_t size, room;
};

struct safetensors_writer {
	char *path;
	struct buffer header, data;
};

static void append(struct buffer *b, const void *bytes, size_t size)
{
	while (b->room - b->size < size) {
		b->room = b->room ? 2 * b->room : 4096;
		b->bytes = realloc(b->bytes, b->room);
		if (!b->bytes) {
			fprintf(stderr, "test support: no memory for %zu bytes\n", b->room);
			exit(1);
		}
	}
	if (size)
		memcpy(b->bytes + b->size, bytes, size);
	b->size += size;
}

static void append_text(struct buffer *b, const char *text)
{
	append(b, text, strlen(text));
}

struct safetensors_writer *safetensors_begin(const char *path)
{
	struct safetensors_writer *w = calloc(1, sizeof *w);
	if (!w || !(w->path = strdup(path)))
		exit(1);
	append_text(&w->header, "{\"__metadata__\":{\"format\":\"pt\"}");
	return w;
}

void safetensors_add(struct safetensors_writer *w, const char *name, const char *dtype, int rank, const int64_t *dims,
	const void *data, size_t bytes)
{
	char text[96];
	append_text(&w->header, ",\"");
	append_text(&w->header, name);
	append_text(&w->header, "\":{\"dtype\":\"");
	append_text(&w->header, dtype);
	append_text(&w->header, "\",\"shape\":[");
	for (int i = 0; i < rank; i++) {
		snprintf(text, sizeof text, "%s%lld", i ? "," : "", (long long)dims[i]);
		append_text(&w->header, text);
	}
	snprintf(text, sizeof text, "],\"data_offsets\":[%zu,%zu]}", w->data.size, w->data.size + bytes);
	append_text(&w->header, text);
	append(&w->data, data, bytes);
}

void safetensors_finish(struct safetensors_writer *w, int shift)
{
	unsigned char length[8];
	append_text(&w->header, "}");
	while (w->header.size % 8 != (size_t)shift)
		append_text(&w->header, " ");
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)w->header.size >> (8 * i));
	FILE *f = fopen(w->path, "wb");
	if (!f || fwrite(length, 1, 8, f) != 8 || fwrite(w->header.bytes, 1, w->header.size, f) != w->header.size ||
		(w->data.size && fwrite(w->data.bytes, 1, w->data.size, f) != w->data.size) || fclose(f) != 0) {
		fprintf(stderr, "test support: cannot write %s\n", w->path);
		exit(1);
	}
	free(w->header.bytes);
	free(w->data.bytes);
	free(w->path);
	free(w);
}
