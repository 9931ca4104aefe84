/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processor on which a data worker runs.
 *
 * A request and its answer are two hand-offs, client to worker and back, and each is cheap where
 * both run on one processor: the thread that is woken there follows the one that goes to sleep. The
 * kernel does not see to that.  It likes to wake a thread on an idle processor, and on a virtual
 * machine waking a processor that has halted costs more than the answer.  As long as there is an
 * idle one that goes on, hand-off after hand-off, and a fault takes twice as long, or more behind
 * an agent, whose hand-offs are four.
 *
 * So while all processors have a client to serve, each worker stays on a processor of its own,
 * if possible that of the client whose requests it takes; where two clients are on one, the one
 * whose worker is elsewhere is drawn there.  In all other cases the kernel places the workers,
 * which then are also free to use what is idle:
 * - there are more or fewer workers than processors that they may use, or only one;
 * - one of the workers is not busy: has less than SODA_HOME_LOOKS requests in SODA_HOME_BUSY_NS.
 *   Homes that are there end only when that has been so for SODA_HOME_LEAVE_NS;
 * - the client is on another machine: only requests of this machine's processes count;
 * - somebody else has changed a worker's affinity since (taskset -ap PID): that worker keeps what
 *   it was given and has no home any more, and so it does not count as busy for the others either.
 *
 * A home is used by its worker's thread alone; homes of one listener share a struct soda_homes.
 */
#ifndef SODA_SERVER_HOME_H
#define SODA_SERVER_HOME_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SODA_HOMES_MAX = 64,		/* processors; with more of them no worker has a home */
	SODA_HOME_LOOKS = 64,		/* requests from one look at the situation to the next */
	SODA_HOME_BUSY_NS = 100000000,	/* longer between two looks: the worker is not busy */
	SODA_HOME_LEAVE_NS = 500000000, /* not busy for so long: homes end */
};

/* All workers of a listener.  Index i: worker i. */
struct soda_homes {
	cpu_set_t may_use;		   /* while no worker has a home */
	unsigned n;			   /* 0: no worker has a home */
	atomic_flag exchanging;		   /* held while two entries of `cpu` are exchanged */
	_Atomic int cpu[SODA_HOMES_MAX];   /* where the worker is to be: no two are the same */
	_Atomic int wants[SODA_HOMES_MAX]; /* where its client is, if that is elsewhere; or -1 */
	_Atomic uint64_t busy_ns[SODA_HOMES_MAX]; /* when it was last busy */
};

struct soda_home {
	struct soda_homes *all;
	unsigned self;	   /* number of the worker */
	unsigned requests; /* since the last look */
	uint64_t looked_ns;
	int candidate; /* where its client was at the last look, if that is elsewhere; or -1 */
	int bound;     /* where the worker is bound to, or -1 */
	bool left;     /* to somebody else, who has changed its affinity: for ever */
};

/* `workers` threads will serve a listener; they may use the processors that the caller may. */
void soda_homes_init(struct soda_homes *all, unsigned workers);
void soda_home_init(struct soda_home *h, struct soda_homes *all, unsigned self);

/*
 * One look at time now_ns (soda_now_ns): where the worker is to be bound to, or -1: anywhere.
 * client_cpu: where the client ran that sent the last request, or -1.
 */
int soda_home_decide(struct soda_home *h, uint64_t now_ns, int client_cpu);

/* The processor from which the last packet of a connection within this machine came, or -1. */
int soda_home_cpu_of(int fd);
/*
 * Decide, and bind the calling thread, the worker, accordingly; unless its affinity is not the one
 * that it has from here, or had at the start.
 */
void soda_home_look(struct soda_home *h, int client_cpu);

/*
 * The worker, which calls this, has taken `n` requests of a client on this machine. True: it is
 * time for soda_home_look.
 */
static inline bool soda_home_count(struct soda_home *h, unsigned n)
{
	h->requests += n;
	return h->requests >= SODA_HOME_LOOKS;
}

#endif
