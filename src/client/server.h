/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One session with one memory server, or with the DPU agent before it: who we are to the server,
 * whether it can be reached, and the control connection.  libsoda has a session of its own; the DPU
 * agent has one for each of its clients, in whose name it speaks.
 *
 *   CONNECTING   no attempt has succeeded yet
 *   UP           all connections are there
 *   AWAY         a connection has failed, or the server did not answer; to be tried again
 *   REFUSED      the server has answered the last attempt, with a refusal; to be tried again
 *   GONE         the session has ended
 *
 *   CONNECTING, AWAY, REFUSED -- an attempt succeeds --> UP
 *   CONNECTING, AWAY, REFUSED -- an attempt fails -----> AWAY or REFUSED
 *   UP -- soda_server_report, soda_server_down --------> AWAY
 *   any -- soda_server_end ----------------------------> GONE
 *
 * An attempt closes what is left of the connections before, says HELLO with the next epoch on a
 * new control connection, and tells the owner by a hook whether the server has what was brought
 * there before.  The owner then opens or checks its regions, and makes its data connections.
 *
 * The session has no thread.  Its driver, one thread at a time, makes the attempts: the keeper of
 * the host agent at the pace of soda_server_tick; in the DPU agent the thread that has the lock of
 * the client's life, when a client or its data demand it.  Hooks are called by the driver, within
 * its calls.  All others report failures, wait, and call (call.h).
 *
 * Lock: SODA_RANK_SESSION, held during a call.  The driver takes it to publish the control
 * connection and to take it away; a call that is under way then is aborted first.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_CLIENT_SERVER_H
#define SODA_CLIENT_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/lock.h"
#include "transport/api/transport.h"
#include "trust/identity.h"
#include "wire/wire.h"

enum soda_server_state {
	SODA_SERVER_CONNECTING,
	SODA_SERVER_UP,
	SODA_SERVER_AWAY,
	SODA_SERVER_REFUSED,
	SODA_SERVER_GONE,
};

/* Who we may be to a server that does not know us. */
enum soda_server_as {
	SODA_AS_ANYBODY, /* a new client, if that is what the server makes of us; -ESTALE is told */
	SODA_AS_AGAIN, /* the same, and after -ESTALE (old epoch, wrong secret) we ask for it, where
			  our token is of no use either */
	SODA_AS_KNOWN, /* nobody new: -ESTALE where the server does not know us any more */
};

/* What the server that is met knows. */
enum soda_server_met {
	SODA_MET_FIRST,	    /* this session has met none before */
	SODA_MET_KNOWN,	    /* it has what was brought there */
	SODA_MET_FORGOTTEN, /* it has nothing of it: another server, or it has started anew */
};

struct soda_server;

struct soda_server_hooks {
	/*
	 * Before we are what the welcome says, and `server` has changed: whether this peer will do.
	 * Errors: the attempt has failed, and what the session has at its server stays as it is.
	 * NULL: any will.
	 */
	int (*accepts)(struct soda_server *server, struct soda_conn *control,
		       const struct soda_wire_welcome *welcome, struct soda_why *why);
	/*
	 * The control connection is there, and is not used by anybody else yet; server->welcome is
	 * the answer to the HELLO.  Open, or check, the regions, and connect what carries data.
	 * Errors: the attempt has failed, and `away` follows.
	 */
	int (*met)(struct soda_server *server, struct soda_conn *control, enum soda_server_met met,
		   struct soda_why *why);
	/* All is connected, and nobody knows yet. NULL: nothing to do. */
	void (*up)(struct soda_server *server);
	/*
	 * Close all other connections; when it returns nothing is under way on any.  A thread
	 * in a call has been made to end it.  Only after `met` was called.
	 */
	void (*away)(struct soda_server *server);
	/*
	 * A connection has failed with err: see that the driver comes. Any thread, with the lock of
	 * the session where it was the control connection; AS, where soda_server_report is to be.
	 */
	void (*failed)(struct soda_server *server, int err);
};

enum { SODA_SERVER_TROUBLES = 8, SODA_SERVER_ADDRESSES = 4 };

/*
 * The client's token, where tenants are proved (trust/token.h): by it a server that does not know
 * the client, or its key, makes us that client.
 */
struct soda_client_token {
	uint32_t number; /* 0: there is none */
	uint8_t bytes[SODA_WIRE_TOKEN_BYTES];
	uint64_t renew_ns; /* when to ask for the next one; 0: at once */
};

struct soda_server {
	/* set before start, then constant */
	const struct soda_server_hooks *hooks;
	void *owner;
	char agent[SODA_ADDRESS_MAX + 1]; /* of the agent that leads to it; "": we connect to it */
	int connect_ms; /* an attempt to connect, and its HELLO, may take so long */
	bool proves;	/* who we are, to a server that must prove itself: `identity` */

	/*
	 * Where it is: the text that is used now, of the last few; the driver changes it
	 * (soda_server_move), and others print it.
	 */
	_Atomic(const char *) address;
	char addresses[SODA_SERVER_ADDRESSES][SODA_ADDRESS_MAX + 1];

	/* the driver's */
	uint32_t moves;
	struct soda_wire_hello hello;	  /* as whom we come; the owner sets it before an attempt */
	struct soda_wire_welcome welcome; /* the answer to the last HELLO that was answered */
	struct soda_identity identity;	  /* where it proves */
	uint8_t client_key[SODA_KEY_BYTES]; /* of the client, then */
	struct soda_client_token token;
	bool adopts;		 /* the token is shown first: we do not have the client's key */
	bool open;		 /* there are connections to be closed */
	struct soda_place place; /* where the peer was met, of its name's addresses */
	struct soda_conn *watch; /* watch.c; NULL: none */
	uint8_t watch_key[SODA_KEY_BYTES];
	uint64_t watched_ns; /* when it was used last */
	uint32_t pause_ms;   /* soda_server_tick's, doubling */
	uint64_t next_ns;

	_Atomic uint32_t state;	 /* enum soda_server_state; futex */
	_Atomic uint32_t breaks; /* futex: how often all connections were closed */
	_Atomic bool failed;	 /* a connection was reported since the last attempt began */
	_Atomic bool stopping;
	_Atomic bool left; /* BYE has been said: who loses the server now does not come back */

	struct soda_lock lock;
	struct soda_conn *control; /* guarded by lock; the driver changes it */

	/* The texts of the last errors, in turn: a reader has time until its own is written over.
	 */
	char troubles[SODA_SERVER_TROUBLES][320];
	_Atomic uint32_t troubles_begun;
	_Atomic(const char *) trouble; /* NULL: none yet */
};

/*
 * CONNECTING, to this address of at most SODA_ADDRESS_MAX bytes, with an empty hello but for magic
 * and version.
 */
void soda_server_init(struct soda_server *server, const char *address, int connect_ms,
		      const struct soda_server_hooks *hooks, void *owner);
/*
 * Before an attempt: the server is the member of that tag of an agent's pool, and is reached
 * through the agent.  Its own address is what messages call it.
 */
void soda_server_behind(struct soda_server *s, const char *agent, const char *address,
			uint16_t tag);
/* The driver: the next attempt need not wait. */
static inline void soda_server_hurry(struct soda_server *s)
{
	s->pause_ms = 0;
	s->next_ns = 0;
}
/* Where connections go. */
static inline const char *soda_server_peer(const struct soda_server *s)
{
	return s->agent[0] ? s->agent : s->address;
}
/*
 * Before start, or by the driver: from now on both sides prove who they are.  identity: copied, but
 * for its path, which must stay; NULL: they do not.
 */
void soda_server_identify(struct soda_server *server, const struct soda_identity *identity);
/*
 * The driver, while it is not UP: the same server is to be found at this address of at most
 * SODA_ADDRESS_MAX bytes from now on, and the next attempt is not put off.  Where it proves who it
 * is, soda_server_identify() with the identity for that address comes first.
 */
void soda_server_move(struct soda_server *server, const char *address);
/* For soda_conn_options, and so the next one. */
static inline const struct soda_identity *soda_server_identity(const struct soda_server *server)
{
	return server->proves ? &server->identity : NULL;
}
static inline struct soda_place *soda_server_place(struct soda_server *server)
{
	return &server->place;
}
/*
 * The server has, or will have, our BYE: connections that are there may be used until they end, but
 * attempts are over (it is always too early for one), as they would be made by a client that the
 * server does not know any more. Any thread.
 */
void soda_server_leave(struct soda_server *server);
/* Nobody waits for it any more, and attempts are over. Any thread. */
void soda_server_stop(struct soda_server *server);
/* The driver: GONE; closes the control connection. The owner has closed the others. */
void soda_server_end(struct soda_server *server);
/* In a fork's child: close the control connection's descriptor, and overwrite the keys. */
void soda_server_forget(struct soda_server *server);

/*
 * One attempt to come UP, which the session is not; server->hello says as whom, and its epoch is
 * that of the last HELLO: the attempt counts on.  0; errors of soda_conn_connect, of calls, and of
 * the hook `met`: all connections are closed then. The driver; may block.
 */
int soda_server_attempt(struct soda_server *server, enum soda_server_as as, struct soda_why *why);
/*
 * See that it is UP, at the pace that limits.h sets: at once after a failure, then more and more
 * seldom.  0: it is.  -EAGAIN: it is too early for another attempt; server->next_ns says when.
 * Other errors are those of an attempt.
 */
int soda_server_tick(struct soda_server *server, uint64_t now_ns, struct soda_why *why);
/* The driver: AWAY; all connections are closed. Nothing happens where none is open. */
void soda_server_down(struct soda_server *server);

/*
 * A connection failed with err; the driver sees to it.  Of the control connection: with its lock
 * held (soda_server_acquire), for a later report would be taken for one of the next connection. AS.
 */
void soda_server_report(struct soda_server *server, int err);

static inline enum soda_server_state soda_server_state(const struct soda_server *server)
{
	/* pairs with the driver's store of UP: all connections are there */
	return (enum soda_server_state)atomic_load_explicit(&server->state, memory_order_acquire);
}
static inline bool soda_server_up(const struct soda_server *server)
{
	return soda_server_state(server) == SODA_SERVER_UP;
}

/*
 * Wait until it is UP; -ETIMEDOUT: deadline_ns has passed, or the session ends.  Time that the
 * process stood still for does not count, and is added to *still_ns_p (which may be NULL). AS.
 */
int soda_server_wait(struct soda_server *server, uint64_t deadline_ns, uint64_t *still_ns_p);

/* How often all connections were closed. */
uint32_t soda_server_breaks(const struct soda_server *server);
/* Wait until they have been once more than `breaks`, or the session ends. */
void soda_server_await_break(struct soda_server *server, uint32_t breaks);

/* "tcp://10.0.0.1:7001: connection refused", for messages: the last failure. AS. */
const char *soda_server_trouble(const struct soda_server *server);

/* The control connection, locked until it is released; NULL, and locked all the same: not UP. */
struct soda_conn *soda_server_acquire(struct soda_server *server);
/* The same, waiting for the lock until deadline_ns; false: it is not locked. */
bool soda_server_acquire_until(struct soda_server *server, uint64_t deadline_ns,
			       struct soda_conn **control_p);
void soda_server_release(struct soda_server *server);
/*
 * The same for a process that ends, perhaps by exit() in a signal handler that has interrupted a
 * call with the connection: wait no longer than until deadline_ns, and not at all for what the
 * calling thread holds itself.  false: it is not locked.
 */
bool soda_server_acquire_at_end(struct soda_server *server, uint64_t deadline_ns);

/*
 * watch.c: whether the server answers while a call has the control connection, which a file's SYNC
 * or OPEN may have for as long as a disk takes.  The question goes by a connection of its own, as
 * another client, which has nothing there.  All by the driver of a session that is UP.
 */

/*
 * Ask.  true: nothing was heard for timeout_ms.  A refusal is an answer, and an error of another
 * kind says nothing of the server.
 */
bool soda_watch_is_silent(struct soda_server *server, int timeout_ms);
/* Nobody has had to ask for a while: say goodbye. */
void soda_watch_rest(struct soda_server *server);
/* Close the connection, if there is one; leaves: with a goodbye. */
void soda_watch_close(struct soda_server *server, bool leaves);

#endif
