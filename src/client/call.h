/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on a session's control connection, one at a time.  A call that is lost with its connection
 * (soda_call_lost) may have been done by the server; the failure is reported to the session.
 */
#ifndef SODA_CLIENT_CALL_H
#define SODA_CLIENT_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/server.h"

/*
 * The call itself, on a connection that nobody else uses.  again: an earlier attempt reached a
 * connection that then failed, so that the server may have done it, and only its answer is lost.
 */
typedef int soda_call_fn(struct soda_conn *control, void *arg, bool again, int timeout_ms,
			 struct soda_why *why);

/* Once. -ENOTCONN: not UP. */
int soda_call_once(struct soda_server *server, soda_call_fn *fn, void *arg, int timeout_ms,
		   struct soda_why *why);
/*
 * The driver, which must not wait for a call of others: as soda_call_once, where nobody has the
 * connection for longer than wait_ms. -EBUSY: somebody has.
 */
int soda_call_aside(struct soda_server *server, soda_call_fn *fn, void *arg, int wait_ms,
		    int timeout_ms, struct soda_why *why);
/*
 * Again after each reconnection, if the connection failed under it, within its time, in which the
 * process's standing still does not count.  -ETIMEDOUT: it was not answered within that time, or
 * the server is away; why says which.
 */
int soda_call_persist(struct soda_server *server, soda_call_fn *fn, void *arg, int timeout_ms,
		      struct soda_why *why);
/* soda_conn_call, once. -ENOTCONN: not UP. */
int soda_call(struct soda_server *server, enum soda_msg type, const struct iovec *body, int body_n,
	      void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
	      struct soda_why *why);
/*
 * Which servers an agent stands in front of, asked on a connection that nobody else uses: their
 * list, as the agent was given it, terminated.  "": it is one server, or the agent's release knows
 * of no pools.  0, -EMSGSIZE, or an error of the connection.
 */
int soda_call_members(struct soda_conn *control, char *text, size_t size, int timeout_ms,
		      struct soda_why *why);

/*
 * SODA_MSG_TOKEN on this connection of the session, with the number of the token that is held.
 * token_p->token comes as the server has made it.  -ECONNABORTED: the answer makes no sense; errors
 * of soda_conn_call and soda_hkdf.
 */
int soda_call_token(struct soda_server *server, struct soda_conn *control, uint32_t held,
		    struct soda_wire_token *token_p, int timeout_ms, struct soda_why *why);
/*
 * The driver: ask for the client's next token, if it is time, and tell the server that it has come,
 * so that older ones are void.  Where the server has none for us that is no error.  Errors of the
 * connection alone.
 */
int soda_call_renew_token(struct soda_server *server, struct soda_conn *control, int timeout_ms,
			  struct soda_why *why);

#endif
