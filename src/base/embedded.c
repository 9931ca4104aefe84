/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"

enum { CHILD_PARENT_FD = 3 };

bool soda_embedded_find(const char *given, const char *library, char path[SODA_EMBEDDED_PATH])
{
	static const char *const beside[] = { "soda-mem-server", "../bin/soda-mem-server",
					      "../../bin/soda-mem-server",
					      "../../../bin/soda-mem-server",
					      "../mem_server/soda-mem-server" };
	const char *dirs = getenv("PATH");

	if (given && *given) {
		snprintf(path, SODA_EMBEDDED_PATH, "%s", given);
		return true;
	}
	if (library && strrchr(library, '/')) {
		int dir = (int)(strrchr(library, '/') - library);

		for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
			snprintf(path, SODA_EMBEDDED_PATH, "%.*s/%s", dir, library, beside[i]);
			if (access(path, X_OK) == 0)
				return true;
		}
	}
	while (dirs && *dirs) {
		int len = (int)strcspn(dirs, ":");

		snprintf(path, SODA_EMBEDDED_PATH, "%.*s/soda-mem-server", len, dirs);
		if (access(path, X_OK) == 0)
			return true;
		dirs += len + (dirs[len] == ':');
	}
	return false;
}

/* In the child of a fork of a program with threads: only what is async-signal-safe. */
static void become_server(const char *path, char *const argv[], char *const env[], int ready_fd,
			  int parent_fd)
{
	sigset_t none;

	if (fork() != 0)
		_exit(0); /* so that the server is not the program's child */
	setsid();
	sigemptyset(&none); /* who starts it may have blocked all */
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(parent_fd, CHILD_PARENT_FD) < 0 || dup2(ready_fd, STDOUT_FILENO) < 0)
		_exit(127);
	fcntl(CHILD_PARENT_FD, F_SETFD, 0);
	/* Close the program's descriptors: its pipes must end when the program ends. */
	if (syscall(SYS_close_range, CHILD_PARENT_FD + 1, ~0u, 0))
		for (int fd = CHILD_PARENT_FD + 1; fd < 1024; fd++)
			close(fd);
	execve(path, argv, env);
	_exit(127);
}

/* Read "READY <address>\n" from the server. 0, -ETIMEDOUT, -EIO, -EPROTO. */
static int await_ready(int fd, int timeout_ms, char *address, size_t address_bytes)
{
	uint64_t deadline = soda_now_ns() + (uint64_t)timeout_ms * 1000000u;
	char line[256];
	size_t have = 0;

	while (have < sizeof(line) - 1) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = soda_now_ns();
		ssize_t n;

		if (now >= deadline || poll(&p, 1, (int)((deadline - now) / 1000000) + 1) == 0)
			return -ETIMEDOUT;
		n = read(fd, line + have, sizeof(line) - 1 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		have += (size_t)n;
		line[have] = 0;
		if (strchr(line, '\n'))
			break;
	}
	if (strncmp(line, "READY ", 6) || !strchr(line, '\n'))
		return -EPROTO;
	*strchr(line, '\n') = 0;
	snprintf(address, address_bytes, "%s", line + 6);
	return 0;
}

static size_t count(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

/* The environment without what `soda run` loads into programs, which a server is not. */
static void leave_out_preload(char **out)
{
	bool leave_out = getenv("SODA_RUN_LIBRARY");

	for (char **v = environ; v && *v; v++)
		if (!leave_out || strncmp(*v, "LD_PRELOAD=", 11) != 0)
			*out++ = *v;
	*out = NULL;
}

static int spawn(const char *path, const char *listen, int ready_fd, int parent_fd)
{
	char *const argv[] = {
		(char *)path, (char *)"--listen", (char *)listen, (char *)"--parent-fd",
		(char *)"3",
		/* do not touch all of the memory: it is this machine's, for these programs alone */
		(char *)"--populate=no", (char *)"--own-clients=yes",
		/* a tree of processes may be wide */
		(char *)"--max-clients", (char *)"8192", (char *)"--max-connections",
		(char *)"65536",
		/* if the environment asks for metrics, not this server's are meant */
		(char *)"--metrics", (char *)"off", NULL
	};
	char **env = malloc((count(environ) + 1) * sizeof(*env));
	int status;
	pid_t pid;

	if (!env)
		return -ENOMEM;
	leave_out_preload(env);
	pid = fork();
	if (pid == 0)
		become_server(path, argv, env, ready_fd, parent_fd);
	free(env);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return 0;
}

/* Start the program with the ends of both pipes; ours are left in ready[0] and life[1]. */
static int spawn_with(const char *path, const char *listen, int ready[2], int life[2])
{
	/* 10 and up: dup2() onto CHILD_PARENT_FD and STDOUT_FILENO must not close one of them. */
	int ready_fd = fcntl(ready[1], F_DUPFD_CLOEXEC, 10);
	int life_end = fcntl(life[0], F_DUPFD_CLOEXEC, 10);
	int ret = ready_fd < 0 || life_end < 0 ? -errno : spawn(path, listen, ready_fd, life_end);

	close(ready_fd);
	close(life_end);
	close(ready[1]);
	close(life[0]);
	return ret;
}

int soda_embedded_start(const char *path, int timeout_ms, char *address, size_t address_bytes,
			int *life_fd_p)
{
	int ready[2], life[2], ret;
	uint64_t token;
	char listen[64];

	if (getrandom(&token, sizeof(token), 0) != sizeof(token))
		token = soda_now_ns();
	snprintf(listen, sizeof(listen), "shm://@soda-%d-%016llx", getpid(),
		 (unsigned long long)token);
	if (pipe2(ready, O_CLOEXEC))
		return -errno;
	if (pipe2(life, O_CLOEXEC)) {
		ret = -errno;
		close(ready[0]);
		close(ready[1]);
		return ret;
	}
	ret = spawn_with(path, listen, ready, life);
	if (!ret)
		ret = await_ready(ready[0], timeout_ms, address, address_bytes);
	close(ready[0]);
	if (ret)
		close(life[1]);
	else
		*life_fd_p = life[1];
	return ret;
}
