/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One access: loads, or read-modify-writes, of a chunk's words, each checked against
 * what must stand there.
 *
 *   read   word: one word, a different one at each access; page: one a 4 KiB page;
 *          all: every one
 *   rmw    word, page: the same one word of each page, plus one; all: every word
 *   store  of a trace: a word is stored to that holds this value already, because
 *          threads of a trace share chunks
 */
#ifndef SODA_BENCH_TOUCH_H
#define SODA_BENCH_TOUCH_H

#include <stdbool.h>
#include <stdint.h>

#include "soda/bench/worker/worker.h"

struct soda_bench_area {
	volatile uint64_t *words;
	uint64_t words_n; /* of the region; the last chunk may be short */
	uint64_t chunk_words;
	uint64_t seed;
	enum soda_bench_touch touch;
	uint32_t *stores; /* rmw: accesses so far to each chunk; written by its own thread */
};

/*
 * access: a chunk; with SODA_BENCH_STORE it is a store.  salt varies the word.  True, or false with
 * the index of a word that holds something else in *bad_p.
 */
bool soda_bench_touch(const struct soda_bench_area *area, uint32_t access, uint64_t salt,
		      uint64_t *bad_p);

#endif
