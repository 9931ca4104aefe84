/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/export.h"

#include "graph/format/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 16384

struct export
{
	struct soda_graph_info info;
	const char *path;
	struct soda_graph_writer out;
	uint32_t *labels; /* NULL: a vertex is its own */
	struct soda_graph_edge *batch;
	double *weights; /* of the batch; NULL: the graph has none */
};

/* weight: NULL: the graph has none. */
typedef int (*edge_fn)(struct export *x, struct soda_graph_edge e, const double *weight,
		       struct soda_graph_error *err);

static int __attribute__((format(printf, 3, 4)))
print(struct export *x, struct soda_graph_error *err, const char *fmt, ...)
{
	char text[256];
	va_list args;
	int length;

	va_start(args, fmt);
	length = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return soda_graph_writer_put(&x->out, text, (size_t)length, err);
}

/* Write a weight and the end of the line. */
static int put_weight(struct export *x, double weight, struct soda_graph_error *err)
{
	return print(x, err, "%.17g\n", weight);
}

/*
 * Write two numbers and `end`; without printf, because an export without weights does little else.
 */
static int put_numbers(struct export *x, uint64_t a, char between, uint64_t b, char end,
		       struct soda_graph_error *err)
{
	char text[48], *at = text + sizeof(text);
	size_t length;

	*--at = end;
	do
		*--at = (char)('0' + b % 10);
	while (b /= 10);
	*--at = between;
	do
		*--at = (char)('0' + a % 10);
	while (a /= 10);
	length = (size_t)(text + sizeof(text) - at);
	return soda_graph_writer_put(&x->out, at, length, err);
}

/* Write a line of two numbers and, if there is one, a weight. */
static int put_line(struct export *x, uint64_t a, char between, uint64_t b, const double *weight,
		    struct soda_graph_error *err)
{
	int ret = put_numbers(x, a, between, b, weight ? between : '\n', err);

	return ret || !weight ? ret : put_weight(x, *weight, err);
}

/* All edges of a triple, in their order. */
static int each_edge(struct export *x, const char *path, edge_fn fn, struct soda_graph_error *err)
{
	struct soda_graph_source *source;
	int ret = soda_graph_triple_open(path, &source, err);
	long count = 0;

	if (ret)
		return ret;
	if (x->weights)
		ret = soda_graph_source_weigh(source, x->weights, err);
	if (!ret)
		ret = source->rewind(source, err);
	while (!ret && (count = source->next(source, x->batch, BATCH, err)) > 0)
		for (long i = 0; i < count && !ret; i++)
			ret = fn(x, x->batch[i], x->weights ? &x->weights[i] : NULL, err);
	source->close(source);
	return ret ? ret : (int)count;
}

/* The offsets of PATH.idx, checked when its edges are read. */
static int each_offset(struct export *x, const char *path,
		       int (*fn)(struct export *x, uint64_t offset, struct soda_graph_error *err),
		       struct soda_graph_error *err)
{
	struct soda_graph_reader r;
	char *idx = soda_graph_path(path, ".idx");
	uint64_t offset;
	int fd = idx ? open(idx, O_RDONLY | O_CLOEXEC) : -1, ret;

	if (fd < 0) {
		ret = soda_graph_fail(err, idx ? errno : ENOMEM, "%s.idx: cannot open: %s", path,
				      strerror(idx ? errno : ENOMEM));
		free(idx);
		return ret;
	}
	ret = soda_graph_reader_open(&r, fd, idx, 0, x->info.vertices * sizeof(offset), 1 << 18,
				     err);
	if (!ret) {
		while (!ret && !soda_graph_reader_at_end(&r)) {
			ret = soda_graph_reader_u64(&r, &offset, err);
			if (!ret)
				ret = fn(x, offset, err);
		}
		soda_graph_reader_close(&r);
	}
	close(fd);
	free(idx);
	return ret;
}

static uint32_t label(const struct export *x, uint32_t v)
{
	return x->labels ? x->labels[v] : v;
}

static int put_labelled(struct export *x, struct soda_graph_edge e, const double *weight,
			struct soda_graph_error *err)
{
	return put_line(x, label(x, e.from), '\t', label(x, e.to), weight, err);
}

static int read_labels(struct export *x, struct soda_graph_error *err)
{
	size_t bytes = x->info.vertices * sizeof(*x->labels), done = 0;
	char *name = soda_graph_path(x->path, ".labels");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t got = 1;

	x->labels = malloc(bytes);
	while (fd >= 0 && x->labels && done < bytes && got > 0) {
		got = pread(fd, (char *)x->labels + done, bytes - done, (off_t)done);
		done += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	free(name);
	if (done == bytes)
		return 0;
	return soda_graph_fail(err, EINVAL, "%s.labels: expected %zu bytes, found %zu", x->path,
			       bytes, done);
}

static int write_snap(struct export *x, struct soda_graph_error *err)
{
	int ret = x->info.labelled ? read_labels(x, err) : 0;

	if (!ret)
		ret = print(x, err, "# %s graph\n# Nodes: %" PRIu64 " Edges: %" PRIu64 "\n",
			    x->info.symmetric ? "Undirected" : "Directed", x->info.vertices,
			    x->info.edges);
	return ret ? ret : each_edge(x, x->path, put_labelled, err);
}

static int put_entry(struct export *x, struct soda_graph_edge e, const double *weight,
		     struct soda_graph_error *err)
{
	/* Of a symmetric matrix the lower triangle. */
	if (x->info.symmetric && e.from < e.to)
		return 0;
	return put_line(x, (uint64_t)e.from + 1, ' ', (uint64_t)e.to + 1, weight, err);
}

static int write_mtx(struct export *x, struct soda_graph_error *err)
{
	/* A symmetric graph has no self-loops. */
	uint64_t entries = x->info.symmetric ? x->info.edges / 2 : x->info.edges;
	int ret = print(
		x, err,
		"%%%%MatrixMarket matrix coordinate %s %s\n%" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		x->info.weighted ? "real" : "pattern", x->info.symmetric ? "symmetric" : "general",
		x->info.vertices, x->info.vertices, entries);

	return ret ? ret : each_edge(x, x->path, put_entry, err);
}

static int put_number(struct export *x, uint64_t number, struct soda_graph_error *err)
{
	return print(x, err, "%" PRIu64 "\n", number);
}

static int put_target(struct export *x, struct soda_graph_edge e, const double *weight,
		      struct soda_graph_error *err)
{
	return put_number(x, e.to, err);
}

static int put_target_weight(struct export *x, struct soda_graph_edge e, const double *weight,
			     struct soda_graph_error *err)
{
	return put_weight(x, *weight, err);
}

static int write_adjacency(struct export *x, struct soda_graph_error *err)
{
	int ret = print(x, err, "%sAdjacencyGraph\n%" PRIu64 "\n%" PRIu64 "\n",
			x->info.weighted ? "Weighted" : "", x->info.vertices, x->info.edges);

	if (!ret)
		ret = each_offset(x, x->path, put_number, err);
	if (!ret)
		ret = each_edge(x, x->path, put_target, err);
	return ret || !x->info.weighted ? ret : each_edge(x, x->path, put_target_weight, err);
}

static int put_offset_bytes(struct export *x, uint64_t offset, struct soda_graph_error *err)
{
	return soda_graph_writer_put(&x->out, &offset, sizeof(offset), err);
}

static int put_target_bytes(struct export *x, struct soda_graph_edge e, const double *weight,
			    struct soda_graph_error *err)
{
	return soda_graph_writer_put(&x->out, &e.to, sizeof(e.to), err);
}

static int write_gap_csr(struct export *x, const char *path, struct soda_graph_error *err)
{
	int ret = each_offset(x, path, put_offset_bytes, err);

	if (!ret)
		ret = put_offset_bytes(x, x->info.edges, err);
	return ret ? ret : each_edge(x, path, put_target_bytes, err);
}

static int write_gap(struct export *x, struct soda_graph_error *err)
{
	struct soda_graph_gap_header h = { .directed = !x->info.symmetric,
					   .edges = x->info.edges,
					   .vertices = x->info.vertices };
	char *in = soda_graph_path(x->path, ".in");
	int ret = in ? 0 : soda_graph_fail(err, ENOMEM, "%s: out of memory", x->path);

	/* GAP's ids are signed. */
	if (!ret && x->info.vertices > INT32_MAX)
		ret = soda_graph_fail(err, ERANGE, "%s: expected at most %d vertices for GAP",
				      x->path, INT32_MAX);
	if (!ret && x->info.weighted)
		ret = soda_graph_fail(
			err, EINVAL, "%s: expected a graph without weights for GAP's .sg", x->path);
	if (!ret)
		ret = soda_graph_writer_put(&x->out, &h, sizeof(h), err);
	if (!ret)
		ret = write_gap_csr(x, x->path, err);
	if (!ret && h.directed)
		ret = write_gap_csr(x, in, err);
	free(in);
	return ret;
}

int soda_graph_export(const char *path, enum soda_graph_format format, const char *file,
		      struct soda_graph_error *err)
{
	static int (*const writers[])(struct export *, struct soda_graph_error *) = {
		[SODA_GRAPH_ADJACENCY] = write_adjacency,
		[SODA_GRAPH_SNAP] = write_snap,
		[SODA_GRAPH_MTX] = write_mtx,
		[SODA_GRAPH_GAP] = write_gap,
	};
	struct export x = { .path = path };
	int ret = soda_graph_info_read(path, &x.info, err);

	if (ret)
		return ret;
	x.batch = malloc(BATCH * sizeof(*x.batch));
	if (x.info.weighted)
		x.weights = malloc(BATCH * sizeof(*x.weights));
	if (!x.batch || (x.info.weighted && !x.weights))
		ret = soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	if (!ret)
		ret = soda_graph_writer_open(&x.out, file, err);
	if (!ret) {
		ret = writers[format](&x, err);
		ret = soda_graph_writer_close(&x.out, ret, err);
	}
	free(x.labels);
	free(x.weights);
	free(x.batch);
	return ret;
}
