/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzing: a target is one file that hands an input to what decodes it in SODA, the real function
 * with what is behind it.  clang's libFuzzer makes up inputs (`./check fuzz`); replay.c gives every
 * target those of its corpus (corpus/TARGET/), as an ordinary test.
 *
 * An input is a script: what a target takes from its front decides what it does next, so that
 * nearly every input is a valid one and mutations change what is done.  A target keeps nothing from
 * one input to the next that the next one's outcome depends on.
 */
#ifndef SODA_TESTS_FUZZ_H
#define SODA_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/must.h"

/* What libFuzzer wants. Begin: once, before the first input; may be left out (fuzz.c). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* The rest of an input. Behind its end there are zeros. */
struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

/* As many bytes as there are, at most `bytes`: how many. */
static inline size_t fuzz_take(struct fuzz_input *in, void *to, size_t bytes)
{
	size_t n = bytes < in->left ? bytes : in->left;

	if (n)
		memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
	return n;
}

static inline uint64_t fuzz_take_number(struct fuzz_input *in, unsigned bytes)
{
	uint8_t from[8] = { 0 };
	uint64_t value = 0;

	fuzz_take(in, from, bytes);
	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)from[i] << 8 * i;
	return value;
}

static inline uint8_t fuzz_u8(struct fuzz_input *in)
{
	return (uint8_t)fuzz_take_number(in, 1);
}

static inline uint16_t fuzz_u16(struct fuzz_input *in)
{
	return (uint16_t)fuzz_take_number(in, 2);
}

static inline uint32_t fuzz_u32(struct fuzz_input *in)
{
	return (uint32_t)fuzz_take_number(in, 4);
}

static inline uint64_t fuzz_u64(struct fuzz_input *in)
{
	return fuzz_take_number(in, 8);
}

/* fuzz.c */

/* The target's own directory, made now and removed at the end of the process; "DIR/name" into out.
 */
const char *fuzz_path(const char *name, char out[256]);
/* The whole input, or a part, as a file there. */
void fuzz_write(const char *path, const void *data, size_t bytes);
/* Log lines go nowhere. */
void fuzz_quiet(void);

#endif
