/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every time-out and every limit of the three agents that no option sets, in one place: who may
 * wait how long for whom, how often somebody looks, and how much of something there may be.
 * What a user may set is in the tables of options (host_agent/core/settings.c,
 * mem_server/life/options.c, dpu_agent/life/options.c).  What tunes a loop (how long it spins, how
 * many it takes in one turn) is at the loop; what a layout in memory or on the wire holds is at the
 * layout.
 *
 * A time-out means: the peer has not answered, and its answer may still come.  So the connection is
 * not used again (failure.h counts -ETIMEDOUT as "connection lost"), whoever waited is told
 * -ETIMEDOUT, and the request itself is repeated only where its own time is not over.  Time that
 * a program stood still for (stopped, frozen, swapped out) does not count
 * (soda_stood_still).
 */
#ifndef SODA_COMMON_LIMITS_H
#define SODA_COMMON_LIMITS_H

/* Connections: either side, every transport. */
enum {
	SODA_CONNECT_MS = 5000,	   /* connecting and HELLO, where the caller has no limit */
	SODA_HELLO_MS = 5000,	   /* a listener, for the HELLO of a stranger */
	SODA_CALL_BODY_MS = 30000, /* a daemon, for the rest of a call, or to get its answer out */
	SODA_FLUSH_STALL_MS = 30000,   /* a flush, without any progress at all */
	SODA_TCP_USER_MS = 30000,      /* the kernel, for an acknowledgment (TCP_USER_TIMEOUT) */
	SODA_TCP_KEEPALIVE_S = 10,     /* a silent TCP connection is probed this often... */
	SODA_TCP_KEEPALIVE_PROBES = 3, /* ...and so often, before it has ended */
	SODA_VERBS_PROBE_MS = 5000,    /* a peer that says nothing is looked for this often... */
	SODA_VERBS_SILENT_MS = 20000,  /* ...and has gone, if its adapter says nothing, either */
	SODA_VERBS_LAST_MS = 5,	       /* the last answers, when a queue pair ends */
	SODA_VERBS_DRAIN_MS = 10,      /* what the adapter still has of an ended connection */
	SODA_NO_DESCRIPTORS_MS = 100,  /* an acceptor that has none left waits so long */

	SODA_CONNECTIONS_MAX = 4096, /* peers of a listener, where no option says otherwise */
	SODA_STRANGERS_MAX = 1024,   /* connections without a HELLO */
	SODA_LISTENERS_MAX = 16,     /* addresses of a daemon */
	SODA_DEPTH = 64,	     /* requests under way of a connection, where nobody asked */
	SODA_DEPTH_MAX = 1024,
	SODA_PEER_GROUPS_MAX = 64, /* supplementary groups of a local peer that are known */
};

/* Every daemon. */
enum {
	SODA_WAIT_TELL_MS = 10000, /* a wait for another thread is told to the log so often */
};

/* The host agent. */
enum {
	SODA_KEEPER_TICK_MS = 250,  /* the keeper looks at least so often */
	SODA_KEEPER_COLLECT_MS = 2, /* an answer that nobody takes lies no longer */
	SODA_RETRY_MIN_MS = 20,	    /* between two attempts to connect, doubling... */
	SODA_RETRY_MAX_MS = 500,    /* ...up to this */
	SODA_GOODBYE_MS = 1000,	    /* BYE, at the program's end */
	SODA_REVOKE_MS = 2000,	    /* an agent that installs pages, to finish or to revoke */
	SODA_REVOKE_LOOK_MS = 2,
	SODA_RETIRE_MS = 90000, /* soda_free, for what is under way in the object's chunks */
	SODA_REOPEN_MS = 3000,	/* a new server, to have memory for all objects */
	SODA_REOPEN_LOOK_MS = 20,
	SODA_REFUSED_MIN_MS =
		1000, /* what the server has refused is asked for again, doubling... */
	SODA_REFUSED_MAX_MS = 30000,  /* ...up to this */
	SODA_STILL_MS = 500,	      /* a wait that took so much longer: we did not run */
	SODA_COLLECT_LOOK_MS = 2000,  /* a wait for an answer is cut into pieces, to see that */
	SODA_SYNC_LOOK_MS = 100,      /* soda_sync looks at its chunks at least so often */
	SODA_WRITEBACK_LOOK_MS = 200, /* the write-back thread looks at its queue so often */
	SODA_MEMORY_MS = 10000,	      /* the kernel, to find a page for half a chunk */
	SODA_MEMORY_LOOK_MS = 10,
	SODA_FAILED_PAGE_MS = 250,    /* a page that could not be had fails so long for everybody */
	SODA_HANDLER_IDLE_MS = 1000,  /* handler mode looks so often for what it is to do */
	SODA_BUFFER_SHRINK_MS = 1000, /* shrinking the page buffer, when an object goes */

/* The simulation's seeds are short, and a full queue or a full buffer is to be among them. */
#ifdef SODA_SIMULATION
	SODA_EVICT_LOOK_MS = 20,
	SODA_WRITEBACK_QUEUE = 32,
#else
	SODA_EVICT_LOOK_MS = 2,	     /* a fault that waits for a credit looks so often itself */
	SODA_WRITEBACK_QUEUE = 8192, /* dirty chunks that wait to be sent */
#endif

	SODA_THREADS_MAX = 4096,     /* that fault, of a program */
	SODA_REGIONS_MAX = 65535,    /* objects; ids have 16 bits */
	SODA_WRITEBACK_DEPTH = 512,  /* WRITEs under way on the write-back connection */
	SODA_DEMAND_DEPTH = 128,     /* requests under way on a thread's own connection */
	SODA_CHANNEL_PAIRS_MAX = 64, /* connections for demand, and for what is fetched ahead */
	SODA_SLOTS_MAX = 256,	     /* staging slots of one connection */
};

/* The DPU agent. */
enum {
	SODA_DPU_TICK_MS = 100,	    /* the keeper looks so often */
	SODA_DPU_LEAVING_MS = 2000, /* an OPEN, for clients that say BYE just now */
	SODA_DPU_LEAVING_LOOK_MS = 5,
	SODA_DPU_AWAIT_LOOK_MS = 100, /* a wait for the server is cut into pieces */

	SODA_DPU_HANDS = 4, /* threads that wait for the server for clients that have gone */
	SODA_DPU_LOSSES_MAX = 1024, /* clients whose data the agent knows to have lost */
};

/* The memory server. */
enum {
	SODA_SERVER_LEAVING_MS = 2000, /* an OPEN, for clients that say BYE just now */
	SODA_SERVER_LEAVING_LOOK_MS = 10,
	SODA_DRAIN_LOOK_MS = 50, /* a daemon that drains looks so often who is left */

	SODA_KEPT_MAX = 4096,	  /* closed regions whose descriptors clients keep */
	SODA_PUNCHED_MAX = 16384, /* mappings of huge pages that clients may punch holes in */
};

/* The endpoint of metrics. */
enum {
	SODA_METRICS_IDLE_S = 5,	   /* a visitor who sends and takes nothing is let go */
	SODA_METRICS_FRESH_MS = 200,	   /* the same page is given again for so long */
	SODA_METRICS_CONNECTIONS_MAX = 32, /* one more ends the oldest */
	SODA_METRICS_REQUEST_MAX = 8192,   /* bytes, with its answer's head */
};

/*
 * A client counts its reconnections, and so does an agent, which has the client's count in its high
 * bits.  Whoever leaps ahead of that would lock the client out: it is refused.
 */
#define SODA_EPOCH_STEP_MAX (UINT64_C(1) << 20)
#define SODA_AGENT_EPOCH_SHIFT 16
#define SODA_SERVER_EPOCH_STEP_MAX (SODA_EPOCH_STEP_MAX << SODA_AGENT_EPOCH_SHIFT)

#define SODA_MS_NS UINT64_C(1000000) /* nanoseconds of a millisecond */

#endif
