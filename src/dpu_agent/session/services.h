/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent does for its clients is done by services; paging is the first.  A service has a
 * range of request types of the control plane, a state for each client, limits, counters, and
 * hooks that follow the client's life:
 *
 *   created     its session is made: the state is zeroed memory
 *   connected   a control connection has said HELLO; again at each reconnection
 *   call        a request of the service's types
 *   leave       the client says goodbye, and is still connected
 *   tick        from the keeper, now and then
 *   broken      the session is taken down: what is under way for the client is given up
 *   idle        nobody is connected: what is left to be done for the client?
 *   gone        the client will not come back
 *   destroyed   nothing refers to its session any more
 *
 * All but name, first and last may be NULL or 0.  READs and WRITEs of regions are paging's, and go
 * to it without passing here.
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
	uint8_t first, last; /* request types; from SODA_MSG_SERVICES on, but for paging's */
	bool tools;	     /* clients without pages may use it, too */
	uint32_t calls_max;  /* at once, of all clients; others are refused; 0: any number */
	uint32_t bytes_max;  /* of one request; 0: what the wire allows */
	uint32_t state_bytes;

	/* 0, -ENOMEM. arg: as registered. */
	int (*created)(void *arg, struct soda_session *s, void *state);
	/*
	 * session->life is held; session->up: nothing has broken since the last one.  May wait for
	 * the network. 0; a negative errno refuses the HELLO, with *why.
	 */
	int (*connected)(struct soda_session *s, void *state, const struct soda_wire_hello *hello,
			 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
			 struct soda_why *why);
	/*
	 * As soda_service.call; the thread of that control connection, which may wait. An error
	 * that means a lost connection (base/failure.h) breaks the session.
	 */
	int (*call)(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		    size_t bytes, bool shares, struct soda_reply *reply);
	/* Likewise. */
	void (*leave)(struct soda_session *s, void *state);
	/* Does not wait. */
	void (*tick)(struct soda_session *s, void *state);
	/* session->life is held. Does not wait for the network. May come twice. */
	void (*broken)(struct soda_session *s, void *state);
	/*
	 * True: nothing is left to be done, the session may end.  stopping: so does the agent, what
	 * cannot be done now will never be.  A hand of the keeper, which may wait.
	 */
	bool (*idle)(struct soda_session *s, void *state, bool stopping);
	/* session->life is held; may wait, but not with stopping. No `broken` comes before it. */
	void (*gone)(struct soda_session *s, void *state, bool stopping);
	void (*destroyed)(struct soda_session *s, void *state);
};

/* One that is registered, and what is counted of it. */
struct soda_service_entry {
	const struct soda_agent_service *ops;
	void *arg;
	uint32_t at; /* of its state, behind the session */
	_Atomic uint32_t under_way;
	_Atomic uint64_t calls, refused, request_bytes, reply_bytes;
};

struct soda_services {
	struct soda_service_entry at[SODA_SERVICES_MAX]; /* set before start, then constant */
	unsigned n;
	uint32_t state_bytes; /* of all, for a client */
};

/*
 * Before the first client connects; ops is the service's until the agent ends. 0; -EINVAL: not a
 * range; -EEXIST: another one has a part of it; -ENOSPC: there are SODA_SERVICES_MAX.
 */
int soda_services_register(struct soda_services *all, const struct soda_agent_service *ops,
			   void *arg);
/*
 * A request of any type.  -ENOTSUP: of no service; -EPROTO: not for this client; -EINVAL, -EBUSY:
 * the service's limits; errors of its call.  What is refused here has a sentence in reply->why.
 */
int soda_services_call(struct soda_session *s, enum soda_msg type, const void *body, size_t bytes,
		       bool shares, struct soda_reply *reply);

/* The hooks of all services, in the order of their registration; downwards in the reverse one. */
int soda_services_created(struct soda_session *s);
int soda_services_connected(struct soda_session *s, const struct soda_wire_hello *hello,
			    const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
			    struct soda_why *why);
void soda_services_leave(struct soda_session *s);
void soda_services_tick(struct soda_session *s);
void soda_services_broken(struct soda_session *s);
bool soda_services_idle(struct soda_session *s, bool stopping);
void soda_services_gone(struct soda_session *s, bool stopping);
void soda_services_destroyed(struct soda_session *s);

/* Statistics of the services besides paging, which has its own; no such service: nothing. */
void soda_services_walk(struct soda_services *all, struct soda_metrics *m);

#endif
