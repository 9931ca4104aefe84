/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph_input.h"

#include "csr_file.h"
#include "graph_build.h"

#include <errno.h>

static int load_csr_file(const struct graph_input *input, unsigned parts, struct mem *mem,
			 struct graph *g_p, struct error *err)
{
	struct graph g;
	int ret = csr_file_load(input->path, parts, mem, &g, err);

	if (ret)
		return ret;
	if (input->symmetric && !g.symmetric) {
		graph_destroy(&g);
		return error_set(err, EINVAL,
				 "%s: a directed graph: expected one that was "
				 "converted with --symmetric",
				 input->path);
	}
	*g_p = g;
	return 0;
}

static int build_from(struct edge_source *source, const struct graph_input *input, unsigned parts,
		      struct mem *mem, struct graph *g_p, struct error *err)
{
	int ret = graph_build(source, input->symmetric, mem, g_p, err);

	source->close(source);
	if (!ret)
		graph_keep(g_p, parts);
	return ret;
}

int graph_input_load(const struct graph_input *input, unsigned parts, struct mem *mem,
		     struct graph *g_p, struct error *err)
{
	struct edge_source *source;
	int ret;

	if (input->path) {
		ret = csr_file_probe(input->path, err);
		if (ret < 0)
			return ret;
		if (ret)
			return load_csr_file(input, parts, mem, g_p, err);
		ret = snap_open(input->path, &source, err);
	} else {
		ret = rmat_open(&input->rmat, &source, err);
	}
	return ret ? ret : build_from(source, input, parts, mem, g_p, err);
}
