/* SPDX-License-Identifier: MIT */
#include "tests/support/scratch.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what, const char *path)
{
	fprintf(stderr, "test support: cannot %s %s: %s\n", what, path, strerror(errno));
	exit(1);
}

const char *scratch_make(char path[SCRATCH_PATH])
{
	const char *base = getenv("TMPDIR");
	snprintf(path, SCRATCH_PATH, "%s/plumb-test-XXXXXX", base && *base ? base : "/tmp");
	if (!mkdtemp(path))
		die("make folder", path);
	return path;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

void scratch_remove(const char *path)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
		die("remove", path);
}

const char *scratch_path(char path[SCRATCH_PATH], const char *dir, const char *name)
{
	if (snprintf(path, SCRATCH_PATH, "%s/%s", dir, name) >= SCRATCH_PATH) {
		errno = ENAMETOOLONG;
		die("name", dir);
	}
	return path;
}

void scratch_write(const char *dir, const char *name, const void *data, size_t size)
{
	char path[SCRATCH_PATH];
	FILE *f = fopen(scratch_path(path, dir, name), "wb");
	if (size == (size_t)-1)
		size = strlen(data);
	if (!f || (size && fwrite(data, 1, size, f) != size) || fclose(f) != 0)
		die("write", path);
}

char *scratch_read(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	long n = -1;
	char *data = NULL;
	if (f && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0)
		data = malloc((size_t)n + 1);
	if (!data || fread(data, 1, (size_t)n, f) != (size_t)n)
		die("read", path);
	fclose(f);
	data[n] = 0;
	*size = (size_t)n;
	return data;
}

void scratch_copy(const char *dir, const char *from, const char *name)
{
	size_t size;
	char *data = scratch_read(from, &size);
	scratch_write(dir, name, data, size);
	free(data);
}
