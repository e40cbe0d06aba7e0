/* SPDX-License-Identifier: MIT */
/* What a benchmark asks of a device, beside the time of a graph (opt/graph.h). */
#ifndef PLUMB_OPT_TIMING_H
#define PLUMB_OPT_TIMING_H

#include "opt/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Best of `repeat` readings of a buffer of about `bytes` bytes, in bytes a second, after one that is not timed: what no
 * kernel that reads its bytes from memory can pass. What was read is checked against the host's sum.
 * Errors: PLUMB_MISMATCH when it is another one; PLUMB_BAD_INPUT for memory. */
int plumb_device_read_speed(
	struct plumb_device *device, int64_t bytes, int repeat, double *bytes_per_second, struct plumb_error *err);

/* Bytes of the cache in front of a card's memory; 0: not known (simt). */
size_t plumb_device_cache_bytes(const struct plumb_device *device);

/* Kernels that were launched so far. simt only: on cuda the graph counts (plumb_graph_timing). */
int64_t plumb_device_launches(const struct plumb_device *device);

/* A named range for profilers (NVTX) begins; NULL: the last one ends. Nothing on simt. */
void plumb_device_range(const struct plumb_device *device, const char *name);

#ifdef __cplusplus
}
#endif
#endif
