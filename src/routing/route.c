/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets from ranks that make calls: a PUSH into inboxes, a PULL out of one. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "base/lock.h"
#include "routing/jobs_impl.h"

void soda_msg_turn_begin(struct soda_msg_jobs *all)
{
	while (all->tuning.threads && sem_wait(&all->turns) && errno == EINTR)
		;
}

void soda_msg_turn_end(struct soda_msg_jobs *all)
{
	if (all->tuning.threads)
		sem_post(&all->turns);
}

/* The packet at `at`, which was checked: *from_p and the rank that it is for. */
static uint32_t read_head(const struct soda_msg_route *r, const uint8_t *at,
			  struct soda_wire_msg_packet *p, uint32_t *from_p)
{
	soda_wire_get_msg_packet(at, SODA_MSG_PACKET_MAX, p);
	*from_p = r->link ? p->rank : r->rank;
	return r->link ? p->to : p->rank;
}

/* Whether a packet before the i-th, for the same rank, was refused: then so is this one. */
static bool refused_before(const struct soda_msg_route *r, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (!r->taken[k] && r->to[k] == r->to[i])
			return true;
	for (uint32_t k = 0; k < r->held_n; k++)
		if (r->held[k] == r->to[i])
			return true;
	return false;
}

/* So many bytes more, or fewer, wait for the link's thread. */
static void count_pending(struct soda_msg_link *l, int64_t bytes)
{
	uint64_t enough = l->job->all->tuning.transfer_bytes;

	pthread_mutex_lock(&l->lock);
	if (bytes > 0) {
		if (!l->fresh) {
			l->since_ns = soda_now_ns();
			pthread_cond_signal(&l->work);
		} else if (l->fresh < enough && l->fresh + bytes >= enough) {
			pthread_cond_signal(&l->work);
		}
		l->fresh += bytes;
	}
	l->pending += bytes;
	pthread_mutex_unlock(&l->lock);
}

bool soda_msg_route_packet(struct soda_msg_route *r, uint32_t from, uint32_t to,
			   const struct soda_wire_msg_packet *p, const uint8_t *runs)
{
	struct soda_msg_rank *rank = &r->job->ranks[to];
	int64_t bytes = SODA_WIRE_MSG_PACKET_BYTES + p->bytes;

	if (rank->link) /* before its thread can see the packet */
		count_pending(rank->link, bytes);
	if (soda_inbox_put(&rank->inbox, from, p, runs))
		return true;
	if (rank->link)
		count_pending(rank->link, -bytes);
	return false;
}

/*
 * Put what has not been taken yet, each where it belongs, and for each rank in the order of the
 * call, which the parts of a large message need.  Returns how many were.
 */
static uint32_t put_packets(struct soda_msg_route *r)
{
	const uint8_t *at = r->body;
	uint32_t n = 0;

	soda_msg_turn_begin(r->job->all);
	for (uint32_t i = 0; i < r->packets; i++) {
		struct soda_wire_msg_packet p;
		uint32_t from;

		read_head(r, at, &p, &from);
		at += SODA_WIRE_MSG_PACKET_BYTES;
		if (!r->taken[i] && !refused_before(r, i) &&
		    soda_msg_route_packet(r, from, r->to[i], &p, at)) {
			r->taken[i] = 1;
			n++;
			r->routed.messages += p.messages;
			r->routed.bytes += p.bytes;
		}
		at += p.bytes;
	}
	soda_msg_turn_end(r->job->all);
	r->routed.packets += n;
	return n;
}

int soda_msg_route_check(struct soda_msg_route *r, struct soda_why *why)
{
	const struct soda_msg_job *job = r->job;
	const uint8_t *at = r->body;

	for (uint32_t i = 0; i < r->packets; i++) {
		struct soda_wire_msg_packet p;
		uint32_t from, to = read_head(r, at, &p, &from);

		if (to >= job->ranks_n || from >= job->ranks_n)
			return soda_msg_refuse(why, -EINVAL,
					       "messages: there is no rank %u in the job %s",
					       to >= job->ranks_n ? to : from, job->name);
		if (r->link && (job->ranks[to].link || job->ranks[from].link != r->link))
			return soda_msg_refuse(
				why, -EINVAL,
				"messages: a packet from rank %u for rank %u of the job "
				"%.100s has come to the wrong agent",
				from, to, job->name);
		r->to[i] = (uint16_t)to;
		at += SODA_WIRE_MSG_PACKET_BYTES + p.bytes;
	}
	return 0;
}

/* Who serves rings, and waits for room, sleeps on the rings' bell. */
static void wake_blocked_locked(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks_n; i++) {
		struct soda_msg_rings *rings = atomic_load(&job->ranks[i].inbox.rings);

		if (rings && atomic_load(&rings->blocked))
			soda_msg_rings_bell(rings);
	}
}

void soda_msg_job_room(struct soda_msg_job *job)
{
	pthread_mutex_lock(&job->lock);
	job->rooms++;
	pthread_cond_broadcast(&job->changed);
	wake_blocked_locked(job);
	pthread_mutex_unlock(&job->lock);
}

void soda_msg_route_await_room(struct soda_msg_job *job, uint32_t rooms, uint32_t wait_ms)
{
	struct timespec end = soda_msg_until(wait_ms);

	pthread_mutex_lock(&job->lock);
	while (job->rooms == rooms && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
	pthread_mutex_unlock(&job->lock);
}

void soda_msg_route_or_wait(struct soda_msg_route *r, uint32_t rooms, uint32_t wait_ms)
{
	if (put_packets(r) || !r->packets || !wait_ms)
		return;
	soda_msg_route_await_room(r->job, rooms, wait_ms);
	put_packets(r);
}

int soda_msg_answer_begin_locked(struct soda_msg_job *job, struct soda_msg_answers *all,
				 uint64_t number, uint32_t packets, uint8_t *taken)
{
	const struct soda_msg_answer *a = &all->at[number % SODA_MSG_AHEAD];

	while (all->busy)
		pthread_cond_wait(&job->changed, &job->lock); /* at most SODA_MSG_AWAIT_MS */
	if (number && number <= all->number && all->number - number < SODA_MSG_AHEAD &&
	    packets == a->n) {
		memcpy(taken, a->taken, packets);
		return 1;
	}
	if (number != all->number + 1)
		return -EPROTO;
	memset(taken, 0, packets);
	all->busy = true;
	return 0;
}

void soda_msg_route_hold_locked(struct soda_msg_route *r, const struct soda_msg_answers *all,
				uint64_t number, uint32_t ahead)
{
	for (uint64_t k = number - ahead; k < number; k++) {
		const struct soda_msg_answer *a = &all->at[k % SODA_MSG_AHEAD];

		for (uint32_t i = 0; i < a->n; i++)
			if (!a->taken[i])
				r->held[r->held_n++] = a->to[i];
	}
}

void soda_msg_answer_end_locked(struct soda_msg_job *job, struct soda_msg_answers *all,
				uint64_t number, const struct soda_msg_route *r)
{
	struct soda_msg_answer *a = &all->at[number % SODA_MSG_AHEAD];

	memcpy(a->taken, r->taken, r->packets);
	memcpy(a->to, r->to, r->packets * sizeof(r->to[0]));
	a->n = r->packets;
	all->number = number;
	all->busy = false;
	pthread_cond_broadcast(&job->changed);
}

int soda_msg_job_route(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       const uint8_t *body, const struct soda_wire_msg_push *push, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct soda_msg_route r = { .job = job,
				    .rank = rank,
				    .body = body + SODA_WIRE_MSG_PUSH_BYTES,
				    .packets = push->packets,
				    .taken = taken };
	struct soda_msg_answers *answer = &job->ranks[rank].pushed;
	uint32_t rooms;
	int ret = soda_msg_route_check(&r, why);

	*routed_p = r.routed;
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = soda_msg_job_check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	ret = soda_msg_answer_begin_locked(job, answer, push->number, push->packets, taken);
	if (ret == 0 && job->ranks[rank].finished) {
		answer->busy = false;
		ret = soda_msg_refuse(why, -EINVAL, "messages: rank %u has finished", rank);
	}
	if (ret) {
		pthread_mutex_unlock(&job->lock);
		return ret < 0 ? ret : 0;
	}
	job->pushed = true;
	soda_msg_route_hold_locked(&r, answer, push->number, push->ahead);
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	soda_msg_route_or_wait(&r, rooms, push->wait_ms);
	pthread_mutex_lock(&job->lock);
	soda_msg_answer_end_locked(job, answer, push->number, &r);
	pthread_mutex_unlock(&job->lock);
	r.routed.refused = push->packets - r.routed.packets;
	*routed_p = r.routed;
	return 0;
}

static void await_news(struct soda_msg_job *job, struct soda_inbox *in,
		       const struct soda_inbox_view *view, const struct soda_wire_msg_pull *pull)
{
	struct timespec end = soda_msg_until(pull->wait_ms);

	pthread_mutex_lock(&in->lock);
	while (!(pull->room && soda_inbox_has_locked(in, view)) &&
	       atomic_load(&job->reduced) == pull->known && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&in->news, &in->lock, &end))
			break;
	pthread_mutex_unlock(&in->lock);
}

int soda_msg_job_pull(struct soda_msg_job *job, uint32_t rank, struct soda_inbox_view *view,
		      const struct soda_wire_msg_pull *pull, uint8_t *out,
		      struct soda_wire_msg_pulled *pulled_p, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool ended = false, made_room = false;
	uint32_t bytes = 0;
	int ret = soda_inbox_arrived(&r->inbox, view, pull->at, pull->ended, &made_room);

	if (ret < 0)
		return soda_msg_refuse(why, ret,
				       "messages: rank %u says that more has arrived than was sent",
				       rank);
	if (made_room)
		soda_msg_job_room(job);
	await_news(job, &r->inbox, view, pull);
	if (pull->room)
		bytes = soda_inbox_show(&r->inbox, view, out, pull->room, &ended);
	pthread_mutex_lock(&job->lock);
	if (pull->ended + ended > r->ended)
		r->ended = pull->ended + ended;
	*pulled_p = (struct soda_wire_msg_pulled){ ended, atomic_load(&job->reduced), job->result };
	if (atomic_load(&job->broken))
		ret = soda_msg_job_broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret < 0 ? ret : (int)bytes;
}
