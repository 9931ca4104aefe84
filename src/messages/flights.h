/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From lanes to PUSHes, and what becomes of them: several are under way, each made before the
 * answers to those before it are known.  Makes no call.
 *
 *   load     packets of lanes, and parts of large messages, into the next PUSH
 *   settle   what was taken leaves its lane; where the agent had no room it refuses the packets
 *            behind that one, too, and they are loaded again, in their order
 *
 * A lane whose packet was refused is blocked until one is taken: it has one packet under way, its
 * oldest, and that not all the time as long as other lanes have something to send.
 */
#ifndef SODA_MESSAGES_FLIGHTS_H
#define SODA_MESSAGES_FLIGHTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire/messages.h"

enum { SODA_FLIGHT_PARTS = 4 }; /* that a call's body may have */

/*
 * A PUSH, until it is answered.  Its parts lie in body, or, of large packets, in their slots, which
 * stay as they are until then.
 */
struct soda_flight {
	struct soda_wire_msg_push push;
	uint32_t bytes, copied; /* of all parts, and of body */
	struct iovec parts[SODA_FLIGHT_PARTS];
	int parts_n;
	struct {
		uint32_t rank;
		uint32_t part; /* bytes of its large message; 0: the packet of a slot */
	} of[SODA_MSG_PACKETS];
	uint8_t body[SODA_WIRE_MAX_CONTROL];
};

/* The sender's. Zeroed at first. */
struct soda_flights {
	uint64_t answered, sent,
		made;	/* PUSHes; sent on this connection. answered <= sent <= made */
	uint32_t first; /* lane whose turn is the first one */
	uint32_t taken; /* of the last ones all was taken; as many may be under way as that is worth
			 */
	struct soda_flight at[SODA_MSG_AHEAD];
};

struct soda_msg_job;

/*
 * How many calls may be under way where the last `n` have done what they were made for: one alone
 * behind one that has not, because the agent has no room, and one more with each 16.
 */
static inline uint32_t soda_flights_most(uint32_t n)
{
	return n / 16 + 1 < SODA_MSG_AHEAD ? n / 16 + 1 : SODA_MSG_AHEAD;
}

static inline struct soda_flight *soda_flight(struct soda_flights *all, uint64_t number)
{
	return &all->at[number % SODA_MSG_AHEAD];
}

/*
 * Make the next PUSH, of what is closed, or due, or to be sent now.  False: there is nothing for
 * one, or as many are under way as may be. *next_ns_p: when an open slot is due.
 */
bool soda_flights_load_locked(struct soda_msg_job *job, struct soda_flights *all,
			      uint64_t *next_ns_p);
/* The answer to the oldest one, a byte for each packet. -EPROTO: it cannot be. */
int soda_flights_settle_locked(struct soda_msg_job *job, struct soda_flights *all,
			       const uint8_t *taken, size_t n);

/* What the lanes with rings have as well. */

/*
 * Close what is open and due, or all.  When what is left open is due; UINT64_MAX: nothing is.
 */
uint64_t soda_lane_close_due_locked(struct soda_msg_job *job, uint32_t rank, uint64_t now,
				    bool all);
/* Bytes of the lane's large message in its next part, in a packet of at most `most`. */
uint32_t soda_lane_part_size(const struct soda_msg_job *job, uint32_t rank, uint32_t most);
/* That part, as a packet of its own, at `at`. It is loaded. Returns the packet's bytes. */
uint32_t soda_lane_load_part_locked(struct soda_msg_job *job, uint32_t rank, uint32_t size,
				    uint8_t *at);
/* So many bytes more of it have been taken. */
void soda_lane_pass_part_locked(struct soda_msg_job *job, uint32_t rank, uint32_t size);

#endif
