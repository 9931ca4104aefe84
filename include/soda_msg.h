/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA: many small messages between the ranks of a program, routed by a DPU agent.
 *
 * A rank pushes messages and waits for none of them; they are gathered, routed by the agent, and
 * pulled by the ranks that they are for: each exactly once, some time, in no order.
 *
 *   static void use(void *arg, const struct soda_message *m)
 *   {
 *           ... m->data, m->bytes, m->from ...
 *   }
 *
 *   struct soda_msg_job *job;
 *   int ret = soda_msg_start(NULL, &job);            as soda msg run, mpirun or srun says
 *
 *   while (ret == 0 && there is more to send)
 *           ret = soda_msg_push_pull(job, rank, &x, sizeof(x), use, NULL);
 *   if (ret == 0)
 *           ret = soda_msg_finish(job);              I have sent my last
 *   if (ret == 0)
 *           ret = soda_msg_drain(job, use, NULL);    all have, and I have everything
 *   if (ret < 0)
 *           ... soda_msg_last_error() ...
 *
 * and soda_msg_end(job) where soda_msg_start() was 0.  Those two are loops around soda_msg_push(),
 * soda_msg_pull() and soda_msg_wait(), which wait for nothing, or for what is named; a program may
 * write its own.  An error that has come stays: a loop that goes on does so for ever.
 *
 * The agent must have memory for this: soda-dpu-agent --msg-memory SIZE; or there is none, and
 * threads of each rank's process route (soda_msg_options.routing).  Link with libsoda-msg;
 * neither soda_init() nor libsoda is needed.
 *
 * A rank whose messages are not pulled holds up those who push to it, by -EAGAIN.  No two ranks
 * ever wait for each other where each keeps two rules: who gets -EAGAIN pulls before it tries
 * again, and who waits for something else in a phase, a collective among it, pulls meanwhile.
 *
 * Conventions.  Functions that return int return 0 or a negative errno value, and leave errno alone
 * where they succeed.  After a failure other than -EAGAIN, -EINPROGRESS and -ENODATA
 * soda_msg_last_error() has a sentence for the calling thread.  All but soda_msg_start(),
 * soda_msg_wait(), soda_msg_push_pull(), soda_msg_drain() and soda_msg_end() return at once.  No
 * function may be called from a signal handler or from the child of a fork (there: -ENOTSUP).
 * soda_msg_pull(), soda_msg_pull_many(), soda_msg_push_pull(), soda_msg_drain(), soda_msg_begin()
 * and the collectives: one thread at a time; the others from any thread.
 *
 * Errors of every function, once they have come they stay: -ECANCELED: the job is broken off,
 * because a rank has gone before its end, or does not do what the others do; the sentence names it.
 * -ENOTCONN: the agent is lost, or has been out of reach for 4 seconds.  What had not been pulled
 * is lost.  A shorter loss of the connection is not noticed.
 */
#ifndef SODA_MSG_H
#define SODA_MSG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SODA_API
#define SODA_API __attribute__((visibility("default")))
#endif

struct soda_msg_job; /* a rank's part in a job */

#define SODA_MSG_RANKS_MAX 4096u
#define SODA_MSG_BYTES_MAX (1u << 20) /* of a message */

/* What soda_msg_start() takes. Zero it, then set what is wanted. */
struct soda_msg_options {
	const char *agent; /* tcp://HOST:PORT, shm:///PATH; NULL: SODA_MSG_AGENT, or below, or
			      SODA_DPU */
	const char *job;   /* a name, of printable ASCII without a space; NULL: SODA_MSG_JOB, or
			      that of mpirun's or srun's job */
	const char *key;   /* the job's secret, any string; NULL: SODA_MSG_KEY, or the first line of
			      SODA_MSG_KEY_FILE, or there is none */
	unsigned rank;	   /* both 0: SODA_MSG_RANK and SODA_MSG_RANKS, or as mpirun or srun says */
	unsigned ranks;
	unsigned timeout_ms; /* for all ranks to come; 0: 60000 */
	unsigned flush_us;   /* a message waits so long for others; 0: SODA_MSG_FLUSH_US, or 500 */
	/*
	 * A job of several agents, the same for all ranks.  agents: their addresses, as they reach
	 * each other, joined by commas; NULL: SODA_MSG_AGENTS, or those of the host file that
	 * SODA_MSG_HOSTS names, or with SODA_MSG_PORT of Slurm's nodes, or there is one.  places:
	 * which agent, from 0, is that of which rank, "0*3,1,0": of ranks 0 to 2 the first one, of
	 * rank 3 the second, of rank 4 the first; NULL: SODA_MSG_PLACES, or each has as many ranks
	 * in a row.  `agent` is how this rank reaches its own; NULL also: by its address in
	 * `agents`.
	 */
	const char *agents;
	const char *places;
	/*
	 * Who routes: "agent"; or "process": threads of this process, and of that of each other
	 * rank, of at most 64, without any agent.  Then agents (or the host file, or Slurm's
	 * nodes) say where these find each other: its address is that of an agent's first rank,
	 * and the ports behind it, or the names with .1, .2 ... of shm, those of its others.
	 * Where none is named all ranks are on this machine.  NULL: SODA_MSG_ROUTING, or "agent".
	 */
	const char *routing;
};

/* What soda_msg_pull() gives: readable until the next soda_msg_pull(). */
struct soda_message {
	const void
		*data; /* aligned to 8 bytes where all of its sender's sizes are multiples of 8 */
	size_t bytes;
	unsigned from;	   /* rank */
	unsigned reserved; /* zero */
};

/* What soda_msg_pull_many() gives: readable until the next one, or the next soda_msg_pull(). */
struct soda_message_run {
	const void *data;  /* one message behind the other; aligned as those of soda_msg_pull() */
	size_t bytes;	   /* of each */
	size_t count;	   /* 1 or more */
	unsigned from;	   /* rank, of all of them */
	unsigned reserved; /* zero */
};

/* What a rank has done since soda_msg_start(). */
struct soda_msg_stats {
	uint64_t pushed, pushed_bytes; /* messages, and their data */
	uint64_t pulled, pulled_bytes;
	uint64_t stalls;		     /* times soda_msg_push() returned -EAGAIN */
	uint64_t sent_calls, received_calls; /* transfers to the agent, and from it: calls, or
						packets in memory that is shared with it */
	uint64_t sent_bytes, received_bytes; /* of them, with all that is around the data */
	uint64_t refused; /* packets that the agent had no room for, and were sent again */
};

/*
 * Join a job, and wait until all of its ranks have.  how NULL: as the environment says.  *job_p is
 * the caller's until soda_msg_end().  Starts two threads; with routing in this process also two for
 * each other rank, and a few.  -EINVAL: no such agent, rank or name, or
 * others of this job say another number of ranks; -EACCES: a job of this name has another key, or
 * is another user's, or others may read SODA_MSG_KEY_FILE; -EBUSY: this rank is there already;
 * -ENOSPC: the agent has no memory for so many ranks; -ETIMEDOUT: ranks have not come, the sentence
 * says which; -ENOTSUP: the agent routes no messages; -ECONNREFUSED, -ENOENT...: it is not there;
 * -EADDRINUSE: with routing in this process, somebody else listens at its address; -ENOMEM.
 */
SODA_API int soda_msg_start(const struct soda_msg_options *how, struct soda_msg_job **job_p);
/*
 * Leave the job.  Where a phase is under way that breaks it off for the others; not, where this
 * rank has been told its end (-ENODATA of soda_msg_pull()).  May take a second; with routing in
 * this process 5, where another rank is out of reach.  No other call with this job may be under
 * way. NULL: nothing.
 */
SODA_API void soda_msg_end(struct soda_msg_job *job);
SODA_API unsigned soda_msg_rank(const struct soda_msg_job *job);
SODA_API unsigned soda_msg_ranks(const struct soda_msg_job *job);

/*
 * Send a message of 0 to SODA_MSG_BYTES_MAX bytes to a rank, this one too.  The data are copied.
 * -EAGAIN: there is no room now; pull, then try again.  -EINVAL: no such rank; -EMSGSIZE: too
 * large; -EPIPE: after soda_msg_finish(); -ENOMEM (of a message of more than 32 KiB).
 */
SODA_API int soda_msg_push(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes);
/*
 * The next message.  -EAGAIN: there is none now.  -ENODATA: all ranks have finished, and all
 * messages to this one have been pulled: the phase is over. -EIO: a rank sends nonsense.
 */
SODA_API int soda_msg_pull(struct soda_msg_job *job, struct soda_message *msg_p);
/*
 * The same for many messages of one size, of a program that gathers them itself: a call, and a copy
 * of all, instead of one for each.  They mix with those of the two functions above.
 *
 * push_many: `count` messages of `bytes` each, which lie one behind the other, are pushed as by
 * soda_msg_push(), from the first on; *pushed_p: how many were.  Fewer than count: the next one
 * would have failed, mostly by -EAGAIN.  Errors of soda_msg_push(): none was.
 * pull_many: the next messages that lie one behind the other: of one size, from one rank.  Errors
 * of soda_msg_pull().
 */
SODA_API int soda_msg_push_many(struct soda_msg_job *job, unsigned rank, const void *data,
				size_t bytes, size_t count, size_t *pushed_p);
SODA_API int soda_msg_pull_many(struct soda_msg_job *job, struct soda_message_run *run_p);
/*
 * Have what was pushed sent now, not at the latest after flush_us.  Messages travel without this,
 * too.
 */
SODA_API int soda_msg_progress(struct soda_msg_job *job);
/* This rank pushes no more in this phase. -EPIPE: it has said so before. */
SODA_API int soda_msg_finish(struct soda_msg_job *job);
/* Begin another phase, after -ENODATA of soda_msg_pull(). -EINVAL: the phase is not over. */
SODA_API int soda_msg_begin(struct soda_msg_job *job);

/*
 * The same for a program that does nothing else meanwhile.  take is called with each message that
 * is pulled, which ends with the call; it may push, by soda_msg_push(), and not pull: these two are
 * -EINVAL there.
 *
 * push_pull: push, and pull while there is no room.  It pulls nothing where there is.  Errors of
 * soda_msg_push() but -EAGAIN, and of soda_msg_pull().
 * drain: pull until the phase is over, which is 0.  -EINVAL: this rank has not said
 * soda_msg_finish(), so that it would not end; errors of soda_msg_pull().
 */
typedef void soda_msg_take_fn(void *arg, const struct soda_message *msg);
SODA_API int soda_msg_push_pull(struct soda_msg_job *job, unsigned rank, const void *data,
				size_t bytes, soda_msg_take_fn *take, void *arg);
SODA_API int soda_msg_drain(struct soda_msg_job *job, soda_msg_take_fn *take, void *arg);

/*
 * Collectives: all ranks call the same ones in the same order.  -EINPROGRESS: not all have yet;
 * call it again, with the same arguments, until it returns something else.  Meanwhile pull, and
 * wait for SODA_MSG_PULL | SODA_MSG_COLLECTIVE.  For SODA_MSG_COLLECTIVE alone wait only where no
 * rank pushes to this one before it takes part, as between phases: who has no room does not come.
 * They say nothing of messages under way.  -EINVAL: another one is in progress.
 *
 * Sums of integers wrap around.  Of doubles: NaN is what a NaN of any rank makes; sum_double adds
 * in the order of ranks, so that the result is the same, to the bit, at all ranks and every time.
 * gather: all[i] becomes rank i's number, at every rank; `all` has a place for each.
 * broadcast: `bytes` bytes, at most SODA_MSG_BYTES_MAX, of the rank `root` are copied to all
 * others' data; all say the same root and bytes, -EINVAL: no such. The last three take as many
 * rounds of all ranks as there are ranks, or words of 8 bytes, one after the other: they are for
 * some numbers, not for data.
 */
SODA_API int soda_msg_barrier(struct soda_msg_job *job);
SODA_API int soda_msg_sum(struct soda_msg_job *job, int64_t mine, int64_t *all_p);
SODA_API int soda_msg_max(struct soda_msg_job *job, int64_t mine, int64_t *all_p);
SODA_API int soda_msg_min(struct soda_msg_job *job, int64_t mine, int64_t *all_p);
SODA_API int soda_msg_max_double(struct soda_msg_job *job, double mine, double *all_p);
SODA_API int soda_msg_min_double(struct soda_msg_job *job, double mine, double *all_p);
SODA_API int soda_msg_sum_double(struct soda_msg_job *job, double mine, double *all_p);
SODA_API int soda_msg_gather(struct soda_msg_job *job, int64_t mine, int64_t *all);
SODA_API int soda_msg_broadcast(struct soda_msg_job *job, unsigned root, void *data, size_t bytes);

#define SODA_MSG_PULL 0x1u	 /* soda_msg_pull() would not return -EAGAIN */
#define SODA_MSG_PUSH 0x2u	 /* there is room where soda_msg_push() last returned -EAGAIN */
#define SODA_MSG_COLLECTIVE 0x4u /* a collective is complete */

/*
 * Wait for one of these, for at most timeout_ms (< 0: no limit), and have what was pushed sent:
 * now, or within flush_us where what was sent before has not been taken yet. -ETIMEDOUT: none came;
 * -EINVAL: nothing to wait for.
 */
SODA_API int soda_msg_wait(struct soda_msg_job *job, unsigned what, int timeout_ms);

/* In the child of a fork: all 0. */
SODA_API void soda_msg_get_stats(struct soda_msg_job *job, struct soda_msg_stats *stats_p);

/* The calling thread's last failure here, or "". Valid until its next call of a soda_msg function.
 */
SODA_API const char *soda_msg_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
