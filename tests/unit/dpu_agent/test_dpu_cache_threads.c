/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of cached entries under many threads.  Owner 1 has FAR entries, of which SLOTS fit.
 * Each page begins with its number and a version; the writer does as the agent: accept and hide,
 * store at the server, hide again, acknowledge.  Before the acknowledgement reads are answered from
 * the accepted data; after it whoever reads must not see an older version.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpu_agent/cache/dynamic/dynamic_cache.h"
#include "unit/fakes/dpu_sim.h"

enum {
	ENTRY = 64 << 10,
	PAGE = 4096,
	SLOTS = 4,
	FAR = 12,
	READERS = 2,
	ROUNDS = 4000,
	ENOUGH = 1000
};

static struct soda_cache *cache;
static const struct soda_cache_run whole = { 0, ENTRY };

static int set_up(void **state)
{
	return soda_cache_create(SLOTS * ENTRY, ENTRY, &cache);
}

static int tear_down(void **state)
{
	soda_cache_check(cache);
	soda_cache_destroy(cache);
	return 0;
}

static _Atomic uint32_t stored[FAR * (ENTRY / PAGE)], acknowledged[FAR * (ENTRY / PAGE)];
static _Atomic bool over;
static _Atomic uint32_t asked, seen, waited, wrong;

struct reader {
	pthread_t thread;
	uint64_t dice;
};

struct waiting {
	struct soda_cache_waiter w;
	_Atomic int done;
	uint32_t page, least;
};

static void check_page(const uint8_t *memory, uint32_t page, uint32_t least)
{
	uint32_t word[2];

	memcpy(word, memory, sizeof(word));
	if (word[0] != page || word[1] < least)
		atomic_fetch_add_explicit(&wrong, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed);
}

static void late_page(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	struct waiting *me = (struct waiting *)w;

	if (!status) {
		check_page(ref->memory, me->page, me->least);
		soda_cache_release(cache, ref->slot);
	}
	atomic_fetch_add_explicit(&waited, 1, memory_order_relaxed);
	atomic_store(&me->done, 1);
}

static void *read_pages(void *arg)
{
	struct reader *me = arg;

	for (int i = 0; i < ROUNDS || atomic_load(&seen) < ENOUGH; i++) {
		uint32_t page = (uint32_t)(roll(&me->dice) % (FAR * (ENTRY / PAGE)));
		struct waiting wait = { .w.done = late_page,
					.page = page,
					.least = atomic_load(&acknowledged[page]) };
		struct soda_cache_ref ref;

		atomic_fetch_add(&asked, 1);
		switch (soda_cache_acquire(cache, 1, (uint64_t)page * PAGE, PAGE, &wait.w, &ref)) {
		case SODA_CACHE_HIT:
			check_page(ref.memory, page, wait.least);
			soda_cache_release(cache, ref.slot);
			break;
		case SODA_CACHE_LATE:
			while (!atomic_load(&wait.done))
				sched_yield();
			break;
		case SODA_CACHE_MISS:
			sched_yield(); /* the one that fills wants a processor, too */
			break;
		}
	}
	return NULL;
}

static void *write_pages(void *arg)
{
	uint64_t dice = *(uint64_t *)arg;

	while (!atomic_load(&over)) {
		uint32_t page = (uint32_t)(roll(&dice) % (FAR * (ENTRY / PAGE)));

		soda_cache_written(cache, 1, (uint64_t)page * PAGE, PAGE);
		atomic_fetch_add(&stored[page], 1);
		soda_cache_written(cache, 1, (uint64_t)page * PAGE, PAGE);
		atomic_fetch_add(&acknowledged[page], 1);
		sched_yield();
	}
	return NULL;
}

static void fill_one(uint64_t *dice)
{
	static const struct soda_cache_line line = { .stands = true, .first = SLOTS - 1 };
	struct soda_cache_run runs[SODA_CACHE_RUNS_MAX] = { whole };
	struct soda_cache_key key = { 1, roll(dice) % FAR };
	uint32_t slot = soda_cache_reclaim(cache);
	uint8_t *memory;

	for (int i = 0; slot == SODA_CACHE_NONE && i < 64; i++) {
		slot = (uint32_t)(roll(dice) % SLOTS);
		if (soda_cache_evict(cache, slot))
			slot = SODA_CACHE_NONE;
	}
	if (slot == SODA_CACHE_NONE)
		return;
	while (soda_cache_fill_begin(cache, slot, &key, &whole, 1, &memory))
		key.entry = (key.entry + 1) % FAR;
	if (key.entry % 3 == 0) {
		soda_cache_fill_queue(cache, slot, &line);
		sched_yield(); /* requests pass it */
		soda_cache_fill_start(cache, slot, runs, 1);
	}
	for (uint32_t i = 0; i < ENTRY / PAGE; i++) {
		uint32_t page = (uint32_t)key.entry * (ENTRY / PAGE) + i;
		uint32_t word[2] = { page, atomic_load(&stored[page]) };

		memcpy(memory + i * PAGE, word, sizeof(word));
		if (i % 4 == 3 && key.entry % 2)
			soda_cache_fill_part(cache, slot, (i - 3) * PAGE, 4 * PAGE);
	}
	soda_cache_fill_end(cache, slot, roll(dice) % 16 ? 0 : -EIO);
}

static void threads(void **state)
{
	uint64_t dice = seed_of(), writers = roll(&dice) | 1;
	struct reader readers[READERS];
	struct soda_cache_counts c;
	pthread_t writer;

	for (int i = 0; i < READERS; i++) {
		readers[i].dice = roll(&dice) | 1;
		assert_int_equal(pthread_create(&readers[i].thread, NULL, read_pages, &readers[i]),
				 0);
	}
	assert_int_equal(pthread_create(&writer, NULL, write_pages, &writers), 0);
	for (int i = 0; i < ROUNDS / 4; i++)
		fill_one(&dice);
	for (int i = 0; i < READERS; i++) {
		void *end;

		/* They may wait for a fill: go on. */
		while (pthread_tryjoin_np(readers[i].thread, &end))
			fill_one(&dice);
	}
	atomic_store(&over, true);
	pthread_join(writer, NULL);
	assert_int_equal(atomic_load(&wrong), 0);
	print_message("%u reads checked, %u of them late\n", atomic_load(&seen),
		      atomic_load(&waited));
	soda_cache_count(cache, &c);
	assert_int_equal(c.hits + c.late_hits + c.misses, atomic_load(&asked));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(threads, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
