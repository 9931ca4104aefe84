/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pushing without the job's lock.
 *
 * The first thread that pushes is the job's pusher, until another thread pushes: from then on there
 * is none, and each thread has buffers of its own (gather.h).  The pusher has runs of its own:
 * where the next message of a lane goes, of which size, and for how many there is room; as long as
 * the run has room a push is a copy and two additions.
 *
 * All others who want to touch what the pusher may (they hold the lock) bar it first: they say so,
 * make the kernel put a barrier into every running thread of the process (membarrier(2)), and wait
 * until it is not inside.  The pusher says that it is inside, and looks whether it is barred; a
 * barrier between the two it needs none of its own, because the other side has it.  Whom it finds
 * barred takes the lock.  So the pusher, which does this a hundred million times a second, pays
 * two stores, and those who seldom bar it a system call.
 */
#ifndef SODA_MESSAGES_QUICK_H
#define SODA_MESSAGES_QUICK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SODA_QUICK_MOST = 4096 }; /* bytes of a message, which lies in two pages at most */

/* Of a lane. The pusher's, or of who holds the lock and has barred it. */
struct soda_quick_run {
	uint8_t *at;
	uint32_t size;
	uint32_t left;	/* so many messages more have room; 0: push with the lock */
	uint32_t armed; /* `left` when this began: the difference is not counted in the lane yet */
};

struct soda_quick {
	_Atomic(const void *) pusher; /* what names its thread; written under the lock */
	_Atomic bool inside;	      /* the pusher's */
	_Atomic bool barred;	      /* written under the lock */
	bool possible;		      /* set before start: the kernel has that barrier */
	bool shared;		      /* several threads push: there is no pusher any more */
};

struct soda_msg_job;

/* Before start. */
void soda_quick_init(struct soda_quick *q);
/* The caller, named so, pushes with the lock, and touches runs: it is the pusher, or nobody is. */
void soda_quick_enter_locked(struct soda_msg_job *job, const void *me);
/* The caller touches runs: the pusher keeps out, until soda_quick_open_locked(). May be repeated.
 */
void soda_quick_bar_locked(struct soda_quick *q, const void *me);
void soda_quick_open_locked(struct soda_quick *q);
/* A barrier in all running threads of this process, where it is `possible`. */
void soda_quick_fence(void);
/* Until the thread that says so is not inside. */
void soda_quick_await(const _Atomic bool *inside);

/*
 * Whether the pusher may put a message of this size into the run, which it has to itself until
 * soda_quick_end().
 */
static inline bool soda_quick_begin(struct soda_quick *q, const struct soda_quick_run *run,
				    size_t bytes)
{
	atomic_store_explicit(&q->inside, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* the other side has the processor's */
	return !atomic_load_explicit(&q->barred, memory_order_acquire) && run->left &&
	       run->size == bytes;
}

static inline void soda_quick_end(struct soda_quick *q)
{
	atomic_store_explicit(&q->inside, false, memory_order_release);
}

/* By the pusher, a message of 8 bytes, the most frequent case, without the lock. False: with it. */
static inline bool soda_quick_push_word(struct soda_quick *q, struct soda_quick_run *run,
					const void *data)
{
	uint64_t word;
	bool may;

	/* read first: a page that has to be fetched is waited for while nobody waits for this */
	memcpy(&word, data, sizeof(word));
	may = soda_quick_begin(q, run, sizeof(word));
	if (may) {
		memcpy(run->at, &word, sizeof(word));
		run->at += sizeof(word);
		run->left--;
	}
	soda_quick_end(q);
	return may;
}

/* The same of any size. */
static inline bool soda_quick_push(struct soda_quick *q, struct soda_quick_run *run,
				   const void *data, size_t bytes)
{
	bool may;

	if (bytes > SODA_QUICK_MOST)
		return false;
	if (bytes) { /* as above */
		(void)*(const volatile uint8_t *)data;
		(void)*((const volatile uint8_t *)data + bytes - 1);
	}
	may = soda_quick_begin(q, run, bytes);
	if (may) {
		if (bytes)
			memcpy(run->at, data, bytes);
		run->at += bytes;
		run->left--;
	}
	soda_quick_end(q);
	return may;
}

#endif
