/* SPDX-License-Identifier: MIT */
/* Files that somebody else wrote: opened only when they are regular, read whole or not at all. */
#ifndef PLUMB_CORE_FILE_H
#define PLUMB_CORE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Open a regular file for reading. *fd: for close(); *size: its bytes.
 * Errors: PLUMB_BAD_INPUT naming the path and the reason. */
int plumb_file_open(const char *path, int *fd, uint64_t *size, struct plumb_error *err);

/* The next size bytes of a file. Returns how many there were: fewer at its end or, with errno set, after a failure. */
size_t plumb_file_take(int fd, void *out, size_t size);

/* Read a whole regular file, at most limit bytes. *out is terminated by a NUL that *size does not count; free() it.
 * Errors: PLUMB_BAD_INPUT naming the path and what is wrong with it. */
int plumb_file_read(const char *path, size_t limit, char **out, size_t *size, struct plumb_error *err);

/* The message for a file, or a text, of more bytes than are taken. Returns PLUMB_BAD_INPUT. */
int plumb_file_too_long(const char *name, uint64_t size, size_t limit, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
