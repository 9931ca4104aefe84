/* SPDX-License-Identifier: BSD-3-Clause */
/* The emulated link, by ip(8) and tc(8). */
#include "soda/stage/link.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

#define PREFIX "sodab"
#define NETWORKS 32768u /* networks of four addresses each in 198.18.0.0/15 */

/* Jumbo frames, as storage networks have them: with 1500 bytes headers are 4 % of what travels. */
enum { MTU = 9000, ARGS_MAX = 24, WORDS_MAX = 256 };

/* Run a command line of words without quotes. Its exit status, or negative errno. */
static int run(bool quiet, const char *line)
{
	char words[WORDS_MAX], *rest = words, *args[ARGS_MAX + 1] = { NULL };
	int n = 0, status;
	pid_t pid;

	snprintf(words, sizeof(words), "%s", line);
	while (n < ARGS_MAX && (args[n] = strsep(&rest, " ")))
		n++;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int nothing = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;

		if (nothing >= 0)
			dup2(nothing, STDERR_FILENO);
		execvp(args[0], args);
		fprintf(stderr, "soda: cannot run %s (package iproute2): %s\n", args[0],
			strerror(errno));
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

/* Run each line, a command; stops at the first that fails, after a message. */
static int run_told(const char *line)
{
	int status = run(false, line);

	if (status)
		fprintf(stderr, "soda: --link: '%s' failed\n", line);
	return status ? -EIO : 0;
}

static uint64_t parse_rate(const char *rate)
{
	static const struct {
		const char *unit;
		double bits;
	} units[] = { { "kbit", 1e3 }, { "mbit", 1e6 }, { "gbit", 1e9 } };
	char *end;
	double n = strtod(rate, &end);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (rate[0] >= '0' && rate[0] <= '9' && strcasecmp(end, units[i].unit) == 0 &&
		    n * units[i].bits >= 1e5 && n * units[i].bits <= 1e12)
			return (uint64_t)(n * units[i].bits);
	return 0;
}

/* The name of a device: of that end, of the owner's i-th link. */
static void name_end(char name[32], pid_t owner, char end, unsigned i)
{
	char more[2] = { i ? (char)('a' + i) : '\0', '\0' };

	snprintf(name, 32, PREFIX "%ld%c%s", (long)owner, end, more);
}

int soda_bench_link_plan(const char *rate, pid_t owner, struct soda_bench_link *link)
{
	return soda_bench_link_plan_nth(rate, owner, 0, link);
}

int soda_bench_link_plan_nth(const char *rate, pid_t owner, unsigned i,
			     struct soda_bench_link *link)
{
	unsigned net = ((unsigned)owner + i * 2053) % NETWORKS;
	int n = snprintf(link->rate, sizeof(link->rate), "%s", rate);

	link->bits_per_s = parse_rate(rate);
	if (!link->bits_per_s || n >= (int)sizeof(link->rate)) {
		fprintf(stderr, "soda: --link: '%s' is not a rate such as 2gbit or 800mbit\n",
			rate);
		return -EINVAL;
	}
	if (geteuid() != 0) {
		fprintf(stderr, "soda: --link makes a network namespace and a rate limit in "
				"it: it needs root\n");
		return -EPERM;
	}
	link->owner = owner;
	name_end(link->host_name, owner, 'h', i);
	name_end(link->server_name, owner, 's', i);
	snprintf(link->host_ip, sizeof(link->host_ip), "198.%u.%u.%u", 18 + (net >> 14),
		 net >> 6 & 255, (net & 63) * 4 + 1);
	snprintf(link->server_ip, sizeof(link->server_ip), "198.%u.%u.%u", 18 + (net >> 14),
		 net >> 6 & 255, (net & 63) * 4 + 2);
	return 0;
}

int soda_bench_link_enter(void *arg)
{
	const struct soda_bench_link *link = arg;
	const char *name = link->server_name;
	char line[WORDS_MAX];

	if (unshare(CLONE_NEWNET)) {
		fprintf(stderr, "soda: --link: no network namespace: %s\n", strerror(errno));
		return -errno;
	}
	snprintf(line, sizeof(line), "ip link add %s type veth peer name %s netns %ld", name,
		 link->host_name, (long)link->owner);
	if (run_told(line))
		return -EIO;
	snprintf(line, sizeof(line), "ip addr add %s/30 dev %s", link->server_ip, name);
	if (run_told(line))
		return -EIO;
	snprintf(line, sizeof(line), "ip link set %s mtu %d up", name, MTU);
	if (run_told(line))
		return -EIO;
	snprintf(line, sizeof(line), "tc qdisc add dev %s root tbf rate %s burst 64kb latency 50ms",
		 name, link->rate);
	return run_told(line);
}

int soda_bench_link_join(const struct soda_bench_link *link)
{
	char line[WORDS_MAX];

	snprintf(line, sizeof(line), "ip addr add %s/30 dev %s", link->host_ip, link->host_name);
	if (run_told(line))
		return -EIO;
	snprintf(line, sizeof(line), "ip link set %s mtu %d up", link->host_name, MTU);
	return run_told(line);
}

static int read_counter(const char *name, const char *counter, uint64_t *value_p)
{
	char path[128];
	unsigned long long value;
	FILE *in;
	int n;

	snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/%s", name, counter);
	in = fopen(path, "r");
	if (!in)
		return -errno;
	n = fscanf(in, "%llu", &value);
	fclose(in);
	if (n != 1)
		return -EIO;
	*value_p = value;
	return 0;
}

int soda_bench_link_read(const struct soda_bench_link *link, struct soda_bench_link_bytes *out)
{
	int err = read_counter(link->host_name, "rx_bytes", &out->from_server);

	return err ? err : read_counter(link->host_name, "tx_bytes", &out->to_server);
}

void soda_bench_link_remove(pid_t owner)
{
	char name[32], path[64], line[WORDS_MAX];

	for (unsigned i = 0; i < SODA_BENCH_LINKS; i++) {
		name_end(name, owner, 'h', i);
		snprintf(path, sizeof(path), "/sys/class/net/%s", name);
		snprintf(line, sizeof(line), "ip link del %s", name);
		if (access(path, F_OK) == 0)
			run(true, line); /* it may be going with its namespace */
	}
}

void soda_bench_link_sweep(void)
{
	DIR *dir = opendir("/sys/class/net");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		long owner;
		char end, more;

		if (sscanf(entry->d_name, PREFIX "%ld%c%c", &owner, &end, &more) >= 2 &&
		    end == 'h' && owner > 0 && kill((pid_t)owner, 0) && errno == ESRCH)
			soda_bench_link_remove((pid_t)owner);
	}
	if (dir)
		closedir(dir);
}

enum { WARM_MS = 200, MEASURED_MS = 600, PIECE = 256 << 10 };

static int enter_network_of(pid_t server)
{
	char path[64];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%ld/ns/net", (long)server);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = setns(fd, CLONE_NEWNET) ? -errno : 0;
	close(fd);
	return err;
}

/* Make a listening socket in the server's network, and write its port to `told`. */
static int listen_there(const struct soda_bench_link *link, int told)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, link->server_ip, &at.sin_addr);
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&at, &bytes) ||
	    write(told, &at, sizeof(at)) != sizeof(at))
		return -1;
	return fd;
}

/* The child: send until nobody receives. */
static void stream(const struct soda_bench_link *link, pid_t server, int told)
{
	static char piece[PIECE];
	int fd, peer;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (enter_network_of(server) || (fd = listen_there(link, told)) < 0)
		_exit(1);
	peer = accept(fd, NULL, NULL);
	while (peer >= 0 && send(peer, piece, sizeof(piece), MSG_NOSIGNAL) > 0)
		;
	_exit(0);
}

/* Receive for so long. 0, or negative errno. */
static int receive(int fd, unsigned ms)
{
	static char piece[PIECE];
	uint64_t end = soda_now_ns() + ms * 1000000ull;

	while (soda_now_ns() < end) {
		ssize_t n = recv(fd, piece, sizeof(piece), 0);

		if (n <= 0)
			return n ? -errno : -EPIPE;
	}
	return 0;
}

static int measure(const struct soda_bench_link *link, int fd, uint64_t *bits_per_s_p)
{
	struct soda_bench_link_bytes before, after;
	uint64_t start, took;
	int err = receive(fd, WARM_MS);

	start = soda_now_ns();
	if (!err)
		err = soda_bench_link_read(link, &before);
	if (!err)
		err = receive(fd, MEASURED_MS);
	took = soda_now_ns() - start;
	if (!err)
		err = soda_bench_link_read(link, &after);
	if (!err)
		*bits_per_s_p = (uint64_t)((double)(after.from_server - before.from_server) * 8e9 /
					   (double)took);
	return err;
}

static int receive_from(const struct soda_bench_link *link, int told, uint64_t *bits_per_s_p)
{
	struct timeval limit = { .tv_sec = 5 };
	struct sockaddr_in at;
	int fd, err;

	if (read(told, &at, sizeof(at)) != sizeof(at))
		return -EIO;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	err = connect(fd, (struct sockaddr *)&at, sizeof(at)) ? -errno
							      : measure(link, fd, bits_per_s_p);
	close(fd);
	return err;
}

int soda_bench_link_carries(const struct soda_bench_link *link, pid_t server,
			    uint64_t *bits_per_s_p)
{
	int told[2], err;
	pid_t child;

	if (pipe2(told, O_CLOEXEC))
		return -errno;
	child = fork();
	if (child == 0)
		stream(link, server, told[1]);
	err = child < 0 ? -errno : 0;
	close(told[1]);
	if (!err)
		err = receive_from(link, told[0], bits_per_s_p);
	close(told[0]);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	if (err)
		fprintf(stderr, "soda: --link: no plain stream over it: %s\n", strerror(-err));
	return err;
}
