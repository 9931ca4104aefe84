/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/retire.h"

#include <errno.h>

#include "base/limits.h"
#include "base/lock.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/stuck.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/region.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pages/install.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/protect.h"

/*
 * Wait until no other thread, READ or WRITE works on the chunk, then make it BUSY if it is resident
 * (*resident_p); else leave it as it is.  0, -ETIMEDOUT.
 */
static int take_over(struct soda_thread *t, uint32_t id, uint64_t deadline_ns, bool *resident_p)
{
	struct soda_chunk *c = &soda_agent.table[id];

	for (;;) {
		uint32_t w = soda_chunk_load(c);
		enum soda_chunk_state s = soda_chunk_state(w);

		if (soda_now_ns() > deadline_ns)
			return -ETIMEDOUT;
		if (s == SODA_CHUNK_FETCHING) {
			soda_fetch_join(t, id, deadline_ns);
		} else if (s == SODA_CHUNK_BUSY) {
			soda_chunk_wait(c, 1000000);
		} else if (w & SODA_CW_SENDING) {
			soda_sync_settle(id, deadline_ns);
		} else if (s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY) {
			/*
			 * QUEUED goes in the same step: a thread that waits for this chunk to leave
			 * the queue must not see it unqueued before it is BUSY; the sender skips a
			 * place whose chunk is not QUEUED
			 */
			if (soda_chunk_swap(c, &w,
					    (w & ~(SODA_CW_STATE | SODA_CW_QUEUED)) |
						    SODA_CHUNK_BUSY)) {
				*resident_p = true;
				return 0;
			}
		} else {
			*resident_p = false;
			return 0;
		}
	}
}

static void forget_chunk(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];

	soda_kept_forget(id);
	soda_replace_remove(&soda_agent.replacer, id);
	c->prev = 0;
	c->credit = 0;
	if (soda_chunk_flags(c, 0, SODA_CW_PINNED) & SODA_CW_PINNED)
		soda_buffer_unpin(&soda_agent.buffer);
	/* one that is still FETCHING is stuck.h's, which makes it NONE later */
	if (soda_chunk_state(soda_chunk_load(c)) != SODA_CHUNK_FETCHING)
		soda_chunk_settle(c, SODA_CHUNK_NONE, 0, 0, ~0u);
}

/* Make a chunk that is not resident NONE, so that no thread can begin to fetch it. */
static bool vacate(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	switch (soda_chunk_state(w)) {
	case SODA_CHUNK_ZERO:
	case SODA_CHUNK_REMOTE:
	case SODA_CHUNK_LOST:
	case SODA_CHUNK_SHARED:
		return soda_chunk_begin(c, &w, SODA_CHUNK_NONE);
	default:
		return false;
	}
}

/* One of the servers that a chunk of the region's may wait for is silent. */
static void suspect(const struct soda_region *r)
{
	uint64_t copies = soda_copies(r);

	if (!copies)
		soda_link_silent(r->link);
	for (uint32_t k = 0; copies && k < SODA_COPY_PLACES; k++)
		if (soda_copy_is_written(copies, k))
			soda_link_silent(soda_copy_link(r, k));
}

/*
 * Make the chunk BUSY, if it is resident (*had_p), or NONE.  0; -EBUSY: it stays FETCHING, as a
 * stopped peer may still store to it; -ETIMEDOUT: it is in use for the time of a fault.
 */
static int end_chunk(struct soda_thread *t, uint32_t id, bool *had_p)
{
	uint64_t patience_ns = soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
	int ret = 0;

	*had_p = false;
	while (!ret) {
		if (soda_chunk_state(soda_chunk_load(&soda_agent.table[id])) ==
			    SODA_CHUNK_FETCHING &&
		    soda_stuck_orphan(id))
			return -EBUSY;
		ret = take_over(t, id, soda_now_ns() + patience_ns, had_p);
		if (!ret && (*had_p || vacate(id)))
			return 0;
	}
	return ret;
}

/* Chunks of an object that are BUSY, or NONE, or stuck FETCHING. */
struct ended {
	uint32_t first, end;
	int64_t resident; /* how many are BUSY */
	int status;	  /* the first error */
};

/* Drop their pages, and make them NONE; there are none of them then. */
static void drop_ended(struct ended *e)
{
	const struct soda_region *r = soda_region_of(e->first);
	char *from = soda_chunk_address(e->first), *to = soda_chunk_address(r->first) + r->span;
	struct iovec all = { from, (size_t)(to - from) };
	size_t dropped;
	int ret = 0;

	if (e->end < r->first + r->chunks) /* the last chunk may be a part of one */
		all.iov_len = (size_t)(soda_chunk_address(e->end) - from);
	if (e->first < e->end)
		ret = soda_agent.page_ops->drop(&all, 1, &dropped);
	if (ret)
		soda_drop_refused(ret, false);
	for (uint32_t id = e->first; id < e->end; id++)
		forget_chunk(id);
	soda_buffer_give(&soda_agent.buffer, e->resident);
	*e = (struct ended){ e->end, e->end, 0, e->status ? e->status : ret };
}

/*
 * The next chunk, too.  When it is in use for the time of a fault its server counts as silent: the
 * connections are made anew, which ends READs and WRITEs under way.  As the thread that makes them
 * waits for chunks that are BUSY, those before this one are dropped first.  0; -ETIMEDOUT.
 */
static int end_next(struct soda_thread *t, struct ended *e, uint64_t deadline_ns)
{
	uint32_t id = e->end;
	bool had;
	int ret;

	while ((ret = end_chunk(t, id, &had)) == -ETIMEDOUT) {
		drop_ended(e);
		if (soda_now_ns() > deadline_ns)
			return ret;
		suspect(soda_region_of(id));
	}
	e->end++;
	e->resident += had;
	e->status = e->status ? e->status : ret;
	return 0;
}

int soda_retire_range(uint32_t first, uint32_t n)
{
	struct soda_thread *t = soda_thread_self();
	uint64_t deadline_ns = soda_now_ns() + SODA_RETIRE_MS * SODA_MS_NS;
	struct ended e = { .first = first, .end = first };
	sigset_t saved;
	int ret = 0;

	soda_signals_block(&saved);
	while (!ret && e.end < first + n)
		ret = end_next(t, &e, deadline_ns);
	if (!ret)
		drop_ended(&e);
	soda_signals_restore(&saved);
	return ret ? ret : e.status;
}

/* Drop a BUSY chunk, which becomes ZERO. On the kernel's error it is resident, all of it dirty. */
static int drop_resident(uint32_t id)
{
	uint32_t bytes = soda_region_chunk_bytes(soda_region_of(id), id);
	struct iovec one = { soda_chunk_address(id), bytes };
	size_t dropped;
	int ret;

	soda_protect_close(id);
	soda_kept_forget(id);
	soda_replace_remove(&soda_agent.replacer, id);
	ret = soda_agent.page_ops->drop(&one, 1, &dropped);
	if (!ret) {
		soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_ZERO, 0, 0, SODA_CW_BACKED);
		soda_buffer_give(&soda_agent.buffer, 1);
		return 0;
	}
	soda_drop_refused(ret, false);
	soda_install_refill(id, dropped);
	soda_replace_insert(&soda_agent.replacer, id);
	soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_DIRTY, soda_blocks_all(), 0,
			  SODA_CW_AS_FETCHED);
	return ret;
}

/*
 * Take away what a chunk that is not resident may have in its pages: old content that the kernel
 * has refused to drop, or, in handler mode, marks that make each touch fail.  Meanwhile the
 * chunk is FETCHING, so that no other thread fetches it, or installs zeros and stores to them.
 */
static int clear_pages(uint32_t id)
{
	bool left = soda_drop_left_pages();
	bool failing = left || soda_agent.settings.mode == SODA_MODE_HANDLER;
	bool marked = soda_mapping_any_marked(); /* a moment ago: it could not be had */
	const struct soda_region *r = soda_region_of(id);
	struct soda_chunk *c = &soda_agent.table[id];
	struct iovec all = { soda_chunk_address(id), soda_region_chunk_bytes(r, id) };
	uint32_t w = soda_chunk_load(c);
	enum soda_chunk_state s;
	size_t dropped;
	int ret;

	do {
		s = soda_chunk_state(w);
		if (!(s == SODA_CHUNK_REMOTE && (left || marked)) &&
		    !(s == SODA_CHUNK_LOST && failing))
			return 0;
	} while (!soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING));
	atomic_store_explicit(&c->channel, SODA_CHANNEL_NONE, memory_order_relaxed);
	if (s == SODA_CHUNK_LOST) {
		ret = soda_mapping_clear(all.iov_base, all.iov_len, soda_region_prot(r));
		soda_chunk_settle(c, ret ? s : SODA_CHUNK_ZERO, 0, 0, SODA_CW_BACKED);
	} else {
		ret = marked ? soda_mapping_clear(all.iov_base, all.iov_len, soda_region_prot(r))
			     : soda_agent.page_ops->drop(&all, 1, &dropped);
		soda_chunk_settle(c, s, 0, 0, 0);
	}
	return ret;
}

/* Make a chunk that is not resident ZERO. false: another thread has begun to fetch it. */
static bool forget_content(uint32_t id, bool *backed_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	while (soda_chunk_state(w) == SODA_CHUNK_REMOTE || soda_chunk_state(w) == SODA_CHUNK_LOST)
		if (soda_chunk_swap(c, &w,
				    (w & ~(SODA_CW_STATE | SODA_CW_BACKED)) | SODA_CHUNK_ZERO)) {
			*backed_p = w & SODA_CW_BACKED;
			return true;
		}
	return soda_chunk_state(w) == SODA_CHUNK_ZERO || soda_chunk_state(w) == SODA_CHUNK_NONE;
}

int soda_retire_discard(uint32_t id, uint64_t deadline_ns, bool *backed_p)
{
	struct soda_thread *t = soda_thread_self();
	bool had, backed;
	int ret;

	atomic_store(&soda_region_of(id)->stale, true);
	do {
		ret = take_over(t, id, deadline_ns, &had);
		if (!ret && had) {
			backed = soda_chunk_load(&soda_agent.table[id]) & SODA_CW_BACKED;
			ret = drop_resident(id);
			if (!ret)
				*backed_p = backed;
			return ret;
		}
		if (!ret)
			ret = clear_pages(id);
	} while (!ret && !forget_content(id, backed_p));
	return ret;
}

void soda_retire_cold(uint32_t id, uint32_t keep)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	/* Not soda_chunk_droppable(): that also keeps the last chunks of threads (HOLD). */
	while (soda_chunk_state(w) == SODA_CHUNK_CLEAN &&
	       !(w & (keep | SODA_CW_SENDING | SODA_CW_QUEUED))) {
		if (!soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
			continue;
		if (soda_unacked_is(id)) {
			soda_kept_add(id);
			return;
		}
		soda_kept_forget(id);
		soda_replace_remove(&soda_agent.replacer, id);
		soda_drop_chunks(&id, 1);
		return;
	}
}
