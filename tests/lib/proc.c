/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting and ending processes of this build. */
#include "lib/proc.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#define LIFE_FD 3 /* in the server */
#define READY_MS 60000
#define END_MS 60000
#define MAX_ARGS 64

extern char **environ;

const char *build_path(const char *path)
{
	static char full[512];
	const char *dir = getenv("SODA_BUILD_DIR");

	snprintf(full, sizeof(full), "%s/%s", dir ? dir : "build", path);
	return full;
}

int proc_output(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd >= 0 && fcntl(fd, F_SETFL, O_APPEND)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* fds 0..2 of the child are these (-1: /dev/null); life goes to LIFE_FD (-1: none). */
static int spawn(const char *const *argv, int out, int err, int life, pid_t *pid_p)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, err, 2);
	if (life >= 0)
		posix_spawn_file_actions_adddup2(&actions, life, LIFE_FD);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn(pid_p, argv[0], &actions, &attr, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	if (r)
		fprintf(stderr, "cannot start %s: %s\n", argv[0], strerror(r));
	return r ? -1 : 0;
}

/* One line from a pipe, without its end. 0; -EPIPE: the pipe ends; -ETIMEDOUT. */
static int read_line(int fd, char *line, size_t bytes)
{
	struct pollfd in = { .fd = fd, .events = POLLIN };
	struct limit limit;
	size_t used = 0;

	limit_begin(&limit, READY_MS);
	while (used + 1 < bytes && !limit_over(&limit)) {
		if (poll(&in, 1, LIMIT_LOOK_MS) <= 0)
			continue;
		if (read(fd, line + used, 1) != 1)
			return -EPIPE;
		if (line[used] == '\n') {
			line[used] = 0;
			return 0;
		}
		used++;
	}
	return -ETIMEDOUT;
}

static int await_ready(struct server *server, int out)
{
	char line[256];
	int r = read_line(out, line, sizeof(line));

	if (!r && !strncmp(line, "READY ", 6)) {
		snprintf(server->address, sizeof(server->address), "%.127s", line + 6);
		return 0;
	}
	fprintf(stderr, "the server is not ready:\n%s", server_log(server));
	if (r == -ETIMEDOUT)
		limit_tell("its start");
	return -1;
}

static size_t add_args(const char **argv, size_t n, const char *const *args)
{
	bool listens = false;

	for (; args && *args && n < MAX_ARGS - 6; args++) {
		listens |= !strcmp(*args, "--listen") || !strncmp(*args, "--listen=", 9);
		argv[n++] = *args;
	}
	if (!listens) {
		argv[n++] = "--listen";
		argv[n++] = "tcp://127.0.0.1:0";
	}
	return n;
}

static int start_daemon(struct server *server, const char *path, const char *const *args)
{
	const char *argv[MAX_ARGS] = { build_path(path), "--parent-fd", "3" };
	int life[2], out[2], r;

	*server = (struct server){ .log_fd = -1, .life_fd = -1 };
	add_args(argv, 3, args);
	server->log_fd = proc_output("log");
	if (server->log_fd < 0 || pipe2(life, O_CLOEXEC))
		return -1;
	if (pipe2(out, O_CLOEXEC))
		return -1;
	server->life_fd = life[1];
	r = spawn(argv, out[1], server->log_fd, life[0], &server->pid);
	close(life[0]);
	close(out[1]);
	if (!r)
		r = await_ready(server, out[0]);
	close(out[0]);
	if (r) {
		server_kill(server);
		server_forget(server);
	}
	return r;
}

int server_start(struct server *server, const char *const *args)
{
	return start_daemon(server, "src/mem_server/soda-mem-server", args);
}

int agent_start(struct server *agent, const char *const *args)
{
	return start_daemon(agent, "src/dpu_agent/soda-dpu-agent", args);
}

static int decode(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Poll for the end: there is no waitpid with a time-out. */
static int wait_pid(pid_t pid, int timeout_ms)
{
	struct limit limit;
	int status;

	limit_begin(&limit, timeout_ms);
	for (;;) {
		pid_t r = waitpid(pid, &status, WNOHANG);

		if (r == pid)
			return decode(status);
		if ((r < 0 && errno != EINTR) || limit_over(&limit))
			return -1;
		usleep(2000);
	}
}

int server_wait(struct server *server, int timeout_ms)
{
	int status = server->pid ? wait_pid(server->pid, timeout_ms) : -1;

	if (status >= 0)
		server->pid = 0;
	return status;
}

int server_stop(struct server *server)
{
	int status;

	if (!server->pid)
		return -1;
	kill(server->pid, SIGTERM);
	status = server_wait(server, END_MS);
	if (status < 0) {
		limit_tell("the end of a server");
		server_kill(server);
	}
	return status;
}

/* Of a thread, as ps(1) shows it; 0: it has ended. */
static char state_of(pid_t pid, const char *tid)
{
	char path[64], text[512], *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n < 0 ? 0 : n] = '\0';
	state = strrchr(text, ')'); /* of its name, in which anything may be */
	return state && state[1] ? state[2] : 0;
}

static bool is_awake(char state)
{
	return state && !strchr("TZX", state);
}

static bool has_awake(pid_t pid)
{
	struct dirent *at;
	bool awake = false;
	char path[64];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	while (threads && !awake && (at = readdir(threads)))
		awake = at->d_name[0] != '.' && is_awake(state_of(pid, at->d_name));
	if (threads)
		closedir(threads);
	return awake;
}

bool process_halt(pid_t pid)
{
	char leader[24];

	kill(pid, SIGSTOP);
	for (int i = 0; i < LOOKS * 10 && has_awake(pid); i++)
		usleep(1000);
	snprintf(leader, sizeof(leader), "%d", pid);
	return state_of(pid, leader) == 'T';
}

void server_kill(struct server *server)
{
	if (!server->pid)
		return;
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
	server->pid = 0;
}

static void read_all(int fd, char *text, size_t bytes)
{
	ssize_t n = pread(fd, text, bytes - 1, 0);

	text[n > 0 ? n : 0] = 0;
}

const char *server_log(const struct server *server)
{
	static char text[65536];

	read_all(server->log_fd, text, sizeof(text));
	return text;
}

bool server_logs(const struct server *server, const char *text)
{
	for (int i = 0; i < LOOKS && !strstr(server_log(server), text); i++)
		usleep(10000);
	if (strstr(server_log(server), text))
		return true;
	fprintf(stderr, "the server has not logged '%s':\n%s", text, server_log(server));
	return false;
}

int server_complaints(const struct server *server)
{
	char *text = strdup(server_log(server)), *rest = text, *line;
	int n = 0;

	while (text && (line = strsep(&rest, "\n"))) {
		/* A sanitizer's report has neither word in that form. */
		if (!strstr(line, ": warning: ") && !strstr(line, ": error: ") &&
		    !strstr(line, "ERROR: ") && !strstr(line, "ThreadSanitizer") &&
		    !strstr(line, "runtime error"))
			continue;
		fprintf(stderr, "%s\n", line);
		n++;
	}
	free(text);
	return n;
}

void server_forget(struct server *server)
{
	if (server->log_fd >= 0)
		close(server->log_fd);
	if (server->life_fd >= 0)
		close(server->life_fd);
	server->log_fd = server->life_fd = -1;
}

void program_environment(void)
{
	static const char *const names[] = { "SODA_SERVER", "SODA_MEM_SERVER", "SODA_DPU",
					     "SODA_BUFFER", "SODA_LOG" };

	setenv("SODA_CONNECT_TIMEOUT", "900s", 1);
	setenv("SODA_FAULT_TIMEOUT", "900s", 1);
	setenv("LC_ALL", "C", 1);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

int program_run(const char *path, const char *const *args, struct program *program)
{
	return program_run_within(path, args, END_MS, program);
}

int program_run_within(const char *path, const char *const *args, int timeout_ms,
		       struct program *program)
{
	const char *argv[MAX_ARGS] = { build_path(path) };
	int out = proc_output("out"), err = proc_output("err");
	pid_t pid;
	int r = -1;

	for (size_t i = 0; i < MAX_ARGS - 2 && args[i]; i++)
		argv[i + 1] = args[i];
	if (out >= 0 && err >= 0 && !spawn(argv, out, err, -1, &pid)) {
		program->status = wait_pid(pid, timeout_ms);
		if (program->status < 0) {
			limit_tell(path);
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
		read_all(out, program->out, sizeof(program->out));
		read_all(err, program->err, sizeof(program->err));
		if (program->status < 0)
			fprintf(stderr, "it had said: %s\n%s\n", program->out, program->err);
		r = program->status < 0 ? -1 : 0;
	}
	close(out);
	close(err);
	return r;
}
