/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's side of the rings of a rank (wire/msg_rings.h): its lanes' slots lie in memory that
 * the agent has mapped, and the inbox is read where the agent has put it.
 */
#ifndef SODA_MESSAGES_RINGS_H
#define SODA_MESSAGES_RINGS_H

#include <stdbool.h>

#include "transport/api/transport.h"
#include "wire/msg_rings.h"

struct soda_rings {
	/* set when they are mapped, then constant */
	uint32_t ranks;
	struct soda_wire_msg_rings sizes;
	struct soda_rings_out *out;
	const struct soda_rings_in *in;
	_Atomic uint32_t *tails, *bytes; /* of out */
	const _Atomic uint32_t *heads;	 /* of in */
	uint8_t *slots;
	const uint8_t *inbox; /* mapped twice in a row, so that nothing in it is cut */
	uint8_t *inbox_map;   /* that mapping */
	/* the program's, of soda_msg_pull(); soda_msg_wait() reads them, too */
	_Atomic uint64_t at;	/* bytes of the inbox that were read */
	_Atomic uint32_t ended; /* phases whose end was told */
};

/*
 * Ask the agent for them, on the connection that pushes, before the rank's other one joins.  1:
 * they are there; 0: the agent has none for this rank, and calls are made instead; errors of
 * soda_conn_call(), -EPROTO, -ENOMEM.
 */
int soda_rings_ask(struct soda_rings *r, struct soda_conn *conn, uint32_t ranks,
		   struct soda_why *why);
/* The other part of them, on the other connection. 0, and the same errors. */
int soda_rings_ask_inbox(struct soda_rings *r, struct soda_conn *conn, struct soda_why *why);
void soda_rings_unmap(struct soda_rings *r);

/* The packet in the slot at `tail` of the lane is complete, and is the agent's from now on. */
void soda_rings_put(struct soda_rings *r, uint32_t rank, uint32_t tail, uint32_t bytes);
/* Which of the lane's slots the agent has taken. The caller compares it with what it knows. */
uint32_t soda_rings_taken(const struct soda_rings *r, uint32_t rank);

/*
 * What is behind `at` of the phase under way: *bytes_p bytes at *data_p, perhaps none. *ends_p: the
 * phase ends with them.  -EPROTO: the agent is wrong.
 */
int soda_rings_look(const struct soda_rings *r, const uint8_t **data_p, uint32_t *bytes_p,
		    bool *ends_p);
/* Whether there is something. From any thread. */
bool soda_rings_here(const struct soda_rings *r);
/* All up to there has been read, and may be written over. */
void soda_rings_pulled(struct soda_rings *r, uint64_t at);
/* One end more has been told. */
void soda_rings_ended(struct soda_rings *r);

/*
 * Sleep until there is news.  Begin, take the word, look, sleep if there was nothing; then end.
 * timeout_ns is cut to SODA_MSG_AWAIT_MS.
 */
void soda_rings_begin_sleep(struct soda_rings *r);
uint32_t soda_rings_word(const struct soda_rings *r);
void soda_rings_sleep(struct soda_rings *r, uint32_t word, uint64_t timeout_ns);
void soda_rings_end_sleep(struct soda_rings *r);
/* News of this process's own. */
void soda_rings_tell(struct soda_rings *r);

#endif
