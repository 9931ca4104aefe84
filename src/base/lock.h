/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mutex on a futex: one word, no allocation.  Async-signal-safe if every holder has blocked the
 * signals whose handlers may take the same lock (in the SIGBUS handler all are blocked).
 *
 * Locks are taken in ascending order of their ranks, two of one rank only by soda_lock_try(); debug
 * builds check that.
 */
#ifndef SODA_BASE_LOCK_H
#define SODA_BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

enum soda_lock_rank {
	SODA_RANK_API = 1,	 /* runtime start and end, object table (regions) */
	SODA_RANK_REGIONS = 2,	 /* which objects there are */
	SODA_RANK_SESSION = 3,	 /* control connection */
	SODA_RANK_CHANNEL = 4,	 /* one data connection and its staging slots */
	SODA_RANK_SHARD = 5,	 /* one shard of the replacement policy */
	SODA_RANK_WRITEBACK = 6, /* write-back queue */
	SODA_RANK_STUCK = 7,	 /* requests that a stopped peer may still answer into our memory */
	SODA_RANK_PINS = 8,	 /* which PINs are under way */
	SODA_RANK_HELD = 9,	 /* which chunks are held, and how often */
	SODA_RANK_VIEWS = 10,	 /* what children of forks may ask for; in a child: who asks */
	SODA_RANK_READERS = 11,	 /* the children that may ask */

	/* The DPU agent's caches. */
	SODA_RANK_DPU_POLICY = 17, /* owners, the policy, what is to be fetched */
	SODA_RANK_DPU_RECENT = 18, /* recent list */
	SODA_RANK_DPU_CACHE = 19,  /* one shard of the dynamic cache's table */

	/* The transports. */
	SODA_RANK_NAMES = 20, /* what names are known */
};

struct soda_lock {
	_Atomic uint32_t word; /* 0 free, 1 held, 2 held and a thread may wait */
	uint32_t rank;	       /* enum soda_lock_rank; set before start, then constant */
};

#define SODA_LOCK_INIT(r)                                                                          \
	{                                                                                          \
		.word = 0, .rank = (r)                                                             \
	}

void soda_lock_init(struct soda_lock *lock, enum soda_lock_rank rank);
bool soda_lock_try(struct soda_lock *lock);
void soda_lock_acquire(struct soda_lock *lock);
/* false when deadline_ns (CLOCK_MONOTONIC) passes first. */
bool soda_lock_acquire_until(struct soda_lock *lock, uint64_t deadline_ns);
void soda_lock_release(struct soda_lock *lock);
/*
 * The ranks of which the calling thread holds a lock, a bit each: in a signal handler, also those
 * that it has interrupted the holder of.  A handler that comes within acquire or release may find a
 * lock that it cannot get and no bit: it takes none without a deadline.  AS.
 */
uint32_t soda_lock_mine(void);

/*
 * A futex on a 32-bit word of this process; errno is kept.  timeout_ns < 0: no limit.  0: woken, or
 * spurious; -EAGAIN: *word != expected; -ETIMEDOUT.
 */
int soda_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
void soda_futex_wake(_Atomic uint32_t *word, int count);
/* The same on a word in memory that processes share. */
int soda_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
void soda_futex_wake_shared(_Atomic uint32_t *word, int count);

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t soda_now_ns(void);
static inline uint64_t soda_now_ms(void)
{
	return soda_now_ns() / 1000000;
}

/*
 * A wait of at most asked_ns took took_ns.  If that is SODA_STILL_MS more or longer the process
 * stood still (stopped, frozen, swapped out), and the time took_ns is returned, which no time-out
 * counts; else 0.
 */
static inline uint64_t soda_stood_still(uint64_t asked_ns, uint64_t took_ns)
{
	return took_ns <= asked_ns + SODA_STILL_MS * SODA_MS_NS ? 0 : took_ns;
}

static inline void soda_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
