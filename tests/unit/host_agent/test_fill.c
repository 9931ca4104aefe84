/* SPDX-License-Identifier: BSD-3-Clause */
/* First touches in order: how much one fault fills, and what that costs where it was in vain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "host_agent/pages/install.h"
#include "unit/fakes/host_fixture.h"

enum { CHUNKS = 64, KIB = 1 << 10 };

static const struct host_options roomy = { .chunk_bytes = 16 * KIB,
					   .buffer_chunks = 100,
					   .prefetch = 32 };

static uint32_t closed; /* the object's chunk that is not accessible */
static struct soda_region *now;

static bool allowed(uint32_t id)
{
	assert_int_equal(host_state(now, id - now->first), SODA_CHUNK_FETCHING);
	return id - now->first != closed;
}

static struct soda_region *object(const struct host_options *o)
{
	host_start(o);
	soda_fill_allowed = allowed;
	closed = CHUNKS;
	return now = host_alloc(CHUNKS * (uint64_t)o->chunk_bytes);
}

static void end(struct soda_region *r)
{
	host_check(r);
	host_free(r);
	assert_int_equal(soda_agent.buffer.pinned, 0);
	host_stop();
}

static uint32_t count(const struct soda_region *r, enum soda_chunk_state state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < CHUNKS; i++)
		n += host_state(r, i) == state;
	return n;
}

/* The third step makes a stream; what it fills counts as stored to, and is not faulted on. */
static void test_stores(void **state)
{
	struct soda_region *r = object(&roomy);

	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(count(r, SODA_CHUNK_DIRTY), i);
		host_store(r, i, 1, i);
	}
	assert_int_equal(count(r, SODA_CHUNK_DIRTY), 3 + 4);
	for (uint32_t i = 3; i < CHUNKS; i++)
		host_store(r, i, 1, i);
	assert_in_range(host_count(SODA_CNT_FAULTS), 5, 9);
	assert_int_equal(host_count(SODA_CNT_ZERO_FILLS), CHUNKS);
	assert_int_equal(host_count(SODA_CNT_WP_FAULTS), 0);
	assert_int_equal(host_sync(r), 0);
	assert_int_equal(host_cold(r, 0, CHUNKS), 0);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		assert_int_equal(host_load(r, i, 1), i);
		assert_int_equal(host_load(r, i, 2), 0);
	}
	end(r);
}

/* A load's are clean: nothing of them travels, and a store to one is noticed. */
static void test_loads(void **state)
{
	struct soda_region *r = object(&roomy);

	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(host_load(r, i, 0), 0);
	assert_in_range(host_count(SODA_CNT_FAULTS), 5, 9);
	assert_int_equal(count(r, SODA_CHUNK_CLEAN), CHUNKS);
	host_store(r, 20, 0, 1);
	assert_int_equal(count(r, SODA_CHUNK_DIRTY), 1);
	assert_int_equal(host_sync(r), 0);
	assert_in_range(fake_net.bytes_written, 1, 16 * KIB);
	end(r);
}

/* Out of order, and where the program says that there is none: a fault each. */
static void test_random(void **state)
{
	struct soda_region *r = object(&roomy);

	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(r, i * 29 % CHUNKS, 0, i);
	assert_int_equal(host_count(SODA_CNT_FAULTS), CHUNKS);
	end(r);
	r = object(&roomy);
	atomic_store(&r->advice, SODA_RANDOM);
	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(r, i, 0, i);
	assert_int_equal(host_count(SODA_CNT_FAULTS), CHUNKS);
	end(r);
	r = object(&roomy);
	soda_fill_allowed = NULL;
	for (uint32_t i = 0; i < CHUNKS; i++)
		host_store(r, i, 0, i);
	assert_int_equal(host_count(SODA_CNT_FAULTS), CHUNKS);
	end(r);
}

/* Chunks that are there already end it; the object's end does, too. */
static void test_between(void **state)
{
	struct soda_region *r = object(&roomy);

	host_store(r, 5, 0, 55);
	for (uint32_t i = 0; i < 3; i++)
		host_store(r, i, 0, i);
	assert_int_equal(host_state(r, 4), SODA_CHUNK_DIRTY);
	assert_int_equal(host_state(r, 6), SODA_CHUNK_ZERO);
	assert_int_equal(host_load(r, 5, 0), 55);
	for (uint32_t i = 3; i < CHUNKS; i++)
		host_store(r, i, 0, i);
	assert_int_equal(count(r, SODA_CHUNK_DIRTY), CHUNKS);
	end(r);
	r = object(&roomy);
	closed = 6;
	for (uint32_t i = 0; i < 5; i++)
		host_store(r, i, 0, i);
	assert_int_equal(host_state(r, 5), SODA_CHUNK_DIRTY);
	assert_int_equal(host_state(r, 6), SODA_CHUNK_ZERO);
	assert_int_equal(host_state(r, 7), SODA_CHUNK_ZERO);
	end(r);
}

/* A full buffer: nobody leaves for what was not asked for, and the limit holds. */
static void test_full(void **state)
{
	const struct host_options tight = { .chunk_bytes = 16 * KIB,
					    .buffer_chunks = 12,
					    .prefetch = 32 };
	struct soda_region *r = object(&tight);

	for (uint32_t i = 0; i < CHUNKS; i++) {
		host_store(r, i, 3, i);
		assert_true(soda_buffer_used(&soda_agent.buffer) <= 12);
	}
	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(host_load(r, i, 3), i);
	host_settle(r, true);
	end(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stores), cmocka_unit_test(test_loads),
		cmocka_unit_test(test_random), cmocka_unit_test(test_between),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests_name("fill", tests, NULL, NULL);
}
