/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/writeback.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/wait.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/link.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/sender.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/sealing.h"

enum {
	OPS = 64,      /* chunks that the write-back thread has under way */
	HELP_OPS = 16, /* chunks that a faulting thread sends at a time */
	HELP_CHUNK_MAX = 65536,
	BACKLOG = 128,	     /* where more chunks wait, the write-back thread sends, too */
	PERIOD_SHIFT = 24,   /* threads that fault are counted for 2^24 ns, about 17 ms */
	PERIODS = 4,	     /* periods that are remembered */
	ANSWER_NS = 1000000, /* one wait for answers */
};

/* A thread that sends over its demand connection, as long as it has the channel's lock. */
struct helper {
	struct soda_sender sender;
	struct soda_sending ops[HELP_OPS];
};

struct soda_writeback {
	struct soda_link *link;
	pthread_t thread;
	_Atomic bool running; /* the thread has been started */
	_Atomic bool stop;
	_Atomic uint32_t bell; /* futex: goes up when there is something to do */
	_Atomic uint32_t asleep;

	/* How many threads evicted dirty chunks in each of the last periods. */
	_Atomic uint32_t active[PERIODS];
	_Atomic uint64_t period;

	struct soda_lock lock;
	struct soda_conn *next_conn; /* from soda_writeback_connect; guarded by lock */
	_Atomic bool drop_conn;	     /* the keeper wants the connection gone */

	/* By demand channel: the sender of the thread that has borrowed its connection. */
	const struct soda_sender *helpers[SODA_CHANNEL_PAIRS_MAX];
	struct helper *help; /* a place for each of them, used with the channel's lock */

	/* With redundancy: since when WRITEs of the thread's are under way, and nothing came. */
	uint64_t unanswered_ns;

	struct soda_sender sender; /* the write-back thread's; its conn is set with lock held */
	struct soda_sending ops[OPS];
};

/*
 * The one that counts the threads which evict, for all servers.  Never NULL: it was made before
 * there were chunks.
 */
static inline struct soda_writeback *current(void)
{
	return soda_agent.links[0].writeback;
}

static void ring(struct soda_writeback *wb)
{
	atomic_fetch_add(&wb->bell, 1);
	if (atomic_load(&wb->asleep))
		soda_futex_wake(&wb->bell, 1);
}

void soda_writeback_ring(void)
{
	/* of a pool, those alone that have something to do; else the one: it may have to drop */
	for (uint32_t k = 0, n = soda_members(); k < n; k++)
		if (n == 1 || soda_sender_queue_waits_for(&soda_agent.links[k]))
			ring(soda_agent.links[k].writeback);
}

/*
 * Whether as many threads evict dirty chunks as there are processors.  Then the write-back thread
 * would only add its wake-ups, and free pages on another processor's list, cold for this one.
 */
static bool processors_busy(struct soda_thread *t)
{
	struct soda_writeback *wb = current();
	uint64_t now = soda_now_ns() >> PERIOD_SHIFT, seen = atomic_load(&wb->period);

	if (now != seen && atomic_compare_exchange_strong(&wb->period, &seen, now))
		for (uint64_t p = now - seen < PERIODS ? seen + 1 : now - PERIODS + 1; p <= now;
		     p++)
			atomic_store(&wb->active[p % PERIODS], 0);
	if (t->active_period != now) {
		t->active_period = now;
		atomic_fetch_add(&wb->active[now % PERIODS], 1);
	}
	return atomic_load(&wb->active[(now - 1) % PERIODS]) >= soda_agent.processors;
}

/* A batch must be small beside the buffer, and short beside a fault: 1 MiB at most. */
static bool batches_fit(void)
{
	return soda_agent.settings.mode == SODA_MODE_INLINE &&
	       soda_chunk_bytes() <= HELP_CHUNK_MAX &&
	       atomic_load_explicit(&soda_agent.buffer.limit, memory_order_relaxed) >= 4 * HELP_OPS;
}

static bool helps(struct soda_thread *t)
{
	return batches_fit() && processors_busy(t);
}

int soda_writeback_queue(const uint32_t *ids, int n, int why)
{
	int queued = soda_sender_queue_put(ids, n, why);

	soda_writeback_ring();
	return queued;
}

int soda_writeback_evict(struct soda_thread *t, const uint32_t *ids, int n)
{
	int queued = soda_sender_queue_put(ids, n, SODA_WB_EVICT);

	if (!helps(t) || soda_sender_queue_waiting() > BACKLOG)
		soda_writeback_ring();
	return queued;
}

void soda_writeback_await(uint32_t seen, int64_t timeout_ns)
{
	soda_writeback_ring(); /* chunks may wait that were queued without waking the thread */
	soda_progress_await(seen, timeout_ns);
}

/*
 * How long WRITEs may be under way on a connection without any answer.  Where chunks have copies
 * the connection then counts as lost, although the server may answer on others: what waits for it
 * would fill the buffer, and the program's stores would fail, while another server has all.
 */
static uint64_t patience_ns(void)
{
	uint64_t ms = soda_agent.settings.fault_timeout_ms;

	if (soda_redundant() && ms > 2 * SODA_COPIES_LATE_MS)
		ms = SODA_COPIES_LATE_MS;
	else if (soda_redundant())
		ms /= 2;
	return ms * SODA_MS_NS;
}

struct helping {
	struct soda_thread *t;
	const struct soda_link *link;
};

/* The place of that demand channel, whose lock the thread has, as a new sender. */
static struct soda_sender *helper_of(const struct helping *h, struct soda_conn *conn, uint32_t pair)
{
	struct helper *place = &h->link->writeback->help[pair];
	struct soda_sender *s = &place->sender;

	memset(place->ops, 0, sizeof(place->ops));
	s->t = h->t;
	s->server = h->link->index;
	s->station = soda_sealing_channel(s->server, pair);
	s->conn = conn;
	s->ops = place->ops;
	s->max = HELP_OPS;
	s->used = s->put_back = 0;
	s->gone_n = 0;
	return s;
}

/*
 * Send one batch from the server's queue over the thread's own idle connection and collect all its
 * answers. How many chunks, or the connection's error.  For soda_channels_lend().
 */
static int help_over(struct soda_conn *conn, void *arg)
{
	const struct helping *h = arg;
	uint64_t deadline = soda_now_ns() + patience_ns();
	uint32_t pair = h->t->index % soda_channels_pairs();
	const struct soda_sender **place = &h->link->writeback->helpers[pair];
	struct soda_sender *s = helper_of(h, conn, pair);
	int n, ret;

	*place = s;
	ret = n = soda_sender_send(s);
	while (ret >= 0 && s->used) {
		uint64_t from = soda_now_ns();

		ret = soda_sender_collect(s, ANSWER_NS);
		deadline += soda_thread_stood_still(s->t, ANSWER_NS, soda_now_ns() - from);
		if (!ret && from > deadline)
			ret = -ETIMEDOUT;
	}
	if (ret < 0) {
		soda_server_report(&soda_agent.links[s->server].server, ret);
		soda_sender_lose(s, ret);
		soda_writeback_ring();
		soda_progress_tell();
	} else {
		soda_sender_drop(s);
	}
	*place = NULL;
	return ret < 0 ? ret : n;
}

/* As soda_channels_lend(). */
static int help(struct soda_thread *t, const struct soda_link *link)
{
	struct helping h = { t, link };

	return soda_channels_lend(t, link, help_over, &h);
}

void soda_writeback_help(struct soda_thread *t)
{
	for (const struct soda_link *link = soda_agent.links, *end = link + soda_members();
	     link < end; link++)
		if (soda_sender_queue_waits_for(link) >= HELP_OPS && helps(t))
			help(t, link);
}

bool soda_writeback_share(struct soda_thread *t)
{
	bool sent = false;

	if (!batches_fit())
		return false;
	for (uint32_t k = 0; k < soda_members() && !sent; k++)
		sent = soda_sender_queue_waits_for(&soda_agent.links[k]) &&
		       help(t, &soda_agent.links[k]) > 0;
	return sent;
}

/* Close the write-back thread's connection, which has failed or is to be closed. */
static void lose(struct soda_writeback *wb, int err)
{
	struct soda_conn *conn;

	soda_sender_lose(&wb->sender, err);
	wb->unanswered_ns = 0;
	ring(wb);
	soda_lock_acquire(&wb->lock);
	conn = wb->sender.conn;
	wb->sender.conn = NULL;
	soda_lock_release(&wb->lock);
	soda_conn_close(conn);
	soda_progress_tell();
}

static void adopt_connection(struct soda_writeback *wb)
{
	if (atomic_load(&wb->drop_conn)) {
		lose(wb, -ECONNABORTED);
		atomic_store(&wb->drop_conn, false);
		soda_progress_tell();
	}
	soda_lock_acquire(&wb->lock);
	if (!wb->sender.conn && wb->next_conn) {
		wb->sender.conn = wb->next_conn;
		wb->next_conn = NULL;
	}
	soda_lock_release(&wb->lock);
}

static void idle(struct soda_writeback *wb, uint32_t seen, int64_t timeout_ns)
{
	atomic_store(&wb->asleep, 1);
	if (atomic_load(&wb->bell) == seen)
		soda_futex_wait(&wb->bell, seen, timeout_ns);
	atomic_store(&wb->asleep, 0);
}

/*
 * Send a batch.  soda_sender_send() returns 0 also when none of the places that it took had a chunk
 * to send; then go on while more wait.
 */
static int send_some(struct soda_writeback *wb)
{
	uint32_t left = soda_sender_queue_waits_for(wb->link);
	int n = soda_sender_send(&wb->sender);

	while (!n && left > SODA_SENDER_BATCH && wb->sender.used < wb->sender.max) {
		left -= SODA_SENDER_BATCH;
		n = soda_sender_send(&wb->sender);
	}
	return n;
}

/*
 * Collect answers for so long.  As soda_sender_collect(); -ETIMEDOUT: with redundancy, when nothing
 * has come for too long.  Without, soda_sync and faults have their own time-outs.
 */
static int collect_some(struct soda_writeback *wb, int64_t timeout_ns)
{
	uint64_t from;
	int n;

	if (!soda_redundant())
		return soda_sender_collect(&wb->sender, timeout_ns);
	from = soda_now_ns();
	if (!wb->unanswered_ns)
		wb->unanswered_ns = from;
	n = soda_sender_collect(&wb->sender, timeout_ns);
	if (n || !wb->sender.used) {
		wb->unanswered_ns = 0;
		return n;
	}
	wb->unanswered_ns +=
		soda_thread_stood_still(wb->sender.t, (uint64_t)timeout_ns, soda_now_ns() - from);
	return from > wb->unanswered_ns + patience_ns() ? -ETIMEDOUT : 0;
}

/* One turn of the thread's loop: send what waits, or collect answers, or sleep. */
static void turn(struct soda_writeback *wb)
{
	uint32_t seen = atomic_load(&wb->bell);
	int n;

	adopt_connection(wb);
	if (!wb->sender.conn) {
		if (soda_redundant())
			soda_sender_reroute(&wb->sender);
		idle(wb, seen, SODA_WRITEBACK_LOOK_MS * SODA_MS_NS);
		return;
	}
	n = send_some(wb);
	if (!n && !wb->sender.used) {
		soda_sender_drop(&wb->sender);
		/* Chunks that still wait cannot be sent now: BUSY, or SENDING by another sender. */
		idle(wb, seen,
		     soda_sender_queue_waits_for(wb->link) ? ANSWER_NS
							   : SODA_WRITEBACK_LOOK_MS * SODA_MS_NS);
		return;
	}
	/* Not long while there are chunks to drop: a store to one of them waits for that. */
	if (n >= 0 && wb->sender.used)
		n = collect_some(wb, wb->sender.gone_n ? ANSWER_NS : 100 * ANSWER_NS);
	if (n < 0) {
		soda_server_report(&wb->link->server, n);
		lose(wb, n);
	}
}

static void *run(void *arg)
{
	struct soda_writeback *wb = arg;

	wb->sender.t = soda_thread_internal();
	while (!atomic_load(&wb->stop))
		turn(wb);
	lose(wb, -ECONNABORTED);
	return NULL;
}

int soda_writeback_start(struct soda_link *link)
{
	struct soda_writeback *wb = link->writeback;
	int ret;

	if (!wb)
		wb = link->writeback = calloc(1, sizeof(*wb));
	if (wb && !wb->help)
		wb->help = calloc(SODA_CHANNEL_PAIRS_MAX, sizeof(*wb->help));
	if (!wb || !wb->help)
		return -ENOMEM;
	*wb = (struct soda_writeback){ .link = link, .help = wb->help };
	wb->sender.ops = wb->ops;
	wb->sender.server = link->index;
	wb->sender.station = soda_sealing_writer(link->index);
	wb->sender.max = OPS;
	soda_lock_init(&wb->lock, SODA_RANK_WRITEBACK);
	soda_sender_queue_clear(link);
	if (link == soda_agent.links)
		soda_progress_start();
	ret = soda_helper_start(&wb->thread, "soda-writeback", run, wb);
	wb->running = !ret;
	return ret;
}

void soda_writeback_stop(struct soda_link *link)
{
	struct soda_writeback *wb = link->writeback;
	struct soda_conn *unused;

	if (!wb)
		return;
	if (atomic_load(&wb->running)) {
		atomic_store(&wb->stop, true);
		ring(wb);
		soda_wait_join(wb->thread, "the write-back thread to end");
		atomic_store(&wb->running, false);
	}
	soda_lock_acquire(&wb->lock); /* the keeper may connect it still */
	unused = wb->next_conn;
	wb->next_conn = NULL;
	soda_lock_release(&wb->lock);
	soda_conn_close(unused);
}

void soda_writeback_connect(struct soda_link *link, struct soda_conn *conn)
{
	struct soda_writeback *wb = link->writeback;

	soda_lock_acquire(&wb->lock);
	wb->next_conn = conn;
	soda_lock_release(&wb->lock);
	ring(wb);
}

void soda_writeback_disconnect(struct soda_link *link)
{
	struct soda_writeback *wb = link->writeback;
	struct soda_conn *unused;

	if (!wb)
		return;
	soda_lock_acquire(&wb->lock);
	unused = wb->next_conn;
	wb->next_conn = NULL;
	if (wb->sender.conn) /* the thread may wait for an answer there */
		soda_conn_abort(wb->sender.conn);
	soda_lock_release(&wb->lock);
	soda_conn_close(unused);
	atomic_store(&wb->drop_conn, true);
	ring(wb);
	while (atomic_load(&wb->drop_conn) && atomic_load(&wb->running) &&
	       !atomic_load(&wb->stop)) {
		uint32_t seen = soda_progress_seen();

		if (atomic_load(&wb->drop_conn))
			soda_progress_await(seen, 10000000);
	}
}

void soda_writeback_each_sender(void (*fn)(const struct soda_sender *s, void *arg), void *arg)
{
	for (uint32_t k = 0; k < soda_members(); k++) {
		const struct soda_writeback *wb = soda_agent.links[k].writeback;

		fn(&wb->sender, arg);
		for (int i = 0; i < SODA_CHANNEL_PAIRS_MAX; i++)
			if (wb->helpers[i])
				fn(wb->helpers[i], arg);
	}
}

void soda_writeback_forget(struct soda_link *link, void (*fn)(struct soda_conn *conn))
{
	if (!link->writeback)
		return;
	fn(link->writeback->sender.conn);
	fn(link->writeback->next_conn);
}
