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
 * All clients together may have half of the agent's buffers, and each tenant's clients what is left
 * of it for that tenant (allotment.h); when that is used up, each may still have a little.
 *
 * Without async a worker serves one batch after the other, and the gate is always open.
 */
#ifndef SODA_DPU_AGENT_TURNS_H
#define SODA_DPU_AGENT_TURNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "dpu_agent/paging/allotment.h"

struct soda_dpu_server;
struct soda_session;
struct soda_task;

enum { SODA_LANES = 4 * SODA_MEMBERS_MAX };

struct soda_gates {
	_Atomic uint64_t charged;    /* READs of all sessions: how many have some << 48 | bytes */
	struct soda_allotment reads; /* the same bytes, in an agent with tenants */
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
 * The same for tasks whose connection is being closed, and for those that have passed and were not
 * posted yet.  That connection is gone only when all of its requests have ended, and its answers
 * make room only then; so these tasks must not wait for room, nor for a server that may be silent.
 */
struct soda_task *soda_gate_take_ended_locked(struct soda_session *s);
/* How many bytes of READs the session may have under way now. The session's lock is held. */
uint64_t soda_gate_share_locked(struct soda_session *s);

/*
 * Whose READs are posted next (async): those of the sessions in turn, SODA_TURN_BYTES of each, as
 * long as less than the window is under way to their server.  Each server has a lane of its own: a
 * server that does not answer keeps its window, and no other server's READs wait for that.
 */

struct soda_lane {
	const struct soda_dpu_server *server; /* whose it is; NULL: nobody's yet */
	uint16_t member;		      /* and, behind an agent, of its members */
	unsigned users;			      /* sessions */
	struct soda_session *first, *last;    /* by pager->next_turn */
	uint64_t under_way;		      /* bytes */
};

struct soda_schedule {
	pthread_mutex_t lock;
	uint64_t window; /* bytes, of each lane; set before start, then constant */
	/* guarded by lock; where more servers have sessions some of them share a lane */
	struct soda_lane lane[SODA_LANES];
};

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window);
/* The session comes up for the server that it is for now: its READs go by that server's lane. */
void soda_schedule_enter(struct soda_session *s);
/* The session ends: it has no READs, and is in no lane any more. */
void soda_schedule_leave(struct soda_session *s);
/* The session has READs to be posted: give it a turn in its lane. */
void soda_schedule_add(struct soda_session *s);
/*
 * Post READs of the session's lane, its own and others', as long as the window allows: after
 * soda_schedule_add(), and when READs have ended.  own: the session for whose answers the calling
 * worker itself waits, or NULL.
 */
void soda_schedule_run(struct soda_session *s, const struct soda_session *own);
/* So many bytes more are under way to the session's server, or (negative) fewer. */
void soda_schedule_count(struct soda_session *s, int64_t bytes);
/* Bytes under way to all servers. */
uint64_t soda_schedule_under_way(struct soda_schedule *schedule);

#endif
