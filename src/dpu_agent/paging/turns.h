/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much a client may have asked for and not yet taken.
 *
 * READs come in through a gate, in the order of their arrival, and are counted from there until
 * their answers have been sent.  Whoever is in needs no more room, so that it is always answered:
 * were a READ to wait for room later, answers behind it on its connection could have taken it all,
 * and could not leave before it.
 *
 * Nobody has more than the credit, nor than a multiple of what others have on average: a program
 * that waits for one page has one request under way, and would find all of a greedy one's before it
 * wherever there is a queue.
 *
 * All together have half of the agent's buffers; where that is used up each goes on with a little.
 *
 * Without async a worker serves one batch after the other, and the gate is always open.
 */
#ifndef SODA_DPU_AGENT_TURNS_H
#define SODA_DPU_AGENT_TURNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct soda_session;
struct soda_task;

/* What all sessions have: so many of them << 48 | bytes. */
struct soda_gates {
	_Atomic uint64_t charged;
};

/* The session's lock is held. False: the task waits at the gate. */
bool soda_gate_enter_locked(struct soda_session *s, struct soda_task *task);
/* So many bytes have been taken, or will never be; the session's lock is held. */
void soda_gate_leave_locked(struct soda_session *s, uint64_t bytes);
/* There is room, perhaps: let in who waits. No lock is held but a channel's of the caches. */
void soda_gate_open(struct soda_session *s);
/* Who waits, as a list: they are to be dropped. The session's lock is held. */
struct soda_task *soda_gate_take_all_locked(struct soda_session *s);
/*
 * Likewise those whose connection ends.  Answers on it are not sent, and make no room, before it is
 * gone; and it is gone when all of its requests have ended: they must not wait for that room.
 */
struct soda_task *soda_gate_take_ended_locked(struct soda_session *s);
/* What the session may have under way now, in bytes; its lock is held. */
uint64_t soda_gate_share_locked(struct soda_session *s);

/*
 * Whose turn it is (async): sessions with READs to be posted, round robin, a turn's
 * worth each, as long as less than the window is under way to the server.
 */

struct soda_schedule {
	pthread_mutex_t lock;
	struct soda_session *first, *last; /* guarded by lock, and so below; next_turn */
	uint64_t window, under_way;	   /* bytes */
};

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window);
/* The session's queue is not empty. */
void soda_schedule_add(struct soda_schedule *schedule, struct soda_session *s);
/* Post what may be posted.  own: whose answers the calling worker waits for itself, or NULL. */
void soda_schedule_run(struct soda_schedule *schedule, const struct soda_session *own);
/* So many bytes more are under way, or (negative) less. */
void soda_schedule_count(struct soda_schedule *schedule, int64_t bytes);

#endif
