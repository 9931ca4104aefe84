/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host agent's link to a memory server, or to the agent before it: the session with it
 * (client/server.h), and what the keeper, its driver (life/session.c), is asked to do.  Objects
 * know theirs (soda_region.link).
 */
#ifndef SODA_HOST_LINK_H
#define SODA_HOST_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/server.h"

struct soda_writeback;

struct soda_link {
	struct soda_server server; /* its owner is the link */
	uint32_t pairs;		   /* of data channels */
	pthread_t keeper;
	bool keeper_runs;
	int event_fd;		   /* what the keeper waits on */
	_Atomic uint32_t restarts; /* see soda_link_restarts(); the keeper changes it */
	_Atomic uint32_t meeting;  /* see soda_link_meeting(); the keeper changes it */
	_Atomic uint32_t want_collector;
	_Atomic bool unclosed;	     /* objects are gone that the server has still */
	_Atomic bool keyed;	     /* there is a static cache that is read by keys */
	_Atomic uint32_t want_keyed; /* futex: 1 until the channels have been made to reach it */
	struct soda_writeback *writeback; /* move/writeback.h; kept when the link ends */
};

/* Before the keeper starts: CONNECTING, to this address. Negative errno. */
int soda_link_start(struct soda_link *link, const char *address, int connect_ms,
		    const struct soda_server_hooks *hooks);
/* The keeper has ended and the connections are closed. */
void soda_link_end(struct soda_link *link);

/*
 * Goes up when a server is met that has none of our data, before what is resident becomes dirty
 * for that, and again when all of it is, however many attempts that takes: odd in between.
 */
static inline uint32_t soda_link_restarts(const struct soda_link *link)
{
	return atomic_load(&link->restarts);
}

/*
 * How often a server was met that has none of our objects.  An object that is opened meanwhile
 * compares (soda_region.meeting). Any thread.
 */
static inline uint32_t soda_link_meeting(const struct soda_link *link)
{
	return atomic_load(&link->meeting);
}

/* The keeper looks at what it is asked for. AS. */
void soda_link_wake_keeper(struct soda_link *link);
/* Chunks were asked for ahead of any fault: the keeper collects the answers as they come. AS. */
void soda_link_want_collector(struct soda_link *link);
/* There are keys to an agent's static cache: the keeper makes the channels read by them. */
void soda_link_want_keyed(struct soda_link *link);
/* Wait until it has, or has tried, no longer than connecting may take. */
void soda_link_await_keyed(struct soda_link *link);

#endif
