/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libsoda-msg inside; include/soda_msg.h is its contract, docs/internals/messages.md its design.
 *
 *   job.c       start and end, errors, waiting
 *   collectives.c   what all ranks compute together
 *   push.c      from soda_msg_push() to packets in lanes
 *   quick.c     push without the lock, for one thread
 *   gather.c    the same for several
 *   pull.c      from packets in batches to soda_msg_pull()
 *   take.c      pushes that pull, and pulling to the end
 *   carrier.c   the two threads, which alone use the connections
 *   flights.c   from packets in lanes to PUSHes, of which several are under way
 *   rings.c     memory that the agent has mapped, too, where it is on this machine
 *   launch.c    which rank this is, as mpirun, srun or soda msg run says
 *   hosts.c     where agents are, as a host file or Slurm says
 *   router.c    a router in this process, in place of an agent
 *
 * One lock a job, held for pointer changes and copies of single messages, and across no call.
 */
#ifndef SODA_MESSAGES_JOB_H
#define SODA_MESSAGES_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/limits.h"
#include "messages/flights.h"
#include "messages/gather.h"
#include "messages/quick.h"
#include "messages/rings.h"
#include "soda_msg.h"
#include "transport/api/transport.h"
#include "trust/job_key.h"
#include "wire/messages.h"

enum {
	SODA_LANE_SLOTS = SODA_RING_SLOTS, /* packets of a lane, the open one among them */
	SODA_MSG_BATCHES = 4,		   /* answers to PULLs that can wait for the program */
	SODA_MSG_LANES_BYTES = 64 << 20,   /* of all lanes of a job, or a little more */
	SODA_MSG_LARGE =
		32 << 10, /* larger messages travel in parts; those that fill no slot, too */
};

/*
 * What is under way to one rank.  Slots [head, tail) are whole packets for the sender, tail's is
 * open: head <= tail <= head + SODA_LANE_SLOTS.  Guarded by the job's lock; the content of slots
 * [head, tail) is the sender's.
 */
struct soda_lane {
	struct soda_quick_run quick; /* what was pushed so is not counted below */
	uint32_t head, tail;
	uint32_t bytes[SODA_LANE_SLOTS]; /* with the packet's head */
	uint32_t messages;		 /* of the open slot, and so below */
	uint32_t run;			 /* where its last run begins; 0: none */
	uint32_t run_size, run_count;
	uint64_t since_ns; /* its first message */
	/* a large message, or NULL: of its bytes so many were taken, and so many loaded */
	uint8_t *large;
	uint32_t large_bytes, large_at, large_loaded;
	/* without rings (flights.h) */
	uint32_t loaded;     /* slots [head, loaded) are in PUSHes; loaded <= tail */
	uint32_t flying;     /* packets in PUSHes that have no answer yet */
	uint64_t stale;	     /* of what PUSHes up to this one have nothing will be taken */
	uint32_t blocked_ms; /* not 0: its last packet was refused; it is tried again */
	uint64_t retry_ns;   /* then, or when nothing else can be sent */
};

/* An answer to a PULL. */
struct soda_batch {
	uint32_t bytes;
	bool ended;					 /* the phase, with it */
	_Alignas(8) uint8_t data[SODA_WIRE_MAX_CONTROL]; /* behind a soda_wire_msg_pulled */
};

/* initial-exec: a message costs no call to find them */
#define SODA_MSG_TLS __attribute__((tls_model("initial-exec"), visibility("hidden")))

enum soda_collective_state { SODA_COLLECTIVE_NONE, SODA_COLLECTIVE_ASKED, SODA_COLLECTIVE_SENT };

struct soda_msg_job {
	/* set when it is made, then constant */
	pid_t pid;
	uint32_t rank, ranks;
	uint64_t life; /* random: of this part in the job */
	uint64_t flush_ns;
	uint32_t slot_bytes;
	uint32_t packet_bytes; /* that a slot is filled up to */
	uint32_t lane_slots;   /* that a lane uses */
	uint8_t *slots; /* of all lanes; with rings in memory that the agent has mapped, too */
	struct soda_rings rings; /* out NULL: there are none, and calls are made instead */
	/*
	 * A connection is changed under the lock, by its thread, and may be aborted under it by
	 * who ends the job.
	 */
	struct soda_conn *push_conn;  /* the sender's, then soda_msg_end()'s */
	struct soda_conn *pull_conn;  /* the receiver's, likewise */
	struct soda_flights *flights; /* the sender's; NULL with rings */
	struct {
		uint64_t at; /* the receiver's: bytes of packets that have arrived */
		uint32_t ended;
	} arrived;
	pthread_t sender, receiver;
	unsigned threads;

	struct soda_quick quick;
	struct soda_gathers gathers;
	pthread_mutex_t lock;
	pthread_cond_t work; /* for the sender */
	pthread_cond_t room; /* for the receiver: a batch is free, or a collective is asked for */
	pthread_cond_t news; /* for the program, and who ends the job */
	/* guarded by lock, and so below */
	unsigned sleeping; /* sender: it waits without a deadline */
	bool listening;	   /* likewise: to the rings, for room or for the agent to take the last */
	unsigned waiting;  /* threads in soda_msg_wait() */
	bool flush;	   /* send what is open now */
	uint32_t denied;   /* lane of the last -EAGAIN */
	bool finish, finish_sent;
	uint32_t phase;
	bool stop;
	unsigned stopped; /* threads */
	int error;
	struct soda_why why;
	struct {
		enum soda_collective_state state;
		struct soda_wire_msg_reduce ask;
		uint32_t done; /* the last one that is complete, and its result */
		uint64_t value;
		size_t round; /* of one of several rounds: so many are done */
		double sum;   /* of these */
	} collective;
	struct soda_msg_stats stats;
	uint32_t batch_head, batch_tail; /* taken by the program, put by the receiver */
	/* the program's, of soda_msg_pull(), one thread at a time */
	struct {
		_Atomic bool open, over; /* packets are being read; the phase has ended */
		bool wrong;		 /* what is being read makes no sense: nothing more is */
		bool ends;		 /* the phase, behind what is being read */
		const uint8_t *data;	 /* of a batch, or of the rings' inbox */
		uint32_t bytes;
		uint64_t base; /* of the rings: where data lies in all that has come */
		uint32_t at, packet_end;
		uint32_t from;
		uint32_t run_size, run_left;
		bool run_part;
	} reading;
	struct soda_part {
		uint8_t *data; /* a large message that is being put together, or NULL */
		uint32_t bytes, at;
	} * parts; /* a rank's each */
	_Atomic uint64_t pulled, pulled_bytes;
	_Atomic uint64_t ranges, ranges_bytes; /* of the rings that were read */
	uint8_t *given;			       /* a large message that the program has */
	bool taking; /* the program's function has a message, and pulls none. The program's */

	struct soda_msg_router *router;	  /* in this process; NULL: an agent routes. Constant */
	char agent[SODA_ADDRESS_MAX + 1]; /* set before the threads start, then constant */
	struct soda_job_pair *pair;	  /* of the job's key; NULL: it has none. Likewise */
	uint8_t *join[2]; /* JOINs of a client that comes back, by role - 1: of its thread */
	size_t join_bytes;
	bool silent; /* who ends the job has aborted the connections */

	struct soda_batch batches[SODA_MSG_BATCHES]; /* the receiver's, or the program's */
	struct soda_lane lanes[];
};

/* job.c */

/* Remember the sentence for soda_msg_last_error(). Returns err. */
int soda_msg_failed(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The process that this thread has found itself in; its address names the thread. */
extern _Thread_local pid_t soda_msg_known SODA_MSG_TLS;
/* 0, or -ENOTSUP in the child of a fork. Forgets the last sentence. */
int soda_msg_check(const struct soda_msg_job *job);
/* The job's error, remembered; 0: none. */
int soda_msg_error_locked(const struct soda_msg_job *job);
/* A call failed with ret and why: the job has an error, if it had none. */
void soda_msg_lose(struct soda_msg_job *job, int ret, const struct soda_why *why);
uint64_t soda_msg_now_ns(void);
/*
 * Connect to the job's agent, and say this JOIN, signed where the job has a key. timeout_ms 0: as
 * long as such things may take.  0, with the connection; errors of soda_conn_join() and of the
 * call.
 */
int soda_msg_connect(const struct soda_msg_job *job, uint8_t *join, size_t bytes, int timeout_ms,
		     struct soda_conn **conn_p, struct soda_why *why);
/* There is news for the program. */
void soda_msg_news_locked(struct soda_msg_job *job);
/* There is work for the sender. */
void soda_msg_work_locked(struct soda_msg_job *job);
static inline bool soda_msg_has_rings(const struct soda_msg_job *job)
{
	return job->rings.out != NULL;
}

/* collectives.c: whether one has been asked for, and is not known to be complete; or is. */
bool soda_msg_asks_locked(const struct soda_msg_job *job);
bool soda_msg_complete_locked(const struct soda_msg_job *job);

/* push.c */

/*
 * Close the open slot of a lane, which has a message: it is the sender's. The lock is held, and so
 * below.
 */
void soda_lane_close_locked(struct soda_msg_job *job, uint32_t rank);
/*
 * Messages of this size, which fit into a slot, `count` of them, at least one, one behind the
 * other: as many as one slot takes.  How many, which are counted; -EAGAIN.
 */
int soda_lane_push_locked(struct soda_msg_job *job, uint32_t rank, const void *data, uint32_t size,
			  uint32_t count);
/* Nothing in any lane is pushed without the lock. The pusher is barred, or is the caller. */
void soda_lanes_settle_locked(struct soda_msg_job *job);
uint8_t *soda_lane_slot(struct soda_msg_job *job, uint32_t rank, uint32_t slot);
bool soda_lane_open_locked(const struct soda_lane *lane); /* whether a slot is open */
/* The slot at the lane's tail has a packet of so many bytes, and is the sender's, or the agent's.
 */
void soda_lane_put_locked(struct soda_msg_job *job, uint32_t rank, uint32_t bytes);
/* Whether the agent has something to take. */
bool soda_msg_under_way_locked(struct soda_msg_job *job);
/* What is open is to be sent now. */
void soda_msg_flush_locked(struct soda_msg_job *job);
/* Slots that are not free; of rings, as of now. */
uint32_t soda_lane_used_locked(struct soda_msg_job *job, uint32_t rank);

/* pull.c: whether soda_msg_pull() would not return -EAGAIN. */
bool soda_msg_pullable_locked(const struct soda_msg_job *job);

/* carrier.c */

/*
 * As soda_conn_call(), on the role's connection, or on another one where that is lost: every call
 * may be made again.  An error is the job's.  By the role's thread, or before there is one.
 */
int soda_msg_call(struct soda_msg_job *job, enum soda_msg_role role, enum soda_messages_msg type,
		  const void *body, size_t bytes, void *reply, size_t capacity, size_t *got_p,
		  int patience_ms);
void *soda_msg_sender_main(void *job);
void *soda_msg_receiver_main(void *job);

#endif
