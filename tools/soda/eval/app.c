/* SPDX-License-Identifier: BSD-3-Clause */
/* Start processes, watch them, and wait for their ends. */
#include "soda/eval/app.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda/stage/daemon.h"
#include "soda/stage/footprint.h"

enum { ARGS_MAX = 40, LOOK_MIN_US = 5000, LOOK_MAX_US = 200000, NO_PROGRAM = 127 };

/* As the agent names them: of the data, and of the map beside them. */
#define STORE_MEMFDS "soda-store"

static const struct soda_bench_program ligra = { "soda-ligra", "SODA_LIGRA", "apps/ligra" };

/* In the child: write output to the log, and end when the parent ends. */
static void settle(const char *log)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC), out;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(nothing, STDIN_FILENO);
	if (!log) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		return;
	}
	out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (out < 0) {
		fprintf(stderr, "soda eval: %s: %s\n", log, strerror(errno));
		_exit(NO_PROGRAM);
	}
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
}

static void set_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	setenv(name, text, 1);
}

static void set_or_not(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static void configure(const struct soda_eval_app_how *how)
{
	set_or_not("SODA_SERVER", how->server);
	set_or_not("SODA_DPU", how->dpu);
	if (how->buffer_bytes)
		set_number("SODA_BUFFER", how->buffer_bytes);
	if (how->chunk_bytes)
		set_number("SODA_CHUNK", how->chunk_bytes);
	/*
	 * A thread that waits for the others must not take the processor from the server; in local
	 * memory too, so that the modes differ in nothing else.
	 */
	setenv("OMP_WAIT_POLICY", "passive", 1);
}

struct arguments {
	const char *list[ARGS_MAX];
	char numbers[4][24];
	int n, numbers_n;
};

static void add(struct arguments *args, const char *name, const char *value)
{
	if (!value)
		return;
	args->list[args->n++] = name;
	args->list[args->n++] = value;
}

static void add_number(struct arguments *args, const char *name, uint64_t value)
{
	char *text = args->numbers[args->numbers_n++];

	snprintf(text, sizeof(args->numbers[0]), "%" PRIu64, value);
	add(args, name, value ? text : NULL);
}

static void make_arguments(const struct soda_eval_app_how *how, struct arguments *args)
{
	memset(args, 0, sizeof(*args));
	args->list[args->n++] = ligra.name;
	add(args, "--graph", how->graph);
	add(args, "--memory", how->memory);
	add(args, "--arrays", how->arrays);
	add(args, "--json", how->json);
	add(args, "--result", how->result);
	add_number(args, "--threads", how->threads);
	add_number(args, "--repeat", how->repeat);
	add_number(args, "--iterations", how->iterations);
	add_number(args, "--warm", how->warm_bytes);
	if (how->from_first)
		add(args, "--source", "0");
	if (how->cache_edges)
		args->list[args->n++] = "--cache-edges";
	args->list[args->n++] = "--trusted";
	args->list[args->n++] = how->app;
}

static void run_child(const struct soda_eval_app_how *how, const char *path,
		      const struct arguments *args)
{
	int err;

	settle(how->log);
	err = how->cap ? soda_cgroup_enter(how->cap) : 0;
	if (err) {
		fprintf(stderr, "soda eval: cannot enter %s: %s\n", how->cap->dir, strerror(-err));
		_exit(NO_PROGRAM);
	}
	configure(how);
	execvp(path, (char **)(uintptr_t)args->list);
	fprintf(stderr, "soda eval: cannot start %s: %s; name it in %s\n", path, strerror(errno),
		ligra.env);
	_exit(NO_PROGRAM);
}

int soda_eval_app_start(const struct soda_eval_app_how *how, struct soda_eval_app *app_p)
{
	char path[PATH_MAX];
	struct arguments args;
	pid_t pid;

	soda_bench_program_find(&ligra, path);
	make_arguments(how, &args);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		run_child(how, path, &args);
	if (pid < 0) {
		fprintf(stderr, "soda eval: fork: %s\n", strerror(errno));
		return -errno;
	}
	*app_p = (struct soda_eval_app){ .pid = pid };
	return 0;
}

/*
 * Anonymous plus shared memory of a process now, bytes; 0 where that cannot be read.  beside: not
 * that of the node's store, of which soda_eval_app_await() counts the blocks.
 */
static uint64_t pss_of(pid_t pid, bool beside)
{
	struct soda_footprint used;
	int err = beside ? soda_footprint_beside(pid, STORE_MEMFDS, &used)
			 : soda_footprint_read(pid, &used);

	return err ? 0 : used.anon_bytes + used.shmem_bytes;
}

/* Of all now. */
static uint64_t memory_of(const struct soda_eval_app *apps, uint32_t n, pid_t agent)
{
	uint64_t sum = 0;

	if (agent && soda_footprint_memfds(agent, STORE_MEMFDS, &sum))
		sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += pss_of(apps[i].pid, agent);
	return sum;
}

/* Whether it has ended; then its status and CPU time are known. */
static bool has_ended(struct soda_eval_app *app)
{
	struct rusage used;

	if (app->pid <= 0)
		return true;
	if (wait4(app->pid, &app->status, WNOHANG, &used) != app->pid)
		return false;
	app->pid = 0;
	app->cpu_ns =
		((uint64_t)used.ru_utime.tv_sec + (uint64_t)used.ru_stime.tv_sec) * 1000000000u +
		((uint64_t)used.ru_utime.tv_usec + (uint64_t)used.ru_stime.tv_usec) * 1000u;
	return true;
}

int soda_eval_app_await(struct soda_eval_app *apps, uint32_t n, pid_t agent, uint32_t timeout_ms,
			uint64_t *peak_p)
{
	uint64_t begin = soda_now_ns() / 1000, peak = 0;
	int err = 0;

	while (!has_ended(&apps[0]) && !err) {
		uint64_t look = soda_now_ns() / 1000, sum = memory_of(apps, n, agent), spent;

		peak = sum > peak ? sum : peak;
		for (uint32_t i = 1; i < n; i++)
			if (has_ended(&apps[i]))
				err = -ECHILD;
		/* Looking costs the watched process time: a twentieth of a processor at most. */
		spent = (soda_now_ns() / 1000 - look) * 19;
		spent = spent < LOOK_MIN_US ? LOOK_MIN_US : spent;
		usleep((useconds_t)(spent > LOOK_MAX_US ? LOOK_MAX_US : spent));
		if (soda_now_ns() / 1000 - begin > timeout_ms * UINT64_C(1000))
			err = -ETIMEDOUT;
	}
	*peak_p = peak;
	return err;
}

static bool log_has(const char *log, const char *text)
{
	char line[512];
	bool has = false;
	FILE *in = fopen(log, "r");

	while (in && !has && fgets(line, sizeof(line), in))
		has = strstr(line, text);
	if (in)
		fclose(in);
	return has;
}

int soda_eval_app_await_text(struct soda_eval_app *app, const char *log, const char *text,
			     uint32_t timeout_ms)
{
	uint64_t begin = soda_now_ns() / 1000;

	while (!log_has(log, text)) {
		if (has_ended(app))
			return -ECHILD;
		if (soda_now_ns() / 1000 - begin > timeout_ms * UINT64_C(1000))
			return -ETIMEDOUT;
		usleep(LOOK_MIN_US);
	}
	return 0;
}

void soda_eval_app_end(struct soda_eval_app *app)
{
	if (app->pid <= 0)
		return;
	kill(app->pid, SIGKILL);
	waitpid(app->pid, &app->status, 0);
	app->pid = 0;
}

int soda_eval_exec(const char *const *args, const char *log, uint32_t timeout_ms)
{
	struct soda_eval_app app = { 0 };
	uint64_t begin = soda_now_ns() / 1000;

	fflush(NULL);
	app.pid = fork();
	if (app.pid == 0) {
		settle(log);
		execvp(args[0], (char **)(uintptr_t)args);
		_exit(NO_PROGRAM);
	}
	if (app.pid < 0)
		return -errno;
	while (!has_ended(&app)) {
		if (soda_now_ns() / 1000 - begin > timeout_ms * UINT64_C(1000)) {
			soda_eval_app_end(&app);
			return -ETIMEDOUT;
		}
		usleep(LOOK_MIN_US);
	}
	if (WIFSIGNALED(app.status))
		return 128 + WTERMSIG(app.status);
	return WEXITSTATUS(app.status) == NO_PROGRAM ? -ENOENT : WEXITSTATUS(app.status);
}

int soda_eval_app_verify(const char *graph, const char *result, const char *log,
			 uint32_t timeout_ms)
{
	char path[PATH_MAX];
	const char *args[] = { path, "--graph", graph, "verify", result, NULL };
	int status;

	soda_bench_program_find(&ligra, path);
	status = soda_eval_exec(args, log, timeout_ms);
	return status == 0 ? 0 : status == 1 ? -EBADMSG : -EIO;
}

void soda_eval_last_line(const char *log, char *text, size_t bytes)
{
	char line[512];
	FILE *in = fopen(log, "r");

	*text = 0;
	while (in && fgets(line, sizeof(line), in)) {
		line[strcspn(line, "\n")] = 0;
		if (*line)
			snprintf(text, bytes, "%s", line);
	}
	if (in)
		fclose(in);
}
