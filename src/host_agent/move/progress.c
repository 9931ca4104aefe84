/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/writeback.h"

#include <stdatomic.h>

#include "base/lock.h"

static struct {
	_Atomic uint32_t steps; /* futex */
	_Atomic uint32_t watchers;
	_Atomic uint32_t answers;
} progress;

void soda_progress_start(void)
{
	atomic_store(&progress.steps, 0);
	atomic_store(&progress.watchers, 0);
	atomic_store(&progress.answers, 0);
}

void soda_progress_tell(void)
{
	atomic_fetch_add(&progress.steps, 1);
	if (atomic_load(&progress.watchers))
		soda_futex_wake(&progress.steps, INT32_MAX);
}

void soda_progress_answered(void)
{
	atomic_fetch_add(&progress.answers, 1);
	soda_progress_tell();
}

uint32_t soda_progress_seen(void)
{
	return atomic_load(&progress.steps);
}

void soda_progress_await(uint32_t seen, int64_t timeout_ns)
{
	atomic_fetch_add(&progress.watchers, 1);
	soda_futex_wait(&progress.steps, seen, timeout_ns);
	atomic_fetch_sub(&progress.watchers, 1);
}

uint32_t soda_progress_answers(void)
{
	return atomic_load(&progress.answers);
}
