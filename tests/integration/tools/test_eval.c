/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda eval` from outside, on a graph so small that its times say nothing: that every run is
 * verified, that the files are there, that it goes on where it was interrupted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

enum { LIMIT_MS = 280000 };

static char dir[] = "/tmp/soda-test-eval-XXXXXX", out[64];
static const char *graph = "rmat:10:16000";

/* A limit that sanitizers fit into. */
#define COMMON                                                                                     \
	"eval", "--quick", "--out", out, "--graph", graph, "--repeat", "1", "--memory", "2G",      \
		"--threads", "2"

#define EVAL(...)                                                                                  \
	assert_int_equal(program_run_within(SODA,                                                  \
					    (const char *const[]){ COMMON, __VA_ARGS__, NULL },    \
					    LIMIT_MS, &run),                                       \
			 0)

static void ended_well(void)
{
	if (run.status)
		print_error("status %d, said: %s\n", run.status, run.err);
	assert_int_equal(run.status, 0);
}

static const char *file(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", out, name);
	return path;
}

static uint64_t size_of(const char *name)
{
	struct stat st;

	return stat(file(name), &st) ? 0 : (uint64_t)st.st_size;
}

static const json_t *member(const json_t *in, const char *key)
{
	const json_t *value = json_object_get(in, key);

	if (!value)
		print_error("%s is missing\n", key);
	assert_non_null(value);
	return value;
}

static json_t *results(size_t runs)
{
	json_t *all = json_load_file(file("results.json"), 0, NULL);

	assert_non_null(all);
	assert_int_equal(json_array_size(member(all, "runs")), runs);
	return all;
}

static void check_run(const json_t *r)
{
	const char *why = json_string_value(json_object_get(r, "why_invalid"));

	if (why)
		print_error("%s in %s: %s\n", json_string_value(member(r, "app")),
			    json_string_value(member(r, "mode")), why);
	assert_true(json_is_true(member(r, "verified")));
	assert_true(json_is_true(member(r, "valid")));
	assert_true(json_real_value(member(r, "seconds")) > 0);
	assert_int_equal(json_integer_value(member(r, "oom_kills")), 0);
	assert_true(json_integer_value(member(r, "memory_peak_bytes")) > 0);
	assert_true(json_is_object(member(r, "traffic")));
}

/* There is a page; or it is said what is missing for that, and where the numbers are. */
static bool drawn(void)
{
	if (!strstr(run.err, "nothing can be drawn")) {
		assert_true(size_of("report.html") > 0);
		assert_non_null(strstr(run.out, "report.html"));
		return true;
	}
	assert_non_null(strstr(run.err, "apt-get install"));
	assert_non_null(strstr(run.err, file("results.json")));
	return false;
}

static void test_writes_a_verified_report(void **state)
{
	const json_t *r;
	json_t *all;
	size_t i;

	/* what changes a run stands beside it */
	setenv("SODA_DPU_RECENT_FOR_THE_REPORT", "17", 1);
	EVAL("--modes", "memserver,store,all", "--apps", "bfs,pagerank", "--alone");
	unsetenv("SODA_DPU_RECENT_FOR_THE_REPORT");
	ended_well();
	all = results(8);
	json_array_foreach(member(all, "runs"), i, r) check_run(r);
	assert_string_equal(json_string_value(member(all, "format")), "soda-eval");
	assert_int_equal(json_integer_value(member(all, "version")), 1);
	assert_int_equal(json_array_size(member(all, "graphs")), 1);
	assert_true(json_is_object(member(all, "machine")));
	r = member(json_array_get(member(all, "commands"), 0), "environment");
	assert_string_equal(json_string_value(json_object_get(r, "SODA_DPU_RECENT_FOR_THE_REPORT")),
			    "17");
	json_decref(all);
	assert_true(size_of("results.csv") > 0);
	assert_true(size_of("work") == 0);
	drawn();
	/* two applications, each without an agent and with one */
	assert_non_null(strstr(run.out, "\n  pagerank       memserver "));
	assert_non_null(strstr(run.out, "  yes, 1 of 1\nWith 2 GiB in local memory, "));
	assert_non_null(strstr(run.out, " times as long as with all of it in local memory. Each "
					"result was verified.\n"));
}

/* With two processes, and the disk; without what draws there is a sentence instead of figures. */
static void test_draws_figures(void **state)
{
	static const char *const figures[] = { "slow-down", "figure-6",		"figure-7",
					       "figure-8",  "figure-8-traffic", "figure-9",
					       "figure-11" };
	const json_t *r;
	char name[64];
	json_t *all;
	size_t i;

	snprintf(out, sizeof(out), "%s/figures", dir);
	EVAL("--modes",
	     "ssd,ssd+readahead,ssd+advice,memserver,base,dynamic-paper,static+dynamic,store,all",
	     "--apps", "bfs");
	ended_well();
	all = results(15);
	json_array_foreach(member(all, "runs"), i, r) check_run(r);
	json_decref(all);
	for (i = 0; drawn() && i < sizeof(figures) / sizeof(figures[0]); i++) {
		snprintf(name, sizeof(name), "figures/%s.svg", figures[i]);
		if (size_of(name) == 0)
			print_error("%s is missing\n", name);
		assert_true(size_of(name) > 0);
	}
	snprintf(out, sizeof(out), "%s/out", dir);
}

/* Within 3 %, and what opens and closes connections and regions. */
static void check_interface(const json_t *r)
{
	double carried = (double)json_integer_value(member(r, "interface_bytes"));
	double counted = (double)json_integer_value(member(member(r, "traffic"), "total"));

	if (!(carried > counted && carried < 1.03 * counted + 32768))
		print_error("carried %.0f bytes, counted %.0f\n", carried, counted);
	assert_true(carried > counted);
	assert_true(carried < 1.03 * counted + 32768);
}

/* What the interface carries is the data, and its headers. */
static void test_link_carries_what_is_counted(void **state)
{
	const json_t *r;
	json_t *all;
	size_t i;

	if (geteuid() != 0 || access("/sbin/tc", X_OK) != 0) {
		print_message("SKIP: --link needs root and tc\n");
		skip();
	}
	snprintf(out, sizeof(out), "%s/link", dir);
	graph = "rmat:14:200000";
	EVAL("--modes", "memserver,all", "--apps", "pagerank", "--alone", "--link", "2gbit");
	graph = "rmat:10:16000";
	if (run.status && strstr(run.err, "no network namespace")) {
		print_message("SKIP: no network namespaces here\n");
		skip();
	}
	ended_well();
	all = results(3);
	json_array_foreach(member(all, "runs"), i, r)
	{
		check_run(r);
		if (strcmp(json_string_value(member(r, "mode")), "dram") != 0)
			check_interface(r);
	}
	json_decref(all);
	snprintf(out, sizeof(out), "%s/out", dir);
}

/* Half a line at the end is what an interruption leaves. */
static void test_goes_on_after_an_interruption(void **state)
{
	uint64_t before = size_of("runs.jsonl");

	EVAL("--modes", "memserver,store,all", "--apps", "bfs,pagerank", "--alone");
	ended_well();
	assert_non_null(strstr(run.err, "going on after 8 runs"));
	assert_int_equal(size_of("runs.jsonl"), before);
	assert_int_equal(truncate(file("runs.jsonl"), (off_t)before - 20), 0);
	EVAL("--modes", "memserver,store,all", "--apps", "bfs,pagerank", "--alone");
	ended_well();
	assert_non_null(strstr(run.err, "going on after 7 runs"));
	json_decref(results(8));
}

/* A report of what is there, where nothing can draw: the numbers, and status 1. */
static void check_report_without_python(const char *const *report)
{
	char *before = strdup(getenv("PATH"));

	assert_non_null(before);
	setenv("PATH", dir, 1);
	assert_int_equal(program_run_within(SODA, report, LIMIT_MS, &run), 0);
	setenv("PATH", before, 1);
	free(before);
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.err, "python3 is installed"));
	assert_false(drawn());
	json_decref(results(9));
}

/* Another mode in the same folder, and a report of all that is there. */
static void test_is_made_in_parts(void **state)
{
	const char *const report[] = { "eval", "--report", "--out", out, NULL };
	json_t *all;

	EVAL("--modes", "base", "--apps", "bfs", "--alone");
	ended_well();
	assert_non_null(strstr(run.err, "1 of 2 runs to do"));
	check_report_without_python(report);
	assert_int_equal(program_run_within(SODA, report, LIMIT_MS, &run), 0);
	assert_int_equal(run.status, drawn() ? 0 : 1);
	all = results(9);
	assert_int_equal(json_array_size(member(all, "commands")), 3);
	json_decref(all);
}

static void test_keeps_evaluations_apart(void **state)
{
	EVAL("--modes", "memserver", "--apps", "bfs", "--alone", "--iterations", "4");
	refused(2, "--fresh");
	json_decref(results(9));
}

/* With a cgroup its processes are killed; without the right to one, they are seen to take more. */
static void test_a_run_over_its_limit_does_not_count(void **state)
{
	const json_t *r;
	json_t *all;
	size_t i;

	snprintf(out, sizeof(out), "%s/limit", dir);
	EVAL("--modes", "ssd,memserver", "--apps", "bfs", "--alone", "--memory", "64K");
	assert_int_equal(run.status, 1);
	assert_non_null(strstr(run.err, "2 of 3 runs are invalid"));
	all = results(3);
	json_array_foreach(member(all, "runs"), i, r) if (i > 0)
	{
		const char *why = json_string_value(member(r, "why_invalid"));

		if (!strstr(why, "killed by the memory limit") && !strstr(why, "is over the limit"))
			print_error("invalid: %s\n", why);
		assert_true(strstr(why, "killed by the memory limit") ||
			    strstr(why, "is over the limit"));
		assert_false(json_is_true(member(r, "valid")));
	}
	json_decref(all);
	snprintf(out, sizeof(out), "%s/out", dir);
}

/* soda-ligra, with a result from fabric memory that is wrong in one place. */
static void put_liar(const char *path)
{
	FILE *script = fopen(path, "w");
	char program[PATH_MAX];

	assert_non_null(script);
	fprintf(script,
		"#!/bin/sh\n\"%s\" \"$@\" || exit\n"
		"case \"$*\" in *\"--memory served\"*) ;; *) exit 0 ;; esac\n"
		"while [ \"$1\" != --result ]; do shift; done\n"
		"printf '\\001\\001\\001' | dd of=\"$2\" bs=1 seek=1000 conv=notrunc 2>/dev/null\n",
		realpath(build_path("apps/ligra/soda-ligra"), program));
	assert_int_equal(fclose(script), 0);
	assert_int_equal(chmod(path, 0755), 0);
}

/* That a right result is kept for comparison hides no wrong one. */
static void test_finds_a_wrong_result(void **state)
{
	char liar[96];

	snprintf(liar, sizeof(liar), "%s/liar", dir);
	put_liar(liar);
	setenv("SODA_LIGRA", liar, 1);
	snprintf(out, sizeof(out), "%s/wrong", dir);
	EVAL("--modes", "memserver", "--apps", "components", "--alone", "--repeat", "2");
	unsetenv("SODA_LIGRA");
	assert_int_equal(run.status, 1);
	if (!strstr(run.err, "components in memserver: INVALID: wrong result"))
		print_error("said: %s\n", run.err);
	assert_non_null(strstr(run.err, "components in memserver: INVALID: wrong result"));
	assert_non_null(strstr(run.err, "2 of 4 runs are invalid"));
	json_decref(results(4));
	assert_true(size_of("work") == 0);
	snprintf(out, sizeof(out), "%s/out", dir);
}

static void test_refuses_what_is_not_there(void **state)
{
	EVAL("--apps", "bfs,dfs");
	refused(2, "no application 'dfs'");
	EVAL("--modes", "memserver,nothing");
	refused(2, "no mode 'nothing'");
	EVAL("--graph", "/nowhere/graph.txt");
	refused(2, "/nowhere/graph.txt");
	EVAL("--graph", "rmat:12");
	refused(2, "neither rmat:SCALE:EDGES");
	EVAL("--chunk", "96K");
	refused(2, "power of two");
}

/* What soda graph gen has written, by the name that it was given. */
static void test_takes_a_triple(void **state)
{
	char triple[80], other[80];
	const char *gen[] = { "graph", "gen", "--scale", "8", "--symmetric", triple, NULL };
	const char *eval[] = { "eval",	    "--out",  other,	   "--graph",  triple, "--modes",
			       "memserver", "--apps", "bfs",	   "--repeat", "1",    "--alone",
			       "--memory",  "2G",     "--threads", "2",	       NULL };

	snprintf(triple, sizeof(triple), "%s/triple", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	assert_int_equal(program_run_within(SODA, gen, LIMIT_MS, &run), 0);
	ended_well();
	assert_int_equal(program_run_within(SODA, eval, LIMIT_MS, &run), 0);
	ended_well();
}

/* Its graphs are never here. */
static void test_says_what_the_paper_needs(void **state)
{
	const char *const args[] = { "eval", "--paper", "--out", out, NULL };

	assert_int_equal(program_run_within(SODA, args, LIMIT_MS, &run), 0);
	refused(2, "its graphs are not part of this program");
}

static int start(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(out, sizeof(out), "%s/out", dir);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static int end(void **state)
{
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes_a_verified_report),
		cmocka_unit_test(test_draws_figures),
		cmocka_unit_test(test_link_carries_what_is_counted),
		cmocka_unit_test(test_goes_on_after_an_interruption),
		cmocka_unit_test(test_is_made_in_parts),
		cmocka_unit_test(test_keeps_evaluations_apart),
		cmocka_unit_test(test_a_run_over_its_limit_does_not_count),
		cmocka_unit_test(test_finds_a_wrong_result),
		cmocka_unit_test(test_refuses_what_is_not_there),
		cmocka_unit_test(test_takes_a_triple),
		cmocka_unit_test(test_says_what_the_paper_needs),
	};

	return cmocka_run_group_tests(tests, start, end);
}
