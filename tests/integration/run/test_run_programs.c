/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda run` with programs as they come with the system, each in a memory cgroup with a third of
 * what it needs, its results compared with those of a plain run.  The memory server is outside of
 * the cgroup.  Where none can be made they run without, and what passes then counts as skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/proc.h"
#include "soda/stage/cgroup.h"

enum { WORDS = 40, MIB = 1 << 20, LIMIT_S = 240 };

static struct server server;
static char dir[] = "/tmp/soda-programs-XXXXXX";
static bool capped; /* there are memory cgroups here */

/* A program, and what it gets under soda run. */
struct job {
	const char *argv[24];
	const char *input; /* a file, or NULL */
	const char *mem, *threshold;
	const char *local; /* of --threshold auto; NULL: it is a size */
	const char *chunk; /* NULL: the default */
	uint64_t limit;	   /* of the cgroup */
};

struct running {
	pid_t pid;
	int out, err;
	struct soda_cgroup group;
};

struct result {
	int status;
	uint64_t peak; /* bytes resident at most */
	char out[8192], err[8192];
};

static const char *const modes[] = { "inline", "handler" };

/* Of the test's directory; for good. */
static const char *file(const char *name)
{
	static char paths[8][64];
	char path[64];
	int i = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	while (paths[i][0] && strcmp(paths[i], path) != 0)
		assert_true(++i < 8);
	strcpy(paths[i], path);
	return paths[i];
}

static void become(const struct job *job, const char *const *argv, const char *mode,
		   const struct running *r)
{
	int in = open(job->input ? job->input : "/dev/null", O_RDONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(in, 0) < 0 || dup2(r->out, 1) < 0 || dup2(r->err, 2) < 0 ||
	    soda_cgroup_enter(&r->group))
		_exit(125);
	setenv("LC_ALL", "C", 1);
	if (mode) {
		setenv("SODA_MODE", mode, 1);
		setenv("SODA_LOG", "info", 1);
		if (job->chunk)
			setenv("SODA_CHUNK", job->chunk, 1);
		setenv("SODA_SERVER", server.address, 1);
	}
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* mode NULL: plainly. */
static void start(const struct job *job, const char *mode, struct running *r)
{
	const char *argv[WORDS];
	char soda[512];
	size_t n = 0;

	*r = (struct running){ .out = proc_output("out"), .err = proc_output("err") };
	assert_true(r->out >= 0 && r->err >= 0);
	snprintf(soda, sizeof(soda), "%s", build_path("tools/soda/soda"));
	if (mode) {
		const char *const words[] = { soda,	     "run",	     "--mem", job->mem,
					      "--threshold", job->threshold, "--" };

		for (; n < sizeof(words) / sizeof(words[0]); n++)
			argv[n] = words[n];
		if (job->local) {
			argv[n - 1] = "--local";
			argv[n++] = job->local;
			argv[n++] = "--";
		}
		if (capped)
			assert_int_equal(
				soda_cgroup_open_memory(job->limit, false, getpid(), &r->group), 0);
	}
	for (size_t i = 0; (argv[n++] = job->argv[i]); i++)
		;
	r->pid = fork();
	assert_true(r->pid >= 0);
	if (r->pid == 0)
		become(job, argv, mode, r);
}

static void read_all(int fd, char *text, size_t bytes)
{
	ssize_t n = pread(fd, text, bytes - 1, 0);

	text[n > 0 ? n : 0] = 0;
	close(fd);
}

/* Its end, and what it said; nobody is killed for want of memory. */
static void finish(const struct job *job, struct running *r, struct result *result)
{
	struct timespec pause = { .tv_nsec = 5000000 };
	struct rusage usage;
	int status = 0, waits = LIMIT_S * 200;
	uint64_t kills;
	pid_t got;

	while ((got = wait4(r->pid, &status, WNOHANG, &usage)) == 0 && waits--)
		nanosleep(&pause, NULL);
	if (got == 0) {
		kill(r->pid, SIGKILL);
		wait4(r->pid, &status, 0, &usage);
	}
	kills = soda_cgroup_oom_kills(&r->group);
	soda_cgroup_close(&r->group);
	read_all(r->out, result->out, sizeof(result->out));
	read_all(r->err, result->err, sizeof(result->err));
	result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	result->peak = (uint64_t)usage.ru_maxrss << 10;
	if (result->status || kills)
		fail_msg("%s: status %d, killed for want of memory: %llu, said: %s%s", job->argv[0],
			 result->status, (unsigned long long)kills, result->out, result->err);
}

static void run(const struct job *job, const char *mode, struct result *result)
{
	struct running r;

	start(job, mode, &r);
	finish(job, &r, result);
	/* no object in fabric memory, no test */
	if (mode && !strstr(result->err, "userfaultfd"))
		fail_msg("%s: no fabric memory was used: %s", job->argv[0], result->err);
}

static bool there(const char *program)
{
	char path[128];

	snprintf(path, sizeof(path), "/usr/bin/%s", program);
	if (access(path, X_OK) == 0)
		return true;
	print_message("SKIP: no %s\n", path);
	return false;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* The limit is a third of it, or less. */
static void needs(const struct job *job, const struct result *plain)
{
	if (plain->peak < 3 * job->limit)
		fail_msg("%s needs only %llu bytes", job->argv[0], (unsigned long long)plain->peak);
}

/* As with the plain run, in both modes.  The plain run needs three times the limit. */
static void compare(const struct job *job)
{
	static struct result plain, ours;

	run(job, NULL, &plain);
	assert_true(plain.out[0]);
	needs(job, &plain);
	for (int i = 0; i < 2; i++) {
		run(job, modes[i], &ours);
		assert_string_equal(plain.out, ours.out);
	}
}

static void write_lines(void)
{
	uint64_t x = 88172645463325252u;
	FILE *f = fopen(file("lines"), "w");

	assert_non_null(f);
	for (int i = 0; i < 30000; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		fprintf(f, "%01200llu\n", (unsigned long long)x);
	}
	assert_int_equal(fclose(f), 0);
}

/* What it sorted, as a sum; the file is removed. */
static void take_sum(const char *path, struct result *sum)
{
	const struct job job = { .argv = { "/bin/sh", "-c", "cksum <\"$0\"", path, NULL } };

	run(&job, NULL, sum);
	unlink(path);
}

/* At the end of each: without a limit half of it has not been tested. */
static void say_if_not_capped(void)
{
	if (capped)
		return;
	print_message(
		"SKIP: no memory cgroup can be made here: it ran, and well, without a limit\n");
	skip();
}

static void test_sort(void **state)
{
	const struct job job = { .argv = { "/usr/bin/sort", "-S", "200M", "-o", file("sorted"),
					   file("lines"), NULL },
				 .mem = "6M",
				 .threshold = "1M",
				 .chunk = "16K", /* it reads lines here and there */
				 .limit = 12 * MIB };
	static struct result plain, ours, plain_sum, our_sum;

	if (!there("sort"))
		skip();
	write_lines();
	run(&job, NULL, &plain);
	take_sum(job.argv[4], &plain_sum);
	needs(&job, &plain);
	for (int i = 0; i < 2; i++) {
		run(&job, modes[i], &ours);
		take_sum(job.argv[4], &our_sum);
		assert_string_equal(plain_sum.out, our_sum.out);
	}
	unlink(file("lines"));
	say_if_not_capped();
}

static void test_sqlite(void **state)
{
	const struct job memory = { .argv = { "/usr/bin/sqlite3", ":memory:", NULL },
				    .input = file("queries"),
				    .mem = "8M",
				    .threshold = "4000",
				    .chunk = "16K",
				    .limit = 19 * MIB };
	/* one block for all pages */
	const struct job disk = { .argv = { "/usr/bin/sqlite3", "-pagecache", "4400", "15000", "",
					    NULL },
				  .input = file("queries"),
				  .mem = "8M",
				  .threshold = "1M",
				  .chunk = "16K",
				  .limit = 19 * MIB };

	if (!there("sqlite3"))
		skip();
	write_file(
		file("queries"),
		"PRAGMA journal_mode=OFF;\n"
		"PRAGMA cache_size=-100000;\n"
		"CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v TEXT);\n"
		"INSERT INTO t WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c"
		" WHERE i<80000) SELECT i, (i*7919)%80021, printf('%0580d', i*31) FROM c;\n"
		"CREATE INDEX tk ON t(k);\n"
		"UPDATE t SET v = v || 'x' WHERE k % 7 = 3;\n"
		"DELETE FROM t WHERE k % 11 = 5;\n"
		"SELECT count(*), sum(k), sum(length(v)) FROM t;\n"
		"SELECT sum(a.k * (b.id % 10)) FROM t a JOIN t b ON b.id = a.k WHERE a.k < 2000;\n"
		"SELECT k, substr(v, -12) FROM t ORDER BY k LIMIT 5 OFFSET 1000;\n"
		"PRAGMA integrity_check;\n");
	compare(&memory);
	compare(&disk);
	say_if_not_capped();
}

static void test_numpy(void **state)
{
	const struct job probe = { .argv = { "/usr/bin/python3", "-c", "import numpy", NULL } };
	const struct job job = { .argv = { "/usr/bin/python3", file("arrays.py"), NULL },
				 .mem = "16M",
				 .threshold = "1M",
				 .limit = 40 * MIB };
	struct running r;
	int status;

	if (!there("python3"))
		skip();
	start(&probe, NULL, &r);
	assert_int_equal(waitpid(r.pid, &status, 0), r.pid);
	close(r.out);
	close(r.err);
	if (status) {
		print_message("SKIP: no numpy for /usr/bin/python3\n");
		skip();
	}
	write_file(file("arrays.py"), /* four arrays, of twice the limit together */
		   "import numpy as np\n"
		   "n = 3 << 20\n"
		   "a = np.arange(n, dtype=np.int64)\n"
		   "a *= 2654435761\n"
		   "a ^= a >> 13\n"
		   "b = a[::-1].copy()\n"
		   "b.sort()\n"
		   "c = a + b\n"
		   "d = np.flip(c) ^ b\n"
		   "print(int(c.sum() & 0x7fffffffffffffff), int(a.max()), int(b[n // 2]),\n"
		   "      int(d.sum() & 0x7fffffffffffffff), int(np.searchsorted(b, a[12345])))\n");
	compare(&job);
	say_if_not_capped();
}

static void test_stress(void **state)
{
	const struct job vm = { .argv = { "/usr/bin/stress-ng", "--vm", "1", "--vm-bytes", "48M",
					  "--vm-keep", "--vm-ops", "40", "--verify", "--timeout",
					  "200", "--temp-path", dir, NULL },
				.mem = "8M",
				.threshold = "1M",
				.limit = 22 * MIB };
	const struct job blocks = { .argv = { "/usr/bin/stress-ng", "--malloc", "1",
					      "--malloc-bytes", "4M", "--malloc-max", "32",
					      "--malloc-ops", "500", "--verify", "--timeout", "200",
					      "--temp-path", dir, NULL },
				    .mem = "8M",
				    .threshold = "1M",
				    .limit = 22 * MIB };
	static struct result result;

	if (!there("stress-ng"))
		skip();
	for (int i = 0; i < 2; i++) {
		run(&vm, modes[i], &result);
		assert_non_null(strstr(result.err, "successful run"));
		run(&blocks, modes[i], &result);
		assert_non_null(strstr(result.err, "successful run"));
	}
	say_if_not_capped();
}

/* A client's run, to its end; what it printed. */
static const char *client(const char *program, const char *input, const char *command)
{
	static struct result result;
	struct job job = { .argv = { "/bin/sh", "-c", NULL, file("socket"), NULL },
			   .input = input };
	char line[256];

	snprintf(line, sizeof(line), "%s -s \"$0\" %s", program, command);
	job.argv[2] = line;
	run(&job, NULL, &result);
	return result.out;
}

static void await_redis(void)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	int looks = LOOKS;

	while (!strstr(client("redis-cli", NULL, "ping 2>&1 || true"), "PONG") && looks--)
		nanosleep(&pause, NULL);
	assert_true(looks > 0);
}

/* Load, read and overwrite through redis-benchmark; the digest of all keys and values. */
static void use_redis(char digest[64])
{
	await_redis();
	assert_non_null(strstr(client("redis-cli", file("load"), "--pipe"), "errors: 0"));
	client("redis-benchmark", NULL, "-q -t get -r 24000 -n 8000 -P 4");
	/* the same value whatever the order */
	client("redis-benchmark", NULL, "-q -r 24000 -n 4000 GETRANGE key:__rand_int__ 100 3000");
	assert_string_equal(client("redis-cli", NULL, "dbsize"), "24000\n");
	snprintf(digest, 64, "%s", client("redis-cli", NULL, "debug digest"));
	assert_int_equal(strlen(digest), 41);
	client("redis-cli", NULL, "shutdown nosave");
}

static void write_load(void)
{
	FILE *f = fopen(file("load"), "w");

	assert_non_null(f);
	for (int i = 0; i < 24000; i++) {
		fprintf(f, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$4096\r\n", i);
		for (int k = 0; k < 512; k++)
			fprintf(f, "%08d", (i * 7919 + k) % 100000000);
		fputs("\r\n", f);
	}
	assert_int_equal(fclose(f), 0);
}

static void test_redis(void **state)
{
	/* Debian's redis-tools has the server, too, under another name: no service is installed. */
	const struct job job = { .argv = { file("redis-server"), "--port", "0", "--unixsocket",
					   file("socket"), "--save", "", "--appendonly", "no",
					   "--dir", dir, "--enable-debug-command", "yes",
					   "--loglevel", "warning", NULL },
				 .mem = "12M",
				 .threshold = "2K",
				 .chunk = "16K",
				 .limit = 32 * MIB };
	char plain[64], ours[64];
	static struct result result;
	struct running r;

	if (!there("redis-check-rdb") || !there("redis-benchmark"))
		skip();
	assert_int_equal(symlink("/usr/bin/redis-check-rdb", file("redis-server")), 0);
	write_load();
	start(&job, NULL, &r);
	use_redis(plain);
	finish(&job, &r, &result);
	needs(&job, &result);
	for (int i = 0; i < 2; i++) {
		start(&job, modes[i], &r);
		use_redis(ours);
		finish(&job, &r, &result);
		assert_non_null(strstr(result.err, "userfaultfd"));
		assert_string_equal(plain, ours);
	}
	unlink(file("load"));
	say_if_not_capped();
}

/* Many small blocks: local first, and in fabric memory when that is full, without a restart. */
static void test_auto(void **state)
{
	static const char hash[] =
		"my %h; my $n = 0; keys(%h) = 50_000; $h{$_} = $_ x 250 for 1 .. 50_000;\n"
		"$n += length $h{$_ * 7919 % 50_000 + 1} for 1 .. 5_000;\n"
		"delete $h{$_ * 3} for 1 .. 5_000; $h{-$_} = $_ for 1 .. 5_000;\n"
		"print scalar(keys %h), ' ', $n, \"\\n\";\n";
	static const char dict[] = "d = {i: (i, str(i * 7) * 3) for i in range(700000)}\n"
				   "n = sum(len(d[i * 7919 % 700000][1]) for i in range(5000))\n"
				   "for i in range(0, 15000, 3): del d[i]\n"
				   "print(len(d), n)\n";
	static const char sqlite[] =
		"import sqlite3\n"
		"c = sqlite3.connect(':memory:')\n"
		"c.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v TEXT)')\n"
		"c.executemany('INSERT INTO t VALUES(?, ?, ?)',\n"
		"  ((i, i * 7919 % 200003, '%0400d' % i) for i in range(200000)))\n"
		"c.execute('CREATE INDEX x ON t(k)')\n"
		"print(c.execute('SELECT count(*), sum(length(v)), max(k) FROM t WHERE k % 3 = 1')"
		".fetchall())\n";
	const struct job jobs[] = {
		{ .argv = { "/usr/bin/perl", "-e", hash, NULL },
		  .limit = 18 * MIB,
		  .local = "16M" },
		{ .argv = { "/usr/bin/python3", "-c", dict, NULL },
		  .limit = 56 * MIB,
		  .local = "48M" },
		{ .argv = { "/usr/bin/python3", "-c", sqlite, NULL },
		  .limit = 32 * MIB,
		  .local = "28M" },
	};

	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		struct job job = jobs[i];

		if (!there(strrchr(job.argv[0], '/') + 1))
			continue;
		job.mem = "6M";
		job.threshold = "auto";
		compare(&job);
	}
	say_if_not_capped();
}

static void test_polls(void **state)
{
	char path[512];
	struct job job = {
		.argv = { path, NULL }, .mem = "8M", .threshold = "1M", .limit = 64 * MIB
	};
	static struct result result;

	snprintf(path, sizeof(path), "%s", build_path("tests/integration/run/run_victim_polls"));
	for (int i = 0; i < 2; i++)
		run(&job, modes[i], &result);
	say_if_not_capped();
}

static int setup(void **state)
{
	struct soda_cgroup trial;

	unsetenv("SODA_DPU");
	unsetenv("SODA_BUFFER");
	capped = soda_cgroup_open_memory(64 * MIB, false, getpid(), &trial) == 0;
	if (capped)
		soda_cgroup_close(&trial);
	return !mkdtemp(dir) || SERVER_START(&server, "--capacity", "2G", "--log-level", "warning");
}

static int teardown(void **state)
{
	char command[128];
	int status = server_stop(&server), complaints = server_complaints(&server);

	server_forget(&server);
	soda_cgroup_remove(getpid());
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) || status || complaints;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_polls),  cmocka_unit_test(test_sort),
		cmocka_unit_test(test_sqlite), cmocka_unit_test(test_numpy),
		cmocka_unit_test(test_stress), cmocka_unit_test(test_redis),
		cmocka_unit_test(test_auto),
	};

	return cmocka_run_group_tests_name("run_programs", tests, setup, teardown);
}
