/* SPDX-License-Identifier: MIT */
/* A copy has no order and no rounding: the oracle is its own twin. */
#include "ref/ref.h"
#include "ref/twin/twin.h"

int embed_twin(const struct plumb_env *env, const void *args)
{
	return embed_ref(env, args);
}
