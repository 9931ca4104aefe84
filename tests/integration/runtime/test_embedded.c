/* SPDX-License-Identifier: BSD-3-Clause */
/* Nothing configured: a private server, which is there when needed and gone with the process. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/proc.h"

/* The server writes its process id here before it becomes itself. */
static char dir[64], wrapper[96], pid_file[96];

static void child_ten_lines(const void *arg)
{
	size_t n = 16 << 20;
	uint64_t *a = soda_alloc(n * 8, 0);

	CHECK(a, "%s", strerror(errno));
	for (size_t i = 0; i < n; i += 512)
		a[i] = i;
	for (size_t i = 0; i < n; i += 512)
		CHECK_EQ(a[i], i);
	CHECK(stats_now().bytes_fetched > 0, "all of it stayed here");
	soda_free(a);
}

static void test_no_configuration(void **state)
{
	expect_passes(child_ten_lines, NULL);
}

/* Where this node's server serves its metrics is no place for a second one. */
static void test_metrics_are_not_ours(void **state)
{
	setenv("SODA_MEM_SERVER_METRICS", "nowhere", 1);
	expect_passes(child_ten_lines, NULL);
	unsetenv("SODA_MEM_SERVER_METRICS");
}

/* Alive: neither gone nor waiting to be reaped. */
static bool alive(pid_t pid)
{
	char path[64], text[256] = "";
	int fd, n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = (int)read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 && !strstr(text, ") Z ") && !strstr(text, ") X ");
}

static pid_t server_pid(void)
{
	FILE *f = fopen(pid_file, "re");
	int pid = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &pid), 1);
	fclose(f);
	return pid;
}

enum ending { END_EXIT, END_KILL, END_SHUTDOWN };

static void child_ends(const void *arg)
{
	char *p;

	setenv("SODA_MEM_SERVER", wrapper, 1);
	p = alloc_checked(1 << 20);
	p[0] = 1;
	turn_pass();
	turn_await();
	switch (*(const enum ending *)arg) {
	case END_EXIT:
		exit(0);
	case END_KILL:
		kill(getpid(), SIGKILL);
		break;
	case END_SHUTDOWN:
		CHECK_EQ(soda_shutdown(), 0);
		turn_pass();
		turn_await();
		break;
	}
}

static void await_end(pid_t pid)
{
	double end = now_seconds() + 10;

	while (alive(pid) && now_seconds() < end)
		sleep_ms(5);
	assert_false(alive(pid));
}

static void watch_server(const void *arg)
{
	pid_t pid;

	if (!turn_await())
		return;
	pid = server_pid();
	assert_true(alive(pid));
	turn_pass();
	if (*(const enum ending *)arg == END_SHUTDOWN && turn_await())
		turn_pass();
	await_end(pid);
}

static void test_server_ends_with_the_process(void **state)
{
	for (enum ending e = END_EXIT; e <= END_SHUTDOWN; e++) {
		struct trial t = { .child = child_ends, .during = watch_server, .arg = &e };
		struct outcome out;

		trial_run(&t, &out);
		if (e == END_KILL)
			expect_signal(&out, SIGKILL);
		else
			expect_quiet_success(&out);
	}
}

/* A server that cannot be started is an error, not a hang. */
static void child_no_program(const void *arg)
{
	const char *program = arg;

	setenv("SODA_MEM_SERVER", program, 1);
	setenv("SODA_CONNECT_TIMEOUT", "2s", 1);
	CHECK(!soda_alloc(4096, 0), "an object without a server");
	CHECK(strstr(soda_last_error(), program), "which program?");
}

static void test_program_missing_or_broken(void **state)
{
	struct trial t = { .child = child_no_program, .seconds = 120 };
	struct outcome out;

	t.arg = "/nonexistent/soda-mem-server";
	trial_run(&t, &out);
	expect_exit(&out, 0);
	t.arg = "/bin/false";
	trial_run(&t, &out);
	expect_exit(&out, 0);
}

/* Where the private server listens, of its command line. */
static void find_address(pid_t pid, char address[128])
{
	char path[64], line[1024];
	size_t n, at = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = 0;
	while (at < n && strcmp(line + at, "--listen") != 0)
		at += strlen(line + at) + 1;
	at += sizeof("--listen");
	assert_true(at < n);
	snprintf(address, 128, "%s", line + at);
}

/* Much more than the buffer, so that most of it is the server's alone. */
static void child_loses_its_server(const void *arg)
{
	size_t words = 8 << 20;
	uint64_t *a;

	setenv("SODA_MEM_SERVER", wrapper, 1);
	setenv("SODA_BUFFER", "16M", 1);
	setenv("SODA_FAULT_TIMEOUT", "5s", 1);
	a = alloc_checked(words * 8);
	for (size_t i = 0; i < words; i += 512)
		a[i] = i;
	turn_pass();
	turn_await();
	CHECK_EQ(touch_signal(a, false), SIGBUS);
	turn_pass();
	turn_await();
	_exit(0);
}

/* The same user's, which the kernel cannot tell from the one that has gone. */
static void put_another_there(const void *arg)
{
	struct server other;
	char address[128];
	pid_t pid;

	if (!turn_await())
		return;
	pid = server_pid();
	find_address(pid, address);
	assert_return_code(kill(pid, SIGKILL), errno);
	await_end(pid);
	assert_int_equal(SERVER_START(&other, "--capacity", "64M", "--listen", address), 0);
	turn_pass();
	if (turn_await())
		turn_pass();
	assert_int_equal(server_stop(&other), 0);
	assert_null(strstr(server_log(&other), "client 1"));
	server_forget(&other);
}

static void test_another_server_is_not_taken_for_it(void **state)
{
	struct trial t = { .child = child_loses_its_server, .during = put_another_there };
	struct outcome out;

	trial_run(&t, &out);
	expect_exit(&out, 0);
	expect_says(&out, "the private server has ended");
	assert_null(strstr(out.err, "has started anew"));
	assert_null(strstr(out.err, "connected again"));
}

static int setup(void **state)
{
	FILE *f;

	snprintf(dir, sizeof(dir), "/tmp/soda-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(wrapper, sizeof(wrapper), "%s/server", dir);
	snprintf(pid_file, sizeof(pid_file), "%s/pid", dir);
	f = fopen(wrapper, "we");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\necho $$ >%s\nexec %s \"$@\"\n", pid_file,
		build_path("src/mem_server/soda-mem-server"));
	fclose(f);
	assert_return_code(chmod(wrapper, 0755), errno);
	/* for the case without a configuration: the program of this build */
	setenv("PATH", build_path("src/mem_server"), 1);
	return 0;
}

static int teardown(void **state)
{
	unlink(wrapper);
	unlink(pid_file);
	rmdir(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_configuration),
		cmocka_unit_test(test_metrics_are_not_ours),
		cmocka_unit_test(test_server_ends_with_the_process),
		cmocka_unit_test(test_program_missing_or_broken),
		cmocka_unit_test(test_another_server_is_not_taken_for_it),
	};

	return cmocka_run_group_tests_name("embedded", tests, setup, teardown);
}
