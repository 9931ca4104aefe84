/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/kept.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pages/install.h"

enum {
	RING = 16384, /* half of it can be kept, whatever the budget; the rest is for second looks
		       */
	LEAST = 4,    /* chunks that may be kept, whatever the size of the buffer */
	SHARE = 4,    /* of the page buffer: at most one such part of it is kept beside it */
	PRESSING = 2, /* the agent is asked often while one such part of the budget is used */
};

/*
 * A chunk is kept while its bit is set, which is changed with the chunk BUSY.  A chunk that is kept
 * as unacknowledged has a place in the ring; places of chunks that are not kept any more go at the
 * next look.  One that is kept as refused has none: soda_kept_return() goes through its object.
 */
static struct {
	_Atomic uint64_t *bits;
	_Atomic uint32_t top; /* no chunk from here on has a bit */
	_Atomic bool hurry;   /* the keeper shall ask the agent often; it says itself until when */
	struct soda_lock lock;
	uint32_t ring[RING];	     /* guarded by lock */
	_Atomic uint32_t head, tail; /* changed with lock; read without it, too */
} kept;

static uint64_t bytes_of(uint64_t chunks)
{
	return (chunks + 63) / 64 * 8;
}

int soda_kept_start(void)
{
	void *p = mmap(NULL, bytes_of(soda_agent.bytes >> soda_agent.chunk_shift),
		       PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	kept.bits = p;
	soda_lock_init(&kept.lock, SODA_RANK_WRITEBACK);
	return 0;
}

void soda_kept_undo(uint64_t chunks)
{
	if (kept.bits)
		munmap(kept.bits, bytes_of(chunks));
	kept.bits = NULL;
	atomic_store(&kept.top, 0);
	atomic_store(&kept.head, atomic_load(&kept.tail));
}

uint64_t soda_kept_bytes(void)
{
	uint64_t page = SODA_WIRE_PAGE, bytes = (atomic_load(&kept.top) + 7) / 8;

	return (bytes + page - 1) & ~(page - 1);
}

static uint32_t places(void)
{
	uint32_t head = atomic_load_explicit(&kept.head, memory_order_relaxed);

	return atomic_load_explicit(&kept.tail, memory_order_relaxed) - head;
}

static uint32_t budget(void)
{
	uint64_t most = soda_agent.settings.agent_keep >> soda_agent.chunk_shift;
	int64_t limit = atomic_load_explicit(&soda_agent.buffer.limit, memory_order_relaxed);
	uint64_t share = limit > 0 ? (uint64_t)limit / SHARE : 0;

	most = most < share ? most : share;
	return (uint32_t)(most < LEAST ? LEAST : most > RING / 2 ? RING / 2 : most);
}

static void wake_keeper(void)
{
	if (!atomic_load_explicit(&kept.hurry, memory_order_relaxed) &&
	    !atomic_exchange(&kept.hurry, true))
		soda_link_wake_keeper(&soda_agent.links[0]);
}

void soda_kept_hurry(void)
{
	if (places())
		wake_keeper();
}

bool soda_kept_pressing(void)
{
	return atomic_load(&kept.hurry);
}

bool soda_kept_room(void)
{
	if (places() < budget())
		return true;
	wake_keeper();
	return false;
}

/* A place in the ring for the chunk. With `most` or more taken: false. */
static bool push(uint32_t id, uint32_t most)
{
	bool room;

	soda_lock_acquire(&kept.lock);
	room = places() < most;
	if (room) {
		kept.ring[kept.tail % RING] = id;
		atomic_fetch_add(&kept.tail, 1);
	}
	soda_lock_release(&kept.lock);
	return room;
}

static bool pop(uint32_t *id_p)
{
	bool any;

	soda_lock_acquire(&kept.lock);
	any = places();
	if (any) {
		*id_p = kept.ring[kept.head % RING];
		atomic_fetch_add(&kept.head, 1);
	}
	soda_lock_release(&kept.lock);
	return any;
}

static void raise_top(uint32_t id)
{
	uint32_t top = atomic_load_explicit(&kept.top, memory_order_relaxed);

	while (top <= id && !atomic_compare_exchange_weak(&kept.top, &top, id + 1))
		;
}

bool soda_kept_has(uint32_t id)
{
	return id < atomic_load_explicit(&kept.top, memory_order_relaxed) &&
	       atomic_load(&kept.bits[id / 64]) >> id % 64 & 1;
}

static void mark(uint32_t id)
{
	raise_top(id);
	atomic_fetch_or(&kept.bits[id / 64], 1ull << id % 64);
}

static void unmark(uint32_t id)
{
	atomic_fetch_and(&kept.bits[id / 64], ~(1ull << id % 64));
}

/* The chunk, which is BUSY, becomes what it was. */
static void let_go(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t dirty = soda_chunk_dirty(soda_chunk_load(c));

	soda_chunk_settle(c, dirty ? SODA_CHUNK_DIRTY : SODA_CHUNK_CLEAN, dirty, 0, 0);
}

bool soda_kept_add(uint32_t id)
{
	uint32_t most = budget();
	bool room = soda_kept_has(id);

	if (!room && push(id, most)) {
		room = true;
		soda_replace_remove(&soda_agent.replacer, id);
		mark(id);
		soda_buffer_keep(&soda_agent.buffer, 1);
		if (places() * PRESSING >= most)
			wake_keeper();
	} else if (!room) {
		wake_keeper();
		if (!soda_replace_has(&soda_agent.replacer, id))
			soda_replace_insert(&soda_agent.replacer, id);
	}
	let_go(id);
	return room;
}

/* About as many as the buffer has: threads that come at once may keep a few more. */
static bool room_for_refused(void)
{
	return atomic_load_explicit(&soda_agent.buffer.kept, memory_order_relaxed) <
	       atomic_load_explicit(&soda_agent.buffer.limit, memory_order_relaxed);
}

bool soda_kept_takes_refused(uint32_t id)
{
	return atomic_load_explicit(&soda_region_of(id)->refused, memory_order_relaxed) &&
	       room_for_refused();
}

/* Once each time that a server refuses the object. */
static void say_refused(struct soda_region *r)
{
	uint64_t limit = (uint64_t)atomic_load(&soda_agent.buffer.limit);

	if (!atomic_exchange(&r->told_kept, true))
		soda_log_warning("dirty data of %s lie beside the page buffer from now on, at most "
				 "%llu KiB, because %s does not take them; %ssoda_free() lets them "
				 "go",
				 r->name[0] ? r->name
				 : r->file  ? r->file
					    : "an object",
				 (unsigned long long)limit << soda_agent.chunk_shift >> 10,
				 r->link->server.address,
				 r->flags & SODA_WRITABLE
					 ? "soda_advise(SODA_ABANDON) gives them up, and then "
					 : "");
}

/* A BUSY chunk that is dirty. As soda_kept_add(). */
static bool add_refused(uint32_t id)
{
	struct soda_region *r = soda_region_of(id);
	bool refused;

	mark(id);
	/* before the bit soda_kept_return() has not seen it: then `refused` is 0 by now */
	refused = atomic_load(&r->refused);
	if (refused) {
		soda_replace_remove(&soda_agent.replacer, id);
		soda_buffer_keep(&soda_agent.buffer, 1);
		say_refused(r);
	} else {
		unmark(id);
		if (!soda_replace_has(&soda_agent.replacer, id))
			soda_replace_insert(&soda_agent.replacer, id);
	}
	let_go(id);
	return refused;
}

int soda_kept_add_refused(uint32_t *ids, int *n_p)
{
	int others = 0, added = 0;

	for (int i = 0; i < *n_p; i++)
		if (soda_chunk_dirty(soda_chunk_load(&soda_agent.table[ids[i]])))
			added += add_refused(ids[i]);
		else
			ids[others++] = ids[i];
	*n_p = others;
	return added;
}

int soda_kept_add_some(uint32_t *ids, int *n_p)
{
	int others = 0, added = 0;

	for (int i = 0; i < *n_p; i++)
		if (soda_unacked_is(ids[i]))
			added += soda_kept_add(ids[i]);
		else
			ids[others++] = ids[i];
	*n_p = others;
	return added;
}

void soda_kept_forget(uint32_t id)
{
	if (!soda_kept_has(id))
		return;
	unmark(id);
	soda_buffer_keep(&soda_agent.buffer, -1);
}

/* A chunk that is kept is in the buffer again. */
static void take_back(uint32_t id, uint64_t deadline_ns)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	while (soda_kept_has(id)) {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (s != SODA_CHUNK_CLEAN && s != SODA_CHUNK_DIRTY) {
			if (soda_now_ns() > deadline_ns)
				return;
			soda_chunk_wait(c, 1000000);
			w = soda_chunk_load(c);
		} else if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
			if (soda_kept_has(id)) {
				soda_kept_forget(id);
				soda_replace_insert(&soda_agent.replacer, id);
			}
			let_go(id);
			return;
		}
	}
}

void soda_kept_return(struct soda_region *r)
{
	uint64_t patience_ns = soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
	uint64_t deadline_ns = soda_now_ns() + patience_ns;
	sigset_t saved;

	atomic_store(&r->told_kept, false);
	soda_signals_block(&saved);
	for (uint32_t id = r->first; id < r->first + r->chunks; id++)
		if (soda_kept_has(id))
			take_back(id, deadline_ns);
	soda_signals_restore(&saved);
}

/* What became of a place in the ring. */
enum look { OVER, AGAIN, DROP };

/* DROP: the chunk is BUSY, kept no longer, and the server has it. */
static enum look look_at(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	do {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (!soda_kept_has(id))
			return OVER;
		if (s != SODA_CHUNK_CLEAN && s != SODA_CHUNK_DIRTY)
			return AGAIN; /* a thread has it in its hands */
		if (s == SODA_CHUNK_CLEAN && (w & SODA_CW_SENDING || soda_unacked_is(id)))
			return AGAIN;
	} while (!soda_chunk_begin(c, &w, SODA_CHUNK_BUSY));
	if (!soda_kept_has(id) || (!soda_chunk_dirty(w) && soda_unacked_is(id))) {
		let_go(id);
		return AGAIN;
	}
	soda_kept_forget(id);
	if (!soda_chunk_dirty(w) && !(w & (SODA_CW_PINNED | SODA_CW_HOLD)))
		return DROP;
	soda_replace_insert(&soda_agent.replacer, id);
	let_go(id);
	return OVER;
}

static void drop(uint32_t *ids, int *n_p)
{
	if (*n_p)
		soda_drop_chunks(ids, *n_p);
	*n_p = 0;
}

void soda_kept_look(bool written)
{
	uint32_t before = places(), n = before, ids[SODA_DROP_MAX], id;
	int gone = 0;
	sigset_t saved;

	atomic_store(&kept.hurry, false); /* before it looks: who comes later wakes it again */
	if (!n)
		return;
	soda_signals_block(&saved);
	while (n-- && pop(&id)) {
		enum look look = look_at(id);

		if (look == DROP)
			ids[gone++] = id;
		else if (look == AGAIN)
			push(id, UINT32_MAX);
		if (gone == SODA_DROP_MAX)
			drop(ids, &gone);
	}
	drop(ids, &gone);
	/*
	 * Who waits may have chunks kept now.  Not where nothing has changed: they would look, find
	 * nothing, and have the keeper look again, as fast as the agent answers.
	 */
	if (written || places() < before)
		soda_buffer_give(&soda_agent.buffer, 0);
	if (places() * PRESSING >= budget() || atomic_load(&soda_agent.buffer.waiters))
		atomic_store(&kept.hurry, true);
	soda_signals_restore(&saved);
}
