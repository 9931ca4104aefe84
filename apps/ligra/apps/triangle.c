/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Triangles, each counted at its largest vertex: counts[d] is the number of
 * triangles of d with two smaller vertices.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/verify.h"

struct triangle {
	const struct csr *out;
	uint64_t *counts;
};

/* The first of the ascending targets in [i, end) that is not below x. */
static inline uint64_t find(const struct csr *out, uint64_t i, uint64_t end, uint32_t x)
{
	uint64_t step = 1;

	for (; i + step < end && out->targets[i + step] < x; step *= 2)
		i += step;
	end = i + step < end ? i + step : end;
	while (i < end) {
		uint64_t middle = i + (end - i) / 2;

		if (out->targets[middle] < x)
			i = middle + 1;
		else
			end = middle;
	}
	return i;
}

/*
 * How many neighbours both vertices have that are smaller than either.  Walks the shorter list and
 * searches the longer one, in steps that double: else a hub's list would be read from its start for
 * each of the hub's many neighbours.
 */
static inline uint64_t common(const struct csr *out, uint32_t a, uint32_t b)
{
	uint32_t limit = a < b ? a : b, few = csr_degree(out, a) < csr_degree(out, b) ? a : b;
	uint32_t many = few == a ? b : a;
	uint64_t k = csr_begin(out, many), k_end = csr_end(out, many), count = 0;

	for (uint64_t i = csr_begin(out, few); i < csr_end(out, few); i++) {
		uint32_t x = out->targets[i];

		if (x >= limit)
			break;
		k = find(out, k, k_end, x);
		if (k == k_end)
			break;
		count += out->targets[k] == x;
	}
	return count;
}

static inline bool triangle_update(struct triangle *t, uint32_t s, uint32_t d)
{
	if (s < d)
		t->counts[d] += common(t->out, s, d);
	return false;
}

static inline bool triangle_update_atomic(struct triangle *t, uint32_t s, uint32_t d)
{
	if (s < d)
		__atomic_fetch_add(&t->counts[d], common(t->out, s, d), __ATOMIC_RELAXED);
	return false;
}

static inline bool triangle_cond(const struct triangle *t, uint32_t d)
{
	return true;
}

#define EDGE_MAP triangle
#define EDGE_STATE struct triangle
#include "ligra/framework/edge_map.h"

static inline void zero(struct triangle *t, uint32_t v)
{
	t->counts[v] = 0;
}

#define VERTEX_MAP zero
#define VERTEX_STATE struct triangle
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	struct triangle t = { .out = &l->g->out, .counts = result };
	struct vertex_subset vertices = subset_all(l);

	zero_vertex_map(&vertices, &t);
	triangle_edge_map(l, &vertices, &t, EDGE_NO_OUTPUT);
	return 1;
}

const struct app app_triangle = {
	.name = "triangle",
	.summary = "triangles",
	.run = run,
	.check = verify_triangle_result,
	.entry_bytes = sizeof(uint64_t),
	.parts = PARTS_OUT | PARTS_IN,
	.symmetric_only = true,
};
