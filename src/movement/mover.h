/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libsoda-move inside; include/soda_move.h is its contract, docs/internals/movement.md its design.
 *
 *   mover.c     a producer's connection, its buffers and tickets, as programs see them
 *   courier.c   the thread of a mover, which uses its connection, or lends it to one that waits
 *   ring.c      lists and notices through memory that is shared with the agent, on one machine
 *   shared.c    memory that is shared with the agent, and that programs compute in
 *   reader.c    consumers
 *   table.c     tables: soda_move_arrow(), of what arrow/ has
 *
 * One lock a mover, held for pointer changes only, and across no call.
 */
#ifndef SODA_MOVEMENT_MOVER_H
#define SODA_MOVEMENT_MOVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/limits.h"
#include "movement/arrow/plan.h"
#include "movement/fabric.h"
#include "soda_move.h"
#include "transport/api/spin.h"
#include "transport/api/transport.h"
#include "wire/move_ring.h"

enum soda_ticket_state {
	SODA_TICKET_QUEUED, /* waits for the courier */
	SODA_TICKET_SENDING,
	SODA_TICKET_SENT, /* the agent has it */
	SODA_TICKET_ENDED,
};

struct soda_move_ticket {
	struct soda_move_ticket *next; /* in the queue; guarded by the mover's lock, and so below */
	enum soda_ticket_state state;
	bool wanted; /* the program has it, and will ask */
	bool cancel, cancel_sent;
	int status; /* ENDED */
	uint64_t step;
	struct soda_why why;
	/* set when it is made, then constant */
	struct soda_mover *mover;
	struct soda_move_buffer *buffer;
	struct soda_arrow_block *blocks; /* memory that pieces name, the ticket's own; or NULL */
	uint64_t number;
	bool fabric;	 /* a piece lies in an object of SODA's */
	bool streamed;	 /* the courier sends its data; set when it is queued */
	uint64_t copied; /* bytes that its pieces copy */
	uint32_t pieces_n;
	struct soda_wire_piece pieces[];
};

struct soda_move_buffer {
	struct soda_move_buffer *next;	 /* of the mover; guarded by its lock, and so `tickets` */
	struct soda_mover *mover;	 /* set when it is made, then constant */
	struct soda_move_object *object; /* whose range it is; NULL: a buffer with a name */
	uint64_t bytes;
	uint32_t number;  /* the agent's */
	unsigned tickets; /* that have not ended */
};

/* An object in FAM. */
struct soda_move_object {
	struct soda_move_object *next; /* of the mover; guarded by its lock, and so the two flags */
	struct soda_mover *mover;      /* that has the region, see `pages`; constant, as the rest */
	uint64_t bytes;
	uint16_t region;
	bool sealed; /* it is being published, or has been: nothing is placed in it any more */
	bool torn;   /* the server refused a part of a list */
};

/* A call that a program's thread waits for. */
struct soda_errand {
	struct soda_errand *next; /* guarded by the mover's lock, and so `done` */
	bool done;
	enum soda_move_msg type;
	struct iovec body[2];
	int body_n;
	uint8_t reply[64];
	size_t reply_bytes;
	int fd; /* that came with the answer to an ALLOC; -1: none */
	int ret;
	struct soda_why why;
};

/* Streamed calls under way; their answers lie in socket buffers until they are collected. */
enum { SODA_MOVER_FLIGHT = 16 };

struct soda_mover {
	/*
	 * What proves to the agent whose memory it reads, SODA_MOVE_TOKEN_BYTES of it. Taken back,
	 * overwritten, before a program is told that a ticket which the agent may have has ended
	 * (courier.c, lose).
	 */
	_Atomic uint64_t token[2];
	/* set when it is made, then constant */
	char address[SODA_ADDRESS_MAX + 1];
	bool has_pages; /* it is another mover's `pages` */
	bool seals;	/* SODA_SEAL: nothing of an object leaves the program unsealed */
	pid_t pid;
	enum soda_wire_way way;
	struct soda_conn
		*conn; /* the courier's, or whose `lent` is; then soda_move_disconnect()'s */
	pthread_t courier;
	/* the courier's: */
	int bounce_fd; /* STREAM in calls: a memfd, and where it is mapped */
	const uint8_t *bounce;
	uint64_t flight[SODA_MOVER_FLIGHT]; /* whose the streamed calls without an answer are */
	unsigned flight_at;		    /* the oldest */
	unsigned flight_most;		    /* set when it is made, then constant */
	struct soda_fabric fabric;
	struct soda_move_ring *ring; /* set when it is made, then constant; NULL: none */
	bool token_held; /* it lies in an object: `soda run` has the program's memory there */

	/*
	 * The connection for objects: a mover of its own, that is a client with regions. Made when
	 * it is needed, by one thread at a time.
	 */
	pthread_mutex_t pages_lock;
	struct soda_mover *pages;	  /* guarded by pages_lock; changed with lock, too */
	struct soda_move_object *objects; /* `pages` has them; guarded by lock, and so below */
	uint16_t last_region;

	pthread_mutex_t lock;
	pthread_cond_t work;	     /* for the courier */
	pthread_cond_t ended;	     /* a ticket, an errand or the courier has ended */
	struct soda_errand *errands; /* guarded by lock, and so below */
	struct soda_move_ticket *queue, **queue_end;
	struct soda_move_ticket *tickets[SODA_MOVE_TICKETS_MAX]; /* all that are not gone */
	struct soda_move_buffer *buffers;
	uint64_t last;			  /* ticket number */
	struct soda_move_area *areas;	  /* of soda_move_alloc() (shared.c) */
	unsigned sent;			  /* tickets in SENT */
	unsigned streamed;		  /* of these, whose data were sent, or are under way */
	unsigned waiting;		  /* threads that wait for a ticket */
	bool asked;			  /* a thread has tested one, or found no credit */
	bool cancels;			  /* a ticket in SENT is to be cancelled */
	bool sending;			  /* the courier has a ticket in SENDING */
	bool busy;			  /* the courier makes a call */
	bool lent;			  /* a thread that waits does the courier's work */
	bool knock;			  /* the agent does not look at the ring by itself */
	uint64_t asked_ms;		  /* ring: when a test has last asked the agent */
	uint32_t ring_posted, ring_taken; /* as the ring's words, which the agent could change */
	bool spinning;			  /* a thread uses `spin`, without the lock */
	struct soda_spin spin;
	bool stop, stopped;
	int error; /* 0, or -ENOTCONN: the connection is lost */
	struct soda_why why;
};

/* mover.c */

/*
 * Connect. address: of at most SODA_ADDRESS_MAX bytes; pages: as a client with regions.  Errors of
 * soda_move_connect(), remembered.
 */
int soda_mover_connect(const char *address, bool pages, struct soda_mover **mover_p);
/* Wait until all of the buffer's tickets have ended, which they also do when the connection does.
 */
void soda_mover_await_tickets(struct soda_move_buffer *b);
/* Make a call whose answer is a buffer's number; *b becomes that buffer, and the mover's. */
int soda_mover_make_buffer(struct soda_mover *m, struct soda_errand *e, uint64_t bytes,
			   struct soda_move_object *o, struct soda_move_buffer *b);

/* Remember the sentence for soda_move_last_error(). Returns err. */
int soda_move_failed(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Forget it. */
void soda_move_begun(void);
/*
 * Connect to the agent as a client without pages. agent NULL: what SODA_DPU says.  Errors of
 * soda_move_connect(), remembered.
 */
int soda_move_join(const char *agent, struct soda_conn **conn_p);
/*
 * The error of a call that failed with ret and why, for programs, remembered: -ENOTCONN where the
 * connection is lost.
 */
int soda_move_call_failed(int ret, const struct soda_why *why);
/* The ticket has ended. Wakes who waits; frees it if nobody will ask. The lock is held. */
void soda_ticket_end_locked(struct soda_move_ticket *t, int status, uint64_t step, const char *why);
/*
 * soda_move(), and where it succeeds the ticket has the blocks, and frees them at its end; the
 * pieces may name their memory.
 */
int soda_mover_hand_over(struct soda_move_buffer *b, const struct soda_move_piece *pieces, size_t n,
			 struct soda_arrow_block *blocks, struct soda_move_ticket **ticket_p);
/* Overwrite the token, and the words of areas: the agent publishes nothing of this process from now
 * on. */
void soda_mover_take_back(struct soda_mover *m);
/* A function of programs begins. 0, or -ENOTSUP in the child of a fork. */
int soda_mover_check(const struct soda_mover *m);
/* Have the courier make a call, and wait for its end. Errors of soda_move.h, remembered. */
int soda_mover_run(struct soda_mover *m, struct soda_errand *e);

/* shared.c */

/* Map memory of the agent's; fd stays the caller's. -EPROTO: a touch could be a fault; -ENOMEM. */
int soda_shared_map(int fd, uint64_t bytes, int protection, void **memory_p);
/*
 * Before a ticket is queued: say whether it is streamed, and name those of its pieces by their area
 * which the agent is to copy out of it.
 */
void soda_mover_areas_name_locked(struct soda_mover *m, struct soda_move_ticket *t);
void soda_mover_areas_take_back_locked(struct soda_mover *m);
/* Of a mover that ends. */
void soda_mover_areas_unmap(struct soda_mover *m);

/* object.c */

/* The mover ends. */
void soda_mover_objects_free(struct soda_mover *m);

/* ring.c */

/* Map the agent's ring; fd stays the caller's. -EPROTO: it cannot be one; -ENOMEM. */
int soda_mover_ring_map(struct soda_mover *m, int fd);
void soda_mover_ring_unmap(struct soda_mover *m);
/*
 * Hand a ticket to the agent by the ring.  False: it goes by the courier. Else m->knock says
 * whether the courier has to make a call, so that the agent looks.
 */
bool soda_mover_ring_post_locked(struct soda_mover *m, const struct soda_move_ticket *t);
/*
 * Take all notices. The courier, or while it sends no ticket: else a program could be told of a
 * ticket's end before the courier has given back what it holds for it.
 */
void soda_mover_ring_reap_locked(struct soda_mover *m);
/* Wait for a notice that has not been taken, at most ms. The lock is let go meanwhile. */
void soda_mover_ring_await_locked(struct soda_mover *m, uint64_t ms);

/* courier.c */

/* What the agent says of a ticket: it has ended, if it had not. */
void soda_ticket_notice_locked(struct soda_mover *m, const struct soda_wire_notice *n);

/*
 * A thread that waits does one piece of the courier's work, if there is one that it may do, and the
 * courier is not at it: it sends a ticket's data, or awaits an answer, each for at most
 * SODA_MOVE_CALL_MS.  The lock is let go meanwhile. False: there is none.
 */
bool soda_courier_help_locked(struct soda_mover *m);
/* After that: what has come meanwhile, and is left, is the courier's. */
void soda_courier_resume_locked(struct soda_mover *m);
/* The courier's thread; arg: its mover. */
void *soda_courier_main(void *arg);
/* STREAM: what the courier needs to read memory that may not be there. 0; -ENOMEM. */
int soda_courier_prepare(struct soda_mover *m);

#endif
