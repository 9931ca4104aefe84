/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tracepoint.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/sender.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/unacked.h"

/* A deadline that moves on while the server answers. */
struct patience {
	uint32_t last; /* soda_progress_answers() when the deadline was set */
	uint64_t deadline_ns;
};

static uint64_t from_now(void)
{
	return soda_now_ns() + soda_agent.settings.fault_timeout_ms * 1000000ull;
}

static void patience_begin(struct patience *p)
{
	*p = (struct patience){ soda_progress_answers(), from_now() };
}

/* Wait until soda_progress_seen() is not `seen`, for a while; false: the deadline is over. */
static bool patience_wait(struct patience *p, uint32_t seen)
{
	uint32_t answers = soda_progress_answers();
	uint64_t from = soda_now_ns();

	if (answers != p->last)
		*p = (struct patience){ answers, from_now() };
	else if (from >= p->deadline_ns)
		return false;
	soda_writeback_await(seen, SODA_SYNC_LOOK_MS * SODA_MS_NS);
	p->deadline_ns +=
		soda_thread_stood_still(NULL, SODA_SYNC_LOOK_MS * SODA_MS_NS, soda_now_ns() - from);
	return true;
}

/*
 * Wait until the chunk is neither BUSY nor FETCHING: only then its word says whether it is dirty.
 * The pages of a FETCHING chunk may be stored to a moment before the chunk is DIRTY.  0,
 * -ETIMEDOUT.
 */
static int settled_word(uint32_t id, uint64_t deadline_ns, uint32_t *word_p)
{
	enum { STEP_NS = 1000000000 };
	struct soda_chunk *c = &soda_agent.table[id];

	for (;;) {
		enum soda_chunk_state s = soda_chunk_state(*word_p = soda_chunk_load(c));
		uint64_t from;
		sigset_t saved;

		if (s != SODA_CHUNK_BUSY && s != SODA_CHUNK_FETCHING)
			return 0;
		from = soda_now_ns();
		if (from > deadline_ns)
			return -ETIMEDOUT;
		soda_signals_block(&saved);
		if (s == SODA_CHUNK_BUSY)
			soda_chunk_wait(c, 1000000);
		else
			soda_fetch_join(soda_thread_self(), id, from + STEP_NS);
		soda_signals_restore(&saved);
		deadline_ns += soda_thread_stood_still(NULL, STEP_NS, soda_now_ns() - from);
	}
}

/*
 * Which thread set a chunk's flag QUEUED, and queues the chunk: none (it is clean), this one,
 * another.
 */
enum marked { NOBODY, OURS, ANOTHER };

/*
 * Set QUEUED if the chunk is dirty.  *before_p becomes true if a write-back of it is under way
 * already. enum marked; -ETIMEDOUT: another thread has the chunk BUSY or FETCHING, so it cannot be
 * told whether it is dirty.
 */
static int mark(uint32_t id, bool *before_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint64_t deadline_ns = from_now();

	for (;;) {
		uint32_t w;

		if (settled_word(id, deadline_ns, &w))
			return -ETIMEDOUT;
		*before_p |= !!(w & SODA_CW_SENDING);
		if (soda_chunk_state(w) != SODA_CHUNK_DIRTY)
			return NOBODY;
		if (w & SODA_CW_QUEUED)
			return ANOTHER;
		if (soda_chunk_swap(c, &w, w | SODA_CW_QUEUED))
			return OURS;
		/* the word has changed, perhaps by another thread's store: look again */
	}
}

/* false: the queue is full.  With signals blocked, because a fault takes the queue's lock, too. */
static bool push(uint32_t id)
{
	sigset_t saved;
	int n;

	soda_signals_block(&saved);
	n = soda_writeback_queue(&id, 1, SODA_WB_SYNC);
	soda_signals_restore(&saved);
	return n == 1;
}

/* mark(), and queue the chunk. enum marked; -ETIMEDOUT also where the queue stays full. */
static int queue_chunk(struct patience *p, uint32_t id, bool *before_p)
{
	for (;;) {
		int marked = mark(id, before_p);
		uint32_t seen = soda_progress_seen();

		if (marked != OURS || push(id))
			return marked;
		if (!patience_wait(p, seen))
			return -ETIMEDOUT;
	}
}

static bool under_way(uint32_t id)
{
	return soda_chunk_load(&soda_agent.table[id]) & (SODA_CW_QUEUED | SODA_CW_SENDING);
}

/* Send a batch from the queue over the thread's own connection. false: nothing was sent. */
static bool share(void)
{
	struct soda_thread *t = soda_thread_self();
	sigset_t saved;
	bool sent;

	if (!t)
		return false;
	soda_signals_block(&saved);
	sent = soda_writeback_share(t);
	soda_signals_restore(&saved);
	return sent;
}

static int await_chunk(struct patience *p, uint32_t id)
{
	while (under_way(id)) {
		uint32_t seen = soda_progress_seen();

		if (under_way(id) && !share() && !patience_wait(p, seen))
			return -ETIMEDOUT;
	}
	return 0;
}

/*
 * Wait until the chunk, which had QUEUED set when soda_sender_queue_refused() was `refused`, is not
 * under way any more.  If the number has changed, another thread may have set the flag, found the
 * queue full and cleared the flag; then this thread queues the chunk itself.
 */
static int finish_chunk(struct patience *p, uint32_t id, uint32_t refused, bool *before_p)
{
	int ret = await_chunk(p, id), marked = ANOTHER;

	while (!ret && marked == ANOTHER && refused != soda_sender_queue_refused()) {
		refused = soda_sender_queue_refused();
		marked = queue_chunk(p, id, before_p);
		ret = marked < 0 ? marked : await_chunk(p, id);
	}
	return ret;
}

/* Queue the dirty chunks and wait until none of them is under way. *before_p: as mark(). */
static int bring(uint32_t first, uint32_t n, bool *before_p)
{
	uint32_t refused = soda_sender_queue_refused();
	struct patience p;
	int ret = 0;

	patience_begin(&p);
	for (uint32_t id = first; id < first + n && ret >= 0; id++)
		ret = queue_chunk(&p, id, before_p);
	if (ret < 0)
		return ret;
	ret = 0;
	patience_begin(&p);
	for (uint32_t id = first; id < first + n && !ret; id++)
		ret = finish_chunk(&p, id, refused, before_p);
	return ret;
}

/* Of one region. */
static int sync_part(const struct soda_region *r, uint32_t first, uint32_t n)
{
	uint32_t refusals = atomic_load(&r->unsent);
	bool before = false;
	int ret;

	ret = bring(first, n, &before);
	/*
	 * A write-back that was under way before may have been refused before `unsent` was read:
	 * its chunk is dirty again, and is tried again here.
	 */
	if (!ret && before)
		ret = bring(first, n, &before);
	if (!ret && atomic_load(&r->unsent) != refusals)
		ret = atomic_load(&r->unsent_error);
	return ret;
}

int soda_sync_chunks(uint32_t first, uint32_t n)
{
	int ret = 0;

	for (uint32_t had; n && !ret; first += had, n -= had) {
		const struct soda_region *r = soda_region_of(first);

		had = soda_region_has(r, first, n);
		ret = sync_part(r, first, had);
	}
	return ret;
}

/* Wait until unacknowledged chunks are on the server, and a WRITABLE file's content in the file. */
static int settle(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why)
{
	if (r->sealed_file && r->flags & SODA_WRITABLE)
		return soda_commit_region(r, why);
	if (!(r->flags & SODA_WRITABLE) && !soda_unacked_any(first, n))
		return 0;
	return soda_calls_sync_region(r, why);
}

/* How often an agent, and a server, has ended with data that it had acknowledged. */
struct ends {
	uint32_t deaths, restarts;
};

/* Of a slab with copies: how often the last one was lost, counted twice. */
static uint32_t restarts_of(const struct soda_region *r)
{
	return soda_copies(r) ? atomic_load(&r->losses) : soda_link_restarts(r->link);
}

static bool ended_since(const struct ends *e, const struct soda_region *r)
{
	return e->deaths != soda_unacked_deaths() || e->restarts != restarts_of(r);
}

/*
 * Read the numbers when both are even: while one is odd the keeper is still making dirty what is
 * resident of the lost data.  0, -ETIMEDOUT.
 */
static int await_ends(struct ends *e, const struct soda_region *r, struct soda_why *why)
{
	uint64_t deadline_ns = from_now();

	for (;;) {
		*e = (struct ends){ soda_unacked_deaths(), restarts_of(r) };
		if (!((e->deaths | e->restarts) & 1))
			return 0;
		if (soda_now_ns() > deadline_ns)
			break;
		poll(NULL, 0, 1);
	}
	snprintf(why->text, sizeof(why->text),
		 "the runtime is still finding out what %.120s has lost, as it started anew",
		 soda_copies_source(r, NULL)->server.address);
	return -ETIMEDOUT;
}

/* The object has dirty data, and the server has refused to open it. */
static int explain_refusal(const struct soda_region *r, int refused, struct soda_why *why)
{
	snprintf(
		why->text, sizeof(why->text),
		"%.120s, which has started anew, does not take it (%s); it is asked again, and the "
		"data stays in memory",
		soda_copies_source(r, NULL)->server.address, soda_strerror(refused));
	return refused == -ENOSPC || refused == -EDQUOT ? -ENOSPC : -EIO;
}

/* The data are safe, but not as safe as SODA_STRICT wants. */
static int explain_missing(const struct soda_region *r, struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text),
		 "it is on %.150s alone, as a copy is missing (SODA_STRICT)",
		 soda_copies_source(r, NULL)->server.address);
	return -EIO;
}

/*
 * Whether what was tried is tried again.  -EBUSY: a DPU agent that seals has died meanwhile, and
 * what was under way is to be written again, which is dirty by now.
 */
static bool again(const struct soda_region *r, const struct ends *e, int ret, int refused,
		  uint32_t taken)
{
	if (!ret || ret == -EBUSY)
		return ended_since(e, r);
	return !refused && taken != atomic_load(&r->taken);
}

/*
 * Whether the caller is told of a loss: each one is that had begun before anybody was, as what it
 * had stored may be a part of that.  before: r->told when it began.
 */
static bool tells_of_loss(struct soda_region *r, uint32_t before)
{
	uint32_t now = atomic_load(&r->unwritten);

	atomic_store(&r->told, now);
	return now != before;
}

int soda_sync_range(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why)
{
	struct ends ends;
	uint32_t before = atomic_load(&r->told), taken;
	int ret, refused;

	if (r->sealed_file) { /* it is committed as a whole */
		first = r->first;
		n = r->chunks;
	}
	SODA_TP_SYNC(first, n);
	do { /* also where chunks had no place, and have one since: that is no failure */
		taken = atomic_load(&r->taken);
		ret = await_ends(&ends, r, why);
		if (!ret)
			ret = soda_sync_chunks(first, n);
		if (!ret)
			ret = settle(r, first, n, why);
		refused = atomic_load(&r->refused);
	} while (again(r, &ends, ret, refused, taken));
	if (ret && refused)
		ret = explain_refusal(r, refused, why);
	if (!ret && tells_of_loss(r, before)) {
		snprintf(why->text, sizeof(why->text),
			 "some of it is lost: the server has started anew, or the DPU agent died, "
			 "or gave up its server, before it had brought all of it there");
		ret = -EIO;
	}
	if (!ret && soda_agent.settings.strict && soda_copies_missing(r))
		ret = explain_missing(r, why);
	SODA_TP_SYNC_DONE(first, ret);
	soda_audit_quiet("after a sync");
	return ret;
}

void soda_sync_settle(uint32_t id, uint64_t deadline_ns)
{
	while (under_way(id) && soda_now_ns() < deadline_ns) {
		uint32_t seen = soda_progress_seen();

		if (under_way(id))
			soda_writeback_await(seen, 10000000);
	}
}
