/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of jobs.h share, each with one duty:
 *
 *   jobs.c      the table of jobs: who makes one, finds it, comes back to it
 *   members.c   who has come and gone; how a job is broken off
 *   phases.c    ends of phases, collectives
 *   route.c     packets of a PUSH into inboxes, and out of one by a PULL
 *   serve.c     the same of ranks with rings
 *   relays.c    what other agents say and bring
 *
 * *_locked: the job's lock is held; *_unlock: it is held, and released.
 */
#ifndef SODA_ROUTING_JOBS_IMPL_H
#define SODA_ROUTING_JOBS_IMPL_H

#include <time.h>

#include "routing/jobs.h"

enum { SODA_MSG_BOTH = 1 << SODA_MSG_PUSHES | 1 << SODA_MSG_PULLS };

/* members.c */

/* The sentence, and err. */
int __attribute__((format(printf, 3, 4)))
soda_msg_refuse(struct soda_why *why, int err, const char *fmt, ...);
/* So long from now, but no longer than a call waits. */
struct timespec soda_msg_until(uint32_t ms);
/* There is something to say to all other agents. */
void soda_msg_job_kick_links(struct soda_msg_job *job);
/* All ranks here that wait for news. */
void soda_msg_job_wake(struct soda_msg_job *job);
/* -ECANCELED, and why. */
int soda_msg_job_broken_locked(const struct soda_msg_job *job, struct soda_why *why);
/* Break the job, for the reason in its `why`. Its name is free for another one. */
void soda_msg_job_break_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job);
/* The job's `why`: a rank has gone, and others have not ended. */
void soda_msg_job_say_gone_locked(struct soda_msg_job *job);
/* Whether something is under way that needs all ranks. */
bool soda_msg_job_busy_locked(const struct soda_msg_job *job);
/*
 * A rank begins, or goes on with, something that needs all of them: not possible where one has
 * left. 0; -ECANCELED, and the job is unlocked.
 */
int soda_msg_job_check_all_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job,
				  struct soda_why *why);

/* jobs.c */

/* How much more of the budget a job of this tenant may have. The table's lock is held. */
uint64_t soda_msg_jobs_left_locked(const struct soda_msg_jobs *all, uint32_t tenant);
/* Nobody finds it any more. */
void soda_msg_job_unlist(struct soda_msg_jobs *all, struct soda_msg_job *job);

/* phases.c */

/*
 * The phase ends when all ranks here have finished, and each other agent has said that its ranks
 * have, behind their packets, and has heard the same from here: then all messages for ranks here
 * lie in their inboxes, and none for others' ranks here any more.
 */
void soda_msg_job_end_phase_locked(struct soda_msg_job *job);
/*
 * The collective under way is complete, if it is, and who waits for it is told. 0; -ECANCELED:
 * agents ask for different ones; why may be NULL.
 */
int soda_msg_job_end_collective_unlock(struct soda_msg_job *job, struct soda_why *why);

/* route.c */

/* Packets of a PUSH or a RELAY, and what has become of them. */
struct soda_msg_route {
	struct soda_msg_job *job;
	const struct soda_msg_link *link; /* where they come from; NULL: a PUSH, of `rank` */
	uint32_t rank;
	const uint8_t *body; /* the first packet */
	uint32_t packets;
	uint8_t *taken;
	uint16_t to[SODA_MSG_PACKETS]; /* whom they are for: of soda_msg_route_check() */
	/* ranks for which nothing may be put: packets of earlier calls were refused */
	uint16_t held[SODA_MSG_AHEAD * SODA_MSG_PACKETS];
	uint32_t held_n;
	struct soda_msg_routed routed;
};

/* Where not all threads may route at once; who has the turn waits for nothing but locks. */
void soda_msg_turn_begin(struct soda_msg_jobs *all);
void soda_msg_turn_end(struct soda_msg_jobs *all);
/* One packet into the inbox of rank `to`. False: it has no room. */
bool soda_msg_route_packet(struct soda_msg_route *r, uint32_t from, uint32_t to,
			   const struct soda_wire_msg_packet *p, const uint8_t *runs);
/* Whom they are for, and whether that can be. -EINVAL. */
int soda_msg_route_check(struct soda_msg_route *r, struct soda_why *why);
/* Until an inbox that refused has room again, which counts in `rooms`. */
void soda_msg_route_await_room(struct soda_msg_job *job, uint32_t rooms, uint32_t wait_ms);
/* Put them; where nothing could be put, wait for room, and try once more. */
void soda_msg_route_or_wait(struct soda_msg_route *r, uint32_t rooms, uint32_t wait_ms);
/*
 * Begin to answer the call of this number.  0; 1: it has been answered, and so it is again;
 * -EPROTO: another one is due.  A call that is being answered on a lost connection is waited for.
 */
int soda_msg_answer_begin_locked(struct soda_msg_job *job, struct soda_msg_answers *all,
				 uint64_t number, uint32_t packets, uint8_t *taken);
/*
 * Nothing may be put for ranks of which the `ahead` calls before that of this number had a packet
 * that was refused.
 */
void soda_msg_route_hold_locked(struct soda_msg_route *r, const struct soda_msg_answers *all,
				uint64_t number, uint32_t ahead);
/* The answer is as r->taken. */
void soda_msg_answer_end_locked(struct soda_msg_job *job, struct soda_msg_answers *all,
				uint64_t number, const struct soda_msg_route *r);

/* serve.c */

/* Of one rank's rings, what its inbox does not have. */
static inline uint64_t soda_msg_rings_bytes(uint32_t ranks)
{
	return soda_rings_out_bytes(ranks, soda_rings_slot_bytes(ranks));
}
/* How far a rank with rings is. -EPROTO: what its program says of that cannot be. */
int soda_msg_job_hear_rank(struct soda_msg_job *job, uint32_t rank);

#endif
