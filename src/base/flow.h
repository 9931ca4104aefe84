/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fair shares of a listener's data workers (docs/internals/tenants.md).  A flow is all that one
 * tenant asks for, on whatever connections.  It may be limited to a rate; and where requests of
 * several flows wait at one worker, each has a turn of so many bytes, by its weight, before any has
 * the next: deficit round robin (Shreedhar, Varghese 1995, section 3).  Workers know of each other
 * by what each flow has got from all of them: one that is ahead of those that it waits with has
 * short turns until it is not.  A flow that does not wait counts for nobody, so nothing that could
 * be served stands still.  A connection without a flow is served as if there were none.
 */
#ifndef SODA_BASE_FLOW_H
#define SODA_BASE_FLOW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SODA_FLOW_TURN = 128 << 10,	  /* bytes, of weight 1 */
	SODA_FLOW_AHEAD = 512 << 10,	  /* of others, in bytes by weight: turns are short */
	SODA_FLOW_SHORT = 8,		  /* then, and by so much */
	SODA_FLOW_REQUEST = 4 << 10,	  /* what a request costs beside its bytes */
	SODA_FLOW_BURST_NS = 20000000,	  /* of a rate, after a pause */
	SODA_FLOW_PATIENCE_NS = 50000000, /* the longest wait before it is looked at again */
	SODA_FLOW_WEIGHT_MAX = 100,
};

/* Any thread; the daemon's, longer than any connection of it. */
struct soda_flow {
	_Atomic uint32_t weight;
	_Atomic uint64_t got;	/* bytes by weight; what it did not want while others waited, too */
	_Atomic uint32_t waits; /* at so many workers */
	_Atomic uint64_t delayed; /* requests that the rate has made wait */
	_Atomic bool limited;	  /* there is a rate */
	pthread_mutex_t lock;	  /* a leaf */
	uint64_t bytes_per_s;	  /* guarded by lock, and so below; 0: no limit */
	uint64_t requests_per_s;
	uint64_t bytes_until_ns; /* until then the past has used up the rate, and so the next */
	uint64_t requests_until_ns;
};

void soda_flow_init(struct soda_flow *flow);
void soda_flow_destroy(struct soda_flow *flow);
/* 0: no limit; weight: 1 to SODA_FLOW_WEIGHT_MAX. */
void soda_flow_set(struct soda_flow *flow, uint64_t bytes_per_s, uint64_t requests_per_s,
		   uint32_t weight);

/*
 * A request of so many bytes wants to go on at this time: 0: it may, and is counted; else in so
 * many nanoseconds it may ask again.
 */
uint64_t soda_flow_take(struct soda_flow *flow, uint32_t bytes, uint64_t now_ns);

/* A flow at one worker; that worker's alone. */
struct soda_flow_share {
	struct soda_flow *flow;
	struct soda_flow_share *next;
	unsigned conns;
	uint64_t round;	    /* of the worker, that `left` is of */
	int64_t left;	    /* bytes of its turn; a request that begins within it is served whole */
	uint64_t waited_in; /* the round in which it last waited for its turn; 0: never */
	bool waits;	    /* counted in flow->waits */
};

/*
 * May it go on, in this round?  alone: no other flow has connections at this worker; least: what
 * the flow has got that has got least of those that waited in the round before, or 0.  As
 * soda_flow_take; 1: in the next round.
 */
uint64_t soda_flow_share_take(struct soda_flow_share *share, uint64_t round, bool alone,
			      uint64_t least, uint32_t bytes);
/* A round has ended in which the share was not served to its turn's end: it does not wait. */
void soda_flow_share_rest(struct soda_flow_share *share);

#endif
