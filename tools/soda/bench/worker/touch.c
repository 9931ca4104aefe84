/* SPDX-License-Identifier: BSD-3-Clause */
/* One access, verified. */
#include "soda/bench/worker/touch.h"

#include "soda/bench/worker/access.h"

#define PAGE_WORDS (4096u / sizeof(uint64_t))

static bool read_word(const struct soda_bench_area *area, uint64_t word, uint64_t *bad_p)
{
	if (area->words[word] == soda_bench_value(word, area->seed))
		return true;
	*bad_p = word;
	return false;
}

static bool modify_word(const struct soda_bench_area *area, uint64_t word, uint64_t stored,
			uint64_t *bad_p)
{
	uint64_t now = area->words[word];

	if (now != soda_bench_value(word, area->seed) + stored) {
		*bad_p = word;
		return false;
	}
	area->words[word] = now + 1;
	return true;
}

/* One word of each page of [first, end). */
static bool read_pages(const struct soda_bench_area *area, uint64_t first, uint64_t end,
		       uint64_t salt, uint64_t *bad_p)
{
	for (uint64_t at = first; at < end; at += PAGE_WORDS) {
		uint64_t n = end - at < PAGE_WORDS ? end - at : PAGE_WORDS;

		if (!read_word(area, at + soda_bench_mix(at ^ salt) % n, bad_p))
			return false;
	}
	return true;
}

static bool modify_pages(const struct soda_bench_area *area, uint64_t first, uint64_t end,
			 uint64_t stored, uint64_t *bad_p)
{
	for (uint64_t at = first; at < end; at += PAGE_WORDS) {
		uint64_t n = end - at < PAGE_WORDS ? end - at : PAGE_WORDS;

		if (!modify_word(area, at + soda_bench_mix(at) % n, stored, bad_p))
			return false;
	}
	return true;
}

static bool store_word(const struct soda_bench_area *area, uint64_t word, uint64_t *bad_p)
{
	area->words[word] = soda_bench_value(word, area->seed);
	return read_word(area, word, bad_p);
}

bool soda_bench_touch(const struct soda_bench_area *area, uint32_t access, uint64_t salt,
		      uint64_t *bad_p)
{
	uint32_t chunk = access & ~SODA_BENCH_STORE;
	uint64_t first = chunk * area->chunk_words, end = first + area->chunk_words;
	uint64_t stored = area->stores ? area->stores[chunk]++ : 0;
	bool good = true;

	if (end > area->words_n)
		end = area->words_n;
	if (access & SODA_BENCH_STORE)
		return store_word(area, first + soda_bench_mix(salt ^ chunk) % (end - first),
				  bad_p);
	if (area->touch == SODA_BENCH_ALL) {
		for (uint64_t at = first; at < end && good; at++)
			good = area->stores ? modify_word(area, at, stored, bad_p)
					    : read_word(area, at, bad_p);
		return good;
	}
	if (area->stores)
		return modify_pages(area, first, end, stored, bad_p);
	if (area->touch == SODA_BENCH_PAGE)
		return read_pages(area, first, end, salt, bad_p);
	return read_word(area, first + soda_bench_mix(salt ^ chunk) % (end - first), bad_p);
}
