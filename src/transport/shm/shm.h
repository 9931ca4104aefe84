/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the shm transport share: of the side that connects, and below of the one that
 * listens. */
#ifndef SODA_SHM_H
#define SODA_SHM_H

#include <sys/socket.h>
#include <sys/un.h>

#include "transport/api/transport_impl.h"
#include "transport/listen/server.h"
#include "transport/shm/queue.h"

#define SODA_SHM_PREFIX "shm://"

/* /PATH or @NAME as a socket address. 0, -EINVAL. */
int soda_shm_address(const char *rest, struct sockaddr_un *addr_p, socklen_t *bytes_p,
		     struct soda_why *why);

/* A data connection on a connected socket that has said HELLO; owns fd. -ENOMEM. */
int soda_shm_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p);

/*
 * The same to a two-sided daemon, with the queue that came with its answer; owns both
 * descriptors. -ENOMEM; -EPROTO and why: that is no queue.
 */
int soda_shm_client_create(int fd, int queue_fd, const char *rest,
			   const struct soda_conn_options *opt, struct soda_conn **conn_p,
			   struct soda_why *why);

/*
 * server.c: two-sided daemons, the daemon's end of each connection's queue (queue.h), and the
 * workers that look at them.
 *
 * A worker has many connections.  Those with requests lately are `active`: it looks at their rings.
 * When nothing comes it tells the clients so (daemon_waits), and sleeps on the sockets: idle
 * clients cost nothing.  Answers are published by the thread that has them; the worker has
 * no part in it.
 */

/* Of two-sided daemons.  A one-sided daemon's data connections carry nothing (soda_stream_plane).
 */
extern const struct soda_data_plane soda_queue_plane;

struct soda_queue_worker;

/* A request in a slot; the daemon's until done or free. */
struct soda_slot_request {
	struct soda_request rq;
	struct soda_queue_conn *conn;
	uint64_t place; /* READ: where to install it, 0: nowhere */
	uint32_t turn;	/* of its answer */
	uint32_t slot;
	bool protect;
	bool busy;		    /* guarded by conn->lock */
	struct soda_wire_code code; /* rq.code, of a WRITE that has one */
};

/* An answer's place in the order of the requests. */
struct soda_queue_answer {
	bool ready;
	uint8_t where; /* enum soda_queue_where */
	uint16_t status;
	uint32_t slot;
};

struct soda_queue_conn {
	struct soda_peer peer;
	struct soda_queue_worker *worker;
	struct soda_queue q;
	int uffd; /* the client's, or -1 */
	uint32_t chunk_bytes;
	_Atomic bool unwanted; /* soda_peer_close */
	/* the worker's */
	struct soda_queue_conn *next, *prev, *next_active;
	bool active, wants_polling, rung;
	uint32_t requests_head;
	pthread_mutex_t lock; /* guards all below; a leaf */
	bool ending;	      /* nothing is taken or installed any more */
	bool gone;	      /* the socket is closed */
	bool slow;	      /* its pages take long to install: no more of it */
	uint32_t installing;  /* threads that are at it */
	uint32_t pending;     /* requests without an answer */
	uint32_t refs;	      /* itself, and WRITEs not freed */
	uint32_t taken, answered, events_tail;
	struct soda_queue_answer answers[SODA_QUEUE_MAX];  /* turn mod n */
	struct soda_slot_request requests[SODA_QUEUE_MAX]; /* of each slot */
};

/*
 * Deliver what has come in to the daemon, at most a few.  How many; -EPROTO and
 * *why_p: the client does what it must not.  The worker's thread.
 */
int soda_queue_conn_serve(struct soda_queue_conn *c, const char **why_p);
/* Whether there are requests; marks that somebody sleeps if not. The worker's thread. */
bool soda_queue_conn_may_sleep(struct soda_queue_conn *c);
/*
 * Take and install nothing more; the client sees the socket's end once nothing is
 * being installed.  True: nothing is pending, it can be destroyed.
 */
bool soda_queue_conn_end(struct soda_queue_conn *c);
/* Tell the daemon, close; memory goes with the last WRITE's soda_request_free. */
void soda_queue_conn_destroy(struct soda_queue_conn *c);

#endif
