/* SPDX-License-Identifier: MIT */
/* Command lines: one table of options, from which both the parser and --help are made. */
#ifndef PLUMB_TOOLS_OPTIONS_H
#define PLUMB_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/decoder.h"
#include "core/status.h"

enum { OPTIONS_MAX_REPEAT = 256 };

enum option_kind {
	OPTION_FLAG,   /* bool */
	OPTION_TEXT,   /* const char * */
	OPTION_REPEAT, /* struct option_list */
	OPTION_COUNT,  /* int64_t >= 0 */
};

struct option_list {
	const char *item[OPTIONS_MAX_REPEAT];
	int count;
};

struct option {
	const char *name;  /* "--checkpoint" */
	const char *value; /* "DIR" as help shows it; NULL for a flag */
	enum option_kind kind;
	void *place; /* of the kind's type; left alone when the option is not given */
	const char *help;
};

/* What a subcommand says of itself: help, completion and manual page are made from this and from its table of options. */
struct command {
	const char *name;     /* "check"; "golden make" */
	const char *usage;    /* "GOLDEN.h5 --checkpoint DIR [options]" */
	const char *brief;    /* one line */
	const char *about;    /* text that is filled to the width; an empty line between paragraphs */
	const char *examples; /* lines, as they are */
	const char
		*operands; /* what completion offers for operands, as in an option's value: "FILE.h5", "a|b"; NULL: files */
	const char *verbose;                /* what --verbose shows, for help; NULL: "more detail" */
	const struct command *const *parts; /* of a command that only picks one of these (NULL at the end); else NULL */
	int (*run)(int argc, char **argv);
};

/* Options that every command takes beside its own: the words of these are in tools/output.h. A table with an option of the
 * same name comes first. */
extern const struct option options_common[];
extern const int options_common_count;

/* Parse argv[1..]: options of the table and the common ones, the rest into operand (up to max_operands); what stands after
 * "--" is an operand. An empty value or operand is an error. --help prints the command's help and sets *done. Every run() calls
 * this before it does anything else and returns PLUMB_OK when *done says so: options_describe relies on it.
 * Errors: PLUMB_BAD_INPUT naming the option and what it takes. */
int options_parse(const struct command *command, const struct option *table, int options, int argc, char **argv,
	const char **operand, int max_operands, int *operands, bool *done, struct plumb_error *err);

/* Hand a command's table of options, and that of each of its parts, to fn: nothing is parsed and nothing runs. */
typedef void options_visit(void *self, const struct command *command, const struct option *table, int options);
void options_describe(const struct command *command, options_visit *fn, void *self);

/* What every command that runs a decoder takes. */
struct set_options {
	const char *checkpoint;
	const char *profile; /* name or file; NULL: as stored */
	bool scan;
	const char *synthetic;    /* name of a preset; commands that take one have SYNTHETIC_OPTIONS */
	int64_t weight_seed;      /* of a synthetic model */
	int64_t memory;           /* GiB of synthetic weights on the host; 0: default */
	const char *set;          /* ref, opt */
	const char *device;       /* simt, cuda */
	const char *mode;         /* oracle, twin */
	const char *policy;       /* f32, bf16 */
	const char *ties;         /* lower, torch; NULL: decided by the golden's producer */
	const char *layers;       /* A-B; NULL: all */
	struct option_list op;    /* NAME[@A-B]=ref|opt */
	int64_t threads;          /* 0: as OpenMP decides */
	const char *kv_format;    /* f32, bf16, fp8; NULL: as the policy says */
	const char *state_format; /* f32, f16; NULL: f32 */
	int64_t page_seed;
	int64_t seed; /* simt schedule */
	int64_t gpu;  /* which one */
	bool guard;
	int64_t timeout; /* seconds for one call of a user's kernel; 0: no limit */
	bool compares; /* for plumb check: kernels of shared objects run guarded unless once, and fused entries get a shadow */
	bool once;
};

/* The options of struct set_options, to be put into a command's table. */
#define SET_OPTIONS(s)                                                                                                     \
	{"--checkpoint", "DIR", OPTION_TEXT, &(s)->checkpoint, "checkpoint folder: config.json and safetensors"},          \
		{"--profile", "NAME|FILE", OPTION_TEXT, &(s)->profile,                                                     \
			"hold the weights in these number formats: 'plumb list profiles'"},                                \
		{"--scan", NULL, OPTION_FLAG, &(s)->scan, "read all weights first: every code must be a number"},          \
		{"--set", "ref|opt", OPTION_TEXT, &(s)->set, "which set of functions runs (default ref)"},                 \
		{"--device", "simt|cuda", OPTION_TEXT, &(s)->device, "where the opt set runs (default simt, the CPU)"},    \
		{"--mode", "oracle|twin", OPTION_TEXT, &(s)->mode,                                                         \
			"reference in binary64 (default) or in the kernels' declared order"},                              \
		{"--policy", "f32|bf16", OPTION_TEXT, &(s)->policy, "where activations are rounded (default f32)"},        \
		{"--ties", "lower|torch", OPTION_TEXT, &(s)->ties, "which of equal scores the oracle's top-k takes"},      \
		{"--kv-format", "f32|bf16|fp8", OPTION_TEXT, &(s)->kv_format,                                              \
			"how keys and values are stored (default: as the policy)"},                                        \
		{"--state-format", "f32|f16", OPTION_TEXT, &(s)->state_format,                                             \
			"how the GDN state is stored (default f32)"},                                                      \
		{"--op", "NAME[@A-B]=ref|opt|FILE.so", OPTION_REPEAT, &(s)->op,                                            \
			"run one op, in layers A to B, from a set or a shared object (all=FILE.so: every op it offers)"},  \
		{"--threads", "N", OPTION_COUNT, &(s)->threads, "threads of the reference (the bits do not change)"},      \
		{"--page-seed", "N", OPTION_COUNT, &(s)->page_seed, "shuffle the cache pages (results do not change)"},    \
		{"--seed", "N", OPTION_COUNT, &(s)->seed, "order of warps and blocks on simt (0: natural)"},               \
		{"--gpu", "N", OPTION_COUNT, &(s)->gpu, "which GPU, for --device cuda"},                                   \
		{"--guard", NULL, OPTION_FLAG, &(s)->guard, "run every op twice between guard zones, with two poisons"},   \
	{                                                                                                                  \
		"--timeout", "N", OPTION_COUNT, &(s)->timeout,                                                             \
			"seconds that one call of a shared object's kernel may take (default 300; 0: no limit)"            \
	}

/* The same for commands that also run a model without a checkpoint. */
#define SYNTHETIC_OPTIONS(s)                                                                                               \
	{"--synthetic", "PRESET", OPTION_TEXT, &(s)->synthetic,                                                            \
		"instead of a checkpoint: a generated model; 'plumb list presets'"},                                       \
		{"--weight-seed", "N", OPTION_COUNT, &(s)->weight_seed, "seed of its weights (default 0)"},                \
	{                                                                                                                  \
		"--memory", "GiB", OPTION_COUNT, &(s)->memory, "weights kept on the host (default 14)"                     \
	}

/* Words to values; errors name the option. */
int options_policy(const struct set_options *s, enum plumb_policy *out, struct plumb_error *err);
int options_ties(const struct set_options *s, enum plumb_ties fallback, enum plumb_ties *out, struct plumb_error *err);
/* --kv-format and --state-format into own_caches, caches and state; what is not given is left alone. */
int options_formats(const struct set_options *s, struct plumb_decoder_options *out, struct plumb_error *err);
/* "A-B" or "A" into first..last, 0..L; "out" is what lies outside the layers. NULL: everything. */
int options_layers(const char *text, int layers, int *first, int *last, struct plumb_error *err);

/* A whole number in 0..most, in decimal digits; name: of the option, for the message. */
int options_count(const char *name, const char *text, int64_t most, int64_t *out, struct plumb_error *err);

/* Ids "1,2,3" into a malloc'ed array. */
int options_tokens(const char *text, int32_t **out, int64_t *count, struct plumb_error *err);

#endif
