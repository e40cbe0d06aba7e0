/* SPDX-License-Identifier: MIT */
/* The devices that a test of formats runs on: with PLUMB_TEST_GPU one GPU, else simt with the host's memory and, under another
 * schedule, simt with memory of its own (more schedules and races: test_ops). */
#ifndef PLUMB_TESTS_SUPPORT_DEVICES_H
#define PLUMB_TESTS_SUPPORT_DEVICES_H

#include <stdio.h>

#include "opt/device.h"

#ifdef PLUMB_TEST_GPU
enum { FIRST, DEVICES };
#else
enum { FIRST, OWN_MEMORY, DEVICES };
#endif
static struct plumb_device *device[DEVICES];
static struct plumb_error err;

/* Open them. A status other than PLUMB_OK has been told; without a GPU the test of that name and `_cuda` says SKIP. */
static int open_devices(const char *test, enum plumb_poison poison)
{
	int status = PLUMB_OK;
	for (int i = 0; i < DEVICES && status == PLUMB_OK; i++) {
		struct plumb_device_options options = {.poison = poison};
#ifdef PLUMB_TEST_GPU
		status = plumb_device_open(PLUMB_DEVICE_CUDA, &options, &device[i], &err);
#else
		options.own_memory = i == OWN_MEMORY;
		options.seed = i == OWN_MEMORY ? 7 : 0;
		status = plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device[i], &err);
#endif
	}
	if (status == PLUMB_NO_DEVICE)
		printf("SKIP %s_cuda: %s\n", test, err.text);
	else if (status != PLUMB_OK)
		printf("%s: %s\n", test, err.text);
	return status;
}

#endif
