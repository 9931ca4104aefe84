/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/store/handed.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"

/* One memory that was handed out.  Guarded by the store's lock. */
struct soda_handed {
	struct soda_handed *next;
	int watch;
	bool gone;  /* the kernel has reported its end */
	bool ended; /* soda_handed_end() was called, with: */
	uint64_t cost;
	struct soda_account *account; /* or NULL */
	uint32_t holder;	      /* to whom it was handed out first */
};

/* Watch the memfd. Any event would do, because IN_IGNORED is reported with every watch. */
static int watch(int inotify, int fd)
{
	char path[32];
	int wd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(inotify, path, IN_MOVE_SELF);
	return wd < 0 ? -errno : wd;
}

/* Whether the kernel reports the end of a memfd. */
static bool tells(int inotify)
{
	char event[sizeof(struct inotify_event)];
	int fd = memfd_create("soda-probe", MFD_CLOEXEC);
	int wd = fd < 0 ? -errno : watch(inotify, fd);
	bool early = wd >= 0 && read(inotify, event, sizeof(event)) > 0;

	if (fd >= 0)
		close(fd);
	return wd >= 0 && !early && read(inotify, event, sizeof(event)) > 0;
}

int soda_store_watch(struct soda_store *store)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (!tells(fd)) {
		close(fd);
		return -ENOTSUP;
	}
	store->inotify = fd;
	return 0;
}

/* Memory that others keep, however much it may be, is not this holder's loss. */
static bool may_keep_locked(const struct soda_store *store, struct soda_holder holder)
{
	return soda_shares_owed(&store->kept, SODA_KEPT_MAX, holder) ||
	       soda_shares_room(&store->kept, SODA_KEPT_MAX, holder, 1, 0);
}

static int hand_out_locked(struct soda_store *store, struct soda_memory *memory,
			   struct soda_holder holder)
{
	struct soda_handed *handed;

	if (memory->handed || memory->fd < 0 || store->inotify < 0)
		return 0;
	if (!may_keep_locked(store, holder))
		return -EDQUOT;
	if (soda_shares_prepare(&store->kept, holder.number))
		return -ENOMEM;
	handed = calloc(1, sizeof(*handed));
	if (!handed)
		return -ENOMEM;
	handed->watch = watch(store->inotify, memory->fd);
	if (handed->watch < 0) {
		int r = handed->watch;

		free(handed);
		return r;
	}
	handed->holder = holder.number;
	handed->next = store->handed;
	store->handed = memory->handed = handed;
	return 0;
}

int soda_memory_hand_out(struct soda_store *store, struct soda_memory *memory,
			 struct soda_holder holder, struct soda_why *why)
{
	uint32_t kept;
	int r;

	pthread_mutex_lock(&store->lock);
	kept = store->kept.all;
	r = hand_out_locked(store, memory, holder);
	pthread_mutex_unlock(&store->lock);
	if (!r)
		return 0;
	if (r == -EDQUOT)
		soda_server_why(why,
				"clients keep the descriptors of %u regions that they have closed,"
				" of %d at most%s: the server hands out no more until some are"
				" given back",
				kept, SODA_KEPT_MAX,
				holder.number ? ", a part of which is other tenants'" : "");
	else
		soda_server_why(why, "the server cannot watch what becomes of shared memory: %s%s",
				soda_strerror(r),
				r == -ENOSPC ? "; raise fs.inotify.max_user_watches" : "");
	return -ENOMEM;
}

static void refund_locked(struct soda_store *store, uint64_t cost, struct soda_account *account)
{
	store->used -= cost;
	store->refunds++;
	for (; account; account = account->parent)
		account->used -= cost;
}

static void remove_locked(struct soda_store *store, struct soda_handed *handed)
{
	struct soda_handed **at = &store->handed;

	while (*at != handed)
		at = &(*at)->next;
	*at = handed->next;
	free(handed);
}

/*
 * No process has the memory of this watch any more.  The thread that destroys it may have closed it
 * and not called soda_handed_end() yet, which refunds it then.
 */
static void gone_locked(struct soda_store *store, int wd)
{
	struct soda_handed *handed = store->handed;

	while (handed && handed->watch != wd)
		handed = handed->next;
	if (!handed)
		return;
	handed->gone = true;
	if (!handed->ended)
		return;
	soda_shares_put(&store->kept, handed->holder, 1);
	refund_locked(store, handed->cost, handed->account);
	remove_locked(store, handed);
}

void soda_handed_settle_locked(struct soda_store *store)
{
	struct inotify_event event;
	char events[64 * sizeof(event)]; /* these events carry no names */
	ssize_t n = 0;

	while (store->kept.all && (n = read(store->inotify, events, sizeof(events))) > 0) {
		for (size_t at = 0; at < (size_t)n; at += sizeof(event) + event.len) {
			memcpy(&event, events + at, sizeof(event));
			if (event.mask & IN_IGNORED)
				gone_locked(store, event.wd);
		}
	}
}

void soda_handed_end(struct soda_store *store, struct soda_handed *handed, uint64_t cost,
		     struct soda_account *account)
{
	pthread_mutex_lock(&store->lock);
	if (handed && !handed->gone) {
		handed->ended = true;
		handed->cost = cost;
		handed->account = account;
		soda_shares_take(&store->kept, handed->holder, 1); /* prepared */
		store->kept_ns = soda_now_ns();
		soda_handed_settle_locked(store);
	} else {
		refund_locked(store, cost, account);
		if (handed)
			remove_locked(store, handed);
	}
	pthread_mutex_unlock(&store->lock);
}

void soda_account_forget(struct soda_store *store, struct soda_account *account)
{
	pthread_mutex_lock(&store->lock);
	for (struct soda_handed *at = store->handed; at; at = at->next)
		if (at->account == account)
			at->account = account->parent;
	pthread_mutex_unlock(&store->lock);
}

/* Whether to wait (on) for a refund; *ms_p: how long before the next look. */
static bool may_go_locked(const struct soda_store *store, uint64_t now, int *ms_p)
{
	uint64_t until = store->kept_ns + SODA_SERVER_LEAVING_MS * SODA_MS_NS;

	if (!store->kept.all || now >= until)
		return false;
	*ms_p = (int)((until - now) / SODA_MS_NS) + 1;
	if (*ms_p > SODA_SERVER_LEAVING_LOOK_MS)
		*ms_p = SODA_SERVER_LEAVING_LOOK_MS; /* another thread may read the event */
	return true;
}

bool soda_handed_await(struct soda_store *store, uint64_t refunds)
{
	struct pollfd p = { .fd = store->inotify, .events = POLLIN };
	bool refunded, more;
	int ms = 0;

	for (;;) {
		pthread_mutex_lock(&store->lock);
		soda_handed_settle_locked(store);
		refunded = store->refunds != refunds;
		more = may_go_locked(store, soda_now_ns(), &ms);
		pthread_mutex_unlock(&store->lock);
		if (refunded || !more)
			return refunded;
		poll(&p, 1, ms);
	}
}
