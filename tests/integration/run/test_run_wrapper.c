/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda run` and programs that start through a wrapper: what a process becomes has fabric memory;
 * with --children=exec what it starts has none, and of that there is one line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

static const char soda[] = "tools/soda/soda";
static char victim[512], nothing[512];
static char dir[] = "/tmp/soda-wrapper-XXXXXX";
static struct program p;

static void run(const char *const *args)
{
	assert_int_equal(program_run_within(soda, args, 240000, &p), 0);
}
#define RUN(...) run((const char *const[]){ "run", __VA_ARGS__, NULL })

/* It ends with 0, and its standard error is empty, or one line that says that. */
static void expect(const char *said)
{
	const char *end = strchr(p.err, '\n');

	if (p.status)
		fail_msg("status %d: %s", p.status, p.err);
	if (said ? !strstr(p.err, said) || !end || end[1] : p.err[0] != 0)
		fail_msg("it says: %s", p.err);
}

/* An executable file with this text; a static buffer. */
static const char *script(const char *name, const char *text)
{
	static char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, 0755), 0);
	return path;
}

static bool have(const char *program)
{
	char command[128];

	snprintf(command, sizeof(command), "%s >/dev/null 2>&1 </dev/null", program);
	return system(command) == 0;
}

static void test_shell(void **state)
{
	const char *path = script("sh", "#!/bin/sh\n"
					"# looks around first, as such scripts do\n"
					"here=$(cd / && pwd)\n"
					"test \"$here\" = / || exit 3\n"
					"test -z \"$LD_PRELOAD\" || exit 4\n"
					"exec \"$VICTIM\" \"$@\"\n");

	RUN("--mem", "8M", "--children=exec", "--", path, "malloc");
	expect(NULL);
	RUN("--mem", "8M", "--children=exec", "--", path, "maps");
	expect(NULL);
	RUN("--mem", "8M", "--", "sh", "-c", "exec sh -c 'exec \"$VICTIM\" malloc'");
	expect(NULL);
	RUN("--mem", "8M", "--children=all", "--", "sh", "-c", "exec \"$VICTIM\" malloc");
	expect(NULL);
	RUN("--mem", "8M", "--", "env", "-i", victim, "malloc");
	expect(NULL);
	RUN("--mem", "8M", "--", "env", "-i", "LD_PRELOAD=", "PATH=/bin", victim, "malloc");
	expect(NULL);
	if (!have("bash -c true")) {
		print_message("SKIP: no bash\n");
		skip();
	}
	RUN("--mem", "8M", "--", "bash", "-c", "exec -a other \"$VICTIM\" malloc");
	expect(NULL);
}

/* What the program that it becomes did is what is told of. */
static void test_stats(void **state)
{
	const char *told;

	RUN("--mem", "8M", "--stats", "--", "sh", "-c", "exec \"$VICTIM\" malloc");
	assert_int_equal(p.status, 0);
	told = strstr(p.err, "fabric memory reserved, at most");
	if (!told || !strstr(p.err, "of 8 MiB"))
		fail_msg("it says: %s", p.err);
	assert_null(strstr(told + 1, "soda run:"));
}

/* And so it is in the numbers of its page. */
static void test_report(void **state)
{
	char out[128], command[400];

	snprintf(out, sizeof(out), "%s/page.html", dir);
	RUN("--mem", "8M", "--report", out, "--", "sh", "-c", "exec \"$VICTIM\" threads");
	if (!strstr(p.err, "nothing can be drawn"))
		expect(NULL);
	snprintf(command, sizeof(command), "grep -q '\"resident\":\\[[0-9]' %s/page.json", dir);
	assert_int_equal(system(command), 0);
}

/*
 * A wrapper that has fabric memory itself: it is the server's again when the program starts, for
 * there would not be enough for both.
 */
static void test_python(void **state)
{
	static const char *const ways[] = {
		"os.execv(v, [v, 'malloc'])",
		"os.execvp(v, [v, 'malloc'])",
		"os.execve(v, [v, 'malloc'], {'PATH': '/bin'})",
		"os.execl(v, v, 'malloc')",
		"os.execve(os.open(v, os.O_RDONLY), [v, 'malloc'], os.environ)",
	};
	char text[1024];
	struct server server;

	if (!have("python3 -c ''")) {
		print_message("SKIP: no python3\n");
		skip();
	}
	assert_int_equal(SERVER_START(&server, "--capacity", "512M"), 0);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		snprintf(text, sizeof(text),
			 "import os\n"
			 "b = bytearray(300 << 20)\n"
			 "b[100 << 20] = 5\n"
			 "v = os.environ['VICTIM']\n"
			 "try:\n"
			 "    os.execv(v + '.not-there', ['x'])\n"
			 "except FileNotFoundError:\n"
			 "    assert b[100 << 20] == 5\n" /* it goes on */
			 "c = bytearray(8 << 20)\n"
			 "%s\n",
			 ways[i]);
		RUN("--mem", "16M", "--server", server.address, "--", "python3", "-c", text);
		expect(NULL);
	}
	assert_int_equal(server_complaints(&server), 0);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

/* Without --children=all what is started has local memory. */
static void test_children(void **state)
{
	const char *path = script("child", "#!/bin/sh\n\"$VICTIM\" \"$@\"\nexit $?\n");

	RUN("--mem", "8M", "--children=exec", "--", path, "plain");
	expect("--children=all");
	assert_non_null(strstr(p.err, "no fabric memory"));
	RUN("--mem", "8M", "--", path, "malloc");
	expect(NULL);
	RUN("--mem", "8M", "--children=none", "--", "sh", "-c", "exec \"$VICTIM\" plain");
	expect(NULL);
	RUN("--mem", "8M", "--children=exec", "--", "sh", "-c",
	    "(exec \"$VICTIM\" plain) && exec \"$VICTIM\" malloc");
	expect(NULL);
	if (have("bash -c true")) { /* which has functions for its environment of its own */
		RUN("--mem", "8M", "--children=exec", "--", "bash", "-c",
		    "\"$VICTIM\" plain; exit $?");
		expect("--children=all");
	}
	if (have("timeout 60 true")) { /* which closes its standard error before it ends */
		RUN("--mem", "8M", "--children=exec", "--", "timeout", "200", victim, "plain");
		expect("--children=all");
	}
	RUN("--mem", "8M", "--children=exec", "--", "env",
	    "true"); /* neither is there anything to say */
	expect(NULL);
	setenv("SODA_LOG", "error", 1);
	RUN("--mem", "8M", "--children=exec", "--", path, "plain");
	expect(NULL);
	unsetenv("SODA_LOG");
	RUN("--mem", "8M", "--children=exec", "--", victim, "starts"); /* by every call */
	expect(NULL);
}

/*
 * A program that nothing can be loaded into runs all the same.
 *
 * May: children | starts a program that no library can be loaded into | it runs with local
 * memory
 */
static void test_cannot(void **state)
{
	char text[700];

	snprintf(text, sizeof(text), "exec %s", nothing);
	RUN("--mem", "8M", "--", "sh", "-c", text);
	expect("statically linked");
	RUN("--mem", "8M", "--", "sh", "-c", "exec /nonexistent/program");
	assert_int_equal(p.status, 127);
	assert_null(strstr(p.err, "fabric"));
}

/*
 * It keeps its own: nothing that its free() does not know.
 *
 * May: memory | has a malloc() of its own | it keeps it
 */
static void test_own_malloc(void **state)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", build_path("tests/integration/run/own_malloc"));
	RUN("--mem", "8M", "--quiet", "--", path);
	if (p.status || strcmp(p.out, "done\n") != 0)
		fail_msg("status %d, output %s: %s", p.status, p.out, p.err);
}

/* The dynamic linker would take half of the path, and start the program without the library. */
static void test_path_with_space(void **state)
{
	static const char *const names[] = { "a b", "a:b" };
	char line[2048], said[1024];
	FILE *f;

	for (size_t i = 0; i < 2; i++) {
		snprintf(line, sizeof(line),
			 "d='%s/%s'; mkdir -p \"$d/tools/soda\" \"$d/src/run\" && "
			 "cp %s/tools/soda/soda %s/tools/soda/libsoda-bench* \"$d/tools/soda\" "
			 "2>/dev/null; cp %s/src/run/libsoda-run.so \"$d/src/run\" && "
			 "LD_LIBRARY_PATH=%s/src/host_agent:%s/tools/soda \"$d/tools/soda/soda\" "
			 "run -- "
			 "echo ran 2>&1; echo $?",
			 dir, names[i], getenv("SODA_BUILD_DIR"), getenv("SODA_BUILD_DIR"),
			 getenv("SODA_BUILD_DIR"), getenv("SODA_BUILD_DIR"),
			 getenv("SODA_BUILD_DIR"));
		f = popen(line, "r");
		assert_non_null(f);
		said[fread(said, 1, sizeof(said) - 1, f)] = 0;
		pclose(f);
		if (!strstr(said, "a space or a colon in LD_PRELOAD") || !strstr(said, names[i]) ||
		    !strstr(said, "\n127\n") || strstr(said, "ran\n"))
			fail_msg("%s: %s", names[i], said);
	}
}

/* A library's allocator has its pages in fabric memory, and its blocks are its own. */
static void test_other_malloc(void **state)
{
	static const char program[] = "tests/integration/run/other_blocks";
	char path[512], plain[64];

	snprintf(path, sizeof(path), "%s", build_path(program));
	assert_int_equal(program_run_within(program, (const char *const[]){ NULL }, 60000, &p), 0);
	assert_int_equal(p.status, 0);
	snprintf(plain, sizeof(plain), "%.60s", p.out);
	RUN("--mem", "16M", "--", path);
	expect(NULL);
	assert_string_equal(p.out, plain);
}

/* Under an auditor of the dynamic linker, which leaves little static room for threads' data. */
static void test_audit(void **state)
{
	static const char *const version[] = { "--version", NULL };
	char preset[512];

	setenv("LD_AUDIT", build_path("tests/integration/run/run_audit.so"), 1);
	assert_int_equal(program_run_within(soda, version, 60000, &p), 0);
	expect(NULL);
	RUN("--mem", "8M", "--", victim, "malloc");
	unsetenv("LD_AUDIT");
	expect(NULL);
	snprintf(preset, sizeof(preset), "LD_AUDIT=%s",
		 build_path("tests/integration/run/run_audit.so"));
	RUN("--mem", "8M", "--", "env", preset, victim, "malloc");
	expect(NULL);
}

static int setup(void **state)
{
	snprintf(victim, sizeof(victim), "%s", build_path("tests/integration/run/run_victim"));
	snprintf(nothing, sizeof(nothing), "%s",
		 build_path("tests/integration/run/static_program"));
	setenv("VICTIM", victim, 1);
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shell),		cmocka_unit_test(test_stats),
		cmocka_unit_test(test_report),		cmocka_unit_test(test_python),
		cmocka_unit_test(test_children),	cmocka_unit_test(test_cannot),
		cmocka_unit_test(test_path_with_space), cmocka_unit_test(test_own_malloc),
		cmocka_unit_test(test_other_malloc),	cmocka_unit_test(test_audit),
	};

	/* a machine may be busy, and none of this is about patience */
	program_environment();
	if (argc == 2) /* one of them, by hand */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("run_wrapper", tests, setup, teardown);
}
