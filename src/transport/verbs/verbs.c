/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA: connecting here, listening in server/listen.c. */
#include <errno.h>
#include <sys/socket.h>

#include "transport/stream/names.h"
#include "transport/stream/stream.h"
#include "transport/verbs/client/client.h"
#include "transport/verbs/server/server.h"

/* rest: the name, which is of no use to the adapter; connections know where they lead to. */
static int connect_at(const struct soda_place *at, const char *rest,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      uint64_t deadline_ns, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	const struct sockaddr *addr = (const void *)at->at;
	struct soda_verbs_link link;
	char place[64];
	int ret;

	soda_inet_format("", addr, soda_inet_port(addr), place, sizeof(place));
	ret = soda_verbs_link_resolve(&link, place, deadline_ns, why);
	if (ret < 0) {
		soda_verbs_link_close(&link);
		return ret;
	}
	if (opt->kind == SODA_CONN_CONTROL)
		return soda_verbs_control_create(&link, place, hello, opt, deadline_ns, conn_p,
						 welcome_p, why);
	return soda_verbs_data_create(&link, place, hello, opt, deadline_ns, conn_p, welcome_p,
				      why);
}

static int verbs_connect(const char *rest, const struct soda_wire_hello *hello,
			 const struct soda_conn_options *opt, struct soda_conn **conn_p,
			 struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	if (rest[0] == ':') {
		soda_why_set(why, "\"verbs://%.100s\" names no host to connect to", rest);
		return -EINVAL;
	}
	return soda_names_connect(SODA_VERBS_PREFIX, rest, connect_at, hello, opt, conn_p,
				  welcome_p, why);
}

const struct soda_transport soda_tp_verbs = {
	.prefix = SODA_VERBS_PREFIX,
	.connect = verbs_connect,
	.listen = soda_verbs_listen,
	.proves = true,
};
