/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paging, the agent's first service: carries out programs' READs and WRITEs of regions of the
 * memory server.  A pager is paging's state for one client: connections to the memory server, on
 * which the agent is that client (upstream.h), the client's regions, and its requests.
 *
 *   paging.c      the service's hooks and control calls
 *   upstream.c    a client's connections to the server, and its regions
 *   forward.c     makes transfers of requests, and answers of transfers
 *   turns.c       how much a client may have under way, and whose turn it is
 *   write_list.c  WRITEs that are not on the server yet
 *   allotment.c   memory for both, which tenants share
 *   caches.c      how requests use the static and the dynamic cache
 *   sealing.c     what is sealed on its way to the server
 *   sealed_files.c  files that are sealed at rest
 *   store.c       how READs use the node's store
 *   place.c       WRITEs that another service of the agent makes in a client's name
 */
#ifndef SODA_DPU_AGENT_PAGING_H
#define SODA_DPU_AGENT_PAGING_H

#include "client/server.h"
#include "dpu_agent/paging/allotment.h"
#include "dpu_agent/paging/caches.h"
#include "dpu_agent/paging/sealing.h"
#include "dpu_agent/paging/store.h"
#include "dpu_agent/paging/turns.h"
#include "dpu_agent/paging/write_list.h"
#include "dpu_agent/session/session.h"
#include "dpu_agent/upstream/channel.h"
#include "dpu_agent/upstream/complete.h"

/* A client's region. */
struct soda_paging_region {
	struct soda_mr mr;
	uint32_t flags; /* as in OPEN */
	uint64_t file_id, generation;
	struct soda_sealing *sealing; /* NULL: it is not sealed */
	/* as the client has it: mr.bytes, but of a file that is sealed here only what it is for */
	uint64_t bytes, data_at; /* whole pages; where that begins in mr */
	uint64_t charged;	 /* to the tenant's quota */
	unsigned holds; /* requests that use it; this and below: guarded by session->lock */
	struct soda_region_cache cache;
	struct soda_node_member member; /* in the node's store; changed with session->lock */
	struct soda_node_object *_Atomic object; /* the same's, for requests */
	bool closing;	  /* a CLOSE or a commit is under way: its WRITEs are not posted */
	bool committing;  /* sealed_files.h: a thread is, or discards a part */
	unsigned placing; /* threads of place.c that write to it, and wait while it is committing */
	int lost; /* error of acknowledged WRITEs that the server refused, until a SYNC reports it
		   */
};

/* A client's READ, or without async a WRITE. It holds its region. */
struct soda_task {
	struct soda_task *next;
	struct soda_request *rq;
	struct soda_session *session;
	struct soda_paging_region *region;
	bool credited;			 /* it has passed the gate: pager->read_bytes counts it */
	struct soda_cache_waiter waiter; /* while it waits for an entry of the dynamic cache */
	struct soda_node_waiter stored;	 /* while it waits for a chunk of the node's store */
	unsigned tries;			 /* of a READ that passed WRITEs (sealing.h) */
	bool fill;			 /* its data are for the store (soda_paging_store_filled) */
};

struct soda_pager {
	struct soda_paging *paging;
	struct soda_server server; /* driven by the thread that holds session->life; upstream.h */
	/*
	 * When the keeper's hands first failed to reconnect for a client that has gone; 0: not
	 * since the last success, or since the client said HELLO last. Guarded by life.
	 */
	uint64_t orphan_since_ms;

	/*
	 * for READs, then one for WRITEs, then for sealed files' own parts, then the caches'; set
	 * before the session is in the table
	 */
	struct soda_channel *channels;
	unsigned channels_n;

	struct {
		struct soda_paging_region *region; /* NULL: nothing was lost */
		int err;
		unsigned joined; /* session->joined when that answer was given */
	} said;			 /* a loss that the last call's answer reported; guarded by
				    session->lock, and so below */
	struct soda_paging_region **regions;  /* 65,536 */
	unsigned regions_end;		      /* no region ever had this number or a higher one */
	struct soda_task *queue, **queue_end; /* READs (without async WRITEs, too) to be posted */
	struct soda_task *gate, **gate_end;   /* READs that wait for room (turns.h) */
	bool opening;			      /* a thread is letting READs pass the gate */
	uint64_t read_bytes; /* of READs that have passed it, until they are answered */
	struct soda_write_list writes;
	/*
	 * As of the last connections: our server is an agent in front of a pool, and keeps for us
	 * what clients want kept, and encodes it; `secret` is who we are there, which with tenants
	 * our client is not told.
	 */
	bool keeps, codes;
	uint64_t secret;

	struct soda_lane *lane; /* guarded by the schedule's lock, and so below; NULL: never up */
	bool scheduled;
	struct soda_session *next_turn;
};

struct soda_paging {
	const struct soda_dpu_options *opt; /* set before start, then constant, and so below */
	bool async, aggregate;
	unsigned channels; /* for READs, of each session */
	bool near;	   /* async: a worker itself waits for a READ's answer for a moment */
	struct soda_completers completers;
	struct soda_schedule schedule;
	struct soda_gates gates;
	struct soda_allotment writes; /* memory for WRITEs' data, of all sessions */
	struct soda_caches caches;
	struct soda_sealer sealer;
	struct soda_node_store *store; /* NULL: none */
	_Atomic bool server_is_agent;  /* as of the last connection to it */
};

/* place.c */
extern const struct soda_agent_regions soda_paging_regions;

/*
 * Start paging and register it as the first service of these sessions.  workers: threads that serve
 * connections.  0, negative errno: nothing has been started.
 */
int soda_paging_start(struct soda_paging *paging, struct soda_sessions *all, unsigned workers,
		      unsigned processors);
/* Before the sessions end: the caches post no READs of their own any more. */
void soda_paging_drain(struct soda_paging *paging);
/* End the threads, when no session is left. */
void soda_paging_stop(struct soda_paging *paging);

/*
 * The first service's state lies right behind its session in memory, so that no request looks it
 * up.
 */
static inline struct soda_pager *soda_pager(struct soda_session *s)
{
	return (struct soda_pager *)(s + 1);
}

static inline struct soda_paging *soda_paging(struct soda_session *s)
{
	return soda_pager(s)->paging;
}

/* The client's region of that id, or NULL. The session's lock is held. */
static inline struct soda_paging_region *soda_region_find_locked(struct soda_session *s,
								 uint16_t id)
{
	return soda_pager(s)->regions[id];
}

/* Whether acknowledged data of the region are lost, and the client does not know it yet. */
static inline bool soda_region_untold_locked(struct soda_session *s,
					     const struct soda_paging_region *r)
{
	return r->lost || soda_pager(s)->said.region == r;
}

/* Give a hold of the region back; wakes threads that wait for the last one. */
static inline void soda_region_unhold_locked(struct soda_session *s, struct soda_paging_region *r)
{
	if (--r->holds == 0)
		pthread_cond_broadcast(&s->changed);
}

/*
 * The client has sent a call: if it is on the same connection as the one before, the client has had
 * the answer to that one, and knows of a loss which it reported.
 */
void soda_paging_heard(struct soda_session *s);

/*
 * TOKEN: what the server gives the client next is passed on, bound to its tenant.  0; -ENOTSUP:
 * this agent has no tenants, or the server has none; errors of a call to the server.
 */
int soda_paging_token(struct soda_session *s, const void *body, size_t bytes,
		      struct soda_reply *reply);

#endif
