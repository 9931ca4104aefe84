/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The session that the agent has with the memory server in the name of one client
 * (client/server.h): its hooks, and the client's regions and channels.  The thread that holds
 * session->life drives it; "up" below is soda_session.up.
 */
#ifndef SODA_DPU_AGENT_UPSTREAM_H
#define SODA_DPU_AGENT_UPSTREAM_H

#include "dpu_agent/session/session.h"

/* Before any other thread knows the session. */
void soda_upstream_init(struct soda_session *s);
/*
 * Connect, as the client that pager->server.hello names (client id 0: a new one) with the next
 * epoch; s->life is held and s is not up.  Then server.welcome is the server's answer, the session
 * has the regions that the server has of this client, and accepted WRITEs are posted again.
 * Regions and WRITEs that the server does not know any more are dropped, and their loss is logged.
 * Errors of soda_server_attempt.
 */
int soda_upstream_connect(struct soda_session *s, struct soda_why *why);
/*
 * The same while the client is not connected to the agent: -ESTALE if the server does not know the
 * client any more; it is not made a new one, because the client could not be told.
 */
int soda_upstream_reconnect(struct soda_session *s, struct soda_why *why);
/*
 * Close all connections to the server: READs are dropped (soda_forward_drop), accepted WRITEs stay
 * on the write list.  Does nothing if none is open.  s->life is held.  Never waits for the server:
 * calls that do are aborted first.
 */
void soda_upstream_disconnect(struct soda_session *s);
/* A call on the control connection whose answer has no body. -ENOTCONN: not up. */
int soda_upstream_call(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		       int body_n, struct soda_why *why);
/*
 * Say BYE, and wait a little for the answer (SODA_DPU_BYE_MS): the server reads it in any case,
 * before the end of the connection.
 */
void soda_upstream_leave(struct soda_session *s);
/* soda_upstream_call; the answer has exactly reply_bytes bytes, else it is -EPROTO. */
int soda_upstream_ask(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t reply_bytes, struct soda_why *why);
/* As soda_upstream_ask; whatever the answer's body is becomes the reply's. */
int soda_upstream_pass(struct soda_session *s, enum soda_msg type, const struct iovec *body,
		       int body_n, struct soda_reply *reply);
/* OPEN the region at the server, and add it to the session. */
int soda_upstream_open(struct soda_session *s, const struct soda_wire_open *open, const char *name,
		       struct soda_wire_opened *opened_p, struct soda_why *why);
/*
 * Forget all regions; waits until nothing holds any of them.  kept: the server has them on, and the
 * client may come back for them.
 */
void soda_upstream_forget_regions(struct soda_session *s, bool kept);
/* Whether a channel has had transfers under way, and no answer, for longer than the time-out. */
bool soda_upstream_stuck(struct soda_session *s);

#endif
