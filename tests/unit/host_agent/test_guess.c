/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads that stores will follow: chunks installed writable on a guess, and what becomes of
 * wrong guesses.  That nothing is lost is checked by the fake kernel, which lets only
 * those pages be dropped that the server has.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/object/guess.h"
#include "host_agent/core/link.h"
#include "unit/fakes/host_fixture.h"

enum { CHUNKS = 64 };

static const struct host_options plain = { .buffer_chunks = 24 };

/* Content on the server, nothing resident. */
static struct soda_region *object(const struct host_options *o)
{
	struct soda_region *r;

	host_start(o);
	r = host_alloc((uint64_t)CHUNKS * soda_chunk_bytes());
	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(r, i, 0, i + 1);
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	return r;
}

/* Read, then write, until the object is known for it. */
static void teach(struct soda_region *r)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		host_load(r, i, 3);
		host_store(r, i, 3, i + 100);
	}
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	assert_true(soda_guess_active(r));
	atomic_store(&r->load_turn, 1); /* the next 63 loads are guesses */
}

static bool writable(const struct soda_region *r, uint32_t chunk)
{
	bool yes;

	fake_lock();
	yes = fake_present(host_at(r, chunk, 0)) && !fake_protected(host_at(r, chunk, 0));
	fake_unlock();
	return yes;
}

static void nothing_is_guessed_of_readers(void **state)
{
	struct soda_region *r = object(&plain);

	for (uint32_t i = 0; i < CHUNKS; i++) {
		host_load(r, i, 0);
		assert_false(writable(r, i));
	}
	assert_false(soda_guess_active(r));
	assert_int_equal(soda_guess_bytes(r), 0);
	host_check(r);
	host_stop();
}

static void a_store_after_a_load_is_no_fault(void **state)
{
	struct soda_region *r = object(&plain);
	uint64_t faults;

	teach(r);
	faults = host_count(SODA_CNT_WP_FAULTS);
	for (uint32_t i = 0; i < 32; i++) {
		assert_int_equal(host_load(r, i, 3), i + 100);
		assert_true(writable(r, i));
		host_store(r, i, 15, i + 200);
	}
	assert_int_equal(host_count(SODA_CNT_WP_FAULTS), faults);
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(host_load(r, i, 15), i + 200);
	host_check(r);
	host_stop();
}

static void what_was_not_stored_to_is_not_sent(void **state)
{
	struct soda_region *r = object(&plain);
	uint32_t writes;

	teach(r);
	writes = fake_net.writes;
	for (uint32_t i = 0; i < 8; i++) {
		host_load(r, i, 0);
		assert_int_equal(host_state(r, i), SODA_CHUNK_DIRTY);
	}
	assert_int_equal(host_sync(r), 0);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(host_state(r, i), SODA_CHUNK_CLEAN);
		assert_false(writable(r, i));
	}
	assert_int_equal(fake_net.writes, writes);
	host_load(r, 9, 0);
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	assert_int_equal(host_state(r, 9), SODA_CHUNK_REMOTE);
	assert_int_equal(fake_net.writes, writes);
	assert_int_equal(host_load(r, 9, 0), 10);
	host_check(r);
	host_stop();
}

/* The program closes what it was given writable: it is compared, and written back, all the same. */
static void what_is_closed_is_sent(void **state)
{
	struct soda_region *r = object(&plain);

	teach(r);
	for (uint32_t i = 0; i < 8; i++)
		host_load(r, i, 0);
	host_store(r, 2, 1, 77);
	for (uint32_t i = 2; i < 4; i++)
		assert_int_equal(mprotect(host_at(r, i, 2), 4096, PROT_NONE), 0);
	assert_int_equal(host_sync(r), 0);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(host_state(r, i), SODA_CHUNK_CLEAN);
	for (uint32_t i = 2; i < 4; i++)
		assert_int_equal(mprotect(host_at(r, i, 2), 4096, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	assert_int_equal(host_load(r, 2, 1), 77);
	assert_int_equal(host_load(r, 3, 0), 4);
	host_check(r);
	host_stop();
}

/* Enough loads without a store, and chunks are protected again. */
static void wrong_guesses_end_it(void **state)
{
	struct soda_region *r = object(&plain);

	teach(r);
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < CHUNKS; i++)
			host_load(r, i, 0);
		assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	}
	assert_false(soda_guess_active(r));
	host_load(r, 5, 0);
	assert_false(writable(r, 5));
	host_check(r);
	host_stop();
}

/* While it is guessed, some chunks stay protected, so that sparse stores are noticed. */
static void a_share_stays_protected(void **state)
{
	struct soda_region *r = object(&plain);
	uint32_t protected = 0;

	teach(r);
	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < CHUNKS; i++) {
			host_load(r, i, 0);
			protected += !writable(r, i);
			host_store(r, i, 0, (round + 1) * 1000 + i);
		}
		assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	}
	assert_in_range(protected, 3, 5);
	host_check(r);
	host_stop();
}

/* Sparse stores: a whole chunk would travel for one page, so nothing is guessed. */
static void sparse_stores_are_not_guessed(void **state)
{
	struct soda_region *r = object(&plain);

	teach(r);
	r->sparse_score = 16;
	host_load(r, 1, 0);
	assert_false(writable(r, 1));
	host_check(r);
	host_stop();
}

/* The server starts anew: resident chunks are the only copies, whether stored to or not. */
static void a_guess_does_not_outlive_the_server(void **state)
{
	struct soda_region *r = object(&plain);

	teach(r);
	for (uint32_t i = 0; i < 4; i++)
		host_load(r, i, 0);
	fake_net_restart();
	soda_server_report(&soda_agent.links[0].server, -ECONNRESET);
	assert_int_equal(
		soda_server_wait(&soda_agent.links[0].server, soda_now_ns() + 60000000000u, NULL),
		0);
	assert_int_equal(host_sync(r), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(fake_server_word(r->id, (uint64_t)i << 16), i + 1);
	host_stop();
}

static void a_refused_write_back_keeps_the_data(void **state)
{
	struct soda_region *r = object(&plain);

	teach(r);
	host_load(r, 2, 0);
	host_store(r, 2, 7, 77);
	fake_net_refuse(true, -EIO, 1);
	assert_int_equal(host_sync(r), -EIO);
	assert_int_equal(host_state(r, 2), SODA_CHUNK_DIRTY);
	assert_int_equal(host_sync(r), 0); /* the fingerprint does not count any more */
	assert_int_equal(fake_server_word(r->id, (2 << 16) + (7 << 12)), 77);
	host_check(r);
	host_stop();
}

static void small_chunks_have_no_fingerprints(void **state)
{
	const struct host_options small = { .chunk_bytes = 16384, .buffer_chunks = 24 };
	struct soda_region *r = object(&small);

	for (uint32_t i = 0; i < CHUNKS; i++) {
		host_load(r, i, 1);
		assert_false(writable(r, i));
		host_store(r, i, 1, i);
	}
	assert_false(soda_guess_active(r));
	assert_int_equal(soda_guess_bytes(r), 0);
	host_check(r);
	host_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_guessed_of_readers),
		cmocka_unit_test(a_store_after_a_load_is_no_fault),
		cmocka_unit_test(what_was_not_stored_to_is_not_sent),
		cmocka_unit_test(what_is_closed_is_sent),
		cmocka_unit_test(wrong_guesses_end_it),
		cmocka_unit_test(a_share_stays_protected),
		cmocka_unit_test(sparse_stores_are_not_guessed),
		cmocka_unit_test(a_guess_does_not_outlive_the_server),
		cmocka_unit_test(a_refused_write_back_keeps_the_data),
		cmocka_unit_test(small_chunks_have_no_fingerprints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
