/* SPDX-License-Identifier: BSD-3-Clause */
/* Data workers: threads, mailboxes, and which worker gets a connection. */
#include "transport/listen/worker.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/stream/stream.h"
#include "trust/proof.h"

static void *worker_main(void *arg)
{
	struct soda_worker *w = arg;

	pthread_setname_np(pthread_self(), "soda-data");
	soda_spin_init(&w->spin, &w->listener->polling);
	if (w->listener->opt.engine == SODA_ENGINE_EPOLL || soda_engine_uring(w) == -ENOTSUP)
		soda_engine_epoll(w);
	return NULL;
}

static void wake(struct soda_worker *w)
{
	uint64_t one = 1;

	if (write(w->wake_fd, &one, sizeof(one)) < 0)
		soda_log_error("a data worker cannot be woken: %s", soda_strerror(errno));
}

/* A timer for the looks at connections that may be stuck. Negative: -errno. */
static int look_timer(const struct soda_listener *l)
{
	uint64_t ns = (uint64_t)l->opt.stuck_timeout_ms * SODA_MS_NS / SODA_STUCK_LOOKS;
	struct timespec each = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	struct itimerspec times = { .it_interval = each, .it_value = each };
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	timerfd_settime(fd, 0, &times, NULL);
	return fd;
}

static int open_fds(struct soda_worker *w)
{
	int ret;

	w->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (w->wake_fd < 0)
		return errno;
	w->look_fd = look_timer(w->listener);
	if (w->look_fd >= 0)
		return 0;
	ret = -w->look_fd;
	close(w->wake_fd);
	return ret;
}

static void close_fds(struct soda_worker *w)
{
	close(w->look_fd);
	close(w->wake_fd);
}

static int stream_start(struct soda_listener *l, void **worker_p)
{
	struct soda_worker *w = calloc(1, sizeof(*w));
	int ret;

	if (!w)
		return -ENOMEM;
	w->listener = l;
	w->held_end = &w->held;
	w->round = 1;
	soda_home_init(&w->home, &l->homes, l->workers_n);
	pthread_mutex_init(&w->lock, NULL);
	ret = open_fds(w);
	if (!ret) {
		ret = pthread_create(&w->thread, NULL, worker_main, w);
		if (ret)
			close_fds(w);
	}
	if (ret) {
		pthread_mutex_destroy(&w->lock);
		free(w);
		return -ret;
	}
	*worker_p = w;
	return 0;
}

static void stream_stop(void *worker)
{
	struct soda_worker *w = worker;

	atomic_store(&w->stop, true);
	wake(w);
	soda_wait_join(w->thread, "a worker to end");
	/* the thread that answered last may be about to leave the lock */
	pthread_mutex_lock(&w->lock);
	pthread_mutex_unlock(&w->lock);
	close_fds(w);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Shares */

static int join_share(struct soda_worker *w, struct soda_stream_conn *c)
{
	struct soda_flow_share *s = w->shares;

	while (s && s->flow != c->flow)
		s = s->next;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->flow = c->flow;
		s->next = w->shares;
		w->shares = s;
	}
	s->conns++;
	c->share = s;
	return 0;
}

static void leave_share(struct soda_worker *w, struct soda_stream_conn *c)
{
	struct soda_flow_share **at = &w->shares, *s = c->share;

	if (!s || --s->conns)
		return;
	soda_flow_share_rest(s);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
}

struct soda_stream_conn *soda_worker_take(struct soda_worker *w)
{
	struct soda_stream_conn *c;

	pthread_mutex_lock(&w->lock);
	c = w->mailbox;
	if (c)
		w->mailbox = c->next;
	pthread_mutex_unlock(&w->lock);
	if (!c)
		return NULL;
	c->prev = NULL;
	c->next = w->conns;
	if (w->conns)
		w->conns->prev = c;
	w->conns = c;
	if (c->flow && join_share(w, c))
		c->closing = true; /* never beyond its share for want of memory */
	return c;
}

/* Held connections, and rounds */

/* Shut by us or reset: nothing is received while it is held, so nothing else would notice. */
static bool hung_up(const struct soda_stream_conn *c)
{
	struct pollfd p = { .fd = c->peer.fd };

	return poll(&p, 1, 0) > 0;
}

bool soda_worker_admits(struct soda_stream_conn *c, uint32_t bytes)
{
	struct soda_worker *w = c->worker;
	uint64_t wait = soda_flow_share_take(c->share, w->round, !w->shares->next, w->least, bytes);

	if (!wait)
		return true;
	if (wait > 1 && hung_up(c)) {
		c->closing = true;
		return false;
	}
	c->held = true;
	c->due_ns = wait == 1 ? 0 : soda_now_ns() + wait;
	c->held_next = NULL;
	*w->held_end = c;
	w->held_end = &c->held_next;
	return false;
}

int64_t soda_worker_patience(const struct soda_worker *w)
{
	uint64_t due = UINT64_MAX, now;

	for (const struct soda_stream_conn *c = w->held; c && due; c = c->held_next)
		due = c->due_ns < due ? c->due_ns : due;
	if (due == UINT64_MAX)
		return -1;
	now = due ? soda_now_ns() : 0;
	return due > now ? (int64_t)(due - now) : 0;
}

struct soda_stream_conn *soda_worker_round(struct soda_worker *w)
{
	struct soda_stream_conn *all = w->held, *first = NULL, **end = &first;
	uint64_t now = 0;

	w->least = 0;
	for (struct soda_flow_share *s = w->shares; s; s = s->next) {
		uint64_t got = atomic_load_explicit(&s->flow->got, memory_order_relaxed);

		if (s->waited_in != w->round)
			soda_flow_share_rest(s);
		else if (!w->least || got < w->least)
			w->least = got;
	}
	w->round++;
	w->held = NULL;
	w->held_end = &w->held;
	while (all) {
		struct soda_stream_conn *c = all;

		all = c->held_next;
		c->held_next = NULL;
		now = c->due_ns && !now ? soda_now_ns() : now;
		if (c->due_ns > now) {
			*w->held_end = c;
			w->held_end = &c->held_next;
		} else {
			*end = c;
			end = &c->held_next;
		}
	}
	return first;
}

static void forget_held(struct soda_worker *w, struct soda_stream_conn *c)
{
	struct soda_stream_conn **at = &w->held;

	while (*at && *at != c)
		at = &(*at)->held_next;
	if (!*at)
		return;
	*at = c->held_next;
	if (w->held_end == &c->held_next)
		w->held_end = at;
}

struct soda_stream_conn *soda_worker_ready(struct soda_worker *w)
{
	struct soda_stream_conn *c;
	uint32_t answered;
	bool resumed;

	if (!atomic_load_explicit(&w->has_ready, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&w->lock);
	c = w->ready;
	if (c) {
		w->ready = c->ready_next;
		answered = c->answered;
		resumed = c->resumed;
		c->on_ready = c->resumed = false;
		c->answered = 0;
	}
	atomic_store_explicit(&w->has_ready, w->ready != NULL, memory_order_relaxed);
	pthread_mutex_unlock(&w->lock);
	if (c)
		soda_stream_conn_continue(c, answered, resumed);
	return c;
}

void soda_worker_push_locked(struct soda_worker *w, struct soda_stream_conn *c)
{
	if (!c->on_ready) {
		c->on_ready = true;
		c->ready_next = w->ready;
		w->ready = c;
		atomic_store_explicit(&w->has_ready, true, memory_order_relaxed);
	}
	if (atomic_exchange_explicit(&w->asleep, false, memory_order_relaxed))
		wake(w);
}

bool soda_worker_may_sleep(struct soda_worker *w)
{
	bool may;

	if (!w->listener->ops->request)
		return true;
	/* The lock orders this with soda_worker_push_locked: either it sees the flag, or we the
	 * list. */
	pthread_mutex_lock(&w->lock);
	may = !w->ready;
	atomic_store_explicit(&w->asleep, may, memory_order_relaxed);
	pthread_mutex_unlock(&w->lock);
	return may;
}

void soda_worker_forget(struct soda_worker *w, struct soda_stream_conn *c)
{
	pthread_mutex_lock(&w->lock);
	for (struct soda_stream_conn **at = &w->ready; *at; at = &(*at)->ready_next) {
		if (*at == c) {
			*at = c->ready_next;
			break;
		}
	}
	pthread_mutex_unlock(&w->lock);
}

static void peer_resume(struct soda_peer *peer)
{
	struct soda_stream_conn *c = (struct soda_stream_conn *)peer;
	struct soda_worker *w = c->worker;

	pthread_mutex_lock(&w->lock);
	c->resumed = true;
	soda_worker_push_locked(w, c);
	pthread_mutex_unlock(&w->lock);
}

void soda_worker_ring(struct soda_worker *w)
{
	struct soda_stream_conn *c;

	while ((c = w->rung)) {
		w->rung = c->rung_next;
		c->rung = false;
		w->listener->ops->doorbell(c->peer.client, &c->peer);
	}
}

void soda_worker_look(struct soda_worker *w)
{
	uint64_t times;

	if (read(w->look_fd, &times, sizeof(times)) < 0)
		return;
	for (struct soda_stream_conn *c = w->conns; c; c = c->next)
		soda_stream_conn_look(c);
}

void soda_worker_drop(struct soda_worker *w, struct soda_stream_conn *c)
{
	soda_worker_ring(w);
	forget_held(w, c);
	leave_share(w, c);
	*(c->prev ? &c->prev->next : &w->conns) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	atomic_fetch_sub(&w->load, 1);
	soda_stream_conn_destroy(c);
}

static unsigned load_of(const void *workers, unsigned i)
{
	return atomic_load(&((struct soda_worker *const *)workers)[i]->load);
}

static void hand_over(struct soda_stream_conn *c)
{
	struct soda_listener *l = c->peer.listener;
	struct soda_worker *w = l->workers[soda_least_loaded(l->workers, l->workers_n, load_of)];

	atomic_fetch_add(&w->load, 1);
	c->worker = w;
	c->same_host = soda_inet_same_host(c->peer.fd);
	pthread_mutex_lock(&w->lock);
	c->next = w->mailbox;
	w->mailbox = c;
	pthread_mutex_unlock(&w->lock);
	wake(w);
}

static int greet(struct soda_stream_conn *c, const struct soda_wire_hello *hello,
		 struct soda_why *why)
{
	struct soda_listener *l = c->peer.listener;
	struct soda_wire_welcome welcome;
	int ret = soda_peer_hello(&c->peer, hello, &welcome, why);

	if (ret < 0)
		return ret;
	ret = soda_welcome(&c->peer, &welcome, -1);
	if (ret < 0)
		l->ops->gone(c->peer.client, &c->peer);
	return ret;
}

static int stream_take(struct soda_listener *l, int fd, int passed_fd,
		       const struct soda_peer_info *info, const struct soda_wire_hello *hello,
		       struct soda_why *why)
{
	static const struct soda_peer_ops peer_ops = { .resume = peer_resume };
	struct soda_stream_conn *c = calloc(1, sizeof(*c));
	int ret;

	if (!c) {
		soda_why_set(why, "the server has no memory for a connection more");
		return -ENOMEM;
	}
	c->peer = (struct soda_peer){ .listener = l, .ops = &peer_ops, .fd = fd, .info = *info };
	if (info->proved && l->opt.guard->flow)
		c->flow = l->opt.guard->flow(l->opt.guard->arg, info->proved->tenant);
	ret = soda_peer_add(&c->peer, true, why);
	if (ret < 0) {
		free(c);
		return ret;
	}
	ret = greet(c, hello, why);
	if (ret < 0) {
		c->peer.fd = -1; /* the caller keeps it */
		soda_peer_remove(&c->peer);
		free(c);
		return ret;
	}
	hand_over(c);
	return 0;
}

const struct soda_data_plane soda_stream_plane = {
	.start = stream_start,
	.stop = stream_stop,
	.take = stream_take,
};
