/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/chunk.h"

#include <assert.h>
#include <errno.h>

#include "base/lock.h"

#define TO(s) (1u << SODA_CHUNK_##s)

/* From each state, the states that may follow; a state may always keep itself (flags change). */
static const uint16_t successors[] = {
	[SODA_CHUNK_NONE] = TO(ZERO) | TO(REMOTE),
	[SODA_CHUNK_ZERO] = TO(FETCHING) | TO(NONE),
	[SODA_CHUNK_REMOTE] = TO(FETCHING) | TO(LOST) | TO(ZERO) | TO(NONE) | TO(SHARED),
	[SODA_CHUNK_FETCHING] =
		TO(CLEAN) | TO(DIRTY) | TO(REMOTE) | TO(ZERO) | TO(LOST) | TO(SHARED),
	[SODA_CHUNK_CLEAN] = TO(BUSY) | TO(DIRTY), /* DIRTY: a write-back failed */
	[SODA_CHUNK_DIRTY] = TO(BUSY),
	[SODA_CHUNK_BUSY] =
		TO(CLEAN) | TO(DIRTY) | TO(REMOTE) | TO(ZERO) | TO(NONE) | TO(LOST) | TO(SHARED),
	[SODA_CHUNK_LOST] = TO(NONE) | TO(ZERO) | TO(FETCHING),
	[SODA_CHUNK_SHARED] = TO(FETCHING) | TO(BUSY) | TO(NONE) | TO(REMOTE),
};

bool soda_chunk_legal(enum soda_chunk_state from, enum soda_chunk_state to)
{
	return from < SODA_CHUNK_STATES && to < SODA_CHUNK_STATES &&
	       (from == to || (successors[from] >> to & 1));
}

bool soda_chunk_swap(struct soda_chunk *c, uint32_t *word, uint32_t to)
{
	assert(soda_chunk_legal(soda_chunk_state(*word), soda_chunk_state(to)));
	/*
	 * release pairs with the acquire of soda_chunk_load: who sees the new state sees the page's
	 * content; acquire with the release of the thread that changed the word before
	 */
	return atomic_compare_exchange_weak_explicit(&c->word, word, to, memory_order_acq_rel,
						     memory_order_acquire);
}

bool soda_chunk_begin(struct soda_chunk *c, uint32_t *word, enum soda_chunk_state to)
{
	return soda_chunk_swap(c, word, (*word & ~SODA_CW_STATE) | to);
}

void soda_chunk_settle(struct soda_chunk *c, enum soda_chunk_state state, uint32_t dirty,
		       uint32_t set, uint32_t clear)
{
	uint32_t w = soda_chunk_load(c), to;

	do {
		to = (w & ~(SODA_CW_STATE | SODA_CW_DIRTY | SODA_CW_WAITERS | clear)) | set |
		     state | dirty << SODA_CW_DIRTY_SHIFT;
	} while (!soda_chunk_swap(c, &w, to));
	if (w & SODA_CW_WAITERS)
		soda_futex_wake(&c->word, INT32_MAX);
}

uint32_t soda_chunk_flags(struct soda_chunk *c, uint32_t set, uint32_t clear)
{
	uint32_t w = soda_chunk_load(c);

	while (!soda_chunk_swap(c, &w, (w & ~clear) | set))
		;
	return w;
}

static bool in_transit(uint32_t w)
{
	enum soda_chunk_state s = soda_chunk_state(w);

	return s == SODA_CHUNK_FETCHING || s == SODA_CHUNK_BUSY;
}

int soda_chunk_wait(struct soda_chunk *c, int64_t timeout_ns)
{
	enum { SPINS = 200 }; /* a protection change takes a few microseconds */
	uint32_t w;

	for (int i = 0; i < SPINS; i++) {
		if (!in_transit(soda_chunk_load(c)))
			return 0;
		soda_cpu_relax();
	}
	w = soda_chunk_load(c);
	while (in_transit(w)) {
		if (!(w & SODA_CW_WAITERS)) {
			if (!soda_chunk_swap(c, &w, w | SODA_CW_WAITERS))
				continue;
			w |= SODA_CW_WAITERS;
		}
		if (soda_futex_wait(&c->word, w, timeout_ns) == -ETIMEDOUT)
			return -ETIMEDOUT;
		w = soda_chunk_load(c);
	}
	return 0;
}

void soda_chunk_hold(struct soda_chunk *c)
{
	uint32_t w = soda_chunk_load(c);

	/* At most 63: more threads that hold the chunk are not counted. */
	while ((w & SODA_CW_HOLD) != SODA_CW_HOLD && !soda_chunk_swap(c, &w, w + SODA_CW_HOLD_ONE))
		;
}

void soda_chunk_unhold(struct soda_chunk *c)
{
	uint32_t w = soda_chunk_load(c);

	/* The count is 0 where the object was freed in between. */
	while ((w & SODA_CW_HOLD) && !soda_chunk_swap(c, &w, w - SODA_CW_HOLD_ONE))
		;
}
