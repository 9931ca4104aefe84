/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The DPU agent's sessions when something fails: what it has acknowledged comes to the server, or
 * the program learns that it does not.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "dpu_agent/paging/upstream.h"
#include "pool/erasure.h"
#include "soda.h"
#include "unit/fakes/fake_upstream.h"
#include "wire/pool.h"

enum { REGION = 7, PAGES = 1024, SOME = 40 };

static int set_up(void **state)
{
	fake_options_reset();
	return 0;
}

static void join(struct program *p)
{
	*p = (struct program){ 0 };
	assert_int_equal(program_hello(p), 0);
}

static void join_and_open(struct program *p, uint32_t flags)
{
	join(p);
	assert_int_equal(program_open(p, REGION, PAGES, flags), 0);
}

static void write_some(struct program *p, uint64_t round)
{
	for (uint64_t i = 0; i < SOME; i++)
		program_write(p, REGION, 2 * i, round + i); /* no neighbours: none is merged */
}

static void check_some(const struct program *p, uint64_t round)
{
	for (uint64_t i = 0; i < SOME; i++)
		assert_int_equal(fake_word(p->id, REGION, 2 * i), round + i);
}

static void leave(struct program *p)
{
	assert_int_equal(program_call(p, SODA_MSG_BYE, NULL, 0), 0);
	program_vanish(p);
}

/* For this client only, which the agent tells so by closing its connections. */
static void lose_the_server(struct program *p)
{
	fake_cut(p->id, -ECONNREFUSED);
	assert_true(program_is_expelled(p));
	program_vanish(p);
}

/* A HELLO in a thread of its own, as that of a control connection is. */
struct returning {
	_Atomic bool done;
	struct program p;
	pthread_t thread;
	int ret;
};

static void *say_hello(void *arg)
{
	struct returning *r = arg;

	r->ret = program_hello(&r->p);
	r->done = true;
	return NULL;
}

static void begin_return(struct returning *r, const struct program *p)
{
	r->p = *p;
	r->done = false;
	assert_int_equal(pthread_create(&r->thread, NULL, say_hello, r), 0);
}

static int end_return(struct returning *r)
{
	assert_int_equal(pthread_join(r->thread, NULL), 0);
	return r->ret;
}

static void wait_ms(unsigned ms)
{
	for (uint64_t end = soda_now_ms() + ms; soda_now_ms() < end;)
		fake_pause();
}

static void passes_through(void **state)
{
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	write_some(&p, 1000);
	assert_int_equal(program_read(&p, REGION, 4), 1002);
	assert_int_equal(program_read(&p, REGION, 5), 0);
	assert_int_equal(program_sync(&p, REGION), 0);
	check_some(&p, 1000);
	assert_int_equal(soda_pager(p.client)->writes.longest, 0); /* as none is left */
	leave(&p);
	AWAIT(!fake_sessions());
	assert_int_equal(fake_get(&fake_upstream.byes), 1);
	assert_int_equal(fake_down(), 0);
}

/*
 * The server has nothing yet of what several WRITEs have brought: a READ of all of it is answered
 * out of them, each page with its newest content; one of more waits.
 */
static void read_of_several_writes(void **state)
{
	struct fake_rq *all, *more;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	for (uint64_t page = 9; page < 15; page++) /* 8 and 15 are the server's */
		program_write(&p, REGION, page, 100 + page);
	program_write(&p, REGION, 12, 212);
	all = program_post_wide_read(&p, REGION, 10, 5);
	assert_int_equal(program_await(all), 0);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(program_got_page(all, i), i == 2 ? 212 : 110 + i);
	more = program_post_wide_read(&p, REGION, 8, 8);
	wait_ms(20);
	assert_false(program_answered(more));
	FAKE_SET(hold_writes, false);
	assert_int_equal(program_await(more), 0);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(program_got_page(more, i), i == 0 || i == 7 ? 0
							    : i == 4	     ? 212
									     : 108 + i);
	leave(&p);
	AWAIT(!fake_sessions());
	assert_int_equal(fake_down(), 0);
}

/* A client vanishes, and a short while later its session ends: all was written. */
static void nothing_is_lost(void **state)
{
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	write_some(&p, 1000);
	program_vanish(&p);
	AWAIT(!fake_sessions());
	check_some(&p, 1000);
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/*
 * The server cannot be reached for longer than the agent keeps what a client that has gone has
 * left: when the client comes back it must learn that its data are not there.
 */
static void what_was_dropped_is_told(void **state)
{
	struct program p, other;

	fake_options.grace_ms = 1;
	fake_up();
	join_and_open(&p, 0);
	join_and_open(&other, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	fake_cut(0, -ECONNREFUSED);
	assert_true(program_is_expelled(&p) && program_is_expelled(&other));
	program_vanish(&p);
	program_vanish(&other);
	AWAIT(!fake_sessions());
	FAKE_SET(hold_writes, false);
	fake_mend();
	program_return(&p);
	assert_true(p.known); /* the server has its region, with older content */
	assert_int_equal(program_read(&p, REGION, 2), 0);
	assert_true(p.agent_changed);
	program_return(&other);
	assert_true(other.known && !other.agent_changed);
	/* once is enough: it is the same agent as the last time */
	program_vanish(&p);
	AWAIT(fake_sessions() == 1);
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	program_write(&p, REGION, 0, 5);
	assert_int_equal(program_sync(&p, REGION), 0);
	leave(&p);
	leave(&other);
	assert_int_equal(fake_down(), 1);
}

/* The server has refused what was acknowledged, and no soda_sync has told it. */
static void what_was_refused_is_told(void **state)
{
	struct program p;

	fake_up();
	join_and_open(&p, SODA_WRITABLE);
	FAKE_SET(refuse_writes, -ENOSPC);
	write_some(&p, 1000);
	program_vanish(&p);
	AWAIT(!fake_sessions());
	FAKE_SET(refuse_writes, 0);
	program_return(&p);
	assert_true(p.known && p.agent_changed);
	/* and one that soda_sync has told is not told again */
	FAKE_SET(refuse_writes, -ENOSPC);
	write_some(&p, 2000);
	assert_int_equal(program_sync(&p, REGION), -ENOSPC);
	FAKE_SET(refuse_writes, 0);
	assert_int_equal(program_sync(&p, REGION), 0);
	program_vanish(&p);
	AWAIT(!fake_sessions());
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	leave(&p);
	assert_int_equal(fake_down(), 1);
}

/* It is soda_sync that tells what was lost, whatever else the program asks for before. */
static void only_sync_tells(void **state)
{
	const struct soda_wire_advise advise = { .region_id = REGION,
						 .advice = SODA_NO_CACHE,
						 .bytes = PAGES * PAGE };
	uint8_t body[SODA_WIRE_ADVISE_BYTES];
	struct program p;

	fake_up();
	join_and_open(&p, SODA_WRITABLE);
	FAKE_SET(refuse_writes, -ENOSPC);
	write_some(&p, 1000);
	soda_wire_put_advise(body, &advise);
	assert_int_equal(program_call(&p, SODA_MSG_ADVISE, body, sizeof(body)), -ENOSPC);
	FAKE_SET(refuse_writes, 0);
	assert_int_equal(program_sync(&p, REGION), -ENOSPC);
	assert_int_equal(program_sync(&p, REGION), 0);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/*
 * The answer that told a loss is lost itself: the client has not heard of it, and hears it by its
 * next SYNC, or by another number of the agent.
 */
static void answer_that_tells_is_lost(void **state)
{
	struct program p;

	fake_up();
	join_and_open(&p, SODA_WRITABLE);
	FAKE_SET(refuse_writes, -ENOSPC);
	write_some(&p, 1000);
	assert_int_equal(program_sync(&p, REGION), -ENOSPC);
	FAKE_SET(refuse_writes, 0);
	program_return(&p); /* the connection had ended meanwhile */
	assert_int_equal(program_sync(&p, REGION), -ENOSPC);
	FAKE_SET(refuse_writes, -EIO);
	write_some(&p, 2000); /* lost before anybody knows what the client has heard */
	assert_int_equal(program_sync(&p, REGION), -EIO);
	assert_int_equal(program_sync(&p, REGION), 0); /* who asks again has heard it */
	write_some(&p, 3000);
	assert_int_equal(program_sync(&p, REGION), -EIO);
	FAKE_SET(refuse_writes, 0);
	program_vanish(&p);
	AWAIT(!fake_sessions());
	program_return(&p);
	assert_true(p.known && p.agent_changed);
	leave(&p);
	assert_int_equal(fake_down(), 1);
}

/* More losses than the agent remembers: then nobody is told that all is well. */
static void too_many_losses(void **state)
{
	struct soda_sessions *all = &fake_dpu.sessions;
	struct program p, other;

	fake_options.grace_ms = 1;
	fake_up();
	join_and_open(&p, 0);
	join_and_open(&other, 0);
	pthread_mutex_lock(&all->lock);
	while (all->losses_n < SODA_DPU_LOSSES_MAX)
		all->losses[all->losses_n++] = (struct soda_loss){ UINT64_MAX, 1 };
	pthread_mutex_unlock(&all->lock);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	fake_cut(0, -ECONNREFUSED);
	assert_true(program_is_expelled(&p) && program_is_expelled(&other));
	program_vanish(&p);
	program_vanish(&other);
	AWAIT(!fake_sessions());
	FAKE_SET(hold_writes, false);
	fake_mend();
	for (unsigned i = 0; i < 2; i++) {
		program_return(&p);
		assert_true(p.known && p.agent_changed == !i);
		program_return(&other);
		assert_true(other.known && other.agent_changed == !i);
		program_vanish(&p);
		program_vanish(&other);
		AWAIT(!fake_sessions());
	}
	assert_int_equal(fake_down(), 1);
}

/*
 * The keeper's attempt to reconnect fails, patience is over, and at this moment the client is back:
 * what it has written is not dropped.
 */
static void comes_back_at_the_last_moment(void **state)
{
	struct returning r;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	lose_the_server(&p);
	AWAIT(fake_get(&fake_upstream.refused));
	FAKE_SET(stall, p.id);
	AWAIT(fake_get(&fake_upstream.stalled)); /* the keeper, with its second attempt */
	begin_return(&r, &p);
	AWAIT(fake_busy(p.id) == 2); /* and the client's HELLO, which waits for it */
	fake_options.grace_ms = 0;
	fake_lock_net();
	fake_upstream.hold_writes = false;
	fake_upstream.refusals = 1;
	fake_upstream.stall = 0;
	fake_unlock_net();
	assert_int_equal(end_return(&r), 0);
	assert_true(r.p.known && !r.p.agent_changed);
	assert_int_equal(program_sync(&r.p, REGION), 0);
	check_some(&r.p, 1000);
	leave(&r.p);
	assert_int_equal(fake_down(), 0);
}

/* The agent's patience begins anew with each outage, whoever has ended the last one. */
static void patience_begins_anew(void **state)
{
	struct program p;

	fake_options.grace_ms = 3000;
	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	lose_the_server(&p);
	AWAIT(fake_get(&fake_upstream.refused));
	fake_mend();
	program_return(&p); /* the client itself has ended it */
	wait_ms(fake_options.grace_ms + 100);
	write_some(&p, 2000);
	FAKE_SET(refused, 0);
	lose_the_server(&p);
	AWAIT(fake_get(&fake_upstream.refused) >= 3);
	FAKE_SET(hold_writes, false);
	fake_mend();
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	assert_int_equal(program_sync(&p, REGION), 0);
	check_some(&p, 2000);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* A client that goes on asking has not gone, however long the server cannot be reached. */
static void client_that_asks_has_not_gone(void **state)
{
	struct program p;
	uint64_t end;

	fake_options.grace_ms = 2000;
	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	lose_the_server(&p);
	end = soda_now_ms() + 2 * fake_options.grace_ms;
	while (soda_now_ms() < end) {
		assert_int_equal(program_hello(&p), -ECONNREFUSED);
		wait_ms(20);
	}
	FAKE_SET(hold_writes, false);
	fake_mend();
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	assert_int_equal(program_sync(&p, REGION), 0);
	check_some(&p, 1000);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

static void begin_anew(struct program *p)
{
	assert_false(p->known);
	assert_int_equal(program_open(p, REGION, PAGES, 0), 0);
	write_some(p, 3000);
	assert_int_equal(program_sync(p, REGION), 0);
	check_some(p, 3000);
	leave(p);
	assert_int_equal(fake_down(), 0);
}

/*
 * The server has forgotten the client by the time that the keeper reaches it again, and the client
 * comes back just then: it must not be taken for the one that the server knows.
 */
static void forgotten_while_the_keeper_connects(void **state)
{
	struct returning r;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	FAKE_SET(stall, p.id);
	fake_cut(p.id, 0);
	assert_true(program_is_expelled(&p));
	program_vanish(&p);
	AWAIT(fake_get(&fake_upstream.stalled)); /* the keeper */
	begin_return(&r, &p);
	AWAIT(fake_busy(p.id) == 2); /* and the client's HELLO, which waits for it */
	fake_forget(p.id);
	FAKE_SET(hold_writes, false);
	fake_mend();
	assert_int_equal(end_return(&r), 0);
	assert_int_equal(fake_clients(), 1);
	begin_anew(&r.p);
}

/*
 * The server makes a new client for a HELLO that fails then: the next HELLO is not one of a client
 * that the server has always known.
 */
static void forgotten_and_half_connected(void **state)
{
	struct returning first, second;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	lose_the_server(&p);
	AWAIT(fake_get(&fake_upstream.refused)); /* the keeper sleeps a while now */
	fake_mend_but_stall(p.id);
	begin_return(&first, &p);
	AWAIT(fake_get(&fake_upstream.stalled));
	p.epoch++;
	begin_return(&second, &p);
	AWAIT(fake_busy(p.id) == 2);
	fake_forget(p.id);
	fake_lock_net();
	fake_upstream.refuse_data = -ECONNREFUSED;
	fake_upstream.refusals = 1;
	fake_upstream.hold_writes = false;
	fake_upstream.stall = 0;
	fake_unlock_net();
	assert_int_not_equal(end_return(&first), 0);
	assert_null(first.p.control);
	if (end_return(&second)) /* it was the keeper that was refused */
		program_return(&second.p);
	begin_anew(&second.p);
}

static struct {
	uint64_t client;
	_Atomic bool done;
} closing;

/* The first connection closes slowly, until two HELLOs are there. */
static void close_slowly(uint64_t client)
{
	if (client != closing.client || atomic_exchange(&closing.done, true))
		return;
	for (unsigned i = 0; i < LONG_MS && fake_busy(client) < 2; i++)
		fake_pause();
	wait_ms(50);
}

/*
 * Two HELLOs of one client overlap, and the first one fails half-way: the second is not an old one
 * to the server.
 */
static void overlapping_hellos(void **state)
{
	struct returning first, second;
	struct program p, other;
	int ret;

	fake_up();
	join_and_open(&p, 0);
	write_some(&p, 1000);
	assert_int_equal(program_sync(&p, REGION), 0);
	/* the keeper has to do with another client */
	join_and_open(&other, 0);
	FAKE_SET(hold_writes, true);
	write_some(&other, 2000);
	FAKE_SET(stall, other.id);
	fake_cut(other.id, 0);
	assert_true(program_is_expelled(&other));
	program_vanish(&other);
	AWAIT(fake_get(&fake_upstream.stalled));
	closing.client = p.id;
	closing.done = false;
	fake_on_close = close_slowly;
	fake_cut(p.id, 0);
	begin_return(&first, &p);
	AWAIT(fake_busy(p.id) || first.done); /* done: the keeper was faster on a busy machine */
	p.epoch++;
	fake_lock_net();
	fake_upstream.refuse_client = p.id;
	fake_upstream.refuse_data = -ECONNREFUSED;
	fake_upstream.refusals = 1;
	fake_unlock_net();
	begin_return(&second, &p);
	end_return(&first);
	ret = end_return(&second);
	assert_int_not_equal(ret, -ESTALE); /* a host agent would begin anew */
	if (ret)
		program_return(&second.p);
	assert_true(second.p.known && !second.p.agent_changed);
	assert_int_equal(program_read(&second.p, REGION, 2), 1001);
	FAKE_SET(hold_writes, false);
	fake_mend();
	leave(&second.p);
	program_return(&other);
	leave(&other);
	assert_int_equal(fake_down(), 0);
}

/*
 * The first HELLO of two that overlap connects upstream when the second has taken the session over:
 * it is an old one then, and its connection may not stay beside the other.
 */
static void overtaken_while_it_connects(void **state)
{
	struct returning first, second;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true); /* else the session ends with its connections */
	write_some(&p, 1000);
	lose_the_server(&p);
	AWAIT(fake_get(&fake_upstream.refused)); /* the keeper sleeps a while now */
	fake_mend_but_stall(p.id);
	begin_return(&first, &p);
	AWAIT(fake_get(&fake_upstream.stalled));
	p.epoch++;
	begin_return(&second, &p);
	AWAIT(fake_busy(p.id) >= 2);
	wait_ms(50); /* it waits for the first one */
	FAKE_SET(hold_writes, false);
	fake_mend();
	assert_int_not_equal(end_return(&first), 0);
	assert_null(first.p.control);
	if (end_return(&second)) /* it was the keeper that stalled, and both waited for it */
		program_return(&second.p);
	assert_true(second.p.known && !second.p.agent_changed);
	assert_int_equal(program_sync(&second.p, REGION), 0);
	check_some(&second.p, 1000);
	leave(&second.p);
	assert_int_equal(fake_down(), 0);
}

/*
 * While the keeper's hand waits for its turn to reconnect, a client has come, connected, and gone
 * with the server once more: those connections go before there are new ones.
 */
static void broken_again_before_it_reconnects(void **state)
{
	struct soda_session *s;
	struct soda_why why;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	s = p.client;
	lose_the_server(&p);
	AWAIT(fake_get(&fake_upstream.refused));
	fake_mend();
	pthread_mutex_lock(&s->life);
	if (!soda_server_up(&soda_pager(s)->server)) { /* the hand has not been quicker */
		AWAIT(fake_busy(p.id) == 1);
		wait_ms(50); /* it waits for life */
		soda_upstream_disconnect(s);
		assert_int_equal(soda_upstream_connect(s, &why), 0);
		fake_cut(p.id, 0);
		wait_ms(50);
	}
	pthread_mutex_unlock(&s->life);
	FAKE_SET(hold_writes, false);
	AWAIT(!fake_sessions());
	check_some(&p, 1000);
	assert_int_equal(fake_down(), 0);
	assert_int_equal(fake_upstream.ended, fake_upstream.connects - fake_upstream.refused);
}

struct closer {
	struct program *p;
	pthread_t thread;
	int ret;
};

static void *close_in_thread(void *arg)
{
	struct closer *c = arg;

	c->ret = program_close(c->p, REGION);
	return NULL;
}

/* A CLOSE that fails has closed nothing: what was written before is still there. */
static void close_that_fails(void **state)
{
	enum { MANY = 600 };
	struct closer c = { .p = NULL };
	struct fake_rq *rq;
	struct program p;

	fake_options.write_budget = 8 << 20; /* more than travels at a time */
	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	FAKE_SET(hold_close, true);
	for (uint64_t i = 0; i < MANY; i++)
		program_write(&p, REGION, i, 5000 + i);
	c.p = &p;
	assert_int_equal(pthread_create(&c.thread, NULL, close_in_thread, &c), 0);
	wait_ms(50);
	FAKE_SET(hold_writes, false);
	rq = program_post(&p, REGION, PAGES - 1, 1, true); /* something moves on its connection */
	assert_int_equal(program_await(rq), 0);
	AWAIT(fake_get(&fake_upstream.stalled)); /* it has been said to the server */
	FAKE_SET(hold_close, false);		 /* whose answer is lost */
	assert_int_equal(pthread_join(c.thread, NULL), 0);
	assert_true(c.ret < 0);
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(program_read(&p, REGION, i), 5000 + i);
	assert_int_equal(program_sync(&p, REGION), 0);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(fake_word(p.id, REGION, i), 5000 + i);
	assert_int_equal(program_close(&p, REGION), 0);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* A file whose last WRITEs were refused is closed, and the agent loses the server before the end.
 */
static void close_that_fails_tells_later(void **state)
{
	struct closer c = { .p = NULL };
	struct program p;

	fake_up();
	join_and_open(&p, SODA_WRITABLE);
	FAKE_SET(refuse_writes, -ENOSPC);
	write_some(&p, 1000);
	FAKE_SET(hold_reads, true);
	program_post_read(&p, REGION, PAGES - 1); /* holds the region */
	c.p = &p;
	assert_int_equal(pthread_create(&c.thread, NULL, close_in_thread, &c), 0);
	AWAIT(fake_get(&fake_upstream.closes));
	fake_cut(p.id, 0);
	assert_int_equal(pthread_join(c.thread, NULL), 0);
	FAKE_SET(hold_reads, false);
	FAKE_SET(refuse_writes, 0);
	if (c.ret != -ENOSPC) { /* it had not told it at once */
		program_return(&p);
		assert_int_equal(program_close(&p, REGION), -ENOSPC);
	} else {
		program_return(&p);
	}
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

static bool is_closing(const struct program *p)
{
	struct soda_session *s = p->client;
	bool yes;

	pthread_mutex_lock(&s->lock);
	yes = soda_region_find_locked(s, REGION)->closing;
	pthread_mutex_unlock(&s->lock);
	return yes;
}

/* What is written to a region that is closed then need not travel. */
static void close_discards(void **state)
{
	enum { MANY = 600 };
	struct program p;
	struct closer c = { .p = &p };

	fake_options.write_budget = 8 << 20;
	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	for (uint64_t i = 0; i < MANY; i++)
		program_write(&p, REGION, i, i);
	assert_int_equal(pthread_create(&c.thread, NULL, close_in_thread, &c), 0);
	AWAIT(is_closing(&p)); /* it waits for those that have left */
	FAKE_SET(hold_writes, false);
	assert_int_equal(pthread_join(c.thread, NULL), 0);
	assert_int_equal(c.ret, 0);
	assert_true(fake_get(&fake_upstream.written_bytes) < MANY * PAGE);
	assert_int_equal(program_open(&p, REGION, PAGES, 0), 0);
	assert_int_equal(program_read(&p, REGION, MANY - 1), 0);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* The machine's clock is set while somebody waits: it says another time than pthreads' later. */
static _Atomic bool clock_is_wrong;

int clock_gettime(clockid_t id, struct timespec *at)
{
	int ret = (int)syscall(SYS_clock_gettime, id, at);

	if (id == CLOCK_REALTIME && clock_is_wrong)
		at->tv_sec -= 3600;
	return ret;
}

static void *sync_in_thread(void *arg)
{
	struct closer *c = arg;

	c->ret = program_sync(c->p, REGION);
	return NULL;
}

static void clock_is_set(void **state)
{
	struct closer c = { .p = NULL };
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true);
	write_some(&p, 1000);
	clock_is_wrong = true;
	c.p = &p;
	assert_int_equal(pthread_create(&c.thread, NULL, sync_in_thread, &c), 0);
	wait_ms(100);
	FAKE_SET(hold_writes, false);
	assert_int_equal(pthread_join(c.thread, NULL), 0);
	clock_is_wrong = false;
	assert_int_equal(c.ret, 0);
	check_some(&p, 1000);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* The second of three answers takes so long that the connections have ended by then. */
static void end_meanwhile(uint64_t value)
{
	if (value != 2)
		return;
	fake_cut(0, -ECONNREFUSED);
	for (unsigned i = 0; i < 2000 && fake_get(&fake_upstream.ended) < 3; i++)
		fake_pause();
	wait_ms(100);
}

/* Who has taken finished WRITEs off a channel goes on with them while the session's upstream ends.
 */
static void ends_while_answers_are_given(void **state)
{
	struct fake_rq *rq[3];
	struct program p;

	fake_options.write_budget = PAGE + PAGE / 2; /* one is acknowledged at a time */
	fake_up();
	FAKE_SET(direct, true); /* then who posts collects, too */
	join_and_open(&p, 0);
	fake_on_answer = end_meanwhile;
	for (uint64_t i = 0; i < 3; i++)
		rq[i] = program_post(&p, REGION, 2 * i, i + 1, i == 2);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(program_await(rq[i]), 0);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(fake_word(p.id, REGION, 2 * i), i + 1);
	assert_true(program_is_expelled(&p));
	program_vanish(&p);
	AWAIT(!fake_sessions());
	assert_int_equal(fake_down(), 0);
}

/* Its server is lost: the agent tells it at once, and it can go on. */
static void check_not_stalled(struct program *p)
{
	fake_cut(p->id, 0);
	assert_true(program_is_expelled(p));
	assert_int_equal(fake_get(&fake_upstream.refused), 0); /* the others wait still */
	program_vanish(p);
	program_return(p);
	assert_int_equal(program_read(p, REGION, 2), 1001);
}

/* The server does not answer the BYE of one client: that is nobody else's affair. */
static void slow_goodbye(void **state)
{
	const uint8_t later = SODA_WIRE_BYE_LATER;
	struct program p, leaving[SODA_DPU_HANDS + 1];

	fake_up();
	join_and_open(&p, 0);
	write_some(&p, 1000);
	FAKE_SET(hold_bye, true);
	for (unsigned i = 0; i <= SODA_DPU_HANDS; i++) {
		join(&leaving[i]);
		assert_int_equal(program_call(&leaving[i], SODA_MSG_BYE, &later, 1), 0);
		program_vanish(&leaving[i]);
	}
	AWAIT(fake_get(&fake_upstream.stalled));
	check_not_stalled(&p);
	FAKE_SET(hold_bye, false);
	leave(&p);
	assert_int_equal(fake_down(), 0);
	assert_int_equal(fake_upstream.byes, SODA_DPU_HANDS + 2);
}

static uint16_t tag_of(const char *list, uint32_t i);
static void join_member(struct program *p, const char *list, uint32_t i);

/*
 * Programs of a member that does not answer end, more of them than there are hands: those of
 * another one end meanwhile, and what a program asks of that one does not wait for them.
 * Promise R7.
 */
static void goodbyes_to_a_silent_member(void **state)
{
	enum { SILENT = 3 * SODA_DPU_HANDS, ASKED = 20 };
	const uint8_t later = SODA_WIRE_BYE_LATER, name[] = { REGION, 0, 'n' };
	const char *list = "fake://a,fake://b";
	struct program silent[SILENT], p, other;
	uint64_t end_ms;

	fake_options.server = (char *)(uintptr_t)list;
	fake_up();
	FAKE_SET(hold_at, "fake://a");
	FAKE_SET(hold_bye, true);
	for (unsigned i = 0; i < SILENT; i++) {
		join_member(&silent[i], list, 0);
		assert_int_equal(program_call(&silent[i], SODA_MSG_BYE, &later, 1), 0);
		program_vanish(&silent[i]);
	}
	join_member(&p, list, 1);
	join_member(&other, list, 1);
	assert_int_equal(program_call(&other, SODA_MSG_BYE, &later, 1), 0);
	program_vanish(&other);
	AWAIT(!fake_knows(other.id));
	FAKE_SET(refuse_publish, -EEXIST);
	end_ms = soda_now_ms() + ASKED * SODA_DPU_LEAVING_MS / 2;
	for (unsigned i = 0; i < ASKED; i++)
		assert_int_equal(program_call(&p, SODA_MSG_PUBLISH, name, sizeof(name)), -EEXIST);
	assert_true(soda_now_ms() < end_ms);
	assert_true(fake_get(&fake_upstream.stalled) >= SODA_DPU_HANDS_SERVER);
	FAKE_SET(hold_bye, false);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* An agent that ends while its server is silent: many that have left take no longer than one. */
static void many_goodbyes(void **state)
{
	enum { LEAVING = 6 * SODA_DPU_HANDS, TIMEOUT_MS = 1000, DRAIN_MS = 300 };
	const uint8_t later = SODA_WIRE_BYE_LATER;
	struct program leaving[LEAVING];
	uint64_t from;

	fake_options.timeout_ms = TIMEOUT_MS;
	fake_up();
	FAKE_SET(hold_bye, true);
	for (unsigned i = 0; i < LEAVING; i++) {
		join(&leaving[i]);
		assert_int_equal(program_call(&leaving[i], SODA_MSG_BYE, &later, 1), 0);
		program_vanish(&leaving[i]);
	}
	AWAIT(fake_get(&fake_upstream.stalled));
	from = soda_now_ns();
	assert_int_equal(fake_down_within(DRAIN_MS), 0);
	/* its drain time, and a call that was under way; not one after the other */
	assert_true(soda_now_ns() - from < (DRAIN_MS + 3 * TIMEOUT_MS) * 1000000ull);
}

/* Nor is it that it cannot be reached for clients that have gone. */
static void slow_reconnection(void **state)
{
	struct program p, gone[SODA_DPU_HANDS + 1];

	fake_up();
	join_and_open(&p, 0);
	write_some(&p, 1000);
	assert_int_equal(program_sync(&p, REGION), 0);
	FAKE_SET(hold_writes, true);
	for (unsigned i = 0; i <= SODA_DPU_HANDS; i++) {
		join_and_open(&gone[i], 0);
		write_some(&gone[i], 2000);
	}
	fake_lock_net();
	fake_upstream.stall = UINT64_MAX;
	fake_upstream.stall_not = p.id;
	fake_unlock_net();
	for (unsigned i = 0; i <= SODA_DPU_HANDS; i++) {
		fake_cut(gone[i].id, 0);
		assert_true(program_is_expelled(&gone[i]));
		program_vanish(&gone[i]);
	}
	AWAIT(fake_get(&fake_upstream.stalled));
	check_not_stalled(&p);
	FAKE_SET(hold_writes, false);
	fake_mend();
	leave(&p);
	AWAIT(!fake_sessions());
	for (unsigned i = 0; i <= SODA_DPU_HANDS; i++)
		check_some(&gone[i], 2000);
	assert_int_equal(fake_down(), 0);
}

/* A client comes back, with a READ of before under way, and then the server is lost. */
static void lost_while_a_hello_waits(void **state)
{
	struct returning r;
	struct fake_rq *rq;
	struct program p;

	fake_up();
	join_and_open(&p, 0);
	write_some(&p, 1000);
	assert_int_equal(program_sync(&p, REGION), 0);
	FAKE_SET(hold_reads, true);
	rq = program_post_read(&p, REGION, 2);
	begin_return(&r, &p);
	AWAIT(fake_busy(p.id)); /* it waits for the end of the connections of before */
	assert_true(program_is_expelled(&p));
	fake_cut(p.id, 0);
	AWAIT(program_answered(rq));
	FAKE_SET(hold_reads, false);
	AWAIT(r.done);
	if (end_return(&r))
		program_return(&r.p);
	assert_int_equal(program_read(&r.p, REGION, 2), 1001);
	leave(&r.p);
	assert_int_equal(fake_down(), 0);
}

/*
 * The client's epoch is in the high bits of what the server is told: none of them is lost, and no
 * HELLO with a secret that somebody has heard leaps ahead of where the client can come.
 */
static void epochs_do_not_leap(void **state)
{
	struct program p, huge = { .epoch = UINT64_C(1) << 48 };

	fake_up();
	assert_int_equal(program_hello(&huge), -EINVAL);
	assert_non_null(strstr(huge.why.text, "epoch"));
	join_and_open(&p, 0);
	FAKE_SET(hold_writes, true); /* else the session ends with its connections */
	write_some(&p, 1);
	program_vanish(&p);
	p.epoch += SODA_EPOCH_STEP_MAX; /* and one more by program_hello */
	assert_int_equal(program_hello(&p), -EINVAL);
	assert_non_null(strstr(p.why.text, "epoch"));
	FAKE_SET(hold_writes, false);
	p.epoch -= 2;
	program_return(&p);
	assert_true(p.known);
	assert_int_equal(program_sync(&p, REGION), 0);
	check_some(&p, 1);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* Two agents, one behind the other.  Here the client is an agent that passes a program on. */

static void join_as_agent(struct program *p)
{
	*p = (struct program){ .agents = 1 };
	assert_int_equal(program_hello(p), 0);
	assert_int_equal(program_open(p, REGION, PAGES, 0), 0);
	assert_int_equal(p->agent & SODA_WIRE_AGENT_EARLY, 0);
	assert_true(p->agent);
}

/* Its WRITEs are acknowledged when the server has them, also one that a later one replaces. */
static void acknowledges_late_to_an_agent(void **state)
{
	struct fake_rq *rq[3];
	struct program p;

	fake_up();
	join_as_agent(&p);
	assert_int_equal(fake_get(&fake_upstream.agents), 2);
	FAKE_SET(hold_writes, true);
	for (uint64_t i = 0; i < 3; i++)
		rq[i] = program_post(&p, REGION, 8, 5 + i, i == 2);
	for (int i = 0; i < 50; i++) {
		assert_false(program_answered(rq[0]) || program_answered(rq[1]) ||
			     program_answered(rq[2]));
		fake_pause();
	}
	assert_int_equal(program_read(&p, REGION, 8), 7);
	FAKE_SET(hold_writes, false);
	for (int i = 0; i < 3; i++)
		assert_int_equal(program_await(rq[i]), 0);
	assert_int_equal(fake_word(p.id, REGION, 8), 7);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* What was not acknowledged is no loss: the other agent has the data, and sends them again. */
static void loses_nothing_of_an_agent(void **state)
{
	struct fake_rq *rq;
	struct program p;

	fake_options.grace_ms = 1;
	fake_up();
	join_as_agent(&p);
	FAKE_SET(hold_writes, true);
	rq = program_post(&p, REGION, 8, 5, true);
	fake_cut(0, -ECONNREFUSED);
	assert_true(program_is_expelled(&p));
	assert_int_equal(program_await(rq), -ECONNRESET);
	program_vanish(&p);
	AWAIT(!fake_sessions());
	FAKE_SET(hold_writes, false);
	fake_mend();
	program_return(&p);
	assert_true(p.known && !p.agent_changed);
	program_write(&p, REGION, 8, 6);
	assert_int_equal(fake_word(p.id, REGION, 8), 6);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* An error of the server's is the answer to the other agent, which tells its program. */
static void tells_an_agent_at_once(void **state)
{
	struct program p;

	fake_up();
	join_as_agent(&p);
	FAKE_SET(refuse_writes, -ENOSPC);
	assert_int_equal(program_await(program_post(&p, REGION, 8, 5, true)), -ENOSPC);
	assert_int_equal(program_sync(&p, REGION), 0);
	FAKE_SET(refuse_writes, 0);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* The other agent was started anew: it has the regions and rules from this one, and this one's from
 * the server. */
static void answers_an_agent(void **state)
{
	static const uint8_t from[2] = { 0, 0 }, name[] = { REGION, 0, 'r', 'u', 'l', 'e', 'd' };
	struct soda_wire_listed l;
	struct program p;

	fake_up();
	join_as_agent(&p);
	assert_int_equal(program_call(&p, SODA_MSG_LIST, from, 1), -EPROTO);
	assert_int_equal(program_call(&p, SODA_MSG_LIST, from, sizeof(from)), 0);
	assert_int_equal(p.reply_bytes, SODA_WIRE_LISTED_BYTES);
	soda_wire_get_listed(p.reply, &l);
	assert_int_equal(l.region_id, REGION);
	assert_int_equal(l.bytes, PAGES * PAGE);
	assert_int_equal(program_call(&p, SODA_MSG_NAME, name, sizeof(name)), 0);
	assert_int_equal(p.reply_bytes, 0);
	FAKE_SET(rule, SODA_WIRE_STATIC_CACHE);
	assert_int_equal(program_call(&p, SODA_MSG_NAME, name, sizeof(name)), 0);
	assert_int_equal(p.reply_bytes, 1);
	assert_int_equal(p.reply[0], SODA_WIRE_STATIC_CACHE);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* Epochs of an agent leap, because the low bits are its own; and no row is longer than two. */
static void epochs_and_rows_of_agents(void **state)
{
	struct program p, third = { .agents = SODA_AGENTS_MAX },
			  near = { .agents = 1, .local = true };

	fake_up();
	assert_int_equal(program_hello(&third), -EINVAL);
	assert_non_null(strstr(third.why.text, "2 agents stand before this one"));
	assert_int_equal(program_hello(&near), -ENOTSUP);
	assert_non_null(strstr(near.why.text, "by tcp or verbs"));
	join_as_agent(&p);
	p.epoch += SODA_EPOCH_STEP_MAX << SODA_AGENT_EPOCH_SHIFT; /* and one by program_hello */
	assert_int_equal(program_hello(&p), -EINVAL);
	assert_non_null(strstr(p.why.text, "epoch"));
	p.epoch -= 2;
	assert_int_equal(program_hello(&p), 0);
	assert_true(p.known);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* A server that is an agent, and one that acknowledges early, as agents of before did. */
static void server_is_an_agent(void **state)
{
	struct program p;

	fake_up();
	FAKE_SET(agent, 64 | SODA_WIRE_AGENT_EARLY);
	p = (struct program){ 0 };
	assert_int_equal(program_hello(&p), -ENOTSUP);
	assert_non_null(strstr(p.why.text, "same release"));
	FAKE_SET(agent, 64);
	join_and_open(&p, 0);
	assert_true(p.agent & SODA_WIRE_AGENT_EARLY);
	assert_true(fake_dpu.paging.server_is_agent);
	write_some(&p, 1000);
	assert_int_equal(program_sync(&p, REGION), 0);
	check_some(&p, 1000);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* An agent in front of a pool: each session of a program is for one member. */

static uint16_t tag_of(const char *list, uint32_t i)
{
	static struct soda_members members; /* large */
	struct soda_why why;

	assert_int_equal(soda_members_parse(list, &members, &why), 0);
	return soda_members_hash(members.address[i]);
}

static int ask_pool(struct program *p, uint32_t ask)
{
	const struct soda_wire_tell tell = { .ask = ask };
	uint8_t body[SODA_WIRE_TELL_BYTES];

	soda_wire_put_tell(body, &tell);
	return program_call(p, SODA_MSG_POOL, body, sizeof(body));
}

static void says_members(struct program *p, const char *list)
{
	assert_int_equal(ask_pool(p, SODA_WIRE_POOL_MEMBERS), 0);
	assert_int_equal(p->reply_bytes, strlen(list));
	assert_memory_equal(p->reply, list, strlen(list));
}

static void members_of_a_pool(void **state)
{
	const char *list = "fake://a,fake://b,fake://c";
	struct program first = { 0 }, second = { .member = tag_of(list, 1) },
		       stranger = { .member = tag_of("fake://d", 0) };
	struct fake_rq *rq;

	fake_options.server = (char *)(uintptr_t)list;
	fake_up();
	assert_int_equal(program_hello(&first), 0);
	assert_string_equal(fake_upstream.address, "fake://a");
	assert_int_equal(program_hello(&second), 0);
	assert_string_equal(fake_upstream.address, "fake://b");
	assert_int_equal(program_hello(&stranger), -EINVAL);
	assert_non_null(strstr(stranger.why.text, "no such member"));
	assert_true(second.agent & SODA_WIRE_AGENT_POOL);
	assert_int_equal(second.agent & SODA_WIRE_AGENT_EARLY, 0);
	says_members(&first, list);
	says_members(&second, "fake://b,fake://a,fake://c"); /* its own first */
	assert_int_equal(ask_pool(&second, SODA_WIRE_POOL_DRAIN), -ENOTSUP);
	/* a WRITE is done when the member has it */
	assert_int_equal(program_open(&second, REGION, PAGES, 0), 0);
	FAKE_SET(hold_writes, true);
	rq = program_post(&second, REGION, 8, 5, true);
	for (int i = 0; i < 50; i++) {
		assert_false(program_answered(rq));
		fake_pause();
	}
	FAKE_SET(hold_writes, false);
	assert_int_equal(program_await(rq), 0);
	/* who comes back means the same member, at its address or at another one */
	second.member = tag_of("fake://d", 0);
	assert_int_equal(program_hello(&second), -EINVAL);
	assert_non_null(strstr(second.why.text, "no such member"));
	second.member = tag_of(list, 1);
	program_return(&second);
	assert_true(second.known);
	for (int i = 0; i < 12; i++) { /* more often than the session keeps addresses */
		second.member = tag_of(list, (unsigned)i % 3);
		program_return(&second);
		assert_true(second.known);
		assert_int_equal(fake_upstream.address[strlen("fake://")], 'a' + i % 3);
	}
	leave(&second);
	leave(&first);
	assert_int_equal(fake_down(), 0);
}

static void parse(struct soda_members *members, const char *list)
{
	struct soda_why why;

	assert_int_equal(soda_members_parse(list, members, &why), 0);
}

/* The registry has these servers now. */
static void register_those(const char *list)
{
	static struct soda_members now; /* large */

	parse(&now, list);
	soda_dpu_servers_renew(&fake_dpu.sessions.servers, &now);
}

/* An address with the same hash as fake://a. */
static void find_double(char *address, size_t bytes)
{
	uint16_t tag = soda_members_hash("fake://a");

	for (uint32_t i = 0; i < 1000000; i++) {
		snprintf(address, bytes, "fake://%u", i);
		if (soda_members_hash(address) == tag)
			return;
	}
	fail_msg("no address has the hash of fake://a");
}

/*
 * Servers of a registry come and go: those of programs that run stay for these, programs that begin
 * are told of those that are registered.
 */
static void members_that_come_and_go(void **state)
{
	static struct soda_members registered; /* large */
	struct program old = { 0 }, young = { 0 }, back = { .member = tag_of("fake://a", 0) };
	char address[32];

	parse(&registered, "fake://a");
	fake_options.registered = &registered;
	fake_up();
	assert_int_equal(program_hello(&old), 0);
	assert_true(old.agent & SODA_WIRE_AGENT_POOL); /* more may come */
	assert_int_equal(old.agent & SODA_WIRE_AGENT_EARLY, 0);
	says_members(&old, "fake://a");
	register_those("fake://a,fake://b");
	says_members(&old, "fake://a,fake://b");
	register_those("fake://c,fake://b");
	says_members(&old, "fake://a,fake://b,fake://c");
	assert_int_equal(program_hello(&young), 0);
	assert_string_equal(fake_upstream.address, "fake://b");
	says_members(&young, "fake://b,fake://c");
	/* whoever has memory on a server that went is let to it */
	assert_int_equal(program_hello(&back), 0);
	assert_string_equal(fake_upstream.address, "fake://a");
	leave(&back);
	register_those("fake://a,fake://b");
	says_members(&young, "fake://b,fake://a");
	find_double(address, sizeof(address));
	register_those(address); /* it cannot be told from fake://a */
	says_members(&young, "fake://b");
	leave(&young);
	leave(&old);
	assert_int_equal(fake_down(), 0);
}

/* A place in which nobody has memory goes to the next server; one that has users never. */
static void places_are_used_again(void **state)
{
	static struct soda_members registered; /* large */
	struct program user = { 0 }, next = { .member = tag_of("fake://next", 0) },
		       gone = { .member = tag_of("fake://1", 0) };
	char list[SODA_MEMBERS_MAX * 16] = "fake://0", *end = list + strlen(list);

	for (unsigned i = 1; i < SODA_MEMBERS_MAX; i++)
		end += sprintf(end, ",fake://%u", i);
	parse(&registered, list);
	fake_options.registered = &registered;
	fake_up();
	assert_int_equal(program_hello(&user), 0);
	register_those("fake://next"); /* takes the place of fake://1: fake://0 has a user */
	assert_int_equal(program_hello(&gone), -EINVAL);
	assert_non_null(strstr(gone.why.text, "not registered"));
	assert_int_equal(program_hello(&next), 0);
	assert_string_equal(fake_upstream.address, "fake://next");
	says_members(&user, "fake://0,fake://next");
	leave(&next);
	leave(&user);
	assert_int_equal(fake_down(), 0);
}

static void join_member(struct program *p, const char *list, uint32_t i)
{
	*p = (struct program){ .member = tag_of(list, i), .keep = true };
	assert_int_equal(program_hello(p), 0);
	assert_int_equal(program_open(p, REGION, PAGES, 0), 0);
}

static int again(struct program *p, uint64_t page, const struct program *from)
{
	return program_await(program_post_again(p, REGION, page, from, from->secret));
}

/* The same data for a second member: once, what was written last, and for who has the secret. */
static void data_for_two_members(void **state)
{
	const char *list = "fake://a,fake://b";
	struct program a, b;

	fake_options.server = (char *)(uintptr_t)list;
	fake_up();
	join_member(&a, list, 0);
	join_member(&b, list, 1);
	assert_int_equal(again(&b, 8, &a), -ENOENT); /* nothing was written */
	program_write(&a, REGION, 8, 5);
	assert_int_equal(again(&b, 9, &a), -ENOENT);
	assert_int_equal(program_await(program_post_again(&b, REGION, 8, &a, a.secret + 1)),
			 -ENOENT);
	assert_int_equal(again(&b, 8, &a), 0);
	assert_int_equal(fake_word(b.id, REGION, 8), 5);
	assert_int_equal(again(&b, 8, &a), -ENOENT); /* it is kept for one */
	program_write(&a, REGION, 8, 6);
	program_write(&a, REGION, 8, 7);
	assert_int_equal(again(&b, 8, &a), 0);
	assert_int_equal(fake_word(b.id, REGION, 8), 7);
	program_write(&a, REGION, 8, 8);
	a.keep = false;
	program_write(&a, REGION, 8, 9); /* what is older than this is of no use */
	assert_int_equal(again(&b, 8, &a), -ENOENT);
	FAKE_SET(refuse_writes, -ENOSPC);
	a.keep = true;
	assert_int_equal(program_await(program_post(&a, REGION, 8, 10, true)), -ENOSPC);
	FAKE_SET(refuse_writes, 0);
	assert_int_equal(again(&b, 8, &a), -ENOENT);
	assert_int_equal(program_read(&b, REGION, 8), 7);
	leave(&b);
	leave(&a);
	assert_int_equal(fake_down(), 0);
}

static int coded(struct program *p, uint64_t page, const struct soda_wire_code *code)
{
	return program_await(program_post_coded(p, REGION, page, code));
}

/* The word of parity of a page whose words are a, and one whose words are b. */
static uint64_t parity_of(uint64_t a, uint64_t b, uint32_t row)
{
	enum { WORDS = SODA_WIRE_PAGE / 8 };
	static uint64_t stripe[2 * WORDS], parity[WORDS];

	for (unsigned i = 0; i < WORDS; i++) {
		stripe[i] = a;
		stripe[WORDS + i] = b;
	}
	soda_erasure_encode(2, row, sizeof(parity), stripe, parity);
	return parity[0];
}

/* Parity of what two members have got, for two others: of what was written last, by all of them. */
static void parity_of_two_members(void **state)
{
	const char *list = "fake://a,fake://b,fake://c,fake://d";
	struct program p[4];
	struct soda_wire_code code = { .data_n = 2 };

	if (!soda_erasure_built()) {
		puts("SKIP: this build has no ISA-L");
		skip();
	}
	fake_options.server = (char *)(uintptr_t)list;
	fake_up();
	for (uint32_t i = 0; i < 4; i++)
		join_member(&p[i], list, i);
	assert_int_equal(p[0].agent & SODA_WIRE_AGENT_CODES, SODA_WIRE_AGENT_CODES);
	for (uint32_t i = 0; i < 2; i++)
		code.from[i] = (struct soda_wire_origin){ p[i].id, p[i].secret, REGION };
	program_write(&p[0], REGION, 8, 5);
	assert_int_equal(coded(&p[2], 8, &code), -ENOENT); /* the other piece was not written */
	program_write(&p[1], REGION, 8, 7);
	code.from[1].secret++;
	assert_int_equal(coded(&p[2], 8, &code), -ENOENT);
	code.from[1].secret--;
	assert_int_equal(coded(&p[2], 9, &code), -ENOENT);
	assert_int_equal(coded(&p[2], 8, &code), 0);
	assert_int_equal(fake_word(p[2].id, REGION, 8), parity_of(5, 7, 0));
	program_write(&p[0], REGION, 8, 6);
	code.parity = 1;
	code.last = true;
	assert_int_equal(coded(&p[3], 8, &code), 0);
	assert_int_equal(fake_word(p[3].id, REGION, 8), parity_of(6, 7, 1));
	assert_int_equal(program_read(&p[3], REGION, 8), parity_of(6, 7, 1));
	assert_int_equal(coded(&p[3], 8, &code), -ENOENT); /* that was the last */
	for (uint32_t i = 0; i < 4; i++)
		leave(&p[i]);
	assert_int_equal(fake_down(), 0);
}

/* What is kept is bounded, the oldest goes first, and goes where memory is short. */
static void what_is_kept_is_bounded(void **state)
{
	const char *list = "fake://a,fake://b";
	const unsigned n = 300; /* of which 256 are the write budget */
	struct program a, b;

	fake_options.server = (char *)(uintptr_t)list;
	fake_up();
	join_member(&a, list, 0);
	join_member(&b, list, 1);
	for (unsigned i = 0; i < n; i++)
		program_write(&a, REGION, i, i + 1);
	assert_int_equal(again(&b, 0, &a), -ENOENT);
	assert_int_equal(again(&b, n - 1, &a), 0);
	assert_int_equal(fake_word(b.id, REGION, n - 1), n);
	assert_int_equal(program_close(&a, REGION), 0);
	assert_int_equal(again(&b, n - 2, &a), -ENOENT);
	leave(&b);
	leave(&a);
	assert_int_equal(fake_down(), 0);
}

/* A member that does not answer keeps the READs of its own sessions, and no others. */

enum { FULL = 4 }; /* READs of a page that a window lets through */

static void hold_member(const struct program *p)
{
	FAKE_SET(hold_client, p->id);
	FAKE_SET(hold_reads, true);
}

/* Promise R7. */
static void silent_member(void **state)
{
	const char *list = "fake://a,fake://b";
	struct fake_rq *rqs[3 * FULL];
	struct program a, b;

	fake_options.server = (char *)(uintptr_t)list;
	fake_options.window = FULL * PAGE;
	fake_up();
	join_member(&a, list, 0);
	join_member(&b, list, 1);
	program_write(&b, REGION, 3, 33);
	hold_member(&a);
	for (unsigned i = 0; i < 3 * FULL; i++)
		rqs[i] = program_post_read(&a, REGION, 2 * i);
	for (unsigned i = 0; i < 3 * FULL; i++)
		assert_int_equal(program_read(&b, REGION, 3), 33);
	assert_false(program_answered(rqs[0]));
	FAKE_SET(hold_reads, false);
	for (unsigned i = 0; i < 3 * FULL; i++)
		assert_int_equal(program_await(rqs[i]), 0);
	leave(&b);
	leave(&a);
	assert_int_equal(fake_down(), 0);
}

/*
 * READs of one session fill the window of the server, and its connections end.  Another one's READ,
 * which waited for the window, is posted though no answer comes, and nobody rings a doorbell.
 */
static void room_of_a_lost_connection(void **state)
{
	struct fake_rq *rqs[FULL], *waits;
	struct program a, b;

	fake_options.window = FULL * PAGE;
	fake_up();
	join_and_open(&a, 0);
	join_and_open(&b, 0);
	program_write(&b, REGION, 3, 33);
	assert_int_equal(program_sync(&b, REGION), 0);
	hold_member(&a);
	for (unsigned i = 0; i < FULL; i++)
		rqs[i] = program_post_read(&a, REGION, 2 * i);
	waits = program_post_read(&b, REGION, 3);
	assert_false(program_answered(waits));
	fake_cut(a.id, -ECONNREFUSED);
	assert_int_equal(program_await(waits), 0);
	assert_int_equal(program_got(waits), 33);
	for (unsigned i = 0; i < FULL; i++)
		assert_int_equal(program_await(rqs[i]), -ECONNRESET);
	assert_true(program_is_expelled(&a));
	program_vanish(&a);
	fake_mend();
	FAKE_SET(hold_reads, false);
	leave(&b);
	assert_int_equal(fake_down(), 0);
}

/*
 * The same server, and a client that goes while its READ waits for the window: nobody waits for
 * that READ any more, so it comes back while the window is still full.
 */
static void comes_back_before_its_turn(void **state)
{
	struct fake_rq *rqs[FULL], *waits;
	struct program a, b;

	fake_options.window = FULL * PAGE;
	fake_up();
	join_and_open(&a, 0);
	join_and_open(&b, 0);
	program_write(&b, REGION, 3, 33); /* keeps its session */
	hold_member(&a);
	for (unsigned i = 0; i < FULL; i++)
		rqs[i] = program_post_read(&a, REGION, 2 * i);
	waits = program_post_read(&b, REGION, 3);
	program_return(&b);
	assert_int_equal(program_await(waits), -ECONNRESET);
	assert_false(program_answered(rqs[0]));
	FAKE_SET(hold_reads, false);
	for (unsigned i = 0; i < FULL; i++)
		assert_int_equal(program_await(rqs[i]), 0);
	leave(&b);
	leave(&a);
	assert_int_equal(fake_down(), 0);
}

/*
 * Over --max-clients: who is refused, again and again, leaves nothing on the server.
 * Promises R9 and S7.
 */
static void refused_leave_nothing(void **state)
{
	struct program p, more;

	fake_options.daemon.max_clients = 1;
	fake_up();
	join_and_open(&p, 0);
	for (int i = 0; i < 10; i++) {
		more = (struct program){ 0 };
		assert_int_equal(program_hello(&more), -EBUSY);
		assert_non_null(strstr(more.why.text, "--max-clients"));
	}
	assert_int_equal(fake_clients(), 1);
	leave(&p);
	AWAIT(!fake_sessions());
	join(&more);
	leave(&more);
	assert_int_equal(fake_down(), 0);
}

/* Its connections end when another program waits for its place. */
static void *vanish_late(void *arg)
{
	struct program *p = arg;

	usleep(20000);
	/* their end is not awaited: the next program gets the same peers */
	soda_peer_close(p->data);
	soda_peer_close(p->control);
	return NULL;
}

/* The place of a program that has said goodbye is waited for. */
static void place_of_leaving(void **state)
{
	const uint8_t later = SODA_WIRE_BYE_LATER;
	struct program p, next = { 0 };
	uint64_t since;
	pthread_t t;
	int ret;

	fake_options.daemon.max_clients = 1;
	fake_up();
	join_and_open(&p, 0);
	since = soda_now_ms();
	assert_int_equal(program_call(&p, SODA_MSG_BYE, &later, 1), 0);
	assert_int_equal(pthread_create(&t, NULL, vanish_late, &p), 0);
	ret = program_hello(&next);
	assert_int_equal(pthread_join(t, NULL), 0);
	/* on a busy machine the end may come later than it is waited for */
	if (ret && soda_now_ms() - since >= SODA_DPU_LEAVING_MS) {
		AWAIT(!fake_sessions());
		next = (struct program){ 0 };
		ret = program_hello(&next);
	}
	assert_int_equal(ret, 0);
	leave(&next);
	assert_int_equal(fake_down(), 0);
}

static void *let_bye(void *arg)
{
	usleep(20000);
	FAKE_SET(hold_bye, false);
	return NULL;
}

/*
 * The server has its clients, and one of them is a program that has said goodbye to the agent,
 * which has not yet passed that on: the next program waits for that.
 */
static void servers_place_of_leaving(void **state)
{
	const uint8_t later = SODA_WIRE_BYE_LATER;
	struct program p, next = { 0 };
	uint64_t since;
	pthread_t t;
	int ret;

	fake_up();
	join_and_open(&p, 0);
	FAKE_SET(most_clients, 1);
	FAKE_SET(hold_bye, true);
	since = soda_now_ms();
	assert_int_equal(program_call(&p, SODA_MSG_BYE, &later, 1), 0);
	program_vanish(&p);
	assert_int_equal(pthread_create(&t, NULL, let_bye, NULL), 0);
	ret = program_hello(&next);
	assert_int_equal(pthread_join(t, NULL), 0);
	/* on a busy machine the end may come later than it is waited for */
	if (ret && soda_now_ms() - since >= SODA_DPU_LEAVING_MS) {
		AWAIT(!fake_clients());
		next = (struct program){ 0 };
		ret = program_hello(&next);
	}
	assert_int_equal(ret, 0);
	leave(&next);
	assert_int_equal(fake_down(), 0);
}

/* STORE: the map of the region, as that of the other program's where there is one. */
static int join_store(struct program *p, const struct program *as, uint64_t secret)
{
	struct soda_wire_store ask = { .region_id = REGION, .part = SODA_WIRE_STORE_MAP };
	uint8_t body[SODA_WIRE_STORE_AS_BYTES];

	if (as)
		ask.as = (struct soda_wire_origin){ as->id, secret, REGION };
	return program_call(p, SODA_MSG_STORE, body, soda_wire_put_store(body, &ask));
}

/* p's description of itself stays. */
static void open_file_again(struct program *p, const char *list, uint32_t i, uint64_t pages)
{
	p->member = tag_of(list, i);
	p->local = true;
	assert_int_equal(program_hello(p), 0);
	assert_true(p->agent & SODA_WIRE_AGENT_STORES);
	assert_int_equal(program_open(p, REGION, pages, SODA_WIRE_READ_ONLY), 0);
}

static void open_file(struct program *p, const char *list, uint32_t i, uint64_t pages)
{
	*p = (struct program){ 0 };
	open_file_again(p, list, i, pages);
}

/*
 * A file of two members, with one id: by their own names they are two objects of the node's store;
 * one joins as the other if that has, has its size, and is the same program's.
 */
static void one_object_of_two_members(void **state)
{
	const char *list = "fake://a,fake://b";
	struct program a, b, other;
	struct soda_wire_stored first, second;
	int map;

	fake_options.server = (char *)(uintptr_t)list;
	fake_options.store_bytes = 64 << 20;
	fake_up();
	open_file(&a, list, 0, PAGES);
	open_file(&b, list, 1, PAGES);
	assert_int_equal(join_store(&b, &a, a.secret), -ENOENT); /* which has not joined */
	assert_int_equal(join_store(&a, NULL, 0), 0);
	assert_int_equal(soda_wire_get_stored(a.reply, a.reply_bytes, &first), 0);
	map = a.shared_fd;
	assert_int_equal(join_store(&b, &a, a.secret + 1), -ENOENT);
	assert_int_equal(join_store(&b, &b, b.secret), -ENOENT);
	assert_int_equal(join_store(&b, &a, a.secret), 0);
	assert_int_equal(soda_wire_get_stored(b.reply, b.reply_bytes, &second), 0);
	assert_int_equal(b.shared_fd, map);
	assert_int_equal(second.member, first.member);
	assert_int_equal(join_store(&b, &a, a.secret), 0); /* again: as it is */
	assert_int_equal(b.shared_fd, map);

	open_file(&other, list, 1, PAGES / 2); /* no part of it */
	assert_int_equal(join_store(&other, &a, a.secret), -ENOENT);
	assert_int_equal(join_store(&other, NULL, 0), 0);
	assert_int_not_equal(other.shared_fd, map);
	leave(&other);
	open_file(&other, list, 1, PAGES); /* the same file by the other's name */
	assert_int_equal(join_store(&other, NULL, 0), 0);
	assert_int_not_equal(other.shared_fd, map);
	leave(&other);

	leave(&a); /* the place stays b's */
	open_file(&other, list, 0, PAGES);
	assert_int_equal(join_store(&other, NULL, 0), 0);
	assert_int_equal(other.shared_fd, map);
	assert_int_equal(soda_wire_get_stored(other.reply, other.reply_bytes, &second), 0);
	assert_int_not_equal(second.member, first.member);
	leave(&other);
	leave(&b);
	assert_int_equal(fake_down(), 0);
}

static int keep_pages(struct program *p, uint64_t pages)
{
	const struct soda_wire_advise advise = { .region_id = REGION,
						 .advice = SODA_WIRE_STATIC_CACHE,
						 .bytes = pages * PAGE };
	uint8_t body[SODA_WIRE_ADVISE_BYTES];

	soda_wire_put_advise(body, &advise);
	return program_call(p, SODA_MSG_ADVISE, body, sizeof(body));
}

/*
 * Chunks of a file in the node's store are those of the programs that have joined with it.  A
 * program whose chunks are smaller has no place there: what it wants kept would be looked for at
 * other places, or behind the end.
 * Promise R5.
 */
static void chunks_of_one_size(void **state)
{
	const char *list = "fake://a,fake://b";
	struct program a, small;
	struct soda_wire_stored stored;

	fake_options.server = (char *)(uintptr_t)list;
	fake_options.store_bytes = 64 << 20;
	fake_options.statics = true;
	fake_options.cache_bytes = 1 << 20;
	fake_up();
	open_file(&a, list, 0, PAGES);
	assert_int_equal(join_store(&a, NULL, 0), 0);
	small = (struct program){ .chunk_bytes = PAGE };
	open_file_again(&small, list, 1, PAGES);
	assert_int_equal(join_store(&small, &a, a.secret), -EINVAL);
	assert_non_null(strstr(small.why.text, "65536"));
	assert_int_equal(join_store(&small, NULL, 0), 0); /* by its own name it is another object */
	assert_int_equal(soda_wire_get_stored(small.reply, small.reply_bytes, &stored), 0);
	assert_int_equal(stored.chunk_bytes, PAGE);
	assert_int_equal(keep_pages(&small, PAGES), 0);
	leave(&small);

	leave(&a);
	assert_int_equal(fake_down(), 0);
}

/*
 * Nor does one that comes back with chunks of another size get at what it has by the first one.
 * Promise R5.
 */
static void comes_back_with_other_chunks(void **state)
{
	struct program p = { .local = true };

	fake_options.store_bytes = 64 << 20;
	fake_options.statics = true;
	fake_options.cache_bytes = 1 << 20;
	fake_up();
	assert_int_equal(program_hello(&p), 0);
	assert_int_equal(program_open(&p, REGION, PAGES, SODA_WIRE_READ_ONLY), 0);
	assert_int_equal(join_store(&p, NULL, 0), 0);
	/* what it has written keeps its session, and with it the place in the store */
	assert_int_equal(program_open(&p, REGION + 1, PAGES, 0), 0);
	FAKE_SET(hold_writes, true);
	program_write(&p, REGION + 1, 0, 7);
	lose_the_server(&p);
	p.chunk_bytes = PAGE;
	assert_int_equal(program_hello(&p), -EINVAL);
	assert_non_null(strstr(p.why.text, "65536"));
	FAKE_SET(hold_writes, false);
	fake_mend();
	assert_int_equal(program_hello(&p), -EINVAL);
	p.chunk_bytes = 0;
	program_return(&p);
	assert_int_equal(keep_pages(&p, PAGES), 0);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* An agent of one server says that it has no pool. */
static void no_pool_of_one_server(void **state)
{
	struct soda_wire_code code = { .data_n = 1, .last = true };
	struct program p = { 0 };

	fake_up();
	assert_int_equal(program_hello(&p), 0);
	assert_int_equal(p.agent & (SODA_WIRE_AGENT_POOL | SODA_WIRE_AGENT_CODES), 0);
	assert_int_equal(ask_pool(&p, SODA_WIRE_POOL_MEMBERS), 0);
	assert_int_equal(p.reply_bytes, 0);
	/* nor does it compute parity, of which it would have no tables */
	p.keep = true;
	assert_int_equal(program_open(&p, REGION, PAGES, 0), 0);
	program_write(&p, REGION, 8, 5);
	code.from[0] = (struct soda_wire_origin){ p.id, p.secret, REGION };
	assert_int_equal(coded(&p, 8, &code), -ENOENT);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/* Of the WRITEs that are sealed from now on that one lacks memory; 0: none. */
static _Atomic int lacking;

int __real_soda_sealing_post(struct soda_seal_engine *engine, struct soda_transfer *t);
int __wrap_soda_sealing_post(struct soda_seal_engine *engine, struct soda_transfer *t);

int __wrap_soda_sealing_post(struct soda_seal_engine *engine, struct soda_transfer *t)
{
	if (t->write && lacking && !--lacking)
		return -ENOMEM;
	return __real_soda_sealing_post(engine, t);
}

static void seal_or_skip(void)
{
	struct soda_conf_error err;
	const char *name;

	if (soda_seal_ready(&name, &err) < 0) {
		print_message("SKIP: %s\n", err.text);
		skip();
	}
	fake_options.seal = true;
	fake_options.seal_memory = 1u << 20;
}

/* A WRITE that could not be sealed in time is still before the next one to the same page. */
static void written_in_order(void **state)
{
	struct program p;

	seal_or_skip();
	fake_up();
	join_and_open(&p, 0);
	lacking = 2;
	program_post(&p, REGION, 1, 7, false);
	program_write(&p, REGION, 8, 100);
	program_write(&p, REGION, 8, 101);
	assert_int_equal(lacking, 0);
	fake_cut(p.id, 0);
	assert_true(program_is_expelled(&p)); /* else it may come back before that is noticed */
	program_vanish(&p);
	program_return(&p);
	assert_int_equal(program_sync(&p, REGION), 0);
	assert_int_equal(program_read(&p, REGION, 8), 101);
	assert_int_equal(program_read(&p, REGION, 1), 7);
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

/*
 * The agent seals, and the server has changed pages: who reads others with the same transfer gets
 * them.
 */
static void changed_page_alone(void **state)
{
	enum { READS = 8 };
	struct fake_rq *rqs[READS];
	struct program p;

	seal_or_skip();
	fake_up();
	join_and_open(&p, 0);
	for (uint64_t i = 0; i < READS; i++)
		program_write(&p, REGION, i, 100 + i);
	assert_int_equal(program_sync(&p, REGION), 0);
	fake_change(p.id, REGION, 2);
	fake_change(p.id, REGION, 5);
	for (int round = 0; round < 3; round++) {
		program_post_reads(&p, REGION, 0, rqs, READS);
		for (unsigned i = 0; i < READS; i++) {
			assert_int_equal(program_await(rqs[i]), i == 2 || i == 5 ? -EIO : 0);
			if (i != 2 && i != 5)
				assert_int_equal(program_got(rqs[i]), 100 + i);
		}
	}
	leave(&p);
	assert_int_equal(fake_down(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(passes_through, set_up),
		cmocka_unit_test_setup(read_of_several_writes, set_up),
		cmocka_unit_test_setup(written_in_order, set_up),
		cmocka_unit_test_setup(changed_page_alone, set_up),
		cmocka_unit_test_setup(nothing_is_lost, set_up),
		cmocka_unit_test_setup(what_was_dropped_is_told, set_up),
		cmocka_unit_test_setup(what_was_refused_is_told, set_up),
		cmocka_unit_test_setup(only_sync_tells, set_up),
		cmocka_unit_test_setup(answer_that_tells_is_lost, set_up),
		cmocka_unit_test_setup(too_many_losses, set_up),
		cmocka_unit_test_setup(comes_back_at_the_last_moment, set_up),
		cmocka_unit_test_setup(patience_begins_anew, set_up),
		cmocka_unit_test_setup(client_that_asks_has_not_gone, set_up),
		cmocka_unit_test_setup(forgotten_while_the_keeper_connects, set_up),
		cmocka_unit_test_setup(forgotten_and_half_connected, set_up),
		cmocka_unit_test_setup(overlapping_hellos, set_up),
		cmocka_unit_test_setup(overtaken_while_it_connects, set_up),
		cmocka_unit_test_setup(broken_again_before_it_reconnects, set_up),
		cmocka_unit_test_setup(close_that_fails, set_up),
		cmocka_unit_test_setup(close_that_fails_tells_later, set_up),
		cmocka_unit_test_setup(close_discards, set_up),
		cmocka_unit_test_setup(clock_is_set, set_up),
		cmocka_unit_test_setup(ends_while_answers_are_given, set_up),
		cmocka_unit_test_setup(slow_goodbye, set_up),
		cmocka_unit_test_setup(goodbyes_to_a_silent_member, set_up),
		cmocka_unit_test_setup(many_goodbyes, set_up),
		cmocka_unit_test_setup(slow_reconnection, set_up),
		cmocka_unit_test_setup(lost_while_a_hello_waits, set_up),
		cmocka_unit_test_setup(epochs_do_not_leap, set_up),
		cmocka_unit_test_setup(acknowledges_late_to_an_agent, set_up),
		cmocka_unit_test_setup(loses_nothing_of_an_agent, set_up),
		cmocka_unit_test_setup(tells_an_agent_at_once, set_up),
		cmocka_unit_test_setup(answers_an_agent, set_up),
		cmocka_unit_test_setup(epochs_and_rows_of_agents, set_up),
		cmocka_unit_test_setup(server_is_an_agent, set_up),
		cmocka_unit_test_setup(members_of_a_pool, set_up),
		cmocka_unit_test_setup(members_that_come_and_go, set_up),
		cmocka_unit_test_setup(places_are_used_again, set_up),
		cmocka_unit_test_setup(one_object_of_two_members, set_up),
		cmocka_unit_test_setup(refused_leave_nothing, set_up),
		cmocka_unit_test_setup(place_of_leaving, set_up),
		cmocka_unit_test_setup(servers_place_of_leaving, set_up),
		cmocka_unit_test_setup(silent_member, set_up),
		cmocka_unit_test_setup(room_of_a_lost_connection, set_up),
		cmocka_unit_test_setup(comes_back_before_its_turn, set_up),
		cmocka_unit_test_setup(chunks_of_one_size, set_up),
		cmocka_unit_test_setup(comes_back_with_other_chunks, set_up),
		cmocka_unit_test_setup(no_pool_of_one_server, set_up),
		cmocka_unit_test_setup(data_for_two_members, set_up),
		cmocka_unit_test_setup(parity_of_two_members, set_up),
		cmocka_unit_test_setup(what_is_kept_is_bounded, set_up),
	};

	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* one of them, by its name */
	return cmocka_run_group_tests_name("dpu_session", tests, NULL, NULL);
}
