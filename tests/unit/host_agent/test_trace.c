/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Thousands of random operations against a plain array that says what every word
 * must be, with eviction, write-back, refusals and lost connections going on.
 * SODA_TEST_SEED=N replays a run; write-backs race with the trace in their own thread.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/core/link.h"
#include "host_agent/life/advise.h"
#include "unit/fakes/host_fixture.h"

enum { CHUNKS = 80, PAGES_MAX = 64, OPERATIONS = 3000, THREADS = 4 };

struct trace {
	uint64_t rng;
	struct soda_region *r;
	uint32_t pages;			    /* of a chunk */
	bool breaks, guesses;		    /* connections are lost on the way */
	uint64_t memory[CHUNKS][PAGES_MAX]; /* the oracle: first word of each page */
	bool pinned[CHUNKS];
};

static uint64_t seed;

static uint32_t draw(struct trace *t, uint32_t n)
{
	t->rng = t->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((t->rng >> 33) % n);
}

static bool has_page(const struct trace *t, uint32_t chunk, uint32_t page)
{
	return page * 4096 < soda_region_chunk_bytes(t->r, t->r->first + chunk);
}

static void load(struct trace *t, uint32_t chunk, uint32_t page)
{
	uint64_t v = 0;
	int ret;

	if (!has_page(t, chunk, page))
		return;
	ret = fake_load(host_at(t->r, chunk, page), &v);
	if (ret || v != t->memory[chunk][page])
		fake_fail("page %u of chunk %u: %llu, expected %llu (error %d, word %08x)", page,
			  chunk, (unsigned long long)v, (unsigned long long)t->memory[chunk][page],
			  ret, host_word(t->r, chunk));
}

static void store(struct trace *t, uint32_t chunk, uint32_t page)
{
	uint64_t v = (uint64_t)draw(t, 1u << 30) + 1;
	int ret;

	if (!has_page(t, chunk, page))
		return;
	ret = fake_store(host_at(t->r, chunk, page), v);
	if (ret)
		fake_fail("store to chunk %u: error %d", chunk, ret);
	t->memory[chunk][page] = v;
}

static void advise(struct trace *t, uint32_t chunk, uint32_t n, int advice)
{
	struct soda_why why = { "" };
	size_t bytes = 0;
	int ret;

	for (uint32_t i = chunk; i < chunk + n; i++)
		bytes += soda_region_chunk_bytes(t->r, t->r->first + i);
	fake_lock();
	fake_page_ops.discarding = advice == SODA_DISCARD;
	fake_unlock();
	ret = soda_advise_range(t->r, host_at(t->r, chunk, 0), bytes, advice, &why);
	fake_lock();
	fake_page_ops.discarding = false;
	fake_unlock();
	/* A WRITE may be refused just then, and pins have their limit. */
	if (ret && !(advice == SODA_COLD && ret == -EIO) && !(advice == SODA_PIN && ret == -ENOMEM))
		fake_fail("advice %d for chunk %u: error %d, %s", advice, chunk, ret, why.text);
	if (!ret && advice == SODA_DISCARD)
		memset(t->memory[chunk], 0, n * sizeof(t->memory[0]));
}

static void disturb(struct trace *t)
{
	switch (draw(t, 6)) {
	case 0:
		fake_net_refuse(true, -EIO, 1 + draw(t, 3));
		break;
	case 1:
		fake_net_hold(false, true); /* until something below lets them go */
		break;
	case 2:
		if (t->breaks)
			fake_net_break(0); /* the next attempt to connect succeeds */
		break;
	default:
		fake_net_hold(false, false);
		break;
	}
}

/* What no moment may show.  alone: nobody else takes credits, not even for a moment in vain. */
static void check_limits(bool alone)
{
	const struct soda_buffer *b = &soda_agent.buffer;

	if (b->peak > b->limit || (alone && soda_buffer_used(b) > b->limit))
		fake_fail("%lld chunks in use, at most %lld, of %lld",
			  (long long)soda_buffer_used(b), (long long)b->peak, (long long)b->limit);
}

static void operation(struct trace *t)
{
	/* Half of the touches go to a tenth of the chunks. */
	uint32_t chunk = draw(t, 2) ? draw(t, CHUNKS) : draw(t, CHUNKS / 10);
	uint32_t page = draw(t, t->pages), op = draw(t, 100);

	if (op < 45) {
		load(t, chunk, page);
	} else if (op < 85) {
		store(t, chunk, page);
	} else if (op < 88) {
		for (uint32_t i = chunk; i < CHUNKS && i < chunk + 12; i++)
			load(t, i, page);
	} else if (op < 90) {
		advise(t, chunk, 1 + draw(t, CHUNKS - chunk < 4 ? CHUNKS - chunk : 4),
		       SODA_DISCARD);
	} else if (op < 92) {
		fake_net_hold(false, false);
		advise(t, chunk, 1, SODA_COLD);
	} else if (op < 93) {
		fake_net_hold(false, false);
		if (host_sync(t->r) == 0 && !t->breaks)
			for (uint32_t i = 0; i < CHUNKS; i++)
				if (host_state(t->r, i) == SODA_CHUNK_DIRTY)
					fake_fail("chunk %u is dirty after a sync", i);
	} else if (op < 95) {
		advise(t, chunk, 1, t->pinned[chunk] ? SODA_UNPIN : SODA_PIN);
		t->pinned[chunk] =
			soda_chunk_load(&soda_agent.table[t->r->first + chunk]) & SODA_CW_PINNED;
	} else {
		disturb(t);
	}
	if (t->guesses) /* chunks that loads bring in are writable at once, rightly or not */
		atomic_store(&t->r->store_odds, 1024);
	check_limits(true);
}

/* Held WRITEs would stop a fault that needs room: a clock lets them go. */
static _Atomic bool over;

static void *release(void *arg)
{
	while (!atomic_load(&over)) {
		usleep(3000);
		fake_net_hold(false, false);
	}
	return NULL;
}

static void finish(struct trace *t)
{
	fake_net_hold(false, false);
	fake_net_refuse(true, 0, 0);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	for (uint32_t i = 0; i < CHUNKS; i++)
		for (uint32_t p = 0; p < t->pages; p++)
			load(t, i, p);
	assert_int_equal(host_sync(t->r), 0);
	host_check(t->r);
	/* The server has it all now, or never had to. */
	for (uint32_t i = 0; i < CHUNKS; i++)
		for (uint32_t p = 0; p < t->pages; p++)
			if (has_page(t, i, p) && host_word(t->r, i) & SODA_CW_BACKED &&
			    fake_server_word(t->r->id, (uint64_t)i * soda_chunk_bytes() +
							       p * 4096) != t->memory[i][p])
				fake_fail("page %u of chunk %u is not on the server", p, i);
}

static void run(const struct host_options *o, bool breaks, uint64_t own_seed)
{
	static struct trace t;
	struct host_options with_seed = *o;
	pthread_t thread;
	char text[64];

	snprintf(text, sizeof(text), "SODA_TEST_SEED=%llu, trace %llu", (unsigned long long)seed,
		 (unsigned long long)(own_seed - seed));
	fake_context(text);
	memset(&t, 0, sizeof(t));
	t.rng = with_seed.seed = own_seed;
	t.breaks = breaks;
	t.guesses = own_seed & 1;
	host_start(&with_seed);
	/* The last chunk is a short one, where a chunk has several pages. */
	t.r = host_alloc(CHUNKS * soda_chunk_bytes() - (soda_chunk_bytes() > 4096 ? 5000 : 0));
	t.pages = (uint32_t)soda_chunk_bytes() / 4096;
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&thread, NULL, release, NULL), 0);
	for (int i = 0; i < OPERATIONS; i++)
		operation(&t);
	atomic_store(&over, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	finish(&t);
	host_stop();
}

static void traces(void **state)
{
	static const struct host_options kinds[] = {
		{ .buffer_chunks = 30 },
		{ .buffer_chunks = 8, .evict = "fifo" },
		{ .buffer_chunks = 40, .prefetch = 8 },
		{ .buffer_chunks = 20, .chunk_bytes = 4096 },
		{ .buffer_chunks = 20, .chunk_bytes = 16384, .high_pct = 100, .low_pct = 100 },
		{ .buffer_chunks = 20, .chunk_bytes = 262144 },
		{ .buffer_chunks = 30, .direct = true, .prefetch = 8 },
		{ .buffer_chunks = 70, .help = true },
		{ .buffer_chunks = 66, .help = true, .prefetch = 8 },
	};

	for (uint64_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		run(&kinds[i], false, seed + 2 * i);
		run(&kinds[i], true, seed + 2 * i + 1);
	}
}

/* Threads with pages of their own in chunks that they share. */
static struct soda_region *shared;

static void *worker(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;
	struct trace t = { .rng = seed + 100 + me, .r = shared, .pages = 16 };

	for (int i = 0; i < OPERATIONS; i++) {
		uint32_t chunk = draw(&t, CHUNKS), page = draw(&t, 4) * THREADS + me;

		if (draw(&t, 2))
			store(&t, chunk, page);
		else
			load(&t, chunk, page);
		check_limits(false);
	}
	for (uint32_t c = 0; c < CHUNKS; c++)
		for (uint32_t p = me; p < 16; p += THREADS)
			load(&t, c, p);
	soda_thread_forget(soda_thread_self());
	return NULL;
}

static void threads(void **state)
{
	static const struct host_options kinds[] = {
		{ .buffer_chunks = 26, .threads = THREADS },
		{ .buffer_chunks = 60, .threads = THREADS, .prefetch = 4 },
		{ .buffer_chunks = 26, .threads = 1 }, /* more threads than were told */
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		pthread_t thread[THREADS];
		char text[64];

		snprintf(text, sizeof(text), "SODA_TEST_SEED=%llu, threads %zu",
			 (unsigned long long)seed, k);
		fake_context(text);
		host_start(&kinds[k]);
		shared = host_alloc(CHUNKS * 65536ull);
		for (uintptr_t i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, worker, (void *)i), 0);
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(pthread_join(thread[i], NULL), 0);
		assert_int_equal(host_sync(shared), 0);
		host_settle(shared, true);
		soda_replace_check(&soda_agent.replacer);
		host_stop();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(traces),
		cmocka_unit_test(threads),
	};
	const char *given = getenv("SODA_TEST_SEED");

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SODA_TEST_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
