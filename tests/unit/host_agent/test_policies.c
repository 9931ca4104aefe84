/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The replacement policies on traces, with the number of hits written here.  They see what
 * they see at run time: arrivals, nothing of the hits in between.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host_agent/core/replace.h"

enum { TABLE = 1 << 16 };

static struct soda_chunk table[TABLE];
static struct soda_replacer r;
static uint64_t rng;

static uint32_t draw(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((rng >> 33) % n);
}

static void begin(const struct soda_policy *policy, uint64_t capacity, uint64_t seed)
{
	memset(table, 0, sizeof(table));
	soda_replace_init(&r, policy, table, capacity);
	rng = seed;
}

/* As the evictor: what is clean goes, held and pinned ones stay. */
static enum soda_take droppable(void *arg, uint32_t id)
{
	return soda_chunk_droppable(table[id].word) ? SODA_TAKE_DROP : SODA_TAKE_NO;
}

static uint32_t resident(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r.shards; i++)
		n += r.shard[i].resident;
	return n;
}

/* A buffer of `capacity` chunks with demand fetching. true: a hit. */
static uint32_t capacity, hits, misses;

static bool touch(uint32_t id)
{
	uint32_t ids[1];

	if (table[id].list) {
		hits++;
		return true;
	}
	misses++;
	while (resident() >= capacity) {
		assert_int_equal(soda_replace_take(&r, ids, 1, droppable, NULL), 1);
		table[ids[0]].word = SODA_CHUNK_REMOTE;
	}
	table[id].word = SODA_CHUNK_CLEAN;
	soda_replace_insert(&r, id);
	return false;
}

static void buffer(const struct soda_policy *policy, uint32_t chunks, uint64_t seed)
{
	begin(policy, chunks, seed);
	capacity = chunks;
	hits = misses = 0;
}

static void scan(uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		touch(first + i);
}

/* A random bijection of the chunk numbers, so that rank and shard have nothing in common. */
static uint32_t shuffled[TABLE];

static void shuffle(uint32_t n, uint64_t seed)
{
	rng = seed;
	for (uint32_t i = 0; i < n; i++)
		shuffled[i] = i;
	for (uint32_t i = n - 1; i > 0; i--) {
		uint32_t k = draw(i + 1), v = shuffled[i];

		shuffled[i] = shuffled[k];
		shuffled[k] = v;
	}
}

/* Zipf by the inverse of its cumulative distribution. */
static double cumulated[TABLE];

static void zipf_prepare(uint32_t n, double s)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		cumulated[i] = sum += pow(i + 1, -s);
	for (uint32_t i = 0; i < n; i++)
		cumulated[i] /= sum;
}

static uint32_t zipf(uint32_t n)
{
	double u = draw(1u << 30) / (double)(1u << 30);
	uint32_t low = 0, high = n - 1;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (cumulated[mid] < u)
			low = mid + 1;
		else
			high = mid;
	}
	return shuffled[low];
}

static void trace_scan(void **state)
{
	buffer(&soda_policy_fifo, 1000, 1);
	for (int pass = 0; pass < 10; pass++)
		scan(0, 3000);
	assert_int_equal(hits, 0);
	buffer(&soda_policy_ghost, 1000, 1);
	for (int pass = 0; pass < 10; pass++)
		scan(0, 3000);
	soda_replace_check(&r);
	assert_int_equal(hits, 5138); /* of 30000 */
}

static void trace_loop(void **state)
{
	buffer(&soda_policy_fifo, 1000, 1);
	for (int pass = 0; pass < 20; pass++)
		scan(0, 1100);
	assert_int_equal(hits, 0);
	buffer(&soda_policy_ghost, 1000, 1);
	for (int pass = 0; pass < 20; pass++)
		scan(0, 1100);
	assert_int_equal(hits, 7984); /* of 22000 */
	buffer(&soda_policy_fifo, 1000, 1);
	for (int pass = 0; pass < 20; pass++)
		scan(0, 1000); /* what fits stays */
	assert_int_equal(hits, 19000);
	buffer(&soda_policy_ghost, 1000, 1);
	for (int pass = 0; pass < 20; pass++)
		scan(0, 1000);
	assert_int_equal(hits, 19000);
}

static uint32_t zipf_misses(const struct soda_policy *policy, uint32_t n, uint32_t passes)
{
	buffer(policy, n / 3, 99);
	for (uint32_t i = 0; i < n; i++) /* warm */
		touch(zipf(n));
	hits = misses = 0;
	for (uint32_t i = 0; i < passes * n; i++)
		touch(zipf(n));
	soda_replace_check(&r);
	return misses;
}

static void trace_zipf(void **state)
{
	/*
	 * 1 GiB in chunks of 64 KiB, a third resident; and one with a single shard.  One warm
	 * pass, sixteen measured ones: ghost learns from returns, of which there are few a pass.
	 */
	static const struct {
		uint32_t n, fifo, ghost;
	} cases[] = { { 16384, 50862, 41733 }, { 3000, 11057, 9015 } };

	for (int i = 0; i < 2; i++) {
		uint32_t fifo, ghost;

		shuffle(cases[i].n, 5);
		zipf_prepare(cases[i].n, 0.99);
		fifo = zipf_misses(&soda_policy_fifo, cases[i].n, 16);
		ghost = zipf_misses(&soda_policy_ghost, cases[i].n, 16);
		print_message("zipf over %u: fifo fetches %u, ghost %u: %.3f\n", cases[i].n, fifo,
			      ghost, (double)ghost / fifo);
		assert_true(ghost * 100ull <= fifo * 85ull);
		/* Exactly these here; another libm may draw a few other chunks. */
		assert_in_range(fifo, cases[i].fifo - 20, cases[i].fifo + 20);
		assert_in_range(ghost, cases[i].ghost - 20, cases[i].ghost + 20);
	}
}

/* A hot set that fits, and now and then a scan of chunks that never come again. */
static void trace_scan_resistance(void **state)
{
	static const struct {
		const struct soda_policy *policy;
		uint32_t lost;
	} cases[] = { { &soda_policy_fifo, 10435 }, { &soda_policy_ghost, 1531 } };
	enum { BUFFER = 1000, HOT = 700, SCAN = 1500, COLD = 2000 };

	for (int i = 0; i < 2; i++) {
		uint32_t lost = 0, cold = COLD;

		buffer(cases[i].policy, BUFFER, 3);
		for (int round = 0; round < 20; round++) {
			for (int k = 0; k < 5 * HOT; k++) {
				bool hit = touch(draw(HOT));

				lost += !hit && round >= 5;
			}
			scan(cold, SCAN);
			cold += SCAN;
		}
		print_message("%s: %u fetches of the hot set\n", cases[i].policy->name, lost);
		assert_int_equal(lost, cases[i].lost);
	}
}

static void trace_uniform(void **state)
{
	enum { N = 9000, BUFFER = 3000, TOUCHES = 200000 };
	uint32_t fifo;

	buffer(&soda_policy_fifo, BUFFER, 11);
	for (int i = 0; i < TOUCHES; i++)
		touch(draw(N));
	fifo = hits;
	buffer(&soda_policy_ghost, BUFFER, 11);
	for (int i = 0; i < TOUCHES; i++)
		touch(draw(N));
	assert_in_range(hits, fifo - fifo / 50, fifo + fifo / 50);
	assert_int_equal(fifo, 65990);
	assert_int_equal(hits, 66055);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trace_scan),	 cmocka_unit_test(trace_loop),
		cmocka_unit_test(trace_zipf),	 cmocka_unit_test(trace_scan_resistance),
		cmocka_unit_test(trace_uniform),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
