/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs, the side that listens.  Threads:
 *
 *   events   (listen.c)   one: connection requests (of those that have to prove who they are
 *                         strangers.c), ends; data connections are its own, for the server has no
 *                         part in one-sided requests
 *   control  (control.c)  one for each control connection; may block
 *   workers               of two-sided daemons: two_sided.h
 *
 * A peer's end comes from the events thread: it destroys the queue pair of a data
 * connection, after which nothing of it can land any more, and then tells the daemon; a
 * control connection's thread it wakes.
 */
#ifndef SODA_VERBS_SERVER_H
#define SODA_VERBS_SERVER_H

#include "transport/listen/server.h"
#include "transport/verbs/link/link.h"
#include "trust/proof.h"

/* A client on one device: its connections share a protection domain, nobody else has it. */
struct soda_verbs_client {
	struct soda_verbs_client *next; /* guarded by the listener's clients_lock, and so refs */
	uint64_t id;
	unsigned refs;
	struct ibv_pd *pd;
};

/* Who is within a proof (strangers.c); the events thread's. */
struct soda_verbs_strangers {
	struct soda_verbs_stranger *oldest;
	unsigned n;
};

struct soda_verbs_listener {
	struct soda_listener *base;
	struct soda_verbs_strangers strangers;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;	      /* NULL once it accepts no more */
	struct soda_verbs_peer *data; /* the events thread's */
	pthread_mutex_t clients_lock; /* a leaf */
	struct soda_verbs_client *clients;
	struct soda_verbs_calls *calls;	    /* of each device; guarded by clients_lock */
	struct soda_verbs_workers *workers; /* two-sided: of each device; the events thread's */
};

/* A connection; the events thread finds it by its id's context. */
struct soda_verbs_peer {
	struct soda_peer peer; /* fd: eventfd of a control connection's thread; else -1 */
	_Atomic bool unwanted; /* soda_peer_close, or the other side has ended it */
	struct rdma_cm_id *id;
	struct rdma_conn_param theirs; /* of their request to connect */
	struct soda_wire_hello hello;
	struct soda_proved proved; /* until the connection is accepted, if it has a guard */
	struct soda_verbs_client *client;
	/* data */
	struct soda_verbs_peer *next;
	struct ibv_cq *cq;
};

/* It has been copied from where it was: what points into it does so again. */
static inline void soda_verbs_peer_moved(struct soda_verbs_peer *p)
{
	if (p->peer.info.proved)
		p->peer.info.proved = &p->proved;
}

static inline struct soda_verbs_listener *soda_verbs_listener(const struct soda_listener *l)
{
	return l->transport;
}

/* soda_transport.listen */
int soda_verbs_listen(const char *rest, const struct soda_service *ops, void *svc,
		      const struct soda_listener_options *opt, struct soda_listener **listener_p,
		      struct soda_why *why);

/* listen.c */

/*
 * Of a two-sided listener, the receives that its control connections on the device share, with one
 * connection more.  NULL: it has none, or none that are left.
 */
struct soda_verbs_receives *soda_verbs_receives_of(struct soda_verbs_listener *vl,
						   struct ibv_context *device);

/*
 * Accept the connection: welcome, and how to ask where the daemon is two-sided. What it has proved
 * ends here.  0 or -errno.
 */
int soda_verbs_accept(struct soda_verbs_peer *p, const struct soda_wire_welcome *welcome);

/* strangers.c */

/*
 * A request to connect, p->id, of a listener with a guard.  1: the peer has proved what it must,
 * p->hello is its HELLO, and p->peer.info.proved what it has proved; else the request has been
 * answered, and p->id is gone.
 */
int soda_verbs_stranger_speaks(struct soda_verbs_strangers *all, struct soda_verbs_peer *p,
			       const void *said, size_t bytes);
void soda_verbs_strangers_end(struct soda_verbs_strangers *all);

/* keys.c */

/* The client's, with a reference; made if it has none. 0, -ENOMEM... */
int soda_verbs_client_get(struct soda_verbs_listener *l, uint64_t id, struct ibv_context *device,
			  struct soda_verbs_client **client_p);
void soda_verbs_client_put(struct soda_verbs_listener *l, struct soda_verbs_client *client);

/* The registrations of a control connection. */
struct soda_verbs_keys {
	struct soda_verbs_registration *list;
};

/*
 * Register the region's memory with the access that the client has.  A key that it had
 * ends. 0 and *key_p, or why.
 */
int soda_verbs_keys_add(struct soda_verbs_keys *keys, struct ibv_pd *pd, uint16_t region_id,
			const struct soda_share *share, struct soda_wire_key *key_p,
			struct soda_why *why);
/* The same of a part of it (ADVISE), which keeps the key that it has. */
int soda_verbs_keys_add_part(struct soda_verbs_keys *keys, struct ibv_pd *pd, uint16_t region_id,
			     const struct soda_share *share, struct soda_wire_key *key_p,
			     struct soda_why *why);
/* The region's keys are no longer valid: nothing of it lands or is read from now on. */
void soda_verbs_keys_drop(struct soda_verbs_keys *keys, uint16_t region_id);
/* Nor are those of its parts that lie within the range. */
void soda_verbs_keys_drop_parts(struct soda_verbs_keys *keys, uint16_t region_id, uint64_t offset,
				uint64_t bytes);
void soda_verbs_keys_drop_all(struct soda_verbs_keys *keys);

/* control.c */

/* Take over a connection request with a control HELLO; the answer comes from a thread of its own.
 */
void soda_verbs_serve(const struct soda_verbs_peer *from);
/* Refuse a request, and forget it. */
void soda_verbs_reject(struct rdma_cm_id *id, int err, const char *reason);

#endif
