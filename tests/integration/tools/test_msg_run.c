/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda msg run` from outside, and what the example counts with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "integration/dpu_agent/tenancy.h"
#include "tool.h"

#define MSG_RUN(...)                                                                               \
	assert_int_equal(                                                                          \
		program_run(SODA, (const char *const[]){ "msg", "run", __VA_ARGS__, NULL }, &run), \
		0)

static void check_status(int status)
{
	if (run.status != status)
		fail_msg("status %d, not %d: %s%s", run.status, status, run.out, run.err);
}

static const char *histogram(void)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s", build_path("examples/messages/histogram"));
	return path;
}

/* It has counted well with so many ranks, and this many keys in all. */
static void counted(const char *what)
{
	check_status(0);
	assert_true(!strncmp(run.out, what, strlen(what)));
	assert_non_null(strstr(run.out, ": as computed by one process\n"));
	assert_string_equal(run.err, "");
}

/* Verified by one rank's own count, with an agent that is started for it. */
static void test_histogram(void **state)
{
	MSG_RUN("-n", "2", "--", histogram(), "20000");
	counted("histogram: 2 ranks, 40000 keys: ");
	MSG_RUN("-n", "2", "--", histogram(), "-u", "20000");
	check_status(0);
	assert_non_null(strstr(run.out, ": not verified\n"));
}

/* Two jobs, one after the other, at an agent that is there. */
static void test_agent(void **state)
{
	const char *const args[] = { "--listen",
				     "tcp://127.0.0.1:0",
				     "--server",
				     "tcp://127.0.0.1:1",
				     "--msg-memory",
				     "4M",
				     NULL };
	struct server agent;

	assert_int_equal(agent_start(&agent, args), 0);
	for (unsigned i = 0; i < 2; i++) {
		MSG_RUN("--ranks", "3", "--agent", agent.address, "--", histogram(), "50000");
		counted("histogram: 3 ranks, 150000 keys: ");
	}
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
}

/* Several agents of its own, fewer than ranks and more. */
static void test_nodes(void **state)
{
	static const char *const of[][2] = { { "4", "2" }, { "3", "3" }, { "2", "4" } };

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		char expected[64];

		MSG_RUN("-n", of[i][0], "--nodes", of[i][1], "--links", i % 2 ? "tcp" : "shm", "--",
			histogram(), "20000");
		snprintf(expected, sizeof(expected), "histogram: %s ranks, %d keys: ", of[i][0],
			 20000 * atoi(of[i][0]));
		counted(expected);
	}
}

/*
 * The namespaces of networks, beside this process's own, of what this test has begun: other tests
 * make namespaces at the same time.
 */
static unsigned count_namespaces(void)
{
	static char command[300];
	unsigned n = 0;
	FILE *list;
	char line[64];

	snprintf(command, sizeof(command),
		 "for p in $(grep -lszx 'MSG_RUN_TEST=%d' /proc/[0-9]*/environ 2>/dev/null); do "
		 "readlink ${p%%environ}ns/net; done | grep -vxF \"$(readlink /proc/self/ns/net)\" "
		 "| sort -u",
		 (int)getpid());
	list = popen(command, "r");
	while (list && fgets(line, sizeof(line), list))
		n++;
	if (list)
		pclose(list);
	return n;
}

/* So that count_namespaces() knows them, whoever their parent is by then. */
static void mark_processes(void)
{
	char mark[24];

	snprintf(mark, sizeof(mark), "%d", (int)getpid());
	setenv("MSG_RUN_TEST", mark, 1);
}

static void await_namespaces(unsigned n)
{
	for (unsigned i = 0; i < 150 && count_namespaces() != n; i++)
		usleep(100000);
	assert_int_equal(count_namespaces(), n);
}

/*
 * In namespaces of their own: a rank sees its agent's network and no other one, and nothing is
 * left.  Where they cannot be had a line says so, and all is as with tcp.
 */
static void test_net(void **state)
{
	mark_processes();
	MSG_RUN("-n", "4", "--nodes", "2", "--links", "net", "--", histogram(), "20000");
	check_status(0);
	assert_non_null(strstr(run.out, "histogram: 4 ranks, 80000 keys: "));
	if (*run.err) {
		assert_non_null(strstr(run.err, "no network namespaces here"));
		print_message("SKIP: %s", run.err);
		skip();
	}
	MSG_RUN("-n", "4", "--nodes", "2", "--links", "net", "--", "sh", "-c",
		"ip -4 -o address show eth0 | sed 's/.*inet //; s/ .*//'; grep -c : /proc/net/dev");
	check_status(0);
	for (unsigned i = 1; i <= 2; i++) {
		char address[32];

		snprintf(address, sizeof(address), "10.93.0.%u/24\n", i);
		assert_non_null(strstr(run.out, address));
		assert_non_null(strstr(strstr(run.out, address) + 1, address)); /* of two ranks */
	}
	assert_non_null(strstr(run.out, "2\n")); /* lo and eth0 */
	/* also when it is killed */
	assert_int_equal(
		system("timeout -s KILL 3 \"$SODA_BUILD_DIR\"/tools/soda/soda msg run -n 4 "
		       "--nodes 2 --links net -- sleep 1000 >/dev/null 2>&1 &"),
		0);
	await_namespaces(3); /* of two nodes, and what joins them */
	await_namespaces(0);
}

/* Two agents that are there. */
static void test_agents(void **state)
{
	const char *const args[] = { "--listen",
				     "tcp://127.0.0.1:0",
				     "--server",
				     "tcp://127.0.0.1:1",
				     "--msg-memory",
				     "4M",
				     NULL };
	struct server agents[2];
	char list[2 * sizeof(agents[0].address) + 2];

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(agent_start(&agents[i], args), 0);
	snprintf(list, sizeof(list), "%s,%s", agents[0].address, agents[1].address);
	MSG_RUN("--ranks", "3", "--agents", list, "--", histogram(), "50000");
	counted("histogram: 3 ranks, 150000 keys: ");
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(server_stop(&agents[i]), 0);
		assert_int_equal(server_complaints(&agents[i]), 0);
		server_forget(&agents[i]);
	}
}

/*
 * Two agents that have tenants, and prove to each other that they are agents: they have one file,
 * for their addresses have one host, which is the name of both.
 */
static struct tenancy tenants;
static struct server proved[2];

static void start_proved(bool key, bool tls)
{
	const char *args[] = { "--listen",
			       "tcp://127.0.0.1:0",
			       "--server",
			       "tcp://127.0.0.1:1",
			       "--msg-memory",
			       "8M",
			       "--tenants",
			       tenants.file,
			       "--tls",
			       tls ? "require" : "off",
			       NULL,
			       NULL,
			       NULL };

	if (key) {
		args[10] = "--key-file";
		args[11] = tenancy_key(&tenants, "nodes");
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(agent_start(&proved[i], args), 0);
}

static void end_proved(bool complains)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(server_stop(&proved[i]), 0);
		if (!complains)
			assert_int_equal(server_complaints(&proved[i]), 0);
		server_forget(&proved[i]);
	}
}

static void run_proved(void)
{
	char list[2 * sizeof(proved[0].address) + 2];

	snprintf(list, sizeof(list), "%s,%s", proved[0].address, proved[1].address);
	MSG_RUN("--ranks", "3", "--agents", list, "--", histogram(), "50000");
}

static void test_tenants(void **state)
{
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		print_message("SKIP: %s\n", err.text);
		skip();
	}
	tenancy_open(&tenants, "127.0.0.1");
	tenancy_add(&tenants, "physics");
	tenancy_add(&tenants, "nodes")->role = SODA_ROLE_AGENT;
	tenancy_save(&tenants);
	setenv("SODA_KEY_FILE", tenancy_key(&tenants, "physics"), 1);
	start_proved(true, false);
	run_proved();
	counted("histogram: 3 ranks, 150000 keys: ");
	assert_true(server_logs(&proved[0], "of tenant nodes is new"));
	end_proved(false);
	/* by TLS, which nobody may come without */
	setenv("SODA_TLS", "on", 1);
	start_proved(true, true);
	run_proved();
	counted("histogram: 3 ranks, 150000 keys: ");
	end_proved(false);
	unsetenv("SODA_TLS");
	/* an agent that has nothing to prove itself by breaks the job off, and says why */
	start_proved(false, false);
	run_proved();
	check_status(1);
	if (!strstr(run.err, "no --key-file here"))
		fail_msg("%s", run.err);
	end_proved(true);
	unsetenv("SODA_KEY_FILE");
	tenancy_close(&tenants);
}

static void test_environment(void **state)
{
	/* of a job that this one runs in: where that one's agents are, and its ranks */
	setenv("SODA_MSG_PORT", "7300", 1);
	setenv("SODA_MSG_HOSTS", "/nowhere", 1);
	MSG_RUN("-n", "2", "--", histogram(), "2000");
	counted("histogram: 2 ranks, 4000 keys: ");
	MSG_RUN("-n", "2", "--nodes", "2", "--", histogram(), "2000");
	counted("histogram: 2 ranks, 4000 keys: ");
	MSG_RUN("-n", "2", "--routing", "process", "--", histogram(), "2000");
	counted("histogram: 2 ranks, 4000 keys: ");
	unsetenv("SODA_MSG_PORT");
	unsetenv("SODA_MSG_HOSTS");
	MSG_RUN("-n", "3", "--", "sh", "-c",
		"test $SODA_MSG_RANKS = 3 && test -n \"$SODA_MSG_AGENT\" && test ${#SODA_MSG_KEY} "
		"= 32"
		" && test ${#SODA_MSG_JOB} = 32 && test $SODA_MSG_RANK -lt 3 && echo x");
	check_status(0);
	assert_string_equal(run.out, "x\nx\nx\n");
}

/* A rank that fails, or is killed, is told, by its status, and the others do not stay. */
static void test_fails(void **state)
{
	MSG_RUN("-n", "3", "--", "sh", "-c", "test $SODA_MSG_RANK != 1 || exit 7");
	check_status(7);
	MSG_RUN("-n", "2", "--", "sh", "-c",
		"test $SODA_MSG_RANK = 1 || exec sleep 1000; kill -9 $$");
	check_status(137);
	assert_non_null(strstr(run.err, "rank 1 was ended by signal 9"));
	/* one that goes on with messages is told which rank has gone */
	MSG_RUN("-n", "2", "--", "sh", "-c",
		"test $SODA_MSG_RANK = 1 || exec \"$0\" 1000000000; \"$0\" 1000000000 & sleep 1;"
		" kill -9 $!; wait; exit 9",
		histogram());
	assert_true(run.status == 9 || run.status == 1);
	assert_non_null(strstr(run.err, "rank 1 "));
}

/*
 * Two ranks by the environment alone, as mpirun and srun have it: both are here, or where a list
 * says.  What a command sets for the shell is taken back first.
 */
static void run_two(const char *variable, const char *value)
{
	static const char script[] =
		"unset SODA_MSG_AGENT SODA_MSG_AGENTS; export SODA_MSG_RANKS=2 "
		"SODA_MSG_JOB=two-here"
		" SODA_MSG_ROUTING=process \"$1=$2\"; p=; for i in 0 1; do SODA_MSG_RANK=$i \"$0\""
		" 20000 & p=\"$p $!\"; done; for i in $p; do wait $i || exit 1; done";

	MSG_RUN("-n", "1", "--", "sh", "-c", script, histogram(), variable, value);
}

/* Without an agent, each rank's process routes. */
static void test_process(void **state)
{
	char dir[] = "/tmp/soda-msg-run-XXXXXX", path[64], list[80];

	MSG_RUN("-n", "1", "--routing", "process", "--", histogram(), "20000");
	counted("histogram: 1 ranks, 20000 keys: ");
	MSG_RUN("-n", "3", "--routing", "process", "--links", "tcp", "--", histogram(), "20000");
	counted("histogram: 3 ranks, 60000 keys: ");
	/* one that is killed is named */
	MSG_RUN("-n", "3", "--routing", "process", "--", "sh", "-c",
		"test $SODA_MSG_RANK = 1 || exec \"$0\" 1000000000; \"$0\" 1000000000 & sleep 1;"
		" kill -9 $!; wait; exit 9",
		histogram());
	assert_true(run.status == 9 || run.status == 1);
	assert_non_null(strstr(run.err, "of rank 1 "));

	assert_non_null(mkdtemp(dir));
	run_two("TMPDIR", dir);
	counted("histogram: 2 ranks, 40000 keys: ");
	snprintf(path, sizeof(path), "%s/soda-msg-%u", dir, (unsigned)geteuid());
	assert_int_equal(rmdir(path), 0); /* it was there, and no socket has stayed */
	assert_int_equal(mkdir(path, 0755), 0);
	run_two("TMPDIR", dir);
	check_status(1);
	assert_non_null(strstr(run.err, "is not a directory of yours alone"));
	assert_int_equal(rmdir(path), 0);
	snprintf(list, sizeof(list), "shm://%s/a", dir); /* the second rank's is a.1 */
	run_two("SODA_MSG_AGENTS", list);
	counted("histogram: 2 ranks, 40000 keys: ");
	assert_int_equal(rmdir(dir), 0);
	/* where another one listens */
	run_two("SODA_MSG_LISTEN", "tcp://203.0.113.1:1");
	check_status(1);
	assert_non_null(strstr(run.err, " cannot route messages: "));
}

static void test_refused(void **state)
{
	MSG_RUN("-n", "2", "--routing", "router", "--", "true");
	refused(2, "--routing is agent or process");
	MSG_RUN("-n", "2", "--routing", "process", "--nodes", "2", "--", "true");
	refused(2, "there are no agents");
	MSG_RUN("-n", "65", "--routing", "process", "--", "true");
	refused(2, "at most 64 ranks");
	MSG_RUN("-n", "2", "--routing", "process", "--links", "net", "--", "true");
	refused(2, "--links of shm or tcp");
	MSG_RUN("-n", "2");
	refused(2, "which program?");
	MSG_RUN("-n", "0", "--", "true");
	refused(2, "out of range");
	MSG_RUN("-n", "5000", "--", "true");
	refused(2, "out of range");
	MSG_RUN("-n", "2", "--nodes", "2", "--links", "verbs", "--", "true");
	check_status(2);
	assert_non_null(strstr(run.err, "--links"));
	MSG_RUN("-n", "2", "--nodes", "2", "--agent", "tcp://127.0.0.1:1", "--", "true");
	refused(2, "one alone");
	MSG_RUN("-n", "2", "--agents", "tcp://127.0.0.1:1,,", "--", histogram());
	check_status(1);
	assert_non_null(strstr(run.err, "not a list of agents"));
	MSG_RUN("-n", "2", "--", "/no/such/program");
	refused(127, "/no/such/program");
	assert_int_equal(program_run(SODA, (const char *const[]){ "msg", "walk", NULL }, &run), 0);
	refused(2, "walk");
	MSG_RUN("-n", "2", "--agent", "tcp://127.0.0.1:1", "--", histogram());
	check_status(1);
	assert_non_null(strstr(run.err, "histogram: start: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histogram),   cmocka_unit_test(test_agent),
		cmocka_unit_test(test_nodes),	    cmocka_unit_test(test_net),
		cmocka_unit_test(test_agents),	    cmocka_unit_test(test_tenants),
		cmocka_unit_test(test_environment), cmocka_unit_test(test_fails),
		cmocka_unit_test(test_process),	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
