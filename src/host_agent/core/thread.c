/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "host_agent/core/agent.h"

enum {
	/*
	 * Places for the library's own threads, so that they, which start at any time, take no
	 * index among the program's threads, on which depends which of those share a channel.
	 */
	HELPERS = 4,
	PLACES = HELPERS + SODA_THREADS_MAX,
};

/* Zero pages until used; a context of 2 KiB a thread. */
static struct soda_thread contexts[PLACES];
static _Atomic uint32_t contexts_used; /* contexts below it may be in use */

static __thread struct soda_thread *self __attribute__((tls_model("initial-exec")));

static struct soda_thread *claim(int32_t tid, uint32_t first, uint32_t end)
{
	uint32_t used = atomic_load(&contexts_used);

	for (uint32_t i = first; i < end; i++) {
		struct soda_thread *t = &contexts[i];
		int32_t none = 0;

		if (!atomic_compare_exchange_strong(&t->tid, &none, tid))
			continue;
		t->index = i - first;
		t->last_n = t->last_at = 0;
		atomic_store(&t->ring_taken, false);
		soda_streams_init(&t->streams);
		soda_streams_init(&t->fills);
		soda_waiting_init(&t->waiting);
		while (used <= i && !atomic_compare_exchange_weak(&contexts_used, &used, i + 1))
			;
		return t;
	}
	return NULL;
}

static struct soda_thread *claim_or_reap(int32_t tid)
{
	struct soda_thread *t = claim(tid, HELPERS, PLACES);

	return t || !soda_threads_reap() ? t : claim(tid, HELPERS, PLACES);
}

struct soda_thread *soda_thread_self(void)
{
	int32_t tid;

	if (self)
		return self;
	tid = (int32_t)syscall(SYS_gettid);
	self = claim_or_reap(tid);
	return self;
}

struct soda_thread *soda_thread_of(pid_t tid)
{
	uint32_t used = atomic_load(&contexts_used);

	for (uint32_t i = 0; i < used; i++)
		if (atomic_load_explicit(&contexts[i].tid, memory_order_relaxed) == tid)
			return &contexts[i];
	return claim_or_reap(tid);
}

struct soda_thread *soda_thread_internal(void)
{
	if (!self)
		self = claim((int32_t)syscall(SYS_gettid), 0, HELPERS);
	return soda_thread_self();
}

/*
 * No thread waits for a ring: while another one empties it (soda_threads_steal) the thread's chunk
 * is not held, so that it may be evicted early, which is harmless.
 */
static bool ring_take(struct soda_thread *t)
{
	return !atomic_exchange_explicit(&t->ring_taken, true, memory_order_acquire);
}

static void ring_give(struct soda_thread *t)
{
	atomic_store_explicit(&t->ring_taken, false, memory_order_release);
}

/* The caller has the ring. */
static void trim(struct soda_thread *t, uint32_t keep)
{
	while (t->last_n > keep) {
		uint32_t oldest =
			(t->last_at + SODA_LAST_CHUNKS_MAX - t->last_n) % SODA_LAST_CHUNKS_MAX;

		soda_chunk_unhold(&soda_agent.table[t->last[oldest]]);
		t->last_n--;
	}
}

static bool remembered(const struct soda_thread *t, uint32_t id)
{
	for (uint32_t i = 1; i <= t->last_n; i++)
		if (t->last[(t->last_at + SODA_LAST_CHUNKS_MAX - i) % SODA_LAST_CHUNKS_MAX] == id)
			return true;
	return false;
}

void soda_thread_trim(struct soda_thread *t, uint32_t keep)
{
	if (t->last_n > keep && ring_take(t)) {
		trim(t, keep);
		ring_give(t);
	}
}

void soda_thread_remember(struct soda_thread *t, uint32_t id, uint32_t keep)
{
	if (!ring_take(t))
		return;
	if (!remembered(t, id)) {
		trim(t, keep - 1);
		soda_chunk_hold(&soda_agent.table[id]);
		t->last[t->last_at] = id;
		t->last_at = (t->last_at + 1) % SODA_LAST_CHUNKS_MAX;
		t->last_n++;
	}
	ring_give(t);
}

void soda_thread_forget(struct soda_thread *t)
{
	soda_thread_trim(t, 0);
}

/* The caller has the ring: take those chunks out of it. */
static void take_out(struct soda_thread *t, uint32_t first, uint32_t n)
{
	uint32_t from = t->last_at + SODA_LAST_CHUNKS_MAX - t->last_n, left = 0;

	for (uint32_t i = 0; i < t->last_n; i++) {
		uint32_t id = t->last[(from + i) % SODA_LAST_CHUNKS_MAX];

		if (id - first < n)
			soda_chunk_unhold(&soda_agent.table[id]);
		else
			t->last[(from + left++) % SODA_LAST_CHUNKS_MAX] = id;
	}
	t->last_at = (from + left) % SODA_LAST_CHUNKS_MAX;
	t->last_n = left;
}

void soda_threads_forget(uint32_t first, uint32_t n)
{
	enum { TRIES = 1000 }; /* a signal's handler may have interrupted who has the ring */
	uint32_t used = atomic_load(&contexts_used);

	for (uint32_t i = 0; i < used; i++) {
		struct soda_thread *t = &contexts[i];
		bool taken = false;

		if (!t->last_n)
			continue;
		for (int k = 0; k < TRIES && !(taken = ring_take(t)); k++)
			sched_yield();
		if (!taken)
			continue;
		take_out(t, first, n);
		ring_give(t);
	}
}

uint32_t soda_threads_holding(uint32_t id)
{
	uint32_t used = atomic_load(&contexts_used), n = 0;

	for (uint32_t i = 0; i < used; i++) {
		struct soda_thread *t = &contexts[i];

		if (!ring_take(t)) {
			n++;
			continue;
		}
		n += remembered(t, id);
		ring_give(t);
	}
	return n;
}

static bool alive(int32_t tid)
{
	int saved = errno;
	bool gone = syscall(SYS_tgkill, soda_agent.pid, tid, 0) != 0 && errno == ESRCH;

	errno = saved;
	return !gone;
}

int soda_threads_reap(void)
{
	uint32_t used = atomic_load(&contexts_used);
	int n = 0;

	for (uint32_t i = 0; i < used; i++) {
		struct soda_thread *t = &contexts[i];
		int32_t tid = atomic_load(&t->tid);

		if (tid <= 0 || alive(tid))
			continue;
		/* Of several threads that reap only one succeeds. */
		if (!atomic_compare_exchange_strong(&t->tid, &tid, -1))
			continue;
		soda_thread_forget(t);
		atomic_store(&t->tid, 0);
		n++;
	}
	return n;
}

void soda_threads_steal(const struct soda_thread *asker)
{
	static _Atomic uint32_t turn;
	uint32_t used = atomic_load(&contexts_used);

	for (uint32_t i = 0; i < used; i++) {
		struct soda_thread *t = &contexts[atomic_fetch_add(&turn, 1) % used];

		if (t != asker && t->last_n) {
			soda_thread_forget(t);
			return;
		}
	}
}

void soda_threads_clear(void)
{
	for (uint32_t i = 0; i < PLACES && i < contexts_used; i++)
		atomic_store(&contexts[i].tid, 0);
	self = NULL;
}

uint64_t soda_threads_bytes(void)
{
	return (uint64_t)atomic_load(&contexts_used) * sizeof(struct soda_thread);
}

static unsigned bucket_of(uint64_t ns)
{
	uint64_t us4 = ns / 250; /* quarters of a microsecond: the first octave is 1 us */
	unsigned octave, b;

	if (us4 < 4)
		return 0;
	octave = 63u - (unsigned)__builtin_clzll(us4);
	b = (octave - 2) * 4 + (unsigned)(us4 >> (octave - 2) & 3);
	return b < SODA_HIST_BUCKETS ? b : SODA_HIST_BUCKETS - 1;
}

/* The middle of a bucket. */
static uint64_t bucket_ns(unsigned b)
{
	uint64_t low = (4u + b % 4) * 250ull << b / 4;

	return low + (250ull << b / 4) / 2;
}

void soda_thread_time(struct soda_thread *t, uint64_t ns)
{
	_Atomic uint32_t *n = &t->fetch_ns[bucket_of(ns)];

	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

uint64_t soda_thread_stood_still(struct soda_thread *t, uint64_t asked_ns, uint64_t took_ns)
{
	uint64_t still = soda_stood_still(asked_ns, took_ns);

	if (t)
		t->still_ns += still;
	return still;
}

uint64_t soda_threads_sum(enum soda_thread_counter c)
{
	uint32_t used = atomic_load(&contexts_used);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < used; i++)
		sum += atomic_load_explicit(&contexts[i].counters[c], memory_order_relaxed);
	return sum;
}

uint32_t soda_threads_waited(void)
{
	uint32_t used = atomic_load(&contexts_used), n = 0;

	for (uint32_t i = 0; i < used; i++)
		n += atomic_load_explicit(&contexts[i].counters[SODA_CNT_STALLED_NS],
					  memory_order_relaxed) != 0;
	return n;
}

uint64_t soda_threads_percentile_ns(double p)
{
	uint64_t hist[SODA_HIST_BUCKETS] = { 0 }, total = 0, seen = 0;
	uint32_t used = atomic_load(&contexts_used);

	for (uint32_t i = 0; i < used; i++)
		for (unsigned b = 0; b < SODA_HIST_BUCKETS; b++)
			hist[b] += atomic_load_explicit(&contexts[i].fetch_ns[b],
							memory_order_relaxed);
	for (unsigned b = 0; b < SODA_HIST_BUCKETS; b++)
		total += hist[b];
	for (unsigned b = 0; b < SODA_HIST_BUCKETS; b++) {
		seen += hist[b];
		if (total && (double)seen >= (double)total * p / 100)
			return bucket_ns(b);
	}
	return 0;
}
