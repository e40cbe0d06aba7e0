/* SPDX-License-Identifier: MIT */
/* Work that runs other people's code: in a process of its own, so that a crash, an exit or a hang there is a finding
 * with a name, and not the end of the command. */
#ifndef PLUMB_TOOLS_CONTAIN_H
#define PLUMB_TOOLS_CONTAIN_H

#include "core/status.h"
#include "opt/user.h"

enum { CONTAIN_TIMEOUT = 300 }; /* seconds of one call; a plain C lm_head over 64 rows of the full model takes 40 */

/* Run work in a forked child, before anything of CUDA or OpenMP has been used here, and return the exit status that it
 * has for the program. work: gets self and the mark that user kernels set (opt/user.h). timeout: seconds that one call
 * of a user's code may take; 0: forever. When the child dies, or a call takes too long: PLUMB_MISMATCH if a user's code
 * has run, PLUMB_BAD_INPUT before that and while its file is loaded, with *failure set: "op attn_gate layer 3 position 12: ./mine.so crashed (SIGSEGV at
 * address 0x10)"; empty in all other cases. */
int contain(
	int (*work)(void *self, struct plumb_user_mark *mark), void *self, int64_t timeout, struct plumb_error *failure);

#endif
