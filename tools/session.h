/* SPDX-License-Identifier: MIT */
/* What a decoding command opens: a checkpoint and the plan of functions that the options ask for. */
#ifndef PLUMB_TOOLS_SESSION_H
#define PLUMB_TOOLS_SESSION_H

#include "core/checkpoint.h"
#include "core/decoder.h"
#include "tools/options.h"

struct session {
	struct plumb_checkpoint *checkpoint;
	const struct plumb_model *model;
	struct plumb_plan plan;
	char describes[256]; /* "set ref (oracle, f32)" and the like */
};

/* Open what the options name. Released by session_close also after an error. */
int session_open(const struct set_options *options, struct session *out, struct plumb_error *err);
void session_close(struct session *session);

#endif
