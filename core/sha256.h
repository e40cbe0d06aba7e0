/* SPDX-License-Identifier: MIT */
/* SHA-256 (FIPS 180-4): the checksums of golden files, which any other program can check with its own library. */
#ifndef PLUMB_CORE_SHA256_H
#define PLUMB_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_sha256 {
	uint32_t h[8];
	uint64_t bytes;    /* added so far */
	uint8_t block[64]; /* bytes % 64 of them wait here */
};

void plumb_sha256_begin(struct plumb_sha256 *sha);
void plumb_sha256_add(struct plumb_sha256 *sha, const void *data, size_t size);
/* A text without its terminator. */
void plumb_sha256_text(struct plumb_sha256 *sha, const char *text);
/* 64 hexadecimal digits of what was added; the struct must be begun again. Returns text. */
const char *plumb_sha256_end(struct plumb_sha256 *sha, char text[65]);

#ifdef __cplusplus
}
#endif
#endif
