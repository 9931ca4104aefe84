/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pushing by several threads of one rank: each has buffers of its own, one for each rank that
 * messages go to, and pushes into these without the job's lock.  What is in them goes to the lanes
 * (job.h) under the lock, many messages at once: when a buffer is full, by its thread; when the
 * first of them has waited for its time, by the sender; when the program has what it has pushed
 * sent, by the thread that asks for it.  A rank's only pushing thread has none of this, and pushes
 * into lanes (quick.h).
 *
 * A thread that touches another's buffers holds the lock, and bars all threads from theirs, as
 * quick.h has it: a thread says that it is inside, and looks whether it is barred, and the kernel's
 * barrier in all threads is paid by the other side alone.  Who finds itself barred takes the lock.
 * A thread's first message after its buffers were emptied is pushed with the lock, too, so that the
 * sender knows when it is due.
 *
 * Nobody frees a thread's buffers before the job ends; a thread that ends leaves what is in them,
 * and the next one that the C library puts into its place has them.
 */
#ifndef SODA_MESSAGES_GATHER_H
#define SODA_MESSAGES_GATHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SODA_GATHER_BYTES = 2048,  /* of a thread's buffer for one rank */
	SODA_GATHER_MOST = 256,	   /* bytes of a message that goes through it */
	SODA_GATHER_THREADS = 256, /* with buffers; more push with the lock */
};

struct soda_msg_job;
struct soda_gather; /* a thread's buffers */

/* Of a job. Guarded by its lock, but for `barred`, which is written under it. */
struct soda_gathers {
	struct soda_gather *all;
	unsigned n;
	uint64_t since_ns; /* the oldest message in any of them; 0: there is none */
	_Atomic bool barred;
};

/*
 * A message without the lock, into the calling thread's own buffer.  False: it is to be pushed with
 * the lock, for whatever reason.  The caller has checked that it is in the job's process.
 */
bool soda_gather_push(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes);
/*
 * The same with the lock, of at most SODA_GATHER_MOST bytes.  1: it is in the thread's buffer;
 * 0: the thread has none, for want of memory; -EAGAIN: the buffer is full, and its lane has no
 * room.
 */
int soda_gather_push_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
			    uint32_t size);
/*
 * All that all threads have pushed goes to the lanes, as far as there is room; what has none is due
 * again after a millisecond, or the time that messages wait, if that is shorter.
 */
void soda_gathers_empty_locked(struct soda_msg_job *job);
/* When the oldest message is due; UINT64_MAX: there is none. */
uint64_t soda_gathers_due_locked(const struct soda_msg_job *job);
/* Messages in them, and their bytes, which the job's statistics do not count yet. */
void soda_gathers_count_locked(struct soda_msg_job *job, uint64_t *messages_p, uint64_t *bytes_p);
/*
 * From here on every push takes the lock, and finds what is to be known there, until
 * soda_gathers_open_locked(), which does nothing while the job has an error or this rank has
 * finished.
 */
void soda_gathers_bar_locked(struct soda_msg_job *job);
void soda_gathers_open_locked(struct soda_msg_job *job);
/* At the end of the job. */
void soda_gathers_free(struct soda_gathers *g);

#endif
