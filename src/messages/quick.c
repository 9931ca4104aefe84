/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/quick.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "messages/job.h"

enum { SPINS = 100, PAUSE_NS = 20000 };

static long barrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

void soda_quick_init(struct soda_quick *q)
{
	q->possible = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

void soda_quick_fence(void)
{
	barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); /* of one who has registered it cannot fail */
}

/* It copies one message; but its thread may have been put off its processor meanwhile. */
void soda_quick_await(const _Atomic bool *inside)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	for (unsigned i = 0; atomic_load_explicit(inside, memory_order_acquire); i++) {
		if (i < SPINS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
	}
}

void soda_quick_bar_locked(struct soda_quick *q, const void *me)
{
	const void *pusher = atomic_load_explicit(&q->pusher, memory_order_relaxed);

	if (!pusher || pusher == me || atomic_load_explicit(&q->barred, memory_order_relaxed))
		return;
	atomic_store_explicit(&q->barred, true, memory_order_relaxed);
	soda_quick_fence();
	soda_quick_await(&q->inside);
}

void soda_quick_open_locked(struct soda_quick *q)
{
	if (!q->shared && atomic_load_explicit(&q->barred, memory_order_relaxed))
		atomic_store_explicit(&q->barred, false, memory_order_release);
}

void soda_quick_enter_locked(struct soda_msg_job *job, const void *me)
{
	struct soda_quick *q = &job->quick;
	const void *pusher = atomic_load_explicit(&q->pusher, memory_order_relaxed);

	if (pusher == me || !q->possible || q->shared)
		return;
	if (!pusher) {
		atomic_store_explicit(&q->pusher, me, memory_order_relaxed);
		return;
	}
	soda_quick_bar_locked(q, me);
	soda_lanes_settle_locked(job);
	q->shared = true;
	/* it stays barred: it may have found itself the pusher just now */
	atomic_store_explicit(&q->pusher, NULL, memory_order_relaxed);
}
