/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fault/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/tracepoint.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/sealing.h"
#include "host_agent/pages/install.h"
#include "host_agent/pages/protect.h"
#include "host_agent/pages/shared.h"

enum { PAGE = 4096, MISSED_MAX = 64 };

void (*soda_fault_seen)(uint32_t id);

/*
 * A step that waits has its part of the stack while it waits alone, and not below a step that
 * sends and seals (docs/limits.md has a number).
 */
#define ASIDE __attribute__((noinline))

static struct soda_chunk *chunk(const struct soda_fault *f)
{
	return &soda_agent.table[f->id];
}

bool soda_fault_describe(struct soda_fault *f, const void *addr, bool store)
{
	uint32_t id = soda_chunk_of(addr);
	struct soda_region *r = soda_region_of(id);

	if (!r || id < r->first || id >= r->first + r->chunks)
		return false;
	*f = (struct soda_fault){
		.region = r, .id = id, .block = soda_block_of(addr), .store = store
	};
	return true;
}

/* At least the four chunks that an unaligned instruction may touch; a gather may touch more. */
uint32_t soda_fault_keep(void)
{
	int64_t limit = atomic_load_explicit(&soda_agent.buffer.limit, memory_order_relaxed);
	int64_t pinned = atomic_load_explicit(&soda_agent.buffer.pinned, memory_order_relaxed);
	uint32_t threads = soda_agent.settings.threads;
	int64_t others = soda_channels_staging(limit) + soda_sealing_slots_of(limit);
	int64_t share = (limit - pinned - others) / 4 / threads;

	if (share > SODA_LAST_CHUNKS_MAX)
		return SODA_LAST_CHUNKS_MAX;
	return share < SODA_LAST_CHUNKS_MIN ? SODA_LAST_CHUNKS_MIN : (uint32_t)share;
}

static void count_fault(struct soda_thread *t, struct soda_fault *f, enum soda_thread_counter what)
{
	if (!f->counted) {
		SODA_TP_FAULT(f->id, f->store);
		soda_count(t, what, 1);
		if (soda_fault_seen && what == SODA_CNT_FAULTS)
			soda_fault_seen(f->id);
	}
	f->counted = true;
}

/* The chunk is ours. Whether its thread may have stored already what it was about to store. */
static bool is_late_store(const struct soda_fault *f)
{
	return f->store && f->closings && soda_protect_closed_since(f->id, f->closings);
}

/* ZERO, REMOTE or SHARED becomes FETCHING, ours, with a credit. */
static enum soda_fault_step take(struct soda_thread *t, struct soda_fault *f, uint32_t w)
{
	bool zero = soda_chunk_state(w) == SODA_CHUNK_ZERO;

	if (!zero && atomic_load_explicit(&f->region->lost, memory_order_relaxed))
		return SODA_STEP_LOST;
	if (!zero && !soda_copies_reachable(f->region))
		return SODA_STEP_DOWN;
	t->missed = 0;
	soda_thread_trim(t, soda_fault_keep() - 1); /* this chunk becomes the ring's last one */
	if (soda_evict_credit(t, 0))
		return SODA_STEP_ROOM;
	if (!soda_chunk_begin(chunk(f), &w, SODA_CHUNK_FETCHING)) {
		soda_buffer_give(&soda_agent.buffer, 1);
		return SODA_STEP_JOIN;
	}
	if (is_late_store(f))
		f->store = false; /* a thread that still waits for it comes with another fault */
	/*
	 * Before the instruction goes on, another thread may evict: this keeps the chunk from it.
	 */
	soda_thread_remember(t, f->id, soda_fault_keep());
	count_fault(t, f, SODA_CNT_FAULTS);
	soda_writeback_help(t);
	if (!zero) {
		atomic_store_explicit(&chunk(f)->channel, SODA_CHANNEL_NONE, memory_order_relaxed);
		return SODA_STEP_FETCH;
	}
	f->error = soda_fill(t, f->region, f->id, f->store ? (int)f->block : -1);
	return f->error ? SODA_STEP_FAILED : SODA_STEP_DONE;
}

/*
 * A chunk of the node's store: it is there, or the agent is to be asked.  It is BUSY while the
 * store's map is looked at, because soda_free() waits for that: the handler may come to a fault
 * whose thread has gone on, and has freed the object.  The stream goes on, whichever thread has
 * brought the chunk: READs go out again where it comes to the end of what the store has.
 */
static enum soda_fault_step look_into_store(struct soda_thread *t, struct soda_fault *f, uint32_t w)
{
	if (!soda_chunk_begin(chunk(f), &w, SODA_CHUNK_BUSY))
		return SODA_STEP_JOIN;
	count_fault(t, f, SODA_CNT_FAULTS); /* before its thread can go on */
	f->error = soda_shared_touch(t, f->region, f->id,
				     soda_streams_expect(&t->streams, f->id) ? SODA_STORE_PASSED
									     : SODA_STORE_TOUCHED,
				     f->joined);
	if (!f->error)
		soda_fault_run_ahead(t, f);
	soda_chunk_settle(chunk(f), SODA_CHUNK_SHARED, 0, 0, 0);
	w = soda_chunk_load(chunk(f));
	if (f->error == -ENOENT)
		return soda_chunk_state(w) == SODA_CHUNK_SHARED ? take(t, f, w) : SODA_STEP_JOIN;
	return f->error ? SODA_STEP_FAILED : SODA_STEP_DONE;
}

/* A store to a write-protected page of a resident chunk. */
static enum soda_fault_step open_for_store(struct soda_thread *t, struct soda_fault *f, uint32_t w)
{
	bool clean = soda_chunk_state(w) == SODA_CHUNK_CLEAN;
	uint32_t dirty = clean ? 0 : soda_chunk_dirty(w);
	bool fetched = w & SODA_CW_AS_FETCHED;
	uint32_t blocks;
	int failed;

	if (!soda_chunk_begin(chunk(f), &w, SODA_CHUNK_BUSY))
		return SODA_STEP_JOIN;
	if (clean && is_late_store(f)) { /* likewise */
		soda_chunk_settle(chunk(f), SODA_CHUNK_CLEAN, 0, 0, 0);
		return SODA_STEP_DONE;
	}
	count_fault(t, f, SODA_CNT_WP_FAULTS);
	/* A write-back that failed has made the block dirty again, and left it write-protected. */
	blocks = dirty >> f->block & 1 ? dirty
				       : soda_protect_choose(f->region, dirty, f->block, fetched);
	if (fetched)
		soda_guess_learn(f->region, true);
	/* Also where opening failed half-way: threads may have stored to the blocks opened. */
	failed = soda_protect_open(f->region, f->id, blocks);
	soda_chunk_settle(chunk(f), SODA_CHUNK_DIRTY, dirty | blocks, 0, SODA_CW_AS_FETCHED);
	return failed ? SODA_STEP_JOIN : SODA_STEP_DONE;
}

/*
 * Whether a page of the block is not there.  mincore(2) would say of a page of a shared mapping
 * that it is in memory, and not whether it is mapped.
 */
static bool is_hole(const struct soda_fault *f)
{
	const uint64_t present = 1ull << 63;
	uint64_t entries[64];
	size_t bytes = 1ul << soda_agent.block_shift, n = bytes < PAGE ? 1 : bytes / PAGE;
	uintptr_t at = (uintptr_t)soda_chunk_address(f->id) + f->block * bytes;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return false;
	got = pread(fd, entries, n * sizeof(*entries), (off_t)(at / PAGE * sizeof(*entries)));
	close(fd);
	for (size_t i = 0; got == (ssize_t)(n * sizeof(*entries)) && i < n; i++)
		if (!(entries[i] & present))
			return true;
	return false;
}

/*
 * By the chunk's word the page is there, and open for a store.  The thread has found that so often
 * in a row that no other thread can have been the reason: the program has taken the page away, by
 * madvise() or a mapping of its own.
 */
static bool is_taken_away(struct soda_thread *t, const struct soda_fault *f, uint32_t w)
{
	if (t->missed_id != f->id)
		t->missed = 0;
	t->missed_id = f->id;
	return ++t->missed > MISSED_MAX && is_hole(f) && soda_chunk_load(chunk(f)) == w;
}

static enum soda_fault_step resident(struct soda_thread *t, struct soda_fault *f, uint32_t w)
{
	bool open = soda_chunk_state(w) == SODA_CHUNK_DIRTY && soda_chunk_dirty(w) >> f->block & 1;

	if ((!f->store || open) && is_taken_away(t, f, w)) {
		f->error = -ENODATA;
		return SODA_STEP_FAILED;
	}
	/* A load: another thread has made the chunk resident meanwhile. */
	return f->store ? open_for_store(t, f, w) : SODA_STEP_DONE;
}

enum soda_fault_step soda_fault_step(struct soda_thread *t, struct soda_fault *f)
{
	uint32_t w = soda_chunk_load(chunk(f));

	switch (soda_chunk_state(w)) {
	case SODA_CHUNK_ZERO:
	case SODA_CHUNK_REMOTE:
		return take(t, f, w);
	case SODA_CHUNK_CLEAN:
	case SODA_CHUNK_DIRTY:
		return resident(t, f, w);
	case SODA_CHUNK_FETCHING:
		if (!f->counted)
			soda_count(t, SODA_CNT_JOINED, 1);
		count_fault(t, f, SODA_CNT_FAULTS);
		f->joined = true;
		return SODA_STEP_JOIN;
	case SODA_CHUNK_BUSY:
		return SODA_STEP_JOIN;
	case SODA_CHUNK_LOST:
		return SODA_STEP_LOST;
	case SODA_CHUNK_SHARED:
		return look_into_store(t, f, w);
	case SODA_CHUNK_NONE:
	case SODA_CHUNK_STATES:
		break;
	}
	return SODA_STEP_FOREIGN;
}

/* Of what the store has nothing is asked for, and no channel is locked. */
static bool lacks_any(const struct soda_region *r, const struct soda_plan *plan)
{
	for (uint32_t i = 0; i < plan->n; i++)
		if (soda_shared_lacks(r, (uint32_t)(plan->first + (int64_t)i * plan->stride)))
			return true;
	return false;
}

void soda_fault_run_ahead(struct soda_thread *t, const struct soda_fault *f)
{
	struct soda_region *r = f->region;
	uint32_t advice = atomic_load_explicit(&r->advice, memory_order_relaxed);
	uint32_t window = advice == SODA_RANDOM ? 0 : soda_agent.settings.prefetch_chunks;
	struct soda_plan plan;
	uint32_t done;

	plan = soda_streams_note(&t->streams, f->id, r->first, (int64_t)r->first + r->chunks,
				 window, advice == SODA_SEQUENTIAL);
	if (plan.useless)
		soda_count(t, SODA_CNT_PREFETCH_USELESS, plan.useless);
	if (!plan.n || (r->shared && !lacks_any(r, &plan)))
		return;
	done = soda_fetch_ahead(t, r, &plan);
	if (done < plan.n)
		soda_streams_cut(&t->streams, &plan, done);
}

/* Of a slab with copies: a server that is late with what was asked for ahead is not waited for. */
static ASIDE int join_copies(struct soda_thread *t, const struct soda_fault *f, uint64_t since_ns,
			     uint64_t deadline_ns)
{
	uint64_t soon_ns = soda_now_ns() + SODA_HEDGE_MS * SODA_MS_NS;
	int ret = soda_fetch_join(t, f->id, soon_ns < deadline_ns ? soon_ns : deadline_ns);

	if (ret != -ETIMEDOUT || soda_now_ns() >= deadline_ns)
		return ret;
	return soda_fetch_rescue(t, f->region, f->id, f->store ? (int)f->block : -1, since_ns,
				 deadline_ns);
}

/* since_ns: when the thread began to wait for the chunk. */
static ASIDE int join(struct soda_thread *t, struct soda_fault *f, uint64_t since_ns,
		      uint64_t deadline_ns)
{
	if (soda_chunk_state(soda_chunk_load(chunk(f))) != SODA_CHUNK_FETCHING) {
		soda_chunk_wait(chunk(f), 1000000);
		return 0;
	}
	soda_fault_run_ahead(t, f);
	if (soda_copies(f->region))
		return join_copies(t, f, since_ns, deadline_ns);
	return soda_fetch_join(t, f->id, deadline_ns);
}

/* The fault is served. start: when the fetch, or the wait for one, began; 0: there was none. */
static int done(struct soda_thread *t, const struct soda_fault *f, uint64_t start)
{
	soda_thread_remember(t, f->id, soda_fault_keep());
	if (start)
		soda_thread_time(t, soda_now_ns() - start);
	return 0;
}

static ASIDE int make_room(struct soda_thread *t, uint64_t deadline_ns)
{
	int ret = soda_evict_credit(t, deadline_ns);

	if (!ret)
		soda_buffer_give(&soda_agent.buffer, 1);
	return ret;
}

/*
 * Lets the program's signals in: this may take long, and the thread holds no lock or chunk.  Of a
 * slab with copies another server may be the first that is there: not long for one.
 */
static ASIDE int await_server(struct soda_thread *t, const struct soda_fault *f,
			      uint64_t deadline_ns)
{
	struct soda_server *server = &soda_copies_source(f->region, NULL)->server;
	uint64_t soon_ns = soda_now_ns() + SODA_COPIES_LOOK_MS * SODA_MS_NS;
	sigset_t blocked;
	int ret;

	if (soda_redundant() && soon_ns < deadline_ns)
		deadline_ns = soon_ns;
	if (atomic_load(&f->region->nowhere)) { /* its server lost it, and another is looked for */
		soda_chunk_wait(chunk(f), SODA_COPIES_LOOK_MS * SODA_MS_NS);
		return 0;
	}
	if (!f->mask)
		return soda_server_wait(server, deadline_ns, &t->still_ns);
	soda_signals_swap(f->mask, &blocked);
	ret = soda_server_wait(server, deadline_ns, &t->still_ns);
	soda_signals_restore(&blocked);
	return ret;
}

static int serve_until(struct soda_thread *t, struct soda_fault *f, uint64_t deadline_ns)
{
	uint64_t start = 0, still = t->still_ns;
	int ret = 0;

	for (bool again = false; ret == 0 || soda_connection_lost(ret); again = true) {
		deadline_ns += t->still_ns - still;
		still = t->still_ns;
		if (again && soda_now_ns() >= deadline_ns)
			return ret ? ret : -ETIMEDOUT;
		switch (soda_fault_step(t, f)) {
		case SODA_STEP_DONE:
			return done(t, f, start);
		case SODA_STEP_FETCH:
			start = soda_now_ns();
			soda_fault_run_ahead(t, f);
			ret = soda_fetch_demand(t, f->region, f->id, f->store ? (int)f->block : -1,
						deadline_ns);
			if (!ret)
				return done(t, f, start);
			break;
		case SODA_STEP_JOIN:
			start = start ? start : soda_now_ns();
			ret = join(t, f, start, deadline_ns);
			break;
		case SODA_STEP_ROOM:
			ret = make_room(t, deadline_ns);
			break;
		case SODA_STEP_DOWN:
			ret = await_server(t, f, deadline_ns);
			break;
		case SODA_STEP_LOST:
			return -EIO;
		case SODA_STEP_FAILED:
			return f->error;
		case SODA_STEP_FOREIGN:
			return -EFAULT;
		}
	}
	return ret;
}

int soda_fault_serve(struct soda_thread *t, struct soda_fault *f)
{
	uint64_t patience = soda_agent.settings.fault_timeout_ms * 1000000ull;
	uint64_t began = soda_now_ns(), from = began, ns;
	int ret;

	for (;; from = soda_now_ns()) {
		ret = serve_until(t, f, from + patience);
		if (!soda_connection_lost(ret) ||
		    soda_agent.settings.on_error != SODA_ON_ERROR_WAIT)
			break;
	}
	ns = soda_now_ns() - began;
	soda_count(t, SODA_CNT_STALLED_NS, ns);
	SODA_TP_FAULT_DONE(f->id, ret, ns);
	if (ret && ret != -EFAULT)
		soda_fault_fail(t, f, ret);
	return ret;
}

static bool is_lost(const struct soda_fault *f)
{
	return soda_chunk_state(soda_chunk_load(chunk(f))) == SODA_CHUNK_LOST;
}

void soda_fault_fail(struct soda_thread *t, const struct soda_fault *f, int err)
{
	const struct soda_region *r = f->region;
	const struct soda_server *server = &soda_copies_source(r, NULL)->server;
	unsigned long long at = r->before + soda_region_offset(r, f->id) +
				((uint64_t)f->block << soda_agent.block_shift);
	const char *what = r->name[0] ? r->name : r->file ? r->file : "an object";

	soda_fds_check(); /* the program may have closed the connection */
	soda_count(t, SODA_CNT_ERRORS, 1);
	if (err == -ENODATA)
		soda_log_error("page at offset %llu of %s cannot be had: the program has taken it "
			       "away, by madvise() or a mapping over it",
			       at, what);
	else if (err == -EIO && r->damaged)
		soda_log_error("page at offset %llu of %s cannot be had: what %s has is not what "
			       "was stored there",
			       at, what, server->address);
	else if (err == -EIO && is_lost(f))
		soda_log_error("page at offset %llu of %s cannot be had: it was lost when %s, the "
			       "memory server or a DPU agent before it, started anew",
			       at, what, server->address);
	else if (err == -EIO)
		soda_log_error("page at offset %llu of %s cannot be had: %s has refused it, and "
			       "its log says why: what it has is not what was stored there, or it "
			       "cannot open it any more",
			       at, what, server->address);
	else if (soda_server_up(server))
		soda_log_error("page at offset %llu of %s cannot be had from %s: %s", at, what,
			       server->address, soda_strerror(err));
	else
		soda_log_error("page at offset %llu of %s cannot be had within %u ms: %s", at, what,
			       soda_agent.settings.fault_timeout_ms, soda_server_trouble(server));
	if (soda_agent.settings.on_error == SODA_ON_ERROR_ABORT)
		abort();
}

int soda_fault_touch(struct soda_thread *t, struct soda_region *r, uint32_t id)
{
	struct soda_fault f = { .region = r, .id = id, .counted = true };

	return soda_fault_serve(t, &f);
}

int soda_fault_dirty(struct soda_thread *t, struct soda_region *r, uint32_t id)
{
	struct soda_fault f = { .region = r, .id = id, .store = true, .counted = true };

	return soda_fault_serve(t, &f);
}
