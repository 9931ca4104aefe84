/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent knows of each application thread: its last chunks, its access
 * streams, how it best waits for answers, its counters.  A thread gets a context from a
 * fixed table at its first fault; contexts of dead threads are reused.
 *
 * A context is used by its own thread (inline mode: inside the SIGBUS handler,
 * or with signals blocked), or by the one handler thread (handler mode).  Other threads read the
 * counters, and may empty the ring of last chunks (soda_threads_steal).
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_THREAD_H
#define SODA_HOST_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "host_agent/core/stream.h"

enum { SODA_LAST_CHUNKS_MAX = 16, SODA_LAST_CHUNKS_MIN = 4 };

/* Counters of one thread, the only one that changes them; relaxed. */
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
	SODA_CNT_BYTES_CLEANED,
	SODA_CNT_EVICTED_CLEAN,
	SODA_CNT_EVICTED_DIRTY,
	SODA_CNT_EVICT_WAITS,
	SODA_CNT_ERRORS,
	SODA_CNT_POLLED,
	SODA_CNT_SLEPT,
	SODA_CNT_INSTALLED,
	SODA_CNT_STALLED_NS,
	SODA_CNT_STORE_MAPS,
	SODA_CNT_STORE_ASKS,
	SODA_CNT_STORE_BYTES_MAPPED,
	SODA_CNT_STORE_BYTES_ASKED,
	SODA_CNT_BYTES_SEALED,
	SODA_CNT_BYTES_OPENED,
	SODA_CNT_MAX,
};

/* Fetch times: four buckets an octave from 1 us on. */
enum { SODA_HIST_BUCKETS = 96 };

/*
 * How a thread waits for an answer: asleep, or polling for a short time first.
 * Waking a halted core can take longer than the answer itself; polling on a loaded
 * machine takes the core from the peer that should answer.  No fixed rule
 * tells which is better, so the thread measures: most fetches use the way
 * that was faster lately, a few try the other.  The server polls only after a
 * request whose sender polls, so one decision is for both ends.
 */
struct soda_waiting {
	uint64_t mean_ns[2];  /* moving averages: [0] asleep, [1] polling */
	uint32_t until_trial; /* fetches until the other way is tried */
	uint32_t trial_left;  /* fetches left in the trial under way; 0: none is */
	uint32_t patience;    /* fetches between trials; doubles when a trial does not pay */
	bool polls;	      /* the way that most fetches use */
};

struct soda_thread {
	const struct soda_link *avoid; /* its last READ failed with that connection */
	_Atomic int32_t tid;	       /* 0: the context is free */
	uint32_t index; /* from 0 among the program's threads, or among the library's own */
	uint32_t last[SODA_LAST_CHUNKS_MAX]; /* ring; each chunk's HOLD bits count this thread */
	_Atomic uint32_t last_n;	     /* chunks in the ring; also read without ring_taken */
	uint32_t last_at;		     /* where the next chunk goes */
	_Atomic bool ring_taken; /* a thread is changing the ring: a lock that none waits for */
	struct soda_streams streams, fills; /* faults that fetch; first touches */
	struct soda_waiting waiting;
	uint32_t shared_at; /* where its next chunk of the node's store is noted: pages/shared.c */
	uint64_t reads, hedged; /* with redundancy: READs it waited for; second ones among them */
	uint64_t active_period; /* writeback.c: the period in which it was counted last */
	uint32_t missed_id, missed; /* fault.c: chunk that was there, as often as in a row */
	uint64_t still_ns;	    /* sum of what soda_thread_stood_still() has found */
	_Atomic uint64_t counters[SODA_CNT_MAX];
	_Atomic uint32_t fetch_ns[SODA_HIST_BUCKETS];
} __attribute__((aligned(64)));

/* The calling thread's context, or NULL when SODA_THREADS_MAX other threads have one. AS. */
struct soda_thread *soda_thread_self(void);
/*
 * Handler mode: the context of the thread with that id, or NULL. Only the handler calls this. AS.
 */
struct soda_thread *soda_thread_of(pid_t tid);
/*
 * The context of the calling thread, which is the library's own: takes no index of the program's.
 */
struct soda_thread *soda_thread_internal(void);

/*
 * The thread has just got this chunk: remember it as one of the thread's last `keep` chunks, which
 * are held, that is not evicted while others are.  (One instruction may need four chunks at once.)
 * AS.
 */
void soda_thread_remember(struct soda_thread *t, uint32_t id, uint32_t keep);
/* Remember only the last `keep` chunks: the others may be evicted. AS. */
void soda_thread_trim(struct soda_thread *t, uint32_t keep);
/* Remember none of them. */
void soda_thread_forget(struct soda_thread *t);

/*
 * An object ends, whose chunks these are: no thread remembers any of them, so that none counts down
 * the hold of a chunk that comes in its place.  A thread that is changing its ring is waited for,
 * for a moment at most; not AS.
 */
void soda_threads_forget(uint32_t first, uint32_t n);

/* How many threads remember the chunk; a thread that is changing its ring meanwhile counts. */
uint32_t soda_threads_holding(uint32_t id);

/* Free the contexts of threads that have ended; returns how many. AS. */
int soda_threads_reap(void);
/*
 * All chunks are held, because more threads run than the buffer is for: let another thread than
 * `asker`, the next one in turn, forget its last chunks. AS.
 */
void soda_threads_steal(const struct soda_thread *asker);
/* Free all contexts: in a fork's child, or at the runtime's end. */
void soda_threads_clear(void);
/* Memory of the table that has been used. */
uint64_t soda_threads_bytes(void);

static inline void soda_count(struct soda_thread *t, enum soda_thread_counter c, uint64_t n)
{
	uint64_t v = atomic_load_explicit(&t->counters[c], memory_order_relaxed);

	atomic_store_explicit(&t->counters[c], v + n, memory_order_relaxed);
}

/* Count a fetch that took ns. */
void soda_thread_time(struct soda_thread *t, uint64_t ns);
/*
 * A wait of at most asked_ns took took_ns.  If that is far more, the process was stopped or frozen,
 * perhaps its server, too.  Returns by how much the caller must move its deadline, so that no
 * time-out counts that time. t may be NULL. AS.
 */
uint64_t soda_thread_stood_still(struct soda_thread *t, uint64_t asked_ns, uint64_t took_ns);
/* Sum of one counter over all contexts, dead threads included. */
uint64_t soda_threads_sum(enum soda_thread_counter c);
/* How many contexts, of dead threads too, have waited in faults. */
uint32_t soda_threads_waited(void);
/* The p-th percentile of all fetch times; 0: there are none. */
uint64_t soda_threads_percentile_ns(double p);

/* waiting.c */
void soda_waiting_init(struct soda_waiting *w);
/* Whether to poll for the next answer. may_poll: false: never. */
bool soda_waiting_choose(struct soda_waiting *w, bool may_poll);
/* An answer came after ns; polled: what soda_waiting_choose() had returned. */
void soda_waiting_learn(struct soda_waiting *w, bool polled, uint64_t ns);

#endif
