/* SPDX-License-Identifier: MIT */
/* Between golden/h5.c and the child process of golden/h5_child.c: one program, so structs go as they are. */
#ifndef PLUMB_GOLDEN_H5_CHILD_H
#define PLUMB_GOLDEN_H5_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "golden/h5.h"

enum plumb_h5_kind {
	PLUMB_H5_ENTRY,     /* struct plumb_h5_entry_message, name */
	PLUMB_H5_ATTRIBUTE, /* struct plumb_h5_attribute_message, object, name, text */
	PLUMB_H5_READY,     /* end of the list, nothing */
	PLUMB_H5_DATA,      /* nothing; count values of 4 (f32), 8 (i64) or 1 (u8) bytes follow the message */
	PLUMB_H5_FAILED,    /* text of the error, without the path of the file */
};

/* From the child: a header, then size bytes. */
struct plumb_h5_header {
	uint32_t kind, size;
};

/* Names and texts follow their struct without a terminator. */
struct plumb_h5_entry_message {
	int32_t type, rank;
	int64_t dim[PLUMB_H5_RANK];
};
struct plumb_h5_attribute_message {
	int32_t type;
	uint32_t object_size, name_size, text_size;
	int64_t integer;
	double real;
};

/* To the child: read the entry of this position in the order of its ENTRY messages. The child ends when the socket
 * does. */
struct plumb_h5_request {
	uint32_t entry;
	int32_t want; /* enum plumb_h5_want */
};

/* As what values are asked for. */
enum plumb_h5_want {
	PLUMB_H5_AS_F32,
	PLUMB_H5_AS_I64,
	PLUMB_H5_AS_U8,
};

enum { PLUMB_H5_MAX_MESSAGE = PLUMB_H5_MAX_TEXT + 2 * PLUMB_H5_MAX_NAME + 256 };

/* Never returns. Runs in the child: fd is its end of the socket, the only descriptor it has. */
_Noreturn void plumb_h5_serve(const char *path, int fd);

#endif
