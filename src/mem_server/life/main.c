/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda-mem-server: from options to listeners, and the end.
 *
 *   configure -> set up -> listen -> READY -> wait
 *     SIGTERM: refuse what is new, let clients finish, close connections
 *     parent gone: close connections
 *   -> free the clients, which writes dirty WRITABLE files -> exit
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/limits.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/metrics_http.h"
#include "mem_server/life/options.h"
#include "mem_server/life/server.h"
#include "mem_server/session/client.h"
#include "mem_server/store/handed.h"
#include "mem_server/store/host_memory.h"

struct listeners {
	struct soda_listener *at[SODA_LISTENERS_MAX];
	size_t n;
};

static int fail(const char *what, int r)
{
	soda_log_error("%s: %s", what, soda_strerror(r));
	return r;
}

/* Each region takes a descriptor: take all that the hard limit allows. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int choose_nodes(const char *text, struct soda_nodes *nodes_p)
{
	struct soda_conf_error err;
	int r = soda_nodes_parse(text, nodes_p, &err);

	if (r) {
		soda_log_error("--numa-node: %s", err.text);
		return r;
	}
	r = soda_nodes_run(nodes_p);
	return r ? fail("cannot run on the NUMA nodes of --numa-node", r) : 0;
}

static int choose_capacity(const struct soda_server_options *opt, const struct soda_nodes *nodes,
			   uint64_t *capacity_p)
{
	uint64_t available = soda_host_memory_available(nodes);
	char wanted[16], has[16];

	if (opt->hugepages) {
		available = soda_host_memory_huge(nodes);
		if (available < SODA_STORE_BLOCK) {
			soda_log_error("there are no free 2 MiB huge pages: set vm.nr_hugepages, or"
				       " leave --hugepages out");
			return -ENOMEM;
		}
	}
	*capacity_p = opt->capacity;
	if (!opt->capacity) {
		*capacity_p = opt->hugepages ? available : available / 5 * 4;
	} else if (available && opt->capacity > available) {
		soda_log_warning("--capacity %s is more than the %s that are available: writes may"
				 " find no memory",
				 soda_format_size(opt->capacity, wanted),
				 soda_format_size(available, has));
	}
	if (*capacity_p >= SODA_STORE_BLOCK)
		return 0;
	soda_log_error("too little memory is available: choose a --capacity");
	return -ENOMEM;
}

static int set_up(struct soda_server *server, const struct soda_server_options *opt)
{
	uint64_t capacity = 0;
	struct soda_nodes nodes;
	int r = choose_nodes(opt->numa_node, &nodes);

	if (!r)
		r = choose_capacity(opt, &nodes, &capacity);
	if (r)
		return r;
	soda_store_init(&server->store, capacity);
	server->store.hugepages = opt->hugepages;
	if (!opt->populate)
		soda_store_populate_later(&server->store);
	server->store.nodes = nodes;
	r = soda_store_watch(&server->store);
	if (r && (opt->quota || opt->allow_other))
		soda_log_warning("memory that local clients keep after they have closed it does not"
				 " count as theirs: this kernel does not tell when it is gone (%s)",
				 soda_strerror(r));
	r = soda_files_init(&server->files, &server->store, opt->export_dir);
	if (r)
		return fail(opt->export_dir, r);
	server->pool = (struct soda_region_pool){
		.store = &server->store,
		.files = &server->files,
		.quota = opt->quota,
		.max_regions = opt->max_regions,
		.close_ms = opt->close_ms,
	};
	server->sessions.pool = &server->pool;
	server->sessions.max_clients = opt->max_clients;
	server->sessions.grace_ms = opt->grace_ms;
	server->sessions.allow_other = opt->allow_other;
	server->started_ms = soda_client_now_ms();
	r = soda_sessions_start(&server->sessions);
	return r ? fail("cannot start a thread", r) : 0;
}

static int open_listener(struct soda_server *server, const struct soda_server_options *opt,
			 const char *address, struct listeners *listeners)
{
	const struct soda_listener_options how = { .workers = opt->workers,
						   .max_connections = opt->max_connections };
	struct soda_why why = { "" };
	int r;

	if (listeners->n == SODA_LISTENERS_MAX) {
		soda_log_error("at most %d addresses", SODA_LISTENERS_MAX);
		return -EINVAL;
	}
	r = soda_listener_open(address, &soda_server_service, server, &how,
			       &listeners->at[listeners->n], &why);
	if (r) {
		soda_log_error("cannot listen on %s: %s", address,
			       *why.text ? why.text : soda_strerror(r));
		return r;
	}
	listeners->n++;
	return 0;
}

static int open_listeners(struct soda_server *server, const struct soda_server_options *opt,
			  struct listeners *listeners)
{
	char *list = strdup(opt->listen), *rest = list, *address;
	int r = list ? 0 : -ENOMEM;

	while (!r && (address = strsep(&rest, ", ")))
		if (*address)
			r = open_listener(server, opt, address, listeners);
	free(list);
	if (!r && !listeners->n) {
		soda_log_error("--listen names no address");
		r = -EINVAL;
	}
	for (size_t i = 0; i < listeners->n && !r; i++) {
		r = soda_listener_start(listeners->at[i]);
		if (r)
			fail("cannot start a listener", r);
	}
	return r;
}

static void close_listeners(struct listeners *listeners)
{
	for (size_t i = 0; i < listeners->n; i++)
		soda_listener_close(listeners->at[i]);
	listeners->n = 0;
}

static void announce(const struct soda_server *server, const struct listeners *listeners,
		     const struct soda_metrics_http *http)
{
	const char *addresses[SODA_LISTENERS_MAX + 1];
	size_t n = listeners->n;
	char capacity[16], nodes[64];

	for (size_t i = 0; i < n; i++) {
		addresses[i] = soda_listener_address(listeners->at[i]);
		soda_log_info("listening on %s", addresses[i]);
	}
	if (server->store.nodes.n)
		soda_log_info("memory from NUMA %s %s",
			      server->store.nodes.n > 1 ? "nodes" : "node",
			      soda_nodes_format(&server->store.nodes, nodes));
	soda_log_info("capacity %s, instance %016llx",
		      soda_format_size(server->store.capacity, capacity),
		      (unsigned long long)server->sessions.instance_id);
	if (http) {
		addresses[n] = soda_metrics_http_url(http);
		soda_log_info("metrics at %s", addresses[n++]);
	}
	soda_daemon_ready(addresses, n);
}

/* Refuse what is new; true when every client has left in time. */
static bool drain(struct soda_server *server, struct listeners *listeners, uint32_t drain_ms,
		  int parent_fd)
{
	uint64_t end = soda_client_now_ms() + drain_ms;

	soda_daemon_stopping();
	soda_sessions_drain(&server->sessions);
	for (size_t i = 0; i < listeners->n; i++)
		soda_listener_stop_accepting(listeners->at[i]);
	while (soda_sessions_connected(&server->sessions)) {
		uint64_t now = soda_client_now_ms();
		uint64_t left = end > now ? end - now : 0;

		if (!left ||
		    soda_daemon_wait(-1, parent_fd,
				     left < SODA_DRAIN_LOOK_MS ? (int)left : SODA_DRAIN_LOOK_MS) ==
			    SODA_DAEMON_PARENT_GONE)
			return false;
	}
	return true;
}

static bool is_healthy(void *server)
{
	return !soda_sessions_draining(&((struct soda_server *)server)->sessions);
}

/* *http_p stays NULL where it is not wanted. */
static int open_metrics(struct soda_server *server, const char *address,
			struct soda_metrics_http **http_p)
{
	const struct soda_metrics_source source = {
		.prefix = "soda_mem_server",
		.walk = soda_server_walk,
		.healthy = is_healthy,
		.arg = server,
	};
	struct soda_conf_error err;
	int r = address && *address ? soda_metrics_http_start(address, &source, http_p, &err) : 0;

	if (r)
		soda_log_error("%s", err.text);
	return r;
}

static int serve(struct soda_server *server, const struct soda_server_options *opt, int signal_fd)
{
	int parent_fd = opt->parent_fd == UINT32_MAX ? -1 : (int)opt->parent_fd;
	struct listeners listeners = { .n = 0 };
	struct soda_metrics_http *http = NULL;
	unsigned lost;
	int r = open_listeners(server, opt, &listeners);

	if (!r)
		r = open_metrics(server, opt->metrics, &http);
	if (!r) {
		announce(server, &listeners, http);
		if (soda_daemon_wait(signal_fd, parent_fd, -1) == SODA_DAEMON_TERMINATE &&
		    !drain(server, &listeners, opt->drain_ms, parent_fd))
			soda_log_info("%u clients did not finish: their connections are closed",
				      soda_sessions_connected(&server->sessions));
	}
	close_listeners(&listeners);
	soda_metrics_http_stop(http);
	lost = soda_sessions_stop(&server->sessions);
	if (!r)
		soda_log_info("ended");
	return r || lost ? SODA_EXIT_FAILURE : SODA_EXIT_OK;
}

/* A server of one process shares its standard error, and is quiet unless told otherwise. */
static int log_level(const struct soda_server_options *opt)
{
	int level = soda_daemon_log_level(opt->log_level);

	return level == SODA_LOG_LVL_INFO && opt->parent_fd != UINT32_MAX ? SODA_LOG_LVL_WARNING
									  : level;
}

int main(int argc, char **argv)
{
	static struct soda_server server;
	struct soda_server_options opt;
	int signal_fd, status = SODA_EXIT_FAILURE;

	if (soda_daemon_configure(&soda_server_conf, argc, argv, &opt))
		return SODA_EXIT_USAGE;
	soda_log_setup(soda_server_conf.program, log_level(&opt), NULL, NULL);
	raise_descriptor_limit();
	signal_fd = soda_daemon_signals_open();
	if (signal_fd < 0)
		fail("cannot receive signals", signal_fd);
	else if (!set_up(&server, &opt))
		status = serve(&server, &opt, signal_fd);
	soda_conf_free(&soda_server_conf, &opt);
	return status;
}
