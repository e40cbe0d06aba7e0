/* SPDX-License-Identifier: MIT */
/* Where kernels run: simt (this CPU) or cuda (a GPU). env->device of an opt op points at one. */
#ifndef PLUMB_OPT_DEVICE_H
#define PLUMB_OPT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/op.h"
#include "core/weight.h"
#include "kernels/matrix.h"
#include "opt/poison.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_device; /* opt/device_private.h */

enum plumb_device_kind {
	PLUMB_DEVICE_SIMT,
	PLUMB_DEVICE_CUDA,
};

struct plumb_device_options {
	uint64_t seed;   /* simt: the schedule; 0 is natural order */
	bool race;       /* simt: kernels report races between threads (kernels/simt/race.h); 10 to 50 times slower */
	bool own_memory; /* simt: memory apart from the host's, as a GPU has; runs the copying of cuda without a GPU */
	int ordinal;     /* cuda: which GPU */
	enum plumb_poison poison; /* not OFF: a guarded device, see plumb_device_poison */
	bool traps; /* simt: scratch ends where memory traps (opt/trap.h): for a process whose end somebody reports */
};

/* Open a device; options: NULL for all zero. One OS thread uses a device at a time.
 * Errors: PLUMB_NO_DEVICE, for cuda, when this build has no cuda or the machine no such GPU (the message says which);
 * PLUMB_BAD_INPUT when memory is out, or race is asked of a build without it (one with sanitizers). */
int plumb_device_open(enum plumb_device_kind kind, const struct plumb_device_options *options, struct plumb_device **out,
	struct plumb_error *err);
void plumb_device_close(struct plumb_device *device);

/* simt: the order of the launches to come is that of another seed. No effect on a GPU. */
void plumb_device_reschedule(struct plumb_device *device, uint64_t seed);

/* "simt" or "cuda"; and for reports: "simt, seed 17" or "NVIDIA GB10, sm_121, driver 13.0, runtime 13.0". */
const char *plumb_device_name(const struct plumb_device *device);
const char *plumb_device_description(const struct plumb_device *device);

/* The set to bind together with the device: plumb_opt_set where device memory is host memory, else
 * plumb_opt_mirrored_set (opt/mirror.h), which copies what each op reads and writes. */
const struct plumb_set *plumb_device_set(const struct plumb_device *device);

/* Wait for all that was launched. Errors: what the launches failed with. */
int plumb_device_sync(struct plumb_device *device, struct plumb_error *err);

/* Time on the device between two calls, in microseconds (cuda: events on the stream; simt: wall clock). */
int plumb_device_time_begin(struct plumb_device *device, struct plumb_error *err);
int plumb_device_time_end(struct plumb_device *device, double *microseconds, struct plumb_error *err);

/* Drop the copies of weights, constants and state: to be called when host memory that the device has seen is freed or
 * changed in place. A copy is also renewed by itself when a fingerprint of the host bytes changes, but the fingerprint
 * of a matrix above 64 KiB (a constant above 4 MiB) is of samples. Op calls must not be under way. */
int plumb_device_forget(struct plumb_device *device, struct plumb_error *err);

/* Guarded runs. A new op begins, and the memory it may scribble on holds `poison`: scratch is filled at its first
 * request in the op and lies between guard zones; with memory of its own, so do all operands. op: for messages, may be
 * NULL. plumb_device_check then names what lies outside a buffer and was written, or a counter that was not left zero.
 * opt/guard.h calls both for every op; nothing else need. */
void plumb_device_poison(struct plumb_device *device, enum plumb_poison poison, const char *op);
enum plumb_poison plumb_device_poisoned(const struct plumb_device *device);
int plumb_device_check(struct plumb_device *device, struct plumb_error *err); /* PLUMB_MISMATCH: found one */

/* What every launch needs. */
bool plumb_device_is_cuda(const struct plumb_device *device);
bool plumb_device_is_race(const struct plumb_device *device);
void *plumb_device_stream(const struct plumb_device *device);

/* Scratch of an op, bytes long, 256-byte aligned, on the device: the same memory for the same slot (0..7) at every
 * call, so that a captured graph stays valid; grown when asked for more. Contents are undefined (poisoned in guarded
 * runs); slots of one op must differ. With traps its end decides where it lies, in each op anew: 16-byte aligned, 256
 * where bytes is a multiple of that. NULL with env->err set when memory is out. */
void *plumb_device_scratch(const struct plumb_env *env, int slot, size_t bytes);

/* Integers that are zero before their first use and that kernels leave zero (arrival counters): count of them. */
uint32_t *plumb_device_counters(const struct plumb_env *env, size_t count);

/* Pointers to the data and the scales of a bank of matrices, and their global scales, as arrays on the device, and the
 * format and shape they share: made at the first call, kept by the address of the bank. Errors: PLUMB_BAD_INPUT when
 * the matrices of the bank differ in format, in that of their scales, or in columns (their rows may differ in the
 * last), or lack scales that their format needs. */
struct plumb_device_bank {
	struct plumb_matrix_bank matrices; /* arrays of count on the device */
	int64_t rows, cols;
};
int plumb_device_bank(
	const struct plumb_env *env, const struct plumb_weight *bank, int64_t count, struct plumb_device_bank *out);

/* Turn a launcher's status into an op's: 0 is PLUMB_OK, else env->err names op and reason. */
int plumb_device_status(const struct plumb_env *env, const char *launcher, int status);

/* Call a launcher on the device of env: PLUMB_RUN(env, gdn_conv, args...) -> an op status. The stream is added. */
#ifdef PLUMB_RACE
#define PLUMB_RUN_CPU(device, name, ...)                                                                                   \
	(plumb_device_is_race(device) ? plumb_race_##name(__VA_ARGS__, plumb_device_stream(device))                        \
				      : plumb_simt_##name(__VA_ARGS__, plumb_device_stream(device)))
#else
#define PLUMB_RUN_CPU(device, name, ...) plumb_simt_##name(__VA_ARGS__, plumb_device_stream(device))
#endif
#ifdef PLUMB_HAVE_CUDA
#define PLUMB_RUN_ANY(device, name, ...)                                                                                   \
	(plumb_device_is_cuda(device) ? plumb_cuda_##name(__VA_ARGS__, plumb_device_stream(device))                        \
				      : PLUMB_RUN_CPU(device, name, __VA_ARGS__))
#else
#define PLUMB_RUN_ANY(device, name, ...) PLUMB_RUN_CPU(device, name, __VA_ARGS__)
#endif
#define PLUMB_RUN(env, name, ...) plumb_device_status(env, #name, PLUMB_RUN_ANY((env)->device, name, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
