/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs: so many ranks under a name, their phases and their collectives.  A rank has two clients,
 * one that pushes and one that pulls.  A job may have several agents: each has its own ranks, and
 * hears from each other agent by RELAYs; links.h is the other direction.
 * docs/internals/messages.md has the states.
 *
 * A job that is broken stays so: a rank has gone in the middle of it, or does not do what the
 * others do.  Every call of a rank is then refused with -ECANCELED and the job's sentence.
 */
#ifndef SODA_ROUTING_JOBS_H
#define SODA_ROUTING_JOBS_H

#include <semaphore.h>
#include <stdatomic.h>

#include "base/shares.h"
#include "routing/inbox.h"
#include "routing/near.h"
#include "transport/api/service.h"
#include "trust/job_key.h"

/* The answer to a PUSH or RELAY, kept because the call may be made again. */
struct soda_msg_answer {
	uint32_t n;
	uint8_t taken[SODA_MSG_PACKETS];
	uint16_t to[SODA_MSG_PACKETS]; /* ranks */
};

/* Of the last SODA_MSG_AHEAD calls: as many may be under way. */
struct soda_msg_answers {
	uint64_t number;	    /* of the last one; 0: none yet */
	struct soda_msg_answer *at; /* constant: call k's is at k % SODA_MSG_AHEAD */
	bool busy;		    /* the next one is being answered */
};

struct soda_msg_link;

/* A rank's client that has lost its connection, and may come back. Guarded by the table's lock. */
struct soda_msg_away {
	struct soda_msg_away *next;
	struct soda_msg_job *job; /* with the client's reference; NULL: it is not away */
	uint32_t rank;
	uint64_t until_ns;
};

/* A rank, as the agent has it. Guarded by the job's lock, but for the inbox. */
struct soda_msg_rank {
	struct soda_inbox inbox;    /* of another agent's rank: what waits for the link */
	struct soda_msg_link *link; /* constant: the next hop; NULL: the rank is here */
	/* of ranks that are here, all below */
	unsigned roles;	  /* bits 1 << enum soda_msg_role of the clients that have come */
	pid_t pid;	  /* 0: not known */
	bool left;	  /* a client of it has gone */
	bool finished;	  /* the phase under way */
	uint32_t ended;	  /* phases whose end it has been told */
	uint32_t reduced; /* collectives that it has taken part in */
	struct soda_msg_answers pushed;
	struct soda_msg_answer last_pushed[SODA_MSG_AHEAD];
	uint64_t life[2];     /* of its clients, by role - 1, and so the next two */
	const void *owner[2]; /* which connection is the client's */
	struct soda_msg_away away[2];
};

/* Another agent of the job: what it has said, and what waits for it. */
struct soda_msg_link {
	/* set when the job is made, then constant */
	struct soda_msg_job *job;
	const char *address;
	uint32_t agent;
	uint32_t ranks_n, first_rank; /* its own */

	/* guarded by the job's lock */
	uint64_t life; /* of the job in that agent; 0: it has not come */
	struct soda_msg_answers relayed;
	struct soda_msg_answer last_relayed[SODA_MSG_AHEAD];
	struct soda_wire_msg_relay said;      /* number 0: nothing yet */
	struct soda_wire_msg_reduce parts[2]; /* its part in collective n, at n % 2 */
	uint32_t heard_done, heard_reduce;    /* what it is known to have heard from here */
	/* where it is on this machine: packets for it; from it, set once, NULL: none */
	struct soda_msg_near_out near_out;
	struct soda_msg_near_in *near_in;

	pthread_mutex_t lock; /* after the job's; before no other */
	pthread_cond_t work;  /* for the link's thread */
	uint64_t pending;     /* bytes in inboxes of its ranks; guarded by lock, and so below */
	uint64_t fresh;	      /* of them, what the thread has not looked at */
	uint64_t since_ns;    /* the first of these came */
	bool kick;	      /* there is something to say at once */
};

struct soda_msg_job {
	struct soda_msg_jobs *all; /* constant */
	/* guarded by the table's lock, and so the next three */
	struct soda_msg_job *next;
	unsigned clients;     /* of ranks */
	unsigned refs;	      /* clients, links' threads, other agents' sessions */
	uint64_t rings_bytes; /* of the budget, beside the inboxes */
	/* set when it is made, then constant */
	char name[SODA_WIRE_MAX_NAME + 1];
	uint8_t key[SODA_MSG_KEY_BYTES]; /* what it is known by, and what it has given this router
					  */
	uint8_t grant[SODA_MSG_SIGNATURE_BYTES];
	bool keyed, local;
	uint32_t tenant; /* whose names this one is among (soda_peer_info.tenant) */
	uid_t uid;
	uint32_t ranks_n;
	uint32_t here_n; /* ranks of this agent */
	uint32_t agents, here;
	uint64_t life, shape; /* as in a LINK */
	uint8_t *memory;
	uint64_t memory_bytes;
	char *addresses;
	struct soda_msg_link *links; /* to agents that have ranks */
	uint32_t links_n;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a rank has come, an inbox has room, an answer, or broken */
	uint32_t come;		/* ranks with both clients; guarded by lock, and so below */
	uint32_t left;
	uint32_t finished;
	uint32_t phase; /* phases that have ended */
	bool pushed;	/* something in the phase under way */
	bool closing;	/* its last rank here has gone */
	uint32_t rooms; /* times an inbox that had been asked in vain has got room */
	struct {
		uint32_t n; /* ranks here that have taken part in the one under way */
		uint32_t op;
		uint64_t value;
	} reduce;
	uint64_t result; /* of the collective `reduced` */
	struct soda_why why;
	/* written under lock, read also without it, where an inbox's lock orders that */
	_Atomic uint32_t reduced; /* collectives that are complete */
	_Atomic bool broken;

	struct soda_msg_rank ranks[];
};

/* Sizes and times that a user may choose. */
struct soda_msg_tuning {
	uint64_t inbox_bytes;	 /* of a rank's inbox, at most */
	uint64_t transfer_bytes; /* that wait for another agent's ranks are sent at once... */
	uint32_t wait_us;	 /* ...and so long fewer wait for more */
	uint32_t threads;	 /* that route at the same time; 0: as many as there are */
};

struct soda_identity;

/*
 * Where those who come prove who they are: what the router's owner knows of them.  From any thread;
 * functions with `why` return 0 or a negative errno, and why.
 */
struct soda_msg_owners {
	void *arg;
	/* As whom this router comes to the one at that address: the caller's; NULL: as nobody. */
	int (*identify)(void *arg, const char *address, struct soda_identity **identity_p,
			struct soda_why *why);
	/* What another router calls the tenant of a job; NULL: no more. */
	const char *(*name)(void *arg, uint32_t tenant);
	/*
	 * Whose job another router, who is `from`, means by a name, of which no more than the job's
	 * own is left.
	 */
	int (*find)(void *arg, uint32_t from, const char **name_p, size_t *bytes_p,
		    uint32_t *tenant_p, struct soda_why *why);
	/* How many tenants there are now, which have shares of the memory. */
	uint32_t (*tenants)(void *arg);
};

struct soda_msg_jobs {
	struct soda_msg_tuning tuning; /* set before start, then constant */
	struct soda_msg_owners owners; /* likewise; zeroed: nobody proves who it is */
	sem_t turns;		       /* of tuning.threads, where these are limited */
	pthread_mutex_t lock;
	pthread_cond_t fewer;	     /* jobs, or threads */
	uint64_t budget;	     /* set before start, then constant */
	struct soda_shares reserved; /* guarded by lock, and so the next; holders are tenants */
	struct soda_job_pair *own; /* this router's; NULL: no job with a key has asked for it yet */
	struct soda_msg_job *list; /* all whose name can be joined */
	unsigned n;		   /* jobs, those that are not listed too */
	struct soda_msg_away *away;
	pthread_t watch; /* ends those that do not come back */
	bool stopping;
	pthread_cond_t changed; /* `away`, or stopping */
	unsigned threads;	/* of links */
	pthread_t last;		/* thread that has ended, and nobody has joined */
	bool has_last;
	_Atomic uint64_t broken_n;
	_Atomic uint64_t returned; /* clients of ranks, after a loss */
	struct {
		_Atomic uint64_t transfers, packets, bytes, refused, again, near;
		_Atomic int64_t blocked; /* ranks on blocklists, now */
	} relays; /* to other agents; again: connections that were made after a loss */
};

extern const struct soda_msg_tuning soda_msg_tuning_usual;

/* Starts a thread. 0, negative errno. */
int soda_msg_jobs_init(struct soda_msg_jobs *all, uint64_t budget,
		       const struct soda_msg_tuning *tuning);
/*
 * The challenge that is to be signed on one connection, of a job with a key. 0; -ENOTSUP: no
 * OpenSSL, -ENOMEM, -EIO, why.
 */
int soda_msg_jobs_challenge(struct soda_msg_jobs *all, struct soda_wire_msg_challenge *c_p,
			    struct soda_why *why);
/* When the last client has left its job; awaits the ends of jobs and of links. */
void soda_msg_jobs_destroy(struct soda_msg_jobs *all);

/*
 * Find the job or make it, and take the rank's place in it.  -EINVAL: impossible rank or name, or
 * the job has another number of ranks; -EACCES: another key or user; -EBUSY: the rank is there;
 * -ENOSPC: no memory for its inboxes, beside what is kept for other tenants (base/shares.h), nor
 * any that jobs which have ended give back within a second; -ENOMEM.  *made_p: the job is new, and
 * its links, if any, are to be started. owner: the connection.  A client that comes back
 * (join->again) takes the place of its older one: -ESTALE: the job, or its place in it, has ended
 * meanwhile.
 */
int soda_msg_job_join(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		      const struct soda_wire_msg_place *place, const struct soda_peer_info *who,
		      const void *owner, struct soda_msg_job **job_p, bool *made_p,
		      struct soda_why *why);
/* Whether the connection is still the client's, and no newer one is. */
bool soda_msg_job_owns(struct soda_msg_job *job, uint32_t rank, enum soda_msg_role role,
		       const void *owner);
/*
 * The connection is lost.  True: its client may come back, and the reference is kept for that, or
 * given back when it has not within SODA_MSG_PATIENCE_MS, and the rank has left then.  False: it is
 * of no use to wait; or the client has come back already.
 */
bool soda_msg_job_lose(struct soda_msg_job *job, uint32_t rank, enum soda_msg_role role,
		       const void *owner);
/*
 * Another agent introduces itself.  A reference to the job is the caller's.  -EBUSY: no rank of
 * such a job has come here yet; -EACCES: another key; -EINVAL: other agents or places.
 */
int soda_msg_job_link(struct soda_msg_jobs *all, const struct soda_wire_msg_link *link,
		      const char *name, size_t name_bytes, uint32_t tenant,
		      struct soda_msg_job **job_p, struct soda_msg_link **link_p,
		      struct soda_why *why);
/*
 * The rank's client is gone.  That breaks the job, unless the rank was between two phases and the
 * others have not begun another one.  May be called again.
 */
void soda_msg_job_leave(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank);
/*
 * Give a reference back, a rank's client's or another; the job is freed with the last one, and ends
 * when the last client's is given back.
 */
void soda_msg_job_put(struct soda_msg_job *job, bool client);

/*
 * The rank reaches its agent by rings: make them, or find them, before its client that pulls has
 * come.  -ENOSPC: the budget has no room for them; -EINVAL: too late; -ESTALE: it pulls, and has
 * none; errors of soda_msg_rings_make().
 */
int soda_msg_job_rings(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       enum soda_msg_role role, struct soda_msg_rings **rings_p,
		       struct soda_why *why);

/* Wait for ranks that have not come, to whatever agent. -ECANCELED. */
int soda_msg_job_await(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t wait_ms,
		       struct soda_wire_msg_missing *missing_p, struct soda_why *why);
/* What routing one PUSH did. */
struct soda_msg_routed {
	uint32_t packets, refused;
	uint64_t messages, bytes; /* of what was taken */
};
/*
 * Put the packets of a checked PUSH where they belong; taken has a byte for each.  -EINVAL: a rank
 * that is none, or after FINISH; -ECANCELED.
 */
int soda_msg_job_route(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
		       const uint8_t *body, const struct soda_wire_msg_push *push, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why);
/*
 * Take what waits for the rank into out, of at most pull->room bytes; waits for news.  view: the
 * connection's.  Returns how many bytes. -ECANCELED.
 */
int soda_msg_job_pull(struct soda_msg_job *job, uint32_t rank, struct soda_inbox_view *view,
		      const struct soda_wire_msg_pull *pull, uint8_t *out,
		      struct soda_wire_msg_pulled *pulled_p, struct soda_why *why);
/*
 * Of a rank with rings, in place of the two above: route what its lanes have until there is another
 * collective to tell, or nothing has come for pull->wait_ms.  -EINVAL: packets after FINISH;
 * -ECANCELED, also where what its program has written makes no sense.
 */
int soda_msg_job_serve(struct soda_msg_job *job, uint32_t rank,
		       const struct soda_wire_msg_pull *pull, struct soda_wire_msg_pulled *pulled_p,
		       struct soda_msg_routed *routed_p, struct soda_why *why);
/* Whether the rank has rings. */
bool soda_msg_job_has_rings(const struct soda_msg_job *job, uint32_t rank);
/* The rank has finished this phase. Again: nothing. -EINVAL: it is another phase's; -ECANCELED. */
int soda_msg_job_finish(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			uint32_t phase, struct soda_why *why);
/* Again: nothing. -EINVAL: not the rank's next collective, or none; -ECANCELED. */
int soda_msg_job_reduce(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			const struct soda_wire_msg_reduce *r, struct soda_why *why);

/* Another agent's checked RELAY, as soda_msg_job_route(). -EPROTO: it cannot be. */
int soda_msg_job_relay(struct soda_msg_job *job, struct soda_msg_link *link, const uint8_t *body,
		       const struct soda_wire_msg_relay *relay, uint8_t *taken,
		       struct soda_msg_routed *routed_p, struct soda_why *why);
/*
 * The other agent is on this machine, and asks for the memory in which packets for its ranks lie,
 * before there are any.  The link keeps the descriptor.  -EACCES: who asks is not of this job's
 * user; -EINVAL: too late; errors of soda_msg_near_make().
 */
int soda_msg_job_near(struct soda_msg_job *job, struct soda_msg_link *link,
		      const struct soda_peer_info *who, struct soda_wire_msg_rings *sizes_p,
		      int *fd_p, struct soda_why *why);
/*
 * As soda_msg_job_relay(), for packets in the other agent's memory.  tails: how far each ring of a
 * rank here is filled.  taken: how far each has been taken; none is, where it is not mapped.
 */
int soda_msg_job_offer(struct soda_msg_job *job, struct soda_msg_link *link,
		       const struct soda_wire_msg_relay *relay, const uint8_t *tails,
		       uint8_t *taken, struct soda_msg_routed *routed_p, struct soda_why *why);
/* Break the job off, for this reason, if it is not. */
void soda_msg_job_fail(struct soda_msg_job *job, const char *why);

/* For a link's thread (links.c). */

enum soda_msg_state { SODA_MSG_JOB_RUNS, SODA_MSG_JOB_ENDS, SODA_MSG_JOB_BROKEN };

/* What is to be said to that agent with the next RELAY, but for number and packets. */
enum soda_msg_state soda_msg_link_say(struct soda_msg_link *l, struct soda_wire_msg_relay *relay_p);
/* The phase under way: that of the packets that were loaded before. */
uint32_t soda_msg_link_phase(struct soda_msg_link *l);
/* Whether packets are offered to it, not sent. */
bool soda_msg_link_is_near(struct soda_msg_link *l);
/* Its memory is mapped here. It is the link's. */
void soda_msg_link_take_near(struct soda_msg_link *l, struct soda_msg_near_in *near_in);
/* It has heard that. */
void soda_msg_link_heard(struct soda_msg_link *l, const struct soda_wire_msg_relay *relay);
/* Whether all of its ranks have left, after an end. */
bool soda_msg_link_left(struct soda_msg_link *l);
/* An inbox that had been asked in vain has room. */
void soda_msg_job_room(struct soda_msg_job *job);
/* links.c: start the threads of a new job's links, if it has any; else the job is broken off. */
void soda_msg_links_start(struct soda_msg_job *job);

#endif
