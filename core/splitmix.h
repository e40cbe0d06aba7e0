/* SPDX-License-Identifier: MIT */
/* splitmix64 (Steele, Lea, Flood 2014): a counter with a finaliser behind it. The model's n-gram hash is made of it
 * (model-spec 2.4), and so is whatever else here needs 64 bits that look like no others. */
#ifndef PLUMB_CORE_SPLITMIX_H
#define PLUMB_CORE_SPLITMIX_H

#include "core/numeric.h"

#define PLUMB_SPLITMIX_STEP UINT64_C(0x9E3779B97F4A7C15) /* of the counter: 2^64 / golden ratio, made odd */

/* The finaliser: every bit of z reaches every bit of the result. One to one; 0 stays 0. */
PLUMB_FN uint64_t plumb_mix64(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

/* The number behind counter z. A generator adds the step to its counter after each. */
PLUMB_FN uint64_t plumb_splitmix64(uint64_t z)
{
	return plumb_mix64(z + PLUMB_SPLITMIX_STEP);
}

#endif
