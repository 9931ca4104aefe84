/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/run.h"

#include "ligra/clock.h"
#include "ligra/pss.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int run_once(const struct graph *g, struct mem *arrays, struct result *r,
		    struct measured *m_p, struct soda_graph_error *err)
{
	struct ligra l = { .g = g, .mem = arrays, .err = err };
	struct soda_stats before = mem_stats(mem_is_fabric(arrays) ? arrays : g->mem), after;
	double begin = clock_seconds(), cpu_begin = clock_cpu_seconds();
	unsigned rounds = r->app->run(&l, &r->params, r->array);
	int ret = ligra_end(&l);

	if (ret)
		return ret;
	m_p->seconds = clock_seconds() - begin;
	m_p->cpu_seconds = clock_cpu_seconds() - cpu_begin;
	after = mem_stats(mem_is_fabric(arrays) ? arrays : g->mem);
	m_p->faults = after.faults - before.faults;
	m_p->bytes_fetched = after.bytes_fetched - before.bytes_fetched;
	m_p->bytes_written_back = after.bytes_written_back - before.bytes_written_back;
	m_p->prefetched = after.prefetched - before.prefetched;
	m_p->prefetch_useless = after.prefetch_useless - before.prefetch_useless;
	m_p->pss_bytes = pss_bytes();
	m_p->rounds = rounds;
	return 0;
}

static int by_seconds(const void *a, const void *b)
{
	double x = ((const struct measured *)a)->seconds;
	double y = ((const struct measured *)b)->seconds;

	return (x > y) - (x < y);
}

/* Sorts; the one in the middle, with the largest memory of all. */
static struct measured median(struct measured *all, unsigned count)
{
	struct measured m;

	qsort(all, count, sizeof(*all), by_seconds);
	m = all[count / 2];
	for (unsigned i = 0; i < count; i++)
		if (all[i].pss_bytes > m.pss_bytes)
			m.pss_bytes = all[i].pss_bytes;
	return m;
}

int run_app(const struct graph *g, struct mem *arrays, unsigned repeat, struct result *r_p,
	    struct measured *median_p, struct soda_graph_error *err)
{
	struct measured *all = calloc(repeat, sizeof(*all));
	struct result r = { .app = r_p->app, .params = r_p->params };
	unsigned rounds = 0;
	int ret;

	if (!all)
		return soda_graph_fail(err, ENOMEM, "out of memory for the measurements");
	ret = mem_alloc(arrays, result_bytes(r.app, g->vertices), "result", &r.array, err);
	for (unsigned i = 0; i < repeat && !ret; i++) {
		ret = run_once(g, arrays, &r, &all[i], err);
		if (!ret)
			printf("%s: run %u of %u: %.3f s, %u rounds\n", r.app->name, i + 1, repeat,
			       all[i].seconds, all[i].rounds);
		rounds = all[i].rounds;
		fflush(stdout);
	}
	if (!ret) {
		*median_p = median(all, repeat);
		r.params.iterations = rounds;
		*r_p = r;
	} else {
		mem_free(arrays, r.array, result_bytes(r.app, g->vertices));
	}
	free(all);
	return ret;
}
