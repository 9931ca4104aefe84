/* SPDX-License-Identifier: BSD-3-Clause */
/* A data worker's loop on epoll: for kernels without io_uring, or where it is forbidden. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "transport/listen/worker.h"

enum { EVENTS = 64, ROUNDS = 4 /* receives and sends of one connection before others' turn */ };

/* Send what there is. False: the socket is full. */
static bool send_some(struct soda_stream_conn *c)
{
	while (soda_stream_conn_aim_send(c)) {
		ssize_t n = sendmsg(c->peer.fd, &c->tx_msg, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return false;
		soda_stream_conn_sent(c, n < 0 ? -errno : (int)n);
	}
	return true;
}

/* True: bytes came in. */
static bool recv_some(struct soda_worker *w, struct soda_stream_conn *c)
{
	ssize_t n;

	if (!soda_stream_conn_aim_recv(c, w->scratch, sizeof(w->scratch)))
		return false;
	n = recvmsg(c->peer.fd, &c->rx_msg, MSG_DONTWAIT);
	soda_stream_conn_received(c, n < 0 ? -errno : (int)n);
	if (n > 0 && c->same_host && soda_home_count(&w->home, 1))
		soda_home_look(&w->home, soda_home_cpu_of(c->peer.fd));
	return n > 0;
}

/* Await what the connection can go on with. */
static void await(int epoll, struct soda_stream_conn *c, bool room)
{
	struct epoll_event ev = { .data.ptr = c };

	if (!room)
		ev.events |= EPOLLOUT;
	if (soda_stream_conn_may_recv(c))
		ev.events |= EPOLLIN;
	if (c->watched && ev.events == c->events)
		return;
	epoll_ctl(epoll, c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->peer.fd, &ev);
	c->events = ev.events;
	c->watched = true;
}

/* It ends once the daemon has answered: its socket has nothing more to say. */
static void ignore(int epoll, struct soda_stream_conn *c)
{
	if (c->watched)
		epoll_ctl(epoll, EPOLL_CTL_DEL, c->peer.fd, NULL);
	c->watched = false;
}

static void serve(struct soda_worker *w, int epoll, struct soda_stream_conn *c, unsigned events)
{
	bool room = send_some(c);

	for (int i = 0; i < ROUNDS && room && recv_some(w, c); i++)
		room = send_some(c);
	/* hung up, and nothing would notice: neither a receive nor a send is due */
	if (events & (EPOLLHUP | EPOLLERR) && room && !soda_stream_conn_may_recv(c))
		c->closing = true;
	if (!c->closing)
		await(epoll, c, room);
	else if (c->pending)
		ignore(epoll, c);
	else
		soda_worker_drop(w, c);
}

/* Answers of a two-sided daemon. */
static void serve_ready(struct soda_worker *w, int epoll)
{
	struct soda_stream_conn *c;

	while ((c = soda_worker_ready(w)))
		serve(w, epoll, c, 0);
}

/* What waits for its turn, or has waited for its rate. */
static void serve_held(struct soda_worker *w, int epoll)
{
	struct soda_stream_conn *c = w->held ? soda_worker_round(w) : NULL, *next;

	for (; c; c = next) {
		next = c->held_next;
		soda_stream_conn_release(c);
		serve(w, epoll, c, 0);
	}
}

static void end_closing(struct soda_worker *w, int epoll)
{
	struct soda_stream_conn *next;

	for (struct soda_stream_conn *c = w->conns; c; c = next) {
		next = c->next;
		if (c->closing)
			serve(w, epoll, c, 0);
	}
}

static void end_stuck(struct soda_worker *w, int epoll)
{
	soda_worker_look(w);
	end_closing(w, epoll);
}

static void take_mail(struct soda_worker *w, int epoll)
{
	struct soda_stream_conn *c;
	uint64_t count;

	if (read(w->wake_fd, &count, sizeof(count)) < 0)
		return;
	while ((c = soda_worker_take(w)))
		serve(w, epoll, c, 0); /* or drop it: there may have been no memory for it */
}

/* Not of a connection, but the worker's mail or timer. */
static bool is_own(const struct soda_worker *w, const void *of)
{
	return of == &w->wake_fd || of == &w->look_fd;
}

static int watch_own(int epoll, int *fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, *fd, &ev);
}

/* True: something came in. */
static bool turn(struct soda_worker *w, int epoll, int timeout_ms, bool *polls_p)
{
	struct epoll_event events[EVENTS];
	int64_t patience = soda_worker_patience(w);
	int n;

	if (timeout_ms && patience >= 0)
		timeout_ms = (int)((patience + 999999) / 1000000);
	if (timeout_ms && !soda_worker_may_sleep(w))
		timeout_ms = 0;
	n = epoll_wait(epoll, events, EVENTS, timeout_ms);
	soda_worker_awake(w);
	for (int i = 0; i < n; i++) {
		struct soda_stream_conn *c = events[i].data.ptr;

		if (!is_own(w, c)) {
			*polls_p = c->wants_polling;
			serve(w, epoll, c, events[i].events);
		}
	}
	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr == &w->wake_fd)
			take_mail(w, epoll);
		else if (events[i].data.ptr == &w->look_fd)
			end_stuck(w, epoll);
	}
	serve_ready(w, epoll);
	serve_held(w, epoll);
	soda_worker_ring(w);
	return n > 0;
}

int soda_engine_epoll(struct soda_worker *w)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	bool polls = false;

	if (epoll < 0 || watch_own(epoll, &w->wake_fd) < 0 || watch_own(epoll, &w->look_fd) < 0) {
		soda_log_error("a data worker cannot start: %s", soda_strerror(errno));
		return -errno;
	}
	end_closing(w, epoll); /* of a ring that has failed */
	while (!atomic_load(&w->stop) || w->conns) {
		bool found = false;

		if (polls && soda_spin_begin(&w->spin, SODA_WORKER_SPIN_NS)) {
			do {
				found = turn(w, epoll, 0, &polls);
			} while (!found && soda_spin_again(&w->spin));
			soda_spin_end(&w->spin, found);
		}
		if (!found)
			turn(w, epoll, -1, &polls);
	}
	close(epoll);
	return 0;
}
