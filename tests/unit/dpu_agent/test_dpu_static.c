/* SPDX-License-Identifier: BSD-3-Clause */
/* The static cache: all or nothing, shared, sealed, gone with the last region. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "dpu_agent/cache/static_cache.h"
#include "unit/fakes/dpu_sim.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

#define MIB (1ull << 20)

static struct soda_static *cache;
static struct soda_static_set set, other;
static struct soda_static_range *range;
static struct soda_why why;
static _Atomic int loads, fail_with, gate;

static const struct soda_owner_name graph = { .file = true, .id = { 3, 1 }, .bytes = 64 * MIB };
static const struct soda_owner_name mine = { .id = { 3, 1 }, .bytes = 64 * MIB };

static int load(void *source, uint64_t offset, uint8_t *memory, uint64_t bytes)
{
	assert_ptr_equal(source, &graph);
	atomic_fetch_add(&loads, 1);
	while (atomic_load(&gate))
		sched_yield();
	for (uint64_t at = 0; at < bytes; at += SIM_PAGE) {
		uint64_t word = offset + at;

		memcpy(memory + at, &word, sizeof(word));
	}
	return atomic_load(&fail_with);
}

static int add(struct soda_static_set *to, const struct soda_owner_name *owner, uint64_t offset,
	       uint64_t bytes)
{
	return soda_static_add(cache, to, owner, offset, bytes, load, (void *)&graph, &range, &why);
}

static struct soda_static_stats stats(void)
{
	struct soda_static_stats s;

	soda_static_stats(cache, &s);
	return s;
}

static bool has(struct soda_static_set *s, uint64_t offset, uint32_t bytes)
{
	struct soda_static_range *r;
	const uint8_t *memory = soda_static_acquire(cache, s, offset, bytes, &r);
	uint64_t word;

	if (!memory)
		return false;
	memcpy(&word, memory, sizeof(word));
	assert_int_equal(word, offset);
	memcpy(&word, memory + bytes - SIM_PAGE, sizeof(word));
	assert_int_equal(word, offset + bytes - SIM_PAGE);
	soda_static_release(cache, r);
	return true;
}

static int set_up(void **state)
{
	loads = fail_with = gate = 0;
	return soda_static_create(10 * MIB, NULL, &cache);
}

static int tear_down(void **state)
{
	soda_static_clear(cache, &set);
	soda_static_clear(cache, &other);
	assert_int_equal(stats().used, 0);
	assert_int_equal(stats().ranges, 0);
	soda_static_destroy(cache);
	return 0;
}

static void a_range_is_loaded_once_and_read(void **state)
{
	assert_false(has(&set, 0, SIM_PAGE));
	assert_int_equal(add(&set, &graph, MIB, 2 * MIB), 0);
	assert_true(has(&set, MIB, 65536));
	assert_true(has(&set, 3 * MIB - 65536, 65536));
	assert_false(has(&set, MIB - SIM_PAGE, 65536));
	assert_false(has(&set, 3 * MIB - SIM_PAGE, 65536));
	assert_int_equal(loads, 1);
	assert_int_equal(stats().hits, 2);
	assert_int_equal(stats().bytes_loaded, 2 * MIB);
}

static void all_or_nothing(void **state)
{
	assert_int_equal(add(&set, &graph, 0, 7 * MIB), 0);
	assert_int_equal(add(&set, &graph, 20 * MIB, 4 * MIB), -ENOSPC);
	assert_string_equal(why.text,
			    "static cache: 4 MiB wanted, but only 3 MiB of 10 MiB are free:"
			    " choose less, or start the agent with a larger"
			    " --static-bytes");
	assert_false(has(&set, 20 * MIB, SIM_PAGE));
	assert_int_equal(stats().used, 7 * MIB);
	assert_int_equal(stats().refused, 1);
	assert_int_equal(add(&set, &graph, 20 * MIB, 3 * MIB), 0);
}

/*
 * One of two tenants wants all: the part that is kept for the other is there, and comes back to it.
 * Promise S6.
 */
static void a_tenant_keeps_its_part(void **state)
{
	const struct soda_owner_name hers = { .id = { 1, 1 },
					      .bytes = 64 * MIB,
					      .holder = { 1, 2 } };
	const struct soda_owner_name his = { .id = { 2, 1 },
					     .bytes = 64 * MIB,
					     .holder = { 2, 2 } };

	/* a quarter of 10 MiB is each tenant's own */
	assert_int_equal(add(&other, &his, 0, 8 * MIB), -ENOSPC);
	assert_non_null(strstr(why.text, "kept for other tenants"));
	assert_int_equal(add(&other, &his, 0, 7 * MIB), 0);
	assert_int_equal(add(&other, &his, 8 * MIB, MIB), -ENOSPC);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(add(&set, &hers, 0, 2 * MIB), 0);
		assert_true(has(&set, 0, SIM_PAGE));
		soda_static_clear(cache, &set);
		assert_int_equal(add(&other, &his, 8 * MIB, MIB), -ENOSPC);
	}
	assert_int_equal(stats().used, 7 * MIB);
}

static void a_range_that_cannot_be_loaded_leaves_nothing(void **state)
{
	fail_with = -EIO;
	assert_int_equal(add(&set, &graph, 0, MIB), -EIO);
	assert_int_equal(stats().used, 0);
	assert_int_equal(stats().loads_failed, 1);
	assert_false(has(&set, 0, SIM_PAGE));
	fail_with = 0;
	assert_int_equal(add(&set, &graph, 0, MIB), 0);
	assert_true(has(&set, 0, SIM_PAGE));
}

static void bad_ranges(void **state)
{
	assert_int_equal(add(&set, &graph, 0, 0), -EINVAL);
	assert_int_equal(add(&set, &graph, 100, SIM_PAGE), -EINVAL);
	assert_int_equal(add(&set, &graph, 0, 100), -EINVAL);
	assert_int_equal(add(&set, &graph, 64 * MIB, SIM_PAGE), -EINVAL);
	assert_int_equal(add(&set, &graph, MIB, UINT64_MAX & ~4095ull), -EINVAL);
	assert_int_equal(loads, 0);
}

static void files_are_shared_regions_are_not(void **state)
{
	struct soda_owner_name newer = graph, elsewhere = graph;

	newer.id[1] = 2;
	elsewhere.server = 1; /* numbers of files are each server's own */
	assert_int_equal(add(&set, &graph, 0, 2 * MIB), 0);
	assert_int_equal(add(&other, &graph, 0, 2 * MIB), 0);
	assert_int_equal(add(&other, &graph, MIB, MIB), 0); /* part of it */
	assert_int_equal(loads, 1);
	assert_int_equal(stats().shared, 2);
	assert_int_equal(stats().used, 2 * MIB);
	assert_int_equal(add(&other, &newer, 0, MIB), 0);
	assert_int_equal(add(&other, &mine, 0, MIB), 0);
	assert_int_equal(loads, 3);
	assert_int_equal(add(&other, &elsewhere, 0, MIB), 0);
	assert_int_equal(loads, 4);
	/* It stays as long as one of them has it. */
	soda_static_clear(cache, &set);
	assert_true(has(&other, 0, SIM_PAGE));
	assert_false(has(&set, 0, SIM_PAGE));
	soda_static_clear(cache, &other);
	assert_int_equal(stats().used, 0);
}

static void who_reads_keeps_it(void **state)
{
	struct soda_static_range *r;
	const uint8_t *memory;
	uint64_t word;

	assert_int_equal(add(&set, &graph, 0, MIB), 0);
	memory = soda_static_acquire(cache, &set, MIB / 2, SIM_PAGE, &r);
	soda_static_clear(cache, &set);
	memcpy(&word, memory, sizeof(word));
	assert_int_equal(word, MIB / 2);
	assert_int_equal(stats().used, MIB);
	soda_static_release(cache, r);
	assert_int_equal(stats().used, 0);
}

static void nobody_can_change_it(void **state)
{
	struct soda_share share;
	uint64_t word;
	void *map;

	assert_int_equal(add(&set, &graph, 4 * MIB, MIB), 0);
	soda_static_share(range, &share);
	assert_int_equal(share.offset, 4 * MIB);
	assert_int_equal(share.bytes, MIB);
	assert_false(share.writable);
	assert_int_equal(fcntl(share.fd, F_GET_SEALS),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	assert_ptr_equal(mmap(NULL, MIB, PROT_WRITE, MAP_SHARED, share.fd, 0), MAP_FAILED);
	assert_int_equal(pwrite(share.fd, &word, sizeof(word), 0), -1);
	assert_int_equal(ftruncate(share.fd, 0), -1);
	map = mmap(NULL, MIB, PROT_READ, MAP_SHARED, share.fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	memcpy(&word, (char *)map + SIM_PAGE, sizeof(word));
	assert_int_equal(word, 4 * MIB + SIM_PAGE);
	munmap(map, MIB);
}

static void a_range_is_frozen(void **state)
{
	assert_false(soda_static_frozen(cache, &set, MIB, SIM_PAGE));
	assert_int_equal(add(&set, &mine, MIB, MIB), 0);
	assert_true(soda_static_frozen(cache, &set, MIB, SIM_PAGE));
	assert_true(soda_static_frozen(cache, &set, 0, MIB + SIM_PAGE));
	assert_true(soda_static_frozen(cache, &set, 2 * MIB - SIM_PAGE, 65536));
	assert_false(soda_static_frozen(cache, &set, 0, MIB));
	assert_false(soda_static_frozen(cache, &set, 2 * MIB, MIB));
	assert_int_equal(soda_static_remove(cache, &set, MIB, MIB / 2), -EBUSY);
	assert_true(soda_static_frozen(cache, &set, MIB, SIM_PAGE));
	assert_int_equal(soda_static_remove(cache, &set, 0, 4 * MIB), 1);
	assert_false(soda_static_frozen(cache, &set, MIB, SIM_PAGE));
	assert_int_equal(soda_static_remove(cache, &set, 0, 4 * MIB), 0);
}

static void patterns(void **state)
{
	assert_false(soda_static_rule(NULL, "edges"));
	assert_false(soda_static_rule("", "edges"));
	assert_true(soda_static_rule("edges", "edges"));
	assert_true(soda_static_rule("x,*.vertices,", "rmat.vertices"));
	assert_true(soda_static_rule("rank-[0-9],edges*", "edges of g"));
	assert_false(soda_static_rule("rank-[0-9],edges", "edges2"));
	assert_false(soda_static_rule("*.v", "v"));
}

/*
 * Threads that want the same range: one loads, the others wait, and share what it has loaded; if it
 * fails, they load by themselves.
 */

enum { THREADS = 4 };

struct wish {
	pthread_t thread;
	struct soda_static_set set;
	int status;
};

static void *wish_for(void *arg)
{
	struct wish *wish = arg;
	struct soda_static_range *r;
	struct soda_why mine_why;

	wish->status = soda_static_add(cache, &wish->set, &graph, MIB, MIB, load, (void *)&graph,
				       &r, &mine_why);
	if (!wish->status) {
		const uint8_t *memory = soda_static_acquire(cache, &wish->set, MIB, SIM_PAGE, &r);
		uint64_t word = 0;

		if (memory) {
			memcpy(&word, memory, sizeof(word));
			soda_static_release(cache, r);
		}
		wish->status = word == MIB ? 0 : -EBADMSG;
	}
	soda_static_clear(cache, &wish->set);
	return NULL;
}

static void many_want_the_same(void **state)
{
	for (int failing = 0; failing < 2; failing++) {
		struct wish wishes[THREADS] = { 0 };
		struct soda_static_stats s;

		loads = 0;
		gate = 1;
		fail_with = failing ? -EIO : 0;
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(
				pthread_create(&wishes[i].thread, NULL, wish_for, &wishes[i]), 0);
		do
			s = stats();
		while (s.shared != (uint64_t)(failing + 1) * (THREADS - 1));
		gate = 0;
		for (int i = 0; i < THREADS; i++) {
			pthread_join(wishes[i].thread, NULL);
			assert_int_equal(wishes[i].status, fail_with);
		}
		assert_int_equal(loads, failing ? THREADS : 1);
		assert_int_equal(stats().used, 0);
	}
}

struct source {
	pthread_t thread;
	struct soda_static_set set;
	_Atomic int loads, gate;
	int fails, status;
};

static int load_from(void *arg, uint64_t offset, uint8_t *memory, uint64_t bytes)
{
	struct source *source = arg;

	atomic_fetch_add(&source->loads, 1);
	while (atomic_load(&source->gate))
		sched_yield();
	return source->fails;
}

static void *add_from(void *arg)
{
	struct source *source = arg;
	struct soda_static_range *r;
	struct soda_why own;

	source->status =
		soda_static_add(cache, &source->set, &graph, MIB, MIB, load_from, source, &r, &own);
	return NULL;
}

/* Whose connection has failed has no range; who waited for the same one has its own connection. */
static void a_failed_load_is_the_loaders(void **state)
{
	struct source bad = { .fails = -ECONNRESET, .gate = 1 }, good = { .fails = 0 };

	assert_int_equal(pthread_create(&bad.thread, NULL, add_from, &bad), 0);
	while (!atomic_load(&bad.loads))
		sched_yield();
	assert_int_equal(pthread_create(&good.thread, NULL, add_from, &good), 0);
	while (!stats().shared)
		sched_yield();
	atomic_store(&bad.gate, 0);
	pthread_join(bad.thread, NULL);
	pthread_join(good.thread, NULL);
	assert_int_equal(bad.status, -ECONNRESET);
	assert_int_equal(good.status, 0);
	assert_int_equal(good.loads, 1);
	assert_int_equal(good.set.n, 1);
	assert_int_equal(bad.set.n, 0);
	soda_static_clear(cache, &good.set);
}

/* Time passes fast for who waits: a wait that is told of is told to have ended, too. */
static _Atomic bool hurries;
static _Atomic int told_ends;

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
			   clockid_t clock, const struct timespec *restrict until)
{
	int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

	if (!hurries) {
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
		return real(cond, mutex, clock, until);
	}
	pthread_mutex_unlock(mutex);
	usleep(1000);
	pthread_mutex_lock(mutex);
	return ETIMEDOUT;
}

static void note(int level, const char *line, void *arg)
{
	told_ends += !!strstr(line, "of the static cache has ended");
}

static void a_long_wait_ends_in_the_log(void **state)
{
	struct source first = { .gate = 1 }, second = { .gate = 0 };

	soda_log_setup("test", SODA_LOG_LVL_INFO, note, NULL);
	hurries = true;
	assert_int_equal(pthread_create(&first.thread, NULL, add_from, &first), 0);
	while (!atomic_load(&first.loads))
		sched_yield();
	assert_int_equal(pthread_create(&second.thread, NULL, add_from, &second), 0);
	while (!stats().shared)
		sched_yield();
	usleep(20000);
	atomic_store(&first.gate, 0);
	pthread_join(first.thread, NULL);
	pthread_join(second.thread, NULL);
	hurries = false;
	soda_log_setup("test", SODA_LOG_LVL_ERROR, NULL, NULL);
	assert_int_equal(second.status, 0);
	assert_int_equal(told_ends, 1);
	soda_static_clear(cache, &first.set);
	soda_static_clear(cache, &second.set);
}

/* Advice that is given again and again takes no more memory than once. */
static void the_same_advice_again(void **state)
{
	struct soda_static_range *first;

	assert_int_equal(add(&set, &graph, MIB, 2 * MIB), 0);
	first = range;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(add(&set, &graph, MIB, i % 2 ? 2 * MIB : MIB), 0);
		assert_ptr_equal(range, first);
	}
	assert_int_equal(set.n, 1);
	assert_int_equal(loads, 1);
	assert_int_equal(soda_static_remove(cache, &set, MIB, 2 * MIB), 1);
	assert_false(has(&set, MIB, SIM_PAGE));
	assert_int_equal(stats().used, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		CASE(a_range_is_loaded_once_and_read),
		CASE(all_or_nothing),
		CASE(a_failed_load_is_the_loaders),
		CASE(a_long_wait_ends_in_the_log),
		CASE(the_same_advice_again),
		CASE(a_tenant_keeps_its_part),
		CASE(a_range_that_cannot_be_loaded_leaves_nothing),
		CASE(bad_ranges),
		CASE(files_are_shared_regions_are_not),
		CASE(who_reads_keeps_it),
		CASE(nobody_can_change_it),
		CASE(a_range_is_frozen),
		cmocka_unit_test(patterns),
		CASE(many_want_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
