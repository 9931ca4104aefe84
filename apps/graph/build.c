/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/build.h"

#include "graph/format/idmap.h"
#include "graph/format/stream.h"
#include "graph/sort.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 65536
#define MEMORY_DEFAULT ((size_t)512 << 20)

struct build {
	const struct soda_graph_build *how;
	const char *path; /* where the triple is made */
	struct soda_graph_info info;
	bool mirror;		       /* each edge is to come back reversed */
	struct soda_graph_idmap *ids;  /* NULL: the source's ids are vertices */
	struct soda_graph_edge *batch; /* of 2 * BATCH */
	double *weights;	       /* of the batch's edges; NULL: the graph has none */
	struct soda_graph_sorter *sorter;
};

static void tell(const struct build *b, const char *step, double fraction)
{
	if (b->how->progress)
		b->how->progress(b->how->arg, step, fraction);
}

static int learn_ids(struct build *b, struct soda_graph_source *source,
		     struct soda_graph_idmap *ids, struct soda_graph_error *err)
{
	int ret = source->rewind(source, err);
	long count = 0;

	while (!ret && (count = source->next(source, b->batch, BATCH, err)) > 0) {
		for (long i = 0; i < count && !ret; i++) {
			ret = soda_graph_idmap_add(ids, b->batch[i].from, err);
			if (!ret)
				ret = soda_graph_idmap_add(ids, b->batch[i].to, err);
		}
		tell(b, "ids", source->fraction(source));
	}
	if (!ret && count < 0)
		ret = (int)count;
	return ret ? ret : soda_graph_idmap_finish(ids, err);
}

/* In place: make vertices of ids, drop self-loops, add mirror images; returns how many edges. */
static long prepare(struct build *b, long count, struct soda_graph_error *err)
{
	long kept = 0, all;

	for (long i = 0; i < count; i++) {
		struct soda_graph_edge e = b->batch[i];

		if (b->ids) {
			e.from = soda_graph_idmap_vertex(b->ids, e.from);
			e.to = soda_graph_idmap_vertex(b->ids, e.to);
			if (e.from == SODA_GRAPH_NONE || e.to == SODA_GRAPH_NONE)
				return soda_graph_fail(err, ESTALE,
						       "the edges changed while they were read");
		}
		if (!b->info.symmetric || e.from != e.to) {
			if (b->weights)
				b->weights[kept] = b->weights[i];
			b->batch[kept++] = e;
		}
	}
	all = b->mirror ? 2 * kept : kept;
	for (long i = kept; i < all; i++) {
		b->batch[i] =
			(struct soda_graph_edge){ b->batch[i - kept].to, b->batch[i - kept].from };
		if (b->weights)
			b->weights[i] = b->weights[i - kept];
	}
	return all;
}

static int sort_source(struct build *b, struct soda_graph_source *source,
		       struct soda_graph_error *err)
{
	int ret = source->rewind(source, err);
	long count = 0;

	while (!ret && (count = source->next(source, b->batch, BATCH, err)) > 0) {
		count = prepare(b, count, err);
		if (count < 0)
			break;
		ret = soda_graph_sorter_add(b->sorter, b->batch, b->weights, (size_t)count, err);
		tell(b, "edges", source->fraction(source));
	}
	return ret ? ret : (int)count;
}

/* Add a triple's edges, reversed, to the sorter. */
static int sort_reversed(struct build *b, const char *path, struct soda_graph_error *err)
{
	struct soda_graph_source *source;
	int ret = soda_graph_triple_open(path, &source, err);
	long count = 0;

	if (ret)
		return ret;
	if (b->weights)
		ret = soda_graph_source_weigh(source, b->weights, err);
	if (!ret)
		ret = source->rewind(source, err);
	while (!ret && (count = source->next(source, b->batch, BATCH, err)) > 0) {
		for (long i = 0; i < count; i++)
			b->batch[i] = (struct soda_graph_edge){ b->batch[i].to, b->batch[i].from };
		ret = soda_graph_sorter_add(b->sorter, b->batch, b->weights, (size_t)count, err);
		tell(b, "reversed edges", source->fraction(source));
	}
	source->close(source);
	return ret ? ret : (int)count;
}

struct csr_writer {
	struct soda_graph_writer idx, adj;
	struct soda_graph_writer weights; /* closed, unless the graph is weighted */
	uint64_t vertices, next;	  /* vertex whose offset is to be written */
	uint64_t edges;
};

/* Write the offsets of the vertices before `end`. */
static int put_offsets(struct csr_writer *w, uint64_t end, struct soda_graph_error *err)
{
	int ret = 0;

	for (; w->next < end && !ret; w->next++)
		ret = soda_graph_writer_put(&w->idx, &w->edges, sizeof(w->edges), err);
	return ret;
}

/* weights: NULL: there are none. */
static int put_edges(struct csr_writer *w, const struct soda_graph_edge *edges,
		     const double *weights, long count, struct soda_graph_error *err)
{
	int ret = 0;

	if (weights)
		ret = soda_graph_writer_put(&w->weights, weights, (size_t)count * sizeof(*weights),
					    err);

	for (long i = 0; i < count && !ret; i++) {
		ret = put_offsets(w, (uint64_t)edges[i].from + 1, err);
		if (!ret)
			ret = soda_graph_writer_put(&w->adj, &edges[i].to, sizeof(edges[i].to),
						    err);
		w->edges++;
	}
	return ret;
}

static int write_sorted(struct build *b, struct csr_writer *w, struct soda_graph_error *err)
{
	int ret = soda_graph_sorter_finish(b->sorter, err);
	long count = 0;

	while (!ret &&
	       (count = soda_graph_sorter_next(b->sorter, b->batch, b->weights, BATCH, err)) > 0) {
		ret = put_edges(w, b->batch, b->weights, count, err);
		tell(b, "writing", soda_graph_sorter_fraction(b->sorter));
	}
	if (!ret)
		ret = (int)count;
	if (!ret)
		ret = put_offsets(w, w->vertices, err);
	if (!ret)
		ret = soda_graph_writer_flush(&w->idx, err);
	if (!ret && b->weights)
		ret = soda_graph_writer_flush(&w->weights, err);
	return ret ? ret : soda_graph_writer_flush(&w->adj, err);
}

/*
 * Write the sorter's edges as PATH.idx, PATH.adj and PATH.weights; without PATH.config they are no
 * graph yet.
 */
static int write_csr(struct build *b, const char *path, struct soda_graph_error *err)
{
	char *idx = soda_graph_path(path, ".idx"), *adj = soda_graph_path(path, ".adj");
	char *weights = soda_graph_path(path, ".weights");
	struct csr_writer w = { .vertices = b->info.vertices };
	int ret =
		idx && adj && weights ? 0 : soda_graph_fail(err, ENOMEM, "%s: out of memory", path);

	if (!ret)
		ret = soda_graph_writer_open(&w.idx, idx, err);
	if (!ret)
		ret = soda_graph_writer_open(&w.adj, adj, err);
	if (!ret && b->weights)
		ret = soda_graph_writer_open(&w.weights, weights, err);
	if (!ret)
		ret = write_sorted(b, &w, err);
	b->info.edges = w.edges;
	b->info.idx_sum = w.idx.sum;
	b->info.adj_sum = w.adj.sum;
	b->info.weights_sum = w.weights.sum;
	ret = soda_graph_writer_close(&w.idx, ret, err);
	ret = soda_graph_writer_close(&w.adj, ret, err);
	ret = soda_graph_writer_close(&w.weights, ret, err);
	free(weights);
	free(idx);
	free(adj);
	return ret;
}

/*
 * Sort the edges that `fill` adds, and write them; edges that do not fit in memory lie in PATH's
 * folder.
 */
static int make_csr(struct build *b, const char *path,
		    int (*fill)(struct build *b, void *arg, struct soda_graph_error *err),
		    void *arg, struct soda_graph_error *err)
{
	size_t memory = b->how->memory ? b->how->memory : MEMORY_DEFAULT;
	char *copy = strdup(path);
	int ret;

	if (!copy)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	ret = soda_graph_sorter_create(dirname(copy), memory, b->info.symmetric, b->info.weighted,
				       &b->sorter, err);
	free(copy);
	if (!ret)
		ret = fill(b, arg, err);
	if (!ret)
		ret = write_csr(b, path, err);
	soda_graph_sorter_destroy(b->sorter);
	b->sorter = NULL;
	return ret;
}

static int fill_from_source(struct build *b, void *arg, struct soda_graph_error *err)
{
	return sort_source(b, arg, err);
}

static int fill_reversed(struct build *b, void *arg, struct soda_graph_error *err)
{
	return sort_reversed(b, arg, err);
}

/* Make the triple of in-edges of a directed graph. */
static int make_in(struct build *b, struct soda_graph_error *err)
{
	struct soda_graph_info out = b->info;
	char *in = soda_graph_path(b->path, ".in");
	int ret = in ? 0 : soda_graph_fail(err, ENOMEM, "%s: out of memory", b->path);

	if (!ret)
		ret = make_csr(b, in, fill_reversed, (void *)b->path, err);
	if (!ret)
		ret = soda_graph_info_write(in, &b->info, err);
	b->info = out;
	free(in);
	return ret;
}

static int write_labels(struct build *b, const struct soda_graph_idmap *ids,
			struct soda_graph_error *err)
{
	char *path = soda_graph_path(b->path, ".labels");
	uint32_t *labels = malloc(ids->count * sizeof(*labels));
	struct soda_graph_writer w = { 0 };
	int ret = path && labels ? 0
				 : soda_graph_fail(err, ENOMEM, "out of memory for vertex labels");

	if (!ret)
		ret = soda_graph_writer_open(&w, path, err);
	if (!ret) {
		soda_graph_idmap_labels(ids, labels);
		ret = soda_graph_writer_put(&w, labels, ids->count * sizeof(*labels), err);
	}
	if (!ret)
		ret = soda_graph_writer_flush(&w, err);
	b->info.labels_sum = w.sum;
	ret = soda_graph_writer_close(&w, ret, err);
	free(labels);
	free(path);
	return ret;
}

static int number_vertices(struct build *b, struct soda_graph_source *source,
			   struct soda_graph_idmap *ids, struct soda_graph_error *err)
{
	int ret;

	b->info.vertices = source->vertices;
	if (source->vertices)
		return 0;
	ret = soda_graph_idmap_create(ids, err);
	if (!ret)
		ret = learn_ids(b, source, ids, err);
	if (ret)
		return ret;
	b->ids = ids;
	b->info.vertices = ids->count;
	b->info.labelled = soda_graph_idmap_vertex(ids, (uint32_t)(ids->count - 1)) !=
			   (uint32_t)(ids->count - 1);
	return b->info.labelled ? write_labels(b, ids, err) : 0;
}

/* Make the triple b->path, and move it to its place. */
static int make_triple(struct build *b, struct soda_graph_source *source,
		       struct soda_graph_error *err)
{
	struct soda_graph_idmap ids = { 0 };
	int ret = number_vertices(b, source, &ids, err);

	if (!ret) /* now it is known whether there are labels */
		ret = soda_graph_triple_check_free(b->how->path, soda_graph_info_parts(&b->info),
						   err);
	if (!ret)
		ret = make_csr(b, b->path, fill_from_source, source, err);
	if (!ret)
		ret = soda_graph_info_write(b->path, &b->info, err);
	if (!ret && !b->info.symmetric)
		ret = make_in(b, err);
	if (!ret)
		ret = soda_graph_triple_move(b->path, b->how->path, soda_graph_info_parts(&b->info),
					     err);
	soda_graph_idmap_destroy(&ids);
	return ret;
}

static int make_in_folder(struct build *b, struct soda_graph_source *source,
			  struct soda_graph_error *err)
{
	char *folder = NULL, *path;
	int ret = soda_graph_folder_make(b->how->path, &folder, err);

	if (ret)
		return ret;
	path = soda_graph_path(folder, "/graph");
	b->path = path;
	ret = path ? make_triple(b, source, err)
		   : soda_graph_fail(err, ENOMEM, "%s: out of memory", folder);
	if (path)
		soda_graph_triple_remove(path);
	rmdir(folder);
	free(path);
	free(folder);
	return ret;
}

int soda_graph_build(struct soda_graph_source *source, const struct soda_graph_build *build,
		     struct soda_graph_info *info_p, struct soda_graph_error *err)
{
	struct build b = { .how = build };
	int ret;

	b.info.complete = true;
	b.info.symmetric = build->symmetric || source->symmetric;
	b.mirror = b.info.symmetric && !source->symmetric;
	b.info.weighted = build->weighted;
	ret = soda_graph_triple_check_free(build->path, soda_graph_info_parts(&b.info), err);
	if (ret)
		return ret;
	b.batch = malloc(2 * BATCH * sizeof(*b.batch));
	if (build->weighted)
		b.weights = malloc(2 * BATCH * sizeof(*b.weights));
	if (!b.batch || (build->weighted && !b.weights))
		ret = soda_graph_fail(err, ENOMEM, "out of memory for a batch of edges");
	if (!ret && build->weighted)
		ret = soda_graph_source_weigh(source, b.weights, err);
	if (!ret)
		ret = make_in_folder(&b, source, err);
	source->weights = NULL;
	free(b.weights);
	free(b.batch);
	if (!ret)
		*info_p = b.info;
	return ret;
}
