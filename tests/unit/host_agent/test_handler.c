/* SPDX-License-Identifier: BSD-3-Clause */
/* Handler mode's thread, which gets its faults from a socket here. */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/fault/fault.h"
#include "host_agent/life/advise.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/writeback.h"
#include "host_agent/pages/mapping.h"
#include "soda.h"
#include "unit/fakes/host_fixture.h"

static int kernel; /* the other end of what the thread reads */

static void start(bool poisons, uint32_t fault_timeout_ms)
{
	const struct host_options o = { .buffer_chunks = 24, .fault_timeout_ms = fault_timeout_ms };
	int ends[2];

	host_start(&o);
	fake_page_ops.poisons = poisons;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
	kernel = ends[0];
	soda_agent.uffd.fd = ends[1];
	assert_int_equal(soda_handler_start(), 0);
}

static void stop(void)
{
	soda_handler_stop();
	host_stop(); /* first: a keeper that reconnects tells of the descriptor */
	close(kernel);
	close(soda_agent.uffd.fd);
	soda_agent.uffd.fd = -1;
}

static uint32_t wakes(void)
{
	uint32_t n;

	fake_lock();
	n = fake_page_ops.wakes;
	fake_unlock();
	return n;
}

static uint32_t copies_covered(void)
{
	uint32_t n;

	fake_lock();
	n = fake_page_ops.covered;
	fake_unlock();
	return n;
}

/* flags: what the kernel says of the fault. */
static void begin_access(const void *page, uint64_t flags)
{
	struct uffd_msg m = { .event = UFFD_EVENT_PAGEFAULT };

	m.arg.pagefault.address = (uintptr_t)page;
	m.arg.pagefault.flags = flags;
	assert_int_equal(write(kernel, &m, sizeof(m)), sizeof(m));
}

static void begin_touch(const void *page)
{
	begin_access(page, 0);
}

static void await_wakes(uint32_t n)
{
	uint64_t end = soda_now_ns() + 30000000000u;

	while ((int32_t)(wakes() - n) < 0) {
		assert_true(soda_now_ns() < end);
		usleep(1000);
	}
}

/* A thread touches the page; until the handler lets it try again. */
static void touch(const void *page)
{
	uint32_t before = wakes();

	begin_touch(page);
	await_wakes(before + 1);
}

/*
 * Write the chunks back and drop them.  The time for a fault is short in these tests, and on a busy
 * machine another thread may need more for that.
 */
static void make_remote(struct soda_region *r, uint32_t first, uint32_t n)
{
	uint64_t end = soda_now_ns() + 30000000000u;

	while (host_cold(r, first, n))
		assert_true(soda_now_ns() < end);
	for (uint32_t i = first; i < first + n; i++)
		host_expect(r, i, SODA_CHUNK_REMOTE);
}

static void await_sync_of(struct soda_region *r, uint32_t first, uint32_t n)
{
	uint64_t end = soda_now_ns() + 30000000000u;

	while (soda_sync_chunks(r->first + first, n))
		assert_true(soda_now_ns() < end);
}

static void await_sync(struct soda_region *r)
{
	await_sync_of(r, 0, r->chunks);
}

/* On its way, as another thread has asked for it. */
static struct soda_chunk *fetching(struct soda_region *r, uint32_t i)
{
	struct soda_chunk *c = &soda_agent.table[r->first + i];
	uint32_t w;

	make_remote(r, i, 1);
	w = soda_chunk_load(c);
	assert_true(soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING));
	atomic_store(&c->channel, SODA_CHANNEL_NONE);
	return c;
}

/* Whether the memory itself is there still, and no other mapping in its place. */
static bool readable(const void *page)
{
	int p[2];
	bool is;

	assert_int_equal(pipe(p), 0);
	is = write(p[1], page, 8) == 8;
	close(p[0]);
	close(p[1]);
	return is;
}

/*
 * An agent that installs a chunk stops in the middle of it.  Who waits for the rest fails in his
 * time; the pages that are there already stay there.
 */
static void half_there_in_time(void **state)
{
	uint64_t page[512] = { 77 };
	struct soda_chunk *c;
	struct soda_region *r;

	start(true, 1000);
	r = host_alloc(4 << 16);
	host_store(r, 1, 2, 77);
	c = fetching(r, 1);
	fake_lock();
	fake_peer_copy(host_at(r, 1, 2), page, true);
	fake_unlock();
	touch(host_at(r, 1, 2));
	assert_true(readable(host_at(r, 1, 2)));
	assert_int_equal(*(uint64_t *)host_at(r, 1, 2), 77);
	assert_false(soda_mapping_any_failing());
	touch(host_at(r, 1, 3)); /* fails, as a page that is not there */
	assert_false(soda_mapping_any_failing());
	assert_int_equal(soda_mapping_clear(host_at(r, 1, 0), 65536, soda_region_prot(r)), 0);
	soda_chunk_settle(c, SODA_CHUNK_REMOTE, 0, 0, 0);
	assert_int_equal(host_load(r, 1, 2), 77);
	host_check(r);
	stop();
}

/*
 * Where the kernel has no mark for a page that fails another mapping stands in for it: not while
 * the chunk is on its way, as what comes could not lie there.
 */
static void on_its_way_in_time(void **state)
{
	struct soda_chunk *c;
	struct soda_region *r;
	uint32_t before;

	start(false, 200);
	r = host_alloc(4 << 16);
	host_store(r, 1, 2, 77);
	c = fetching(r, 1);
	before = wakes();
	begin_touch(host_at(r, 1, 2));
	usleep(800000); /* twice its time, and as long again */
	assert_false(soda_mapping_any_failing());
	assert_true(readable(host_at(r, 1, 2)));
	assert_int_equal(wakes(), before);
	soda_chunk_settle(c, SODA_CHUNK_REMOTE, 0, 0, 0);
	await_wakes(before + 1);
	assert_false(soda_mapping_any_failing());
	assert_int_equal(host_load(r, 1, 2), 77);
	host_check(r);
	stop();
}

/*
 * The connection is lost, and the READ with it, before the handler looks at the chunk again: it
 * must not take that for a chunk that was filled at once, and forget the thread.
 */
static _Atomic uint32_t lost_at_once; /* so many READs, from the next one on */

int __real_soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block);
int __wrap_soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block);
int __wrap_soda_fetch_post(struct soda_thread *t, struct soda_region *r, uint32_t id, int block)
{
	int ret = __real_soda_fetch_post(t, r, id, block);

	if (!ret && atomic_load(&lost_at_once)) {
		atomic_fetch_sub(&lost_at_once, 1);
		soda_fetch_abandon(id);
	}
	return ret;
}

static void lost_when_asked(void **state)
{
	struct soda_region *r;

	start(true, 20000);
	r = host_alloc(4 << 16);
	host_store(r, 1, 2, 77);
	make_remote(r, 1, 1);
	atomic_store(&lost_at_once, 2);
	touch(host_at(r, 1, 2));
	assert_int_equal(atomic_load(&lost_at_once), 0);
	assert_int_equal(host_load(r, 1, 2), 77);
	host_check(r);
	stop();
}

/* Two threads that touch one page of a chunk which is lost: what the first was told stays so. */
static void both_fail(void **state)
{
	struct soda_region *r;
	uint32_t before;

	start(true, 1000);
	r = host_alloc(4 << 16);
	host_store(r, 1, 2, 77);
	make_remote(r, 1, 1);
	atomic_store(&r->lost, true);
	before = wakes();
	begin_touch(host_at(r, 1, 2));
	begin_touch(host_at(r, 1, 2));
	await_wakes(before + 2);
	host_expect(r, 1, SODA_CHUNK_LOST);
	assert_false(soda_mapping_any_failing());
	stop();
}

/*
 * The kernel has kept pages of a chunk that was evicted, write-protected; then its content is lost,
 * or cannot be had in time.  A store to such a page would only fault again: it has to fail.
 */
static void store_to_left_page(void **state)
{
	const uint64_t flags = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;

	for (int lost = 0; lost < 2; lost++) {
		struct soda_region *r;
		uint32_t before;

		start(true, lost ? 20000 : 300);
		r = host_alloc(4 << 16);
		for (uint32_t p = 0; p < 16; p++)
			host_store(r, 1, p, 77);
		await_sync(r);
		fake_lock();
		fake_page_ops.drop_fails_in = 5;
		fake_unlock();
		make_remote(r, 1, 1);
		assert_int_equal(fake_resident(host_at(r, 1, 0), 65536), 11);
		if (lost)
			atomic_store(&r->lost, true);
		else
			fake_net_hold(true, false);
		before = wakes();
		begin_access(host_at(r, 1, 9), flags);
		await_wakes(before + 1);
		host_expect(r, 1, lost ? SODA_CHUNK_LOST : SODA_CHUNK_REMOTE);
		assert_false(readable(host_at(r, 1, 9)));
		fake_net_hold(false, false);
		stop();
	}
}

static _Atomic bool handler_waits, handler_goes_on;

static void await_flag(_Atomic bool *flag)
{
	uint64_t end = soda_now_ns() + 30000000000u;

	while (!atomic_load(flag)) {
		if (soda_now_ns() > end)
			fake_fail("the other thread does not come so far");
		usleep(100);
	}
}

static void hold_handler(void)
{
	atomic_store(&handler_waits, true);
	await_flag(&handler_goes_on);
}

/* Another thread is changing the resident chunk. */
static void make_busy(const struct soda_region *r, uint32_t i)
{
	uint32_t w = host_word(r, i);

	do
		assert_int_equal(soda_chunk_state(w), SODA_CHUNK_CLEAN);
	while (!soda_chunk_begin(&soda_agent.table[r->first + i], &w, SODA_CHUNK_BUSY));
}

static void end_busy(const struct soda_region *r, uint32_t i)
{
	soda_chunk_settle(&soda_agent.table[r->first + i], SODA_CHUNK_CLEAN, 0, 0, 0);
}

static void discard(struct soda_region *r, uint32_t i)
{
	struct soda_why why;

	fake_lock();
	fake_page_ops.discarding = true;
	fake_unlock();
	assert_int_equal(soda_advise_range(r, host_at(r, i, 0), 65536, SODA_DISCARD, &why), 0);
	fake_lock();
	fake_page_ops.discarding = false;
	fake_unlock();
}

/*
 * While the handler serves the fault of chunk 0, the thread whose store to chunk 1 it knows already
 * goes on, as another thread opens the page; what it stores comes to the server, or is discarded.
 * Then the handler comes to that fault: nothing is stored any more, and the chunk stays clean.
 */
static void late_store(void **state)
{
	const uint64_t flags = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;

	for (int discarded = 0; discarded < 2; discarded++) {
		struct soda_region *r;
		uint32_t before;

		start(true, 20000);
		handler_waits = handler_goes_on = false;
		r = host_alloc(4 << 16);
		soda_agent.settings.mode =
			SODA_MODE_HANDLER; /* behind it: slots stay as they are */
		host_store(r, 0, 2, 76);
		host_store(r, 1, 2, 77);
		await_sync(r);
		make_busy(r, 0);
		make_busy(r, 1);
		before = wakes();
		begin_access(host_at(r, 0, 2), flags);
		begin_access(host_at(r, 1, 2), flags);
		touch(soda_agent.base + soda_agent.bytes - 4096); /* nobody's: it has read both */
		fake_lock();
		fake_page_ops.on_open = hold_handler;
		fake_unlock();
		end_busy(r, 0);
		await_flag(&handler_waits);
		end_busy(r, 1);
		host_store(r, 1, 2, 78);
		if (discarded)
			discard(r, 1);
		else
			await_sync_of(r, 1, 1);
		atomic_store(&handler_goes_on, true);
		await_wakes(before + 3);
		host_expect(r, 1, SODA_CHUNK_CLEAN);
		assert_int_equal(host_load(r, 1, 2), discarded ? 0 : 78);
		host_check(r);
		stop();
	}
}

/*
 * On a kernel that has no mark for it a page that could not be had has another mapping for a
 * moment, at which what comes of its chunk would end.  A fault on another page waits until then.
 * From here on soda_mapping_any_failing() is true: this stands behind the tests that ask it.
 */
static void other_page_waits(void **state)
{
	struct soda_region *r;

	start(false, 300);
	r = host_alloc(4 << 16);
	host_store(r, 1, 2, 77);
	host_store(r, 1, 3, 78);
	make_remote(r, 1, 1);
	fake_net_hold(true, false);
	touch(host_at(r, 1, 2)); /* fails in its time */
	assert_true(soda_mapping_any_failing());
	fake_net_hold(false, false);
	touch(host_at(r, 1, 3));
	assert_int_equal(copies_covered(), 0);
	assert_int_equal(host_load(r, 1, 3), 78);
	assert_int_equal(host_load(r, 1, 2), 77);
	host_check(r);
	stop();
}

/* Of the next drop nothing is done. */
static void refuse_drop(bool on)
{
	fake_lock();
	fake_page_ops.drop_fails_in = on ? 0 : -1;
	fake_unlock();
}

/*
 * Another thread (soda_publish) makes that chunk dirty, and the kernel does not let go of the pages
 * before the one at which its copy ends: none of them is open for stores.
 */
static void half_there_for_store(void **state)
{
	struct soda_region *r;
	int ret;

	start(false, 300);
	r = host_alloc(4 << 16);
	host_store(r, 0, 0, 76); /* the first of an object is opened block by block, to learn */
	host_store(r, 1, 2, 77);
	do { /* on a busy machine the page may be a missing one again before the thread comes */
		refuse_drop(false);
		make_remote(r, 1, 1);
		fake_net_hold(true, false);
		touch(host_at(r, 1, 2));
		fake_net_hold(false, false);
		refuse_drop(true);
		ret = soda_fault_dirty(soda_thread_self(), r, r->first + 1);
	} while (!copies_covered());
	assert_int_not_equal(ret, 0);
	host_expect(r, 1, SODA_CHUNK_REMOTE);
	fake_lock();
	assert_true(fake_present(host_at(r, 1, 1)));
	assert_true(fake_protected(host_at(r, 1, 1)));
	fake_unlock();
	stop();
}

static const struct soda_page_ops *below;
static pthread_t looker;
static _Atomic bool looks, looked;
static struct soda_stats seen;

static void *look(void *arg)
{
	atomic_store(&looks, true);
	soda_get_stats(&seen, sizeof(seen));
	atomic_store(&looked, true);
	return NULL;
}

/* The thread goes on, and the statistics are read, before the handler has gone on. */
static int wake_and_look(void *addr, size_t bytes)
{
	int ret = below->wake(addr, bytes);

	if (atomic_load(&looks))
		return ret;
	if (pthread_create(&looker, NULL, look, NULL))
		fake_fail("no thread");
	while (!atomic_load(&looks))
		usleep(1000);
	usleep(5000);
	return ret;
}

/* A thread's wait is counted by the time that the thread looks. */
static void counted_when_it_goes_on(void **state)
{
	struct soda_page_ops ops;
	struct soda_region *r;
	struct soda_stats was;

	start(false, 20000);
	r = host_alloc(4 << 16);
	host_store(r, 1, 2, 77);
	make_remote(r, 1, 1);
	soda_get_stats(&was, sizeof(was));
	below = soda_agent.page_ops;
	ops = *below;
	ops.wake = wake_and_look;
	atomic_store(&looks, false);
	atomic_store(&looked, false);
	soda_agent.page_ops = &ops;
	touch(host_at(r, 1, 2));
	while (!atomic_load(&looked)) /* it may not have begun */
		usleep(1000);
	assert_int_equal(pthread_join(looker, NULL), 0);
	assert_int_equal(seen.faults, was.faults + 1);
	assert_true(seen.stalled_ns > was.stalled_ns);
	soda_handler_stop();
	soda_agent.page_ops = below;
	host_check(r);
	stop();
}

static int wake_and_wait(void *addr, size_t bytes)
{
	int ret = below->wake(addr, bytes);

	hold_handler();
	return ret;
}

/*
 * The thread goes on, as another one has brought the chunk, and frees the object before the handler
 * has gone on: the handler remembers no chunk of it.
 */
static void freed_when_it_goes_on(void **state)
{
	struct soda_page_ops ops;
	struct soda_region *r;
	uint32_t id;

	start(true, 20000);
	handler_waits = handler_goes_on = false;
	r = host_alloc(4 << 16);
	id = r->first + 1;
	host_store(r, 1, 2, 77);
	host_settle(r, true);
	below = soda_agent.page_ops;
	ops = *below;
	ops.wake = wake_and_wait;
	soda_agent.page_ops = &ops;
	begin_touch(host_at(r, 1, 2));
	await_flag(&handler_waits);
	host_free(r);
	atomic_store(&handler_goes_on, true);
	soda_handler_stop();
	soda_agent.page_ops = below;
	assert_int_equal(soda_threads_holding(id), 0);
	assert_int_equal(soda_chunk_load(&soda_agent.table[id]) & SODA_CW_HOLD, 0);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_there_in_time),
		cmocka_unit_test(both_fail),
		cmocka_unit_test(on_its_way_in_time),
		cmocka_unit_test(store_to_left_page),
		cmocka_unit_test(late_store),
		cmocka_unit_test(other_page_waits),
		cmocka_unit_test(half_there_for_store),
		cmocka_unit_test(lost_when_asked),
		cmocka_unit_test(counted_when_it_goes_on),
		cmocka_unit_test(freed_when_it_goes_on),
	};

	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* NULL: all of them */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
