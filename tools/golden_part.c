/* SPDX-License-Identifier: MIT */
#include "tools/golden_part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cache.h"
#include "core/sha256.h"

/* Both files begin with it; host byte order follows from the numbers after it. */
static const char part_magic[32] = "plumb golden part 1\n", state_magic[32] = "plumb golden state 1\n";

struct part_header {
	char magic[32];
	char fingerprint[64];
	int64_t bytes;
};

struct state_header {
	char magic[32];
	char fingerprint[64];
	struct golden_point point;
};

static int fail(const char *path, const char *what, struct plumb_error *err)
{
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: %s", path, what, strerror(errno));
}

int golden_part_write(struct golden_part *part, int64_t offset, const void *data, int64_t size, struct plumb_error *err)
{
	const char *from = data;

	while (size > 0) {
		ssize_t n = pwrite(part->fd, from, (size_t)size, offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(part->path, "cannot write", err);
		from += n;
		offset += n;
		size -= n;
	}
	return PLUMB_OK;
}

int golden_part_read(struct golden_part *part, int64_t offset, void *data, int64_t size, struct plumb_error *err)
{
	char *to = data;

	while (size > 0) {
		ssize_t n = pread(part->fd, to, (size_t)size, offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: ends at byte %lld, expected more", part->path,
				(long long)offset);
		if (n < 0)
			return fail(part->path, "cannot read", err);
		to += n;
		offset += n;
		size -= n;
	}
	return PLUMB_OK;
}

/* ---- the state of a decoder, through one function for both directions ---- */

struct stream {
	FILE *f;
	bool writes;
	struct plumb_sha256 sha;
	bool failed;
};

static void pass(struct stream *s, void *data, size_t size)
{
	if (s->failed)
		return;
	if (s->writes)
		s->failed = fwrite(data, 1, size, s->f) != size;
	else
		s->failed = fread(data, 1, size, s->f) != size;
	if (!s->failed)
		plumb_sha256_add(&s->sha, data, size);
}

/* Rows as they lie there: exact in every format. */
static void pass_cache(struct stream *s, const struct plumb_cache *cache, int64_t rows)
{
	for (int64_t r = 0; r < rows && r < cache->rows && !s->failed; r++)
		pass(s, plumb_cache_row(cache, r), plumb_format_row_bytes(cache->format, cache->width));
}

static void pass_layer(
	struct stream *s, const struct plumb_config *cfg, int l, struct plumb_layer_state *state, int64_t position)
{
	if (cfg->kind[l] == PLUMB_LAYER_GDN) {
		int64_t values = cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim;
		pass(s, state->gdn.window, (size_t)(cfg->gdn_conv_taps * plumb_gdn_channels(cfg)) * sizeof(float));
		pass(s, state->gdn.s, plumb_format_row_bytes(state->gdn.format, values));
	} else {
		pass_cache(s, &state->attention.keys, position);
		pass_cache(s, &state->attention.values, position);
		pass_cache(s, &state->attention.raw_keys, position);
		pass_cache(s, &state->attention.block_keys, (position + cfg->block_tokens - 1) / cfg->block_tokens);
	}
	if (plumb_ple_of_layer(cfg, l) >= 0) {
		pass(s, state->ple.window,
			(size_t)plumb_ple_history(cfg) * (size_t)cfg->streams * (size_t)cfg->hidden * sizeof(float));
		pass(s, state->ple.history, (size_t)(cfg->ngram - 1) * sizeof(int64_t));
	}
}

static void pass_decoder(struct stream *s, struct plumb_decoder *decoder, int64_t position)
{
	const struct plumb_config *cfg = plumb_decoder_env(decoder)->cfg;

	for (int l = 0; l < cfg->layers && !s->failed; l++)
		pass_layer(s, cfg, l, plumb_decoder_state(decoder, l), position);
}

/* ---- points ---- */

int golden_part_save(
	struct golden_part *part, struct golden_point point, struct plumb_decoder *decoder, struct plumb_error *err)
{
	struct state_header header = {.point = point};
	struct stream s = {.writes = true};
	char *fresh = NULL, sum[65];
	int status = PLUMB_OK;

	header.point.saved = decoder != NULL;
	memcpy(header.magic, state_magic, sizeof header.magic);
	memcpy(header.fingerprint, part->fingerprint, sizeof header.fingerprint);
	if (asprintf(&fresh, "%s.new", part->state) < 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", part->state);
	s.f = fopen(fresh, "wb");
	if (!s.f) {
		status = fail(fresh, "cannot write", err);
		goto out;
	}
	plumb_sha256_begin(&s.sha);
	pass(&s, &header, sizeof header);
	if (decoder)
		pass_decoder(&s, decoder, point.position);
	plumb_sha256_end(&s.sha, sum);
	s.failed = s.failed || fwrite(sum, 1, 64, s.f) != 64 || fflush(s.f) != 0 || fsync(fileno(s.f)) != 0;
	if (s.failed || fdatasync(part->fd) != 0)
		status = fail(fresh, "cannot write", err);
	if (fclose(s.f) != 0 && status == PLUMB_OK)
		status = fail(fresh, "cannot write", err);
	if (status == PLUMB_OK && rename(fresh, part->state) != 0)
		status = fail(part->state, "cannot write", err);
out:
	if (status != PLUMB_OK)
		unlink(fresh);
	free(fresh);
	return status;
}

/* Read the head of the state, and hold all of the file against its sum. false: missing, damaged or of another make. */
static bool state_is_whole(const struct golden_part *part, struct state_header *header)
{
	FILE *f = fopen(part->state, "rb");
	static char buffer[1 << 16];
	struct plumb_sha256 sha;
	struct stat st;
	char sum[65], recorded[64];
	bool good = f && fstat(fileno(f), &st) == 0 && st.st_size >= (off_t)(sizeof *header + 64) &&
	            fread(header, 1, sizeof *header, f) == sizeof *header &&
	            memcmp(header->magic, state_magic, sizeof state_magic) == 0 &&
	            memcmp(header->fingerprint, part->fingerprint, 64) == 0;

	if (good) {
		int64_t left = st.st_size - 64 - (int64_t)sizeof *header;
		plumb_sha256_begin(&sha);
		plumb_sha256_add(&sha, header, sizeof *header);
		while (good && left > 0) {
			size_t n = fread(buffer, 1, left < (int64_t)sizeof buffer ? (size_t)left : sizeof buffer, f);
			good = n > 0;
			plumb_sha256_add(&sha, buffer, n);
			left -= (int64_t)n;
		}
		good = good && fread(recorded, 1, 64, f) == 64 && memcmp(plumb_sha256_end(&sha, sum), recorded, 64) == 0;
	}
	if (f)
		fclose(f);
	return good;
}

int golden_part_restore(struct golden_part *part, struct plumb_decoder *decoder, struct plumb_error *err)
{
	struct state_header header;
	struct stream s = {.writes = false};
	int status = PLUMB_OK;

	for (int64_t t = 0; t < part->point.position && status == PLUMB_OK; t++)
		status = plumb_decoder_advance(decoder, 0, err); /* the position; the id is of no call any more */
	if (status != PLUMB_OK)
		return status;
	s.f = fopen(part->state, "rb");
	if (!s.f)
		return fail(part->state, "cannot read", err);
	plumb_sha256_begin(&s.sha);
	pass(&s, &header, sizeof header);
	pass_decoder(&s, decoder, part->point.position);
	if (s.failed)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: ends within the state of a decoder", part->state);
	fclose(s.f);
	return status;
}

/* ---- the file ---- */

static int begin(struct golden_part *part, int64_t bytes, struct plumb_error *err)
{
	char block[GOLDEN_PART_HEADER] = {0};
	struct part_header header = {.bytes = bytes};

	memcpy(header.magic, part_magic, sizeof header.magic);
	memcpy(header.fingerprint, part->fingerprint, sizeof header.fingerprint);
	memcpy(block, &header, sizeof header);
	if (ftruncate(part->fd, 0) != 0 || ftruncate(part->fd, bytes) != 0)
		return fail(part->path, "cannot write", err);
	memset(&part->point, 0, sizeof part->point);
	unlink(part->state);
	return golden_part_write(part, 0, block, sizeof block, err);
}

/* Whether what is there is a part, and of this make. *fresh: nothing in it yet. */
static int look(struct golden_part *part, int64_t bytes, bool *fresh, struct plumb_error *err)
{
	struct part_header header;
	struct stat st;
	ssize_t n = pread(part->fd, &header, sizeof header, 0);

	*fresh = false;
	if (n < 0 || fstat(part->fd, &st) < 0)
		return fail(part->path, "cannot read", err);
	if (!S_ISREG(st.st_mode))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: not a regular file, expected a part of a golden file", part->path);
	if (n == (ssize_t)sizeof header) { /* stopped between the size and the header: zeros */
		static const struct part_header zero;
		*fresh = memcmp(&header, &zero, sizeof zero) == 0 && st.st_size == bytes;
	}
	if (st.st_size == 0 || *fresh) {
		*fresh = true;
		return PLUMB_OK;
	}
	if (n != (ssize_t)sizeof header || memcmp(header.magic, part_magic, sizeof part_magic) != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: not a part of a golden file; it is in the way", part->path);
	if (memcmp(header.fingerprint, part->fingerprint, 64) != 0 || header.bytes != bytes || st.st_size != bytes)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: the part of another make (other checkpoint, tokens or options); remove it to start anew",
			part->path);
	return PLUMB_OK;
}

int golden_part_open(const char *out, const char *fingerprint, int64_t bytes, bool resume, struct golden_part *part,
	const char **note, struct plumb_error *err)
{
	struct state_header header;
	bool fresh;
	int status;

	*note = NULL;
	memset(part, 0, sizeof *part);
	part->fd = -1;
	snprintf(part->fingerprint, sizeof part->fingerprint, "%s", fingerprint);
	if (asprintf(&part->path, "%s.part", out) < 0) {
		part->path = NULL;
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", out);
	}
	if (asprintf(&part->state, "%s.part-state", out) < 0) {
		part->state = NULL;
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", out);
	}
	part->fd = open(part->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (resume ? 0 : O_EXCL), 0666);
	if (part->fd < 0 && errno == EEXIST)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s is there from a make that did not finish: --resume goes on with it, or remove it", part->path);
	if (part->fd < 0)
		return fail(part->path, "cannot write", err);
	if (flock(part->fd, LOCK_EX | LOCK_NB) != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: being written by another make", part->path);
	status = look(part, bytes, &fresh, err);
	if (status != PLUMB_OK)
		return status;
	if (!fresh && state_is_whole(part, &header)) {
		part->point = header.point;
		return PLUMB_OK;
	}
	if (!fresh)
		*note = "no point to go on from yet: from the beginning";
	return begin(part, bytes, err);
}

void golden_part_close(struct golden_part *part)
{
	if (part->fd >= 0)
		close(part->fd);
	free(part->path);
	free(part->state);
	memset(part, 0, sizeof *part);
	part->fd = -1;
}

void golden_part_remove(struct golden_part *part)
{
	if (part->fd >= 0) {
		unlink(part->state);
		unlink(part->path);
	}
	golden_part_close(part);
}
