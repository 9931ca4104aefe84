/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Graph files: each format, read twice to the end, as every user of a source does.
 *   format 8 | the file; of a triple: the length 16 of .config, of .idx 16, then the three files
 * Formats from FORMATS on: the same ones, and their weights are asked for.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "graph/format/source.h"
#include "graph/format/triple.h"

enum { BATCH = 64, PASSES = 2, EDGES_MAX = 1 << 16, FORMATS = 7 };

static void check_weights(const double *weights, long n)
{
	for (long i = 0; i < n; i++)
		MUST(weights[i] >= 0 && weights[i] <= SODA_GRAPH_WEIGHT_MAX);
}

/* Ids below what the source says; every pass gives the same number. */
static void read_all(struct soda_graph_source *source)
{
	struct soda_graph_error err = { "" };
	struct soda_graph_edge edges[BATCH];
	uint64_t counts[PASSES] = { 0 };

	for (int pass = 0; pass < PASSES; pass++) {
		long n = source->rewind(source, &err);

		if (n < 0)
			return;
		while (counts[pass] < EDGES_MAX &&
		       (n = source->next(source, edges, BATCH, &err)) > 0) {
			MUST(n <= BATCH);
			for (long i = 0; source->vertices && i < n; i++)
				MUST(edges[i].from < source->vertices &&
				     edges[i].to < source->vertices);
			if (source->weights)
				check_weights(source->weights, n);
			counts[pass] += (uint64_t)n;
			MUST(source->fraction(source) >= 0);
		}
		if (n < 0) {
			MUST(err.text[0]);
			return;
		}
	}
	MUST(counts[0] == counts[1]);
}

/* As many weights as targets: the targets' bytes, twice. */
static void write_weights(const uint8_t *adj, size_t bytes)
{
	uint8_t *weights = malloc(2 * bytes + 1);
	char path[256];

	MUST(weights);
	memcpy(weights, adj, bytes);
	memcpy(weights + bytes, adj, bytes);
	fuzz_write(fuzz_path("t.weights", path), weights, 2 * bytes);
	free(weights);
}

static void write_triple(struct fuzz_input *in)
{
	static const char *const names[] = { "t.config", "t.idx", "t.adj" };
	size_t lengths[3] = { fuzz_u16(in), fuzz_u16(in), SIZE_MAX };
	char path[256];

	for (int i = 0; i < 3; i++) {
		size_t n = lengths[i] < in->left ? lengths[i] : in->left;

		fuzz_write(fuzz_path(names[i], path), in->at, n);
		if (i == 2)
			write_weights(in->at, n);
		in->at += n;
		in->left -= n;
	}
}

static int open_as(unsigned format, struct fuzz_input *in, struct soda_graph_source **source_p,
		   struct soda_graph_error *err)
{
	char path[256];

	if (format == 4) {
		write_triple(in);
		return soda_graph_triple_open(fuzz_path("t", path), source_p, err);
	}
	fuzz_write(fuzz_path(format == 5 ? "g.sg" : "g", path), in->at, in->left);
	switch (format) {
	case 0:
		return soda_graph_snap_open(path, source_p, err);
	case 1:
		return soda_graph_mtx_open(path, source_p, err);
	case 2:
		return soda_graph_adjacency_open(path, source_p, err);
	case 3:
		return soda_graph_gap_open(path, source_p, err);
	default:
		return soda_graph_source_open(path, source_p, err);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	struct soda_graph_source *source;
	struct soda_graph_error err = { "" };
	unsigned format = fuzz_u8(&in);
	int ret = open_as(format % FORMATS, &in, &source, &err);
	double weights[BATCH];

	MUST(ret <= 0);
	if (ret < 0) {
		MUST(err.text[0]);
		return 0;
	}
	if (format / FORMATS % 2 == 0 || !soda_graph_source_weigh(source, weights, &err))
		read_all(source);
	source->close(source);
	return 0;
}
