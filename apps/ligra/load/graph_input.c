/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/load/load.h"

#include "graph/build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Write the edges into a triple of this folder and load that. */
static int load_from(struct soda_graph_source *source, const char *folder,
		     const struct graph_input *input, unsigned parts, struct mem *mem,
		     struct graph *g_p, struct soda_graph_error *err)
{
	char *path = soda_graph_path(folder, "/graph");
	struct soda_graph_build how = { .path = path,
					.symmetric = input->symmetric,
					.weighted = input->weighted };
	struct soda_graph_info info;
	int ret = path ? 0 : soda_graph_fail(err, ENOMEM, "out of memory for a path");

	if (!ret)
		ret = soda_graph_build(source, &how, &info, err);
	if (!ret) {
		ret = graph_load(path, parts, mem, g_p, err);
		soda_graph_triple_remove(path);
	}
	free(path);
	return ret;
}

static int load_source(struct soda_graph_source *source, const struct graph_input *input,
		       unsigned parts, struct mem *mem, struct graph *g_p,
		       struct soda_graph_error *err)
{
	const char *tmp = getenv("TMPDIR");
	char folder[4096];
	int ret;

	snprintf(folder, sizeof(folder), "%s/soda-graph-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(folder))
		return soda_graph_fail(err, errno, "%s: cannot make a temporary folder: %s", folder,
				       strerror(errno));
	ret = load_from(source, folder, input, parts, mem, g_p, err);
	rmdir(folder);
	return ret;
}

/* Whether the path is a triple that SODA wrote: that is loaded without being made again. */
static bool is_complete(const char *path)
{
	struct soda_graph_error unused;
	struct soda_graph_info info;

	return !soda_graph_info_read(path, &info, &unused) && info.complete;
}

static int load_triple(const struct graph_input *input, unsigned parts, struct mem *mem,
		       struct graph *g_p, struct soda_graph_error *err)
{
	int ret = graph_load(input->path, parts, mem, g_p, err);

	if (ret)
		return ret;
	if (input->weighted && !g_p->weighted) {
		graph_destroy(g_p);
		return soda_graph_fail(err, EINVAL,
				       "%s: a graph without weights: expected one that was "
				       "converted with --weights",
				       input->path);
	}
	if (!input->symmetric || g_p->symmetric)
		return 0;
	graph_destroy(g_p);
	return soda_graph_fail(err, EINVAL,
			       "%s: a directed graph: expected one that was converted with "
			       "--symmetric",
			       input->path);
}

int graph_input_load(const struct graph_input *input, unsigned parts, struct mem *mem,
		     struct graph *g_p, struct soda_graph_error *err)
{
	struct soda_graph_source *source;
	int ret;

	if (input->path && (mem->kind == MEM_SERVED || is_complete(input->path)))
		return load_triple(input, parts, mem, g_p, err);
	ret = input->path ? soda_graph_source_open(input->path, &source, err)
			  : soda_graph_rmat_open(&input->rmat, &source, err);
	if (ret)
		return ret;
	ret = load_source(source, input, parts, mem, g_p, err);
	source->close(source);
	return ret;
}
