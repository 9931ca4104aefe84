/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes transfers of a client's requests, and answers of the transfers.  Which thread does what:
 *
 *   neither async nor    the thread that got a request posts it, waits for the server's answer and
 *   aggregate            answers
 *   aggregate only       requests wait in the queue until the doorbell; the thread that got the
 *                        doorbell posts them together, waits and answers
 *   async                requests are posted (with aggregate: at the doorbell, else at once), and
 *                        completers answer
 */
#ifndef SODA_DPU_AGENT_FORWARD_H
#define SODA_DPU_AGENT_FORWARD_H

#include "dpu_agent/paging/paging.h"

#define SODA_TURN_BYTES (512u << 10)	 /* READs of a session before the next session's turn */
#define SODA_WRITES_UNDER_WAY (1u << 20) /* bytes of a session; further WRITEs may combine */

/* soda_request_done(), and count a request that succeeded and how long it took. */
void soda_forward_answer(struct soda_request *rq, int status, const struct soda_span *span);

/* The hooks soda_service.request and doorbell; a worker of the transport calls them. */
void soda_forward_request(struct soda_session *s, struct soda_request *rq);
void soda_forward_doorbell(struct soda_session *s);
/* async: transfers have ended, or may begin again: post what waits. Any thread. */
void soda_forward_more(struct soda_session *s);

/*
 * A READ that has passed the gate (turns.h) and holds its region: answer it out of the agent's
 * memory, or forward it.
 */
void soda_forward_enter(struct soda_task *task);
/* async: soda_forward_enter() for READs that have waited for a WRITE. */
void soda_forward_again(struct soda_session *s, struct soda_task *tasks);
/* async: post WRITEs of the write list, as many as may be under way. */
void soda_forward_writes(struct soda_session *s);
/*
 * async: post at most SODA_TURN_BYTES of the queue's READs.  own: the calling worker itself waits
 * for their answers for a while.  True: more READs wait, and can be posted at once.
 */
bool soda_forward_reads(struct soda_session *s, bool own);
/*
 * soda_completers.collect: answer the requests of transfers that have ended on the channel, and
 * post what waited for their room.  True: some had ended.
 */
bool soda_forward_collect(struct soda_channel *c);
/*
 * The session is broken: end the client's READ or WRITE without the server's answer, and close the
 * client's connection.
 */
void soda_forward_drop(struct soda_task *task);
void soda_forward_drop_tasks(struct soda_task *tasks);
void soda_forward_drop_transfers(struct soda_transfer *list);
/*
 * A READ has waited for an entry of the dynamic cache: answer it with span, or, if span is NULL
 * because the entry could not be filled, forward it.
 */
void soda_forward_late(struct soda_task *task, const struct soda_span *span);
/*
 * Post n READs of the caches (t[]), or without async WRITEs of the agent's own, on a channel that
 * nobody else uses, and wait for their ends.
 * The caller holds the channel's lock, which is released here.  0 (t->ended was called for each),
 * or the connection's error.
 */
int soda_forward_await(struct soda_channel *c, struct soda_transfer *t, unsigned n);
/*
 * async: post a WRITE of the agent's own, without tasks and writes, on the channel of the session's
 * WRITEs; *t is malloc()ed.  t->ended is called at its end, which frees it: in any thread, also in
 * this call.  -EAGAIN: too many transfers are under way; or the connection's error: it is still the
 * caller's.
 */
int soda_forward_own(struct soda_transfer *t);
/* The hook soda_service.release: an answer's data has been sent. */
void soda_forward_sent(struct soda_session *s, const struct soda_span *span);

#endif
