/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link to the memory server, or to the agent before it, as everybody may see it: whether it is
 * up, what went wrong last, what the keeper is asked to do, and the control connection.  The keeper
 * (life/session.c) makes and breaks the connections and sets what is here; whoever meets a failure
 * reports it here, and whoever needs the server waits here.
 */
#ifndef SODA_HOST_LINK_H
#define SODA_HOST_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "transport/api/transport.h"

struct soda_link {
	char address[256]; /* set before start, then constant, and so is */
	int event_fd;	   /* what the keeper waits on */
	_Atomic bool stop;
	_Atomic uint32_t up;	   /* futex: 1 UP, 0 DOWN */
	_Atomic uint32_t breaks;   /* futex: how often all connections were closed */
	_Atomic uint32_t restarts; /* see soda_link_restarts(); the keeper changes it */
	_Atomic uint32_t meeting;  /* see soda_link_meeting(); the keeper changes it */
	_Atomic bool failed;	   /* a connection was reported since the last reconnection began */
	_Atomic uint32_t want_collector;
	_Atomic bool keyed;	     /* there is a static cache that is read by keys */
	_Atomic uint32_t want_keyed; /* futex: 1 until the channels have been made to reach it */

	struct soda_lock lock;
	struct soda_conn *control; /* guarded by lock; NULL while DOWN; the keeper changes it */
};

extern struct soda_link soda_link;

/* Before the keeper starts: down, with this address. Negative errno. */
int soda_link_start(const char *address);
/* The keeper has ended and the control connection is closed. */
void soda_link_end(void);

/*
 * A connection failed with err; the keeper sees to it.  Of the control connection: with its lock
 * held (soda_link_control_acquire), for a later report would be taken for one of the next
 * connection. AS.
 */
void soda_link_report(int err);
/* Whether it is UP. AS. */
static inline bool soda_link_up(void)
{
	/* pairs with the keeper's store of 1: all connections are there */
	return atomic_load_explicit(&soda_link.up, memory_order_acquire);
}
/* Wait until it is; -ETIMEDOUT.  Time that the process stood still for does not count. AS. */
int soda_link_wait(uint64_t deadline_ns);

/* "tcp://10.0.0.1:7001: connection refused", for messages. AS. */
const char *soda_link_trouble(void);
/* The keeper's: an attempt to connect failed. */
void soda_link_note_trouble(int err, const char *text);
/* The address. AS. */
const char *soda_link_peer(void);
/*
 * Goes up when a server is met that has none of our data, before what is resident becomes dirty
 * for that, and again when all of it is, however many attempts that takes: odd in between.
 */
uint32_t soda_link_restarts(void);

/*
 * How often a server was met that has none of our objects.  An object that is opened meanwhile
 * compares (soda_region.meeting). Any thread.
 */
static inline uint32_t soda_link_meeting(void)
{
	return atomic_load(&soda_link.meeting);
}

/* The keeper looks at what it is asked for. AS. */
void soda_link_wake_keeper(void);
/* Chunks were asked for ahead of any fault: the keeper collects the answers as they come. AS. */
void soda_link_want_collector(void);
/* There are keys to an agent's static cache: the keeper makes the channels read by them. */
void soda_link_want_keyed(void);
/* Wait until it has, or has tried, no longer than connecting may take. */
void soda_link_await_keyed(void);

/* The control connection, locked (SESSION) until it is released; NULL while DOWN. */
struct soda_conn *soda_link_control_acquire(void);
void soda_link_control_release(void);
/* Counts the times that all connections were closed. */
uint32_t soda_link_breaks(void);
/* Wait until they have been once more than `breaks`, or the session ends. */
void soda_link_await_break(uint32_t breaks);

#endif
