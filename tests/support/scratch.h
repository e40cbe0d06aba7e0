/* SPDX-License-Identifier: MIT */
/* Files that a test makes and removes. A helper that fails prints why and ends the program. */
#ifndef PLUMB_TESTS_SUPPORT_SCRATCH_H
#define PLUMB_TESTS_SUPPORT_SCRATCH_H

#include <stddef.h>

enum { SCRATCH_PATH = 512 };

/* A new empty folder under $TMPDIR or /tmp. Returns path. */
const char *scratch_make(char path[SCRATCH_PATH]);

/* Remove it with everything in it. */
void scratch_remove(const char *path);

/* dir/name in path. Returns path. */
const char *scratch_path(char path[SCRATCH_PATH], const char *dir, const char *name);

/* Write dir/name; size (size_t)-1: text up to its NUL. */
void scratch_write(const char *dir, const char *name, const void *data, size_t size);

/* Read a whole file; free() the result, which ends in a NUL that *size does not count. */
char *scratch_read(const char *path, size_t *size);

/* A copy of the file `from` as dir/name. */
void scratch_copy(const char *dir, const char *from, const char *name);

#endif
