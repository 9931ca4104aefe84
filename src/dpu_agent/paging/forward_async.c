/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous: posted here, answered by completers. */
#include <stdlib.h>

#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward_impl.h"

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
		bytes += (*at)->rq->bytes;
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
	soda_forward_drop_tasks(tasks);
}

bool soda_forward_reads(struct soda_session *s, bool own)
{
	bool stays = own && s->dpu->near;
	struct soda_channel *c = stays ? soda_forward_own_channel(s) : least_busy(s);
	struct soda_task *tasks, *failed;
	struct soda_transfer *list;
	bool more, polling, direct = false, lacking = false;
	unsigned room;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	room = SODA_CHANNEL_DEPTH - atomic_load(&c->under_way);
	tasks = take_turn(s, s->dpu->aggregate || !room ? room : 1, &more);
	if (tasks) {
		polling = c->polling = tasks->rq->polling;
		list = soda_batch_build(tasks, s->dpu->aggregate, &failed);
		fail_tasks(s, failed);
		lacking = failed;
		soda_completer_expect_locked(c, polling && !stays);
		if (stays)
			soda_completer_pause_locked(c);
		else
			soda_completer_resume_locked(c);
		direct = list && list->region->mr.map;
		ret = soda_batch_post_locked(c, list, polling);
		more = more || !s->dpu->aggregate;
	}
	pthread_mutex_unlock(&c->lock);
	if (lacking)
		soda_gate_open(s);
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

static uint64_t writes_share(struct soda_session *s)
{
	uint64_t share;

	pthread_mutex_lock(&s->lock);
	share = soda_gate_share_locked(s);
	pthread_mutex_unlock(&s->lock);
	return share < SODA_WRITES_UNDER_WAY ? share : SODA_WRITES_UNDER_WAY;
}

void soda_forward_writes(struct soda_session *s)
{
	struct soda_channel *c = &s->channels[s->dpu->channels];
	struct soda_transfer *t;
	unsigned requests = 0;
	bool direct = false;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	while (ret == 0 && c->posted_bytes < writes_share(s) &&
	       atomic_load(&c->under_way) < SODA_CHANNEL_DEPTH && (t = take_writes(s))) {
		ret = soda_channel_post_locked(c, t);
		if (ret < 0) {
			free(t); /* the WRITEs are on their list, and will be posted again */
			break;
		}
		soda_count_transfer(true, t->bytes);
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
