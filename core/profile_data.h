/* SPDX-License-Identifier: MIT */
/* The files of golden/profiles/ inside the library: a table that core/CMakeLists.txt makes. */
#ifndef PLUMB_CORE_PROFILE_DATA_H
#define PLUMB_CORE_PROFILE_DATA_H

#include <stddef.h>

struct plumb_profile_file {
	const char *name, *text; /* text ends in a NUL that *size does not count */
	const size_t *size;
};

extern const struct plumb_profile_file plumb_profile_data[];
extern const int plumb_profile_data_count;

#endif
