/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/evict.h"

#include <errno.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/region.h"

/* The dirty chunks met while looking for clean ones: queued after the shard's lock is released. */
struct gathering {
	uint32_t dirty[SODA_EVICT_BATCH];
	int dirty_n;
	int64_t dirty_max;
};

static enum soda_take consider(void *arg, uint32_t id)
{
	const uint32_t unable = SODA_CW_PINNED | SODA_CW_SENDING | SODA_CW_HOLD | SODA_CW_QUEUED;
	struct soda_chunk *c = &soda_agent.table[id];
	struct gathering *g = arg;
	uint32_t w = soda_chunk_load(c);

	for (;;) {
		if (soda_chunk_droppable(w)) {
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

/* They go as they came: nobody stored to them. They are BUSY, so their objects are there. */
static void left_unstored(const uint32_t *ids, int n)
{
	for (int i = 0; i < n; i++)
		if (soda_chunk_load(&soda_agent.table[ids[i]]) & SODA_CW_AS_FETCHED)
			soda_guess_learn(soda_region_of(ids[i]), false);
}

/* One batch; returns how many chunks were dropped or queued. */
static int evict_batch(struct soda_thread *t, int64_t want)
{
	uint32_t ids[SODA_EVICT_BATCH];
	struct gathering g;
	int n;

	if (want > SODA_EVICT_BATCH)
		want = SODA_EVICT_BATCH;
	g.dirty_n = 0;
	g.dirty_max = want;
	n = soda_replace_take(&soda_agent.replacer, ids, (int)want, consider, &g);
	if (g.dirty_n)
		soda_writeback_evict(t, g.dirty, g.dirty_n);
	left_unstored(ids, n);
	if (n)
		n = soda_evict_drop(t, ids, n);
	soda_count(t, SODA_CNT_EVICTED_CLEAN, (uint64_t)n);
	return n + g.dirty_n;
}

void soda_evict_ahead(struct soda_thread *t)
{
	int64_t excess = soda_buffer_excess(&soda_agent.buffer);

	if (excess > 0)
		evict_batch(t, excess);
}

void soda_evict_unstick(struct soda_thread *t)
{
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
		int made = evict_batch(t, SODA_EVICT_BATCH / 4);
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
		soda_writeback_ring();
		soda_buffer_wait(b, step_ns);
		deadline_ns += soda_thread_stood_still(t, step_ns, soda_now_ns() - now);
	}
}

static void sort(uint32_t *ids, int n)
{
	for (int i = 1; i < n; i++) {
		uint32_t v = ids[i];
		int k = i;

		for (; k > 0 && ids[k - 1] > v; k--)
			ids[k] = ids[k - 1];
		ids[k] = v;
	}
}

/* After the pages have gone: where the content is now. */
static void gone(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	soda_chunk_settle(c, w & SODA_CW_BACKED ? SODA_CHUNK_REMOTE : SODA_CHUNK_ZERO, 0, 0,
			  SODA_CW_QUEUED);
}

static _Atomic bool left_pages, told;

void soda_evict_refused(int err, bool partly)
{
	if (partly)
		atomic_store(&left_pages, true);
	if (!atomic_exchange(&told, true))
		soda_log_error("the kernel does not take pages of fabric memory back (%s), so that "
			       "they stay in memory beyond the page buffer: has the program sealed "
			       "them, or does a filter forbid madvise()?",
			       soda_strerror(err));
}

bool soda_evict_left_pages(void)
{
	return atomic_load_explicit(&left_pages, memory_order_relaxed);
}

static void refused(uint32_t id)
{
	soda_replace_insert(&soda_agent.replacer, id);
	soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_CLEAN, 0, 0, 0);
}

/* The chunks as address ranges, neighbours joined; returns how many ranges. */
static int ranges_of(const uint32_t *ids, int n, struct iovec runs[SODA_EVICT_BATCH])
{
	char *end = NULL;
	int k = 0;

	for (int i = 0; i < n; i++) {
		char *at = soda_chunk_address(ids[i]);
		uint32_t bytes = soda_region_chunk_bytes(soda_region_of(ids[i]), ids[i]);

		if (at == end)
			runs[k - 1].iov_len += bytes;
		else
			runs[k++] = (struct iovec){ at, bytes };
		end = at + bytes;
	}
	return k;
}

int soda_evict_drop(struct soda_thread *t, uint32_t *ids, int n)
{
	struct iovec runs[SODA_EVICT_BATCH] = { { NULL, 0 } };
	size_t left;
	int ret, dropped = 0;

	sort(ids, n);
	ret = soda_agent.pager->drop(runs, ranges_of(ids, n, runs), &left);
	for (; dropped < n && left; dropped++) { /* in the order of the ranges */
		size_t bytes = soda_region_chunk_bytes(soda_region_of(ids[dropped]), ids[dropped]);

		if (left < bytes)
			soda_evict_refused(ret, true);
		left -= left < bytes ? left : bytes;
		gone(ids[dropped]);
	}
	if (dropped < n)
		soda_evict_refused(ret, false);
	for (int i = dropped; i < n; i++)
		refused(ids[i]);
	if (dropped)
		soda_buffer_give(&soda_agent.buffer, dropped);
	return dropped;
}

void soda_evict_down(uint64_t deadline_ns)
{
	struct soda_thread *t = soda_thread_self();

	while (t && atomic_load(&soda_agent.buffer.free) < 0 && soda_now_ns() < deadline_ns) {
		if (!evict_batch(t, SODA_EVICT_BATCH))
			soda_fetch_collect_idle(t);
		soda_writeback_ring();
		if (atomic_load(&soda_agent.buffer.free) < 0)
			soda_buffer_wait(&soda_agent.buffer, 1000000);
	}
}
