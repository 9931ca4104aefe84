/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side that listens, for byte streams (TCP, UNIX sockets).  Threads:
 *
 *   acceptor (accept.c)   accepts, awaits each HELLO, and its proof (prove.c), hands over
 *   control  (control.c)  one for each control connection; may block
 *   worker   (worker.c)   N, each an event loop over its data connections: engine_uring.c, or
 *                         engine_epoll.c where the kernel has or allows no io_uring; the protocol
 *                         is in data.c, the same for both.  Two-sided daemons on shm have those of
 *                         shm/server.c instead
 *
 * Lock order: listener->lock and worker->lock are leaves; the daemon is never
 * called with one held.
 */
#ifndef SODA_SERVER_H
#define SODA_SERVER_H

#include <pthread.h>

#include "base/shares.h"
#include "transport/api/transport_impl.h"
#include "transport/listen/home.h"
#include "transport/stream/stream.h"

struct soda_peer;

/* What differs between the kinds of data connections; NULL: the plain way. */
struct soda_peer_ops {
	void (*close)(struct soda_peer *peer);	/* soda_peer_close; NULL: shutdown(2) */
	void (*resume)(struct soda_peer *peer); /* soda_peer_resume; NULL: nothing to do */
};

/* One accepted connection that has said HELLO. */
struct soda_peer {
	struct soda_listener *listener;
	struct soda_peer *next, *prev;	 /* guarded by listener->lock */
	const struct soda_peer_ops *ops; /* NULL: none */
	void *client;			 /* the daemon's, from hello */
	int fd;				 /* open until gone has returned */
	struct soda_tls *tls; /* the peer's own: how bytes travel on fd; NULL: as they are */
	struct soda_peer_info info;
	uint32_t holder; /* whose place among the listener's connections it has */
};

/* How a listener serves data connections: byte streams, or queues in shared memory. */
struct soda_data_plane {
	/* A worker, with its thread. 0, negative errno. */
	int (*start)(struct soda_listener *l, void **worker_p);
	/* Its connections have ended: end it, await that, free it. */
	void (*stop)(void *worker);
	/*
	 * Take over a connection that has sent a data HELLO, and answer it at once.
	 * passed_fd: a descriptor that came along, or -1.  On failure the caller keeps
	 * both, and refuses with why.
	 */
	int (*take)(struct soda_listener *l, int fd, int passed_fd,
		    const struct soda_peer_info *info, const struct soda_wire_hello *hello,
		    struct soda_why *why);
	bool takes_fd; /* a descriptor may come with the HELLO */
};

/* What differs where connections are not sockets (verbs). */
struct soda_listener_kind {
	/* The acceptor's thread; arg is the listener. It leaves no peer behind. */
	void *(*main)(void *arg);
	/* At the end, what it has beside. */
	void (*destroy)(struct soda_listener *l);
};

/* The file of a UNIX socket that was bound here; while that is open no other has its number. */
struct soda_socket_file {
	char path[108]; /* "": none */
	dev_t dev;
	ino_t ino;
};

struct soda_listener {
	const struct soda_service *ops;
	void *svc;
	const struct soda_data_plane *plane;
	const struct soda_listener_kind *kind; /* NULL: sockets; else plane is not used */
	void *transport;		       /* the kind's own */
	struct soda_listener_options opt;      /* complete: no zeros */
	int fd;				       /* listening socket, or -1 */
	int wake_fd;			       /* eventfd: the acceptor looks at `stop` */
	bool local;			       /* UNIX socket: credentials are the kernel's */
	bool shares;			       /* descriptors can be passed */
	char address[128];
	struct soda_socket_file file; /* to remove at the end */
	pthread_t acceptor;
	bool started;
	_Atomic int stop; /* enum soda_stop */
	void **workers;	  /* the plane's */
	unsigned workers_n;
	_Atomic unsigned polling; /* workers that busy-wait at this moment */
	struct soda_homes homes;  /* of the workers */
	pthread_mutex_t lock;
	pthread_cond_t left;	   /* a peer has gone */
	struct soda_peer *peers;   /* guarded by lock */
	struct soda_shares places; /* of connections; guarded by lock */
};

enum soda_stop { SODA_STOP_NOT = 0, SODA_STOP_ACCEPTING = 1, SODA_STOP_ALL = 2 };

/* server.c */

/* Remove it: only that file, not what others have put there since. */
void soda_socket_file_remove(const struct soda_socket_file *file);
/*
 * A listener on a bound and listening socket, which it owns from now on, also on failure.
 * local: a UNIX socket.  plane: what serves its data connections; NULL where the caller sets
 * `kind` afterwards.
 */
int soda_listener_create(int fd, const char *address, bool local,
			 const struct soda_data_plane *plane, const struct soda_service *ops,
			 void *svc, const struct soda_listener_options *opt,
			 struct soda_listener **listener_p, struct soda_why *why);
static inline struct soda_byte_stream soda_peer_stream(const struct soda_peer *peer)
{
	return (struct soda_byte_stream){ .fd = peer->fd, .tls = peer->tls };
}

/*
 * known: its HELLO names a client, for which an eighth of the places is left.  0, or -EBUSY and
 * why: the places that it may have are taken (base/shares.h); -ENOMEM.
 */
int soda_peer_add(struct soda_peer *peer, bool known, struct soda_why *why);
/* After gone: forget the peer and close its socket. The caller frees the memory. */
void soda_peer_remove(struct soda_peer *peer);

/*
 * Tell the daemon of the connection: soda_service.hello, with a welcome of what this side can do.
 */
int soda_peer_hello(struct soda_peer *peer, const struct soda_wire_hello *hello,
		    struct soda_wire_welcome *welcome_p, struct soda_why *why);
/* The daemon is to know that something bad came in. */
void soda_peer_rejected(const struct soda_peer *peer, const char *why);
/* Wake who sleeps on an eventfd. */
void soda_ring(int eventfd);

/* accept.c */

/*
 * Is this a HELLO that one may let in, or, guarded, that a proof may follow?  0, or why not, in
 * `reason`, too.
 */
#define SODA_REASON_BYTES 128
int soda_hello_check(const void *in, size_t bytes, bool guarded, struct soda_wire_hello *hello,
		     char reason[SODA_REASON_BYTES]);
/* The acceptor's thread; arg is the listener. */
void *soda_acceptor_main(void *arg);
/* Best effort, never blocks. */
void soda_refuse(struct soda_byte_stream s, int err, const char *reason);
/*
 * Never blocks: there is room in the socket buffer, which the peer has emptied.  pass_fd: a
 * descriptor to go with it, or -1.  peer->info.proved ends here. 0, negative errno.
 */
int soda_welcome(struct soda_peer *peer, const struct soda_wire_welcome *welcome, int pass_fd);

/* control.c */

/*
 * Take over a connection that has sent a control HELLO; the answer comes from its
 * thread.  On failure the caller keeps s, and refuses with why.
 */
int soda_control_start(struct soda_listener *l, struct soda_byte_stream s,
		       const struct soda_peer_info *info, const struct soda_wire_hello *hello,
		       struct soda_why *why);

/* Of every control connection, whatever carries it: */

/* Start its thread, which nobody awaits. 0 or negative errno. */
int soda_control_thread(void *(*main)(void *arg), void *arg);
bool soda_control_is_call(const struct soda_wire_frame *frame);
/* The frame of a call's answer, of which the daemon returned ret; a refusal's reason in
 * reply->body. */
struct soda_wire_frame soda_control_frame(int ret, struct soda_reply *reply);

/* worker.c */
extern const struct soda_data_plane soda_stream_plane;

/* Which of n workers has the fewest connections, the first of several; load tells worker i's. */
unsigned soda_least_loaded(const void *workers, unsigned n,
			   unsigned (*load)(const void *workers, unsigned i));

#endif
