/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data connection's second queue pair, to a two-sided peer's static cache.  On the peer it
 * lies in the client's own protection domain, where the keys are, and nothing is received
 * on it.  Here it completes into the first one's queue, and its end is the connection's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "transport/stream/stream.h"
#include "transport/verbs/client/data.h"

static int make_queue_pair(const struct soda_vdata *c, struct soda_verbs_link *l,
			   struct soda_why *why)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = c->link.cq,
		.recv_cq = c->link.cq,
		.cap = { .max_send_wr = SODA_VERBS_SLOTS, .max_send_sge = 1 },
	};
	int ret = 0;

	if (l->id->verbs != c->link.id->verbs)
		ret = -EXDEV; /* the route has changed, to another device */
	else if (rdma_create_qp(l->id, c->link.pd, &attr) < 0)
		ret = -errno;
	if (ret < 0)
		soda_why_set(why, "%s: no queue pair for the static cache: %s", c->conn.peer,
			     soda_strerror(ret));
	return ret;
}

static int meet(const struct soda_vdata *c, struct soda_verbs_link *l, uint64_t deadline_ns,
		struct soda_why *why)
{
	const char *rest = c->conn.peer + strlen(SODA_VERBS_PREFIX);
	struct soda_wire_hello hello = c->hello;
	struct soda_wire_welcome welcome;
	struct soda_wire_asked asked;
	int ret;

	hello.features |= SODA_FEATURE_KEYED;
	ret = soda_verbs_link_connect(l, rest, &hello, deadline_ns, &welcome, &asked, why);
	if (ret == 0 && asked.message_bytes) {
		soda_why_set(why, "%s wants to be asked, but has given a key", c->conn.peer);
		ret = -EPROTO;
	}
	return ret;
}

/* Whoever sleeps on the connection learns of its end. */
static int watch(const struct soda_vdata *c, const struct soda_verbs_link *l)
{
	struct epoll_event ev = { .events = EPOLLIN };

	return epoll_ctl(c->link.end_fd, EPOLL_CTL_ADD, l->events->fd, &ev) < 0 ? -errno : 0;
}

int soda_vdata_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	struct soda_vdata *c = (struct soda_vdata *)conn;
	uint64_t deadline_ns = soda_deadline(timeout_ms);
	struct soda_verbs_link *l;
	int ret;

	if (!soda_vdata_two_sided(c) || soda_vdata_keyed(c))
		return 0;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	ret = soda_verbs_link_resolve(l, conn->peer + strlen(SODA_VERBS_PREFIX), deadline_ns, why);
	if (ret == 0)
		ret = make_queue_pair(c, l, why);
	if (ret == 0)
		ret = meet(c, l, deadline_ns, why);
	if (ret == 0)
		ret = watch(c, l);
	if (ret < 0) {
		soda_verbs_link_close(l);
		free(l);
		return ret;
	}
	/* release: pairs with the acquire of whoever posts */
	atomic_store_explicit(&c->keyed, l, memory_order_release);
	return 0;
}

void soda_vdata_keyed_close(struct soda_vdata *c)
{
	struct soda_verbs_link *l = soda_vdata_keyed(c);

	if (!l)
		return;
	atomic_store_explicit(&c->keyed, NULL, memory_order_relaxed);
	soda_verbs_link_close(l);
	free(l);
}
