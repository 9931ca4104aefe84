/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests as they come in. */
#include <errno.h>
#include <stdlib.h>

#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward_impl.h"

enum { SYNC_TASKS = 64 }; /* in one batch, where the thread waits for it */

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

/* With data of the agent's. */
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

/* To the server; a WRITE only without async. */
static void forward(struct soda_session *s, struct soda_task *task)
{
	task->next = NULL;
	if (s->dpu->async || s->dpu->aggregate)
		append(s, task);
	else
		soda_forward_wait(s, task);
}

void soda_forward_enter(struct soda_task *task)
{
	struct soda_session *s = task->session;
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
	} else if (!from_cache(s, task)) {
		forward(s, task);
	}
}

void soda_forward_late(struct soda_task *task, const struct soda_span *span)
{
	struct soda_session *s = task->session;

	if (span) {
		answer_held(s, task, span);
	} else if (!s->dpu->async) {
		task->next = NULL;
		soda_forward_wait(s, task); /* nobody's doorbell is to come */
	} else {
		append(s, task);
		soda_schedule_add(&s->dpu->schedule, s);
		soda_schedule_run(&s->dpu->schedule, NULL);
	}
}

void soda_forward_again(struct soda_session *s, struct soda_task *tasks)
{
	while (tasks) {
		struct soda_task *next = tasks->next;

		soda_forward_enter(tasks);
		tasks = next;
	}
	soda_schedule_add(&s->dpu->schedule, s);
	soda_schedule_run(&s->dpu->schedule, NULL);
}

/* async, WRITE; its region is held. */
static void start_write(struct soda_session *s, struct soda_request *rq, struct soda_region *r)
{
	if (!soda_writes_add(s, rq, r)) {
		soda_forward_drop_request(s, rq);
		soda_forward_unhold(s, r, 1, 0);
	}
}

static void start_task(struct soda_session *s, struct soda_request *rq, struct soda_region *r)
{
	struct soda_task *task = malloc(sizeof(*task));
	bool in;

	if (!task) {
		soda_forward_drop_request(s, rq);
		soda_forward_unhold(s, r, 1, 0);
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

/* async: what waits. */
static void post(struct soda_session *s, const struct soda_session *own)
{
	bool reads, writes;

	pthread_mutex_lock(&s->lock);
	reads = s->queue;
	writes = s->writes.unposted;
	pthread_mutex_unlock(&s->lock);
	if (reads)
		soda_schedule_add(&s->dpu->schedule, s);
	soda_schedule_run(&s->dpu->schedule, own);
	if (writes)
		soda_forward_writes(s);
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
		soda_forward_drop_request(s, rq);
	else if (err)
		refuse(s, rq, err == -EPROTO ? -EINVAL : err);
	else if (rq->write && s->dpu->async)
		start_write(s, rq, r);
	else
		start_task(s, rq, r);
	if (s->dpu->async && !s->dpu->aggregate)
		post(s, s);
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

void soda_forward_more(struct soda_session *s)
{
	post(s, NULL);
}

void soda_forward_doorbell(struct soda_session *s)
{
	struct soda_task *tasks;

	if (s->dpu->async) {
		post(s, s);
		if (s->dpu->near)
			soda_forward_near(s);
		return;
	}
	while (s->dpu->aggregate && (tasks = take_queue(s, SYNC_TASKS)))
		soda_forward_wait(s, tasks);
}
