/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda doctor` from outside, as whoever runs the tests: on this machine, with servers and without.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/screen.h"
#include "tool.h"

#define DOCTOR(...)                                                                                \
	assert_int_equal(                                                                          \
		program_run(SODA, (const char *const[]){ "doctor", __VA_ARGS__, NULL }, &run), 0)

static struct server server, agent;

/* What it said, whatever its exit status; a new reference. */
static json_t *said(int status)
{
	json_t *out = json_loads(run.out, 0, NULL);

	if (run.status != status || !out)
		print_error("status %d: %s\n%s\n", run.status, run.err, run.out);
	assert_int_equal(run.status, status);
	assert_non_null(out);
	assert_string_equal(json_string_value(json_object_get(out, "format")), "soda-doctor");
	assert_int_equal(count(out, "version"), 1);
	assert_int_equal(count(out, "failures") > 0, status == 1);
	return out;
}

/* The n-th check of that name, from 0 on. */
static json_t *check(json_t *out, const char *name, int n)
{
	json_t *at;
	size_t i;

	json_array_foreach(json_object_get(out, "checks"), i, at)
	{
		if (strcmp(json_string_value(json_object_get(at, "check")), name) == 0 && n-- == 0)
			return at;
	}
	print_error("no check %s in %s\n", name, run.out);
	fail();
	return NULL;
}

static const char *text(json_t *of, const char *key)
{
	const char *found = json_string_value(json_object_get(of, key));

	return found ? found : "";
}

static void verdict(json_t *of, const char *expected, const char *found)
{
	if (strcmp(text(of, "verdict"), expected) || !strstr(text(of, "found"), found))
		print_error("%s: %s\n", text(of, "verdict"), text(of, "found"));
	assert_string_equal(text(of, "verdict"), expected);
	assert_non_null(strstr(text(of, "found"), found));
}

/* A private server: the machine that runs the other tests has what SODA needs. */
static void test_private(void **state)
{
	DOCTOR("--json");
	json_t *out = said(0);

	verdict(check(out, "kernel.inline", 0), "ok", "inline");
	verdict(check(out, "program.memory", 0), "ok", "private server");
	if (geteuid() && access("/dev/userfaultfd", R_OK | W_OK))
		assert_string_not_equal(text(check(out, "kernel.handler", 0), "verdict"),
					"failure");
	else if (!geteuid())
		assert_non_null(strstr(text(check(out, "privileges.userfaultfd", 0), "found"),
				       "this user is root"));
	json_decref(out);
}

static void test_server_and_agent(void **state)
{
	DOCTOR("--json", "--server", server.address, agent.address);
	json_t *out = said(0);

	verdict(check(out, "servers.reached", 0), "ok", "a memory server of version " SODA_VERSION);
	verdict(check(out, "servers.reached", 1), "ok", "a DPU agent of version " SODA_VERSION);
	verdict(check(out, "program.memory", 0), "ok", "the configured server");
	json_decref(out);
	DOCTOR("--json", "--dpu", agent.address);
	out = said(0);
	verdict(check(out, "servers.reached", 0), "ok", "(--dpu): a DPU agent");
	json_decref(out);
}

/* The environment is what a program would go by; flags outrank it. */
static void test_environment(void **state)
{
	setenv("SODA_SERVER", server.address, 1);
	DOCTOR("--json");
	json_t *out = said(0);

	verdict(check(out, "servers.reached", 0), "ok", "(SODA_SERVER)");
	json_decref(out);
	DOCTOR("--json", "--dpu", agent.address);
	json_decref(said(0));
	setenv("SODA_BUFFER", "nonsense", 1);
	DOCTOR("--json");
	out = said(1);
	verdict(check(out, "program.memory", 0), "failure", "SODA_BUFFER");
	assert_non_null(strstr(text(check(out, "program.memory", 0), "advice"), "environment"));
	json_decref(out);
	unsetenv("SODA_BUFFER");
	unsetenv("SODA_SERVER");
}

static void test_refused(void **state)
{
	DOCTOR("--json", "--server", "tcp://127.0.0.1:1");
	json_t *out = said(1);

	verdict(check(out, "servers.reached", 0), "failure", "refused");
	assert_non_null(
		strstr(text(check(out, "servers.reached", 0), "advice"), "soda-mem-server"));
	verdict(check(out, "program.memory", 0), "failure", "tcp://127.0.0.1:1");
	json_decref(out);
	/* programs do not have this one: they run, and still it is told */
	DOCTOR("shm:///nonexistent/soda.sock", "nonsense");
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.out, "nonexistent"));
	assert_non_null(strstr(run.out, "is not an address"));
	assert_non_null(strstr(run.out, "2 failures"));
	DOCTOR("--quiet", "nonsense");
	assert_null(strstr(run.out, "program.memory"));
	assert_non_null(strstr(run.out, "-> write it as"));
}

/* Somebody who accepts and says nothing. */
static void test_silent(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char address[64];

	assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
	snprintf(address, sizeof(address), "tcp://127.0.0.1:%d", ntohs(at.sin_port));
	DOCTOR("--json", "--timeout", "200ms", "--server", address);
	json_t *out = said(1);

	assert_string_equal(text(check(out, "servers.reached", 0), "verdict"), "failure");
	assert_string_equal(text(check(out, "program.memory", 0), "verdict"), "failure");
	json_decref(out);
	close(fd);
}

/* Text begins with its sum, and the worst findings; commands are printed, and none is run. */
static void test_text(void **state)
{
	static const char said_first[] =
		"Programs get fabric memory here; what fails: servers.reached.\n\n"
		"failure  servers.reached         nonsense (argument): ";

	DOCTOR("nonsense");
	assert_int_equal(run.status, 1);
	if (strncmp(run.out, said_first, sizeof(said_first) - 1))
		fail_msg("\"%s\" does not begin with \"%s\"", run.out, said_first);
	assert_true(strstr(run.out, "\nok ") > strstr(run.out, "-> write it as"));
	assert_non_null(strstr(run.out, ": 1 failure, 0 warnings\n"));
	assert_null(strstr(run.out, "\033"));
	DOCTOR("--fix", "nonsense");
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.out, "# failure servers.reached: nonsense (argument)"));
	assert_non_null(strstr(run.out, "\n# no command: write it as"));
	assert_null(strstr(run.out, "\nok "));
	DOCTOR("--server", "tcp://127.0.0.1:1");
	assert_non_null(strstr(run.out, "Programs do not get fabric memory here; what fails: "
					"servers.reached, program.memory.\n"));
}

/* A terminal has lines of its width, and colours where they are wanted. */
static void test_terminal(void **state)
{
	static const char *const args[] = { "doctor", "nonsense", NULL };
	static struct screen s;

	setenv("TERM", "vt100", 1);
	for (int plain = 0; plain < 2; plain++) {
		if (plain)
			setenv("NO_COLOR", "1", 1);
		assert_int_equal(screen_start(&s, SODA, args, 60, 80), 0);
		assert_true(screen_await(&s, "1 failure"));
		assert_int_equal(screen_end(&s), 1);
		assert_int_equal(!strstr(s.log, "\033[1;31mfailure"), plain);
		/* The terminal would have begun its own lines in the first column. */
		for (int row = 0; row < s.rows; row++)
			if (strstr(s.cells[row], "tcp://HOST:PORT"))
				assert_memory_equal(s.cells[row], "                ", 16);
		screen_forget(&s);
	}
	unsetenv("NO_COLOR");
}

/* A warning is none of the reasons for status 1. */
static void test_warning(void **state)
{
	struct rlimit before, few;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 60;
	setenv("SODA_THREADS", "2", 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	DOCTOR("--json");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	unsetenv("SODA_THREADS");
	json_t *out = said(0);

	verdict(check(out, "limits.descriptors", 0), "warning", "60");
	assert_true(count(out, "warnings") > 0);
	assert_string_equal(text(out, "verdict"), "warning");
	json_decref(out);
}

static void test_usage(void **state)
{
	DOCTOR("--timeout", "never");
	refused(2, "timeout");
	DOCTOR("--nonsense");
	refused(2, "nonsense");
	DOCTOR("--help");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "--server"));
	DOCTOR("--man");
	assert_non_null(strstr(run.out, ".SH EXIT STATUS"));
}

static int start(void **state)
{
	unsetenv("SODA_SERVER");
	unsetenv("SODA_DPU");
	return SERVER_START(&server, "--capacity", "64M") ||
	       agent_start(&agent, (const char *const[]){ "--server", server.address, NULL });
}

static int stop(void **state)
{
	int bad = server_stop(&agent) | server_stop(&server) | server_complaints(&agent) |
		  server_complaints(&server);

	server_forget(&agent);
	server_forget(&server);
	return bad;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private),	    cmocka_unit_test(test_server_and_agent),
		cmocka_unit_test(test_environment), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_silent),	    cmocka_unit_test(test_warning),
		cmocka_unit_test(test_text),	    cmocka_unit_test(test_terminal),
		cmocka_unit_test(test_usage),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
