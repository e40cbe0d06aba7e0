/* SPDX-License-Identifier: MIT */
/* Where kernels run: simt (this CPU) or cuda (a GPU). env->device of an opt op points at one. */
#ifndef PLUMB_OPT_DEVICE_H
#define PLUMB_OPT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/op.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_device; /* opt/device_private.h */

/* What every launch needs. */
bool plumb_device_is_cuda(const struct plumb_device *device);
void *plumb_device_stream(const struct plumb_device *device);

/* Scratch of an op, bytes long, 256-byte aligned, on the device: the same memory for the same slot (0..7) at every call, so
 * that a captured graph stays valid; grown when asked for more. Contents are undefined (poisoned in guarded runs); slots of
 * one op must differ. NULL with env->err set when memory is out. */
void *plumb_device_scratch(const struct plumb_env *env, int slot, size_t bytes);

/* Integers that are zero before their first use and that kernels leave zero (arrival counters): count of them. */
uint32_t *plumb_device_counters(const struct plumb_env *env, size_t count);

/* Data pointers of a bank of matrices, as an array on the device, and the format and shape they share: made at the first
 * call, kept by the address of the bank.
 * Errors: PLUMB_BAD_INPUT when the matrices of the bank differ in format or columns (their rows may differ in the last). */
struct plumb_device_bank {
	const void *const *data; /* (count) on the device */
	int format;
	int64_t rows, cols;
};
int plumb_device_bank(
	const struct plumb_env *env, const struct plumb_weight *bank, int64_t count, struct plumb_device_bank *out);

/* Turn a launcher's status into an op's: 0 is PLUMB_OK, else env->err names op and reason. */
int plumb_device_status(const struct plumb_env *env, const char *launcher, int status);

/* Call a launcher on the device of env: PLUMB_RUN(env, gdn_conv, args...) -> an op status. The stream is added. */
#ifdef PLUMB_HAVE_CUDA
#define PLUMB_RUN(env, name, ...)                                                                                      \
	plumb_device_status(env, #name,                                                                                \
		plumb_device_is_cuda((env)->device)                                                                    \
			? plumb_cuda_##name(__VA_ARGS__, plumb_device_stream((env)->device))                           \
			: plumb_simt_##name(__VA_ARGS__, plumb_device_stream((env)->device)))
#else
#define PLUMB_RUN(env, name, ...)                                                                                      \
	plumb_device_status(env, #name, plumb_simt_##name(__VA_ARGS__, plumb_device_stream((env)->device)))
#endif

#ifdef __cplusplus
}
#endif
#endif
