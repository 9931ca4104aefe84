/* SPDX-License-Identifier: BSD-3-Clause */
/* Published graphs, each with its own traps; they are found in $SODA_TEST_GRAPHS. */
#include "unit/fakes/graph_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct published {
	const char *file;
	uint64_t vertices, edges;
};

/* p: NULL where nothing is published. */
static void load_and_run(const struct graph_input *input, const struct published *p)
{
	struct soda_graph_error err;
	struct graph g;
	struct mem mem;

	assert_int_equal(mem_open(&mem, MEM_DRAM, 0, &err), 0);
	if (graph_input_load(input, PARTS_ALL, &mem, &g, &err))
		fail_msg("%s", err.text);
	if (p) {
		assert_int_equal(g.vertices, p->vertices);
		assert_int_equal(g.edges, p->edges);
	}
	for (size_t i = 0; apps[i]; i++) {
		struct app_params params = APP_PARAMS_DEFAULTS;

		params.source = graph_hub(&g);
		if (g.symmetric || !apps[i]->symmetric_only)
			fixture_run_and_check(apps[i], &g, params);
	}
	graph_destroy(&g);
}

static void is_as_published(void **state)
{
	const struct published *p = *state;
	const char *dir = getenv("SODA_TEST_GRAPHS");
	struct graph_input input = { 0 };
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir ? dir : "", p->file);
	if (!dir || access(path, R_OK)) {
		printf("SKIP: %s: %s\n", p->file,
		       dir ? "no such file" : "SODA_TEST_GRAPHS is not set");
		skip();
	}
	input.path = path;
	load_and_run(&input, p);
	input.symmetric = true;
	load_and_run(&input, NULL);
}

#define PUBLISHED(name, v, e)                                                                      \
	{                                                                                          \
		name, is_as_published, NULL, NULL, &((struct published){ name ".gz", v, e })       \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PUBLISHED("cnr-2000.el", 325557, 3216152),
		PUBLISHED("ego-twitter-undirected.el", 81306, 1342310),
		PUBLISHED("soc-Slashdot0902.txt", 82168, 948464),
		PUBLISHED("soc-Epinions1.txt", 75879, 508837),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
