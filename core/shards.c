/* SPDX-License-Identifier: MIT */
#include "core/shards.h"

#include <cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"
#include "core/text.h"

#define INDEX_NAME "model.safetensors.index.json"
#define ENDING ".safetensors"

/* The largest index in use names 300 000 tensors in 31 MB. */
static const struct plumb_json_limits index_limits = {.bytes = 200000000, .depth = 16, .values = 4000000};

static char *join(const char *dir, const char *name)
{
	size_t n = strlen(dir);
	char *path;
	return asprintf(&path, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name) < 0 ? NULL : path;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_tensors(const void *a, const void *b)
{
	const struct plumb_tensor *const *x = a, *const *y = b;
	return strcmp((*x)->name, (*y)->name);
}

/* The names of the shards, sorted, without repeats. names: room for all; owned by the caller, like the strings. */
static size_t sort_names(const char **names, size_t count)
{
	size_t kept = 0;
	if (count)
		qsort(names, count, sizeof *names, compare_strings);
	for (size_t i = 0; i < count; i++)
		if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0)
			names[kept++] = names[i];
	return kept;
}

static int open_files(struct plumb_shards *s, const char **names, size_t count, struct plumb_error *err)
{
	size_t total = 0;
	s->file = calloc(count + 1, sizeof(struct plumb_safetensors *));
	if (!s->file)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %zu files", s->dir, count);
	for (size_t i = 0; i < count; i++) {
		char *path = join(s->dir, names[i]);
		if (!path)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for a path", s->dir);
		int status = plumb_safetensors_open(path, &s->file[i], err);
		free(path);
		if (status)
			return status;
		s->files++;
		total += s->file[i]->tensors;
	}

	s->tensor = calloc(total + 1, sizeof(struct plumb_tensor *));
	if (!s->tensor)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %zu tensors", s->dir, total);
	for (size_t i = 0; i < s->files; i++)
		for (size_t k = 0; k < s->file[i]->tensors; k++)
			s->tensor[s->tensors++] = &s->file[i]->tensor[k];
	if (s->tensors)
		qsort(s->tensor, s->tensors, sizeof *s->tensor, compare_tensors);
	for (size_t i = 1; i < s->tensors; i++)
		if (strcmp(s->tensor[i - 1]->name, s->tensor[i]->name) == 0)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: tensor %.200s is also in %s, expected it once",
				s->tensor[i]->file, s->tensor[i]->name, s->tensor[i - 1]->file);
	return PLUMB_OK;
}

/* A name may only point into the folder: an index is somebody else's file, a path in it could be any file of ours. */
static bool is_plain_name(const char *name)
{
	return name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') && plumb_text_ends(name, ENDING);
}

static int open_indexed(struct plumb_shards *s, const char *index_path, struct plumb_error *err)
{
	cJSON *tree = NULL;
	const cJSON *item;
	const char **names = NULL;
	size_t count = 0;
	int status = plumb_json_read(index_path, &index_limits, &tree, err);
	if (status)
		return status;
	struct plumb_json_object top = {.object = tree, .file = index_path, .path = "", .err = err};
	const cJSON *map = plumb_json_child(&top, "weight_map", true);
	if ((status = top.status))
		goto done;

	names = calloc((size_t)cJSON_GetArraySize(map) + 1, sizeof *names);
	if (!names) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for its names", index_path);
		goto done;
	}
	cJSON_ArrayForEach (item, map) {
		char shown[64];
		if (!cJSON_IsString(item) || !is_plain_name(item->valuestring)) {
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: weight_map[\"%.200s\"] is %s, expected the name of a " ENDING
				" file in the same folder",
				index_path, item->string, plumb_json_show(item, shown));
			goto done;
		}
		names[count++] = item->valuestring;
	}
	if (count == 0) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: weight_map is empty, expected names of tensors", index_path);
		goto done;
	}
	if ((status = open_files(s, names, sort_names(names, count), err)))
		goto done;

	cJSON_ArrayForEach (item, map) {
		const struct plumb_tensor *t = plumb_shards_find(s, item->string, NULL);
		const char *base = t ? strrchr(t->file, '/') : NULL;
		if (!t || strcmp(base ? base + 1 : t->file, item->valuestring) != 0) {
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: weight_map puts tensor %.200s into %.100s, expected %s%s", index_path, item->string,
				item->valuestring, t ? t->file : "a file that has it", t ? ", where it is" : "");
			goto done;
		}
	}
done:
	free(names);
	cJSON_Delete(tree);
	return status;
}

static int open_found(struct plumb_shards *s, struct plumb_error *err)
{
	int status = PLUMB_BAD_INPUT;
	char **names = NULL;
	size_t count = 0, room = 0;
	struct dirent *entry;
	DIR *dir = opendir(s->dir);
	if (!dir)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot open the folder: %s", s->dir, strerror(errno));
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || !plumb_text_ends(entry->d_name, ENDING))
			continue;
		if (count == room) {
			room = room ? 2 * room : 16;
			char **more = realloc(names, room * sizeof *names);
			if (!more) {
				plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %zu names", s->dir, room);
				goto done;
			}
			names = more;
		}
		if (!(names[count] = strdup(entry->d_name))) {
			plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for a name", s->dir);
			goto done;
		}
		count++;
	}
	if (count == 0) {
		plumb_fail(err, PLUMB_BAD_INPUT, "%s: no file ending in " ENDING ", expected a checkpoint folder", s->dir);
		goto done;
	}
	status = open_files(s, (const char **)names, sort_names((const char **)names, count), err);
done:
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
	closedir(dir);
	return status;
}

int plumb_shards_open(const char *dir, struct plumb_shards **out, struct plumb_error *err)
{
	struct plumb_shards *s = calloc(1, sizeof *s);
	char *index_path = join(dir, INDEX_NAME);
	int status;

	if (!s || !index_path || !(s->dir = strdup(dir)))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory", dir);
	else if (access(index_path, F_OK) == 0)
		status = open_indexed(s, index_path, err);
	else
		status = open_found(s, err);
	free(index_path);
	if (status)
		plumb_shards_close(s);
	else
		*out = s;
	return status;
}

void plumb_shards_close(struct plumb_shards *shards)
{
	if (!shards)
		return;
	for (size_t i = 0; i < shards->files; i++)
		plumb_safetensors_close(shards->file[i]);
	free(shards->file);
	free(shards->tensor);
	free(shards->dir);
	free(shards);
}

const struct plumb_tensor *plumb_shards_find(const struct plumb_shards *shards, const char *name, size_t *place)
{
	size_t low = 0, high = shards->tensors;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, shards->tensor[middle]->name);
		if (order == 0) {
			if (place)
				*place = middle;
			return shards->tensor[middle];
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}
