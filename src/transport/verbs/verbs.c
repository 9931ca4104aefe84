/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA: connecting here, listening in server/listen.c. */
#include "transport/stream/stream.h"
#include "transport/verbs/client/client.h"
#include "transport/verbs/server/server.h"

static int verbs_connect(const char *rest, const struct soda_wire_hello *hello,
			 const struct soda_conn_options *opt, struct soda_conn **conn_p,
			 struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	uint64_t deadline_ns = soda_deadline(opt->timeout_ms);
	struct soda_verbs_link link;
	int ret = soda_verbs_link_resolve(&link, rest, deadline_ns, why);

	if (ret < 0) {
		soda_verbs_link_close(&link);
		return ret;
	}
	if (opt->kind == SODA_CONN_CONTROL)
		return soda_verbs_control_create(&link, rest, hello, opt, deadline_ns, conn_p,
						 welcome_p, why);
	return soda_verbs_data_create(&link, rest, hello, opt, deadline_ns, conn_p, welcome_p, why);
}

const struct soda_transport soda_tp_verbs = {
	.prefix = SODA_VERBS_PREFIX,
	.connect = verbs_connect,
	.listen = soda_verbs_listen,
	.proves = true,
};
