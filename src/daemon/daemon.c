/* SPDX-License-Identifier: BSD-3-Clause */
/* Configuration, signals and readiness of a daemon. */
#include "daemon/daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

const char *const soda_daemon_log_levels[] = { "error", "warning", "info", "debug", NULL };

int soda_daemon_log_level(unsigned choice)
{
	return SODA_LOG_LVL_ERROR + (int)choice;
}

static const char *config_path(const struct soda_conf *conf, const void *values)
{
	for (size_t i = 0; i < conf->options_n; i++)
		if (!strcmp(conf->options[i].name, "config"))
			return *(char *const *)((const char *)values + conf->options[i].offset);
	return NULL;
}

/* All sources in order; path is the INI file, or NULL. */
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

int soda_daemon_configure(const struct soda_conf *conf, int argc, char **argv, void *values)
{
	struct soda_conf_error err = { "" };
	char *path = NULL;
	/* The first reading finds the INI file, which then goes below what outranks it. */
	int r = read_sources(conf, NULL, argc, argv, values, &err);

	if (!r && config_path(conf, values)) {
		path = strdup(config_path(conf, values));
		soda_conf_free(conf, values);
		r = path ? read_sources(conf, path, argc, argv, values, &err) : -ENOMEM;
		free(path);
	}
	if (!r)
		return 0;
	fprintf(stderr, "%s: %s\n", conf->program, err.text);
	soda_conf_free(conf, values);
	return r;
}

static void termination_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
}

int soda_daemon_signals_open(void)
{
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	termination_signals(&set);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		return -EINVAL;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* The first signal has been seen: the next one has its default action. */
static void take_signal(int signal_fd)
{
	struct signalfd_siginfo info;
	sigset_t set;

	while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
		soda_log_info("%s: draining; a second one ends at once",
			      info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
	signal(SIGTERM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	termination_signals(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* What a readable parent descriptor means: bytes are swallowed, only its end counts. */
static int parent_ended(int fd)
{
	char bytes[256];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	return !n || (n < 0 && errno != EINTR && errno != EAGAIN);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum soda_daemon_event soda_daemon_wait(int signal_fd, int parent_fd, int timeout_ms)
{
	struct pollfd fds[2] = { { .fd = signal_fd, .events = POLLIN },
				 { .fd = parent_fd, .events = POLLIN } };
	int64_t end = now_ms() + timeout_ms;

	for (;;) {
		int64_t left = timeout_ms < 0 ? -1 : end - now_ms();

		if (timeout_ms >= 0 && left < 0)
			return SODA_DAEMON_TIMEOUT;
		if (poll(fds, 2, (int)left) <= 0)
			continue;
		if (fds[0].revents) {
			take_signal(signal_fd);
			return SODA_DAEMON_TERMINATE;
		}
		if (fds[1].revents && parent_ended(parent_fd))
			return SODA_DAEMON_PARENT_GONE;
	}
}

/* One datagram to the service manager, as sd_notify(3) does. */
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

void soda_daemon_ready(const char *const *addresses, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("READY %s\n", addresses[i]);
	fflush(stdout);
	notify("READY=1");
}

void soda_daemon_stopping(void)
{
	notify("STOPPING=1");
}
