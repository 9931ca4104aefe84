/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The default policy.  Uses of a resident chunk are invisible, but its return is not: the
 * time from a chunk's eviction to its next fault is one sample of how often the chunk is
 * used.  The chunk table remembers when each chunk was evicted (a ghost entry that
 * costs nothing), and the sample decides into which list the chunk comes:
 *
 *   trial     a short arrival-order list, a twentieth of the buffer: chunks that were
 *             never resident, or evicted long ago.  A scan passes through this list and leaves
 *             the other alone.
 *   settled   chunks that came back within one buffer's worth of arrivals.  The
 *             sooner, the more laps (credit) they get before they are victims.
 *
 * One in eight of the chunks that come back late is settled all the same: of a loop over more than
 * the buffer a part then stays resident, where arrival order would keep nothing.
 *
 * Ideas: 2Q (Johnson and Shasha, VLDB 1994), CLOCK, S3-FIFO (Yang et al., SOSP 2023),
 * bimodal insertion (Qureshi et al., ISCA 2007).
 */
#include "host_agent/core/replace.h"

enum { TRIAL = 1, SETTLED = 2 };
enum { TRIAL_SHARE = 20, LATE_ONE_IN = 8 };

static uint8_t laps(uint32_t away, uint32_t capacity)
{
	if (away < capacity / 16)
		return 7;
	if (away < capacity / 8)
		return 3;
	return away < capacity / 3 ? 1 : 0;
}

static void ghost_insert(struct soda_shard *s, uint32_t id)
{
	struct soda_chunk *c = soda_shard_chunk(s, id);
	uint32_t left = c->prev, away = s->clock - left;
	int list = TRIAL;

	c->credit = 0;
	if (left && away <= s->capacity) {
		list = SETTLED;
		c->credit = laps(away, s->capacity);
	} else if (left && soda_shard_random(s) % LATE_ONE_IN == 0) {
		list = SETTLED;
	}
	soda_list_push(s, list, id);
}

static uint32_t ghost_victim(struct soda_shard *s)
{
	if (s->count[TRIAL] > s->capacity / TRIAL_SHARE || !s->count[SETTLED])
		return s->head[TRIAL];
	/* Chunks with credit go to the end, for one credit each; 64 of them at most in one call. */
	for (int i = 0; i < 64; i++) {
		uint32_t id = s->head[SETTLED];
		struct soda_chunk *c = soda_shard_chunk(s, id);

		if (!c->credit)
			break;
		c->credit--;
		soda_list_remove(s, id);
		soda_list_push(s, SETTLED, id);
	}
	return s->head[SETTLED];
}

/*
 * A chunk that is held, pinned or busy changes lists: victim() looks at the front of one list only,
 * and a trial list of such chunks alone would hide the settled ones from it, or the other way
 * round.
 */
static void ghost_spare(struct soda_shard *s, uint32_t id)
{
	int other = soda_shard_chunk(s, id)->list == TRIAL ? SETTLED : TRIAL;

	soda_list_remove(s, id);
	soda_list_push(s, other, id);
}

static void ghost_evicted(struct soda_shard *s, uint32_t id)
{
	soda_shard_chunk(s, id)->prev = s->clock;
}

const struct soda_policy soda_policy_ghost = {
	.name = "ghost",
	.insert = ghost_insert,
	.victim = ghost_victim,
	.spare = ghost_spare,
	.evicted = ghost_evicted,
};
