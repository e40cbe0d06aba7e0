/* SPDX-License-Identifier: MIT */
#include "tools/golden_origin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/sha256.h"

#ifndef PLUMB_VERSION
#define PLUMB_VERSION "unknown"
#endif

/* A folder larger than this is sampled: reading a gigabyte takes seconds, reading a released checkpoint half an hour.
 */
#define WHOLE_BYTES ((int64_t)1 << 30)
#define HEAD_BYTES ((int64_t)64 << 10) /* of each file: its header, of a safetensors file */
#define SAMPLE_BYTES ((int64_t)4 << 10)
#define SAMPLE_EVERY ((int64_t)1 << 20)

/* An attribute holds 64 KiB; the text goes through one buffer with its name. */
enum { CONFIG_BYTES = 60000 };

struct names {
	char **name;
	int count;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool counts(const char *name)
{
	size_t n = strlen(name);
	return strcmp(name, "config.json") == 0 || (n > 12 && strcmp(name + n - 12, ".safetensors") == 0);
}

static void free_names(struct names *n)
{
	for (int i = 0; i < n->count; i++)
		free(n->name[i]);
	free(n->name);
}

static int list_folder(const char *folder, struct names *out, struct plumb_error *err)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	int status = PLUMB_OK;

	if (!d)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s", folder, strerror(errno));
	while (status == PLUMB_OK && (e = readdir(d))) {
		if (!counts(e->d_name))
			continue;
		char **more = realloc(out->name, ((size_t)out->count + 1) * sizeof *more);
		if (more)
			out->name = more;
		if (!more || !(out->name[out->count] = strdup(e->d_name)))
			status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for its list of files", folder);
		else
			out->count++;
	}
	closedir(d);
	if (status == PLUMB_OK && out->count > 0)
		qsort(out->name, (size_t)out->count, sizeof *out->name, by_text);
	return status;
}

/* size bytes from offset on. */
static int add_bytes(
	struct plumb_sha256 *sha, int fd, const char *path, int64_t offset, int64_t size, struct plumb_error *err)
{
	static char buffer[1 << 16];

	while (size > 0) {
		ssize_t n = pread(fd, buffer, size < (int64_t)sizeof buffer ? (size_t)size : sizeof buffer, offset);
		if (n <= 0)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot read at byte %lld: %s", path, (long long)offset,
				n < 0 ? strerror(errno) : "it ends there");
		plumb_sha256_add(sha, buffer, (size_t)n);
		offset += n;
		size -= n;
	}
	return PLUMB_OK;
}

static int add_file(struct plumb_sha256 *sha, int fd, const char *path, int64_t size, bool whole, struct plumb_error *err)
{
	int64_t head = whole || size < HEAD_BYTES ? size : HEAD_BYTES;
	int status = add_bytes(sha, fd, path, 0, head, err);

	for (int64_t at = SAMPLE_EVERY; !whole && at < size && status == PLUMB_OK; at += SAMPLE_EVERY)
		status = add_bytes(sha, fd, path, at, size - at < SAMPLE_BYTES ? size - at : SAMPLE_BYTES, err);
	return status;
}

/* Sizes first (sha NULL), then contents. */
static int walk(const char *folder, const struct names *names, struct plumb_sha256 *sha, bool whole, int64_t *total,
	struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int i = 0; i < names->count && status == PLUMB_OK; i++) {
		char *path = NULL, line[32];
		struct stat st;
		int fd = -1;
		if (asprintf(&path, "%s/%s", folder, names->name[i]) < 0)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", folder);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0) {
			status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s", path, strerror(errno));
		} else if (!sha) {
			*total += st.st_size;
		} else {
			snprintf(line, sizeof line, " %lld\n", (long long)st.st_size);
			plumb_sha256_text(sha, names->name[i]);
			plumb_sha256_text(sha, line);
			status = add_file(sha, fd, path, st.st_size, whole, err);
		}
		if (fd >= 0)
			close(fd);
		free(path);
	}
	return status;
}

static int digest_folder(const char *folder, char **out, struct plumb_error *err)
{
	struct names names = {NULL, 0};
	struct plumb_sha256 sha;
	int64_t total = 0;
	char hex[65];
	int status = list_folder(folder, &names, err);

	plumb_sha256_begin(&sha);
	if (status == PLUMB_OK)
		status = walk(folder, &names, NULL, true, &total, err);
	if (status == PLUMB_OK)
		status = walk(folder, &names, &sha, total <= WHOLE_BYTES, &total, err);
	plumb_sha256_end(&sha, hex);
	if (status == PLUMB_OK && asprintf(out, "sha256%s:%s", total <= WHOLE_BYTES ? "" : "-sampled", hex) < 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", folder);
	free_names(&names);
	return status;
}

static int read_config(const char *folder, char **out, struct plumb_error *err)
{
	char *path = NULL;
	size_t size = 0;
	int status;

	if (asprintf(&path, "%s/config.json", folder) < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", folder);
	status = plumb_file_read(path, (size_t)64 << 20, out, &size, err);
	free(path);
	if (status == PLUMB_OK && (size > CONFIG_BYTES || strlen(*out) != size)) {
		free(*out);
		*out = NULL; /* its digest stands in the checkpoint's */
	}
	return status;
}

/* The --op options, with commas between; NULL: none. */
static char *join(const struct option_list *list)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = list->count ? open_memstream(&text, &size) : NULL;

	if (!f)
		return NULL;
	for (int i = 0; i < list->count; i++)
		fprintf(f, "%s%s", i ? "," : "", list->item[i]);
	fclose(f);
	return text;
}

static char *copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

int golden_origin_make(const struct set_options *o, const struct session *s, enum plumb_ties ties, const char *date,
	struct golden_origin *out, struct plumb_error *err)
{
	int status = PLUMB_OK;

	memset(out, 0, sizeof *out);
	if (date && strlen(date) >= 4096)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--date is a text of %zu bytes, expected at most 4095", strlen(date));
	out->producer = copy("plumb " PLUMB_VERSION);
	out->date = copy(date);
	out->set = copy(o->set ? o->set : "ref");
	out->device = copy(s->device ? plumb_device_name(s->device) : NULL);
	out->mode = copy(o->mode ? o->mode : "oracle");
	out->ops = join(&o->op);
	out->kv_format = copy(o->kv_format);
	out->state_format = copy(o->state_format);
	if (o->profile && asprintf(&out->profile, "%s%s", strcmp(o->profile, s->profile.name) == 0 ? "" : "file ",
				  s->profile.name) < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the provenance");
	out->ties = copy(ties == PLUMB_TIES_TORCH ? "torch" : "lower");
	if (o->synthetic) {
		out->config = plumb_config_text(&s->model->cfg);
		if (!out->config ||
			asprintf(&out->checkpoint, "synthetic %s, seed %lld", o->synthetic, (long long)o->weight_seed) < 0)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the provenance");
	}
	if (o->checkpoint) {
		status = read_config(o->checkpoint, &out->config, err);
		if (status == PLUMB_OK)
			status = digest_folder(o->checkpoint, &out->checkpoint, err);
	}
	if (status == PLUMB_OK && (!out->producer || !out->set || !out->mode || !out->ties || (o->op.count && !out->ops)))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the provenance");
	return status;
}

void golden_origin_free(struct golden_origin *o)
{
	char **text[] = {
		&o->producer,
		&o->date,
		&o->checkpoint,
		&o->config,
		&o->set,
		&o->device,
		&o->mode,
		&o->ops,
		&o->ties,
		&o->profile,
		&o->kv_format,
		&o->state_format,
	};
	for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
		free(*text[i]);
		*text[i] = NULL;
	}
}

const char *golden_origin_text(const struct golden_origin *o, const char *name)
{
	const struct {
		const char *name, *text;
	} all[] = {
		{"producer", o->producer},
		{"date", o->date},
		{"model_type", "qwen4_exp_text"},
		{"checkpoint", o->checkpoint},
		{"config", o->config},
		{"set", o->set},
		{"device", o->device},
		{"mode", o->mode},
		{"ops", o->ops},
		{"ties", o->ties},
		{"profile", o->profile},
		{"kv_format", o->kv_format},
		{"state_format", o->state_format},
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].text;
	return NULL;
}
