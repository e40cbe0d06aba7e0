/* SPDX-License-Identifier: MIT */
/* Strict reading of JSON that somebody else wrote.
 *
 * cJSON builds the tree, but only of text that a scan in front of it has passed: RFC 8259 grammar to the letter (cJSON
 * lets 01, control characters in strings and bytes after the end through), valid UTF-8, no NUL in any spelling, no
 * number longer than cJSON reads, nesting and number of values within the caller's limits, no key twice in an object.
 * The reading functions at the end take what is there or say in one line what is wrong with it. */
#ifndef PLUMB_CORE_JSON_H
#define PLUMB_CORE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/file.h"
#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

struct plumb_json_limits {
	size_t bytes;  /* of the text */
	int depth;     /* of arrays and objects inside one another, at most 256 */
	size_t values; /* of every kind; the tree takes about 100 bytes for each */
};

/* Parse size bytes of text (no terminator needed). name: what messages call it, e.g. the path.
 * *out is set on success and released by cJSON_Delete.
 * Errors: PLUMB_BAD_INPUT, one line naming name, byte and line. */
int plumb_json_parse(const char *text, size_t size, const char *name, const struct plumb_json_limits *limits,
	struct cJSON **out, struct plumb_error *err);

/* The same of a whole regular file. */
int plumb_json_read(const char *path, const struct plumb_json_limits *limits, struct cJSON **out, struct plumb_error *err);

/* The fields of one object. The first failure is kept: later reads return the fallback (or zero) and leave the message
 * alone, so that a caller reads all fields and looks at status once. */
struct plumb_json_object {
	const struct cJSON *object;
	const char *file; /* for messages: the file */
	const char *path; /* and the object inside it: "" or e.g. "text_config." */
	struct plumb_error *err;
	int status; /* PLUMB_OK or the first failure */

	/* The names of fields that this kind of object has, NULL at the end: a field that is absent where another one has
	 * nearly its name, and a name that is not among these, is refused. NULL: not looked for. */
	const char *const *names;
	/* Room for "norm_topk_prob true, seed 1234": fields that were absent, each with the fallback it was given. NULL: not
	 * kept. What is beyond the room is left out. */
	char *absent;
	size_t absent_size;
};

/* Field of that name, or NULL; an explicit null counts as absent. */
const struct cJSON *plumb_json_field(const struct plumb_json_object *o, const char *key);

/* A number without fraction (4 or 4.0) in min..max. fallback NULL: the field must be there.
 * LIMIT: cJSON keeps binary64, so a whole number beyond +-2^53 is refused whatever max says. */
int64_t plumb_json_int(struct plumb_json_object *o, const char *key, int64_t min, int64_t max, const int64_t *fallback);

/* A finite number in min..max. */
double plumb_json_number(struct plumb_json_object *o, const char *key, double min, double max, const double *fallback);

bool plumb_json_bool(struct plumb_json_object *o, const char *key, const bool *fallback);

/* A string; it lives as long as the tree. */
const char *plumb_json_string(struct plumb_json_object *o, const char *key, const char *fallback);

/* An array or an object; NULL when it is absent and not required. */
const struct cJSON *plumb_json_array(struct plumb_json_object *o, const char *key, bool required);
const struct cJSON *plumb_json_child(struct plumb_json_object *o, const char *key, bool required);

/* The whole number of an item; false: it is not one, or outside min..max. */
bool plumb_json_item_int(const struct cJSON *item, int64_t min, int64_t max, int64_t *out);

/* What an item is, for messages: `-3`, `"abc"`, `null`, `an array`. Returns text. */
const char *plumb_json_show(const struct cJSON *item, char text[64]);

#ifdef __cplusplus
}
#endif
#endif
