/* SPDX-License-Identifier: BSD-3-Clause */
/* A file whose content follows from the position of each word. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soda/bench/worker/access.h"
#include "soda/bench/worker/worker.h"

enum { PIECE_WORDS = 1 << 17 };

static int write_words(FILE *out, uint64_t *piece, uint64_t all, uint64_t seed)
{
	for (uint64_t at = 0; at < all; at += PIECE_WORDS) {
		uint64_t n = all - at < PIECE_WORDS ? all - at : PIECE_WORDS;

		for (uint64_t i = 0; i < n; i++)
			piece[i] = soda_bench_value(at + i, seed);
		if (fwrite(piece, sizeof(*piece), n, out) != n)
			return -errno;
	}
	return 0;
}

int soda_bench_file_write(const char *who, const char *path, uint64_t bytes, uint64_t seed)
{
	uint64_t *piece = malloc(PIECE_WORDS * sizeof(*piece));
	FILE *out = piece ? fopen(path, "wb") : NULL;
	int err = out ? write_words(out, piece, bytes / sizeof(*piece), seed)
		      : (piece ? -errno : -ENOMEM);

	if (out && fclose(out) && !err)
		err = -errno;
	if (err)
		fprintf(stderr, "%s: cannot write %s: %s\n", who, path, strerror(-err));
	free(piece);
	return err;
}
