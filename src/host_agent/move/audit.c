/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/audit.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "host_agent/core/held.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/sender.h"
#include "host_agent/move/stuck.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/region.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/stripe.h"

enum how {
	ANYWHERE, /* SODA_AUDIT_ANYWHERE */
	BETWEEN,  /* SODA_AUDIT_BETWEEN */
	LIVE,	  /* soda_audit_live */
};

struct audit {
	enum how how;
	struct soda_why *why;
	bool moving;	 /* LIVE: something is under way */
	bool lists_open; /* ANYWHERE: a thread is changing the policy's lists */
	bool api_open;	 /* ANYWHERE: a thread is changing objects, or the size of the buffer */
	/* How many chunks there are, counted by their words. */
	int64_t resident, fetching, pinned, kept;
	uint64_t span; /* of all objects */
};

static const char *const names[] = {
	[SODA_CHUNK_NONE] = "NONE",	[SODA_CHUNK_ZERO] = "ZERO",
	[SODA_CHUNK_REMOTE] = "REMOTE", [SODA_CHUNK_FETCHING] = "FETCHING",
	[SODA_CHUNK_CLEAN] = "CLEAN",	[SODA_CHUNK_DIRTY] = "DIRTY",
	[SODA_CHUNK_BUSY] = "BUSY",	[SODA_CHUNK_LOST] = "LOST",
	[SODA_CHUNK_SHARED] = "SHARED",
};

static const char *name_of(uint32_t w)
{
	return soda_chunk_state(w) < SODA_CHUNK_STATES ? names[soda_chunk_state(w)] : "no state";
}

static uint32_t word_of(uint32_t id)
{
	return soda_chunk_load(&soda_agent.table[id]);
}

static bool in(uint32_t w, uint32_t states)
{
	return states >> soda_chunk_state(w) & 1;
}

#define STATE(s) (1u << SODA_CHUNK_##s)
#define RESIDENT (STATE(CLEAN) | STATE(DIRTY) | STATE(BUSY))

static int wrong(struct audit *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int wrong(struct audit *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->why->text, sizeof(a->why->text), fmt, ap);
	va_end(ap);
	return -EUCLEAN;
}

static int wrong_chunk(struct audit *a, uint32_t id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int wrong_chunk(struct audit *a, uint32_t id, const char *fmt, ...)
{
	const struct soda_region *r = soda_region_of(id);
	uint32_t w = word_of(id);
	char what[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return wrong(a, "chunk %u of object %u (chunk %u of all), %s, word %08x: %s",
		     r ? id - r->first : 0, r ? r->id : 0, id, name_of(w), w, what);
}

/* What the chunk's word alone must be, at any time. */
static int check_word(struct audit *a, uint32_t id, uint32_t w)
{
	bool backed = w & SODA_CW_BACKED;

	if (in(w, STATE(NONE)) && (a->how == LIVE || a->api_open)) { /* the object is being freed */
		a->moving = true;
		return 0;
	}
	if (in(w, STATE(NONE)) || soda_chunk_state(w) >= SODA_CHUNK_STATES)
		return wrong_chunk(a, id, "no chunk of an object may be that");
	if (in(w, STATE(DIRTY)) && !soda_chunk_dirty(w))
		return wrong_chunk(a, id, "no block of it is dirty");
	if (!in(w, STATE(DIRTY) | STATE(BUSY)) && soda_chunk_dirty(w))
		return wrong_chunk(a, id, "it has dirty blocks, of which nobody would know");
	if (soda_chunk_dirty(w) & ~soda_blocks_all())
		return wrong_chunk(a, id, "blocks are dirty that a chunk does not have");
	if (in(w, STATE(REMOTE) | STATE(SHARED)) && !backed)
		return wrong_chunk(a, id, "the server has no copy of it (BACKED is not set)");
	if (in(w, STATE(ZERO)) && backed)
		return wrong_chunk(a, id, "the server has a copy of it (BACKED is set)");
	if (w & SODA_CW_SENDING && !in(w, RESIDENT))
		return wrong_chunk(a, id, "it is SENDING, and not there");
	if (w & SODA_CW_QUEUED && !in(w, STATE(DIRTY) | STATE(BUSY)))
		return wrong_chunk(a, id, "it is QUEUED, and not dirty");
	if (w & SODA_CW_AS_FETCHED && in(w, RESIDENT) && !backed)
		return wrong_chunk(a, id, "it is AS_FETCHED, and the server has no copy of it");
	return 0;
}

/*
 * Each thread that remembers a chunk counts in the chunk's HOLD bits, up to their maximum; holders
 * (core/held.h) count once.
 */
static int check_hold(struct audit *a, uint32_t id, uint32_t w)
{
	uint32_t held = (w & SODA_CW_HOLD) / SODA_CW_HOLD_ONE, rings;

	if (!held || a->how == ANYWHERE) /* a thread counts first, and remembers then */
		return 0;
	rings = soda_threads_holding(id) + soda_held_has(id);
	return held <= rings
		       ? 0
		       : wrong_chunk(a, id, "%u threads hold it, and %u remember it", held, rings);
}

static bool listed(const struct audit *a, uint32_t id)
{
	if (a->how == LIVE)
		return soda_replace_has(&soda_agent.replacer, id);
	return soda_agent.table[id].list != 0;
}

/*
 * BUSY and FETCHING chunks may be in a list or not: an evictor takes a BUSY one out, an install
 * puts a FETCHING one in.
 */
static int check_list(struct audit *a, uint32_t id, uint32_t w)
{
	bool is;

	if (a->lists_open)
		return 0;
	is = listed(a, id);
	if (in(w, STATE(CLEAN) | STATE(DIRTY)) && is && soda_kept_has(id))
		return wrong_chunk(a, id, "it is kept, and in a list of the policy");
	if (in(w, STATE(CLEAN) | STATE(DIRTY)) && !is && !soda_kept_has(id))
		return wrong_chunk(a, id, "it is in no list of the policy: never evicted");
	if (in(w, STATE(ZERO) | STATE(REMOTE) | STATE(LOST) | STATE(SHARED)) && is)
		return wrong_chunk(a, id, "it is in a list of the policy, and not there");
	if (!in(w, RESIDENT) && soda_kept_has(id))
		return wrong_chunk(a, id, "it is kept, and not there");
	return 0;
}

/* How often chunk id was met. */
struct search {
	uint32_t id;
	uint32_t n;
};

static void look_at_place(uint32_t id, int why, void *arg)
{
	struct search *s = arg;

	s->n += s->id == id;
}

static uint32_t places_of(uint32_t id)
{
	struct search s = { .id = id };

	soda_sender_queue_each(look_at_place, &s);
	return s.n;
}

static void look_at_ops(const struct soda_sender *sender, void *arg)
{
	struct search *s = arg;

	for (uint32_t i = 0; i < sender->max; i++)
		s->n += sender->ops[i].used && sender->ops[i].id == s->id;
}

static void look_at_gone(const struct soda_sender *sender, void *arg)
{
	struct search *s = arg;

	for (int i = 0; i < sender->gone_n; i++)
		s->n += sender->gone[i] == s->id;
}

static uint32_t senders_with(uint32_t id, void (*look)(const struct soda_sender *s, void *arg))
{
	struct search s = { .id = id };

	soda_writeback_each_sender(look, &s);
	return s.n;
}

static uint32_t relays_with(uint32_t id)
{
	struct search s = { .id = id };

	soda_sender_relays_each(look_at_place, &s);
	return s.n;
}

static uint32_t requests_of(uint32_t id)
{
	uint16_t i = atomic_load(&soda_agent.table[id].channel);
	struct soda_fetch_channel *ch =
		&soda_channels[i % (SODA_MEMBERS_MAX * SODA_CHANNELS_OF_MEMBER)];
	uint32_t n = 0;

	if (i == SODA_CHANNEL_NONE)
		return soda_stuck_has(id);
	for (uint32_t k = ch->head; k != ch->tail; k++)
		n += ch->req[k % ch->slots_n].in.id == id && !ch->req[k % ch->slots_n].withdrawn;
	return n;
}

/* A chunk that is under way belongs to a sender's operation, the queue, or a channel's request. */
static int check_owner(struct audit *a, uint32_t id, uint32_t w)
{
	uint32_t n;

	if (w & SODA_CW_SENDING) {
		n = senders_with(id, look_at_ops) + relays_with(id);
		if (n != 1 && !(a->how == ANYWHERE && (n > 1 || soda_sender_relays_taken())))
			return wrong_chunk(a, id, "SENDING, and %u senders have it under way", n);
	}
	if (a->how != BETWEEN)
		return 0;
	if (w & SODA_CW_QUEUED && !places_of(id))
		return wrong_chunk(a, id, "QUEUED, and the write-back queue has no place for it");
	if (in(w, STATE(BUSY)) && (listed(a, id) || senders_with(id, look_at_gone) != 1))
		return wrong_chunk(a, id, "nobody has it in his hands");
	if (in(w, STATE(FETCHING)) && (n = requests_of(id)) != 1)
		return wrong_chunk(a, id, "channel %u, which it names, has %u requests for it",
				   atomic_load(&soda_agent.table[id].channel), n);
	return 0;
}

/* Not resident, and without any flag that needs a check: most chunks of most objects. */
static bool at_rest(uint32_t w)
{
	return w == SODA_CHUNK_ZERO || w == (SODA_CHUNK_REMOTE | SODA_CW_BACKED) ||
	       w == (SODA_CHUNK_SHARED | SODA_CW_BACKED);
}

/* A fault looks into the node's store for it: without a credit. */
static bool is_looked_for(uint32_t id, uint32_t w)
{
	const struct soda_region *r =
		in(w, STATE(BUSY)) && soda_agent.uffd.minor ? soda_region_of(id) : NULL;

	return r && r->shared;
}

static int check_chunk(struct audit *a, uint32_t id)
{
	uint32_t w = word_of(id);
	int ret;

	if (at_rest(w))
		return a->how == LIVE && a->moving ? 0 : check_list(a, id, w);
	ret = check_word(a, id, w);
	a->resident += in(w, RESIDENT) && !is_looked_for(id, w);
	/* A FETCHING chunk without a request may have its credit or not (retire.c): not counted. */
	a->fetching += in(w, STATE(FETCHING)) && (a->how != ANYWHERE || requests_of(id));
	a->pinned += !!(w & SODA_CW_PINNED);
	a->kept += soda_kept_has(id);
	a->moving = a->moving || in(w, STATE(BUSY) | STATE(FETCHING)) ||
		    w & (SODA_CW_QUEUED | SODA_CW_SENDING);
	if (ret || (a->how == LIVE && a->moving))
		return ret;
	ret = check_hold(a, id, w);
	if (!ret)
		ret = check_list(a, id, w);
	if (!ret && a->how != LIVE)
		ret = check_owner(a, id, w);
	return ret;
}

static int check_region(struct soda_region *r, void *arg)
{
	struct audit *a = arg;
	int ret = 0;

	a->span += r->span;
	if (r->chunks &&
	    (soda_region_of(r->first) != r || soda_region_of(r->first + r->chunks - 1) != r))
		return wrong(a, "object %u: its addresses, chunks %u to %u, lead to another one",
			     r->id, r->first, r->first + r->chunks - 1);
	for (uint32_t i = 0; i < r->chunks && !ret; i++)
		ret = check_chunk(a, r->first + i);
	return ret;
}

/* The chunk of a request is FETCHING, and names the request's channel. */
static int check_request(struct audit *a, uint32_t channel, const struct soda_fetch_request *q)
{
	struct soda_region *r = soda_region_of(q->in.id);
	uint32_t named = atomic_load(&soda_agent.table[q->in.id].channel);

	if (q->withdrawn)
		return 0;
	if (!r || !in(word_of(q->in.id), STATE(FETCHING)))
		return wrong_chunk(a, q->in.id, "channel %u has a request for it under way",
				   channel);
	if (named != channel && !r->pieces) /* of whose chunks pieces are with several */
		return wrong_chunk(a, q->in.id, "it names channel %u, its request is with %u",
				   named, channel);
	if (q->bytes != soda_stripe_bytes_of(r, q->in.id))
		return wrong_chunk(a, q->in.id, "%u bytes of it were asked for", q->bytes);
	return 0;
}

static int check_channel(struct audit *a, uint32_t i, int64_t *slots)
{
	struct soda_fetch_channel *ch = &soda_channels[i];
	uint32_t n = soda_channel_outstanding(ch);
	int ret = 0;

	*slots += ch->slots_n;
	if (n > ch->slots_n)
		return wrong(a, "channel %u has %u requests under way, and %u slots", i, n,
			     ch->slots_n);
	a->moving = a->moving || n;
	/* The thread that holds the channel's lock may be changing its requests. */
	if (a->how == LIVE || (a->how == ANYWHERE && atomic_load(&ch->lock.word)))
		return 0;
	for (uint32_t k = ch->head; k != ch->tail && !ret; k++)
		ret = check_request(a, i, &ch->req[k % ch->slots_n]);
	return ret;
}

static int check_channels(struct audit *a, int64_t *slots)
{
	uint32_t pairs = soda_channels_pairs(), n = soda_members() * pairs;
	int ret = 0;

	for (uint32_t i = 0; i < n && !ret; i++) {
		uint32_t at = i / pairs * SODA_CHANNELS_OF_MEMBER + i % pairs;

		ret = check_channel(a, at, slots);
		if (!ret)
			ret = check_channel(a, SODA_CHANNEL_PAIRS_MAX + at, slots);
	}
	return ret;
}

static void count_place(uint32_t id, int why, void *arg)
{
	*(int64_t *)arg += why == SODA_WB_EVICT;
}

static void count_ops(const struct soda_sender *s, void *arg)
{
	for (uint32_t i = 0; i < s->max; i++)
		*(int64_t *)arg += s->ops[i].used && s->ops[i].why == SODA_WB_EVICT;
}

static int check_sending(struct audit *a)
{
	int64_t evicted = 0, counted = atomic_load(&soda_agent.buffer.sending);

	if (a->how == BETWEEN) {
		soda_sender_queue_each(count_place, &evicted);
		soda_sender_relays_each(count_place, &evicted);
		soda_writeback_each_sender(count_ops, &evicted);
	}
	if (a->how == ANYWHERE || evicted == counted)
		return 0;
	return wrong(a,
		     "%lld chunks count as on their way out of the buffer, and %lld are queued or "
		     "under way",
		     (long long)counted, (long long)evicted);
}

/*
 * A thread takes a credit before it uses it, and gives it back after that: at any step enough are
 * used.
 */
static int check_credits(struct audit *a, int64_t slots)
{
	const struct soda_buffer *b = &soda_agent.buffer;
	int64_t used = soda_buffer_used(b), need = a->resident + a->fetching + slots;

	if (a->how == ANYWHERE && (used >= need || a->api_open))
		return 0;
	if (used == need)
		return 0;
	return wrong(a,
		     "%lld credits of the buffer's %lld are in use, for %lld resident chunks, %lld "
		     "on their way in and %lld staging slots: %lld %s",
		     (long long)used, (long long)atomic_load(&b->limit), (long long)a->resident,
		     (long long)a->fetching, (long long)slots, llabs(used - need),
		     used > need ? "leaked" : "missing");
}

static int check_accounts(struct audit *a, int64_t slots)
{
	int64_t pinned = atomic_load(&soda_agent.buffer.pinned);
	uint64_t span = atomic_load(&soda_agent.fam_bytes);
	int ret = check_credits(a, slots);

	if (ret || a->how == ANYWHERE)
		return ret;
	if (pinned != a->pinned + soda_held_chunks())
		return wrong(a, "%lld chunks count as pinned, and %lld are, with %u that are held",
			     (long long)pinned, (long long)a->pinned, soda_held_chunks());
	if (atomic_load(&soda_agent.buffer.kept) != a->kept)
		return wrong(a, "%lld chunks count as kept, and %lld are",
			     (long long)soda_agent.buffer.kept, (long long)a->kept);
	if (span != a->span)
		return wrong(a, "the objects count as %llu bytes, and are %llu",
			     (unsigned long long)span, (unsigned long long)a->span);
	return check_sending(a);
}

static int check_all(struct audit *a)
{
	int64_t slots = soda_sealing_slots();
	int ret = soda_regions_each(check_region, a);

	if (!ret)
		ret = check_channels(a, &slots);
	if (a->how == LIVE && (a->moving || soda_sender_queue_waiting()))
		return -EBUSY;
	return ret ? ret : check_accounts(a, slots);
}

int soda_audit_check(enum soda_audit_when when, struct soda_why *why)
{
	struct audit a = { .how = when == SODA_AUDIT_BETWEEN ? BETWEEN : ANYWHERE, .why = why };

	for (uint32_t i = 0; a.how == ANYWHERE && i < soda_agent.replacer.shards; i++)
		a.lists_open |= atomic_load(&soda_agent.replacer.shard[i].lock.word) != 0;
	a.api_open = a.how == ANYWHERE && atomic_load(&soda_agent.api_lock.word);
	return check_all(&a);
}

/* A number that changes whenever a thread moves a chunk. */
static uint64_t pulse(void)
{
	uint64_t sum = soda_progress_seen() + soda_agent.buffer.freed;

	for (int c = 0; c < SODA_CNT_MAX; c++)
		sum = sum * 31 + soda_threads_sum((enum soda_thread_counter)c);
	return sum * 31 + (uint64_t)atomic_load(&soda_agent.buffer.free);
}

static int look(struct soda_why *why)
{
	struct audit a = { .how = LIVE, .why = why };
	sigset_t saved;
	int ret;

	soda_signals_block(&saved);
	soda_regions_lock();
	ret = check_all(&a);
	soda_regions_unlock();
	soda_signals_restore(&saved);
	return ret;
}

int soda_audit_live(struct soda_why *why)
{
	enum { LOOKS = 2000, PAUSE_MS = 2 };
	struct soda_why before = { "" };
	uint64_t beat = pulse();

	for (int i = 0; i < LOOKS; i++) {
		int ret = look(why);
		bool same = !strcmp(before.text, why->text);
		/* what ends is taken apart session by session, and one may come back meanwhile */
		bool ends = atomic_load(&soda_agent.life) == SODA_LIFE_ENDED;

		if (ends || ret != -EUCLEAN || beat != pulse() || (i && !same))
			return 0;
		before = *why;
		poll(NULL, 0, PAUSE_MS);
	}
	return -EUCLEAN;
}

#ifdef SODA_DEBUG
void soda_audit_quiet(const char *where)
{
	struct soda_why why = { "" };

	if (!soda_audit_live(&why))
		return;
	soda_log_error("%s: the runtime's accounts are wrong: %s", where, why.text);
	abort();
}
#endif
