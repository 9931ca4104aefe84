/* SPDX-License-Identifier: BSD-3-Clause */
/* Things that a process does to itself while it has fabric memory, which stays what it was. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/itself.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 128, LAPS = 3 };

static struct world world;

static void does(bool (*step)(void))
{
	uint64_t *fam = patterned_object(world.address, "2M", 2, CHUNKS * CHUNK);

	CHECK(step());
	for (unsigned lap = 0; lap < LAPS; lap++)
		for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 64) {
			CHECK_EQ(fam[i], mix(i, lap));
			fam[i] = mix(i, lap + 1);
		}
#ifdef __SANITIZE_ADDRESS__
	_exit(0); /* LeakSanitizer would trace the process */
#endif
}

static void child_limits(const void *arg)
{
	does(lower_limits);
}

static void child_identity(const void *arg)
{
	does(change_identity);
}

static void child_filter(const void *arg)
{
	does(forbid_calls);
}

/*
 * May: limits and identity | lowers each of its limits (files, file sizes, threads, locked
 * memory, addresses) | served
 */
static void test_limits(void **state)
{
	expect_passes(child_limits, NULL);
}

/*
 * May: limits and identity | becomes another user in another root directory, which nobody
 * may trace | served
 */
static void test_identity(void **state)
{
	expect_passes(child_identity, NULL);
}

/*
 * May: limits and identity | forbids itself files, sockets, threads and programs by a filter
 * of system calls | served
 */
static void test_filter(void **state)
{
	expect_passes(child_filter, NULL);
}

static uint64_t *fam;
static volatile uint64_t loaded;

/* One word of one chunk, another one for each thread. */
static void touch_one(void *arg, unsigned index)
{
	size_t round = *(const unsigned *)arg, at = (round * 16 + index) % CHUNKS * CHUNK_WORDS;

	CHECK_EQ(fam[at + 64], mix(at + 64, 0));
	fam[at]++;
}

static void child_many_threads(const void *arg)
{
	const unsigned rounds = 10000 / 16;

	fam = patterned_object(world.address, "2M", 2, CHUNKS * CHUNK);
	for (unsigned round = 0; round < rounds; round++)
		run_threads(16, touch_one, &round);
	for (size_t i = 0; i < CHUNKS; i++)
		CHECK_EQ(fam[i * CHUNK_WORDS] - mix(i * CHUNK_WORDS, 0),
			 rounds * 16 / CHUNKS + (i < rounds * 16 % CHUNKS));
	soda_free(fam);
}

/* May: threads | has 10,000 threads, sixteen at a time, more than SODA_THREADS says | served */
static void test_many_threads(void **state)
{
	expect_passes(child_many_threads, NULL);
}

static void *load_for_ever(void *arg)
{
	for (;;)
		for (size_t i = 0; i < CHUNKS; i++)
			loaded = fam[i * CHUNK_WORDS];
	return arg;
}

/* While three threads fault. */
static void child_ends(const void *arg)
{
	const char *how = arg;
	pthread_t thread;

	fam = patterned_object(world.address, "2M", 4, CHUNKS * CHUNK);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&thread, NULL, load_for_ever, NULL), 0);
	for (size_t i = 0; i < CHUNKS; i++)
		loaded = fam[i * CHUNK_WORDS];
	if (*how == 'q')
		quick_exit(7);
	if (*how == 'a')
		abort();
	if (*how == 't')
		raise(SIGTERM);
	if (*how == 'e')
		execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
}

static void end_by(const char *how, struct outcome *out)
{
	struct trial t = { .child = child_ends, .arg = how };

	trial_run(&t, out);
}

/*
 * May: ends | calls quick_exit(), or becomes another program, while other threads fault | it ends
 * May: ends | calls abort(), or gets a fatal signal, while other threads fault | ended by SIGABRT,
 * or SIGTERM
 */
static void test_other_ends(void **state)
{
	struct outcome out;

	end_by("quick_exit", &out);
	expect_exit(&out, 7);
	end_by("exec", &out);
	expect_exit(&out, 7);
	end_by("abort", &out);
	expect_signal(&out, SIGABRT);
	end_by("term", &out);
	expect_signal(&out, SIGTERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),	   cmocka_unit_test(test_identity),
		cmocka_unit_test(test_filter),	   cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_other_ends),
	};

	return WORLD_RUN("itself", &world, false, tests);
}
