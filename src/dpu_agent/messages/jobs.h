/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs: so many ranks under a name, their phases and their collectives.  A rank has two clients,
 * one that pushes and one that pulls.  docs/internals/messages.md has the states.
 *
 * A job that is broken stays so: a rank has gone in the middle of it, or does not do what the
 * others do.  Every call of a rank is then refused with -ECANCELED and the job's sentence.
 */
#ifndef SODA_DPU_AGENT_JOBS_H
#define SODA_DPU_AGENT_JOBS_H

#include <stdatomic.h>

#include "dpu_agent/messages/inbox.h"
#include "transport/api/service.h"

/* A rank, as the agent has it. Guarded by the job's lock, but for the inbox. */
struct soda_msg_rank {
	struct soda_inbox inbox;
	unsigned roles;	  /* bits 1 << enum soda_msg_role of the clients that have come */
	pid_t pid;	  /* 0: not known */
	bool left;	  /* a client of it has gone */
	bool finished;	  /* the phase under way */
	uint32_t ended;	  /* phases whose end it has been told */
	uint32_t reduced; /* collectives that it has taken part in */
};

struct soda_msg_job {
	/* guarded by the table's lock, both */
	struct soda_msg_job *next;
	unsigned clients;
	/* set when it is made, then constant */
	char name[SODA_WIRE_MAX_NAME + 1];
	uint8_t key[SODA_MSG_KEY_BYTES];
	bool keyed, local;
	uid_t uid;
	uint32_t ranks_n;
	uint8_t *memory;
	uint64_t memory_bytes;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a rank has come, an inbox has room, or broken */
	uint32_t come;		/* ranks with both clients; guarded by lock, and so below */
	uint32_t left;
	uint32_t finished;
	uint32_t phase; /* phases that have ended */
	bool pushed;	/* something in the phase under way */
	uint32_t rooms; /* times an inbox that had been asked in vain has got room */
	struct {
		uint32_t n; /* ranks that have taken part in the one under way */
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

struct soda_msg_jobs {
	pthread_mutex_t lock;
	uint64_t budget;	   /* set before start, then constant */
	uint64_t reserved;	   /* guarded by lock, and so the next */
	struct soda_msg_job *list; /* all whose name can be joined */
	unsigned n;		   /* jobs, those that are not listed too */
	_Atomic uint64_t broken_n;
};

void soda_msg_jobs_init(struct soda_msg_jobs *all, uint64_t budget);
/* When the last client has left its job. */
void soda_msg_jobs_destroy(struct soda_msg_jobs *all);

/*
 * Find the job or make it, and take the rank's place in it.  -EINVAL: impossible rank or name, or
 * the job has another number of ranks; -EACCES: another key or user; -EBUSY: the rank is there;
 * -ENOSPC: no memory for its inboxes; -ENOMEM.
 */
int soda_msg_job_join(struct soda_msg_jobs *all, const struct soda_wire_msg_join *join,
		      const char *name, size_t name_bytes, const struct soda_peer_info *who,
		      struct soda_msg_job **job_p, struct soda_why *why);
/*
 * The rank's client is gone.  That breaks the job, unless the rank was between two phases and the
 * others have not begun another one.  May be called again.
 */
void soda_msg_job_leave(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank);
/* Give back the client's reference; the job is freed with the last one. */
void soda_msg_job_put(struct soda_msg_jobs *all, struct soda_msg_job *job);

/* Wait for ranks that have not come. -ECANCELED. */
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
 * Take what waits for the rank into out, of at most pull->room bytes; waits for news.  Returns how
 * many bytes. -ECANCELED.
 */
int soda_msg_job_pull(struct soda_msg_job *job, uint32_t rank,
		      const struct soda_wire_msg_pull *pull, uint8_t *out,
		      struct soda_wire_msg_pulled *pulled_p, struct soda_why *why);
/* -EINVAL: it has finished already; -ECANCELED. */
int soda_msg_job_finish(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			struct soda_why *why);
/* -EINVAL: not the rank's next collective, or none; -ECANCELED. */
int soda_msg_job_reduce(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			const struct soda_wire_msg_reduce *r, struct soda_why *why);

#endif
