/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The programs of examples/messages, at several numbers of ranks, by shm and by tcp: each compares
 * what its ranks computed together with what one process computes.  Here their lines are looked at,
 * and numbers that are known otherwise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/proc.h"

enum { ARGS = 6 };

static struct program run;
static char dir[] = "/tmp/soda-messages-XXXXXX", graph[64];

/*
 * soda msg run -n RANKS [OPTION VALUE] -- PROGRAM ARGUMENT...; it must be as of one process. which:
 * option and value, or NULL.
 */
static void run_well(const char *ranks, const char *const *which, const char *const *program)
{
	const char *args[8 + ARGS] = { "msg", "run", "-n", ranks };
	char path[4096], begin[64];
	unsigned n = 4;

	for (unsigned i = 0; which && i < 2; i++)
		args[n++] = which[i];
	snprintf(path, sizeof(path), "%s/%s", build_path("examples/messages"), program[0]);
	args[n++] = "--";
	args[n++] = path;
	for (unsigned i = 1; program[i]; i++)
		args[n++] = program[i];
	assert_int_equal(program_run("tools/soda/soda", args, &run), 0);
	snprintf(begin, sizeof(begin), "%s: %s ranks, ", program[0], ranks);
	if (run.status != 0 || *run.err || strncmp(run.out, begin, strlen(begin)) != 0 ||
	    !strstr(run.out, ": as computed by one process\n"))
		fail_msg("%s with %s ranks, %s: status %d: %s%s", program[0], ranks,
			 which ? which[1] : "", run.status, run.out, run.err);
}

/* The number before this word in what was printed. */
static long long number_of(const char *word)
{
	const char *at = strstr(run.out, word);

	if (!at || at - run.out < 2)
		fail_msg("no %s in: %s", word, run.out);
	for (at--; at > run.out && at[-1] >= '0' && at[-1] <= '9';)
		at--;
	return atoll(at);
}

/* All five, at the agents that an option names. */
static void run_all(const char *ranks, const char *option, const char *value)
{
	static const char *const all[][ARGS] = {
		{ "histogram", "20000" },	    { "transpose", "-s", "10" },
		{ "triangles", "-s", "10" },	    { "sssp", "-s", "10", "-e", "4" },
		{ "particles", "-c", "9", "5000" },
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		run_well(ranks, (const char *const[]){ option, value }, all[i]);
}

static const char *const rank_counts[] = { "1", "2", "3", "4", "8" };

/* 1 to 4 agents, which ranks reach by shm, and each other by tcp. */
static void all_are_right_by_shm(void **state)
{
	static const char *const nodes[] = { "1", "2", "3", "4" };

	for (unsigned i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++)
		for (unsigned k = 0; k < 4 && k < (unsigned)atoi(rank_counts[i]); k++)
			run_all(rank_counts[i], "--nodes", nodes[k]);
}

static void all_are_right_by_tcp(void **state)
{
	const char *const args[] = { "--listen",
				     "tcp://127.0.0.1:0",
				     "--server",
				     "tcp://127.0.0.1:1",
				     "--msg-memory",
				     "8M",
				     NULL };
	struct server agents[2];
	char both[2 * sizeof(agents[0].address)];

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(agent_start(&agents[i], args), 0);
	snprintf(both, sizeof(both), "%s,%s", agents[0].address, agents[1].address);
	for (unsigned i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++) {
		run_all(rank_counts[i], "--agent", agents[0].address);
		if (i) /* more than one rank */
			run_all(rank_counts[i], "--agents", both);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(server_stop(&agents[i]), 0);
		assert_int_equal(server_complaints(&agents[i]), 0);
		server_forget(&agents[i]);
	}
}

/* Without an agent: each rank's process routes, and these reach each other by shm and by tcp. */
static void all_are_right_in_their_processes(void **state)
{
	for (unsigned i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++) {
		run_all(rank_counts[i], "--routing=process", "--links=shm");
		run_all(rank_counts[i], "--routing=process", "--links=tcp");
	}
}

/* The complete graph of 30 vertices, behind 100 ids that nobody has, edges in one direction. */
static void known_graph(void **state)
{
	static const char *const ranks[] = { "1", "4" };
	FILE *f = fopen(graph, "w");

	assert_non_null(f);
	for (unsigned i = 0; i < 30; i++)
		for (unsigned k = 0; k < i; k++)
			fprintf(f, "%u %u\n", 100 + i, 100 + k);
	assert_int_equal(fclose(f), 0);
	for (unsigned i = 0; i < 2; i++) {
		run_well(ranks[i], NULL, (const char *const[ARGS]){ "triangles", graph });
		assert_int_equal(number_of(" triangles:"), 30 * 29 * 28 / 6);
		run_well(ranks[i], NULL, (const char *const[ARGS]){ "transpose", graph });
		assert_int_equal(number_of(" entries:"), 30 * 29 / 2);
		assert_int_equal(number_of(" messages"), 30 * 29 / 2);
		/* the first vertex with an edge, and the one below it */
		run_well(ranks[i], NULL, (const char *const[ARGS]){ "sssp", graph });
		assert_int_equal(number_of(" reached from 101:"), 2);
	}
}

/* As its publisher says of it: https://snap.stanford.edu/data/soc-Epinions1.html */
static void published_graph(void **state)
{
	const char *graphs = getenv("SODA_TEST_GRAPHS"), *name = "soc-Epinions1.txt.gz";
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", graphs ? graphs : "", name);
	if (!graphs || access(path, R_OK)) {
		printf("SKIP: %s: %s\n", name,
		       graphs ? "no such file" : "SODA_TEST_GRAPHS is not set");
		skip();
	}
	run_well("4", NULL, (const char *const[ARGS]){ "triangles", path });
	assert_int_equal(number_of(" triangles:"), 1624481);
	run_well("4", NULL, (const char *const[ARGS]){ "transpose", path });
	assert_int_equal(number_of(" entries:"), 508837);
	run_well("4", NULL, (const char *const[ARGS]){ "sssp", path });
	assert_true(number_of(" reached from 0:") > 1);
}

static void refused(void **state)
{
	const struct {
		const char *args[ARGS], *says;
		int status;
	} cases[] = {
		{ { "sssp", "/no/such/graph" }, "/no/such/graph", 1 },
		{ { "transpose", "-s", "32" }, "Usage: ", 2 },
		{ { "triangles", "a", "b" }, "Usage: ", 2 },
		{ { "particles", "-c", "0" }, "Usage: ", 2 },
		{ { "particles", "many" }, "Usage: ", 2 },
		{ { "histogram", "many" }, "Usage: ", 2 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *const *args = cases[i].args;
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", build_path("examples/messages"), args[0]);
		assert_int_equal(program_run("tools/soda/soda",
					     (const char *const[]){ "msg", "run", "-n", "1", "--",
								    path, args[1], args[2], NULL },
					     &run),
				 0);
		if (run.status != cases[i].status || !strstr(run.err, cases[i].says))
			fail_msg("%s %s: status %d: %s%s", args[0], args[1], run.status, run.out,
				 run.err);
	}
}

static int make_dir(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(graph, sizeof(graph), "%s/graph.txt", dir);
	return 0;
}

static int remove_dir(void **state)
{
	unlink(graph);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_right_by_shm),
		cmocka_unit_test(all_are_right_by_tcp),
		cmocka_unit_test(all_are_right_in_their_processes),
		cmocka_unit_test(known_graph),
		cmocka_unit_test(published_graph),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
