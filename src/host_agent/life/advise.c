/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/advise.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/held.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/link.h"
#include "host_agent/fault/fault.h"
#include "host_agent/fork/serve.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/limit.h"
#include "host_agent/move/retire.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pool/freeze.h"

/* Post READs for the range's REMOTE chunks. False: no slot or credit is free for more. */
static bool fetch_range(struct soda_thread *t, const struct iovec *range,
			struct soda_fetch_batch *batch)
{
	enum { PIECE = 16 };
	uint32_t first, last;
	struct soda_region *r = soda_region_range(range->iov_base, range->iov_len, &first, &last);

	while (r && range->iov_len && first <= last) {
		uint32_t left = soda_region_has(r, first, last - first + 1);
		struct soda_plan plan = { .first = first,
					  .stride = 1,
					  .n = left < PIECE ? left : PIECE };
		uint32_t done = soda_fetch_batch_add(batch, t, r, &plan);

		first += done;
		if (done < plan.n)
			return false;
		if (first == r->first + r->chunks)
			r = r->rest;
	}
	return true;
}

void soda_advise_willneed(const struct iovec *ranges, int n)
{
	struct soda_thread *t = soda_thread_self();
	struct soda_fetch_batch batch = { 0 };
	sigset_t saved;

	if (!t)
		return;
	soda_signals_block(&saved);
	soda_fetch_collect_own(t);
	for (int i = 0; i < n && fetch_range(t, &ranges[i], &batch); i++)
		;
	soda_fetch_batch_end(&batch);
	for (uint32_t k = 0; k < soda_members(); k++)
		soda_link_want_collector(&soda_agent.links[k]);
	soda_signals_restore(&saved);
}

static uint64_t patience(void)
{
	return soda_now_ns() + soda_agent.settings.fault_timeout_ms * 1000000ull;
}

/*
 * Have an agent bring what it alone has acknowledged of the chunks to the server: until then they
 * are not dropped (kept.h).  Where that fails they stay, as advice is no promise.  The same call
 * writes a file, so that a sealed one is committed: it has nothing else done to it.
 */
static void bring_home(uint32_t first, uint32_t last)
{
	struct soda_region *r;
	struct soda_why why;

	for (; first <= last; first += soda_region_has(r, first, last - first + 1)) {
		r = soda_region_of(first);
		if (!soda_unacked_any(first, soda_region_has(r, first, last - first + 1)))
			continue;
		if (r->sealed_file && r->flags & SODA_WRITABLE)
			soda_commit_region(r, &why);
		else
			soda_calls_sync_region(r, &why);
	}
}

/*
 * Write the chunks back and drop them, but not those with a flag of `keep`; with SODA_CW_PINNED
 * among these, nor those that soda_hold() keeps: the kernel may be about to use them.
 */
static int send_away(uint32_t first, uint32_t last, uint32_t keep)
{
	int ret = soda_sync_chunks(first, last - first + 1);
	sigset_t saved;

	if (ret)
		return ret;
	bring_home(first, last);
	soda_signals_block(&saved);
	for (uint32_t id = first; id <= last; id++)
		if (!(keep & SODA_CW_PINNED) || !soda_held_has(id))
			soda_retire_cold(id, keep);
	soda_signals_restore(&saved);
	return 0;
}

int soda_advise_vacate(uint32_t first, uint32_t last)
{
	soda_forks_keep(first, last - first + 1);
	return send_away(first, last, 0);
}

static bool is_frozen(struct soda_region *r, char *addr, char *end)
{
	bool frozen;

	soda_lock_acquire(&soda_agent.api_lock);
	frozen = addr < end && soda_freeze_covers(r, soda_chunk_of(addr), soda_chunk_of(end - 1));
	soda_lock_release(&soda_agent.api_lock);
	return frozen;
}

static int discard_chunk(uint32_t id, struct soda_backed *backed)
{
	bool held = false;
	int ret = soda_retire_discard(id, patience(), &held);

	if (held && !backed->n)
		backed->first = id;
	if (held)
		backed->n = id - backed->first + 1;
	return ret;
}

/* Where the slab ends that `end`, the end of a range from r on, lies in or behind. */
static char *end_of(const struct soda_region *r, const char *end)
{
	char *slab_end = soda_chunk_address(r->first) + r->span;

	for (; end > slab_end && r->rest; slab_end += r->span)
		r = r->rest;
	return slab_end;
}

int soda_advise_discard(struct soda_region *r, char *addr, size_t bytes, struct soda_backed *backed)
{
	uint64_t chunk = soda_chunk_bytes();
	char *end = addr + bytes, *object_end;
	sigset_t saved;
	int ret = 0;

	object_end = end_of(r, end);
	addr = (char *)(((uintptr_t)addr + chunk - 1) & ~(uintptr_t)(chunk - 1));
	if (r->flags & SODA_READ_ONLY || atomic_load(&r->sealed) || is_frozen(r, addr, end))
		return -EACCES;
	if (addr < end)
		soda_forks_keep(soda_chunk_of(addr),
				soda_chunk_of(end - 1) - soda_chunk_of(addr) + 1);
	soda_signals_block(&saved);
	while (!ret && addr < end && (addr + chunk <= end || end == object_end)) {
		/* The zeros must come into the file, so they are stored like other data. */
		if (r->flags & SODA_WRITABLE) {
			soda_signals_restore(&saved);
			memset(addr, 0, soda_region_chunk_bytes(r, soda_chunk_of(addr)));
			soda_signals_block(&saved);
		} else {
			ret = discard_chunk(soda_chunk_of(addr), backed);
		}
		addr += chunk;
	}
	soda_signals_restore(&saved);
	return ret;
}

int soda_advise_purge(struct soda_region *r, char *addr, size_t bytes)
{
	struct soda_backed backed = { 0 };
	int ret = soda_advise_discard(r, addr, bytes, &backed);

	if (backed.n)
		soda_calls_discard(r, backed.first, backed.n);
	return ret;
}

/*
 * How many chunks must stay unpinned: the minimum, and as many as staging slots and places for
 * sealed chunks may take.
 */
static int64_t reserved(void)
{
	int64_t sealed = soda_sealing_slots_of(atomic_load(&soda_agent.buffer.limit));

	if (sealed)
		sealed -= SODA_SEALING_SLOTS_MIN; /* which the minimum has */
	return sealed + soda_limit_unpinned();
}

int64_t soda_advise_pinnable(void)
{
	return atomic_load(&soda_agent.buffer.limit) - reserved() -
	       atomic_load(&soda_agent.buffer.pinned);
}

/*
 * A PIN under way.  Bit i: this PIN has set PINNED on chunk first + i, and clears it if it fails.
 */
struct pinning {
	struct pinning *next;
	uint32_t first, last;
	uint64_t *bits;
};

static struct soda_lock pins = SODA_LOCK_INIT(SODA_RANK_PINS);
static struct pinning *pinnings; /* guarded by pins, as are their bits */

static void unpin_one(uint32_t id)
{
	if (soda_chunk_flags(&soda_agent.table[id], 0, SODA_CW_PINNED) & SODA_CW_PINNED)
		soda_buffer_unpin(&soda_agent.buffer);
}

static void unpin(uint32_t first, uint32_t last)
{
	for (uint32_t id = first; id <= last; id++)
		unpin_one(id);
}

static bool covers(const struct pinning *p, uint32_t id)
{
	return p->first <= id && id <= p->last;
}

static bool is_chosen(const struct pinning *p, uint32_t id)
{
	return p->bits[(id - p->first) / 64] >> (id - p->first) % 64 & 1;
}

static void choose(struct pinning *p, uint32_t id, bool on)
{
	uint64_t bit = 1ull << (id - p->first) % 64;

	if (on)
		p->bits[(id - p->first) / 64] |= bit;
	else
		p->bits[(id - p->first) / 64] &= ~bit;
}

static int mark_locked(uint32_t id, struct pinning *ours)
{
	struct soda_chunk *c = &soda_agent.table[id];

	if (soda_chunk_load(c) & SODA_CW_PINNED)
		return 0;
	while (!soda_buffer_pin(&soda_agent.buffer, reserved()))
		if (!soda_buffer_more())
			return -ENOMEM;
	soda_chunk_flags(c, SODA_CW_PINNED, 0);
	choose(ours, id, true);
	return 0;
}

/* Set PINNED on the chunk, if it is not set. -ENOMEM: no more chunks may be pinned. */
static int mark_pinned(uint32_t id, struct pinning *ours)
{
	int ret;

	soda_lock_acquire(&pins);
	ret = mark_locked(id, ours);
	soda_lock_release(&pins);
	return ret;
}

static void begin_pinning(struct pinning *p)
{
	soda_lock_acquire(&pins);
	p->next = pinnings;
	pinnings = p;
	soda_lock_release(&pins);
}

static void leave_locked(const struct pinning *p)
{
	struct pinning **link = &pinnings;

	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
}

/* This PIN has succeeded: no other PIN under way may unpin its chunks when it fails. */
static void keep_locked(const struct pinning *p)
{
	for (struct pinning *other = pinnings; other; other = other->next)
		for (uint32_t id = p->first; id <= p->last; id++)
			if (covers(other, id))
				choose(other, id, false);
}

/*
 * This PIN has failed: unpin the chunks that it has pinned, or, where another PIN under way covers
 * one, let that one unpin it if it fails, too.
 */
static void undo_locked(const struct pinning *p)
{
	for (uint32_t id = p->first; id <= p->last; id++) {
		struct pinning *other = pinnings;

		if (!is_chosen(p, id))
			continue;
		while (other && !covers(other, id))
			other = other->next;
		if (other)
			choose(other, id, true);
		else
			unpin_one(id);
	}
}

static void end_pinning(const struct pinning *p, bool failed)
{
	soda_lock_acquire(&pins);
	leave_locked(p);
	if (failed)
		undo_locked(p);
	else
		keep_locked(p);
	soda_lock_release(&pins);
}

/*
 * The range is right and there is room: a chunk that cannot be had is an I/O error, whatever word
 * the server refused it with.  The log has that word.
 */
static int not_had(const char *what, int err, struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text), "%s: a page of the range cannot be had: %s", what,
		 soda_strerror(err));
	if (soda_connection_lost(err))
		return err == -ETIMEDOUT ? err : -ENOTCONN;
	return -EIO;
}

/*
 * Mark all chunks, then make all resident; also those that were pinned before, which may have been
 * discarded since.
 */
static int pin_chunks(struct pinning *ours, struct soda_why *why)
{
	struct soda_thread *t = soda_thread_self();
	int ret = t ? 0 : -ENOMEM;

	begin_pinning(ours);
	for (uint32_t id = ours->first; !ret && id <= ours->last; id++)
		ret = mark_pinned(id, ours);
	for (uint32_t id = ours->first; !ret && id <= ours->last; id++) {
		ret = soda_fault_touch(t, soda_region_of(id), id);
		if (ret)
			ret = not_had("PIN", ret, why);
	}
	end_pinning(ours, ret);
	return ret;
}

static int pin(uint32_t first, uint32_t last, struct soda_why *why)
{
	struct pinning ours = { .first = first,
				.last = last,
				.bits = calloc((last - first) / 64 + 1, sizeof(*ours.bits)) };
	sigset_t saved;
	int ret = -ENOMEM;

	if (!ours.bits) {
		snprintf(why->text, sizeof(why->text), "PIN of %u chunks: out of memory",
			 last - first + 1);
		return ret;
	}
	soda_signals_block(&saved);
	ret = pin_chunks(&ours, why);
	soda_signals_restore(&saved);
	free(ours.bits);
	if (ret == -ENOMEM)
		snprintf(why->text, sizeof(why->text),
			 "PIN of %u chunks: over the page buffer of %lld chunks less its minimum; "
			 "make SODA_BUFFER larger",
			 last - first + 1, (long long)soda_agent.buffer.limit);
	return ret;
}

/* Count one holder more of each chunk; of an object in the node's store they are not ours to hold.
 */
static int take_holds(const struct soda_region *r, uint32_t first, uint32_t last,
		      struct soda_why *why)
{
	/* half of what may be held is left to calls of the program's, which cannot do with less */
	uint32_t id = first;

	while (id <= last && (r->shared || soda_held_take(id, 2)))
		id++;
	if (id > last)
		return 0;
	if (id > first)
		soda_advise_unhold(first, id - 1);
	snprintf(
		why->text, sizeof(why->text),
		"%u chunks may be held at once, a twentieth of the page buffer: hold less, or make "
		"SODA_BUFFER larger",
		soda_held_allowance() / 2);
	return -ENOMEM;
}

static int touch_held(uint32_t first, uint32_t last, struct soda_why *why)
{
	struct soda_thread *t = soda_thread_self();
	sigset_t saved;
	int ret = t ? 0 : -ENOMEM;

	soda_signals_block(&saved);
	for (uint32_t id = first; !ret && id <= last; id++) {
		if (soda_chunk_is_closed(id)) {
			snprintf(why->text, sizeof(why->text),
				 "the program has closed a page of the range with mprotect()");
			ret = -EFAULT;
		} else if ((ret = soda_fault_touch(t, soda_region_of(id), id))) {
			ret = not_had("hold", ret, why);
		}
	}
	soda_signals_restore(&saved);
	return ret;
}

int soda_advise_hold(struct soda_region *r, uint32_t first, uint32_t last, struct soda_why *why)
{
	struct iovec range = { soda_chunk_address(first), (uint64_t)(last - first)
								  << soda_agent.chunk_shift };
	int ret = take_holds(r, first, last, why);

	if (ret)
		return ret;
	if (first < last) /* all requests first; the last chunk may be a part */
		soda_advise_willneed(&range, 1);
	ret = touch_held(first, last, why);
	if (ret && !r->shared)
		soda_advise_unhold(first, last);
	return ret ? ret : r->shared ? 1 : 0;
}

void soda_advise_unhold(uint32_t first, uint32_t last)
{
	for (uint32_t id = first; id <= last; id++)
		soda_held_give(id);
}

/* A file lies on one server: it is one slab. */
static int abandon(struct soda_region *r, struct soda_why *why)
{
	if (!(r->flags & SODA_WRITABLE)) {
		snprintf(why->text, sizeof(why->text),
			 "ABANDON: nothing but a WRITABLE file is written back when it is freed");
		return -EINVAL;
	}
	atomic_store(&r->abandoned, true);
	return 0;
}

int soda_advise_range(struct soda_region *r, char *addr, size_t bytes, int advice,
		      struct soda_why *why)
{
	uint32_t first = soda_chunk_of(addr), last = soda_chunk_of(addr + bytes - 1);
	/* not told to the server: another thread may store to these chunks at any time */
	struct soda_backed ignored = { 0 };
	int ret;

	if (r->shared && advice == SODA_PIN) {
		snprintf(why->text, sizeof(why->text),
			 "%s is in the store of the node, and not in the page buffer: STATIC_CACHE "
			 "keeps a range of it there",
			 r->file);
		return -ENOTSUP;
	}
	switch (advice) {
	case SODA_NORMAL:
	case SODA_SEQUENTIAL:
	case SODA_RANDOM:
		for (; r && r->first <= last; r = r->rest)
			atomic_store(&r->advice, (uint32_t)advice);
		return 0;
	case SODA_WILLNEED:
		soda_advise_willneed(&(struct iovec){ addr, bytes }, 1);
		return 0;
	case SODA_COLD:
		return send_away(first, last, SODA_CW_PINNED);
	case SODA_DISCARD:
		return soda_advise_discard(r, addr, bytes, &ignored);
	case SODA_PIN:
		return pin(first, last, why);
	case SODA_UNPIN:
		unpin(first, last);
		return 0;
	case SODA_ABANDON:
		return abandon(r, why);
	case SODA_STATIC_CACHE:
	case SODA_DYNAMIC_CACHE:
	case SODA_NO_CACHE:
		soda_lock_acquire(&soda_agent.api_lock);
		ret = soda_freeze_advise(r, first, last, advice, why);
		soda_lock_release(&soda_agent.api_lock);
		return ret;
	default:
		snprintf(why->text, sizeof(why->text), "unknown advice %d", advice);
		return -EINVAL;
	}
}
