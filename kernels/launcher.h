/* SPDX-License-Identifier: MIT */
/* Names of the launchers at the end of every kernels/NAME.cu, for the host (C11 and C++).
 *
 * One kernel file is built once a device, and all builds can be linked into one program, so the name of a launcher
 * carries the device. A header kernels/NAME.h declares each launcher once:
 *
 *	PLUMB_DECLARE_LAUNCHER(gdn_conv, const float *x, float *y, int n, void *stream);
 *
 * which declares plumb_simt_gdn_conv, plumb_race_gdn_conv (simt with the race check, kernels/simt/race.h) and
 * plumb_cuda_gdn_conv. They return 0, or a nonzero status (a cudaError_t, or an enum
 * plumb_simt_status). `stream` is a cudaStream_t for cuda and a struct plumb_simt * (kernels/simt/simt.h) for simt and
 * race. */
#ifndef PLUMB_KERNELS_LAUNCHER_H
#define PLUMB_KERNELS_LAUNCHER_H

#ifdef __cplusplus
#define PLUMB_LAUNCHER_LINKAGE extern "C"
#else
#define PLUMB_LAUNCHER_LINKAGE extern
#endif

#define PLUMB_DECLARE_LAUNCHER(name, ...)                                                                                  \
	PLUMB_LAUNCHER_LINKAGE int plumb_race_##name(__VA_ARGS__);                                                         \
	PLUMB_LAUNCHER_LINKAGE int plumb_simt_##name(__VA_ARGS__);                                                         \
	PLUMB_LAUNCHER_LINKAGE int plumb_cuda_##name(__VA_ARGS__)

#endif
