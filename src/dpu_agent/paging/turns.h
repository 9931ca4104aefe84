/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many bytes of READs a client may have under way.
 *
 * READs pass a gate, in the order of their arrival, and their bytes count from there until their
 * answers have been sent.  A READ that has passed the gate needs no more room, so it is always
 * answered. If READs waited for room later, answers behind them on their connection could have
 * taken all of it, and could not be sent before them.
 *
 * No client may have more than the credit, nor more than a multiple of what the others have on
 * average: a program that waits for one page has one request under way, and would find all requests
 * of a greedy program before its own in every queue.
 *
 * All clients together may have half of the agent's buffers; when that is used up, each may still
 * have a little.
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

/* READs of all sessions: how many sessions have some << 48 | bytes. */
struct soda_gates {
	_Atomic uint64_t charged;
};

/* Let the task pass, or put it to those that wait (false). The session's lock is held. */
bool soda_gate_enter_locked(struct soda_session *s, struct soda_task *task);
/* Answers of so many bytes have been sent, or will never be. The session's lock is held. */
void soda_gate_leave_locked(struct soda_session *s, uint64_t bytes);
/*
 * Let tasks pass that wait, if there is room. The caller holds no lock but a channel's of the
 * caches.
 */
void soda_gate_open(struct soda_session *s);
/* Take all tasks that wait, as a list; the caller drops them. The session's lock is held. */
struct soda_task *soda_gate_take_all_locked(struct soda_session *s);
/*
 * The same for tasks whose connection is being closed.  That connection is gone only when all of
 * its requests have ended, and its answers make room only then; so these tasks must not wait for
 * room.
 */
struct soda_task *soda_gate_take_ended_locked(struct soda_session *s);
/* How many bytes of READs the session may have under way now. The session's lock is held. */
uint64_t soda_gate_share_locked(struct soda_session *s);

/*
 * Whose READs are posted next (async): those of the sessions in turn, SODA_TURN_BYTES of each, as
 * long as less than the window is under way to the server.
 */

struct soda_schedule {
	pthread_mutex_t lock;
	struct soda_session *first, *last; /* by pager->next_turn; guarded by lock, and so below */
	uint64_t window, under_way;	   /* bytes */
};

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window);
/* The session has READs to be posted: give it a turn. */
void soda_schedule_add(struct soda_schedule *schedule, struct soda_session *s);
/*
 * Post READs as long as the window allows.  own: the session for whose answers the calling worker
 * itself waits, or NULL.
 */
void soda_schedule_run(struct soda_schedule *schedule, const struct soda_session *own);
/* So many bytes more are under way to the server, or (negative) fewer. */
void soda_schedule_count(struct soda_schedule *schedule, int64_t bytes);

#endif
