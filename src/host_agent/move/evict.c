/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/evict.h"

#include <errno.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/region.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pages/install.h"

/* Dirty chunks that consider() met: evict_batch() queues them when the shard's lock is released. */
struct gathering {
	uint32_t dirty[SODA_DROP_MAX];
	int dirty_n;
	int64_t dirty_max;
};

/*
 * For soda_replace_take: whether the chunk may be evicted; a clean one is BUSY then, and a dirty
 * one that is to be kept.
 */
static enum soda_take consider(void *arg, uint32_t id)
{
	const uint32_t unable = SODA_CW_PINNED | SODA_CW_SENDING | SODA_CW_HOLD | SODA_CW_QUEUED;
	struct soda_chunk *c = &soda_agent.table[id];
	struct gathering *g = arg;
	uint32_t w = soda_chunk_load(c);

	for (;;) {
		if (soda_chunk_droppable(w)) {
			if (soda_unacked_is(id) && !soda_kept_room())
				return SODA_TAKE_NO;
			if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
				return SODA_TAKE_DROP;
		} else if (soda_chunk_state(w) == SODA_CHUNK_DIRTY && !(w & unable) &&
			   soda_kept_takes_refused(id)) {
			if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
				return SODA_TAKE_DROP;
		} else if (soda_chunk_state(w) == SODA_CHUNK_DIRTY && !(w & unable) &&
			   g->dirty_n < g->dirty_max) {
			if (soda_chunk_swap(c, &w, w | SODA_CW_QUEUED)) {
				g->dirty[g->dirty_n++] = id;
				return SODA_TAKE_KEEP;
			}
		} else {
			return SODA_TAKE_NO;
		}
	}
}

/* Tell the guess that nobody stored to these chunks. They are BUSY, so their objects exist. */
static void learn_unstored(const uint32_t *ids, int n)
{
	for (int i = 0; i < n; i++)
		if (soda_chunk_load(&soda_agent.table[ids[i]]) & SODA_CW_AS_FETCHED)
			soda_guess_learn(soda_region_of(ids[i]), false);
}

/* Evict one batch; returns how many chunks were dropped, kept or queued. */
static int evict_batch(struct soda_thread *t, int64_t want)
{
	uint32_t ids[SODA_DROP_MAX];
	struct gathering g;
	int n, kept, refused;

	if (want > SODA_DROP_MAX)
		want = SODA_DROP_MAX;
	g.dirty_n = 0;
	g.dirty_max = want;
	n = soda_replace_take(&soda_agent.replacer, ids, (int)want, consider, &g);
	if (g.dirty_n)
		soda_writeback_evict(t, g.dirty, g.dirty_n);
	refused = soda_kept_add_refused(ids, &n);
	learn_unstored(ids, n);
	kept = soda_kept_add_some(ids, &n);
	if (n)
		n = soda_drop_chunks(ids, n);
	soda_count(t, SODA_CNT_EVICTED_CLEAN, (uint64_t)(n + kept));
	return n + kept + refused + g.dirty_n;
}

void soda_evict_ahead(struct soda_thread *t)
{
	int64_t excess = soda_buffer_excess(&soda_agent.buffer);

	while (excess > 0 && soda_buffer_more())
		excess = soda_buffer_excess(&soda_agent.buffer);
	if (excess > 0)
		evict_batch(t, excess);
}

void soda_evict_unstick(struct soda_thread *t)
{
	/* its instruction needs no more than these beside the chunk that it waits for */
	soda_thread_trim(t, SODA_LAST_CHUNKS_MIN - 1);
	soda_fetch_collect_idle(t);
	if (!soda_threads_reap() && !atomic_load(&soda_agent.buffer.sending))
		soda_threads_steal(t);
}

int soda_evict_credit(struct soda_thread *t, uint64_t deadline_ns)
{
	const int64_t step_ns = SODA_EVICT_LOOK_MS * SODA_MS_NS;
	struct soda_buffer *b = &soda_agent.buffer;

	soda_evict_ahead(t);
	if (soda_buffer_take(b))
		return 0;
	for (bool again = false;; again = true) {
		int made = soda_buffer_more() ? 1 : evict_batch(t, SODA_DROP_MAX / 4);
		uint64_t now;

		if (soda_buffer_take(b))
			return 0;
		if (!deadline_ns)
			return -EAGAIN;
		now = soda_now_ns();
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (!again)
			soda_count(t, SODA_CNT_EVICT_WAITS, 1);
		else if (!made)
			soda_evict_unstick(t);
		soda_kept_hurry();
		soda_writeback_ring();
		soda_buffer_wait(b, step_ns);
		deadline_ns += soda_thread_stood_still(t, step_ns, soda_now_ns() - now);
	}
}

void soda_evict_down(uint64_t deadline_ns)
{
	struct soda_thread *t = soda_thread_self();

	while (t && atomic_load(&soda_agent.buffer.free) < 0 && soda_now_ns() < deadline_ns) {
		if (!evict_batch(t, SODA_DROP_MAX))
			soda_fetch_collect_idle(t);
		soda_writeback_ring();
		if (atomic_load(&soda_agent.buffer.free) < 0)
			soda_buffer_wait(&soda_agent.buffer, 1000000);
	}
}
