/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of forward.h share.
 *
 *   forward.c        requests as they come in
 *   gate.c           READs as long as the client takes their answers
 *   forward_async.c  posting, where completers answer
 *   forward_wait.c   posting and waiting
 *   batch.c          tasks into transfers, and these onto a channel
 *   answer.c         how they end
 */
#ifndef SODA_DPU_AGENT_FORWARD_IMPL_H
#define SODA_DPU_AGENT_FORWARD_IMPL_H

#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/gate.h"

/*
 * Turn tasks into transfers: with merge, neighbours become one.  Tasks for which there
 * is no memory come back in *failed_p.
 */
struct soda_transfer *soda_batch_build(struct soda_task *tasks, bool merge,
				       struct soda_task **failed_p);
/*
 * One doorbell for all; the lock is held.  Those that cannot be posted are dropped.  0, or the
 * connection's error.
 */
int soda_batch_post_locked(struct soda_channel *c, struct soda_transfer *list, bool polling);

/* A READ that is in (gate.h), and whose region is held: answer it from here, or forward it. */
void soda_forward_enter(struct soda_task *task);
/* Post these tasks, and wait for their ends: not async. */
void soda_forward_wait(struct soda_session *s, struct soda_task *tasks);
/*
 * async, where there are not more processors than workers: answer what comes back soon on the
 * calling worker's own channel; what comes later is the completer's.
 */
void soda_forward_near(struct soda_session *s);
/* The calling thread's own of the session's channels for READs. */
struct soda_channel *soda_forward_own_channel(struct soda_session *s);

/* The session is broken: what is said now must not be taken for the server's word. */
void soda_forward_drop_request(struct soda_session *s, struct soda_request *rq);
void soda_forward_drop_tasks(struct soda_task *tasks);
/* Give n holds of the region back, and credit to the client. */
void soda_forward_unhold(struct soda_session *s, struct soda_region *r, unsigned n,
			 uint64_t credit);

#endif
