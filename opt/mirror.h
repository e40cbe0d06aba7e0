/* SPDX-License-Identifier: MIT */
/* Host memory on a device that has its own. The functions of plumb_opt_set want arguments whose data lies on the
 * device; callers have host memory. Two ways to bring them together:
 *
 *   copied    (always, unless a graph says otherwise) each call uploads what the op reads (IN, STATE), runs it,
 *             waits, and downloads what it wrote (OUT, STATE). Of a cache only rows below position + T go over and
 *             only rows that the call wrote come back. Between calls the host's memory is the truth, so observers,
 *             mixtures of sets and comparisons need to know nothing.
 *   resident  (opt/graph.h) nothing is copied; state and activations live on the device between calls.
 *
 * Weights and constants go over once, and stay by host address, size and fingerprint (see plumb_device_forget).
 *
 * LIMIT: a copied call of an op that reads a cache costs time linear in the position. */
#ifndef PLUMB_OPT_MIRROR_H
#define PLUMB_OPT_MIRROR_H

#include "core/op.h"
#include "opt/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* plumb_opt_set for a device with its own memory; env->device is that device. The name is "opt" too. */
extern const struct plumb_set plumb_opt_mirrored_set;

/* The same for any function that wants device memory (a user's kernel): copy, run, copy back. With poison on (a guarded
 * device) also: operands lie between guard zones on the device, outputs go over as they are, caches go over and come
 * back whole, and a write outside an operand is PLUMB_MISMATCH. */
int plumb_mirror_run(const struct plumb_env *env, enum plumb_op op, plumb_op_fn *fn, const void *args);
/* The same for arguments that another table than plumb_ops describes. */
int plumb_mirror_run_as(const struct plumb_env *env, const struct plumb_op_info *info, plumb_op_fn *fn, const void *args);

/* For timing: upload once, then call functions of plumb_opt_set with *device_args as often as wanted, until the next
 * call of another kind on this device. Where device memory is host memory, *device_args is args. */
int plumb_mirror_prepare(const struct plumb_env *env, enum plumb_op op, const void *args, const void **device_args);

/* For opt/graph.c. position: the host's position cell, by which a reset of the host's state is seen.
 * begin: from now on calls are resident, and what the device does not hold yet goes over at its first use.
 * end: calls are copied again; the device stays the owner of the state, which goes back when a copied call comes, or at
 * hand_back. release: forget the resident copies without copying. */
int plumb_mirror_resident_begin(struct plumb_device *device, const int32_t *position, struct plumb_error *err);
void plumb_mirror_resident_end(struct plumb_device *device);
/* The device's state belongs to this host position (after a step). */
void plumb_mirror_owns(struct plumb_device *device, int32_t position);
/* Whether the device's copy is the newer one and the host still stands where the device does. */
bool plumb_mirror_is_owner(const struct plumb_device *device);
int plumb_mirror_hand_back(struct plumb_device *device, struct plumb_error *err);
void plumb_mirror_release(struct plumb_device *device);
/* Upload all resident state from the host, which holds `position` rows. */
int plumb_mirror_upload_state(struct plumb_device *device, int32_t position, struct plumb_error *err);
/* The host changed what is at this address. */
void plumb_mirror_host_wrote(struct plumb_device *device, const void *host);
/* Device address of a resident buffer, and its host address; NULL when no call has used it. */
void *plumb_mirror_find(struct plumb_device *device, const void *host, void **writable);

#ifdef __cplusplus
}
#endif
#endif
