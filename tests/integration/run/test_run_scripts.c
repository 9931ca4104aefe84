/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of the distribution that are started through scripts, under `soda run` without an
 * option but sizes: what does the work has fabric memory, and the results are those of a run
 * without SODA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

enum { WANTED = 12, SECONDS = 200 };

static char dir[] = "/tmp/soda-scripts-XXXXXX";

/* What each is given, in dir: 600,000 numbers, w; w2, in which some differ; both packed. */
static const char make[] =
	"cd %s && seq 1 600000 >w && sed s/77777/x/ w >w2 || exit 1\n"
	"for f in w w2; do gzip -1 -k $f; xz -0 -k $f; bzip2 -1 -k $f; done 2>/dev/null\n"
	"echo 'int main(void) { return 0; }' >c.c\n"
	"cp \"$(command -v sort)\" packed && gzexe packed 2>/dev/null\n"
	"printf 'AC_INIT([a], [1])\\nAC_PROG_CC\\nAC_OUTPUT\\n' >configure.ac\n";

/* The script that must be there, and what is run; its output is compared. */
static const struct {
	const char *script, *command;
} programs[] = {
	{ "egrep", "egrep -c '1(2|3)9+' w" },
	{ "fgrep", "fgrep -c 99 w" },
	{ "zgrep", "zgrep -c 99 w.gz" },
	{ "zegrep", "zegrep -c '9(8|7)' w.gz" },
	{ "xzgrep", "xzgrep -c 99 w.xz" },
	{ "xzegrep", "xzegrep -c '9(8|7)' w.xz" },
	{ "bzgrep", "bzgrep -c 99 w.bz2" },
	{ "zdiff", "zdiff w.gz w2.gz" },
	{ "xzdiff", "xzdiff w.xz w2.xz" },
	{ "bzdiff", "bzdiff w.bz2 w2.bz2" },
	{ "c99", "c99 -c -o c.o c.c && cksum <c.o" },
	{ "c89", "c89 -S -o c.s c.c && cksum <c.s" },
	{ "gzexe", "./packed -r w | cksum" },
	{ "autoconf", "autoconf -o - configure.ac | cksum" },
};

static char out[2][16384], said[8192];

static void read_file(const char *name, char *text, size_t bytes)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	assert_non_null(f);
	text[fread(text, 1, bytes - 1, f)] = 0;
	fclose(f);
}

/* Run it in dir, with `before` before its shell; its exit status. Its output is in text. */
static int shell(const char *before, const char *command, char *text, size_t bytes)
{
	char line[2048];
	int status;

	snprintf(line, sizeof(line), "cd %s && timeout %d %s sh -c '%s' >out 2>err </dev/null", dir,
		 SECONDS, before, command);
	status = system(line);
	read_file("out", text, bytes);
	return status;
}

static bool have(const char *script)
{
	char line[256];

	snprintf(line, sizeof(line), "f=$(command -v %s) && head -c 2 \"$f\" | grep -q '^#!'",
		 script);
	return system(line) == 0;
}

/* The command with each ' as a shell needs it inside of '...'. */
static const char *quoted(const char *command)
{
	static char text[512];
	size_t n = 0;

	for (; *command && n + 5 < sizeof(text); command++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, *command == '\'' ? "'\\''" : "%c",
				      *command);
	return text;
}

static void test_scripts(void **state)
{
	char before[700];
	int done = 0;

	snprintf(before, sizeof(before), "%s run --mem 32M --threshold 64K --stats --",
		 build_path("tools/soda/soda"));
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		const char *command = quoted(programs[i].command);
		int status[2];

		if (!have(programs[i].script)) {
			print_message("no %s here\n", programs[i].script);
			continue;
		}
		status[0] = shell("", command, out[0], sizeof(out[0]));
		status[1] = shell(before, command, out[1], sizeof(out[1]));
		read_file("err", said, sizeof(said));
		if (status[0] != status[1] || strcmp(out[0], out[1]) != 0)
			fail_msg("%s: status %#x, and %#x without SODA; output %.200s, and %.200s; "
				 "it says: %s",
				 programs[i].command, status[1], status[0], out[1], out[0], said);
		if (!strstr(said, "fabric memory reserved, at most") &&
		    !strstr(said, "processes used fabric memory"))
			fail_msg("%s: no fabric memory: %s", programs[i].command, said);
		done++;
	}
	print_message("%d programs\n", done);
	if (done < WANTED) {
		print_message("SKIP: only %d of the scripts are here, %d wanted\n", done, WANTED);
		skip();
	}
}

static int setup(void **state)
{
	char line[sizeof(make) + sizeof(dir)];

	if (!mkdtemp(dir))
		return -1;
	snprintf(line, sizeof(line), make, dir);
	return system(line) ? -1 : 0;
}

static int teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_scripts) };

	program_environment();
	return cmocka_run_group_tests_name("run_scripts", tests, setup, teardown);
}
