/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/turns.h"

#include "dpu_agent/paging/forward.h"

enum {
	CHARGED_SHIFT = 48,	/* above it, the number of sessions, which is less than 2^16 */
	SHARE_MULTIPLE = 2,	/* of the other sessions' mean */
	SHARE_MIN = 256 * 1024, /* bytes */
};

static void charge_locked(struct soda_session *s, int64_t bytes)
{
	struct soda_pager *p = soda_pager(s);
	uint64_t before = p->read_bytes, delta = (uint64_t)bytes;

	p->read_bytes += (uint64_t)bytes;
	if (!before != !p->read_bytes)
		delta += p->read_bytes ? 1ull << CHARGED_SHIFT : -(1ull << CHARGED_SHIFT);
	atomic_fetch_add_explicit(&soda_paging(s)->gates.charged, delta, memory_order_relaxed);
}

uint64_t soda_gate_share_locked(struct soda_session *s)
{
	uint64_t credit = soda_paging(s)->opt->client_credit, share;
	uint64_t charged =
		atomic_load_explicit(&soda_paging(s)->gates.charged, memory_order_relaxed);
	uint64_t others = (charged >> CHARGED_SHIFT) - (soda_pager(s)->read_bytes > 0);
	uint64_t bytes = (charged & ((1ull << CHARGED_SHIFT) - 1)) - soda_pager(s)->read_bytes;

	if (!others)
		return credit;
	if (bytes + soda_pager(s)->read_bytes >= soda_paging(s)->opt->buffers / 2)
		return SHARE_MIN;
	share = SHARE_MULTIPLE * bytes / others;
	share = share < SHARE_MIN ? SHARE_MIN : share;
	return share < credit ? share : credit;
}

static bool has_room_locked(struct soda_session *s, uint32_t bytes)
{
	return !soda_paging(s)->async || !s->up || !soda_pager(s)->read_bytes ||
	       soda_pager(s)->read_bytes + bytes <= soda_gate_share_locked(s);
}

static void let_in_locked(struct soda_session *s, struct soda_task *task)
{
	charge_locked(s, task->rq->bytes);
	task->credited = true;
}

bool soda_gate_enter_locked(struct soda_session *s, struct soda_task *task)
{
	struct soda_pager *p = soda_pager(s);

	if (!p->gate && has_room_locked(s, task->rq->bytes)) {
		let_in_locked(s, task);
		return true;
	}
	task->next = NULL;
	*p->gate_end = task;
	p->gate_end = &task->next;
	return false;
}

void soda_gate_leave_locked(struct soda_session *s, uint64_t bytes)
{
	if (bytes)
		charge_locked(s, -(int64_t)bytes);
}

struct soda_task *soda_gate_take_all_locked(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *tasks = p->gate;

	p->gate = NULL;
	p->gate_end = &p->gate;
	return tasks;
}

struct soda_task *soda_gate_take_ended_locked(struct soda_session *s)
{
	struct soda_task *tasks = soda_gate_take_all_locked(s), *ended = NULL;
	struct soda_pager *p = soda_pager(s);

	while (tasks) {
		struct soda_task *task = tasks;

		tasks = task->next;
		if (soda_session_ends_locked(s, task->rq->peer)) {
			task->next = ended;
			ended = task;
		} else {
			task->next = NULL;
			*p->gate_end = task;
			p->gate_end = &task->next;
		}
	}
	return ended;
}

/* Let the next task pass; NULL: none waits, or there is no room. */
static struct soda_task *next_locked(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *task = p->gate;

	if (!task || !has_room_locked(s, task->rq->bytes))
		return NULL;
	p->gate = task->next;
	if (!p->gate)
		p->gate_end = &p->gate;
	let_in_locked(s, task);
	return task;
}

/*
 * One thread at a time: an answer that soda_forward_enter() sends at once makes room, and calls
 * this function again; that call leaves the rest to the thread that is in it already.
 */
void soda_gate_open(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *task;
	bool any = false;

	pthread_mutex_lock(&s->lock);
	if (p->gate && !p->opening) {
		p->opening = true;
		while ((task = next_locked(s))) {
			pthread_mutex_unlock(&s->lock);
			soda_forward_enter(task);
			any = true;
			pthread_mutex_lock(&s->lock);
		}
		p->opening = false;
	}
	pthread_mutex_unlock(&s->lock);
	if (any) {
		soda_schedule_add(&soda_paging(s)->schedule, s);
		soda_schedule_run(&soda_paging(s)->schedule, NULL);
	}
}

/* Turns */

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window)
{
	pthread_mutex_init(&schedule->lock, NULL);
	schedule->first = schedule->last = NULL;
	schedule->window = window;
	schedule->under_way = 0;
}

void soda_schedule_add(struct soda_schedule *schedule, struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);

	pthread_mutex_lock(&schedule->lock);
	if (!p->scheduled) {
		p->scheduled = true;
		p->next_turn = NULL;
		soda_session_ref(s);
		if (schedule->last)
			soda_pager(schedule->last)->next_turn = s;
		else
			schedule->first = s;
		schedule->last = s;
	}
	pthread_mutex_unlock(&schedule->lock);
}

/*
 * The session whose turn it is, with the reference that the schedule had; NULL: none, or no window.
 */
static struct soda_session *next_session(struct soda_schedule *schedule)
{
	struct soda_session *s = NULL;

	pthread_mutex_lock(&schedule->lock);
	if (schedule->under_way < schedule->window)
		s = schedule->first;
	if (s) {
		schedule->first = soda_pager(s)->next_turn;
		if (!schedule->first)
			schedule->last = NULL;
		soda_pager(s)->scheduled = false;
	}
	pthread_mutex_unlock(&schedule->lock);
	return s;
}

void soda_schedule_run(struct soda_schedule *schedule, const struct soda_session *own)
{
	struct soda_session *s;

	while ((s = next_session(schedule))) {
		if (soda_forward_reads(s, s == own))
			soda_schedule_add(schedule, s);
		soda_session_put(s);
	}
}

void soda_schedule_count(struct soda_schedule *schedule, int64_t bytes)
{
	pthread_mutex_lock(&schedule->lock);
	schedule->under_way = (uint64_t)((int64_t)schedule->under_way + bytes);
	pthread_mutex_unlock(&schedule->lock);
}
