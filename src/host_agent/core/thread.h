/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent knows of each application thread: its last chunks, its access
 * streams, how it best waits for answers, its counters.  Contexts come from a
 * fixed table at a thread's first fault; those of dead threads are reused.
 *
 * A context is touched by its own thread (inline mode: inside the SIGBUS handler,
 * or with signals blocked), or by the one handler thread (handler mode).  Others
 * read the counters only.
 */
#ifndef SODA_HOST_THREAD_H
#define SODA_HOST_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "host_agent/core/stream.h"
#include "host_agent/core/waiting.h"

enum { SODA_LAST_CHUNKS_MAX = 16, SODA_LAST_CHUNKS_MIN = 4 };

/* Counters of one thread; one writer, read by anybody: relaxed. */
enum soda_thread_counter {
	SODA_CNT_FAULTS,
	SODA_CNT_JOINED,
	SODA_CNT_ZERO_FILLS,
	SODA_CNT_LOCAL_REFAULTS,
	SODA_CNT_WP_FAULTS,
	SODA_CNT_FETCHES,
	SODA_CNT_PREFETCHED,
	SODA_CNT_PREFETCH_USELESS,
	SODA_CNT_BYTES_FETCHED,
	SODA_CNT_BYTES_WRITTEN,
	SODA_CNT_EVICTED_CLEAN,
	SODA_CNT_EVICTED_DIRTY,
	SODA_CNT_EVICT_WAITS,
	SODA_CNT_ERRORS,
	SODA_CNT_POLLED,
	SODA_CNT_SLEPT,
	SODA_CNT_INSTALLED,
	SODA_CNT_STALLED_NS,
	SODA_CNT_MAX,
};

/* Fetch times: four buckets an octave from 1 us on. */
enum { SODA_HIST_BUCKETS = 96 };

struct soda_thread {
	_Atomic int32_t tid; /* 0: the context is free */
	uint32_t index;	     /* the program's threads count from 0, the library's own, too */
	uint32_t last[SODA_LAST_CHUNKS_MAX]; /* ring: each counts in its chunk's hold */
	_Atomic uint32_t last_n;	     /* a stealer looks at it without the ring */
	uint32_t last_at;
	_Atomic bool ring_taken;	    /* whoever changes the ring: the owner, or a stealer */
	struct soda_streams streams, fills; /* faults that fetch; first touches */
	struct soda_waiting waiting;
	uint64_t active_period; /* writeback.c: when it was counted last */
	uint64_t still_ns;	/* how long it has stood still in all, as its waits have found */
	_Atomic uint64_t counters[SODA_CNT_MAX];
	_Atomic uint32_t fetch_ns[SODA_HIST_BUCKETS];
} __attribute__((aligned(64)));

/* The calling thread's context, or NULL when 4096 threads have one. AS. */
struct soda_thread *soda_thread_self(void);
/* The context of another thread, by its id (handler mode). One caller. AS. */
struct soda_thread *soda_thread_of(pid_t tid);
/* A context for one of the library's own threads: it takes no index of the program's. */
struct soda_thread *soda_thread_internal(void);

/*
 * The thread has just got this chunk: it is one of its last `keep` ones, which
 * are the last to be evicted.  An instruction may need four at once. AS.
 */
void soda_thread_remember(struct soda_thread *t, uint32_t id, uint32_t keep);
/* Let go of the oldest ones beyond `keep`: room must be made without touching the rest. AS. */
void soda_thread_trim(struct soda_thread *t, uint32_t keep);
/* Let go of all of them. */
void soda_thread_forget(struct soda_thread *t);

/* How many threads remember the chunk; one that is about to change its mind counts. */
uint32_t soda_threads_holding(uint32_t id);

/* Free the contexts of threads that are gone; returns how many. AS. */
int soda_threads_reap(void);
/*
 * Every chunk is held, by more threads than the buffer is for: another thread than
 * `asker`, each in turn, lets go of its own. AS.
 */
void soda_threads_steal(const struct soda_thread *asker);
/* Start anew in a fork's child, or at the end. */
void soda_threads_clear(void);
/* Memory touched by the table. */
uint64_t soda_threads_bytes(void);

static inline void soda_count(struct soda_thread *t, enum soda_thread_counter c, uint64_t n)
{
	uint64_t v = atomic_load_explicit(&t->counters[c], memory_order_relaxed);

	atomic_store_explicit(&t->counters[c], v + n, memory_order_relaxed);
}

void soda_thread_time(struct soda_thread *t, uint64_t ns);
/*
 * A wait for at most asked_ns took took_ns.  Far more: the process was stopped or frozen, perhaps
 * its server with it, and no time-out counts that.  How much is not to count. t may be NULL. AS.
 */
uint64_t soda_thread_stood_still(struct soda_thread *t, uint64_t asked_ns, uint64_t took_ns);
/* Sum of one counter over all contexts, dead threads included. */
uint64_t soda_threads_sum(enum soda_thread_counter c);
/* p in percent, of all fetch times; 0 if there are none. */
uint64_t soda_threads_percentile_ns(double p);

#endif
