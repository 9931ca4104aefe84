/* SPDX-License-Identifier: BSD-3-Clause */
/* The ends of requests and transfers: answered, or dropped. */
#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward_impl.h"

/* Counted first: who has its answer may ask for the statistics. */
void soda_forward_answer(struct soda_request *rq, int status, const struct soda_span *span)
{
	if (status == 0)
		soda_count_request(rq->write, rq->bytes, soda_now_ns() - rq->arrived_ns);
	soda_request_done(rq, status, span);
}

/* The session is broken: what is said now must not be taken for the server's word. */
void soda_forward_drop_request(struct soda_session *s, struct soda_request *rq)
{
	bool write = rq->write;

	soda_peer_close(rq->peer);
	soda_request_done(rq, -ECONNRESET, NULL);
	if (write) {
		soda_writes_unreserve(s, rq->hold, rq->bytes);
		soda_request_free(rq);
	}
}

void soda_forward_unhold(struct soda_session *s, struct soda_region *r, unsigned n, uint64_t credit)
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

	soda_forward_drop_request(task->session, task->rq);
	soda_forward_unhold(task->session, task->region, 1, credit);
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

/* What the client's credit gets back: of an answer with data only when that has been sent. */
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

static void finish(struct soda_transfer *t, int status)
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
	soda_forward_unhold(s, t->region, t->tasks_n, credit);
	if (credit)
		soda_gate_open(s);
	if (t->block)
		soda_block_put(t->block);
	free(t);
}

void soda_forward_finish_all(struct soda_transfer *list, const int *status)
{
	for (unsigned i = 0; list; i++) {
		struct soda_transfer *next = list->next;

		finish(list, status[i]);
		list = next;
	}
}

void soda_forward_sent(struct soda_session *s, const struct soda_span *span)
{
	struct soda_hold *hold = span->hold;
	bool waiting;

	if (hold)
		hold->put(hold);
	pthread_mutex_lock(&s->lock);
	soda_gate_leave_locked(s, span->bytes);
	waiting = s->gate;
	pthread_mutex_unlock(&s->lock);
	if (waiting)
		soda_gate_open(s);
}

static void drop_transfer(struct soda_transfer *t)
{
	if (t->session->dpu->async && !t->write)
		soda_schedule_count(&t->session->dpu->schedule, -(int64_t)t->bytes);
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
