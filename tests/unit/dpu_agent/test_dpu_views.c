/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dynamic cache as a view of the node's store: the prefetcher with a real store, programs that
 * read one object of it, and no threads.  What is brought ahead is brought once, whoever reads, and
 * paid from the budget; what nobody touches is counted.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "dpu_agent/cache/dynamic/prefetch.h"
#include "dpu_agent/paging/store.h"
#include "dpu_agent/store/node_store.h"

enum { CHUNK = 65536, ENTRY = 1 << 20, PER_ENTRY = ENTRY / CHUNK, CHUNKS = 1024 };

static struct soda_node_store *store;
static struct soda_node_member member;
static struct soda_store_map *map;
static struct soda_prefetch *p;
static uint32_t owner;
static uint64_t clock_ns, demand; /* demand: chunks that programs have brought */
static char data[CHUNK];

static uint64_t now(void *arg)
{
	return clock_ns;
}

static const struct soda_prefetch_ops ops = { .lacks = soda_view_lacks,
					      .touched = soda_view_touched,
					      .news = soda_view_news,
					      .now_ns = now };

static const struct soda_node_name file = { .uid = 1000,
					    .file_id = 7,
					    .generation = 1,
					    .bytes = CHUNKS * (uint64_t)CHUNK,
					    .chunk_bytes = CHUNK };

static struct soda_owner_name view_name(void)
{
	return (struct soda_owner_name){ .file = true,
					 .id = { file.file_id, file.generation },
					 .bytes = file.bytes,
					 .view_chunk = CHUNK,
					 .view_user = file.uid };
}

static void up(uint64_t store_bytes, bool always)
{
	struct soda_prefetch_options opt = { .cache_bytes = 16 * (uint64_t)ENTRY,
					     .entry_bytes = ENTRY,
					     .limit = SODA_LIMIT_BUDGET,
					     .always = always };
	struct soda_owner_name name = view_name();
	struct soda_why why;
	void *m;

	clock_ns = demand = 0;
	assert_int_equal(soda_node_store_create(store_bytes, &soda_node_memory, &store), 0);
	assert_int_equal(soda_node_join(store, &file, &member, &why), 0);
	m = mmap(NULL, soda_store_map_bytes(CHUNKS), PROT_READ | PROT_WRITE, MAP_SHARED,
		 soda_node_descriptor(member.object, SODA_WIRE_STORE_MAP), 0);
	assert_ptr_not_equal(m, MAP_FAILED);
	map = m;
	assert_int_equal(soda_prefetch_create(&opt, &ops, NULL, &p), 0);
	assert_int_equal(soda_prefetch_open_view(p, &name, member.object, &owner), 0);
}

static void down(void)
{
	struct soda_why why = { "" };

	soda_prefetch_close(p, owner, false);
	if (soda_node_check(store, &why))
		fail_msg("%s", why.text);
	munmap(map, soda_store_map_bytes(CHUNKS));
	soda_node_leave(&member);
	soda_prefetch_destroy(p);
	soda_node_store_destroy(store);
}

static struct soda_node_stats stats(void)
{
	struct soda_node_stats s;

	soda_node_stats(store, &s);
	return s;
}

static bool is_ready(uint32_t chunk)
{
	return (atomic_load(&soda_store_words(map)[chunk]) & SODA_STORE_STATE) == SODA_STORE_READY;
}

/* Bring what nobody has of a fetch; the memory has the chunk's number. */
static void bring(struct soda_fill *f)
{
	assert_null(f->memory);
	assert_int_equal(f->owner, owner);
	for (uint32_t i = 0; i < f->runs_n; i++) {
		uint64_t at = f->offset + f->runs[i].at;

		for (uint64_t c = at / CHUNK; c * CHUNK < at + f->runs[i].bytes; c++) {
			if (f->read == f->bytes || !soda_node_claim(member.object, (uint32_t)c))
				continue;
			f->read += CHUNK;
			assert_int_equal(soda_node_filled(member.object, (uint32_t)c, data, 0), 0);
		}
	}
	soda_prefetch_filled(p, f, 0);
}

static void work(void)
{
	struct soda_fill *f;

	soda_prefetch_step(p);
	while ((f = soda_prefetch_take(p)))
		bring(f);
}

/* A program that has not mapped the chunk reads it. */
static void need(uint32_t chunk)
{
	enum soda_node_answer answer;

	clock_ns += 20000;
	if (is_ready(chunk)) {
		atomic_store(&soda_store_touched(map, CHUNKS)[chunk], 1);
		return;
	}
	answer = soda_node_ask(member.object, chunk, NULL);
	assert_int_equal(answer, SODA_NODE_FILL);
	soda_prefetch_note(p, owner, chunk * (uint64_t)CHUNK, CHUNK, SODA_CACHE_MISS);
	assert_int_equal(soda_node_filled(member.object, chunk, data, 0), 0);
	demand++;
	work();
}

/* All is brought once, most of it ahead of the program, and nothing for nothing. */
static void check_stream(void)
{
	struct soda_node_stats s = stats();

	assert_int_equal(s.fills, CHUNKS);
	assert_int_equal(s.ahead + demand, CHUNKS);
	assert_true(s.ahead > CHUNKS / 2);
	assert_int_equal(s.bytes_ahead, s.ahead * CHUNK);
	assert_int_equal(s.bytes_used, s.bytes_ahead);
	assert_int_equal(s.useless, 0);
}

static void test_a_stream(void **state)
{
	for (int always = 0; always < 2; always++) {
		up(128 << 20, always);
		for (uint32_t i = 0; i < CHUNKS; i++)
			need(i);
		check_stream();
		down();
	}
}

/* The second one follows the first: it finds all, and causes nothing. */
static void test_one_that_follows(void **state)
{
	struct soda_prefetch_stats alone, both;

	up(128 << 20, false);
	for (uint32_t i = 0; i < CHUNKS; i++)
		need(i);
	soda_prefetch_stats(p, &alone);
	down();
	up(128 << 20, false);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		need(i);
		if (i >= 4)
			need(i - 4);
	}
	soda_prefetch_stats(p, &both);
	check_stream();
	assert_int_equal(both.wanted, alone.wanted);
	down();
}

/* Two that read a part each are one stream, which none of them is alone. */
static void test_one_stream_of_two(void **state)
{
	uint64_t ahead[2];

	for (int second = 0; second < 2; second++) {
		up(128 << 20, false);
		for (uint32_t i = 0; i < CHUNKS / 4; i++) {
			if (i % 4 < 2)
				need(i);
			if (i % 4 >= 2 && second)
				need(i);
		}
		ahead[second] = stats().ahead;
		down();
	}
	assert_true(ahead[1] > CHUNKS / 8);
	assert_true(ahead[0] < ahead[1] / 4);
}

static uint64_t asked_bytes, bought_bytes, given_bytes;
static bool ended;

static void look(void *arg, const struct soda_owner_stats *o)
{
	if (!o->name.view_chunk)
		return;
	asked_bytes = o->bytes_asked;
	bought_bytes = o->bytes_fetched;
	given_bytes = o->bytes_hit;
	ended = o->budget.ended;
}

/* What random reads make of it is bounded by the budget, in a store that has room for a quarter. */
static void test_the_budget_holds(void **state)
{
	uint32_t seed = 5;

	up(16 << 20, false);
	for (int i = 0; i < 20000; i++) {
		seed = seed * 1664525 + 1013904223;
		need(seed / 65536 % CHUNKS);
	}
	soda_prefetch_each(p, look, NULL);
	assert_true(asked_bytes >= demand * CHUNK);
	assert_true(bought_bytes <= given_bytes + asked_bytes * 3 / 100 + 8 * ENTRY);
	assert_true(stats().ahead * CHUNK == bought_bytes);
	assert_true(stats().useless * CHUNK + given_bytes <= bought_bytes);
	down();
}

/* A program that leaves its stream: what is there of it goes before what is used, and is counted.
 */
static void test_what_is_left_is_useless(void **state)
{
	uint64_t left;

	up(16 << 20, true);
	for (uint32_t i = 0; i < 3 * PER_ENTRY + 1; i++)
		need(i);
	left = stats().ahead * CHUNK - stats().bytes_used;
	assert_true(left > 0);
	for (int lap = 0; lap < 4; lap++) /* backwards by entries: no stream */
		for (uint32_t e = CHUNKS / PER_ENTRY - 1; e > 12; e -= 2)
			for (uint32_t i = 0; i < PER_ENTRY; i += 5)
				need(e * PER_ENTRY + i);
	assert_true(stats().useless > 0);
	assert_int_equal(stats().bytes_useless, stats().useless * CHUNK);
	assert_true(stats().used <= stats().capacity);
	down();
}

/* What somebody else has brought meanwhile is not read, and is paid back. */
static void test_not_twice(void **state)
{
	struct soda_fill *f;

	up(128 << 20, false);
	for (uint32_t i = 0; i < PER_ENTRY; i++) {
		assert_int_equal(soda_node_ask(member.object, i, NULL), SODA_NODE_FILL);
		soda_node_filled(member.object, i, data, 0);
		soda_prefetch_note(p, owner, i * (uint64_t)CHUNK, CHUNK, SODA_CACHE_MISS);
	}
	soda_prefetch_note(p, owner, ENTRY, CHUNK, SODA_CACHE_MISS);
	soda_prefetch_step(p);
	f = soda_prefetch_take(p);
	assert_non_null(f);
	soda_prefetch_each(p, look, NULL);
	assert_true(bought_bytes >= f->bytes);
	for (uint32_t i = 0; i < PER_ENTRY; i++) {
		uint32_t chunk = (uint32_t)(f->offset / CHUNK) + i;

		if (soda_node_ask(member.object, chunk, NULL) == SODA_NODE_FILL)
			soda_node_filled(member.object, chunk, data, 0);
	}
	bring(f);
	assert_int_equal(f->read, 0);
	while ((f = soda_prefetch_take(p)))
		soda_prefetch_filled(p, f, -ECANCELED);
	soda_prefetch_each(p, look, NULL);
	assert_int_equal(bought_bytes, 0);
	assert_int_equal(stats().ahead, 0);
	down();
}

/* A view is apart from what others have cached of that file, and from another user's. */
static void test_views_are_apart(void **state)
{
	struct soda_owner_name name = view_name();
	uint32_t sealed, theirs, again;

	up(128 << 20, true);
	assert_int_equal(soda_prefetch_open_view(p, &name, member.object, &again), 0);
	assert_int_equal(again, owner);
	soda_prefetch_close(p, again, false);
	name.view_user++;
	assert_int_equal(soda_prefetch_open_view(p, &name, member.object, &theirs), 0);
	assert_int_not_equal(theirs, owner);
	soda_prefetch_close(p, theirs, false);
	name.view_chunk = name.view_user = 0;
	assert_int_equal(soda_prefetch_open(p, &name, &sealed), 0);
	assert_int_not_equal(sealed, owner);
	for (uint32_t i = 0; i <= 2 * PER_ENTRY; i++)
		need(i);
	assert_int_equal(soda_cache_find(soda_prefetch_cache(p),
					 &(struct soda_cache_key){ .owner = owner, .entry = 3 }),
			 SODA_CACHE_NONE);
	assert_true(is_ready(3 * PER_ENTRY));
	soda_prefetch_close(p, sealed, false);
	/* requests that come late, of a view that nobody has open */
	soda_prefetch_note(p, theirs, 0, CHUNK, SODA_CACHE_MISS);
	work();
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stream),
		cmocka_unit_test(test_one_that_follows),
		cmocka_unit_test(test_one_stream_of_two),
		cmocka_unit_test(test_the_budget_holds),
		cmocka_unit_test(test_what_is_left_is_useless),
		cmocka_unit_test(test_not_twice),
		cmocka_unit_test(test_views_are_apart),
	};

	return cmocka_run_group_tests_name("dpu_views", tests, NULL, NULL);
}
