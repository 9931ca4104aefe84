/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which memory servers the program uses: those of its settings, which all are met at the start, and
 * servers of a pool that come later.  A server is never taken out again.
 */
#ifndef SODA_HOST_SERVERS_H
#define SODA_HOST_SERVERS_H

#include <stdbool.h>

#include "host_agent/core/link.h"
#include "pool/pool.h"
#include "transport/api/transport.h"

/*
 * Meet the servers of the settings, or a private one, which is started.  With api_lock, while the
 * runtime starts; what has been opened when it fails is ended by soda_session_stop().  Errors of
 * soda_session_open(); -EINVAL, -ENOTSUP: the list cannot be used; with *why.
 */
int soda_servers_start(struct soda_why *why);
/*
 * Use this server, too: from now on slabs are placed there.  With api_lock, while the runtime runs;
 * waits for the server, at most SODA_JOIN_MS for each connection.  by_agent: the DPU agent before
 * the program's pool has named it, and leads to it.  0; -EALREADY: it is one of them;
 * -ENOTSUP: the program is one that works with a single server (check_pool()), or its servers are
 * those of an agent, which has not named this one; -ENOSPC: there are
 * SODA_MEMBERS_MAX; -ENOMEM: the page buffer is too small for more; -EINVAL: it is one of them
 * under another address; errors of soda_session_open(); all but -EALREADY with *why.  Nothing has
 * changed then.
 */
int soda_servers_join(const char *address, bool by_agent, struct soda_why *why);
/*
 * Where a server of the program's is away, and is the one that answers at this address, behind an
 * agent by way of that, the same instance of it, its keeper is told: it is used at this address
 * from now on.  0: none is; -EALREADY: it is so; errors of soda_session_open(), with *why.  Waits
 * for the server, at most SODA_JOIN_MS for a connection.  One thread at a time, without a lock.
 */
int soda_servers_moved(const char *address, struct soda_why *why);
/*
 * join.c: soda_servers_moved(), and then soda_servers_join() with api_lock, of those that are no
 * servers of the program yet.
 * One that cannot be used is tried again SODA_JOIN_AGAIN_MS later, and the log says so once.
 * Waits for other threads that do this. False: the runtime has ended.
 */
bool soda_servers_join_all(const struct soda_members *m);
/*
 * join.c: for the keeper of a server, which is UP or not.  Behind an agent: ask it, if it is time,
 * which servers its pool has, and let a thread join those that are new.  While none is UP, which
 * may have moved, all of them, the thread asks.
 */
void soda_servers_look(struct soda_link *link);
/* Whether a server of the program's is UP. Any thread. */
bool soda_servers_any_up(void);
/* Whether the program has a server at that address, or it is the agent's before its servers. Any
 * thread. */
bool soda_servers_has(const char *address);
/* For the keeper of a server that is away: take over where it is, if soda_servers_moved() found it.
 */
void soda_servers_follow(struct soda_link *link);

#endif
