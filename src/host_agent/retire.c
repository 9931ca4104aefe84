/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/retire.h"

#include <errno.h>

#include "common/lock.h"
#include "host_agent/agent.h"
#include "host_agent/evict.h"
#include "host_agent/fetch.h"
#include "host_agent/helper.h"
#include "host_agent/region.h"
#include "host_agent/session.h"
#include "host_agent/sync.h"

/* Make a chunk ours: BUSY if it was resident, else as it is. Waits for what is under way. */
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
		} else if (w & SODA_CW_QUEUED) { /* its place in the queue is skipped then */
			soda_chunk_flags(c, 0, SODA_CW_QUEUED);
		} else if (s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY) {
			if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
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

	soda_replace_remove(&soda_agent.replacer, id);
	c->prev = 0;
	c->credit = 0;
	if (soda_chunk_load(c) & SODA_CW_PINNED)
		soda_buffer_unpin(&soda_agent.buffer);
	soda_chunk_settle(c, SODA_CHUNK_NONE, 0, 0, ~0u);
}

/* A chunk that is not resident: nobody can begin to fetch it from now on. */
static bool vacate(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	switch (soda_chunk_state(w)) {
	case SODA_CHUNK_ZERO:
	case SODA_CHUNK_REMOTE:
	case SODA_CHUNK_LOST:
		return soda_chunk_begin(c, &w, SODA_CHUNK_NONE);
	default:
		return false;
	}
}

void soda_retire_range(uint32_t first, uint32_t n)
{
	struct soda_thread *t = soda_thread_self();
	struct soda_region *r = soda_region_of(first);
	struct iovec all = { soda_chunk_address(first), r->span };
	uint64_t patience_ns = soda_agent.settings.fault_timeout_ms * 1000000ull;
	int64_t resident = 0;
	sigset_t saved;

	soda_signals_block(&saved);
	for (uint32_t id = first; id < first + n; id++) {
		bool had = false;

		do { /* what a silent server keeps under way ends with its connections */
			if (take_over(t, id, soda_now_ns() + patience_ns, &had))
				soda_session_report(-ETIMEDOUT);
		} while (!had && !vacate(id));
		resident += had;
	}
	soda_agent.pager->drop(&all, 1);
	for (uint32_t id = first; id < first + n; id++)
		forget_chunk(id);
	soda_buffer_give(&soda_agent.buffer, resident);
	soda_signals_restore(&saved);
}

int soda_retire_discard(uint32_t id, uint64_t deadline_ns, bool *backed_p)
{
	struct soda_thread *t = soda_thread_self();
	struct soda_chunk *c = &soda_agent.table[id];
	bool had;
	int ret = take_over(t, id, deadline_ns, &had);

	if (ret)
		return ret;
	atomic_store(&soda_region_of(id)->stale, true);
	*backed_p = soda_chunk_load(c) & SODA_CW_BACKED;
	if (had) {
		struct iovec one = { soda_chunk_address(id),
				     soda_region_chunk_bytes(soda_region_of(id), id) };

		soda_replace_remove(&soda_agent.replacer, id);
		soda_agent.pager->drop(&one, 1);
		soda_chunk_settle(c, SODA_CHUNK_ZERO, 0, 0, SODA_CW_BACKED);
		soda_buffer_give(&soda_agent.buffer, 1);
	} else {
		uint32_t w = soda_chunk_load(c);

		while (soda_chunk_state(w) == SODA_CHUNK_REMOTE ||
		       soda_chunk_state(w) == SODA_CHUNK_LOST)
			if (soda_chunk_swap(c, &w,
					    (w & ~(SODA_CW_STATE | SODA_CW_BACKED)) |
						    SODA_CHUNK_ZERO))
				break;
	}
	return 0;
}

void soda_retire_cold(struct soda_thread *t, uint32_t id, uint32_t keep)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	/* The caller wants it gone, whoever touched it last. */
	while (soda_chunk_state(w) == SODA_CHUNK_CLEAN &&
	       !(w & (keep | SODA_CW_SENDING | SODA_CW_QUEUED))) {
		if (!soda_chunk_begin(c, &w, SODA_CHUNK_BUSY))
			continue;
		soda_replace_remove(&soda_agent.replacer, id);
		soda_evict_drop(t, &id, 1);
		return;
	}
}
