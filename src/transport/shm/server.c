/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers of a two-sided daemon on shm. See server.h. */
#include "transport/shm/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/listen/worker.h"
#include "transport/shm/handed.h"

enum { EVENTS = 64, TURNS = 16 /* of the active ones before the sockets' turn */ };

struct soda_qworker {
	struct soda_listener *listener;
	pthread_t thread;
	int epoll;
	int wake_fd; /* eventfd: the mailbox, stop, or a connection to be ended */
	_Atomic bool stop;
	_Atomic unsigned load;
	pthread_mutex_t lock;
	struct soda_qconn *mailbox; /* guarded by lock */
	/* the thread's own */
	struct soda_qconn *conns, *active;
	bool polls; /* the last request came from a client that polls */
	struct soda_spin spin;
};

void soda_qworker_wake(struct soda_qworker *w)
{
	uint64_t one = 1;

	/* a full counter wakes as well */
	if (write(w->wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* Connections come and go */

static void activate(struct soda_qworker *w, struct soda_qconn *c)
{
	if (c->active || c->ending)
		return;
	soda_queue_awake(&c->q.head->daemon_waits);
	c->active = true;
	c->next_active = w->active;
	w->active = c;
}

static void deactivate(struct soda_qworker *w, struct soda_qconn *c)
{
	struct soda_qconn **at = &w->active;

	while (*at && *at != c)
		at = &(*at)->next_active;
	if (*at)
		*at = c->next_active;
	c->active = false;
}

static void drop(struct soda_qworker *w, struct soda_qconn *c)
{
	*(c->prev ? &c->prev->next : &w->conns) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	atomic_fetch_sub(&w->load, 1);
	soda_qconn_destroy(c);
}

/* It ends, now or with its last answer. */
static void end(struct soda_qworker *w, struct soda_qconn *c)
{
	if (!c->ending)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->peer.fd, NULL);
	deactivate(w, c);
	if (soda_qconn_end(c))
		drop(w, c);
}

static void reject(struct soda_qworker *w, struct soda_qconn *c, const char *why)
{
	if (w->listener->ops->rejected)
		w->listener->ops->rejected(w->listener->svc, c->peer.info.address, why);
	end(w, c);
}

static void take_mail(struct soda_qworker *w)
{
	struct soda_qconn *c, *next;

	pthread_mutex_lock(&w->lock);
	c = w->mailbox;
	w->mailbox = NULL;
	pthread_mutex_unlock(&w->lock);
	for (; c; c = next) {
		struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };

		next = c->next;
		c->prev = NULL;
		c->next = w->conns;
		if (w->conns)
			w->conns->prev = c;
		w->conns = c;
		if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, c->peer.fd, &ev) < 0)
			reject(w, c, "the server cannot watch a connection more");
		else
			activate(w, c);
	}
}

/* Somebody rang: new connections, and those that are to end. */
static void look_at_orders(struct soda_qworker *w)
{
	struct soda_qconn *next;
	uint64_t count;

	if (read(w->wake_fd, &count, sizeof(count)) < 0)
		return;
	take_mail(w);
	for (struct soda_qconn *c = w->conns; c; c = next) {
		next = c->next;
		if (c->ending || atomic_load(&c->unwanted))
			end(w, c);
	}
}

/* The client rang, gives up, or has hung up. */
static void socket_speaks(struct soda_qworker *w, struct soda_qconn *c)
{
	char bytes[64];
	ssize_t n = recv(c->peer.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0 && !memchr(bytes, SODA_QUEUE_BYE, (size_t)n))
		activate(w, c);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		end(w, c);
}

static void look_at_sockets(struct soda_qworker *w, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(w->epoll, events, EVENTS, timeout_ms);
	bool orders = false;

	/* what ends a connection that is still in these events comes last */
	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr)
			socket_speaks(w, events[i].data.ptr);
		else
			orders = true;
	}
	if (orders)
		look_at_orders(w);
}

/* Requests */

/* One look at every active ring. True: something was there. */
static bool serve_active(struct soda_qworker *w)
{
	const struct soda_service *ops = w->listener->ops;
	struct soda_qconn *next;
	bool found = false;

	for (struct soda_qconn *c = w->active; c; c = next) {
		const char *why;
		int n = soda_qconn_serve(c, &why);

		next = c->next_active;
		if (n < 0) { /* what came before that is there as well */
			ops->doorbell(c->peer.client, &c->peer);
			reject(w, c, why);
		} else if (n) {
			c->rung = found = true;
			w->polls = c->wants_polling;
		}
	}
	for (struct soda_qconn *c = w->active; c && found; c = c->next_active) {
		if (c->rung)
			ops->doorbell(c->peer.client, &c->peer);
		c->rung = false;
	}
	return found;
}

/* Nothing comes: tell the clients that we sleep. False: one was faster. */
static bool may_sleep(struct soda_qworker *w)
{
	struct soda_qconn *next;

	for (struct soda_qconn *c = w->active; c; c = next) {
		next = c->next_active;
		if (soda_qconn_may_sleep(c))
			deactivate(w, c);
		else
			soda_queue_awake(&c->q.head->daemon_waits);
	}
	return !w->active;
}

static bool look(void *arg)
{
	return serve_active(arg);
}

/* True: something came while we looked. */
static bool look_awhile(struct soda_qworker *w)
{
	return w->polls && soda_spin_until(&w->spin, SODA_WORKER_SPIN_NS, look, w);
}

static void *worker_main(void *arg)
{
	struct soda_qworker *w = arg;
	unsigned turns = 0;

	pthread_setname_np(pthread_self(), "soda-data");
	soda_spin_init(&w->spin, &w->listener->polling);
	while (!atomic_load(&w->stop) || w->conns) {
		bool found = w->active && (serve_active(w) || look_awhile(w));

		if (!found && may_sleep(w))
			look_at_sockets(w, -1);
		else if (++turns % TURNS == 0)
			look_at_sockets(w, 0);
	}
	return NULL;
}

/* Life */

static void destroy(struct soda_qworker *w)
{
	if (w->wake_fd >= 0)
		close(w->wake_fd);
	if (w->epoll >= 0)
		close(w->epoll);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static int queue_start(struct soda_listener *l, void **worker_p)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct soda_qworker *w = calloc(1, sizeof(*w));
	int ret = 0;

	if (!w)
		return -ENOMEM;
	w->listener = l;
	pthread_mutex_init(&w->lock, NULL);
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll < 0 || w->wake_fd < 0 ||
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake_fd, &ev) < 0)
		ret = -errno;
	if (!ret)
		ret = -pthread_create(&w->thread, NULL, worker_main, w);
	if (ret)
		destroy(w);
	else
		*worker_p = w;
	return ret;
}

static void queue_stop(void *worker)
{
	struct soda_qworker *w = worker;

	atomic_store(&w->stop, true);
	soda_qworker_wake(w);
	soda_wait_join(w->thread, "a worker to end");
	destroy(w);
}

static void peer_close(struct soda_peer *peer)
{
	struct soda_qconn *c = (struct soda_qconn *)peer;

	atomic_store(&c->unwanted, true);
	soda_qworker_wake(c->worker);
}

static struct soda_qworker *least_loaded(struct soda_listener *l)
{
	struct soda_qworker *best = l->workers[0];

	for (unsigned i = 1; i < l->workers_n; i++) {
		struct soda_qworker *w = l->workers[i];

		if (atomic_load(&w->load) < atomic_load(&best->load))
			best = w;
	}
	return best;
}

/* The queue, of a client that the daemon has welcomed. *fd_p: its memfd, the caller's. */
static int make_queue(struct soda_qconn *c, const struct soda_wire_hello *hello, int *fd_p,
		      struct soda_why *why)
{
	uint32_t chunk = hello->chunk_bytes;
	int ret = -EPROTO;

	if (!(hello->features & SODA_FEATURE_QUEUE)) {
		soda_why_set(why, "READ and WRITE travel through a queue in shared memory here");
	} else if (!chunk || chunk % SODA_WIRE_PAGE || chunk > SODA_WIRE_MAX_DATA) {
		soda_why_set(why, "chunks of %u bytes cannot be served", chunk);
	} else {
		ret = soda_queue_create(chunk, &c->q, fd_p);
		if (ret < 0)
			soda_why_set(why, "the server cannot make a queue: %s", soda_strerror(ret));
	}
	c->chunk_bytes = chunk;
	return ret;
}

static int welcome(struct soda_qconn *c, const struct soda_wire_hello *hello, int fd,
		   struct soda_wire_welcome *w, struct soda_why *why)
{
	int queue_fd, ret = make_queue(c, hello, &queue_fd, why);

	if (ret < 0)
		return ret;
	w->max_data = c->q.slot_bytes;
	ret = soda_welcome(fd, w, queue_fd);
	close(queue_fd);
	if (ret < 0)
		soda_queue_unmap(&c->q);
	return ret;
}

/* Tell the daemon and the client. What fails leaves nothing behind. */
static int greet(struct soda_qconn *c, const struct soda_wire_hello *hello, struct soda_why *why)
{
	struct soda_listener *l = c->peer.listener;
	struct soda_wire_welcome w = { .version = SODA_WIRE_VERSION };
	int ret = soda_peer_add(&c->peer, why), fd = c->peer.fd;

	if (ret < 0)
		return ret;
	ret = l->ops->hello(l->svc, &c->peer, hello, &c->peer.info, &w, &c->peer.client, why);
	if (ret == 0) {
		ret = welcome(c, hello, fd, &w, why);
		if (ret < 0)
			l->ops->gone(c->peer.client, &c->peer);
	}
	if (ret < 0) {
		c->peer.fd = -1; /* the caller keeps it */
		soda_peer_remove(&c->peer);
	}
	return ret;
}

static void hand_over(struct soda_qconn *c)
{
	struct soda_qworker *w = c->worker;

	atomic_fetch_add(&w->load, 1);
	pthread_mutex_lock(&w->lock);
	c->next = w->mailbox;
	w->mailbox = c;
	pthread_mutex_unlock(&w->lock);
	soda_qworker_wake(w);
}

static int queue_take(struct soda_listener *l, int fd, int passed_fd,
		      const struct soda_peer_info *info, const struct soda_wire_hello *hello,
		      struct soda_why *why)
{
	static const struct soda_peer_ops peer_ops = { .close = peer_close };
	struct soda_qconn *c = calloc(1, sizeof(*c));
	int ret;

	if (!c) {
		soda_why_set(why, "the server has no memory for a connection more");
		return -ENOMEM;
	}
	c->peer = (struct soda_peer){ .listener = l, .ops = &peer_ops, .fd = fd, .info = *info };
	c->refs = 1;
	c->uffd = -1;
	pthread_mutex_init(&c->lock, NULL);
	c->worker = least_loaded(l);
	ret = greet(c, hello, why);
	if (ret < 0) {
		pthread_mutex_destroy(&c->lock);
		free(c);
		return ret;
	}
	if (passed_fd >= 0 && soda_handed_is_uffd(passed_fd))
		c->uffd = passed_fd;
	else if (passed_fd >= 0)
		close(passed_fd);
	hand_over(c);
	return 0;
}

const struct soda_data_plane soda_queue_plane = {
	.start = queue_start,
	.stop = queue_stop,
	.take = queue_take,
	.takes_fd = true,
};
