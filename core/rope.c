/* SPDX-License-Identifier: MIT */
#include "core/rope.h"

#include <math.h>

#include "core/numeric.h"

void plumb_rope_table(const struct plumb_config *cfg, enum plumb_policy policy, int64_t positions, float *table)
{
	int64_t half = cfg->rotary_dim / 2;
	for (int64_t i = 0; i < half; i++) {
		float exponent = (float)(2 * i) / (float)cfg->rotary_dim;
		float inv_freq = 1.0f / (float)pow(cfg->rope_theta, (double)exponent);
		for (int64_t p = 0; p < positions; p++) {
			float angle = (float)p * inv_freq;
			float c = (float)cos((double)angle), s = (float)sin((double)angle);
			if (policy == PLUMB_POLICY_BF16) {
				c = plumb_round_bf16(c);
				s = plumb_round_bf16(s);
			}
			table[p * 2 * half + i] = c;
			table[p * 2 * half + half + i] = s;
		}
	}
}
