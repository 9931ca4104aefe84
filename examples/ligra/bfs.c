/* SPDX-License-Identifier: BSD-3-Clause */
#include "bfs.h"

/* A frontier is large when it and its edges are more than 1/20 of the graph's edges. */
#define LARGE_FRACTION 20
#define QUEUE_LOCAL 512

struct bfs {
	const struct graph *g;
	uint32_t *parents;
	uint32_t *frontier; /* vertices reached in the last step, in any order */
	uint32_t *next;	    /* and in this one */
	uint64_t *members;  /* bitmap of the frontier, for steps along the in-edges */
	uint64_t size, next_size, next_edges; /* the last two atomic */
};

/* What one thread has found and not yet put into the shared `next`. */
struct found {
	uint32_t count;
	uint32_t vertices[QUEUE_LOCAL];
};

static void flush(struct bfs *b, struct found *f)
{
	uint64_t at = __atomic_fetch_add(&b->next_size, f->count, __ATOMIC_RELAXED);
	uint64_t edges = 0;

	for (uint32_t i = 0; i < f->count; i++) {
		b->next[at + i] = f->vertices[i];
		edges += csr_degree(&b->g->out, f->vertices[i]);
	}
	__atomic_fetch_add(&b->next_edges, edges, __ATOMIC_RELAXED);
	f->count = 0;
}

static inline void add(struct bfs *b, struct found *f, uint32_t v)
{
	if (f->count == QUEUE_LOCAL)
		flush(b, f);
	f->vertices[f->count++] = v;
}

/* One thread wins each vertex. */
static inline bool claim(struct bfs *b, uint32_t v, uint32_t parent)
{
	uint32_t none = VERTEX_NONE;

	return __atomic_load_n(&b->parents[v], __ATOMIC_RELAXED) == VERTEX_NONE &&
	       __atomic_compare_exchange_n(&b->parents[v], &none, parent, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

static void step_out(struct bfs *b)
{
	const struct csr *out = &b->g->out;

#pragma omp parallel
	{
		struct found f = { .count = 0 };

#pragma omp for schedule(dynamic, 64)
		for (uint64_t i = 0; i < b->size; i++) {
			uint32_t u = b->frontier[i];

			for (uint64_t e = out->offsets[u]; e < out->offsets[u + 1]; e++)
				if (claim(b, out->targets[e], u))
					add(b, &f, out->targets[e]);
		}
		flush(b, &f);
	}
}

static void mark_members(struct bfs *b)
{
	uint64_t words = (b->g->vertices + 63) / 64;

#pragma omp parallel for
	for (uint64_t i = 0; i < words; i++)
		b->members[i] = 0;
#pragma omp parallel for
	for (uint64_t i = 0; i < b->size; i++)
		__atomic_fetch_or(&b->members[b->frontier[i] / 64],
				  (uint64_t)1 << b->frontier[i] % 64, __ATOMIC_RELAXED);
}

/* A vertex of the frontier with an edge to v, or VERTEX_NONE. */
static inline uint32_t find_parent(const struct bfs *b, uint64_t v)
{
	const struct csr *in = &b->g->in;

	for (uint64_t e = in->offsets[v]; e < in->offsets[v + 1]; e++) {
		uint32_t u = in->targets[e];

		if (b->members[u / 64] >> u % 64 & 1)
			return u;
	}
	return VERTEX_NONE;
}

static void step_in(struct bfs *b)
{
	mark_members(b);
#pragma omp parallel
	{
		struct found f = { .count = 0 };

#pragma omp for schedule(dynamic, 4096)
		for (uint64_t v = 0; v < b->g->vertices; v++) {
			uint32_t parent;

			if (b->parents[v] != VERTEX_NONE)
				continue;
			parent = find_parent(b, v);
			if (parent == VERTEX_NONE)
				continue;
			b->parents[v] = parent;
			add(b, &f, (uint32_t)v);
		}
		flush(b, &f);
	}
}

static void search(struct bfs *b, uint32_t source)
{
	uint64_t edges = csr_degree(&b->g->out, source);

#pragma omp parallel for
	for (uint64_t v = 0; v < b->g->vertices; v++)
		b->parents[v] = VERTEX_NONE;
	b->parents[source] = source;
	b->frontier[0] = source;
	b->size = 1;
	while (b->size) {
		uint32_t *last = b->frontier;

		b->next_size = b->next_edges = 0;
		if (b->size + edges > b->g->edges / LARGE_FRACTION)
			step_in(b);
		else
			step_out(b);
		b->frontier = b->next;
		b->next = last;
		b->size = b->next_size;
		edges = b->next_edges;
	}
}

int bfs_run(const struct graph *g, uint32_t source, uint32_t *parents, struct error *err)
{
	struct bfs b = { .g = g, .parents = parents };
	size_t queue_bytes = g->vertices * sizeof(uint32_t);
	size_t bitmap_bytes = (g->vertices + 63) / 64 * sizeof(uint64_t);
	void *frontier = NULL, *next = NULL, *members = NULL;
	int ret = mem_alloc(g->mem, queue_bytes, "bfs-frontier", &frontier, err);

	if (!ret)
		ret = mem_alloc(g->mem, queue_bytes, "bfs-next", &next, err);
	if (!ret)
		ret = mem_alloc(g->mem, bitmap_bytes, "bfs-members", &members, err);
	if (!ret) {
		b.frontier = frontier;
		b.next = next;
		b.members = members;
		search(&b, source);
	}
	mem_free(g->mem, members, bitmap_bytes);
	mem_free(g->mem, next, queue_bytes);
	mem_free(g->mem, frontier, queue_bytes);
	return ret;
}
