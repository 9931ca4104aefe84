/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part that this process has of the page buffer of all processes of one `soda run`: what it is
 * lent at its start and by need, and the thread that gives of it to those that need it more.  How
 * parts are counted, and whose they are when a process is killed: base/tree/tree.h.
 */
#include "run/core/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/tree/tree.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/life/start.h"
#include "host_agent/move/limit.h"

enum {
	STEPS = 64,	     /* a part grows and shrinks by one of so many steps of the budget */
	CHUNKS_MIN = 4,	     /* and by no fewer chunks */
	FIRST = 4,	     /* it begins with one of so many parts of the budget */
	REFUSED_LOOK = 64,   /* one of so many refusals looks whether there is more now */
	LOOK_NS = 10000000,  /* the thread's pause while somebody wants more... */
	REAP_NS = 100000000, /* ...and how often it looks then who has ended */
	NOTE_S = 1,	     /* its pause where numbers are wanted... */
	IDLE_S = 5,	     /* ...and where nothing is */
};

/* Set before the program's threads run, or with api_lock held before the runtime runs. */
static struct soda_tree *tree;
static struct soda_tree_slot *slot;
static pid_t slot_pid; /* whose it is: this process's, or, before a fork, its parent's */
static struct soda_tree_row *row;
static int64_t step, cap; /* bytes; cap: what this process may hold at most */
static pid_t self;	  /* which has the row */

static _Atomic uint32_t refused;      /* how often there was nothing more */
static _Atomic uint32_t refused_when; /* tree->given at the last look */
static _Atomic bool grown;	      /* since the thread has looked */

/* For the thread alone. */
static struct {
	uint64_t at_ns, reaped_ns;
	uint64_t faults;
	uint32_t refused;
} last;

static int64_t whole_chunks(int64_t bytes)
{
	return bytes & ~(int64_t)(soda_chunk_bytes() - 1);
}

static int64_t faults(void)
{
	return (int64_t)(soda_threads_sum(SODA_CNT_FAULTS) + soda_threads_sum(SODA_CNT_PREFETCHED));
}

static int none_left(int64_t least, struct soda_why *why)
{
	char need[16], all[16];

	snprintf(
		why->text, sizeof(why->text),
		"the page buffer of %s, which the processes of soda run share, has no room for one "
		"more: %u of them hold it, and none gave back the %s that process %d (%s) needs at "
		"least within %d s. Give more with --mem, or start fewer of them at once",
		soda_format_size((uint64_t)tree->budget, all), soda_tree_processes(tree),
		soda_format_size((uint64_t)least, need), getpid(), program_invocation_short_name,
		SODA_RUN_SHARE_MS / 1000);
	return -ENOMEM;
}

static int64_t take_either(int64_t first, int64_t least)
{
	if (soda_tree_take(tree, slot, first))
		return first;
	return soda_tree_take(tree, slot, least) ? least : 0;
}

/* Take as much as it may begin with, or at least what it needs, which others may have to give. */
static int64_t take_first(int64_t first, int64_t least)
{
	const struct timespec pause = { 0, SODA_RUN_SHARE_LOOK_MS * 1000000 };
	uint64_t deadline = soda_now_ns() + SODA_RUN_SHARE_MS * SODA_MS_NS;
	int64_t got;

	while (!(got = take_either(first, least)) && soda_now_ns() < deadline) {
		atomic_store(&slot->starting, 1);
		soda_tree_ask(tree, slot, least);
		soda_tree_reap(tree);
		nanosleep(&pause, NULL);
	}
	atomic_store(&slot->starting, 0);
	atomic_store(&slot->wanted, 0);
	return got;
}

static int lend_first(int64_t least, int64_t most, int64_t *limit_p, struct soda_why *why)
{
	int64_t chunk = (int64_t)soda_chunk_bytes(), first;

	slot = soda_tree_claim(tree);
	slot_pid = getpid();
	if (!slot) {
		snprintf(why->text, sizeof(why->text),
			 "%d processes of soda run have fabric memory, and there is no room for "
			 "more, or no /proc to tell which have ended",
			 SODA_TREE_SLOTS);
		return -EAGAIN;
	}
	cap = most * chunk < tree->budget ? most * chunk : whole_chunks(tree->budget);
	step = whole_chunks(tree->budget / STEPS);
	step = step < CHUNKS_MIN * chunk ? CHUNKS_MIN * chunk : step;
	first = whole_chunks(cap / FIRST);
	first = take_first(first < least * chunk ? least * chunk : first, least * chunk);
	atomic_store(&refused_when, ~atomic_load(&tree->given)); /* nothing was refused yet */
	*limit_p = first / chunk;
	return first ? 0 : none_left(least * chunk, why);
}

/*
 * The part that this process has begun with is too little.  It waits without, as it has waited
 * before: some of those that start at once must get all that they need.
 */
static int lend_least(int64_t least, struct soda_why *why)
{
	int64_t bytes = least * (int64_t)soda_chunk_bytes(), held = atomic_load(&slot->held);

	if (bytes > cap)
		return -EINVAL;
	soda_tree_give(tree, slot, held);
	if (!take_first(bytes, bytes))
		return none_left(bytes, why);
	soda_buffer_widen(&soda_agent.buffer, (bytes - held) >> soda_agent.chunk_shift);
	return 0;
}

/* Called on the path of a fault where the buffer is nearly full. AS. */
static bool lend_more(void)
{
	uint32_t given = atomic_load_explicit(&tree->given, memory_order_relaxed);
	int64_t room = cap - atomic_load_explicit(&slot->held, memory_order_relaxed);
	int64_t bytes = room < step ? whole_chunks(room) : step;

	if (bytes <= 0)
		return false;
	if (given == atomic_load_explicit(&refused_when, memory_order_relaxed) &&
	    atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed) % REFUSED_LOOK)
		return false;
	if (!soda_tree_take(tree, slot, bytes)) {
		atomic_store_explicit(&refused_when, given, memory_order_relaxed);
		soda_tree_ask(tree, slot, bytes);
		return false;
	}
	soda_buffer_widen(&soda_agent.buffer, bytes >> soda_agent.chunk_shift);
	atomic_store_explicit(&grown, true, memory_order_relaxed);
	return true;
}

static const struct soda_lender lender = { lend_first, lend_least, lend_more };

static int join_server(const char *program, int timeout_ms, char *address, size_t address_bytes,
		       int *life_fd_p, struct soda_why *why)
{
	char reason[SODA_TREE_WHY];
	int ret = soda_tree_server_join(tree, program, timeout_ms, address, address_bytes,
					life_fd_p, reason);

	if (ret == -EIO)
		snprintf(why->text, sizeof(why->text), "%.*s", (int)sizeof(why->text) - 1, reason);
	if (ret == -ETIMEDOUT)
		snprintf(why->text, sizeof(why->text),
			 "soda run has started no memory server for its processes within %d ms "
			 "(SODA_CONNECT_TIMEOUT); is it stopped?",
			 timeout_ms);
	return ret;
}

int run_share_open(const char *name)
{
	int ret = soda_tree_open(name, &tree);

	if (ret)
		return ret;
	if (run_settings.stats)
		atomic_fetch_add(&tree->programs, 1);
	soda_private_shared = join_server;
	if (tree->budget)
		soda_lender = &lender;
	return 0;
}

/* How many chunks a second this process needs, as the others see it. */
static void measure(uint64_t now)
{
	uint64_t n = (uint64_t)faults(), ns = now - last.at_ns, rate;

	if (ns < LOOK_NS / 2)
		return;
	rate = (n - last.faults) * 1000000000u / ns;
	rate = rate < UINT32_MAX / 4 ? rate : UINT32_MAX / 4;
	atomic_store(&slot->need, (atomic_load(&slot->need) + (uint32_t)rate + 1) / 2);
	last.at_ns = now;
	last.faults = n;
}

/* What this process keeps in any case: what it starts with, and room around what is pinned. */
static int64_t floor_bytes(void)
{
	int64_t chunks = soda_limit_minimum(soda_agent.settings.threads);
	int64_t pinned = atomic_load(&soda_agent.buffer.pinned) - soda_limit_added();

	if (pinned > 0)
		chunks += pinned;

	return (chunks + chunks / 3) << soda_agent.chunk_shift;
}

/* Somebody wants more: give what is not in use, and what the other one should rather have. */
static void give_locked(void)
{
	int64_t keep = floor_bytes(), due = soda_tree_due(tree, slot, keep, step);
	int64_t unused = (atomic_load(&soda_agent.buffer.free) << soda_agent.chunk_shift) - step;
	int64_t spare = atomic_load(&slot->held) - keep;
	int64_t bytes = unused > due ? unused : due;
	uint64_t deadline = soda_now_ns() + SODA_RUN_GIVE_MS * SODA_MS_NS;

	bytes = whole_chunks(bytes < spare ? bytes : spare);
	if (bytes <= 0)
		return;
	bytes = soda_limit_shrink(bytes >> soda_agent.chunk_shift, deadline)
		<< soda_agent.chunk_shift;
	if (bytes > 0)
		soda_tree_give(tree, slot, bytes);
}

/* For --stats: how much local memory there was, as far as it was seen. */
static void note_local(void)
{
	int64_t bytes = row && getpid() == self ? run_local_bytes() : -1;

	if (bytes > 0 && (uint64_t)bytes > row->local_peak)
		row->local_peak = (uint64_t)bytes;
}

/* One look at the others; false: the runtime does not run any more. */
static bool look(void)
{
	uint64_t now = soda_now_ns();
	uint32_t n = atomic_load(&refused);

	if (slot && soda_lock_try(&soda_agent.api_lock)) { /* else at the next look */
		if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING) {
			if (atomic_exchange(&grown, false))
				soda_limit_grown();
			if (soda_tree_wanting(tree, slot))
				give_locked();
		} else if (atomic_load(&soda_agent.life) == SODA_LIFE_ENDED) {
			soda_tree_give(tree, slot, atomic_load(&slot->held));
		}
		soda_lock_release(&soda_agent.api_lock);
	}
	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
		return false;
	if (slot) {
		measure(now);
		if (n == last.refused)
			atomic_store(&slot->wanted, 0);
		last.refused = n;
	}
	if (slot && atomic_load(&slot->wanted) && now - last.reaped_ns > REAP_NS) {
		soda_tree_reap(tree);
		last.reaped_ns = now;
	}
	note_local();
	run_share_note(NULL);
	return true;
}

static void *run(void *arg)
{
	run_inside++; /* this thread is the runtime's */
	soda_thread_internal();
	for (;;) {
		uint32_t seen = atomic_load(&tree->asked);
		int64_t pause = row ? NOTE_S * 1000000000ll : IDLE_S * 1000000000ll;

		if (!look())
			return NULL;
		if (soda_tree_wanting(tree, NULL))
			pause = LOOK_NS;
		soda_tree_wait(tree, seen, pause);
	}
}

/* The slot of the memory that is local; a fork's child, which is another process, has its own. */
static struct soda_tree_slot *local_slot(void)
{
	if (slot && slot_pid == getpid())
		return slot;
	if (!tree || !soda_lock_try(&soda_agent.api_lock))
		return NULL; /* the runtime starts; at the next look */
	if (!slot || slot_pid != getpid()) {
		slot = soda_tree_claim(tree);
		slot_pid = getpid();
	}
	soda_lock_release(&soda_agent.api_lock);
	return slot;
}

int64_t run_share_local(int64_t bytes)
{
	struct soda_tree_slot *mine = local_slot();

	if (!mine)
		return bytes;
	atomic_store(&mine->local, bytes);
	if (soda_tree_local(tree) > bytes)
		soda_tree_reap(tree);
	return soda_tree_local(tree);
}

uint64_t run_share_budget(void)
{
	return tree ? (uint64_t)tree->budget : 0;
}

bool run_share_first(const char *program)
{
	uint32_t bit = 5381;

	if (!tree)
		return true;
	while (*program)
		bit = bit * 33 + (unsigned char)*program++;
	bit = 1u << bit % 32;
	return !(atomic_fetch_or(&tree->refused, bit) & bit);
}

void run_share_start(void)
{
	pthread_t thread;

	if (!tree)
		return;
	run_join_start(tree);
	self = getpid();
	last.at_ns = soda_now_ns();
	if (run_settings.stats)
		row = soda_tree_row(tree, program_invocation_short_name);
	if ((slot || row) && soda_helper_start(&thread, "soda-share", run, NULL))
		soda_log_warning("soda run: no thread to share the page buffer: what this process "
				 "has of it, it keeps");
}

bool run_share_note(const char *told)
{
	if (!row || getpid() != self)
		return tree && run_settings.stats;
	row->reserved_peak = run_report_peak();
	row->resident_peak = (uint64_t)atomic_load(&soda_agent.buffer.peak) * soda_chunk_bytes();
	row->faults = soda_threads_sum(SODA_CNT_FAULTS);
	row->zero_fills = soda_threads_sum(SODA_CNT_ZERO_FILLS);
	row->fetched = soda_threads_sum(SODA_CNT_BYTES_FETCHED);
	row->sent = soda_threads_sum(SODA_CNT_BYTES_WRITTEN);
	row->stalled_ns = soda_threads_sum(SODA_CNT_STALLED_NS);
	row->threads = soda_threads_waited();
	row->lived_ns = run_report_lived_ns(&row->cpu_ns);
	row->buffer = (uint64_t)soda_agent.buffer.limit * soda_chunk_bytes();
	row->chunk_bytes = soda_chunk_bytes();
	row->demanded = soda_threads_sum(SODA_CNT_FETCHES);
	row->ahead = soda_threads_sum(SODA_CNT_PREFETCHED);
	row->useless = soda_threads_sum(SODA_CNT_PREFETCH_USELESS);
	row->fetch_p50_ns = soda_threads_percentile_ns(50);
	if (told) {
		note_local();
		snprintf(row->told, sizeof(row->told), "%s", told);
	}
	if (atomic_load(&row->written) < 2)
		atomic_store(&row->written, told ? 2 : 1);
	return true;
}
