/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/dynamic/workers.h"

#include <errno.h>
#include <signal.h>

#include "base/lock.h"
#include "base/limits.h"
#include "base/wait.h"

static uint64_t rest_ns(const struct soda_workers *w)
{
	return (w->rest_ms ? w->rest_ms : SODA_WORKERS_REST_MS) * SODA_MS_NS;
}

void soda_workers_ring(struct soda_workers *w)
{
	/* seq_cst, as in sleep_until_rung: either we see the sleeper or it sees the bell */
	atomic_fetch_add(&w->bell, 1);
	if (atomic_load(&w->sleepers))
		soda_futex_wake(&w->bell, 1);
}

/* A thread beyond the least number looks again after a rest whether it is needed. */
static void sleep_until_rung(struct soda_workers *w, uint32_t heard, bool more)
{
	atomic_fetch_add(&w->sleepers, 1);
	if (atomic_load(&w->bell) == heard)
		soda_futex_wait(&w->bell, heard, more ? (int64_t)rest_ns(w) : -1);
	atomic_fetch_sub(&w->sleepers, 1);
}

/* The thread has nothing to do.  True: it is to end; else *more_p: it might, later. */
static bool ends(struct soda_workers *w, struct soda_worker *me, bool *more_p)
{
	uint64_t now = soda_now_ns();

	pthread_mutex_lock(&w->lock);
	*more_p = w->alive > w->least;
	/* the last one that is free stays */
	me->ended = *more_p && w->alive - w->blocked > 1 && now - w->short_ns >= rest_ns(w);
	w->alive -= me->ended;
	pthread_mutex_unlock(&w->lock);
	return me->ended;
}

static bool stopping(struct soda_workers *w)
{
	bool stopping;

	pthread_mutex_lock(&w->lock);
	stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

static void *work(void *arg)
{
	struct soda_worker *me = arg;
	struct soda_workers *w = me->all;

	for (;;) {
		/* before `stopping`: the bell that is rung after it must not have been heard yet */
		uint32_t heard = atomic_load(&w->bell);
		bool more;

		if (stopping(w))
			return NULL;
		if (w->turn(w->arg))
			continue;
		if (ends(w, me, &more))
			return NULL;
		sleep_until_rung(w, heard, more);
	}
}

/* A place for one more thread.  One that has ended by itself is joined, which does not wait. */
static struct soda_worker *place_locked(struct soda_workers *w)
{
	for (struct soda_worker *k = w->at; k < w->at + SODA_WORKERS_MAX; k++) {
		if (k->used && k->ended) {
			pthread_join(k->thread, NULL);
			k->used = false;
		}
		if (!k->used)
			return k;
	}
	return NULL;
}

/* The lock is held so that the new thread finds its place filled in. */
static int spawn_locked(struct soda_workers *w)
{
	struct soda_worker *k = place_locked(w);
	sigset_t all, saved;
	int err;

	if (!k)
		return -EAGAIN;
	k->all = w;
	k->ended = false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	err = pthread_create(&k->thread, NULL, work, k);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err)
		return -EAGAIN;
	pthread_setname_np(k->thread, w->name);
	k->used = true;
	w->alive++;
	return 0;
}

void soda_workers_block(struct soda_workers *w)
{
	pthread_mutex_lock(&w->lock);
	if (++w->blocked == w->alive) {
		w->short_ns = soda_now_ns();
		if (w->alive < w->most && !w->stopping)
			spawn_locked(w);
	}
	pthread_mutex_unlock(&w->lock);
}

void soda_workers_unblock(struct soda_workers *w)
{
	pthread_mutex_lock(&w->lock);
	w->blocked--;
	pthread_mutex_unlock(&w->lock);
}

int soda_workers_start(struct soda_workers *w)
{
	int ret = 0;

	pthread_mutex_init(&w->lock, NULL);
	w->started = true;
	pthread_mutex_lock(&w->lock);
	while (!ret && w->alive < w->least)
		ret = spawn_locked(w);
	pthread_mutex_unlock(&w->lock);
	if (ret)
		soda_workers_stop(w);
	return ret;
}

void soda_workers_stop(struct soda_workers *w)
{
	if (!w->started)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_mutex_unlock(&w->lock);
	atomic_fetch_add(&w->bell, 1);
	soda_futex_wake(&w->bell, INT32_MAX);
	for (struct soda_worker *k = w->at; k < w->at + SODA_WORKERS_MAX; k++) {
		if (k->used) /* no thread is started any more */
			soda_wait_join(k->thread, "a worker to end");
		k->used = false;
	}
	w->alive = 0;
	w->started = false;
	pthread_mutex_destroy(&w->lock);
}

unsigned soda_workers_count(struct soda_workers *w)
{
	unsigned n;

	pthread_mutex_lock(&w->lock);
	n = w->alive;
	pthread_mutex_unlock(&w->lock);
	return n;
}
