/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include "bfs.h"
#include "clock.h"
#include "pss.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

unsigned run_parts(enum app app)
{
	return app == APP_BFS ? BFS_PARTS : PAGERANK_PARTS;
}

static int run_once(const struct graph *g, const struct options *o, struct result *r,
		    struct measured *m_p, struct error *err)
{
	struct soda_stats before = mem_stats(g->mem), after;
	double begin = clock_seconds();
	int ret;

	if (r->app == APP_BFS)
		ret = bfs_run(g, r->source, r->array, err);
	else
		ret = pagerank_run(g, &o->pagerank, r->array, err);
	if (ret < 0)
		return ret;
	m_p->seconds = clock_seconds() - begin;
	after = mem_stats(g->mem);
	m_p->faults = after.faults - before.faults;
	m_p->bytes_fetched = after.bytes_fetched - before.bytes_fetched;
	m_p->bytes_written_back = after.bytes_written_back - before.bytes_written_back;
	m_p->pss_bytes = pss_bytes();
	r->iterations = (uint32_t)ret;
	return 0;
}

static int by_seconds(const void *a, const void *b)
{
	double x = ((const struct measured *)a)->seconds;
	double y = ((const struct measured *)b)->seconds;

	return (x > y) - (x < y);
}

int run_app(const struct graph *g, const struct options *o, struct result *r_p,
	    struct measured *median_p, struct error *err)
{
	struct measured *all = calloc(o->repeat, sizeof(*all));
	struct result r = *r_p;
	int ret;

	if (!all)
		return error_set(err, ENOMEM, "out of memory for the measurements");
	ret = mem_alloc(g->mem, result_bytes(r.app, g->vertices), "result", &r.array, err);
	for (unsigned i = 0; i < o->repeat && !ret; i++) {
		ret = run_once(g, o, &r, &all[i], err);
		if (!ret)
			printf("%s: run %u of %u: %.3f s\n", app_name(r.app), i + 1, o->repeat,
			       all[i].seconds);
		fflush(stdout);
	}
	if (!ret) {
		qsort(all, o->repeat, sizeof(*all), by_seconds);
		*median_p = all[o->repeat / 2];
		for (unsigned i = 0; i < o->repeat; i++)
			if (all[i].pss_bytes > median_p->pss_bytes)
				median_p->pss_bytes = all[i].pss_bytes;
		*r_p = r;
	}
	free(all);
	return ret;
}
