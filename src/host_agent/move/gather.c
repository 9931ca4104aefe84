/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/gather.h"

#include <errno.h>
#include <sched.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/fetch.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/stripe.h"
#include "host_agent/pages/install.h"
#include "pool/erasure.h"

struct piece {
	struct soda_fetch_channel *ch;
	struct soda_fetch_copying copying; /* guarded by the channel's lock while it is asked */
};

struct gathering {
	struct soda_thread *t;
	struct soda_region *r;
	uint32_t id;
	char *stripe;
	uint64_t deadline_ns;
	struct piece piece[SODA_COPY_PLACES];
	/* masks of places (soda_copy_piece()), of which no two have the same piece in asked | have;
	   asked: and not answered */
	uint32_t tried, asked, have;
	uint32_t full;	  /* tried, and their channels had no slot; asked again in the next round */
	uint32_t refused; /* what an agent that seals has of them it cannot open */
	int err;	  /* of the last one that failed */
};

static uint32_t how_many(uint32_t mask)
{
	return (uint32_t)__builtin_popcount(mask);
}

/* The next piece to ask for: of a server that is UP, if possible not late; -1: none. */
static int next_piece(const struct gathering *g)
{
	uint64_t copies = soda_copies(g->r);
	uint32_t pieces = soda_copy_pieces(g->r, g->asked | g->have);
	uint32_t n = g->r->pieces + g->r->parities;
	int late = -1;

	for (uint32_t i = 0; i < soda_copy_places(g->r); i++) {
		int k = (int)(i / 2 + i % 2 * n); /* both places of each piece, data first */
		const struct soda_link *link;

		if (pieces >> i / 2 & 1 || g->tried >> k & 1 ||
		    !soda_copy_is_current(copies, (uint32_t)k))
			continue;
		link = soda_copy_link(g->r, (uint32_t)k);
		if (!soda_server_up(&link->server))
			continue;
		if (!atomic_load_explicit(&link->late, memory_order_relaxed))
			return k;
		late = late < 0 ? k : late;
	}
	return late;
}

/* Post the READ; where all slots are taken, collect answers first, for a moment: else -EAGAIN. */
static int post_with_room(struct gathering *g, struct soda_fetch_channel *ch)
{
	uint64_t until_ns = soda_now_ns() + SODA_HEDGE_MS * SODA_MS_NS;
	struct soda_install in = { .id = g->id, .block = -1 };
	int ret, n, err;

	while ((ret = soda_channel_post(g->t, ch, g->r, in)) == -EAGAIN) {
		n = soda_channel_collect(g->t, ch, SODA_COLLECT_MAX, SODA_MS_NS, 0, &err);
		if (n < 0)
			return n;
		if (!n && soda_channel_end_late(ch))
			return -ETIMEDOUT;
		if (!n && soda_now_ns() > until_ns)
			return -EAGAIN;
	}
	return ret;
}

static int ask_locked(struct gathering *g, int k, const struct soda_link *link)
{
	struct piece *p = &g->piece[k];
	int ret;

	if (soda_copy_on(g->r, link) != k)
		return -ENOTCONN; /* it is on another server since */
	ret = post_with_room(g, p->ch);
	if (ret)
		return ret;
	p->ch->req[(p->ch->tail - 1) % p->ch->slots_n].copying = &p->copying;
	g->asked |= 1u << k;
	ret = soda_conn_flush(p->ch->conn, false);
	if (ret) /* p->copying is told */
		soda_channel_break(p->ch, ret);
	return 0;
}

/* Ask for another piece. false: there is none. */
static bool ask_next(struct gathering *g)
{
	int k = next_piece(g), ret;
	const struct soda_link *link;

	if (k < 0)
		return false;
	link = soda_copy_link(g->r, (uint32_t)k);
	g->tried |= 1u << k;
	g->piece[k].ch = &soda_channels[soda_channel_demand(g->t, link)];
	g->piece[k].copying.to = g->stripe + (uint64_t)soda_copy_piece(g->r, (uint32_t)k) *
						     soda_stripe_piece_bytes(g->r);
	if (!soda_lock_acquire_until(&g->piece[k].ch->lock, g->deadline_ns)) {
		g->err = -ETIMEDOUT;
		return true;
	}
	ret = ask_locked(g, k, link);
	soda_lock_release(&g->piece[k].ch->lock);
	if (ret == -EAGAIN)
		g->full |= 1u << k;
	else if (ret)
		g->err = ret;
	return true;
}

/*
 * As many as are missing.  Answers that nobody waits for any more may have all slots of a channel
 * for as long as a round trip takes: if there is no other piece, that one is asked for later.
 */
static void ask_enough(struct gathering *g)
{
	g->tried &= ~g->full;
	g->full = 0;
	while (how_many(g->asked | g->have) < g->r->pieces && ask_next(g))
		;
}

/* What its server has of the chunk is not what was sent there: it is computed from the others. */
static void give_up_piece(struct soda_region *r, uint32_t id, uint32_t k)
{
	if (!soda_copies_drop(r, k))
		return; /* one of the last */
	soda_log_error("%u bytes at offset %llu of %s are not what was sent to %s: the piece there "
		       "is given up, and they are computed from the others",
		       soda_stripe_piece_bytes(r),
		       (unsigned long long)(r->before + soda_region_offset(r, id)),
		       r->name[0] ? r->name : "an object", soda_copy_link(r, k)->server.address);
}

/* A refusal of one that has become stale since says nothing of the chunk. */
static void take_refusal(struct gathering *g, int k, int status)
{
	bool current = soda_copy_is_current(soda_copies(g->r), (uint32_t)k);

	g->err = current ? status : -ENOTCONN;
	if (g->err != -EIO)
		return;
	g->refused |= 1u << k;
	give_up_piece(g->r, g->id, (uint32_t)k);
}

/* Wait for the piece, at most so long. */
static void collect_piece(struct gathering *g, int k, int64_t timeout_ns)
{
	struct piece *p = &g->piece[k];
	int err, state;

	if (!soda_lock_acquire_until(&p->ch->lock, soda_now_ns() + (uint64_t)timeout_ns))
		return;
	if (!p->copying.state)
		soda_channel_collect(g->t, p->ch, SODA_COLLECT_MAX, timeout_ns, 0, &err);
	state = p->copying.state;
	soda_lock_release(&p->ch->lock);
	if (!state)
		return;
	g->asked &= ~(1u << k);
	if (state > 0)
		g->have |= 1u << k;
	else
		take_refusal(g, k, state);
}

/* Few READs may be asked for twice, so that a machine that is slow as a whole is not burdened. */
static bool may_hedge(const struct soda_thread *t, uint64_t began_ns)
{
	uint64_t took_ns = soda_now_ns() - began_ns;

	return took_ns >= SODA_SILENT_MS * SODA_MS_NS ||
	       (took_ns >= SODA_HEDGE_MS * SODA_MS_NS &&
		t->hedged * SODA_HEDGE_SHARE <= t->reads + SODA_HEDGE_SPARE * SODA_HEDGE_SHARE);
}

/* The answer, if it comes, goes nowhere. */
static void withdraw(struct gathering *g, int k)
{
	struct piece *p = &g->piece[k];
	struct soda_link *link = soda_channel_link(p->ch);

	soda_lock_acquire(&p->ch->lock);
	for (uint32_t n = p->ch->head; !p->copying.state && n != p->ch->tail; n++) {
		struct soda_fetch_request *q = &p->ch->req[n % p->ch->slots_n];

		if (q->copying != &p->copying)
			continue;
		q->copying = NULL;
		q->withdrawn = true;
		q->withdrawn_ns = soda_now_ns();
		atomic_fetch_add(&link->late, 1);
		soda_link_want_collector(link);
		g->t->hedged++;
	}
	soda_lock_release(&p->ch->lock);
}

/* K pieces. 0; an error. Nothing is under way to the stripe at the end. */
static int gather(struct gathering *g)
{
	uint64_t began_ns = soda_now_ns();
	int ret = 0;

	g->t->reads++;
	atomic_store_explicit(&soda_agent.table[g->id].channel, SODA_CHANNEL_NONE,
			      memory_order_relaxed);
	while (!ret && how_many(g->have) < g->r->pieces) {
		uint64_t now = soda_now_ns();

		ask_enough(g);
		if (how_many(soda_copy_pieces(g->r, g->asked | g->have | g->full)) < g->r->pieces) {
			ret = g->err ? g->err : -ENOTCONN;
			break;
		}
		if (g->asked)
			collect_piece(g, __builtin_ctz(g->asked), SODA_MS_NS);
		for (uint32_t rest = g->asked; rest && soda_now_ns() - now >= SODA_MS_NS;
		     rest &= rest - 1)
			collect_piece(g, __builtin_ctz(rest), 0);
		if (may_hedge(g->t, began_ns))
			ask_next(g);
		g->deadline_ns +=
			soda_thread_stood_still(g->t, 4 * SODA_MS_NS, soda_now_ns() - now);
		if (soda_now_ns() >= g->deadline_ns)
			ret = -ETIMEDOUT;
	}
	for (uint32_t rest = g->asked; rest; rest &= rest - 1)
		withdraw(g, __builtin_ctz(rest));
	return how_many(g->have) >= g->r->pieces ? 0 : ret;
}

/* K pieces in places that are in the mask, and from them the data. As gather(). */
static int gather_among(struct gathering *g, uint32_t among)
{
	int ret;

	g->tried = ~among;
	ret = gather(g);
	if (!ret && !soda_erasure_decode(g->r->pieces, soda_copy_pieces(g->r, g->have),
					 soda_stripe_piece_bytes(g->r), g->stripe))
		ret = -EIO; /* the code gives every K pieces the others: not reached */
	return ret;
}

/*
 * A chunk could not be read: if agents that seal refuse so many of its pieces that there are not K
 * others, up or not, it is LOST: -EBADMSG.
 */
static int settle_refused(struct soda_region *r, uint32_t id, uint32_t refused, int err)
{
	uint32_t places = (uint32_t)soda_copies(r) & ((1u << soda_copy_places(r)) - 1) & ~refused;

	if (!refused)
		return err;
	if (how_many(soda_copy_pieces(r, places)) >= r->pieces)
		return err == -EIO ? -ENOTCONN : err; /* others, which are not UP now */
	soda_fetch_damaged(r, id, "its servers");
	return -EBADMSG;
}

/* Sealed chunks: the pieces are of ciphertext, and one that was changed changes what is decoded. */

/* A chunk that is read, and where it is opened to: the stripe itself, or other memory. */
struct opening {
	struct soda_thread *t;
	struct soda_region *r;
	uint32_t id;
	void *stripe, *plain;
	uint64_t deadline_ns;
	uint32_t have;	  /* the places that were read last */
	uint32_t refused; /* as of gathering */
};

/* By the engine of a channel that one of the pieces came through. */
static int open_gathered(const struct opening *o, struct soda_fetch_channel *ch)
{
	int ret;

	if (!soda_lock_acquire_until(&ch->lock, o->deadline_ns))
		return -ETIMEDOUT;
	ret = soda_sealing_open((uint32_t)(ch - soda_channels), o->r, o->id, o->stripe, o->plain);
	soda_lock_release(&ch->lock);
	return ret;
}

/* -EBADMSG: a piece is not what was sent; other errors as of gather(). */
static int read_among(struct opening *o, uint32_t among, uint64_t deadline_ns)
{
	struct gathering g = {
		.t = o->t, .r = o->r, .id = o->id, .stripe = o->stripe, .deadline_ns = deadline_ns
	};
	int ret = gather_among(&g, among);

	o->have = g.have;
	o->refused |= g.refused;
	return ret ? ret : open_gathered(o, g.piece[__builtin_ctz(g.have)].ch);
}

/* The same with no piece but these, for which a server that is silent has a moment. */
static int try_exactly(struct opening *o, uint32_t pieces)
{
	uint64_t until_ns = soda_now_ns() + SODA_SILENT_MS * SODA_MS_NS;

	return read_among(o, pieces, until_ns < o->deadline_ns ? until_ns : o->deadline_ns);
}

static bool is_enough(const struct soda_region *r, uint32_t places)
{
	return how_many(places) == r->pieces && how_many(soda_copy_pieces(r, places)) == r->pieces;
}

/*
 * K pieces that are all as they were sent; one that moves may be so in one of its two places alone.
 * 0: there are none; *unsure_p: as far as could be asked.
 */
static uint32_t find_right(struct opening *o, bool *unsure_p)
{
	uint32_t current = (uint32_t)soda_copies(o->r) & ((1u << soda_copy_places(o->r)) - 1);

	*unsure_p = false;
	for (uint32_t set = current; set; set = (set - 1) & current) {
		int ret = is_enough(o->r, set) ? try_exactly(o, set) : -EBADMSG;

		if (!ret)
			return set;
		*unsure_p |= ret != -EBADMSG;
	}
	return 0;
}

/* Those of `right` with that one, which has the same piece as one of them, or as none. */
static uint32_t with(const struct soda_region *r, uint32_t right, uint32_t one)
{
	uint32_t other = 1u << soda_copy_other_place(r, (uint32_t)__builtin_ctz(one));

	return (right & other ? right & ~other : right & (right - 1)) | one;
}

/*
 * Of the pieces `bad`, not all of which are right, give up those that are not: each is tried with
 * K - 1 that are.
 */
static void give_up_wrong(struct opening *o, uint32_t bad, uint32_t right)
{
	for (uint32_t rest = bad & ~right; rest; rest &= rest - 1) {
		uint32_t one = rest & -rest;

		if (try_exactly(o, with(o->r, right, one)) == -EBADMSG)
			give_up_piece(o->r, o->id, (uint32_t)__builtin_ctz(one));
	}
}

/* 0; -EBADMSG: a chunk that is LOST, and has been settled; other errors of gather(). */
static int read_right(struct opening *o)
{
	int ret = read_among(o, ~0u, o->deadline_ns);
	uint32_t bad = o->have, right;
	bool unsure;

	if (ret != -EBADMSG)
		return ret;
	right = find_right(o, &unsure);
	if (!right && unsure)
		return -ENOTCONN;
	if (!right) {
		soda_fetch_damaged(o->r, o->id, "its servers");
		return -EBADMSG;
	}
	give_up_wrong(o, bad, right);
	ret = try_exactly(o, right);
	return ret == -EBADMSG ? -ENOTCONN : ret; /* changed since: once more */
}

static int read_sealed(struct opening *o)
{
	int ret = read_right(o);

	return ret && ret != -EBADMSG ? settle_refused(o->r, o->id, o->refused, ret) : ret;
}

static void *take_place(uint64_t deadline_ns)
{
	void *place;

	while (!(place = soda_stripe_take(SODA_STRIPE_READER)) && soda_now_ns() < deadline_ns)
		sched_yield();
	return place;
}

int soda_gather_copy(struct soda_thread *t, struct soda_region *r, uint32_t id, void *stripe,
		     uint64_t deadline_ns)
{
	struct gathering g = {
		.t = t, .r = r, .id = id, .stripe = stripe, .deadline_ns = deadline_ns
	};
	struct opening o = {
		.t = t, .r = r, .id = id, .stripe = stripe, .deadline_ns = deadline_ns
	};
	int ret;

	if (!r->sealing) {
		ret = gather_among(&g, ~0u);
		return ret ? settle_refused(r, id, g.refused, ret) : 0;
	}
	o.plain = take_place(deadline_ns);
	if (!o.plain)
		return -ETIMEDOUT;
	ret = read_sealed(&o);
	soda_stripe_give(o.plain);
	return ret;
}

/* To the place, opened if it is sealed. */
static int demand(struct soda_thread *t, struct soda_region *r, uint32_t id, void *place,
		  uint64_t deadline_ns)
{
	struct opening o = { .t = t,
			     .r = r,
			     .id = id,
			     .stripe = place,
			     .plain = place,
			     .deadline_ns = deadline_ns };
	int ret = r->sealing ? read_sealed(&o) : soda_gather_copy(t, r, id, place, deadline_ns);

	if (!ret && r->sealing)
		soda_count(t, SODA_CNT_BYTES_OPENED, soda_region_chunk_bytes(r, id));
	return ret;
}

int soda_gather_demand(struct soda_thread *t, struct soda_region *r, uint32_t id, int block,
		       uint64_t deadline_ns)
{
	struct soda_install in = { .id = id, .block = (int16_t)block };
	void *place = take_place(deadline_ns);
	int ret = place ? demand(t, r, id, place, deadline_ns) : -ETIMEDOUT;

	if (ret == -EBADMSG) {
		ret = -EIO; /* LOST, and its credit given back */
	} else if (ret) {
		soda_install_cancel(id);
	} else {
		soda_count(t, SODA_CNT_BYTES_FETCHED, soda_region_chunk_bytes(r, id));
		soda_count(t, SODA_CNT_FETCHES, 1);
		ret = soda_install_run(r, &in, 1, place);
	}
	if (place)
		soda_stripe_give(place);
	return ret;
}
