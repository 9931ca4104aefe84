/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of tickets.h share, each with one duty:
 *
 *   tickets.c  lists become tickets, by calls and from rings; what has come; how tickets end
 *   getters.c  the threads that fetch
 *   storer.c   the threads that write to memory servers
 *
 * *_locked: the movement's lock is held; *_unlock: it is held, and released.
 */
#ifndef SODA_DPU_AGENT_TICKETS_IMPL_H
#define SODA_DPU_AGENT_TICKETS_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/movement/tickets.h"

/* tickets.c */

void soda_ticket_count(_Atomic uint64_t *counter, uint64_t n);
/*
 * Memory for a list of n pieces, zeroed but for them, which counts as the tenant's; NULL: there is
 * none, or the rest is kept for other tenants.
 */
struct soda_ticket *soda_ticket_new(struct soda_movement *m, uint32_t tenant, uint32_t n);
void soda_ticket_free(struct soda_movement *m, struct soda_ticket *t);
/* Tell the client; its credit goes with the notice. */
void soda_ticket_notify_locked(struct soda_move_client *c, uint64_t number, int err, uint64_t step);
/*
 * The client's ticket at work ends: without a copy, or with one that is published here and nowhere
 * else, in one step with the look whether it was cancelled or the client has gone.  A copy is given
 * back before the client is told, so that the next ticket finds it; without the lock, because it
 * may be the last use of a large buffer, whose memory goes then.
 */
void soda_ticket_finish(struct soda_move_client *c, struct soda_ticket *t, struct soda_copy *copy,
			int err);

/* There is a turn, for a getter that sleeps if none looks for it. */
void soda_turn_rouse_locked(struct soda_movement *m);
/* The client's turn comes behind all others'. */
void soda_turn_append_locked(struct soda_movement *m, struct soda_move_client *c);
/* The same, if it has something to be fetched, and no turn. */
void soda_turn_queue_locked(struct soda_movement *m, struct soda_move_client *c);

/* What is in the client's ring becomes tickets, or notices that say why not. */
void soda_lists_take_of_locked(struct soda_move_client *c);
/* Of all clients that are attended to. Whether somebody's turn has come who had none. */
bool soda_lists_take_locked(struct soda_movement *m);

/* No getter has the ticket until its client says that more may be read, or that no more is to be.
 */
void soda_ticket_park_locked(struct soda_move_client *c, struct soda_ticket *t, bool faulted);
/* 0; -ECANCELED, -EFAULT: its client wants it no more, or cannot have it read. */
int soda_ticket_given_up_locked(const struct soda_move_client *c, const struct soda_ticket *t);
/* Before the first part of a ticket. */
void soda_ticket_begin(struct soda_ticket *t);
/* What is fetched lies there as it is to lie in the copy, which mostly is that. */
uint8_t *soda_ticket_destination(const struct soda_ticket *t);
/* STAGE, when all has come: put so many bytes more to their place. How many. */
uint64_t soda_ticket_place(struct soda_ticket *t, uint64_t max);

/* getters.c */

int soda_getters_start(struct soda_movement *m);
/* m->stop is set. False: as soda_tickets_stop(). */
bool soda_getters_stop(struct soda_movement *m);

/* storer.c */

int soda_storer_start(struct soda_movement *m);
/* m->stop is set. */
void soda_storer_stop(struct soda_movement *m);
/* All of a range's list has come, and stands: it is a storer's. */
void soda_storer_take_locked(struct soda_move_client *c, struct soda_ticket *t);

#endif
