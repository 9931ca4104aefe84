/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent's side of a producer's ring (wire/move_ring.h): lists of pieces come out, notices go
 * in.  Everything that the client can write is copied once and checked here.
 *
 * Threads: guarded by the lock of its owner (tickets.h).
 */
#ifndef SODA_DPU_AGENT_RING_H
#define SODA_DPU_AGENT_RING_H

#include <stdbool.h>

#include "wire/move_ring.h"

struct soda_ring {
	struct soda_move_ring *map; /* NULL: the client has none */
	int fd;
	uint32_t lists; /* taken */
	uint32_t told;	/* notices */
	bool broken;	/* the client's words made no sense: nothing is taken any more */
	uint8_t pieces[SODA_MOVE_RING_LIST_BYTES]; /* of the last list that was taken */
};

/* 0; -ENOMEM; -ENOTSUP: the kernel cannot seal memory. */
int soda_ring_make(struct soda_ring *r);
/* NULL map: nothing. */
void soda_ring_unmake(struct soda_ring *r);

/*
 * The next list: its head, and where its pieces are, encoded, until the next one is taken.  Of a
 * head with more than SODA_MOVE_RING_PIECES pieces there are none.  False: there is no list.
 */
bool soda_ring_take(struct soda_ring *r, struct soda_wire_move_post *post_p,
		    const uint8_t **pieces_p);
/* Write a notice, and wake who sleeps for it. */
void soda_ring_tell(struct soda_ring *r, const struct soda_wire_notice *n);
/* Whether the client says that it has not taken all notices. */
bool soda_ring_untaken(const struct soda_ring *r);
/* Say whether soda_ring_take() is called without the client's asking. After "no": once more. */
void soda_ring_attend(struct soda_ring *r, bool attended);

/* When the calling thread has last gone elsewhere; zeros at its start. */
struct soda_ring_place {
	uint64_t moved_ns;
};
/*
 * The calling thread is about to work for the ring's client: if a thread of that waits on the same
 * processor, go to another one that this thread may use, if there is one; not often.
 */
void soda_ring_give_way(const struct soda_ring *r, struct soda_ring_place *place);

#endif
