/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread that etcd tells of changes of a pool's members, or that asks again and again. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "registry/etcd.h"
#include "registry/registry.h"

struct soda_registry_follower {
	struct soda_registry_name name;
	bool leaving;
	void (*changed)(void *arg, const struct soda_members *now);
	void *arg;
	struct soda_etcd *watch, *ask; /* two, as the first is busy while it tells */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ends;
	bool over; /* guarded by the lock */
	/* the thread's own */
	uint64_t looked_ms;
	struct soda_members last, now;
};

/* Until that time, of soda_now_ms(). False: the follower ends. */
static bool pause_until(struct soda_registry_follower *f, uint64_t then_ms)
{
	uint64_t now = soda_now_ms();
	struct timespec at = soda_wait_until(then_ms > now ? (int)(then_ms - now) : 0);
	bool over;

	pthread_mutex_lock(&f->lock);
	while (!f->over && !pthread_cond_timedwait(&f->ends, &f->lock, &at))
		;
	over = f->over;
	pthread_mutex_unlock(&f->lock);
	return !over;
}

static bool differ(const struct soda_members *a, const struct soda_members *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; same && i < a->n; i++)
		same = !strcmp(a->address[i], b->address[i]);
	return !same;
}

/*
 * Servers tell what they have free in a row, each for itself: one look for all of that.  Where etcd
 * has no answer, or no server, all stays as it is.
 */
static void look(void *arg)
{
	struct soda_registry_follower *f = arg;
	struct soda_why ignored;

	if (f->looked_ms && !pause_until(f, f->looked_ms + SODA_REGISTRY_WATCH_MS))
		return;
	f->looked_ms = soda_now_ms();
	if (soda_registry_ask(f->ask, &f->name, f->leaving, &f->last, &f->now, &ignored) ||
	    !differ(&f->now, &f->last))
		return;
	f->last = f->now;
	f->changed(f->arg, &f->last);
}

static void *run(void *arg)
{
	struct soda_registry_follower *f = arg;
	char prefix[SODA_REGISTRY_KEY];
	struct soda_why ignored;

	pthread_setname_np(pthread_self(), "soda-registry");
	soda_registry_prefix(&f->name, prefix);
	while (pause_until(f, 0))
		if (soda_etcd_watch(f->watch, prefix, SODA_REGISTRY_STREAM_MS, look, f, &ignored))
			look(f);
	return NULL;
}

static void destroy(struct soda_registry_follower *f)
{
	soda_etcd_close(f->watch);
	soda_etcd_close(f->ask);
	pthread_cond_destroy(&f->ends);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* With all signals blocked: they are for the process's other threads. */
static int start_thread(struct soda_registry_follower *f)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = -pthread_create(&f->thread, NULL, run, f);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

int soda_registry_follow(const char *text, const struct soda_registry_login *login, bool leaving,
			 const struct soda_members *known,
			 void (*changed)(void *arg, const struct soda_members *now), void *arg,
			 struct soda_registry_follower **follower_p, struct soda_why *why)
{
	struct soda_registry_follower *f = calloc(1, sizeof(*f));
	int ret;

	if (!f)
		return soda_registry_fail(why, -ENOMEM, "no memory to follow a registry");
	pthread_mutex_init(&f->lock, NULL);
	soda_cond_init(&f->ends);
	f->leaving = leaving;
	f->changed = changed;
	f->arg = arg;
	if (known)
		f->last = *known;
	ret = soda_registry_parse(text, &f->name, why);
	if (!ret)
		ret = soda_etcd_open(&f->name, login, &f->watch, why);
	if (!ret)
		ret = soda_etcd_open(&f->name, login, &f->ask, why);
	if (!ret) {
		ret = start_thread(f);
		if (ret)
			soda_registry_fail(why, ret, "no thread to follow a registry: %s",
					   soda_strerror(ret));
	}
	if (ret)
		destroy(f);
	else
		*follower_p = f;
	return ret;
}

void soda_registry_unfollow(struct soda_registry_follower *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	f->over = true;
	pthread_cond_signal(&f->ends);
	pthread_mutex_unlock(&f->lock);
	soda_etcd_stop(f->watch, true);
	soda_etcd_stop(f->ask, true);
	pthread_join(f->thread, NULL);
	destroy(f);
}
