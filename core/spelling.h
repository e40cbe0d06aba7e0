/* SPDX-License-Identifier: MIT */
/* How far two words are apart: for messages that ask whether another one was meant. */
#ifndef PLUMB_CORE_SPELLING_H
#define PLUMB_CORE_SPELLING_H

#ifdef __cplusplus
extern "C" {
#endif

enum { PLUMB_SPELLING_FAR = 64 };

/* Letters to insert, remove, replace, or swap with their neighbour (once) until a is b; PLUMB_SPELLING_FAR when one of them is
 * that long or longer. */
int plumb_spelling_distance(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
