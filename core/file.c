/* SPDX-License-Identifier: MIT */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int plumb_file_open(const char *path, int *out, uint64_t *size, struct plumb_error *err)
{
	struct stat st;
	int status = PLUMB_OK;

	/* O_NONBLOCK: opening a FIFO must not wait for its writer; it is refused below. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot open: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot stat: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: is %s, expected a regular file", path,
			S_ISDIR(st.st_mode) ? "a directory" : "a special file");
	if (status != PLUMB_OK) {
		close(fd);
		return status;
	}
	*out = fd;
	*size = (uint64_t)st.st_size;
	return PLUMB_OK;
}

size_t plumb_file_take(int fd, void *out, size_t size)
{
	size_t got = 0;

	errno = 0;
	while (got < size) {
		ssize_t n = read(fd, (char *)out + got, size - got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

int plumb_file_too_long(const char *name, uint64_t size, size_t limit, struct plumb_error *err)
{
	return plumb_fail(
		err, PLUMB_BAD_INPUT, "%s: has %llu bytes, expected at most %zu", name, (unsigned long long)size, limit);
}

int plumb_file_read(const char *path, size_t limit, char **out, size_t *size, struct plumb_error *err)
{
	char *text = NULL;
	uint64_t bytes;
	int fd, status = plumb_file_open(path, &fd, &bytes, err);

	if (status != PLUMB_OK)
		return status;
	if (bytes > limit) {
		status = plumb_file_too_long(path, bytes, limit, err);
		goto done;
	}
	text = malloc((size_t)bytes + 1);
	if (!text) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %llu bytes", path, (unsigned long long)bytes);
		goto done;
	}
	size_t got = plumb_file_take(fd, text, (size_t)bytes);
	if (got < bytes) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: read %zu of %llu bytes: %s", path, got,
			(unsigned long long)bytes, errno ? strerror(errno) : "the file became shorter");
		goto done;
	}
	text[got] = 0;
	*out = text;
	*size = got;
	text = NULL;
done:
	free(text);
	close(fd);
	return status;
}
