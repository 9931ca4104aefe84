/* SPDX-License-Identifier: BSD-3-Clause */
/* However `soda bench dpu` ends, it leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(program_run(SODA,                                                         \
				     (const char *const[]){ "bench", "dpu", __VA_ARGS__, NULL },   \
				     &run),                                                        \
			 0)

static bool root(void)
{
	if (geteuid() == 0)
		return true;
	print_message("SKIP: --link needs root\n");
	return false;
}

/* Something that matches; a static buffer, or NULL. */
static const char *found(const char *pattern)
{
	static char path[256];
	glob_t all;
	bool any = glob(pattern, 0, NULL, &all) == 0;

	if (any)
		snprintf(path, sizeof(path), "%s", all.gl_pathv[0]);
	globfree(&all);
	return any ? path : NULL;
}

static void pause_ms(long ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* What a benchmark of process `pid` makes outside of itself. */
struct traces {
	char link[64], cgroup[2][64], dir[64], file[80];
};

static struct traces traces_of(pid_t pid)
{
	struct traces t;

	snprintf(t.link, sizeof(t.link), "/sys/class/net/sodab%ldh", (long)pid);
	snprintf(t.cgroup[0], sizeof(t.cgroup[0]), "/sys/fs/cgroup/soda-bench-%ld", (long)pid);
	snprintf(t.cgroup[1], sizeof(t.cgroup[1]), "/sys/fs/cgroup/*/soda-bench-%ld", (long)pid);
	snprintf(t.dir, sizeof(t.dir), "%s/soda-bench-*", tmp);
	snprintf(t.file, sizeof(t.file), "%s/shared", t.dir);
	return t;
}

static bool cgroup_there(const struct traces *t)
{
	return found(t->cgroup[0]) || found(t->cgroup[1]);
}

/* A benchmark that would run for long, in a process group of its own, with its rounds begun. */
static pid_t start_long_run(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		setpgid(0, 0);
		setenv("TMPDIR", tmp, 1);
		freopen("/dev/null", "w", stdout);
		execl(build_path(SODA), "soda", "bench", "dpu", "shared", "--modes", "memserver",
		      "--size", "8M", "--rounds", "1000", "--laps", "100", "--link", "100mbit",
		      "--dpu-cpu", "50", (char *)NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	setpgid(pid, pid);

	struct traces t = traces_of(pid);

	for (int i = 0; i < LOOKS && !found(t.link); i++)
		pause_ms(10);
	for (int i = 0; i < LOOKS && found(t.file); i++) /* until the workers have it open */
		pause_ms(10);
	assert_null(found(t.file));
	assert_non_null(found(t.link));
	assert_true(cgroup_there(&t));
	assert_non_null(found(t.dir));
	return pid;
}

static void await_group_end(pid_t group)
{
	for (int i = 0; i < LOOKS && kill(-group, 0) == 0; i++)
		pause_ms(10);
	assert_true(kill(-group, 0) && errno == ESRCH);
}

static bool caps(void)
{
	RUN("--modes", "memserver", "--size", "4M", "--rounds", "1", "--dpu-cpu", "50");
	if (run.status == 0)
		return true;
	print_message("SKIP: no cgroup to cap the agent: %s\n", run.err);
	return false;
}

static void test_signals(void **state)
{
	static const int signals[] = { SIGTERM, SIGINT };

	if (!root() || !caps())
		skip();
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		pid_t pid = start_long_run();
		struct traces t = traces_of(pid);
		int status;

		assert_int_equal(kill(pid, signals[i]), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 128 + signals[i]);
		await_group_end(pid);
		assert_null(found(t.link));
		assert_false(cgroup_there(&t));
		assert_null(found(t.dir));
	}
}

/* kill -9: all processes end, and the link with them; the cgroup is removed by the next run. */
static void test_killed(void **state)
{
	if (!root() || !caps())
		skip();

	pid_t pid = start_long_run();
	struct traces t = traces_of(pid);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	await_group_end(pid);
	for (int i = 0; i < LOOKS && found(t.link); i++)
		pause_ms(10);
	assert_null(found(t.link));
	RUN("--modes", "memserver", "--size", "4M", "--rounds", "1");
	assert_int_equal(run.status, 0);
	assert_false(cgroup_there(&t));
	const char *dir = found(t.dir);

	assert_non_null(dir);
	assert_int_equal(rmdir(dir), 0); /* the file in it was gone already */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests(tests, make_tmp, remove_tmp);
}
