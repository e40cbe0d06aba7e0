/* SPDX-License-Identifier: MIT */
/* The linker maps what a file's headers promise and dies when the bytes are not there. That is bad input, and not something
 * that a kernel has done, so it is found before. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opt/user_private.h"

static bool read_at(int fd, void *to, size_t size, uint64_t at)
{
	return pread(fd, to, size, (off_t)at) == (ssize_t)size;
}

static bool is_inside(uint64_t at, uint64_t size, uint64_t end)
{
	return at <= end && size <= end - at;
}

/* size: of the file. A file of another kind or machine passes: the linker says what is wrong with it. */
static int check_headers(const char *path, int fd, uint64_t size, struct plumb_error *err)
{
	ElfW(Ehdr) head;
	if (!read_at(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
		head.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
		return PLUMB_OK;
	if (head.e_shoff && !is_inside(head.e_shoff, (uint64_t)head.e_shnum * head.e_shentsize, size))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"cannot load %s: cut short: it has %llu bytes, its table of sections is at byte %llu", path,
			(unsigned long long)size, (unsigned long long)head.e_shoff);
	for (unsigned i = 0; i < head.e_phnum; i++) {
		ElfW(Phdr) part;
		if (!read_at(fd, &part, sizeof part, head.e_phoff + (uint64_t)i * sizeof part))
			return PLUMB_OK;
		if (part.p_filesz && !is_inside(part.p_offset, part.p_filesz, size))
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"cannot load %s: cut short: it has %llu bytes, its segment %u has %llu from byte %llu on",
				path, (unsigned long long)size, i, (unsigned long long)part.p_filesz,
				(unsigned long long)part.p_offset);
	}
	return PLUMB_OK;
}

int user_file_check(const char *path, struct plumb_error *err)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int status;

	if (fd < 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "cannot load %s: %s", path, strerror(errno));
	else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "cannot load %s: no file, expected a shared object", path);
	else
		status = check_headers(path, fd, (uint64_t)st.st_size, err);
	if (fd >= 0)
		close(fd);
	return status;
}
