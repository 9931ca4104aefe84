/* SPDX-License-Identifier: BSD-3-Clause */
/* Each account that can be wrong is made wrong, and named; and none is while all is well. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/sender.h"
#include "host_agent/move/sender.h"
#include "host_agent/move/writeback.h"
#include "unit/fakes/host_fixture.h"

static const struct host_options plain = { .buffer_chunks = 64, .prefetch = 8 };

static struct soda_region *r;

/*
 * A chunk is seen to be sent a moment before its sender has done with it: the audit is about a
 * writer that stands still.  When it takes a place that was given up it has done with the others.
 */
static void await_writer(void)
{
	assert_int_equal(soda_sender_queue_put(&r->first, 1, SODA_WB_SYNC), 1);
	soda_writeback_ring();
	while (soda_sender_queue_waiting())
		usleep(50);
	soda_sender_queue_put(NULL, 0, SODA_WB_SYNC); /* the lock, which orders what it did */
}

/* Chunks 0 and 1 CLEAN, 2 and 3 DIRTY, 4 REMOTE, the rest ZERO; nobody holds one. */
static void begin(void)
{
	host_start(&plain);
	r = host_alloc(16 << 16);
	for (uint32_t i = 0; i < 5; i++)
		host_store(r, i, 0, i + 1);
	soda_thread_forget(soda_thread_self());
	assert_int_equal(host_cold(r, 4, 1), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(host_load(r, i, 0), i + 1);
	assert_int_equal(soda_sync_chunks(r->first, 2), 0);
	soda_thread_forget(soda_thread_self());
	host_check(r);
	host_expect(r, 4, SODA_CHUNK_REMOTE);
	await_writer();
}

static void end(void)
{
	host_check(r);
	host_stop();
}

static struct soda_chunk *chunk(uint32_t i)
{
	return &soda_agent.table[r->first + i];
}

static void well_when(enum soda_audit_when when)
{
	struct soda_why why = { "" };

	if (soda_audit_check(when, &why))
		fail_msg("all is well, and the audit says: %s", why.text);
}

static void well(void)
{
	well_when(SODA_AUDIT_BETWEEN);
	well_when(SODA_AUDIT_ANYWHERE);
}

static void found_when(enum soda_audit_when when, const char *text)
{
	struct soda_why why = { "" };

	if (soda_audit_check(when, &why) != -EUCLEAN || !strstr(why.text, text))
		fail_msg("'%s' was to be found; the audit says: '%s'", text, why.text);
}

static void found(const char *text)
{
	found_when(SODA_AUDIT_BETWEEN, text);
}

static void words(void **state)
{
	static const struct {
		uint32_t chunk, clear, set;
		const char *text;
	} bad[] = {
		{ 4, SODA_CW_STATE, 0, "chunk 4 of object 1" },
		{ 4, SODA_CW_STATE, 9, "no state" },
		{ 2, SODA_CW_DIRTY, 0, "no block of it is dirty" },
		{ 0, 0, 1u << SODA_CW_DIRTY_SHIFT, "CLEAN" },
		{ 4, 0, 1u << SODA_CW_DIRTY_SHIFT, "of which nobody would know" },
		{ 4, SODA_CW_BACKED, 0, "the server has no copy of it" },
		{ 9, 0, SODA_CW_BACKED, "the server has a copy of it" },
		{ 4, 0, SODA_CW_SENDING, "SENDING, and not there" },
		{ 9, 0, SODA_CW_QUEUED, "QUEUED, and not dirty" },
		{ 0, 0, SODA_CW_QUEUED, "QUEUED, and not dirty" },
		{ 2, SODA_CW_BACKED, SODA_CW_AS_FETCHED, "AS_FETCHED" },
		{ 0, 0, SODA_CW_HOLD_ONE, "1 threads hold it, and 0 remember it" },
		{ 2, 0, SODA_CW_QUEUED, "no place for it" },
		{ 0, 0, SODA_CW_SENDING, "0 senders have it under way" },
		{ 0, SODA_CW_STATE, SODA_CHUNK_BUSY, "nobody has it in his hands" },
		{ 4, SODA_CW_STATE, SODA_CHUNK_FETCHING, "has 0 requests for it" },
		{ 0, 0, SODA_CW_PINNED, "0 chunks count as pinned, and 1 are" },
	};

	begin();
	well();
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint32_t w = atomic_load(&chunk(bad[i].chunk)->word);

		atomic_store(&chunk(bad[i].chunk)->word, (w & ~bad[i].clear) | bad[i].set);
		found(bad[i].text);
		atomic_store(&chunk(bad[i].chunk)->word, w);
		well();
	}
	end();
}

static void lists(void **state)
{
	uint8_t list;

	begin();
	list = chunk(0)->list;
	chunk(0)->list = 0;
	found("in no list of the policy");
	found_when(SODA_AUDIT_ANYWHERE, "in no list of the policy");
	chunk(0)->list = list;
	chunk(4)->list = 1;
	found("in a list of the policy, and not there");
	chunk(4)->list = 0;
	well();
	end();
}

static void credits(void **state)
{
	begin();
	soda_buffer_give(&soda_agent.buffer, 1);
	found("1 missing");
	found_when(SODA_AUDIT_ANYWHERE, "1 missing");
	assert_true(soda_buffer_take(&soda_agent.buffer));
	assert_true(soda_buffer_take(&soda_agent.buffer));
	found("1 leaked");
	well_when(SODA_AUDIT_ANYWHERE); /* it may be for a chunk that somebody is about to take */
	soda_buffer_give(&soda_agent.buffer, 1);
	/* A slot more than was paid for. */
	soda_channels[0].slots_n++;
	found("1 missing");
	soda_channels[0].slots_n--;
	atomic_fetch_add(&soda_agent.buffer.sending, 1);
	found("1 chunks count as on their way out of the buffer, and 0 are");
	atomic_fetch_sub(&soda_agent.buffer.sending, 1);
	atomic_fetch_add(&soda_agent.fam_bytes, 4096);
	found("the objects count as");
	atomic_fetch_sub(&soda_agent.fam_bytes, 4096);
	well();
	end();
}

/* Requests that are under way, with each of them made another's. */
static void requests(void **state)
{
	uint32_t index = SODA_CHANNEL_PAIRS_MAX;
	struct soda_fetch_channel *ch = &soda_channels[index];
	struct soda_plan plan;
	struct soda_fetch_request was;

	begin();
	plan = (struct soda_plan){ .first = r->first + 4, .stride = 1, .n = 1 };
	fake_net_hold(true, false);
	assert_int_equal(soda_fetch_ahead(soda_thread_self(), r, &plan), 1);
	assert_int_equal(soda_channel_outstanding(ch), 1);
	well();
	was = ch->req[ch->head % ch->slots_n];
	atomic_store(&chunk(4)->channel, 0);
	found("channel 0, which it names, has 0 requests for it");
	atomic_store(&chunk(4)->channel, (uint16_t)index);
	ch->req[ch->head % ch->slots_n].in.id = r->first + 9;
	found("which it names, has 0 requests for it");
	found_when(SODA_AUDIT_ANYWHERE, "has a request for it under way");
	ch->req[ch->head % ch->slots_n] = was;
	ch->req[ch->head % ch->slots_n].bytes = 4096;
	found("4096 bytes of it were asked for");
	ch->req[ch->head % ch->slots_n] = was;
	ch->req[ch->tail++ % ch->slots_n] = was;
	found("has 2 requests for it");
	ch->tail--;
	well();
	fake_net_hold(false, false);
	host_settle(r, true);
	end();
}

static struct soda_sending *op;

static void find_op(const struct soda_sender *s, void *arg)
{
	for (uint32_t i = 0; i < s->max; i++)
		if (s->ops[i].used)
			op = &s->ops[i];
}

/* Chunks in the queue and under way. */
static void senders(void **state)
{
	uint32_t id;

	begin();
	fake_net_hold(false, true);
	id = r->first + 2;
	soda_chunk_flags(chunk(2), SODA_CW_QUEUED, 0);
	soda_writeback_queue(&id, 1, SODA_WB_EVICT);
	while (!fake_net_under_way(true))
		usleep(50);
	well(); /* it waits for the answer */
	soda_writeback_each_sender(find_op, NULL);
	assert_non_null(op);
	op->id++;
	found("chunk 2 of object 1");
	found("0 senders have it under way");
	op->id--;
	op->why = SODA_WB_SYNC;
	found("1 chunks count as on their way out of the buffer, and 0 are");
	op->why = SODA_WB_EVICT;
	/* A place that was given up is nothing wrong; a chunk without one is. */
	id = r->first + 3;
	assert_int_equal(soda_sender_queue_put(&id, 1, SODA_WB_SYNC), 1);
	well();
	soda_chunk_flags(chunk(3), SODA_CW_QUEUED, 0);
	well();
	soda_chunk_flags(chunk(3), 0, SODA_CW_QUEUED);
	fake_net_hold(false, false);
	host_settle(r, true);
	soda_writeback_ring();
	while (soda_sender_queue_waiting())
		usleep(50);
	end();
}

/* Beside threads that run: what stays wrong is found, what passes is not. */
static void *repair_later(void *arg)
{
	usleep(100000);
	soda_buffer_give(&soda_agent.buffer, 1);
	return NULL;
}

static void beside_others(void **state)
{
	struct soda_why why = { "" };
	pthread_t thread;

	begin();
	assert_int_equal(soda_audit_live(&why), 0);
	assert_true(soda_buffer_take(&soda_agent.buffer));
	assert_int_equal(pthread_create(&thread, NULL, repair_later, NULL), 0);
	assert_int_equal(soda_audit_live(&why), 0);
	pthread_join(thread, NULL);
	assert_int_equal(soda_audit_live(&why), 0);
	assert_true(soda_buffer_take(&soda_agent.buffer));
	assert_int_equal(soda_audit_live(&why), -EUCLEAN);
	assert_non_null(strstr(why.text, "1 leaked"));
	/* Under way: no opinion. */
	soda_chunk_flags(chunk(2), SODA_CW_QUEUED, 0);
	assert_int_equal(soda_audit_live(&why), 0);
	soda_chunk_flags(chunk(2), 0, SODA_CW_QUEUED);
	soda_buffer_give(&soda_agent.buffer, 1);
	end();
}

#ifdef SODA_DEBUG
/* Whether a quiet point ends the process; a child's, which has a copy of the accounts. */
static bool ends_the_process(void)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		soda_audit_quiet("in a test");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void at_a_quiet_point(void **state)
{
	begin();
	assert_false(ends_the_process());
	assert_true(soda_buffer_take(&soda_agent.buffer));
	assert_true(ends_the_process());
	soda_buffer_give(&soda_agent.buffer, 1);
	end();
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words),
		cmocka_unit_test(lists),
		cmocka_unit_test(credits),
		cmocka_unit_test(requests),
		cmocka_unit_test(senders),
		cmocka_unit_test(beside_others),
#ifdef SODA_DEBUG
		cmocka_unit_test(at_a_quiet_point),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
