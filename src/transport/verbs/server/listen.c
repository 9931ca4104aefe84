/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs, the side that listens: from an address to a listener. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "transport/stream/stream.h"
#include "transport/verbs/server/two_sided.h"

enum { BACKLOG = 128 };

static void listener_destroy(struct soda_listener *l)
{
	struct soda_verbs_listener *vl = soda_verbs_listener(l);

	soda_verbs_stop_listening(vl);
	soda_vworkers_end(vl);
	if (vl->events)
		rdma_destroy_event_channel(vl->events);
	pthread_mutex_destroy(&vl->clients_lock);
	free(vl);
}

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
	if (ret == 0 && rdma_create_id(vl->events, &vl->id, NULL, RDMA_PS_TCP) < 0)
		ret = -errno;
	if (ret == 0 && rdma_bind_addr(vl->id, list->ai_addr) < 0)
		ret = -errno;
	if (ret == 0 && rdma_listen(vl->id, BACKLOG) < 0)
		ret = -errno;
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
		soda_verbs_stop_listening(vl);
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
	static const struct soda_listener_kind kind = { .main = soda_verbs_events_main,
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
		soda_verbs_stop_listening(vl);
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
