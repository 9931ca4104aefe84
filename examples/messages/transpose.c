/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transpose of a sparse matrix whose rows are dealt out to ranks: each entry is told to the
 * owner of its column, by a message of 16 bytes. One phase, and no message is answered.
 *   soda msg run -n 4 -- transpose [-u] [-s SCALE] [-e EDGES] [FILE]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

struct entry {
	uint32_t row, col;
	double value;
};

struct entries { /* of this rank's columns */
	struct entry *all;
	size_t n, room;
};

/* Files have a pattern only: the values are made up. */
static double value_of(uint32_t row, uint32_t col)
{
	return (double)(random_bits(row, col) >> 11);
}

static void take(void *arg, const struct soda_message *m)
{
	struct entries *e = arg;

	if (e->n == e->room) {
		e->room = e->room ? 2 * e->room : 4096;
		e->all = ranks_realloc(e->all, e->room, sizeof(e->all[0]));
	}
	memcpy(&e->all[e->n++], m->data, sizeof(e->all[0]));
}

/* What came, in the transpose's order. */
static int by_column(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->col != y->col ? (x->col > y->col) - (x->col < y->col)
				: (x->row > y->row) - (x->row < y->row);
}

static void transpose(struct ranks *r, const struct rows *mine, struct entries *columns)
{
	for (uint32_t i = 0; i < mine->n; i++)
		for (uint64_t k = mine->begin[i]; k < mine->begin[i + 1]; k++) {
			struct entry e = { i * r->n + r->rank, mine->to[k], 0 };

			e.value = value_of(e.row, e.col);
			ranks_push(r, e.col % r->n, &e, sizeof(e));
		}
	ranks_finish(r);
	if (columns->n)
		qsort(columns->all, columns->n, sizeof(columns->all[0]), by_column);
}

static bool keep_turned(const struct ranks *r, struct soda_graph_edge *e)
{
	*e = (struct soda_graph_edge){ e->to, e->from };
	return keep_mine(r, e);
}

/* Transposed by one: its rows are what comes where every entry's ends are swapped when read. */
static int64_t compare(const struct ranks *r, const struct graph_options *o,
		       const struct entries *columns)
{
	struct edges edges;
	struct rows right;
	uint64_t vertices;
	size_t at = 0;
	int64_t wrong;

	edges_read(r, o, keep_turned, &edges, &vertices);
	wrong = edges.n != columns->n;
	rows_build(&right, &edges, vertices, r->rank, r->n);
	for (uint32_t i = 0; i < right.n; i++)
		for (uint64_t k = right.begin[i]; k < right.begin[i + 1] && at < columns->n; k++) {
			const struct entry *e = &columns->all[at++];
			uint32_t col = i * r->n + r->rank, row = right.to[k];

			wrong += e->col != col || e->row != row || e->value != value_of(row, col);
		}
	rows_free(&right);
	return wrong;
}

int main(int argc, char **argv)
{
	struct entries columns = { 0 };
	struct graph_options options;
	struct edges edges;
	struct rows mine;
	struct ranks r;
	uint64_t vertices;
	double seconds;
	char what[96];
	int64_t wrong;

	graph_options(argc, argv, &options);
	ranks_start(&r, "transpose", take, &columns);
	edges_read(&r, &options, keep_mine, &edges, &vertices);
	rows_build(&mine, &edges, vertices, r.rank, r.n);
	ranks_ready(&r);
	transpose(&r, &mine, &columns);
	seconds = ranks_seconds(&r);
	wrong = options.unverified ? -1 : compare(&r, &options, &columns);
	snprintf(what, sizeof(what), "a matrix of %" PRIu64 " rows, %" PRId64 " entries", vertices,
		 ranks_sum(&r, (int64_t)columns.n));
	rows_free(&mine);
	free(columns.all);
	return ranks_report(&r, what, seconds, wrong);
}
