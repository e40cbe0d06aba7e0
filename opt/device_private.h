/* SPDX-License-Identifier: MIT */
/* Inside of a device. For opt/device.c, opt/cuda.c, opt/mirror.c, opt/graph.c and their tests. */
#ifndef PLUMB_OPT_DEVICE_PRIVATE_H
#define PLUMB_OPT_DEVICE_PRIVATE_H

#include "kernels/simt/simt.h"
#include "opt/device.h"
#include "opt/fuse.h"
#include "opt/trap.h"

enum { PLUMB_SCRATCH_SLOTS = 8 };

/* What a kind of device can do. Copies are in order with the launches of the stream; download has its bytes on
 * return. */
struct plumb_backend {
	const char *name;
	int (*open)(struct plumb_device *device, struct plumb_error *err);
	void (*close)(struct plumb_device *device);
	/* Memory, 256-byte aligned. take: NULL with a message when there is none. */
	void *(*take)(struct plumb_device *device, size_t bytes, struct plumb_error *err);
	void (*give)(struct plumb_device *device, void *memory);
	int (*upload)(struct plumb_device *device, void *to, const void *from, size_t bytes, struct plumb_error *err);
	int (*download)(struct plumb_device *device, void *to, const void *from, size_t bytes, struct plumb_error *err);
	int (*sync)(struct plumb_device *device, struct plumb_error *err);
	int (*time_begin)(struct plumb_device *device, struct plumb_error *err);
	int (*time_end)(struct plumb_device *device, double *microseconds, struct plumb_error *err);
	/* What a launcher returned, as a status and a reason. */
	enum plumb_status (*reason)(const struct plumb_device *device, int status, const char **text);

	/* A captured graph, where there is one (else NULL): calls between begin and end are recorded and not run.
	 * graph_launch: run it once and wait. */
	int (*capture_begin)(struct plumb_device *device, struct plumb_error *err);
	int (*capture_end)(struct plumb_device *device, void **graph, struct plumb_error *err);
	void (*capture_drop)(struct plumb_device *device); /* after a failure in between */
	int (*graph_launch)(struct plumb_device *device, void *graph, struct plumb_error *err);
	/* Run it repeat + 1 times back to back: microseconds (repeat) of all but the first, from end to end. */
	int (*graph_time)(
		struct plumb_device *device, void *graph, int64_t repeat, double *microseconds, struct plumb_error *err);
	void (*graph_free)(void *graph);
	void *(*pinned_take)(
		struct plumb_device *device, size_t bytes, struct plumb_error *err); /* host memory for copies */
	void (*pinned_give)(void *memory);
	void (*range)(const char *name); /* a named range for profilers begins; NULL: the last one ends. May be NULL */
};

extern const struct plumb_backend plumb_backend_simt;
#ifdef PLUMB_HAVE_CUDA
extern const struct plumb_backend plumb_backend_cuda;
#endif

/* Scratch of one slot: zone | room bytes | zone. In guarded runs the second zone begins where what was asked for ends. With
 * traps the end of what was asked for is the end of memory, but for what its alignment leaves, and that is the zone. */
struct plumb_scratch {
	unsigned char *memory, *data; /* data: what an op is given */
	size_t room;
	size_t asked; /* most bytes asked for in this op; 0: not yet */
	size_t after; /* bytes of the second zone */
	struct plumb_trap trap;
};

/* A bank's arrays, and what they were made from: count pointers to data | count pointers to scales | count floats. */
struct plumb_bank_pointers {
	const struct plumb_weight *bank;
	int64_t count;
	unsigned char *host, *device;
};

struct plumb_mirror; /* opt/mirror.c: copies of host memory */

struct plumb_device {
	enum plumb_device_kind kind;
	const struct plumb_backend *backend;
	struct plumb_device_options options;
	char description[384];
	bool own_memory;    /* not the host's: calls go through opt/mirror.c */
	bool capturing;     /* between capture_begin and capture_end */
	int64_t recorded;   /* kernels of the last capture */
	int64_t overlaps;   /* of these, how many may begin before their predecessor has ended */
	size_t cache_bytes; /* of the cache in front of its memory; 0: not known */
	enum plumb_poison poison;
	const char *op;      /* the op under way, for messages; NULL: not known */
	uint64_t generation; /* counts changes of any address a captured graph may hold */

	void *stream; /* what launchers take: &simt, or a cudaStream_t */
	struct plumb_simt simt;
	double time;           /* simt: begin, in microseconds */
	struct plumb_gpu *gpu; /* opt/cuda.c */

	struct plumb_scratch scratch[PLUMB_SCRATCH_SLOTS];
	uint32_t *counter;
	size_t counters;
	struct plumb_bank_pointers *bank;
	size_t banks, bank_room;
	void **retired; /* outgrown memory: kept, because a captured graph may still name it */
	size_t retirees, retired_room;
	struct plumb_mirror *mirror;
	struct plumb_fuse fuse; /* opt/fuse.c: launches that are left to the next op */
};

/* Memory that is given back when the device closes, not before. */
int plumb_device_retire(struct plumb_device *device, void *memory, struct plumb_error *err);

/* Upload `bytes` of poison, as 32-bit elements from 0 on. */
int plumb_device_fill(struct plumb_device *device, void *to, size_t bytes, struct plumb_error *err);

/* Check the zones around `bytes` at memory, of which the second has zone bytes; what: names the buffer in the message. */
int plumb_device_zones(struct plumb_device *device, const unsigned char *memory, size_t bytes, size_t zone,
	const char *what, struct plumb_error *err);

/* opt/scratch.c */
void plumb_scratch_drop(struct plumb_device *device);
int plumb_scratch_check(struct plumb_device *device, struct plumb_error *err); /* as plumb_device_check */

/* least, doubled until it is wanted or more: what is outgrown and kept is at most as much as is in use. */
size_t plumb_device_grown(size_t least, size_t wanted);

/* opt/mirror.c */
int plumb_mirror_create(struct plumb_device *device, struct plumb_error *err);
void plumb_mirror_destroy(struct plumb_device *device);

#endif
