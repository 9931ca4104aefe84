/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory server process of our own, so that its CPU time can be measured.  It is
 * looked for in SODA_MEM_SERVER, beside this program, in the build tree, in PATH.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define NAME "soda-mem-server"
#define START_TIMEOUT_MS 20000

/* A path to execute; one without a slash is looked for in PATH. */
static void find_server(char path[PATH_MAX])
{
	static const char *const places[] = { "%.*s/" NAME, "%.*s/../../src/mem_server/" NAME };
	const char *given = getenv("SODA_MEM_SERVER");
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
	int folder = 0;

	if (given && *given) {
		snprintf(path, PATH_MAX, "%s", given);
		return;
	}
	for (int i = 0; i < n; i++)
		if (self[i] == '/')
			folder = i;
	for (size_t i = 0; folder > 0 && i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, PATH_MAX, places[i], folder, self);
		if (access(path, X_OK) == 0)
			return;
	}
	snprintf(path, PATH_MAX, "%s", NAME);
}

/* Never returns. */
static void exec_server(const char *path, int out, bool shm, uint64_t capacity)
{
	char listen[64] = "tcp://127.0.0.1:0", bytes[32];

	if (shm)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-%ld", (long)getppid());
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)capacity);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	dup2(out, STDOUT_FILENO);
	execlp(path, NAME, "--listen", listen, "--capacity", bytes, "--log-level", "warning",
	       (char *)NULL);
	fprintf(stderr, "soda bench: cannot start %s: %s; name it in SODA_MEM_SERVER\n", path,
		strerror(errno));
	_exit(127);
}

/* One line of the server's, without its end; false when it ends or says nothing in time. */
static bool read_line(int fd, char *line, size_t bytes)
{
	struct pollfd poll_for = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	while (n + 1 < bytes) {
		if (poll(&poll_for, 1, START_TIMEOUT_MS) <= 0 || read(fd, line + n, 1) != 1)
			return false;
		if (line[n] == '\n') {
			line[n] = 0;
			return true;
		}
		n++;
	}
	return false;
}

static int await_ready(struct soda_bench_server *server)
{
	char line[256];

	while (read_line(server->out, line, sizeof(line)))
		if (sscanf(line, "READY %127s", server->address) == 1)
			return 0;
	fprintf(stderr, "soda bench: the memory server did not become ready\n");
	soda_bench_server_stop(server);
	return -ECHILD;
}

int soda_bench_server_start(struct soda_bench_server *server, bool shm, uint64_t capacity)
{
	char path[PATH_MAX];
	int out[2], err;

	find_server(path);
	if (pipe2(out, O_CLOEXEC)) {
		err = -errno;
		goto complain;
	}
	server->pid = fork();
	if (server->pid == 0)
		exec_server(path, out[1], shm, capacity);
	err = server->pid < 0 ? -errno : 0;
	close(out[1]);
	server->out = out[0];
	if (!err)
		return await_ready(server);
	close(out[0]);
	server->pid = 0;
complain:
	fprintf(stderr, "soda bench: cannot start %s: %s\n", path, strerror(-err));
	return err;
}

void soda_bench_server_stop(struct soda_bench_server *server)
{
	if (server->pid <= 0)
		return;
	kill(server->pid, SIGTERM);
	waitpid(server->pid, NULL, 0);
	close(server->out);
	server->pid = 0;
}
