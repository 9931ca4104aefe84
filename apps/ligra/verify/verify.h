/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of results that share nothing with the algorithms: serial, along the
 * out-edges only, with the reference in local memory.
 */
#ifndef LIGRA_VERIFY_H
#define LIGRA_VERIFY_H

#include "ligra/framework/app.h"

#include <errno.h>

/* The parts of the graph that a check reads. */
#define VERIFY_PARTS (PARTS_OUT | PART_BIT(PART_OUT_WEIGHTS))

/* The level of a vertex that cannot be reached. */
#define LEVEL_NONE UINT32_MAX

/* Levels by a plain serial search with a queue.  levels: `vertices` entries.  0 or -ENOMEM. */
int verify_bfs_levels(const struct graph *g, uint32_t source, uint32_t *levels,
		      struct soda_graph_error *err);

/*
 * A tree of shortest paths: exactly the vertices with a level have parents,
 * each along an edge that exists and from the level before.  Two results that
 * pass have therefore the same levels.  0; -EBADMSG with the vertex.
 */
int verify_bfs(const struct graph *g, uint32_t source, const uint32_t *levels,
	       const uint32_t *parents, struct soda_graph_error *err);

/* Ranks after so many iterations, pushed serially.  ranks: `vertices` entries.  0 or -ENOMEM. */
int verify_pagerank_ranks(const struct graph *g, unsigned iterations, double *ranks,
			  struct soda_graph_error *err);

/*
 * The most by which two values of one vertex may differ, relative to the larger
 * one and at least to `floor`: well above what the order of summation changes.
 */
#define VERIFY_TOLERANCE 1e-9

/* *worst_p becomes the largest difference.  0; -EBADMSG with the vertex, `app` and `what`. */
int verify_close(uint64_t vertices, const double *expected, const double *found, double floor,
		 const char *app, double *worst_p, struct soda_graph_error *err);

/* The check of each application (struct app). */
int verify_bfs_result(const struct graph *g, const struct app_params *params, const void *result,
		      struct soda_graph_error *err);
int verify_pagerank_result(const struct graph *g, const struct app_params *params,
			   const void *result, struct soda_graph_error *err);
int verify_radii_result(const struct graph *g, const struct app_params *params, const void *result,
			struct soda_graph_error *err);
int verify_bc_result(const struct graph *g, const struct app_params *params, const void *result,
		     struct soda_graph_error *err);
int verify_components_result(const struct graph *g, const struct app_params *params,
			     const void *result, struct soda_graph_error *err);
int verify_kcore_result(const struct graph *g, const struct app_params *params, const void *result,
			struct soda_graph_error *err);
int verify_mis_result(const struct graph *g, const struct app_params *params, const void *result,
		      struct soda_graph_error *err);
int verify_triangle_result(const struct graph *g, const struct app_params *params,
			   const void *result, struct soda_graph_error *err);
int verify_bellman_ford_result(const struct graph *g, const struct app_params *params,
			       const void *result, struct soda_graph_error *err);

/* For the checks: -ENOMEM and its sentence. */
static inline int verify_out_of_memory(struct soda_graph_error *err)
{
	return soda_graph_fail(err, ENOMEM, "out of memory for the reference result");
}

#endif
