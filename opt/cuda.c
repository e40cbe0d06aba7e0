/* SPDX-License-Identifier: MIT */
/* The cuda device: everything of the CUDA runtime that the host side uses, in C. Built with -DPLUMB_CUDA=ON only. */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

#include "opt/device_private.h"

struct plumb_gpu {
	cudaStream_t stream;
	cudaEvent_t begin, end;
};

/* Status of a runtime call: PLUMB_OK, or a message naming the op under way, the call and the reason. */
static enum plumb_status kind_of(cudaError_t e)
{
	switch (e) {
	case cudaErrorNoDevice:
	case cudaErrorInvalidDevice:
	case cudaErrorInsufficientDriver:
	case cudaErrorSystemDriverMismatch:
	case cudaErrorSystemNotReady:
	case cudaErrorCompatNotSupportedOnDevice:
	case cudaErrorDevicesUnavailable:
	case cudaErrorNoKernelImageForDevice: /* built for other architectures than this card's */
	case cudaErrorUnsupportedPtxVersion:
	case cudaErrorStubLibrary:
		return PLUMB_NO_DEVICE;
	case cudaErrorIllegalAddress:
	case cudaErrorMisalignedAddress:
	case cudaErrorInvalidAddressSpace:
	case cudaErrorIllegalInstruction:
	case cudaErrorInvalidPc:
	case cudaErrorHardwareStackError:
	case cudaErrorLaunchFailure:
	case cudaErrorLaunchTimeout:
	case cudaErrorAssert:
		return PLUMB_MISMATCH; /* a kernel did what is undefined: the kernel is wrong, not its caller */
	default:
		return PLUMB_BAD_INPUT;
	}
}

static int check(const struct plumb_device *d, const char *call, cudaError_t e, struct plumb_error *err)
{
	if (e == cudaSuccess)
		return PLUMB_OK;
	(void)cudaGetLastError(); /* told here; not left behind for an unrelated call */
	return plumb_fail(err, kind_of(e), "%s%son cuda: %s: %s (%s)", d->op ? d->op : "", d->op ? " " : "", call,
		cudaGetErrorString(e), cudaGetErrorName(e));
}
#define CHECK(d, err, function, ...) check(d, #function, function(__VA_ARGS__), err)

/* "13.0" of 13000, as both version calls count. */
static void version(int number, char text[16])
{
	snprintf(text, 16, "%d.%d", number / 1000 % 100, number % 1000 / 10);
}

static void gpu_close(struct plumb_device *d)
{
	struct plumb_gpu *g = d->gpu;

	if (!g)
		return;
	/* nothing can be done about a failure to release, and a failed launch fails these too */
	if (g->begin)
		(void)cudaEventDestroy(g->begin);
	if (g->end)
		(void)cudaEventDestroy(g->end);
	if (g->stream)
		(void)cudaStreamDestroy(g->stream);
	(void)cudaGetLastError();
	free(g);
	d->gpu = NULL;
	d->stream = NULL;
}

static int gpu_open(struct plumb_device *d, struct plumb_error *err)
{
	struct cudaDeviceProp p;
	int present = 0, driver = 0, runtime = 0, status;
	char driver_text[16], runtime_text[16];
	cudaError_t e = cudaGetDeviceCount(&present);

	if (e != cudaSuccess) {
		(void)cudaGetLastError();
		return plumb_fail(err, PLUMB_NO_DEVICE, "device cuda: no usable GPU: cudaGetDeviceCount: %s (%s)",
			cudaGetErrorString(e), cudaGetErrorName(e));
	}
	if (d->options.ordinal < 0 || d->options.ordinal >= present)
		return plumb_fail(err, PLUMB_NO_DEVICE, "device cuda: GPU %d was asked, this machine has %d",
			d->options.ordinal, present);
	status = CHECK(d, err, cudaSetDevice, d->options.ordinal);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaGetDeviceProperties, &p, d->options.ordinal);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaDriverGetVersion, &driver);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaRuntimeGetVersion, &runtime);
	if (status != PLUMB_OK)
		return status;
	d->gpu = calloc(1, sizeof *d->gpu);
	if (!d->gpu)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a device");
	status = CHECK(d, err, cudaStreamCreateWithFlags, &d->gpu->stream, cudaStreamNonBlocking);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaEventCreate, &d->gpu->begin);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaEventCreate, &d->gpu->end);
	if (status != PLUMB_OK) {
		gpu_close(d);
		return status;
	}
	d->stream = d->gpu->stream;
	d->cache_bytes = (size_t)p.l2CacheSize;
	version(driver, driver_text);
	version(runtime, runtime_text);
	snprintf(d->description, sizeof d->description, "%.200s, sm_%d%d, driver %s, runtime %s", p.name, p.major, p.minor,
		driver_text, runtime_text);
	return PLUMB_OK;
}

static void *gpu_take(struct plumb_device *d, size_t bytes, struct plumb_error *err)
{
	void *m = NULL;
	cudaError_t e = cudaMalloc(&m, bytes ? bytes : 1);

	if (e == cudaSuccess)
		return m;
	(void)cudaGetLastError();
	plumb_fail(err, PLUMB_BAD_INPUT, "%s%son cuda: cudaMalloc of %zu bytes: %s (%s)", d->op ? d->op : "",
		d->op ? " " : "", bytes, cudaGetErrorString(e), cudaGetErrorName(e));
	return NULL;
}

static void gpu_give(struct plumb_device *d, void *memory)
{
	(void)d;
	/* waits for launches that may use it; their failure is told by the next sync, so not lost here */
	if (memory && cudaFree(memory) != cudaSuccess)
		(void)cudaGetLastError();
}

static int gpu_sync(struct plumb_device *d, struct plumb_error *err)
{
	return CHECK(d, err, cudaStreamSynchronize, d->gpu->stream);
}

static int gpu_upload(struct plumb_device *d, void *to, const void *from, size_t bytes, struct plumb_error *err)
{
	int status = CHECK(d, err, cudaMemcpyAsync, to, from, bytes, cudaMemcpyHostToDevice, d->gpu->stream);
	/* where the GPU reads pageable memory itself (GB10) the copy may still be under way: the caller's bytes must
	 * stay */
	return status != PLUMB_OK || d->capturing ? status : gpu_sync(d, err);
}

static int gpu_download(struct plumb_device *d, void *to, const void *from, size_t bytes, struct plumb_error *err)
{
	int status = CHECK(d, err, cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToHost, d->gpu->stream);
	return status != PLUMB_OK || d->capturing ? status : gpu_sync(d, err);
}

static int gpu_time_begin(struct plumb_device *d, struct plumb_error *err)
{
	return CHECK(d, err, cudaEventRecord, d->gpu->begin, d->gpu->stream);
}

static int gpu_time_end(struct plumb_device *d, double *microseconds, struct plumb_error *err)
{
	float milliseconds = 0.0f;
	int status = CHECK(d, err, cudaEventRecord, d->gpu->end, d->gpu->stream);

	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaEventSynchronize, d->gpu->end);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaEventElapsedTime, &milliseconds, d->gpu->begin, d->gpu->end);
	*microseconds = (double)milliseconds * 1e3;
	return status;
}

static enum plumb_status gpu_reason(const struct plumb_device *d, int status, const char **text)
{
	(void)d;
	*text = cudaGetErrorString((cudaError_t)status);
	return kind_of((cudaError_t)status);
}

/* ---- graphs ---- */

static int gpu_capture_begin(struct plumb_device *d, struct plumb_error *err)
{
	int status = CHECK(d, err, cudaStreamBeginCapture, d->gpu->stream, cudaStreamCaptureModeThreadLocal);
	d->capturing = status == PLUMB_OK;
	return status;
}

static void gpu_capture_drop(struct plumb_device *d)
{
	cudaGraph_t graph = NULL;

	d->capturing = false;
	if (cudaStreamEndCapture(d->gpu->stream, &graph) == cudaSuccess && graph)
		(void)cudaGraphDestroy(graph);
	(void)cudaGetLastError(); /* what made the capture fail has been told */
}

static int count_kernels(struct plumb_device *d, cudaGraph_t graph, struct plumb_error *err)
{
	size_t nodes = 0;
	cudaGraphNode_t *node = NULL;
	int status = CHECK(d, err, cudaGraphGetNodes, graph, NULL, &nodes);

	if (status == PLUMB_OK && !(node = malloc((nodes + 1) * sizeof *node)))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu nodes of a graph", nodes);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaGraphGetNodes, graph, node, &nodes);
	d->recorded = 0;
	for (size_t i = 0; i < nodes && status == PLUMB_OK; i++) {
		enum cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
		status = CHECK(d, err, cudaGraphNodeGetType, node[i], &type);
		d->recorded += type == cudaGraphNodeTypeKernel;
	}
	free(node);
	return status;
}

/* Edges that let a kernel begin before its predecessor has ended. */
static int count_overlaps(struct plumb_device *d, cudaGraph_t graph, struct plumb_error *err)
{
	size_t edges = 0;
	cudaGraphNode_t *end = NULL;
	cudaGraphEdgeData *edge = NULL;
	int status = CHECK(d, err, cudaGraphGetEdges, graph, NULL, NULL, NULL, &edges);

	d->overlaps = 0;
	if (status != PLUMB_OK || edges == 0)
		return status;
	end = malloc(2 * edges * sizeof *end);
	edge = malloc(edges * sizeof *edge);
	if (!end || !edge)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu edges of a graph", edges);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaGraphGetEdges, graph, end, end + edges, edge, &edges);
	for (size_t i = 0; i < edges && status == PLUMB_OK; i++)
		d->overlaps += edge[i].type == cudaGraphDependencyTypeProgrammatic;
	free(end);
	free(edge);
	return status;
}

static int gpu_capture_end(struct plumb_device *d, void **out, struct plumb_error *err)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	int status;

	d->capturing = false;
	status = CHECK(d, err, cudaStreamEndCapture, d->gpu->stream, &graph);
	if (status == PLUMB_OK)
		status = count_kernels(d, graph, err);
	if (status == PLUMB_OK)
		status = count_overlaps(d, graph, err);
	if (status == PLUMB_OK)
		status = CHECK(d, err, cudaGraphInstantiate, &exec, graph, 0);
	if (graph && cudaGraphDestroy(graph) != cudaSuccess)
		(void)cudaGetLastError();
	if (status == PLUMB_OK)
		*out = exec;
	return status;
}

static int gpu_graph_launch(struct plumb_device *d, void *graph, struct plumb_error *err)
{
	int status = CHECK(d, err, cudaGraphLaunch, graph, d->gpu->stream);
	return status == PLUMB_OK ? gpu_sync(d, err) : status;
}

/* An event between every two runs: while one runs the next is being queued, so that the host's part of a launch shows
 * only where it is longer than the graph. */
static int gpu_graph_time(
	struct plumb_device *d, void *graph, int64_t repeat, double *microseconds, struct plumb_error *err)
{
	const size_t events = (size_t)repeat + 2;
	cudaEvent_t *event = calloc(events, sizeof(cudaEvent_t));
	int status = event ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu events", events);

	for (size_t i = 0; i < events && status == PLUMB_OK; i++)
		status = CHECK(d, err, cudaEventCreate, &event[i]);
	for (size_t i = 0; i < events && status == PLUMB_OK; i++) {
		if (i > 0)
			status = CHECK(d, err, cudaGraphLaunch, graph, d->gpu->stream);
		if (status == PLUMB_OK)
			status = CHECK(d, err, cudaEventRecord, event[i], d->gpu->stream);
	}
	if (status == PLUMB_OK)
		status = gpu_sync(d, err);
	for (size_t i = 2; i < events && status == PLUMB_OK; i++) {
		float milliseconds = 0.0f;
		status = CHECK(d, err, cudaEventElapsedTime, &milliseconds, event[i - 1], event[i]);
		microseconds[i - 2] = (double)milliseconds * 1e3;
	}
	for (size_t i = 0; event && i < events; i++)
		if (event[i])
			(void)cudaEventDestroy(event[i]);
	free(event);
	return status;
}

static void gpu_range(const char *name)
{
	if (name)
		nvtxRangePushA(name);
	else
		nvtxRangePop();
}

static void gpu_graph_free(void *graph)
{
	if (graph && cudaGraphExecDestroy(graph) != cudaSuccess)
		(void)cudaGetLastError();
}

static void *gpu_pinned_take(struct plumb_device *d, size_t bytes, struct plumb_error *err)
{
	void *m = NULL;
	return CHECK(d, err, cudaMallocHost, &m, bytes) == PLUMB_OK ? m : NULL;
}

static void gpu_pinned_give(void *memory)
{
	if (memory && cudaFreeHost(memory) != cudaSuccess)
		(void)cudaGetLastError();
}

const struct plumb_backend plumb_backend_cuda = {
	.name = "cuda",
	.open = gpu_open,
	.close = gpu_close,
	.take = gpu_take,
	.give = gpu_give,
	.upload = gpu_upload,
	.download = gpu_download,
	.sync = gpu_sync,
	.time_begin = gpu_time_begin,
	.time_end = gpu_time_end,
	.reason = gpu_reason,
	.capture_begin = gpu_capture_begin,
	.capture_end = gpu_capture_end,
	.capture_drop = gpu_capture_drop,
	.graph_launch = gpu_graph_launch,
	.graph_time = gpu_graph_time,
	.graph_free = gpu_graph_free,
	.pinned_take = gpu_pinned_take,
	.pinned_give = gpu_pinned_give,
	.range = gpu_range,
};
