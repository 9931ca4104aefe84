/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many triangles an undirected graph has.  A rank knows, of each of its vertices v, the
 * neighbours below v.  For each such w, what v has below w is told to the owner of w, which counts
 * those that are neighbours of w as well: each triangle once, at its middle vertex.
 *   soda msg run -n 4 -- triangles [-u] [-s SCALE] [-e EDGES] [FILE]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { LIST = 1024 }; /* of neighbours in a message */

struct counting {
	struct rows rows; /* each row ascending, no number twice, all below the vertex */
	unsigned ranks;
	int64_t triangles;
};

/* How many numbers two ascending lists share. */
static int64_t shared(const uint32_t *a, size_t a_n, const uint32_t *b, size_t b_n)
{
	int64_t n = 0;

	for (size_t i = 0, k = 0; i < a_n && k < b_n;) {
		uint32_t x = a[i], y = b[k];

		n += x == y;
		i += x <= y;
		k += y <= x;
	}
	return n;
}

/* A vertex of this rank, then what a neighbour above it has below it. */
static void take(void *arg, const struct soda_message *m)
{
	struct counting *c = arg;
	uint32_t list[1 + LIST];
	uint64_t from, to;

	memcpy(list, m->data, m->bytes);
	from = c->rows.begin[list[0] / c->ranks];
	to = c->rows.begin[list[0] / c->ranks + 1];
	c->triangles +=
		shared(list + 1, m->bytes / sizeof(list[0]) - 1, c->rows.to + from, to - from);
}

static void tell(struct ranks *r, uint32_t vertex, const uint32_t *below, size_t n)
{
	uint32_t list[1 + LIST] = { vertex };

	for (size_t at = 0, part; at < n; at += part) {
		part = n - at < LIST ? n - at : LIST;
		memcpy(list + 1, below + at, part * sizeof(list[0]));
		ranks_push(r, vertex % r->n, list, (1 + part) * sizeof(list[0]));
	}
}

static void count(struct ranks *r, struct counting *c)
{
	for (uint32_t i = 0; i < c->rows.n; i++) {
		const uint32_t *row = c->rows.to + c->rows.begin[i];
		size_t n = c->rows.begin[i + 1] - c->rows.begin[i];

		for (size_t k = 1; k < n; k++)
			tell(r, row[k], row, k);
	}
	ranks_finish(r);
}

/* Edges go down, and loops nowhere. */
static bool keep_down(const struct ranks *r, struct soda_graph_edge *e)
{
	if (e->from < e->to)
		*e = (struct soda_graph_edge){ e->to, e->from };
	return e->from != e->to && keep_mine(r, e);
}

/* Forget repeated edges. How many there are without. */
static uint64_t once(struct rows *rows)
{
	uint64_t n = 0, from = 0;

	for (uint32_t i = 0; i < rows->n; i++) {
		uint64_t row = n;

		for (uint64_t k = from; k < rows->begin[i + 1]; k++)
			if (n == row || rows->to[n - 1] != rows->to[k])
				rows->to[n++] = rows->to[k];
		from = rows->begin[i + 1];
		rows->begin[i + 1] = n;
	}
	return n;
}

static uint64_t load(const struct ranks *r, const struct graph_options *o, struct rows *rows,
		     uint64_t *vertices_p)
{
	struct edges edges;

	edges_read(r, o, keep_down, &edges, vertices_p);
	rows_build(rows, &edges, *vertices_p, r->rank, r->n);
	return once(rows);
}

/* By one, in another way: mark what a vertex has below, then see what its neighbours have. */
static int64_t count_alone(const struct graph_options *o)
{
	struct ranks alone = { .program = "triangles", .n = 1 };
	uint64_t vertices;
	struct rows rows;
	uint8_t *marked;
	int64_t n = 0;

	load(&alone, o, &rows, &vertices);
	marked = calloc(1, rows.n + 1ull);
	if (!marked)
		ranks_die("triangles", "no memory for %u marks", rows.n);
	for (uint32_t v = 0; v < rows.n; v++) {
		for (uint64_t k = rows.begin[v]; k < rows.begin[v + 1]; k++)
			marked[rows.to[k]] = 1;
		for (uint64_t k = rows.begin[v]; k < rows.begin[v + 1]; k++)
			for (uint64_t j = rows.begin[rows.to[k]]; j < rows.begin[rows.to[k] + 1];
			     j++)
				n += marked[rows.to[j]];
		for (uint64_t k = rows.begin[v]; k < rows.begin[v + 1]; k++)
			marked[rows.to[k]] = 0;
	}
	free(marked);
	rows_free(&rows);
	return n;
}

int main(int argc, char **argv)
{
	struct graph_options options;
	int64_t wrong = -1, all;
	struct counting c = { 0 };
	uint64_t vertices, edges;
	struct ranks r;
	double seconds;
	char what[128];

	graph_options(argc, argv, &options);
	ranks_start(&r, "triangles", take, &c);
	c.ranks = r.n;
	edges = load(&r, &options, &c.rows, &vertices);
	ranks_ready(&r);
	count(&r, &c);
	all = ranks_sum(&r, c.triangles);
	seconds = ranks_seconds(&r);
	if (!options.unverified) /* one rank is enough for one number */
		wrong = r.rank == 0 && count_alone(&options) != all;
	snprintf(what, sizeof(what),
		 "%" PRIu64 " vertices, %" PRId64 " edges, %" PRId64 " triangles", vertices,
		 ranks_sum(&r, (int64_t)edges), all);
	rows_free(&c.rows);
	return ranks_report(&r, what, seconds, wrong);
}
