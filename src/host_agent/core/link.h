/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host agent's link to a memory server, or to a DPU agent: the session with the server
 * (client/server.h), and what other threads ask of the keeper, the thread that drives the session
 * (life/session.c).  Each object knows its link (soda_region.link).
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_LINK_H
#define SODA_HOST_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/server.h"
#include "wire/pool.h"

struct soda_writeback;

struct soda_link {
	struct soda_server server;   /* its owner is the link */
	uint32_t index;		     /* in soda_agent.links */
	_Atomic uint64_t free_bytes; /* of the server, as far as we know: the pool's placement */
	/*
	 * Of a pool: the name of the server's failure domain, "" where it has none, guarded by
	 * soda_regions_lock; and the lowest index of a member in the same one.  pool/member.c.
	 */
	char domain_name[SODA_WIRE_DOMAIN_MAX + 1];
	_Atomic uint32_t domain;
	_Atomic bool draining;	/* it takes nothing new, and what is there moves away */
	_Atomic bool spreading; /* what is there may move to who has more free */
	_Atomic uint32_t held;	/* enum soda_wire_held: why some of that does not */
	bool asks_nothing; /* the server does not know SODA_MSG_POOL; the keeper's, and so next */
	uint64_t asked_ns; /* when it was asked last */
	_Atomic uint64_t heard_ns; /* when it has answered last */
	uint32_t pairs;		   /* of data channels */
	/* Where the keeper is to look for the server, which is away: set by soda_servers_moved(),
	   while `moves` is false, which is made true then; the keeper makes it false again. */
	char moves_to[SODA_ADDRESS_MAX + 1];
	_Atomic bool moves;
	/* Who we are to the server that was met last, and a secret that shows it. */
	_Atomic uint64_t client_id, secret;
	_Atomic uint64_t instance; /* which server that was; 0: none yet */
	pthread_t keeper;
	bool keeper_runs;
	pthread_t closer; /* closes regions that are left (session.c); the keeper's, and so next */
	bool closer_runs;
	_Atomic bool closer_ended;	 /* it can be joined */
	int event_fd;			 /* eventfd; the keeper waits on it */
	_Atomic uint32_t restarts;	 /* see soda_link_restarts(); the keeper changes it */
	_Atomic uint32_t meeting;	 /* see soda_link_meeting(); the keeper changes it */
	_Atomic uint32_t want_collector; /* see soda_link_want_collector() */
	_Atomic uint32_t late; /* READs that have not been answered when the chunk was asked for
				  elsewhere; the server is not asked for others then */
	_Atomic uint64_t expelled_ns; /* when its copies of slabs became stale; 0: it is UP, or away
					 for a moment */
	_Atomic bool gone; /* and an attempt to connect, of all the time that it may take, failed */
	_Atomic bool unclosed;	     /* objects were freed whose regions the server still has */
	_Atomic bool keyed;	     /* an object has keys to an agent's static cache */
	_Atomic uint32_t want_keyed; /* futex: 1 until the channels have been made to reach it */
	struct soda_writeback *writeback; /* move/writeback.h; stays when the link ends */
};

/* Before the keeper starts: set the link up for this address, not connected yet. Negative errno. */
int soda_link_start(struct soda_link *link, const char *address, int connect_ms,
		    const struct soda_server_hooks *hooks);
/* After the keeper has ended and the connections are closed: free what start took. */
void soda_link_end(struct soda_link *link);

/*
 * How many times a server was met that has none of our data, counted twice: before the resident
 * chunks become dirty for that server, and when all of them are, after however many attempts.  Odd
 * in between. Any thread.
 */
static inline uint32_t soda_link_restarts(const struct soda_link *link)
{
	return atomic_load(&link->restarts);
}

/*
 * How often a server was met that has none of our objects.  By comparing it with
 * soda_region.meeting recover.c tells whether an object was opened on the present server. Any
 * thread.
 */
static inline uint32_t soda_link_meeting(const struct soda_link *link)
{
	return atomic_load(&link->meeting);
}

/*
 * A chunk has been in use for longer than a fault may take: the server counts as silent, and its
 * connections are made anew, which ends READs and WRITEs under way.
 */
void soda_link_silent(struct soda_link *link);
/* Wake the keeper, which looks at what is asked of it. AS. */
void soda_link_wake_keeper(struct soda_link *link);
/* READs ahead were posted: the keeper shall collect the answers that no thread collects. AS. */
void soda_link_want_collector(struct soda_link *link);
/* There are keys to an agent's static cache: the keeper shall make the channels reach it. */
void soda_link_want_keyed(struct soda_link *link);
/* Wait until the keeper has done that, or has failed; no longer than connecting may take. */
void soda_link_await_keyed(struct soda_link *link);

/* Our slabs on that server are so many bytes more, or less, until it says anew what it has free. */
void soda_link_took(struct soda_link *link, uint64_t bytes);
void soda_link_gave(struct soda_link *link, uint64_t bytes);

#endif
