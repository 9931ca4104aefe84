/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners and the list of their peers: beginning and end.  See server.h. */
#include "transport/listen/server.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/wait.h"
#include "trust/proof.h"

enum {
	MAX_DEFAULT_WORKERS = 4,
	KNOWN_PART = 8, /* of the connections, one in so many is for clients that are known */
};

static unsigned default_workers(void)
{
	cpu_set_t set;
	unsigned n = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = (unsigned)CPU_COUNT(&set);
	return n < MAX_DEFAULT_WORKERS ? n : MAX_DEFAULT_WORKERS;
}

int soda_listener_create(int fd, const char *address, bool local,
			 const struct soda_data_plane *plane, const struct soda_service *ops,
			 void *svc, const struct soda_listener_options *opt,
			 struct soda_listener **listener_p, struct soda_why *why)
{
	struct soda_listener *l = calloc(1, sizeof(*l));

	if (l)
		l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!l || l->wake_fd < 0) {
		int err = l ? errno : ENOMEM;

		soda_why_set(why, "cannot listen on %s: %s", address,
			     err == EMFILE ? "too many open files" : "out of memory");
		free(l);
		if (fd >= 0)
			close(fd);
		return -err;
	}
	l->fd = fd;
	l->local = l->shares = local;
	l->ops = ops;
	l->plane = plane;
	l->svc = svc;
	if (opt)
		l->opt = *opt;
	if (!l->opt.workers)
		l->opt.workers = default_workers();
	if (!l->opt.max_connections)
		l->opt.max_connections = SODA_CONNECTIONS_MAX;
	if (!l->opt.hello_timeout_ms)
		l->opt.hello_timeout_ms = SODA_HELLO_MS;
	if (!l->opt.stuck_timeout_ms)
		l->opt.stuck_timeout_ms = SODA_STUCK_MS;
	snprintf(l->address, sizeof(l->address), "%s", address);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->left, NULL);
	*listener_p = l;
	return 0;
}

unsigned soda_least_loaded(const void *workers, unsigned n,
			   unsigned (*load)(const void *workers, unsigned i))
{
	unsigned best = 0;

	for (unsigned i = 1; i < n; i++)
		if (load(workers, i) < load(workers, best))
			best = i;
	return best;
}

static int start_workers(struct soda_listener *l)
{
	int ret;

	l->workers = calloc(l->opt.workers, sizeof(*l->workers));
	if (!l->workers)
		return -ENOMEM;
	soda_homes_init(&l->homes, l->opt.workers);
	for (unsigned i = 0; i < l->opt.workers; i++) {
		ret = l->plane->start(l, &l->workers[i]);
		if (ret < 0)
			return ret; /* soda_listener_close ends those that run */
		l->workers_n++;
	}
	return 0;
}

int soda_listener_start(struct soda_listener *l)
{
	int ret = l->kind ? 0 : start_workers(l);

	if (ret < 0)
		return ret;
	ret = pthread_create(&l->acceptor, NULL, l->kind ? l->kind->main : soda_acceptor_main, l);
	if (ret)
		return -ret;
	l->started = true;
	return 0;
}

const char *soda_listener_address(const struct soda_listener *l)
{
	return l->address;
}

static void tell_acceptor(struct soda_listener *l, enum soda_stop stop)
{
	if (atomic_load(&l->stop) < (int)stop)
		atomic_store(&l->stop, stop);
	soda_ring(l->wake_fd);
}

void soda_listener_stop_accepting(struct soda_listener *l)
{
	tell_acceptor(l, SODA_STOP_ACCEPTING);
}

/* Control threads end by themselves once their socket is shut; data peers in their workers. */
static void end_peers(struct soda_listener *l)
{
	struct soda_wait wait;

	soda_wait_begin(&wait, "its peers' connections to end");
	pthread_mutex_lock(&l->lock);
	for (struct soda_peer *p = l->peers; p; p = p->next)
		soda_peer_close(p);
	while (l->peers)
		soda_wait_turn(&wait, &l->left, &l->lock);
	pthread_mutex_unlock(&l->lock);
	soda_wait_end(&wait);
}

void soda_socket_file_remove(const struct soda_socket_file *file)
{
	struct stat st;

	if (file->path[0] && lstat(file->path, &st) == 0 && st.st_dev == file->dev &&
	    st.st_ino == file->ino)
		unlink(file->path);
}

void soda_listener_close(struct soda_listener *l)
{
	if (!l)
		return;
	tell_acceptor(l, SODA_STOP_ALL);
	if (l->started)
		soda_wait_join(l->acceptor, "the acceptor to end");
	end_peers(l);
	for (unsigned i = 0; i < l->workers_n; i++)
		l->plane->stop(l->workers[i]);
	if (l->kind)
		l->kind->destroy(l);
	soda_socket_file_remove(&l->file);
	if (l->fd >= 0)
		close(l->fd);
	close(l->wake_fd);
	pthread_cond_destroy(&l->left);
	pthread_mutex_destroy(&l->lock);
	soda_shares_free(&l->places);
	free(l->workers);
	free(l);
}

void soda_ring(int eventfd)
{
	uint64_t one = 1;

	/* a full counter wakes as well */
	if (write(eventfd, &one, sizeof(one)) < 0)
		return;
}

int soda_peer_hello(struct soda_peer *peer, const struct soda_wire_hello *hello,
		    struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_listener *l = peer->listener;

	*welcome_p = (struct soda_wire_welcome){ .version = SODA_WIRE_VERSION,
						 .max_data = SODA_WIRE_MAX_DATA };
	return l->ops->hello(l->svc, peer, hello, &peer->info, welcome_p, &peer->client, why);
}

void soda_peer_rejected(const struct soda_peer *peer, const char *why)
{
	struct soda_listener *l = peer->listener;

	if (l->ops->rejected)
		l->ops->rejected(l->svc, peer->info.address, why);
}

static struct soda_holder holder_of(const struct soda_peer *peer)
{
	const struct soda_proved *proved = peer->info.proved;
	const struct soda_guard *guard = peer->listener->opt.guard;

	if (!proved || !guard->holder)
		return (struct soda_holder){ 0 };
	return guard->holder(guard->arg, proved->tenant);
}

static int take_place_locked(struct soda_listener *l, struct soda_holder holder, bool known,
			     struct soda_why *why)
{
	uint32_t total = l->opt.max_connections, all = l->places.all;

	if (soda_shares_room(&l->places, total, holder, 1, known ? 0 : total / KNOWN_PART))
		return soda_shares_take(&l->places, holder.number, 1);
	if (all >= total)
		soda_why_set(why, "the server has all of the %u connections that it takes", total);
	else
		soda_why_set(why,
			     "the server has %u of the %u connections that it takes, and the rest "
			     "is kept for %s (--max-connections)",
			     all, total,
			     holder.number ? "other tenants, and for clients that it knows"
					   : "clients that it knows");
	return -EBUSY;
}

int soda_peer_add(struct soda_peer *peer, bool known, struct soda_why *why)
{
	struct soda_listener *l = peer->listener;
	struct soda_holder holder = holder_of(peer);
	int ret;

	peer->holder = holder.number;
	pthread_mutex_lock(&l->lock);
	ret = take_place_locked(l, holder, known, why);
	if (ret == 0) {
		peer->prev = NULL;
		peer->next = l->peers;
		if (l->peers)
			l->peers->prev = peer;
		l->peers = peer;
	}
	pthread_mutex_unlock(&l->lock);
	return ret;
}

void soda_peer_remove(struct soda_peer *peer)
{
	struct soda_listener *l = peer->listener;
	int fd = peer->fd;

	soda_tls_close(peer->tls);
	pthread_mutex_lock(&l->lock);
	if (peer->prev)
		peer->prev->next = peer->next;
	else
		l->peers = peer->next;
	if (peer->next)
		peer->next->prev = peer->prev;
	soda_shares_put(&l->places, peer->holder, 1);
	if (fd >= 0)
		close(fd);
	/* with the lock held: once it is free the listener may be gone */
	pthread_cond_broadcast(&l->left);
	pthread_mutex_unlock(&l->lock);
}

void soda_peer_close(struct soda_peer *peer)
{
	if (peer->ops && peer->ops->close)
		peer->ops->close(peer);
	else
		shutdown(peer->fd, SHUT_RDWR);
}

void soda_peer_resume(struct soda_peer *peer)
{
	if (peer->ops && peer->ops->resume)
		peer->ops->resume(peer);
}

void soda_request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	rq->ops->done(rq, status, span);
}

void soda_request_free(struct soda_request *rq)
{
	rq->ops->free(rq);
}
