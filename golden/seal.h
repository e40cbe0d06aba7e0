/* SPDX-License-Identifier: MIT */
/* Checksums of golden files: of each dataset's values, and of everything else that a golden file says (the seal).
 *
 * The text attribute `sha256` of a dataset is the SHA-256 of its values: of little-endian binary32 for floats, of
 * little-endian int64 for integers, row-major. A file whose root has a text attribute `sha256` is sealed: that is the
 * SHA-256 of these lines, each ended by a newline,
 *
 *   a OBJECT NAME VALUE    an attribute of plumb_golden_sealed[], in its order, where it is there; OBJECT is / or /fp32
 *   d NAME KIND SIZES SHA  a dataset of numbers, in byte order of names; KIND f or i, SIZES like 7x64, SHA its sha256 or -
 *
 * so that a dataset that went missing, was renamed or reshaped, and provenance that was edited, are found when a file is
 * opened. Files without these attributes are taken as they are. What they find is damage and mistakes, not forgery. */
#ifndef PLUMB_GOLDEN_SEAL_H
#define PLUMB_GOLDEN_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sha256.h"
#include "golden/h5.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_golden_sealed {
	const char *object, *name; /* "" is the root */
};
extern const struct plumb_golden_sealed plumb_golden_sealed[];
extern const int plumb_golden_sealed_count;

/* Lines of the seal; the caller keeps their order. */
void plumb_golden_seal_text(struct plumb_sha256 *sha, const char *object, const char *name, const char *text);
void plumb_golden_seal_integer(struct plumb_sha256 *sha, const char *object, const char *name, int64_t value);
void plumb_golden_seal_dataset(struct plumb_sha256 *sha, const char *name, enum plumb_h5_type type, int rank,
	const int64_t *dim, const char *sha256);

/* Values on their way into a dataset's checksum: count f32 or i64. */
void plumb_golden_sum_add(struct plumb_sha256 *sha, enum plumb_h5_type type, const void *values, int64_t count);

/* The recorded checksum of a dataset, or NULL. */
const char *plumb_golden_sum(const struct plumb_h5 *file, const char *name);

/* Hold an open file against its seal; one without is fine. Errors: PLUMB_BAD_INPUT. */
int plumb_golden_seal_check(const struct plumb_h5 *file, struct plumb_error *err);

/* Hold what was read of a dataset against its checksum; one without is fine. Errors: PLUMB_BAD_INPUT naming it. */
int plumb_golden_sum_check(
	const struct plumb_h5 *file, const char *name, struct plumb_sha256 *sha, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
