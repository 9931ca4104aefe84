/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda-dpu-agent: from options to listeners, and the end.
 *
 *   configure -> start -> listen -> READY -> wait
 *     SIGTERM: refuse what is new, let clients finish, close connections
 *     parent gone: close connections
 *   -> bring what was acknowledged to the server -> exit
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/numa/numa_node.h"
#include "daemon/daemon.h"
#include "daemon/metrics_http.h"
#include "dpu_agent/life/agent.h"

struct listeners {
	struct soda_listener *at[SODA_LISTENERS_MAX];
	size_t n;
};

static int fail(const char *what, int ret)
{
	soda_log_error("%s: %s", what, soda_strerror(ret));
	return ret;
}

/* Each connection takes a descriptor, and some to the server: take all that the hard limit allows.
 */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int choose_nodes(const char *text)
{
	struct soda_conf_error err;
	struct soda_nodes nodes;
	int ret = soda_nodes_parse(text, &nodes, &err);

	if (ret < 0) {
		soda_log_error("--numa-node: %s", err.text);
		return ret;
	}
	ret = soda_nodes_run(&nodes);
	if (ret == 0)
		ret = soda_nodes_place_all(&nodes);
	return ret < 0 ? fail("cannot use the NUMA nodes of --numa-node", ret) : 0;
}

static int open_listener(struct soda_dpu *dpu, const char *address, struct listeners *listeners)
{
	const struct soda_listener_options how = { .workers = dpu->opt->workers,
						   .max_connections = dpu->opt->max_connections,
						   .answer = dpu->opt->answer };
	struct soda_why why = { "" };
	int ret;

	if (listeners->n == SODA_LISTENERS_MAX) {
		soda_log_error("at most %d addresses", SODA_LISTENERS_MAX);
		return -EINVAL;
	}
	ret = soda_listener_open(address, &soda_dpu_service, dpu, &how,
				 &listeners->at[listeners->n], &why);
	if (ret < 0) {
		soda_log_error("cannot listen on %s: %s", address,
			       *why.text ? why.text : soda_strerror(ret));
		return ret;
	}
	listeners->n++;
	return 0;
}

static int open_listeners(struct soda_dpu *dpu, struct listeners *listeners)
{
	char *list = strdup(dpu->opt->listen), *rest = list, *address;
	int ret = list ? 0 : -ENOMEM;

	while (ret == 0 && (address = strsep(&rest, ", ")))
		if (*address)
			ret = open_listener(dpu, address, listeners);
	free(list);
	if (ret == 0 && !listeners->n) {
		soda_log_error("--listen names no address");
		ret = -EINVAL;
	}
	for (size_t i = 0; i < listeners->n && ret == 0; i++) {
		ret = soda_listener_start(listeners->at[i]);
		if (ret < 0)
			fail("cannot start a listener", ret);
	}
	return ret;
}

static void close_listeners(struct listeners *listeners)
{
	for (size_t i = 0; i < listeners->n; i++)
		soda_listener_close(listeners->at[i]);
	listeners->n = 0;
}

static void announce(const struct soda_dpu *dpu, const struct listeners *listeners,
		     const struct soda_metrics_http *http)
{
	const char *addresses[SODA_LISTENERS_MAX + 1];
	size_t n = listeners->n;

	for (size_t i = 0; i < n; i++) {
		addresses[i] = soda_listener_address(listeners->at[i]);
		soda_log_info("listening on %s", addresses[i]);
	}
	soda_log_info("for %s, instance %08x, aggregation %s, asynchronous %s", dpu->opt->server,
		      dpu->id, dpu->paging.aggregate ? "on" : "off",
		      dpu->paging.async ? "on" : "off");
	if (http) {
		addresses[n] = soda_metrics_http_url(http);
		soda_log_info("metrics at %s", addresses[n++]);
	}
	soda_daemon_ready(addresses, n);
}

static unsigned connected(struct soda_dpu *dpu)
{
	struct soda_sessions *all = &dpu->sessions;
	unsigned n = 0;

	pthread_mutex_lock(&all->lock);
	for (struct soda_session *s = all->list; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		n += s->peers && !s->tool; /* tools wait for no end */
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&all->lock);
	return n;
}

/* Refuse what is new; true when every client has left in time. */
static bool drain(struct soda_dpu *dpu, struct listeners *listeners, int parent_fd)
{
	uint64_t end = soda_now_ms() + dpu->opt->drain_ms;

	soda_daemon_stopping();
	pthread_mutex_lock(&dpu->sessions.lock);
	dpu->sessions.draining = true;
	pthread_mutex_unlock(&dpu->sessions.lock);
	for (size_t i = 0; i < listeners->n; i++)
		soda_listener_stop_accepting(listeners->at[i]);
	while (connected(dpu)) {
		uint64_t now = soda_now_ms();
		uint64_t left = end > now ? end - now : 0;

		if (!left ||
		    soda_daemon_wait(-1, parent_fd,
				     left < SODA_DRAIN_LOOK_MS ? (int)left : SODA_DRAIN_LOOK_MS) ==
			    SODA_DAEMON_PARENT_GONE)
			return false;
	}
	return true;
}

static bool is_healthy(void *arg)
{
	struct soda_dpu *dpu = arg;
	bool draining;

	pthread_mutex_lock(&dpu->sessions.lock);
	draining = dpu->sessions.draining;
	pthread_mutex_unlock(&dpu->sessions.lock);
	return !draining;
}

/* *http_p stays NULL where it is not wanted. */
static int open_metrics(struct soda_dpu *dpu, struct soda_metrics_http **http_p)
{
	const struct soda_metrics_source source = {
		.prefix = "soda_dpu_agent",
		.walk = soda_dpu_walk,
		.healthy = is_healthy,
		.arg = dpu,
	};
	const char *address = dpu->opt->metrics;
	struct soda_conf_error err;
	int ret = address ? soda_metrics_http_start(address, &source, http_p, &err) : 0;

	if (ret < 0)
		soda_log_error("%s", err.text);
	return ret;
}

static int serve(struct soda_dpu *dpu, int signal_fd)
{
	const struct soda_dpu_options *opt = dpu->opt;
	int parent_fd = opt->parent_fd == UINT32_MAX ? -1 : (int)opt->parent_fd;
	struct listeners listeners = { .n = 0 };
	int ret = open_listeners(dpu, &listeners);
	struct soda_metrics_http *http = NULL;
	unsigned lost;

	if (ret == 0)
		ret = open_metrics(dpu, &http);
	if (ret == 0) {
		announce(dpu, &listeners, http);
		if (soda_daemon_wait(signal_fd, parent_fd, -1) == SODA_DAEMON_TERMINATE &&
		    !drain(dpu, &listeners, parent_fd))
			soda_log_info("%u clients did not finish: their connections are closed",
				      connected(dpu));
	}
	close_listeners(&listeners);
	soda_metrics_http_stop(http);
	lost = soda_dpu_stop(dpu, opt->drain_ms);
	if (ret == 0)
		soda_log_info("ended");
	return ret < 0 || lost ? SODA_EXIT_FAILURE : SODA_EXIT_OK;
}

int main(int argc, char **argv)
{
	static struct soda_dpu dpu;
	struct soda_dpu_options opt;
	int signal_fd, ret, status = SODA_EXIT_FAILURE;

	if (soda_daemon_configure(&soda_dpu_conf, argc, argv, &opt))
		return SODA_EXIT_USAGE;
	soda_log_setup(soda_dpu_conf.program, soda_daemon_log_level(opt.log_level), NULL, NULL);
	raise_descriptor_limit();
	signal_fd = soda_daemon_signals_open();
	if (signal_fd < 0) {
		fail("cannot receive signals", signal_fd);
	} else {
		ret = choose_nodes(opt.numa_node);
		if (ret == 0) {
			ret = soda_dpu_start(&dpu, &opt);
			if (ret < 0)
				fail("cannot start", ret);
		}
		if (ret == 0)
			status = serve(&dpu, signal_fd);
	}
	soda_conf_free(&soda_dpu_conf, &opt);
	return status;
}
