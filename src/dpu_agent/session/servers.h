/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory servers that the agent stands in front of: one, or the members of a pool, from the
 * list of --server, which stays as it is, or from a registry, where servers come and go.
 *
 * A server has a *place*, for as long as sessions use it: one that has left the registry keeps its
 * place, as programs may have memory there that they want back, and only programs that begin are
 * not told of it (*listed*).  A place that nobody uses goes to the next server that comes.
 *
 * All functions: any thread.  The lock is held for a moment, and no other is taken under it.
 */
#ifndef SODA_DPU_AGENT_SERVERS_H
#define SODA_DPU_AGENT_SERVERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/base/options.h"
#include "pool/pool.h"
#include "trust/identity.h"

/* Constant while it has users, but for `users` and `listed`. */
struct soda_dpu_server {
	char address[SODA_ADDRESS_MAX + 1]; /* "": the place is free, and was never used */
	uint16_t tag;			    /* how programs name it (soda_members_hash) */
	struct soda_identity *identity;	    /* who we are to it; NULL: nobody */
	unsigned users;			    /* guarded by the lock */
	bool listed;			    /* likewise */
};

struct soda_dpu_servers {
	const struct soda_dpu_options *opt;
	bool pool;   /* set before start, then constant: a session may be one of several */
	bool proves; /* likewise: we have a key for servers */
	pthread_mutex_t lock;
	struct soda_dpu_server place[SODA_MEMBERS_MAX];
};

/*
 * Those of opt->registered, or of opt->server; *opt must stay.  0; -EINVAL, or what is wrong with
 * key file or certificates: it is logged.
 */
int soda_dpu_servers_start(struct soda_dpu_servers *all, const struct soda_dpu_options *opt);
void soda_dpu_servers_stop(struct soda_dpu_servers *all);
/*
 * The server that a HELLO means by its tag, 0: the first one that is listed; the caller is its user
 * until soda_dpu_servers_put().  NULL: there is no such.  Where there is one server alone that is
 * it: it may be an agent whose pool has a member of that tag.
 */
struct soda_dpu_server *soda_dpu_servers_take(struct soda_dpu_servers *all, uint16_t tag);
void soda_dpu_servers_put(struct soda_dpu_servers *all, struct soda_dpu_server *server);
/* What a program is told of: `first`, and all others that are listed. */
void soda_dpu_servers_list(struct soda_dpu_servers *all, const struct soda_dpu_server *first,
			   struct soda_members *to);
/* How many are listed. */
unsigned soda_dpu_servers_count(struct soda_dpu_servers *all);
/*
 * These are registered now.  Those that are new get a place, if there is one; all others are listed
 * no more.  Each change is logged.  One thread at a time.
 */
void soda_dpu_servers_renew(struct soda_dpu_servers *all, const struct soda_members *now);

#endif
