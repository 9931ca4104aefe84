/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/outgoing.h"

#include <stdlib.h>

#include "common/lock.h"
#include "host_agent/guess.h"
#include "host_agent/writeback.h"

enum { QUEUE = 8192 };

static struct {
	struct soda_lock lock;
	/* guarded by lock */
	uint64_t chunks[QUEUE];	     /* chunk id, and why << 32 */
	_Atomic uint32_t head, tail; /* anybody may look */
} queue;

void soda_outgoing_start(void)
{
	soda_lock_init(&queue.lock, SODA_RANK_WRITEBACK);
	queue.head = queue.tail = 0;
}

int soda_outgoing_queue(const uint32_t *ids, int n, int why)
{
	int queued = 0;

	soda_lock_acquire(&queue.lock);
	while (queued < n && queue.tail - queue.head < QUEUE)
		queue.chunks[queue.tail++ % QUEUE] = ids[queued++] | (uint64_t)why << 32;
	soda_lock_release(&queue.lock);
	for (int i = queued; i < n; i++)
		soda_chunk_flags(&soda_agent.table[ids[i]], 0, SODA_CW_QUEUED);
	if (why == SODA_WB_EVICT)
		atomic_fetch_add(&soda_agent.buffer.sending, queued);
	return queued;
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

/* Dirty and not in flight: ours. 0: not to be sent now. */
static uint32_t begin(uint32_t id, bool *again_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	*again_p = false;
	for (;;) {
		if (w & SODA_CW_SENDING) {
			*again_p = true;
			return 0;
		}
		if (soda_chunk_state(w) == SODA_CHUNK_BUSY && !soda_chunk_wait(c, 1000000)) {
			w = soda_chunk_load(c); /* a store was let in */
			continue;
		}
		if (soda_chunk_state(w) != SODA_CHUNK_DIRTY) {
			if (soda_chunk_swap(c, &w, w & ~SODA_CW_QUEUED))
				return 0;
		} else if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
			return blocks_to_send(id, w);
		}
	}
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
		taken[n++] = queue.chunks[queue.head++ % QUEUE];
	soda_lock_release(&queue.lock);
	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)taken[i];
		int why = (int)(taken[i] >> 32);
		bool again;

		out[k] = (struct soda_outgoing){ id, begin(id, &again), why };
		if (out[k].mask) {
			k++;
			continue;
		}
		soda_outgoing_leaves(why);
		if (again)
			soda_outgoing_queue(&id, 1, why);
	}
	return k;
}

/* It was made writable on a guess: was it written? */
static void check_guess(struct soda_outgoing *out)
{
	struct soda_chunk *c = &soda_agent.table[out->id];
	struct soda_region *r = soda_region_of(out->id);
	bool stored;

	if (!(soda_chunk_load(c) & SODA_CW_AS_FETCHED))
		return;
	stored = !soda_guess_unchanged(out->id, soda_region_chunk_bytes(r, out->id));
	soda_guess_learn(r, stored);
	if (stored)
		return;
	out->mask = 0;
	soda_chunk_settle(c, SODA_CHUNK_CLEAN, 0, 0, SODA_CW_QUEUED | SODA_CW_AS_FETCHED);
}

int soda_outgoing_take(struct soda_outgoing *out, int max)
{
	int n = pop(out, max < SODA_OUTGOING_MAX ? max : SODA_OUTGOING_MAX);

	if (!n)
		return 0;
	sort(out, n);
	protect_batch(out, n);
	for (int i = 0; i < n; i++)
		check_guess(&out[i]);
	return n;
}
