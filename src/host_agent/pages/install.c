/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/install.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tracepoint.h"
#include "host_agent/object/guess.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/protect.h"

/* Never written, so that the kernel backs it with its zero page.  Not const: a const array would be
 * bytes of the file. */
static char zeros[2u << 20] __attribute__((aligned(4096)));

void soda_install_cancel(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	bool backed = soda_chunk_load(c) & SODA_CW_BACKED;
	const struct soda_region *r = soda_region_of(id);
	enum soda_chunk_state was = r && r->shared ? SODA_CHUNK_SHARED : SODA_CHUNK_REMOTE;

	soda_chunk_settle(c, backed ? was : SODA_CHUNK_ZERO, 0, 0, 0);
	soda_buffer_give(&soda_agent.buffer, 1);
}

/*
 * Pages that were installed before the error must not stay: the program would see them without a
 * fault.  Where the kernel refuses to drop them, they hold what the server has, and are protected
 * from stores.
 */
static int fail(const struct soda_region *r, const struct soda_install *in, uint32_t n, int err,
		bool open)
{
	struct iovec v = { soda_chunk_address(in->id), 0 };
	size_t dropped;
	int ret;

	for (uint32_t i = 0; i < n; i++)
		v.iov_len += soda_region_chunk_bytes(r, in[i].id);
	ret = soda_agent.page_ops->drop(&v, 1, &dropped);
	if (ret)
		soda_drop_refused(ret, true);
	if (ret && open) {
		soda_log_error(
			"a chunk of fabric memory is half there, and open for stores; ending "
			"the process rather than lose one");
		abort();
	}
	for (uint32_t i = 0; i < n; i++)
		soda_install_cancel(in[i].id);
	return err;
}

void soda_install_undo(uint32_t id)
{
	struct soda_install in = { .id = id };

	fail(soda_region_of(id), &in, 1, 0, false);
}

static bool as_fetched(const struct soda_install *in)
{
	return in->block < 0 && soda_chunk_load(&soda_agent.table[in->id]) & SODA_CW_BACKED;
}

static void settle(const struct soda_install *in, uint32_t dirty)
{
	SODA_TP_INSTALL(in->id, dirty);
	soda_replace_insert(&soda_agent.replacer, in->id);
	soda_chunk_settle(&soda_agent.table[in->id], dirty ? SODA_CHUNK_DIRTY : SODA_CHUNK_CLEAN,
			  dirty, as_fetched(in) ? SODA_CW_AS_FETCHED : 0, SODA_CW_AS_FETCHED);
}

bool soda_install_by_peer(const struct soda_region *r, const struct soda_install *in,
			  bool *protect_p)
{
	*protect_p =
		!(r->flags & SODA_READ_ONLY); /* the program cannot store to a READ_ONLY object */
	return in->block < 0 && !soda_guess_active(r);
}

void soda_install_settle(const struct soda_install *in)
{
	settle(in, 0);
}

/*
 * The kernel had no memory for the rest of a chunk that other threads may be storing to.  We ask
 * the kernel again for ten seconds, then end the process: going on with half a chunk would lose
 * data.
 */
static int insist(void *to, const void *src, uint64_t bytes)
{
	_Atomic uint32_t nobody = 0;

	for (int i = 0; i < SODA_MEMORY_MS / SODA_MEMORY_LOOK_MS; i++) {
		soda_futex_wait(&nobody, 0, SODA_MEMORY_LOOK_MS * SODA_MS_NS);
		int ret = soda_agent.page_ops->copy(to, src, bytes, false);

		if (ret != -ENOMEM)
			return ret;
	}
	soda_log_error("no memory for a page of fabric memory that is half there; ending the "
		       "process rather than lose a store");
	abort();
}

void soda_install_refill(uint32_t id, size_t bytes)
{
	char *to = soda_chunk_address(id);

	for (size_t at = 0, n; at < bytes; at += n) {
		n = bytes - at < sizeof(zeros) ? bytes - at : sizeof(zeros);
		if (soda_agent.page_ops->copy(to + at, zeros, n, false) &&
		    insist(to + at, zeros, n)) {
			soda_log_error("a chunk of fabric memory is half there, and cannot be made "
				       "whole; ending the process");
			abort();
		}
	}
}

static bool any_closed(const struct soda_install *in, uint32_t n)
{
	while (n)
		if (soda_chunk_is_closed(in[--n].id))
			return true;
	return false;
}

/* Loads that stores will follow: make them dirty now, and note what the server has. */
static bool guess(struct soda_region *r, const struct soda_install *in, uint32_t n, const char *src)
{
	if (!as_fetched(in) || r->flags & SODA_READ_ONLY || soda_protect_sparse(r) ||
	    !soda_guess_wanted(r) || any_closed(in, n))
		return false;
	for (uint32_t i = 0; i < n; i++)
		soda_guess_keep(r, in[i].id, src + i * soda_chunk_bytes(),
				soda_region_chunk_bytes(r, in[i].id));
	return true;
}

int soda_install_run(struct soda_region *r, const struct soda_install *in, uint32_t n,
		     const void *src)
{
	bool guessed = guess(r, in, n, src);
	uint32_t opened = guessed	   ? soda_blocks_all()
			  : in->block >= 0 ? soda_protect_choose(r, 0, (uint32_t)in->block, false)
					   : 0;
	/*
	 * Open from the start, in one call; not where a page may have another mapping (mapping.h),
	 * at which the copy ends, and what is there of the chunk has to go again.
	 */
	bool whole = opened && opened == soda_blocks_all() && !soda_mapping_any_failing();
	bool protect = !whole && !(r->flags & SODA_READ_ONLY);
	uint64_t bytes = soda_chunk_bytes() * (n - 1) + soda_region_chunk_bytes(r, in[n - 1].id);
	int ret = soda_agent.page_ops->copy(soda_chunk_address(in->id), src, bytes, protect);

	if (ret == -ENOMEM &&
	    whole) /* pages that are there may have been stored to: they cannot be dropped */
		ret = insist(soda_chunk_address(in->id), src, bytes);
	if (ret)
		return fail(r, in, n, ret, whole);
	/* Where opening fails the store faults again; what was opened counts as dirty. */
	if (opened && !whole)
		soda_protect_open(r, in->id, opened);
	for (uint32_t i = 0; i < n; i++)
		settle(&in[i], i == 0 || whole ? opened : 0);
	return 0;
}

int soda_install_zeros(struct soda_region *r, const struct soda_install *in, uint32_t n)
{
	return soda_install_run(r, in, n, zeros);
}

/* First touches */

/* Most that one fault fills: so much memory is wasted where a thread stops being in order. */
enum { FILL_MAX = 32, FILL_BYTES = 256 << 10 };

bool (*soda_fill_allowed)(uint32_t id);

static uint32_t window_of(struct soda_region *r)
{
	uint32_t most = FILL_BYTES >> soda_agent.chunk_shift;
	uint32_t wanted = soda_agent.settings.prefetch_chunks;

	if (!soda_fill_allowed ||
	    atomic_load_explicit(&r->advice, memory_order_relaxed) == SODA_RANDOM)
		return 0;
	most = most < FILL_MAX ? most : FILL_MAX - 1;
	return wanted < most ? wanted : most;
}

/* Claim a chunk that no thread has touched: only if that needs no eviction. */
static bool claim(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	if (soda_chunk_state(w) != SODA_CHUNK_ZERO || soda_buffer_excess(&soda_agent.buffer) ||
	    !soda_buffer_take(&soda_agent.buffer))
		return false;
	if (!soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING)) {
		soda_buffer_give(&soda_agent.buffer, 1);
		return false;
	}
	/* Asked while the chunk is FETCHING: a library that closes it from now on waits for that to
	 * end. */
	if (soda_fill_allowed(id))
		return true;
	soda_install_cancel(id);
	return false;
}

int soda_fill(struct soda_thread *t, struct soda_region *r, uint32_t id, int block)
{
	struct soda_install in[FILL_MAX] = { { .id = id, .block = (int16_t)block } };
	bool eager = atomic_load_explicit(&r->advice, memory_order_relaxed) == SODA_SEQUENTIAL;
	struct soda_plan plan = soda_streams_note(
		&t->fills, id, r->first, (int64_t)r->first + r->chunks, window_of(r), eager);
	uint32_t ahead = plan.stride == 1 && plan.first == (int64_t)id + 1 ? plan.n : 0, n = 1;

	for (; n <= ahead && claim(id + n); n++)
		in[n] = (struct soda_install){ .id = id + n, .block = -1, .ahead = true };
	if (n - 1 < plan.n)
		soda_streams_cut(&t->fills, &plan, n - 1);
	soda_count(t, SODA_CNT_ZERO_FILLS, n);
	return soda_install_zeros(r, in, n);
}
