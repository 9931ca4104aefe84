/* SPDX-License-Identifier: BSD-3-Clause */
/* soda bench: the access sequences, the checks of an access, medians and ratios. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/page_trace.h"

#include "soda/bench/worker/access.h"
#include "soda/bench/worker/summary.h"
#include "soda/bench/worker/touch.h"

#define CHUNKS 1024u
#define PASSES 100u

/* A record of a trace, as a constant. */
#define RECORD(kind, thread, object, chunk)                                                        \
	((uint64_t)(kind) << 60 | (uint64_t)(thread) << 48 | (uint64_t)(object) << 32 | (chunk))

static struct soda_bench_access make(enum soda_bench_pattern pattern, uint32_t threads,
				     uint64_t seed)
{
	struct soda_bench_access access;

	assert_int_equal(soda_bench_access_create(&access, pattern, CHUNKS, threads, seed), 0);
	return access;
}

/* Accesses to each chunk over PASSES passes of all threads; shares as large as accesses. */
static void count(const struct soda_bench_access *access, uint32_t hits[CHUNKS])
{
	uint32_t out[CHUNKS];

	memset(hits, 0, CHUNKS * sizeof(*hits));
	for (uint64_t pass = 0; pass < PASSES; pass++) {
		uint32_t all = 0;

		for (uint32_t t = 0; t < access->threads; t++) {
			uint32_t n = soda_bench_access_count(access, t);

			soda_bench_access_pass(access, pass, t, out);
			for (uint32_t i = 0; i < n; i++) {
				assert_true(out[i] < CHUNKS);
				hits[out[i]]++;
			}
			all += n;
		}
		assert_int_equal(all, CHUNKS);
	}
}

static void test_seq_touches_each_once(void **state)
{
	struct soda_bench_access access = make(SODA_BENCH_SEQ, 3, 1);
	uint32_t hits[CHUNKS], out[CHUNKS];

	count(&access, hits);
	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(hits[i], PASSES);
	soda_bench_access_pass(&access, 0, 1, out);
	for (uint32_t i = 0; i < soda_bench_access_count(&access, 1); i++)
		assert_int_equal(out[i], soda_bench_access_first(&access, 1) + i);
}

/* 100 hits a chunk expected, standard deviation 10: five of them on either side. */
static void test_rand_is_uniform(void **state)
{
	struct soda_bench_access access = make(SODA_BENCH_RAND, 2, 1);
	uint32_t hits[CHUNKS];
	double spread = 0;

	count(&access, hits);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		assert_in_range(hits[i], 50, 150);
		spread += (hits[i] - 100.0) * (hits[i] - 100.0) / 100.0;
	}
	/* chi-square of 1023 degrees: mean 1023, standard deviation 45 */
	assert_in_range((uint64_t)spread, 800, 1250);
}

static void test_rmw_stays_in_its_share(void **state)
{
	struct soda_bench_access access = make(SODA_BENCH_RMW, 5, 7);
	uint32_t out[CHUNKS];

	for (uint32_t t = 0; t < 5; t++) {
		uint32_t first = soda_bench_access_first(&access, t);
		uint32_t n = soda_bench_access_count(&access, t);

		soda_bench_access_pass(&access, 3, t, out);
		for (uint32_t i = 0; i < n; i++)
			assert_in_range(out[i], first, first + n - 1);
	}
}

/* Rank r has r^-0.99 of the hits of rank 1; ranks lie on chunks in shuffled order. */
static void test_zipf_is_zipf(void **state)
{
	struct soda_bench_access access = make(SODA_BENCH_ZIPF, 2, 1);
	uint32_t hits[CHUNKS], seen[CHUNKS] = { 0 }, in_place = 0;
	double total = 0;

	count(&access, hits);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		seen[access.order[i]]++;
		in_place += access.order[i] == i;
		total += pow(i + 1.0, -0.99);
	}
	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(seen[i], 1);
	assert_true(in_place < 10);
	for (uint32_t rank = 1; rank <= 16; rank *= 2) {
		double expected = PASSES * CHUNKS * pow(rank, -0.99) / total;

		assert_true(fabs(hits[access.order[rank - 1]] / expected - 1) < 0.1);
	}
	soda_bench_access_destroy(&access);
}

/*
 * 61,440 of 102,400 accesses to the first 102 chunks expected, standard deviation 157;
 * within either part evenly: 602 and 44 a chunk, standard deviations 25 and 7.
 */
static void test_hot_is_hot(void **state)
{
	struct soda_bench_access access = make(SODA_BENCH_HOT, 2, 1);
	uint32_t hits[CHUNKS], hot = 0;

	assert_int_equal(soda_bench_access_hot(CHUNKS), 102);
	assert_int_equal(soda_bench_access_hot(9), 1);
	count(&access, hits);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		assert_in_range(hits[i], i < 102 ? 602 - 125 : 44 - 35, i < 102 ? 602 + 125 : 80);
		hot += i < 102 ? hits[i] : 0;
	}
	assert_int_equal(hot, 61506);
	assert_false(soda_bench_access_stores(&access));
}

static void test_alternate_takes_turns(void **state)
{
	struct soda_bench_access access = make(SODA_BENCH_ALTERNATE, 2, 1);
	struct soda_bench_access rand = make(SODA_BENCH_RAND, 2, 1);
	uint32_t out[CHUNKS], other[CHUNKS], n = soda_bench_access_count(&access, 1);

	for (uint64_t pass = 0; pass < 4; pass += 2) {
		soda_bench_access_pass(&access, pass, 1, out);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(out[i], CHUNKS / 2 + i);
		soda_bench_access_pass(&access, pass + 1, 1, out);
		soda_bench_access_pass(&rand, pass + 1, 1, other);
		assert_memory_equal(out, other, n * sizeof(out[0]));
	}
}

/* Two objects and four threads on two: one object behind the other, order kept. */
static const uint64_t records[] = {
	RECORD(SODA_PAGE_TRACE_ZERO, 0, 7, 1),	RECORD(SODA_PAGE_TRACE_FETCH, 1, 3, 4),
	RECORD(SODA_PAGE_TRACE_STORE, 0, 7, 1), 0 /* the writer did not come to it */,
	RECORD(SODA_PAGE_TRACE_FETCH, 2, 3, 0), RECORD(SODA_PAGE_TRACE_FETCH, 3, 7, 0),
};

static struct soda_page_trace_head trace_head(void)
{
	return (struct soda_page_trace_head){ .magic = SODA_PAGE_TRACE_MAGIC,
					      .version = SODA_PAGE_TRACE_VERSION,
					      .head_bytes = sizeof(struct soda_page_trace_head),
					      .chunk_bytes = 16384,
					      .limit = 100,
					      .asked = sizeof(records) / sizeof(records[0]) };
}

/* Write a trace with `n` records to a file, load it; the file goes at once. */
static int load(const struct soda_page_trace_head *head, size_t head_bytes, size_t n,
		struct soda_bench_trace *trace)
{
	char path[] = "/tmp/soda-test-trace-XXXXXX", why[256] = "";
	int fd = mkstemp(path), err;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, head, head_bytes), head_bytes);
	assert_int_equal(write(fd, records, n * sizeof(records[0])), n * sizeof(records[0]));
	close(fd);
	err = soda_bench_trace_load(path, trace, why, sizeof(why));
	unlink(path);
	assert_true((err == 0) == (why[0] == 0));
	return err;
}

static void test_trace_is_replayed(void **state)
{
	const struct soda_page_trace_head head = trace_head();
	struct soda_bench_access access;
	struct soda_bench_trace trace;
	uint32_t out[8];

	assert_int_equal(load(&head, sizeof(head), 6, &trace), 0);
	assert_int_equal(trace.chunk_bytes, 16384);
	assert_int_equal(trace.chunks, 7); /* five of object 3, then two of object 7 */
	assert_int_equal(trace.n, 5);
	assert_int_equal(trace.stores, 1);
	assert_int_equal(soda_bench_access_replay(&access, &trace, 2), 0);
	assert_true(soda_bench_access_stores(&access));
	assert_int_equal(soda_bench_access_count(&access, 0), 3);
	assert_int_equal(soda_bench_access_count(&access, 1), 2);
	assert_int_equal(soda_bench_access_share(&access, 0), 3);
	soda_bench_access_pass(&access, 0, 0, out);
	assert_int_equal(out[0], 6);
	assert_int_equal(out[1], 6 | SODA_BENCH_STORE);
	assert_int_equal(out[2], 0);
	soda_bench_access_pass(&access, 9, 1, out);
	assert_int_equal(out[0], 4);
	assert_int_equal(out[1], 5);
	soda_bench_access_destroy(&access);
	/* a killed program's: fewer records than the head says */
	assert_int_equal(load(&head, sizeof(head), 2, &trace), 0);
	assert_int_equal(trace.n, 2);
	soda_bench_trace_free(&trace);
}

/* For memory that is only read the stores are loads, in the same place. */
static void test_trace_is_only_read(void **state)
{
	const struct soda_page_trace_head head = trace_head();
	struct soda_bench_access access;
	struct soda_bench_trace trace;
	uint32_t out[8];

	assert_int_equal(load(&head, sizeof(head), 6, &trace), 0);
	soda_bench_trace_read_only(&trace);
	assert_int_equal(soda_bench_access_replay(&access, &trace, 2), 0);
	assert_false(soda_bench_access_stores(&access));
	assert_int_equal(soda_bench_access_count(&access, 0), 3);
	soda_bench_access_pass(&access, 0, 0, out);
	assert_int_equal(out[0], 6);
	assert_int_equal(out[1], 6);
	assert_int_equal(out[2], 0);
	soda_bench_access_destroy(&access);
}

/* Readers of one file go different ways, over the same popular chunks. */
static void test_readers_differ(void **state)
{
	struct soda_bench_access a = make(SODA_BENCH_ZIPF, 2, 1), b = make(SODA_BENCH_ZIPF, 2, 1);
	uint32_t x[CHUNKS], y[CHUNKS];
	size_t bytes = soda_bench_access_count(&a, 0) * sizeof(x[0]);

	b.reader = 1;
	assert_memory_equal(a.order, b.order, CHUNKS * sizeof(a.order[0]));
	soda_bench_access_pass(&a, 0, 0, x);
	soda_bench_access_pass(&b, 0, 0, y);
	assert_memory_not_equal(x, y, bytes);
	b.reader = 0;
	soda_bench_access_pass(&b, 0, 0, y);
	assert_memory_equal(x, y, bytes);
	soda_bench_access_destroy(&a);
	soda_bench_access_destroy(&b);
}

static void test_bad_traces_are_refused(void **state)
{
	struct soda_page_trace_head head = trace_head();
	struct soda_bench_trace trace;
	char why[256];

	assert_int_equal(load(&head, 40, 0, &trace), -EPROTO);
	assert_int_equal(load(&head, sizeof(head), 0, &trace), -EPROTO);
	head.version++;
	assert_int_equal(load(&head, sizeof(head), 6, &trace), -EPROTO);
	head = trace_head();
	head.magic[0] = 'X';
	assert_int_equal(load(&head, sizeof(head), 6, &trace), -EPROTO);
	head = trace_head();
	head.chunk_bytes = 16385;
	assert_int_equal(load(&head, sizeof(head), 6, &trace), -EPROTO);
	head = trace_head();
	head.asked = 0;
	assert_int_equal(load(&head, sizeof(head), 6, &trace), -EPROTO);
	assert_int_equal(soda_bench_trace_load("/nowhere/trace", &trace, why, sizeof(why)),
			 -ENOENT);
}

static void test_sequences_repeat(void **state)
{
	for (int pattern = SODA_BENCH_RAND; pattern <= SODA_BENCH_ZIPF; pattern++) {
		struct soda_bench_access a = make(pattern, 2, 5), b = make(pattern, 2, 5);
		struct soda_bench_access other = make(pattern, 2, 6);
		uint32_t x[CHUNKS], y[CHUNKS];
		size_t bytes = soda_bench_access_count(&a, 0) * sizeof(x[0]);

		soda_bench_access_pass(&a, 4, 0, x);
		soda_bench_access_pass(&b, 4, 0, y);
		assert_memory_equal(x, y, bytes);
		soda_bench_access_pass(&b, 5, 0, y);
		assert_memory_not_equal(x, y, bytes);
		soda_bench_access_pass(&b, 4, 1, y);
		assert_memory_not_equal(x, y, bytes);
		soda_bench_access_pass(&other, 4, 0, y);
		assert_memory_not_equal(x, y, bytes);
		soda_bench_access_destroy(&a);
		soda_bench_access_destroy(&b);
		soda_bench_access_destroy(&other);
	}
}

static void test_fewer_chunks_than_threads(void **state)
{
	struct soda_bench_access access;

	assert_int_equal(soda_bench_access_create(&access, SODA_BENCH_RAND, 3, 4, 1), -EINVAL);
	assert_int_equal(soda_bench_access_create(&access, SODA_BENCH_RAND, 3, 0, 1), -EINVAL);
}

#define CHUNK_WORDS 2048u /* 16 KiB: four pages */
#define AREA_WORDS (3 * CHUNK_WORDS + 700)

static uint64_t words[AREA_WORDS];

static struct soda_bench_area make_area(enum soda_bench_touch touch, uint32_t *stores)
{
	soda_bench_fill(words, AREA_WORDS, 9);
	return (struct soda_bench_area){ .words = words,
					 .words_n = AREA_WORDS,
					 .chunk_words = CHUNK_WORDS,
					 .seed = 9,
					 .touch = touch,
					 .stores = stores };
}

static void test_reads_are_verified(void **state)
{
	struct soda_bench_area area = make_area(SODA_BENCH_ALL, NULL);
	uint64_t bad;

	for (uint32_t chunk = 0; chunk < 4; chunk++)
		assert_true(soda_bench_touch(&area, chunk, 0, &bad));
	words[AREA_WORDS - 1] ^= 1;
	assert_false(soda_bench_touch(&area, 3, 0, &bad));
	assert_int_equal(bad, AREA_WORDS - 1);
	/* another seed fills other values */
	area.seed = 10;
	assert_false(soda_bench_touch(&area, 0, 0, &bad));
}

/* Zeros where values should stand are seen by every kind of touch, also in a short last chunk. */
static void test_lost_pages_are_seen(void **state)
{
	for (int touch = SODA_BENCH_WORD; touch <= SODA_BENCH_ALL; touch++) {
		struct soda_bench_area area = make_area(touch, NULL);
		uint64_t bad;

		memset(words + CHUNK_WORDS, 0, (AREA_WORDS - CHUNK_WORDS) * sizeof(words[0]));
		assert_true(soda_bench_touch(&area, 0, 1, &bad));
		for (uint32_t chunk = 1; chunk < 4; chunk++) {
			assert_false(soda_bench_touch(&area, chunk, 1, &bad));
			assert_in_range(bad, chunk * CHUNK_WORDS, AREA_WORDS - 1);
		}
	}
}

static void test_rmw_stores_in_every_page(void **state)
{
	static uint64_t before[AREA_WORDS];
	uint32_t stores[4] = { 0 };
	struct soda_bench_area area = make_area(SODA_BENCH_WORD, stores);
	uint64_t bad, changed = 0;

	memcpy(before, words, sizeof(words));
	for (int i = 0; i < 3; i++)
		assert_true(soda_bench_touch(&area, 1, (uint64_t)i, &bad));
	for (uint32_t i = 0; i < AREA_WORDS; i++) {
		if (words[i] == before[i])
			continue;
		assert_in_range(i, CHUNK_WORDS, 2 * CHUNK_WORDS - 1);
		assert_int_equal(words[i], before[i] + 3);
		changed++;
	}
	assert_int_equal(changed, 4);
	memcpy(words, before, sizeof(words)); /* a lost store */
	assert_false(soda_bench_touch(&area, 1, 0, &bad));
}

/* A store of a trace leaves what must stand there, and makes it so. */
static void test_trace_stores(void **state)
{
	static uint64_t before[AREA_WORDS];
	struct soda_bench_area area = make_area(SODA_BENCH_WORD, NULL);
	uint64_t bad = 1;

	memcpy(before, words, sizeof(words));
	memset(words, 0, sizeof(words));
	assert_true(soda_bench_touch(&area, 2 | SODA_BENCH_STORE, 5, &bad));
	for (uint32_t i = 0; i < AREA_WORDS; i++)
		if (words[i]) {
			assert_in_range(i, 2 * CHUNK_WORDS, 3 * CHUNK_WORDS - 1);
			assert_int_equal(words[i], before[i]);
			words[i] = 0;
			bad = 0;
		}
	assert_int_equal(bad, 0);
}

static void test_median(void **state)
{
	const double odd[] = { 3, 1, 2 }, even[] = { 4, 1, NAN, 2, 3 }, none[] = { NAN, NAN };

	assert_true(soda_bench_median(odd, 3) == 2);
	assert_true(soda_bench_median(even, 5) == 2.5);
	assert_true(isnan(soda_bench_median(none, 2)));
}

static void test_correlation(void **state)
{
	const double x[] = { 1, 2, 3, 4 }, up[] = { 5, 7, 9, 11 }, down[] = { 8, 6, 4, 2 };
	const double none[] = { 1, -1, -1, 1 }, same[] = { 3, 3, 3, 3 };

	assert_true(fabs(soda_bench_correlate(x, up, 4) - 1) < 1e-12);
	assert_true(fabs(soda_bench_correlate(x, down, 4) + 1) < 1e-12);
	assert_true(fabs(soda_bench_correlate(x, none, 4)) < 1e-12);
	assert_true(isnan(soda_bench_correlate(x, same, 4)));
	assert_true(isnan(soda_bench_correlate(same, x, 4)));
}

static struct soda_bench_sample sample(uint64_t bytes, uint64_t wall_ns, uint64_t client_ns,
				       uint64_t server_ns)
{
	return (struct soda_bench_sample){ .wall_ns = wall_ns,
					   .client_cpu_ns = client_ns,
					   .server_cpu_ns = server_ns,
					   .accesses = 100,
					   .counters = { .bytes_fetched = bytes,
							 .resident_peak_bytes = bytes } };
}

static void test_summary(void **state)
{
	const struct soda_bench_sample ours[] = { sample(2000, 1000, 600, 400),
						  sample(1000, 1000, 600, SODA_BENCH_UNKNOWN),
						  sample(4000, 1000, 1200, 800) };
	const struct soda_bench_sample floor[] = { sample(1000, 1000, 500, 500),
						   sample(2000, 1000, 500, 500),
						   sample(1000, 1000, 500, 500) };
	struct soda_bench_summary sum;
	double ratio[SODA_BENCH_RATES];

	soda_bench_summarise(ours, 3, 10, &sum);
	assert_true(sum.middle[SODA_BENCH_GB] == 2 && sum.gb_min == 1 && sum.gb_max == 4);
	assert_true(sum.middle[SODA_BENCH_TOUCHED] == 1);
	assert_true(fabs(sum.middle[SODA_BENCH_BOTH] - 0.5) < 1e-9);
	assert_true(isnan(sum.middle[SODA_BENCH_P50]));
	assert_int_equal(sum.sum.bytes_fetched, 7000);
	assert_int_equal(sum.sum.resident_peak_bytes, 4000); /* a level: not added up */
	soda_bench_compare(ours, floor, 3, 10, ratio);
	assert_true(ratio[SODA_BENCH_GB] == 2);			/* of 2, 0.5, 4 */
	assert_true(fabs(ratio[SODA_BENCH_BOTH] - 0.5) < 1e-9); /* the unknown one is left out */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seq_touches_each_once),
		cmocka_unit_test(test_rand_is_uniform),
		cmocka_unit_test(test_rmw_stays_in_its_share),
		cmocka_unit_test(test_zipf_is_zipf),
		cmocka_unit_test(test_hot_is_hot),
		cmocka_unit_test(test_alternate_takes_turns),
		cmocka_unit_test(test_trace_is_replayed),
		cmocka_unit_test(test_trace_is_only_read),
		cmocka_unit_test(test_readers_differ),
		cmocka_unit_test(test_bad_traces_are_refused),
		cmocka_unit_test(test_trace_stores),
		cmocka_unit_test(test_sequences_repeat),
		cmocka_unit_test(test_fewer_chunks_than_threads),
		cmocka_unit_test(test_reads_are_verified),
		cmocka_unit_test(test_lost_pages_are_seen),
		cmocka_unit_test(test_rmw_stores_in_every_page),
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_correlation),
		cmocka_unit_test(test_summary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
