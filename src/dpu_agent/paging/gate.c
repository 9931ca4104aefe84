/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/gate.h"

#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward_impl.h"

enum {
	CHARGED_SHIFT = 48, /* of the number of sessions, which are fewer than 2^16 */
	SHARE_MULTIPLE = 2, /* of the others' mean */
	SHARE_MIN = 256 * 1024,
};

static void charge_locked(struct soda_session *s, int64_t bytes)
{
	uint64_t before = s->read_bytes, delta = (uint64_t)bytes;

	s->read_bytes += (uint64_t)bytes;
	if (!before != !s->read_bytes)
		delta += s->read_bytes ? 1ull << CHARGED_SHIFT : -(1ull << CHARGED_SHIFT);
	atomic_fetch_add_explicit(&s->dpu->gates.charged, delta, memory_order_relaxed);
}

uint64_t soda_gate_share_locked(const struct soda_session *s)
{
	uint64_t credit = s->dpu->opt->client_credit, share;
	uint64_t charged = atomic_load_explicit(&s->dpu->gates.charged, memory_order_relaxed);
	uint64_t others = (charged >> CHARGED_SHIFT) - (s->read_bytes > 0);
	uint64_t bytes = (charged & ((1ull << CHARGED_SHIFT) - 1)) - s->read_bytes;

	if (!others)
		return credit;
	if (bytes + s->read_bytes >= s->dpu->opt->buffers / 2)
		return SHARE_MIN;
	share = SHARE_MULTIPLE * bytes / others;
	share = share < SHARE_MIN ? SHARE_MIN : share;
	return share < credit ? share : credit;
}

static bool has_room_locked(const struct soda_session *s, uint32_t bytes)
{
	return !s->dpu->async || !s->up || !s->read_bytes ||
	       s->read_bytes + bytes <= soda_gate_share_locked(s);
}

static void let_in_locked(struct soda_session *s, struct soda_task *task)
{
	charge_locked(s, task->rq->bytes);
	task->credited = true;
}

bool soda_gate_enter_locked(struct soda_session *s, struct soda_task *task)
{
	if (!s->gate && has_room_locked(s, task->rq->bytes)) {
		let_in_locked(s, task);
		return true;
	}
	task->next = NULL;
	*s->gate_end = task;
	s->gate_end = &task->next;
	return false;
}

void soda_gate_leave_locked(struct soda_session *s, uint64_t bytes)
{
	if (bytes)
		charge_locked(s, -(int64_t)bytes);
}

struct soda_task *soda_gate_take_all_locked(struct soda_session *s)
{
	struct soda_task *tasks = s->gate;

	s->gate = NULL;
	s->gate_end = &s->gate;
	return tasks;
}

/* The next one that may come in, which has. */
static struct soda_task *next_locked(struct soda_session *s)
{
	struct soda_task *task = s->gate;

	if (!task || !has_room_locked(s, task->rq->bytes))
		return NULL;
	s->gate = task->next;
	if (!s->gate)
		s->gate_end = &s->gate;
	let_in_locked(s, task);
	return task;
}

/*
 * One thread at a time: an answer that is sent at once makes room, and comes here again from
 * within soda_forward_enter; whoever is here already looks again.
 */
void soda_gate_open(struct soda_session *s)
{
	struct soda_task *task;
	bool any = false;

	pthread_mutex_lock(&s->lock);
	if (s->gate && !s->opening) {
		s->opening = true;
		while ((task = next_locked(s))) {
			pthread_mutex_unlock(&s->lock);
			soda_forward_enter(task);
			any = true;
			pthread_mutex_lock(&s->lock);
		}
		s->opening = false;
	}
	pthread_mutex_unlock(&s->lock);
	if (any) {
		soda_schedule_add(&s->dpu->schedule, s);
		soda_schedule_run(&s->dpu->schedule, NULL);
	}
}
