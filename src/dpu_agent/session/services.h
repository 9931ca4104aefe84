/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Services do the agent's work for its clients; paging is the first.  A service has a
 * range of request types of the control plane, a state for each client, limits, counters, and
 * hooks that follow a client's life:
 *
 *   created     the client's session is made: the state is zeroed memory
 *   connected   a control connection has said HELLO; again at each reconnection
 *   call        the client has sent a request of the service's types
 *   stream      the same, with data behind the request
 *   leave       the client has said BYE, and is still connected
 *   tick        the keeper calls this now and then
 *   broken      the session is taken down: give up the client's requests under way
 *   idle        the client has no connection: do what is left to be done for it
 *   gone        the session ends
 *   destroyed   the session's last reference is given back
 *
 * All members but name, first and last may be NULL or 0.  READs and WRITEs of regions go to paging
 * without passing here.
 */
#ifndef SODA_DPU_AGENT_SERVICES_H
#define SODA_DPU_AGENT_SERVICES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/metrics.h"
#include "transport/api/service.h"

struct soda_session;
struct soda_sessions;

enum { SODA_SERVICES_MAX = 8 };

struct soda_agent_service {
	const char *name;
	uint8_t first, last;  /* request types; from SODA_MSG_SERVICES on, but for paging's */
	bool tools;	      /* clients without pages may use it, too */
	uint32_t calls_max;   /* of all clients at once; more are refused; 0: any number */
	uint32_t bytes_max;   /* of one request; 0: as many as the wire allows */
	uint32_t state_bytes; /* of one client's state */

	/* arg: of soda_services_register(). 0, -ENOMEM. */
	int (*created)(void *arg, struct soda_session *s, void *state);
	/*
	 * session->life is held.  session->up: the session was not taken down since the last call
	 * of this hook.  May wait for the network. 0; a negative errno refuses the HELLO, with
	 * *why.
	 */
	int (*connected)(struct soda_session *s, void *state, const struct soda_wire_hello *hello,
			 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
			 struct soda_why *why);
	/*
	 * As soda_service.call, in the thread of that control connection, which may wait. An error
	 * that means a lost connection (base/failure.h) breaks the session.
	 */
	int (*call)(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		    size_t bytes, bool shares, struct soda_reply *reply);
	/* A streamed call, as soda_service.stream; in that thread, too. NULL: there are none. */
	int (*stream)(struct soda_session *s, void *state, enum soda_msg type,
		      struct soda_inflow *in, struct soda_reply *reply);
	/* In the thread of that control connection, which may wait. */
	void (*leave)(struct soda_session *s, void *state);
	/* In the keeper's thread, each time that it looks, clients or none: may not wait. */
	void (*round)(void *arg);
	/* In the keeper's thread: may not wait. */
	void (*tick)(struct soda_session *s, void *state);
	/* session->life is held. May not wait for the network. May be called twice in a row. */
	void (*broken)(struct soda_session *s, void *state);
	/*
	 * In a thread of the keeper's hands, which may wait.  True: nothing is left to be done for
	 * the client, and the session may end.  stopping: the agent ends; what is not done now is
	 * lost.
	 */
	bool (*idle)(struct soda_session *s, void *state, bool stopping);
	/* session->life is held. May wait, unless stopping. The session may still be connected. */
	void (*gone)(struct soda_session *s, void *state, bool stopping);
	void (*destroyed)(struct soda_session *s, void *state);
};

/* What paging does for other services: WRITEs of the agent's own into a client's regions. */
struct soda_agent_regions {
	/*
	 * Whether the client has a region of that id, which may be written, with the range in it.
	 * -EINVAL, -EACCES: why is set.
	 */
	int (*check)(struct soda_session *s, uint32_t region_id, uint64_t offset, uint64_t bytes,
		     struct soda_why *why);
	/*
	 * Write whole pages, and wait until the memory server has them all: at most as long as the
	 * client's own WRITEs may take.  The client must not write to the range meanwhile.  Errors
	 * of check; the server's; -ECONNRESET, -ENOTCONN, -ETIMEDOUT: the session is broken, and
	 * the server may have some of it.
	 */
	int (*write)(struct soda_session *s, uint32_t region_id, uint64_t offset, uint8_t *data,
		     uint64_t bytes);
};

/* A registered service, and its counters. */
struct soda_service_entry {
	const struct soda_agent_service *ops;
	void *arg;
	uint32_t at;		    /* where its state begins, in bytes behind the session */
	_Atomic uint32_t under_way; /* calls */
	_Atomic uint64_t calls, refused, request_bytes, reply_bytes;
};

struct soda_services {
	struct soda_service_entry at[SODA_SERVICES_MAX]; /* set before the listener starts */
	_Atomic unsigned n;   /* counted after its entry is set: the keeper may run already */
	uint32_t state_bytes; /* of all services, for one client */
};

/*
 * Register a service, before the first client connects; *ops must stay until the agent ends. 0;
 * -EINVAL: first to last is no range that a service may have; -EEXIST: another service has a part
 * of the range; -ENOSPC: there are SODA_SERVICES_MAX.
 */
int soda_services_register(struct soda_services *all, const struct soda_agent_service *ops,
			   void *arg);
/*
 * Pass a request to the service of its type.  -ENOTSUP: no service has that type; -EPROTO: the
 * service is not for this client; -EINVAL, -EBUSY: over the service's limits; errors of the
 * service's call. The refusals that are made here say why in reply->why.
 */
int soda_services_call(struct soda_session *s, enum soda_msg type, const void *body, size_t bytes,
		       bool shares, struct soda_reply *reply);
/* The same for a streamed call. */
int soda_services_stream(struct soda_session *s, enum soda_msg type, struct soda_inflow *in,
			 struct soda_reply *reply);
/* For a service's call: give the sentence as the reason, and return err. */
int soda_services_refuse(struct soda_reply *reply, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Call the hook of all services: created, connected, tick and idle in the order of their
 * registration, the others in the reverse order.
 */
int soda_services_created(struct soda_session *s);
int soda_services_connected(struct soda_session *s, const struct soda_wire_hello *hello,
			    const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
			    struct soda_why *why);
void soda_services_leave(struct soda_session *s);
void soda_services_round(struct soda_services *all);
void soda_services_tick(struct soda_session *s);
void soda_services_broken(struct soda_session *s);
bool soda_services_idle(struct soda_session *s, bool stopping);
void soda_services_gone(struct soda_session *s, bool stopping);
void soda_services_destroyed(struct soda_session *s);

/* Say the counters of all services but paging, which has its own, to m. */
void soda_services_walk(struct soda_services *all, struct soda_metrics *m);

#endif
