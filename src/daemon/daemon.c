/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a daemon: options, signals, listeners, readiness, drain, end. */
#include "daemon/daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "daemon/metrics_http.h"
#include "trust/identity.h"

struct listeners {
	struct soda_listener *at[SODA_LISTENERS_MAX];
	size_t n;
};

enum event {
	TIMEOUT,
	TERMINATE,   /* SIGTERM or SIGINT */
	RELOAD,	     /* SIGHUP */
	PARENT_GONE, /* end-of-file on the parent's descriptor */
};

static _Atomic bool draining; /* for /healthz; one for the process, which is one daemon */

static int fail(const char *what, int ret)
{
	soda_log_error("%s: %s", what, soda_strerror(ret));
	return ret;
}

/* Options */

/* Read all sources of options in order, later ones win; path: the INI file, or NULL. */
static int read_sources(const struct soda_conf *conf, const char *path, int argc, char **argv,
			void *values, struct soda_conf_error *err)
{
	int first = argc;
	int r = soda_conf_defaults(conf, values, err);

	if (!r && path)
		r = soda_conf_file(conf, path, values, err);
	if (!r)
		r = soda_conf_environment(conf, values, err);
	if (!r)
		r = soda_conf_flags(conf, argc, argv, values, &first, err);
	if (!r && first < argc)
		r = soda_conf_fail(err, -EINVAL, "unexpected argument '%.80s'; see --help",
				   argv[first]);
	return r;
}

/* Read the options. 0, or an error, which is printed. */
static int configure(const struct soda_daemon *d, int argc, char **argv)
{
	const struct soda_conf *conf = d->conf;
	struct soda_conf_error err = { "" };
	/* The first reading finds the INI file's path; environment and flags outrank the file. */
	int ret = read_sources(conf, NULL, argc, argv, d->options, &err);

	if (ret == 0 && d->options->config) {
		char *path = strdup(d->options->config);

		soda_conf_free(conf, d->options);
		ret = path ? read_sources(conf, path, argc, argv, d->options, &err) : -ENOMEM;
		free(path);
	}
	if (ret == 0)
		return 0;
	fprintf(stderr, "%s: %s\n", conf->program, err.text);
	soda_conf_free(conf, d->options);
	return ret;
}

static void warn_of_misspelt(const struct soda_conf *conf)
{
	const char *given, *meant;
	int length;

	meant = soda_conf_misspelt(conf, &given, &length);
	if (meant)
		soda_log_warning("%.*s in the environment is no option and changes nothing; is %s "
				 "meant?",
				 length, given, meant);
}

/* A private server shares its program's standard error, and so logs no info unless told to. */
static int log_level(const struct soda_daemon *d)
{
	int level = SODA_LOG_LVL_ERROR + (int)d->options->log_level;
	bool quiet = d->quiet_with_parent && d->options->parent_fd != UINT32_MAX;

	return level == SODA_LOG_LVL_INFO && quiet ? SODA_LOG_LVL_WARNING : level;
}

/* Each connection and each region takes a descriptor: take all that the hard limit allows. */
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
	int ret = soda_nodes_parse(text, nodes_p, &err);

	if (ret < 0) {
		soda_log_error("--numa-node: %s", err.text);
		return ret;
	}
	ret = soda_nodes_run(nodes_p);
	return ret < 0 ? fail("cannot run on the NUMA nodes of --numa-node", ret) : 0;
}

/* Signals, and the end of the parent */

static void termination_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
}

/* Block the signals and collect them, before any thread starts. A descriptor, or negative errno. */
static int open_signals(bool reloads)
{
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	termination_signals(&set);
	if (reloads)
		sigaddset(&set, SIGHUP); /* not of a background job that ignores it, either */
	signal(SIGHUP, reloads ? SIG_DFL : SIG_IGN);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		return -EINVAL;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* Signals have come. The first that ends is logged, and the next one has its default action. */
static enum event take_signal(int signal_fd)
{
	struct signalfd_siginfo info;
	bool ends = false;
	sigset_t set;

	while (read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			continue;
		ends = true;
		soda_log_info("%s: draining; a second one ends at once",
			      info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
	}
	if (!ends)
		return RELOAD;
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	termination_signals(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return TERMINATE;
}

/* The parent's descriptor is readable: whether the parent has ended. Bytes from it are ignored. */
static int parent_ended(int fd)
{
	char bytes[256];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	return !n || (n < 0 && errno != EINTR && errno != EAGAIN);
}

/* Wait for an event, at most timeout_ms; -1: no limit. signal_fd, parent_fd: -1: none. */
static enum event await(int signal_fd, int parent_fd, int timeout_ms)
{
	struct pollfd fds[2] = { { .fd = signal_fd, .events = POLLIN },
				 { .fd = parent_fd, .events = POLLIN } };
	uint64_t end = soda_now_ns() + (uint64_t)timeout_ms * SODA_MS_NS;

	for (;;) {
		int64_t left_ns = (int64_t)(end - soda_now_ns());

		if (timeout_ms >= 0 && left_ns < 0)
			return TIMEOUT;
		if (poll(fds, 2, timeout_ms < 0 ? -1 : (int)(left_ns / (int64_t)SODA_MS_NS)) <= 0)
			continue;
		if (fds[0].revents)
			return take_signal(signal_fd);
		if (fds[1].revents && parent_ended(parent_fd))
			return PARENT_GONE;
	}
}

/* Readiness */

/* Send a datagram to the service manager, as sd_notify(3) does. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (!n || n >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, n);
	if (*path == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		soda_log_warning("cannot notify the service manager at %s: %s", path,
				 soda_strerror(errno));
	if (fd >= 0)
		close(fd);
}

static int tell_addresses(const struct soda_daemon *d, const struct listeners *listeners)
{
	const char *addresses[SODA_LISTENERS_MAX];

	if (!d->listening)
		return 0;
	for (size_t i = 0; i < listeners->n; i++)
		addresses[i] = soda_listener_address(listeners->at[i]);
	return d->listening(d->self, addresses, listeners->n);
}

static void announce(const struct soda_daemon *d, const struct listeners *listeners,
		     const struct soda_metrics_http *http)
{
	for (size_t i = 0; i < listeners->n; i++)
		soda_log_info("listening on %s", soda_listener_address(listeners->at[i]));
	d->announce(d->self);
	if (http)
		soda_log_info("metrics at %s", soda_metrics_http_url(http));
	for (size_t i = 0; i < listeners->n; i++)
		printf("READY %s\n", soda_listener_address(listeners->at[i]));
	if (http)
		printf("READY %s\n", soda_metrics_http_url(http));
	fflush(stdout);
	notify("READY=1");
}

/* TLS */

static bool names(const char *list, const char *prefix)
{
	size_t n = strlen(prefix);

	for (const char *at = list; (at = strstr(at, prefix)); at += n)
		if (at == list || at[-1] == ',' || at[-1] == ' ')
			return true;
	return false;
}

/* As --tls says, for the listeners that it concerns. */
static int prepare_tls(const struct soda_daemon *d, struct soda_listener_options *how)
{
	const struct soda_daemon_options *o = d->options;
	struct soda_conf_error err = { "" };
	char why[SODA_TLS_WHY];
	int ret;

	if (o->tls == SODA_TLS_OFF)
		return 0;
	if (o->tls == SODA_TLS_REQUIRE && names(o->listen, "verbs://")) {
		soda_log_error("--tls require: verbs carries everything in clear: listen on tcp or"
			       " shm, or use --tls on");
		return -ENOTSUP;
	}
	if (!names(o->listen, "tcp://"))
		return 0;
	ret = soda_tls_serve(how->guard, o->certificates, &how->tls, &err);
	how->tls_only = o->tls == SODA_TLS_REQUIRE;
	if (ret < 0)
		soda_log_error("--tls %s: %s", soda_tls_mode_names[o->tls], err.text);
	else if (how->tls_only && soda_tls_kernel(why))
		soda_log_info("--tls require: from other machines come sealed data alone: %s", why);
	return ret;
}

/* Listeners and metrics */

static int open_listener(const struct soda_daemon *d, const struct soda_listener_options *how,
			 const char *address, struct listeners *listeners)
{
	struct soda_why why = { "" };
	int ret;

	if (listeners->n == SODA_LISTENERS_MAX) {
		soda_log_error("at most %d addresses", SODA_LISTENERS_MAX);
		return -EINVAL;
	}
	ret = soda_listener_open(address, d->service, d->self, how, &listeners->at[listeners->n],
				 &why);
	if (ret < 0) {
		/* most say themselves which address it is */
		if (strstr(why.text, "cannot listen"))
			soda_log_error("%s", why.text);
		else
			soda_log_error("cannot listen on %s: %s", address,
				       *why.text ? why.text : soda_strerror(ret));
		return ret;
	}
	listeners->n++;
	return 0;
}

static int open_listeners(const struct soda_daemon *d, const struct soda_listener_options *how,
			  struct listeners *listeners)
{
	char *list = strdup(d->options->listen), *rest = list, *address;
	int ret = list ? 0 : -ENOMEM;

	while (ret == 0 && (address = strsep(&rest, ", ")))
		if (*address)
			ret = open_listener(d, how, address, listeners);
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

/* Open the HTTP endpoint; *http_p stays NULL if no metrics are wanted. */
static int open_metrics(const struct soda_daemon *d, struct soda_metrics_http **http_p)
{
	const struct soda_metrics_source source = {
		.prefix = d->metrics_prefix,
		.walk = d->walk,
		.arg = d->self,
		.draining = &draining,
		.certificates = d->options->tls ? d->options->certificates : NULL,
		.local_only = d->options->tls == SODA_TLS_REQUIRE,
	};
	const char *address = d->options->metrics;
	struct soda_conf_error err;
	int ret;

	if (!address || !strcmp(address, "off"))
		return 0;
	if (!*address) {
		soda_log_info("no metrics: --metrics is empty");
		return 0;
	}
	ret = soda_metrics_http_start(address, &source, http_p, &err);
	if (ret < 0)
		soda_log_error("%s", err.text);
	return ret;
}

/* From ready to the end */

/* Refuse new clients and wait for the others. True: all have left in time. */
static bool drain(const struct soda_daemon *d, struct listeners *listeners, int parent_fd)
{
	uint64_t end = soda_now_ns() + d->options->drain_ms * SODA_MS_NS;

	notify("STOPPING=1");
	atomic_store(&draining, true);
	d->drain(d->self);
	for (size_t i = 0; i < listeners->n; i++)
		soda_listener_stop_accepting(listeners->at[i]);
	while (d->connected(d->self)) {
		uint64_t now = soda_now_ns();
		uint64_t left_ms = end > now ? (end - now) / SODA_MS_NS : 0;
		int look_ms = left_ms < SODA_DRAIN_LOOK_MS ? (int)left_ms : SODA_DRAIN_LOOK_MS;

		if (!left_ms || await(-1, parent_fd, look_ms) == PARENT_GONE)
			return false;
	}
	return true;
}

/* Those of the listeners, and of the metrics. */
static void reload_certificates(struct soda_tls_context *tls, struct soda_metrics_http *http)
{
	struct soda_conf_error err = { "" };
	int ret = soda_tls_context_reload(tls, &err);

	if (ret == 0)
		ret = soda_metrics_http_reload(http, &err);
	if (ret == 0)
		soda_log_info("SIGHUP: certificates: read again");
	else
		soda_log_warning("the certificates that were read before are used on: %s",
				 err.text);
}

/* Until it is to end. True: by a signal. */
static bool await_end(const struct soda_daemon *d, const struct soda_listener_options *how,
		      struct soda_metrics_http *http, int signal_fd, int parent_fd)
{
	enum event event;

	while ((event = await(signal_fd, parent_fd, -1)) == RELOAD) {
		if (d->options->tls && d->options->certificates)
			reload_certificates(how->tls, http);
		d->reload(d->self);
	}
	return event == TERMINATE;
}

static int serve(const struct soda_daemon *d, struct soda_listener_options *how, int signal_fd)
{
	int parent_fd = d->options->parent_fd == UINT32_MAX ? -1 : (int)d->options->parent_fd;
	struct listeners listeners = { .n = 0 };
	struct soda_metrics_http *http = NULL;
	int ret = prepare_tls(d, how);
	unsigned lost;

	if (ret == 0)
		ret = open_listeners(d, how, &listeners);
	if (ret == 0)
		ret = open_metrics(d, &http);
	if (ret == 0)
		ret = tell_addresses(d, &listeners);
	if (ret == 0) {
		announce(d, &listeners, http);
		if (await_end(d, how, http, signal_fd, parent_fd) &&
		    !drain(d, &listeners, parent_fd))
			soda_log_info("%u clients did not finish: their connections are closed",
				      d->connected(d->self));
	}
	close_listeners(&listeners);
	soda_metrics_http_stop(http);
	soda_tls_context_free(how->tls);
	lost = d->stop(d->self);
	if (ret == 0)
		soda_log_info("ended");
	return ret < 0 || lost ? SODA_EXIT_FAILURE : SODA_EXIT_OK;
}

int soda_daemon_run(const struct soda_daemon *d, int argc, char **argv)
{
	int signal_fd, status = SODA_EXIT_FAILURE;
	struct soda_listener_options how;
	struct soda_nodes nodes;

	soda_private_own_only();
	if (configure(d, argc, argv))
		return SODA_EXIT_USAGE;
	soda_log_setup(d->conf->program, log_level(d), NULL, NULL);
	warn_of_misspelt(d->conf);
	raise_descriptor_limit();
	how = (struct soda_listener_options){ .workers = d->options->workers,
					      .max_connections = d->options->max_connections };
	signal_fd = open_signals(d->reload);
	if (signal_fd < 0)
		fail("cannot receive signals", signal_fd);
	else if (choose_nodes(d->options->numa_node, &nodes) == 0 &&
		 d->start(d->self, &nodes, &how) == 0)
		status = serve(d, &how, signal_fd);
	soda_conf_free(d->conf, d->options);
	return status;
}
