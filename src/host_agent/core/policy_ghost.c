/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The default.  Use of a resident chunk is invisible, but its return is not: the
 * time from eviction to the next fault is one sample of how often the chunk is
 * wanted.  The chunk table remembers when each chunk left (a ghost entry that
 * costs nothing), and the sample decides how it comes back:
 *
 *   trial     a short arrival-order list, a twentieth of the buffer: chunks that were
 *             never here, or away for long.  A scan passes through it and leaves
 *             the rest alone.
 *   settled   chunks that came back within one buffer's worth of arrivals.  The
 *             sooner, the more laps (credit) they get before they are victims.
 *
 * One in eight of those that come back late is settled all the same: a loop that is
 * larger than the buffer then keeps a part of itself resident, where arrival order
 * would keep nothing.
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
	/* Give the front of the list its laps; bounded, as each one costs a credit. */
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
 * Held or pinned is in use: it has passed the trial.  Were it to stay, a list of
 * such chunks alone would hide the other one from the evictor; so it changes lists.
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
