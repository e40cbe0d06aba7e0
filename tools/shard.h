/* SPDX-License-Identifier: MIT */
/* --shard I/N: part I of N of a command's work, and what its JSON result says of it, so that `plumb merge` can join N results
 * into the verdict of the whole.
 *
 * The work of a command is a list of units, e.g. one a test case, in an order that inputs and options alone decide: every
 * shard makes the same list and runs its own part of it. A result holds, in the field "shard" of its root: the command, I
 * and N, the number of units of the whole list, the inputs that all shards must agree in, and the units that this one ran
 * with their verdicts. A command writes it without --shard too (then I = N = 1), so that `plumb merge ONE.json --junit FILE`
 * makes a report of any of them. */
#ifndef PLUMB_TOOLS_SHARD_H
#define PLUMB_TOOLS_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/digest.h"
#include "core/status.h"

struct cJSON;

enum { SHARDS_MOST = 4096 };

struct shard {
	int64_t index, of; /* 1 <= index <= of */
};

/* For a command's table of options; text is the const char * that shard_parse reads after it. */
#define SHARD_OPTION(text)                                                                                                 \
	{                                                                                                                  \
		"--shard", "I/N", OPTION_TEXT, (text),                                                                     \
			"run part I of N only, 1 <= I <= N; 'plumb merge' joins their --json files"                        \
	}

/* text NULL: 1/1, everything. Errors: PLUMB_BAD_INPUT naming the option, its value and what is expected. */
int shard_parse(const char *text, struct shard *out, struct plumb_error *err);

/* Whether the unit at this position of the list, from 0 on, is the shard's: position mod N. For units of about one size. */
bool shard_takes(const struct shard *shard, int64_t position);

/* The same for units of different sizes: the largest first, each to the shard that has least so far, the lower of equals.
 * mine (units): out, in full. weight (units): finite and not negative, of any unit. Errors: PLUMB_BAD_INPUT, no memory. */
int shard_share(const struct shard *shard, const double *weight, int64_t units, bool *mine, struct plumb_error *err);

/* ---- the field "shard" of a JSON result ---- */

enum shard_verdict {
	SHARD_PASS,
	SHARD_FAIL,
	SHARD_SKIP, /* could not be run here, e.g. no GPU; a whole in which nothing passed is not green */
};

/* Begin it. command: "check", "golden verify". units: of the whole list. Returns the object that the others add to. */
struct cJSON *shard_json(struct cJSON *root, const char *command, const struct shard *shard, int64_t units);
/* Something that all shards must agree in: a digest of an input, an option that changes results. name once only. */
void shard_json_input(struct cJSON *object, const char *name, const char *value);
/* The same of a file: the SHA-256 of its bytes, whatever its path ("sha256:HEX"); of one above 1 GiB that of its size and the
 * first 4 KiB of every MiB ("sha256-sampled:HEX"); of a file that cannot be read "unreadable". */
void shard_json_file(struct cJSON *object, const char *name, const char *path);
/* A unit that this shard ran. position: in the whole list. name: for people and for JUnit, "group/name" with the last slash
 * between class and name. text: why it failed or was skipped, or NULL. */
void shard_json_unit(
	struct cJSON *object, int64_t position, const char *name, enum shard_verdict verdict, const char *text);
/* A verdict beside the units, over everything that this shard ran, e.g. the error bounds of a view: no other shard has it. */
void shard_json_also(struct cJSON *object, const char *name, enum shard_verdict verdict, const char *text);
/* The run ended before it had its verdicts, e.g. a kernel crashed: its units are missing, and the whole has failed. */
void shard_json_failure(struct cJSON *object, const char *text);
/* A digest of what this shard computed; merge adds those of all up: the digest of the whole. */
void shard_json_digest(struct cJSON *object, const struct plumb_digest *digest);
/* Last: the exit status of this shard, PLUMB_OK or PLUMB_MISMATCH. */
void shard_json_status(struct cJSON *object, int status);

#endif
