/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* CPU time of all threads of this process, user and system. */
static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Anonymous plus shared memory of this process now (smaps Pss); 0 where the kernel does not say. */
static uint64_t pss_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	uint64_t sum = 0, kib;
	char line[256];

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss_Anon: %" SCNu64, &kib) == 1 ||
		    sscanf(line, "Pss_Shmem: %" SCNu64, &kib) == 1)
			sum += kib << 10;
	fclose(f);
	return sum;
}

static int run_once(const struct graph *g, struct mem *arrays, struct result *r,
		    struct measured *m_p, struct soda_graph_error *err)
{
	struct ligra l = { .g = g, .mem = arrays, .err = err };
	struct soda_stats before = mem_stats(mem_is_fabric(arrays) ? arrays : g->mem), after;
	double begin = clock_seconds(), cpu_begin = cpu_seconds();
	unsigned rounds = r->app->run(&l, &r->params, r->array);
	int ret = ligra_end(&l);

	if (ret)
		return ret;
	m_p->seconds = clock_seconds() - begin;
	m_p->cpu_seconds = cpu_seconds() - cpu_begin;
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

/* Sorts; returns the run of median time, with the largest memory of all runs. */
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

enum { PAGE = 4096 };

int warm_up(uint64_t bytes, struct soda_graph_error *err)
{
	volatile char *p;

	if (!bytes)
		return 0;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return soda_graph_fail(err, ENOMEM,
				       "--warm %llu: there is not so much memory; name less",
				       (unsigned long long)bytes);
	/* Small pages, as those of the page buffer and the page cache are. */
	madvise((void *)(uintptr_t)p, bytes, MADV_NOHUGEPAGE);
	for (uint64_t i = 0; i < bytes; i += PAGE)
		p[i] = 1;
	munmap((void *)(uintptr_t)p, bytes);
	return 0;
}
