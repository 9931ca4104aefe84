/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What another agent says, and has: RELAYs, OFFERs, how far its ranks are; and what is to be said
 * to it (links.c says it).
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "routing/jobs_impl.h"
#include "wire/field.h"

/* What the agent says of its ranks. -EPROTO: it cannot be so. */
static int hear_locked(struct soda_msg_job *job, struct soda_msg_link *l,
		       const struct soda_wire_msg_relay *relay)
{
	const struct soda_wire_msg_reduce *part = &relay->reduce;
	uint32_t reduced = atomic_load(&job->reduced);

	if (relay->missing > l->ranks_n || relay->left > l->ranks_n ||
	    (relay->missing && relay->first_missing >= job->ranks_n) ||
	    (relay->left && relay->first_left >= job->ranks_n) || relay->done < l->said.done ||
	    relay->done > job->phase + 2 || relay->phase > job->phase + 1)
		return -EPROTO;
	if (part->number && (part->number > reduced + 2 || part->op < SODA_MSG_OP_BARRIER ||
			     part->op >= SODA_MSG_OPS))
		return -EPROTO;
	if (part->number > l->parts[part->number % 2].number)
		l->parts[part->number % 2] = *part;
	l->said = *relay;
	pthread_cond_broadcast(&job->changed);
	soda_msg_job_end_phase_locked(job);
	return 0;
}

/*
 * The agent may have ended a phase that has not ended here yet: its packets of the next one wait
 * there until it has.  Returns whether they may be put.
 */
static bool await_phase_locked(struct soda_msg_job *job, const struct soda_wire_msg_relay *relay)
{
	struct timespec end = soda_msg_until(relay->wait_ms);

	while (job->phase < relay->phase && !atomic_load(&job->broken))
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
	return job->phase == relay->phase;
}

/*
 * Whether ranks of the agent have left in the middle of something.  What they have seen the end of,
 * and this agent has not yet, it needs no more of them for: a phase, or a collective that they have
 * taken part in, and that is not under way there.
 */
static bool left_early_locked(const struct soda_msg_job *job, const struct soda_msg_link *l,
			      const struct soda_wire_msg_relay *relay)
{
	uint32_t next = atomic_load(&job->reduced) + 1;

	if (!relay->left || job->phase < relay->phase)
		return false;
	if (!relay->reduce.number && l->parts[next % 2].number == next)
		return job->pushed || job->finished;
	return soda_msg_job_busy_locked(job);
}

/* The RELAY's number, and what it says. As soda_msg_answer_begin_locked(). Unlocks the job if not
 * 0. */
static int begin_relay_unlock(struct soda_msg_job *job, struct soda_msg_link *l,
			      const struct soda_wire_msg_relay *relay, uint8_t *taken,
			      struct soda_why *why)
{
	int ret = 0;

	if (atomic_load(&job->broken))
		ret = soda_msg_job_broken_locked(job, why);
	if (ret == 0)
		ret = soda_msg_answer_begin_locked(job, &l->relayed, relay->number, relay->packets,
						   taken);
	if (ret == 0) {
		ret = hear_locked(job, l, relay);
		l->relayed.busy = ret == 0;
	}
	if (ret == -EPROTO)
		soda_msg_refuse(why, ret,
				"messages: what the agent %u says of the job %.120s cannot be",
				l->agent, job->name);
	if (ret) {
		pthread_mutex_unlock(&job->lock);
		return ret;
	}
	if (left_early_locked(job, l, relay)) {
		l->relayed.busy = false;
		soda_msg_job_say_gone_locked(job);
		*why = job->why;
		soda_msg_job_break_unlock(job->all, job);
		return -ECANCELED;
	}
	return 0;
}

int soda_msg_job_relay(struct soda_msg_job *job, struct soda_msg_link *link, const uint8_t *body,
		       const struct soda_wire_msg_relay *relay, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why)
{
	struct soda_msg_route r = { .job = job,
				    .link = link,
				    .body = body + SODA_WIRE_MSG_RELAY_BYTES,
				    .packets = relay->packets,
				    .taken = taken };
	uint32_t rooms;
	bool now;
	int ret = soda_msg_route_check(&r, why);

	*routed_p = r.routed;
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = begin_relay_unlock(job, link, relay, taken, why);
	if (ret)
		return ret < 0 ? ret : 0;
	now = !relay->packets || await_phase_locked(job, relay);
	soda_msg_route_hold_locked(&r, &link->relayed, relay->number, relay->ahead);
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	if (now)
		soda_msg_route_or_wait(&r, rooms, relay->wait_ms);
	pthread_mutex_lock(&job->lock);
	soda_msg_answer_end_locked(job, &link->relayed, relay->number, &r);
	r.routed.refused = relay->packets - r.routed.packets;
	*routed_p = r.routed;
	return soda_msg_job_end_collective_unlock(job, why);
}

/* The rings of its ranks lie there from now on. False: something has been put already. */
static bool move_inboxes(struct soda_msg_job *job, const struct soda_msg_link *l)
{
	uint8_t *ring = l->near_out.rings;

	for (uint32_t i = 0; i < job->ranks_n; i++) {
		if (job->ranks[i].link != l)
			continue;
		if (!soda_inbox_move(&job->ranks[i].inbox, ring))
			return false; /* what has been moved is as good as where it was */
		ring += job->ranks[i].inbox.size;
	}
	return true;
}

static int make_near_locked(struct soda_msg_job *job, struct soda_msg_link *l, struct soda_why *why)
{
	int ret = l->near_out.rings ? 0
				    : soda_msg_near_make(l->ranks_n, job->ranks[0].inbox.size,
							 &l->near_out, why);

	if (ret == 0 && !l->near_out.used)
		l->near_out.used = move_inboxes(job, l);
	if (ret == 0 && !l->near_out.used)
		ret = soda_msg_refuse(why, -EINVAL,
				      "messages: the agent %u asks for packets' memory too late",
				      l->agent);
	return ret;
}

int soda_msg_job_near(struct soda_msg_job *job, struct soda_msg_link *link,
		      const struct soda_peer_info *who, struct soda_wire_msg_rings *sizes_p,
		      int *fd_p, struct soda_why *why)
{
	int ret;

	/* who knows no key has not proved to belong to the job */
	if (!job->keyed && (!job->local || !who->local || who->uid != job->uid))
		return soda_msg_refuse(why, -EACCES,
				       "messages: the job %.120s has no key, and is another user's",
				       job->name);
	pthread_mutex_lock(&job->lock);
	ret = make_near_locked(job, link, why);
	if (ret == 0) {
		*sizes_p = (struct soda_wire_msg_rings){ SODA_MSG_PACKET_MAX,
							 (uint32_t)job->ranks[0].inbox.size };
		*fd_p = link->near_out.fd;
	}
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Packets of one ring. How many, unless the rank's inbox is full; -EPROTO. */
static int take_ring(struct soda_msg_route *r, struct soda_msg_near_in *in, uint32_t ring,
		     uint32_t to, uint64_t tail)
{
	struct soda_msg_job *job = r->job;
	struct soda_wire_msg_packet p;
	const uint8_t *runs;
	int n = 0, ret;

	while ((ret = soda_msg_near_peek(in, ring, tail, &p, &runs)) > 0) {
		if (p.rank >= job->ranks_n || job->ranks[p.rank].link != r->link)
			return -EPROTO;
		if (!soda_msg_route_packet(r, p.rank, to, &p, runs))
			break;
		soda_msg_near_take(in, ring, &p);
		r->routed.packets++;
		r->routed.messages += p.messages;
		r->routed.bytes += p.bytes;
		n++;
	}
	return ret < 0 ? ret : n;
}

/* Of all rings. How many; -EPROTO. */
static int take_rings(struct soda_msg_route *r, struct soda_msg_near_in *in, const uint8_t *tails)
{
	uint32_t ring = 0;
	int n = 0, ret = 0;

	soda_msg_turn_begin(r->job->all);
	for (uint32_t i = 0; i < r->job->ranks_n && ret >= 0; i++) {
		if (r->job->ranks[i].link)
			continue;
		ret = take_ring(r, in, ring, i, soda_wire_get_u64(tails + 8 * (size_t)ring));
		n += ret > 0 ? ret : 0;
		ring++;
	}
	soda_msg_turn_end(r->job->all);
	return ret < 0 ? ret : n;
}

/* Whether a ring is filled further than it was taken. */
static bool offers_any(const struct soda_msg_near_in *in, const uint8_t *tails)
{
	for (uint32_t i = 0; i < in->ranks; i++)
		if (soda_wire_get_u64(tails + 8 * (size_t)i) != atomic_load(&in->taken[i]))
			return true;
	return false;
}

/* The same; where nothing could be taken, wait for room, and try once more. 0; -EPROTO. */
static int take_or_wait(struct soda_msg_route *r, struct soda_msg_near_in *in, const uint8_t *tails,
			uint32_t rooms, uint32_t wait_ms)
{
	int ret = take_rings(r, in, tails);

	if (ret == 0 && wait_ms) {
		soda_msg_route_await_room(r->job, rooms, wait_ms);
		ret = take_rings(r, in, tails);
	}
	return ret < 0 ? ret : 0;
}

/* How far each ring has been taken: zeros, where none are mapped. */
static void say_taken(const struct soda_msg_job *job, const struct soda_msg_near_in *in,
		      uint8_t *taken)
{
	for (uint32_t i = 0; i < job->here_n; i++)
		soda_wire_put_u64(taken + 8 * (size_t)i, in ? atomic_load(&in->taken[i]) : 0);
}

int soda_msg_job_offer(struct soda_msg_job *job, struct soda_msg_link *link,
		       const struct soda_wire_msg_relay *relay, const uint8_t *tails,
		       uint8_t *taken, struct soda_msg_routed *routed_p, struct soda_why *why)
{
	uint8_t none[SODA_MSG_PACKETS];
	struct soda_msg_route r = { .job = job, .link = link, .taken = none };
	struct soda_msg_near_in *in;
	uint32_t rooms;
	bool now;
	int ret;

	*routed_p = r.routed;
	pthread_mutex_lock(&job->lock);
	in = link->near_in;
	ret = begin_relay_unlock(job, link, relay, none, why);
	if (ret >= 0)
		say_taken(job, in, taken);
	if (ret)
		return ret < 0 ? ret : 0;
	now = in && offers_any(in, tails) && await_phase_locked(job, relay);
	rooms = job->rooms;
	pthread_mutex_unlock(&job->lock);

	if (now)
		ret = take_or_wait(&r, in, tails, rooms, relay->wait_ms);
	pthread_mutex_lock(&job->lock);
	soda_msg_answer_end_locked(job, &link->relayed, relay->number, &r);
	say_taken(job, in, taken);
	*routed_p = r.routed;
	if (ret < 0) {
		pthread_mutex_unlock(&job->lock);
		return soda_msg_refuse(
			why, ret,
			"messages: what the agent %u offers to the job %.120s makes no sense",
			link->agent, job->name);
	}
	return soda_msg_job_end_collective_unlock(job, why);
}

uint32_t soda_msg_link_phase(struct soda_msg_link *l)
{
	uint32_t phase;

	pthread_mutex_lock(&l->job->lock);
	phase = l->job->phase;
	pthread_mutex_unlock(&l->job->lock);
	return phase;
}

bool soda_msg_link_is_near(struct soda_msg_link *l)
{
	bool near;

	pthread_mutex_lock(&l->job->lock);
	near = l->near_out.used;
	pthread_mutex_unlock(&l->job->lock);
	return near;
}

void soda_msg_link_take_near(struct soda_msg_link *l, struct soda_msg_near_in *near_in)
{
	pthread_mutex_lock(&l->job->lock);
	l->near_in = near_in;
	pthread_mutex_unlock(&l->job->lock);
}

enum soda_msg_state soda_msg_link_say(struct soda_msg_link *l, struct soda_wire_msg_relay *relay_p)
{
	struct soda_wire_msg_relay r = { .wait_ms = SODA_MSG_ROOM_MS };
	struct soda_msg_job *job = l->job;
	enum soda_msg_state state;
	uint32_t i = 0, k = 0;

	pthread_mutex_lock(&job->lock);
	state = atomic_load(&job->broken) ? SODA_MSG_JOB_BROKEN
		: job->closing		  ? SODA_MSG_JOB_ENDS
					  : SODA_MSG_JOB_RUNS;
	r.phase = job->phase;
	pthread_mutex_lock(&l->lock);
	r.done = job->phase + (job->finished == job->here_n && !l->pending);
	pthread_mutex_unlock(&l->lock);
	r.missing = job->here_n - job->come;
	r.left = job->left;
	while (r.missing && i < job->ranks_n &&
	       (job->ranks[i].link || job->ranks[i].roles == SODA_MSG_BOTH))
		i++;
	while (r.left && k < job->ranks_n && !job->ranks[k].left)
		k++;
	r.first_missing = i;
	r.first_left = k;
	if (job->reduce.n == job->here_n)
		r.reduce = (struct soda_wire_msg_reduce){ atomic_load(&job->reduced) + 1,
							  job->reduce.op, job->reduce.value };
	pthread_mutex_unlock(&job->lock);
	*relay_p = r;
	return state;
}

void soda_msg_link_heard(struct soda_msg_link *l, const struct soda_wire_msg_relay *relay)
{
	struct soda_msg_job *job = l->job;

	pthread_mutex_lock(&job->lock);
	l->heard_done = relay->done;
	if (relay->reduce.number)
		l->heard_reduce = relay->reduce.number;
	soda_msg_job_end_phase_locked(job);
	soda_msg_job_end_collective_unlock(job, NULL);
}

bool soda_msg_link_left(struct soda_msg_link *l)
{
	bool left;

	pthread_mutex_lock(&l->job->lock);
	left = l->said.left == l->ranks_n;
	pthread_mutex_unlock(&l->job->lock);
	return left;
}
