/* SPDX-License-Identifier: BSD-3-Clause */
/* The histogram: its buckets cover every value once, and what is read back is near. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/histogram.h"

#define TOP ((uint64_t)1 << SODA_HISTOGRAM_TOP_BITS)

static struct soda_histogram h, other;

static int clear(void **state)
{
	memset(&h, 0, sizeof(h));
	memset(&other, 0, sizeof(other));
	return 0;
}

/* Each bucket begins where the one before ends, and no wider than a sixteenth of its values. */
static void test_buckets(void **state)
{
	for (unsigned i = 0; i + 1 < SODA_HISTOGRAM_BUCKETS; i++) {
		uint64_t low = soda_histogram_bucket_low(i),
			 next = soda_histogram_bucket_low(i + 1);

		assert_true(next > low);
		assert_int_equal(soda_histogram_bucket(low), i);
		assert_int_equal(soda_histogram_bucket(next - 1), i);
		if (next - low > 1)
			assert_true((next - low) * 16 <= low);
	}
	assert_int_equal(soda_histogram_bucket(0), 0);
	assert_int_equal(soda_histogram_bucket(TOP - 1), SODA_HISTOGRAM_BUCKETS - 1);
	assert_int_equal(soda_histogram_bucket(TOP), SODA_HISTOGRAM_BUCKETS - 1);
	assert_int_equal(soda_histogram_bucket(UINT64_MAX), SODA_HISTOGRAM_BUCKETS - 1);
}

static void test_empty(void **state)
{
	assert_int_equal(soda_histogram_count(&h), 0);
	assert_int_equal(soda_histogram_percentile(&h, 0), 0);
	assert_int_equal(soda_histogram_percentile(&h, 50), 0);
	assert_int_equal(soda_histogram_percentile(&h, 100), 0);
	soda_histogram_add(&h, 7, 0);
	assert_int_equal(soda_histogram_max(&h), 0);
}

static void test_one_value(void **state)
{
	soda_histogram_record(&h, 1000003);
	for (int p = 0; p <= 100; p++) {
		uint64_t got = soda_histogram_percentile(&h, p);

		assert_in_range(got, 1000003 - 1000003 / 32, 1000003);
	}
	assert_int_equal(soda_histogram_percentile(&h, 100), 1000003);
	assert_int_equal(soda_histogram_sum(&h), 1000003);
}

/* Small numbers, such as queue depths, come back exactly. */
static void test_small_values(void **state)
{
	for (uint64_t v = 1; v <= 10; v++)
		soda_histogram_record(&h, v);
	assert_int_equal(soda_histogram_percentile(&h, 0), 1);
	assert_int_equal(soda_histogram_percentile(&h, 10), 1);
	assert_int_equal(soda_histogram_percentile(&h, 10.1), 2);
	assert_int_equal(soda_histogram_percentile(&h, 50), 5);
	assert_int_equal(soda_histogram_percentile(&h, 99), 10);
	assert_int_equal(soda_histogram_sum(&h), 55);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Against the sorted values themselves, over nine orders of magnitude. */
static void test_percentiles(void **state)
{
	enum { N = 20000 };
	static uint64_t values[N];
	static const double percents[] = { 0.1, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99 };
	uint64_t seed = 88172645463325252u, sum = 0;

	for (unsigned i = 0; i < N; i++) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		values[i] = (seed >> 8 & 0xffffff) << (seed & 15);
		sum += values[i];
		soda_histogram_record(&h, values[i]);
	}
	qsort(values, N, sizeof(*values), by_value);
	for (size_t i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
		double rank = percents[i] / 100 * N;
		uint64_t is = values[(size_t)rank + (rank > (double)(size_t)rank) - 1];
		uint64_t got = soda_histogram_percentile(&h, percents[i]);

		assert_in_range(got, is - is / 32, is + is / 32);
	}
	assert_int_equal(soda_histogram_count(&h), N);
	assert_int_equal(soda_histogram_sum(&h), sum);
	assert_int_equal(soda_histogram_max(&h), values[N - 1]);
}

static void test_count_below(void **state)
{
	for (uint64_t v = 1; v < TOP; v *= 2) {
		soda_histogram_record(&h, v - 1);
		soda_histogram_record(&h, v);
	}
	/* each power of two, and what is just below it */
	for (unsigned bits = 0; bits < SODA_HISTOGRAM_TOP_BITS; bits++)
		assert_int_equal(soda_histogram_count_below(&h, (uint64_t)1 << bits), 2 * bits + 1);
	assert_int_equal(soda_histogram_count_below(&h, TOP), 2 * SODA_HISTOGRAM_TOP_BITS);
	assert_int_equal(soda_histogram_count_below(&h, 0), 0);
}

/* Over the top: counted, in the last bucket, and the maximum is still right. */
static void test_huge_values(void **state)
{
	soda_histogram_record(&h, UINT64_MAX);
	assert_int_equal(soda_histogram_count(&h), 1);
	assert_int_equal(soda_histogram_max(&h), UINT64_MAX);
	assert_int_equal(soda_histogram_percentile(&h, 100), UINT64_MAX);
	assert_int_equal(soda_histogram_count_below(&h, TOP), 1);
}

static void test_merge(void **state)
{
	for (uint64_t v = 0; v < 1000; v++)
		soda_histogram_record(v % 3 ? &h : &other, v * v);
	soda_histogram_merge(&h, &other);
	assert_int_equal(soda_histogram_count(&h), 1000);
	assert_int_equal(soda_histogram_sum(&h), 332833500);
	assert_int_equal(soda_histogram_max(&h), 999 * 999);
	assert_in_range(soda_histogram_percentile(&h, 50), 499 * 499 * 31 / 32,
			499 * 499 * 33 / 32);
	/* the source is as it was */
	assert_int_equal(soda_histogram_count(&other), 334);
}

enum { THREADS = 4, EACH = 50000 };

static void *record_many(void *arg)
{
	for (uint64_t i = 0; i < EACH; i++)
		soda_histogram_record(&h, i);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, record_many, NULL), 0);
	while (soda_histogram_count(&h) < EACH) /* a reader beside them */
		soda_histogram_percentile(&h, 99);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(soda_histogram_count(&h), THREADS * EACH);
	assert_int_equal(soda_histogram_sum(&h), (uint64_t)THREADS * EACH * (EACH - 1) / 2);
}

static volatile sig_atomic_t ticks;

static void on_tick(int sig)
{
	soda_histogram_record(&h, 5);
	ticks = ticks + 1;
}

/* From a signal handler, in the middle of recording. */
static void test_signal(void **state)
{
	struct sigaction act = { .sa_handler = on_tick };
	struct itimerval every = { { 0, 200 }, { 0, 200 } }, never = { { 0, 0 }, { 0, 0 } };
	uint64_t own = 0;

	assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
	for (; ticks < 50; own++)
		soda_histogram_record(&h, 5);
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	signal(SIGALRM, SIG_IGN);
	assert_int_equal(soda_histogram_count(&h), own + (uint64_t)ticks);
	assert_int_equal(soda_histogram_bucket_count(&h, 5), own + (uint64_t)ticks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_buckets, clear),
		cmocka_unit_test_setup(test_empty, clear),
		cmocka_unit_test_setup(test_one_value, clear),
		cmocka_unit_test_setup(test_small_values, clear),
		cmocka_unit_test_setup(test_percentiles, clear),
		cmocka_unit_test_setup(test_count_below, clear),
		cmocka_unit_test_setup(test_huge_values, clear),
		cmocka_unit_test_setup(test_merge, clear),
		cmocka_unit_test_setup(test_threads, clear),
		cmocka_unit_test_setup(test_signal, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
