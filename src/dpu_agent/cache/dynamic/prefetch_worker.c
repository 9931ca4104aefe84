/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The prefetch workers.  Each decides and fetches; with a fill that blocks, as many
 * fetches are under way as there are workers.
 */
#include <errno.h>
#include <signal.h>

#include "base/wait.h"
#include "dpu_agent/cache/dynamic/prefetch_impl.h"

void soda_prefetch_ring(struct soda_prefetch *p)
{
	/* seq_cst, as in sleep_until_rung: either we see the sleeper or it sees the bell */
	atomic_fetch_add(&p->bell, 1);
	if (atomic_load(&p->sleepers))
		soda_futex_wake(&p->bell, 1);
}

static void sleep_until_rung(struct soda_prefetch *p, uint32_t heard)
{
	atomic_fetch_add(&p->sleepers, 1);
	if (atomic_load(&p->bell) == heard)
		soda_futex_wait(&p->bell, heard, -1);
	atomic_fetch_sub(&p->sleepers, 1);
}

static bool stopping(struct soda_prefetch *p)
{
	bool stop;

	soda_lock_acquire(&p->lock);
	stop = p->stopping;
	soda_lock_release(&p->lock);
	return stop;
}

static void *work(void *arg)
{
	struct soda_prefetch *p = arg;

	for (;;) {
		/* before `stopping`: the bell that is rung after it must not have been heard yet */
		uint32_t heard = atomic_load(&p->bell);
		struct soda_fill *fill;

		if (stopping(p))
			return NULL;
		soda_prefetch_step(p);
		fill = soda_prefetch_take(p);
		if (!fill) {
			sleep_until_rung(p, heard);
			continue;
		}
		/* A fill that blocks should not be alone, where more is wanted. */
		if (!soda_prefetch_idle(p))
			soda_prefetch_ring(p);
		p->ops->fill(p->arg, fill);
	}
}

int soda_prefetch_start(struct soda_prefetch *p, unsigned workers)
{
	sigset_t all, saved;
	int err = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	for (unsigned i = 0; i < workers && i < SODA_PREFETCH_WORKERS_MAX && !err; i++) {
		err = pthread_create(&p->threads[p->workers], NULL, work, p);
		if (err)
			break;
		pthread_setname_np(p->threads[p->workers++], "soda-prefetch");
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err)
		soda_prefetch_stop(p);
	return err ? -EAGAIN : 0;
}

/* Nobody takes them any more: who waits for them is told. */
static void end_queue(struct soda_prefetch *p)
{
	struct soda_fill *fill;

	while ((fill = soda_prefetch_take(p)))
		soda_prefetch_filled(p, fill, -ECANCELED);
}

void soda_prefetch_stop(struct soda_prefetch *p)
{
	struct soda_wait wait;

	soda_lock_acquire(&p->lock);
	p->stopping = true;
	soda_lock_release(&p->lock);
	atomic_fetch_add(&p->bell, 1);
	soda_futex_wake(&p->bell, INT32_MAX);
	for (unsigned i = 0; i < p->workers; i++)
		soda_wait_join(p->threads[i], "a prefetch worker to end");
	p->workers = 0;
	end_queue(p);
	soda_wait_begin(&wait, "what is fetched ahead to come back");
	for (;;) {
		uint32_t seen = atomic_load_explicit(&p->ended, memory_order_relaxed), underway;

		soda_lock_acquire(&p->lock);
		underway = p->underway;
		soda_lock_release(&p->lock);
		if (!underway)
			break;
		soda_wait_futex(&wait, &p->ended, seen);
	}
	soda_wait_end(&wait);
}
