/* SPDX-License-Identifier: BSD-3-Clause */
/* READs ahead of faults, and collecting the answers that no thread waits for. */
#include "host_agent/move/channel.h"
#include "host_agent/object/copies.h"

#include "host_agent/move/evict.h"
#include "host_agent/pages/install.h"
#include "host_agent/pages/shared.h"

/*
 * Make a REMOTE or SHARED chunk FETCHING, with a credit. False: it is neither any more, closed,
 * lost, no credit.
 */
static bool claim_ahead(struct soda_thread *t, struct soda_region *r, uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	if (soda_channel_refuses(r) || soda_evict_credit(t, 0))
		return false;
	while (soda_chunk_state(w) == SODA_CHUNK_REMOTE || soda_chunk_state(w) == SODA_CHUNK_SHARED)
		if (soda_chunk_swap(c, &w, (w & ~SODA_CW_STATE) | SODA_CHUNK_FETCHING)) {
			/*
			 * asked once the chunk is FETCHING: who closes it from now on waits until
			 * it is not
			 */
			if (!soda_chunk_is_closed(id))
				return true;
			soda_install_cancel(id);
			return false;
		}
	soda_buffer_give(&soda_agent.buffer, 1);
	return false;
}

static bool remote(uint32_t id)
{
	return soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) == SODA_CHUNK_REMOTE;
}

static uint32_t planned(const struct soda_plan *plan, uint32_t i)
{
	return (uint32_t)(plan->first + (int64_t)i * plan->stride);
}

/*
 * Whether the server's memory of chunks first .. last is mapped here, in one piece. A demand
 * channel's lock is held.
 */
static bool mapped(const struct soda_region *r, uint32_t first, uint32_t last)
{
	uint64_t bytes = soda_chunk_bytes() * (last - first) + soda_region_chunk_bytes(r, last);

	return soda_mr_direct(&r->mr, soda_region_offset(r, first), (uint32_t)bytes) != NULL;
}

/*
 * Install runs of the plan's chunks straight from the server's mapped memory, up to the first chunk
 * that is not mapped: of an object only parts may be mapped, and in several pieces.  Returns how
 * many chunks of the plan were dealt with.
 */
static uint32_t ahead_direct(struct soda_thread *t, struct soda_fetch_channel *ch,
			     struct soda_region *r, const struct soda_plan *plan)
{
	const struct soda_region *from = soda_copy_to_read(r, soda_channel_link(ch));
	struct soda_install *in = ch->room->direct;
	uint32_t run = 0, i;

	for (i = 0; i < plan->n && mapped(from, planned(plan, i), planned(plan, i)); i++) {
		uint32_t id = planned(plan, i);
		bool mine = remote(id) && claim_ahead(t, r, id);

		if (run && (!mine || id != in[run - 1].id + 1 || run == SODA_COLLECT_MAX ||
			    !mapped(from, in[0].id, id))) {
			soda_channel_install_direct(t, ch, r, in, run);
			run = 0;
		}
		if (mine)
			in[run++] = (struct soda_install){ .id = id, .block = -1, .ahead = true };
	}
	if (run)
		soda_channel_install_direct(t, ch, r, in, run);
	return i;
}

static uint32_t post(struct soda_thread *t, struct soda_fetch_channel *ch, struct soda_region *r,
		     const struct soda_plan *plan)
{
	uint32_t i;
	int err;

	/* Make room for the whole plan, as far as answers have arrived. */
	while (soda_channel_outstanding(ch) + plan->n > ch->slots_n && soda_channel_outstanding(ch))
		if (soda_channel_collect(t, ch, (int)(soda_channel_outstanding(ch) + 1) / 2, 0, 0,
					 &err) <= 0)
			break;
	for (i = 0; i < plan->n && soda_channel_outstanding(ch) < ch->slots_n; i++) {
		uint32_t id = planned(plan, i);
		struct soda_install in = {
			.id = id, .block = -1, .ahead = true, .shared = r->shared
		};

		if (r->shared ? !soda_shared_lacks(r, id) : !remote(id))
			continue;
		if (!claim_ahead(t, r, id))
			break;
		if (soda_channel_post(t, ch, r, in)) {
			soda_install_cancel(id);
			break;
		}
	}
	return i;
}

static void ring(struct soda_fetch_channel *ch)
{
	int err;

	if (!soda_channel_outstanding(ch) || !soda_channel_usable(ch))
		return;
	/* Not polled: a deep queue keeps the server busy, and no thread polls for the answers. */
	err = soda_conn_flush(ch->conn, false);
	if (err)
		soda_channel_break(ch, err);
}

/*
 * True: the plan begins in memory that is mapped here, or another thread has the demand channel;
 * *done_p: how many chunks were dealt with.  False: nothing of it is mapped, nothing was done.
 */
static bool try_direct(struct soda_thread *t, const struct soda_link *link, struct soda_region *r,
		       const struct soda_plan *plan, uint32_t *done_p)
{
	struct soda_fetch_channel *ch = &soda_channels[soda_channel_demand(t, link)];
	const struct soda_region *from;
	bool direct;

	*done_p = 0;
	if (!soda_lock_try(&ch->lock))
		return true;
	from = soda_copy_to_read(r, link);
	direct = from && mapped(from, planned(plan, 0), planned(plan, 0));
	if (direct && soda_channel_usable(ch))
		*done_p = ahead_direct(t, ch, r, plan);
	soda_lock_release(&ch->lock);
	return direct;
}

uint32_t soda_fetch_ahead(struct soda_thread *t, struct soda_region *r,
			  const struct soda_plan *plan)
{
	struct soda_fetch_batch b = { 0 };
	uint32_t n = soda_fetch_batch_add(&b, t, r, plan);

	soda_fetch_batch_end(&b);
	return n;
}

/*
 * Lock a channel for READs ahead: the thread's own, or, while another thread waits there for a
 * chunk, the next one that is free.
 */
static bool open_batch(struct soda_fetch_batch *b, const struct soda_thread *t,
		       const struct soda_link *link)
{
	uint32_t n = soda_channels_pairs(), own = t->index % n;
	struct soda_fetch_channel *first =
		&soda_channels[link->index * SODA_CHANNELS_OF_MEMBER + SODA_CHANNEL_PAIRS_MAX];

	if (b->ch && soda_channel_link(b->ch) != link)
		soda_fetch_batch_end(b);

	for (uint32_t i = 0; i < n && !b->ch; i++) {
		struct soda_fetch_channel *ch = &first[(own + i) % n];

		if (soda_lock_try(&ch->lock))
			*b = (struct soda_fetch_batch){ .ch = ch, .rung = ch->tail };
	}
	return b->ch;
}

uint32_t soda_fetch_batch_add(struct soda_fetch_batch *b, struct soda_thread *t,
			      struct soda_region *r, const struct soda_plan *plan)
{
	enum { RING = 32 };
	const struct soda_link *link = soda_copies_source_of(r, (uint32_t)plan->first, t->avoid);
	const struct soda_region *from = soda_copy_to_read(r, link);
	uint32_t n;

	if (r->pieces) /* of such chunks the pieces are asked for together, by who needs the chunk
			*/
		return plan->n;
	if (!r->sealing && from && (from->mr.map || from->mr.statics)) {
		/*
		 * try_direct locks a demand channel, and both locks have the same rank: unlock
		 * first.
		 */
		soda_fetch_batch_end(b);
		if (try_direct(t, link, r, plan, &n))
			return n;
	}
	if (!open_batch(b, t, link) || !soda_channel_usable(b->ch))
		return 0;
	n = post(t, b->ch, r, plan);
	if (b->ch->tail - b->rung >= RING) {
		ring(b->ch);
		b->rung = b->ch->tail;
	}
	return n;
}

void soda_fetch_batch_end(struct soda_fetch_batch *b)
{
	if (!b->ch)
		return;
	if (b->ch->tail != b->rung)
		ring(b->ch);
	soda_lock_release(&b->ch->lock);
	b->ch = NULL;
}

/* Collect all answers that have arrived on the channel, unless another thread has it locked. */
static void collect_here(struct soda_thread *t, struct soda_fetch_channel *ch)
{
	int err;

	if (!soda_channel_outstanding(ch) || !soda_lock_try(&ch->lock))
		return;
	if (soda_channel_outstanding(ch))
		soda_channel_collect(t, ch, (int)soda_channel_outstanding(ch), 0, 0, &err);
	soda_channel_end_late(ch);
	soda_lock_release(&ch->lock);
}

void soda_fetch_collect_idle(struct soda_thread *t)
{
	uint32_t n = soda_channels_pairs();

	for (uint32_t k = 0; k < soda_members(); k++)
		for (uint32_t i = 0; i < n; i++)
			collect_here(t, &soda_channels[k * SODA_CHANNELS_OF_MEMBER +
						       SODA_CHANNEL_PAIRS_MAX + i]);
}

/*
 * With redundancy: READs ahead that nobody waits for and that are not answered keep their chunks
 * from those who would look for them elsewhere.  The keeper has looked at the channel before.
 */
static void end_silent(struct soda_fetch_channel *ch)
{
	uint64_t now = soda_now_ns();

	if (ch->seen != ch->head || !soda_channel_outstanding(ch))
		ch->seen_ns = 0;
	else if (!ch->seen_ns)
		ch->seen_ns = now;
	if (!ch->seen_ns || now - ch->seen_ns < SODA_COPIES_LATE_MS * SODA_MS_NS ||
	    !soda_lock_acquire_until(&ch->lock, now + SODA_HEDGE_MS * SODA_MS_NS))
		return;
	if (ch->seen == ch->head && soda_channel_outstanding(ch))
		soda_channel_break(ch, -ETIMEDOUT);
	ch->seen_ns = 0;
	soda_lock_release(&ch->lock);
}

bool soda_fetch_collect_left(struct soda_thread *t, const struct soda_link *link)
{
	struct soda_fetch_channel *first =
		&soda_channels[link->index * SODA_CHANNELS_OF_MEMBER + SODA_CHANNEL_PAIRS_MAX];
	uint32_t n = soda_channels_pairs();
	bool more = false;

	for (uint32_t i = 0; i < n; i++) {
		struct soda_fetch_channel *ch = &first[i];

		if (ch->seen == ch->head)
			collect_here(t, ch);
		if (soda_redundant())
			end_silent(ch);
		ch->seen = ch->head;
		more = more || soda_channel_outstanding(ch);
	}
	first -= SODA_CHANNEL_PAIRS_MAX;
	for (uint32_t i = 0; i < n && atomic_load(&link->late); i++) { /* and of late demands */
		collect_here(t, &first[i]);
		more = true;
	}
	return more;
}

void soda_fetch_collect_own(struct soda_thread *t)
{
	for (uint32_t k = 0; k < soda_members(); k++)
		collect_here(t, &soda_channels[soda_channel_ahead(t, &soda_agent.links[k])]);
}
