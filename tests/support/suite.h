/* SPDX-License-Identifier: MIT */
/* What the main of every suite does. Its exit status: 0, EXIT_FAILURE, or SUITE_SKIPPED, which CTest reports by name. */
#ifndef PLUMB_TESTS_SUPPORT_SUITE_H
#define PLUMB_TESTS_SUPPORT_SUITE_H

#include <check.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SUITE_SKIPPED = 77 };

/* A part of a suite. seconds: that one of its tests may take, under sanitizers and on a busy machine too; 0: no limit. */
TCase *suite_part(Suite *suite, const char *name, double seconds);

/* Run a suite, each test in a process of its own, and free it. Returns the exit status. A run in which no test ran, since a
 * filter (CK_RUN_SUITE, CK_RUN_CASE) matches none or none was added, has failed. */
int suite_run(Suite *suite);

/* The same in this process, for what does not survive a fork or is costly to open: a GPU, devices, OpenMP's threads. */
int suite_run_here(Suite *suite);

/* The exit status of a suite whose device cannot be opened. status: of plumb_device_open, not PLUMB_OK. */
int suite_without_device(int status);

/* Whether PLUMB_TEST_DEVICE asks for a GPU: "cuda", and not "simt" or nothing. A plumb_status: it says something else, or there
 * is no GPU. */
int suite_wants_gpu(bool *gpu);

/* Whether there is a GPU, asked in a child, since CUDA does not survive the forks to come: a plumb_status. Says what it has
 * found. */
int suite_probe_gpu(void);

#ifdef __cplusplus
}
#endif
#endif
