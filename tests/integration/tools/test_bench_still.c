/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench fault --floor` ends, and says who waited for whom, when a process of it stands still.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/proc.h"

/* More than all waits of the benchmark together, with a patience of PATIENCE seconds and a drain.
 */
enum { END_MS = 60000, WORK_MS = 500, REQUESTS = 1000 };
#define PATIENCE "1"

static struct bench {
	pid_t pid;
	int said; /* memfd: its standard error */
} bench;

static void start(const char *pattern)
{
	bench.said = proc_output("said");
	bench.pid = fork();
	if (bench.pid == 0) {
		setpgid(0, 0);
		setenv("SODA_BENCH_PATIENCE", PATIENCE, 1);
		setenv("SODA_FAULT_TIMEOUT", PATIENCE, 1);
		dup2(bench.said, 2);
		freopen("/dev/null", "w", stdout);
		execl(build_path("tools/soda/soda"), "soda", "bench", "fault", pattern, "--size",
		      "32M", "--rounds", "1000", "--floor", (char *)NULL);
		_exit(127);
	}
	assert_true(bench.pid > 0);
}

static bool read_file(const char *path, char *to, size_t bytes)
{
	size_t n;
	FILE *f = fopen(path, "r");

	n = f ? fread(to, 1, bytes - 1, f) : 0;
	to[n] = 0;
	if (f)
		fclose(f);
	return n;
}

static bool read_line(const char *format, int pid, char *to, size_t bytes)
{
	char path[64];

	snprintf(path, sizeof(path), format, pid);
	return read_file(path, to, bytes);
}

/* Whether the process is one of the benchmark's, with that name and that word as an argument. */
static bool is(int pid, const char *name, const char *word)
{
	char comm[32], line[512];
	bool has = !*word;
	size_t n;

	if (getpgid(pid) != bench.pid || pid == bench.pid ||
	    !read_line("/proc/%d/comm", pid, comm, sizeof(comm)))
		return false;
	comm[strcspn(comm, "\n")] = 0;
	n = read_line("/proc/%d/cmdline", pid, line, sizeof(line)) ? sizeof(line) : 0;
	for (size_t i = 0; i < n && line[i]; i += strlen(line + i) + 1)
		has = has || !strcmp(line + i, word);
	return !strcmp(comm, name) && has;
}

/* The n-th such process, in the order of their numbers; 0: there is none. */
static pid_t find(const char *name, const char *word, unsigned n)
{
	struct dirent **list;
	pid_t pids[16];
	unsigned found = 0;
	int all = scandir("/proc", &list, NULL, NULL);

	for (int i = 0; i < all; i++) {
		int pid = atoi(list[i]->d_name);

		if (pid > 0 && found < 16 && is(pid, name, word))
			pids[found++] = pid;
		free(list[i]);
	}
	free(list);
	return found > n ? pids[n] : 0;
}

/* How often all threads of the process have waited for something. */
static unsigned long waits_of(pid_t pid)
{
	static const char field[] = "\nvoluntary_ctxt_switches:";
	char path[64], status[4096];
	struct dirent **list;
	unsigned long waits = 0;
	const char *at;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	n = scandir(path, &list, NULL, NULL);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", pid, list[i]->d_name);
		if (list[i]->d_name[0] != '.' && read_file(path, status, sizeof(status)) &&
		    (at = strstr(status, field)))
			waits += strtoul(at + sizeof(field) - 1, NULL, 10);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return waits;
}

/*
 * Await that the process is there and at work, and stop it.  requests: it is a server; its start,
 * in which the benchmark waits for it in another way, is over when it has waited for so many.
 */
static pid_t stop(const char *name, const char *word, unsigned n, unsigned long requests)
{
	struct limit limit;
	pid_t pid = 0;

	limit_begin(&limit, END_MS);
	while (!limit_over(&limit) && !(pid = find(name, word, n)) &&
	       waitpid(bench.pid, NULL, WNOHANG) == 0)
		usleep(10000);
	assert_true(pid > 0);
	usleep(WORK_MS * 1000); /* into its rounds; it need not be exact */
	while (!limit_over(&limit) && waits_of(pid) < requests &&
	       waitpid(bench.pid, NULL, WNOHANG) == 0)
		usleep(10000);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	return pid;
}

static void check_end(const char *const *words)
{
	static char said[65536];
	struct limit limit;
	int status = -1;
	ssize_t n;

	limit_begin(&limit, END_MS);
	while (!limit_over(&limit) && waitpid(bench.pid, &status, WNOHANG) == 0)
		usleep(10000);
	if (status == -1)
		limit_tell("soda bench fault");
	if (status == -1 || killpg(bench.pid, 0) == 0)
		killpg(bench.pid, SIGKILL);
	n = pread(bench.said, said, sizeof(said) - 1, 0);
	said[n > 0 ? n : 0] = 0;
	close(bench.said);
	assert_int_not_equal(status, -1);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	for (; *words; words++)
		if (!strstr(said, *words))
			fail_msg("\"%s\" is not in what it said: %s", *words, said);
}
#define CHECK_END(...) check_end((const char *const[]){ __VA_ARGS__, NULL })

static void test_floor_server(void **state)
{
	start("zipf");
	stop("soda-floor", "", 0, REQUESTS);
	CHECK_END("floor: waited for a chunk", "has not answered in time", "the floor process");
}

static void test_floor_server_writes(void **state)
{
	start("rmw");
	stop("soda-floor", "", 0, REQUESTS);
	/* whatever it was about to do: "waited for ... has not answered in time", or "write-back
	 * ... timed out" */
	CHECK_END("floor: w", " time");
}

/* The workers are this program again, by /proc/self/exe. */
static void test_worker(void **state)
{
	start("zipf");
	stop("exe", ".worker", 0, 0);
	CHECK_END("process", "stands still: waited", "ended by signal 9");
}

static void test_mem_server(void **state)
{
	start("zipf");
	stop("soda-mem-server", "", 0, REQUESTS);
	CHECK_END("soda-mem-server (process", "has not ended within", "killed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_floor_server),
		cmocka_unit_test(test_floor_server_writes),
		cmocka_unit_test(test_worker),
		cmocka_unit_test(test_mem_server),
	};

	return cmocka_run_group_tests_name("bench_still", tests, NULL, NULL);
}
