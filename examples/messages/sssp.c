/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shortest paths from one vertex, by delta stepping (Meyer, Sanders, J. Algorithms 2003): vertices
 * lie in buckets by their distance, and a bucket's edges are relaxed together: those shorter than
 * DELTA, again and again, until nothing comes back into the bucket, then the others.  Relaxing an
 * edge is a message to the owner of its end; a phase is a round of them.
 *   soda msg run -n 4 -- sssp [-u] [-s SCALE] [-e EDGES] [FILE]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum {
	DELTA = 32,
	WEIGHTS = 255,		       /* of edges: 1 to this */
	BUCKETS = WEIGHTS / DELTA + 2, /* that can have vertices at the same time */
};

#define NONE UINT64_MAX

struct list {
	uint32_t *all;
	size_t n, room;
};

struct search {
	struct rows rows;
	unsigned ranks, rank;
	uint64_t *distance; /* of this rank's vertices, or NONE */
	uint64_t *told;	    /* that their light edges have been relaxed with, or NONE */
	struct list
		buckets[BUCKETS]; /* bucket k is k % BUCKETS; vertices that left are still there */
};

struct relax {
	uint64_t distance;
	uint32_t vertex, reserved;
};

static unsigned weight(uint32_t from, uint32_t to)
{
	return 1 + (unsigned)(random_bits(from, to) % WEIGHTS);
}

static void add(struct list *list, uint32_t row)
{
	if (list->n == list->room) {
		list->room = list->room ? 2 * list->room : 64;
		list->all = ranks_realloc(list->all, list->room, sizeof(list->all[0]));
	}
	list->all[list->n++] = row;
}

static void relax(struct search *s, uint32_t row, uint64_t distance)
{
	if (distance >= s->distance[row])
		return;
	s->distance[row] = distance;
	add(&s->buckets[distance / DELTA % BUCKETS], row);
}

static void take(void *arg, const struct soda_message *m)
{
	struct search *s = arg;
	struct relax ask;

	memcpy(&ask, m->data, sizeof(ask));
	relax(s, ask.vertex / s->ranks, ask.distance);
}

/* Relax the edges of a vertex that are light, or those that are not. */
static void tell(struct ranks *r, const struct search *s, uint32_t row, bool light)
{
	for (uint64_t k = s->rows.begin[row]; k < s->rows.begin[row + 1]; k++) {
		unsigned w = weight(row * s->ranks + s->rank, s->rows.to[k]);
		struct relax ask = { s->distance[row] + w, s->rows.to[k], 0 };

		if ((w < DELTA) == light)
			ranks_push(r, ask.vertex % s->ranks, &ask, sizeof(ask));
	}
}

/* Relax the light edges of what is in bucket k now; add to `settled` what was not there before. */
static void round_of(struct ranks *r, struct search *s, uint64_t k, struct list *settled)
{
	struct list open = s->buckets[k % BUCKETS];

	s->buckets[k % BUCKETS] = (struct list){ 0 };
	ranks_begin(r);
	for (size_t i = 0; i < open.n; i++) {
		uint32_t row = open.all[i];

		if (s->distance[row] / DELTA != k || s->told[row] == s->distance[row])
			continue; /* it is in an earlier bucket, or twice in this one */
		if (s->told[row] == NONE)
			add(settled, row);
		s->told[row] = s->distance[row];
		tell(r, s, row, true);
	}
	ranks_finish(r);
	free(open.all);
}

static void settle(struct ranks *r, struct search *s, uint64_t k)
{
	struct list settled = { 0 };

	do
		round_of(r, s, k, &settled);
	while (ranks_sum(r, (int64_t)s->buckets[k % BUCKETS].n) > 0);
	ranks_begin(r);
	for (size_t i = 0; i < settled.n; i++)
		tell(r, s, settled.all[i], false);
	ranks_finish(r);
	free(settled.all);
}

/* The first bucket of all ranks, from k on, that is not empty; negative: there is none. */
static int64_t next(struct ranks *r, const struct search *s, int64_t k)
{
	int64_t first = INT64_MAX;

	for (int64_t i = k + BUCKETS - 1; i >= k; i--)
		if (s->buckets[i % BUCKETS].n)
			first = i;
	first = -ranks_max(r, -first);
	return first == INT64_MAX ? -1 : first;
}

static void search(struct ranks *r, struct search *s, uint32_t root)
{
	if (root % r->n == r->rank)
		relax(s, root / r->n, 0);
	for (int64_t k = next(r, s, 0); k >= 0; k = next(r, s, k + 1))
		settle(r, s, (uint64_t)k);
}

static uint64_t *nones(size_t n)
{
	uint64_t *all = ranks_realloc(NULL, n, sizeof(*all));

	memset(all, 0xff, n * sizeof(*all));
	return all;
}

/* By one: a queue of vertices whose distance has changed (Bellman, Ford, Moore). */
static uint64_t *search_alone(const struct rows *rows, uint32_t root)
{
	uint64_t *distance = nones(rows->n), head = 0, left = 1;
	uint32_t *queue = ranks_realloc(NULL, rows->n, sizeof(*queue)); /* a ring */
	bool *queued = ranks_realloc(NULL, rows->n, sizeof(*queued));

	memset(queued, 0, rows->n * sizeof(*queued));
	distance[root] = 0;
	for (queue[0] = root; left; left--) {
		uint32_t v = queue[head++ % rows->n];

		queued[v] = false;
		for (uint64_t k = rows->begin[v]; k < rows->begin[v + 1]; k++) {
			uint32_t to = rows->to[k];
			uint64_t d = distance[v] + weight(v, to);

			if (d >= distance[to])
				continue;
			distance[to] = d;
			if (!queued[to]) /* behind the others; head has moved on already */
				queue[(head + left++ - 1) % rows->n] = to;
			queued[to] = true;
		}
	}
	free(queue);
	free(queued);
	return distance;
}

static int64_t compare(const struct graph_options *o, const struct search *s, uint32_t root)
{
	struct ranks alone = { .program = "sssp", .n = 1 };
	uint64_t vertices, *right;
	struct edges edges;
	struct rows rows;
	int64_t wrong = 0;

	edges_read(&alone, o, NULL, &edges, &vertices);
	rows_build(&rows, &edges, vertices, 0, 1);
	right = search_alone(&rows, root);
	for (uint32_t i = 0; i < s->rows.n; i++)
		wrong += s->distance[i] != right[(uint64_t)i * s->ranks + s->rank];
	rows_free(&rows);
	free(right);
	return wrong;
}

/* The first vertex that has an edge. */
static uint32_t find_root(struct ranks *r, const struct rows *rows)
{
	int64_t first = INT64_MAX;

	for (uint32_t i = rows->n; i-- > 0;)
		if (rows->begin[i + 1] > rows->begin[i])
			first = (int64_t)i * r->n + r->rank;
	first = -ranks_max(r, -first);
	if (first == INT64_MAX)
		ranks_die(r->program, "the graph has no edge");
	return (uint32_t)first;
}

static int64_t count_reached(const struct search *s)
{
	int64_t n = 0;

	for (uint32_t i = 0; i < s->rows.n; i++)
		n += s->distance[i] != NONE;
	return n;
}

int main(int argc, char **argv)
{
	struct graph_options options;
	struct search s = { 0 };
	struct edges edges;
	struct ranks r;
	uint64_t vertices;
	uint32_t root;
	double seconds;
	char what[128];
	int64_t wrong;

	graph_options(argc, argv, &options);
	ranks_start(&r, "sssp", take, &s);
	edges_read(&r, &options, keep_mine, &edges, &vertices);
	rows_build(&s.rows, &edges, vertices, r.rank, r.n);
	s.ranks = r.n;
	s.rank = r.rank;
	s.distance = nones(s.rows.n);
	s.told = nones(s.rows.n);
	root = find_root(&r, &s.rows);
	ranks_ready(&r);
	search(&r, &s, root);
	seconds = ranks_seconds(&r);
	wrong = options.unverified ? -1 : compare(&options, &s, root);
	snprintf(what, sizeof(what),
		 "%" PRIu64 " vertices, %" PRId64 " edges, %" PRId64 " reached from %u", vertices,
		 ranks_sum(&r, (int64_t)s.rows.begin[s.rows.n]), ranks_sum(&r, count_reached(&s)),
		 root);
	for (unsigned i = 0; i < BUCKETS; i++)
		free(s.buckets[i].all);
	rows_free(&s.rows);
	free(s.distance);
	free(s.told);
	return ranks_report(&r, what, seconds, wrong);
}
