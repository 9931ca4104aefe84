/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/progress.h"

#include <stdatomic.h>

#include "base/lock.h"

static struct {
	_Atomic uint32_t steps; /* futex */
	_Atomic uint32_t watchers;
	_Atomic uint32_t answers;
	_Atomic int error;	   /* of the last refused WRITE */
	_Atomic uint32_t refusals; /* goes up after `error` is set */
} progress;

void soda_progress_start(void)
{
	atomic_store(&progress.steps, 0);
	atomic_store(&progress.watchers, 0);
	atomic_store(&progress.answers, 0);
	atomic_store(&progress.error, 0);
	atomic_store(&progress.refusals, 0);
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

void soda_progress_refused(int err)
{
	atomic_store(&progress.error, err);
	atomic_fetch_add(&progress.refusals, 1);
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

uint32_t soda_progress_refusals(int *error_p)
{
	uint32_t n = atomic_load(&progress.refusals);

	*error_p = atomic_load(&progress.error);
	return n;
}
