/* SPDX-License-Identifier: BSD-3-Clause */
/* Which format a file has; and the sentence of an error. */
#include "graph/format/source.h"

#include "graph/format/triple.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

int soda_graph_fail(struct soda_graph_error *err, int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return -code;
}

int soda_graph_source_weigh(struct soda_graph_source *source, double *weights,
			    struct soda_graph_error *err)
{
	if (!source->weighable)
		return soda_graph_fail(
			err, EINVAL,
			"expected a graph with weights: an edge list with three numbers a line, a "
			"Matrix Market file of real or integer values, a WeightedAdjacencyGraph, "
			"or what was converted with weights; found %s without",
			source->format);
	source->weights = weights;
	return 0;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && !strcmp(text + n - k, end);
}

static bool is_triple(const char *path)
{
	char *config = soda_graph_path(path, ".config");
	bool there = config && !access(config, F_OK);

	free(config);
	return there;
}

/* The file's first bytes, uncompressed.  How many, or -errno. */
static int peek(const char *path, char *begin, unsigned size, struct soda_graph_error *err)
{
	gzFile file;
	int got;

	errno = 0;
	file = gzopen(path, "r");
	if (!file)
		return soda_graph_fail(err, errno ? errno : ENOMEM, "%s: cannot open: %s", path,
				       errno ? strerror(errno) : "out of memory");
	got = gzread(file, begin, size - 1);
	gzclose(file);
	/* What cannot be read is an edge list, whose reader says why not. */
	begin[got < 0 ? 0 : got] = 0;
	return 0;
}

int soda_graph_source_open(const char *path, struct soda_graph_source **source_p,
			   struct soda_graph_error *err)
{
	static const char banner[] = "%%MatrixMarket", adjacency[] = "AdjacencyGraph",
			  weighted[] = "WeightedAdjacencyGraph";
	char begin[32];
	int ret;

	if (is_triple(path))
		return soda_graph_triple_open(path, source_p, err);
	ret = peek(path, begin, sizeof(begin), err);
	if (ret)
		return ret;
	if (ends_with(path, ".sg"))
		return soda_graph_gap_open(path, source_p, err);
	if (!strncasecmp(begin, banner, sizeof(banner) - 1) || ends_with(path, ".mtx") ||
	    ends_with(path, ".mtx.gz"))
		return soda_graph_mtx_open(path, source_p, err);
	if (!strncmp(begin, adjacency, sizeof(adjacency) - 1) ||
	    !strncmp(begin, weighted, sizeof(weighted) - 1))
		return soda_graph_adjacency_open(path, source_p, err);
	return soda_graph_snap_open(path, source_p, err);
}
