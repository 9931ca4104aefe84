/* SPDX-License-Identifier: BSD-3-Clause */
/* Advice of `soda run --stats`: each rule with numbers where it fires, and where it is silent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "soda/run/advice.h"

#define MIB ((uint64_t)1 << 20)
#define S ((uint64_t)1000000000)

static struct soda_run_advice said[SODA_RUN_ADVICE_MAX];
static size_t said_n;

static void advise(struct soda_run_facts facts)
{
	said_n = soda_run_advise(&facts, said);
	assert_in_range(said_n, 1, SODA_RUN_ADVICE_MAX);
	for (size_t i = 0; i < said_n; i++)
		assert_in_range(strlen(said[i].text), 20, SODA_RUN_ADVICE_TEXT - 2);
}

/* The sentence of that rule; NULL: it did not fire. */
static const char *of(const char *rule)
{
	for (size_t i = 0; i < said_n; i++)
		if (!strcmp(said[i].rule, rule))
			return said[i].text;
	return NULL;
}

/* With those facts the rule fires, and its sentence has that part. */
static void says(struct soda_run_facts facts, const char *rule, const char *part)
{
	const char *text;

	advise(facts);
	text = of(rule);
	if (!text || !strstr(text, part))
		fail_msg("rule %s: %s, and not: %s", rule, text ? text : "does not fire", part);
}

static void silent(struct soda_run_facts facts, const char *rule)
{
	advise(facts);
	if (of(rule))
		fail_msg("rule %s says: %s", rule, of(rule));
}

/* 100 MiB of data, of which 30 MiB may be here and few leave; half of the time threads wait. */
static struct soda_run_facts usual(void)
{
	return (struct soda_run_facts){
		.waited_ns = 5 * S,
		.threads_ns = 10 * S,
		.data = 100 * MIB,
		.fetched = 20 * MIB,
		.written = 5 * MIB,
		.buffer = 30 * MIB,
		.local = 10 * MIB,
		.threshold = MIB,
		.demanded = 2000,
		.ahead = 4336,
		.chunk_bytes = 16384,
		.fetch_p50_ns = 100000,
	};
}

static void test_nothing(void **state)
{
	struct soda_run_facts f = { .local = 10 * MIB, .threshold = MIB };

	says(f, "none", "nothing to change: the program has no large blocks");
	f = usual();
	says(f, "none", "first touches");
	assert_int_equal(said_n, 1);
	/* all of them, but that threads hardly wait: a twentieth is little, and more is not */
	f = usual();
	f.fetched = 1000 * MIB;
	f.waited_ns = f.threads_ns / 20;
	says(f, "none", "less than a twentieth");
	f.waited_ns++;
	silent(f, "none");
}

static void test_threshold(void **state)
{
	struct soda_run_facts f = { .local = 64 * MIB, .threshold = MIB };

	says(f, "threshold", "up to 64 MiB in blocks");
	says(f, "threshold", "--threshold 64K");
	f.local--;
	says(f, "none", "nothing to change");
	f.local = 64 * MIB;
	f.threshold = 65536;
	silent(f, "threshold");
	f.threshold = MIB;
	f.small_blocks = true;
	silent(f, "threshold");
	/* beside large ones, only where there is more in small ones */
	f = usual();
	f.local = 101 * MIB;
	says(f, "threshold", "up to 101 MiB");
	f.local = 100 * MIB;
	silent(f, "threshold");
}

static void test_mode(void **state)
{
	struct soda_run_facts f = usual();

	f.handler = true;
	says(f, "mode", "without SODA_MODE=handler");
	f.waited_ns = S / 10;
	silent(f, "mode");
	f.waited_ns = 5 * S;
	f.handler = false;
	silent(f, "mode");
}

static void test_buffer(void **state)
{
	struct soda_run_facts f = usual();

	f.fetched++; /* with what was written, more than a quarter of the data */
	says(f, "buffer", "--mem 60M in place of 30 MiB; with 113M all");
	f.buffer = 60 * MIB; /* twice that is enough */
	says(f, "buffer", "with --mem 113M in place of 60 MiB all");
	f.buffer = 99 * MIB;
	says(f, "buffer", "--mem 113M");
	f.buffer = 100 * MIB;
	silent(f, "buffer");
	f.buffer = 30 * MIB;
	f.small_blocks = true;
	says(f, "buffer", "--local and --mem 60M");
	f.fetched--;
	silent(f, "buffer");
	f.written++;
	says(f, "buffer", "came back");
}

static void test_prefetch(void **state)
{
	struct soda_run_facts f = usual();

	f.ahead = 3000;
	f.useless = 1001;
	says(f, "prefetch", "1001 of 3000 chunks");
	f.useless = 1000;
	silent(f, "prefetch");
	/* few were fetched ahead: it does not matter */
	f.demanded = 9000;
	f.useless = 3000;
	silent(f, "prefetch");
	f.demanded = 8997;
	says(f, "prefetch", "SODA_PREFETCH=off");
}

static void test_chunk(void **state)
{
	struct soda_run_facts f = usual();

	f.buffer = f.fetched = 100 * MIB;
	f.ahead = 100;
	f.demanded = 301;
	says(f, "chunk", "SODA_CHUNK=4K in place of 16 KiB");
	f.demanded = 300;
	silent(f, "chunk");
	f.demanded = 301;
	f.fetched--;
	silent(f, "chunk");
	f.fetched++;
	f.chunk_bytes = 4096;
	silent(f, "chunk");
}

static void test_agent(void **state)
{
	struct soda_run_facts f = usual();

	f.buffer = f.fetched = 100 * MIB;
	f.remote = true;
	f.fetch_p50_ns = 500000;
	says(f, "agent", "took 500 us and more");
	f.fetch_p50_ns--;
	silent(f, "agent");
	f.fetch_p50_ns++;
	f.remote = false;
	silent(f, "agent");
}

/* Two sentences at most, the first ones of the table. */
static void test_two(void **state)
{
	struct soda_run_facts f = usual();

	f.handler = f.remote = true;
	f.fetched = 900 * MIB;
	f.fetch_p50_ns = S;
	advise(f);
	assert_int_equal(said_n, 2);
	assert_string_equal(said[0].rule, "mode");
	assert_string_equal(said[1].rule, "buffer");
}

static void test_time(void **state)
{
	/* one thread: its life */
	assert_int_equal(soda_run_threads_ns(10 * S, 14 * S, 5 * S, 1), 10 * S);
	/* eight that work and wait all the time: their lives */
	assert_int_equal(soda_run_threads_ns(10 * S, 50 * S, 40 * S, 8), 80 * S);
	/* a thousand that were there for a moment: what they did */
	assert_int_equal(soda_run_threads_ns(10 * S, 8 * S, 5 * S, 1000), 13 * S);
	/* and not less than the program's life */
	assert_int_equal(soda_run_threads_ns(10 * S, S, S, 1000), 10 * S);
	/* a thread that is not known, and one that waited as the numbers were noted */
	assert_int_equal(soda_run_threads_ns(10 * S, S, 0, 0), 10 * S);
	assert_int_equal(soda_run_threads_ns(S, S, 2 * S, 1), 2 * S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),	 cmocka_unit_test(test_threshold),
		cmocka_unit_test(test_mode),	 cmocka_unit_test(test_buffer),
		cmocka_unit_test(test_prefetch), cmocka_unit_test(test_chunk),
		cmocka_unit_test(test_agent),	 cmocka_unit_test(test_two),
		cmocka_unit_test(test_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
