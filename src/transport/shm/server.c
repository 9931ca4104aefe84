/* SPDX-License-Identifier: BSD-3-Clause */
/* Two-sided daemons on shm: the daemon's end of a queue, and the workers. See shm.h and queue.h.
 */
#include <assert.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "transport/api/memory.h"
#include "transport/listen/worker.h"
#include "transport/shm/shm.h"
#include "wire/field.h"
#include "wire/wire.h"

enum { EVENTS = 64, TURNS = 16 /* of the active ones before the sockets' turn */ };

struct soda_queue_worker {
	struct soda_listener *listener;
	pthread_t thread;
	int epoll;
	int wake_fd; /* eventfd: the mailbox, stop, or a connection to be ended */
	_Atomic bool stop;
	_Atomic unsigned load;
	pthread_mutex_t lock;
	struct soda_queue_conn *mailbox; /* guarded by lock */
	/* the thread's own */
	struct soda_queue_conn *conns, *active;
	bool polls; /* the last request came from a client that polls */
	struct soda_spin spin;
	struct soda_home home;
};

/* Installing */

/*
 * Pages put into a client's address space through the userfaultfd that it handed over.  What a
 * client hands over can harm nobody but itself: the ioctls act on the memory of the process that
 * made the descriptor.
 */

/* A client whose memory map changes all the time is not waited for. */
enum { FRUITLESS_MAX = 16 };

/*
 * Whether it is a userfaultfd that has shaken hands with the kernel.  The kernel's name first: an
 * ioctl on a descriptor of another kind might do anything, or block.  No path can look like this
 * one, as paths begin with '/'.
 */
static bool is_uffd(int fd)
{
	static const char kind[] = "anon_inode:[userfaultfd]";
	struct uffdio_range any = { .start = 1 << 20, .len = SODA_WIRE_PAGE };
	char link[32], name[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof(name));
	if (n != (ssize_t)sizeof(kind) - 1 || memcmp(name, kind, sizeof(kind) - 1) != 0)
		return false;
	/* waking nobody is refused before the handshake only */
	return ioctl(fd, UFFDIO_WAKE, &any) == 0;
}

/* One piece. 0 and *done_p, which may be 0: try again; or negative errno. */
static int piece(int fd, uint64_t addr, const uint8_t *src, uint32_t bytes, bool protect,
		 uint32_t *done_p)
{
	struct uffdio_copy c = { .dst = addr,
				 .src = (uintptr_t)src,
				 .len = bytes,
				 .mode = protect ? UFFDIO_COPY_MODE_WP : 0 };
	int ret = ioctl(fd, UFFDIO_COPY, &c) < 0 ? -errno : 0;

	*done_p = 0;
	if (ret == 0)
		*done_p = bytes;
	else if (c.copy > 0) /* cut short; a signed count */
		*done_p = c.copy < (int64_t)bytes ? (uint32_t)c.copy : bytes;
	else if (ret == -EEXIST || c.copy == -EEXIST)
		*done_p = SODA_WIRE_PAGE; /* the first page is there: skip it */
	return *done_p || ret == -EAGAIN ? 0 : ret;
}

/*
 * Copy `bytes` (whole pages) from src to addr there, write-protected or not.  Pages
 * that are there already are left as they are.  0: all of them are there; -ENOENT,
 * -ESRCH, -ENOMEM, -EAGAIN (the client's memory does not hold still)...: some or none.
 */
static int install_pages(int fd, uint64_t addr, const void *src, uint32_t bytes, bool protect)
{
	const uint8_t *from = src;
	int fruitless = 0;

	for (uint32_t at = 0, done; at < bytes; at += done) {
		int ret = piece(fd, addr + at, from + at, bytes - at, protect, &done);

		if (ret < 0)
			return ret;
		fruitless = done ? 0 : fruitless + 1;
		if (fruitless == FRUITLESS_MAX)
			return -EAGAIN;
	}
	return 0;
}

/* The daemon's end of one queue */

enum { SERVE_MAX = 64 }; /* requests of one connection before others' turn */

/* An install by us holds nobody up but a client whose memory map is busy: let it do it itself. */
#define SLOW_NS 100000000

static struct soda_slot_request *of(struct soda_request *rq)
{
	return (struct soda_slot_request *)rq;
}

/* Events, with the lock held */

static void put_event_locked(struct soda_queue_conn *c, const struct soda_queue_event *e)
{
	c->q.events[c->events_tail++ & (2 * c->q.n - 1)] = *e;
}

static void publish_locked(struct soda_queue_conn *c)
{
	soda_queue_publish(&c->q.head->events_tail, c->events_tail, &c->q.head->client_waits,
			   c->peer.fd);
}

/*
 * The answers that are no longer behind a pending one.  On a connection that the daemon has ended
 * none is any more: the client asks again on another one, and must not take what is left for a
 * refusal.
 */
static void publish_answers_locked(struct soda_queue_conn *c)
{
	uint32_t before = c->answered;

	if (c->ending || atomic_load(&c->unwanted))
		return;
	for (; c->answered != c->taken; c->answered++) {
		struct soda_queue_answer *a = &c->answers[c->answered & (c->q.n - 1)];

		if (!a->ready)
			break;
		put_event_locked(c, &(struct soda_queue_event){ .kind = SODA_QUEUE_DONE,
								.where = a->where,
								.status = a->status,
								.slot = a->slot });
	}
	if (c->answered != before)
		publish_locked(c);
}

/* Answers of the daemon */

static bool may_install(struct soda_queue_conn *c)
{
	bool may;

	pthread_mutex_lock(&c->lock);
	may = !c->ending && !c->slow;
	c->installing += may;
	pthread_mutex_unlock(&c->lock);
	return may;
}

static void installed(struct soda_queue_conn *c, uint64_t took_ns)
{
	pthread_mutex_lock(&c->lock);
	c->slow = c->slow || took_ns > SLOW_NS;
	if (--c->installing == 0 && c->ending)
		shutdown(c->peer.fd, SHUT_RDWR);
	pthread_mutex_unlock(&c->lock);
}

/* Put the page into the client's memory. False: not done, or not all of it. */
static bool install(struct soda_slot_request *r, const uint8_t *from)
{
	struct soda_queue_conn *c = r->conn;
	_Atomic uint32_t *claim = &c->q.head->claim[r->slot];
	uint32_t offered = SODA_CLAIM_OFFERED;
	uint64_t begin_ns;
	int ret = -ECANCELED;

	if (!r->place || c->uffd < 0 || !may_install(c))
		return false;
	begin_ns = soda_now_ns();
	if (atomic_compare_exchange_strong_explicit(claim, &offered, SODA_CLAIM_TAKEN,
						    memory_order_acq_rel, memory_order_relaxed)) {
		ret = install_pages(c->uffd, r->place, from, r->rq.bytes, r->protect);
		/* pairs with the acquire in the client's revoke */
		atomic_store_explicit(claim, SODA_CLAIM_OVER, memory_order_release);
	}
	installed(c, soda_now_ns() - begin_ns);
	return ret == 0;
}

static enum soda_queue_where place(struct soda_slot_request *r, const struct soda_span *span)
{
	if (span->stored)
		return SODA_QUEUE_STORED;
	if (install(r, span->memory))
		return SODA_QUEUE_INSTALLED;
	if (span->memory != r->rq.data)
		soda_payload_copy(r->rq.data, span->memory, span->bytes);
	return SODA_QUEUE_IN_SLOT;
}

static enum soda_queue_where deliver(struct soda_slot_request *r, const struct soda_span *span)
{
	enum soda_queue_where where;

	assert(span->bytes == r->rq.bytes && (!span->stored || r->rq.stored));
	where = place(r, span);
	r->conn->peer.listener->ops->release(r->rq.client, false, span, false);
	return where;
}

static void request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct soda_slot_request *r = of(rq);
	struct soda_queue_conn *c = r->conn;
	enum soda_queue_where where =
		!rq->write && status == 0 ? deliver(r, span) : SODA_QUEUE_IN_SLOT;

	pthread_mutex_lock(&c->lock);
	c->answers[r->turn & (c->q.n - 1)] = (struct soda_queue_answer){
		.ready = true,
		.where = (uint8_t)where,
		.status = (uint16_t)soda_status_from_errno(-status),
		.slot = r->slot,
	};
	if (!rq->write)
		r->busy = false;
	publish_answers_locked(c);
	/* with the lock held: the worker needs it to let go of the connection, and of itself */
	if (--c->pending == 0 && c->ending)
		soda_ring(c->worker->wake_fd);
	pthread_mutex_unlock(&c->lock);
}

/* With the lock held, which it releases. */
static void unref_locked(struct soda_queue_conn *c)
{
	bool last = --c->refs == 0;

	pthread_mutex_unlock(&c->lock);
	if (!last)
		return;
	soda_queue_unmap(&c->q);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void request_free(struct soda_request *rq)
{
	struct soda_slot_request *r = of(rq);
	struct soda_queue_conn *c = r->conn;

	assert(rq->write);
	pthread_mutex_lock(&c->lock);
	r->busy = false;
	if (!c->gone) {
		put_event_locked(
			c, &(struct soda_queue_event){ .kind = SODA_QUEUE_FREE, .slot = r->slot });
		publish_locked(c);
	}
	unref_locked(c);
}

static const struct soda_request_ops request_ops = { .done = request_done, .free = request_free };

/* Requests */

/* Which data a WRITE without any means, as its slot says. NULL, or what is wrong with it. */
static const char *decode_kept(const struct soda_queue_conn *c, const struct soda_queue_request *e,
			       struct soda_slot_request *r)
{
	uint8_t says[SODA_WIRE_CODE_BYTES_MAX] = { 0 };
	uint32_t bytes = soda_wire_get_u32(e->residency);

	if (bytes > sizeof(says))
		return "a WRITE without data that says too much";
	/* copied once: the client may go on writing to it */
	memcpy(says, soda_queue_slot(&c->q, e->slot), bytes);
	__asm__ __volatile__("" : : "r"(says) : "memory");
	if (bytes == SODA_WIRE_ORIGIN_BYTES)
		soda_wire_get_origin(says, &r->rq.origin);
	else if (soda_wire_get_code(says, bytes, &r->code))
		r->rq.code = &r->code;
	else
		return "a code that makes no sense";
	r->rq.kept = true;
	r->rq.keep = false;
	r->rq.data = NULL;
	return NULL;
}

/* Decode a copy of an entry. NULL, or what is wrong with it. */
static const char *decode(struct soda_queue_conn *c, const struct soda_queue_request *e,
			  struct soda_slot_request *r)
{
	struct soda_wire_write w;
	struct soda_wire_read rd;

	if ((e->imm & 0xff) == SODA_MSG_READ) {
		soda_wire_get_read(e->body, &rd);
		w = (struct soda_wire_write){ rd.region_id, rd.page_offset, rd.size };
	} else if ((e->imm & 0xff) == SODA_MSG_WRITE) {
		soda_wire_get_write(e->body, &w);
		rd.dest_addr = 0;
	} else {
		return "unknown request in the queue";
	}
	if (soda_wire_check_range(0, w.size, SODA_WIRE_MAX_DATA) < 0 || w.size > c->q.slot_bytes)
		return "a request of a size that is not allowed";
	if (rd.dest_addr % c->chunk_bytes)
		return "a READ to be installed where no chunk begins";
	r->rq = (struct soda_request){
		.ops = &request_ops,
		.client = c->peer.client,
		.peer = &c->peer,
		.offset = w.page_offset * SODA_WIRE_PAGE,
		.bytes = w.size,
		.region_id = w.region_id,
		.write = (e->imm & 0xff) == SODA_MSG_WRITE,
		.polling = e->imm >> 8 & SODA_WIRE_POLLING,
		.data = soda_queue_slot(&c->q, e->slot),
		.told = e->imm >> 8 & SODA_WIRE_RESIDENCY,
		.stored = e->imm >> 8 & SODA_WIRE_STORED,
		.keep = e->imm >> 8 & SODA_WIRE_KEEP,
	};
	r->conn = c;
	r->slot = e->slot;
	r->place = rd.dest_addr;
	r->protect = e->imm >> 8 & SODA_QUEUE_PROTECT;
	if (r->rq.write && e->imm >> 8 & SODA_WIRE_KEPT)
		return decode_kept(c, e, r);
	if (r->rq.told)
		soda_wire_get_residency(e->residency, &r->rq.residency);
	return NULL;
}

/* Give it its slot and its turn. NULL, or what is wrong. */
static const char *admit(struct soda_queue_conn *c, struct soda_slot_request *r)
{
	uint32_t head = atomic_load_explicit(&c->q.head->events_head, memory_order_acquire);
	const char *why = NULL;

	pthread_mutex_lock(&c->lock);
	if (c->taken - c->answered == c->q.n)
		why = "more requests than there are credits";
	else if (c->events_tail - head > 2 * c->q.n)
		why = "a client that does not take its answers";
	if (!why) {
		r->busy = true;
		r->turn = c->taken++;
		c->answers[r->turn & (c->q.n - 1)].ready = false;
		c->pending++;
		c->refs += r->rq.write;
	}
	pthread_mutex_unlock(&c->lock);
	return why;
}

static bool is_busy(struct soda_queue_conn *c, const struct soda_slot_request *r)
{
	bool busy;

	pthread_mutex_lock(&c->lock);
	busy = r->busy;
	pthread_mutex_unlock(&c->lock);
	return busy;
}

static const char *take(struct soda_queue_conn *c)
{
	struct soda_queue_request e;
	struct soda_slot_request *r;
	const char *why;

	/* copied once: the client may go on writing to it */
	memcpy(&e, (const void *)&c->q.requests[c->requests_head & (c->q.n - 1)], sizeof(e));
	__asm__ __volatile__("" : : "m"(e) : "memory");
	if (e.slot >= c->q.n)
		return "a slot that is not there";
	r = &c->requests[e.slot];
	if (is_busy(c, r))
		return "a slot that is in use";
	why = decode(c, &e, r);
	if (!why)
		why = admit(c, r);
	if (why)
		return why;
	c->requests_head++;
	c->wants_polling = r->rq.polling;
	r->rq.arrived_ns = soda_now_ns();
	c->peer.listener->ops->request(c->peer.client, &r->rq);
	return NULL;
}

int soda_queue_conn_serve(struct soda_queue_conn *c, const char **why_p)
{
	/* acquire: the entries, and the data of WRITEs, were written before */
	uint32_t tail = atomic_load_explicit(&c->q.head->requests_tail, memory_order_acquire);
	int n = 0;

	if (tail == c->requests_head)
		return 0;
	if (tail - c->requests_head > c->q.n) {
		*why_p = "a queue's index that cannot be";
		return -EPROTO;
	}
	for (; n < SERVE_MAX && c->requests_head != tail; n++) {
		*why_p = take(c);
		if (*why_p)
			return -EPROTO;
	}
	return n;
}

bool soda_queue_conn_may_sleep(struct soda_queue_conn *c)
{
	return soda_queue_may_sleep(&c->q.head->daemon_waits, &c->q.head->requests_tail,
				    c->requests_head);
}

bool soda_queue_conn_end(struct soda_queue_conn *c)
{
	bool idle;

	pthread_mutex_lock(&c->lock);
	if (!c->ending && !c->installing)
		shutdown(c->peer.fd, SHUT_RDWR);
	c->ending = true;
	idle = !c->pending;
	pthread_mutex_unlock(&c->lock);
	return idle;
}

void soda_queue_conn_destroy(struct soda_queue_conn *c)
{
	assert(!c->pending);
	c->peer.listener->ops->gone(c->peer.client, &c->peer);
	pthread_mutex_lock(&c->lock);
	c->gone = true;
	pthread_mutex_unlock(&c->lock);
	if (c->uffd >= 0)
		close(c->uffd);
	soda_peer_remove(&c->peer); /* the listener may be gone now */
	pthread_mutex_lock(&c->lock);
	unref_locked(c);
}

/* Workers: connections come and go */

static void activate(struct soda_queue_worker *w, struct soda_queue_conn *c)
{
	if (c->active || c->ending)
		return;
	soda_queue_awake(&c->q.head->daemon_waits);
	c->active = true;
	c->next_active = w->active;
	w->active = c;
}

static void deactivate(struct soda_queue_worker *w, struct soda_queue_conn *c)
{
	struct soda_queue_conn **at = &w->active;

	while (*at && *at != c)
		at = &(*at)->next_active;
	if (*at)
		*at = c->next_active;
	c->active = false;
}

static void drop(struct soda_queue_worker *w, struct soda_queue_conn *c)
{
	*(c->prev ? &c->prev->next : &w->conns) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	atomic_fetch_sub(&w->load, 1);
	soda_queue_conn_destroy(c);
}

/* It ends, now or with its last answer. */
static void end(struct soda_queue_worker *w, struct soda_queue_conn *c)
{
	if (!c->ending)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->peer.fd, NULL);
	deactivate(w, c);
	if (soda_queue_conn_end(c))
		drop(w, c);
}

static void reject(struct soda_queue_worker *w, struct soda_queue_conn *c, const char *why)
{
	soda_peer_rejected(&c->peer, why);
	end(w, c);
}

static void take_mail(struct soda_queue_worker *w)
{
	struct soda_queue_conn *c, *next;

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
static void look_at_orders(struct soda_queue_worker *w)
{
	struct soda_queue_conn *next;
	uint64_t count;

	if (read(w->wake_fd, &count, sizeof(count)) < 0)
		return;
	take_mail(w);
	for (struct soda_queue_conn *c = w->conns; c; c = next) {
		next = c->next;
		if (c->ending || atomic_load(&c->unwanted))
			end(w, c);
	}
}

/* The client rang, gives up, or has hung up. */
static void socket_speaks(struct soda_queue_worker *w, struct soda_queue_conn *c)
{
	char bytes[64];
	ssize_t n = recv(c->peer.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0 && !memchr(bytes, SODA_QUEUE_BYE, (size_t)n))
		activate(w, c);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		end(w, c);
}

static void look_at_sockets(struct soda_queue_worker *w, int timeout_ms)
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

/* Where the client ran when it last sent requests, or -1. It may be nonsense. */
static int client_cpu(const struct soda_queue_conn *c)
{
	uint32_t cpu = atomic_load_explicit(&c->q.head->client_cpu, memory_order_relaxed);

	return cpu && cpu <= CPU_SETSIZE ? (int)cpu - 1 : -1;
}

/* One look at every active ring. True: something was there. */
static bool serve_active(struct soda_queue_worker *w)
{
	const struct soda_service *ops = w->listener->ops;
	struct soda_queue_conn *next;
	bool found = false;

	for (struct soda_queue_conn *c = w->active; c; c = next) {
		const char *why;
		int n = soda_queue_conn_serve(c, &why);

		next = c->next_active;
		if (n < 0) { /* what came before that is there as well */
			ops->doorbell(c->peer.client, &c->peer);
			reject(w, c, why);
		} else if (n) {
			c->rung = found = true;
			w->polls = c->wants_polling;
			if (soda_home_count(&w->home, (unsigned)n))
				soda_home_look(&w->home, client_cpu(c));
		}
	}
	for (struct soda_queue_conn *c = w->active; c && found; c = c->next_active) {
		if (c->rung)
			ops->doorbell(c->peer.client, &c->peer);
		c->rung = false;
	}
	return found;
}

/* Nothing comes: tell the clients that we sleep. False: one was faster. */
static bool may_sleep(struct soda_queue_worker *w)
{
	struct soda_queue_conn *next;

	for (struct soda_queue_conn *c = w->active; c; c = next) {
		next = c->next_active;
		if (soda_queue_conn_may_sleep(c))
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
static bool look_awhile(struct soda_queue_worker *w)
{
	return w->polls && soda_spin_until(&w->spin, SODA_WORKER_SPIN_NS, look, w);
}

static void *worker_main(void *arg)
{
	struct soda_queue_worker *w = arg;
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

static void destroy(struct soda_queue_worker *w)
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
	struct soda_queue_worker *w = calloc(1, sizeof(*w));
	int ret = 0;

	if (!w)
		return -ENOMEM;
	w->listener = l;
	soda_home_init(&w->home, &l->homes, l->workers_n);
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
	struct soda_queue_worker *w = worker;

	atomic_store(&w->stop, true);
	soda_ring(w->wake_fd);
	soda_wait_join(w->thread, "a worker to end");
	destroy(w);
}

static void peer_close(struct soda_peer *peer)
{
	struct soda_queue_conn *c = (struct soda_queue_conn *)peer;

	atomic_store(&c->unwanted, true);
	soda_ring(c->worker->wake_fd);
}

static unsigned load_of(const void *workers, unsigned i)
{
	return atomic_load(&((struct soda_queue_worker *const *)workers)[i]->load);
}

/* The queue, of a client that the daemon has welcomed. *fd_p: its memfd, the caller's. */
static int make_queue(struct soda_queue_conn *c, const struct soda_wire_hello *hello, int *fd_p,
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

static int welcome(struct soda_queue_conn *c, const struct soda_wire_hello *hello,
		   struct soda_wire_welcome *w, struct soda_why *why)
{
	int queue_fd, ret = make_queue(c, hello, &queue_fd, why);

	if (ret < 0)
		return ret;
	w->max_data = c->q.slot_bytes;
	ret = soda_welcome(&c->peer, w, queue_fd);
	close(queue_fd);
	if (ret < 0)
		soda_queue_unmap(&c->q);
	return ret;
}

/* Tell the daemon and the client. What fails leaves nothing behind. */
static int greet(struct soda_queue_conn *c, const struct soda_wire_hello *hello,
		 struct soda_why *why)
{
	struct soda_listener *l = c->peer.listener;
	struct soda_wire_welcome w;
	int ret = soda_peer_add(&c->peer, true, why);

	if (ret < 0)
		return ret;
	ret = soda_peer_hello(&c->peer, hello, &w, why);
	if (ret == 0) {
		ret = welcome(c, hello, &w, why);
		if (ret < 0)
			l->ops->gone(c->peer.client, &c->peer);
	}
	if (ret < 0) {
		c->peer.fd = -1; /* the caller keeps it */
		soda_peer_remove(&c->peer);
	}
	return ret;
}

static void hand_over(struct soda_queue_conn *c)
{
	struct soda_queue_worker *w = c->worker;

	atomic_fetch_add(&w->load, 1);
	pthread_mutex_lock(&w->lock);
	c->next = w->mailbox;
	w->mailbox = c;
	pthread_mutex_unlock(&w->lock);
	soda_ring(w->wake_fd);
}

static int queue_take(struct soda_listener *l, int fd, int passed_fd,
		      const struct soda_peer_info *info, const struct soda_wire_hello *hello,
		      struct soda_why *why)
{
	static const struct soda_peer_ops peer_ops = { .close = peer_close };
	struct soda_queue_conn *c = calloc(1, sizeof(*c));
	int ret;

	if (!c) {
		soda_why_set(why, "the server has no memory for a connection more");
		return -ENOMEM;
	}
	c->peer = (struct soda_peer){ .listener = l, .ops = &peer_ops, .fd = fd, .info = *info };
	c->refs = 1;
	c->uffd = -1;
	pthread_mutex_init(&c->lock, NULL);
	c->worker = l->workers[soda_least_loaded(l->workers, l->workers_n, load_of)];
	ret = greet(c, hello, why);
	if (ret < 0) {
		pthread_mutex_destroy(&c->lock);
		free(c);
		return ret;
	}
	if (passed_fd >= 0 && is_uffd(passed_fd))
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
