/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the program and the members of its pool tell each other (wire/pool.h): each server its
 * failure domain and what it has free, the program what it has there, which the server's
 * statistics show.  With a single server nothing is told.  And which members there are, where a
 * DPU agent stands in front of the pool: it says so when it is met.
 */
#ifndef SODA_HOST_MEMBER_H
#define SODA_HOST_MEMBER_H

#include <stddef.h>

#include "host_agent/core/link.h"
#include "pool/pool.h"

/*
 * The session with the server at the program's address has met it for the first time, and nothing
 * of the link has been started.  If it is an agent in front of a pool, the pool's members are
 * soda_agent.behind from now on, and the link is a session for the first one.  0, also where it is
 * anything else; -EPROTO: its list cannot be; -ENOMEM: the page buffer is too small for so many;
 * errors of the connection; with *why.
 */
int soda_member_learn(struct soda_link *link, struct soda_conn *control, struct soda_why *why);
/* Before the first attempt: if the link is for a member behind an agent, it shall say so there. */
void soda_member_place(struct soda_link *link);
/*
 * The keeper has met the server, whose control connection nobody else uses yet.  0, also where the
 * server does not know the call; errors of the connection.
 */
int soda_member_meet(struct soda_link *link, struct soda_conn *control, struct soda_why *why);
/*
 * The keeper of a server that is UP: ask it again, if it is time.  A server whose slabs have other
 * copies is not waited for when it is silent: the session is AWAY then.
 */
void soda_member_ask(struct soda_link *link);
/* The servers of the pool of the agent that leads to this one, which is UP. As soda_call_members().
 */
int soda_member_ask_list(struct soda_link *link, struct soda_members *members_p);
/*
 * The pool's members for the statistics, a member of an object of JSON: ', "server_list": [...]',
 * of at most `bytes`, or nothing where there is a single server, or no room for all of them.  How
 * many bytes. Takes soda_regions_lock. Not AS.
 */
size_t soda_member_list(char *out, size_t bytes);

#endif
