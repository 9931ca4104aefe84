/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients' tickets, from their POST until the client has been told how each has ended, and the
 * getters, threads that fetch.  A client's tickets are fetched one at a time, in their order;
 * getters take turns between clients, also within a long get.  docs/internals/movement.md draws the
 * states.
 *
 * A client of the way STREAM sends the data of a list itself, unless all that it copies lies in
 * areas: then a getter has it, too.  It has the one kind under way or the other: it waits between.
 *
 * Lists come by calls, and from rings.  A client with a ring that has used it lately is *attended*:
 * a getter that has nothing to do looks at its ring for a while before it sleeps, and one that has
 * looks between two parts and after each ticket.  Notices of such a client go through its ring
 * alone.
 *
 * A list of a range of an object is gathered in the same way; then a storer, of which each memory
 * server has one at most, writes it there, and its ticket ends.
 *
 * Lock: soda_movement.lock, held for pointer changes only; soda_buffers.lock may be taken with it.
 *
 * A ticket is the queue's, then its getter's, or its client's that sends it, and is freed when it
 * ends.  What is left then is its notice, and the client's credit, until a call's answer has
 * told the client.
 */
#ifndef SODA_DPU_AGENT_TICKETS_H
#define SODA_DPU_AGENT_TICKETS_H

#include <stdatomic.h>

#include "base/limits.h"
#include "dpu_agent/movement/areas.h"
#include "dpu_agent/movement/buffers.h"
#include "dpu_agent/movement/ring.h"
#include "dpu_agent/movement/source.h"
#include "dpu_agent/session/session.h"

struct soda_ticket {
	struct soda_ticket *next;
	uint64_t number;
	struct soda_buffer *buffer;
	bool cancelled;	  /* guarded by the lock, and so the next six */
	bool unreadable;  /* cancelled, because the client cannot have it read */
	bool parked;	  /* parts: at work, and no getter has it: the client's PART is awaited */
	bool faulted;	  /* parked, because a part was not there */
	bool late;	  /* its getter is */
	uint64_t allowed; /* parts: so much of what is copied may be read */
	struct soda_copy *copy;	     /* that it fills, once it is at work; NULL: none was free */
	struct soda_piece_walk walk; /* what has come */
	bool begun;		     /* READS: walk and copy are in use */
	uint64_t received;
	struct soda_move_client *client; /* while it is being stored, the storer's */
	struct soda_piece_walk placing;	 /* STAGE: what has been put to its place */
	uint64_t placed;
	/* set when it is made, then constant: */
	bool parts;	 /* PARTs say what may be read when */
	uint64_t copied; /* bytes that the pieces copy */
	uint64_t shared; /* of these, such as lie in areas */
	uint64_t areas;	 /* in which, a bit for each */
	uint32_t tenant; /* whose memory it counts as */
	uint32_t pieces_n;
	struct soda_wire_piece pieces[];
};

/* What the service has for one client, in zeroed memory behind its session. */
struct soda_move_client {
	struct soda_movement *movement;
	struct soda_session *session;
	/* for its calls, which come one after the other, and for its end, when none can come */
	bool started;
	enum soda_wire_way way; /* set by START, then constant */
	struct soda_source source;
	struct soda_buffer_reader reader;
	struct soda_ticket *receiving; /* STREAM: whose data are still to come */

	pthread_cond_t ended; /* a ticket has ended, or is parked; with the movement's lock */
	/* guarded by the movement's lock, and so below */
	uint64_t last;			  /* the highest ticket number so far */
	unsigned credits;		  /* tickets that are not told yet */
	struct soda_ticket *queue, **end; /* not taken by a getter yet */
	/* a getter's; that of no getter while waits_turn: it goes on then */
	struct soda_ticket *at_work;
	struct soda_areas areas; /* changed by its calls alone */
	struct soda_wire_notice notices[SODA_MOVE_CREDITS];
	unsigned notices_n;
	struct soda_buffer *buffers[SODA_MOVE_BUFFERS]; /* changed by its calls alone */
	bool gone;					/* nothing is published for it any more */
	unsigned storing; /* tickets that are gathered, and are being written to an object */
	bool blocked;	  /* no turn: all copies of the first ticket's range are being written */
	bool waits_turn, attended;
	struct soda_move_client *next_turn, *next_attended;
	struct soda_ring ring;
};

enum soda_getter_state {
	SODA_GETTER_NONE,
	SODA_GETTER_READY, /* one of those that take turns */
	SODA_GETTER_LATE,  /* in a get that takes too long; another one has its place */
	SODA_GETTER_OVER,  /* it ends, or has ended */
};

/* A thread that fetches: getters.c. */
struct soda_getter {
	struct soda_movement *movement; /* set before start, then constant, and so the next */
	pthread_t thread;
	enum soda_getter_state state;	 /* guarded by the movement's lock, and so below */
	struct soda_move_client *client; /* of the get under way; NULL: none */
	uint64_t since_ns;		 /* the part under way began */
};

enum { SODA_MOVE_STORERS = SODA_MEMBERS_MAX };

struct soda_movement {
	struct soda_buffers buffers;
	struct soda_shares lists; /* memory of all lists of pieces; guarded by the buffers' lock */
	pthread_mutex_t lock;
	pthread_cond_t work;			   /* for getters */
	struct soda_move_client *turn, **turn_end; /* guarded by lock, and so below */
	struct soda_move_client *attended;
	struct soda_ticket *stores, **stores_end; /* gathered, for the storers */
	pthread_cond_t store;			  /* for them */
	pthread_t storers[SODA_MOVE_STORERS];
	struct soda_session *storing[SODA_MOVE_STORERS]; /* for which a storer is at work */
	unsigned storers_n, storers_idle;
	bool looking; /* a getter that has nothing to do looks for turns, and at rings */
	bool stop;
	bool left; /* it has stopped, and getters were left behind */
	struct soda_getter getters[SODA_MOVE_GETTERS_MOST];
	unsigned getters_ready, getters_late;
	/* statistics; they order nothing */
	_Atomic unsigned rings;
	_Atomic uint64_t published, failed, read_bytes, streamed_bytes, shared_bytes, stored_bytes;
};

/* 0, negative errno: nothing has been started. */
int soda_tickets_start(struct soda_movement *m);
/*
 * No session is left, but getters and storers may have the last references of some. Ends them.
 * False: getters are still in gets that do not end; they may use *m, its buffers and their sessions
 * until the process ends.
 */
bool soda_tickets_stop(struct soda_movement *m);
/* Getters that are late get others in their place: to be called now and then. Does not wait. */
void soda_getters_tick(struct soda_movement *m);

/*
 * Take a client's list. b: one of its buffers; pieces: encoded, n of them; parts: as
 * SODA_MSG_MOVE_POST_PARTS, for the way READS alone.  -EINVAL: a number that
 * is not above the last one, or no possible list (soda_wire_pieces_check); -E2BIG, -EFBIG; -EBUSY:
 * no credit, or STREAM and others are under way, see above; -ENOMEM. reply->why is set.  A ticket
 * that is taken and cannot go on (no copy is free) ends with a notice.
 */
int soda_tickets_post(struct soda_move_client *c, struct soda_buffer *b, uint64_t number,
		      const uint8_t *pieces, uint32_t n, bool parts, struct soda_why *why);
/*
 * A part of a ticket that was posted in parts may be read: `to` bytes of what is copied; waits, at
 * most ms, until it is.  -EINVAL: less than before, except after a fault, or more than there is.
 */
int soda_tickets_part(struct soda_move_client *c, uint64_t number, uint64_t to, uint32_t ms,
		      enum soda_part_state *state_p);
/*
 * STREAM: the next bytes of the ticket that is being received.  -EINVAL: not that ticket, not the
 * next bytes, or more than it has.
 */
int soda_tickets_put(struct soda_move_client *c, uint64_t number, uint64_t at, const uint8_t *data,
		     size_t bytes);
/*
 * STREAM: the same with what is left of a flow, received straight into the copy. Nothing is taken
 * where the ticket has ended already, or is not the one.  -EINVAL, as above; or the error of the
 * flow: what has come then is not to be shown, and the client goes.
 */
int soda_tickets_receive(struct soda_move_client *c, uint64_t number, uint64_t at,
			 struct soda_inflow *in);
/*
 * STREAM, or in parts: the client's pieces cannot be read: the ticket ends with -EFAULT. -EINVAL:
 * no such ticket.
 */
int soda_tickets_fail(struct soda_move_client *c, uint64_t number);
/* Give the client a ring. -ENOMEM: also where there are enough; -ENOTSUP. */
int soda_tickets_ring(struct soda_move_client *c);
/* The session ends. */
void soda_tickets_unring(struct soda_move_client *c);
/* Take what is in the client's ring. -EPROTO: it makes no sense. No ring: 0. */
int soda_tickets_look(struct soda_move_client *c);
/* Put an area into the client's table; -EBUSY: it has SODA_MOVE_AREAS. *i_p: its number. */
int soda_tickets_add_area(struct soda_move_client *c, const struct soda_area *area, unsigned *i_p);
/* Take it out of there: it is the caller's. -EINVAL: there is none; -EBUSY: a ticket names it. */
int soda_tickets_remove_area(struct soda_move_client *c, uint32_t i, struct soda_area *area_p);
/* Nothing happens where the ticket has ended. */
void soda_tickets_cancel(struct soda_move_client *c, uint64_t number);
/* Cancel what is queued for a buffer, which its client ends, and await what a getter has of it. */
void soda_tickets_forget(struct soda_move_client *c, const struct soda_buffer *b);
/* Wait, at most ms, until there is a notice, or no ticket is left. */
void soda_tickets_await(struct soda_move_client *c, uint32_t ms);
/* Write all notices, at most SODA_MOVE_CREDITS of them, and give their credits back. How many
 * bytes. */
size_t soda_tickets_tell(struct soda_move_client *c, uint8_t *out);
/* The client has gone: nothing is published from now on. A getter may still be at work. */
void soda_tickets_gone(struct soda_move_client *c);

#endif
