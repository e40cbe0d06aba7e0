/* SPDX-License-Identifier: MIT */
/* What a decoding command opens: a checkpoint or a synthetic model, and the plan of functions that the options ask for. */
#ifndef PLUMB_TOOLS_SESSION_H
#define PLUMB_TOOLS_SESSION_H

#include "core/checkpoint.h"
#include "core/decoder.h"
#include "core/profile.h"
#include "core/requantise.h"
#include "core/synthetic.h"
#include "opt/device.h"
#include "opt/guard.h"
#include "opt/user.h"
#include "tools/options.h"

struct session {
	struct plumb_checkpoint *checkpoint;   /* NULL: a synthetic model */
	struct plumb_synthetic *synthetic;     /* NULL: a checkpoint */
	struct plumb_profile profile;          /* where one is named */
	struct plumb_requantised *requantised; /* NULL: held as stored */
	int64_t scanned;                       /* values; -1: not asked for */
	const struct plumb_model *model;
	const struct plumb_config *cfg; /* of the model, or of a case */
	struct plumb_plan plan;
	struct plumb_binding base;   /* what --set says, where no --op does */
	struct plumb_device *device; /* NULL: nothing runs from the opt set */
	bool all_opt;                /* every op of every layer runs from the opt set */
	struct plumb_guard *guard;   /* NULL: not asked for */
	struct plumb_user *user;     /* kernels from shared objects; NULL: none */
	struct plumb_runner runner;  /* of the user's kernels, or of the guard */
	char describes[768];         /* "set opt on simt, seed 0; policy f32" and the like */
};

/* Whether an --op names a shared object. */
bool session_wants_user(const struct set_options *options);

/* Open what the options name. Released by session_close also after an error. mark: of the users' kernels, may be NULL. */
int session_open_marked(
	const struct set_options *options, struct plumb_user_mark *mark, struct session *out, struct plumb_error *err);
int session_open(const struct set_options *options, struct session *out, struct plumb_error *err);
/* Without a checkpoint: for a call whose config comes from elsewhere. model is then NULL. cfg NULL: as session_open_marked. */
int session_open_config(const struct set_options *options, struct plumb_user_mark *mark, const struct plumb_config *cfg,
	struct session *out, struct plumb_error *err);
void session_close(struct session *session);

/* Formats of caches and state: the profile's, then what --kv-format and --state-format say. */
int session_formats(const struct session *session, const struct set_options *options, struct plumb_decoder_options *out,
	struct plumb_error *err);

/* Whether an --op of the options speaks of an op in a layer: it names both, or a file of all= has taken that seat. */
bool session_is_asked(const struct session *session, const struct set_options *options, enum plumb_op op, int layer);

/* What a decoder of this session runs through: that of the users' kernels or of the guard, or NULL. */
const struct plumb_runner *session_runner(const struct session *session);

#endif
