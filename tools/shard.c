/* SPDX-License-Identifier: MIT */
#include "tools/shard.h"

#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/sha256.h"
#include "tools/origin.h"

int shard_parse(const char *text, struct shard *out, struct plumb_error *err)
{
	char *end;

	*out = (struct shard){1, 1};
	if (!text)
		return PLUMB_OK;
	errno = 0;
	long long index = strtoll(text, &end, 10), of = 0;
	bool good = *text >= '0' && *text <= '9' && *end == '/' && end[1] >= '0' && end[1] <= '9';
	if (good) {
		of = strtoll(end + 1, &end, 10);
		good = !*end && errno == 0 && index >= 1 && index <= of && of <= SHARDS_MOST;
	}
	if (!good)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--shard is '%.40s', expected I/N with 1 <= I <= N <= %d", text, SHARDS_MOST);
	*out = (struct shard){index, of};
	return PLUMB_OK;
}

bool shard_takes(const struct shard *shard, int64_t position)
{
	return position % shard->of == shard->index - 1;
}

int shard_share(const struct shard *shard, const double *weight, int64_t units, bool *mine, struct plumb_error *err)
{
	double *load = calloc((size_t)shard->of, sizeof *load);
	bool *given = calloc((size_t)units + 1, sizeof *given);

	if (!load || !given) {
		free(load);
		free(given);
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for --shard");
	}
	for (int64_t n = 0; n < units; n++) {
		int64_t largest = -1, least = 0;
		for (int64_t u = 0; u < units; u++)
			if (!given[u] && (largest < 0 || weight[u] > weight[largest]))
				largest = u;
		for (int64_t s = 1; s < shard->of; s++)
			if (load[s] < load[least])
				least = s;
		given[largest] = true;
		load[least] += weight[largest];
		mine[largest] = least == shard->index - 1;
	}
	free(load);
	free(given);
	return PLUMB_OK;
}

struct cJSON *shard_json(struct cJSON *root, const char *command, const struct shard *shard, int64_t units)
{
	cJSON *o = cJSON_AddObjectToObject(root, "shard");

	cJSON_AddStringToObject(o, "format", "plumb shard 1");
	cJSON_AddStringToObject(o, "command", command);
	cJSON_AddNumberToObject(o, "index", (double)shard->index);
	cJSON_AddNumberToObject(o, "of", (double)shard->of);
	cJSON_AddNumberToObject(o, "total", (double)units);
	cJSON_AddObjectToObject(o, "inputs");
	shard_json_input(o, "commit", origin_commit()); /* parts of one run are by one program */
	cJSON_AddArrayToObject(o, "units");
	return o;
}

/* cJSON wants UTF-8, a path promises nothing: what is not ASCII text becomes '?'. */
static void add_text(cJSON *object, const char *name, const char *value)
{
	char text[1024];

	snprintf(text, sizeof text, "%s", value);
	for (unsigned char *p = (unsigned char *)text; *p; p++)
		if (*p < 0x20 || *p >= 0x7f)
			*p = '?';
	cJSON_AddStringToObject(object, name, text);
}

void shard_json_input(struct cJSON *object, const char *name, const char *value)
{
	add_text(cJSON_GetObjectItemCaseSensitive(object, "inputs"), name, value);
}

enum { SAMPLE = 4096, STRIDE = 1 << 20 };
static const off_t WHOLE = (off_t)1 << 30; /* bytes of a file that are read in full */

void shard_json_file(struct cJSON *object, const char *name, const char *path)
{
	char block[65536], text[96] = "unreadable";
	struct plumb_sha256 sha;
	struct stat st;
	size_t n;
	FILE *f = fopen(path, "rb");

	if (!f || fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
		if (f)
			fclose(f);
		shard_json_input(object, name, text);
		return;
	}
	const bool whole = st.st_size <= WHOLE;
	plumb_sha256_begin(&sha);
	if (!whole) {
		snprintf(block, sizeof block, "%lld\n", (long long)st.st_size);
		plumb_sha256_text(&sha, block);
	}
	for (off_t at = 0; (n = fread(block, 1, whole ? sizeof block : SAMPLE, f)) > 0;) {
		plumb_sha256_add(&sha, block, n);
		at += STRIDE;
		if (!whole && fseeko(f, at, SEEK_SET) != 0)
			break;
	}
	if (!ferror(f)) {
		char hex[65];
		snprintf(text, sizeof text, "sha256%s:%s", whole ? "" : "-sampled", plumb_sha256_end(&sha, hex));
	}
	shard_json_input(object, name, text);
	fclose(f);
}

static cJSON *add_verdict(cJSON *array, const char *name, enum shard_verdict verdict, const char *text)
{
	static const char *const words[] = {"pass", "fail", "skip"};
	cJSON *o = cJSON_CreateObject();

	cJSON_AddItemToArray(array, o);
	add_text(o, "name", name);
	cJSON_AddStringToObject(o, "verdict", words[verdict]);
	if (text && *text)
		add_text(o, "text", text);
	return o;
}

void shard_json_unit(struct cJSON *object, int64_t position, const char *name, enum shard_verdict verdict, const char *text)
{
	cJSON *o = add_verdict(cJSON_GetObjectItemCaseSensitive(object, "units"), name, verdict, text);
	cJSON_AddNumberToObject(o, "unit", (double)position);
}

void shard_json_also(struct cJSON *object, const char *name, enum shard_verdict verdict, const char *text)
{
	cJSON *array = cJSON_GetObjectItemCaseSensitive(object, "also");
	add_verdict(array ? array : cJSON_AddArrayToObject(object, "also"), name, verdict, text);
}

void shard_json_failure(struct cJSON *object, const char *text)
{
	add_text(object, "failure", text);
}

void shard_json_digest(struct cJSON *object, const struct plumb_digest *digest)
{
	char text[33];
	cJSON_AddStringToObject(object, "digest", plumb_digest_show(digest, text));
}

void shard_json_status(struct cJSON *object, int status)
{
	cJSON_AddNumberToObject(object, "status", status);
}
