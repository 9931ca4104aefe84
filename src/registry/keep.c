/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry/keep.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "registry/etcd.h"

struct soda_registry_keeper {
	struct soda_registry_name name;
	struct soda_etcd *etcd;
	void (*describe)(void *arg, struct soda_registry_member *member);
	void *arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool over; /* guarded by lock */

	/* The thread's own. */
	char lease[SODA_ETCD_LEASE];	     /* "": there is none */
	uint64_t renewed_ms;		     /* when the lease last was */
	uint64_t written_ms;		     /* when the key last was; 0: not with this lease */
	struct soda_registry_member written; /* what it says then */
	bool away;			     /* the last step has failed, and the log has said so */
	bool said;			     /* that the key is there */
};

/* What is there is another thing to programs; how much is free alone is told less often. */
static bool differs(const struct soda_registry_member *a, const struct soda_registry_member *b)
{
	return strcmp(a->address, b->address) || strcmp(a->domain, b->domain) ||
	       a->capacity != b->capacity || a->state != b->state;
}

static bool to_be_written(const struct soda_registry_keeper *k,
			  const struct soda_registry_member *now)
{
	if (!k->written_ms || differs(now, &k->written))
		return true;
	return now->free_bytes != k->written.free_bytes &&
	       soda_now_ms() - k->written_ms >= SODA_REGISTRY_FREE_MS;
}

static int write_key(struct soda_registry_keeper *k, struct soda_why *why)
{
	struct soda_registry_member member = { .address = "" };
	char key[SODA_REGISTRY_KEY], *value;
	int ret;

	k->describe(k->arg, &member);
	if (!to_be_written(k, &member))
		return 0;
	value = soda_registry_encode(&member);
	if (!value)
		return soda_registry_fail(why, -ENOMEM, "no memory for the server's key");
	soda_registry_key(&k->name, member.instance, key);
	ret = soda_etcd_put(k->etcd, key, value, k->lease, why);
	free(value);
	if (!ret) {
		k->written = member;
		k->written_ms = soda_now_ms();
	}
	return ret;
}

struct key_look {
	const char *value; /* as it was written */
	bool found;
};

static void compare_key(void *arg, const char *value, size_t bytes)
{
	struct key_look *look = arg;

	look->found = strlen(look->value) == bytes && !memcmp(look->value, value, bytes);
}

/* Have the key written again if somebody has deleted or changed it. */
static int look_at_key(struct soda_registry_keeper *k, struct soda_why *why)
{
	char key[SODA_REGISTRY_KEY], *value = soda_registry_encode(&k->written);
	struct key_look look = { .value = value };
	int ret;

	if (!value)
		return soda_registry_fail(why, -ENOMEM, "no memory for the server's key");
	soda_registry_key(&k->name, k->written.instance, key);
	ret = soda_etcd_list(k->etcd, key, compare_key, &look, why);
	free(value);
	if (ret == -EACCES)
		return 0; /* etcd's user may write the key and not read it */
	if (!ret && !look.found) {
		soda_log_warning("pool %s: somebody has deleted or changed the server's key in "
				 "etcd; it is written again (to take the server out: soda pool "
				 "drain)",
				 k->name.pool);
		k->written_ms = 0;
	}
	return ret;
}

static int keep_lease(struct soda_registry_keeper *k, struct soda_why *why)
{
	uint64_t now = soda_now_ms();
	int ret = 0;

	if (!*k->lease) {
		ret = soda_etcd_grant(k->etcd, SODA_REGISTRY_LEASE_S, k->lease, why);
		k->written_ms = 0;
	} else if (now - k->renewed_ms >= SODA_REGISTRY_RENEW_MS) {
		ret = soda_etcd_renew(k->etcd, k->lease, why);
	} else {
		return 0;
	}
	if (!ret)
		k->renewed_ms = now;
	if (!ret && k->written_ms)
		ret = look_at_key(k, why);
	return ret;
}

/* Log what has changed, once. */
static void tell(struct soda_registry_keeper *k, int ret, const struct soda_why *why)
{
	if (ret == -ECANCELED)
		return;
	if (ret && !k->away)
		soda_log_warning("pool %s: the server's key is not in etcd, or its lease ends, and "
				 "programs that begin do not find the server: %s; it goes on, and "
				 "tries again",
				 k->name.pool, why->text);
	else if (!ret && (k->away || !k->said))
		soda_log_info("pool %s: registered in etcd, as %s", k->name.pool,
			      k->written.address);
	k->away = ret;
	k->said = k->said || !ret;
}

static void step(struct soda_registry_keeper *k)
{
	struct soda_why why = { "" };
	int ret = keep_lease(k, &why);

	if (!ret)
		ret = write_key(k, &why);
	if (ret == -ENOENT) {
		/* it has ended while etcd was away, or this machine stood still: with the next step
		   there is a new one */
		k->lease[0] = '\0';
		return;
	}
	tell(k, ret, &why);
}

/* False: the server ends. */
static bool pause_between(struct soda_registry_keeper *k)
{
	struct timespec at = soda_wait_until(SODA_REGISTRY_LOOK_MS);
	bool over;

	pthread_mutex_lock(&k->lock);
	while (!k->over && !pthread_cond_timedwait(&k->changed, &k->lock, &at))
		;
	over = k->over;
	pthread_mutex_unlock(&k->lock);
	return !over;
}

static void *run(void *arg)
{
	struct soda_registry_keeper *k = arg;
	struct soda_why why;

	pthread_setname_np(pthread_self(), "soda-registry");
	do
		step(k);
	while (pause_between(k));
	soda_etcd_stop(k->etcd, false);
	if (*k->lease)
		soda_etcd_revoke(k->etcd, k->lease, &why);
	return NULL;
}

static void destroy(struct soda_registry_keeper *k)
{
	pthread_cond_destroy(&k->changed);
	pthread_mutex_destroy(&k->lock);
	soda_etcd_close(k->etcd);
	free(k);
}

int soda_registry_keep_start(const struct soda_registry_name *name,
			     const struct soda_registry_login *login,
			     void (*describe)(void *arg, struct soda_registry_member *member),
			     void *arg, struct soda_registry_keeper **keeper_p,
			     struct soda_why *why)
{
	struct soda_registry_keeper *k = calloc(1, sizeof(*k));
	int ret;

	if (!k)
		return soda_registry_fail(why, -ENOMEM, "no memory for a registry");
	k->name = *name;
	k->describe = describe;
	k->arg = arg;
	pthread_mutex_init(&k->lock, NULL);
	soda_cond_init(&k->changed);
	ret = soda_etcd_open(name, login, &k->etcd, why);
	if (!ret) {
		ret = -pthread_create(&k->thread, NULL, run, k);
		if (ret)
			soda_registry_fail(why, ret, "no thread for a registry: %s",
					   soda_strerror(ret));
	}
	if (ret)
		destroy(k);
	else
		*keeper_p = k;
	return ret;
}

void soda_registry_keep_stop(struct soda_registry_keeper *k)
{
	struct timespec until;

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->over = true;
	soda_etcd_stop(k->etcd, true);
	pthread_cond_signal(&k->changed);
	pthread_mutex_unlock(&k->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += SODA_REGISTRY_LEAVE_MS / 1000;
	if (pthread_timedjoin_np(k->thread, NULL, &until)) {
		soda_etcd_stop(k->etcd, true);
		pthread_join(k->thread, NULL);
	}
	destroy(k);
}
