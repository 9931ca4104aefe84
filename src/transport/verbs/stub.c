/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs in a build without rdma-core: never another transport in its place. */
#include <errno.h>

#include "transport/api/transport_impl.h"

static int refuse(const char *rest, struct soda_why *why)
{
	soda_why_set(why,
		     "verbs://%.100s: this build of SODA has no RDMA: build it where rdma-core is "
		     "(libibverbs-dev, librdmacm-dev; meson -Dverbs=enabled), or use tcp://",
		     rest);
	return -ENOTSUP;
}

static int stub_connect(const char *rest, const struct soda_wire_hello *hello,
			const struct soda_conn_options *opt, struct soda_conn **conn_p,
			struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	return refuse(rest, why);
}

static int stub_listen(const char *rest, const struct soda_service *ops, void *svc,
		       const struct soda_listener_options *opt, struct soda_listener **listener_p,
		       struct soda_why *why)
{
	return refuse(rest, why);
}

const struct soda_transport soda_tp_verbs = {
	.prefix = "verbs://",
	.connect = stub_connect,
	.listen = stub_listen,
};
