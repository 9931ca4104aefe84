/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/life/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "registry/keep.h"

/* Whether no other machine can connect to what the address says: the host of all addresses. */
static bool is_wildcard(const char *address)
{
	static const char *const hosts[] = { "0.0.0.0:", "[::]:", "*:", ":" };
	const char *host = strstr(address, "://");

	for (size_t i = 0; host && i < sizeof(hosts) / sizeof(hosts[0]); i++)
		if (!strncmp(host + 3, hosts[i], strlen(hosts[i])))
			return true;
	return false;
}

static bool is_one_address(const char *text)
{
	return strstr(text, "://") && !strpbrk(text, ", ") && strlen(text) <= SODA_ADDRESS_MAX;
}

int soda_server_registration_check(const struct soda_server_options *opt)
{
	struct soda_registry_name name;
	struct soda_why why = { "" };

	if (!opt->registry) {
		if (!opt->pool_address && !opt->etcd.ca && !opt->etcd.cert && !opt->etcd.key &&
		    !opt->etcd.user_file)
			return 0;
		soda_log_error("--pool-address, --etcd-ca, --etcd-cert, --etcd-key and --etcd-user "
			       "are for --pool");
		return -EINVAL;
	}
	if (soda_registry_parse(opt->registry, &name, &why)) {
		soda_log_error("--pool %s", why.text);
		return -EINVAL;
	}
	if (opt->pool_address &&
	    (!is_one_address(opt->pool_address) || is_wildcard(opt->pool_address))) {
		soda_log_error("--pool-address %s: one address is wanted that programs can connect "
			       "to, as tcp://HOST:PORT",
			       opt->pool_address);
		return -EINVAL;
	}
	return 0;
}

static int choose_address(struct soda_mem_server *server, const char *given,
			  const char *const *addresses, size_t n)
{
	const char *address = given ? given : n ? addresses[0] : "";

	if (is_wildcard(address)) {
		soda_log_error("--pool: %s says no host that programs could connect to: give "
			       "--pool-address tcp://HOST:PORT",
			       address);
		return -EINVAL;
	}
	snprintf(server->address, sizeof(server->address), "%s", address);
	return 0;
}

/* In the registry's thread. */
static void describe(void *arg, struct soda_registry_member *member)
{
	struct soda_mem_server *server = arg;

	strcpy(member->address, server->address);
	snprintf(member->domain, sizeof(member->domain), "%s",
		 server->domain ? server->domain : "");
	member->instance = server->clients.instance_id;
	member->capacity = server->store.capacity;
	member->free_bytes = soda_store_free_bytes(&server->store);
	member->state = SODA_REGISTRY_UP;
	if (atomic_load(&server->clients.moving))
		member->state = SODA_REGISTRY_DRAINING;
	if (soda_clients_draining(&server->clients))
		member->state = SODA_REGISTRY_ENDING;
}

int soda_server_registration_start(struct soda_mem_server *server,
				   const struct soda_server_options *opt,
				   const char *const *addresses, size_t n)
{
	struct soda_registry_name name;
	struct soda_why why = { "" };
	int ret;

	if (!opt->registry)
		return 0;
	ret = choose_address(server, opt->pool_address, addresses, n);
	if (ret)
		return ret;
	ret = soda_registry_parse(opt->registry, &name, &why);
	if (!ret)
		ret = soda_registry_keep_start(&name, &opt->etcd, describe, server,
					       &server->registration, &why);
	if (ret)
		soda_log_error("--pool %s: %s", opt->registry, why.text);
	return ret;
}

void soda_server_registration_stop(struct soda_mem_server *server)
{
	soda_registry_keep_stop(server->registration);
	server->registration = NULL;
}
