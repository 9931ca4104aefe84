/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A session's own session with the memory server (client/server.h), as the client that it is here:
 * its hooks, its regions, its channels.  Who has session->life drives it.
 */
#ifndef SODA_DPU_AGENT_UPSTREAM_H
#define SODA_DPU_AGENT_UPSTREAM_H

#include "dpu_agent/session/session.h"

/* Of a session that nobody knows yet. */
void soda_upstream_init(struct soda_session *s);
/*
 * Connect, as the client that pager->server.hello names (client id 0: a new one) with the next
 * epoch; s->life is held and s is not up.  Then server.welcome is the server's answer, the
 * regions are those that the server has of this client, and accepted WRITEs are to be
 * posted again; what the server does not know any more is gone, and logged.  Errors of
 * soda_conn_connect and of the calls.
 */
int soda_upstream_connect(struct soda_session *s, struct soda_why *why);
/*
 * The same for a client that is not there itself: -ESTALE where the server does not know it any
 * more, because nobody would tell it that it is another one now.
 */
int soda_upstream_reconnect(struct soda_session *s, struct soda_why *why);
/*
 * Close all, and take back what was under way: READs end with their connections, accepted
 * WRITEs are on their list.  s->life is held.  Nothing happens where it was not up.  Does not wait
 * for the server: whoever does is made to end first.
 */
void soda_upstream_disconnect(struct soda_session *s);
/* A call on the control connection without an answer but yes or no. -ENOTCONN: not up. */
int soda_upstream_call(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		       int body_n, struct soda_why *why);
/* OPEN, and the region is the session's. */
int soda_upstream_open(struct soda_session *s, const struct soda_wire_open *open, const char *name,
		       struct soda_wire_opened *opened_p, struct soda_why *why);
/* Forget all regions; waits until nothing holds them any more. */
void soda_upstream_forget_regions(struct soda_session *s);
/* A channel has been waiting for an answer for longer than the time-out. */
bool soda_upstream_stuck(struct soda_session *s);

#endif
