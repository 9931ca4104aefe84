/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks with rings: the thread of one's connection takes packets out of its lanes while the rank
 * waits in a PULL (rings.h has the memory).
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/lock.h"
#include "routing/jobs_impl.h"

bool soda_msg_job_has_rings(const struct soda_msg_job *job, uint32_t rank)
{
	return atomic_load(&job->ranks[rank].inbox.rings) != NULL;
}

int soda_msg_job_hear_rank(struct soda_msg_job *job, uint32_t rank)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool made_room;
	uint32_t ends;
	int ret;

	if (!soda_msg_job_has_rings(job, rank))
		return 0;
	ret = soda_inbox_hear(&r->inbox, &ends, &made_room);
	if (made_room)
		soda_msg_job_room(job);
	pthread_mutex_lock(&job->lock);
	r->ended = ends;
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Take so much of the budget. False: it is not there. */
static bool reserve(struct soda_msg_jobs *all, struct soda_msg_job *job, uint64_t bytes)
{
	bool fits;

	pthread_mutex_lock(&all->lock);
	fits = bytes <= soda_msg_jobs_left_locked(all, job->tenant);
	if (fits) {
		soda_shares_take(&all->reserved, job->tenant, bytes); /* prepared: it has inboxes */
		job->rings_bytes += bytes;
	}
	pthread_mutex_unlock(&all->lock);
	return fits;
}

static void give_back(struct soda_msg_jobs *all, struct soda_msg_job *job, uint64_t bytes)
{
	pthread_mutex_lock(&all->lock);
	soda_shares_put(&all->reserved, job->tenant, bytes);
	job->rings_bytes -= bytes;
	pthread_mutex_unlock(&all->lock);
}

/* While the rank's other client has not come, nobody can push to it, and nobody pulls. */
static int make_rings_locked(struct soda_msg_job *job, uint32_t rank, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	struct soda_msg_rings *rings;
	int ret;

	if (r->roles == SODA_MSG_BOTH || r->left)
		return soda_msg_refuse(why, -EINVAL, "messages: rank %u asks for rings too late",
				       rank);
	ret = soda_msg_rings_make(job->ranks_n, (uint32_t)r->inbox.size, &rings, why);
	if (ret == 0 && !soda_inbox_share(&r->inbox, rings)) {
		soda_msg_rings_destroy(rings);
		ret = soda_msg_refuse(why, -EINVAL, "messages: rank %u asks for rings too late",
				      rank);
	}
	return ret;
}

static int make_rings(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		      struct soda_why *why)
{
	uint64_t bytes = soda_msg_rings_bytes(job->ranks_n);
	bool made = false;
	int ret = 0;

	if (!reserve(all, job, bytes))
		return soda_msg_refuse(why, -ENOSPC, "messages: no room for rings in --msg-memory");
	pthread_mutex_lock(&job->lock);
	if (!soda_msg_job_has_rings(job, rank)) {
		ret = make_rings_locked(job, rank, why);
		made = ret == 0;
	}
	pthread_mutex_unlock(&job->lock);
	if (!made)
		give_back(all, job, bytes);
	return ret;
}

int soda_msg_job_rings(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       enum soda_msg_role role, struct soda_msg_rings **rings_p,
		       struct soda_why *why)
{
	int ret = 0;

	if (role == SODA_MSG_PUSHES && !soda_msg_job_has_rings(job, rank))
		ret = make_rings(all, job, rank, why);
	if (ret == 0 && !soda_msg_job_has_rings(job, rank))
		ret = soda_msg_refuse(why, -ESTALE, "messages: rank %u has no rings in this job",
				      rank);
	*rings_p = atomic_load(&job->ranks[rank].inbox.rings);
	return ret;
}

/* What the rank's program has written cannot be: there is no going on with it. */
static int break_scribbled(struct soda_msg_job *job, uint32_t rank, struct soda_why *why)
{
	char text[sizeof(why->text)];

	snprintf(text, sizeof(text),
		 "messages: what rank %u of the job %.120s has written into its rings makes no "
		 "sense",
		 rank, job->name);
	soda_msg_job_fail(job, text);
	pthread_mutex_lock(&job->lock);
	soda_msg_job_broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return -ECANCELED;
}

/*
 * Packets of one lane, as many as it has slots, unless their inbox is full. *blocked_p: it is. How
 * many; -EPROTO.
 */
static int take_lane(struct soda_msg_route *r, struct soda_msg_rings *rings, uint32_t to,
		     bool *blocked_p)
{
	struct soda_wire_msg_packet p;
	const uint8_t *runs;
	int n = 0, ret = 0;

	while (n < (int)SODA_RING_SLOTS && (ret = soda_msg_rings_peek(rings, to, &p, &runs)) > 0) {
		if (!soda_msg_route_packet(r, r->rank, to, &p, runs)) {
			r->routed.refused++;
			*blocked_p = true;
			break;
		}
		soda_msg_rings_take(rings, to);
		r->routed.packets++;
		r->routed.messages += p.messages;
		r->routed.bytes += p.bytes;
		n++;
	}
	return ret < 0 ? ret : n;
}

/*
 * Whether the rank may push.  Its lanes had packets before this looks at `finished`: so they are
 * none of a phase that it has finished and that has ended meanwhile.
 */
static int check_pusher(struct soda_msg_job *job, uint32_t rank, struct soda_why *why)
{
	int ret;

	pthread_mutex_lock(&job->lock);
	ret = soda_msg_job_check_all_unlock(job->all, job, why);
	if (ret < 0)
		return ret;
	if (job->ranks[rank].finished)
		ret = soda_msg_refuse(why, -EINVAL, "messages: rank %u has finished", rank);
	else
		job->pushed = true;
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Once round the lanes. How many packets were taken; errors of soda_msg_job_serve(). */
static int take_lanes(struct soda_msg_route *r, struct soda_msg_rings *rings, bool *blocked_p,
		      struct soda_why *why)
{
	struct soda_msg_job *job = r->job;
	int n = 0, ret;

	*blocked_p = false;
	if (!soda_msg_rings_any(rings))
		return 0;
	ret = check_pusher(job, r->rank, why);
	if (ret < 0)
		return ret;
	soda_msg_turn_begin(job->all);
	for (uint32_t i = 0; i < job->ranks_n && ret >= 0; i++) {
		ret = take_lane(r, rings, (rings->first + i) % job->ranks_n, blocked_p);
		n += ret > 0 ? ret : 0;
	}
	soda_msg_turn_end(job->all);
	rings->first = (rings->first + 1) % job->ranks_n;
	if (n)
		soda_msg_rings_tell(rings);
	return ret == -EPROTO ? break_scribbled(job, r->rank, why) : ret < 0 ? ret : n;
}

/*
 * Who serves lets others run for a while, as long as it had something to do just now: a processor
 * that goes to sleep wakes up much later than one that was lent.  Then it says that it is idle, and
 * looks once more, before it sleeps; and it does not sleep where that look has found an inbox full
 * for the first time: who makes room did not know then.
 */
static int serve_until(struct soda_msg_route *r, struct soda_msg_rings *rings,
		       const struct soda_wire_msg_pull *pull, uint64_t end, struct soda_why *why)
{
	struct soda_msg_job *job = r->job;
	bool idle = false, blocked, was_blocked;
	uint64_t worked_ns = 0;
	int n = 0;

	atomic_store(&rings->blocked, false);
	while (n >= 0) {
		uint32_t seen = atomic_load(&rings->out->doorbell);
		uint64_t now;

		if (soda_msg_job_hear_rank(job, r->rank) < 0)
			return break_scribbled(job, r->rank, why);
		n = take_lanes(r, rings, &blocked, why);
		was_blocked = atomic_exchange(&rings->blocked, blocked);
		now = soda_now_ns();
		if (n < 0 || now >= end || atomic_load(&job->reduced) != pull->known ||
		    atomic_load(&job->broken))
			break;
		if (n)
			worked_ns = now;
		if (!n && !idle && now - worked_ns < SODA_MSG_YIELD_US * 1000ull) {
			sched_yield();
			continue;
		}
		if (idle && !n && blocked <= was_blocked)
			soda_futex_wait_shared(&rings->out->doorbell, seen, (int64_t)(end - now));
		idle = !idle && !n;
		atomic_store(&rings->in->idle, idle); /* before the next look */
	}
	atomic_store(&rings->in->idle, 0);
	atomic_store(&rings->blocked, false);
	return n < 0 ? n : 0;
}

int soda_msg_job_serve(struct soda_msg_job *job, uint32_t rank,
		       const struct soda_wire_msg_pull *pull, struct soda_wire_msg_pulled *pulled_p,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct soda_msg_route r = { .job = job, .rank = rank };
	struct soda_msg_rings *rings = atomic_load(&job->ranks[rank].inbox.rings);
	uint32_t ms = pull->wait_ms < SODA_MSG_AWAIT_MS ? pull->wait_ms : SODA_MSG_AWAIT_MS;
	int ret;

	pthread_mutex_lock(&job->lock);
	while (rings->serving) /* on a connection that is lost: at most SODA_MSG_AWAIT_MS */
		pthread_cond_wait(&job->changed, &job->lock);
	rings->serving = true;
	pthread_mutex_unlock(&job->lock);
	ret = serve_until(&r, rings, pull, soda_now_ns() + ms * 1000000ull, why);
	*routed_p = r.routed;

	pthread_mutex_lock(&job->lock);
	rings->serving = false;
	pthread_cond_broadcast(&job->changed);
	*pulled_p = (struct soda_wire_msg_pulled){ 0, atomic_load(&job->reduced), job->result };
	if (ret == 0 && atomic_load(&job->broken))
		ret = soda_msg_job_broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret;
}
