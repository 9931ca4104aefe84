/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda run` and all that its program starts: who has fabric memory, that all of them together keep
 * to --mem, as the kernel counts it, and what is said of them at the end.
 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

enum { MEMBERS = 64, BUDGET_MIB = 64, LOOK_US = 20000, LOOKS_MAX = 4000 };

static const char soda[] = "tools/soda/soda";
static char member[512];
static char dir[] = "/tmp/soda-tree-XXXXXX";
static struct program p;

static void run(const char *const *args)
{
	assert_int_equal(program_run_within(soda, args, 240000, &p), 0);
}
#define RUN(...) run((const char *const[]){ "run", __VA_ARGS__, NULL })

static void expect_right(int times)
{
	int n = 0;

	for (const char *at = p.out; (at = strstr(at, "right\n")); at++)
		n++;
	if (p.status || n != times)
		fail_msg("status %d, %d of %d right: %s", p.status, n, times, p.err);
}

/* The processes of that session that run the member. */
static int members(pid_t session, pid_t pids[MEMBERS])
{
	DIR *proc = opendir("/proc");
	struct dirent *e;
	int n = 0;

	assert_non_null(proc);
	while ((e = readdir(proc)) && n < MEMBERS) {
		char path[300], line[512] = "", *rest;
		int sid;
		FILE *f;

		if (*e->d_name < '1' || *e->d_name > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		rest = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		fclose(f);
		if (rest && strstr(line, "(tree_member)") &&
		    sscanf(rest, ") %*c %*d %*d %d", &sid) == 1 && sid == session)
			pids[n++] = atoi(e->d_name);
	}
	closedir(proc);
	return n;
}

/* KiB resident of its mappings that userfaultfd has: fabric memory. */
static long resident_kib(pid_t pid)
{
	char path[64], line[512];
	long sum = 0, kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "Rss: %ld kB", &kib);
		if (!strncmp(line, "VmFlags:", 8) && (strstr(line, " um") || strstr(line, " uw")))
			sum += kib;
	}
	fclose(f);
	return sum;
}

/* The sum of all members, which stand still while it is taken. */
static long look(pid_t session, int *n_p)
{
	bool stands[MEMBERS];
	pid_t pids[MEMBERS];
	int n = members(session, pids);
	long sum = 0;

	for (int i = 0; i < n; i++)
		stands[i] = process_halt(pids[i]);
	for (int i = 0; i < n; i++)
		if (stands[i])
			sum += resident_kib(pids[i]);
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGCONT);
	*n_p = n;
	return sum;
}

/* soda run in a session of its own, with its standard error in dir/err. */
static pid_t start(const char *script)
{
	char path[600], budget[16];
	pid_t pid;

	snprintf(path, sizeof(path), "%s", build_path(soda));
	snprintf(budget, sizeof(budget), "%dM", BUDGET_MIB);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		char err[64];

		setsid();
		snprintf(err, sizeof(err), "%s/err", dir);
		if (!freopen(err, "w", stderr) || !freopen("/dev/null", "w", stdout))
			_exit(1);
		execl(path, "soda", "run", "--mem", budget, "--stats", "--", "sh", "-c", script,
		      NULL);
		_exit(1);
	}
	return pid;
}

static void expect_end(pid_t pid)
{
	char err[64], text[4096] = "";
	int status;
	FILE *f;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	snprintf(err, sizeof(err), "%s/err", dir);
	f = fopen(err, "r");
	assert_non_null(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	if (status)
		fail_msg("status %#x: %s", status, text);
	assert_non_null(strstr(text, "of 64 MiB"));
}

/*
 * Members that come and go, one of them killed where it is: never more than the budget, a good part
 * of it in use, and no wrong byte.
 */
static void test_smaps(void **state)
{
	bool killed = false, over = false;
	long most = 0;
	int looks = 0, together = 0, n = 0;
	pid_t pid;

	setenv("MEMBER", member, 1);
	pid = start("for i in 1 2 3; do\n"
		    "  $MEMBER 40 2 & a=$!; $MEMBER 60 2 & b=$!; $MEMBER 3 1 & c=$!\n"
		    "  wait $a; x=$?; wait $b; y=$?; wait $c; z=$?\n"
		    "  for s in $x $y $z; do [ $s = 0 ] || [ $s = 137 ] || exit $s; done\n"
		    "done\n");
	for (siginfo_t info = { 0 }; looks < LOOKS_MAX; looks++) {
		long kib = look(pid, &n);
		pid_t pids[MEMBERS];

		most = kib > most ? kib : most;
		over |= kib > BUDGET_MIB * 1024l;
		together += n > 1;
		if (!killed && looks > 5 && n > 1 && members(pid, pids)) {
			kill(pids[0], SIGKILL);
			killed = true;
		}
		info.si_pid = 0;
		if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
			break;
		usleep(LOOK_US);
	}
	if (looks == LOOKS_MAX) {
		kill(pid, SIGKILL);
		fail_msg("it has not ended");
	}
	expect_end(pid);
	print_message("%d looks, %d at several processes, at most %ld KiB resident\n", looks,
		      together, most);
	assert_false(over);
	assert_true(together > 0);
	assert_in_range(most, BUDGET_MIB * 1024 / 4, BUDGET_MIB * 1024);
}

static void test_table(void **state)
{
	RUN("--mem", "32M", "--stats", "--", "sh", "-c",
	    "\"$MEMBER\" 20 1; \"$MEMBER\" 30 0 & wait; /bin/true");
	expect_right(2);
	assert_non_null(strstr(p.err, "2 processes used fabric memory, 2 others none"));
	assert_non_null(strstr(p.err, "of 32 MiB\n"));
	assert_non_null(strstr(p.err, " tree_member "));
	assert_null(strstr(p.err, " *"));
	assert_non_null(strstr(p.err, " threads waited "));
	assert_non_null(strstr(p.err, "\n  advice     "));
	/* one alone says all */
	RUN("--mem", "32M", "--stats", "--", "sh", "-c", "\"$MEMBER\" 20 0; true");
	expect_right(1);
	assert_non_null(strstr(p.err, " of 32 MiB\n"));
	assert_non_null(strstr(p.err, "main+0x"));
	/* one that was killed is told of, too */
	RUN("--mem", "32M", "--stats", "--", "sh", "-c",
	    "\"$MEMBER\" 20 0 99 & p=$!; \"$MEMBER\" 20 0 3; kill -9 $p; wait; true");
	expect_right(2);
	assert_non_null(strstr(p.err, " tree_member * "));
	RUN("--stats", "--", "sh", "-c", "true; true");
	assert_non_null(strstr(p.err, "no fabric memory was used"));
	RUN("--stats", "--quiet", "--", "sh", "-c", "true; true");
	assert_string_equal(p.err, "");
	RUN("--", "sh", "-c", "true; true");
	assert_string_equal(p.err, "");
}

/* However the environment was left out on the way. */
static void test_environment(void **state)
{
	RUN("--mem", "32M", "--stats", "--", "sh", "-c", "env -i \"$MEMBER\" 20 0; true");
	expect_right(1);
	assert_non_null(strstr(p.err, " of 32 MiB\n"));
	if (access("/usr/bin/python3", X_OK)) {
		print_message("SKIP: no python3\n");
		skip();
	}
	RUN("--mem", "32M", "--stats", "--threshold", "8M", "--", "/usr/bin/python3", "-c",
	    "import os, subprocess\n"
	    "m = os.environ['MEMBER']\n"
	    "subprocess.run([m, '20', '0'], env={}, check=True)\n" /* vfork, descriptors closed */
	    "subprocess.run([m, '20', '0'], env={}, check=True, preexec_fn=lambda: None)\n"
	    "pid = os.posix_spawn(m, [m, '20', '0'], {})\n"
	    "assert os.waitpid(pid, 0)[1] == 0\n");
	expect_right(3);
	assert_non_null(strstr(p.err, "3 processes used fabric memory"));
}

static void test_too_small(void **state)
{
	setenv("SODA_THREADS", "1", 1);
	RUN("--mem", "200K", "--", "sh", "-c",
	    "for i in 1 2 3 4; do \"$MEMBER\" 2 0 25 & done; r=0\n"
	    "for i in 1 2 3 4; do wait %$i || r=$?; done; exit $r");
	unsetenv("SODA_THREADS");
	assert_int_equal(p.status, 127);
	if (!strstr(p.err, "the page buffer of 200 KiB, which the processes of soda run share"))
		fail_msg("it says: %s", p.err);
	assert_non_null(strstr(p.err, "--mem"));
}

/*
 * A child that gets other privileges is plain, with a word, one for all its runs.
 *
 * May: children | starts a program with other privileges | it runs with local memory
 */
static void test_privileged(void **state)
{
	char copy[128], command[1024];

	if (geteuid()) {
		print_message("SKIP: only root can give a program another user\n");
		skip();
	}
	snprintf(copy, sizeof(copy), "%s/privileged", dir);
	snprintf(command, sizeof(command), "cp /bin/true %s && chown 65534 %s && chmod 4755 %s",
		 copy, copy, copy);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "%s; %s; true", copy, copy);
	RUN("--", "sh", "-c", command);
	assert_int_equal(p.status, 0);
	if (!strstr(p.err, "set-user-id") || strchr(p.err, '\n') != p.err + strlen(p.err) - 1)
		fail_msg("it says: %s", p.err);
	RUN("--quiet", "--", "sh", "-c", command);
	assert_int_equal(p.status, 0);
	assert_string_equal(p.err, "");
}

/* The program ends as soda does, and soda as the program does. */
static void test_ends(void **state)
{
	char path[600];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s", build_path(soda));
	for (int i = 0; i < 2; i++) {
		int out[2];
		char c;

		assert_int_equal(pipe(out), 0);
		pid = fork();
		if (!pid) {
			dup2(out[1], STDOUT_FILENO);
			close(out[0]);
			close(out[1]);
			execl(path, "soda", "run", "--", "sh", "-c", "echo x; exec sleep 200",
			      NULL);
			_exit(1);
		}
		close(out[1]);
		assert_int_equal(read(out[0], &c, 1), 1);
		assert_int_equal(kill(pid, i ? SIGKILL : SIGINT), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == (i ? SIGKILL : SIGINT));
		while (read(out[0], &c, 1) > 0) /* until the program has ended */
			;
		close(out[0]);
	}
}

/* A memory server that writes its process id down first. */
static void count_servers(void)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/server", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\necho $$ >>%s/servers\nexec %s \"$@\"\n", dir,
		build_path("src/mem_server/soda-mem-server"));
	fclose(f);
	assert_int_equal(chmod(path, 0755), 0);
	setenv("SODA_MEM_SERVER", path, 1);
}

/* How many have been started since count_servers(); waits until all of them have ended. */
static int servers(void)
{
	char path[128], line[32];
	int n = 0;
	FILE *f;

	unsetenv("SODA_MEM_SERVER");
	snprintf(path, sizeof(path), "%s/servers", dir);
	f = fopen(path, "r");
	for (; f && fgets(line, sizeof(line), f); n++) {
		for (int looks = 0; !kill(atoi(line), 0); looks++) {
			if (looks == LOOKS_MAX)
				fail_msg("memory server %s is left behind", line);
			usleep(LOOK_US);
		}
	}
	if (f)
		fclose(f);
	unlink(path);
	return n;
}

/* One for all of them, none for programs that need none; another one when it has died. */
static void test_one_server(void **state)
{
	count_servers();
	RUN("--mem", "32M", "--stats", "--", "sh", "-c",
	    "$MEMBER 20 0 & $MEMBER 20 1 & $MEMBER 20 0 & wait; $MEMBER 20 1; true");
	expect_right(4);
	assert_non_null(strstr(p.err, "4 processes used fabric memory"));
	assert_int_equal(servers(), 1);
	count_servers();
	RUN("--", "sh", "-c", "$MEMBER 20 0; $MEMBER 20 0"); /* each has a buffer of its own */
	expect_right(2);
	assert_int_equal(servers(), 1);
	count_servers();
	RUN("--", "sh", "-c", "true; true");
	assert_int_equal(servers(), 0);
	count_servers();
	RUN("--children", "exec", "--", member, "20", "0");
	expect_right(1);
	assert_int_equal(servers(), 1);
	count_servers();
	RUN("--", "sh", "-c",
	    "$MEMBER 20 0; kill -9 $(cat ${SODA_MEM_SERVER}s)\n"
	    "while kill -0 $(cat ${SODA_MEM_SERVER}s) 2>/dev/null; do sleep 0.1; done\n"
	    "$MEMBER 20 0");
	expect_right(2);
	assert_int_equal(servers(), 2);
}

/*
 * The next process can have what a killed one had.
 *
 * May: ends | is killed by SIGKILL | what it had is for others
 */
static void test_killed(void **state)
{
	setenv("SODA_MEM_SERVER_CAPACITY", "80M", 1);
	RUN("--mem", "16M", "--", "sh", "-c",
	    "for i in 1 2 3; do\n"
	    "  n=0; mkfifo $0/f$i; $MEMBER 50 0 99 >$0/f$i & p=$!; read x <$0/f$i; echo $x\n"
	    "  kill -9 $p; wait $p\n"
	    "  until $MEMBER 50 0; do n=$((n+1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done\n"
	    "done",
	    dir);
	unsetenv("SODA_MEM_SERVER_CAPACITY");
	expect_right(6);
}

static void expect_file(const char *name, const char *text)
{
	char path[128], line[64] = "";

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	for (int looks = 0; looks < LOOKS_MAX && !strchr(line, '\n'); looks++) {
		FILE *f = fopen(path, "r");

		if (!f || !fgets(line, sizeof(line), f))
			usleep(LOOK_US);
		if (f)
			fclose(f);
	}
	assert_string_equal(line, text);
}

/* A process that goes on when the program, and so soda, has ended keeps its memory. */
static void test_outlives(void **state)
{
	count_servers();
	RUN("--mem", "16M", "--", "sh", "-c",
	    "mkfifo $0/up; (cat $0/up; sleep 5; $MEMBER 4 0 >$0/late) >/dev/null 2>&1 &\n"
	    "sh -c 'echo >$0/up; exec $MEMBER 40 6 >$0/out' $0 >/dev/null 2>&1 &\n"
	    "sleep 2; exec $MEMBER 4 0",
	    dir);
	expect_right(1);
	expect_file("out", "right\n");
	expect_file("late", "right\n");
	assert_in_range(servers(), 1, 3); /* what comes late has one of its own */
}

static int setup(void **state)
{
	snprintf(member, sizeof(member), "%s", build_path("tests/integration/run/tree_member"));
	setenv("MEMBER", member, 1);
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

/*
 * Processes learn from the agent that it has four servers, which need more of the page buffer than
 * one does: they wait for that as they do at their start.
 */
static void test_pool_of_an_agent(void **state)
{
	enum { SERVERS = 4 };
	struct server servers[SERVERS], agent;
	char list[SERVERS * sizeof(agent.address)] = "";

	for (int i = 0; i < SERVERS; i++) {
		assert_int_equal(SERVER_START(&servers[i], "--capacity", "512M"), 0);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? "," : "",
			 servers[i].address);
	}
	assert_int_equal(agent_start(&agent, (const char *const[]){ "--listen", "tcp://127.0.0.1:0",
								    "--server", list, NULL }),
			 0);
	RUN("--mem", "32M", "--server", agent.address, "--", "sh", "-c",
	    "for i in 1 2 3 4 5 6 7 8; do \"$MEMBER\" 20 0 & done; wait");
	expect_right(8);
	assert_null(strstr(p.err, "no fabric memory"));
	assert_null(strstr(p.err, "goes on without it")); /* the agent is no server to be joined */
	assert_int_equal(server_stop(&agent), 0);
	server_forget(&agent);
	for (int i = 0; i < SERVERS; i++) {
		assert_int_equal(server_stop(&servers[i]), 0);
		server_forget(&servers[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_smaps),	    cmocka_unit_test(test_table),
		cmocka_unit_test(test_environment), cmocka_unit_test(test_too_small),
		cmocka_unit_test(test_privileged),  cmocka_unit_test(test_ends),
		cmocka_unit_test(test_one_server),  cmocka_unit_test(test_killed),
		cmocka_unit_test(test_outlives),    cmocka_unit_test(test_pool_of_an_agent),
	};

	/* a machine may be busy, and none of this is about patience */
	program_environment();
	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* one of them, by its name */
	return cmocka_run_group_tests_name("run_tree", tests, setup, teardown);
}
