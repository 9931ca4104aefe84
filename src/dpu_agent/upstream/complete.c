/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/upstream/complete.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/api/spin.h"

enum { EVENTS = 32 };

#define SPIN_NS 60000 /* how long a completer polls for the next answer */

struct soda_completer {
	struct soda_completers *all;
	pthread_t thread;
	int epoll;
	int wake_fd; /* eventfd: wakes it to stop, or to forget a channel */
	_Atomic bool stop;
	_Atomic bool expecting; /* soda_completer_expect_locked() */
	pthread_mutex_t lock;
	pthread_cond_t forgotten;
	/*
	 * guarded by lock: soda_completer_forget() counts `asked` up and waits until turns is as
	 * high, because a turn that ends after that has begun after the channel left epoll
	 */
	uint64_t turns, asked;
};

static void wake(struct soda_completer *k)
{
	uint64_t one = 1;

	if (write(k->wake_fd, &one, sizeof(one)) < 0)
		soda_log_error("a completer cannot be woken: %s", soda_strerror(errno));
}

/*
 * One epoll_wait() and its events.  A channel in these events may be used until the turn ends, also
 * if soda_completer_forget() has begun meanwhile, which waits for that.
 */
static bool turn(struct soda_completer *k, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	bool found = false;
	uint64_t count;
	int n = epoll_wait(k->epoll, events, EVENTS, timeout_ms);

	for (int i = 0; i < n; i++)
		if (events[i].data.ptr)
			found = k->all->collect(events[i].data.ptr) || found;
		else if (read(k->wake_fd, &count, sizeof(count)) < 0)
			continue;
	pthread_mutex_lock(&k->lock);
	if (k->turns < k->asked) {
		k->turns = k->asked;
		pthread_cond_broadcast(&k->forgotten);
	}
	pthread_mutex_unlock(&k->lock);
	return found;
}

static void *completer_main(void *arg)
{
	struct soda_completer *k = arg;
	struct soda_spin spin;

	pthread_setname_np(pthread_self(), "soda-complete");
	soda_spin_init(&spin, &k->all->polling);
	while (!atomic_load(&k->stop)) {
		bool found = false;

		if (atomic_load_explicit(&k->expecting, memory_order_relaxed) &&
		    soda_spin_begin(&spin, SPIN_NS)) {
			do {
				found = turn(k, 0);
			} while (!found && soda_spin_again(&spin));
			soda_spin_end(&spin, found);
		}
		/* the turns above may have consumed the wake-up that came with `stop` */
		if (!found && !atomic_load(&k->stop))
			turn(k, -1);
	}
	return NULL;
}

static int start_one(struct soda_completers *all, struct soda_completer *k)
{
	struct epoll_event ev = { .events = EPOLLIN };

	k->all = all;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->forgotten, NULL);
	k->epoll = epoll_create1(EPOLL_CLOEXEC);
	k->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->epoll < 0 || k->wake_fd < 0 ||
	    epoll_ctl(k->epoll, EPOLL_CTL_ADD, k->wake_fd, &ev) < 0)
		return -errno;
	return -pthread_create(&k->thread, NULL, completer_main, k);
}

static void end_one(struct soda_completer *k)
{
	if (k->epoll >= 0)
		close(k->epoll);
	if (k->wake_fd >= 0)
		close(k->wake_fd);
	pthread_cond_destroy(&k->forgotten);
	pthread_mutex_destroy(&k->lock);
}

int soda_completers_start(struct soda_completers *all, unsigned n,
			  bool (*collect)(struct soda_channel *c))
{
	*all = (struct soda_completers){ .at = calloc(n ? n : 1, sizeof(*all->at)),
					 .collect = collect };
	if (!all->at)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		int ret = start_one(all, &all->at[i]);

		if (ret < 0) {
			end_one(&all->at[i]);
			return ret;
		}
		all->n++;
	}
	return 0;
}

void soda_completers_stop(struct soda_completers *all)
{
	for (unsigned i = 0; i < all->n; i++) {
		atomic_store(&all->at[i].stop, true);
		wake(&all->at[i]);
		soda_wait_join(all->at[i].thread, "a completer to end");
		end_one(&all->at[i]);
	}
	free(all->at);
	*all = (struct soda_completers){ .at = NULL };
}

int soda_completer_watch(struct soda_completers *all, struct soda_channel *c)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };
	struct soda_completer *k = &all->at[atomic_fetch_add(&all->next, 1) % all->n];

	if (epoll_ctl(k->epoll, EPOLL_CTL_ADD, soda_conn_fd(c->conn), &ev) < 0)
		return -errno;
	pthread_mutex_lock(&c->lock);
	c->completer = k;
	c->watched = true;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void watch_locked(struct soda_channel *c, bool watched)
{
	struct epoll_event ev = { .events = EPOLLRDHUP | (watched ? EPOLLIN : 0), .data.ptr = c };

	if (!c->completer || c->watched == watched || !c->conn || c->failed)
		return;
	c->watched = watched;
	if (epoll_ctl(c->completer->epoll, EPOLL_CTL_MOD, soda_conn_fd(c->conn), &ev) < 0)
		soda_log_error("a channel cannot be watched: %s", soda_strerror(errno));
}

void soda_completer_pause_locked(struct soda_channel *c)
{
	watch_locked(c, false);
}

void soda_completer_resume_locked(struct soda_channel *c)
{
	watch_locked(c, true);
}

void soda_completer_failed_locked(struct soda_channel *c)
{
	if (!c->completer || !c->conn || c->failed)
		return;
	c->failed = true;
	epoll_ctl(c->completer->epoll, EPOLL_CTL_DEL, soda_conn_fd(c->conn), NULL);
}

void soda_completer_forget(struct soda_channel *c)
{
	struct soda_completer *k = c->completer;
	struct soda_wait wait;
	uint64_t mine;

	if (!k)
		return;
	pthread_mutex_lock(&c->lock);
	c->completer = NULL;
	pthread_mutex_unlock(&c->lock);
	epoll_ctl(k->epoll, EPOLL_CTL_DEL, soda_conn_fd(c->conn), NULL);
	soda_wait_begin(&wait, "a completer to forget a channel");
	pthread_mutex_lock(&k->lock);
	mine = ++k->asked;
	wake(k);
	while (k->turns < mine)
		soda_wait_turn(&wait, &k->forgotten, &k->lock);
	pthread_mutex_unlock(&k->lock);
	soda_wait_end(&wait);
}

void soda_completer_expect_locked(struct soda_channel *c, bool polling)
{
	if (c->completer)
		atomic_store_explicit(&c->completer->expecting, polling, memory_order_relaxed);
}
