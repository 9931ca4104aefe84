/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The chunk table: sixteen bytes for each chunk of the address range that the
 * runtime reserved, found by arithmetic.  This header has the layout of an entry and the legal
 * transitions of its state; it does no I/O and takes no locks.
 *
 *            first touch            store            write-back acked, dropped
 *   ZERO ----> FETCHING ----> CLEAN <----> DIRTY        (CLEAN -> BUSY -> REMOTE)
 *   REMOTE --^            \----------------^
 *
 *   NONE      no object here
 *   ZERO      never written: its content is zeros, nothing is resident or remote
 *   REMOTE    its content is on the server, nothing is resident
 *   FETCHING  it is on its way from the server, by the channel that `channel` names
 *   CLEAN     resident, every page write-protected; same content as the server's
 *             (BACKED), or zeros (not BACKED)
 *   DIRTY     resident; the blocks in the dirty mask differ from the server's
 *   BUSY      resident; one thread is changing its protection, or dropping it
 *   LOST      its content was on a server that has forgotten it: every touch fails
 *   SHARED    of an object in the node's store (pages/shared.h), whose map says what is there;
 *             SHARED -> BUSY -> SHARED while a fault looks at the map, and
 *             SHARED -> FETCHING -> SHARED while the agent is asked for the chunk
 *
 * The flag SENDING: a write-back of the chunk is under way.  A thread may store to the chunk
 * meanwhile (CLEAN -> BUSY -> DIRTY), but it is neither dropped nor sent again before the server
 * has answered.
 *
 * State, flags and dirty mask are one 32-bit word, changed by compare-and-swap; the word is also
 * the futex on which threads wait for FETCHING and BUSY to end.
 */
#ifndef SODA_HOST_CHUNK_H
#define SODA_HOST_CHUNK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum soda_chunk_state {
	SODA_CHUNK_NONE = 0,
	SODA_CHUNK_ZERO = 1,
	SODA_CHUNK_REMOTE = 2,
	SODA_CHUNK_FETCHING = 3,
	SODA_CHUNK_CLEAN = 4,
	SODA_CHUNK_DIRTY = 5,
	SODA_CHUNK_BUSY = 6,
	SODA_CHUNK_LOST = 7,
	SODA_CHUNK_SHARED = 8,
	SODA_CHUNK_STATES
};

#define SODA_CW_STATE 0x0000000fu
#define SODA_CW_WAITERS 0x00000010u /* a thread waits on the word */
#define SODA_CW_PINNED 0x00000020u  /* soda_advise(SODA_PIN): never evicted */
#define SODA_CW_BACKED 0x00000040u  /* the server holds a copy */
#define SODA_CW_SENDING 0x00000080u /* a write-back of the chunk is not answered yet */
#define SODA_CW_QUEUED 0x00000100u  /* in the write-back queue */
/* a count: threads that have the chunk among their last ones (thread.h) */
#define SODA_CW_HOLD_ONE 0x00000200u
#define SODA_CW_HOLD 0x00007e00u
/* fetched for a load, and no store since is known: CLEAN, or DIRTY on a guess (guess.h) */
#define SODA_CW_AS_FETCHED 0x00008000u
#define SODA_CW_DIRTY 0xffff0000u /* one bit a block: a sixteenth of a chunk, at least a page */
#define SODA_CW_DIRTY_SHIFT 16

struct soda_chunk {
	_Atomic uint32_t word;
	/*
	 * Resident: links of the policy's list, guarded by the shard's lock.  Not resident: `prev`
	 * is the shard's clock when the chunk was evicted.
	 */
	uint32_t next, prev;
	_Atomic uint16_t channel; /* while FETCHING: index of the channel, or none */
	uint8_t list;		  /* policy's list it is in, 0: none; guarded by the shard's lock */
	uint8_t credit;		  /* the policy's own; guarded by the shard's lock */
};
_Static_assert(sizeof(struct soda_chunk) == 16, "the chunk table is 16 bytes a chunk");

#define SODA_CHANNEL_NONE UINT16_MAX

static inline enum soda_chunk_state soda_chunk_state(uint32_t word)
{
	return (enum soda_chunk_state)(word & SODA_CW_STATE);
}

static inline uint32_t soda_chunk_dirty(uint32_t word)
{
	return word >> SODA_CW_DIRTY_SHIFT;
}

/* acquire: pairs with the release of soda_chunk_move */
static inline uint32_t soda_chunk_load(const struct soda_chunk *c)
{
	return atomic_load_explicit(&c->word, memory_order_acquire);
}

/*
 * Change the word from *word to `to`, if it is still *word; else reload *word.
 * Wakes nobody.  Debug builds assert that the transition is legal.
 */
bool soda_chunk_swap(struct soda_chunk *c, uint32_t *word, uint32_t to);

/* Whether a chunk may go from state `from` to state `to`. */
bool soda_chunk_legal(enum soda_chunk_state from, enum soda_chunk_state to);

/*
 * The owner of a FETCHING or BUSY chunk ends that state: state and dirty mask
 * become the given ones, `set` and `clear` are flag bits, other bits stay as they
 * are; waiters are woken.
 */
void soda_chunk_settle(struct soda_chunk *c, enum soda_chunk_state state, uint32_t dirty,
		       uint32_t set, uint32_t clear);

/* Set and clear flag bits, in any state. Returns the word from before. */
uint32_t soda_chunk_flags(struct soda_chunk *c, uint32_t set, uint32_t clear);

/* soda_chunk_swap() that changes the state to `to` and keeps flags and mask. */
bool soda_chunk_begin(struct soda_chunk *c, uint32_t *word, enum soda_chunk_state to);

/* Wait while the chunk is FETCHING or BUSY, until timeout_ns (< 0: no limit). -ETIMEDOUT. */
int soda_chunk_wait(struct soda_chunk *c, int64_t timeout_ns);

/* A thread counts the chunk among its last ones; and does so no longer. */
void soda_chunk_hold(struct soda_chunk *c);
void soda_chunk_unhold(struct soda_chunk *c);

/*
 * Whether an evictor may drop a chunk with word w: CLEAN, not under way, neither pinned nor held.
 */
static inline bool soda_chunk_droppable(uint32_t w)
{
	return soda_chunk_state(w) == SODA_CHUNK_CLEAN &&
	       !(w & (SODA_CW_PINNED | SODA_CW_SENDING | SODA_CW_HOLD | SODA_CW_QUEUED));
}

#endif
