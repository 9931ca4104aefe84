/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs, the side that listens: from an address to a listener, the thread of connection events, and
 * data connections. See server.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "transport/stream/stream.h"
#include "transport/verbs/server/two_sided.h"

enum { BACKLOG = 128 };

/* Data connections */

static void data_unlink(struct soda_verbs_listener *vl, struct soda_verbs_peer *p)
{
	struct soda_verbs_peer **at = &vl->data;

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
}

/* Requests come on it; else it only answers, by keys. */
static bool is_two_sided(const struct soda_verbs_peer *p)
{
	return p->peer.listener->ops->request && !(p->hello.features & SODA_FEATURE_KEYED);
}

static struct soda_verbs_conn *two_sided_conn(struct soda_verbs_peer *p)
{
	return (struct soda_verbs_conn *)p;
}

/* What the device can touch is gone: the daemon may know. */
static void data_free(struct soda_verbs_listener *vl, struct soda_verbs_peer *p, bool welcome)
{
	struct soda_listener *l = vl->base;

	soda_verbs_client_put(vl, p->client);
	if (welcome)
		l->ops->gone(p->peer.client, &p->peer);
	soda_peer_remove(&p->peer);
	soda_wipe(&p->proved, sizeof(p->proved));
	if (is_two_sided(p))
		soda_verbs_conn_free(two_sided_conn(p));
	else
		free(p);
}

/* Its queue pair goes first: nothing of it lands once the daemon knows. */
static void data_stop(struct soda_verbs_peer *p)
{
	if (p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->cq)
		ibv_destroy_cq(p->cq);
	p->cq = NULL;
}

static void data_end(struct soda_verbs_listener *vl, struct soda_verbs_peer *p)
{
	if (is_two_sided(p)) {
		atomic_store(&p->unwanted, true);
		if (!soda_verbs_conn_end(two_sided_conn(p)))
			return; /* it wakes us */
	} else {
		data_stop(p);
	}
	data_unlink(vl, p);
	rdma_destroy_id(p->id);
	data_free(vl, p, true);
}

static void data_peer_close(struct soda_peer *peer)
{
	struct soda_verbs_peer *p = (struct soda_verbs_peer *)peer;

	atomic_store(&p->unwanted, true);
	soda_ring(peer->listener->wake_fd);
}

/* A queue pair that only answers. */
static int data_queues(struct soda_verbs_peer *p)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	p->cq = ibv_create_cq(p->id->verbs, 2, NULL, NULL, 0);
	if (!p->cq)
		return -errno;
	attr.send_cq = attr.recv_cq = p->cq;
	return rdma_create_qp(p->id, p->client->pd, &attr) < 0 ? -errno : 0;
}

/* Welcome, how to ask, and the mac where there was a proof.  How many bytes, or negative errno. */
static int say_welcome(struct soda_verbs_peer *p, const struct soda_wire_welcome *welcome,
		       uint8_t out[SODA_VERBS_PROVED_BYTES])
{
	struct soda_wire_two_sided how = { .message_bytes = 0 };
	struct soda_wire_welcome w = *welcome;
	int ret;

	if (is_two_sided(p))
		soda_verbs_conn_say(p->peer.listener, &how);
	if (p->peer.info.proved)
		w.version = SODA_WIRE_VERSION_PROVED;
	soda_wire_put_welcome(out, &w);
	soda_wire_put_two_sided(out + SODA_WIRE_WELCOME_BYTES, &how);
	if (!p->peer.info.proved)
		return SODA_VERBS_WELCOME_BYTES;
	ret = soda_welcome_mac(p->proved.key, out, out + SODA_VERBS_WELCOME_BYTES);
	p->peer.info.proved = NULL;
	soda_wipe(&p->proved, sizeof(p->proved));
	return ret < 0 ? ret : SODA_VERBS_PROVED_BYTES;
}

int soda_verbs_accept(struct soda_verbs_peer *p, const struct soda_wire_welcome *welcome)
{
	const struct soda_verbs_link link = { .id = p->id };
	uint8_t said[SODA_VERBS_PROVED_BYTES];
	struct rdma_conn_param param;
	int bytes = say_welcome(p, welcome, said);

	if (bytes < 0)
		return bytes;
	soda_verbs_link_param(&link, &p->theirs, &param);
	param.private_data = said;
	param.private_data_len = (uint8_t)bytes;
	param.srq = p->id->qp && p->id->qp->srq;
	soda_verbs_link_patience(p->id);
	if (rdma_accept(p->id, &param) < 0)
		return -errno;
	soda_verbs_link_rnr(p->id);
	return 0;
}

static int data_prepare(struct soda_verbs_listener *vl, struct soda_verbs_peer *p,
			struct soda_why *why)
{
	int ret;

	if (is_two_sided(p))
		return soda_verbs_conn_prepare(vl, two_sided_conn(p), why);
	ret = soda_verbs_client_get(vl, p->hello.client_id, p->id->verbs, &p->client);
	return ret < 0 ? ret : data_queues(p);
}

/* Greeted, and refused after all. */
static void data_refuse(struct soda_verbs_listener *vl, struct soda_verbs_peer *p, bool hello,
			int err, const char *why)
{
	if (is_two_sided(p))
		soda_verbs_conn_abandon(two_sided_conn(p));
	else
		data_stop(p);
	soda_verbs_reject(p->id, err, why);
	data_free(vl, p, hello);
}

static struct soda_verbs_peer *data_make(struct soda_verbs_listener *vl,
					 const struct soda_verbs_peer *from, struct soda_why *why)
{
	static const struct soda_peer_ops ops = { .close = data_peer_close };
	struct soda_verbs_peer *p;

	p = calloc(1, is_two_sided(from) ? sizeof(struct soda_verbs_conn) : sizeof(*p));
	if (!p)
		return NULL;
	*p = *from;
	soda_verbs_peer_moved(p);
	p->peer.ops = &ops;
	p->id->context = p;
	if (soda_peer_add(&p->peer, true, why) < 0) {
		free(p);
		return NULL;
	}
	if (is_two_sided(p))
		soda_verbs_conn_init(two_sided_conn(p));
	return p;
}

static void data_begin(struct soda_verbs_listener *vl, const struct soda_verbs_peer *from)
{
	struct soda_wire_welcome welcome;
	struct soda_why why = { "the server has no means for a connection more" };
	struct soda_verbs_peer *p = data_make(vl, from, &why);
	bool hello;
	int ret;

	if (!p) {
		soda_verbs_reject(from->id, -EBUSY, why.text);
		return;
	}
	ret = soda_peer_hello(&p->peer, &p->hello, &welcome, &why);
	hello = ret == 0;
	if (ret == 0)
		ret = data_prepare(vl, p, &why);
	if (ret == 0)
		ret = soda_verbs_accept(p, &welcome);
	if (ret < 0) {
		data_refuse(vl, p, hello, ret, why.text);
		return;
	}
	p->next = vl->data;
	vl->data = p;
}

/* Receives for calls */

struct soda_verbs_calls {
	struct soda_verbs_calls *next;
	const struct ibv_context *device;
	struct soda_verbs_receives *receives; /* NULL: the device has no shared queue */
};

static struct soda_verbs_calls *make_calls(struct ibv_context *device)
{
	struct soda_verbs_calls *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->device = device;
	if (soda_verbs_receives_create(device, &c->receives) < 0)
		c->receives = NULL;
	return c;
}

struct soda_verbs_receives *soda_verbs_receives_of(struct soda_verbs_listener *vl,
						   struct ibv_context *device)
{
	struct soda_verbs_receives *receives = NULL;
	struct soda_verbs_calls *c;

	if (!vl->base->ops->request)
		return NULL;
	pthread_mutex_lock(&vl->clients_lock);
	for (c = vl->calls; c && c->device != device; c = c->next)
		;
	if (!c && (c = make_calls(device))) {
		c->next = vl->calls;
		vl->calls = c;
	}
	if (c && c->receives && soda_verbs_receives_join(c->receives))
		receives = c->receives;
	pthread_mutex_unlock(&vl->clients_lock);
	return receives;
}

static void end_calls(struct soda_verbs_listener *vl)
{
	while (vl->calls) {
		struct soda_verbs_calls *c = vl->calls;

		vl->calls = c->next;
		if (c->receives)
			soda_verbs_receives_destroy(c->receives);
		free(c);
	}
}

/* Requests to connect */

static void rejected(const struct soda_verbs_peer *p, int err, const char *reason)
{
	soda_peer_rejected(&p->peer, reason);
	soda_verbs_reject(p->id, err, reason);
}

/* p->id's connection request, with what came along: whether it may be let in. */
static bool check(struct soda_verbs_listener *vl, struct soda_verbs_peer *p, const void *said,
		  size_t bytes)
{
	char reason[SODA_REASON_BYTES];
	int ret;

	if (vl->base->opt.guard)
		return soda_verbs_stranger_speaks(&vl->strangers, p, said, bytes) > 0;
	ret = soda_hello_check(said, bytes, false, &p->hello, reason);
	if (ret < 0)
		rejected(p, ret, reason);
	return ret == 0;
}

static void introduce(struct soda_verbs_listener *vl, struct soda_verbs_peer *p, const void *said,
		      size_t bytes)
{
	if (!check(vl, p, said, bytes))
		return;
	if (p->hello.kind == SODA_CONN_CONTROL)
		soda_verbs_serve(p);
	else
		data_begin(vl, p);
	soda_wipe(&p->proved, sizeof(p->proved));
}

static void on_request(struct soda_verbs_listener *vl, struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	struct soda_verbs_peer p = { .id = event->id, .theirs = *conn };
	uint8_t said[SODA_WIRE_HELLO_BYTES] = { 0 };
	size_t bytes = conn->private_data_len;

	bytes = bytes < sizeof(said) ? bytes : sizeof(said);
	if (bytes)
		memcpy(said, conn->private_data, bytes);
	p.peer = (struct soda_peer){ .listener = vl->base, .fd = -1 };
	p.peer.info.uid = p.peer.info.gid = (uid_t)-1;
	p.peer.info.unmetered = true;
	soda_inet_format(SODA_VERBS_PREFIX, rdma_get_peer_addr(p.id),
			 ntohs(rdma_get_dst_port(p.id)), p.peer.info.address,
			 sizeof(p.peer.info.address));
	rdma_ack_cm_event(event);
	introduce(vl, &p, said, bytes);
}

/* Events */

static void on_event(struct soda_verbs_listener *vl, struct rdma_cm_event *event)
{
	struct soda_verbs_peer *p = event->id->context;
	bool ends = event->event != RDMA_CM_EVENT_ESTABLISHED &&
		    event->event != RDMA_CM_EVENT_ADDR_CHANGE;
	bool data;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(vl, event);
		return;
	}
	if (event->id == vl->id || !p || !ends) {
		rdma_ack_cm_event(event);
		return;
	}
	data = p->peer.fd < 0;
	/* a control connection's thread frees it once the event is acknowledged */
	if (!data)
		soda_peer_close(&p->peer);
	rdma_ack_cm_event(event);
	if (data)
		data_end(vl, p);
}

static void end_unwanted(struct soda_verbs_listener *vl)
{
	struct soda_verbs_peer *next;

	for (struct soda_verbs_peer *p = vl->data; p; p = next) {
		next = p->next;
		if (atomic_load(&p->unwanted))
			data_end(vl, p);
	}
}

/* Nobody will wake us for it. */
static bool any_drains(const struct soda_verbs_listener *vl)
{
	for (struct soda_verbs_peer *p = vl->data; p; p = p->next)
		if (is_two_sided(p) && two_sided_conn(p)->drains)
			return true;
	return false;
}

static void stop_listening(struct soda_verbs_listener *vl)
{
	if (vl->id)
		rdma_destroy_id(vl->id);
	vl->id = NULL;
}

/* True: nobody is left. */
static bool close_all(struct soda_verbs_listener *vl)
{
	struct soda_listener *l = vl->base;
	bool none;

	pthread_mutex_lock(&l->lock);
	for (struct soda_peer *p = l->peers; p; p = p->next)
		soda_peer_close(p);
	none = !l->peers;
	pthread_mutex_unlock(&l->lock);
	return none;
}

/* The events thread's; arg is the listener. */
static void *events_main(void *arg)
{
	struct soda_listener *l = arg;
	struct soda_verbs_listener *vl = soda_verbs_listener(l);
	struct pollfd p[] = { { .fd = vl->events->fd, .events = POLLIN },
			      { .fd = l->wake_fd, .events = POLLIN } };
	struct rdma_cm_event *event;
	int stop = SODA_STOP_NOT;
	uint64_t count;

	pthread_setname_np(pthread_self(), "soda-events");
	while (stop != SODA_STOP_ALL || !close_all(vl)) {
		poll(p, 2, stop == SODA_STOP_ALL || any_drains(vl) ? SODA_VERBS_LAST_MS : -1);
		while (rdma_get_cm_event(vl->events, &event) == 0)
			on_event(vl, event);
		if (read(l->wake_fd, &count, sizeof(count)) < 0)
			count = 0;
		end_unwanted(vl);
		stop = atomic_load(&l->stop);
		if (stop != SODA_STOP_NOT)
			stop_listening(vl);
	}
	return NULL;
}

/* The listener */

static void listener_destroy(struct soda_listener *l)
{
	struct soda_verbs_listener *vl = soda_verbs_listener(l);

	stop_listening(vl);
	soda_verbs_workers_end(vl);
	end_calls(vl);
	soda_verbs_strangers_end(&vl->strangers);
	if (vl->events)
		rdma_destroy_event_channel(vl->events);
	pthread_mutex_destroy(&vl->clients_lock);
	free(vl);
}

static int bind_one(struct soda_verbs_listener *vl, struct sockaddr *at)
{
	int ret;

	if (rdma_create_id(vl->events, &vl->id, NULL, RDMA_PS_TCP) < 0)
		return -errno;
	if (rdma_bind_addr(vl->id, at) == 0 && rdma_listen(vl->id, BACKLOG) == 0)
		return 0;
	ret = -errno;
	rdma_destroy_id(vl->id);
	vl->id = NULL;
	return ret;
}

/* The first of the host's addresses that an RDMA device has. */
static int bind_to(struct soda_verbs_listener *vl, const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE },
			*list;
	int flags, ret;

	if (getaddrinfo(host[0] ? host : NULL, port, &hints, &list))
		return -EINVAL;
	vl->events = rdma_create_event_channel();
	ret = vl->events ? 0 : errno ? -errno : -ENODEV;
	for (const struct addrinfo *a = vl->events ? list : NULL; a; a = a->ai_next) {
		ret = bind_one(vl, a->ai_addr);
		if (ret == 0)
			break;
	}
	freeaddrinfo(list);
	flags = ret == 0 ? fcntl(vl->events->fd, F_GETFL) : 0;
	if (ret == 0 && fcntl(vl->events->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		ret = -errno;
	return ret;
}

static void explain(const char *rest, int ret, struct soda_why *why)
{
	const char *what = "; the module rdma_ucm and an RDMA device are needed (rdma link)";

	if (ret == -EADDRINUSE)
		what = "; another server runs there, or use port 0";
	else if (ret == -EADDRNOTAVAIL || ret == -ENODEV)
		what = "; no RDMA device of this machine has that address (rdma link)";
	soda_why_set(why, "cannot listen on verbs://%.100s: %s%s", rest, soda_strerror(ret), what);
}

static struct soda_verbs_listener *open_listener(const char *rest, char address[128], int *err_p,
						 struct soda_why *why)
{
	struct soda_verbs_listener *vl;
	char host[256], port[8];
	unsigned number;
	bool v6;

	*err_p = soda_inet_split(SODA_VERBS_PREFIX, rest, host, port, why);
	if (*err_p < 0)
		return NULL;
	vl = calloc(1, sizeof(*vl));
	*err_p = vl ? bind_to(vl, host, port) : -ENOMEM;
	if (*err_p == 0) {
		number = ntohs(rdma_get_src_port(vl->id));
		v6 = rdma_get_local_addr(vl->id)->sa_family == AF_INET6;
		snprintf(address, 128, v6 ? "verbs://[%.100s]:%u" : "verbs://%.100s:%u",
			 host[0] ? host
			 : v6	 ? "::"
				 : "0.0.0.0",
			 number);
		return vl;
	}
	explain(rest, *err_p, why);
	if (vl) {
		stop_listening(vl);
		if (vl->events)
			rdma_destroy_event_channel(vl->events);
		free(vl);
	}
	return NULL;
}

int soda_verbs_listen(const char *rest, const struct soda_service *ops, void *svc,
		      const struct soda_listener_options *opt, struct soda_listener **listener_p,
		      struct soda_why *why)
{
	static const struct soda_listener_kind kind = { .main = events_main,
							.destroy = listener_destroy };
	struct soda_verbs_listener *vl;
	char address[128];
	int ret;

	ibv_fork_init();
	vl = open_listener(rest, address, &ret, why);
	if (!vl)
		return ret;
	ret = soda_listener_create(-1, address, false, NULL, ops, svc, opt, listener_p, why);
	if (ret < 0) {
		stop_listening(vl);
		rdma_destroy_event_channel(vl->events);
		free(vl);
		return ret;
	}
	pthread_mutex_init(&vl->clients_lock, NULL);
	vl->base = *listener_p;
	vl->base->transport = vl;
	vl->base->kind = &kind;
	vl->base->shares = true; /* by keys */
	return 0;
}
