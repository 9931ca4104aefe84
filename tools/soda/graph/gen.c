/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda graph gen`: a random graph straight into a binary triple. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/lock.h"
#include "soda/graph/tool.h"

enum kind { KIND_RMAT, KIND_UNIFORM };

struct options {
	uint32_t kind, scale, edge_factor;
	uint64_t vertices, edges, seed, memory;
	char *abc;
	bool symmetric, json;
};

static const char *const kinds[] = { "rmat", "uniform", NULL };

static const struct soda_option option_table[] = {
	OPTION("kind", 0, CHOICE, kind, .arg = "KIND", .def = "rmat", .choices = kinds,
	       .help = "rmat: a recursive matrix, as Kronecker graphs are drawn; uniform: both "
		       "ends of an edge drawn evenly."),
	OPTION("scale", 's', UINT, scale, .arg = "N", .min = 1, .max = 31, .help = "2^N vertices."),
	OPTION("vertices", 0, SIZE, vertices, .arg = "N", .min = 1,
	       .help = "So many vertices instead (uniform only)."),
	OPTION("edges", 'm', SIZE, edges, .arg = "N", .min = 1,
	       .help = "Edges drawn; K, M and G are powers of 1024. Default: --edge-factor for "
		       "each vertex."),
	OPTION("edge-factor", 0, UINT, edge_factor, .arg = "N", .def = "16", .min = 1,
	       .max = UINT32_MAX, .help = "Edges drawn for each vertex."),
	OPTION("abc", 0, STRING, abc, .arg = "A,B,C", .def = "0.5,0.1,0.1",
	       .help = "The probabilities of R-MAT's quadrants; the fourth has the rest."),
	OPTION("seed", 0, SIZE, seed, .arg = "N", .def = "1",
	       .help = "Same options, same graph, whatever the number of threads."),
	OPTION("symmetric", 0, BOOL, symmetric,
	       .help = "Each edge in both directions, once, and no self-loops; without it the "
		       "edges stay as they are drawn."),
	OPTION("memory", 0, SIZE, memory, .arg = "SIZE", .def = "512M", .min = 1 << 20,
	       .help = "For sorting; what does not fit lies beside PATH meanwhile, 8 bytes for "
		       "each edge."),
	OPTION("json", 'j', BOOL, json, .help = "Print what was written as one JSON object."),
};

static const struct soda_conf conf = {
	.program = "soda graph gen",
	.summary = "generate a random graph",
	.args = "PATH",
	.description = "Writes the graph as Ligra's binary triple: PATH.config, PATH.idx and "
		       "PATH.adj; of a directed graph also its in-edges, PATH.in.config and so on.",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int open_source(const struct options *o, struct soda_graph_source **source_p,
		       struct soda_graph_error *err)
{
	struct soda_graph_random params = {
		.scale = o->scale, .vertices = o->vertices, .edges = o->edges, .seed = o->seed
	};
	uint64_t vertices = o->scale ? (uint64_t)1 << o->scale : o->vertices;
	char end;

	if (sscanf(o->abc, "%lf,%lf,%lf%c", &params.a, &params.b, &params.c, &end) != 3)
		return soda_graph_fail(err, EINVAL, "--abc %s: expected three numbers A,B,C",
				       o->abc);
	if (!o->scale == !o->vertices)
		return soda_graph_fail(err, EINVAL,
				       "expected --scale, or --vertices of a uniform graph");
	if (!params.edges && __builtin_mul_overflow(vertices, o->edge_factor, &params.edges))
		return soda_graph_fail(err, EINVAL, "--edge-factor %u: too many edges",
				       o->edge_factor);
	if (params.edges > INT64_MAX / 64)
		return soda_graph_fail(err, EINVAL, "--edges: too many");
	return o->kind == KIND_RMAT ? soda_graph_rmat_open(&params, source_p, err)
				    : soda_graph_uniform_open(&params, source_p, err);
}

static int generate(const struct options *o, const char *path)
{
	struct soda_graph_build how = { .path = path,
					.symmetric = o->symmetric,
					.memory = o->memory,
					.progress = soda_graph_tool_progress };
	uint64_t begin = soda_now_ns();
	struct soda_graph_source *source;
	struct soda_graph_error err;
	struct soda_graph_info info;
	int ret = open_source(o, &source, &err);

	if (ret)
		return soda_graph_tool_fail(conf.program, ret, &err);
	ret = soda_graph_build(source, &how, &info, &err);
	source->close(source);
	if (ret)
		return soda_graph_tool_fail(conf.program, ret, &err);
	return soda_graph_tool_report(path, &info, begin, o->json);
}

int soda_command_graph_gen(int argc, char **argv)
{
	struct options o = { 0 };
	const char *path;
	int n = soda_tool_options(&conf, argc, argv, &o, &path, 1);
	int status = SODA_EXIT_USAGE;

	if (n == 0)
		fprintf(stderr, "%s: where to? a path without an ending; see --help\n",
			conf.program);
	if (n == 1)
		status = generate(&o, path);
	soda_conf_free(&conf, &o);
	return status;
}
