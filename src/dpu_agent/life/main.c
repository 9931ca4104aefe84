/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda-dpu-agent: its part of the struct soda_daemon (daemon/daemon.h).  At its end it brings
 * acknowledged WRITEs to the memory server.
 */
#include <errno.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/host_memory.h"
#include "dpu_agent/life/agent.h"

static struct soda_dpu the_agent;
static struct soda_dpu_options opt; /* soda_daemon_run() sets it before start */

/*
 * Whether the machine, and the agent's memory cgroup, can ever hold what an option gives.  A cgroup
 * that is full gets no error: the kernel ends a process of it, most likely the agent, under all
 * programs that use it.  So what can never fit is refused now.  What others have taken at the
 * moment may come back: that is a warning.
 */
static int check_memory(const struct soda_nodes *nodes, const char *option, uint64_t bytes)
{
	uint64_t total = soda_host_memory_total(), limit = soda_host_memory_limit(), left;
	char wanted[16], has[16];

	soda_format_size(bytes, wanted);
	if (bytes > limit) {
		soda_log_error("%s %s is more than the %s that the agent's memory cgroup may have,"
			       " and the kernel would end the agent there: choose a smaller %s, or"
			       " raise the cgroup's limit",
			       option, wanted, soda_format_size(limit, has), option);
		return -EINVAL;
	}
	if (total && bytes > total) {
		soda_log_error(
			"%s %s is more than the machine's memory of %s: choose a smaller one",
			option, wanted, soda_format_size(total, has));
		return -EINVAL;
	}
	left = soda_host_memory_available(nodes);
	if (left && bytes > left)
		soda_log_warning(
			"%s %s is more than the %s that is left for the agent now: unless"
			" others give memory back, the kernel may end the agent, or hold it"
			" up (memory.high)",
			option, wanted, soda_format_size(left, has));
	return 0;
}

static int start(void *self, const struct soda_nodes *nodes, struct soda_listener_options *how)
{
	int ret = soda_nodes_place_all(nodes);

	if (ret < 0) {
		soda_log_error("cannot use the NUMA nodes of --numa-node: %s", soda_strerror(ret));
		return ret;
	}
	ret = check_memory(nodes, "--store", opt.store_bytes);
	if (ret == 0)
		ret = check_memory(nodes, "--move-memory", opt.move_bytes);
	if (ret == 0)
		ret = check_memory(nodes, "--msg-memory", opt.msg_bytes);
	if (ret < 0)
		return ret;
	ret = soda_dpu_registry_find(&opt);
	if (ret < 0)
		return ret;
	ret = soda_dpu_start(self, &opt);
	if (ret < 0)
		soda_log_error("cannot start: %s", soda_strerror(ret));
	else
		ret = soda_dpu_registry_follow(self);
	how->answer = opt.answer;
	if (opt.tenants)
		how->guard = &the_agent.tenants.guard;
	return ret;
}

static void announce(void *self)
{
	const struct soda_dpu *dpu = self;
	const struct soda_dpu_server *first = dpu->sessions.servers.place;

	soda_log_info("for %s, instance %08x, aggregation %s, asynchronous %s", opt.server, dpu->id,
		      dpu->paging.aggregate ? "on" : "off", dpu->paging.async ? "on" : "off");
	if (dpu->sessions.servers.proves)
		soda_log_info("all programs of this agent are tenant %s to the server %s%s",
			      first->identity->tenant, first->identity->server,
			      dpu->sessions.servers.pool ? ", and to the others" : "");
	if (dpu->tenants.path)
		soda_log_info("%s serves the %u tenants of %s", dpu->tenants.server, dpu->tenants.n,
			      dpu->tenants.path);
	else
		soda_log_debug("open: everybody who can connect is served");
}

static void end_tenant(void *arg, struct soda_tenant *tenant)
{
	soda_sessions_end_tenant(arg, tenant);
}

static void reload(void *self)
{
	struct soda_dpu *dpu = self;

	if (dpu->tenants.path)
		soda_tenants_reload(&dpu->tenants, end_tenant, &dpu->sessions);
}

static void drain(void *self)
{
	struct soda_sessions *all = &((struct soda_dpu *)self)->sessions;

	pthread_mutex_lock(&all->lock);
	all->draining = true;
	pthread_mutex_unlock(&all->lock);
}

static unsigned connected(void *self)
{
	struct soda_sessions *all = &((struct soda_dpu *)self)->sessions;
	unsigned n = 0;

	pthread_mutex_lock(&all->lock);
	for (struct soda_session *s = all->list; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		n += s->peers && !s->tool; /* not of tools, for which the end need not wait */
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&all->lock);
	return n;
}

static unsigned stop(void *self)
{
	soda_dpu_registry_stop();
	return soda_dpu_stop(self, opt.daemon.drain_ms);
}

int main(int argc, char **argv)
{
	const struct soda_daemon daemon = {
		.conf = &soda_dpu_conf,
		.options = &opt.daemon,
		.self = &the_agent,
		.service = &soda_dpu_service,
		.metrics_prefix = "soda_dpu_agent",
		.walk = soda_dpu_walk,
		.start = start,
		.announce = announce,
		.reload = reload,
		.drain = drain,
		.connected = connected,
		.stop = stop,
	};

	return soda_daemon_run(&daemon, argc, argv);
}
