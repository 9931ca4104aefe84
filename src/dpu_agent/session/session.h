/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A session is one client: its connections here, and what services (services.h) keep for it.
 *
 *   (HELLO) -> UP ---- a service fails ---> BROKEN -> DOWN -- HELLO or keeper --> UP
 *              |                            connections closed, what was under way taken back
 *              +-- no connection, no service has work left -> closed, gone
 *
 * References: the table, each connection and every thread that works with it.
 */
#ifndef SODA_DPU_AGENT_SESSION_H
#define SODA_DPU_AGENT_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "dpu_agent/base/options.h"
#include "dpu_agent/session/services.h"
#include "transport/api/service.h"

enum { SODA_SESSION_PEERS = 256 }; /* connections of one client */

/* One connection of the client. */
struct soda_session_peer {
	struct soda_session_peer *next;
	struct soda_peer *peer;
	bool control;
	bool closing;
	bool paused;   /* waits for memory for a WRITE */
	unsigned pins; /* threads that use `peer`: gone waits for them */
};

struct soda_session {
	struct soda_session *next; /* guarded by the table's lock */
	struct soda_sessions *all;
	_Atomic uint32_t refs;
	uint64_t id, secret; /* set before it is in the table */
	bool tool;	     /* a client without pages: statistics, and services that serve such */
	struct soda_peer_info info;

	pthread_mutex_t life; /* services connect and disconnect it with this held */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool up;      /* guarded by lock, and so below; what services need for it is connected */
	bool broken;  /* the keeper is to see to it */
	bool leaving; /* BYE has been said to us, */
	uint64_t leaving_since_ms;
	bool left;	 /* and to the server */
	bool dead;	 /* not in the table any more */
	unsigned busy;	 /* HELLOs and the keeper's hands: it stays in the table */
	uint64_t epoch;	 /* the client's */
	uint32_t agent;	 /* the number that the agent has for this client (soda_session_bury) */
	unsigned untold; /* losses that the client has not heard of */
	unsigned joined; /* control connections so far: calls are the last one's */
	struct soda_session_peer *peers;
	unsigned peers_n;

	bool given; /* to the keeper's hands; guarded by the table's lock, and so below */
	struct soda_session *next_given;
	uint64_t rest_until_ms; /* the hands have just seen to it */

	/* behind it: the services' states (services.h) */
};

/* A client to which the agent has another number than to the others. */
struct soda_loss {
	uint64_t client_id;
	uint32_t agent;
};

struct soda_sessions {
	const struct soda_dpu_options *opt; /* set before start, then constant, and so the next */
	struct soda_services services;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct soda_session *list; /* guarded by lock, and so below */
	unsigned count;
	bool draining, stopping;
	pthread_t keeper, hands[SODA_DPU_HANDS]; /* keeper.h */
	bool keeper_runs, hands_stop;
	unsigned hands_n;
	struct soda_session *given, **given_end; /* busy, and with a reference */
	pthread_cond_t work;
	unsigned lost;	 /* sessions that lost accepted data at their end */
	uint32_t agent;	 /* soda_wire_welcome.agent for clients that have lost nothing */
	uint32_t newest; /* such number that was given out */
	struct soda_loss losses[SODA_DPU_LOSSES_MAX];
	unsigned losses_n;
	unsigned ending; /* not in the list any more, and the server may not know */
	uint64_t ended;	 /* counts those of which it knows */
};

/* As soda_service.hello. */
int soda_session_hello(struct soda_sessions *all, struct soda_peer *peer,
		       const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		       struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why);
void soda_session_gone(struct soda_session *s, struct soda_peer *peer);

/*
 * Close the client's connections: all; or all but the control ones.  await: until they
 * have gone.
 */
void soda_session_expel(struct soda_session *s, bool control_stays, bool await);
/* Nobody takes answers on the connection any more: it is closed, or no control one is left. */
bool soda_session_ends_locked(const struct soda_session *s, const struct soda_peer *peer);
/* A service of it has failed: the keeper closes the connections, on both sides. Any thread. */
void soda_session_break(struct soda_session *s, int err);

/* session_table.c */

struct soda_session *soda_session_create(struct soda_sessions *all,
					 const struct soda_peer_info *info);
/* One reference less. */
void soda_session_put(struct soda_session *s);
static inline void soda_session_ref(struct soda_session *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}
/* With a reference, `busy`; NULL: none. */
struct soda_session *soda_session_find(struct soda_sessions *all, uint64_t id);
/* Undo `busy` and the reference. */
void soda_session_unbusy(struct soda_session *s);
/* 0; -EBUSY: too many, or its id is there; -ESHUTDOWN. Takes a reference. */
int soda_session_insert(struct soda_session *s, struct soda_why *why);
/*
 * False: somebody is busy with it or connected to it.  Gives the table's reference to the
 * caller, who says when the server knows, too (soda_session_ended).
 */
bool soda_session_remove(struct soda_session *s);
void soda_session_ended(struct soda_session *s);
/*
 * What was acknowledged to the client will never be on the server.  From now on the agent is
 * another one to it: its next HELLO brings another soda_wire_welcome.agent, also if this session
 * has ended by then, and a host agent takes that for the death of the agent that had acknowledged
 * the data. session->life is held.
 */
void soda_session_bury(struct soda_session *s);
/* How many sessions have ended so far. */
uint64_t soda_sessions_ended(struct soda_sessions *all);
/*
 * Clients other than self that are about to go, with what they hold: wait until they have gone,
 * for a while.  False: there was none, and none has ended since `before` (of soda_sessions_ended).
 */
bool soda_sessions_await_leaving(struct soda_session *self, uint64_t before);

#endif
