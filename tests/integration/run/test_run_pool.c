/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of `soda run` whose servers change while they run, without a registry: `soda pool add`
 * names one more, also to a program that began with one, or the new address of one that is away.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"
#include "way.h"

#define SODA "tools/soda/soda"

enum { WORK = 24 << 20, MORE = 3, PAGE = 4096, WAIT_LOOKS = 6000, LOOK_US = 10000 };

static char dir[] = "/tmp/soda-test-run-pool-XXXXXX";
static char self[512], file[64];
static const char *option = "--server"; /* of `soda run`, before its servers */
static struct program run;

/* A program that works: this one, with the argument `work` */

/* Words of all pages get values of this round, and are read. */
static int go_through(uint64_t *p, uint64_t round)
{
	for (size_t i = 0; i < WORK / PAGE; i++)
		p[i * (PAGE / 8) + i % 500] = round * i;
	for (size_t i = 0; i < WORK / PAGE; i++)
		if (p[i * (PAGE / 8) + i % 500] != round * i)
			return 3;
	return 0;
}

static bool is_there(const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", file, name);
	return !access(path, F_OK);
}

static void make(const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", file, name);
	close(open(path, O_WRONLY | O_CREAT, 0600));
}

/* Makes `begun` after each round; has more memory from `more` on, and ends with `enough`. */
static int work(const char *where)
{
	uint64_t *p[1 + MORE], round = 1;
	int n = 0, ret = 0;

	snprintf(file, sizeof(file), "%.60s", where);
	for (; !ret && (round == 1 || !is_there("enough")); round++) {
		for (int want = is_there("more") ? 1 + MORE : 1; n < want; n++)
			if (!(p[n] = malloc(WORK)))
				return 4;
		for (int i = 0; i < n && !ret; i++)
			ret = go_through(p[i], round);
		make("begun");
	}
	return ret;
}

static void await(const char *name)
{
	for (int i = 0; i < WAIT_LOOKS && !is_there(name); i++)
		usleep(LOOK_US);
	if (!is_there(name))
		fail_msg("no %s", name);
}

static void forget(const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", file, name);
	unlink(path);
}

static void become(const char *servers, pid_t parent)
{
	char soda[512], log[600];
	const char *argv[] = { soda, "run", "--mem", "8M", option, servers,
			       "--", self,  "work",  file, NULL };

	snprintf(soda, sizeof(soda), "%s", build_path(SODA));
	snprintf(log, sizeof(log), "%s/log", file);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
	setenv("SODA_LOG", "info", 1);
	setenv("SODA_SLAB", "2M", 1);
	if (getppid() == parent)
		execv(soda, (char *const *)argv);
	_exit(126);
}

static pid_t begin(const char *servers)
{
	pid_t parent = getpid(), pid;

	forget("begun");
	forget("more");
	forget("enough");
	pid = fork();
	if (!pid)
		become(servers, parent);
	await("begun");
	return pid;
}

static void goes_on(void)
{
	forget("begun");
	await("begun");
	forget("begun");
	await("begun");
}

/* It ends well, and its log has the words. */
static void end(pid_t pid, const char *words)
{
	static char log[1 << 16];
	char path[600];
	int status = -1, fd;
	pid_t got = 0;
	ssize_t n;

	make("enough");
	for (int i = 0; i < WAIT_LOOKS && !got; i++) {
		got = waitpid(pid, &status, WNOHANG);
		usleep(LOOK_US);
	}
	if (!got) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	snprintf(path, sizeof(path), "%s/log", file);
	fd = open(path, O_RDONLY);
	n = read(fd, log, sizeof(log) - 1);
	close(fd);
	log[n < 0 ? 0 : n] = '\0';
	if (!got || status || !strstr(log, words))
		fail_msg("status %d, and '%s' is wanted: %s", status, words, log);
}

/* `soda pool add` ends with that code, and says the words. */
static void add(const char *address, int status, const char *words)
{
	const char *args[] = { "pool", "add", address, NULL };

	assert_int_equal(program_run(SODA, args, &run), 0);
	if (run.status != status || (!strstr(run.out, words) && !strstr(run.err, words)))
		fail_msg("%d, and '%s' is wanted: %s%s", run.status, words, run.out, run.err);
}

static unsigned long long used_of(const struct server *server)
{
	const char *args[] = { "stat", "--json", server->address, NULL };
	const char *at;

	assert_int_equal(program_run(SODA, args, &run), 0);
	at = strstr(run.out, "\"used_bytes\":");
	assert_non_null(at);
	return strtoull(at + strlen("\"used_bytes\":"), NULL, 10);
}

static void start_server(struct server *server, const char *capacity)
{
	assert_int_equal(SERVER_START(server, "--listen", "tcp://127.0.0.1:0", "--capacity",
				      capacity, "--drain", "1s"),
			 0);
}

static void stop_server(struct server *server)
{
	server_stop(server);
	server_forget(server);
}

/* It begins with a server that has no room for all that it wants. */
static void test_one_and_another(void **state)
{
	struct server first, second;
	const char *again[] = { "pool", "add", "--json", second.address, NULL };
	pid_t pid;

	start_server(&first, "40M");
	start_server(&second, "256M");
	pid = begin(first.address);
	add(second.address, 0, "are told");
	add(second.address, 0, "know it already");
	assert_int_equal(program_run(SODA, again, &run), 0);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "\"told\": true,\n      \"why\": null"));
	for (int i = 0; i < WAIT_LOOKS / 10; i++) {
		const char *args[] = { "stat", "--json", second.address, NULL };

		assert_int_equal(program_run(SODA, args, &run), 0);
		if (strstr(run.out, "\"pool_members\":2"))
			break;
		usleep(10 * LOOK_US);
	}
	assert_non_null(strstr(run.out, "\"pool_members\":2"));
	make("more");
	goes_on();
	goes_on();
	assert_true(used_of(&second) >= 2ull * WORK);
	end(pid, "is one of the program's servers from now on");
	stop_server(&first);
	stop_server(&second);
}

/* The way to a server ends, and there is another one: nothing is lost. */
static void test_moved(void **state)
{
	struct server servers[2];
	char address[64], list[256];
	pid_t way, pid;

	for (int i = 0; i < 2; i++)
		start_server(&servers[i], "256M");
	way = way_begin(servers[0].address, address);
	snprintf(list, sizeof(list), "%s,%s", address, servers[1].address);
	pid = begin(list);
	goes_on();
	way_end(way);
	usleep(500000);
	add(servers[0].address, 0, "are told");
	goes_on();
	goes_on();
	end(pid, "is to be found at");
	for (int i = 0; i < 2; i++)
		stop_server(&servers[i]);
}

static void start_agent(struct server *agent, const char *listen, const char *const list[2])
{
	char servers[256];
	const char *args[] = { "--server", servers, "--listen", listen, NULL };

	snprintf(servers, sizeof(servers), "%s,%s", list[0], list[1]);
	assert_int_equal(agent_start(agent, args), 0);
}

/*
 * The agent in front of the pool, and the ways to the first n of two servers, end.  The next agent
 * has other ways to them: the program finds its servers there, with what they have.
 */
static void moves_behind(int n)
{
	struct server servers[2], agent;
	char address[2][64], listen[128];
	const char *before[2], *after[2];
	pid_t ways[2], pid;

	for (int i = 0; i < 2; i++) {
		start_server(&servers[i], "256M");
		before[i] = after[i] = servers[i].address;
	}
	for (int i = 0; i < n; i++) {
		ways[i] = way_begin(servers[i].address, address[i]);
		before[i] = address[i];
	}
	start_agent(&agent, "tcp://127.0.0.1:0", before);
	snprintf(listen, sizeof(listen), "%s", agent.address);
	option = "--dpu";
	pid = begin(agent.address);
	option = "--server";
	goes_on();
	for (int i = 0; i < n; i++)
		way_end(ways[i]);
	server_kill(&agent);
	server_forget(&agent);
	start_agent(&agent, listen, after);
	goes_on();
	goes_on();
	end(pid, "is to be found at");
	stop_server(&agent);
	for (int i = 0; i < 2; i++)
		stop_server(&servers[i]);
}

static void test_moved_behind_an_agent(void **state)
{
	moves_behind(1);
}

static void test_all_moved_behind_an_agent(void **state)
{
	moves_behind(2);
}

static void test_refused(void **state)
{
	add("tcp://127.0.0.1:1", 1, "is the server running there?");
	add("nowhere", 2, "is not the address of one server");
	add("tcp://127.0.0.1:1,tcp://127.0.0.1:2", 2, "is not the address of one server");
}

static int open_group(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s", dir);
	return 0;
}

static int close_group(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_and_another),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_moved_behind_an_agent),
		cmocka_unit_test(test_all_moved_behind_an_agent),
		cmocka_unit_test(test_refused),
	};
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc == 3 && !strcmp(argv[1], "work"))
		return work(argv[2]);
	if (n < 0 || argc > 1)
		return 1;
	return cmocka_run_group_tests(tests, open_group, close_group);
}
