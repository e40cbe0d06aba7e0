/* SPDX-License-Identifier: MIT */
/* What the program does with a golden file and with a case before anything of them is run. */
#ifndef PLUMB_TESTS_FUZZ_H5_READERS_H
#define PLUMB_TESTS_FUZZ_H5_READERS_H

void fuzz_read_golden(const char *path);
void fuzz_read_case(const char *path);

#endif
