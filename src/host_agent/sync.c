/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/sync.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/lock.h"
#include "host_agent/agent.h"
#include "host_agent/fetch.h"
#include "host_agent/helper.h"
#include "host_agent/owed.h"
#include "host_agent/progress.h"
#include "host_agent/session.h"
#include "host_agent/writeback.h"

/* Patience that lasts as long as the server answers. */
struct patience {
	uint32_t last;
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

/* Wait for progress; false: no patience left. */
static bool patience_wait(struct patience *p, uint32_t seen)
{
	enum { LOOK_NS = 100000000 };
	uint32_t answers = soda_progress_answers();
	uint64_t from = soda_now_ns();

	if (answers != p->last)
		*p = (struct patience){ answers, from_now() };
	else if (from >= p->deadline_ns)
		return false;
	soda_writeback_await(seen, LOOK_NS);
	p->deadline_ns += soda_thread_stood_still(NULL, LOOK_NS, soda_now_ns() - from);
	return true;
}

/*
 * A chunk that is being brought may be stored to before its state says so: its pages
 * are there a moment earlier.
 */
static uint32_t settled_word(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint64_t deadline_ns = from_now();

	for (;;) {
		uint32_t w = soda_chunk_load(c);
		enum soda_chunk_state s = soda_chunk_state(w);
		sigset_t saved;

		if ((s != SODA_CHUNK_BUSY && s != SODA_CHUNK_FETCHING) ||
		    soda_now_ns() > deadline_ns)
			return w;
		soda_signals_block(&saved);
		if (s == SODA_CHUNK_BUSY)
			soda_chunk_wait(c, 1000000);
		else
			soda_fetch_join(soda_thread_self(), id, soda_now_ns() + 1000000000u);
		soda_signals_restore(&saved);
	}
}

/*
 * Set QUEUED on a dirty chunk; false: there is nothing to queue.  *before_p: it was on its
 * way already.
 */
static bool mark(uint32_t id, bool *before_p)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = settled_word(id);

	*before_p |= !!(w & SODA_CW_SENDING);
	while (soda_chunk_state(w) == SODA_CHUNK_DIRTY && !(w & SODA_CW_QUEUED))
		if (soda_chunk_swap(c, &w, w | SODA_CW_QUEUED))
			return true;
	return false;
}

/* false: the queue is full.  Signals blocked: it has a lock of the fault path. */
static bool push(uint32_t id)
{
	sigset_t saved;
	int n;

	soda_signals_block(&saved);
	n = soda_writeback_queue(&id, 1, SODA_WB_SYNC);
	soda_signals_restore(&saved);
	return n == 1;
}

static int queue_chunks(uint32_t first, uint32_t n, bool *before_p)
{
	struct patience p;

	patience_begin(&p);
	for (uint32_t id = first; id < first + n; id++) {
		while (mark(id, before_p)) {
			uint32_t seen = soda_progress_seen();

			if (push(id))
				break;
			if (!patience_wait(&p, seen))
				return -ETIMEDOUT;
		}
	}
	return 0;
}

static bool under_way(uint32_t id)
{
	return soda_chunk_load(&soda_agent.table[id]) & (SODA_CW_QUEUED | SODA_CW_SENDING);
}

/* Rather than only wait, send some of it over the thread's own connection. */
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

/* Queue what is dirty and wait until none of it is under way. */
static int bring(uint32_t first, uint32_t n, bool *before_p)
{
	struct patience p;
	int ret = queue_chunks(first, n, before_p);

	if (ret)
		return ret;
	patience_begin(&p);
	for (uint32_t id = first; id < first + n; id++) {
		while (under_way(id)) {
			uint32_t seen = soda_progress_seen();

			if (under_way(id) && !share() && !patience_wait(&p, seen))
				return -ETIMEDOUT;
		}
	}
	return 0;
}

int soda_sync_chunks(uint32_t first, uint32_t n)
{
	int error, ret;
	uint32_t refusals = soda_progress_refusals(&error);
	bool before = false;

	ret = bring(first, n, &before);
	/* The refusal of what was on its way before may have been counted before, too. */
	if (!ret && before)
		ret = bring(first, n, &before);
	if (!ret && soda_progress_refusals(&error) != refusals)
		ret = error;
	return ret;
}

/* What an agent has taken over is on the server, and files are in their file. */
static int settle(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why)
{
	if (!(r->flags & SODA_WRITABLE) && !soda_owed_any(first, n))
		return 0;
	return soda_session_sync_region(r, why);
}

int soda_sync_range(struct soda_region *r, uint32_t first, uint32_t n, struct soda_why *why)
{
	uint32_t deaths;
	int ret;

	do { /* after a death, what the agent had of resident chunks is dirty again */
		while ((deaths = soda_owed_deaths()) & 1)
			poll(NULL, 0, 1);
		ret = soda_sync_chunks(first, n);
		if (!ret)
			ret = settle(r, first, n, why);
	} while (!ret && deaths != soda_owed_deaths());
	if (!ret && atomic_exchange(&r->unwritten, false)) {
		snprintf(why->text, sizeof(why->text),
			 "the DPU agent died before it had brought all of it to the server");
		ret = -EIO;
	}
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
