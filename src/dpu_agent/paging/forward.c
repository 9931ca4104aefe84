/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/forward.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/tracepoint.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/paging/turns.h"

#define MERGE_BYTES (1u << 20) /* of a transfer, at most: more would only delay its first part */

enum {
	SYNC_TASKS = 64,  /* in one batch, where the thread that posts also waits */
	SPIN_NS = 50000,  /* busy, at the start of a wait, where the client polls */
	NEAR_NS = 500000, /* a worker itself waits so long; then a completer takes over */
	SEALED_TRIES = 64,
};

/* Posting and polling, where what is sealed is sealed and opened. */

static int post_locked(struct soda_channel *c, struct soda_transfer *t)
{
	int ret = t->region->sealing && !t->raw ? soda_sealing_post(c->engine, t) : 0;

	t->base = t->raw ? 0 : t->region->data_at;
	if (ret == 0)
		ret = soda_channel_post_locked(c, t, &t->region->mr);
	if (ret < 0)
		soda_sealing_release(t);
	return ret;
}

static int poll_locked(struct soda_channel *c, int64_t timeout_ns, int64_t spin_ns,
		       struct soda_transfer **done_p, int *status)
{
	int n = soda_channel_poll_locked(c, timeout_ns, spin_ns, done_p, status), i = 0;

	for (struct soda_transfer *t = *done_p; t; t = t->next, i++)
		if (t->region->sealing && !t->raw)
			status[i] = soda_sealing_ended(c->engine, t, status[i]);
	return n;
}

/* The ends of requests: answered, or dropped. */

static void count(const struct soda_request *rq)
{
	const struct soda_session *s = rq->client;

	soda_count_request(rq->write, rq->bytes, soda_now_ns() - rq->arrived_ns);
	if (s->tenant)
		soda_tenant_count(s->tenant, rq->write, rq->bytes);
}

/* Counts first: a client that has the answer may ask for the statistics. */
void soda_forward_answer(struct soda_request *rq, int status, const struct soda_span *span)
{
	if (status == 0)
		count(rq);
	SODA_TP_ANSWER(rq, status);
	soda_request_done(rq, status, span);
}

/* Closes the connection, so that the client does not take -ECONNRESET for the server's answer. */
static void drop_request(struct soda_session *s, struct soda_request *rq)
{
	bool write = rq->write;

	soda_peer_close(rq->peer);
	soda_request_done(rq, -ECONNRESET, NULL);
	if (write) {
		soda_writes_unreserve(s, rq->hold, rq->bytes);
		soda_request_free(rq);
	}
}

/* n requests give back their holds of the region, and so many bytes at the gate. */
static void unhold(struct soda_session *s, struct soda_paging_region *r, unsigned n,
		   uint64_t credit)
{
	pthread_mutex_lock(&s->lock);
	soda_gate_leave_locked(s, credit);
	r->holds -= n - 1;
	soda_region_unhold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
}

void soda_forward_drop(struct soda_task *task)
{
	uint32_t credit = task->credited ? task->rq->bytes : 0;

	if (task->fill)
		soda_paging_store_filled(task, NULL, -ECONNRESET);
	drop_request(task->session, task->rq);
	unhold(task->session, task->region, 1, credit);
	free(task);
}

void soda_forward_drop_tasks(struct soda_task *tasks)
{
	while (tasks) {
		struct soda_task *next = tasks->next;

		soda_forward_drop(tasks);
		tasks = next;
	}
}

/*
 * Returns the bytes to give back at the gate now: those of an answer with data are given back when
 * the data has been sent.
 */
static uint32_t finish_task(struct soda_transfer *t, struct soda_task *task, int status)
{
	struct soda_request *rq = task->rq;
	struct soda_span span = { .offset = rq->offset, .bytes = rq->bytes };

	if (rq->write) {
		soda_caches_written(task->region, rq->offset, span.bytes);
		soda_forward_answer(rq, status, NULL);
		soda_writes_unreserve(task->session, rq->hold, rq->bytes);
		soda_request_free(rq);
		return 0;
	}
	span.memory = t->memory + (rq->offset - t->offset);
	if (task->fill) {
		status = soda_paging_store_filled(task, span.memory, status);
		span.stored = !status;
	}
	if (status < 0) {
		soda_forward_answer(rq, status, NULL);
		return span.bytes;
	}
	if (t->block && !span.stored) {
		soda_block_ref(t->block, 1);
		span.hold = &t->block->hold;
	}
	soda_forward_answer(rq, 0, &span);
	return 0;
}

/*
 * A READ of a sealed region has passed a WRITE, and came to neither's content: make it again.
 * False: it was made often enough.
 */
static bool read_again(struct soda_transfer *t)
{
	for (struct soda_task *task = t->tasks; task; task = task->next)
		if (task->fill || ++task->tries > SEALED_TRIES)
			return false;
	if (soda_paging(t->session)->async)
		soda_schedule_count(t->session, -(int64_t)t->bytes);
	soda_forward_again(t->session, t->tasks);
	if (t->block)
		soda_block_put(t->block);
	free(t);
	return true;
}

/* The tasks leave the transfer, but for those from one on that fills the store, which asks anew. */
static struct soda_task *take_away(struct soda_transfer *t)
{
	struct soda_task *away = NULL, **end = &away;

	while (t->tasks && !t->tasks->fill) {
		*end = t->tasks;
		end = &t->tasks->next;
		t->tasks = t->tasks->next;
		t->tasks_n--;
	}
	*end = NULL;
	return away;
}

/*
 * A block of a READ is not what was sent there: who asked for others must not suffer for it.  What
 * lies before it has been opened; tasks that begin behind it are another READ.  Returns the status
 * of the task.
 */
static int finish_around(struct soda_transfer *t, const struct soda_task *task, int status,
			 struct soda_task **behind_p)
{
	uint64_t at = (t->damaged - 1) * SODA_SEAL_BLOCK;

	if (!t->damaged || *behind_p)
		return status;
	if (task->rq->offset + task->rq->bytes <= at)
		return 0;
	*behind_p = take_away(t);
	return status;
}

static void finish(struct soda_transfer *t, int status)
{
	struct soda_session *s = t->session;
	struct soda_task *behind = NULL;
	uint64_t credit = 0;

	if (t->damaged)
		soda_sealing_report(t, s->id, soda_session_server(s));
	if (status == -EAGAIN && t->tasks) {
		if (read_again(t))
			return;
		status = -EIO;
	}

	if (t->ended) {
		t->ended(t, status);
		return;
	}
	if (t->writes) {
		soda_writes_landed(s, t->writes, t->tasks_n, status);
		free(t);
		return;
	}
	if (status == 0 && !t->write)
		soda_caches_fetched(&soda_paging(s)->caches, t->bytes,
				    soda_now_ns() - t->posted_ns);
	if (soda_paging(s)->async)
		soda_schedule_count(s, -(int64_t)t->bytes);
	while (t->tasks) {
		struct soda_task *task = t->tasks;

		t->tasks = task->next;
		credit += finish_task(t, task, finish_around(t, task, status, &behind));
		free(task);
	}
	unhold(s, t->region, t->tasks_n, credit);
	if (credit)
		soda_gate_open(s);
	if (behind)
		soda_forward_again(s, behind);
	if (t->block)
		soda_block_put(t->block);
	free(t);
}

static void finish_all(struct soda_transfer *list, const int *status)
{
	for (unsigned i = 0; list; i++) {
		struct soda_transfer *next = list->next;

		finish(list, status[i]);
		list = next;
	}
}

/*
 * Release the channel's lock, then finish the polled transfers.  If the channel's connection has
 * failed with err, report that to the session before any thread can connect the channel anew: else
 * the report would be taken for one of the next connection.
 */
static void release(struct soda_channel *c, struct soda_transfer *polled, const int *status,
		    int err)
{
	bool failed = err < 0 && c->conn;

	if (!polled && !failed) {
		pthread_mutex_unlock(&c->lock);
		return;
	}
	soda_channel_finish_locked(c);
	pthread_mutex_unlock(&c->lock);
	finish_all(polled, status);
	if (failed)
		soda_server_report(&soda_pager(c->session)->server, err);
	soda_channel_finished(c);
}

/* Finish the transfers that have ended on the channel. True: there were some. No lock is held. */
static bool collect(struct soda_channel *c)
{
	struct soda_transfer *list;
	int status[SODA_CHANNEL_POLL], n;
	bool found = false;

	do {
		pthread_mutex_lock(&c->lock);
		n = poll_locked(c, 0, 0, &list, status);
		if (n < 0)
			soda_completer_failed_locked(c);
		release(c, list, status, n);
		found = found || n > 0;
	} while (n == SODA_CHANNEL_POLL);
	return found;
}

bool soda_forward_collect(struct soda_channel *c)
{
	if (!collect(c))
		return false;
	soda_forward_more(c->session);
	return true;
}

void soda_forward_sent(struct soda_session *s, const struct soda_span *span)
{
	struct soda_hold *hold = span->hold;
	bool waiting;

	if (hold)
		hold->put(hold);
	pthread_mutex_lock(&s->lock);
	soda_gate_leave_locked(s, span->bytes);
	waiting = soda_pager(s)->gate;
	pthread_mutex_unlock(&s->lock);
	if (waiting)
		soda_gate_open(s);
}

static void drop_transfer(struct soda_transfer *t)
{
	if (soda_paging(t->session)->async && !t->write)
		soda_schedule_count(t->session, -(int64_t)t->bytes);
	soda_forward_drop_tasks(t->tasks);
	if (t->block)
		soda_block_put(t->block);
	free(t);
}

void soda_forward_drop_transfers(struct soda_transfer *list)
{
	while (list) {
		struct soda_transfer *next = list->next;

		drop_transfer(list);
		list = next;
	}
}

/*
 * Make transfers of tasks, one of tasks that are neighbours in the region and, for WRITEs, in
 * memory; and post transfers on a channel, with one doorbell.
 */

/* Whether `b` begins where `a` ends, in the region and, if they have memory, there, too. */
static bool adjacent(const struct soda_task *a, const struct soda_task *b)
{
	const struct soda_request *p = a->rq, *q = b->rq;

	return a->region == b->region && p->write == q->write &&
	       p->offset + p->bytes == q->offset &&
	       (p->data ? q->data == p->data + p->bytes : !q->data);
}

/* Take tasks that travel together, from the first on; *rest_p: the others. */
static void start_transfer(struct soda_transfer *t, struct soda_task *tasks, bool merge,
			   struct soda_task **rest_p)
{
	struct soda_task *last = tasks;

	*t = (struct soda_transfer){
		.session = tasks->session,
		.region = tasks->region,
		.tasks = tasks,
		.tasks_n = 1,
		.offset = tasks->rq->offset,
		.bytes = tasks->rq->bytes,
		.write = tasks->rq->write,
		.memory = tasks->rq->data,
	};
	while (merge && last->next && adjacent(last, last->next) &&
	       t->bytes + last->next->rq->bytes <= MERGE_BYTES) {
		last = last->next;
		t->bytes += last->rq->bytes;
		t->tasks_n++;
	}
	*rest_p = last->next;
	last->next = NULL;
}

/* *failed_p: the tasks for which there was no memory. */
static struct soda_transfer *build_transfers(struct soda_task *tasks, bool merge,
					     struct soda_task **failed_p)
{
	struct soda_transfer *list = NULL, **end = &list;

	*failed_p = NULL;
	while (tasks) {
		struct soda_transfer *t = malloc(sizeof(*t));

		if (!t) {
			*failed_p = tasks;
			break;
		}
		start_transfer(t, tasks, merge, &tasks);
		if (!t->memory) {
			t->block = soda_block_get(t->bytes);
			if (!t->block) {
				/* all tasks from this transfer's first on */
				struct soda_task *last = t->tasks;

				while (last->next)
					last = last->next;
				last->next = tasks;
				*failed_p = t->tasks;
				free(t);
				break;
			}
			t->memory = t->block->memory;
		}
		if (t->tasks_n > 1)
			soda_count_add(t->write ? SODA_COUNT_writes_merged
						: SODA_COUNT_reads_merged,
				       t->tasks_n - 1);
		*end = t;
		end = &t->next;
	}
	return list;
}

/* Post the transfers; drops those that cannot be posted. 0 or the connection's error. */
static int post_transfers_locked(struct soda_channel *c, struct soda_transfer *list, bool polling)
{
	unsigned requests = 0;
	int ret = 0;

	while (list && ret == 0) {
		struct soda_transfer *next = list->next;

		ret = post_locked(c, list);
		if (ret < 0)
			break;
		soda_count_transfer(list->write, list->bytes);
		requests += list->tasks_n;
		list = next;
	}
	if (ret == 0)
		ret = soda_conn_flush(c->conn, polling);
	soda_count_batch(requests);
	soda_forward_drop_transfers(list);
	return ret;
}

/* Without async, and for the caches: the thread that posts also waits for the answers. */

static unsigned thread_index(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned own; /* 0: none yet */

	if (!own)
		own = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
	return own - 1;
}

static struct soda_channel *own_channel(struct soda_session *s)
{
	return &soda_pager(s)->channels[thread_index() % soda_paging(s)->channels];
}

/* The caller has posted everything that is under way on the channel. */
static int await_all_locked(struct soda_channel *c, int64_t timeout_ns, bool polling)
{
	int status[SODA_CHANNEL_POLL], n = 0;

	while (c->first && n >= 0) {
		struct soda_transfer *list;

		n = poll_locked(c, timeout_ns, polling ? SPIN_NS : 0, &list, status);
		if (n == 0) {
			soda_conn_abort(c->conn);
			return -ETIMEDOUT;
		}
		finish_all(list, status);
	}
	return n < 0 ? n : 0;
}

static bool is_up(struct soda_session *s)
{
	bool up;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	pthread_mutex_unlock(&s->lock);
	return up;
}

int soda_forward_await(struct soda_channel *c, struct soda_transfer *t, unsigned n)
{
	struct soda_session *s = t->session;
	uint64_t end = soda_now_ns() + soda_paging(s)->opt->timeout_ms * 1000000ull;
	int status[SODA_CHANNEL_POLL], ret = 0;

	for (unsigned i = 0; i < n && ret == 0; i++)
		ret = post_locked(c, &t[i]);
	if (ret == 0)
		ret = soda_conn_flush(c->conn, false);
	while (ret == 0 && c->first) {
		struct soda_transfer *done;
		int got = poll_locked(c, (int64_t)(SODA_DPU_AWAIT_LOOK_MS * SODA_MS_NS), 0, &done,
				      status);

		finish_all(done, status);
		if (got < 0)
			ret = got;
		else if (got == 0 && (!is_up(s) || soda_now_ns() > end))
			ret = -ETIMEDOUT;
	}
	if (ret < 0 && c->conn) {
		/* a late answer must not go into memory that has another use by then */
		soda_conn_abort(c->conn);
		soda_channel_forget_locked(c);
	}
	release(c, NULL, NULL, ret);
	return ret;
}

static void forward_and_wait(struct soda_session *s, struct soda_task *tasks)
{
	struct soda_channel *c = own_channel(s);
	bool polling = tasks->rq->polling;
	struct soda_transfer *list;
	struct soda_task *failed;
	int ret;

	list = build_transfers(tasks, soda_paging(s)->aggregate, &failed);
	soda_forward_drop_tasks(failed);
	if (!list)
		return;
	pthread_mutex_lock(&c->lock);
	ret = post_transfers_locked(c, list, polling);
	if (ret == 0)
		ret = await_all_locked(c, soda_paging(s)->opt->timeout_ms * 1000000ll, polling);
	release(c, NULL, NULL, ret);
}

/*
 * Finish transfers that end on the channel until end_ns.  True: others are under way, and some of
 * them may be at hand.  Else the completer collects them, which the descriptor tells only of what
 * is not at hand (soda_conn_fd).
 */
static bool answer_some(struct soda_channel *c, uint64_t end_ns)
{
	int status[SODA_CHANNEL_POLL], n = 0;
	uint64_t now = soda_now_ns();
	bool over = now >= end_ns, more, again;
	struct soda_transfer *list = NULL;

	pthread_mutex_lock(&c->lock);
	if (c->first)
		n = poll_locked(c, over ? 0 : (int64_t)(end_ns - now),
				c->polling && !over ? SPIN_NS : 0, &list, status);
	more = c->first;
	again = more && (over ? n == SODA_CHANNEL_POLL : n > 0);
	if (more && !again)
		soda_completer_resume_locked(c);
	release(c, list, status, n);
	return again;
}

static void answer_near(struct soda_session *s)
{
	struct soda_channel *c = own_channel(s);
	uint64_t end_ns = soda_now_ns() + NEAR_NS;

	while (answer_some(c, end_ns))
		;
	soda_forward_more(s);
}

/* Asynchronous: posted here, answered by completers. */

static struct soda_channel *least_busy(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_channel *best = &p->channels[0];

	for (unsigned i = 1; i < soda_paging(s)->channels; i++)
		if (atomic_load_explicit(&p->channels[i].under_way, memory_order_relaxed) <
		    atomic_load_explicit(&best->under_way, memory_order_relaxed))
			best = &p->channels[i];
	return best;
}

/*
 * Take what may be posted of the queue now: at most `room` READs, and SODA_TURN_BYTES.  *more_p:
 * others may follow at once.
 */
static struct soda_task *take_turn(struct soda_session *s, unsigned room, bool *more_p)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *first, **at = &first;
	uint64_t bytes = 0;

	*more_p = false;
	pthread_mutex_lock(&s->lock);
	first = s->up ? p->queue : NULL;
	while (room && *at && bytes < SODA_TURN_BYTES) {
		bytes += (*at)->rq->bytes;
		room--;
		at = &(*at)->next;
	}
	if (first) {
		*more_p = *at && bytes >= SODA_TURN_BYTES;
		p->queue = *at;
		if (!p->queue)
			p->queue_end = &p->queue;
		*at = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	soda_schedule_count(s, (int64_t)bytes);
	return first;
}

/* Drop tasks that take_turn() took and for which there is no memory. */
static void fail_tasks(struct soda_session *s, struct soda_task *tasks)
{
	uint64_t bytes = 0;

	for (struct soda_task *at = tasks; at; at = at->next)
		bytes += at->rq->bytes;
	if (bytes)
		soda_schedule_count(s, -(int64_t)bytes);
	soda_forward_drop_tasks(tasks);
}

bool soda_forward_reads(struct soda_session *s, bool own)
{
	bool stays = own && soda_paging(s)->near;
	struct soda_channel *c = stays ? own_channel(s) : least_busy(s);
	struct soda_task *tasks, *failed;
	struct soda_transfer *list;
	bool more, polling, direct = false, lacking = false;
	unsigned room;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	room = SODA_CHANNEL_DEPTH - atomic_load(&c->under_way);
	tasks = take_turn(s, soda_paging(s)->aggregate || !room ? room : 1, &more);
	if (tasks) {
		polling = c->polling = tasks->rq->polling;
		list = build_transfers(tasks, soda_paging(s)->aggregate, &failed);
		fail_tasks(s, failed);
		lacking = failed;
		soda_completer_expect_locked(c, polling && !stays);
		if (stays)
			soda_completer_pause_locked(c);
		else
			soda_completer_resume_locked(c);
		direct = list && list->region->mr.map;
		ret = post_transfers_locked(c, list, polling);
		more = more || !soda_paging(s)->aggregate;
	}
	release(c, NULL, NULL, ret);
	if (lacking)
		soda_gate_open(s);
	if (direct && ret == 0)
		collect(c);
	return tasks && more && ret == 0;
}

/* Take the next WRITEs to be posted, as one transfer; NULL: none, or no memory. */
static struct soda_transfer *take_writes(struct soda_session *s)
{
	struct soda_transfer *t = calloc(1, sizeof(*t));
	bool merge = soda_paging(s)->aggregate, any;

	if (!t)
		return NULL;
	t->session = s;
	t->write = true;
	pthread_mutex_lock(&s->lock);
	any = s->up && soda_writes_take_locked(s, merge, t);
	pthread_mutex_unlock(&s->lock);
	if (any)
		return t;
	free(t);
	return NULL;
}

/* How many bytes of WRITEs the session may have under way. */
static uint64_t writes_share(struct soda_session *s)
{
	uint64_t share;

	pthread_mutex_lock(&s->lock);
	share = soda_gate_share_locked(s);
	pthread_mutex_unlock(&s->lock);
	return share < SODA_WRITES_UNDER_WAY ? share : SODA_WRITES_UNDER_WAY;
}

/*
 * A transfer of WRITEs could not be posted, and they stay on the write list.  For want of memory to
 * seal them in it is their turn again, before all that came later: 0.  Else the connection fails,
 * and the next one begins with the first.
 */
static int put_back(struct soda_session *s, struct soda_transfer *t, int err)
{
	bool again = err == -ENOMEM || err == -ENOSPC;

	pthread_mutex_lock(&s->lock);
	if (again)
		soda_writes_untake_locked(s, t);
	pthread_mutex_unlock(&s->lock);
	free(t);
	return again ? 0 : err;
}

void soda_forward_writes(struct soda_session *s)
{
	struct soda_channel *c = &soda_pager(s)->channels[soda_paging(s)->channels];
	struct soda_transfer *t;
	unsigned requests = 0;
	bool direct = false;
	int ret = 0, flushed;

	pthread_mutex_lock(&c->lock);
	while (ret == 0 && c->posted_bytes < writes_share(s) &&
	       atomic_load(&c->under_way) < SODA_CHANNEL_DEPTH && (t = take_writes(s))) {
		ret = post_locked(c, t);
		if (ret < 0) {
			ret = put_back(s, t, ret);
			break;
		}
		soda_count_transfer(true, t->memory ? t->bytes : 0);
		requests += t->tasks_n;
		direct = t->region->mr.map;
		if (!soda_paging(s)->aggregate) {
			ret = soda_conn_flush(c->conn, false);
			soda_count_batch(1);
			requests = 0;
		}
	}
	if (requests) {
		soda_count_batch(requests);
		flushed = soda_conn_flush(c->conn, false);
		ret = ret ? ret : flushed;
	}
	release(c, NULL, NULL, ret);
	if (direct && ret == 0)
		collect(c);
}

int soda_forward_own(struct soda_transfer *t)
{
	struct soda_session *s = t->session;
	struct soda_channel *c = &soda_pager(s)->channels[soda_paging(s)->channels];
	bool direct = t->region->mr.map;
	uint32_t bytes = t->bytes;
	int ret = -EAGAIN, flushed = 0;

	pthread_mutex_lock(&c->lock);
	if (atomic_load(&c->under_way) < SODA_CHANNEL_DEPTH)
		ret = post_locked(c, t);
	if (ret == 0) {
		soda_count_transfer(true, bytes);
		flushed = soda_conn_flush(c->conn, false);
	}
	/* posted and not flushed: it ends with the connection */
	release(c, NULL, NULL, ret == 0 ? flushed : ret == -EAGAIN ? 0 : ret);
	if (direct && ret == 0 && flushed == 0)
		collect(c);
	return ret;
}

/* Requests as they come in. */

static void refuse(struct soda_session *s, struct soda_request *rq, int err)
{
	bool write = rq->write;

	soda_count_add(SODA_COUNT_requests_bad, 1);
	SODA_TP_ANSWER(rq, err);
	soda_request_done(rq, err, NULL);
	if (write) {
		soda_writes_unreserve(s, rq->hold, rq->bytes);
		soda_request_free(rq);
	}
}

static int check(const struct soda_paging_region *r, const struct soda_request *rq)
{
	int ret;

	if (!r)
		return -EINVAL;
	if (rq->write && !r->mr.writable)
		return -EACCES;
	ret = soda_wire_check_range(rq->offset / SODA_WIRE_PAGE, rq->bytes, r->bytes);
	if (ret == 0 && rq->write && soda_caches_frozen(r, rq->offset, rq->bytes))
		return -EACCES;
	return ret;
}

/* Put the task into the queue, or drop it if the session is not up any more. */
static void append(struct soda_session *s, struct soda_task *task)
{
	bool up;

	task->next = NULL;
	pthread_mutex_lock(&s->lock);
	up = s->up;
	if (up) {
		*soda_pager(s)->queue_end = task;
		soda_pager(s)->queue_end = &task->next;
	}
	pthread_mutex_unlock(&s->lock);
	if (!up)
		soda_forward_drop(task);
}

/* Answer out of the agent's memory. */
static void answer_held(struct soda_session *s, struct soda_task *task,
			const struct soda_span *span)
{
	struct soda_request *rq = task->rq;

	pthread_mutex_lock(&s->lock);
	soda_region_unhold_locked(s, task->region);
	pthread_mutex_unlock(&s->lock);
	free(task);
	soda_forward_answer(rq, 0, span);
}

enum found { OWNED, WAITS, FREE };

/*
 * async: whether the write list has the newest data of the task's range: OWNED, they are in *parts;
 * WAITS: not of all of it, so the task waits until the newest WRITE there has ended; FREE: nothing.
 * Without OWNED *parts may hold some that the caller puts.
 */
static enum found place_locked(struct soda_session *s, struct soda_task *task,
			       struct soda_write_parts *parts)
{
	struct soda_request *rq = task->rq;
	struct soda_write *w = soda_writes_find_locked(s, rq->region_id, rq->offset, rq->bytes);

	if (!w)
		return FREE;
	if (soda_writes_parts_locked(s, w, rq->offset, rq->bytes, parts))
		return OWNED;
	task->next = w->waiting;
	w->waiting = task;
	return WAITS;
}

/* Make one of the parts, which are put. False: no memory. */
static bool join_parts(const struct soda_request *rq, struct soda_write_parts *parts,
		       struct soda_span *span)
{
	struct soda_block *block = soda_block_get(rq->bytes);

	for (unsigned i = 0; block && i < parts->n; i++) {
		const struct soda_span *part = &parts->part[i];

		memcpy(block->memory + (part->offset - rq->offset), part->memory, part->bytes);
	}
	soda_writes_put_parts(parts);
	if (!block)
		return false;
	*span = (struct soda_span){ .memory = block->memory,
				    .hold = &block->hold,
				    .offset = rq->offset,
				    .bytes = rq->bytes };
	return true;
}

/* Answer out of WRITEs that are not on the server. */
static void answer_owned(struct soda_session *s, struct soda_task *task,
			 struct soda_write_parts *parts)
{
	struct soda_span span = parts->part[0];

	if (parts->n > 1 && !join_parts(task->rq, parts, &span)) {
		soda_forward_drop(task);
		return;
	}
	soda_count_add(SODA_COUNT_reads_owned, 1);
	answer_held(s, task, &span);
}

/* Answer out of the caches, if they have the data or are fetching it: true. */
static bool from_cache(struct soda_session *s, struct soda_task *task)
{
	struct soda_span span;
	enum soda_cache_answer found = soda_caches_read(task, &span);

	if (found != SODA_CACHE_HIT)
		return found == SODA_CACHE_LATE;
	answer_held(s, task, &span);
	return true;
}

/* To the server; without async WRITEs, too. */
static void forward(struct soda_session *s, struct soda_task *task)
{
	task->next = NULL;
	if (soda_paging(s)->async || soda_paging(s)->aggregate)
		append(s, task);
	else
		forward_and_wait(s, task);
}

void soda_forward_enter(struct soda_task *task)
{
	struct soda_session *s = task->session;
	struct soda_write_parts parts;
	enum found found = FREE;
	enum soda_store_read stored;

	parts.n = 0; /* and no more: this is every READ's way */
	if (soda_paging(s)->async) {
		pthread_mutex_lock(&s->lock);
		found = place_locked(s, task, &parts);
		pthread_mutex_unlock(&s->lock);
	}
	if (found == OWNED) {
		answer_owned(s, task, &parts);
	} else if (found == WAITS) {
		soda_writes_put_parts(&parts);
		soda_count_add(SODA_COUNT_reads_waited, 1);
	} else {
		stored = soda_paging_store_read(task);
		if (stored == SODA_STORE_FILL || (stored == SODA_STORE_NOT && !from_cache(s, task)))
			forward(s, task);
	}
}

void soda_forward_late(struct soda_task *task, const struct soda_span *span)
{
	struct soda_session *s = task->session;

	if (span) {
		answer_held(s, task, span);
	} else if (!soda_paging(s)->async) {
		task->next = NULL;
		forward_and_wait(s, task); /* no doorbell comes that would empty the queue */
	} else {
		append(s, task);
		soda_schedule_add(s);
		soda_schedule_run(s, NULL);
	}
}

void soda_forward_again(struct soda_session *s, struct soda_task *tasks)
{
	while (tasks) {
		struct soda_task *next = tasks->next;

		soda_forward_enter(tasks);
		tasks = next;
	}
	soda_schedule_add(s);
	soda_schedule_run(s, NULL);
}

/* The data of a WRITE without any, from those that are kept, or named: the server keeps them. */
static bool remember(struct soda_session *s, struct soda_request *rq, bool named)
{
	if (named)
		return soda_writes_name(s, rq);
	return rq->code ? soda_writes_encode(s, rq) : soda_writes_recall(s, rq);
}

/* The WRITE of data that are kept no more: its client sends them. */
static void send_back(struct soda_session *s, struct soda_request *rq, struct soda_paging_region *r)
{
	SODA_TP_ANSWER(rq, -ENOENT);
	soda_request_done(rq, -ENOENT, NULL);
	soda_request_free(rq);
	unhold(s, r, 1, 0);
}

/* async: take a WRITE, which holds its region, to the write list. */
static void start_write(struct soda_session *s, struct soda_request *rq,
			struct soda_paging_region *r)
{
	if (!soda_writes_add(s, rq, r)) {
		drop_request(s, rq);
		unhold(s, r, 1, 0);
	}
}

static void start_task(struct soda_session *s, struct soda_request *rq,
		       struct soda_paging_region *r)
{
	struct soda_task *task = malloc(sizeof(*task));
	bool in;

	if (!task) {
		drop_request(s, rq);
		unhold(s, r, 1, 0);
		return;
	}
	*task = (struct soda_task){ .rq = rq, .session = s, .region = r };
	if (rq->write) { /* not async */
		soda_caches_written(r, rq->offset, rq->bytes);
		forward(s, task);
		return;
	}
	pthread_mutex_lock(&s->lock);
	in = soda_gate_enter_locked(s, task);
	pthread_mutex_unlock(&s->lock);
	if (in)
		soda_forward_enter(task);
}

/* async: post what waits. own: the session whose answers the calling worker itself awaits. */
static void post(struct soda_session *s, const struct soda_session *own)
{
	bool reads, writes;

	pthread_mutex_lock(&s->lock);
	reads = soda_pager(s)->queue;
	writes = soda_pager(s)->writes.unposted;
	pthread_mutex_unlock(&s->lock);
	if (reads)
		soda_schedule_add(s);
	soda_schedule_run(s, own);
	if (writes)
		soda_forward_writes(s);
}

void soda_forward_request(struct soda_session *s, struct soda_request *rq)
{
	struct soda_paging_region *r;
	bool up, named;
	int err;

	SODA_TP_REQUEST(rq, rq->region_id, rq->offset, rq->bytes, rq->write);
	pthread_mutex_lock(&s->lock);
	up = s->up;
	named = soda_pager(s)->keeps;
	r = soda_region_find_locked(s, rq->region_id);
	err = check(r, rq);
	if (up && !err)
		r->holds++;
	pthread_mutex_unlock(&s->lock);
	if (!up)
		drop_request(s, rq);
	else if (err)
		refuse(s, rq, err == -EPROTO ? -EINVAL : err);
	else if (rq->kept && !(soda_paging(s)->async && remember(s, rq, named)))
		send_back(s, rq, r);
	else if (rq->write && soda_paging(s)->async)
		start_write(s, rq, r);
	else
		start_task(s, rq, r);
	if (soda_paging(s)->async && !soda_paging(s)->aggregate)
		post(s, s);
}

/* Take up to max tasks of the queue. */
static struct soda_task *take_queue(struct soda_session *s, unsigned max)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *first, **at = &first;

	pthread_mutex_lock(&s->lock);
	first = p->queue;
	while (max-- && *at)
		at = &(*at)->next;
	p->queue = *at;
	if (!p->queue)
		p->queue_end = &p->queue;
	*at = NULL;
	pthread_mutex_unlock(&s->lock);
	return first;
}

void soda_forward_more(struct soda_session *s)
{
	post(s, NULL);
}

void soda_forward_doorbell(struct soda_session *s)
{
	struct soda_task *tasks;

	if (soda_paging(s)->async) {
		post(s, s);
		if (soda_paging(s)->near)
			answer_near(s);
		return;
	}
	while (soda_paging(s)->aggregate && (tasks = take_queue(s, SYNC_TASKS)))
		forward_and_wait(s, tasks);
}
