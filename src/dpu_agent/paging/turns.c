/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/turns.h"

#include <assert.h>

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
	if (s->tenant)
		soda_allotment_count(&soda_paging(s)->gates.reads, s->tenant->number, bytes);
}

/* At most the rest of its tenant's share, and always a little. */
static uint64_t share_of_tenant_locked(struct soda_session *s, uint64_t share)
{
	uint64_t most = soda_pager(s)->read_bytes +
			soda_allotment_left(&soda_paging(s)->gates.reads,
					    soda_tenant_holder(s->all->tenants, s->tenant));

	if (most < SHARE_MIN)
		most = SHARE_MIN;
	return share < most ? share : most;
}

uint64_t soda_gate_share_locked(struct soda_session *s)
{
	uint64_t credit = soda_paging(s)->opt->client_credit, share;
	uint64_t charged =
		atomic_load_explicit(&soda_paging(s)->gates.charged, memory_order_relaxed);
	uint64_t others = (charged >> CHARGED_SHIFT) - (soda_pager(s)->read_bytes > 0);
	uint64_t bytes = (charged & ((1ull << CHARGED_SHIFT) - 1)) - soda_pager(s)->read_bytes;

	if (!s->tenant && others &&
	    bytes + soda_pager(s)->read_bytes >= soda_paging(s)->opt->buffers / 2)
		return SHARE_MIN;
	share = others ? SHARE_MULTIPLE * bytes / others : credit;
	share = share < SHARE_MIN ? SHARE_MIN : share;
	share = share < credit ? share : credit;
	return s->tenant ? share_of_tenant_locked(s, share) : share;
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

/* Move the tasks of *first_p whose connection is being closed to `ended`, which is returned. */
static struct soda_task *take_ended_locked(struct soda_session *s, struct soda_task **first_p,
					   struct soda_task ***end_p, struct soda_task *ended)
{
	struct soda_task **at = first_p;

	while (*at) {
		struct soda_task *task = *at;

		if (!soda_session_ends_locked(s, task->rq->peer)) {
			at = &task->next;
			continue;
		}
		*at = task->next;
		task->next = ended;
		ended = task;
	}
	*end_p = at;
	return ended;
}

struct soda_task *soda_gate_take_ended_locked(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_task *ended = take_ended_locked(s, &p->gate, &p->gate_end, NULL);

	return take_ended_locked(s, &p->queue, &p->queue_end, ended);
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
		soda_schedule_add(s);
		soda_schedule_run(s, NULL);
	}
}

/* Turns */

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window)
{
	*schedule = (struct soda_schedule){ .window = window };
	pthread_mutex_init(&schedule->lock, NULL);
}

/* Members behind an agent are servers, too. */
static uint16_t member_of(const struct soda_session *s)
{
	return s->all->servers.pool ? 0 : atomic_load(&s->member);
}

/* The server's lane, or one that nobody uses; without either one that it shares. */
static struct soda_lane *find_lane_locked(struct soda_schedule *schedule,
					  const struct soda_dpu_server *server, uint16_t member)
{
	struct soda_lane *unused = NULL;

	for (unsigned i = 0; i < SODA_LANES; i++) {
		struct soda_lane *lane = &schedule->lane[i];

		if (lane->users && lane->server == server && lane->member == member)
			return lane;
		if (!lane->users && !unused)
			unused = lane;
	}
	if (!unused)
		return &schedule->lane[member % SODA_LANES];
	unused->server = server;
	unused->member = member;
	return unused;
}

/* Take the session out of those whose turn comes. True: it was one of them. */
static bool unlink_locked(struct soda_lane *lane, struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_session *before = NULL, *at = lane->first;

	if (!p->scheduled)
		return false;
	while (at != s) {
		before = at;
		at = soda_pager(at)->next_turn;
	}
	if (before)
		soda_pager(before)->next_turn = p->next_turn;
	else
		lane->first = p->next_turn;
	if (lane->last == s)
		lane->last = before;
	p->scheduled = false;
	return true;
}

/* lane NULL: to none. */
static void move_locked(struct soda_session *s, struct soda_lane *lane, bool *was_linked_p)
{
	struct soda_pager *p = soda_pager(s);

	*was_linked_p = p->lane && unlink_locked(p->lane, s);
	if (p->lane)
		p->lane->users--;
	if (lane)
		lane->users++;
	p->lane = lane;
}

void soda_schedule_enter(struct soda_session *s)
{
	struct soda_schedule *schedule = &soda_paging(s)->schedule;
	struct soda_lane *lane;
	bool was_linked = false;

	pthread_mutex_lock(&schedule->lock);
	lane = find_lane_locked(schedule, soda_session_place(s), member_of(s));
	if (lane != soda_pager(s)->lane)
		move_locked(s, lane, &was_linked);
	pthread_mutex_unlock(&schedule->lock);
	if (was_linked)
		soda_session_put(s);
}

void soda_schedule_leave(struct soda_session *s)
{
	struct soda_schedule *schedule = &soda_paging(s)->schedule;
	bool was_linked;

	pthread_mutex_lock(&schedule->lock);
	move_locked(s, NULL, &was_linked);
	pthread_mutex_unlock(&schedule->lock);
	assert(!was_linked); /* that would have been a reference */
}

void soda_schedule_add(struct soda_session *s)
{
	struct soda_schedule *schedule = &soda_paging(s)->schedule;
	struct soda_pager *p = soda_pager(s);
	struct soda_lane *lane;

	pthread_mutex_lock(&schedule->lock);
	lane = p->lane;
	if (lane && !p->scheduled) {
		p->scheduled = true;
		p->next_turn = NULL;
		soda_session_ref(s);
		if (lane->last)
			soda_pager(lane->last)->next_turn = s;
		else
			lane->first = s;
		lane->last = s;
	}
	pthread_mutex_unlock(&schedule->lock);
}

/*
 * The session whose turn it is in the lane of `of`, with the reference that the schedule had; NULL:
 * none, or no window.
 */
static struct soda_session *next_session(struct soda_session *of)
{
	struct soda_schedule *schedule = &soda_paging(of)->schedule;
	struct soda_session *s = NULL;
	struct soda_lane *lane;

	pthread_mutex_lock(&schedule->lock);
	lane = soda_pager(of)->lane;
	if (lane && lane->under_way < schedule->window)
		s = lane->first;
	if (s) {
		lane->first = soda_pager(s)->next_turn;
		if (!lane->first)
			lane->last = NULL;
		soda_pager(s)->scheduled = false;
	}
	pthread_mutex_unlock(&schedule->lock);
	return s;
}

void soda_schedule_run(struct soda_session *s, const struct soda_session *own)
{
	struct soda_session *next;

	while ((next = next_session(s))) {
		if (soda_forward_reads(next, next == own))
			soda_schedule_add(next);
		soda_session_put(next);
	}
}

void soda_schedule_count(struct soda_session *s, int64_t bytes)
{
	struct soda_schedule *schedule = &soda_paging(s)->schedule;
	struct soda_lane *lane;

	pthread_mutex_lock(&schedule->lock);
	lane = soda_pager(s)->lane;
	if (lane)
		lane->under_way = (uint64_t)((int64_t)lane->under_way + bytes);
	pthread_mutex_unlock(&schedule->lock);
}

uint64_t soda_schedule_under_way(struct soda_schedule *schedule)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&schedule->lock);
	for (unsigned i = 0; i < SODA_LANES; i++)
		bytes += schedule->lane[i].under_way;
	pthread_mutex_unlock(&schedule->lock);
	return bytes;
}
