/* SPDX-License-Identifier: MIT */
#include "opt/timing.h"

#include <stdlib.h>
#include <string.h>

#include "core/splitmix.h"
#include "kernels/stream.h"
#include "opt/device_private.h"

enum {
	PIECE_TILES = 256, /* the buffer repeats 16 MiB, so that little has to be made */
	ROUNDS = 8,        /* readings between two looks at the clock: what a launch costs then counts an eighth */
};

/* Words of no pattern, so that nothing on the way can compress them. */
static void fill(uint64_t *word, size_t words)
{
	for (size_t i = 0; i < words; i++)
		word[i] = plumb_splitmix64(i * PLUMB_SPLITMIX_STEP);
}

static uint32_t tile_sum(const unsigned char *tile)
{
	uint32_t sum = 0, word;
	for (size_t i = 0; i < PLUMB_STREAM_TILE; i += sizeof word) {
		memcpy(&word, tile + i, sizeof word);
		sum ^= word;
	}
	return sum;
}

/* Buffers of one measurement. */
struct reading {
	int64_t tiles, piece; /* of the buffer; that are made on the host */
	unsigned char *host, *data;
	uint32_t *sum, *seen;
};

static int reading_make(struct plumb_device *d, struct reading *r, struct plumb_error *err)
{
	const size_t piece = (size_t)r->piece * PLUMB_STREAM_TILE;
	int status = PLUMB_OK;

	r->host = malloc(piece);
	r->seen = malloc((size_t)r->tiles * sizeof *r->seen);
	if (!r->host || !r->seen)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a buffer to read");
	r->data = d->backend->take(d, (size_t)r->tiles * PLUMB_STREAM_TILE, err);
	r->sum = r->data ? d->backend->take(d, (size_t)r->tiles * sizeof *r->sum, err) : NULL;
	if (!r->sum)
		return PLUMB_BAD_INPUT;
	void *words = r->host;
	fill(words, piece / sizeof(uint64_t));
	for (int64_t t = 0; t < r->tiles && status == PLUMB_OK; t += r->piece)
		status = d->backend->upload(d, r->data + (size_t)t * PLUMB_STREAM_TILE, r->host, piece, err);
	return status;
}

static int reading_run(struct plumb_device *d, const struct reading *r, struct plumb_error *err)
{
	const struct plumb_env env = {.device = d, .err = err};
	return PLUMB_RUN(&env, stream_read, r->data, r->tiles, r->sum);
}

static int reading_check(struct plumb_device *d, const struct reading *r, struct plumb_error *err)
{
	int status = d->backend->download(d, r->seen, r->sum, (size_t)r->tiles * sizeof *r->seen, err);

	for (int64_t t = 0; t < r->tiles && status == PLUMB_OK; t++)
		if (r->seen[t] != tile_sum(r->host + (size_t)(t % r->piece) * PLUMB_STREAM_TILE))
			status = plumb_fail(err, PLUMB_MISMATCH,
				"stream_read on %s: tile %lld has another sum than the host's", d->backend->name,
				(long long)t);
	return status;
}

int plumb_device_read_speed(
	struct plumb_device *d, int64_t bytes, int repeat, double *bytes_per_second, struct plumb_error *err)
{
	struct reading r = {.tiles = (bytes + PLUMB_STREAM_TILE - 1) / PLUMB_STREAM_TILE, .piece = PIECE_TILES};
	double best = 0.0;
	int status;

	if (r.tiles < r.piece)
		r.piece = r.tiles > 0 ? r.tiles : 1;
	r.tiles = (r.tiles + r.piece - 1) / r.piece * r.piece;
	if (r.tiles < 1)
		r.tiles = 1;
	d->op = "stream_read";
	status = reading_make(d, &r, err);
	if (status == PLUMB_OK)
		status = reading_run(d, &r, err);
	for (int i = 0; i < repeat && status == PLUMB_OK; i++) {
		double us = 0.0;
		status = d->backend->time_begin(d, err);
		for (int k = 0; k < ROUNDS && status == PLUMB_OK; k++)
			status = reading_run(d, &r, err);
		if (status == PLUMB_OK)
			status = d->backend->time_end(d, &us, err);
		if (status == PLUMB_OK && us > 0.0) {
			const double speed = (double)ROUNDS * (double)r.tiles * PLUMB_STREAM_TILE / us * 1e6;
			best = speed > best ? speed : best;
		}
	}
	if (status == PLUMB_OK)
		status = reading_check(d, &r, err);
	*bytes_per_second = best;
	d->backend->give(d, r.data);
	d->backend->give(d, r.sum);
	free(r.host);
	free(r.seen);
	d->op = NULL;
	return status;
}

size_t plumb_device_cache_bytes(const struct plumb_device *d)
{
	return d->cache_bytes;
}

int64_t plumb_device_launches(const struct plumb_device *d)
{
	return d->simt.launches;
}

void plumb_device_range(const struct plumb_device *d, const char *name)
{
	if (d->backend->range)
		d->backend->range(name);
}
