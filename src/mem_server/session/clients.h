/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients and their connections.
 *
 *   new -> connected <-> away -> freed        away: no connection at all, for at
 *             |                    ^          most the grace time, and, with own, as long as
 *             +------- BYE --------+          the process runs
 *
 * A client is known by a random id and a random secret; a tenant's by the tenant and a key that
 * never travels (docs/internals/tenants.md).  Each control HELLO of a
 * known client carries a higher epoch than the one before.  It is answered only when the
 * connections of older epochs are closed and gone, so that a repeated WRITE never races its
 * original.  Data HELLOs carry the current epoch.
 *
 * One lock guards all clients, as HELLOs are rare.  It is not held across a call of the
 * transport, a sync or the freeing of memory, and is taken before a region set's.
 */
#ifndef SODA_MEM_SERVER_CLIENTS_H
#define SODA_MEM_SERVER_CLIENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "mem_server/session/region.h"
#include "transport/api/service.h"
#include "trust/token.h"
#include "wire/pool.h"

/* One connection of a client; guarded by the clients' lock. */
struct soda_client_peer {
	struct soda_client_peer *next;
	struct soda_peer *peer;
	uint64_t epoch;
	bool control;
	bool closing;  /* soda_peer_close has been or is being called */
	unsigned pins; /* threads that use `peer`: gone waits for them */
};

struct soda_client {
	struct soda_client *next; /* this and below: guarded by the clients' lock */
	struct soda_client_peer *peers;
	uint64_t epoch;
	uint64_t away_since_ms;
	unsigned busy; /* HELLOs and walks that use it: it is not freed */
	bool left;     /* BYE: no connection joins it, and it is freed with its last one */
	uint64_t left_since_ms;
	uint8_t key[SODA_KEY_BYTES]; /* of a tenant's client, instead of the secret; another one
					once it was adopted */
	struct soda_tokens tokens;   /* by which that is done */
	struct soda_wire_tell told;  /* the last; all zeros: it has told nothing of a pool */
	struct soda_clients *all;    /* this and below: constant */
	uint64_t id, secret;
	struct soda_tenant *tenant; /* NULL: the server is open */
	uint32_t chunk_bytes;	    /* 0: a tool, freed with its last connection */
	struct soda_peer_info info;
	int process; /* pidfd, where clients->own; -1: not known */
	struct soda_file_user
		user; /* whose files it may use, if neither the server's user nor root */
	struct soda_region_set regions; /* own locks */
};

struct soda_clients {
	struct soda_region_pool *pool; /* set before start, then constant, and so below */
	struct soda_tenants *tenants;  /* whose clients these are; NULL: the server is open */
	uint32_t max_clients;
	uint32_t grace_ms;
	bool allow_other; /* local peers of other users */
	bool own; /* clients are processes, not agents: one that has ended does not come back */
	uint64_t instance_id;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct soda_client *list;  /* guarded by lock, and so below */
	struct soda_shares shares; /* places of max_clients */
	bool draining;		   /* the server is about to end */
	_Atomic bool
		moving; /* it takes no new region, and what it has shall move away; any thread */
	_Atomic uint64_t spreads_ns; /* what it has may move until then; any thread */
	unsigned lost;		     /* files whose changes could not be written back */
	/* ending.c */
	pthread_t reaper;
	bool stopping;
	bool freeing; /* the reaper frees a client that is not in the list any more */
	struct soda_client *to_write, **to_write_end; /* whose files the writer writes, by `next` */
	bool writing;		   /* the writer has files of one in hand, or begins */
	uint64_t writing_since_ms; /* and so long those of this one */
	pthread_t writer;	   /* the reaper's alone, and so the next: to be joined */
	bool has_writer;
};

/* Make locks, instance id and reaper; the caller has set the constants. 0, negative errno. */
int soda_clients_start(struct soda_clients *clients);
/*
 * Free all clients, when no peer is connected any more. Returns how many files' changes were lost.
 */
unsigned soda_clients_stop(struct soda_clients *clients);
/* Refuse new clients and new regions from now on. */
void soda_clients_drain(struct soda_clients *clients);
bool soda_clients_draining(struct soda_clients *clients);
/*
 * An operator asks that programs move what they have here to other servers of their pools, or that
 * it may stay (SODA_WIRE_POOL_DRAIN, _KEEP). 0; -EPERM: the client may not ask that.
 */
int soda_clients_move(struct soda_client *client, bool away, struct soda_why *why);
/* The same, of SODA_WIRE_POOL_SPREAD: from now on for SODA_POOL_SPREAD_MS. */
int soda_clients_spread(struct soda_client *client, struct soda_why *why);
/* Whether it has been asked for within that time. */
bool soda_clients_spreading(struct soda_clients *clients);
/* How many clients have a connection; tools do not count. */
unsigned soda_clients_connected(struct soda_clients *clients);

/*
 * A connection has said HELLO.  As soda_service.hello.  Where the places of max_clients that it
 * may have are taken (base/shares.h), a client that is away and has no regions is freed for a new
 * one of its tenant; and the places of clients that end are waited for, at most for
 * SODA_SERVER_LEAVING_MS.  0; -ESTALE: no such client, wrong secret or
 * old epoch; -EINVAL: chunk size, or an epoch that leaps; -EPERM: another user, or another user's
 * or tenant's client, or a tenant's role; -EBUSY: too many clients, or connections of this one;
 * -ESHUTDOWN; -ENOMEM.
 */
int soda_client_hello(struct soda_clients *clients, struct soda_peer *peer,
		      const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		      struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why);
/*
 * A tenant has been removed: its clients' connections are closed, and its clients are freed as they
 * end.  Does not wait.
 */
void soda_clients_end_tenant(struct soda_clients *clients, struct soda_tenant *tenant);
/* BYE: close the client's data connections and regions. */
void soda_client_bye(struct soda_client *client);
/* BYE_LATER: its regions are closed when its connections end, which its process will do soon. */
void soda_client_bye_later(struct soda_client *client);
/*
 * Wait until no client is leaving, nor being freed, at most timeout_ms: a new process may ask for
 * memory or files before the end of an older process, which has them, is known here.  Does not wait
 * for a client that said BYE longer ago than SODA_SERVER_LEAVING_MS and is still connected, nor for
 * files of one if writing them has taken as long as that. Returns whether there was a client to
 * wait for, so that it pays to try again.
 */
bool soda_clients_await_leaving(struct soda_clients *clients, unsigned timeout_ms);
/*
 * TOKEN: the client has the token that is numbered `held`.  *token_p: what it is to have, wrapped.
 * 0; -ENOTSUP: this client is no tenant's; errors of trust/token.h.
 */
int soda_client_token(struct soda_client *client, uint32_t held, struct soda_wire_token *token_p,
		      struct soda_why *why);
/* The client has said what it has in its pool. */
void soda_client_told(struct soda_client *client, const struct soda_wire_tell *told);
/* A connection of the client has ended. As soda_service.gone. */
void soda_client_gone(struct soda_client *client, struct soda_peer *peer);

#endif
