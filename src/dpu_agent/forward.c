/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/forward.h"

#include <errno.h>
#include <stdlib.h>

#include "common/lock.h"
#include "common/log.h"
#include "dpu_agent/agent.h"
#include "dpu_agent/counters.h"

enum {
	SYNC_TASKS = 64, /* in one batch, where the thread waits for it */
	SPIN_NS = 50000,
};

/* Answers */

void soda_forward_answer(struct soda_request *rq, int status, const struct soda_span *span)
{
	bool write = rq->write;
	uint32_t bytes = rq->bytes;

	if (status == 0)
		soda_count_service_time(write, soda_now_ns() - rq->arrived_ns);
	soda_request_done(rq, status, span);
	if (status == 0 && !write) {
		soda_count_add(SODA_COUNT_client_reads, 1);
		soda_count_add(SODA_COUNT_client_read_bytes, bytes);
	}
}

static void refuse(struct soda_session *s, struct soda_request *rq, int err)
{
	bool write = rq->write;

	soda_count_add(SODA_COUNT_requests_bad, 1);
	soda_request_done(rq, err, NULL);
	if (write) {
		soda_writes_unreserve(s, rq->hold, rq->bytes);
		soda_request_free(rq);
	}
}

/* The session is broken: what is said now must not be taken for the server's word. */
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

static void unhold(struct soda_session *s, struct soda_region *r, unsigned n, uint64_t credit)
{
	pthread_mutex_lock(&s->lock);
	s->read_bytes -= credit;
	r->holds -= n - 1;
	soda_region_unhold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
}

void soda_forward_drop(struct soda_task *task)
{
	uint32_t credit = task->credited ? task->rq->bytes : 0;

	drop_request(task->session, task->rq);
	unhold(task->session, task->region, 1, credit);
	free(task);
}

static void drop_tasks(struct soda_task *tasks)
{
	while (tasks) {
		struct soda_task *next = tasks->next;

		soda_forward_drop(tasks);
		tasks = next;
	}
}

/* What the client's credit gets back: of an answer with data only when that has been sent. */
static uint32_t finish_task(struct soda_transfer *t, struct soda_task *task, int status)
{
	struct soda_request *rq = task->rq;
	struct soda_span span = { .offset = rq->offset, .bytes = rq->bytes };

	if (rq->write) {
		soda_caches_written(task->region, rq->offset, span.bytes);
		if (status == 0) {
			soda_count_add(SODA_COUNT_client_writes, 1);
			soda_count_add(SODA_COUNT_client_write_bytes, rq->bytes);
		}
		soda_forward_answer(rq, status, NULL);
		soda_writes_unreserve(task->session, rq->hold, rq->bytes);
		soda_request_free(rq);
		return span.bytes;
	}
	if (status < 0) {
		soda_forward_answer(rq, status, NULL);
		return span.bytes;
	}
	if (t->block) {
		soda_block_ref(t->block, 1);
		span.hold = &t->block->hold;
	}
	span.memory = t->memory + (rq->offset - t->offset);
	soda_forward_answer(rq, 0, &span);
	return 0;
}

void soda_forward_finish(struct soda_transfer *t, int status)
{
	struct soda_session *s = t->session;
	uint64_t credit = 0;

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
		soda_caches_fetched(s->dpu, t->bytes, soda_now_ns() - t->posted_ns);
	if (s->dpu->async)
		soda_schedule_count(&s->dpu->schedule, -(int64_t)t->bytes);
	while (t->tasks) {
		struct soda_task *task = t->tasks;

		t->tasks = task->next;
		credit += finish_task(t, task, status);
		free(task);
	}
	unhold(s, t->region, t->tasks_n, credit);
	if (t->block)
		soda_block_put(t->block);
	free(t);
}

void soda_forward_sent(struct soda_session *s, const struct soda_span *span)
{
	struct soda_hold *hold = span->hold;
	bool waiting;

	if (hold)
		hold->put(hold);
	pthread_mutex_lock(&s->lock);
	s->read_bytes -= span->bytes;
	waiting = s->queue && s->up && s->dpu->async;
	pthread_mutex_unlock(&s->lock);
	if (waiting) { /* for the client's credit, perhaps */
		soda_schedule_add(&s->dpu->schedule, s);
		soda_schedule_run(&s->dpu->schedule);
	}
}

/* Posting */

static void count_transfer(const struct soda_transfer *t)
{
	soda_count_add(t->write ? SODA_COUNT_net_writeback : SODA_COUNT_net_demand, 1);
	soda_count_add(t->write ? SODA_COUNT_net_writeback_bytes : SODA_COUNT_net_demand_bytes,
		       t->bytes);
}

static void drop_transfer(struct soda_transfer *t)
{
	if (t->session->dpu->async && !t->write)
		soda_schedule_count(&t->session->dpu->schedule, -(int64_t)t->bytes);
	drop_tasks(t->tasks);
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

/* One doorbell for all. Those that cannot be posted are dropped. 0 or the connection's error. */
static int post_all_locked(struct soda_channel *c, struct soda_transfer *list, bool polling)
{
	unsigned requests = 0;
	int ret = 0;

	while (list && ret == 0) {
		struct soda_transfer *next = list->next;

		ret = soda_channel_post_locked(c, list);
		if (ret < 0)
			break;
		count_transfer(list);
		requests += list->tasks_n;
		list = next;
	}
	if (ret == 0)
		ret = soda_conn_flush(c->conn, polling);
	soda_count_batch(requests);
	soda_forward_drop_transfers(list);
	return ret;
}

/* Without async: the thread itself waits */

static unsigned thread_index(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned own; /* 0: none yet */

	if (!own)
		own = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
	return own - 1;
}

/* Everything that is under way on the channel is ours. */
static int await_all_locked(struct soda_channel *c, int64_t timeout_ns, bool polling)
{
	int status[SODA_CHANNEL_POLL], n = 0;

	while (c->first && n >= 0) {
		struct soda_transfer *list;

		n = soda_channel_poll_locked(c, timeout_ns, polling ? SPIN_NS : 0, &list, status);
		if (n == 0) {
			soda_conn_abort(c->conn);
			return -ETIMEDOUT;
		}
		for (int i = 0; list; i++) {
			struct soda_transfer *next = list->next;

			soda_forward_finish(list, status[i]);
			list = next;
		}
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

int soda_forward_await_locked(struct soda_channel *c, struct soda_transfer *t, unsigned n)
{
	enum { SLICE_NS = 100000000 };
	struct soda_session *s = t->session;
	uint64_t end = soda_now_ns() + s->dpu->opt->timeout_ms * 1000000ull;
	int status[SODA_CHANNEL_POLL], ret = 0;

	for (unsigned i = 0; i < n && ret == 0; i++)
		ret = soda_channel_post_locked(c, &t[i]);
	if (ret == 0)
		ret = soda_conn_flush(c->conn, false);
	while (ret == 0 && c->first) {
		struct soda_transfer *done;
		int got = soda_channel_poll_locked(c, SLICE_NS, 0, &done, status);

		for (int i = 0; done; done = done->next)
			soda_forward_finish(done, status[i++]);
		if (got < 0)
			ret = got;
		else if (got == 0 && (!is_up(s) || soda_now_ns() > end))
			ret = -ETIMEDOUT;
	}
	if (ret < 0 && c->conn) {
		/* what still comes must not go into memory that has another use by then */
		soda_conn_abort(c->conn);
		soda_channel_forget_locked(c);
	}
	return ret;
}

static void forward_and_wait(struct soda_session *s, struct soda_task *tasks)
{
	struct soda_channel *c = &s->channels[thread_index() % s->dpu->channels];
	bool polling = tasks->rq->polling;
	struct soda_transfer *list;
	struct soda_task *failed;
	int ret;

	pthread_mutex_lock(&s->lock);
	for (struct soda_task *at = tasks; at; at = at->next) {
		at->credited = true;
		s->read_bytes += at->rq->bytes;
	}
	pthread_mutex_unlock(&s->lock);
	list = soda_batch_build(tasks, s->dpu->aggregate, &failed);
	drop_tasks(failed);
	if (!list)
		return;
	pthread_mutex_lock(&c->lock);
	ret = post_all_locked(c, list, polling);
	if (ret == 0)
		ret = await_all_locked(c, s->dpu->opt->timeout_ms * 1000000ll, polling);
	pthread_mutex_unlock(&c->lock);
	if (ret < 0)
		soda_session_break(s, ret);
}

/* Up to max tasks of the queue. */
static struct soda_task *take_queue(struct soda_session *s, unsigned max)
{
	struct soda_task *first, **at = &first;

	pthread_mutex_lock(&s->lock);
	first = s->queue;
	while (max-- && *at)
		at = &(*at)->next;
	s->queue = *at;
	if (!s->queue)
		s->queue_end = &s->queue;
	*at = NULL;
	pthread_mutex_unlock(&s->lock);
	return first;
}

/* Asynchronous */

static struct soda_channel *least_busy(struct soda_session *s)
{
	struct soda_channel *best = &s->channels[0];

	for (unsigned i = 1; i < s->dpu->channels; i++)
		if (atomic_load_explicit(&s->channels[i].under_way, memory_order_relaxed) <
		    atomic_load_explicit(&best->under_way, memory_order_relaxed))
			best = &s->channels[i];
	return best;
}

/* What may be posted of the queue now; *more_p: there will be more at once. */
static struct soda_task *take_turn(struct soda_session *s, unsigned room, bool *more_p)
{
	struct soda_task *first, **at = &first;
	uint64_t bytes = 0;

	*more_p = false;
	pthread_mutex_lock(&s->lock);
	first = s->up ? s->queue : NULL;
	while (room && *at && bytes < SODA_TURN_BYTES) {
		uint32_t next = (*at)->rq->bytes;

		if (s->read_bytes && s->read_bytes + next > s->dpu->opt->client_credit)
			break;
		(*at)->credited = true;
		s->read_bytes += next;
		bytes += next;
		room--;
		at = &(*at)->next;
	}
	if (first) {
		*more_p = *at && bytes >= SODA_TURN_BYTES;
		s->queue = *at;
		if (!s->queue)
			s->queue_end = &s->queue;
		*at = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	soda_schedule_count(&s->dpu->schedule, (int64_t)bytes);
	return first;
}

/* Tasks that were taken, and for which there is no memory. */
static void fail_tasks(struct soda_session *s, struct soda_task *tasks)
{
	uint64_t bytes = 0;

	for (struct soda_task *at = tasks; at; at = at->next)
		bytes += at->rq->bytes;
	if (bytes)
		soda_schedule_count(&s->dpu->schedule, -(int64_t)bytes);
	drop_tasks(tasks);
}

bool soda_forward_reads(struct soda_session *s)
{
	struct soda_channel *c = least_busy(s);
	struct soda_task *tasks, *failed;
	struct soda_transfer *list;
	bool more, polling, direct = false;
	unsigned room;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	room = SODA_CHANNEL_DEPTH - atomic_load(&c->under_way);
	tasks = take_turn(s, s->dpu->aggregate || !room ? room : 1, &more);
	if (tasks) {
		polling = tasks->rq->polling;
		list = soda_batch_build(tasks, s->dpu->aggregate, &failed);
		fail_tasks(s, failed);
		soda_completer_expect_locked(c, polling);
		direct = list && list->region->mr.map;
		ret = post_all_locked(c, list, polling);
		more = more || !s->dpu->aggregate;
	}
	pthread_mutex_unlock(&c->lock);
	if (ret < 0)
		soda_session_break(s, ret);
	else if (direct)
		soda_completer_collect(c);
	return tasks && more && ret == 0;
}

/* The next WRITEs that are to be posted, as one transfer; NULL: none. */
static struct soda_transfer *take_writes(struct soda_session *s)
{
	struct soda_transfer *t = calloc(1, sizeof(*t));
	bool merge = s->dpu->aggregate, any;

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

void soda_forward_writes(struct soda_session *s)
{
	struct soda_channel *c = &s->channels[s->dpu->channels];
	struct soda_transfer *t;
	unsigned requests = 0;
	bool direct = false;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	while (ret == 0 && c->posted_bytes < SODA_WRITES_UNDER_WAY &&
	       atomic_load(&c->under_way) < SODA_CHANNEL_DEPTH && (t = take_writes(s))) {
		ret = soda_channel_post_locked(c, t);
		if (ret < 0) {
			free(t); /* the WRITEs are on their list, and will be posted again */
			break;
		}
		count_transfer(t);
		requests += t->tasks_n;
		direct = t->region->mr.map;
		if (!s->dpu->aggregate) {
			ret = soda_conn_flush(c->conn, false);
			soda_count_batch(1);
			requests = 0;
		}
	}
	if (requests) {
		soda_count_batch(requests);
		ret = soda_conn_flush(c->conn, false);
	}
	pthread_mutex_unlock(&c->lock);
	if (ret < 0)
		soda_session_break(s, ret);
	else if (direct)
		soda_completer_collect(c);
}

/* Requests as they come in */

static int check(const struct soda_region *r, const struct soda_request *rq)
{
	int ret;

	if (!r)
		return -EINVAL;
	if (rq->write && !r->mr.writable)
		return -EACCES;
	ret = soda_wire_check_range(rq->offset / SODA_WIRE_PAGE, rq->bytes, r->mr.bytes);
	if (ret == 0 && rq->write && soda_caches_frozen(r, rq->offset, rq->bytes))
		return -EACCES;
	return ret;
}

/* Into the queue; of a session that is not up any more it ends here. */
static void append(struct soda_session *s, struct soda_task *task)
{
	bool up;

	task->next = NULL;
	pthread_mutex_lock(&s->lock);
	up = s->up;
	if (up) {
		*s->queue_end = task;
		s->queue_end = &task->next;
	}
	pthread_mutex_unlock(&s->lock);
	if (!up)
		soda_forward_drop(task);
}

/* With data of the agent's; the client's credit is charged until they are sent. */
static void answer_held(struct soda_session *s, struct soda_task *task,
			const struct soda_span *span)
{
	struct soda_request *rq = task->rq;

	pthread_mutex_lock(&s->lock);
	s->read_bytes += rq->bytes;
	soda_region_unhold_locked(s, task->region);
	pthread_mutex_unlock(&s->lock);
	free(task);
	soda_forward_answer(rq, 0, span);
}

enum found { OWNED, WAITS, FREE };

/* async: data of this range that is not on the server yet comes first. */
static enum found place_locked(struct soda_session *s, struct soda_task *task,
			       struct soda_span *span)
{
	struct soda_request *rq = task->rq;
	struct soda_write *w = soda_writes_find_locked(s, rq->region_id, rq->offset, rq->bytes);

	if (!w)
		return FREE;
	if (w->offset <= rq->offset && w->offset + w->bytes >= rq->offset + rq->bytes) {
		*span = soda_writes_span_locked(w, rq->offset, rq->bytes);
		s->read_bytes += rq->bytes;
		soda_region_unhold_locked(s, task->region);
		return OWNED;
	}
	task->next = w->waiting;
	w->waiting = task;
	return WAITS;
}

/* From the agent's own memory: true where that is its answer, or will be. */
static bool from_cache(struct soda_session *s, struct soda_task *task)
{
	struct soda_span span;
	enum soda_cache_answer found = soda_caches_read(task, &span);

	if (found != SODA_CACHE_HIT)
		return found == SODA_CACHE_LATE;
	answer_held(s, task, &span);
	return true;
}

/* The region is held for the task. */
static void start_read(struct soda_session *s, struct soda_task *task)
{
	struct soda_request *rq = task->rq;
	struct soda_span span;
	enum found found = FREE;

	if (s->dpu->async) {
		pthread_mutex_lock(&s->lock);
		found = place_locked(s, task, &span);
		pthread_mutex_unlock(&s->lock);
	}
	if (found == OWNED) {
		free(task);
		soda_count_add(SODA_COUNT_reads_owned, 1);
		soda_forward_answer(rq, 0, &span);
	} else if (found == WAITS) {
		soda_count_add(SODA_COUNT_reads_waited, 1);
	} else if (rq->write || !from_cache(s, task)) {
		append(s, task);
	}
}

void soda_forward_late(struct soda_task *task, const struct soda_span *span)
{
	struct soda_session *s = task->session;

	if (span) {
		answer_held(s, task, span);
	} else if (!s->dpu->async) {
		task->next = NULL;
		forward_and_wait(s, task);
	} else {
		append(s, task);
		soda_schedule_add(&s->dpu->schedule, s);
		soda_schedule_run(&s->dpu->schedule);
	}
}

void soda_forward_again(struct soda_session *s, struct soda_task *tasks)
{
	while (tasks) {
		struct soda_task *next = tasks->next;

		start_read(s, tasks);
		tasks = next;
	}
	soda_schedule_add(&s->dpu->schedule, s);
	soda_schedule_run(&s->dpu->schedule);
}

/* async, WRITE; its region is held. */
static void start_write(struct soda_session *s, struct soda_request *rq, struct soda_region *r)
{
	if (!soda_writes_add(s, rq, r)) {
		drop_request(s, rq);
		unhold(s, r, 1, 0);
	}
}

static void start_task(struct soda_session *s, struct soda_request *rq, struct soda_region *r)
{
	struct soda_task *task = malloc(sizeof(*task));

	if (!task) {
		drop_request(s, rq);
		unhold(s, r, 1, 0);
		return;
	}
	*task = (struct soda_task){ .rq = rq, .session = s, .region = r };
	if (rq->write) /* not async */
		soda_caches_written(r, rq->offset, rq->bytes);
	if (s->dpu->async || s->dpu->aggregate)
		start_read(s, task);
	else if (rq->write || !from_cache(s, task))
		forward_and_wait(s, task);
}

void soda_forward_request(struct soda_session *s, struct soda_request *rq)
{
	struct soda_region *r;
	bool up;
	int err;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	r = soda_session_region_locked(s, rq->region_id);
	err = check(r, rq);
	if (up && !err)
		r->holds++;
	pthread_mutex_unlock(&s->lock);
	if (!up)
		drop_request(s, rq);
	else if (err)
		refuse(s, rq, err == -EPROTO ? -EINVAL : err);
	else if (rq->write && s->dpu->async)
		start_write(s, rq, r);
	else
		start_task(s, rq, r);
	if (s->dpu->async && !s->dpu->aggregate)
		soda_forward_doorbell(s);
}

void soda_forward_doorbell(struct soda_session *s)
{
	struct soda_task *tasks;
	bool reads, writes;

	if (!s->dpu->async) {
		while (s->dpu->aggregate && (tasks = take_queue(s, SYNC_TASKS)))
			forward_and_wait(s, tasks);
		return;
	}
	pthread_mutex_lock(&s->lock);
	reads = s->queue;
	writes = s->writes.unposted;
	pthread_mutex_unlock(&s->lock);
	if (reads) {
		soda_schedule_add(&s->dpu->schedule, s);
		soda_schedule_run(&s->dpu->schedule);
	}
	if (writes)
		soda_forward_writes(s);
}
