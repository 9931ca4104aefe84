/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A session is the agent's record of one client: the client's connections to the agent, and the
 * states that services (services.h) keep for the client.
 *
 *   (HELLO) -> UP ---- a service fails ---> BROKEN -> DOWN -- HELLO or keeper --> UP
 *              |                            client's connections closed, requests under way given
 * up
 *              +-- no connection, no service has work left -> gone
 *
 * The table, each connection and each thread that works with a session hold a reference to it.
 */
#ifndef SODA_DPU_AGENT_SESSION_H
#define SODA_DPU_AGENT_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "daemon/tenants.h"
#include "dpu_agent/base/options.h"
#include "dpu_agent/session/servers.h"
#include "dpu_agent/session/services.h"
#include "transport/api/service.h"

enum {
	SODA_SESSION_PEERS = 256, /* connections of one client */
	SODA_SESSION_MOVES = 4,	  /* of a server, whose address another thread may still print */
};

/* One connection of the client. */
struct soda_session_peer {
	struct soda_session_peer *next;
	struct soda_peer *peer;
	bool control;
	bool closing;
	bool paused;   /* its WRITEs wait until the agent has memory for them */
	unsigned pins; /* threads that use `peer`: gone waits for them */
};

struct soda_session {
	struct soda_session *next; /* in the table, or its `ends`; guarded by the table's lock */
	struct soda_sessions *all;
	_Atomic uint32_t refs;
	uint64_t id, secret; /* set before it is in the table */
	bool tool;	     /* a client without pages: statistics, and services that serve such */
	/*
	 * That it is for; it is one of its users.  With `life`, and while it is not up, it becomes
	 * another one, where the client has found the server at another address: those before stay
	 * in use, because other threads print their addresses.
	 */
	_Atomic(struct soda_dpu_server *) server;
	struct soda_dpu_server *before[SODA_SESSION_MOVES];
	unsigned moves; /* guarded by `life` */
	/*
	 * Where that is an agent in front of a pool: the tag of its member that the session is for.
	 * 0: none, as far as we know.  Becomes another one as `server` does.
	 */
	_Atomic uint16_t member;
	struct soda_peer_info info;
	struct soda_tenant *tenant; /* whose client it is; NULL: the agent is open */

	pthread_mutex_t life; /* held while services connect the session and take it down */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool up;      /* guarded by lock, and so below; all services are connected for it */
	bool broken;  /* the keeper has to take it down */
	bool leaving; /* the client has said BYE */
	uint64_t leaving_since_ms;
	bool left;		     /* the agent has passed the BYE on to the server */
	bool dead;		     /* not in the table any more */
	uint8_t key[SODA_KEY_BYTES]; /* of a tenant's client, instead of the secret */
	struct soda_tokens tokens;   /* that the client may have, as it has them */
	bool adopts;		     /* by the newest of them we become this client on the server */
	bool removed;		     /* its tenant has been removed: no connection joins */
	uint64_t away_since_ms;	     /* its last connection ended */
	unsigned busy;	 /* HELLOs and keeper's hands that work with it: it stays in the table */
	bool of_pool;	 /* its program uses other members of a pool, too */
	bool by_agent;	 /* another agent passes the client on, and acknowledges its WRITEs */
	bool sealed;	 /* that one seals them */
	uint64_t epoch;	 /* the client's */
	uint32_t agent;	 /* the number that the agent has for this client (soda_session_bury) */
	uint32_t shows;	 /* flags of that number that are so because our server's are */
	unsigned untold; /* regions with losses that the client has not been told of */
	unsigned joined; /* control connections so far; only the last one makes calls */
	struct soda_session_peer *peers;
	unsigned peers_n;

	bool given; /* it is the keeper's hands'; guarded by the table's lock, and so below */
	struct soda_session *next_given;
	uint64_t rest_until_ms; /* until then it is not given to the hands again */

	/* the services' states follow in memory (services.h) */
};

/* A client that has lost data, and the agent's number for that client since. */
struct soda_loss {
	uint64_t client_id;
	uint32_t agent;
};

/*
 * A HELLO by whose token the agent becomes a client on the server that has no session here.  One at
 * a time of each client: each makes the key of the one before void there, whose session would then
 * tell the client that the server has forgotten it.
 */
struct soda_adoption {
	struct soda_adoption *next;	  /* guarded by the table's lock */
	const struct soda_tenant *tenant; /* of the HELLO: another one's is for no client of its */
	uint64_t client_id;
};

struct soda_sessions {
	const struct soda_dpu_options *opt; /* set before start, then constant, and so the next */
	struct soda_dpu_servers servers;
	struct soda_services services;
	struct soda_tenants *tenants;		  /* set before start; NULL: the agent is open */
	const struct soda_agent_regions *regions; /* set before start, then constant; paging's */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct soda_session *list; /* guarded by lock, and so below */
	struct soda_shares shares; /* places of --max-clients */
	struct soda_adoption *adoptions;
	bool draining, stopping;
	pthread_t keeper, hands[SODA_DPU_HANDS_MOST]; /* keeper.h */
	bool keeper_runs, hands_stop;
	unsigned hands_n, hands_idle;
	struct soda_session *handled[SODA_DPU_HANDS_MOST]; /* that hands are at work for */
	struct soda_session *given, **given_end;	   /* busy, and with a reference */
	pthread_cond_t work;
	unsigned lost;	 /* sessions that lost accepted data at their end */
	uint32_t agent;	 /* soda_wire_welcome.agent for clients that have lost nothing */
	uint32_t newest; /* the last agent number that was given out */
	struct soda_loss losses[SODA_DPU_LOSSES_MAX];
	unsigned losses_n;
	struct soda_session *ends; /* that left the list, before the server knows of their end */
	uint64_t ended;		   /* sessions of whose end the server knows, since the start */
};

/* A connection has said HELLO. As soda_service.hello. */
int soda_session_hello(struct soda_sessions *all, struct soda_peer *peer,
		       const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		       struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why);
/*
 * A tenant has been removed: its clients' connections are closed, what they had on the server is
 * given back as they end.  Does not wait for that.
 */
void soda_sessions_end_tenant(struct soda_sessions *all, struct soda_tenant *tenant);
/*
 * Whether a session without connections is kept, if it has something, for its client, which can
 * come back to no other: only this one has the key that the client proves, or proves itself to the
 * server by a key.  Not for longer than the grace time, nor when its process has ended or the agent
 * is to end.
 */
bool soda_session_awaits(struct soda_session *s);
/* A connection of the session has ended. As soda_service.gone. */
void soda_session_gone(struct soda_session *s, struct soda_peer *peer);

/*
 * Close the client's connections; control_stays: all but its control connections.  Then nothing
 * more is sent on them, also where another thread closes them; await: return only when they have
 * ended.
 */
void soda_session_expel(struct soda_session *s, bool control_stays, bool await);
/*
 * Whether the client takes no more answers on the connection: it is being closed, or the client has
 * no control connection left.
 */
bool soda_session_ends_locked(const struct soda_session *s, const struct soda_peer *peer);
/* The agent's number as the client is told it. */
uint32_t soda_session_agent_locked(const struct soda_session *s);
/* The memory server that the session is for... */
static inline struct soda_dpu_server *soda_session_place(const struct soda_session *s)
{
	return atomic_load_explicit(&s->server, memory_order_acquire);
}
/* ...and its address. */
static inline const char *soda_session_server(const struct soda_session *s)
{
	return soda_session_place(s)->address;
}
/* By which tag programs name the server, or 0: our server is one, and no agent's member. */
static inline uint16_t soda_session_member(const struct soda_session *s)
{
	return s->all->servers.pool ? soda_session_place(s)->tag : atomic_load(&s->member);
}
/* Whether what one session waits for may keep the other one waiting. */
static inline bool soda_session_same_server(const struct soda_session *a,
					    const struct soda_session *b)
{
	return soda_session_place(a) == soda_session_place(b) &&
	       atomic_load(&a->member) == atomic_load(&b->member);
}
/* -EINVAL, and a sentence: the client means a member that there is not. */
int soda_session_no_member(const struct soda_sessions *all, struct soda_why *why);
/*
 * Whether the client is told that a WRITE is done only when the server has it.  A client in front
 * of which another agent stands takes that for the server's word; and one of a pool writes to
 * several members, of which each must have a chunk before it is dropped.
 */
static inline bool soda_session_late_locked(const struct soda_session *s)
{
	return s->by_agent || s->of_pool;
}
/* A service has failed for the session: the keeper will take the session down. Any thread. */
void soda_session_break(struct soda_session *s, int err);

/* session_table.c */

/*
 * Begin an adoption, when those of the same client by the same tenant that began earlier have
 * ended, and end it.  The wait is for a HELLO, and so for the server's answer or its time-out.
 * `a` is the caller's until then.
 */
void soda_adoption_begin(struct soda_sessions *all, struct soda_adoption *a,
			 const struct soda_tenant *tenant, uint64_t client_id);
void soda_adoption_end(struct soda_sessions *all, struct soda_adoption *a);

/*
 * A session with that server, whose user it becomes in the caller's place, with one reference, not
 * in the table yet; NULL: no memory, or a service refused, and the caller is still the user.
 */
struct soda_session *soda_session_create(struct soda_sessions *all, struct soda_dpu_server *server,
					 const struct soda_peer_info *info);
/*
 * From now on the session is for that server, whose user it becomes in the caller's place: the same
 * one at another address.  s->life is held, and s is not up.
 */
void soda_session_move(struct soda_session *s, struct soda_dpu_server *server);
/* Give a reference back; the last one frees the session. The caller holds no lock. */
void soda_session_put(struct soda_session *s);
static inline void soda_session_ref(struct soda_session *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}
/* The client's session, with a reference, and counted in `busy`; NULL: there is none. */
struct soda_session *soda_session_find(struct soda_sessions *all, uint64_t id);
/* The same, not counted in `busy`: it may leave the table meanwhile. Put the reference back. */
struct soda_session *soda_session_look(struct soda_sessions *all, uint64_t id);
/* Undo soda_session_find(): count `busy` down, give the reference back. */
void soda_session_unbusy(struct soda_session *s);
/*
 * Whether there is room for s in the table: asked before services connect for it, so that a
 * client that is refused leaves nothing on the server.  The place of a client that is leaving is
 * waited for, at most for SODA_DPU_LEAVING_MS.  Errors of soda_session_insert.
 */
int soda_session_await_place(const struct soda_session *s, struct soda_why *why);
/*
 * Put s into the table. 0; -EBUSY: too many clients, or this one is there; -ESHUTDOWN. Takes a
 * reference.
 */
int soda_session_insert(struct soda_session *s, struct soda_why *why);
/*
 * Take the session out of the table.  False: another thread is busy with it, or the client is
 * connected. The table's reference is the caller's then, who calls soda_session_ended() when the
 * server knows of the end.
 */
bool soda_session_remove(struct soda_session *s);
void soda_session_ended(struct soda_session *s);
/*
 * WRITEs that were acknowledged to the client will never be on the server.  So from now on the
 * agent pretends to be another one to that client: the client's next HELLO is answered with another
 * number in soda_wire_welcome.agent, even if this session has ended by then, and the host agent
 * takes that for the death of the agent that had acknowledged the data. session->life is held.
 */
void soda_session_bury(struct soda_session *s);
/* soda_sessions.ended. */
uint64_t soda_sessions_ended(struct soda_sessions *all);
/*
 * Wait, at most SODA_DPU_LEAVING_MS, until no other client than self is leaving self's server: what
 * they hold there is free then.  True: a session has ended since soda_sessions_ended() was
 * `before`.
 */
bool soda_sessions_await_leaving(struct soda_session *self, uint64_t before);

#endif
