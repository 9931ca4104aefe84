/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that fork and go on, under `soda run`: shells, interpreters; and ranks that are each
 * other's neighbours.  What they write is the same as without SODA, and nothing is written beside
 * it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

enum { SECONDS = 200, OPTIONS = 8, WANTED = 3 };

static struct program p;

/* How it is started, and what it does. */
static const struct script {
	const char *name, *program, *option;
	const char *run[OPTIONS]; /* options of soda run */
	const char *text, *output;
} scripts[] = {
	{ "a text in a pipeline",
	  "bash",
	  "-c",
	  { "--mem", "8M" },
	  "x=$(head -c 3000000 /dev/zero | tr '\\0' a)\n"
	  "printf '%s' \"$x\" | wc -c; echo ${PIPESTATUS[*]}\n"
	  "y=$(printf '%s' \"$x\" | cksum); echo $y; (echo ${#x}) | cat; echo \"$x\" | md5sum\n",
	  "3000000\n0 0\n" },
	{ "a text in a pipeline of another shell",
	  "dash",
	  "-c",
	  { "--mem", "8M" },
	  "x=$(head -c 3000000 /dev/zero | tr '\\0' a)\n"
	  "printf '%s' \"$x\" | wc -c; (printf '%s' \"$x\") | md5sum\n",
	  "3000000\n" },
	{ "small blocks of a shell",
	  "bash",
	  "-c",
	  { "--mem", "8M", "--threshold", "4096" },
	  "for ((i=0;i<30000;i++)); do a[i]=\"some value $i of an array\"; done\n"
	  "/bin/echo ${#a[@]}; b=$(/bin/echo x); echo \"b=$b\"\n"
	  "printf '%s\\n' \"${a[@]}\" | cksum\n",
	  "30000\nb=x\n" },
	{ "workers with an array",
	  "python3",
	  "-c",
	  { "--mem", "24M" },
	  "import multiprocessing, os\n"
	  "a = bytearray(os.urandom(1) * (200 << 20))\n"
	  "def work(i): return sum(a[i::4096]) == a[0] * len(a[i::4096])\n"
	  "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
	  "    print(all(pool.map(work, range(8))))\n"
	  "p = os.fork()\n"
	  "if p == 0:\n"
	  "    a[5] ^= 1; os._exit(7)\n"
	  "print(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]), a[5] == a[0])\n",
	  "True\n7 True\n" },
	{ "a list in workers",
	  "python3",
	  "-c",
	  { "--mem", "16M", "--threshold", "65536" },
	  "from multiprocessing import get_context\n"
	  "big = list(range(1000000))\n"
	  "def f(i): return sum(big[i::4])\n"
	  "with get_context('fork').Pool(2) as p: print(sum(p.map(f, range(4))))\n",
	  "499999500000\n" },
	{ "a worker that closes all that it did not open",
	  "python3",
	  "-c",
	  { "--mem", "16M" },
	  "import os\n"
	  "a = [b'%d' % i for i in range(600000)]\n"
	  "r, w = os.pipe()\n"
	  "if os.fork() == 0:\n"
	  "    for fd in {int(f) for f in os.listdir('/proc/self/fd')} - {1, 2, w}:\n"
	  "        try: os.close(fd)\n"
	  "        except OSError: pass\n"
	  "    os.write(w, b'%d' % sum(map(int, a)))\n"
	  "    os._exit(0)\n"
	  "os.close(w)\n"
	  "print(int(os.read(r, 100)), os.wait()[1])\n",
	  "179999700000 0\n" },
	{ "children of a program whose blocks went to fabric memory",
	  "perl",
	  "-e",
	  { "--mem", "8M", "--local", "24M", "--threshold", "auto" },
	  "my %h; $h{$_} = \"value $_\" for 1..120000; $| = 1;\n"
	  "print scalar(keys %h), \" \", system(\"true\"), \" \", system(\"true; true\"), \" \", "
	  "`/bin/echo back`;\n"
	  "my $pid = open(my $f, \"-|\") // die; if (!$pid) { print scalar(keys %h); exit 0 }\n"
	  "print <$f>; close $f; print \" $?\\n\";\n",
	  "120000 0 0 back\n120000 0\n" },
};

static bool have(const char *program)
{
	char line[128];

	snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", program);
	return system(line) == 0;
}

/* Without SODA. */
static void plain(const struct script *s, char *output, size_t bytes)
{
	size_t n = 0;
	ssize_t got;
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		alarm(SECONDS);
		dup2(ends[1], STDOUT_FILENO);
		execlp(s->program, s->program, s->option, s->text, NULL);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], output + n, bytes - 1 - n)) > 0)
		n += (size_t)got;
	output[n] = '\0';
	close(ends[0]);
	waitpid(pid, NULL, 0);
}

static void try(const struct script *s)
{
	const char *args[16] = { "run" };
	char expected[sizeof(p.out)];
	size_t n = 1;

	plain(s, expected, sizeof(expected));
	if (strncmp(expected, s->output, strlen(s->output)) != 0)
		fail_msg("%s, without SODA: %s", s->name, expected);
	for (size_t i = 0; s->run[i]; i++)
		args[n++] = s->run[i];
	args[n++] = "--";
	args[n++] = s->program;
	args[n++] = s->option;
	args[n] = s->text;
	assert_int_equal(program_run_within("tools/soda/soda", args, SECONDS * 1000, &p), 0);
	if (p.status || strcmp(p.out, expected) != 0)
		fail_msg("%s: status %d, output %s, and without SODA %s; it says: %s", s->name,
			 p.status, p.out, expected, p.err);
	if (p.err[0])
		fail_msg("%s: it says: %s", s->name, p.err);
}

/* May: children | is a shell, a perl or a python that forks | served */
static void test_programs(void **state)
{
	size_t done = 0;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		if (!have(scripts[i].program)) {
			print_message("no %s here\n", scripts[i].program);
			continue;
		}
		try(&scripts[i]);
		done++;
	}
	if (done < WANTED) {
		print_message("SKIP: only %zu of the programs are here, %d wanted\n", done, WANTED);
		skip();
	}
}

/* Workers of joblib, which it starts by forks that close what they find. */
static void test_joblib(void **state)
{
	static const struct script workers = {
		"joblib",
		"python3",
		"-c",
		{ "--mem", "24M" },
		"from joblib import Parallel, delayed\n"
		"b = bytearray(b'\\1' * (64 << 20))\n"
		"n = Parallel(n_jobs=2)(delayed(sum)(b[i::4]) for i in range(4))\n"
		"print(n)\n",
		"[16777216, 16777216, 16777216, 16777216]\n",
	};

	if (system("python3 -c 'import joblib' >/dev/null 2>&1")) {
		print_message("SKIP: no joblib here\n");
		skip();
	}
	try(&workers);
}

/* A case of the victim, in both modes. */
static void try_victim(const char *name)
{
	static const char *const modes[] = { "inline", "handler" };
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path("tests/integration/run/run_victim"));
	for (int i = 0; i < 2; i++) {
		setenv("SODA_MODE", modes[i], 1);
		assert_int_equal(program_run_within("tools/soda/soda",
						    (const char *const[]){ "run", "--mem", "8M",
									   "--", path, name, NULL },
						    SECONDS * 1000, &p),
				 0);
		if (p.status || p.err[0])
			fail_msg("%s mode: status %d: %s", modes[i], p.status, p.err);
	}
	unsetenv("SODA_MODE");
}

/* May: children | forks, and the child reads and stores | served */
static void test_victim(void **state)
{
	try_victim("forks");
}

/* A child writes all to a file while its parent stores: the file has it as it was at the fork. */
static void test_snapshot(void **state)
{
	try_victim("snapshot");
}

/* Neighbours that would read each other's memory, as far as there is an MPI here. */
static void test_neighbours(void **state)
{
	static const char *const args[] = {
		"run",
		"--mem",
		"32M",
		"--",
		"sh",
		"-c",
		"cd $T && exec mpirun --allow-run-as-root --oversubscribe -n 4 ./ranks file",
		NULL
	};
	char dir[] = "/tmp/soda-ranks-XXXXXX", line[1024];

	if (!have("mpicc") || !have("mpirun")) {
		print_message("SKIP: no mpicc here\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	snprintf(line, sizeof(line),
		 "mpicc -O2 -o %s/ranks %s/tests/integration/run/mpi_neighbours.c", dir,
		 getenv("SODA_SOURCE_DIR"));
	assert_int_equal(system(line), 0);
	setenv("T", dir, 1);
	assert_int_equal(program_run_within("tools/soda/soda", args, SECONDS * 1000, &p), 0);
	snprintf(line, sizeof(line), "rm -r %s", dir);
	assert_int_equal(system(line), 0);
	if (p.status || strcmp(p.out, "right\n") != 0 || strstr(p.err, "Read -1"))
		fail_msg("status %d, output %.200s; it says: %.2000s", p.status, p.out, p.err);
}

/* By variables that the user may have set. */
static void test_single_copies(void **state)
{
	static const char *const args[] = {
		"run",
		"--",
		"sh",
		"-c",
		"echo $OMPI_MCA_btl_vader_single_copy_mechanism $OMPI_MCA_smsc $UCX_TLS "
		"$FI_SHM_DISABLE_CMA $MPIR_CVAR_CH4_CMA_ENABLE $MPIR_CVAR_CH4_XPMEM_ENABLE",
		NULL
	};

	unsetenv("UCX_TLS");
	assert_int_equal(program_run_within("tools/soda/soda", args, SECONDS * 1000, &p), 0);
	assert_string_equal(p.out, "emulated ^cma,knem,xpmem ^cma,knem,xpmem 1 0 0\n");
	setenv("UCX_TLS", "tcp", 1);
	assert_int_equal(program_run_within("tools/soda/soda", args, SECONDS * 1000, &p), 0);
	assert_string_equal(p.out, "emulated ^cma,knem,xpmem tcp 1 0 0\n");
	unsetenv("UCX_TLS");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_victim),	   cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_programs),   cmocka_unit_test(test_joblib),
		cmocka_unit_test(test_neighbours), cmocka_unit_test(test_single_copies),
	};

	program_environment();
	return cmocka_run_group_tests_name("run_forks", tests, NULL, NULL);
}
