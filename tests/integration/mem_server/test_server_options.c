/* SPDX-License-Identifier: BSD-3-Clause */
/* soda-mem-server from outside: flags, INI files, exit status, and what it says. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"

#define PROGRAM "src/mem_server/soda-mem-server"

static struct program program;

static void run(const char *const *args)
{
	assert_int_equal(program_run(PROGRAM, args, &program), 0);
}
#define RUN(...) run((const char *const[]){ __VA_ARGS__, NULL })

/* It ends with `status` and one line on standard error that says `says`. */
static void expect_error(int status, const char *says)
{
	if (program.status != status || !strstr(program.err, says) || *program.out)
		fail_msg("%d '%s', expected %d '%s'", program.status, program.err, status, says);
	assert_ptr_equal(strchr(program.err, '\n'), program.err + strlen(program.err) - 1);
}

static void check_help(void **state)
{
	static const char *const names[] = {
		"--listen ADDRESS", "--capacity SIZE", "--grace TIME",
		"--export DIR",	    "--parent-fd FD",  "--config FILE"
	};

	RUN("--help");
	assert_int_equal(program.status, 0);
	assert_string_equal(program.err, "");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_non_null(strstr(program.out, names[i]));
	RUN("--version");
	assert_int_equal(program.status, 0);
	assert_int_equal(strncmp(program.out, "soda-mem-server ", 16), 0);
	RUN("--man");
	assert_int_equal(program.status, 0);
	assert_int_equal(strncmp(program.out, ".TH SODA-MEM-SERVER 1", 21), 0);
	assert_non_null(strstr(program.out, ".SH EXIT STATUS"));
}

static void check_bad_flags(void **state)
{
	RUN("--capacity", "12Q");
	expect_error(2, "capacity: '12Q' is not a size");
	RUN("--capacity", "1M");
	expect_error(2, "at least 2 MiB");
	RUN("--capacity", "");
	expect_error(2, "capacity: '' is not a size");
	RUN("--grace", "-1");
	expect_error(2, "grace: '-1' is not a time");
	RUN("--frobnicate");
	expect_error(2, "--frobnicate");
	RUN("elsewhere");
	expect_error(2, "unexpected argument 'elsewhere'");
	RUN("--config", "/nonexistent/soda.ini");
	expect_error(2, "/nonexistent/soda.ini");
}

static void check_cannot_start(void **state)
{
	RUN("--capacity", "64M", "--listen", "tcp://127.0.0.1:0", "--export", "/nonexistent");
	expect_error(1, "there is no directory /nonexistent: make it");
	RUN("--capacity", "64M", "--log-level", "warning", "--listen", "carrier-pigeon://roof");
	expect_error(1, "carrier-pigeon://roof");
	RUN("--capacity", "64M", "--log-level", "warning", "--numa-node", "1000");
	expect_error(1, strstr(program.err, "no NUMA here") ? "no NUMA here" : "no NUMA node 1000");
	RUN("--capacity", "64M", "--log-level", "warning", "--numa-node", "left");
	expect_error(1, "'left' is neither off, interleave, nor");
	RUN("--capacity", "64M", "--log-level", "warning", "--numa-node", ",1");
	expect_error(1, "',1' is neither off, interleave, nor");
	RUN("--capacity", "64M", "--log-level", "warning", "--listen", ",");
	expect_error(1, "names no address");
}

static void check_address_in_use(void **state)
{
	struct server server;

	assert_int_equal(SERVER_START(&server, "--capacity", "64M"), 0);
	RUN("--capacity", "64M", "--log-level", "warning", "--listen", server.address);
	expect_error(1, server.address);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

/* An INI file with this text, to be unlinked by the caller. */
static void write_ini(char path[], const char *text)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void check_ini(void **state)
{
	char path[] = "/tmp/soda-test-XXXXXX";
	struct server server;
	struct peer peer;

	write_ini(path,
		  "[soda-mem-server]\ncapacity = 64M\nquota = 8M\nlisten = tcp://127.0.0.1:0\n");
	/* The environment outranks the file, a flag both. */
	setenv("SODA_MEM_SERVER_CAPACITY", "32M", 1);
	setenv("SODA_MEM_SERVER_QUOTA", "4M", 1);
	assert_int_equal(SERVER_START(&server, "--config", path, "--quota", "16M"), 0);
	assert_int_equal(peer_join(&peer, server.address), 0);
	unsetenv("SODA_MEM_SERVER_CAPACITY");
	unsetenv("SODA_MEM_SERVER_QUOTA");
	assert_int_equal(peer_stat(&peer, "capacity_bytes"), 32 << 20);
	assert_int_equal(peer_stat(&peer, "quota_bytes"), 16 << 20);
	peer_leave(&peer);
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
	unlink(path);
}

static void check_bad_ini(void **state)
{
	char path[] = "/tmp/soda-test-XXXXXX", says[64];

	write_ini(path, "[soda-mem-server]\n\ncapcity = 64M\n");
	RUN("--config", path);
	snprintf(says, sizeof(says), "%s:3: unknown key 'capcity'", path);
	expect_error(2, says);
	unlink(path);
}

/*
 * The example of the documentation works as it stands, on another port, and offers the machine's
 * memory: an operator who changes `listen` alone has not limited a large machine.
 */
static void check_example(void **state)
{
	const char *source = getenv("SODA_SOURCE_DIR");
	char path[512];
	struct server server;
	struct peer peer;

	snprintf(path, sizeof(path), "%s/docs/soda-mem-server.ini", source ? source : ".");
	assert_int_equal(SERVER_START(&server, "--config", path, "--listen", "tcp://127.0.0.1:0"),
			 0);
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_true(peer_stat(&peer, "capacity_bytes") > 0);
	assert_int_not_equal(peer_stat(&peer, "capacity_bytes"), 4ull << 30);
	peer_leave(&peer);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_help),	      cmocka_unit_test(check_bad_flags),
		cmocka_unit_test(check_cannot_start), cmocka_unit_test(check_address_in_use),
		cmocka_unit_test(check_ini),	      cmocka_unit_test(check_bad_ini),
		cmocka_unit_test(check_example),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
