/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paging, the agent's first service: READs and WRITEs of the memory server's regions, for
 * programs.  A pager is what it keeps for one client: its connections to the memory server, where
 * it is the same client (upstream.h), its regions, and its requests.
 *
 *   paging.c      the service's hooks and control calls
 *   upstream.c    a client's connections to the server, and its regions
 *   forward.c     from requests to transfers and back
 *   turns.c       how much a client may have under way, and whose turn it is
 *   write_list.c  WRITEs that are not on the server yet
 *   caches.c      the static and the dynamic cache as requests meet them
 */
#ifndef SODA_DPU_AGENT_PAGING_H
#define SODA_DPU_AGENT_PAGING_H

#include "client/server.h"
#include "dpu_agent/paging/caches.h"
#include "dpu_agent/paging/turns.h"
#include "dpu_agent/paging/write_list.h"
#include "dpu_agent/session/session.h"
#include "dpu_agent/upstream/channel.h"
#include "dpu_agent/upstream/complete.h"

/* A region as its client knows it. */
struct soda_paging_region {
	struct soda_mr mr;
	uint32_t flags; /* as in OPEN */
	uint64_t file_id, generation;
	unsigned holds; /* requests; this and below: guarded by session->lock */
	struct soda_region_cache cache;
	bool closing; /* a CLOSE is under way: WRITEs that would go with it are not posted */
	int lost;     /* error of accepted WRITEs that were refused, until a SYNC has told it */
};

/* A READ, or without async a WRITE, of a client. It holds its region. */
struct soda_task {
	struct soda_task *next;
	struct soda_request *rq;
	struct soda_session *session;
	struct soda_paging_region *region;
	bool credited;			 /* in through the gate: counted in pager->read_bytes */
	struct soda_cache_waiter waiter; /* while it waits for an entry of the dynamic cache */
};

struct soda_pager {
	struct soda_paging *paging;
	struct soda_server server; /* its driver is who has life; upstream.h */
	/*
	 * The keeper's hands have tried to reconnect in vain since then; 0: they have not since the
	 * last success, or since the client has last shown that it is there. Guarded by life.
	 */
	uint64_t orphan_since_ms;

	struct soda_channel
		*channels; /* set before it is in the table: READs, one for WRITEs, the caches' */
	unsigned channels_n;

	struct {
		struct soda_paging_region *region; /* NULL: nothing was lost */
		int err;
		unsigned joined; /* then */
	} said;			 /* by the answer to the last call; guarded by session->lock, and
				    so below */
	struct soda_paging_region **regions;  /* 65,536 */
	unsigned regions_end;		      /* no region ever had this number or a higher one */
	struct soda_task *queue, **queue_end; /* READs (without async: all) that wait */
	struct soda_task *gate, **gate_end;   /* READs that wait for room (turns.h) */
	bool opening;			      /* a thread lets them in */
	uint64_t read_bytes;		      /* of READs that are in and of answers not yet sent */
	struct soda_write_list writes;

	bool scheduled; /* guarded by the schedule's lock, and so below */
	struct soda_session *next_turn;
};

struct soda_paging {
	const struct soda_dpu_options *opt; /* set before start, then constant, and so below */
	bool async, aggregate;
	unsigned channels; /* for READs, a session */
	bool near;	   /* async: workers wait for answers that come soon themselves */
	struct soda_completers completers;
	struct soda_schedule schedule;
	struct soda_gates gates;
	_Atomic uint64_t reserved_bytes; /* the sessions' memory given for WRITEs, in all */
	struct soda_caches caches;
};

/*
 * Start, with this many threads that serve connections, and become a service of these sessions,
 * the first one.  0, negative errno: nothing has been started.
 */
int soda_paging_start(struct soda_paging *paging, struct soda_sessions *all, unsigned workers,
		      unsigned processors);
/* No READ of the caches' own begins any more; before the sessions end. */
void soda_paging_drain(struct soda_paging *paging);
/* No session is left. */
void soda_paging_stop(struct soda_paging *paging);

/* The first service's states lie right behind their sessions: no look-up for a request. */
static inline struct soda_pager *soda_pager(struct soda_session *s)
{
	return (struct soda_pager *)(s + 1);
}

static inline struct soda_paging *soda_paging(struct soda_session *s)
{
	return soda_pager(s)->paging;
}

/* Regions; the session's lock is held. */
static inline struct soda_paging_region *soda_region_find_locked(struct soda_session *s,
								 uint16_t id)
{
	return soda_pager(s)->regions[id];
}

/* Whether the client has still to hear that something of it is lost. */
static inline bool soda_region_untold_locked(struct soda_session *s,
					     const struct soda_paging_region *r)
{
	return r->lost || soda_pager(s)->said.region == r;
}

/* A hold is given back: wakes the threads that await that. */
static inline void soda_region_unhold_locked(struct soda_session *s, struct soda_paging_region *r)
{
	if (--r->holds == 0)
		pthread_cond_broadcast(&s->changed);
}

/* The client has asked for more on a connection: it has heard the answer to its last call. */
void soda_paging_heard(struct soda_session *s);

#endif
