/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda eval`: whether a result is right.  On a large graph the serial check takes as long as many
 * runs do, and most applications give the same bytes each time: the last one found right of each
 * graph and application is kept, WORK/GRAPH.APP.right, and what is equal to it needs no second
 * check.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "soda/eval/app.h"
#include "soda/eval/eval.h"

enum { PIECE = 65536 };

static bool name_kept(const struct soda_eval_graph *graph, uint32_t app, char path[PATH_MAX])
{
	return snprintf(path, PATH_MAX, "%s.%s.right", graph->path, soda_eval_app_names[app]) <
	       PATH_MAX;
}

static bool same_bytes(FILE *a, FILE *b)
{
	static char piece_a[PIECE], piece_b[PIECE];
	size_t n;

	do {
		n = fread(piece_a, 1, PIECE, a);
		if (fread(piece_b, 1, PIECE, b) != n || memcmp(piece_a, piece_b, n) != 0)
			return false;
	} while (n > 0);
	return !ferror(a) && !ferror(b);
}

static bool same_files(const char *path_a, const char *path_b)
{
	FILE *a = fopen(path_a, "rb"), *b = fopen(path_b, "rb");
	bool same = a && b && same_bytes(a, b);

	if (a)
		fclose(a);
	if (b)
		fclose(b);
	return same;
}

int soda_eval_verify(const struct soda_eval_plan *plan, const struct soda_eval_run *run,
		     const char *result, const char *log)
{
	const struct soda_eval_graph *graph = &plan->graphs[run->graph];
	char kept[PATH_MAX];
	bool named = name_kept(graph, run->app, kept);
	int err;

	if (named && same_files(result, kept))
		return 0;
	err = soda_eval_app_verify(graph->path, result, log, plan->timeout_ms);
	if (!err && named && !rename(result, kept))
		soda_eval_drop_cached(kept); /* written now, not during the next run */
	return err;
}

void soda_eval_verify_forget(const struct soda_eval_plan *plan)
{
	char kept[PATH_MAX];

	for (uint32_t i = 0; i < plan->graphs_n; i++)
		for (uint32_t app = 0; soda_eval_app_names[app]; app++)
			if (name_kept(&plan->graphs[i], app, kept))
				unlink(kept);
}
