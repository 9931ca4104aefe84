/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: makes the graphs, once, by running this program's `soda graph`. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/format/triple.h"
#include "soda/eval/app.h"
#include "soda/eval/eval.h"

enum { GRAPH_TIMEOUT_MS = 6 * 3600 * 1000 };

/* rmat:SCALE:EDGES or uniform:SCALE:EDGES, in parts; false: a file. */
static bool is_generated(const char *spec, char kind[16], char scale[16], char edges[32])
{
	char more;

	return sscanf(spec, "%15[a-z]:%15[0-9]:%31[0-9]%c", kind, scale, edges, &more) == 3 &&
	       (strcmp(kind, "rmat") == 0 || strcmp(kind, "uniform") == 0);
}

/* A file, or PATH of PATH.config and the others of a triple. */
static bool is_readable(const char *spec)
{
	char config[PATH_MAX];

	return !access(spec, R_OK) ||
	       (snprintf(config, sizeof(config), "%s.config", spec) < (int)sizeof(config) &&
		!access(config, R_OK));
}

int soda_eval_graph_name(struct soda_eval_graph *graph, const char *spec, const char *work)
{
	char kind[16], scale[16], edges[32];
	const char *slash = strrchr(spec, '/'), *base = slash ? slash + 1 : spec;
	bool generated = is_generated(spec, kind, scale, edges);
	int n;

	graph->spec = spec;
	graph->generated = generated;
	if (generated)
		n = snprintf(graph->name, sizeof(graph->name), "%s-%s-%s", kind, scale, edges);
	else
		n = snprintf(graph->name, sizeof(graph->name), "%s", base);
	if (n <= 0 || n >= (int)sizeof(graph->name)) {
		fprintf(stderr, "soda eval: --graph %s: a name of 1 to %zu letters was expected\n",
			spec, sizeof(graph->name) - 1);
		return -EINVAL;
	}
	if (!generated && !is_readable(spec)) {
		fprintf(stderr,
			"soda eval: --graph %s: neither rmat:SCALE:EDGES nor uniform:SCALE:EDGES, "
			"and as a file it cannot be read: %s\n",
			spec, strerror(errno));
		return -EINVAL;
	}
	/* The name becomes part of file names, and a column of tables. */
	for (char *c = graph->name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.')
			*c = '-';
	if (snprintf(graph->path, sizeof(graph->path), "%s/%s", work, graph->name) >=
	    (int)sizeof(graph->path))
		return -EINVAL;
	return 0;
}

static uint64_t size_of(const char *path, const char *suffix)
{
	char name[PATH_MAX + 16];
	struct stat st;

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	return stat(name, &st) ? 0 : (uint64_t)st.st_size;
}

/* Measure the graph's files; false: they are not there, or not complete. */
static bool measure(struct soda_eval_graph *graph)
{
	struct soda_graph_error err;
	struct soda_graph_info info;

	if (soda_graph_info_read(graph->path, &info, &err) || !info.complete)
		return false;
	graph->vertices = info.vertices;
	graph->edges = info.edges;
	graph->symmetric = info.symmetric;
	graph->vertex_bytes = size_of(graph->path, ".idx") + size_of(graph->path, ".in.idx");
	graph->edge_bytes = size_of(graph->path, ".adj") + size_of(graph->path, ".in.adj");
	return graph->vertex_bytes && graph->edge_bytes;
}

int soda_eval_graph_prepare(const struct soda_eval_plan *plan, struct soda_eval_graph *graph)
{
	char kind[16], scale[16], edges[32];
	const char *gen[] = { "/proc/self/exe", "graph", "gen",	      "--symmetric",
			      "--kind",		kind,	 "--scale",   scale,
			      "--edges",	edges,	 graph->path, NULL };
	const char *convert[] = { "/proc/self/exe", "graph",	 "convert", "--symmetric",
				  graph->spec,	    graph->path, NULL };
	int status;

	if (measure(graph))
		return 0;
	fprintf(stderr, "soda eval: graph %s\n", graph->name);
	status = soda_eval_exec(is_generated(graph->spec, kind, scale, edges) ? gen : convert, NULL,
				GRAPH_TIMEOUT_MS);
	if (!status && measure(graph))
		return 0;
	fprintf(stderr, "soda eval: graph %s: 'soda graph' failed (status %d), see above\n",
		graph->spec, status);
	return -EIO;
}
