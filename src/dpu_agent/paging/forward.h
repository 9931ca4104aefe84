/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a client's requests to transfers and back.
 *
 *   base                 soda_forward_request forwards, waits and answers
 *   aggregate only       requests wait in the queue until the doorbell; the thread that
 *                        rings forwards them together, waits and answers
 *   async                requests are posted (at the doorbell with aggregate, else at
 *                        once) and completers answer
 */
#ifndef SODA_DPU_AGENT_FORWARD_H
#define SODA_DPU_AGENT_FORWARD_H

#include "dpu_agent/paging/paging.h"

#define SODA_TURN_BYTES (512u << 10)	 /* of READs, before others' turn */
#define SODA_WRITES_UNDER_WAY (1u << 20) /* of a session; others wait, and may combine */

/* As soda_request_done, and counted: READs, and how long it took. */
void soda_forward_answer(struct soda_request *rq, int status, const struct soda_span *span);

/* As soda_service.request and doorbell: a worker of the transport. */
void soda_forward_request(struct soda_session *s, struct soda_request *rq);
void soda_forward_doorbell(struct soda_session *s);
/* async: room has been made: post what waits for it. Any thread. */
void soda_forward_more(struct soda_session *s);

/* A READ that is in (turns.h), and whose region is held: answer it from here, or forward it. */
void soda_forward_enter(struct soda_task *task);
/* async: put READs that waited for a WRITE into the queue again. */
void soda_forward_again(struct soda_session *s, struct soda_task *tasks);
/* async: post WRITEs, as many as may be under way. */
void soda_forward_writes(struct soda_session *s);
/*
 * async: post READs, a turn's worth.  own: the caller will wait for their answers
 * itself, for a while.  False: nothing waits, or it may not go on now.
 */
bool soda_forward_reads(struct soda_session *s, bool own);
/* As soda_completers.collect: answer what has come back, and post what waited for the room. */
bool soda_forward_collect(struct soda_channel *c);
/* End a READ or WRITE of a client without an answer: its connections are closed. */
void soda_forward_drop(struct soda_task *task);
void soda_forward_drop_tasks(struct soda_task *tasks);
void soda_forward_drop_transfers(struct soda_transfer *list);
/*
 * A READ that waited for an entry of the dynamic cache: span is its answer, or NULL: it
 * could not be had there.
 */
void soda_forward_late(struct soda_task *task, const struct soda_span *span);
/*
 * Post READs of the caches' own on a channel that only they use, and wait for their ends.  Its
 * lock is held, and released here.  0 (t->ended was called for each), or the connection's error.
 */
int soda_forward_await(struct soda_channel *c, struct soda_transfer *t, unsigned n);
/* An answer has been sent: as soda_service.release. */
void soda_forward_sent(struct soda_session *s, const struct soda_span *span);

#endif
