/* SPDX-License-Identifier: MIT */
/* Everything behind the HDF5 library: the input instead of what a child process sends of a file, to golden/h5.c and to
 * the readers of golden files (first byte even) and of cases (odd). The input is the stream of all that a child sends,
 * as golden/h5_child.h has it: the list, then the answers in the order in which the reader asks. There is no child: the
 * linker puts the two functions below in the place of socketpair and fork (--wrap), which makes an input a hundred times
 * as quick. */
#include "golden/h5_child.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/h5_readers.h"

/* No process has it (the kernel's limit is 2^22), so that whoever kills it hits nobody. */
#define NOBODY ((pid_t)0x7ffffff0)

static const uint8_t *stream;
static size_t stream_size;
static int held = -1; /* the child's end of the socket: requests are sent to it and nobody reads them */

int __real_socketpair(int domain, int type, int protocol, int end[2]);
int __wrap_socketpair(int domain, int type, int protocol, int end[2]);
pid_t __wrap_fork(void);

int __wrap_socketpair(int domain, int type, int protocol, int end[2])
{
	int room = (int)stream_size + (1 << 16);
	int status = __real_socketpair(domain, type, protocol, end);

	if (status == 0) {
		held = dup(end[1]);
		FUZZ_CHECK(held >= 0);
		setsockopt(held, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
		/* what does not fit is as if the child had ended there; and the reader that wants more gets no more, at once */
		for (size_t at = 0; at < stream_size;) {
			ssize_t n = send(held, stream + at, stream_size - at, MSG_NOSIGNAL | MSG_DONTWAIT);

			if (n <= 0)
				break;
			at += (size_t)n;
		}
		shutdown(held, SHUT_WR);
	}
	return status;
}

pid_t __wrap_fork(void)
{
	return NOBODY;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
	static const char *path;

	if (size < 1)
		return 0;
	if (!path)
		path = fuzz_file(signature, sizeof signature);
	stream = data + 1;
	stream_size = size - 1;
	if (data[0] % 2)
		fuzz_read_case(path);
	else
		fuzz_read_golden(path);
	if (held >= 0)
		close(held);
	held = -1;
	return 0;
}
