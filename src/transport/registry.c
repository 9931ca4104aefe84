/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of transports: an address finds its own by the prefix. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "transport/api/transport_impl.h"
#include "trust/identity.h"

static const struct soda_transport *const transports[] = {
	&soda_tp_tcp,
	&soda_tp_shm,
	&soda_tp_verbs,
	&soda_tp_fault,
};

static const struct soda_transport *find(const char *address, struct soda_why *why)
{
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (!strncmp(address, transports[i]->prefix, strlen(transports[i]->prefix)))
			return transports[i];
	soda_why_set(why,
		     "\"%.100s\" is not an address; expected tcp://HOST:PORT, "
		     "verbs://HOST:PORT, shm:///PATH or shm://@NAME",
		     address);
	return NULL;
}

int soda_conn_connect(const char *address, const struct soda_wire_hello *hello,
		      const struct soda_conn_options *opt, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	const struct soda_transport *transport = find(address, why);

	if (!transport)
		return -EINVAL;
	return soda_transport_connect(transport, soda_conn_connect,
				      address + strlen(transport->prefix), hello, opt, conn_p,
				      welcome_p, why);
}

int soda_conn_connect_as_told(const char *address, const struct soda_wire_hello *hello,
			      const struct soda_conn_options *opt, struct soda_conn **conn_p,
			      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_conn_options as = *opt;
	struct soda_conf_error err = { "" };
	struct soda_identity *identity;
	int ret = soda_identity_of_environment(address, &identity, &err);

	if (ret) {
		soda_why_set(why, "%s", err.text);
		return ret;
	}
	as.identity = identity;
	ret = soda_conn_connect(address, hello, &as, conn_p, welcome_p, why);
	soda_identity_free(identity);
	return ret;
}

/* No chunks: no pages. */
static struct soda_wire_hello join_hello(void)
{
	return (struct soda_wire_hello){
		.epoch = 1, .uid = getuid(), .gid = getgid(), .pid = (uint32_t)getpid()
	};
}

int soda_conn_join(const char *address, int timeout_ms, struct soda_conn **conn_p,
		   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = timeout_ms };

	return soda_conn_join_as_told(address, &opt, conn_p, welcome_p, why);
}

int soda_conn_join_as_told(const char *address, const struct soda_conn_options *opt,
			   struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			   struct soda_why *why)
{
	const struct soda_wire_hello hello = join_hello();

	return soda_conn_connect_as_told(address, &hello, opt, conn_p, welcome_p, why);
}

int soda_conn_join_as(const char *address, const struct soda_identity *identity, int timeout_ms,
		      struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		      struct soda_why *why)
{
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = timeout_ms,
					       .identity = identity };

	return soda_conn_join_with(address, &opt, conn_p, welcome_p, why);
}

int soda_conn_join_with(const char *address, const struct soda_conn_options *opt,
			struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			struct soda_why *why)
{
	const struct soda_wire_hello hello = join_hello();

	return soda_conn_connect(address, &hello, opt, conn_p, welcome_p, why);
}

int soda_listener_open(const char *address, const struct soda_service *ops, void *svc,
		       const struct soda_listener_options *opt, struct soda_listener **listener_p,
		       struct soda_why *why)
{
	const struct soda_transport *transport = find(address, why);

	if (!transport)
		return -EINVAL;
	if (!transport->listen) {
		soda_why_set(why, "%s: one cannot listen on this transport", address);
		return -ENOTSUP;
	}
	if (opt->guard && !transport->proves) {
		soda_why_set(why,
			     "%s: a server with tenants cannot listen on this transport, which asks"
			     " nobody for a proof: use tcp or shm",
			     address);
		return -ENOTSUP;
	}
	return transport->listen(address + strlen(transport->prefix), ops, svc, opt, listener_p,
				 why);
}
