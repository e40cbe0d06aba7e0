/* SPDX-License-Identifier: MIT */
#include "golden/seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct plumb_golden_sealed plumb_golden_sealed[] = {
	{"", "format"},
	{"", "producer"},
	{"", "date"},
	{"", "model_type"},
	{"", "checkpoint"},
	{"", "config"},
	{"", "set"},
	{"", "device"},
	{"", "mode"},
	{"", "ops"},
	{"", "profile"},
	{"", "kv_format"},
	{"", "state_format"},
	{"", "ties"},
	{"fp32", "policy"},
	{"fp32", "prefill"},
	{"bf16", "policy"},
	{"bf16", "prefill"},
};
const int plumb_golden_sealed_count = sizeof plumb_golden_sealed / sizeof plumb_golden_sealed[0];

void plumb_golden_seal_text(struct plumb_sha256 *sha, const char *object, const char *name, const char *text)
{
	plumb_sha256_text(sha, "a /");
	plumb_sha256_text(sha, object);
	plumb_sha256_text(sha, " ");
	plumb_sha256_text(sha, name);
	plumb_sha256_text(sha, " ");
	plumb_sha256_text(sha, text);
	plumb_sha256_text(sha, "\n");
}

void plumb_golden_seal_integer(struct plumb_sha256 *sha, const char *object, const char *name, int64_t value)
{
	char text[24];

	snprintf(text, sizeof text, "%" PRId64, value);
	plumb_golden_seal_text(sha, object, name, text);
}

void plumb_golden_seal_dataset(struct plumb_sha256 *sha, const char *name, enum plumb_h5_type type, int rank,
	const int64_t *dim, const char *sha256)
{
	char text[24];

	plumb_sha256_text(sha, "d ");
	plumb_sha256_text(sha, name);
	plumb_sha256_text(sha, type == PLUMB_H5_FLOAT ? " f " : " i ");
	for (int i = 0; i < rank; i++) {
		snprintf(text, sizeof text, "%s%" PRId64, i ? "x" : "", dim[i]);
		plumb_sha256_text(sha, text);
	}
	plumb_sha256_text(sha, " ");
	plumb_sha256_text(sha, sha256 ? sha256 : "-");
	plumb_sha256_text(sha, "\n");
}

void plumb_golden_sum_add(struct plumb_sha256 *sha, enum plumb_h5_type type, const void *values, int64_t count)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checksums are of little-endian values"
#endif
	plumb_sha256_add(sha, values, (size_t)count * (type == PLUMB_H5_FLOAT ? sizeof(float) : sizeof(int64_t)));
}

static const char *text_attribute(const struct plumb_h5 *file, const char *object, const char *name)
{
	const struct plumb_h5_attribute *a = plumb_h5_attribute(file, object, name);

	return a && a->type == PLUMB_H5_TEXT ? a->text : NULL;
}

const char *plumb_golden_sum(const struct plumb_h5 *file, const char *name)
{
	return text_attribute(file, name, "sha256");
}

int plumb_golden_seal_check(const struct plumb_h5 *file, struct plumb_error *err)
{
	const char *recorded = text_attribute(file, "", "sha256");
	struct plumb_sha256 sha;
	char found[65];
	int64_t entries;
	const struct plumb_h5_entry *entry = plumb_h5_entries(file, &entries);

	if (!recorded)
		return PLUMB_OK;
	plumb_sha256_begin(&sha);
	for (int i = 0; i < plumb_golden_sealed_count; i++) {
		const struct plumb_golden_sealed *s = &plumb_golden_sealed[i];
		const struct plumb_h5_attribute *a = plumb_h5_attribute(file, s->object, s->name);
		if (a && a->type == PLUMB_H5_TEXT)
			plumb_golden_seal_text(&sha, s->object, s->name, a->text);
		else if (a && a->type == PLUMB_H5_INTEGER)
			plumb_golden_seal_integer(&sha, s->object, s->name, a->integer);
	}
	for (int64_t i = 0; i < entries; i++)
		if (entry[i].type != PLUMB_H5_OTHER)
			plumb_golden_seal_dataset(&sha, entry[i].name, entry[i].type, entry[i].rank, entry[i].dim,
				plumb_golden_sum(file, entry[i].name));
	if (strcmp(plumb_sha256_end(&sha, found), recorded) == 0)
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"%s: damaged or edited: names, shapes, checksums and provenance give sha256 %.16s..., its attribute "
		"sha256 is "
		"%.16s...",
		plumb_h5_path(file), found, recorded);
}

int plumb_golden_sum_check(const struct plumb_h5 *file, const char *name, struct plumb_sha256 *sha, struct plumb_error *err)
{
	const char *recorded = plumb_golden_sum(file, name);
	char found[65];

	plumb_sha256_end(sha, found);
	if (!recorded || strcmp(found, recorded) == 0)
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: damaged: its values have sha256 %.16s..., recorded is %.16s...",
		plumb_h5_path(file), name, found, recorded);
}
