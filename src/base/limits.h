/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every time-out and every limit of the three agents that no option sets, in one place.
 * Those that a user may set are in the tables of options (host_agent/core/settings.c,
 * mem_server/life/options.c, dpu_agent/life/options.c).  Numbers that tune one loop (how long it
 * spins, how many it takes in one turn) stand at the loop; limits of a layout, in memory or on the
 * wire, at the layout.
 *
 * A time-out means: the peer has not answered, and its answer may still come.  So the connection is
 * not used again (failure.h counts -ETIMEDOUT as "connection lost"), the waiting thread gets
 * -ETIMEDOUT, and the request itself is made again only while its own time is not over.  Time that
 * a program stood still for (stopped, frozen, swapped out) does not count
 * (soda_stood_still).
 */
#ifndef SODA_BASE_LIMITS_H
#define SODA_BASE_LIMITS_H

/* Connections: either side, every transport. */
enum {
	SODA_CONNECT_MS = 5000, /* connecting and HELLO, where the caller sets no limit */
	SODA_HELLO_MS = 5000,	/* a listener waits so long for the HELLO of a new connection */
	SODA_CALL_BODY_MS =
		30000, /* a daemon waits so long for the rest of a call, or to send its answer */
	/* the same for the rest of a WRITE, and for a client to take an answer; looked at so often
	   within that time, and once more before the connection ends */
	SODA_STUCK_MS = 30000,
	SODA_STUCK_LOOKS = 3,
	SODA_NAME_FRESH_MS = 1000, /* a name's addresses are used for so long without a look-up, */
	SODA_NAME_WAIT_MS = 50,	   /* and then that is waited for so long */
	SODA_FLUSH_STALL_MS = 30000,   /* a flush, without any progress at all */
	SODA_TCP_USER_MS = 30000,      /* the kernel, for an acknowledgment (TCP_USER_TIMEOUT) */
	SODA_TCP_KEEPALIVE_S = 10,     /* a silent TCP connection is probed this often... */
	SODA_TCP_KEEPALIVE_PROBES = 3, /* ...and so often, before it has ended */
	SODA_CONN_CALLS = 8,	       /* calls that may be under way on a control connection */
	SODA_VERBS_PROBE_MS = 5000,    /* a silent peer is probed this often... */
	SODA_VERBS_SILENT_MS = 20000,  /* ...and counts as gone if its adapter is silent so long */
	SODA_VERBS_LAST_MS = 5,	  /* a queue pair that ends waits so long for the last answers */
	SODA_VERBS_DRAIN_MS = 10, /* for completions of an ended connection in the adapter */
	SODA_NO_DESCRIPTORS_MS = 100, /* an acceptor without free descriptors pauses so long */

	SODA_ADDRESS_MAX = 511,	     /* bytes of a server's address, without its end */
	SODA_CONNECTIONS_MAX = 4096, /* peers of a listener, where no option is given */
	SODA_STRANGERS_MAX = 1024,   /* connections without a HELLO */
	SODA_LISTENERS_MAX = 16,     /* addresses of a daemon */
	SODA_DEPTH = 64,	     /* requests under way on a connection, by default */
	SODA_DEPTH_MAX = 1024,	     /* and at most */
	SODA_PEER_GROUPS_MAX = 64,   /* supplementary groups of a local peer that are looked at */
	SODA_TENANTS_MAX = 1024,     /* of a server's tenants file */
	SODA_TENANT_EXPORTS_MAX = 8, /* directories of one tenant */
	SODA_TENANTS_FILE_MAX = 4 << 20,
};

/* Every daemon. */
enum {
	SODA_WAIT_TELL_MS = 10000, /* a wait for another thread (wait.h) is logged so often */
};

/* The host agent. */
enum {
	SODA_KEEPER_TICK_MS = 250, /* the keeper's tick */
	/*
	 * With redundancy: a server is asked whether it is there so often, is silent after so long
	 * without an answer, and counts as away when it cannot be connected to within so long.
	 */
	SODA_COPIES_PING_MS = 100,
	SODA_MEMBER_ASK_MS = 1000, /* without redundancy so often, for its domain and free memory */
	SODA_MEMBER_ANSWER_MS = 5000, /* and the answer is waited for so long */
	SODA_MEMBER_COUNT_MS = 1000,  /* what a program tells of its slabs is counted so often */
	SODA_SILENT_MS = 900,
	/* A call has the control connection for so long: the server is asked on another one
	   (watch.c), which stays until nobody had to ask for so long. */
	SODA_WATCH_WAIT_MS = 100,
	SODA_WATCH_REST_MS = 5000,
	SODA_WATCH_GOODBYE_MS = 100,
	SODA_COPIES_CONNECT_MS = 150,
	SODA_COPIES_BEHIND_MS = 400, /* the same through an agent, which connects to the server */
	SODA_COPIES_BEHIND_SILENT_MS = 250, /* of one that was silent before: others wait already */
	SODA_COPIES_AWAY_MS = 100, /* no attempt has succeeded for so long: its copies are stale */
	SODA_COPIES_RETURN_MS = 3000, /* the same, where all servers were away, and one is back */
	SODA_REBUILD_AWAY_MS = 3000,  /* and now they are rebuilt on other servers */
	SODA_REBUILD_LOOK_MS = 100,   /* copies to rebuild are looked for so often... */
	SODA_REBUILD_PAUSE_MS = 500,  /* ...and after a failure */
	SODA_FILES_LOOK_MS = 50,      /* a READ_ONLY file on a pool is looked at so often */
	SODA_FILES_LEARN_MS = 1000,   /* what is being computed, or fails, is asked for again */
	SODA_FILES_AGAIN_MS = 10000,  /* and a server that has no such file, or another one */
	SODA_FILES_ANSWER_MS = 5000,  /* what a file has is answered within */
	SODA_REBUILD_RETIRED_MS =
		60000,	   /* what a replaced copy was is not used again for so long */
	SODA_HEDGE_MS = 5, /* a READ that takes longer is asked for at the other copy's server; */
	SODA_HEDGE_SHARE = 20, /* one in so many of a thread's READs at most, */
	SODA_HEDGE_SPARE = 64, /* and so many more */
	/* A connection on which WRITEs, or READs that were late, get no answer for so long is lost,
	   whatever the server says on others. */
	SODA_COPIES_LATE_MS = 2000,
	SODA_COPIES_LOOK_MS = 5,    /* a fault that waits for any copy's server looks so often */
	SODA_KEEPER_COLLECT_MS = 2, /* its tick while READs ahead are outstanding */
	SODA_KEEPER_ASK_MS = 1,	    /* its tick while much is kept that an agent has acknowledged */
	SODA_RETRY_MIN_MS = 20,	    /* between two attempts to connect, doubling... */
	SODA_RETRY_MAX_MS = 500,    /* ...up to this */
	SODA_GOODBYE_MS = 1000,	    /* BYE, at the end; before it, for a lost session's return */
	SODA_REVOKE_MS = 2000,	    /* revoking waits so long for an agent that installs pages */
	SODA_REVOKE_LOOK_MS = 2,    /* and tries so often */
	SODA_RETIRE_MS = 90000,	  /* soda_free waits so long for requests in the object's chunks */
	SODA_REOPEN_MS = 3000,	  /* a new server gets so long to have memory for all objects */
	SODA_REOPEN_LOOK_MS = 20, /* and is asked so often */
	/* objects that the server has refused are asked for again after this time, doubling... */
	SODA_REFUSED_MIN_MS = 1000,
	SODA_REFUSED_MAX_MS = 30000, /* ...up to this */
	SODA_STILL_MS = 500, /* a wait that took so much too long: the process stood still */
	SODA_COLLECT_LOOK_MS =
		2000,		 /* waits for answers are cut into such pieces, to notice that */
	SODA_SYNC_LOOK_MS = 100, /* soda_sync looks at its chunks at least so often */
	SODA_WRITEBACK_LOOK_MS =
		200,		   /* the write-back thread looks at its queue at least so often */
	SODA_MEMORY_MS = 10000,	   /* an install waits so long for the kernel to find memory */
	SODA_MEMORY_LOOK_MS = 10,  /* and tries so often */
	SODA_FAILED_PAGE_MS = 250, /* a page that could not be had fails so long for all threads */
	SODA_HANDLER_IDLE_MS = 1000, /* handler mode looks at its requests at least so often */
	SODA_HANDLER_TURN_MS = 5000, /* soda_get_stats() waits so long for what it has in hand */
	SODA_RUN_SHARE_MS =
		10000, /* a process of soda run waits so long for its part of the buffer */
	SODA_RUN_SHARE_LOOK_MS = 2, /* and looks so often */
	SODA_RUN_SERVER_LOOK_MS =
		50, /* one that waits for the server looks whether soda is there so often */
	SODA_RUN_SERVER_IDLE_MS = 60000, /* soda's wait for somebody who wants one, repeated */
	SODA_RUN_GIVE_MS =
		20, /* giving a part of it to another process waits so long for evictions */
	SODA_RUN_RETURN_S = 1, /* what soda run's program has unmapped goes back so much later */
	SODA_BUFFER_SHRINK_MS = 1000, /* freeing an object waits so long for the buffer to shrink */

/* In the simulation, whose runs are short, the queue and the buffer shall get full. */
#ifdef SODA_SIMULATION
	SODA_EVICT_LOOK_MS = 20,
	SODA_WRITEBACK_QUEUE = 32,
#else
	SODA_EVICT_LOOK_MS = 2,	     /* a fault that waits for a credit looks at least so often */
	SODA_WRITEBACK_QUEUE = 8192, /* dirty chunks that wait to be sent */
#endif

	SODA_THREADS_MAX = 4096,     /* threads of a program that take faults */
	SODA_REGIONS_MAX = 65535,    /* objects; ids have 16 bits */
	SODA_WRITEBACK_DEPTH = 512,  /* WRITEs under way on the write-back connection */
	SODA_DEMAND_DEPTH = 128,     /* requests under way on a thread's own connection */
	SODA_COPIES = 2,	     /* of a slab with redundancy mirror:2 */
	SODA_COPY_PLACES = 20,	     /* of a slab: twice its copies, or its pieces, of which ec:8+2
					has ten: one that moves has a place where it goes */
	SODA_MEMBERS_MAX = 16,	     /* servers of a pool that a program uses */
	SODA_POOL_SPREAD_MS = 3000,  /* `soda pool rebalance` is asked for anew within this time */
	SODA_JOIN_AGAIN_MS = 10000,  /* one that could not be used is tried again */
	SODA_JOIN_ASK_MS = 1000,     /* an agent before a pool is asked for new servers so often */
	SODA_JOIN_MS = 1000,	     /* a server that comes later answers within this time */
	SODA_CHANNEL_PAIRS_MAX = 64, /* pairs of connections, for demands and for READs ahead */
	SODA_SLOTS_MAX = 256,	     /* staging slots of one connection */
};

/* The DPU agent. */
enum {
	SODA_DPU_TICK_MS = 100,	      /* the keeper's tick */
	SODA_DPU_LEAVING_MS = 2000,   /* an OPEN waits so long for clients that have said BYE */
	SODA_DPU_LEAVING_LOOK_MS = 5, /* and looks so often */
	SODA_DPU_AWAIT_LOOK_MS = 100, /* waits for the server are cut into such pieces */

	SODA_MOVE_GETTERS = 2,	     /* threads that fetch programs' data for movement */
	SODA_MOVE_GETTERS_MOST = 16, /* with those that a program's memory holds up */
	SODA_MOVE_LATE_MS = 2000,    /* a getter is, whose read of 4 MiB has taken so long */
	SODA_MOVE_LEAVE_MS = 5000,   /* the agent's end waits so long for such ones */
	SODA_MOVE_AWAIT_MS = 250,    /* a call that waits for a ticket or a step waits so long */
	SODA_MOVE_BUFFERS = 16,	     /* named buffers of one client */
	SODA_MOVE_LISTS_BYTES = 64 << 20, /* of memory for lists of pieces, of all clients */
	SODA_MOVE_RINGS = 256,		  /* clients whose lists travel in shared memory */
	SODA_MOVE_CALL_MS = 30000,	  /* libsoda-move waits so long for the answer to a call */
	SODA_MOVE_GOODBYE_MS = 1000,	  /* and for that to its last one */
	SODA_MOVE_RING_MS = 100,  /* and for a notice in its ring, until it asks for it by a call */
	SODA_MOVE_HOLD_MS = 5000, /* and for room to hold a few chunks of the program's objects */

	SODA_MSG_INBOX_LEAST = 128 << 10, /* bytes of a rank's inbox */
	SODA_MSG_INBOX_MOST = 1 << 20,
	SODA_MSG_SLOT_LEAST = 4 << 10,	/* bytes of a packet's slot in a lane */
	SODA_MSG_SLOTS_BYTES = 2 << 20, /* of all lanes of a rank with rings, or a little more */
	SODA_MSG_BEAT_MS = 1000,	/* a rank with rings says so often that it is there */
	SODA_MSG_AWAIT_MS = 100,	/* a call that waits for messages or room waits so long */
	SODA_MSG_YIELD_US = 30,	    /* who has had something to do looks so long before it sleeps */
	SODA_MSG_ROOM_MS = 5,	    /* a PUSH for which there is no room at all waits so long */
	SODA_MSG_CALL_MS = 5000,    /* libsoda-msg waits so long for the answer to a call */
	SODA_MSG_GOODBYE_MS = 1000, /* and for that to its last one */
	SODA_MSG_FLUSH_US = 500,    /* what was pushed waits so long for more */
	SODA_MSG_TRANSFER = 48 << 10, /* bytes for another agent's ranks that are sent at once... */
	SODA_MSG_LINK_FLUSH_US = 300, /* ...and so long fewer wait for more */
	SODA_MSG_LINK_BLOCKED_MS = 8, /* a rank without room is tried again at least so often */
	SODA_MSG_LINK_BEAT_MS = 500,  /* an agent with nothing to say says so so often */
	SODA_MSG_LINK_CONNECT_MS = 1000,
	SODA_MSG_LINK_RETRY_MS = 20, /* between two attempts to connect */
	SODA_MSG_PATIENCE_MS = 4000, /* without an answer, then the job is broken off */

	SODA_DPU_HANDS = 4,	    /* threads of the keeper that may wait for a server */
	SODA_DPU_HANDS_MOST = 32,   /* with those that it gets while servers hold them up */
	SODA_DPU_HANDS_SERVER = 2,  /* of them at one member of a pool */
	SODA_DPU_BYE_MS = 1000,	    /* a hand waits so long for the answer to a BYE */
	SODA_DPU_LOSSES_MAX = 1024, /* clients whose data the agent knows to have lost */

#ifdef SODA_SIMULATION
	SODA_NODE_MIN = 32 << 10,
	SODA_NODE_CHUNKS_MIN = 8,
#else
	SODA_NODE_MIN = 8 << 20,     /* the least store of a node (--store), bytes */
	SODA_NODE_CHUNKS_MIN = 64,   /* that must fit into it, or a program does not join */
#endif
};

/* The memory server. */
enum {
	SODA_TOKEN_MIN_MS = 1000,	   /* a client's token is valid for so long at least */
	SODA_SERVER_LEAVING_MS = 2000,	   /* a HELLO or OPEN waits so long for clients that end */
	SODA_SERVER_LEAVING_LOOK_MS = 10,  /* and looks so often */
	SODA_SERVER_PROCESS_LOOK_MS = 100, /* whether a client's process has ended, so often */
	SODA_DRAIN_LOOK_MS = 50, /* a daemon that drains looks so often which clients are left */

	SODA_KEPT_MAX = 4096,	  /* closed regions whose descriptors clients keep */
	SODA_PUNCHED_MAX = 16384, /* mappings of huge pages that clients may punch holes in */
};

/* The registry of a pool's servers, etcd. */
enum {
	SODA_REGISTRY_CALL_MS =
		2000,		   /* an endpoint answers within this time, or the next is asked */
	SODA_REGISTRY_LEASE_S = 6, /* a server that is silent so long is registered no more */
	SODA_REGISTRY_RENEW_MS = 1500,	 /* its lease is renewed so often... */
	SODA_REGISTRY_LOOK_MS = 300,	 /* ...and so often it looks at what its key is to say */
	SODA_REGISTRY_FREE_MS = 2000,	 /* how much is free alone is told so often at most */
	SODA_REGISTRY_LEAVE_MS = 2000,	 /* a server that ends tries so long to remove its key */
	SODA_REGISTRY_WATCH_MS = 1000,	 /* `soda run` asks at most so often who is there, and so
					    often where etcd does not tell it of changes... */
	SODA_REGISTRY_STREAM_MS = 10000, /* ...and at the latest after this time */
	SODA_REGISTRY_ANSWER_MAX = 4 << 20,
	SODA_REGISTRY_TOKEN_MAX = 4096,
	SODA_REGISTRY_USER_MAX = 512, /* bytes of NAME:PASSWORD */
};

/* The HTTP endpoint of metrics. */
enum {
	SODA_METRICS_IDLE_S = 5,     /* a connection on which nothing moves so long is closed */
	SODA_METRICS_FRESH_MS = 200, /* the statistics are collected anew after this time */
	SODA_METRICS_CONNECTIONS_MAX = 32, /* one more ends the oldest */
	SODA_METRICS_REQUEST_MAX = 8192,   /* bytes of a request and its answer's head */
};

/*
 * How many agents may stand one behind another: the node's, with its store, and that of its DPU.
 * More would leave a client's epoch too few bits, and without a limit agents in a circle would
 * connect to each other until one of them has no descriptors left.
 */
#define SODA_AGENTS_MAX 2

/*
 * Epochs.  A client counts its reconnections; an agent's epoch towards its server has the client's
 * in its high bits, and counts its own below.  A HELLO whose epoch leaps ahead by more than this is
 * refused, because after it the client itself could not come back; by more than this with so many
 * shifts to the left as agents have passed it on.
 */
#define SODA_EPOCH_STEP_MAX (UINT64_C(1) << 20)
#define SODA_AGENT_EPOCH_SHIFT 16

#define SODA_MS_NS UINT64_C(1000000) /* nanoseconds of a millisecond */

#endif
