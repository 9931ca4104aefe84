/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled once for each instruction set; OPS is the name of the result. */
#include "host_agent/object/fingerprint.h"

#include <string.h>

/* Inlined: a first call into another library from a signal handler would lock the linker. */
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { HEAD_BYTES = 4096 };

static uint32_t head_of(const void *data, uint32_t bytes, uint64_t secret)
{
	return (uint32_t)XXH3_64bits_withSeed(data, bytes < HEAD_BYTES ? bytes : HEAD_BYTES,
					      secret);
}

static struct soda_fingerprint take(const void *data, uint32_t bytes, uint64_t secret)
{
	XXH128_hash_t h = XXH3_128bits_withSeed(data, bytes, secret);
	struct soda_fingerprint f = { .head = head_of(data, bytes, secret),
				      .whole = { (uint32_t)h.low64, (uint32_t)(h.low64 >> 32),
						 (uint32_t)h.high64 } };

	return f;
}

static bool same(const struct soda_fingerprint *f, const void *data, uint32_t bytes,
		 uint64_t secret)
{
	struct soda_fingerprint now;

	if (head_of(data, bytes, secret) != f->head)
		return false;
	now = take(data, bytes, secret);
	return memcmp(&now, f, sizeof(now)) == 0;
}

const struct soda_fingerprint_ops OPS = { .take = take, .same = same };
