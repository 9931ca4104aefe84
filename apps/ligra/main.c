/* SPDX-License-Identifier: BSD-3-Clause */
/* soda-ligra: graph applications in the manner of Ligra, on fabric memory. */
#include "ligra/options.h"
#include "ligra/run.h"
#include "ligra/verify/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_BAD_INPUT = 2 };

static int fail(int status, const struct soda_graph_error *err)
{
	fflush(stdout);
	fprintf(stderr, "soda-ligra: %s\n", err->text);
	return status;
}

/* The exit status after loading failed: the input is wrong, unless memory was missing. */
static int load_status(int ret)
{
	return ret == -ENOMEM || ret == -ENOSPC ? STATUS_FAILED : STATUS_BAD_INPUT;
}

static int load(const struct options *o, unsigned parts, struct mem *mem, struct graph *g_p,
		double *seconds_p, struct soda_graph_error *err)
{
	double begin = clock_seconds();
	int ret = graph_input_load(&o->input, parts, mem, g_p, err);

	if (ret)
		return ret;
	*seconds_p = clock_seconds() - begin;
	printf("graph: %" PRIu64 " vertices, %" PRIu64 " edges%s%s, in %.1f s\n", g_p->vertices,
	       g_p->edges, g_p->symmetric ? " (symmetric)" : "",
	       g_p->weighted ? " with weights" : "", *seconds_p);
	fflush(stdout);
	return 0;
}

static int verify(const struct options *o)
{
	int status = STATUS_OK;
	struct soda_graph_error err;
	struct graph g;
	struct mem mem;
	double seconds;
	int ret = mem_open(&mem, MEM_DRAM, 0, &err);

	if (!ret)
		ret = load(o, VERIFY_PARTS, &mem, &g, &seconds, &err);
	if (ret)
		return fail(load_status(ret), &err);
	for (int i = 0; i < o->file_count && status == STATUS_OK; i++) {
		struct result r;

		if (result_read(o->files[i], &g, &r, &err)) {
			status = fail(STATUS_BAD_INPUT, &err);
			break;
		}
		if (r.app->check(&g, &r.params, r.array, &err))
			status = fail(STATUS_FAILED, &err);
		free(r.array);
	}
	graph_destroy(&g);
	return status;
}

/* Find the source's vertex; the graph's labels are needed for nothing else, and freed. */
static int choose_source(struct graph *g, const struct options *o, struct result *r,
			 struct soda_graph_error *err)
{
	int ret = 0;

	if (r->app->source && o->has_source)
		ret = graph_find(g, o->source, &r->params.source, err);
	else if (r->app->source)
		r->params.source = graph_hub(g);
	graph_part_free(g, PART_LABELS);
	return ret;
}

/* After the runs: check that the arrays still are what was loaded, and that the result is right. */
static int finish(const struct options *o, struct report *report, struct soda_graph_error *err)
{
	int ret = o->trusted ? 0 : graph_check(report->g, err);

	if (!ret && o->verify) {
		ret = report->result->app->check(report->g, &report->result->params,
						 report->result->array, err);
		report->verified = !ret;
	}
	if (!ret && o->result)
		ret = result_write(o->result, report->g, report->result, err);
	if (!ret && o->json)
		ret = report_write(o->json, report, err);
	return ret ? fail(STATUS_FAILED, err) : STATUS_OK;
}

static int measure(const struct graph *g, struct mem *arrays, const struct options *o,
		   struct result *r, double load_seconds, struct soda_graph_error *err)
{
	struct report report = {
		.g = g, .arrays = arrays, .result = r, .load_seconds = load_seconds
	};
	int status;
	int ret;

	ret = warm_up(o->warm_bytes, err);
	if (!ret)
		ret = run_app(g, arrays, o->repeat, r, &report.measured, err);
	if (ret)
		return fail(STATUS_FAILED, err);
	status = finish(o, &report, err);
	mem_free(arrays, r->array, result_bytes(r->app, g->vertices));
	return status;
}

/* Keep vertex data out of a DPU agent's dynamic cache, which then is for edges alone. */
static void keep_for_edges(struct graph *g)
{
	static const enum graph_part parts[] = { PART_OUT_OFFSETS, PART_IN_OFFSETS };

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (graph_part(g, parts[i]))
			mem_advise(g->mem, graph_part(g, parts[i]), graph_part_bytes(g, parts[i]),
				   SODA_NO_CACHE);
}

/* The runtime is started once. */
static int open_memory(const struct options *o, struct mem *graph_p, struct mem *arrays_p,
		       struct soda_graph_error *err)
{
	unsigned threads = (unsigned)omp_get_max_threads();
	int ret = mem_open(graph_p, o->memory, threads, err);

	if (ret)
		return ret;
	if (o->arrays == MEM_FAM && !mem_is_fabric(graph_p))
		return mem_open(arrays_p, o->arrays, threads, err);
	*arrays_p = (struct mem){ .kind = o->arrays };
	return 0;
}

static int run_on(struct graph *g, struct mem *arrays, const struct options *o, double load_seconds)
{
	struct result r = { .app = o->app, .params = o->params };
	struct soda_graph_error err;
	int ret = 0;

	if (o->app->symmetric_only && !g->symmetric)
		ret = soda_graph_fail(&err, EINVAL, "%s: expected a symmetric graph (--symmetric)",
				      o->app->name);
	if (!ret)
		ret = choose_source(g, o, &r, &err);
	if (ret)
		return fail(STATUS_BAD_INPUT, &err);
	return measure(g, arrays, o, &r, load_seconds, &err);
}

static int run(const struct options *o)
{
	unsigned parts = o->app->parts;
	struct mem mem, arrays;
	double load_seconds;
	struct soda_graph_error err;
	struct graph g;
	int ret, status;

	if (o->has_source)
		parts |= PART_BIT(PART_LABELS);
	if (o->verify) /* weights are there already, for applications that read them */
		parts |= PARTS_OUT;
	/* To find one. */
	if (o->app->source && !o->has_source)
		parts |= PART_BIT(PART_OUT_OFFSETS);
	if (open_memory(o, &mem, &arrays, &err))
		return fail(STATUS_FAILED, &err);
	mem.trusted = o->trusted;
	ret = load(o, parts, &mem, &g, &load_seconds, &err);
	if (ret)
		return fail(load_status(ret), &err);
	if (o->cache_edges)
		keep_for_edges(&g);
	status = run_on(&g, &arrays, o, load_seconds);
	graph_destroy(&g);
	return status;
}

int main(int argc, char **argv)
{
	struct options o;

	options_parse(argc, argv, &o);
	if (o.threads)
		omp_set_num_threads((int)o.threads);
	return o.command == COMMAND_VERIFY ? verify(&o) : run(&o);
}
