/* SPDX-License-Identifier: BSD-3-Clause */
/* Daemons that a benchmark starts and ends. */
#include "soda/stage/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soda/base/tool.h"
#include "soda/stage/patience.h"

enum {
	START_TIMEOUT_MS = 20000,
	DRAIN_MS = 30000 /* a daemon's own limit for its end */,
	ARGS_MAX = 32
};

const struct soda_bench_program soda_bench_mem_server = { "soda-mem-server", "SODA_MEM_SERVER",
							  "src/mem_server" };
const struct soda_bench_program soda_bench_dpu_agent = { "soda-dpu-agent", "SODA_DPU_AGENT",
							 "src/dpu_agent" };

void soda_bench_program_find(const struct soda_bench_program *program, char path[PATH_MAX])
{
	const char *given = getenv(program->env);
	char built[256];
	const char *const places[] = { program->name, built, NULL };

	snprintf(built, sizeof(built), "../../%s/%s", program->folder, program->name);
	if ((given && *given) || !soda_tool_find(places, path))
		snprintf(path, PATH_MAX, "%s", given && *given ? given : program->name);
}

/* Never returns. */
static void exec_program(const struct soda_bench_program *program, const char *path, int out,
			 const char *const *args)
{
	char *all[ARGS_MAX] = { (char *)(uintptr_t)program->name };

	for (int i = 0; args[i] && i + 2 < ARGS_MAX; i++)
		all[i + 1] = (char *)(uintptr_t)args[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* it must not outlive the benchmark */
	dup2(out, STDOUT_FILENO);
	execvp(path, all);
	fprintf(stderr, "soda: cannot start %s: %s; name it in %s\n", path, strerror(errno),
		program->env);
	_exit(127);
}

/* Read a line that the daemon prints; false: it has ended, or printed none in time. */
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

static int await_ready(struct soda_bench_daemon *daemon, const struct soda_bench_program *program)
{
	char line[256];

	while (read_line(daemon->out, line, sizeof(line)))
		if (sscanf(line, "READY %127s", daemon->address) == 1)
			return 0;
	fprintf(stderr, "soda: %s did not become ready\n", program->name);
	soda_bench_daemon_stop(daemon);
	return -ECHILD;
}

int soda_bench_daemon_start(struct soda_bench_daemon *daemon,
			    const struct soda_bench_program *program, const char *const *args,
			    int (*before)(void *arg), void *arg)
{
	char path[PATH_MAX];
	int out[2], err;

	soda_bench_program_find(program, path);
	if (pipe2(out, O_CLOEXEC)) {
		err = -errno;
		goto complain;
	}
	daemon->name = program->name;
	daemon->pid = fork();
	if (daemon->pid == 0) {
		if (before && before(arg))
			_exit(126);
		exec_program(program, path, out[1], args);
	}
	err = daemon->pid < 0 ? -errno : 0;
	close(out[1]);
	daemon->out = out[0];
	if (!err)
		return await_ready(daemon, program);
	close(out[0]);
	daemon->pid = 0;
complain:
	fprintf(stderr, "soda: cannot start %s: %s\n", path, strerror(-err));
	return err;
}

int soda_bench_server_start(struct soda_bench_daemon *daemon, const char *listen, uint64_t bytes,
			    const char *files, const struct soda_bench_start *before)
{
	char capacity[32];
	const char *const args[] = { "--listen",    listen,    "--capacity",
				     capacity,	    "--drain", "2s",
				     "--log-level", "warning", files ? "--export" : NULL,
				     files,	    NULL };

	snprintf(capacity, sizeof(capacity), "%llu", (unsigned long long)bytes);
	return soda_bench_daemon_start(daemon, &soda_bench_mem_server, args, before->run,
				       before->arg);
}

int soda_bench_agent_start(struct soda_bench_daemon *daemon, const char *listen, const char *server,
			   const struct soda_bench_start *before)
{
	const char *const args[] = { "--listen", listen,	"--server", server, "--drain",
				     "2s",	 "--log-level", "warning",  NULL };

	return soda_bench_daemon_start(daemon, &soda_bench_dpu_agent, args, before->run,
				       before->arg);
}

int soda_bench_daemon_cap(uint32_t pct, pid_t owner, struct soda_cgroup *group)
{
	int err = soda_cgroup_open_cpu(pct, owner, group);

	if (err == -ENOENT)
		fprintf(stderr, "soda: --dpu-cpu: no cgroup hierarchy here has the cpu "
				"controller\n");
	else if (err)
		fprintf(stderr, "soda: --dpu-cpu: cannot make a cgroup: %s%s\n", strerror(-err),
			err == -EACCES || err == -EPERM ? "; it needs root" : "");
	return err;
}

int soda_bench_daemon_enter_cap(const struct soda_cgroup *group)
{
	int err = soda_cgroup_enter(group);

	if (err)
		fprintf(stderr, "soda: --dpu-cpu: cannot enter %s: %s\n", group->dir,
			strerror(-err));
	return err;
}

void soda_bench_daemon_stop(struct soda_bench_daemon *daemon)
{
	struct soda_patience_process process = { .pid = daemon->pid, .name = daemon->name };

	if (daemon->pid <= 0)
		return;
	kill(daemon->pid, SIGTERM);
	soda_patience_end(&process, DRAIN_MS);
	close(daemon->out);
	daemon->pid = 0;
}

uint64_t soda_bench_daemon_cpu_ns(const struct soda_bench_daemon *daemon)
{
	struct timespec t;
	clockid_t id;

	if (daemon->pid <= 0 || clock_getcpuclockid(daemon->pid, &id) || clock_gettime(id, &t))
		return UINT64_MAX;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
