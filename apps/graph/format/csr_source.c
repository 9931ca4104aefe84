/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/csr_source.h"

#include "graph/format/stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)256 << 10)

struct csr_source {
	struct soda_graph_source source;
	struct soda_graph_csr_layout layout;		    /* without the paths */
	struct soda_graph_reader offsets, targets, weights; /* weights: only if asked for */
	uint64_t read;					    /* targets of this pass */
	uint64_t offsets_read; /* of this pass; the last of them is next_begin */
	uint64_t next_begin;   /* where the run after `vertex` begins */
	uint32_t vertex;       /* whose target is next */
};

static int read_offset(struct csr_source *s, uint64_t *offset_p, struct soda_graph_error *err)
{
	uint32_t narrow;
	int ret;

	if (s->layout.offset_bytes == 8)
		return soda_graph_reader_u64(&s->offsets, offset_p, err);
	ret = soda_graph_reader_u32(&s->offsets, &narrow, err);
	if (!ret)
		*offset_p = narrow;
	return ret;
}

/* Replaces next_begin by the offset after it, which is the number of edges after the last. */
static int next_offset(struct csr_source *s, struct soda_graph_error *err)
{
	uint64_t last = s->next_begin, most = s->source.edges, least = s->offsets_read ? last : 0;
	uint64_t offsets = s->source.vertices + s->layout.closed;
	uint64_t position = soda_graph_reader_position(&s->offsets);
	int ret;

	if (s->offsets_read == offsets) {
		s->next_begin = most;
		return 0;
	}
	ret = read_offset(s, &s->next_begin, err);
	if (ret)
		return ret;
	s->offsets_read++;
	if (s->offsets_read == 1)
		most = 0;
	if (s->layout.closed && s->offsets_read == offsets)
		least = most;
	if (s->next_begin < least || s->next_begin > most)
		return soda_graph_fail(err, EINVAL,
				       "%s: byte %" PRIu64 ": expected an offset from %" PRIu64
				       " to %" PRIu64 ", found %" PRIu64,
				       s->offsets.path, position, least, most, s->next_begin);
	return 0;
}

static int csr_rewind(struct soda_graph_source *source, struct soda_graph_error *err)
{
	struct csr_source *s = (struct csr_source *)source;
	int ret;

	s->offsets.at = s->layout.offsets.begin;
	s->targets.at = s->layout.targets.begin;
	s->weights.at = s->layout.weights.begin;
	s->offsets.length = s->offsets.used = s->targets.length = s->targets.used = 0;
	s->weights.length = s->weights.used = 0;
	s->read = s->offsets_read = s->vertex = 0;
	ret = next_offset(s, err);
	return ret ? ret : next_offset(s, err);
}

/* What offsets are left are checked, too. */
static int expect_end(struct csr_source *s, struct soda_graph_error *err)
{
	int ret = 0;

	while (!ret && s->offsets_read < s->source.vertices + s->layout.closed)
		ret = next_offset(s, err);
	return ret;
}

static int next_weight(struct csr_source *s, double *weight_p, struct soda_graph_error *err)
{
	uint64_t position = soda_graph_reader_position(&s->weights);
	union {
		uint64_t bits;
		double number;
	} weight;
	int ret = soda_graph_reader_u64(&s->weights, &weight.bits, err);

	if (ret)
		return ret;
	if (!(weight.number >= 0) || weight.number > SODA_GRAPH_WEIGHT_MAX)
		return soda_graph_fail(
			err, EINVAL,
			"%s: byte %" PRIu64 ": expected a weight from 0 to %g, found %g",
			s->weights.path, position, SODA_GRAPH_WEIGHT_MAX, weight.number);
	*weight_p = weight.number;
	return 0;
}

static long csr_next(struct soda_graph_source *source, struct soda_graph_edge *edges, size_t max,
		     struct soda_graph_error *err)
{
	struct csr_source *s = (struct csr_source *)source;
	size_t count = 0;

	for (; count < max && s->read < source->edges; count++, s->read++) {
		uint64_t position = soda_graph_reader_position(&s->targets);
		uint32_t target;
		int ret = 0;

		for (; s->read >= s->next_begin && !ret; s->vertex++)
			ret = next_offset(s, err);
		if (!ret)
			ret = soda_graph_reader_u32(&s->targets, &target, err);
		if (!ret && source->weights)
			ret = next_weight(s, &source->weights[count], err);
		if (ret)
			return ret;
		if (target >= source->vertices)
			return soda_graph_fail(err, EINVAL,
					       "%s: byte %" PRIu64
					       ": expected a vertex below %" PRIu64
					       ", found %" PRIu32,
					       s->targets.path, position, source->vertices, target);
		edges[count] = (struct soda_graph_edge){ s->vertex, target };
	}
	return count ? (long)count : expect_end(s, err);
}

static void close_files(const struct soda_graph_csr_layout *layout)
{
	close(layout->offsets.fd);
	if (layout->targets.fd != layout->offsets.fd)
		close(layout->targets.fd);
	if (layout->weighted)
		close(layout->weights.fd);
}

static double csr_fraction(const struct soda_graph_source *source)
{
	return source->edges
		       ? (double)((const struct csr_source *)source)->read / (double)source->edges
		       : 1;
}

static void csr_close(struct soda_graph_source *source)
{
	struct csr_source *s = (struct csr_source *)source;

	soda_graph_reader_close(&s->offsets);
	soda_graph_reader_close(&s->targets);
	soda_graph_reader_close(&s->weights);
	close_files(&s->layout);
	free(s);
}

static int open_readers(struct csr_source *s, struct soda_graph_error *err)
{
	const struct soda_graph_csr_file *offsets = &s->layout.offsets;
	const struct soda_graph_csr_file *targets = &s->layout.targets;
	const struct soda_graph_csr_file *weights = &s->layout.weights;
	uint64_t count = s->layout.vertices + s->layout.closed;
	int ret = soda_graph_reader_open(&s->offsets, offsets->fd, offsets->path, offsets->begin,
					 offsets->begin + count * s->layout.offset_bytes,
					 BUFFER_BYTES, err);

	if (!ret)
		ret = soda_graph_reader_open(
			&s->targets, targets->fd, targets->path, targets->begin,
			targets->begin + s->layout.edges * sizeof(uint32_t), BUFFER_BYTES, err);
	if (!ret && s->layout.weighted)
		ret = soda_graph_reader_open(
			&s->weights, weights->fd, weights->path, weights->begin,
			weights->begin + s->layout.edges * sizeof(double), BUFFER_BYTES, err);
	return ret;
}

int soda_graph_csr_open(const struct soda_graph_csr_layout *layout,
			struct soda_graph_source **source_p, struct soda_graph_error *err)
{
	struct csr_source *s = calloc(1, sizeof(*s));
	int ret;

	if (!s) {
		close_files(layout);
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", layout->offsets.path);
	}
	s->layout = *layout;
	s->source = (struct soda_graph_source){ .format = layout->format,
						.vertices = layout->vertices,
						.edges = layout->edges,
						.symmetric = layout->symmetric,
						.weighable = layout->weighted,
						.fraction = csr_fraction,
						.rewind = csr_rewind,
						.next = csr_next,
						.close = csr_close };
	ret = open_readers(s, err);
	s->layout.offsets.path = s->layout.targets.path = s->layout.weights.path = NULL;
	if (ret) {
		csr_close(&s->source);
		return ret;
	}
	*source_p = &s->source;
	return 0;
}
