/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/outgoing.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/frozen.h"
#include "host_agent/object/guess.h"

/*
 * New chunks fill half of the ring at most.  The other half is for those that were taken and come
 * back, so that there is a place for each of them: no more are out at a time than all senders
 * hold, which is some 3000 (64 channels and the thread, a batch under way and one just taken).
 */
enum { RING = 16384 };
_Static_assert(SODA_WRITEBACK_QUEUE <= RING / 2, "the other half is for what comes back");

static struct {
	struct soda_lock lock;
	/* guarded by lock */
	uint64_t chunks[RING];	     /* chunk id, and why << 32 */
	_Atomic uint32_t head, tail; /* anybody may look */
	_Atomic uint32_t refused;
	_Atomic bool doubt;
} queue;

uint64_t soda_outgoing_bytes(void)
{
	return sizeof(queue);
}

void soda_outgoing_start(void)
{
	soda_lock_init(&queue.lock, SODA_RANK_WRITEBACK);
	queue.head = queue.tail = 0;
	queue.doubt = false;
}

int soda_outgoing_queue(const uint32_t *ids, int n, int why)
{
	int queued = 0;

	soda_lock_acquire(&queue.lock);
	while (queued < n && queue.tail - queue.head < SODA_WRITEBACK_QUEUE)
		queue.chunks[queue.tail++ % RING] = ids[queued++] | (uint64_t)why << 32;
	soda_lock_release(&queue.lock);
	if (queued < n)
		atomic_fetch_add(&queue.refused, 1);
	for (int i = queued; i < n; i++)
		soda_chunk_flags(&soda_agent.table[ids[i]], 0, SODA_CW_QUEUED);
	if (why == SODA_WB_EVICT)
		atomic_fetch_add(&soda_agent.buffer.sending, queued);
	return queued;
}

uint32_t soda_outgoing_refused(void)
{
	return atomic_load(&queue.refused);
}

void soda_outgoing_return(uint32_t id, int why)
{
	soda_lock_acquire(&queue.lock);
	assert(queue.tail - queue.head < RING && "more chunks come back than were taken");
	queue.chunks[queue.tail++ % RING] = id | (uint64_t)why << 32;
	soda_lock_release(&queue.lock);
}

void soda_outgoing_each(void (*fn)(uint32_t id, int why, void *arg), void *arg)
{
	for (uint32_t i = queue.head; i != queue.tail; i++)
		fn((uint32_t)queue.chunks[i % RING], (int)(queue.chunks[i % RING] >> 32), arg);
}

uint32_t soda_outgoing_waiting(void)
{
	uint32_t head = atomic_load_explicit(&queue.head, memory_order_relaxed);

	return atomic_load_explicit(&queue.tail, memory_order_relaxed) - head;
}

void soda_outgoing_leaves(int why)
{
	if (why == SODA_WB_EVICT)
		atomic_fetch_sub(&soda_agent.buffer.sending, 1);
}

/* What of the chunk must travel: all of it where the server may hold what was discarded. */
static uint32_t blocks_to_send(uint32_t id, uint32_t w)
{
	bool stale = atomic_load_explicit(&soda_region_of(id)->stale, memory_order_relaxed);

	return stale && !(w & SODA_CW_BACKED) ? soda_blocks_all() : soda_chunk_dirty(w);
}

/*
 * Dirty and not in flight: ours.  0: not to be sent now; *again_p: but later, as whoever waits for
 * it to leave the queue counts on it.  Without the flag it is a place that was given up: the chunk
 * has been discarded since, or was sent by another place of its own.
 */
static uint32_t begin(uint32_t id, bool *again_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	*again_p = false;
	while (w & SODA_CW_QUEUED) {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (w & SODA_CW_SENDING || (s == SODA_CHUNK_BUSY && soda_chunk_wait(c, 1000000))) {
			*again_p = true;
			return 0;
		}
		if (s == SODA_CHUNK_BUSY) {
			w = soda_chunk_load(c); /* a store was let in */
		} else if (s != SODA_CHUNK_DIRTY) {
			if (soda_chunk_swap(c, &w, w & ~SODA_CW_QUEUED))
				return 0;
		} else if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
			return blocks_to_send(id, w);
		}
	}
	return 0;
}

/* Neighbours share one call: a protection change flushes other cores' TLBs each time. */
static void protect_batch(struct soda_outgoing *out, int n)
{
	for (int i = 0; i < n;) {
		int k = i + 1;
		struct soda_region *r = soda_region_of(out[i].id);
		uint64_t bytes = soda_region_chunk_bytes(r, out[i].id);

		while (k < n && out[k].id == out[k - 1].id + 1 && soda_region_of(out[k].id) == r)
			bytes += soda_region_chunk_bytes(r, out[k++].id);
		if (soda_agent.pager->protect(soda_chunk_address(out[i].id), bytes, true))
			abort(); /* resident, registered, ours: the kernel has no reason to refuse
				  */
		i = k;
	}
}

/* Few, and mostly in order; qsort may allocate. */
static void sort(struct soda_outgoing *out, int n)
{
	for (int i = 1; i < n; i++) {
		struct soda_outgoing v = out[i];
		int k = i;

		for (; k > 0 && out[k - 1].id > v.id; k--)
			out[k] = out[k - 1];
		out[k] = v;
	}
}

/* What the queue has, BUSY now. */
static int pop(struct soda_outgoing *out, int max)
{
	uint64_t taken[SODA_OUTGOING_MAX];
	int n = 0, k = 0;

	soda_lock_acquire(&queue.lock);
	while (n < max && queue.head != queue.tail)
		taken[n++] = queue.chunks[queue.head++ % RING];
	soda_lock_release(&queue.lock);
	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)taken[i];
		int why = (int)(taken[i] >> 32);
		bool again;

		out[k] = (struct soda_outgoing){ .id = id, .mask = begin(id, &again), .why = why };
		if (out[k].mask)
			k++;
		else if (again)
			soda_outgoing_return(id, why);
		else
			soda_outgoing_leaves(why);
	}
	return k;
}

void soda_outgoing_doubt(void)
{
	atomic_store(&queue.doubt, true);
}

/* Whether the kernel would read n pages from `at` on for us; where it does not say, it would. */
static bool pages_readable(char *at, uint32_t n)
{
	enum { TOGETHER = 32 };

	for (uint32_t k; n; n -= k, at += (size_t)k * SODA_WIRE_PAGE) {
		struct iovec from[TOGETHER];
		char bytes[TOGETHER];
		int saved = errno;
		long got;

		k = n < TOGETHER ? n : TOGETHER;
		for (uint32_t i = 0; i < k; i++)
			from[i] = (struct iovec){ at + (size_t)i * SODA_WIRE_PAGE, 1 };
		got = syscall(SYS_process_vm_readv, soda_agent.pid, &(struct iovec){ bytes, k }, 1,
			      from, k, 0);
		if (got < 0 && errno != EFAULT) {
			errno = saved;
			return true;
		}
		errno = saved;
		if (got != (long)k)
			return false;
	}
	return true;
}

bool soda_outgoing_readable(uint32_t id, uint32_t mask)
{
	uint32_t have = soda_region_chunk_bytes(soda_region_of(id), id);
	uint32_t block = 1u << soda_agent.block_shift;

	for (uint32_t at = 0; mask && at < have; at += block, mask >>= 1) {
		uint32_t bytes = have - at < block ? have - at : block;

		if (mask & 1 &&
		    !pages_readable(soda_chunk_address(id) + at, bytes / SODA_WIRE_PAGE))
			return false;
	}
	return true;
}

/* It was made writable on a guess: was it written? */
static void check_guess(struct soda_outgoing *out)
{
	struct soda_chunk *c = &soda_agent.table[out->id];
	struct soda_region *r = soda_region_of(out->id);
	int same;

	if (!(soda_chunk_load(c) & SODA_CW_AS_FETCHED))
		return;
	same = soda_guess_unchanged(out->id, soda_region_chunk_bytes(r, out->id));
	if (same < 0) {
		soda_outgoing_doubt();
		out->unreadable = true;
		return;
	}
	soda_guess_learn(r, !same);
	if (!same)
		return;
	out->mask = 0;
	soda_chunk_settle(c, SODA_CHUNK_CLEAN, 0, 0, SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
}

/* Nobody has stored to it since the agent has it frozen, and the server has all from before. */
static bool check_frozen(struct soda_outgoing *out)
{
	if (!soda_frozen_has(out->id))
		return false;
	out->mask = 0;
	soda_chunk_settle(&soda_agent.table[out->id], SODA_CHUNK_CLEAN, 0, 0,
			  SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
	return true;
}

int soda_outgoing_take(struct soda_outgoing *out, int max)
{
	int n = pop(out, max < SODA_OUTGOING_MAX ? max : SODA_OUTGOING_MAX);

	if (!n)
		return 0;
	sort(out, n);
	protect_batch(out, n);
	for (int i = 0; i < n; i++) {
		out[i].unreadable = false;
		if (check_frozen(&out[i]))
			continue;
		out[i].unreadable = atomic_load_explicit(&queue.doubt, memory_order_relaxed) &&
				    !soda_outgoing_readable(out[i].id, out[i].mask);
		if (!out[i].unreadable)
			check_guess(&out[i]);
	}
	return n;
}
