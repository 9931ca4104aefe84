/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda top` on a terminal, and without one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <locale.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/proc.h"
#include "lib/screen.h"

#define SODA "tools/soda/soda"

static struct screen screen;
static struct server server;
static struct program run;

#define RUN(...)                                                                                   \
	assert_int_equal(program_run(SODA, (const char *const[]){ __VA_ARGS__, NULL }, &run), 0)
#define TOP(rows, columns, ...)                                                                    \
	assert_int_equal(screen_start(&screen, SODA,                                               \
				      (const char *const[]){ "top", "--interval", "100ms",         \
							     __VA_ARGS__, NULL },                  \
				      rows, columns),                                              \
			 0)
#define SEE(text) assert_true(screen_await(&screen, text))
#define MISS(text) assert_true(screen_await_gone(&screen, text))

static int start_server(void **state)
{
	return SERVER_START(&server, "--capacity", "32M");
}

static int stop_server(void **state)
{
	int r = server.pid && server_stop(&server);

	r |= server_complaints(&server);
	server_forget(&server);
	screen_forget(&screen);
	return r;
}

static void leave(void)
{
	screen_keys(&screen, "q");
	assert_int_equal(screen_end(&screen), 0);
	assert_true(screen_is_restored(&screen));
}

/* A server, its table and details; every key; and the way out. */
static void test_keys(void **state)
{
	TOP(24, 80, server.address, "tcp://127.0.0.1:1");
	SEE("1 of 2 here, every 100 ms, by OPS");
	SEE(server.address);
	SEE("memory server " SODA_VERSION);
	SEE("of 32 MiB");
	SEE("q quit");
	screen_keys(&screen, "s");
	SEE("by IN");
	screen_keys(&screen, "r");
	SEE("by IN (reversed)");
	screen_keys(&screen, "p");
	SEE("PAUSED");
	screen_keys(&screen, "p");
	MISS("PAUSED");
	screen_keys(&screen, "?");
	SEE("powers of 1024");
	MISS("of 32 MiB");
	screen_keys(&screen, "?");
	SEE("of 32 MiB");
	/* the other target; and what is below the page */
	screen_keys(&screen, "\033[B\033OBj");
	SEE("gone  cannot connect");
	screen_keys(&screen, "\033[Ak");
	SEE("of 32 MiB");
	screen_resize(&screen, 16, 80);
	MISS("failed syncs");
	screen_keys(&screen, "f");
	SEE("failed syncs");
	MISS("Requests");
	screen_keys(&screen, "bb");
	SEE("Requests");
	leave();
}

/* A pool's servers in SODA_SERVER are targets, each. */
static void test_pool(void **state)
{
	char list[256], cell[140];

	snprintf(list, sizeof(list), "tcp://127.0.0.1:1,%s", server.address);
	snprintf(cell, sizeof(cell), "%s ", server.address);
	setenv("SODA_SERVER", list, 1);
	RUN("top", "--once");
	unsetenv("SODA_SERVER");
	if (!strstr(run.out, cell) || !strstr(run.out, "tcp://127.0.0.1:1 ") ||
	    strstr(run.out, list))
		fail_msg("%s%s", run.out, run.err);
}

/* Larger, smaller, and too small for anything. */
static void test_resize(void **state)
{
	TOP(24, 80, server.address);
	SEE("of 32 MiB");
	MISS("CPU");
	screen_resize(&screen, 50, 160);
	SEE("CPU");
	MISS("asking");
	screen_resize(&screen, 3, 10);
	SEE("soda top");
	screen_resize(&screen, 1, 1);
	usleep(300000);
	screen_resize(&screen, 24, 80);
	SEE("of 32 MiB");
	SEE("q quit");
	leave();
}

/* A target that goes is shown as gone, and seen again when it is back. */
static void test_target_goes(void **state)
{
	char address[128];

	TOP(24, 80, server.address);
	SEE("1 of 1 here");
	snprintf(address, sizeof(address), "%s", server.address);
	assert_int_equal(server_stop(&server), 0); /* it does not wait for those who only look */
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
	SEE("0 of 1 here");
	SEE("gone");
	assert_int_equal(SERVER_START(&server, "--capacity", "16M", "--listen", address), 0);
	SEE("1 of 1 here");
	SEE("of 16 MiB");
	leave();
}

static void end_by_signal(int sig)
{
	TOP(24, 80, server.address);
	SEE("1 of 1 here");
	kill(screen.pid, sig);
	assert_int_equal(screen_end(&screen), 0);
	assert_true(screen_is_restored(&screen));
	screen_forget(&screen);
}

static void test_signals(void **state)
{
	end_by_signal(SIGTERM);
	end_by_signal(SIGHUP);
	TOP(24, 80, server.address);
	SEE("1 of 1 here");
	screen_keys(&screen, "\003"); /* as a user interrupts */
	assert_int_equal(screen_end(&screen), 0);
	assert_true(screen_is_restored(&screen));
}

/* The terminal goes away: so does the program, and not in a loop. */
static void test_hang_up(void **state)
{
	TOP(24, 80, server.address);
	SEE("1 of 1 here");
	screen_hang_up(&screen);
	assert_int_equal(screen_end(&screen), 0);
}

/* The page before is back: the last word of a terminal that has two. */
static void test_second_page(void **state)
{
	setenv("TERM", "xterm", 1);
	TOP(24, 80, server.address);
	setenv("TERM", "vt100", 1);
	assert_true(screen_await_bytes(&screen, "\033[?1049h"));
	assert_true(screen_await_bytes(&screen, "\033[36m")); /* colours */
	leave();
	assert_true(screen_await_bytes(&screen, "\033[?1049l"));
}

/* Who accepts and says nothing does not keep the user waiting. */
static void test_silent_target(void **state)
{
	struct sockaddr_in own = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(own);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char address[64];

	assert_int_equal(bind(fd, (struct sockaddr *)&own, n), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &n), 0);
	snprintf(address, sizeof(address), "tcp://127.0.0.1:%d", ntohs(own.sin_port));
	TOP(24, 80, "--timeout", "600ms", address, server.address);
	SEE("1 of 2 here");
	screen_keys(&screen, "s");
	SEE("by IN");
	SEE("gone");
	leave();
	close(fd);
}

/* A child of the benchmark uses SODA: it is found without being named. */
static void test_program(void **state)
{
	pid_t bench = fork();

	if (bench == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(126);
		execl(build_path(SODA), "soda", "bench", "fault", "--size", "16M", "--rounds", "1",
		      "--passes", "1000", "--server", server.address, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 200; i++, usleep(50000)) {
		char name[64], child[32] = "", path[64];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/children", bench, bench);
		f = fopen(path, "r");
		if (f && fscanf(f, "%31s", child) == 1) {
			snprintf(name, sizeof(name), "%s soda", child);
			RUN("top", "--once", "--interval", "200ms", "--timeout", "500ms");
			if (run.status == 0 && strstr(run.out, name))
				i = 200;
		}
		if (f)
			fclose(f);
	}
	kill(bench, SIGTERM);
	waitpid(bench, NULL, 0);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "Page buffer"));
	assert_non_null(strstr(run.out, "without network"));
}

static void test_once(void **state)
{
	RUN("top", "--once", "--interval", "100ms", server.address, "tcp://127.0.0.1:1");
	assert_int_equal(run.status, 0);
	assert_string_equal(run.err, "");
	assert_non_null(strstr(run.out, "1 of 2 here"));
	assert_non_null(strstr(run.out, "gone"));
	for (const char *line = run.out; *line; line += strcspn(line, "\n") + 1)
		assert_true(strcspn(line, "\n") <= 80);
	/* Graphs would be at the right, and end with one of these. */
	for (const char *line = run.out; *line; line += strcspn(line, "\n") + 1)
		assert_false(strcspn(line, "\n") &&
			     strchr("_.:=+*#", line[strcspn(line, "\n") - 1]));
	/* nobody has asked it for anything */
	assert_non_null(strstr(run.out, "\n all 0: Requests, Memory\n"));
	assert_null(strstr(run.out, "READ time"));
	RUN("top", "--once", "--all", "--interval", "100ms", server.address);
	assert_int_equal(run.status, 0);
	assert_null(strstr(run.out, "all 0:"));
	assert_non_null(strstr(run.out, "\n  READ time "));
	RUN("top", "--once", "--interval", "100ms", "tcp://127.0.0.1:1");
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.out, "0 of 1 here"));
}

/* Graphs of blocks where the locale has them. */
static void test_utf8(void **state)
{
	if (!setlocale(LC_ALL, "C.UTF-8")) {
		puts("SKIP: no locale C.UTF-8");
		skip();
	}
	setlocale(LC_ALL, "C");
	setenv("LC_ALL", "C.UTF-8", 1);
	TOP(40, 80, server.address);
	SEE("of 32 MiB");
	leave();
	setenv("LC_ALL", "C", 1);
	assert_true(screen.wide);
	screen_forget(&screen);
	TOP(40, 80, server.address);
	SEE("of 32 MiB");
	leave();
	assert_false(screen.wide);
}

static void refused(int status, const char *says)
{
	if (run.status != status || !strstr(run.err, says))
		fail_msg("%d: %s", run.status, run.err);
	assert_string_equal(run.out, "");
}

static void test_refusals(void **state)
{
	RUN("top", server.address);
	refused(1, "no terminal");
	RUN("top", "nonsense");
	refused(2, "neither a process id nor an address");
	RUN("top", "--interval", "1ms", server.address);
	refused(2, "interval");
	RUN("top", "--frobnicate");
	refused(2, "frobnicate");
	setenv("TERM", "no-such-terminal", 1);
	TOP(24, 80, server.address);
	assert_int_equal(screen_end(&screen), 1);
	setenv("TERM", "vt100", 1);
	assert_true(screen_await(&screen, "no terminal"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, start_server, stop_server)
	const struct CMUnitTest live[] = {
		CASE(test_keys),	CASE(test_pool),	  CASE(test_resize),
		CASE(test_target_goes), CASE(test_signals),	  CASE(test_hang_up),
		CASE(test_second_page), CASE(test_silent_target), CASE(test_utf8),
		CASE(test_refusals),
	};
	const struct CMUnitTest once[] = { CASE(test_once), CASE(test_program) };
	int failed;

	setenv("TERM", "vt100", 1);
	setenv("LC_ALL", "C", 1);
	unsetenv("COLUMNS");
	unsetenv("LINES");
	unsetenv("NO_COLOR");
	failed = cmocka_run_group_tests(once, NULL, NULL);
	/* a build without ncurses refuses before it looks for a terminal */
	RUN("top", "tcp://127.0.0.1:1");
	if (strstr(run.err, "built without ncurses")) {
		puts("SKIP: built without ncurses");
		return failed ? failed : 77;
	}
	return failed + cmocka_run_group_tests(live, NULL, NULL);
}
