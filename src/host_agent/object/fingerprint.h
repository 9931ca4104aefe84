/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sixteen bytes, keyed by a secret of the process, that tell whether a chunk's content has changed.
 * Pure functions: any thread, async-signal-safe.
 */
#ifndef SODA_HOST_FINGERPRINT_H
#define SODA_HOST_FINGERPRINT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * `head` is the first page's alone: most programs that store to a chunk change that page, and then
 * the rest need not be read.  `whole` decides: 96 bits of XXH3 of the whole chunk.
 */
struct soda_fingerprint {
	uint32_t head;
	uint32_t whole[3];
};
_Static_assert(sizeof(struct soda_fingerprint) == 16, "sixteen bytes a chunk, beside the table");

struct soda_fingerprint_ops {
	struct soda_fingerprint (*take)(const void *data, uint32_t bytes, uint64_t secret);
	bool (*same)(const struct soda_fingerprint *f, const void *data, uint32_t bytes,
		     uint64_t secret);
};

/* fingerprint.c, compiled for the processors that every build must run on, and for newer ones. */
extern const struct soda_fingerprint_ops soda_fingerprint_plain;
extern const struct soda_fingerprint_ops soda_fingerprint_avx2;

#endif
