/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda-mem-server: its part of the struct soda_daemon (daemon/daemon.h).  At its end it frees the
 * clients, which writes their dirty WRITABLE files back.
 */
#include <errno.h>

#include "base/conf/conf.h"
#include "base/lock.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/host_memory.h"
#include "mem_server/files/content.h"
#include "mem_server/life/server.h"
#include "mem_server/store/handed.h"
#include "wire/pool.h"

static struct soda_mem_server the_server;
static struct soda_server_options opt; /* soda_daemon_run() sets it before start */

static int fail(const char *what, int r)
{
	soda_log_error("%s: %s", what, soda_strerror(r));
	return r;
}

static int choose_capacity(const struct soda_nodes *nodes, uint64_t *capacity_p)
{
	uint64_t available = soda_host_memory_available(nodes);
	char wanted[16], has[16];

	if (opt.hugepages) {
		available = soda_host_memory_huge(nodes);
		if (available < SODA_STORE_BLOCK) {
			soda_log_error("there are no free 2 MiB huge pages: set vm.nr_hugepages, or"
				       " leave --hugepages out");
			return -ENOMEM;
		}
	}
	*capacity_p = opt.capacity;
	if (!opt.capacity) {
		*capacity_p = opt.hugepages ? available : available / 5 * 4;
	} else if (available && opt.capacity > available) {
		soda_log_warning("--capacity %s is more than the %s that are available: writes may"
				 " find no memory, or wait for it (memory.high)",
				 soda_format_size(opt.capacity, wanted),
				 soda_format_size(available, has));
	}
	if (*capacity_p >= SODA_STORE_BLOCK)
		return 0;
	soda_log_error("too little memory is available: choose a --capacity");
	return -ENOMEM;
}

static int start(void *self, const struct soda_nodes *nodes, struct soda_listener_options *how)
{
	struct soda_mem_server *server = self;
	uint64_t capacity = 0;
	int r = choose_capacity(nodes, &capacity);

	if (r)
		return r;
	soda_store_init(&server->store, capacity);
	server->store.hugepages = opt.hugepages;
	if (!opt.populate)
		soda_store_populate_later(&server->store);
	server->store.nodes = *nodes;
	r = soda_store_watch(&server->store);
	if (r && (opt.quota || opt.daemon.allow_other))
		soda_log_warning("memory that local clients keep after they have closed it does not"
				 " count as theirs: this kernel does not tell when it is gone (%s)",
				 soda_strerror(r));
	if (opt.domain && !soda_wire_domain_ok(opt.domain)) {
		soda_log_error("--domain %s: a failure domain's name is 1 to %u of A-Z a-z 0-9 . _"
			       " - :",
			       opt.domain, SODA_WIRE_DOMAIN_MAX);
		return -EINVAL;
	}
	server->domain = opt.domain;
	r = soda_server_registration_check(&opt);
	if (r)
		return r;
	if (opt.tenants && opt.export_dir) {
		soda_log_error(
			"--export is for everybody, and --tenants for tenants: say in %s which"
			" directories each tenant has, and leave --export out",
			opt.tenants);
		return -EINVAL;
	}
	r = soda_tenants_start(&server->tenants, opt.tenants, &soda_server_tenants_ops,
			       &server->store);
	if (r)
		return r;
	if (opt.tenants) {
		how->guard = &server->tenants.guard;
		server->clients.tenants = &server->tenants;
	}
	r = soda_files_init(&server->files, &server->store, opt.export_dir);
	if (r == -ENOENT) {
		soda_log_error("--export: there is no directory %s: make it, or name another",
			       opt.export_dir);
		return r;
	}
	if (r)
		return fail(opt.export_dir, r);
	server->pool = (struct soda_region_pool){
		.store = &server->store,
		.files = &server->files,
		.quota = opt.quota,
		.max_regions = opt.max_regions,
		.close_ms = opt.close_ms,
	};
	server->clients.pool = &server->pool;
	server->clients.max_clients = opt.daemon.max_clients;
	server->clients.grace_ms = opt.grace_ms;
	server->clients.allow_other = opt.daemon.allow_other;
	server->clients.own = opt.own_clients;
	server->started_ns = soda_now_ns();
	r = soda_clients_start(&server->clients);
	return r ? fail("cannot start a thread", r) : 0;
}

static int listening(void *self, const char *const *addresses, size_t n)
{
	return soda_server_registration_start(self, &opt, addresses, n);
}

static void announce(void *self)
{
	const struct soda_mem_server *server = self;
	char capacity[16], nodes[64];

	if (server->store.nodes.n)
		soda_log_info("memory from NUMA %s %s",
			      server->store.nodes.n > 1 ? "nodes" : "node",
			      soda_nodes_format(&server->store.nodes, nodes));
	if (server->tenants.path)
		soda_log_info("%s serves the %u tenants of %s", server->tenants.server,
			      server->tenants.n, server->tenants.path);
	else
		soda_log_debug("open: everybody who can connect is served");
	soda_log_info("capacity %s, instance %016llx%s%s",
		      soda_format_size(server->store.capacity, capacity),
		      (unsigned long long)server->clients.instance_id,
		      server->domain ? ", failure domain " : "",
		      server->domain ? server->domain : "");
}

static void end_tenant(void *arg, struct soda_tenant *tenant)
{
	soda_clients_end_tenant(arg, tenant);
}

static void reload(void *self)
{
	struct soda_mem_server *server = self;

	if (server->tenants.path)
		soda_tenants_reload(&server->tenants, end_tenant, &server->clients);
}

static void drain(void *self)
{
	soda_clients_drain(&((struct soda_mem_server *)self)->clients);
}

static unsigned connected(void *self)
{
	return soda_clients_connected(&((struct soda_mem_server *)self)->clients);
}

static unsigned stop(void *self)
{
	struct soda_mem_server *server = self;
	unsigned lost;

	soda_server_registration_stop(server);
	soda_contents_stop(&server->files);
	lost = soda_clients_stop(&server->clients);
	soda_tenants_stop(&server->tenants);
	return lost;
}

int main(int argc, char **argv)
{
	const struct soda_daemon daemon = {
		.conf = &soda_server_conf,
		.options = &opt.daemon,
		.self = &the_server,
		.service = &soda_server_service,
		.metrics_prefix = "soda_mem_server",
		.walk = soda_server_walk,
		.quiet_with_parent = true,
		.start = start,
		.listening = listening,
		.announce = announce,
		.reload = reload,
		.drain = drain,
		.connected = connected,
		.stop = stop,
	};

	return soda_daemon_run(&daemon, argc, argv);
}
