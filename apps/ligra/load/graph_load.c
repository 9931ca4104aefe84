/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/load/load.h"

#include "graph/format/triple.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const suffixes[PARTS] = {
	[PART_OUT_OFFSETS] = ".idx",	 [PART_OUT_TARGETS] = ".adj",
	[PART_OUT_WEIGHTS] = ".weights", [PART_IN_OFFSETS] = ".in.idx",
	[PART_IN_TARGETS] = ".in.adj",	 [PART_IN_WEIGHTS] = ".in.weights",
	[PART_LABELS] = ".labels",
};

/* Read PATH.config from where the other files are. */
static int read_info(const char *path, struct mem *mem, struct soda_graph_info *info_p,
		     struct soda_graph_error *err)
{
	char *config;
	size_t bytes;
	void *text;
	int ret;

	if (mem->kind != MEM_SERVED)
		return soda_graph_info_read(path, info_p, err);
	config = soda_graph_path(path, ".config");
	if (!config)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	ret = mem_map(mem, config, 0, &text, &bytes, err);
	if (!ret) {
		ret = soda_graph_info_parse(config, text, bytes, info_p, err);
		mem_free(mem, text, bytes);
	}
	free(config);
	return ret;
}

static int read_complete(const char *path, struct mem *mem, struct soda_graph_info *info_p,
			 struct soda_graph_error *err)
{
	int ret = read_info(path, mem, info_p, err);

	if (!ret && !info_p->complete)
		ret = soda_graph_fail(err, EINVAL,
				      "%s.config: expected what `soda graph convert' writes", path);
	return ret;
}

static int read_in_info(const char *path, struct graph *g, struct soda_graph_error *err)
{
	char *in = soda_graph_path(path, ".in");
	struct soda_graph_info info;
	int ret = in ? read_complete(in, g->mem, &info, err)
		     : soda_graph_fail(err, ENOMEM, "%s: out of memory", path);

	if (!ret && (info.vertices != g->vertices || info.edges != g->edges ||
		     info.weighted != g->weighted))
		ret = soda_graph_fail(err, EINVAL, "%s.config: the in-edges of another graph", in);
	if (!ret) {
		g->sum[PART_IN_OFFSETS] = info.idx_sum;
		g->sum[PART_IN_TARGETS] = info.adj_sum;
		g->sum[PART_IN_WEIGHTS] = info.weights_sum;
	}
	free(in);
	return ret;
}

static int read_facts(const char *path, unsigned parts, struct graph *g,
		      struct soda_graph_error *err)
{
	struct soda_graph_info info;
	int ret = read_complete(path, g->mem, &info, err);

	if (ret)
		return ret;
	g->vertices = info.vertices;
	g->edges = info.edges;
	g->symmetric = info.symmetric;
	g->labelled = info.labelled;
	g->weighted = info.weighted;
	g->sum[PART_OUT_OFFSETS] = info.idx_sum;
	g->sum[PART_OUT_TARGETS] = info.adj_sum;
	g->sum[PART_OUT_WEIGHTS] = info.weights_sum;
	g->sum[PART_LABELS] = info.labels_sum;
	return !g->symmetric && (parts & PARTS_IN) ? read_in_info(path, g, err) : 0;
}

static int read_file(const char *name, void *object, size_t bytes, struct soda_graph_error *err)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int ret = 0;

	if (fd < 0)
		return soda_graph_fail(err, errno, "%s: cannot open: %s", name, strerror(errno));
	if (fstat(fd, &st) || (size_t)st.st_size != bytes)
		ret = soda_graph_fail(err, EINVAL, "%s: expected %zu bytes, found %lld", name,
				      bytes, (long long)st.st_size);
	if (!ret)
		ret = file_read_array(fd, name, object, bytes, 0, err);
	close(fd);
	return ret;
}

static int load_part(const char *path, enum graph_part part, struct graph *g,
		     struct soda_graph_error *err)
{
	size_t bytes = graph_part_bytes(g, part);
	char *name = soda_graph_path(path, suffixes[part]);
	void *object;
	int ret;

	if (!name)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	/* A file without bytes cannot be mapped, and has no elements to read. */
	if (mem_is_file(g->mem) && bytes) {
		ret = mem_map(g->mem, name, bytes, &object, &bytes, err);
		if (!ret)
			graph_part_set(g, part, object);
	} else if (bytes) {
		ret = mem_alloc(g->mem, bytes, graph_part_name(part), &object, err);
		if (!ret) {
			graph_part_set(g, part, object);
			ret = read_file(name, object, bytes, err);
		}
	} else {
		ret = 0;
	}
	free(name);
	return ret;
}

/* A part that is a file: `in` parts of a symmetric graph are its `out` parts. */
static bool is_file(const struct graph *g, enum graph_part part)
{
	if (part == PART_LABELS)
		return g->labelled;
	if (PART_BIT(part) & PARTS_WEIGHTS && !g->weighted)
		return false;
	return !graph_part_is_alias(g, part);
}

/* Edges are read in ascending order, in whole or in parts (subset.h). */
static void advise(const struct graph *g)
{
	static const enum graph_part parts[] = { PART_OUT_TARGETS, PART_IN_TARGETS,
						 PART_OUT_WEIGHTS, PART_IN_WEIGHTS };

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (graph_part(g, parts[i]))
			mem_advise(g->mem, graph_part(g, parts[i]), graph_part_bytes(g, parts[i]),
				   SODA_SEQUENTIAL);
}

int graph_load(const char *path, unsigned parts, struct mem *mem, struct graph *g_p,
	       struct soda_graph_error *err)
{
	struct graph g = { .mem = mem };
	int ret = read_facts(path, parts, &g, err);

	if (g.symmetric)
		parts |= (parts & (PARTS_IN | PART_BIT(PART_IN_WEIGHTS))) >> PART_IN_OFFSETS;
	for (int part = 0; part < PARTS && !ret; part++)
		if ((parts & PART_BIT(part)) && is_file(&g, part))
			ret = load_part(path, part, &g, err);
	if (!ret && !mem->trusted)
		ret = graph_check(&g, err);
	if (ret) {
		graph_destroy(&g);
		return ret;
	}
	advise(&g);
	*g_p = g;
	return 0;
}
