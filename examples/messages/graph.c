/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { EDGES_EACH = 8, SCALE = 14, BATCH = 4096 };

static _Noreturn void usage(const char *program)
{
	fprintf(stderr,
		"Usage: soda msg run -n RANKS -- %s [-u] [-s SCALE] [-e EDGES] [FILE]\n"
		"A graph's FILE, or one with 2^SCALE vertices (1 to 31; %d) and EDGES edges (%d)\n"
		"for each, is drawn.  -u: do not verify the result.\n",
		program, SCALE, EDGES_EACH);
	exit(2);
}

static uint64_t number(const char *program, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t value = strtoull(optarg, &end, 10);

	if (*end || value < least || value > most)
		usage(program);
	return value;
}

void graph_options(int argc, char **argv, struct graph_options *o)
{
	uint64_t each = EDGES_EACH;
	int c;

	*o = (struct graph_options){ .random = SODA_GRAPH_RANDOM_DEFAULTS };
	o->random.scale = SCALE;
	while ((c = getopt(argc, argv, "us:e:")) != -1)
		if (c == 'u')
			o->unverified = true;
		else if (c == 's')
			o->random.scale = (unsigned)number(argv[0], 1, 31);
		else if (c == 'e')
			each = number(argv[0], 1, 1 << 20);
		else
			usage(argv[0]);
	if (argc - optind > 1)
		usage(argv[0]);
	o->random.edges = each << o->random.scale;
	o->path = argv[optind];
}

void edges_add(struct edges *e, uint32_t from, uint32_t to)
{
	if (e->n == e->room) {
		e->room = e->room ? 2 * e->room : BATCH;
		e->all = ranks_realloc(e->all, e->room, sizeof(e->all[0]));
	}
	e->all[e->n++] = (struct soda_graph_edge){ from, to };
}

bool keep_mine(const struct ranks *r, struct soda_graph_edge *e)
{
	return e->from % r->n == r->rank;
}

void edges_read(const struct ranks *r, const struct graph_options *o, keep_fn *keep,
		struct edges *e, uint64_t *vertices_p)
{
	struct soda_graph_edge batch[BATCH];
	struct soda_graph_source *source;
	struct soda_graph_error err;
	uint64_t vertices;
	long n = -1;

	*e = (struct edges){ 0 };
	if (o->path ? soda_graph_source_open(o->path, &source, &err)
		    : soda_graph_rmat_open(&o->random, &source, &err))
		ranks_die(r->program, "%s", err.text);
	vertices = source->vertices;
	if (source->rewind(source, &err) == 0)
		while ((n = source->next(source, batch, BATCH, &err)) > 0)
			for (long i = 0; i < n; i++) {
				uint32_t last =
					batch[i].from > batch[i].to ? batch[i].from : batch[i].to;

				vertices = vertices > last ? vertices : last + 1ull;
				if (!keep || keep(r, &batch[i]))
					edges_add(e, batch[i].from, batch[i].to);
			}
	if (n < 0)
		ranks_die(r->program, "%s", err.text);
	source->close(source);
	*vertices_p = vertices;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

void rows_build(struct rows *rows, struct edges *e, uint64_t vertices, unsigned rank, unsigned n)
{
	uint64_t *at;

	rows->n = vertices > rank ? (uint32_t)((vertices - rank + n - 1) / n) : 0;
	rows->begin = at = ranks_realloc(NULL, rows->n + 2ull, sizeof(*at));
	rows->to = ranks_realloc(NULL, e->n, sizeof(rows->to[0]));
	for (uint64_t i = 0; i < rows->n + 2ull; i++)
		at[i] = 0;
	/* a counting sort: at[row + 1] is where the row's next edge goes, at last where it ends */
	for (size_t i = 0; i < e->n; i++)
		at[e->all[i].from / n + 2]++;
	for (uint64_t i = 2; i <= rows->n; i++)
		at[i] += at[i - 1];
	for (size_t i = 0; i < e->n; i++)
		rows->to[at[e->all[i].from / n + 1]++] = e->all[i].to;
	for (uint32_t i = 0; i < rows->n; i++)
		qsort(rows->to + at[i], at[i + 1] - at[i], sizeof(rows->to[0]), by_number);
	free(e->all);
	*e = (struct edges){ 0 };
}

void rows_free(struct rows *rows)
{
	free(rows->begin);
	free(rows->to);
	*rows = (struct rows){ 0 };
}
